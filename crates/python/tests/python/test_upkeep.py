"""File systems that are repaired, tuned and resized, beside e2fsprogs; and partitions that nothing goes over."""

import errno
import struct
import unittest

import casemate
from casemate import ext4
from world import World, run, tool

#: Damage of counts, bitmaps and an inode that has no name.
DAMAGE = """set_bg 0 free_blocks_count 9
set_bg 0 checksum calc
setb 5000 20
seti <40>
sif / links_count 9
unlink /lost+found
"""


class Upkeep(World):
    def small(self):
        """An ext4 with blocks of 1024 bytes and two files."""
        (self.folder / "files").mkdir()
        for name, size in [("a", 300_000), ("b", 500_000)]:
            (self.folder / "files" / name).write_bytes(bytes([len(name) + size % 251]) * size)
        path = self.folder / "small.img"
        run(tool("mke2fs"), "-q", "-F", "-t", "ext4", "-b", "1024", "-N", "128", "-L", "first", "-d", self.folder / "files",
            path, "16M")
        return path

    def damage(self, path, script):
        (self.folder / "script").write_text(script)
        run(tool("debugfs"), "-w", "-f", self.folder / "script", path)

    def test_a_file_system_is_repaired_and_given_back(self):
        path = self.small()
        self.damage(path, DAMAGE)
        before, undo = path.read_bytes(), self.folder / "undo"
        with casemate.open(path) as device, self.assertRaises(casemate.ArgumentError):
            ext4.repair(device)
        with casemate.open(path, writable=True) as device:
            kinds = {finding.kind for finding in ext4.check(device) if finding.level == "fault"}
            self.assertLessEqual({"free-blocks", "block-bitmap", "inode-bitmap", "link-count", "unconnected"}, kinds)
            asked = {}
            left = ext4.repair(device, approve=lambda kind, findings: asked.update({kind: findings}))
            self.assertEqual((left.fixed, left.clean), ([], False))
            self.assertLessEqual(kinds, set(asked))
            self.assertTrue(all(isinstance(finding, ext4.Finding) for found in asked.values() for finding in found))

            def refuses(kind, findings):
                raise ZeroDivisionError

            with self.assertRaises(ZeroDivisionError):
                ext4.repair(device, approve=refuses)
            with self.assertRaises(casemate.ArgumentError):
                ext4.repair(device, depth="nonsense")
            self.assertEqual(path.read_bytes(), before)
            told = []
            repaired = ext4.repair(device, undo=undo, progress=told.append)
            self.assertTrue(repaired.clean and told)
            self.assertEqual((repaired.findings, repaired.withheld, repaired.left_out), ([], [], 0))
            self.assertLessEqual(kinds, {finding.kind for finding in repaired.fixed})
            self.assertEqual(ext4.check(device), [])
            with self.assertRaises(FileExistsError):
                ext4.repair(device, undo=undo)
            with device.ext4_writer(), self.assertRaises(OSError) as caught:
                ext4.repair(device)
            self.assertEqual(caught.exception.errno, errno.EBUSY)
        run(tool("e2fsck"), "-fn", path)
        run(tool("e2undo"), undo, path)
        self.assertEqual(path.read_bytes(), before)

    def test_what_needs_a_decision_is_repaired_where_that_is_wanted(self):
        path = self.small()
        first = run(tool("debugfs"), "-R", "blocks /a", path).split()[0]
        # The second file's map leads to the first one's blocks.
        self.damage(path, f"sif /b block[5] {first}\n")
        with casemate.open(path, writable=True) as device:
            safe = ext4.repair(device)
            self.assertFalse(safe.clean)
            self.assertIn("fault", {finding.level for finding in safe.findings})
            self.assertEqual(safe.altered, [])
            repaired = ext4.repair(device, depth="all")
            self.assertTrue(repaired.clean)
            numbers = [(device.ext4() / name).stat().st_ino for name in "ab"]
            self.assertEqual(repaired.altered, [ext4.Altered(number, "shared") for number in numbers])
            self.assertEqual((device.ext4() / "a").read_bytes(), (self.folder / "files/a").read_bytes())
        run(tool("e2fsck"), "-fn", path)

    def test_parameters_are_those_that_dumpe2fs_prints(self):
        path = self.small()
        uuid = "00010203-0405-0607-0809-0a0b0c0d0e0f"
        with casemate.open(path, writable=True) as device:
            self.assertEqual(device.ext4().label, "first")
            with device.ext4_writer() as writer:
                for wrong in [
                    {"label": "of more than sixteen"}, {"uuid": "none"}, {"on_errors": "ignore"}, {"max_mounts": 16001},
                    {"reserved_percent": 51}, {"features": "nonsense"}, {"mount_options": "nonsense"}, {"extended": "nonsense=1"},
                ]:
                    with self.assertRaises(casemate.ArgumentError, msg=wrong):
                        writer.tune(**wrong)
                # One of the two would be left out, and times have 40 bits.
                for wrong in [
                    {"reserved_percent": 1, "reserved_blocks": 500}, {"last_check": 1 << 40}, {"last_check": -1},
                    {"last_check": -(1 << 63)},
                ]:
                    with self.assertRaises(casemate.ArgumentError, msg=wrong):
                        writer.tune(**wrong)
                writer.tune(last_check=(1 << 40) - 1, reserved_blocks=500)
                with self.assertRaises(casemate.UnsupportedError):
                    writer.tune(label="unsaid", features="^extent")
                writer.tune(
                    label="second", uuid=uuid, features="verity", mount_options="discard,^acl", extended="stride=4,stripe_width=8",
                    on_errors="panic", last_mounted="/mnt", reserved_percent=10, reserved_user=7, reserved_group=8, max_mounts=5,
                    mounts=3, check_interval=86400, last_check=1577836800,
                )
            fs = device.ext4()
            self.assertEqual((fs.label, fs.uuid, fs.blocks), ("second", uuid, 16 << 10))
            self.assertEqual(fs.reserved_blocks, fs.blocks // 10)
            self.assertTrue(0 < fs.free_blocks < fs.blocks)
            # It holds its image.
            del fs
        run(tool("e2fsck"), "-fn", path)
        lines = run(tool("dumpe2fs"), "-h", path).splitlines()
        told = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
        for name, value in {
            "Filesystem volume name": "second", "Filesystem UUID": uuid, "Last mounted on": "/mnt", "Errors behavior": "Panic",
            "Reserved block count": str((16 << 10) // 10), "Maximum mount count": "5", "Mount count": "3",
            "Last checked": "Wed Jan  1 00:00:00 2020", "RAID stride": "4", "RAID stripe width": "8",
        }.items():
            self.assertEqual(told[name], value, name)
        for name, value in {"Reserved blocks uid": "7 ", "Reserved blocks gid": "8 ", "Check interval": "86400 "}.items():
            self.assertTrue(told[name].startswith(value), told[name])
        self.assertIn("verity", told["Filesystem features"].split())
        self.assertIn("discard", told["Default mount options"].split())
        self.assertNotIn("acl", told["Default mount options"].split())
        with casemate.open(path, writable=True) as device, device.ext4_writer() as writer:
            writer.tune(features="^has_journal", label="")
        with casemate.open(path, writable=True) as device:
            with device.ext4_writer() as writer:
                writer.tune(journal_size=2 << 20)
            self.assertEqual(device.ext4().label, "")
        run(tool("e2fsck"), "-fn", path)
        self.assertIn("2048k", "".join(run(tool("dumpe2fs"), "-h", path)))

    def test_sizes_are_those_that_resize2fs_wants(self):
        path = self.small()
        mib = 1 << 20
        with casemate.open(path, writable=True) as device:
            least = ext4.minimum_size(device)
            with self.assertRaises(casemate.ArgumentError):
                ext4.resize(device, 1)
            with self.assertRaises(OSError) as caught:
                ext4.resize(device, least // 2)
            self.assertEqual((caught.exception.errno, caught.exception.code), (errno.ENOSPC, "no-room"))

            def stops(done):
                raise InterruptedError

            with self.assertRaises(InterruptedError):
                ext4.resize(device, 13 * mib, progress=stops)
            self.assertEqual(device.ext4().blocks, 16 << 10)
            told = []
            resized = ext4.resize(device, 12 * mib, progress=told.append)
            self.assertEqual((resized.block_size, resized.blocks_before, resized.size), (1024, 16 << 10, 12 * mib))
            self.assertTrue(told)
            self.assertEqual(device.size, 16 * mib)
            run(tool("e2fsck"), "-fn", path)
            ext4.resize(device, 11 * mib, truncate=True)
            self.assertEqual(device.size, 11 * mib)
            ext4.resize(device, 20 * mib)
            self.assertEqual(ext4.resize(device).blocks, 20 << 10)
            smallest = ext4.minimize(device)
            self.assertEqual(device.size, smallest.size)
            self.assertTrue(least <= smallest.size < 11 * mib)
            for name in "ab":
                self.assertEqual((device.ext4() / name).read_bytes(), (self.folder / "files" / name).read_bytes())
        run(tool("e2fsck"), "-fn", path)
        theirs = int(run(tool("resize2fs"), "-P", path).split()[-1])
        self.assertLessEqual(smallest.blocks, theirs + theirs // 20)
        # What lies behind a file system is lost where that is said alone.
        with path.open("ab") as file:
            file.write(b"behind" * 1000)
        with casemate.open(path, writable=True) as device:
            with self.assertRaises(casemate.ArgumentError) as caught:
                ext4.resize(device, 12 * mib)
            self.assertIn("overwrite=True", str(caught.exception))
            with self.assertRaises(casemate.ArgumentError):
                ext4.resize(device, smallest.size, truncate=True)
            ext4.resize(device, 12 * mib, overwrite=True)
        run(tool("e2fsck"), "-fn", path)

    def test_a_partition_s_start_is_no_place_for_more_than_the_partition(self):
        mib, disk = 1 << 20, self.folder / "disk"
        table = bytearray(512)
        for at, (start, count) in zip([446, 462], [(2048, 40960), (43008, 40960)], strict=True):
            table[at:at + 16] = struct.pack("<B3xB3xII", 0, 0x83, start, count)
        table[510:] = b"\x55\xaa"
        disk.write_bytes(bytes(table) + bytes(48 * mib - 512))
        before, cheap = disk.read_bytes(), casemate.luks.Pbkdf("pbkdf2", 1000)
        (self.folder / "empty").mkdir()
        with casemate.open(disk, writable=True) as device:
            for window in [device.window(mib), device.window(mib, 30 * mib), device.window(512).window(mib - 512)]:
                with self.assertRaises(casemate.ArgumentError) as caught:
                    casemate.luks.format(window, "secret", pbkdf=cheap, overwrite=True)
                self.assertEqual((caught.exception.code, caught.exception.advice), ("overlap", ("one-partition",)))
                self.assertIn("partition 1 begins at offset 1048576", str(caught.exception))
                self.assertIn("Device.partition(1)", str(caught.exception))
        # A window holds its disk.
        del window, caught
        with self.assertRaises(casemate.ArgumentError) as caught:
            ext4.build(disk, folders=[self.folder / "empty"], offset=mib, size=30 * mib, overwrite=True)
        self.assertEqual(caught.exception.code, "overlap")
        self.assertEqual(disk.read_bytes(), before)
        with casemate.open(disk, writable=True) as device:
            casemate.luks.format(device.partition(1), "secret", pbkdf=cheap, overwrite=True)
            casemate.luks.format(device.window(21 * mib, 20 * mib), "secret", pbkdf=cheap, overwrite=True)
        ext4.build(disk, folders=[self.folder / "empty"], offset=mib, size=8 * mib, overwrite=True)


if __name__ == "__main__":
    unittest.main()
