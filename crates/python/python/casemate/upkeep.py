"""ext4 file systems checked, repaired and resized. `casemate.ext4` has these names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple

from .device import Device, ranged, secret

if TYPE_CHECKING:
    from .device import Buffer, StrPath


class Finding(NamedTuple):
    """A finding of a check: "fault" or "note", its kind, its place, and the problem."""

    level: str
    kind: str
    place: str
    text: str


class Altered(NamedTuple):
    """A file whose contents or attributes a repair changed, or that may be others': its inode, and the change: "cut", "shared", "map",
    "size", "cleared" or "attributes", which docs/checks.md explains."""

    inode: int
    change: str


class Repaired(NamedTuple):
    """Result of a repair: faults that were fixed; what a check found afterwards, faults and notes; faults of these that can't be
    fixed because other damage makes unsure what is right; how many faults there are beyond those listed; and files whose
    contents were changed, or may be others'."""

    fixed: list[Finding]
    findings: list[Finding]
    withheld: list[Finding]
    left_out: int
    altered: list[Altered]

    @property
    def clean(self) -> bool:
        """Whether the file system has no faults any more."""
        return not self.left_out and all(finding.level != "fault" for finding in self.findings)


class Resized(NamedTuple):
    """Sizes of a file system: bytes of a block, blocks before and now, and how many blocks and inodes were moved."""

    block_size: int
    blocks_before: int
    blocks: int
    blocks_moved: int
    inodes_moved: int

    @property
    def size(self) -> int:
        """Bytes of the file system."""
        return self.block_size * self.blocks


def check(
    device: Device,
    *,
    keys: Iterable[Buffer] = (),
    passphrases: Iterable[str | Buffer] = (),
    verity: bool = False,
    threads: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> list[Finding]:
    """All that is wrong with the file system on a device, and what is odd; the device is not written. With `verity` files are
    compared with their fs-verity trees."""
    phrases = [secret(phrase) for phrase in passphrases]
    return _findings(device._open().ext4_check(list(keys), phrases, verity, (threads, progress)))


def _findings(rows: list[tuple[str, str, str, str]]) -> list[Finding]:
    return [Finding(*row) for row in rows]


@ranged
def repair(
    device: Device,
    *,
    depth: Literal["safe", "all"] = "safe",
    undo: StrPath | None = None,
    approve: Callable[[str, list[Finding]], object] | None = None,
    superblock: int | None = None,
    keys: Iterable[Buffer] = (),
    passphrases: Iterable[str | Buffer] = (),
    threads: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> Repaired:
    """Repairs the file system on a writable device, after its journal was replayed: all at once if the journal has room for
    that.

    `depth` "safe" fixes what needs no guess, "all" everything, by the rules of docs/checks.md where something must be decided.
    `undo` is a new file that keeps the blocks that change, as they were before: `e2undo FILE IMAGE` of e2fsprogs puts them
    back. `approve(kind, findings)` is asked once for each kind of finding, and returns whether to fix those; an exception from
    it ends the repair. A damaged superblock is restored from a sound copy, or from the one in block `superblock`. `progress` is
    called with bytes of inode tables; each round of the repair reads them once.

    Raises `ArgumentError` for a device that was opened for reading, `OSError` with `errno.EBUSY` while a writer or a server may
    change it, and with `errno.EEXIST` for an undo file that is there."""

    def ask(kind: str, rows: list[tuple[str, str, str, str]]) -> object:
        assert approve is not None
        return approve(kind, _findings(rows))

    phrases = [secret(phrase) for phrase in passphrases]
    fixed, findings, withheld, left_out, altered = device._open().ext4_repair(
        keys=list(keys), passphrases=phrases, depth=depth, undo=undo, superblock=superblock,
        approve=None if approve is None else ask, effort=(threads, progress),
    )
    files = [Altered(*row) for row in altered]
    return Repaired(_findings(fixed), _findings(findings), _findings(withheld), left_out, files)


@ranged
def resize(
    device: Device,
    size: int | None = None,
    *,
    truncate: bool = False,
    overwrite: bool = False,
    keys: Iterable[Buffer] = (),
    passphrases: Iterable[str | Buffer] = (),
    threads: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> Resized:
    """Makes the file system on a writable device larger or smaller: `size` bytes, or all of the device.

    A file that is too small is extended by a hole. A file system that shrinks is checked first, and files behind its new end are
    moved; the file keeps its size unless `truncate` is set, which is refused if something was behind the file system. With
    `overwrite` a file system grows into bytes that hold something, which is lost. What is interrupted is completed by the next
    writer of this library; until then neither e2fsck nor the kernel should have the file system. `progress` is called with
    bytes of inode tables, while they are checked.

    Raises `ArgumentError` or `OSError` with `errno.ENOSPC` for a size that is too small for the files, `CorruptError` for damage
    that the check found, and `OSError` with `errno.EBUSY` while a writer or a server may change the device."""
    return _resized(device, size, False, truncate, overwrite, keys, passphrases, (threads, progress))


def minimize(
    device: Device,
    *,
    keys: Iterable[Buffer] = (),
    passphrases: Iterable[str | Buffer] = (),
    threads: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> Resized:
    """Makes the file system on a writable device as small as it can be, and cuts its file. The file keeps its size if something
    other than the file system is behind it, such as a hash tree. Errors are those of `resize`."""
    return _resized(device, None, True, False, False, keys, passphrases, (threads, progress))


def _resized(
    device: Device,
    size: int | None,
    least: bool,
    truncate: bool,
    overwrite: bool,
    keys: Iterable[Buffer],
    passphrases: Iterable[str | Buffer],
    effort: tuple[int | None, Callable[[int], object] | None],
) -> Resized:
    phrases = [secret(phrase) for phrase in passphrases]
    sizes = device._open().ext4_resize(
        size=size, least=least, truncate=truncate, overwrite=overwrite, keys=list(keys), passphrases=phrases, effort=effort
    )
    return Resized(*sizes)


def minimum_size(
    device: Device, *, keys: Iterable[Buffer] = (), passphrases: Iterable[str | Buffer] = ()
) -> int:
    """The fewest bytes that the file system on a device can have, estimated; the device is not written. `UnsupportedError` for
    features with which the size can't change."""
    return device._open().ext4_minimum_size(list(keys), [secret(phrase) for phrase in passphrases])
