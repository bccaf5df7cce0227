"""Images by URL, as fsspec's users name them."""

import pickle

import casemate
import fsspec
from casemate import verity
from casemate.fs import Ext4FileSystem
from world import World

fsspec.register_implementation("ext4", Ext4FileSystem, clobber=True)


class Urls(World):
    def test_files_of_an_image_are_opened_by_url(self):
        image = self.image()
        with fsspec.open(f"ext4://etc/os-release::file://{image}") as file:
            self.assertEqual(file.read(), b"ID=casemate\n")
        with fsspec.open(f"ext4://link::file://{image}", "rt") as file:
            self.assertEqual(file.read(), "ID=casemate\n")

    def test_what_fsspec_asks_of_a_file_system(self):
        fs = fsspec.filesystem("ext4", fo=str(self.image()))
        large = (self.tree / "large").read_bytes()
        self.assertEqual(sorted(fs.ls("etc", detail=False)), ["etc/empty", "etc/os-release"])
        self.assertEqual(fs.info("large")["size"], 300_000)
        self.assertEqual(fs.info("link")["destination"], "etc/os-release")
        self.assertTrue(fs.isdir("etc") and fs.isfile("large") and not fs.exists("none"))
        self.assertEqual(fs.cat_file("large", 100_000, -5), large[100_000:-5])
        self.assertEqual(fs.find("etc"), ["etc/os-release"])
        self.assertEqual(fs.glob("et*/os-*"), ["etc/os-release"])
        fs.get("large", str(self.folder / "copy"))
        self.assertEqual((self.folder / "copy").read_bytes(), large)
        with self.assertRaises(FileNotFoundError):
            fs.open("none")

    def test_layers_are_laid_by_options(self):
        image, hashes, key = self.image(), self.folder / "hashes", bytes(range(64))
        root = verity.format(image, hashes)
        sealed = self.blank(image.stat().st_size)
        with casemate.open(sealed, writable=True) as device:
            device.crypt(key=key).pwrite(image.read_bytes(), 0)
        layers = {"crypt": {"key": key}, "verity": {"root_hash": root, "hash_device": f"file://{hashes}"}}
        fs = fsspec.filesystem("ext4", fo=str(sealed), **layers)
        self.assertEqual(fs.cat("etc/os-release"), b"ID=casemate\n")
        self.assertEqual(pickle.loads(pickle.dumps(fs)).cat("large"), (self.tree / "large").read_bytes())
        volume = self.folder / "volume"
        volume.write_bytes(bytes(32 << 20))
        with casemate.open(volume, writable=True) as device:
            cheap = casemate.luks.Pbkdf("pbkdf2", 1000)
            casemate.luks.format(device, "secret", pbkdf=cheap)
            device.luks(passphrase="secret").pwrite(image.read_bytes(), 0)
        fs = fsspec.filesystem("ext4", fo=str(volume), passphrase="secret")
        self.assertEqual(fs.cat("link"), b"ID=casemate\n")
