"""dm-verity: hash areas as `veritysetup format` makes them, and data checked against them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from . import _casemate
from .device import Device, ranged, unhex

if TYPE_CHECKING:
    from .device import Buffer, StrPath


class BadBlock(NamedTuple):
    """A block that does not match: of data if `level` is `None`, else one of hashes."""

    level: int | None
    number: int


class Report(NamedTuple):
    """Result of a check. `unprotected_bytes` lie behind the data blocks that the root hash is of: nothing is known of them."""

    bad: list[BadBlock]
    unprotected_bytes: int = 0

    @property
    def ok(self) -> bool:
        return not self.bad


def _device(device: StrPath | Device) -> _casemate.Device:
    if isinstance(device, Device):
        return device._open()
    return _casemate.Device.open(os.fspath(device), False, False)


@ranged
def format(
    data: StrPath | Device,
    hash_device: StrPath | Device,
    *,
    hash: str = "sha256",
    data_block_size: int = 4096,
    hash_block_size: int = 4096,
    salt: Buffer | None = None,
    uuid: str | None = None,
    data_blocks: int | None = None,
    hash_offset: int = 0,
    threads: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> bytes:
    """Makes a hash area and returns the root hash. A path that is not there becomes a file once it is whole. Salt and UUID
    are random unless they are given."""
    if isinstance(hash_device, Device):
        target = hash_device._open()
    else:
        target = _casemate.Device.create(os.fspath(hash_device))
    return _casemate.verity_format(
        _device(data), target, algorithm=hash, data_block_size=data_block_size, hash_block_size=hash_block_size, salt=salt,
        uuid=uuid, data_blocks=data_blocks, hash_offset=hash_offset, effort=(threads, progress),
    )


@ranged
def verify(
    data: StrPath | Device,
    hash_device: StrPath | Device,
    root_hash: str | Buffer,
    *,
    hash_offset: int = 0,
    threads: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> Report:
    """Checks all data and all hashes below a root hash. Bytes behind the data that it is of are counted, not checked."""
    digest = unhex(root_hash, "root_hash")
    found, unprotected = _casemate.verity_verify(_device(data), _device(hash_device), digest, hash_offset, (threads, progress))
    return Report([BadBlock(*row) for row in found], unprotected)
