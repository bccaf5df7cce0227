"""dissect.fve's ciphers: `create_cipher` in place of its own, with every cipher and IV mode of dm-crypt.

    >>> import dissect.fve.crypto                                                     # doctest: +SKIP
    >>> dissect.fve.crypto.create_cipher = casemate.contrib.dissect_fve.create_cipher  # doctest: +SKIP
"""

from __future__ import annotations

from dissect.fve.crypto import parse_cipher_spec

from ..crypt import Mapping


class Cipher:
    """A cipher with the methods of dissect.fve's own. Sectors are counted in `iv_sector_size` bytes."""

    def __init__(self, mapping: Mapping, iv_sector_size: int) -> None:
        self._mapping, self.sector_size, self.iv_sector_size = mapping, mapping.sector_size, iv_sector_size

    def encrypt(self, ciphertext: bytes, sector: int = 0, output: bytearray | None = None) -> bytes | None:
        first = sector * (self.iv_sector_size // 512)
        if output is None:
            return self._mapping.encrypt(ciphertext, first)
        self._mapping.encrypt_into(ciphertext, output, first)
        return None

    def decrypt(self, ciphertext: bytes, sector: int = 0, output: bytearray | None = None) -> bytes | None:
        first = sector * (self.iv_sector_size // 512)
        if output is None:
            return self._mapping.decrypt(ciphertext, first)
        self._mapping.decrypt_into(ciphertext, output, first)
        return None


def create_cipher(
    spec: str, key: bytes, key_size: int | None = None, sector_size: int = 512, iv_sector_size: int = 512
) -> Cipher:
    """The cipher of a specification such as "aes-xts-plain64" under a key; `ValueError` for what there is none of."""
    name, mode, bits, iv, options = parse_cipher_spec(spec, key_size=key_size, key_size_hint=len(key) * 8)
    if mode != "xts" and iv != "elephant":
        key = key[: bits // 8]
    # ECB has no IV, whatever the parser calls that.
    text = f"{name}-ecb" if mode == "ecb" else f"{name}-{mode}-{iv}" + (f":{options}" if options else "")
    mapping = Mapping(
        text, key=key, sector_size=sector_size, iv_large_sectors=sector_size == iv_sector_size and sector_size > 512
    )
    return Cipher(mapping, iv_sector_size)
