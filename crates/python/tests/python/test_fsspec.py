"""Images by URL, as fsspec's users name them."""

import os
import pickle

import casemate
import fsspec
from casemate import fsverity, verity
from casemate.fs import Ext4FileSystem, VerityFileSystem
from world import World, run, tool

fsspec.register_implementation("ext4", Ext4FileSystem, clobber=True)
fsspec.register_implementation("verity", VerityFileSystem, clobber=True)


class Urls(World):
    def test_files_of_an_image_are_opened_by_url(self):
        image = self.image()
        with fsspec.open(f"ext4://etc/os-release::file://{image}") as file:
            self.assertEqual(file.read(), b"ID=casemate\n")
        with fsspec.open(f"ext4://link::file://{image}", "rt") as file:
            self.assertEqual(file.read(), "ID=casemate\n")

    def test_changes_are_refused_and_not_ignored(self):
        fs = fsspec.filesystem("ext4", fo=str(self.image()))
        for change in (
            lambda: fs.mkdir("new"),
            lambda: fs.makedirs("new/below"),
            lambda: fs.rmdir("etc"),
            lambda: fs.rm("etc/os-release"),
            lambda: fs.touch("new"),
            lambda: fs.pipe_file("new", b"x"),
        ):
            with self.assertRaises(NotImplementedError):
                change()
        self.assertFalse(fs.exists("new"))

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

    def test_nothing_hides_a_directory(self):
        """Links that lead in circles or nowhere, names of any bytes, and whatever else a folder may have."""
        image, odd = self.image(), "etc/odd\udcff"
        with casemate.open(image, writable=True) as device, device.ext4_writer() as writer:
            writer.symlink("/etc/circle", "circle")
            writer.symlink("/etc/nowhere", "none")
            writer.write_bytes("/" + odd, b"odd")
        fs = fsspec.filesystem("ext4", fo=str(image))
        rows = {row["name"]: row["type"] for row in fs.ls("etc")}
        self.assertEqual(rows, {
            "etc/circle": "link", "etc/nowhere": "link", "etc/empty": "directory", "etc/os-release": "file", odd: "file",
        })
        self.assertLessEqual({"etc/os-release", odd, "large"}, set(fs.find("")))
        self.assertIn("etc/os-release", fs.glob("etc/*"))
        self.assertGreater(fs.du(""), 300_000)
        self.assertFalse(fs.exists("etc/circle") or fs.isfile("etc/circle"))
        self.assertEqual((fs.cat_file(odd), fs.open(odd).read()), (b"odd", b"odd"))

    def test_links_to_folders_are_not_gone_through(self):
        """As with the local file system: two links to their own folder would have 2^40 paths."""
        image = self.image()
        with casemate.open(image, writable=True) as device, device.ext4_writer() as writer:
            for name in "ab":
                writer.symlink(f"/etc/{name}", ".")
        fs = fsspec.filesystem("ext4", fo=str(image))
        self.assertEqual(sorted(fs.find("etc")), ["etc/a", "etc/b", "etc/os-release"])
        self.assertEqual([top for top, _, _ in fs.walk("etc")], ["etc", "etc/empty"])
        self.assertIn("etc/os-release", fs.glob("**"))
        self.assertGreater(fs.du("", total=True), 300_000)
        fs.get("etc", str(self.folder / "copy"), recursive=True)
        self.assertEqual((self.folder / "copy/os-release").read_bytes(), b"ID=casemate\n")
        # Who names one follows it.
        self.assertEqual(fs.info("etc/a")["type"], "directory")
        self.assertIn("etc/a/os-release", fs.ls("etc/a", detail=False))
        self.assertEqual(fs.cat_file("etc/a/b/os-release"), b"ID=casemate\n")

    def test_directories_that_lead_up_end(self):
        """Paths of a damaged image, in which a directory is an entry of itself."""
        image = self.image()
        run(tool("debugfs"), "-w", "-R", "ln /etc /etc/again", image)
        fs = fsspec.filesystem("ext4", fo=str(image))
        self.assertIn("etc/os-release", fs.find(""))
        self.assertEqual([top for top, _, _ in fs.walk("etc")], ["etc", "etc/empty"])

    def test_a_store_s_error_is_no_answer_about_a_path(self):
        data, gone = self.image().read_bytes(), False

        def read(start, end):
            if gone:
                raise FileNotFoundError(2, "no such key")
            return data[start:end]

        fs = Ext4FileSystem(casemate.Device.from_ranges(len(data), read))
        gone = True
        for call in [lambda: fs.exists("etc"), lambda: fs.info("etc"), lambda: fs.ls("etc"), lambda: fs.cat_file("large")]:
            with self.assertRaises(OSError) as caught:
                call()
            self.assertNotIsInstance(caught.exception, FileNotFoundError)

    def test_a_slash_before_a_path_is_nothing(self):
        fs = fsspec.filesystem("ext4", fo=str(self.image()))
        for path in ["etc", "/etc", "etc/", "/etc/"]:
            self.assertEqual(fs.info(path)["name"], "etc", path)
            self.assertEqual(fs.find(path), ["etc/os-release"])
            got = self.folder / f"got{len(path)}{path[0] == '/'}"
            fs.get(path, str(got), recursive=True)
            self.assertEqual([file.read_text() for file in got.rglob("os-release")], ["ID=casemate\n"])
        self.assertEqual(fs.glob("/et*/os-*"), ["etc/os-release"])
        self.assertEqual(fs.cat("/etc/*-release"), fs.cat("etc/*-release"))
        self.assertEqual(fs.ls("/etc", detail=False), fs.ls("etc", detail=False))

    def test_files_have_times_keys_and_blocks(self):
        image = self.image()
        url = f"ext4://large::file://{image}"
        fs = fsspec.filesystem("ext4", fo=str(image))
        large = (self.tree / "large").read_bytes()
        self.assertEqual(int(fs.modified("large").timestamp()), int((self.tree / "large").stat().st_mtime))
        self.assertLessEqual(fs.modified("large"), fs.created("large"))
        self.assertEqual(fs.read_block("large", 1000, 50), large[1000:1050])
        self.assertEqual(fs.read_block("etc/os-release", 0, None, b"\n"), b"ID=casemate\n")
        keys = {fs.ukey("large"), fs.ukey("etc/os-release"), fsspec.filesystem("ext4", fo=str(image)).ukey("large")}
        self.assertEqual(len(keys), 2)
        self.assertEqual((fs.open("large").size, fs.checksum("large"), fs.tail("large", 5)), (300_000, fs.checksum("large"), large[-5:]))
        try:
            from dask.bytes import read_bytes
        except ImportError:
            self.skipTest("no dask: the package python3-dask")
        _, (blocks,) = read_bytes(url, blocksize=100_000, sample=False)
        self.assertEqual(b"".join(block.compute(scheduler="synchronous") for block in blocks), large)

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

    def test_a_file_is_proved_by_the_tree_beside_it(self):
        store, data, tree = fsspec.filesystem("memory"), os.urandom(900_000), self.folder / "tree"
        digest = str(fsverity.Tree.build(casemate.Device.from_bytes(data), tree).digest)
        store.pipe({"/model.bin": data, "/model.bin.fsverity": tree.read_bytes(), "/elsewhere": tree.read_bytes()})
        with fsspec.open("verity::memory://model.bin", verity={"digest": digest}) as file:
            self.assertEqual((file.seek(500_000), file.read(100)), (500_000, data[500_000:500_100]))
        fs, path = fsspec.core.url_to_fs("verity::memory://model.bin", verity={"digest": digest, "tree": "memory://elsewhere"})
        self.assertEqual((fs.cat_file(path, 10, 20), fs.info(path)["size"]), (data[10:20], 900_000))
        store.pipe("/model.bin", data[:600_000] + b"?" + data[600_001:])
        with fsspec.open("verity::memory://model.bin", verity={"digest": digest}) as file:
            self.assertEqual(file.read(100), data[:100])
            file.seek(600_000)
            with self.assertRaises((casemate.MismatchError, OSError)):
                file.read(1)
        with self.assertRaises(casemate.MismatchError):
            fsspec.open("verity::memory://model.bin", verity={"digest": "sha256:" + "00" * 32}).open()
