"""The package beside the standard library and the real tools."""

import array
import base64
import contextlib
import doctest
import errno
import gc
import hashlib
import hmac
import io
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import threading
import time
import unittest
import warnings
import zlib

import casemate
from casemate import ext4, fscrypt, fsverity, verity
from world import World, run, tool


def fleet_task(**options):
    """A task for a worker, where fsspec is there; its options are those of a store."""
    try:
        from casemate.fleet import Task
    except ImportError:
        return None
    return Task((), **options)


class Devices(World):
    def test_a_device_is_a_file_object(self):
        data = os.urandom(100_000)
        path = self.folder / "data"
        path.write_bytes(data)
        with casemate.open(path) as device:
            self.assertIsInstance(device, io.RawIOBase)
            self.assertEqual((device.size, device.writable(), device.seekable()), (100_000, False, True))
            self.assertEqual(device.read(10) + device.read(), data)
            self.assertEqual(device.read(), b"")
            self.assertEqual((device.seek(-5, os.SEEK_END), device.tell()), (99_995, 99_995))
            room = bytearray(b"x" * 8)
            self.assertEqual(device.readinto(room), 5)
            self.assertEqual(bytes(room), data[-5:] + b"xxx")
            self.assertEqual(device.pread(100, 1 << 40), b"")
            buffered = io.BufferedReader(device.window(50_000))
            self.assertEqual(buffered.read(7), data[50_000:50_007])
            with self.assertRaises(io.UnsupportedOperation):
                device.pwrite(b"no", 0)
        with self.assertRaises(ValueError):
            device.read()
        self.assertNotIn("closed", repr(buffered.raw))

    def test_devices_keep_the_rules_of_raw_files(self):
        device = casemate.Device.from_bytes(bytes(range(100)))
        for whence in [7, os.SEEK_DATA, -1]:
            with self.assertRaises(ValueError):
                device.seek(0, whence)
        with self.assertRaises(ValueError):
            device.seek(-1)
        numbers = array.array("I", [0, 0])
        self.assertEqual((device.readinto(numbers), numbers.tobytes()), (8, bytes(range(8))))
        self.assertEqual(device.preadinto(memoryview(bytearray(12)).cast("B", (3, 4)), 0), 12)
        with self.assertRaises((BufferError, TypeError)):
            device.readinto(memoryview(bytearray(10))[::2])
        with self.assertRaises((BufferError, TypeError)):
            device.readinto(b"constant")
        for call in [lambda: device.pread(-1, 0), lambda: device.pread(1, -1)]:
            with self.assertRaises(ValueError):
                call()
        huge = casemate.Device.from_ranges((1 << 63) + 10, lambda start, end: bytes(end - start))
        with self.assertRaises(MemoryError):
            huge.pread(1 << 63, 0)
        device.close()
        self.assertEqual((device.name, device.closed), ("memory", True))
        for call in [device.tell, device.seekable, device.readable, device.writable, device.read, lambda: device.seek(0)]:
            with self.assertRaises(ValueError):
                call()
        for wrong in ["root.img", b"x", None]:
            with self.assertRaisesRegex(TypeError, "casemate.open"):
                casemate.Device(wrong)

    def test_wrong_values_are_told_in_python_s_words(self):
        for call in [lambda: casemate.crc32c("text"), lambda: fsverity.new().update("text"), lambda: casemate.Device.from_bytes(5)]:
            with self.assertRaisesRegex(TypeError, "^a bytes-like object is required, not '(str|int)'$"):
                call()
        for threads in [0, -1]:
            with self.assertRaisesRegex(ValueError, "^threads="):
                fsverity.digest(casemate.Device.from_bytes(b"x"), threads=threads)
        numbers = array.array("I", [1, 2, 3])
        hasher = fsverity.new(numbers)
        self.assertEqual(hasher.digest(), fsverity.new(numbers.tobytes()).digest())
        self.assertEqual(casemate.crc32c(numbers), casemate.crc32c(numbers.tobytes()))
        self.assertRegex(casemate.__version__, r"^\d+\.\d+\.\d+")

    def test_large_reads_hear_ctrl_c_on_their_way(self):
        """Between pieces of some MiB Python is asked whether somebody has pressed it."""
        asked = []

        def read(start, end):
            asked.append(end - start)
            return bytes(end - start)

        device, room = casemate.Device.from_ranges(100 << 20, read), bytearray(100 << 20)
        for fetch in [lambda: device.pread(100 << 20, 0), lambda: device.preadinto(room, 0)]:
            asked.clear()
            fetch()
            self.assertEqual((sum(asked), max(asked) <= 16 << 20), (100 << 20, True))

    def test_waiting_for_a_pipe_stops_at_ctrl_c(self):
        """A named pipe that nobody writes to, and one that somebody has open and writes nothing to."""
        self.hear_ctrl_c()
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        for mode in [None, os.O_RDWR]:
            writer = None if mode is None else os.open(pipe, mode)
            timer = threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                casemate.ext4.build(self.folder / "image", tars=[pipe])
            timer.join()
            if writer is not None:
                os.close(writer)
        self.assertFalse((self.folder / "image").exists())

    def test_keys_stop_at_ctrl_c(self):
        """A derivation of hours, in the thread that signals come to."""
        self.hear_ctrl_c()
        cases = [casemate.luks.Pbkdf("argon2id", 1 << 20, memory=1 << 14, lanes=lanes) for lanes in (1, 2)]
        cases.append(casemate.luks.Pbkdf("pbkdf2", (1 << 32) - 1))
        for costs in cases:
            device = casemate.Device.from_bytes(bytes(20 << 20))
            timer = threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                casemate.luks.format(device, "secret", pbkdf=costs)
            timer.join()
        before = signal.signal(signal.SIGUSR1, lambda *_: [][0])
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        timer = threading.Timer(1, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        with self.assertRaises(IndexError):
            casemate.luks.format(device, "secret", pbkdf=costs)
        timer.join()

    def test_files_and_ranges_of_somebody_else_are_devices(self):
        data = os.urandom(50_000)
        asked = []

        def read(start, end):
            asked.append((start, end))
            return data[start:end]

        device = casemate.Device.from_ranges(len(data), read)
        self.assertEqual(device.pread(100, 7000), data[7000:7100])
        self.assertEqual(asked, [(7000, 7100)])
        self.assertEqual(casemate.Device.from_file(io.BytesIO(data)).window(9, 99).read(), data[9:108])
        self.assertEqual(casemate.Device.from_bytes(bytearray(data)).read(), data)

        def fail(start, end):
            raise KeyError(start)

        with self.assertRaises(KeyError):
            casemate.Device.from_ranges(5, fail).read()
        with self.assertRaises(OSError):
            casemate.Device.from_ranges(5, lambda start, end: b"").read()

    def test_other_threads_run_meanwhile(self):
        """A read of a device that waits for another Python thread must not hold the interpreter."""
        waiting, go = threading.Event(), threading.Event()

        def read(start, end):
            waiting.set()
            self.assertTrue(go.wait(30))
            return bytes(end - start)

        device = casemate.Device.from_ranges(1 << 20, read)
        result = []
        reader = threading.Thread(target=lambda: result.append(fsverity.digest(device, threads=2)))
        reader.start()
        self.assertTrue(waiting.wait(30))
        go.set()
        reader.join()
        self.assertEqual(result[0], fsverity.digest(casemate.Device.from_bytes(bytes(1 << 20))))

    def test_errors_are_what_python_has_for_them(self):
        with self.assertRaises(FileNotFoundError) as caught:
            casemate.open(self.folder / "none")
        self.assertEqual((caught.exception.errno, caught.exception.filename), (errno.ENOENT, str(self.folder / "none")))
        noise = casemate.Device.from_bytes(bytes(1 << 20))
        for call in [noise.ext4, lambda: noise.luks(passphrase="x")]:
            with self.assertRaises(casemate.CorruptError):
                call()
        with self.assertRaises(casemate.ArgumentError):
            noise.partition(1)
        with self.assertRaises(ValueError):
            noise.crypt()
        self.assertTrue(issubclass(casemate.MismatchError, casemate.Error))

    def test_a_partition_of_dm_crypt_is_read(self):
        image, key = self.image(), bytes(range(64))
        disk = self.folder / "disk.img"
        disk.write_bytes(bytes(20 << 20))
        run(tool("sfdisk"), "-q", disk, input="label: gpt\nstart=2048,size=32768,name=root\n")
        with casemate.open(disk, writable=True) as device:
            self.assertEqual([row[:3] + row[4:] for row in device.partitions()], [(1, 1 << 20, 16 << 20, "root")])
            inside = device.partition(1).crypt(key=key)
            inside.write(image.read_bytes())
            inside.flush()
        del inside
        with casemate.open(disk) as device:
            fs = device.partition(1).crypt(key=key).ext4()
            self.assertEqual((fs / "etc/os-release").read_text(), "ID=casemate\n")
            with self.assertRaises(casemate.MismatchError):
                device.partition(1).crypt(key=bytes(reversed(key))).ext4()

    def test_a_luks_volume_is_opened(self):
        path = self.folder / "volume"
        path.write_bytes(bytes(20 << 20))
        run(tool("cryptsetup"), "luksFormat", "-q", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000",
            "--uuid", "a7c5b1c0-5b1e-4f0e-9d0c-2f6a3e0d9b11", "-d-", path, input="secret")
        with casemate.open(path) as device:
            self.assertEqual(device.luks(passphrase="secret").size, 4 << 20)
            volume = casemate.luks.Volume(device)
            self.assertEqual((volume.version, volume.uuid), (2, "a7c5b1c0-5b1e-4f0e-9d0c-2f6a3e0d9b11"))
            with self.assertRaises(casemate.MismatchError) as caught:
                device.luks(passphrase="wrong secret")
            self.assertNotIn("wrong secret", str(caught.exception))
            self.assertEqual(caught.exception.code, "wrong-key")
            expected = device.luks(passphrase="secret").read()
        (self.folder / "pass,phrase").write_bytes(b"secret")
        key = str(self.folder / "pass,phrase").replace(",", ",,")
        for spec, given in [(f"{path},luks", "secret"), (f"{path},luks,key-file={key}", None)]:
            with casemate.open_spec(spec, passphrase=given) as device:
                self.assertEqual(device.read(), expected)
        self.assertEqual(casemate.open_spec(path).size, 20 << 20)
        for spec, said in [
            (f"{path},lusk", "did you mean luks?"),
            (f"{path},luks", "no passphrase was given"),
            (f"{path},ext4,superblock=1", "leave ext4 out"),
        ]:
            with self.assertRaises(casemate.ArgumentError) as caught:
                casemate.open_spec(spec)
            self.assertIn(said, str(caught.exception))
        with self.assertRaises(FileNotFoundError) as caught:
            casemate.open(self.folder / "none")
        self.assertEqual((caught.exception.code, caught.exception.advice), ("not-found", ()))


    def test_a_header_lies_in_none_of_its_data(self):
        """Under whatever name: the data that are written would destroy it."""
        path, link, costs = self.folder / "disk", self.folder / "link", casemate.luks.Pbkdf("pbkdf2", 1000)
        path.write_bytes(bytes(40 << 20))
        link.symlink_to(path)
        with casemate.open(path, writable=True) as disk:
            half = disk.window(20 << 20)
            for device, header in [(disk, disk), (disk, half), (half, half), (disk.window(0, 24 << 20), half)]:
                with self.assertRaises(casemate.ArgumentError) as caught:
                    casemate.luks.format(device, "p", header=header, pbkdf=costs)
                self.assertEqual(caught.exception.code, "overlap")
            self.assertEqual(path.read_bytes(), bytes(40 << 20))
            # Another part of the disk is another place.
            half, other = disk.window(20 << 20), disk.window(0, 20 << 20)
            casemate.luks.format(half, "p", header=other, pbkdf=costs)
            self.assertEqual(half.luks(passphrase="p", header=other).size, 20 << 20)
            # A header that was copied into its data opens them for reading alone.
            half.pwrite(other.pread(17 << 20, 0), 0)
            with self.assertRaises(casemate.ArgumentError):
                half.luks(passphrase="p", header=half)

    def test_a_luks_volume_is_made_and_its_keys_are_changed(self):
        path, cheap = self.folder / "volume", casemate.luks.Pbkdf("pbkdf2", 1000)
        path.write_bytes(bytes(20 << 20))

        def opens(passphrase, keyslot):
            text = run(tool("cryptsetup"), "open", "--test-passphrase", "-v", "-d-", path, input=passphrase)
            self.assertIn(f"Key slot {keyslot} unlocked", text)

        with casemate.open(path, writable=True) as device:
            volume = casemate.luks.format(device, "first", pbkdf=cheap, label="vault", sector_size=4096)
            self.assertEqual((volume.version, volume.keyslots), (2, [0]))
            self.assertEqual(volume.metadata["segments"]["0"]["sector_size"], 4096)
            with self.assertRaises(casemate.ArgumentError):
                casemate.luks.format(device, "first", pbkdf=cheap)
            # A header's text ends at a NUL.
            with self.assertRaises(casemate.ArgumentError):
                casemate.luks.format(device, "first", pbkdf=cheap, label="vault\0door", overwrite=True)
            self.assertEqual(volume.unlock(passphrase="first")[0], 0)
            self.assertEqual(volume.add_key("second", passphrase="first", keyslot=5, pbkdf=cheap), 5)
            slot, key = volume.unlock(passphrase="second")
            self.assertEqual((slot, len(key)), (5, 64))
            self.assertEqual(volume.change_key("third", passphrase="second", pbkdf=cheap), 5)
            volume.kill_slot(0)
            with self.assertRaises(casemate.MismatchError):
                volume.unlock(passphrase="first")
            with self.assertRaises(casemate.ArgumentError):
                volume.kill_slot(5)
            data = device.luks(volume_key=key)
            data.pwrite(b"within", 4096)
            data.flush()
        del data, volume
        opens("third", 5)
        self.assertEqual(casemate.open(path).luks(passphrase="third").pread(6, 4096), b"within")

    def test_a_volume_that_is_open_is_not_made_anew(self):
        path, cheap = self.folder / "volume", casemate.luks.Pbkdf("pbkdf2", 1000)
        path.write_bytes(bytes(20 << 20))
        with casemate.open(path, writable=True) as device:
            casemate.luks.format(device, "first", pbkdf=cheap)
            data = device.luks(passphrase="first")
            data.pwrite(b"old", 0)
            before = path.read_bytes()
            for over in [device, device.window(0, 19 << 20)]:
                with self.assertRaises(OSError) as caught:
                    casemate.luks.format(over, "second", pbkdf=cheap, overwrite=True)
                self.assertEqual(caught.exception.errno, errno.EBUSY)
            self.assertTrue(path.read_bytes() == before)
            data.close()
            del data, caught
            casemate.luks.format(device, "second", pbkdf=cheap, overwrite=True)
            device.luks(passphrase="second").pwrite(b"new", 0)
            self.assertEqual(device.luks(passphrase="second").pread(3, 0), b"new")

    def test_a_passphrase_that_opens_nothing_is_refused(self):
        path = self.folder / "volume"
        path.write_bytes(bytes(20 << 20))
        (self.folder / "key").write_bytes(b"secret")
        with casemate.open(path, writable=True) as device:
            casemate.luks.format(device, "secret", pbkdf=casemate.luks.Pbkdf("pbkdf2", 1000))
        for layers in ["", ",offset=4K", f",luks,key-file={self.folder}/key", f",crypt=aes-xts-plain64,key-file={self.folder}/key"]:
            with self.assertRaisesRegex(casemate.ArgumentError, "passphrase"):
                casemate.open_spec(f"{path}{layers}", passphrase="secret")
        casemate.open_spec(f"{path},luks", passphrase="secret").close()

    def test_keys_of_volumes_with_integrity_protection_are_changed(self):
        path, cheap = self.blank(40 << 20), casemate.luks.Pbkdf("pbkdf2", 1000)
        for integrity, cipher in [("hmac-sha256", "aes-xts-plain64"), ("aead", "aes-gcm-random"), ("poly1305", "chacha20-random")]:
            with casemate.open(path, writable=True) as device:
                volume = casemate.luks.format(
                    device, "first", cipher=cipher, integrity=integrity, pbkdf=cheap, overwrite=True)
                self.assertEqual(volume.add_key("second", passphrase="first", pbkdf=cheap), 1)
                self.assertEqual(volume.change_key("third", passphrase="first", keyslot=0, pbkdf=cheap), 0)
            for passphrase in ["second", "third"]:
                run(tool("cryptsetup"), "open", "--test-passphrase", "-d-", path, input=passphrase)

    def test_sectors_are_encrypted_as_mappings_do_it(self):
        key, plain = bytes(range(64)), os.urandom(8192)
        for options in [{}, {"sector_size": 4096}, {"cipher": "aes-cbc-essiv:sha256", "key_size": 32}]:
            given = key[: options.pop("key_size", 64)]
            mapping = casemate.crypt.Mapping(key=given, **options)
            with casemate.open(self.blank(8192), writable=True) as device:
                device.crypt(key=given, **options).pwrite(plain, 0)
                found = device.read()
            self.assertEqual(mapping.encrypt(plain), found)
            self.assertEqual(mapping.decrypt(found), plain)
            self.assertEqual(mapping.decrypt(found[4096:], 8), plain[4096:])
            room = bytearray(plain)
            mapping.encrypt_into(room, room)
            self.assertEqual(room, found)
        self.assertIn("aes", mapping.driver)
        for call in [lambda: mapping.encrypt(b"short"), lambda: mapping.encrypt_into(bytes(512), bytearray(5))]:
            with self.assertRaises(casemate.ArgumentError):
                call()

    def test_devices_are_served(self):
        data = os.urandom(1 << 20)
        with casemate.nbd.serve(casemate.Device.from_bytes(data), self.folder / "socket") as server:
            run(tool("nbdcopy"), server.uri, self.folder / "copy")
        self.assertEqual((self.folder / "copy").read_bytes(), data)
        self.assertEqual((server.uri, server.clients), (None, 0))
        with casemate.nbd.serve(casemate.Device.from_bytes(data), ("127.0.0.1", 0)) as server:
            self.assertRegex(server.uri, r"^nbd://127\.0\.0\.1:\d+")

    def test_a_child_leaves_its_parent_s_server(self):
        data = os.urandom(1 << 16)
        with casemate.nbd.serve(casemate.Device.from_bytes(data), self.folder / "socket") as server:
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    with server:
                        status = 2 if server.clients else 0
                    server.stop()
                except BaseException:
                    status = 3
                finally:
                    os._exit(status)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertTrue((self.folder / "socket").exists())
            run(tool("nbdcopy"), server.uri, self.folder / "copy")
        self.assertEqual((self.folder / "copy").read_bytes(), data)

    def test_others_are_served_only_if_that_is_meant(self):
        device = casemate.Device.from_bytes(bytes(4096))
        for host in ["0.0.0.0", "::"]:
            with self.assertRaisesRegex(casemate.ArgumentError, "allow_remote"):
                casemate.nbd.serve(device, (host, 0))
        with casemate.nbd.serve(device, ("0.0.0.0", 0), allow_remote=True) as server:
            self.assertRegex(server.uri, r"^nbd://0\.0\.0\.0:\d+")
        with casemate.nbd.serve(device, ("localhost", 0)) as server:
            self.assertTrue(server.uri)

    def test_bytes_behind_protected_data_are_counted(self):
        data, hashes = self.folder / "data", self.folder / "hashes"
        data.write_bytes(os.urandom(8192))
        root = casemate.verity.format(data, hashes)
        self.assertEqual(casemate.verity.verify(data, hashes, root).unprotected_bytes, 0)
        with open(data, "ab") as file:
            file.write(bytes(20_000))
        report = casemate.verity.verify(data, hashes, root)
        self.assertEqual((report.ok, report.unprotected_bytes), (True, 20_000))

    def test_a_tree_replaces_no_volume_and_no_file_system(self):
        file, place = self.folder / "file", self.blank(20 << 20)
        file.write_bytes(os.urandom(1_000_000))
        cheap = casemate.luks.Pbkdf("pbkdf2", 1000)
        casemate.luks.format(casemate.open(place, writable=True), "x", pbkdf=cheap)
        for path in [place, self.image()]:
            before = path.read_bytes()
            for out in [lambda: path, lambda: casemate.open(path, writable=True)]:
                with self.assertRaisesRegex(casemate.ArgumentError, "would be lost"):
                    fsverity.Tree.build(file, out())
            self.assertEqual(path.read_bytes(), before)
        # An earlier tree is replaced, and what is not known; the file is as long as the tree.
        place.write_bytes(os.urandom(3_000_000))
        for out in [lambda: place, lambda: place, lambda: casemate.open(place, writable=True)]:
            tree = fsverity.Tree.build(file, out())
            self.assertEqual(tree.digest, fsverity.digest(file))
            self.assertEqual(fsverity.Tree.open(place, tree.digest).over(file).read(), file.read_bytes())
            del tree
            fresh = self.folder / "fresh"
            fresh.unlink(missing_ok=True)
            fsverity.Tree.build(file, fresh)
            self.assertEqual(place.read_bytes(), fresh.read_bytes())
            with open(place, "ab") as more:
                more.write(bytes(70_000))
        # A part of a file is as long as it was.
        disk = self.folder / "disk"
        disk.write_bytes(bytes(1 << 20))
        fsverity.Tree.build(file, casemate.open(disk, writable=True).window(4096, 512 << 10))
        self.assertEqual(disk.stat().st_size, 1 << 20)
        fsverity.Tree.build(file, casemate.open(disk, writable=True).window(4096, 512 << 10))
        with open(disk, "r+b") as other:
            other.seek(4096)
            other.write(os.urandom(4096))
        with self.assertRaisesRegex(casemate.ArgumentError, "data of no known kind"):
            fsverity.Tree.build(file, casemate.open(disk, writable=True).window(4096, 512 << 10))

    def test_secrets_are_in_no_repr(self):
        key = b"hunter2" * 6
        for made in [
            ext4.Luks("hunter2", key),
            ext4.Protected("hunter2"),
            ext4.Encrypted(key),
            ext4.Luks(b"hunter2"),
            ext4.Signer(key, b"certificate"),
            fleet_task(storage_options={"secret": "hunter2"}),
        ]:
            self.assertNotIn("hunter2", f"{made!r} {made} {[made]}")
        self.assertEqual(repr(ext4.Luks("hunter2")), "Luks(passphrase=..., volume_key=None, sector_size=512, pbkdf=None)")

    def test_positions_are_whole_numbers(self):
        device = casemate.Device.from_bytes(bytes(100))
        for offset in [1.5, "1", None]:
            with self.assertRaises(TypeError):
                device.seek(offset)
        self.assertEqual((device.tell(), device.seek(True)), (0, 1))

    def test_progress_is_told_and_can_end_the_work(self):
        told, data = [], os.urandom(3 << 20)
        device = casemate.Device.from_bytes(data)
        self.assertEqual(fsverity.digest(device, progress=told.append), fsverity.digest(device))
        self.assertEqual((told[-1], told == sorted(told)), (len(data), True))

        def enough(done):
            raise InterruptedError("enough")

        with self.assertRaises(InterruptedError):
            fsverity.digest(device, progress=enough)
        with self.assertRaises(InterruptedError):
            fsverity.digest(casemate.Device.from_bytes(b"short"), progress=enough)
        for endless in ["/dev/zero", "/dev/urandom"]:
            with self.assertRaisesRegex(OSError, "character device"):
                fsverity.digest(endless)

    def test_an_exception_of_progress_is_true(self):
        """Where it comes out nothing was done, and what was done has its result, although the last call raised."""
        said, (hook, sys.unraisablehook) = [], (sys.unraisablehook, lambda what: said.append(what.exc_value))
        self.addCleanup(setattr, sys, "unraisablehook", hook)
        image, data = self.image(), self.folder / "data"
        data.write_bytes(os.urandom(1 << 20))

        def built(progress):
            ext4.build(self.folder / "built", folders=[self.tree], progress=progress)

        def repaired(progress):
            with casemate.open(image, writable=True) as device:
                ext4.repair(device, progress=progress)

        def resized(progress):
            with casemate.open(image, writable=True) as device:
                ext4.resize(device, 12 << 20, truncate=True, progress=progress)

        def extracted(progress):
            casemate.open(image).ext4().extract(self.folder / "tar", tar=True, progress=progress)

        for work, made in [
            (built, self.folder / "built"), (repaired, image), (resized, image), (extracted, self.folder / "tar"),
            (lambda progress: fsverity.Tree.build(data, self.folder / "merkle", progress=progress), self.folder / "merkle"),
            (lambda progress: verity.format(data, self.folder / "hash", progress=progress), self.folder / "hash"),
        ]:
            for calls in range(1000):
                heard = []

                def progress(done):
                    heard.append(done)
                    if len(heard) > calls:
                        raise InterruptedError("enough")

                before = made.read_bytes() if made.exists() else None
                said.clear()
                try:
                    work(progress)
                except InterruptedError:
                    self.assertEqual(made.read_bytes() if made.exists() else None, before, (work, calls))
                    continue
                self.assertTrue(made.exists() and (len(heard) <= calls or len(said) == 1), (work, calls, heard, said))
                break
            else:
                self.fail(f"{work}: never done")


class Ext4(World):
    def test_a_tree_is_read_as_pathlib_reads_it(self):
        disk = casemate.open(self.image())
        fs = disk.ext4()
        for folder, names, others in fs.root.walk():
            host = self.tree / str(folder).lstrip("/")
            if folder.name == "lost+found":
                continue
            found = os.listdir(host)
            self.assertEqual(sorted(set(names + others) - {"lost+found"}), sorted(found))
            for name in found:
                one, other = folder / name, host / name
                self.assertEqual(one.is_symlink(), other.is_symlink(), name)
                ours, theirs = one.lstat(), other.lstat()
                self.assertEqual((ours.st_mode, ours.st_mtime_ns // 10**9), (theirs.st_mode, int(theirs.st_mtime)))
                if other.is_file():
                    self.assertEqual(one.read_bytes(), other.read_bytes())
                    self.assertEqual(one.stat().st_size, other.stat().st_size)
        self.assertEqual(fs.path("link").readlink(), pathlib.PurePosixPath("etc/os-release"))
        self.assertEqual({path.name for path in fs.path("etc").iterdir()}, {"empty", "os-release"})
        self.assertIn("caf\udce9", [path.name for path in fs.root.iterdir()])
        self.assertTrue(fs.path("etc/none").exists() is False and fs.path("large/x").is_file() is False)
        with fs.path("etc/os-release").open("r") as file:
            self.assertEqual(list(file), ["ID=casemate\n"])
        with fs.path("large").open() as file:
            file.seek(123_456)
            self.assertEqual(file.read(10), (self.tree / "large").read_bytes()[123_456:123_466])
        extents = fs.path("large").extents()
        self.assertEqual([extents[0].offset, extents[-1].offset + extents[-1].size], [0, 300_032])
        stored = b"".join(disk.pread(extent.size, extent.physical) for extent in extents if extent.written)
        self.assertEqual(stored[:300_000], (self.tree / "large").read_bytes())
        self.assertEqual(fs.path("link").lstat().st_blocks, 0)
        for path, kind in [("none", FileNotFoundError), ("etc", IsADirectoryError), ("large/x", NotADirectoryError)]:
            with self.assertRaises(kind, msg=path):
                fs.path(path).read_bytes()

    def test_links_that_lead_in_a_circle_lead_to_nothing(self):
        image = self.image()
        with casemate.open(image, writable=True) as device, device.ext4_writer() as writer:
            writer.symlink("/circle", "circle")
        fs = casemate.open(image).ext4()
        self.assertEqual((fs / "circle").readlink(), pathlib.PurePosixPath("circle"))
        for path in [fs / "circle", fs / "circle/below", next(path for path in fs.root.iterdir() if path.name == "circle")]:
            self.assertFalse(path.exists() or path.is_file() or path.is_dir(), path)
            with self.assertRaises(OSError) as caught:
                path.stat()
            self.assertEqual(caught.exception.errno, errno.ELOOP)
        self.assertTrue((fs / "circle").is_symlink())

    def test_a_pattern_with_a_slash_is_of_directories(self):
        fs = casemate.open(self.image()).ext4()
        for pattern in ["*/", "**/", "etc/", "large/", "etc/*/", "etc/os-release/", "l*/"]:
            found = {str(path)[1:] for path in fs.root.glob(pattern)} - {"lost+found"}
            theirs = {str(path.relative_to(self.tree)).removesuffix(".") for path in self.tree.glob(pattern)}
            self.assertEqual({name for name in found if "caf" not in name}, {name for name in theirs if "caf" not in name}, pattern)

    def test_names_that_are_not_utf_8_are_opened(self):
        image, name = self.image(), b"not utf-8 \xff"
        with casemate.open(image, writable=True) as device, device.ext4_writer() as writer:
            writer.write_bytes("/" + os.fsdecode(name), b"contents")
        fs = casemate.open(image).ext4()
        for path in [fs / os.fsdecode(name), fs / name, fs.path(name), fs.root.joinpath(name)]:
            self.assertEqual((path.read_bytes(), path.device().read(), path.open().read()), (b"contents",) * 3)
            self.assertEqual(path.stat().st_size, 8)
        self.assertIn("not utf-8", path.device().name)

    def test_paths_have_the_verbs_of_pathlib(self):
        image = self.image()
        (self.tree / "etc/empty/deep.conf").touch()
        host = self.tree
        with casemate.open(image, writable=True) as device, device.ext4_writer() as writer:
            writer.write_bytes("/etc/empty/deep.conf", b"")
        fs = casemate.open(image).ext4()

        def of(paths, top):
            return sorted(str(path).removeprefix(str(top)).lstrip("/") for path in paths if "lost+found" not in str(path))

        for pattern in ["*", "etc/*", "**/*.conf", "**", "*/empty", "e*/o?-*", "nothing/*", "**/deep.conf", "link", "l[aei]*"]:
            self.assertEqual(of(fs.root.glob(pattern), ""), of(host.glob(pattern), host), pattern)
        self.assertEqual(of(fs.root.rglob("*.conf"), ""), ["etc/empty/deep.conf"])
        for pattern in ["", "/etc"]:
            with self.assertRaises(ValueError):
                fs.root.glob(pattern)
        path = fs / "etc/archive.tar.gz"
        self.assertEqual((path.suffixes, str(path.with_suffix(".xz")), str(path.with_name("x"))), ([".tar", ".gz"], "/etc/archive.tar.xz", "/etc/x"))
        self.assertEqual((path.relative_to("/etc"), path.relative_to(fs / "etc")), (pathlib.PurePosixPath("archive.tar.gz"),) * 2)
        self.assertTrue(path.match("*.gz") and path.is_relative_to("/etc") and (fs / "link").samefile(fs / "etc/os-release"))
        self.assertEqual([str(parent) for parent in path.parents], ["/etc", "/"])
        self.assertEqual([entry.name for entry in sorted(fs.path("etc").iterdir())], ["empty", "os-release"])

    def test_errors_name_the_path(self):
        fs = casemate.open(self.image()).ext4()
        for call, number in [
            (lambda: (fs / "etc").read_bytes(), errno.EISDIR),
            (lambda: (fs / "etc").device(), errno.EISDIR),
            (lambda: list((fs / "large").iterdir()), errno.ENOTDIR),
            (lambda: (fs / "none/x").read_bytes(), errno.ENOENT),
        ]:
            with self.assertRaises(OSError) as caught:
                call()
            self.assertEqual(caught.exception.errno, number)
            self.assertRegex(str(caught.exception), r"/(etc|large|none/x): ")
            self.assertEqual(caught.exception.filename, fs._native.name)
            self.assertTrue(caught.exception.code)

    def test_a_store_s_error_is_no_answer_about_a_path(self):
        data, raised = self.image().read_bytes(), None

        def read(start, end):
            if raised is not None:
                raise raised
            return data[start:end]

        device = casemate.Device.from_ranges(len(data), read)
        answers = [
            FileNotFoundError(errno.ENOENT, "no such key"), FileNotFoundError("no such key"), NotADirectoryError(errno.ENOTDIR, "x"),
            IsADirectoryError(errno.EISDIR, "x"), OSError(errno.ELOOP, "x"), FileExistsError(errno.EEXIST, "x"),
        ]
        for error in answers:
            fs = device.ext4()
            raised = error
            path = fs.path("etc/os-release")
            for call in [
                path.exists, path.is_file, path.is_symlink, (fs / "etc").is_dir, lambda: list(fs.root.glob("etc/*")), path.read_bytes,
                path.stat, lambda: list(fs.root.walk()), lambda: device.pread(1, 0), device.ext4, path.device,
            ]:
                with self.assertRaises(OSError) as caught:
                    call()
                self.assertEqual((type(caught.exception), caught.exception.errno), (OSError, errno.EIO), call)
                self.assertIs(caught.exception.__cause__, error)
            raised = None
            self.assertTrue(path.exists())
        # A copy goes on without a file, and tells why.
        at = data.index((self.tree / "large").read_bytes()[:4096])

        def read_but_one(start, end):
            if start <= at < end:
                raise PermissionError(errno.EACCES, "these very words")
            return data[start:end]

        fs = casemate.Device.from_ranges(len(data), read_but_one).ext4()
        left = fs.extract(self.folder / "copied")
        self.assertEqual([name for name, _ in left], ["large"], left)
        self.assertIn("these very words", left[0][1])
        # Others come out as they are.
        for error in [TimeoutError(errno.ETIMEDOUT, "x"), PermissionError(errno.EACCES, "x"), KeyError("x")]:
            fs = device.ext4()
            raised = error
            for call in [fs.path("large").exists, fs.path("large").read_bytes]:
                with self.assertRaises(type(error)) as caught:
                    call()
                self.assertIs(caught.exception, error)
            raised = None

    def test_many_files_are_read_at_once(self):
        fs = casemate.open(self.image()).ext4()
        # A number of an inode is one of its own file system.
        for other in [casemate.open(self.folder / "root.img").ext4(), casemate.open(self.image_again()).ext4()]:
            with self.assertRaisesRegex(ValueError, "not of this file system"):
                fs.read_many([other.path("large")])
        found = dict(fs.read_many(fs.root.iterdir()))
        self.assertEqual(found[fs.path("large")], (self.tree / "large").read_bytes())
        self.assertEqual(found[fs.path("link")], b"ID=casemate\n")
        self.assertIsInstance(found[fs.path("etc")], IsADirectoryError)

    def one_by_one(self, fs):
        """All files of a file system, as `read_tree` has them, each by itself."""
        found = {}
        for top, _, names in fs.root.walk():
            for path in (top / name for name in names):
                if path.is_file() and not path.is_symlink():
                    try:
                        found[path.pure] = path.read_bytes()
                    except (OSError, casemate.Error) as error:
                        found[path.pure] = (type(error), str(error))
        return found

    def whole(self, fs, **options):
        """Results of `read_tree`."""
        found = [(path.pure, data) for path, data in fs.root.read_tree(**options)]
        whole = {pure: data if isinstance(data, bytes) else (type(data), str(data)) for pure, data in found}
        self.assertEqual(len(whole), len(found))
        return whole

    def test_trees_are_read_at_once(self):
        self.image()
        for number in range(300):
            folder = self.tree / f"many/{number % 7}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"file-{number}").write_bytes(os.urandom(number * number // 5))
        os.link(self.tree / "large", self.tree / "many/again")
        (self.tree / "os-fsdecode").mkdir()
        (self.tree / "os-fsdecode" / os.fsdecode(b"na\xefve")).write_bytes(b"bytes")
        with open(self.tree / "sparse", "wb") as file:
            file.truncate(1_000_000)
        image = self.folder / "root.img"
        for features in ["64bit", "inline_data", "^extents,^64bit", "^filetype"]:
            run(tool("mke2fs"), "-q", "-F", "-t", "ext4", "-O", features, "-d", self.tree, image, "32M")
            fs = casemate.open(image).ext4()
            expected = self.one_by_one(fs)
            self.assertEqual(len(expected), 305)
            for threads in (1, 3, None):
                self.assertEqual(self.whole(fs, threads=threads), expected)
            many = dict(fs.path("many/3").read_tree())
            self.assertEqual(set(many), set(fs.path("many/3").iterdir()))
            path = next(iter(many))
            self.assertEqual((path.parent, path.read_bytes()), (fs / "many/3", many[path]))
            self.assertTrue(path.is_file() and path.stat().st_size == len(many[path]))
        with self.assertRaises(NotADirectoryError):
            next(fs.path("large").read_tree())
        self.assertEqual(list(fs.path("etc/empty").read_tree()), [])

    def test_one_file_s_error_keeps_no_other_from_being_read(self):
        image = self.image()
        debugfs = lambda words: run(tool("debugfs"), "-w", "-R", words, image)
        debugfs("set_inode_field /large size 0x10000000000")
        debugfs("link /etc /etc/again")
        fs = casemate.open(image).ext4()
        found = {str(path): data for path, data in fs.root.read_tree()}
        self.assertEqual(found.pop("/etc/os-release"), b"ID=casemate\n")
        self.assertEqual({path: type(data) for path, data in found.items()}, {"/large": OSError, "/etc/again": casemate.CorruptError})
        self.assertEqual(found["/large"].errno, errno.EFBIG)
        debugfs("set_inode_field /etc block[5] 0xfffff")
        again = {str(path): data for path, data in casemate.open(image).ext4().root.read_tree()}
        self.assertIsInstance(again["/etc"], casemate.CorruptError)

    def test_trees_with_fs_verity_and_encrypted_folders_are_read_at_once(self):
        self.image()
        image, key = self.folder / "built.img", bytes(range(64))
        casemate.ext4.build(image, folders=[self.tree], seed="1", verity=True, free=4 << 20, features="encrypt")
        with casemate.open(image, writable=True) as device, device.ext4_writer(keys=[key]) as writer:
            writer.mkdir("/secret")
            writer.set_policy("/secret", key)
            for number in range(20):
                writer.write_bytes(f"/secret/{number}", os.urandom(number * 1000))
        fs = casemate.open(image).ext4(keys=[key])
        expected = self.one_by_one(fs)
        self.assertEqual((len(expected), {type(data) for data in expected.values()}), (22, {bytes}))
        self.assertEqual(self.whole(fs), expected)
        extent = fs.path("large").extents()[0]
        with open(image, "r+b") as file:
            file.seek(extent.physical + 5000)
            file.write(b"changed")
        locked = casemate.open(image).ext4()
        found = self.whole(locked)
        self.assertEqual(found, self.one_by_one(locked))
        kinds = sorted(data[0].__name__ for data in found.values() if isinstance(data, tuple))
        self.assertEqual(kinds, ["LockedError"] * 20 + ["MismatchError"])

    def test_trees_are_read_until_somebody_interrupts(self):
        self.hear_ctrl_c()
        data, asked = self.image().read_bytes(), []

        def read(start, end):
            asked.append(start)
            if end - start >= 100_000:
                signal.raise_signal(signal.SIGINT)
                time.sleep(0.1)
            return data[start:end]

        fs = casemate.Device.from_ranges(len(data), read).ext4()
        with self.assertRaises(KeyboardInterrupt):
            list(fs.root.read_tree(threads=1))
        self.assertEqual(len(list(casemate.Device.from_bytes(data).ext4().root.read_tree())), 2)

    def test_changes_are_made_all_or_not_at_all(self):
        image = self.image()
        with casemate.open(image, writable=True) as device:
            with device.ext4_writer() as writer:
                writer.mkdir("/new/folder", parents=True)
                writer.write_bytes("/new/file", b"hello")
                writer.symlink("/new/link", "file")
                writer.rename("/large", "/new/large")
                writer.put(self.tree / "etc/os-release", "/new/copy")
                writer.setxattr("/new/file", "user.note", b"x")
                writer.chmod("/new/file", 0o600)
                writer.remove("/link")
            with self.assertRaises(ZeroDivisionError), device.ext4_writer() as writer:
                writer.rmtree("/new")
                1 / 0
            with self.assertRaises(FileExistsError), device.ext4_writer() as writer:
                writer.mkdir("/new/folder")
            fs = device.ext4()
            self.assertEqual(fs.path("new/link").read_bytes(), b"hello")
            self.assertEqual(fs.path("new/copy").read_text(), "ID=casemate\n")
            self.assertEqual(fs.path("new/file").xattrs(), {"user.note": b"x"})
            self.assertEqual(stat.S_IMODE(fs.path("new/file").stat().st_mode), 0o600)
            self.assertFalse(fs.path("link").exists() or fs.path("large").exists())
        run(tool("e2fsck"), "-fn", image)

    def test_no_change_makes_a_name_that_no_file_has(self):
        image = self.image()
        before = image.read_bytes()
        with casemate.open(image, writable=True) as device:
            for name in ["\0", "/large\0", "/etc/a\0b", "/" + "n" * 256, "/etc/..", "/etc/.", "/", ""]:
                for change in [
                    lambda writer: writer.rename("/large", name),
                    lambda writer: writer.rename("/etc", name),
                    lambda writer: writer.link("/large", name),
                    lambda writer: writer.mkdir(name),
                    lambda writer: writer.symlink(name, "large"),
                    lambda writer: writer.write_bytes(name, b"x"),
                ]:
                    with self.assertRaises((OSError, ValueError)), device.ext4_writer() as writer:
                        change(writer)
            for change in [
                lambda writer: writer.setxattr("/large", "user.a\0b", b"v"),
                lambda writer: writer.tune(label="a\0b"),
                lambda writer: writer.tune(last_mounted="/a\0b"),
            ]:
                with self.assertRaises((OSError, ValueError)), device.ext4_writer() as writer:
                    change(writer)
        self.assertTrue(image.read_bytes() == before)
        with self.assertRaises(ValueError):
            ext4.build(self.folder / "built.img", folders=[self.tree], label="a\0b")

    def test_a_writer_stays_with_its_process(self):
        image = self.image()
        for journal in [True, False]:
            if not journal:
                run(tool("mke2fs"), "-q", "-F", "-t", "ext4", "-O", "^has_journal", image, "16M")
            with casemate.open(image, writable=True) as device, device.ext4_writer() as writer:
                writer.write_bytes("/before", b"1" * 9000)
                child = os.fork()
                if child == 0:
                    status = 1
                    with contextlib.suppress(BaseException):
                        writer.write_bytes("/child", b"2" * 9000)
                    try:
                        writer.commit()
                    except OSError as error:
                        status = 0 if error.errno == errno.EBUSY and "fork" in str(error) else 2
                    finally:
                        with contextlib.suppress(BaseException):
                            writer.close()
                        os._exit(status)
                self.assertEqual(os.waitpid(child, 0)[1], 0)
                writer.write_bytes("/parent", b"3" * 9000)
                writer.commit()
            run(tool("e2fsck"), "-fn", image)
            with casemate.open(image) as device:
                names = {path.name for path in device.ext4().root.iterdir()}
            self.assertTrue({"before", "parent"} <= names and "child" not in names, names)
            self.assertEqual([path.name for path in self.folder.glob("*journal*")], [])

    def test_what_is_open_for_changes_stays_with_its_process(self):
        """A child reads; who opened it goes on writing, and goes on serving."""
        image, socket = self.image(), self.folder / "socket"
        cheap = casemate.luks.Pbkdf("pbkdf2", 1000)

        def in_child(*works):
            child = os.fork()
            if child == 0:
                status = 9
                try:
                    for number, work in enumerate(works, 1):
                        try:
                            work()
                            os._exit(number)
                        except OSError as error:
                            if error.errno != errno.EBUSY or "fork" not in str(error):
                                os._exit(number)
                    gc.collect()
                    status = 0
                finally:
                    os._exit(status)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)

        with casemate.open(image, writable=True) as device:
            def change():
                with device.ext4_writer() as writer:
                    writer.mkdir("/child")

            crypt, overwrite = device.crypt(key=bytes(range(64))), dict(pbkdf=cheap, overwrite=True)
            in_child(
                lambda: device.pwrite(b"child", 0),
                lambda: device.window(4096).pwrite(b"child", 0),
                lambda: crypt.pwrite(bytes(512), 0),
                change,
            )
            # A volume is made where nothing is laid on the device.
            crypt.close()
            in_child(lambda: casemate.luks.format(device, "x", version=1, **overwrite))
            self.assertEqual(device.pread(5, 0), bytes(5))
            device.pwrite(b"parent", 0)
            server = casemate.nbd.serve(device, socket)
            run(tool("nbdcopy"), server.uri, self.folder / "copy")
            server.stop()
        self.assertEqual((self.folder / "copy").read_bytes(), image.read_bytes())
        self.assertEqual(image.read_bytes()[:6], b"parent")

    def test_a_device_has_one_writer_at_a_time(self):
        image, cheap = self.image(), casemate.luks.Pbkdf("pbkdf2", 1000)
        with casemate.open(image, writable=True) as device:
            with device.ext4_writer() as first:
                first.write_bytes("/etc/one", b"1" * 200_000)
                first.commit()
                refused = [
                    device.ext4_writer,
                    lambda: device.window(0).ext4_writer(),
                    lambda: device.pwrite(b"x", 0),
                    lambda: device.crypt(key=bytes(range(64))).pwrite(bytes(512), 0),
                    lambda: casemate.nbd.serve(device, self.folder / "socket"),
                    lambda: casemate.luks.format(device, "x", version=1, pbkdf=cheap, overwrite=True),
                ]
                for number, write in enumerate(refused):
                    with self.assertRaises(OSError, msg=number) as caught:
                        write()
                    self.assertEqual(caught.exception.errno, errno.EBUSY)
                    self.assertIn("another writer", str(caught.exception))
            with device.ext4_writer() as second:
                second.write_bytes("/two", b"2" * 200_000)
            fs = device.ext4()
            self.assertEqual([path.read_bytes()[:2] for path in (fs / "etc/one", fs / "two")], [b"11", b"22"])
        run(tool("e2fsck"), "-fn", image)

    def test_a_list_of_partitions_lacks_none(self):
        # A primary partition, and a chain of logical ones whose first record is zeros.
        disk = bytearray(64 * 512)
        for at, kind, start, sectors in [(446, 0x83, 8, 8), (462, 0x05, 16, 40)]:
            disk[at + 4] = kind
            disk[at + 8 : at + 16] = start.to_bytes(4, "little") + sectors.to_bytes(4, "little")
        disk[510:512] = b"\x55\xaa"
        device = casemate.Device.from_bytes(bytes(disk))
        with self.assertRaisesRegex(casemate.Error, "the record of logical partition 5, at byte 8192"):
            device.partitions()
        self.assertEqual(device.partition(1).size, 8 * 512)

    def test_sources_are_taken_in_their_order(self):
        ext4, image = casemate.ext4, self.folder / "ordered.img"
        for name in ["a", "b"]:
            (self.folder / name).mkdir()
            (self.folder / name / "file").write_text(name)
            with tarfile.open(self.folder / f"{name}.tar", "w", format=tarfile.PAX_FORMAT) as tar:
                tar.add(self.folder / name / "file", "file")
                info = tarfile.TarInfo("early")
                info.mtime = 1e-09
                tar.addfile(info)
        sources = [ext4.Source("layer", self.folder / "a.tar"), ext4.Source("folder", self.folder / "b")]
        for listed, text in [(sources, "b"), (sources[::-1], "a")]:
            ext4.build(image, sources=listed)
            self.assertEqual(casemate.open(image).ext4().path("file").read_text(), text)
        for wrong in [dict(folders=[self.folder / "a"], tars=[self.folder / "b.tar"]),
                      dict(sources=sources, layers=[self.folder / "b.tar"])]:
            with self.assertRaisesRegex(ValueError, "which of them lies over which"):
                ext4.build(image, **wrong)

    def test_images_are_those_that_the_command_builds(self):
        (self.folder / "tree/home").mkdir(parents=True)
        (self.folder / "tree/home/secret").write_bytes(os.urandom(50_000))
        (self.folder / "tree/file").write_text("file")
        key = bytes(range(64))
        (self.folder / "volume.key").write_bytes(key)
        (self.folder / "master.key").write_bytes(key[:32])
        (self.folder / "pass").write_text("secret")
        words = ("ext4 build expected.img --from tree --verity --encrypt home=master.key --dm-verity append --owner 0:0 -L root"
                 " --root-hash-file root.txt --luks --key-file pass --volume-key-file volume.key --seed one --pbkdf-memory 1M"
                 " --pbkdf-force-iterations 4 --pbkdf-parallel 1")
        run(tool("casemate"), *words.split(), cwd=self.folder)
        luks = casemate.ext4.Luks("secret", key, pbkdf=casemate.luks.Pbkdf("argon2id", 4, 1024, 1))
        options = dict(folders=[self.folder / "tree"], verity=True, encrypt={"home": key[:32]}, dm_verity=True,
                       owner=(0, 0), label="root", seed="one", luks=luks)
        built = casemate.ext4.build(self.folder / "made.img", **options)
        expected = (self.folder / "expected.img").read_bytes()
        self.assertTrue((self.folder / "made.img").read_bytes() == expected)
        self.assertEqual(built.root_hash.hex(), (self.folder / "root.txt").read_text())
        self.assertIn(b"file", built.digests)
        # What was asked for in vain is refused, and what holds something else is not lost.
        for wrong in [dict(verity=["none"]), dict(encrypt={"none": key[:32]}), dict(luks=None, dm_verity=False)]:
            with self.assertRaises((ValueError, OSError)):
                casemate.ext4.build(self.folder / "made.img", **(options | wrong))
        self.assertTrue((self.folder / "made.img").read_bytes() == expected)
        # As small as it can be with so many bytes free, however that is asked for.
        for free in ["1M", "5M", "40M"]:
            for number, words in enumerate([["--min-free", free], ["--size", f"+{free}"]]):
                run(tool("casemate"), "ext4", "build", f"free{number}", "--from", "tree", "--seed", "one", *words, "--overwrite", cwd=self.folder)
            casemate.ext4.build(
                self.folder / "free", folders=[self.folder / "tree"], seed="one", free=int(free[:-1]) << 20, overwrite=True
            )
            sizes = {(self.folder / name).read_bytes() for name in ["free", "free0", "free1"]}
            self.assertEqual(len(sizes), 1, [os.path.getsize(self.folder / name) for name in ["free", "free0", "free1"]])
        # In a part of a file, which keeps the rest.
        disk = self.folder / "disk"
        disk.write_bytes(b"x" * (1 << 20) + bytes(8 << 20))
        part = casemate.ext4.build(disk, folders=[self.folder / "tree"], offset=1 << 20)
        self.assertEqual((part.size, disk.read_bytes()[:1 << 20]), (8 << 20, b"x" * (1 << 20)))
        with casemate.open(disk) as device:
            self.assertEqual(device.window(1 << 20).ext4().uuid, part.uuid)
        casemate.ext4.build(self.folder / "sparse", folders=[self.folder / "tree"], android_sparse=True)
        self.assertEqual((self.folder / "sparse").read_bytes()[:4], bytes.fromhex("3aff26ed"))

    def test_descriptions_policies_protectors_and_parity_are_those_of_the_command(self):
        for name in ["home", "raw", "bin"]:
            (self.folder / "tree" / name).mkdir(parents=True)
        secret, key = os.urandom(50_000), bytes(range(32))
        for name, data in [
            ("tree/home/secret", secret), ("tree/raw/secret", b"other"), ("tree/bin/tool", b"tool"), ("master.key", key),
            ("fs_config", b"system/bin/tool 1 2 0755\n"), ("mtree", b"#mtree\n./bin type=dir mode=0711\n"),
            ("file_contexts", b"/system(/.*)? u:object_r:system_file:s0\n"),
        ]:
            (self.folder / name).write_bytes(data)
        words = ("ext4 build expected.img --from tree --owner 0:0 --seed one --fs-config fs_config --mtree mtree"
                 " --mount-point /system --file-contexts file_contexts --encrypt home=master.key"
                 " --padding 16 --data-unit-size 1024 --dm-verity expected.hash"
                 " --fec-device expected.parity --fec-roots 4")
        run(tool("casemate"), *words.split(), cwd=self.folder)
        words = ("ext4 build expected.direct --from tree --owner 0:0 --seed one --encrypt home=master.key --flag direct-key"
                 " --contents adiantum --filenames adiantum --policy-version 1")
        run(tool("casemate"), *words.split(), cwd=self.folder)
        ext4, options = casemate.ext4, dict(folders=[self.folder / "tree"], owner=(0, 0), seed="one")
        policy = fscrypt.Policy(padding=16, data_unit_size=1024)
        described = [ext4.Description(name, self.folder / name) for name in ["fs_config", "mtree"]]
        parity = ext4.Parity(self.folder / "made.parity", roots=4)
        ext4.build(self.folder / "made.img", descriptions=described, file_contexts=self.folder / "file_contexts",
                   mount_point="/system", encrypt={"home": ext4.Encrypted(key, policy)}, dm_verity=self.folder / "made.hash",
                   parity=parity, **options)
        policy = fscrypt.Policy(1, "adiantum", "adiantum", "direct")
        ext4.build(self.folder / "made.direct", encrypt={"home": ext4.Encrypted(key, policy)}, **options)
        for kind in ["img", "hash", "parity", "direct"]:
            made, expected = ((self.folder / f"{name}.{kind}").read_bytes() for name in ["made", "expected"])
            self.assertTrue(made == expected, kind)
        # Keys of protectors are random: the secrets open them.
        image = self.folder / "protected.img"
        ext4.build(image, encrypt={"home": ext4.Protected("secret"), "raw": ext4.Protected(key, "raw_key")}, **options)
        fs = casemate.open(image).ext4(passphrases=["secret", key])
        self.assertEqual([fs.path(f"{name}/secret").read_bytes() for name in ["home", "raw"]], [secret, b"other"])
        for wrong in [dict(parity=parity), dict(encrypt={"home": ext4.Protected(key, "none")}),
                      dict(descriptions=[ext4.Description("none", self.folder / "mtree")])]:
            with self.assertRaises(ValueError, msg=wrong):
                ext4.build(self.folder / "none.img", **options, **wrong)
        self.assertFalse((self.folder / "none.img").exists())

    def test_rules_owners_and_signatures_are_those_of_the_command(self):
        for name in ["home", "bin"]:
            (self.folder / "tree" / name).mkdir(parents=True)
        (self.folder / "tree/bin/tool").write_bytes(b"tool")
        keys = pathlib.Path(__file__).parents[3] / "verity/tests/fixtures/fs-verity/keys"
        key, certificate = keys / "rsa2048.key.pem", keys / "rsa2048.cert.pem"
        owner = (self.folder / "tree/bin/tool").stat()
        words = (f"ext4 build expected.img --from tree --seed one --uid-map 5000:{owner.st_uid}:1"
                 f" --gid-map 6000:{owner.st_gid}:1 --no-xattrs --mode bin/*:u+x,go=r --mode home:700"
                 f" --xattr bin/tool:user.origin=ci --verity=bin/tool --dm-verity expected.hash --signing-key {key}"
                 f" --cert {certificate} --root-hash-signature expected.sig")
        run(tool("casemate"), *words.split(), cwd=self.folder)
        ext4 = casemate.ext4
        options = dict(
            folders=[self.folder / "tree"], seed="one", uid_map=[(5000, owner.st_uid, 1)], gid_map=[(6000, owner.st_gid, 1)],
            copy_xattrs=False, modes=[ext4.Mode("bin/*", "u+x,go=r"), ext4.Mode(b"home", "700")],
            xattrs=[ext4.Xattr("bin/tool", "user.origin", b"ci")], verity=["bin/tool"],
        )
        asked = []

        def token(message, name):
            asked.append(name)
            (self.folder / "message").write_bytes(message)
            run("openssl", "dgst", f"-{name}", "-sign", key, "-out", self.folder / "bare", self.folder / "message")
            return (self.folder / "bare").read_bytes()

        signers = [ext4.Signer(key.read_bytes(), certificate.read_bytes())]
        if shutil.which("openssl"):
            signers.append(ext4.Signer(token, certificate.read_bytes()))
        for number, signer in enumerate(signers):
            made = self.folder / f"made{number}.img"
            built = ext4.build(made, dm_verity=made.with_suffix(".hash"), signer=signer, **options)
            for kind in ["img", "hash"]:
                self.assertTrue(made.with_suffix(f".{kind}").read_bytes() == (self.folder / f"expected.{kind}").read_bytes(), kind)
            self.assertEqual(built.root_hash_signature, (self.folder / "expected.sig").read_bytes())
        self.assertEqual(asked, ["sha256"] * 2 * (len(signers) - 1))

        def broken(message, name):
            raise LookupError("no token")

        image, certificate = self.folder / "none.img", certificate.read_bytes()
        for signer, error in [
            (ext4.Signer(broken, certificate), LookupError), (ext4.Signer(lambda *_: b"none", certificate), casemate.Error),
            (ext4.Signer(lambda *_: 3, certificate), TypeError), (ext4.Signer(b"none", certificate), casemate.Error),
        ]:
            with self.assertRaises(error, msg=signer):
                ext4.build(image, signer=signer, **options)
        for wrong in [dict(modes=[ext4.Mode("none", "700")]), dict(modes=[ext4.Mode("bin", "u+q")]),
                      dict(xattrs=[ext4.Xattr("none", "user.a", b"")]), dict(verity=False, signer=signers[0])]:
            with self.assertRaises(ValueError, msg=wrong):
                ext4.build(image, **(options | wrong))
        self.assertFalse(image.exists())

    def test_an_image_that_is_not_signed_is_not_made(self):
        ext4 = casemate.ext4
        keys = pathlib.Path(__file__).parents[3] / "verity/tests/fixtures/fs-verity/keys"
        certificate = (keys / "rsa4096.cert.pem").read_bytes()

        def broken(message, name):
            raise LookupError("no token")

        (self.folder / "tree").mkdir()
        image, area = self.folder / "image", self.folder / "area"
        asked = []
        signers = [ext4.Signer(broken, certificate), ext4.Signer(lambda *_: asked.append(1) or b"none", certificate),
                   ext4.Signer((keys / "rsa2048.key.pem").read_bytes(), certificate)]
        for is_there in [False, True]:
            for signer in signers:
                for place in [True, area]:
                    if is_there:
                        ext4.build(image, folders=[self.folder / "tree"], label="old", overwrite=True)
                        area.write_bytes(b"old")
                    before = [path.read_bytes() if path.exists() else None for path in (image, area)]
                    with self.assertRaises((LookupError, casemate.Error)):
                        ext4.build(image, folders=[self.folder / "tree"], overwrite=True, dm_verity=place, signer=signer)
                    self.assertTrue([path.read_bytes() if path.exists() else None for path in (image, area)] == before, signer)
        self.assertEqual(sorted(os.listdir(self.folder)), ["area", "image", "tree"])
        self.assertEqual(len(asked), 4)

    def test_pbkdf2_takes_no_costs_of_argon2(self):
        path, Pbkdf = self.blank(32 << 20), casemate.luks.Pbkdf
        (self.folder / "tree").mkdir(exist_ok=True)
        for wrong in [Pbkdf("pbkdf2", 1000, memory=5000), Pbkdf("pbkdf2", 1000, lanes=4), Pbkdf("pbkdf2", 1000, 1, 2)]:
            with casemate.open(path, writable=True) as device, self.assertRaisesRegex(ValueError, "neither memory nor lanes"):
                casemate.luks.format(device, "secret", pbkdf=wrong)
            with self.assertRaisesRegex(ValueError, "neither memory nor lanes"):
                luks = casemate.ext4.Luks("secret", pbkdf=wrong)
                casemate.ext4.build(self.folder / "none", folders=[self.folder / "tree"], luks=luks)
        with casemate.open(path, writable=True) as device:
            volume = casemate.luks.format(device, "secret", pbkdf=Pbkdf("pbkdf2", 1000))
            with self.assertRaisesRegex(ValueError, "neither memory nor lanes"):
                volume.add_key("another", passphrase="secret", pbkdf=Pbkdf("pbkdf2", 1000, memory=5000))
        with self.assertRaisesRegex(ValueError, "scrypt.*argon2id, argon2i and pbkdf2"), casemate.open(path, writable=True) as device:
            casemate.luks.format(device, "secret", pbkdf=Pbkdf("scrypt", 1000), overwrite=True)

    def test_an_image_is_not_copied_into_itself(self):
        tree = self.folder / "tree"
        tree.mkdir()
        image = self.folder / "image"
        casemate.ext4.build(image, folders=[tree], free=4 << 20)
        os.link(image, tree / "hard")
        with casemate.open(image, writable=True) as device, device.ext4_writer() as writer:
            for source in [image, tree / "hard"]:
                with self.assertRaisesRegex(OSError, "is the image itself"):
                    writer.put(source, "/copy")
            with self.assertRaisesRegex(OSError, "is the image itself"):
                writer.put(tree, "/tree", recursive=True)
            (self.folder / "other").write_bytes(b"other")
            writer.put(self.folder / "other", "/other")

    def test_nobody_writes_below_an_overlay_that_is_open(self):
        tree, image, store = self.folder / "tree", self.folder / "image", self.folder / "overlay"
        tree.mkdir()
        casemate.ext4.build(image, folders=[tree], size=32 << 20)

        def refused(change, text="an overlay is open on it"):
            with self.assertRaisesRegex(OSError, text) as raised:
                change()
            self.assertEqual(raised.exception.errno, errno.EBUSY)

        with casemate.open(image, writable=True) as device:
            overlay = device.overlay(store)
            refused(device.ext4_writer)
            refused(lambda: device.pwrite(b"below", 0))
            refused(lambda: casemate.ext4.repair(device))
            refused(lambda: casemate.ext4.resize(device, 24 << 20))
            refused(lambda: casemate.luks.format(device, "secret", overwrite=True))
            with overlay.ext4_writer() as writer:
                writer.write_bytes("/upper", b"u" * 300_000)
            # Two of them change nothing of what lies below.
            with device.overlay(self.folder / "second") as second, second.ext4_writer() as writer:
                writer.write_bytes("/second", b"2")
            overlay.close()
            with device.ext4_writer() as writer:
                refused(lambda: device.overlay(store), "another writer")
        with casemate.open(image) as device, device.overlay(store) as overlay:
            self.assertEqual(overlay.ext4().path("/upper").read_bytes(), b"u" * 300_000)

    def test_images_are_built_checked_and_extracted(self):
        self.image()
        path = self.folder / "built.img"
        built = casemate.ext4.build(path, folders=[self.tree], label="root", seed="1", verity=True, owner=(0, 0))
        self.assertEqual((built.files, built.others, path.stat().st_size), (2, 1, built.size))
        first = path.read_bytes()
        self.assertEqual(casemate.ext4.build(path, folders=[self.tree], label="root", seed="1", verity=True,
                                             owner=(0, 0), threads=1), built)
        self.assertEqual(path.read_bytes(), first)
        run(tool("e2fsck"), "-fn", path)
        with casemate.open(path) as device:
            self.assertEqual(casemate.ext4.check(device, verity=True), [])
            fs = device.ext4()
            self.assertEqual(fs.path("large").fsverity(), fsverity.digest(self.tree / "large"))
            self.assertEqual(fs.extract(self.folder / "out"), [])
            self.assertEqual(fs.extract(self.folder / "out.tar", top="etc", tar=True), [])
        self.assertEqual((self.folder / "out/large").read_bytes(), (self.tree / "large").read_bytes())
        with tarfile.open(self.folder / "out.tar") as tar:
            self.assertEqual(tar.extractfile("os-release").read(), b"ID=casemate\n")
        damaged = bytearray(first)
        damaged[1024 + 0x10] ^= 1
        found = casemate.ext4.check(casemate.Device.from_bytes(damaged))
        self.assertIn("fault", {finding.level for finding in found})
        with self.assertRaises(OSError):
            casemate.ext4.build(path, folders=[self.tree], size=200_000)
        # No argument is without effect.
        with self.assertRaises(OSError):
            casemate.ext4.build(path, folders=[self.tree], size=4 << 20, free=30 << 20)
        secret = ext4.Encrypted(bytes(64))
        for wrong in [{"features": "^verity", "verity": True}, {"features": "^encrypt", "encrypt": {"/etc": secret}}, {"dm_verity": ""}]:
            with self.assertRaises(ValueError):
                casemate.ext4.build(path, folders=[self.tree], **wrong)
        self.assertEqual(path.read_bytes(), first)
        for none in [[], (pattern for pattern in [])]:
            self.assertEqual(casemate.ext4.build(self.folder / "other.img", folders=[self.tree], verity=none, overwrite=True).digests, {})
        one = casemate.ext4.build(
            self.folder / "other.img", folders=[self.tree], verity=(pattern for pattern in ["/large"]), overwrite=True
        )
        self.assertEqual([name.lstrip(b"/") for name in one.digests], [b"large"])

    def test_an_archive_in_an_image_is_read_in_place(self):
        inner = io.BytesIO()
        with tarfile.open(fileobj=inner, mode="w") as archive:
            archive.addfile(tarfile.TarInfo("empty"))
        image = self.image()
        with casemate.open(image, writable=True) as device, device.ext4_writer() as writer:
            writer.write_bytes("/archive.tar", inner.getvalue())
        with casemate.open(image).ext4().path("archive.tar").open() as file:
            self.assertEqual(tarfile.open(fileobj=file).getnames(), ["empty"])


class Fscrypt(World):
    KEY = bytes(range(64))

    def encrypted(self, policy=fscrypt.Policy()):
        """An image with a directory `secret` of this policy, with one file."""
        image = self.folder / "encrypted.img"
        run(tool("mke2fs"), "-q", "-F", "-t", "ext4", "-O", "encrypt,stable_inodes", image, "16M")
        with casemate.open(image, writable=True) as device:
            with device.ext4_writer() as writer:
                writer.mkdir("/secret")
                writer.set_policy("/secret", self.KEY, policy)
            with device.ext4_writer(keys=[self.KEY]) as writer:
                writer.write_bytes("/secret/a long name", b"contents" * 1000)
        return image

    def test_keys_have_their_names(self):
        key = fscrypt.MasterKey(self.KEY)
        extracted = hmac.digest(bytes(64), self.KEY, "sha512")
        identifier = hmac.digest(extracted, b"fscrypt\0\1\1", "sha512")[:16]
        self.assertEqual(key.identifier, identifier.hex())
        self.assertEqual(key.descriptor, hashlib.sha512(hashlib.sha512(self.KEY).digest()).digest()[:8].hex())
        self.assertNotIn(self.KEY.hex()[:16], repr(key))
        for wrong in [b"", b"short", bytes(65)]:
            with self.assertRaises(casemate.ArgumentError):
                fscrypt.MasterKey(wrong)

    def test_what_is_stored_is_what_ciphers_make(self):
        policies = [
            fscrypt.Policy(), fscrypt.Policy(version=1, padding=4), fscrypt.Policy(contents="adiantum", names="adiantum", ivs="direct"),
            fscrypt.Policy(ivs="inode64", padding=16), fscrypt.Policy(ivs="inode32"), fscrypt.Policy(data_unit_size=512),
        ]
        key = fscrypt.MasterKey(self.KEY)
        for policy in policies:
            image = self.encrypted(policy)
            with casemate.open(image) as device:
                fs = device.ext4(keys=[self.KEY])
                folder, file = fs / "secret", fs / "secret/a long name"
                self.assertIsNone(fs.root.encryption())
                context = file.encryption()
                self.assertEqual(context.policy, policy)
                self.assertEqual(context.key, key.descriptor if policy.version == 1 else key.identifier)
                self.assertEqual(key.context(context.nonce, policy), context)
                where = {"inode": file.stat().st_ino, "uuid": fs.uuid, "block_size": fs.block_size}
                contents = key.contents(context, **where)
                raw = self.folder / "raw"
                run(tool("debugfs"), "-R", f"dump <{where['inode']}> {raw}", image)
                self.assertEqual(file.read_bytes(), b"contents" * 1000)
                padded = file.read_bytes() + bytes(-8000 % fs.block_size)
                stored = contents.encrypt(padded)
                self.assertEqual(stored[:8000], raw.read_bytes(), policy)
                self.assertEqual(contents.decrypt(stored), padded)
                unit = contents.data_unit_size
                self.assertEqual(contents.decrypt(stored[unit:], 1), padded[unit:])
                where["inode"] = folder.stat().st_ino
                names = key.names(folder.encryption(), **where)
                name = names.encrypt("a long name")
                self.assertIn(name, image.read_bytes())
                self.assertEqual(names.decrypt(name), "a long name")
                with self.assertRaises(casemate.Error):
                    contents.decrypt(b"no whole unit")
            self.assertEqual(subprocess.run([tool("e2fsck"), "-fn", image], capture_output=True).returncode, 0)

    def test_folders_are_saved_without_keys(self):
        image = self.encrypted()
        tar = self.folder / "secret.tar"
        heard = []
        with casemate.open(image, writable=True) as device:
            self.assertEqual(fscrypt.backup(device.ext4(), "/secret", tar, progress=heard.append), [])
            with device.ext4_writer() as writer:
                fscrypt.restore(writer, tar, "/again")
            restored = device.ext4(keys=[self.KEY]) / "again/a long name"
            self.assertEqual(restored.read_bytes(), b"contents" * 1000)
            with self.assertRaises(FileNotFoundError), device.ext4_writer() as writer:
                fscrypt.restore(writer, self.folder / "none", "/third")
        self.assertGreater(heard[-1], 0)

    def test_half_of_a_restoration_is_not_committed(self):
        image = self.encrypted()
        tar = self.folder / "secret.tar"
        half = self.folder / "half.tar"
        with casemate.open(image, writable=True) as device:
            fscrypt.backup(device.ext4(), "/secret", tar)
            half.write_bytes(tar.read_bytes()[: tar.stat().st_size // 2])
            before = image.read_bytes()
            with self.assertRaises(OSError), device.ext4_writer() as writer:
                with self.assertRaises(casemate.Error):
                    fscrypt.restore(writer, half, "/again")
                writer.mkdir("/another")
        self.assertEqual(image.read_bytes(), before)

    def test_what_makes_no_sense_is_refused(self):
        key = fscrypt.MasterKey(self.KEY)
        for policy in [
            fscrypt.Policy(version=3), fscrypt.Policy(contents="rot13"), fscrypt.Policy(ivs="none"), fscrypt.Policy(padding=5),
            fscrypt.Policy(contents="aes-256-xts", names="adiantum"), fscrypt.Policy(data_unit_size=100),
        ]:
            with self.assertRaises(casemate.ArgumentError, msg=policy):
                key.context(bytes(16), policy)
        with self.assertRaises(casemate.CorruptError):
            fscrypt.Context.from_bytes(b"\2" + b"x" * 39)
        with self.assertRaises(casemate.UnsupportedError):
            fscrypt.Context.from_bytes(b"\7")
        for wrong in [{"block_size": 100}, {"block_size": 1 << 20}]:
            with self.assertRaises(casemate.ArgumentError):
                key.contents(key.context(bytes(16)), **wrong)


class Verity(World):
    def test_digests_are_fsverity_s(self):
        paths = []
        for size in [0, 1, 4096, 4097, 1_000_000]:
            path = self.folder / f"file-{size}"
            path.write_bytes(os.urandom(size))
            paths.append(path)
        for options, words in [
            ({}, []),
            ({"algorithm": "sha512", "block_size": 1024, "salt": b"salt"},
             ["--hash-alg=sha512", "--block-size=1024", "--salt=73616c74"]),
        ]:
            expected = run(tool("fsverity"), "digest", *words, *paths).splitlines()
            found = list(fsverity.digests(paths, **options))
            self.assertEqual([f"{digest} {path}" for path, digest in found], expected)
            for path, digest in found:
                self.assertEqual(fsverity.digest(path, **options), digest)
                data = path.read_bytes()
                hasher = fsverity.new(data[:100], **options)
                halfway = hasher.copy()
                for start in range(100, len(data), 77_777):
                    hasher.update(memoryview(data)[start:start + 77_777])
                self.assertEqual((hasher.digest(), hasher.hexdigest()), (digest.digest, digest.digest.hex()))
                halfway.update(data[100:])
                self.assertEqual(halfway.digest(), digest.digest)
        (_, found), = fsverity.digests([self.folder / "none"])
        self.assertIsInstance(found, FileNotFoundError)

    def test_a_hash_area_is_veritysetup_s(self):
        data, ours, theirs = (self.folder / name for name in ["data", "ours", "theirs"])
        data.write_bytes(os.urandom(1 << 20))
        uuid = "a7c5b1c0-5b1e-4f0e-9d0c-2f6a3e0d9b11"
        root = verity.format(data, ours, salt=b"\1" * 32, uuid=uuid)
        text = run(tool("veritysetup"), "format", data, theirs, f"--uuid={uuid}", f"--salt={'01' * 32}")
        self.assertIn(root.hex(), text)
        self.assertEqual(ours.read_bytes(), theirs.read_bytes())
        self.assertTrue(verity.verify(data, ours, root).ok)
        with casemate.open(data) as below, casemate.open(ours) as hashes:
            self.assertEqual(below.verity(root, hashes).read(), data.read_bytes())
        damaged = bytearray(data.read_bytes())
        damaged[5 * 4096] ^= 1
        device = casemate.Device.from_bytes(damaged)
        with casemate.open(ours) as hashes:
            self.assertEqual(verity.verify(device, hashes, root.hex()).bad, [(None, 5)])
            checked = device.verity(root, hashes)
            self.assertEqual(checked.pread(4096, 0), bytes(damaged[:4096]))
            with self.assertRaises((casemate.MismatchError, OSError)):
                checked.pread(1, 5 * 4096)
            with self.assertRaises(casemate.MismatchError):
                device.verity(bytes(32), hashes)


    def test_a_tree_beside_a_file_proves_its_parts(self):
        data, tree, theirs = (self.folder / name for name in ["data", "tree", "theirs"])
        data.write_bytes(os.urandom(300_001))
        digest = fsverity.Tree.build(data, tree, salt=b"salt").digest
        text = run(tool("fsverity"), "digest", data, f"--out-merkle-tree={theirs}", f"--salt={b'salt'.hex()}")
        self.assertIn(str(digest), text)
        self.assertEqual(tree.read_bytes()[4096:], theirs.read_bytes())
        asked = []

        def read(start, end):
            asked.append((start, end))
            return data.read_bytes()[start:end]

        remote = casemate.Device.from_ranges(300_001, read)
        checked = fsverity.Tree.open(tree, str(digest)).over(remote)
        self.assertEqual(checked.pread(10, 200_000), data.read_bytes()[200_000:200_010])
        self.assertLess(sum(end - start for start, end in asked), 100_000)
        damaged = bytearray(data.read_bytes())
        damaged[200_000] ^= 1
        checked = fsverity.Tree.open(tree, digest).over(casemate.Device.from_bytes(damaged))
        self.assertEqual(checked.pread(10, 100_000), bytes(damaged[100_000:100_010]))
        with self.assertRaises((casemate.MismatchError, OSError)):
            checked.pread(10, 200_000)
        for wrong in [fsverity.digest(theirs), fsverity.Digest("sha512", bytes(64))]:
            with self.assertRaises(casemate.MismatchError):
                fsverity.Tree.open(tree, wrong).over(data)
        with self.assertRaises(casemate.MismatchError):
            fsverity.Tree.open(tree, digest).over(casemate.Device.from_bytes(damaged[1:]))

    def test_what_is_read_is_not_written_over(self):
        data, link = self.folder / "data", self.folder / "link"
        contents = os.urandom(100_000)
        data.write_bytes(contents)
        link.symlink_to(data)
        (self.folder / "hard").hardlink_to(data)
        memory = casemate.Device.from_bytes(contents)
        for file, out in [(data, data), (data, link), (link, data), (self.folder / "hard", data), (memory, memory)]:
            with self.assertRaises(casemate.ArgumentError, msg=(file, out)):
                fsverity.Tree.build(file, out)
            with self.assertRaises(casemate.ArgumentError, msg=(file, out)):
                verity.format(file, out)
        self.assertEqual((data.read_bytes(), memory.read()), (contents, contents))
        # A tree may lie behind its data in one file.
        with open(data, "ab") as file:
            file.truncate(1 << 20)
        with casemate.open(data, writable=True) as device:
            fsverity.Tree.build(device.window(0, 100_000), device.window(1 << 17))
        self.assertEqual(data.read_bytes()[:100_000], contents)

    def test_outputs_replace_none_of_their_inputs(self):
        image = self.image()
        before, archive = image.read_bytes(), self.folder / "tree.tar"
        fs = casemate.open(image).ext4()
        run("tar", "-C", self.tree, "-cf", archive, ".")
        packed = archive.read_bytes()
        for write in [
            lambda: fs.extract(image, tar=True),
            lambda: fscrypt.backup(fs, "/etc", image),
            lambda: casemate.ext4.build(archive, tars=[archive]),
        ]:
            with self.assertRaises(casemate.ArgumentError) as caught:
                write()
            self.assertIn("would replace", str(caught.exception))
        self.assertEqual((image.read_bytes(), archive.read_bytes()), (before, packed))

    def test_the_kernel_s_digest_is_taken_where_there_is_one(self):
        path = self.folder / "file"
        path.write_bytes(b"contents")
        self.assertIsNone(fsverity.measure(path))
        self.assertEqual(fsverity.measure_or_digest(path), fsverity.digest(path))
        with self.assertRaises(FileNotFoundError):
            fsverity.measure(self.folder / "none")


class Primitives(unittest.TestCase):
    def test_checksums_and_codes(self):
        self.assertEqual(casemate.crc32c(b"123456789"), 0xE3069283)
        data = os.urandom(10_000)
        whole = casemate.crc32c(data)
        self.assertEqual(casemate.crc32c(data[700:], casemate.crc32c(data[:700])), whole)
        first, second = casemate.crc32c(data[:700]), casemate.crc32c(memoryview(data)[700:])
        self.assertEqual(casemate.crc32c_combine(first, second, 9300), whole)
        self.assertNotEqual(whole, zlib.crc32(data))
        changed = data[:100] + b"other" + data[105:]
        self.assertEqual(
            casemate.crc32c_patch(whole, len(data), 100, data[100:105], b"other"), casemate.crc32c(changed)
        )
        with self.assertRaises(ValueError):
            casemate.crc32c_patch(whole, len(data), 100, b"longer", b"short")
        for prefix in [b"", b"salt"]:
            digests = b"".join(hashlib.sha256(prefix + data[at : at + 500]).digest() for at in range(0, 10_000, 500))
            self.assertEqual(casemate.sha256_many(data, 500, prefix=prefix), digests)
        with self.assertRaises(ValueError):
            casemate.sha256_many(data, 333)
        self.assertEqual(casemate.base64_encode(data), base64.b64encode(data))
        self.assertEqual(casemate.base64_encode(data, url_safe=True), base64.urlsafe_b64encode(data))
        self.assertEqual(casemate.base64_decode(base64.b64encode(data)), data)
        with self.assertRaises(ValueError):
            casemate.base64_decode(b"QUI")


class Document(World):
    def test_the_examples_run_as_printed(self):
        image = self.image()
        (self.folder / "model.bin").write_bytes(bytes(1_000_000))
        (self.folder / "disk.img").write_bytes(bytes(20 << 20))
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(image.parent)
        with warnings.catch_warnings():
            # The interpreter's prompt closes nothing.
            warnings.simplefilter("ignore", ResourceWarning)
            for name, least in [("python.md", 15), ("fleet.md", 2), ("tutorials/models-ray.md", 3)]:
                document = pathlib.Path(os.environ["DOCUMENTS"]) / name
                flags = doctest.ELLIPSIS | doctest.REPORT_NDIFF
                result = doctest.testfile(str(document), module_relative=False, optionflags=flags)
                self.assertEqual(result.failed, 0)
                self.assertGreaterEqual(result.attempted, least)
