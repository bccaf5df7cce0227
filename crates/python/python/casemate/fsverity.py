"""fs-verity: the digests that the kernel measures, without a kernel."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _casemate
from .errors import UnsupportedError

if TYPE_CHECKING:
    from .device import Buffer, Device, StrPath


class Digest(NamedTuple):
    """A file's digest; `str` writes it as fsverity(1) does."""

    algorithm: str
    digest: bytes

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.digest.hex()}"


def digest(
    file: StrPath | Device, *, algorithm: str = "sha256", block_size: int = 4096, salt: Buffer = b"",
    threads: int | None = None, progress: Callable[[int], object] | None = None,
) -> Digest:
    """The digest of a file, by its path, or of all that a device has. `progress` hears how many bytes are done."""
    from .device import Device

    subject: _casemate.Device | str = file._open() if isinstance(file, Device) else os.fspath(file)
    return Digest(*_casemate.fsverity_digest(subject, algorithm, block_size, salt, (threads, progress)))


def digests(
    paths: Iterable[StrPath], *, algorithm: str = "sha256", block_size: int = 4096, salt: Buffer = b"",
    threads: int | None = None, progress: Callable[[int], object] | None = None,
) -> Iterator[tuple[StrPath, Digest | Exception]]:
    """The digests of many files in their order; an exception in the place of one that could not be read."""
    names = list(paths)
    found = _casemate.fsverity_digests(names, algorithm, block_size, salt, (threads, progress))
    for name, row in zip(names, found, strict=True):
        yield name, row if isinstance(row, Exception) else Digest(*row)


def measure(path: StrPath) -> Digest | None:
    """The digest that the kernel has for a file; `None` for a file without fs-verity, as all are but on Linux."""
    if sys.platform != "linux":
        return None
    try:
        return Digest(*_casemate.fsverity_measure(os.fspath(path)))
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.ENOTTY, errno.EOPNOTSUPP):
            return None
        raise


def measure_or_digest(path: StrPath) -> Digest:
    """The kernel's digest, which costs nothing, or for a file without fs-verity that of its contents."""
    return measure(path) or digest(path)


def enable(
    path: StrPath, *, algorithm: str = "sha256", block_size: int = 4096, salt: Buffer = b"", signature: Buffer = b""
) -> None:
    """Makes the kernel protect a file, which can't be written from then on."""
    if sys.platform != "linux":
        raise UnsupportedError("only Linux's kernel has fs-verity")
    _casemate.fsverity_enable(os.fspath(path), algorithm, block_size, salt, signature)


class Tree:
    """A tree beside a file: with the file's digest, any part of the file can be read from any source, with proof that
    it is right."""

    def __init__(self, device: Device, digest: Digest) -> None:
        self._device, self.digest = device, digest

    @staticmethod
    def build(
        file: StrPath | Device, out: StrPath | Device, *, algorithm: str = "sha256", block_size: int = 4096,
        salt: Buffer = b"", threads: int | None = None, progress: Callable[[int], object] | None = None,
    ) -> Tree:
        """Makes the tree of a file in another one: the descriptor, zeros up to byte 4096, and the Merkle tree as `fsverity
        digest --out-merkle-tree` writes it. An earlier tree is replaced; a file that holds a volume or a file system is refused."""
        from .device import Device, open

        data = file if isinstance(file, Device) else open(file)
        tree = out if isinstance(out, Device) else Device(_casemate.Device.create(os.fspath(out)))
        found = _casemate.fsverity_tree(
            data._open(), tree._open(), algorithm, block_size, salt, (threads, progress)
        )
        return Tree(tree, Digest(*found))

    @staticmethod
    def open(tree: StrPath | Device, digest: Digest | str, *, storage_options: dict[str, Any] | None = None) -> Tree:
        """A tree that was made, here or at a URL that fsspec opens, and the digest that its file must have: as `Digest`, or as
        text."""
        if isinstance(digest, str):
            from .device import unhex

            algorithm, _, digits = digest.rpartition(":")
            digest = Digest(algorithm or "sha256", bytes(unhex(digits, "digest")))
        return Tree(_device(tree, storage_options), digest)

    def over(self, file: StrPath | Device, *, storage_options: dict[str, Any] | None = None) -> Device:
        """The file, here or at a URL, each read of which is compared with the tree."""
        from .device import Device

        data = _device(file, storage_options)
        return Device(data._open().fsverity(self._device._open(), *self.digest))


def _device(file: StrPath | Device, storage_options: dict[str, Any] | None) -> Device:
    from .device import Device, open

    if isinstance(file, Device):
        return file
    if "://" not in os.fspath(file):
        return open(file)
    from .fs import opened

    return opened(os.fspath(file), options=storage_options)


class Hasher:
    """A digest of bytes that are passed in, with the methods of hashlib's objects."""

    __slots__ = ("_native", "block_size", "digest_size", "name")

    def __init__(
        self, data: Buffer = b"", *, algorithm: str = "sha256", block_size: int = 4096, salt: Buffer = b""
    ) -> None:
        self._native = _casemate.Hasher(algorithm, block_size, salt)
        self.name, self.block_size = f"fsverity-{algorithm}", block_size
        self.digest_size = {"sha256": 32, "sha512": 64}[algorithm]
        self._native.update(data)

    def update(self, data: Buffer) -> None:
        """Takes the next bytes. Those of `bytes` are hashed where they lie, with the interpreter released."""
        self._native.update(data)

    def digest(self) -> bytes:
        """The digest of all bytes so far."""
        return self._native.digest()

    def hexdigest(self) -> str:
        return self.digest().hex()

    def copy(self) -> Hasher:
        other = object.__new__(Hasher)
        other._native, other.name = self._native.copy(), self.name
        other.block_size, other.digest_size = self.block_size, self.digest_size
        return other


def new(
    data: Buffer = b"", *, algorithm: str = "sha256", block_size: int = 4096, salt: Buffer = b""
) -> Hasher:
    """A hasher, as `hashlib.new` makes them."""
    return Hasher(data, algorithm=algorithm, block_size=block_size, salt=salt)
