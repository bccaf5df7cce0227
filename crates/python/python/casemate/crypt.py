"""dm-crypt's ciphers for data that a program has itself. `Device.crypt` opens whole mappings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _casemate
from .device import secret

if TYPE_CHECKING:
    from .device import Buffer


class Mapping:
    """A cipher under its key: sectors encrypted and decrypted as dm-crypt does it.

    `key_size` is in bytes. Sectors are counted in 512 bytes within the mapping; `iv_offset` is added before IVs are made.
    Any threads may use one object; the interpreter is released meanwhile.
    """

    def __init__(
        self,
        cipher: str = "aes-xts-plain64",
        *,
        key: Buffer | None = None,
        passphrase: str | Buffer | None = None,
        key_size: int | None = None,
        passphrase_hash: str = "sha256",
        iv_offset: int = 0,
        sector_size: int = 512,
        iv_large_sectors: bool = False,
    ) -> None:
        phrase = None if passphrase is None else secret(passphrase)
        self.cipher, self.sector_size = cipher, sector_size
        wanted = cipher, key, phrase, key_size, passphrase_hash, 0, iv_offset, sector_size, iv_large_sectors
        self._native = _casemate.Sectors(wanted)

    @property
    def driver(self) -> str:
        """The name of the implementation at work."""
        return self._native.driver

    def encrypt(self, data: Buffer, sector: int = 0) -> bytes:
        """Whole sectors encrypted, the first of which is `sector`."""
        return self._native.run(True, data, sector)

    def decrypt(self, data: Buffer, sector: int = 0) -> bytes:
        """Whole sectors decrypted, the first of which is `sector`."""
        return self._native.run(False, data, sector)

    def encrypt_into(self, data: Buffer, out: bytearray | memoryview, sector: int = 0) -> None:
        """Encrypts into a buffer of the same length, which may be that of the data."""
        self._native.run_into(True, data, sector, out)

    def decrypt_into(self, data: Buffer, out: bytearray | memoryview, sector: int = 0) -> None:
        """Decrypts into a buffer of the same length, which may be that of the data."""
        self._native.run_into(False, data, sector, out)

    def __repr__(self) -> str:
        return f"<Mapping {self.cipher} of {self.sector_size} byte sectors>"
