"""Web servers: ranges of files, each answer of which is compared with what was asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from fsspec.asyn import sync

_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


def is_web(fs: Any) -> bool:
    """Whether a file system is that of web servers."""
    return any(kind.__name__ == "HTTPFileSystem" for kind in type(fs).__mro__)


def no_such_range(count: int, start: int, end: int) -> OSError:
    """The error for an answer that is longer or shorter than what was asked, as of web servers that know no ranges."""
    return OSError(f"{count} bytes came of the {end - start} from byte {start} on: the store gives no such ranges")


class WebFile:
    """A file of a web server in one version: `version` is what the server called it. `is_size` tells whether the whole file may
    have so many bytes."""

    def __init__(
        self, fs: Any, url: str, version: str | None = None, is_size: Callable[[int], bool] | None = None
    ) -> None:
        self._fs, self._url, self._version, self._is_size = fs, url, version, is_size
        #: The tag of the first answer that had one; threads set it at once.
        self._tags: dict[str, str] = {}

    def read(self, start: int, end: int) -> bytes:
        """Bytes of the file."""
        if start == end:
            return b""
        status, headers, found = _get(self._fs, self._url, start, end)
        first, last, size = _told(headers)
        if status != 206:
            # An answer without ranges is the whole file.
            first, last, size = 0, len(found) - 1, len(found)
        if len(found) != end - start:
            raise no_such_range(len(found), start, end)
        if (first, last) != (start, end - 1):
            told = "no range" if first is None else f"bytes {first} to {last}"
            raise OSError(f"the server was asked for bytes {start} to {end - 1}, and says that its answer is {told}")
        if size is not None and self._is_size is not None and not self._is_size(size):
            raise OSError(f"the server says that the file has {size} bytes, and it said another size before")
        self._check_version(headers)
        return found

    def _check_version(self, headers: Mapping[str, str]) -> None:
        tag, time = _strong(headers.get("ETag")), headers.get("Last-Modified")
        known = _strong(self._version) if (self._version or "").startswith(('"', "W/")) else None
        is_time = (self._version or "").endswith(" GMT")
        # Answers to one task are of one version, whatever was known of it before.
        is_other = tag is not None and (self._tags.setdefault("first", tag) != tag or (known is not None and known != tag))
        if is_other or (is_time and time is not None and time != self._version):
            raise OSError("it has changed since the task was planned: the server's answer is of another version")


def web_size(fs: Any, url: str) -> int | None:
    """The size of a file by a request for its first byte; `None` where the answer does not tell it."""
    status, headers, found = _get(fs, url, 0, 1)
    if status in (206, 416):
        # An empty file has no first byte: servers say so in several ways.
        size = headers.get("Content-Range", "").rpartition("/")[2]
        return int(size) if size.isdecimal() else 0 if status == 416 else None
    length = headers.get("Content-Length")
    return 0 if not found else int(length) if length and "Content-Encoding" not in headers else None


def check_missing(fs: Any, url: str) -> None:
    """Raises what a server has answered about a file, unless that there is none. fsspec takes each failure for that: a server that can't be
    reached, one that fails, and one that forbids."""
    try:
        status, _, _ = _get(fs, url, 0, 1)
    except FileNotFoundError:
        return
    except Exception as error:
        text = " ".join(str(error).split())
        raise OSError(f"{url}: the web server gave no answer about the file: {type(error).__name__}: {text}") from None
    raise OSError(f"{url}: the web server answers with status {status}, and did not tell the file's size before")


def _told(headers: Mapping[str, str]) -> tuple[int | None, int | None, int | None]:
    """First and last byte of an answer, and the size of the file, as the server says them."""
    found = _RANGE.fullmatch(headers.get("Content-Range", ""))
    if found is None:
        return None, None, None
    first, last, size = (None if part in (None, "*") else int(part) for part in found.groups())
    return first, last, size


def _strong(tag: str | None) -> str | None:
    # Caches in between make a tag a weak one.
    return None if tag is None else tag.removeprefix("W/")


def _get(fs: Any, url: str, start: int, end: int) -> tuple[int, Mapping[str, str], bytes]:
    """Status, headers and contents of the answer to a request for a range; not more than a byte behind it."""

    async def get() -> tuple[int, Mapping[str, str], bytes]:
        named = dict(fs.kwargs)
        named["headers"] = {**(named.get("headers") or {}), "Range": f"bytes={start}-{end - 1}"}
        session = await fs.set_session()
        async with session.get(fs.encode_url(url), **named) as answer:
            if answer.status == 410:
                raise FileNotFoundError(url)
            if answer.status != 416:
                fs._raise_not_found_for_status(answer, url)
            if answer.status not in (200, 206, 416):
                # 204, for example: no contents are not those of an empty file.
                raise OSError(f"{url}: the web server answers with status {answer.status}, and gives no contents of the file")
            found = b""
            if answer.status in (200, 206):
                parts: list[bytes] = []
                length = 0
                async for part in answer.content.iter_chunked(1 << 20):
                    parts.append(part[: end - start + 1 - length])
                    length += len(parts[-1])
                    if length > end - start:
                        break
                found = b"".join(parts)
            return answer.status, answer.headers, found

    made: tuple[int, Mapping[str, str], bytes] = sync(fs.loop, get)
    return made
