"""Manifests: what files are, in lines that are kept beside them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from types import NoneType
from typing import Any, NamedTuple

from ..fsverity import Digest
from .kinds import Area, Checksum, Kind, Parameters

_KINDS: dict[str, type[Parameters] | type[Area] | type[Checksum]] = {
    "fsverity": Parameters,
    "verity": Area,
    "checksum": Checksum,
}


class Entry(NamedTuple):
    """A file and what it is. `size` and `version` tell whether it has changed since; with its `parts` (32 bytes for 64 MiB) what
    has changed of it can be hashed alone. For dm-verity `size` is what the root hash protects, and `file_size` that of the whole file."""

    url: str
    digest: Digest
    parameters: Kind
    size: int | None = None
    version: str | None = None
    parts: tuple[bytes, ...] = ()
    file_size: int | None = None

    def to_line(self, form: str = "json") -> str:
        """The line of a manifest: `json` for all of it; `text` as `fsverity digest` or `sha256sum` print it, which programs of that
        name check."""
        if form == "text":
            name = self.url.translate(_ESCAPES)
            mark = "\\" if name != self.url else ""
            if isinstance(self.parameters, Checksum):
                return f"{mark}{self.digest.digest.hex()}  {name}\n"
            kind = "dm-verity-" if isinstance(self.parameters, Area) else ""
            return f"{mark}{kind}{self.digest} {name}\n"
        row: dict[str, Any] = {"name": self.url, "digest": str(self.digest)}
        row["kind"] = next(name for name, kind in _KINDS.items() if isinstance(self.parameters, kind))
        for name, value in self.parameters._asdict().items():
            row[name] = value.hex() if isinstance(value, bytes) else value
        row |= {"size": self.size, "version": self.version}
        if self.file_size is not None:
            row["file_size"] = self.file_size
        if self.parts:
            row["parts"] = [base64.b64encode(part).decode() for part in self.parts]
        return json.dumps(row) + "\n"


_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r"})


def read_manifest(lines: Iterable[str]) -> Iterator[Entry]:
    """The entries of a manifest: lines of JSON, and those of `fsverity digest`, `sha256sum` and its like, in any order."""
    for line in lines:
        if line.strip():
            try:
                yield _from_json(line) if line.startswith("{") else _from_text(line)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                shown = line.rstrip()
                shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
                raise ValueError(f"{shown!r} is not a line of a manifest") from None


#: Characters of a wrong line that its error has.
_SHOWN = 200

#: Types of the fields that are not numbers of bytes.
_TYPES: dict[str, tuple[type, ...]] = {"algorithm": (str,), "uuid": (str, NoneType)}


def _typed(row: dict[str, Any], name: str, types: tuple[type, ...]) -> Any:
    """The value of a name. One of another type is none: `true` is no number here, and numbers are those of bytes."""
    value = row[name]
    if type(value) not in types or (type(value) is int and not 0 <= value < 1 << 63):
        raise TypeError(name)
    return value


def _from_json(line: str) -> Entry:
    row = json.loads(line)
    kind = _KINDS[row["kind"]]
    values = {name: _typed(row, name, _TYPES.get(name, (int,))) for name in kind._fields if name != "salt"}
    if "salt" in kind._fields:
        salt = _typed(row, "salt", (str, NoneType) if kind is Area else (str,))
        values["salt"] = None if salt is None else bytes.fromhex(salt)
    algorithm, _, digits = _typed(row, "digest", (str,)).partition(":")
    parts = tuple(base64.b64decode(part, validate=True) for part in _typed({"parts": [], **row}, "parts", (list,)))
    size, version = _typed(row, "size", (int, NoneType)), _typed(row, "version", (str, NoneType))
    file_size = _typed({"file_size": None, **row}, "file_size", (int, NoneType))
    digest = Digest(algorithm, bytes.fromhex(digits))
    return Entry(_typed(row, "name", (str,)), digest, kind(**values), size, version, parts, file_size)


#: Hashes of `sha256sum` and its like, by their length.
_SUMS = {20: "sha1", 28: "sha224", 32: "sha256", 48: "sha384", 64: "sha512"}


def _from_text(line: str) -> Entry:
    line = line.rstrip("\n")
    escaped = line.startswith("\\")
    digest, _, name = line.removeprefix("\\").partition(" ")
    if escaped:
        name = name.replace("\\\\", "\0").replace("\\n", "\n").replace("\\r", "\r").replace("\0", "\\")
    algorithm, colon, digits = digest.partition(":")
    if colon and name and not algorithm.startswith("dm-verity-"):
        return Entry(name, Digest(algorithm, bytes.fromhex(digits)), Parameters(algorithm))
    raw = bytes.fromhex(digest)
    # Two blanks, or a blank and a star for a file that was read as it is.
    if name[:1] not in (" ", "*") or len(name) < 2:
        raise ValueError
    return Entry(name[1:], Digest(_SUMS[len(raw)], raw), Checksum(_SUMS[len(raw)]))
