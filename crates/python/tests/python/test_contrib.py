"""Adapters beside the packages that they are for; `cargo xtask adapters` installs these."""

import hashlib
import os
import unittest

import casemate
from casemate import fleet, fsverity
from casemate.contrib import avb, dissect_fve, dissect_target, model_signing
from world import World, run


class Contrib(World):
    def test_dissect_fve_has_the_same_ciphers(self):
        from dissect.fve import crypto

        data, key = os.urandom(16384), bytes(range(64))
        for spec, size, options in [
            ("aes-xts-plain64", 64, {}),
            ("aes-xts-plain64", 32, {"sector_size": 4096}),
            ("aes-xts-plain64", 64, {"sector_size": 4096, "iv_sector_size": 4096}),
            ("aes-cbc-essiv:sha256", 32, {}),
            ("aes-cbc-plain", 16, {}),
        ]:
            ours = dissect_fve.create_cipher(spec, key[:size], **options)
            theirs = crypto.create_cipher(spec, key[:size], **options)
            for sector in (0, 8, 1 << 20):
                sealed = theirs.encrypt(data, sector)
                self.assertEqual(ours.encrypt(data, sector), sealed, (spec, options))
                self.assertEqual(ours.decrypt(sealed, sector), data)
                room = bytearray(len(data))
                self.assertIsNone(ours.decrypt(sealed, sector, room))
                self.assertEqual(room, data)

    def test_dissect_target_walks_images(self):
        from dissect.target.filesystems.extfs import ExtFilesystem

        with open(self.image(), "rb") as ours, open(self.folder / "root.img", "rb") as theirs:
            one, other = dissect_target.Ext4Filesystem(ours), ExtFilesystem(theirs)
            self.assertTrue(dissect_target.Ext4Filesystem.detect(ours))
            walked = [list(fs.walk("/")) for fs in (one, other)]
            names = [sorted((top, sorted(dirs), sorted(files)) for top, dirs, files in walk) for walk in walked]
            self.assertEqual([row for row in names[0] if "caf" not in str(row)], [row for row in names[1] if "caf" not in str(row)])
            self.assertEqual(one.path("/etc/os-release").read_text(), "ID=casemate\n")
            self.assertEqual(one.path("/link").read_text(), "ID=casemate\n")
            self.assertEqual(one.path("/large").read_bytes(), other.path("/large").read_bytes())
            for name in ["/large", "/etc", "/link"]:
                ours, theirs = one.path(name).lstat(), other.path(name).lstat()
                self.assertEqual((ours.st_mode, ours.st_size, ours.st_mtime_ns), (theirs.st_mode, theirs.st_size, theirs.st_mtime_ns))
            self.assertFalse(one.path("/none").exists())

    def test_model_signing_hashes_files(self):
        path = self.folder / "model"
        path.write_bytes(os.urandom(100_000))
        found = model_signing.FsverityFileHasher(path).compute()
        self.assertEqual((found.algorithm, found.digest_value), ("fsverity-sha256", fsverity.digest(path).digest))

    def test_model_signing_takes_manifests_of_fleets(self):
        from model_signing._serialization import file
        from model_signing._signing import sign_ec_key, signing

        model = self.folder / "model"
        (model / "below").mkdir(parents=True)
        for name in ["config.json", "below/weights", "below/empty"]:
            (model / name).write_bytes(os.urandom(len(name) * 1000) if "empty" not in name else b"")
        theirs = file.Serializer(model_signing.FsverityFileHasher).serialize(model)
        urls = [str(path) for path in model.rglob("*") if path.is_file()]
        ours = model_signing.manifest("model", str(model), fleet.digests(urls))
        self.assertEqual(ours, theirs)
        self.assertEqual(ours.serialization_type, theirs.serialization_type)
        self.assertEqual(list(ours.resource_descriptors()), list(theirs.resource_descriptors()))
        key, public = self.folder / "key.pem", self.folder / "public.pem"
        run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
        run("openssl", "ec", "-in", key, "-pubout", "-out", public)
        signature = sign_ec_key.Signer(key).sign(signing.Payload(ours))
        self.assertEqual(sign_ec_key.Verifier(public).verify(signature), theirs)
        with self.assertRaises(ValueError):
            model_signing.manifest("model", "/elsewhere", fleet.digests(urls))

    def test_avb_trees_follow_their_definition(self):
        data, salt = os.urandom(200 * 4096), b"salt"
        root, tree = avb.hash_tree(casemate.Device.from_bytes(data), salt=salt)
        level, levels = data, []
        while len(level) > 4096:
            digests = b"".join(hashlib.sha256(salt + level[at : at + 4096]).digest() for at in range(0, len(level), 4096))
            level = digests + bytes(-len(digests) % 4096)
            levels.insert(0, level)
        self.assertEqual((tree, root), (b"".join(levels), hashlib.sha256(salt + level).digest()))


if __name__ == "__main__":
    unittest.main()
