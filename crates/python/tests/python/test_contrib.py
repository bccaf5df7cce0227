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
            ("aes-ecb", 32, {}),
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

    def test_dfvfs_walks_images(self):
        from casemate.contrib import dfvfs as adapter
        from dfvfs.lib import definitions
        from dfvfs.path import factory
        from dfvfs.resolver import context, resolver
        from dfvfs.resolver_helpers import ext_resolver_helper, manager

        image = self.image()
        with casemate.open(image, writable=True) as device, device.ext4_writer() as writer:
            writer.setxattr("/large", "user.note", b"value")
            writer.write_bytes("/sparse", b"")
            writer.truncate("/sparse", 100_000)
            # pyfsext ends where a name is not UTF-8.
            writer.rmtree(os.fsdecode(b"/caf\xe9"))
        raw = factory.Factory.NewPathSpec(definitions.TYPE_INDICATOR_OS, location=str(image))

        def told():
            here = context.Context()
            top = factory.Factory.NewPathSpec(definitions.TYPE_INDICATOR_EXT, location="/", parent=raw)
            fs = resolver.Resolver.OpenFileSystem(top, resolver_context=here)
            rows, notes, waiting = [], {}, [fs.GetRootFileEntry()]
            while waiting:
                entry = waiting.pop()
                found = entry.GetStatAttribute()
                waiting.extend(entry.sub_file_entries)
                file = entry.GetFileObject() if entry.IsFile() else None
                # pyfsext tells these only of files that it has found by their paths.
                notes[entry.name] = [(row.name, row.read()) for row in entry.attributes]
                rows.append((
                    entry.path_spec.location, entry.name, entry.size, entry.link, entry.modification_time.CopyToPosixTimestampWithFractionOfSecond(),
                    entry.creation_time and entry.creation_time.CopyToPosixTimestampWithFractionOfSecond(),
                    found.mode, found.inode_number, found.owner_identifier, found.number_of_links,
                    [(row.offset, row.size, row.extent_type) for row in entry.GetExtents()],
                    file and (file.get_size(), file.read(10), file.seek(-10, os.SEEK_END), file.get_offset(), file.read()),
                ))
            missing = factory.Factory.NewPathSpec(definitions.TYPE_INDICATOR_EXT, location="/none", parent=raw)
            self.assertFalse(fs.FileEntryExistsByPathSpec(missing))
            self.assertIsNone(fs.GetFileEntryByPathSpec(missing))
            link = factory.Factory.NewPathSpec(definitions.TYPE_INDICATOR_EXT, location="/link", parent=raw)
            self.assertEqual(fs.GetFileEntryByPathSpec(link).link, "etc/os-release")
            return sorted(rows), notes, type(fs)

        expected, _, theirs = told()
        adapter.register()
        try:
            found, notes, ours = told()
        finally:
            helpers = manager.ResolverHelperManager
            helpers.DeregisterHelper(helpers.GetHelper(definitions.TYPE_INDICATOR_EXT))
            helpers.RegisterHelper(ext_resolver_helper.EXTResolverHelper())
        self.assertIsNot(ours, theirs)
        self.assertGreater(len(found), 5)
        for one, other in zip(found, expected, strict=True):
            self.assertEqual(one, other)
        self.assertEqual({name: rows for name, rows in notes.items() if rows}, {"large": [("user.note", b"value")]})

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
        # A block that is not whole counts, with zeros behind.
        cut = data[:-1000]
        (self.folder / "cut").write_bytes(cut)
        padded = avb.hash_tree(casemate.Device.from_bytes(cut + bytes(1000)), salt=salt)
        self.assertEqual(avb.hash_tree(self.folder / "cut", salt=salt), padded)
        self.assertEqual(avb.hash_tree(casemate.Device.from_bytes(cut + b"more"), len(cut), salt=salt), padded)
        one = avb.hash_tree(casemate.Device.from_bytes(b"x"), salt=salt)
        self.assertEqual(one, (hashlib.sha256(salt + b"x".ljust(4096, b"\0")).digest(), b""))


if __name__ == "__main__":
    unittest.main()
