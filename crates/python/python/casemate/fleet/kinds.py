"""Results for files: fs-verity digests, root hashes of dm-verity, or plain checksums."""

from __future__ import annotations

import hashlib
import uuid
from typing import NamedTuple

from .. import _casemate
from ..device import Device
from ..fsverity import Digest
from .crew import listener

#: Blocks of a tree with the bytes of the tree's file that they begin at.
Blocks = list[tuple[int, bytes]]


class Parameters(NamedTuple):
    """fs-verity: the parameters of trees."""

    algorithm: str = "sha256"
    block_size: int = 4096
    salt: bytes = b""

    @property
    def suffix(self) -> str:
        """Suffix of the name of a tree's file."""
        return ".fsverity"

    @property
    def unit(self) -> int | None:
        """Bytes of a file that parts begin at multiples of: 64 MiB for SHA-256 in blocks of 4096."""
        return _casemate.fsverity_unit(*self)

    def covered(self, size: int) -> int:
        """Bytes of a file that count."""
        return size

    def part(self, device: Device, url: str, size: int, start: int, with_tree: bool, threads: int | None) -> tuple[bytes, Blocks]:
        """The part of a file's tree that a device's bytes are."""
        return _casemate.fsverity_part(
            device._open(), size=size, start=start, algorithm=self.algorithm, block_size=self.block_size, salt=self.salt,
            with_tree=with_tree, effort=(threads, listener()),
        )

    def has_tree(self, tree: Device, url: str, size: int, digest: Digest) -> bool:
        """Whether a device is the whole tree of a file with this digest; all of it is read, and the file is not."""
        return _casemate.fsverity_is_whole_tree(tree._open(), digest.algorithm, digest.digest, (None, listener()))

    def join(self, parts: list[bytes], tree: _casemate.Device | None) -> Digest:
        """The file's digest; the tree becomes complete."""
        return Digest(*_casemate.fsverity_join(list(parts), tree))


class Area(NamedTuple):
    """dm-verity: the parameters of hash areas, as `veritysetup format` takes them. Salt and UUID are made of the file's URL unless
    they are given, so that each run makes the same."""

    algorithm: str = "sha256"
    data_block_size: int = 4096
    hash_block_size: int = 4096
    salt: bytes | None = None
    uuid: str | None = None
    hash_offset: int = 0

    @property
    def suffix(self) -> str:
        """Suffix of the name of a hash area's file."""
        return ".verity"

    @property
    def unit(self) -> int | None:
        """Bytes of data that parts begin at multiples of: 64 MiB for SHA-256 in blocks of 4096."""
        return _casemate.verity_unit(self._native(""))

    def covered(self, size: int) -> int:
        """Bytes of a file that count: whole blocks."""
        return size // self.data_block_size * self.data_block_size

    def part(self, device: Device, url: str, size: int, start: int, with_tree: bool, threads: int | None) -> tuple[bytes, Blocks]:
        """The part of the hash area that a device's bytes have."""
        return _casemate.verity_part(device._open(), size, start, self._native(url), with_tree, (threads, listener()))

    def has_tree(self, tree: Device, url: str, size: int, digest: Digest) -> bool:
        """Whether a device is the whole hash area of data of this size with this root hash; all of it is read, and no data are. Data of
        one block have no tree to prove."""
        area = self._native(url)
        return _casemate.verity_is_whole_area(tree._open(), size, area, digest.digest, (None, listener()))

    def join(self, parts: list[bytes], tree: _casemate.Device | None) -> Digest:
        """The root hash; the hash area becomes complete."""
        return Digest(self.algorithm, _casemate.verity_join(list(parts), tree))

    def _native(self, url: str) -> tuple[str, int, int, bytes, str, int]:
        raw = url.encode(errors="surrogateescape")
        salt = hashlib.sha256(raw).digest() if self.salt is None else self.salt
        # A name that is not UTF-8 stands in it as its digits.
        name = self.uuid or str(uuid.uuid5(uuid.NAMESPACE_URL, raw.decode(errors="backslashreplace")))
        return self.algorithm, self.data_block_size, self.hash_block_size, salt, name, self.hash_offset


class Checksum(NamedTuple):
    """The hash of a file's bytes one after the other, as sha256sum has it: no file is cut for it."""

    algorithm: str = "sha256"

    @property
    def suffix(self) -> str:
        """There is no tree."""
        return ""

    @property
    def unit(self) -> int | None:
        """None: there are no parts."""
        return None

    def covered(self, size: int) -> int:
        """Bytes of a file that count."""
        return size

    def part(self, device: Device, url: str, size: int, start: int, with_tree: bool, threads: int | None) -> tuple[bytes, Blocks]:
        """The hash of all bytes of a device."""
        if with_tree:
            raise ValueError("a checksum has no tree")
        found = hashlib.new(self.algorithm)
        room = memoryview(bytearray(max(min(device.size, 1 << 20), 1)))
        stop = listener()
        while count := device.readinto(room):
            if stop is not None:
                stop(count)
            found.update(room[:count])
        return found.digest(), []

    def has_tree(self, tree: Device, url: str, size: int, digest: Digest) -> bool:
        """There is no tree."""
        return False

    def join(self, parts: list[bytes], tree: _casemate.Device | None) -> Digest:
        """The hash: the only part."""
        (part,) = parts
        return Digest(self.algorithm, part)


Kind = Parameters | Area | Checksum
