"""LUKS: headers read, volumes made, passphrases changed. `Device.luks` opens the data."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _casemate
from .device import Device, ranged, secret

if TYPE_CHECKING:
    from .device import Buffer


class Pbkdf(NamedTuple):
    """Key derivation function with its costs: "argon2id" or "argon2i" with iterations over `memory` KiB in
    `lanes`, or "pbkdf2" with iterations alone."""

    name: str
    iterations: int
    memory: int = 0
    lanes: int = 1


class Volume:
    """A LUKS header with the data that it is of. Keys are changed in the header at once; what is there stays valid until the
    new is. A volume ends with its device: other programs may use the file once that is closed."""

    def __init__(self, device: Device, *, header: Device | None = None) -> None:
        native = _casemate.LuksVolume(device._open(), None if header is None else header._open())
        self._held: _casemate.LuksVolume | None = native
        # A device that nobody else has would close, and the volume with it.
        self._device = device
        device._ends_with_this(self)

    @property
    def _native(self) -> _casemate.LuksVolume:
        if self._held is None:
            raise ValueError("the volume's device is closed")
        return self._held

    def _end(self) -> None:
        self._held = None

    @property
    def version(self) -> int:
        """1 or 2."""
        return self._native.version

    @property
    def uuid(self) -> str:
        return self._native.uuid

    @property
    def keyslots(self) -> list[int]:
        """The numbers of the key slots that are in use."""
        return self._native.keyslots

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The JSON metadata of LUKS2; `None` for LUKS1."""
        text = self._native.metadata()
        return None if text is None else json.loads(text)

    @ranged
    def unlock(
        self,
        *,
        passphrase: str | Buffer | None = None,
        volume_key: Buffer | None = None,
        keyslot: int | None = None,
        threads: int | None = None,
    ) -> tuple[int | None, bytes]:
        """The key slot that a passphrase opens, and the volume key, which is a secret; `MismatchError` if it opens none."""
        phrase = None if passphrase is None else secret(passphrase)
        return self._native.unlock(phrase, volume_key, keyslot, (threads, None))

    @ranged
    def add_key(
        self,
        new: str | Buffer,
        *,
        passphrase: str | Buffer | None = None,
        volume_key: Buffer | None = None,
        keyslot: int | None = None,
        pbkdf: Pbkdf | None = None,
    ) -> int:
        """Adds a passphrase; the number of its key slot: `keyslot`, or the first free one."""
        phrase = None if passphrase is None else secret(passphrase)
        return self._native.set_key(
            secret(new), replace=False, passphrase=phrase, volume_key=volume_key, keyslot=keyslot, costs=pbkdf,
            effort=(None, None),
        )

    @ranged
    def change_key(
        self, new: str | Buffer, *, passphrase: str | Buffer, keyslot: int | None = None, pbkdf: Pbkdf | None = None
    ) -> int:
        """Puts another passphrase in the place of one; the number of its key slot."""
        return self._native.set_key(
            secret(new), replace=True, passphrase=secret(passphrase), volume_key=None, keyslot=keyslot, costs=pbkdf,
            effort=(None, None),
        )

    @ranged
    def kill_slot(self, keyslot: int, *, last: bool = False) -> None:
        """Removes a key slot, for good. That of the last one that opens the data must be meant: `last=True`."""
        self._native.kill_slot(keyslot, last)

    def __repr__(self) -> str:
        return "<LUKS volume, closed>" if self._held is None else f"<LUKS{self.version} volume {self.uuid}>"


@ranged
def format(
    device: Device,
    passphrase: str | Buffer,
    *,
    version: int = 2,
    cipher: str = "aes-xts-plain64",
    key_size: int | None = None,
    integrity: str | None = None,
    hash: str = "sha256",
    pbkdf: Pbkdf | None = None,
    sector_size: int = 512,
    offset: int | None = None,
    label: str = "",
    uuid: str | None = None,
    keyslot: int = 0,
    volume_key: Buffer | None = None,
    header: Device | None = None,
    overwrite: bool = False,
    threads: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> Volume:
    """Makes a volume on a device, whose data are overwritten; sizes and offsets are bytes. What holds something known is
    refused unless `overwrite` is set. Without `pbkdf` a key slot costs what cryptsetup chooses at the most.

    Raises `OSError` with `errno.EBUSY` while something that would write to the device is laid on it, such as the data of the volume
    that was there: close that first."""
    below = None if header is None else header._open()
    _casemate.luks_format(
        device._open(), secret(passphrase), version=version, cipher=cipher, key_size=key_size, integrity=integrity,
        hash=hash, costs=pbkdf, sector_size=sector_size, offset=offset, label=label, uuid=uuid, keyslot=keyslot,
        volume_key=volume_key, header=below, overwrite=overwrite, effort=(threads, progress),
    )
    return Volume(device, header=header)
