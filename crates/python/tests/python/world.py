"""An image with a tree, and the real tools."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest


def tool(name):
    """The path of a real tool; the test is skipped without."""
    path = os.environ.get(name.upper())
    if path is None:
        raise unittest.SkipTest(f"no {name}")
    return path


def run(*words, **options):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True, **options).stdout


class World(unittest.TestCase):
    """A folder for the test, with a tree and an ext4 image of it."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def hear_ctrl_c(self):
        """Has Ctrl-C heard, where whoever started the test ignores it."""
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))

    def blank(self, size):
        path = self.folder / "blank"
        path.write_bytes(bytes(size))
        return path

    def image_again(self):
        """Another image of the tree."""
        path = self.folder / "again.img"
        run(tool("mke2fs"), "-q", "-F", "-t", "ext4", "-d", self.tree, path, "16M")
        return path

    def image(self):
        self.tree = self.folder / "tree"
        (self.tree / "etc/empty").mkdir(parents=True)
        (self.tree / "etc/os-release").write_text("ID=casemate\n")
        (self.tree / "large").write_bytes(os.urandom(300_000))
        os.symlink("etc/os-release", self.tree / "link")
        os.mkdir(os.fsencode(self.tree) + b"/caf\xe9")
        path = self.folder / "root.img"
        run(tool("mke2fs"), "-q", "-F", "-t", "ext4", "-d", self.tree, path, "16M")
        return path
