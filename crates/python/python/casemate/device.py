"""The one handle: whatever holds bytes, as a file object."""

from __future__ import annotations

import errno
import functools
import io
import operator
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, ParamSpec, TypeVar

from . import _casemate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .ext4 import Ext4, Writer
    from .luks import Volume

    Buffer = bytes | bytearray | memoryview
    StrPath = str | os.PathLike[str]


#: Errors that are answers about a path: those of a store say nothing about the files in an image.
_ANSWERS = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError)


class Partition(NamedTuple):
    """A partition of a disk: where it lies in bytes, its type (a GUID, or two hex digits) and its name."""

    number: int
    start: int
    size: int
    type: str
    name: str


P = ParamSpec("P")
T = TypeVar("T")


def ranged(function: Callable[P, T]) -> Callable[P, T]:
    """A function whose `OverflowError` names the arguments, of which one is a number that it can't be."""

    @functools.wraps(function)
    def call(*values: P.args, **named: P.kwargs) -> T:
        try:
            return function(*values, **named)
        except OverflowError:
            given = {**dict(zip(function.__code__.co_varnames, values, strict=False)), **named}
            numbers = {name: value for name, value in given.items() if type(value) is int}
            odd = {name: value for name, value in numbers.items() if not 0 <= value < 1 << 16} or numbers
            told = ", ".join(f"{name} {value}" for name, value in odd.items())
            raise OverflowError(f"{told}: out of range") from None

    return call


def secret(value: str | Buffer) -> Buffer:
    """A passphrase as the bytes that are hashed."""
    return os.fsencode(value) if isinstance(value, str) else value


def unhex(value: str | Buffer, name: str) -> Buffer:
    """The bytes of a digest that may be written in hexadecimal; `name` is the argument's."""
    if not isinstance(value, str):
        return value
    try:
        return bytes.fromhex(value)
    except ValueError:
        raise ValueError(f"{name} {value!r}: not hexadecimal digits") from None


def shown(made: Any, hidden: str) -> str:
    """A named tuple as `repr` has it, without its secrets: it stands in logs and tracebacks."""
    fields = made._asdict().items()
    values = (f"{name}={'...' if name in hidden.split() and value is not None else repr(value)}" for name, value in fields)
    return f"{type(made).__name__}({', '.join(values)})"


class Device(io.RawIOBase):
    """Bytes at positions: a file object over an image and whatever is laid on it.

    Methods that lay something on a device return a new one and leave this one as it is; both stay usable. Reads at positions
    (`pread`) may come from any threads at once; the position of `read` and `seek` belongs to the object.
    """

    def __init__(self, native: _casemate.Device) -> None:
        if not isinstance(native, _casemate.Device):
            raise TypeError(f"a device is opened by casemate.open or Device.from_file, not made of {type(native).__name__}")
        self._native = native
        self._name = native.name
        self._at = 0
        self._volumes: weakref.WeakSet[Volume] = weakref.WeakSet()

    @staticmethod
    def from_bytes(data: Buffer) -> Device:
        """Bytes in memory, which are copied."""
        return Device(_casemate.Device.of_bytes(data))

    @staticmethod
    def from_ranges(size: int, read: Callable[[int, int], Buffer], *, name: str = "ranges") -> Device:
        """Bytes that `read(start, end)` fetches, such as those of an object in a store (fsspec's `cat_file`). What it raises comes out
        of the call that reads. An error that would be an answer about a path, such as `FileNotFoundError`, comes out as the cause of
        an `OSError` with `errno.EIO`."""

        def fetch(start: int, end: int) -> Buffer:
            try:
                return read(start, end)
            except OSError as error:
                if not isinstance(error, _ANSWERS) and error.errno not in (errno.ELOOP, errno.ENAMETOOLONG):
                    raise
                raise OSError(errno.EIO, f"the bytes could not be fetched: {error}") from error

        return Device(_casemate.Device.of_ranges(name, size, fetch))

    @staticmethod
    def from_file(file: BinaryIO) -> Device:
        """A device over a file object that can seek; one thread at a time uses it."""
        lock = threading.Lock()
        # Not every file object says where a seek has led.
        file.seek(0, os.SEEK_END)
        size = file.tell()

        def read(start: int, end: int) -> bytes:
            with lock:
                file.seek(start)
                parts = []
                while start < end and (part := file.read(end - start)):
                    parts.append(part)
                    start += len(part)
                return b"".join(parts)

        return Device.from_ranges(size, read, name=str(getattr(file, "name", None) or getattr(file, "path", "file")))

    # What file objects have.

    def readable(self) -> bool:
        self._open()
        return True

    def writable(self) -> bool:
        return not self._open().read_only

    def seekable(self) -> bool:
        self._open()
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        bases = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}
        if whence not in bases:
            raise ValueError(f"whence {whence}: os.SEEK_SET, os.SEEK_CUR or os.SEEK_END")
        place = bases[whence] + operator.index(offset)
        if place < 0:
            raise ValueError(f"seek to {place}, before the beginning")
        self._at = place
        return self._at

    def tell(self) -> int:
        self._open()
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        data = self.pread(self.size if size is None or size < 0 else min(size, self.size), self._at)
        self._at += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any) -> int:
        count = self.preadinto(buffer, self._at)
        self._at += count
        return count

    def write(self, data: Any) -> int:
        count = self.pwrite(data, self._at)
        self._at += count
        return count

    def flush(self) -> None:
        if not self.closed and self.writable():
            self._open().flush()

    # What devices have.

    @property
    def name(self) -> str:
        """The device's name in errors."""
        return self._name

    @property
    def size(self) -> int:
        """Bytes of the device."""
        return self._open().size

    def pread(self, size: int, offset: int) -> bytes:
        """The bytes from `offset` on: `size` of them, or as many as there are."""
        if size < 0 or offset < 0:
            raise ValueError(f"{size} bytes from {offset} on: both are positive")
        return self._open().read(min(size, self.size), offset)

    def preadinto(self, buffer: Buffer, offset: int) -> int:
        """Fills a buffer with the bytes from `offset` on; how many there were."""
        # Of whatever items it is.
        return self._open().readinto(memoryview(buffer).cast("B"), offset)

    def pwrite(self, data: Buffer, offset: int) -> int:
        """Writes bytes at a position; all of them. A regular file that nothing is laid on grows if they lie behind its end, as with
        `os.pwrite`; anything else refuses that."""
        if not self.writable():
            raise io.UnsupportedOperation("the device takes no writes")
        return self._open().write(data, offset)

    def data_ranges(self) -> Iterator[tuple[int, int]]:
        """Beginnings and ends of what is not a hole."""
        found = self._open().next_data(0)
        while found is not None:
            yield found
            found = self._open().next_data(found[1])

    @ranged
    def window(self, offset: int, size: int | None = None) -> Device:
        """The bytes from `offset` on: `size` of them, or all."""
        return Device(self._open().window(offset, size))

    def partitions(self) -> list[Partition]:
        """The partitions of GPT or MBR."""
        return [Partition(*row) for row in self._open().partitions()]

    @ranged
    def partition(self, number: int) -> Device:
        """A partition, counted from 1."""
        return Device(self._open().partition(number))

    @ranged
    def crypt(
        self,
        *,
        key: Buffer | None = None,
        passphrase: str | Buffer | None = None,
        cipher: str = "aes-xts-plain64",
        key_size: int | None = None,
        passphrase_hash: str = "sha256",
        offset: int = 0,
        iv_offset: int = 0,
        sector_size: int = 512,
        iv_large_sectors: bool = False,
    ) -> Device:
        """A dm-crypt mapping. `key_size` is in bytes, offsets in sectors of 512 bytes; names are those of cryptsetup's plain
        mode."""
        phrase = None if passphrase is None else secret(passphrase)
        wanted = cipher, key, phrase, key_size, passphrase_hash, offset, iv_offset, sector_size, iv_large_sectors
        return Device(self._open().crypt(wanted))

    @ranged
    def luks(
        self,
        *,
        passphrase: str | Buffer | None = None,
        volume_key: Buffer | None = None,
        keyslot: int | None = None,
        header: Device | None = None,
        threads: int | None = None,
    ) -> Device:
        """The data of a LUKS volume. A key file's bytes are a passphrase."""
        phrase = None if passphrase is None else secret(passphrase)
        below = None if header is None else header._open()
        return Device(self._open().luks(phrase, volume_key, keyslot, below, (threads, None)))

    @ranged
    def verity(self, root_hash: str | Buffer, hash_device: Device | None = None, *, hash_offset: int = 0) -> Device:
        """A dm-verity device: every block is checked when it is read. The hash area lies on this device if on no other."""
        digest = unhex(root_hash, "root_hash")
        below = self if hash_device is None else hash_device
        return Device(self._open().verity(below._open(), digest, hash_offset))

    def overlay(self, path: StrPath, *, trust_image: bool = False) -> Device:
        """Takes writes, and keeps them in a file, which is made if it is not there. `trust_image` takes a copy of the image for
        the image, whose time of modification is another one. Until the overlay is closed, nobody writes to this device: that
        raises `OSError` with `errno.EBUSY`."""
        return Device(self._open().overlay(path, trust_image))

    def ext4(
        self,
        *,
        keys: Iterable[Buffer] = (),
        passphrases: Iterable[str | Buffer] = (),
        verity: str = "check",
        verify_checksums: bool = True,
        replay_journal: bool = True,
        superblock: int | None = None,
    ) -> Ext4:
        """The ext4 file system on the device. `keys` are fscrypt's master keys, `passphrases` open its protectors; `verity`
        says what files with fs-verity must do: "require", "check" or "ignore". `superblock` is the block of a backup to read by."""
        from .ext4 import Ext4

        phrases = [secret(phrase) for phrase in passphrases]
        return Ext4(self._open().ext4(list(keys), phrases, verity, verify_checksums, replay_journal, superblock))

    def ext4_writer(
        self, *, keys: Iterable[Buffer] = (), passphrases: Iterable[str | Buffer] = (), seed: int | None = None
    ) -> Writer:
        """Changes of the file system: made when the `with` block ends, unless by an exception. A device has one writer at a time;
        an `Ext4` that was opened before is opened again to see what was changed."""
        from .ext4 import Writer

        return Writer(self._open().ext4_writer(list(keys), [secret(phrase) for phrase in passphrases], seed))

    def close(self) -> None:
        if not self.closed:
            try:
                super().close()
            finally:
                # A flush that failed keeps neither the file nor its lock. Devices that are laid on it keep what they need.
                del self._native
                for volume in self._volumes:
                    volume._end()

    def _ends_with_this(self, volume: Volume) -> None:
        self._volumes.add(volume)

    def _open(self) -> _casemate.Device:
        if self.closed:
            raise ValueError("I/O operation on a closed device")
        return self._native

    def __repr__(self) -> str:
        return "<Device closed>" if self.closed else f"<Device {self.name!r} of {self.size} bytes>"


def open(path: StrPath, *, writable: bool = False, locked: bool = False) -> Device:
    """An image file or a block device. If it is writable, nobody else can change it meanwhile, nor read it with a lock.

    `locked=True` shares a lock with other readers, and keeps those who write away, this program included."""
    return Device(_casemate.Device.open(path, writable, locked))


def open_spec(
    spec: StrPath,
    *,
    writable: bool = False,
    locked: bool = False,
    passphrase: str | Buffer | None = None,
    threads: int | None = None,
) -> Device:
    """An image with the layers that an image specification says: "disk.img,partition=2,luks,key-file=pw".

    It is locked as by `open`. `passphrase` opens the layers of dm-crypt and LUKS that name no key file; where there are none
    such it is an error. A comma of a name is written twice."""
    phrase = None if passphrase is None else secret(passphrase)
    return Device(_casemate.Device.open_spec(spec, writable, locked, phrase, (threads, None)))
