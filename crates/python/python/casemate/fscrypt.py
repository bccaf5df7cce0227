"""fscrypt: master keys, what they encrypt, and backups of encrypted folders without any key.

Folders of images are read and written with `keys=` of `Device.ext4` and `Device.ext4_writer`; here is what lies below.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from . import _casemate

if TYPE_CHECKING:
    from .device import Buffer, StrPath
    from .ext4 import Ext4, Writer

#: The longest name, in bytes.
LONGEST_NAME = 255

_NO_UUID = uuid.UUID(int=0)


class Policy(NamedTuple):
    """How a folder is encrypted, but for the key: modes by the names that `casemate fscrypt` has for them; a key for each file, or
    one for all and IVs with the nonce (`direct`) or the inode's number; what names are padded to; bytes of a data unit, if they
    are fewer than a block's."""

    version: int = 2
    contents: str = "aes-256-xts"
    names: str = "aes-256-cts"
    ivs: Literal["file", "direct", "inode64", "inode32"] = "file"
    padding: int = 32
    data_unit_size: int | None = None


class Context(NamedTuple):
    """Encryption context of an inode: policy, key (an identifier, or a descriptor in version 1, in hexadecimal digits) and nonce."""

    policy: Policy
    key: str
    nonce: bytes
    #: As it is stored.
    stored: bytes

    @classmethod
    def from_bytes(cls, stored: Buffer) -> Context:
        """Reads the 28 or 40 bytes that ext4 stores."""
        words, key, nonce = _casemate.fscrypt_context(stored)
        return cls(Policy(*words[:3], cast('Literal["file"]', words[3]), *words[4:]), key, nonce, bytes(stored))


class MasterKey:
    """A raw master key of 16 to 64 bytes; it is wiped with the object."""

    def __init__(self, key: Buffer) -> None:
        self._native = _casemate.MasterKey(key)

    @property
    def identifier(self) -> str:
        """The key's name in policies of version 2, in hexadecimal digits."""
        return self._native.identifier

    @property
    def descriptor(self) -> str:
        """The key's name in policies of version 1, as e4crypt and fscrypt make it."""
        return self._native.descriptor

    def context(self, nonce: Buffer, policy: Policy = Policy()) -> Context:
        """The context of an inode under this key; nonces are 16 random bytes."""
        return Context.from_bytes(self._native.context(policy, nonce))

    def names(
        self, context: Context, *, inode: int = 0, uuid: uuid.UUID | str = _NO_UUID, block_size: int = 4096
    ) -> Names:
        """The cipher of the names in a directory. Its inode's number and the file system's UUID matter for IVs of inodes alone."""
        return Names(self._native.names((context.stored, inode, _uuid(uuid), block_size)))

    def contents(
        self, context: Context, *, inode: int = 0, uuid: uuid.UUID | str = _NO_UUID, block_size: int = 4096
    ) -> Contents:
        """The cipher of a file's contents."""
        return Contents(self._native.contents((context.stored, inode, _uuid(uuid), block_size)))

    def __repr__(self) -> str:
        return f"MasterKey({self.identifier})"


def _uuid(value: uuid.UUID | str) -> bytes:
    return (value if isinstance(value, uuid.UUID) else uuid.UUID(value)).bytes


class Names:
    """The cipher of names in a directory."""

    def __init__(self, native: _casemate.NameCipher) -> None:
        self._native = native

    def encrypt(self, name: StrPath, limit: int = LONGEST_NAME) -> bytes:
        """A name as it is stored: padded, and no longer than `limit`."""
        return self._native.encrypt(os.fsencode(name), limit)

    def decrypt(self, ciphertext: Buffer) -> str:
        """A name as it was given; bytes that are not UTF-8 come as in `os.fsdecode`."""
        return os.fsdecode(self._native.decrypt(ciphertext))


class Contents:
    """The cipher of a file's contents, in data units."""

    def __init__(self, native: _casemate.ContentCipher) -> None:
        self._native = native

    @property
    def data_unit_size(self) -> int:
        """Bytes of a unit."""
        return self._native.data_unit_size

    def encrypt(self, data: Buffer, first: int = 0) -> bytes:
        """Whole data units, the first of which is unit `first` of the file."""
        return self._native.run(True, data, first)

    def decrypt(self, data: Buffer, first: int = 0) -> bytes:
        return self._native.run(False, data, first)


def backup(
    fs: Ext4, path: StrPath, target: StrPath, *, threads: int | None = None, progress: Callable[[int], object] | None = None
) -> list[tuple[str, str]]:
    """Saves a folder as it is stored in a tar file, without keys. Returns what could not be saved, as `Ext4.extract` does."""
    effort = (threads, progress)
    left, more = _casemate.fscrypt_backup(fs._native, os.fspath(path), os.fspath(target), effort)
    return left + [("", f"{more} more")] * (more > 0)


def restore(
    writer: Writer, source: StrPath, path: StrPath, *, threads: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> None:
    """Puts back what was saved, as the directory `path`, without keys; it is there when the writer commits."""
    _casemate.fscrypt_restore(writer._native, os.fspath(source), os.fspath(path), (threads, progress))
