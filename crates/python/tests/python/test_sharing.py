"""Objects under many threads, across forks, dropped in any order, over files that lie; and the same results as the command has."""

import errno
import gc
import io
import json
import lzma
import os
import pathlib
import random
import subprocess
import tarfile
import threading
import unittest

import casemate
from casemate import fsverity
from world import World, tool

#: Images that kernels and mke2fs have made.
IMAGES = pathlib.Path(__file__).parents[3] / "ext4/tests/fixtures"


def in_threads(work, count=16):
    """Results of a function on threads that begin at the same time."""
    start, results = threading.Barrier(count), [None] * count

    def run(number):
        start.wait()
        try:
            results[number] = work(number)
        except BaseException as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class Sharing(World):
    def test_sixteen_threads_use_one_of_each(self):
        disk = casemate.open(self.image())
        fs = disk.ext4()
        large = (self.tree / "large").read_bytes()
        file = (fs / "large").device()
        mapping = casemate.crypt.Mapping(key=bytes(range(64)))
        sealed = mapping.encrypt(large[:65536], 5)

        def work(number):
            read = [path.read_bytes() for path in fs.root.iterdir() if path.is_file()]
            return (
                (fs / "large").read_bytes(), file.pread(1000, 1000 * number), sorted(read), str(fsverity.digest(file)),
                mapping.decrypt(sealed, 5), dict(fs.read_many([fs / "large"], threads=2)).popitem()[1],
            )

        digest = str(fsverity.digest(self.tree / "large"))
        for number, found in enumerate(in_threads(work)):
            self.assertNotIsInstance(found, BaseException)
            whole, part, read, told, plain, again = found
            self.assertTrue(whole == large and again == large and plain == large[:65536])
            self.assertEqual((part, told), (large[1000 * number :][:1000], digest))
            self.assertIn(large, read)

    def test_one_of_many_writers_wins(self):
        image = self.image()

        def work(number):
            with casemate.open(image, writable=True) as device, device.ext4_writer() as writer:
                writer.write_bytes(f"/new{number}", b"x" * number)

        results = in_threads(work)
        self.assertEqual([error for error in results if error is not None and error.errno != errno.EBUSY], [])
        self.assertIn(None, results)
        names = {path.name for path in casemate.open(image).ext4().root.iterdir()}
        self.assertEqual({f"new{number}" for number, error in enumerate(results) if error is None}, {n for n in names if "new" in n})
        self.assertEqual(subprocess.run([tool("e2fsck"), "-fn", image], capture_output=True).returncode, 0)

    def test_a_fork_in_the_middle_is_no_harm(self):
        image = self.image()
        idle, used = casemate.open(image).ext4(), casemate.open(image).ext4()
        large = (self.tree / "large").read_bytes()
        expected, stop = fsverity.digest(self.tree / "large"), threading.Event()

        def busy():
            while not stop.is_set():
                fsverity.digest((used / "large").device(), threads=2)

        def works():
            """Whether a child can use what nobody was using, and what it opens."""
            own = casemate.open(image).ext4()
            found = [(fs / "large").read_bytes() for fs in (idle, own)]
            return found == [large, large] and fsverity.digest(self.tree / "large", threads=2) == expected

        thread = threading.Thread(target=busy)
        thread.start()
        try:
            for _ in range(20):
                child = os.fork()
                if child == 0:
                    try:
                        os._exit(not works())
                    finally:
                        os._exit(9)
                self.assertEqual(os.waitpid(child, 0)[1], 0)
        finally:
            stop.set()
            thread.join()
        self.assertEqual((used / "large").read_bytes(), large)

    def test_a_child_leaves_its_parent_s_lock(self):
        image = self.image()
        with casemate.open(image, writable=True) as device:
            child = os.fork()
            if child == 0:
                device.close()
                del device
                gc.collect()
                os._exit(0)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            with self.assertRaises(OSError):
                casemate.open(image, writable=True)
        casemate.open(image, writable=True).close()

    def test_who_reads_keeps_others_from_changes(self):
        image = self.image()
        with casemate.open(image, locked=True) as reader, casemate.open_spec(image, locked=True) as other:
            with self.assertRaises(OSError) as busy:
                casemate.open(image, writable=True)
            self.assertEqual((busy.exception.errno, reader.size), (errno.EBUSY, other.size))
        with casemate.open(image, writable=True):
            for open in (casemate.open, casemate.open_spec):
                with self.assertRaises(OSError) as busy:
                    open(image, locked=True)
                self.assertEqual(busy.exception.errno, errno.EBUSY)
                open(image).close()

    def test_a_flush_that_fails_keeps_no_lock(self):
        image = self.image()
        device = casemate.open(image, writable=True)

        def fails():
            raise OSError(errno.EIO, "flush")

        device.flush = fails
        with self.assertRaises(OSError):
            device.close()
        self.assertTrue(device.closed)
        casemate.open(image, writable=True).close()

    def test_what_is_below_may_go_first(self):
        image, rng = self.image(), random.Random(7)
        large = (self.tree / "large").read_bytes()
        for _ in range(50):
            disk = casemate.open(image)
            fs = disk.ext4()
            path = fs / "large"
            file = path.device()
            stream = path.open()
            held = {"disk": disk, "fs": fs, "path": path, "file": file, "stream": stream, "window": file.window(100, 100)}
            del disk, fs, path, file, stream
            names = list(held)
            rng.shuffle(names)
            for name in names:
                if "stream" in held:
                    held["stream"].seek(5)
                    self.assertEqual(held["stream"].read(10), large[5:15])
                if "window" in held:
                    self.assertEqual(held["window"].pread(100, 0), large[100:200])
                if name == "stream":
                    held[name].close()
                del held[name]
                gc.collect()

    def test_files_that_lie_are_errors(self):
        image = self.image()
        data = image.read_bytes()

        class Liar(io.BytesIO):
            def __init__(self, lie):
                super().__init__(data)
                self.lie = lie

            def read(self, size=-1):
                if self.lie is short:
                    return super().read(size // 3 + 1)
                found = super().read(size)
                return self.lie(found) if self.tell() > 2048 else found

        def short(found):
            """No lie: there may be fewer bytes than were asked for."""

        def fails(_):
            raise RuntimeError("no")

        lies = {
            "short": short, "less": lambda found: found[:1], "long": lambda found: found + b"more", "nothing": lambda found: b"",
            "text": lambda found: "text", "none": lambda found: None, "fails": fails, "list": list, "noise": lambda found: os.urandom(len(found)),
        }
        for name, lie in lies.items():
            try:
                found = (casemate.Device.from_file(Liar(lie)).ext4() / "large").read_bytes()
                self.assertEqual((name, found), ("short", (self.tree / "large").read_bytes()))
            except (OSError, casemate.Error, TypeError, ValueError, RuntimeError, BufferError):
                self.assertNotEqual(name, "short")
        for size in [-1, 1 << 70, "many", None]:
            with self.assertRaises((OverflowError, TypeError, ValueError)):
                casemate.Device.from_ranges(size, lambda start, end: bytes(end - start))
        # A size that is not there: nothing is allocated by it.
        with self.assertRaises((OSError, casemate.Error)):
            casemate.Device.from_ranges(1 << 62, lambda start, end: b"").ext4()

    def test_buffers_that_change_meanwhile(self):
        buffer, stop = bytearray(1 << 20), threading.Event()

        def change():
            while not stop.is_set():
                buffer[random.randrange(len(buffer))] ^= 1

        thread = threading.Thread(target=change)
        thread.start()
        try:
            for _ in range(20):
                self.assertEqual(len(fsverity.digest(casemate.Device.from_bytes(buffer)).digest), 32)
                self.assertLess(casemate.crc32c(buffer), 1 << 32)
                hasher = fsverity.new()
                hasher.update(memoryview(buffer))
                self.assertEqual(len(hasher.digest()), 32)
        finally:
            stop.set()
            thread.join()


class BesideCommand(World):
    def command(self, *words):
        output = subprocess.run([os.environ["CASEMATE"], *map(str, words)], capture_output=True)
        self.assertIn(output.returncode, (0, 1), output.stderr)
        return output.stdout

    def test_images_of_kernels_are_the_same(self):
        images = sorted(IMAGES.glob("*.img.xz"))
        self.assertGreater(len(images), 8)
        for packed in images:
            image = self.folder / packed.stem
            image.write_bytes(lzma.decompress(packed.read_bytes()))
            with casemate.open(image) as device:
                fs, tar = device.ext4(), self.folder / "out.tar"
                self.assertEqual(fs.extract(tar, tar=True), [], packed.name)
                theirs = self.command("ext4", "extract", "--no-progress", image, "--tar", "-")
                self.assertTrue(tar.read_bytes() == theirs, packed.name)
                found = casemate.ext4.check(device)
                said = self.command("ext4", "check", "--json", "--no-progress", image).splitlines()
                rows = [json.loads(line) for line in said]
                kinds = [row["kind"] for row in rows if "kind" in row]
                self.assertEqual(sorted(finding.kind for finding in found if finding.level == "fault"), sorted(kinds), packed.name)
                with tarfile.open(tar) as members:
                    files = [member.name for member in members if member.isfile()][:20]
                for name in files:
                    with (fs / name).open() as file, tarfile.open(tar) as members:
                        self.assertEqual(file.read(), members.extractfile(name).read(), (packed.name, name))
            image.unlink()


if __name__ == "__main__":
    unittest.main()
