"""Files on this machine and in stores: their states, and ranges of them as devices."""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import fsspec

from ..device import Device, open
from .crew import Crew, result
from .web import WebFile, check_missing, is_web, no_such_range, web_size

#: Bytes that are fetched from a store at once, and how many such ranges are on their way for a task.
RANGE, IN_FLIGHT = 8 << 20, 4

#: Bytes at most of a file that is said to have none, and has some.
UNTOLD = 16 << 20

#: Names under which stores tell the state that a file is in: what tells most comes first.
VERSIONS = (
    "ETag", "etag", "generation", "md5Hash", "blob_id", "Content-MD5", "Digest", "mtime", "modified", "modify", "Last-Modified",
    "LastModified", "last_modified", "created",
)


def is_local(url: str) -> bool:
    return "://" not in url or url.startswith("file://")


def local_path(url: str) -> str:
    """The path of a file on this machine."""
    return url.removeprefix("file://")


def _untold(path: str) -> bytes:
    """Contents of a regular file that is said to have none, as those in /proc are."""
    with builtins.open(path, "rb") as file:
        data = file.read(UNTOLD + 1)
    if len(data) > UNTOLD:
        raise OSError(errno.EFBIG, f"has more than {UNTOLD} bytes, and is said to have none", path)
    return data


def state(url: str, options: dict[str, Any] | None) -> tuple[int, str | None]:
    """A file's size, and what the store calls its state."""
    if is_local(url):
        found = os.stat(local_path(url))
        if stat.S_ISBLK(found.st_mode):
            # Neither size nor time of a device's node are those of what it holds.
            with open(local_path(url)) as device:
                return device.size, None
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "neither a regular file nor a block device", local_path(url))
        if found.st_size == 0 and (data := _untold(local_path(url))):
            return len(data), None
        return found.st_size, str(found.st_mtime_ns)
    fs, path = fsspec.core.url_to_fs(url, **(options or {}))
    fs.invalidate_cache()
    try:
        info = fs.info(path)
    except FileNotFoundError:
        if is_web(fs):
            check_missing(fs, path)
        raise
    size = info.get("size")
    if is_web(fs) and not size:
        # Some answer HEAD without a length, or with none.
        size = web_size(fs, path)
    if size is None:
        raise OSError("the store does not say its size")
    if int(size) < 0:
        raise OSError(f"the store says that its size is {size} bytes")
    version = next((info[name] for name in VERSIONS if info.get(name)), None)
    return int(size), None if version is None else str(version)


@contextlib.contextmanager
def opened(
    url: str, start: int, end: int, options: dict[str, Any] | None, version: str | None = None,
    is_size: Callable[[int], bool] | None = None,
) -> Iterator[Device]:
    """Bytes of a file as a device. A web server's answers must be of this version, and of a file whose size `is_size` takes."""
    if is_local(url):
        with open(local_path(url)) as device:
            # Files of the kernel's own file systems.
            whole = Device.from_bytes(_untold(local_path(url))) if device.size == 0 < end else device
            yield whole.window(start, end - start)
        return
    fs, path = fsspec.core.url_to_fs(url, **(options or {}))
    web = WebFile(fs, path, version, is_size) if is_web(fs) else None

    def fetch(begin: int, behind: int) -> bytes:
        if web is not None:
            return web.read(start + begin, start + behind)
        found = bytes(fs.cat_file(path, start=start + begin, end=start + behind))
        if len(found) != behind - begin:
            raise no_such_range(len(found), start + begin, start + behind)
        return found

    with _Ahead(fetch, end - start) as ahead:
        yield Device.from_ranges(end - start, ahead.read, name=url)


@contextlib.contextmanager
def looked_at(url: str, options: dict[str, Any] | None) -> Iterator[Device | None]:
    """Contents of a place that something else goes to; `None` where there is nothing. Not more is fetched than is looked at."""
    if is_local(url):
        try:
            found = os.stat(local_path(url))
        except FileNotFoundError:
            yield None
            return
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", local_path(url))
        with open(local_path(url)) as device:
            yield device
        return
    fs, path = fsspec.core.url_to_fs(url, **(options or {}))
    try:
        size, _ = state(url, options)
    except FileNotFoundError:
        yield None
        return
    # Small ones come at once.
    whole = bytes(fs.cat_file(path)) if size <= RANGE else None
    yield Device.from_ranges(
        size if whole is None else len(whole),
        lambda begin, behind: bytes(fs.cat_file(path, start=begin, end=behind)) if whole is None else whole[begin:behind],
        name=url,
    )


class _Ahead:
    """Ranges of a file in a store, some of which are fetched ahead."""

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        self._fetch, self._size = fetch, size
        self._crew = Crew(IN_FLIGHT)
        self._lock = threading.Lock()
        self._ranges: OrderedDict[int, Future[bytes]] = OrderedDict()

    def _range(self, number: int) -> Future[bytes]:
        with self._lock:
            if number not in self._ranges:
                start = number * RANGE
                self._ranges[number] = self._crew.submit(self._fetch, start, min(start + RANGE, self._size))
            self._ranges.move_to_end(number)
            # What is left of those that were read.
            while len(self._ranges) > 4 * IN_FLIGHT:
                self._ranges.popitem(last=False)
            return self._ranges[number]

    def read(self, start: int, end: int) -> bytes:
        first, last = start // RANGE, max(end - 1, start) // RANGE
        for number in range(first, last + IN_FLIGHT):
            if number * RANGE < self._size:
                self._range(number)
        found = b"".join([result(self._range(number), self._crew) for number in range(first, last + 1)])
        return found[start - first * RANGE : end - first * RANGE]

    def __enter__(self) -> _Ahead:
        return self

    def __exit__(self, *_: object) -> None:
        # What was fetched for nothing is not waited for.
        self._crew.stop()
