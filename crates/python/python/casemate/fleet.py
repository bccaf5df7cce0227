"""Digests, trees and checks of more data than one machine holds, on the engine that somebody runs already.

`plan` cuts files into tasks, `run` does one of them wherever it is sent, and `merge` joins what comes back; the engine does the
rest. `digests`, `trees`, `verify` and `check_images` are all three on an executor of concurrent.futures, on Ray, Dask or Spark,
or without any on this machine's cores. Files are whatever fsspec opens; importing this needs fsspec.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import io
import json
import os
import sys
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import fsspec

from . import _casemate
from .device import Device, open
from .errors import Error, MismatchError
from .ext4 import Finding, check
from .fsverity import Digest

#: Bytes that a task has at most, unless `shard` says otherwise; and those of a task of small files.
SHARD, BATCH = 1 << 30, 64 << 20
#: Files of a task at most.
FILES = 1024
#: Bytes that are fetched from a store at once, and how many such ranges are on their way for a task.
RANGE, IN_FLIGHT = 8 << 20, 4


class Parameters(NamedTuple):
    """The parameters of trees."""

    algorithm: str = "sha256"
    block_size: int = 4096
    salt: bytes = b""

    @property
    def unit(self) -> int:
        """Bytes of a file that parts begin at multiples of: 64 MiB for SHA-256 in blocks of 4096."""
        return _casemate.fsverity_unit(*self)


class Piece(NamedTuple):
    """Bytes of a file: those from `start` to `end` of `size`. `version` is what the store calls this state of the file."""

    url: str
    size: int
    start: int
    end: int
    version: str | None = None


class Task(NamedTuple):
    """Work for one worker: pieces of files, and how they are read and hashed."""

    pieces: tuple[Piece, ...]
    parameters: Parameters = Parameters()
    with_tree: bool = False
    threads: int | None = 1
    storage_options: dict[str, Any] | None = None

    @property
    def key(self) -> str:
        """What the task is called in a resume file: it has the same pieces and parameters."""
        what = (self.pieces, self.parameters, self.with_tree)
        return hashlib.sha256(repr(what).encode()).hexdigest()


class Part(NamedTuple):
    """What a piece has become: a part of its file's tree with a checksum of its own, or the text of what went wrong."""

    url: str
    data: bytes = b""
    blocks: tuple[tuple[int, bytes], ...] = ()
    error: str | None = None


def plan(
    urls: Iterable[str],
    *,
    shard: int = SHARD,
    parameters: Parameters = Parameters(),
    with_tree: bool = False,
    threads: int | None = 1,
    storage_options: dict[str, Any] | None = None,
    failed: Callable[[str, Exception], object] | None = None,
) -> Iterator[Task]:
    """Tasks for files, one after the other: large ones are cut where trees can be joined, small ones come together. `failed` is
    called for files that are not there; without it that is an exception."""
    unit = parameters.unit
    shard = max(shard // unit, 1) * unit

    def task(pieces: list[Piece]) -> Task:
        return Task(tuple(pieces), parameters, with_tree, threads, storage_options)

    small: list[Piece] = []
    total = 0
    for url in urls:
        try:
            size, version = _state(url, storage_options)
        except OSError as error:
            if failed is None:
                raise
            failed(url, error)
            continue
        if size > min(shard, BATCH):
            for start in range(0, size, shard):
                yield task([Piece(url, size, start, min(start + shard, size), version)])
            continue
        small.append(Piece(url, size, 0, size, version))
        total += size
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
            with _opened(piece, task.storage_options) as device:
                data, blocks = _casemate.fsverity_part(
                    device._open(), piece.size, piece.start, *task.parameters, task.with_tree, (task.threads, None)
                )
            if _state(piece.url, task.storage_options) != (piece.size, piece.version):
                raise OSError("it has changed since the task was planned")
            parts.append(Part(piece.url, data, tuple(blocks)))
        except (OSError, Error) as error:
            parts.append(Part(piece.url, error=f"{type(error).__name__}: {error}"))
    return parts


def merge(parts: Iterable[Part]) -> dict[str, Digest | Exception]:
    """The digest of each file whose parts are all there; an exception for others, which names what is missing or wrong."""
    of: defaultdict[str, list[Part]] = defaultdict(list)
    for part in parts:
        of[part.url].append(part)
    return {url: _joined(found, None) for url, found in of.items()}


def digests(
    urls: Iterable[str],
    engine: Any = None,
    *,
    shard: int = SHARD,
    parameters: Parameters = Parameters(),
    threads: int | None = 1,
    storage_options: dict[str, Any] | None = None,
    resume: str | os.PathLike[str] | None = None,
    progress: Callable[[int], object] | None = None,
) -> Iterator[tuple[str, Digest | Exception]]:
    """The digests of files, as they become known; an exception in the place of one that could not be made.

    `engine` is an executor, the module `ray`, a `dask.distributed.Client`, a `SparkSession`, or nothing. A killed run with a
    `resume` file goes on where it was. `progress` hears how many bytes are done.
    """
    lost: list[tuple[str, Exception]] = []
    tasks = plan(
        urls, shard=shard, parameters=parameters, threads=threads, storage_options=storage_options,
        failed=lambda url, error: lost.append((url, error)),
    )
    for url, parts in _files(tasks, engine, resume, progress):
        yield url, _joined(parts, None)
    yield from lost


def trees(
    urls: Iterable[str],
    place: Callable[[str], str | os.PathLike[str]] | None = None,
    engine: Any = None,
    *,
    shard: int = SHARD,
    parameters: Parameters = Parameters(),
    threads: int | None = 1,
    storage_options: dict[str, Any] | None = None,
    progress: Callable[[int], object] | None = None,
) -> Iterator[tuple[str, Digest | Exception]]:
    """The same, with a tree for each file on this machine: at `place(url)`, or for a local file beside it, with `.fsverity`
    behind its name. `fsverity.Tree` reads files by them."""
    where = place or (lambda url: url.removeprefix("file://") + ".fsverity")
    lost: list[tuple[str, Exception]] = []
    tasks = plan(
        urls, shard=shard, parameters=parameters, with_tree=True, threads=threads, storage_options=storage_options,
        failed=lambda url, error: lost.append((url, error)),
    )
    for url, parts in _files(tasks, engine, None, progress):
        yield url, _joined(parts, where(url))
    yield from lost


def verify(
    manifest: Iterable[tuple[str, Digest]], engine: Any = None, **options: Any
) -> Iterator[tuple[str, Exception | None]]:
    """Files beside the digests that they should have: `None` for one that has it, else what is wrong. Options are those of
    `digests`."""
    expected = dict(manifest)
    for url, found in digests(expected, engine, **options):
        if isinstance(found, Exception):
            yield url, found
        elif found != expected[url]:
            yield url, MismatchError(f"{url}: the digest is {found}, and {expected[url]} was expected")
        else:
            yield url, None


def check_images(
    urls: Iterable[str], engine: Any = None, *, storage_options: dict[str, Any] | None = None
) -> Iterator[tuple[str, list[Finding] | Exception]]:
    """What is wrong with ext4 images, each on one worker."""
    work = functools.partial(_check, storage_options=storage_options)
    for url, found, error in _results(engine, work, urls):
        yield url, error if error is not None else found


def _check(url: str, storage_options: dict[str, Any] | None) -> list[Finding]:
    size, version = _state(url, storage_options)
    with _opened(Piece(url, size, 0, size, version), storage_options) as device:
        return check(device, threads=1)


def read_manifest(lines: Iterable[str]) -> Iterator[tuple[str, Digest]]:
    """Digests and names, as `fsverity digest` prints them."""
    for line in lines:
        digest, _, name = line.rstrip("\n").partition(" ")
        algorithm, _, digits = digest.partition(":")
        if not name or not digits:
            raise ValueError(f"{line!r} is no digest and name")
        yield name, Digest(algorithm, bytes.fromhex(digits))


# Files.


def _is_local(url: str) -> bool:
    return "://" not in url or url.startswith("file://")


def _state(url: str, options: dict[str, Any] | None) -> tuple[int, str | None]:
    """A file's size, and what the store calls its state."""
    if _is_local(url):
        found = os.stat(url.removeprefix("file://"))
        return found.st_size, str(found.st_mtime_ns)
    fs, path = fsspec.core.url_to_fs(url, **(options or {}))
    fs.invalidate_cache()
    info = fs.info(path)
    version = next((info[name] for name in ("ETag", "etag", "generation", "mtime", "created") if info.get(name)), None)
    return int(info["size"]), None if version is None else str(version)


@contextlib.contextmanager
def _opened(piece: Piece, options: dict[str, Any] | None) -> Iterator[Device]:
    """The bytes of a piece as a device."""
    length = piece.end - piece.start
    if _is_local(piece.url):
        with open(piece.url.removeprefix("file://")) as device:
            yield device.window(piece.start, length)
        return
    fs, path = fsspec.core.url_to_fs(piece.url, **(options or {}))

    def fetch(start: int, end: int) -> bytes:
        return bytes(fs.cat_file(path, start=piece.start + start, end=piece.start + end))

    with _Ahead(fetch, length) as ahead:
        yield Device.from_ranges(length, ahead.read, name=piece.url)


class _Ahead:
    """Ranges of a file in a store, some of which are fetched before somebody asks."""

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        self._fetch, self._size = fetch, size
        self._pool = ThreadPoolExecutor(IN_FLIGHT)
        self._lock = threading.Lock()
        self._ranges: OrderedDict[int, Future[bytes]] = OrderedDict()

    def _range(self, number: int) -> Future[bytes]:
        with self._lock:
            if number not in self._ranges:
                start = number * RANGE
                self._ranges[number] = self._pool.submit(self._fetch, start, min(start + RANGE, self._size))
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
        found = b"".join([self._range(number).result() for number in range(first, last + 1)])
        return found[start - first * RANGE : end - first * RANGE]

    def __enter__(self) -> _Ahead:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)


# Joining.


def _joined(parts: list[Part], tree: str | os.PathLike[str] | None) -> Digest | Exception:
    wrong = next((part.error for part in parts if part.error is not None), None)
    if wrong is not None:
        return OSError(f"{parts[0].url}: {wrong}")
    try:
        data = [part.data for part in parts]
        if tree is None:
            return Digest(*_casemate.fsverity_join(list(data), None))
        device = _casemate.Device.create(os.fspath(tree))
        for part in parts:
            for offset, block in part.blocks:
                # The descriptor lies before the tree, and is written last.
                device.grow_to(4096 + offset + len(block))
                device.write(block, 4096 + offset)
        return Digest(*_casemate.fsverity_join(list(data), device))
    except (OSError, Error) as error:
        return error


class _Gathered:
    """Parts that have come, by their files."""

    def __init__(self) -> None:
        self.parts: defaultdict[str, list[Part]] = defaultdict(list)
        self.bytes: defaultdict[str, int] = defaultdict(int)
        self.done = 0

    def take(self, task: Task, parts: list[Part]) -> Iterator[tuple[str, list[Part]]]:
        """Files that are complete now, with all their parts."""
        for piece, part in zip(task.pieces, parts, strict=True):
            self.parts[piece.url].append(part)
            self.bytes[piece.url] += piece.end - piece.start
            self.done += piece.end - piece.start
            if self.bytes[piece.url] >= piece.size:
                del self.bytes[piece.url]
                yield piece.url, self.parts.pop(piece.url)


def _files(
    tasks: Iterable[Task],
    engine: Any,
    resume: str | os.PathLike[str] | None,
    progress: Callable[[int], object] | None,
) -> Iterator[tuple[str, list[Part]]]:
    """Files whose parts have all come, with them."""
    before = {} if resume is None else _resumed(resume)
    known: list[tuple[Task, list[Part]]] = []
    gathered = _Gathered()

    def left() -> Iterator[Task]:
        for task in tasks:
            if task.key in before:
                known.append((task, before.pop(task.key)))
            else:
                yield task

    with contextlib.ExitStack() as stack:
        log = None if resume is None else stack.enter_context(io.open(resume, "a", encoding="ascii"))
        for task, parts, error in _results(engine, run, left()):
            if error is not None:
                parts = [Part(piece.url, error=f"{type(error).__name__}: {error}") for piece in task.pieces]
            elif log is not None and not any(part.error for part in parts):
                _remember(log, task, parts)
            yield from gathered.take(task, parts)
            if progress is not None:
                progress(gathered.done)
    for task, parts in known:
        yield from gathered.take(task, parts)
    if progress is not None:
        progress(gathered.done)


def _remember(log: Any, task: Task, parts: list[Part]) -> None:
    rows = [(part.url, base64.b64encode(part.data).decode()) for part in parts]
    # A line that was cut off stays apart from this one.
    log.write("\n" + json.dumps({"task": task.key, "parts": rows}) + "\n")
    log.flush()


def _resumed(path: str | os.PathLike[str]) -> dict[str, list[Part]]:
    """The tasks that a resume file tells of; a line that was cut off by a kill is none."""
    done = {}
    with contextlib.suppress(FileNotFoundError), io.open(path, encoding="ascii") as log:
        for line in log:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                row = json.loads(line)
                done[row["task"]] = [Part(url, base64.b64decode(data)) for url, data in row["parts"]]
    return done


# Engines.


def _results(engine: Any, work: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[Any, Any, Exception | None]]:
    """Tasks with what has become of them, as they come back; a bounded number are on their way."""
    name = type(engine).__module__.partition(".")[0]
    if engine is None:
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            yield from _futures(pool.submit, wait, work, tasks, 2 * (os.cpu_count() or 1))
    elif isinstance(engine, Executor):
        yield from _futures(engine.submit, wait, work, tasks, 64)
    elif getattr(engine, "__name__", "") == "ray":
        yield from _ray(engine, work, tasks)
    elif name == "distributed":
        yield from _dask(engine, work, tasks)
    elif name == "pyspark":
        yield from _spark(engine, work, tasks)
    else:
        raise TypeError(f"{engine!r} is no engine: an executor, the module ray, a dask Client or a SparkSession")


def _futures(
    submit: Callable[..., Any], wait_for: Callable[..., Any], work: Callable[[Any], Any], tasks: Iterable[Any], most: int
) -> Iterator[tuple[Any, Any, Exception | None]]:
    running: dict[Any, Any] = {}
    waiting = iter(tasks)
    while True:
        while len(running) < most and (task := next(waiting, None)) is not None:
            try:
                running[submit(work, task)] = task
            except RuntimeError as broken:
                # The executor has lost its workers.
                yield task, None, broken
        if not running:
            return
        finished, _ = wait_for(list(running), return_when=FIRST_COMPLETED)
        for future in finished:
            task = running.pop(future)
            try:
                result, error = future.result(), None
            except Exception as raised:
                result, error = None, raised
            yield task, result, error


def _ray(ray: Any, work: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[Any, Any, Exception | None]]:
    remote = ray.remote(num_cpus=1)(work)
    running: dict[Any, Any] = {}
    waiting = iter(tasks)
    most = 2 * int(ray.cluster_resources().get("CPU", 1))
    while True:
        while len(running) < most and (task := next(waiting, None)) is not None:
            running[remote.remote(task)] = task
        if not running:
            return
        finished, _ = ray.wait(list(running), num_returns=1)
        for reference in finished:
            task = running.pop(reference)
            try:
                result, error = ray.get(reference), None
            except Exception as raised:
                result, error = None, raised
            yield task, result, error


def _dask(client: Any, work: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[Any, Any, Exception | None]]:
    from distributed import wait as wait_for

    def submit(work: Callable[[Any], Any], task: Any) -> Any:
        return client.submit(work, task, pure=False)

    most = 4 * max(sum(client.nthreads().values()), 1)
    yield from _futures(submit, wait_for, work, tasks, most)


def _spark(spark: Any, work: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[Any, Any, Exception | None]]:
    import pickle

    def each(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        for batch in batches:
            for number, task in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                try:
                    result = pickle.dumps((work(pickle.loads(task)), None))
                except Exception as raised:
                    result = pickle.dumps((None, OSError(str(raised))))
                yield pyarrow.RecordBatch.from_pydict({"number": [number], "result": [result]}, schema)

    import pyarrow

    schema = pyarrow.schema([("number", pyarrow.int64()), ("result", pyarrow.binary())])
    all_tasks = list(tasks)
    rows = [(number, bytearray(pickle.dumps(task))) for number, task in enumerate(all_tasks)]
    if not rows:
        return
    slices = min(len(rows), 4 * spark.sparkContext.defaultParallelism)
    frame = spark.sparkContext.parallelize(rows, slices).toDF("number long, task binary")
    for row in frame.mapInArrow(each, "number long, result binary").toLocalIterator():
        result, error = pickle.loads(bytes(row.result))
        yield all_tasks[row.number], result, error


# The shell.


def _engine(name: str) -> Any:
    if name == "ray":
        import ray

        ray.init(ignore_reinit_error=True, log_to_driver=False)
        return ray
    if name == "dask":
        from distributed import Client

        return Client()
    if name == "spark":
        from pyspark.sql import SparkSession

        return SparkSession.builder.appName("casemate").getOrCreate()
    return None


def main(arguments: list[str] | None = None) -> int:
    """`python -m casemate.fleet digest URL...`, and `verify MANIFEST`."""
    import argparse

    parser = argparse.ArgumentParser(prog="python -m casemate.fleet", description="fs-verity digests of many large files")
    parser.add_argument("command", choices=["digest", "verify"], help="print digests, or compare with a manifest")
    parser.add_argument("files", nargs="+", metavar="URL", help="files as fsspec names them; of verify, manifests")
    parser.add_argument("--engine", choices=["local", "ray", "dask", "spark"], default="local")
    parser.add_argument("--shard", type=int, default=SHARD, metavar="BYTES", help="bytes of a task [default: 1 GiB]")
    parser.add_argument("--resume", metavar="FILE", help="go on where a run with this file was")
    given = parser.parse_args(arguments)
    engine, status = _engine(given.engine), 0
    if given.command == "digest":
        for url, found in digests(given.files, engine, shard=given.shard, resume=given.resume):
            if isinstance(found, Exception):
                print(f"casemate: {found}", file=sys.stderr)
                status = 2
            else:
                print(found, url)
        return status
    lines = [line for name in given.files for line in _lines(name)]
    for url, wrong in verify(read_manifest(lines), engine, shard=given.shard, resume=given.resume):
        if wrong is not None:
            print(f"casemate: {wrong}", file=sys.stderr)
            status = max(status, 1 if isinstance(wrong, MismatchError) else 2)
    return status


def _lines(name: str) -> list[str]:
    with fsspec.open(name, "rt") as file:
        return list(file)


if __name__ == "__main__":
    sys.exit(main())
