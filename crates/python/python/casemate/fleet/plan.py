"""Tasks: what one worker does, what comes back, and how files are cut for it."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from ..device import shown
from .kinds import Kind, Parameters
from .stores import opened, state

#: Bytes that a task has at most, unless `shard` says otherwise; and those of a task of small files.
SHARD, BATCH = 1 << 30, 64 << 20
#: Files of a task at most, and tasks of a file.
FILES, TASKS = 1024, 1 << 20


class Piece(NamedTuple):
    """Bytes of a file: those from `start` to `end` of the `size` that count. `version` is what the store calls this state of the
    file, and `file_size` its size with the bytes that do not count."""

    url: str
    size: int
    start: int
    end: int
    version: str | None = None
    file_size: int | None = None

    def is_size(self, size: int, parameters: Kind) -> bool:
        """Whether the file may have so many bytes."""
        return parameters.covered(size) == self.size if self.file_size is None else size == self.file_size


class Task(NamedTuple):
    """Work for one worker: pieces of files, and how they are read and hashed."""

    pieces: tuple[Piece, ...]
    parameters: Kind = Parameters()
    with_tree: bool = False
    threads: int | None = 1
    storage_options: dict[str, Any] | None = None

    def __repr__(self) -> str:
        # Options of stores have their passwords.
        return shown(self, "storage_options")

    @property
    def key(self) -> str:
        """Name of the task in a resume file: it has the same pieces and parameters."""
        what = (self.pieces, type(self.parameters).__name__, self.parameters, self.with_tree)
        return hashlib.sha256(repr(what).encode()).hexdigest()


class Part(NamedTuple):
    """Result of a piece: a part of its file's tree with a checksum of its own, or the text of what went wrong."""

    url: str
    data: bytes = b""
    blocks: tuple[tuple[int, bytes], ...] = ()
    error: str | None = None


def names(urls: Iterable[str | os.PathLike[str]]) -> Iterator[str]:
    """The names of files, each once."""
    if isinstance(urls, (str, bytes, os.PathLike)):
        raise TypeError(f"a list of URLs is wanted, and {urls!r} is one")
    seen: set[str] = set()
    for url in urls:
        name = os.fspath(url)
        if name not in seen:
            seen.add(name)
            yield name


def told(error: BaseException) -> str:
    """Text of an error, in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def plan(
    urls: Iterable[str | os.PathLike[str]],
    *,
    shard: int = SHARD,
    parameters: Kind = Parameters(),
    with_tree: bool = False,
    threads: int | None = 1,
    storage_options: dict[str, Any] | None = None,
    failed: Callable[[str, Exception], object] | None = None,
    known: Callable[[Piece], list[Piece]] | None = None,
    is_wanted: Callable[[str], bool] | None = None,
) -> Iterator[Task]:
    """Tasks for files, each of which comes once: large ones are cut where trees can be joined, small ones come together. `failed`
    is called for files that can't be looked at; without it that is an exception. `known` is asked for the pieces of a file that are
    to be read, where not all of it is, and `is_wanted` whether more of it should be."""
    if shard <= 0:
        raise ValueError(f"shard: {shard} bytes; a task has at least one")
    unit = parameters.unit

    def task(pieces: list[Piece]) -> Task:
        return Task(tuple(pieces), parameters, with_tree, threads, storage_options)

    small: list[Piece] = []
    total = 0
    for url in names(urls):
        try:
            size, version = state(url, storage_options)
            size, there = parameters.covered(size), size
            if size < there:
                text = "%s: %d bytes behind byte %d are in no whole block: no hash protects them"
                logging.getLogger("casemate").warning(text, url, there - size, size)
            if unit is not None and size // (max(shard // unit, 1) * unit) > TASKS:
                text = f"{size} bytes are more than {TASKS} tasks of {shard} bytes: no file is so large, or `shard` is too small"
                raise ValueError(text)
            whole = Piece(url, size, 0, size, version, there)
            pieces = [whole] if known is None else known(whole)
        # Stores raise whatever they like.
        except Exception as error:
            if failed is None:
                raise
            failed(url, error)
            continue
        for wanted in pieces:
            step = max(wanted.end - wanted.start, 1) if unit is None else max(shard // unit, 1) * unit
            if wanted.end - wanted.start > min(step, BATCH):
                for start in range(wanted.start, wanted.end, step):
                    # What went wrong with the first ones goes wrong with all.
                    if is_wanted is not None and not is_wanted(url):
                        break
                    yield task([wanted._replace(start=start, end=min(start + step, wanted.end))])
                continue
            small.append(wanted)
            total += wanted.end - wanted.start
            if len(small) == FILES or total > BATCH:
                yield task(small)
                small, total = [], 0
    if small:
        yield task(small)


def run(task: Task) -> list[Part]:
    """Does a task, on any machine: nothing of it stays there."""
    parts = []
    for piece in task.pieces:
        try:
            def is_size(size: int, piece: Piece = piece) -> bool:
                return piece.is_size(size, task.parameters)

            with opened(piece.url, piece.start, piece.end, task.storage_options, piece.version, is_size) as device:
                data, blocks = task.parameters.part(
                    device, piece.url, piece.size, piece.start, task.with_tree, task.threads
                )
            size, version = state(piece.url, task.storage_options)
            if not is_size(size) or version != piece.version:
                raise OSError("it has changed since the task was planned")
            parts.append(Part(piece.url, data, tuple(blocks)))
        except Exception as error:
            parts.append(Part(piece.url, error=told(error)))
    return parts
