"""dfVFS' ext file systems, read by casemate: journals are replayed, damage is told, encrypted folders open with `keys`.

    >>> from casemate.contrib import dfvfs                                             # doctest: +SKIP
    >>> dfvfs.register()                                                               # doctest: +SKIP

From then on, path specifications of the type EXT are read so, by everything that is built on dfVFS (plaso, say). What lies between
is dfVFS' own: `Volume` and `Entry` have the methods of pyfsext that it calls.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from typing import Any

from dfvfs.lib import definitions, errors
from dfvfs.resolver import resolver
from dfvfs.resolver_helpers import ext_resolver_helper, manager
from dfvfs.vfs import ext_file_system

from ..device import Device
from ..errors import Error
from ..ext4 import Ext4, Path


def register(keys: tuple[bytes, ...] = ()) -> None:
    """Puts casemate in the place of pyfsext for this process; `keys` open encrypted folders."""
    manager.ResolverHelperManager.DeregisterHelper(
        manager.ResolverHelperManager.GetHelper(definitions.TYPE_INDICATOR_EXT)
    )
    manager.ResolverHelperManager.RegisterHelper(_Helper(keys))


class _Helper(ext_resolver_helper.EXTResolverHelper):
    def __init__(self, keys: tuple[bytes, ...]) -> None:
        super().__init__()
        self._keys = keys

    def NewFileSystem(self, resolver_context: Any, path_spec: Any) -> Any:
        return _FileSystem(resolver_context, path_spec, self._keys)


class _FileSystem(ext_file_system.EXTFileSystem):
    def __init__(self, resolver_context: Any, path_spec: Any, keys: tuple[bytes, ...]) -> None:
        super().__init__(resolver_context, path_spec)
        self._keys = keys

    def _Open(self, mode: str = "rb") -> None:
        place: Any = self._path_spec
        if not place.HasParent():
            raise errors.PathSpecError("an ext file system lies in something, which is its parent")
        below = resolver.Resolver.OpenFileObject(place.parent, resolver_context=self._resolver_context)
        self._file_object = below
        try:
            self._fsext_volume = Volume(Device.from_file(below).ext4(keys=self._keys))
        except Error as error:
            raise OSError(str(error)) from error


class Volume:
    """A file system, as pyfsext has it."""

    def __init__(self, fs: Ext4) -> None:
        self._fs = fs

    def get_root_directory(self) -> Entry:
        return Entry(self._fs.root, name=None)

    def get_file_entry_by_inode(self, number: int) -> Entry:
        return Entry(Path._entry(self._fs.root, "", number, 0), name=None)

    def get_file_entry_by_path(self, location: str) -> Entry | None:
        path = self._fs.path(location)
        try:
            return Entry(path, name=path.name)
        except (FileNotFoundError, NotADirectoryError):
            return None


class Entry:
    """A file, as pyfsext has it."""

    def __init__(self, path: Path, name: str | None) -> None:
        self._path, self.name = path, name
        self._stat = path.lstat()
        self._file: io.BufferedReader | None = None

    @property
    def file_mode(self) -> int:
        return self._stat.st_mode

    @property
    def inode_number(self) -> int:
        return self._stat.st_ino

    @property
    def device_number(self) -> int | None:
        return self._stat.st_rdev if stat.S_ISCHR(self.file_mode) or stat.S_ISBLK(self.file_mode) else None

    @property
    def owner_identifier(self) -> int:
        return self._stat.st_uid

    @property
    def group_identifier(self) -> int:
        return self._stat.st_gid

    @property
    def number_of_links(self) -> int:
        return self._stat.st_nlink

    @property
    def size(self) -> int:
        return 0 if stat.S_ISDIR(self.file_mode) else self._stat.st_size

    def get_size(self) -> int:
        return self.size

    @property
    def symbolic_link_target(self) -> str | None:
        return str(self._path.readlink()) if stat.S_ISLNK(self.file_mode) else None

    @property
    def sub_file_entries(self) -> Iterator[Entry]:
        for entry in self._path.iterdir():
            yield Entry(entry, name=entry.name)

    @property
    def extended_attributes(self) -> list[ExtendedAttribute]:
        return [ExtendedAttribute(name, value) for name, value in self._path.xattrs().items()]

    def get_access_time_as_integer(self) -> int:
        return self._stat.st_atime_ns

    def get_modification_time_as_integer(self) -> int:
        return self._stat.st_mtime_ns

    def get_inode_change_time_as_integer(self) -> int:
        return self._stat.st_ctime_ns

    def get_creation_time_as_integer(self) -> int | None:
        return self._stat.st_birthtime_ns

    def get_deletion_time_as_integer(self) -> int:
        # What has a name was not deleted.
        return 0

    def _extents(self) -> list[tuple[int, int, int]]:
        """Offsets on the device, sizes, and 1 for holes, which is also said of contents that lie in the inode."""
        found, end = [], 0
        for extent in self._path.extents():
            if extent.offset > end:
                found.append((0, extent.offset - end, 1))
            found.append((extent.physical, extent.size, 0 if extent.written else 1))
            end = extent.offset + extent.size
        size = -(-self.size // self._path.fs.block_size) * self._path.fs.block_size
        return [*found, (0, size - end, 1)] if size > end else found

    @property
    def number_of_extents(self) -> int:
        return len(self._extents())

    def get_extent(self, index: int) -> tuple[int, int, int]:
        return self._extents()[index]

    def _opened(self) -> io.BufferedReader:
        if self._file is None:
            self._file = self._path.open("rb")  # type: ignore[assignment]
        assert self._file is not None
        return self._file

    def read(self, size: int | None = None) -> bytes:
        try:
            return self._opened().read(size)
        except Error as error:
            raise OSError(str(error)) from error

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> None:
        self._opened().seek(offset, whence)

    def get_offset(self) -> int:
        return self._opened().tell()


class ExtendedAttribute(io.BytesIO):
    """An extended attribute, as pyfsext has it."""

    def __init__(self, name: str, value: bytes) -> None:
        super().__init__(value)
        self.name, self.size = name, len(value)

    def read_buffer(self, size: int | None = None) -> bytes:
        return self.read(size)

    def seek_offset(self, offset: int, whence: int = os.SEEK_SET) -> None:
        self.seek(offset, whence)

    def get_offset(self) -> int:
        return self.tell()

    def get_size(self) -> int:
        return self.size
