"""dissect.target's file systems: ext4 as casemate reads it, with journals replayed, encrypted folders and checked contents.

    >>> from dissect.target import filesystem                                         # doctest: +SKIP
    >>> filesystem.register("casemate.contrib.dissect_target", "Ext4Filesystem")       # doctest: +SKIP
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from typing import Any, BinaryIO

from dissect.target.exceptions import (
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    NotASymlinkError,
)
from dissect.target.filesystem import DirEntry, Filesystem, FilesystemEntry
from dissect.target.helpers import fsutil

from ..device import Device
from ..ext4 import Path


class Ext4Filesystem(Filesystem):
    """An ext4 file system in whatever file object dissect has."""

    __type__ = "ext"

    def __init__(self, fh: BinaryIO, *args: Any, keys: tuple[bytes, ...] = (), **kwargs: Any) -> None:
        super().__init__(fh, *args, **kwargs)
        self.ext4 = Device.from_file(fh).ext4(keys=keys)

    @staticmethod
    def _detect(fh: BinaryIO) -> bool:
        fh.seek(1024)
        return fh.read(512)[56:58] == b"\x53\xef"

    def get(self, path: str) -> FilesystemEntry:
        return Ext4FilesystemEntry(self, path, self._lookup(self.ext4.path(path), path))

    @staticmethod
    def _lookup(found: Path, path: str) -> Path:
        try:
            found.lstat()
        except OSError as error:
            kind = NotADirectoryError if error.errno == 20 else FileNotFoundError
            raise kind(path) from error
        return found


class Ext4DirEntry(DirEntry):
    """A name in a directory."""

    def get(self) -> FilesystemEntry:
        return Ext4FilesystemEntry(self.fs, self.path, self.entry)

    def stat(self, *, follow_symlinks: bool = True) -> Any:
        return self.get().stat(follow_symlinks=follow_symlinks)


class Ext4FilesystemEntry(FilesystemEntry):
    """A file by its path."""

    fs: Ext4Filesystem

    def get(self, path: str) -> FilesystemEntry:
        full = fsutil.join(self.path, path, alt_separator=self.fs.alt_separator)
        return Ext4FilesystemEntry(self.fs, full, self.fs._lookup(self.entry / path, full))

    def open(self) -> Any:
        if self.is_dir():
            raise IsADirectoryError(self.path)
        return self._resolve().entry.open("rb")

    def scandir(self) -> Iterator[Ext4DirEntry]:
        if not self.is_dir():
            raise NotADirectoryError(self.path)
        for entry in self._resolve().entry.iterdir():
            yield Ext4DirEntry(self.fs, self.path, entry.name, entry)

    def is_dir(self, follow_symlinks: bool = True) -> bool:
        return bool(self.entry._is(stat.S_IFDIR, follow_symlinks))

    def is_file(self, follow_symlinks: bool = True) -> bool:
        return bool(self.entry._is(stat.S_IFREG, follow_symlinks))

    def is_symlink(self) -> bool:
        return bool(self.entry.is_symlink())

    def readlink(self) -> str:
        if not self.is_symlink():
            raise NotASymlinkError(self.path)
        return str(self.entry.readlink())

    def stat(self, follow_symlinks: bool = True) -> Any:
        return self._resolve(follow_symlinks=follow_symlinks).lstat()

    def lstat(self) -> Any:
        found = self.entry.lstat()
        times = [found.st_atime, found.st_mtime, found.st_ctime]
        row = [found.st_mode, found.st_ino, id(self.fs), found.st_nlink, found.st_uid, found.st_gid, found.st_size]
        result = fsutil.stat_result(row + times)
        result.st_atime_ns, result.st_mtime_ns, result.st_ctime_ns = (
            found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns,
        )
        if found.st_birthtime_ns is not None:
            result.st_birthtime, result.st_birthtime_ns = found.st_birthtime_ns / 1e9, found.st_birthtime_ns
        result.st_blocks, result.st_blksize = found.st_blocks, self.fs.ext4.block_size
        return result

    def attr(self) -> Any:
        return self._resolve().lattr()

    def lattr(self) -> Any:
        return list(self.entry.xattrs().items())
