"""fs-verity: the digests that the kernel measures, without a kernel."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from . import _casemate

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
    threads: int | None = None,
) -> Digest:
    """The digest of a file, by its path, or of all that a device has."""
    from .device import Device

    subject = file._open() if isinstance(file, Device) else os.fspath(file)
    return Digest(*_casemate.fsverity_digest(subject, algorithm, block_size, salt, threads))


def digests(
    paths: Iterable[StrPath], *, algorithm: str = "sha256", block_size: int = 4096, salt: Buffer = b"",
    threads: int | None = None,
) -> Iterator[tuple[StrPath, Digest | Exception]]:
    """The digests of many files in their order; an exception in the place of one that could not be read."""
    names = list(paths)
    found = _casemate.fsverity_digests(names, algorithm, block_size, salt, threads)
    for name, row in zip(names, found, strict=True):
        yield name, row if isinstance(row, Exception) else Digest(*row)


class Hasher:
    """A digest of bytes that are handed over, with the methods of hashlib's objects."""

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
