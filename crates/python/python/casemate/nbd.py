"""NBD: devices offered to clients, such as qemu, nbdcopy or the kernel's own."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from . import _casemate
from .errors import UnsupportedError

if TYPE_CHECKING:
    from types import TracebackType

    from .device import Device, StrPath


class Server:
    """A server that answers clients on threads of its own until it is stopped, as the end of a `with` block does. There is
    none but on Linux."""

    def __init__(
        self, device: Device, address: StrPath | tuple[str, int], *, name: str = "", allow_remote: bool = False
    ) -> None:
        if sys.platform != "linux":
            raise UnsupportedError("devices are served on Linux alone")
        where: str | tuple[str, int] = address if isinstance(address, tuple) else os.fspath(address)
        self._native = _casemate.Server(device._open(), where, name, allow_remote)

    @property
    def uri(self) -> str | None:
        """Where clients find the device; `None` once the server has stopped."""
        return self._native.uri

    @property
    def clients(self) -> int:
        """How many there are at this moment."""
        return self._native.clients

    def stop(self, patience: float = 10.0) -> None:
        """Accepts no more clients, answers their requests, and flushes everything to stable storage. Clients that do not take
        their answers within `patience` seconds are cut off."""
        self._native.stop(patience)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Server at {self.uri}>"


def serve(
    device: Device, address: StrPath | tuple[str, int], *, name: str = "", allow_remote: bool = False
) -> Server:
    """Offers a device at a Unix socket's path, or at a host and port; whether clients write is what the device says. Connections
    are not encrypted: a host that is not this machine alone needs `allow_remote`."""
    return Server(device, address, name=name, allow_remote=allow_remote)
