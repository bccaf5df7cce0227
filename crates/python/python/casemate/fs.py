"""ext4 images for fsspec: `ext4://etc/os-release::file://root.img`, `ext4://model.bin::s3://bucket/image.raw`; and files with
trees beside them: `verity::s3://bucket/model.bin`.

Importing this needs fsspec; its registry finds the protocols by the package's entry points.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import stat
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import fsspec
from fsspec.archive import AbstractArchiveFileSystem
from fsspec.spec import AbstractFileSystem

from .device import Device
from .errors import Error
from .ext4 import BUFFER, NOTHING, Ext4, Path
from .fsverity import Tree

_KINDS = {stat.S_IFDIR: "directory", stat.S_IFREG: "file", stat.S_IFLNK: "link"}


def opened(fo: Any, protocol: str | None = None, options: dict[str, Any] | None = None) -> Device:
    """Device of a URL, or of a file object."""
    if isinstance(fo, (str, bytes)):
        opened: Any = fsspec.open(fo, mode="rb", protocol=protocol, **(options or {}))
        fo = opened.open()
    return fo if isinstance(fo, Device) else Device.from_file(fo)


class _File(io.BufferedReader):
    """A file as fsspec's users know them."""

    def __init__(self, device: Device) -> None:
        super().__init__(device, BUFFER)
        #: Bytes of the file.
        self.size = device.size


class _ReadOnly:
    """Changes that fsspec's base class takes without a word."""

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        raise NotImplementedError(f"{path}: images are read only here")

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        raise NotImplementedError(f"{path}: images are read only here")

    def rmdir(self, path: str) -> None:
        raise NotImplementedError(f"{path}: images are read only here")


class Ext4FileSystem(_ReadOnly, AbstractArchiveFileSystem):
    """The file system of an image that fsspec opens, to be read. Directories are listed on demand."""

    protocol = "ext4"
    root_marker = ""
    cachable = False

    def __init__(
        self,
        fo: Any = "",
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        partition: int | None = None,
        crypt: dict[str, Any] | None = None,
        luks: dict[str, Any] | None = None,
        verity: dict[str, Any] | None = None,
        passphrase: str | None = None,
        keys: tuple[bytes, ...] = (),
        **kwargs: Any,
    ) -> None:
        """`crypt`, `luks` and `verity` have the arguments of the layers that `Device` has under these names, from the image
        up; verity's `hash_device` may be a URL. `passphrase` is that of LUKS, `keys` are fscrypt's."""
        super().__init__(**kwargs)
        device = opened(fo, target_protocol, target_options)
        if partition is not None:
            device = device.partition(int(partition))
        if crypt is not None:
            device = device.crypt(**crypt)
        if passphrase is not None:
            luks = {"passphrase": passphrase, **(luks or {})}
        if luks is not None:
            device = device.luks(**luks)
        if verity is not None:
            below: dict[str, Any] = dict(verity)
            if below.get("hash_device") is not None:
                below["hash_device"] = opened(below["hash_device"])
            device = device.verity(**below)
        self._ext4: Ext4 = device.ext4(keys=keys)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        found = super()._strip_protocol(path)
        return [name.lstrip("/") for name in found] if isinstance(found, list) else found.lstrip("/")

    def _path(self, path: str) -> Path:
        return self._ext4.path(str(self._strip_protocol(path)))

    def _row(self, path: Path, name: str, follows: bool = True) -> dict[str, Any]:
        """Facts of a path as fsspec has them; without `follows` a link to a directory is a link."""
        found = path.lstat()
        row = {
            "name": name,
            "size": found.st_size,
            "type": _KINDS.get(stat.S_IFMT(found.st_mode), "other"),
            "mode": found.st_mode,
            "uid": found.st_uid,
            "gid": found.st_gid,
            "ino": found.st_ino,
            "nlink": found.st_nlink,
            "mtime": found.st_mtime,
            "created": (found.st_birthtime_ns or found.st_ctime_ns) / 1e9,
            "islink": stat.S_ISLNK(found.st_mode),
        }
        if row["islink"]:
            row["destination"] = str(path.readlink())
            # A link that leads nowhere, or to something that is damaged, is a link.
            try:
                target = path.stat()
                kind = _KINDS.get(stat.S_IFMT(target.st_mode), "other")
                if follows or kind != "directory":
                    row.update(size=target.st_size, type=kind)
            except Error:
                pass
            except OSError as error:
                if error.errno not in NOTHING:
                    raise
        return row

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        name = str(self._strip_protocol(path))
        return self._row(self._ext4.path(name), name)

    def exists(self, path: str, **kwargs: Any) -> bool:
        return self._path(path).exists()

    def modified(self, path: str) -> datetime:
        """When the contents were changed last."""
        return datetime.fromtimestamp(self.info(path)["mtime"], timezone.utc)

    def created(self, path: str) -> datetime:
        """When the file was made."""
        return datetime.fromtimestamp(self.info(path)["created"], timezone.utc)

    def ukey(self, path: str) -> str:
        """Key that tells this state of a file from others."""
        return hashlib.sha256(repr((self._ext4.uuid, self.info(path))).encode(errors="surrogateescape")).hexdigest()

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        name = str(self._strip_protocol(path))
        top = self._ext4.path(name)
        if not top.is_dir():
            return [self.info(path)] if detail else [name]
        rows = [(entry, f"{name}/{entry.name}".lstrip("/")) for entry in top.iterdir()]
        # Who goes down follows no link to a directory, as with fsspec's local file system: it may lead up.
        return [self._row(*row, follows=False) for row in rows] if detail else [name for _, name in rows]

    def walk(self, path: str, maxdepth: int | None = None, topdown: bool = True, **kwargs: Any) -> Iterator[Any]:
        """Directories from this one down, as fsspec has them; one that is met twice, as in a damaged image, is no longer gone
        through."""
        seen = kwargs.setdefault("seen", set())
        with contextlib.suppress(OSError, Error):
            number = self._path(path)._number()
            if number in seen:
                return
            seen.add(number)
        yield from super().walk(path, maxdepth=maxdepth, topdown=topdown, **kwargs)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        device = self._path(path).device()
        first, last, _ = slice(start, end).indices(device.size)
        return device.pread(max(last - first, 0), first)

    def _open(
        self, path: str, mode: str = "rb", block_size: int | None = None, autocommit: bool = True,
        cache_options: dict[str, Any] | None = None, **kwargs: Any,
    ) -> Any:
        if mode != "rb":
            raise NotImplementedError("images are read only here")
        return _File(self._path(path).device())


class VerityFileSystem(_ReadOnly, AbstractFileSystem):
    """One file, each read of which is compared with the fs-verity tree beside it: `verity::s3://bucket/model.bin`, with the
    digest as an option, and the tree's URL if it is not the file's with `.fsverity` behind it."""

    protocol = "verity"
    root_marker = ""
    cachable = False

    def __init__(
        self,
        fo: Any = "",
        digest: str = "",
        tree: Any = None,
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if tree is None:
            tree = opened(fo + ".fsverity", target_protocol, target_options)
        elif not isinstance(tree, Device):
            tree = opened(tree, options=target_options)
        self._device = Tree.open(tree, digest).over(opened(fo, target_protocol, target_options))

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        return {"name": path, "size": self._device.size, "type": "file"}

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        row = self.info(str(self._strip_protocol(path)))
        return [row] if detail else [row["name"]]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        first, last, _ = slice(start, end).indices(self._device.size)
        return self._device.pread(max(last - first, 0), first)

    def _open(
        self, path: str, mode: str = "rb", block_size: int | None = None, autocommit: bool = True,
        cache_options: dict[str, Any] | None = None, **kwargs: Any,
    ) -> Any:
        if mode != "rb":
            raise NotImplementedError("what a tree proves is read only")
        # Each one has a position of its own.
        return _File(self._device.window(0))
