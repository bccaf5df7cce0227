"""LUKS: what a header says. `Device.luks` opens the data."""

from __future__ import annotations

from typing import NamedTuple

from .device import Device


class Header(NamedTuple):
    """The header of a LUKS volume."""

    version: int
    uuid: str


def header(device: Device) -> Header:
    """The header at a device's beginning."""
    return Header(*device._open().luks_header())
