"""The Linux storage-protection stack in user space: dm-verity, fs-verity, dm-crypt, LUKS, fscrypt and ext4.

    >>> import casemate
    >>> with casemate.open("disk.img") as disk:                                       # doctest: +SKIP
    ...     fs = disk.partition(2).luks(passphrase="secret").ext4()
    ...     print((fs / "etc/os-release").read_text())

`open` gives a `Device`, a file object on which partitions, decryption, verification and file systems are laid; each is a
`Device` again.
"""

from . import crypt, errors, ext4, fscrypt, fsverity, luks, nbd, verity
from ._casemate import base64_decode, base64_encode, crc32c, crc32c_combine, crc32c_patch, sha256_many
from ._casemate import version as _version
from .device import Device, open, open_spec
from .errors import ArgumentError, CorruptError, Error, LockedError, MismatchError, UnsupportedError
from .ext4 import Ext4, Path, Stat, Writer

#: The package's version.
__version__ = _version()

__all__ = [
    "ArgumentError", "CorruptError", "Device", "Error", "Ext4", "LockedError", "MismatchError", "Path", "Stat",
    "UnsupportedError", "Writer", "base64_decode", "base64_encode", "crc32c", "crc32c_combine", "crc32c_patch", "crypt",
    "errors", "ext4", "fscrypt", "fsverity", "luks", "nbd", "open", "open_spec", "sha256_many", "verity",
]
