"""Images by URL, as fsspec's users name them."""

import fsspec

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
