"""Android's avbtool: hash trees of partitions, on all cores."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from .. import verity
from ..device import Device, open

if TYPE_CHECKING:
    from ..device import Buffer, StrPath


def _padded(data: Device, block_size: int) -> Device:
    """Data whose last block is filled with zeros."""
    size = (data.size // block_size + 1) * block_size
    return Device.from_ranges(size, lambda start, end: data.pread(end - start, start).ljust(end - start, b"\0"), name=data.name)


def hash_tree(
    image: StrPath | Device, size: int | None = None, *, block_size: int = 4096, algorithm: str = "sha256",
    salt: Buffer = b"", threads: int | None = None,
) -> tuple[bytes, bytes]:
    """The root digest and the tree of the first `size` bytes, as avbtool's `generate_hash_tree` makes them: a last block that
    is not whole counts as one with zeros behind."""
    device = image if isinstance(image, Device) else open(image)
    data = device if size is None else device.window(0, size)
    if block_size > 0 and data.size % block_size:
        data = _padded(data, block_size)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tree")
        root = verity.format(
            data, path, hash=algorithm, data_block_size=block_size, hash_block_size=block_size, salt=salt,
            uuid="00000000-0000-0000-0000-000000000000", threads=threads,
        )
        with open(path) as tree:
            # Before it lies a superblock, in a block of its own.
            return root, tree.pread(tree.size, block_size)
