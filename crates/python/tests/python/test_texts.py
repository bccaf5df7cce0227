"""Texts of errors: every public function with wrong arguments, files that are missing, wrong keys, and images of other kinds."""

import contextlib
import os
import re
import shutil
import subprocess

import casemate
from casemate import crypt, ext4, fscrypt, fsverity, luks, nbd, verity
from world import World, run, tool

#: Words of the command, of image specifications, and of the system's numbers, which nobody of Python has typed.
FOREIGN = re.compile(r"(^|[\s(;,])--?[A-Za-z]|allow-|os error|fromhex")

CHEAP = luks.Pbkdf("pbkdf2", 1000)


class Texts(World):
    """A function with what is wrong, and words that the error's text must have: the argument, or the path that was asked for."""

    def setUp(self):
        super().setUp()
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        run(tool("mke2fs"), "-q", "-F", "-t", "ext4", "root.img", "16M")
        for name, size in (("noise", 1 << 20), ("key", 64), ("luks.img", 20 << 20)):
            (self.folder / name).write_bytes(os.urandom(min(size, 1 << 20)))
            os.truncate(name, size)
        # These are in no use when they are opened to be written.
        shutil.copy("root.img", "twin.img")
        shutil.copy("noise", "scrap")
        (self.folder / "empty").touch()
        (self.folder / "folder").mkdir()
        (self.folder / "folder/f").write_text("hi\n")
        with casemate.open("luks.img", writable=True) as device:
            luks.format(device, "pw", pbkdf=CHEAP, overwrite=True)
        subprocess.run(
            [tool("sfdisk"), "-q", "disk.img"], input="label: gpt\nstart=2048,size=8192\n", text=True, check=True,
            **self.blank_disk(),
        )

    def blank_disk(self):
        with open(self.folder / "disk.img", "wb") as file:
            file.truncate(20 << 20)
        return {"cwd": self.folder, "capture_output": True}

    def told(self, words, call):
        with contextlib.ExitStack() as stack, self.assertRaises(Exception) as caught:
            call(stack)
        text = str(caught.exception)
        self.assertIsNone(FOREIGN.search(text), text)
        for word in words.split():
            self.assertIn(word, text)

    def all_are_told(self, rows):
        self.assertGreater(len(rows), 5)
        for words, call in rows:
            with self.subTest(words=words, line=call.__code__.co_firstlineno):
                self.told(words, call)

    def test_devices(self):
        image, noise = lambda: casemate.open("root.img"), lambda: casemate.open("noise")
        volume = lambda: casemate.open("luks.img")
        self.all_are_told([
            ("none", lambda _: casemate.open("none")),
            ("folder", lambda _: casemate.open("folder")),
            ("none", lambda _: casemate.open_spec("none,partition=1")),
            ("lusk luks", lambda _: casemate.open_spec("root.img,lusk")),
            ("luks.img passphrase key-file=FILE", lambda _: casemate.open_spec("luks.img,luks")),
            ("luks.img", lambda _: casemate.open_spec("luks.img,luks", passphrase="x")),
            ("none", lambda _: casemate.open_spec("luks.img,luks,key-file=none")),
            ("root.img LUKS", lambda _: casemate.open_spec("root.img,luks", passphrase="x")),
            ("threads=0", lambda _: casemate.open_spec("luks.img,luks", passphrase="pw", threads=0)),
            ("root.img", lambda _: image().window(1 << 40)),
            ("offset -1", lambda _: image().window(-1)),
            ("size -5", lambda _: image().window(0, -5)),
            ("root.img", lambda _: image().partition(1)),
            ("number -1", lambda _: image().partition(-1)),
            ("disk.img 9", lambda _: casemate.open("disk.img").partition(9)),
            ("root.img", lambda _: image().partitions()),
            ("give key or passphrase", lambda _: noise().crypt()),
            ("key or passphrase, not both", lambda _: noise().crypt(key=b"x" * 32, passphrase="x")),
            ("bytes 5", lambda _: noise().crypt(key=b"x" * 5)),
            ("nosuch", lambda _: noise().crypt(key=b"x" * 32, cipher="nosuch")),
            ("17", lambda _: noise().crypt(key=b"x" * 32, key_size=17)),
            ("sector size 777", lambda _: noise().crypt(key=b"x" * 32, sector_size=777)),
            ("nosuch", lambda _: noise().crypt(passphrase="x", passphrase_hash="nosuch")),
            ("offset -1", lambda _: noise().crypt(key=b"x" * 32, offset=-1)),
            ("halves equal", lambda _: noise().crypt(key=b"x" * 32)),
            ("give passphrase or volume_key", lambda _: volume().luks()),
            ("passphrase or volume_key, not both", lambda _: volume().luks(passphrase="pw", volume_key=b"x")),
            ("luks.img passphrase", lambda _: volume().luks(passphrase="x")),
            ("luks.img 5", lambda _: volume().luks(passphrase="pw", keyslot=5)),
            ("keyslot -1", lambda _: volume().luks(passphrase="pw", keyslot=-1)),
            ("luks.img volume key", lambda _: volume().luks(volume_key=b"x")),
            ("root.img ext4", lambda _: image().luks(passphrase="x")),
            ("root.img", lambda _: volume().luks(passphrase="pw", header=image())),
            ("root.img verity", lambda _: image().verity("00" * 32)),
            ("root_hash 'xyz'", lambda _: image().verity("xyz")),
            ("noise verity", lambda _: image().verity("00" * 32, noise())),
            ("none/x", lambda _: image().overlay("none/x")),
            ("scrap overlay", lambda _: image().overlay("scrap")),
            ("root.img", lambda stack: [stack.enter_context(casemate.open("root.img", writable=True)) for _ in range(2)]),
        ])

    def test_file_systems(self):
        image = lambda: casemate.open("root.img")
        opened = lambda stack: stack.enter_context(casemate.open("root.img", writable=True))
        fs = lambda: image().ext4()
        self.all_are_told([
            ("noise", lambda _: casemate.open("noise").ext4()),
            ("luks.img LUKS Device.luks", lambda _: casemate.open("luks.img").ext4()),
            ("disk.img GPT Device.partition(N)", lambda _: casemate.open("disk.img").ext4()),
            ("empty short", lambda _: casemate.open("empty").ext4()),
            ("verity 'x'", lambda _: image().ext4(verity="x")),
            ("master key", lambda _: image().ext4(keys=[b"x"])),
            ("superblock 3", lambda _: image().ext4(superblock=3)),
            ("/none root.img", lambda _: (fs() / "none").read_bytes()),
            ("/lost+found root.img", lambda _: (fs() / "lost+found").read_bytes()),
            ("mode 'w'", lambda _: (fs() / "x").open("w")),
            ("/lost+found", lambda _: (fs() / "lost+found").readlink()),
            ("/x root.img", lambda _: list((fs() / "x").iterdir())),
            ("/x root.img", lambda _: (fs() / "x").stat()),
            ("none/x/y", lambda _: fs().extract("none/x/y")),
            ("/none root.img", lambda _: fs().extract("out", top="/none")),
            ("root.img reading", lambda _: image().ext4_writer()),
            ("noise", lambda stack: stack.enter_context(casemate.open("noise", writable=True)).ext4_writer()),
            ("noise", lambda _: ext4.check(casemate.open("noise"))),
            ("threads=-1", lambda _: ext4.check(image(), threads=-1)),
            ("root.img reading", lambda _: ext4.repair(image())),
            ("depth 'x'", lambda stack: ext4.repair(opened(stack), depth="x")),
            ("key", lambda stack: ext4.repair(opened(stack), undo="key")),
            ("root.img superblock 3", lambda stack: ext4.repair(opened(stack), superblock=3)),
            ("root.img 1048576 bytes needed", lambda stack: ext4.resize(opened(stack), 1 << 20)),
            ("size -1", lambda stack: ext4.resize(opened(stack), -1)),
            ("noise", lambda _: ext4.minimum_size(casemate.open("noise"))),
            ("/none root.img", lambda _: fscrypt.backup(fs(), "/none", "t.tar")),
        ])

    def test_writers(self):
        def writer(change):
            def call(stack):
                with casemate.open("root.img", writable=True) as device, device.ext4_writer() as writer:
                    change(writer)

            return call

        self.all_are_told([
            ("none", writer(lambda w: w.put("none", "/"))),
            ("folder recursive", writer(lambda w: w.put("folder", "/"))),
            ("/a/b root.img", writer(lambda w: w.put("key", "/a/b/c"))),
            ("/lost+found root.img", writer(lambda w: w.write_bytes("/lost+found", b"x"))),
            ("/a root.img", writer(lambda w: w.mkdir("/a/b"))),
            ("/lost+found root.img", writer(lambda w: w.mkdir("/lost+found"))),
            ("/lost+found root.img", writer(lambda w: w.symlink("/lost+found", "x"))),
            ("/none root.img", writer(lambda w: w.link("/none", "/y"))),
            ("/none root.img", writer(lambda w: w.rename("/none", "/y"))),
            ("/none root.img", writer(lambda w: w.remove("/none"))),
            ("/none root.img", writer(lambda w: w.chmod("/none", 0o644))),
            ("mode 262143", writer(lambda w: w.chmod("/lost+found", 0o777777))),
            ("/none root.img", writer(lambda w: w.chown("/none", 1, 1))),
            ("/lost+found Writer.tune encrypt", writer(lambda w: w.set_policy("/lost+found", b"x" * 64))),
            ("root.img label 20", writer(lambda w: w.tune(label="x" * 20))),
            ("root.img 'x'", writer(lambda w: w.tune(features="x"))),
            ("root.img 'x' UUID", writer(lambda w: w.tune(uuid="x"))),
            ("root.img extended x", writer(lambda w: w.tune(extended="x=1"))),
            ("root.img stride=x", writer(lambda w: w.tune(extended="stride=x"))),
            ("root.img 'x' mount", writer(lambda w: w.tune(mount_options="x"))),
            ("root.img 'x' errors", writer(lambda w: w.tune(on_errors="x"))),
            ("root.img 99", writer(lambda w: w.tune(reserved_percent=99.0))),
            ("reserved_user 1048576", writer(lambda w: w.tune(reserved_user=1 << 20))),
            ("/none root.img", writer(lambda w: w.truncate("/none", 5))),
            ("size -5", writer(lambda w: w.truncate("/lost+found", -5))),
            ("/none root.img", writer(lambda w: w.setxattr("/none", "user.x", b"y"))),
        ])

    def test_builds(self):
        def build(**options):
            return lambda _: ext4.build("o.img", **{"folders": ["folder"], **options})

        self.all_are_told([
            ("none", build(folders=["none"])),
            ("root.img tar", build(folders=[], tars=["root.img"])),
            ("folder/index.json", build(folders=[], oci=["folder"])),
            ("'x' ext2", build(type="x")),
            ("'x' feature", build(features="x")),
            ("resize_inode meta_bg", build(features="meta_bg")),
            ("label 20", build(label="x" * 20)),
            ("block size 7", build(block_size=7)),
            ("'x' UUID", build(uuid="x")),
            ("o.img", build(size=7)),
            ("luks.img overwrite=True", lambda _: ext4.build("luks.img", folders=["folder"])),
            ("disk.img 7", lambda _: ext4.build("disk.img", folders=["folder"], partition=7)),
            ("offset or partition", lambda _: ext4.build("disk.img", folders=["folder"], partition=1, offset=3)),
            ("none/o.img", lambda _: ext4.build("none/o.img", folders=["folder"])),
            ("'nosuch' pattern", build(verity=["nosuch"])),
            ("algorithm x", build(verity=True, verity_algorithm="x")),
            ("none", build(verity_manifest="none")),
            ("'x' mtree", build(descriptions=[ext4.Description("x", "key")])),
            ("none", build(descriptions=[ext4.Description("mtree", "none")])),
            ("none", build(file_contexts="none")),
            ("x mode", build(modes=[ext4.Mode("f", "x")])),
            ("'g' pattern", build(modes=[ext4.Mode("g", "0644")])),
            ("x attribute", build(xattrs=[ext4.Xattr("f", "x", b"")])),
            ("certificate", build(signer=ext4.Signer(b"x", b"y"))),
            ("/none", build(encrypt={"/none": b"x" * 64})),
            ("master key", build(encrypt={"/": b"x"})),
            ("dm_verity", build(parity=ext4.Parity("p"))),
            ("99", build(dm_verity="h", parity=ext4.Parity("p", 0, 99))),
            ("luks.img", build(dm_verity="luks.img")),
            ("passphrase empty", build(luks=ext4.Luks("", None))),
            ("sector size 777", build(luks=ext4.Luks("x", None, 777))),
            ("pbkdf 'x' argon2id", build(luks=ext4.Luks("x", pbkdf=luks.Pbkdf("x", 1)))),
        ])

    def test_volumes(self):
        read = lambda: luks.Volume(casemate.open("luks.img"))

        def changed(change):
            def call(stack):
                change(luks.Volume(stack.enter_context(casemate.open("luks.img", writable=True))))

            return call

        def formatted(**options):
            def call(stack):
                device = stack.enter_context(casemate.open("noise", writable=True))
                luks.format(device, "pw", **{"overwrite": True, "pbkdf": CHEAP, **options})

            return call

        self.all_are_told([
            ("noise", lambda _: luks.Volume(casemate.open("noise"))),
            ("give passphrase or volume_key", lambda _: read().unlock()),
            ("luks.img passphrase", lambda _: read().unlock(passphrase="x")),
            ("luks.img 7", lambda _: read().unlock(passphrase="pw", keyslot=7)),
            ("luks.img reading", lambda _: read().add_key("n", passphrase="pw", pbkdf=CHEAP)),
            ("luks.img passphrase", changed(lambda v: v.add_key("n", passphrase="x"))),
            ("luks.img 0", changed(lambda v: v.add_key("n", passphrase="pw", keyslot=0, pbkdf=CHEAP))),
            ("luks.img 99", changed(lambda v: v.add_key("n", passphrase="pw", keyslot=99, pbkdf=CHEAP))),
            ("pbkdf 'x'", changed(lambda v: v.add_key("n", passphrase="pw", pbkdf=luks.Pbkdf("x", 1)))),
            ("luks.img passphrase", changed(lambda v: v.change_key("n", passphrase="x"))),
            ("luks.img 7", changed(lambda v: v.kill_slot(7))),
            ("luks.img last", changed(lambda v: v.kill_slot(0))),
            ("root.img reading", lambda _: luks.format(casemate.open("root.img"), "pw")),
            ("version 3", formatted(version=3)),
            ("x", formatted(cipher="x")),
            ("5", formatted(key_size=5)),
            ("integrity x", formatted(integrity="x")),
            ("hash 'x'", formatted(hash="x")),
            ("sector size 5", formatted(sector_size=5)),
            ("byte 5", formatted(offset=5)),
            ("label", formatted(version=1, label="x")),
            ("'x' UUID", formatted(uuid="x")),
            ("slot 99", formatted(keyslot=99)),
            ("noise room", formatted()),
        ])

    def test_trees(self):
        self.all_are_told([
            ("none", lambda _: verity.format("none", "h")),
            ("luks.img LUKS", lambda _: verity.format("root.img", "luks.img")),
            ("hash 'x'", lambda _: verity.format("root.img", "h", hash="x")),
            ("block size 7", lambda _: verity.format("root.img", "h", data_block_size=7)),
            ("salt 999", lambda _: verity.format("root.img", "h", salt=b"x" * 999)),
            ("'x' UUID", lambda _: verity.format("root.img", "h", uuid="x")),
            ("root.img data blocks", lambda _: verity.format("root.img", "h", data_blocks=1 << 40)),
            ("hash offset 7", lambda _: verity.format("root.img", "h", hash_offset=7)),
            ("data_blocks=N hash_offset=", lambda _: verity.format("twin.img", "twin.img")),
            ("empty", lambda _: verity.format("empty", "h")),
            ("threads=0", lambda _: verity.format("root.img", "h", threads=0)),
            ("noise", lambda _: verity.verify("root.img", "noise", "00" * 32)),
            ("none", lambda _: verity.verify("root.img", "none", "00" * 32)),
            ("root_hash 'zz'", lambda _: verity.verify("root.img", "noise", "zz")),
            ("none", lambda _: fsverity.digest("none")),
            ("folder", lambda _: fsverity.digest("folder")),
            ("algorithm 'x' sha512", lambda _: fsverity.digest("key", algorithm="x")),
            ("block size 7", lambda _: fsverity.digest("key", block_size=7)),
            ("salt 99", lambda _: fsverity.digest("key", salt=b"x" * 99)),
            ("none", lambda _: fsverity.Tree.build("none", "t")),
            ("luks.img LUKS", lambda _: fsverity.Tree.build("key", "luks.img")),
            ("none", lambda _: fsverity.Tree.open("none", "00" * 32)),
            ("digest 'zz'", lambda _: fsverity.Tree.open("noise", "zz")),
            ("algorithm 'md5'", lambda _: fsverity.Tree.open("noise", "md5:00").over("key")),
            ("noise", lambda _: fsverity.Tree.open("noise", "00" * 32).over("key")),
            ("algorithm 'x'", lambda _: fsverity.new(algorithm="x")),
        ])

    def test_the_rest(self):
        image = lambda: casemate.open("root.img")
        keyed = lambda: crypt.Mapping(key=bytes(range(64)), key_size=64)
        self.all_are_told([
            ("give key or passphrase", lambda _: crypt.Mapping()),
            ("x", lambda _: crypt.Mapping("x", key=b"x")),
            ("5", lambda _: keyed().encrypt(b"x" * 5)),
            ("out 5 data 512", lambda _: keyed().encrypt_into(b"x" * 512, bytearray(5))),
            ("none/x/s", lambda _: nbd.serve(image(), "none/x/s")),
            ("0.0.0.0 allow_remote=True", lambda _: nbd.serve(image(), ("0.0.0.0", 0))),
            ("key", lambda _: nbd.serve(image(), "key")),
            ("base64", lambda _: casemate.base64_decode(b"!!")),
            ("messages", lambda _: casemate.sha256_many(b"xxx", 2)),
            ("master key", lambda _: fscrypt.MasterKey(b"x")),
        ])

    def test_a_volume_keeps_its_device(self):
        self.assertEqual(luks.Volume(casemate.open("luks.img")).version, 2)
        self.assertEqual(luks.Volume(casemate.open("luks.img")).unlock(passphrase="pw")[0], 0)
