"""Digests, trees, manifests and checks of many files, on any engine."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import shutil
import stat
import tempfile
from base64 import b64decode, b64encode
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TextIO

import fsspec

from .. import _casemate
from ..errors import ArgumentError, Error, MismatchError
from ..ext4 import Finding, check
from ..fsverity import Digest
from .engines import results
from .crew import listener
from .kinds import Area, Kind, Parameters
from .entries import Entry, read_manifest
from .plan import SHARD, Part, Piece, Task, names, plan, run, told
from .stores import is_local, local_path, looked_at, opened, state

#: Where a file's tree goes.
Place = Callable[[str], str | os.PathLike[str]]
#: Parts of files that have changed: bytes from the first of a pair to the second.
Changes = Mapping[str, Iterable[tuple[int, int]]]


def merge(parts: Iterable[Part], parameters: Kind = Parameters()) -> dict[str, Digest | Exception]:
    """The digest of each file whose parts are all there; an exception for others, which names what is missing or wrong."""
    of: defaultdict[str, list[Part]] = defaultdict(list)
    for part in parts:
        of[part.url].append(part)
    return {url: _joined(url, found, parameters, None) for url, found in of.items()}


def digests(urls: Iterable[str | os.PathLike[str]], engine: Any = None, **options: Any) -> Iterator[tuple[str, Digest | Exception]]:
    """The digests of files, as they become known; an exception in the place of one that could not be made. Options are those of
    `manifest`."""
    for url, found in manifest(urls, engine, **options):
        yield url, found.digest if isinstance(found, Entry) else found


def trees(
    urls: Iterable[str | os.PathLike[str]], place: Place | None = None, engine: Any = None, **options: Any
) -> Iterator[tuple[str, Digest | Exception]]:
    """Digests of files, with a tree or hash area for each: at `place(url)`, here or in a store, or beside the file, with `.fsverity`
    or `.verity` behind its name. `fsverity.Tree` and `Device.verity` read files by them."""
    parameters: Kind = options.get("parameters", Parameters())
    beside: Place = place or (lambda url: url + parameters.suffix)
    for url, found in manifest(urls, engine, place=beside, **options):
        yield url, found.digest if isinstance(found, Entry) else found


def manifest(
    urls: Iterable[str | os.PathLike[str]],
    engine: Any = None,
    *,
    shard: int = SHARD,
    parameters: Kind = Parameters(),
    threads: int | None = 1,
    storage_options: dict[str, Any] | None = None,
    resources: Mapping[str, Any] | None = None,
    before: Iterable[Entry] = (),
    changed: Changes | None = None,
    assume_unchanged: bool = False,
    place: Place | None = None,
    resume: str | os.PathLike[str] | None = None,
    progress: Callable[[int], object] | None = None,
) -> Iterator[tuple[str, Entry | Exception]]:
    """Entries of files, in the order of completion; an exception in the place of a file that could not be read.

    Each URL comes once. `engine` is an executor, the module `ray` or `ray.data`, a `dask.distributed.Client`, a `SparkSession`, or nothing; `resources`
    is what a task needs in the engine's words. A killed run with a `resume` file goes on where it was. `progress` hears how many
    bytes are done.

    A file whose size and version are those of its entry `before`, or in the `resume` file, is not read again. Where the store tells no
    version it is, unless `assume_unchanged` says that a file of the same size is the same. Of one in `changed`, whose size is the
    same, only the shards that these bytes lie in are.
    """

    def can_be_kept(piece: Piece) -> bool:
        return assume_unchanged or piece.version is not None

    urls, log = names(urls), _Log(resume)
    if resume is not None:
        urls = list(urls)
        _check_log(resume, urls, place)
    trees = None if place is None else _Trees(place, storage_options, parameters, log.is_kept, can_be_kept)
    gathered = _Gathered(parameters, trees)
    finished: deque[tuple[str, Entry | Exception]] = deque()
    entries = {entry.url: entry for entry in [*before, *log.entries] if entry.parameters == parameters}

    def known(whole: Piece) -> list[Piece]:
        if trees is not None:
            trees.check_place(whole.url)
        entry = entries.get(whole.url)
        if entry is not None and (trees is None or trees.is_there(entry)):
            is_same = (entry.size, entry.version) == (whole.size, whole.version)
            # Lines of earlier versions do not have it.
            if can_be_kept(whole) and is_same and entry.file_size in (None, _file_size(whole, parameters)):
                finished.append((whole.url, entry._replace(file_size=_file_size(whole, parameters))))
                return []
            if changed is not None and whole.url in changed and entry.size == whole.size:
                return gathered.keep(whole, entry, changed[whole.url])
        if trees is not None:
            trees.begin(whole)
        return [whole]

    tasks = plan(
        urls, shard=shard, parameters=parameters, with_tree=trees is not None, threads=threads,
        storage_options=storage_options, failed=lambda url, error: finished.append((url, error)), known=known,
        is_wanted=gathered.is_wanted,
    )
    remembered: deque[tuple[Task, list[Part]]] = deque()

    def left() -> Iterator[Task]:
        for task in tasks:
            if not any(gathered.is_wanted(piece.url) for piece in task.pieces):
                continue
            parts = log.parts(task) if all(map(can_be_kept, task.pieces)) else None
            if parts is None or (trees is not None and not all(trees.is_begun(piece.url) for piece in task.pieces)):
                yield task
            else:
                remembered.append((task, parts))

    def ready() -> Iterator[tuple[str, Entry | Exception]]:
        """Results that need no more reading. They come at once, so that putting results in order keeps few of them."""
        while remembered:
            for url, found in gathered.take(*remembered.popleft()):
                log.remember_entry(found)
                yield url, found
        while finished:
            yield finished.popleft()

    with log, trees or contextlib.nullcontext():
        for task, parts, error in results(engine, run, left(), threads, resources):
            if error is not None:
                parts = [Part(piece.url, error=told(error)) for piece in task.pieces]
            elif trees is not None:
                parts = [trees.take(part) for part in parts]
            log.remember(task, parts)
            for url, found in gathered.take(task, parts):
                log.remember_entry(found)
                yield url, found
            yield from ready()
            if progress is not None:
                progress(gathered.done)
        yield from ready()
    if progress is not None:
        progress(gathered.done)


def verify(
    manifest: Iterable[Entry | tuple[str, Digest]], engine: Any = None, **options: Any
) -> Iterator[tuple[str, Exception | None]]:
    """Files beside the digests that they should have: `None` for one that has it, else what is wrong. Options are those of
    `manifest`."""
    # A file may be named by several lines, each of which it must match.
    expected: defaultdict[Kind, defaultdict[str, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    for row in manifest:
        entry = row if isinstance(row, Entry) else Entry(os.fspath(row[0]), row[1], Parameters(row[1].algorithm))
        url = os.fspath(entry.url)
        try:
            # Parameters that make no sense say nothing about the other files.
            hash(entry.parameters), entry.parameters.unit
        except (Error, ValueError) as error:
            yield url, error
        except (TypeError, OverflowError) as error:
            yield url, ArgumentError(f"{url}: {entry.parameters!r} are not parameters: {told(error)}")
        else:
            expected[entry.parameters][url].append(entry)
    for parameters, rows in expected.items():
        for url, found in _entries(rows, engine, parameters=parameters, **options):
            yield url, found if isinstance(found, Exception) else _difference(found, rows[url])


#: `manifest`, where that is the name of an argument.
_entries = manifest


def _difference(found: Entry, expected: list[Entry]) -> MismatchError | None:
    """The error for a file that is not as each of these entries says. A root hash of dm-verity tells nothing of the size of the data."""
    for entry in expected:
        if entry.digest != found.digest:
            return MismatchError(f"{found.url}: the digest is {found.digest}, and {entry.digest} was expected")
        if entry.size is not None and entry.size != found.size:
            return MismatchError(f"{found.url}: the hash protects {found.size} bytes, and {entry.size} were expected")
        if entry.file_size is not None and entry.file_size != found.file_size:
            return MismatchError(f"{found.url}: the file has {found.file_size} bytes, and {entry.file_size} were expected")
    return None


def check_images(
    urls: Iterable[str | os.PathLike[str]], engine: Any = None, *, storage_options: dict[str, Any] | None = None,
    resources: Mapping[str, Any] | None = None,
) -> Iterator[tuple[str, list[Finding] | Exception]]:
    """Findings of ext4 images, each checked on one worker."""
    work = functools.partial(_check, storage_options=storage_options)
    for url, found, error in results(engine, work, names(urls), 1, resources):
        yield url, error if error is not None else found


def _check(url: str, storage_options: dict[str, Any] | None) -> list[Finding]:
    size, version = state(url, storage_options)
    with opened(url, 0, size, storage_options, version, size.__eq__) as device:
        findings = check(device, threads=1, progress=listener())
    if state(url, storage_options) != (size, version):
        raise OSError(f"{url}: it has changed while it was checked")
    return findings


def _joined(url: str, parts: list[Part], parameters: Kind, tree: _casemate.Device | None) -> Digest | Exception:
    wrong = next((part.error for part in parts if part.error is not None), None)
    if wrong is not None:
        return OSError(f"{url}: {wrong}")
    try:
        return parameters.join([part.data for part in parts], tree)
    except (OSError, Error) as error:
        error.add_note(url)
        return error


def _file_size(whole: Piece, parameters: Kind) -> int | None:
    """The size of a file of which not all bytes count; `None` where the bytes that count are the file."""
    return whole.file_size if isinstance(parameters, Area) else None


class _Awaited(NamedTuple):
    """A file of which parts have come."""

    whole: Piece
    parts: list[Part]


class _Gathered:
    """Parts that have come, by their files."""

    def __init__(self, parameters: Kind, trees: _Trees | None) -> None:
        self._parameters, self._trees = parameters, trees
        self._files: dict[str, _Awaited] = {}
        self._bytes: defaultdict[str, int] = defaultdict(int)
        self._failed: set[str] = set()
        self.done = 0

    def keep(self, whole: Piece, entry: Entry, changes: Iterable[tuple[int, int]]) -> list[Piece]:
        """Takes over what was known of a file that has changed in part; the pieces that must be read again."""
        ranges = [(start, end) for start, end in changes if start < end]
        pieces = []
        # Parts that are not those of the digest would make one that no file has.
        with contextlib.suppress(Error, OSError):
            if self._parameters.join(list(entry.parts), None) == entry.digest:
                pieces = [whole._replace(start=start, end=end) for start, end in map(_casemate.part_range, entry.parts)]
        again = [piece for piece in pieces if any(piece.start < end and start < piece.end for start, end in ranges)]
        is_whole = sum(piece.end - piece.start for piece in pieces) == whole.size
        # Nothing is known of a file if the parts are not all of it, or nothing is said to have changed.
        if not is_whole or not again or (self._trees is not None and not self._trees.begin_as(whole, entry)):
            if self._trees is not None:
                self._trees.begin(whole)
            return [whole]
        for piece, data in zip(pieces, entry.parts, strict=True):
            if piece not in again:
                self._add(piece, Part(whole.url, data))
        return again

    def is_wanted(self, url: str) -> bool:
        """Whether parts of a file are still of use: nothing went wrong with one so far."""
        return url not in self._failed

    def take(self, task: Task, parts: list[Part]) -> Iterator[tuple[str, Entry | Exception]]:
        """Files that are complete now, and those of which a part can't be read: the first error is the file's."""
        for piece, part in zip(task.pieces, parts, strict=True):
            if not self.is_wanted(piece.url):
                continue
            self.done += piece.end - piece.start
            awaited = self._add(piece, part)
            if part.error is not None:
                self._failed.add(piece.url)
                yield piece.url, self._finish(awaited)
            elif self._bytes[piece.url] >= piece.size:
                yield piece.url, self._finish(awaited)

    def _add(self, piece: Piece, part: Part) -> _Awaited:
        awaited = self._files.setdefault(piece.url, _Awaited(piece, []))
        awaited.parts.append(part)
        self._bytes[piece.url] += piece.end - piece.start
        return awaited

    def _finish(self, awaited: _Awaited) -> Entry | Exception:
        url, parts = awaited.whole.url, awaited.parts
        del self._files[url], self._bytes[url]
        if self._trees is None or any(part.error for part in parts):
            digest = _joined(url, parts, self._parameters, None)
        else:
            digest = self._trees.finish(url, lambda tree: _joined(url, parts, self._parameters, tree))
        if isinstance(digest, Exception):
            return digest
        # One part is soon made again.
        kept = tuple(part.data for part in parts) if len(parts) > 1 else ()
        whole = awaited.whole
        return Entry(url, digest, self._parameters, whole.size, whole.version, kept, _file_size(whole, self._parameters))


class _Trees:
    """Files of trees: they grow under a name of their own until they are complete."""

    def __init__(
        self, place: Place, storage_options: dict[str, Any] | None, parameters: Kind, is_kept: bool,
        can_be_kept: Callable[[Piece], bool],
    ) -> None:
        self._place, self._options = place, storage_options
        self._parameters, self._is_kept, self._can_be_kept = parameters, is_kept, can_be_kept
        #: Identities of files and trees of this run, with the file of each.
        self._files: dict[Any, str] = {}
        self._places: dict[Any, str] = {}
        self._folder = contextlib.ExitStack()
        self._temporary: str | None = None
        self._partials: dict[str, str] = {}
        #: Files of which a run that was killed has left blocks.
        self._begun: set[str] = set()
        #: Files whose trees have a file for now.
        self._made: set[str] = set()

    def __enter__(self) -> _Trees:
        return self

    def __exit__(self, *_: object) -> None:
        # What a run without a resume file has begun nobody goes on with.
        for partial in [] if self._is_kept else self._partials.values():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partial)
        self._folder.close()

    def check_place(self, url: str) -> None:
        """Refuses a tree that would replace a file of this run, or the tree of another one."""
        place = os.fspath(self._place(url))

        def first(of: dict[Any, str], name: str) -> str | None:
            return next((of[key] for key in _identities(name) if key in of), None)

        if (other := first(self._places, url)) is not None:
            raise ArgumentError(f"{url}: this is where the tree of {other} goes")
        if (other := first(self._places, place)) is not None:
            raise ArgumentError(f"{place}: the tree of {url} would replace the tree of {other}")
        own = dict.fromkeys(_identities(url), url)
        if (other := first(own, place) or first(self._files, place)) is not None:
            raise ArgumentError(f"{place}: the tree of {url} would replace the file {other}")
        self._check_replaced(place)
        self._files.update(dict.fromkeys(_identities(url), url))
        self._places.update(dict.fromkeys(_identities(place), url))

    def is_there(self, entry: Entry) -> bool:
        """Whether the tree at a file's place is the whole one of the contents that an entry is of: it is read once."""
        place = os.fspath(self._place(entry.url))
        try:
            size, version = state(place, self._options)
            with opened(place, 0, size, self._options, version, size.__eq__) as tree:
                return self._parameters.has_tree(tree, entry.url, entry.size or 0, entry.digest)
        # Stores raise whatever they like; the tree is made again.
        except Exception:
            return False

    def _check_replaced(self, place: str) -> None:
        """Refuses a place that holds something else than an earlier tree, which would be lost."""
        with looked_at(place, self._options) as found:
            if found is not None:
                _casemate.check_replaced(found._open(), isinstance(self._parameters, Area))

    def begin(self, whole: Piece, base: Digest | None = None) -> None:
        """Gives a file's tree its name for now: one for each state of the file and of the tree that it is begun from, as what
        another state left does not count."""
        what = (whole.size, whole.version, type(self._parameters).__name__, self._parameters, base)
        name = hashlib.sha256(repr(what).encode()).hexdigest()[:16] + ".part"
        place = os.fspath(self._place(whole.url))
        if is_local(place):
            self._partials[whole.url] = f"{local_path(place)}.{name}"
        else:
            if self._temporary is None:
                self._temporary = self._folder.enter_context(tempfile.TemporaryDirectory(prefix="casemate-"))
            self._partials[whole.url] = os.path.join(self._temporary, f"{len(self._partials)}.{name}")
        partial = self._partials[whole.url]
        if not self._is_kept or not self._can_be_kept(whole) or not _is_own(partial):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partial)
        self._made.discard(whole.url)
        if os.path.lexists(partial):
            self._begun.add(whole.url)
            self._made.add(whole.url)

    def begin_as(self, whole: Piece, entry: Entry) -> bool:
        """Begins with the existing tree, of which only parts will be made again; false if it is of another state than
        the entry."""
        self.begin(whole, entry.digest)
        if self.is_begun(whole.url):
            return True
        partial, place = self._partials[whole.url], os.fspath(self._place(whole.url))
        copy = partial + ".copy"
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(copy)
            if is_local(place):
                with open(local_path(place), "rb") as old, open(copy, "xb") as new:
                    shutil.copyfileobj(old, new, 1 << 20)
            else:
                fs, path = fsspec.core.url_to_fs(place, **(self._options or {}))
                fs.get_file(path, copy)
            if isinstance(self._parameters, Parameters):
                with open(copy, "rb") as file:
                    descriptor = file.read(256)
                if hashlib.new(entry.digest.algorithm, descriptor).digest() != entry.digest.digest:
                    return False
            if self._is_kept:
                _make_durable(copy)
            os.replace(copy, partial)
            self._made.add(whole.url)
            return True
        except Exception:
            # All of it is made again.
            return False
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(copy)

    def is_begun(self, url: str) -> bool:
        """Whether blocks of a tree were there before this run."""
        return url in self._begun

    def take(self, part: Part) -> Part:
        """Writes a part's blocks, durably if a later run may continue; returns the part without them."""
        if part.error is not None:
            return part
        try:
            # Who may write in the folder knows the name, and may have put a link there.
            how = os.O_WRONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
            how |= 0 if part.url in self._made else os.O_CREAT | os.O_EXCL
            file = os.open(self._partials[part.url], how, 0o666)
            self._made.add(part.url)
            try:
                for offset, block in part.blocks:
                    rest = memoryview(block)
                    while rest:
                        count = os.pwrite(file, rest, offset + len(block) - len(rest))
                        rest = rest[count:]
                if self._is_kept:
                    os.fsync(file)
            finally:
                os.close(file)
        except Exception as error:
            return Part(part.url, error=told(error))
        return part._replace(blocks=())

    def finish(self, url: str, join: Callable[[_casemate.Device], Digest | Exception]) -> Digest | Exception:
        """Completes a tree whose blocks have all come, and gives it its name and place."""
        partial, place = self._partials.pop(url), os.fspath(self._place(url))
        try:
            if not stat.S_ISREG(os.lstat(partial).st_mode):
                raise OSError(errno.ELOOP, "another program has replaced the unfinished tree", partial)
            device = _casemate.Device.open(partial, True, True)
            digest = join(device)
            if isinstance(digest, Exception):
                return digest
            device.flush()
            self._check_replaced(place)
            if is_local(place):
                os.replace(partial, local_path(place))
            else:
                fs, path = fsspec.core.url_to_fs(place, **(self._options or {}))
                fs.put_file(partial, path)
            return digest
        except Exception as error:
            return error
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partial)


def _identities(url: str) -> list[Any]:
    """Identity of a file: its name in the store, or here where its name leads, and its inode."""
    if not is_local(url):
        return [url]
    path = local_path(url)
    found: list[Any] = [os.path.realpath(path)]
    with contextlib.suppress(OSError):
        status = os.stat(path)
        found.append((status.st_dev, status.st_ino))
    return found


def _is_own(path: str) -> bool:
    """Whether a run of this user has left a file, and nothing else leads to it."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_uid == os.geteuid()


def _make_durable(path: str) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _check_log(resume: str | os.PathLike[str], urls: Iterable[str | os.PathLike[str]], place: Place | None) -> None:
    """Refuses a resume file that is a file of the run, or the tree of one."""
    own = set(_identities(os.fspath(resume)))
    for given in urls:
        url = os.fspath(given)
        for name in [url] if place is None else [url, os.fspath(place(url))]:
            if not own.isdisjoint(_identities(name)):
                raise ArgumentError(f"{os.fspath(resume)}: the resume file would be written over {name}, a file of this run")


class _Log:
    """A resume file: lines of tasks that were done, and the entries of files that are complete."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._path = path
        self._file: TextIO | None = None
        self._tasks: dict[str, list[Part]] = {}
        self.entries: list[Entry] = []
        if path is not None:
            self._read(path)

    @property
    def is_kept(self) -> bool:
        """Whether there is one."""
        return self._path is not None

    def _read(self, path: str | os.PathLike[str]) -> None:
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as raw:
            # As all lines of resume files are written; what else somebody has here is not added to.
            if raw.read(2) not in (b"", b"\n", b"\n{"):
                raise ValueError(f"{os.fsdecode(path)}: not a resume file: another name is wanted")
        with contextlib.suppress(FileNotFoundError), open(path, encoding="ascii") as file:
            for line in file:
                # A line that was cut off by a kill is none.
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    row = json.loads(line)
                    if "task" in row:
                        self._tasks[row["task"]] = [Part(url, b64decode(data)) for url, data in row["parts"]]
                    else:
                        self.entries.extend(read_manifest([line]))

    def __enter__(self) -> _Log:
        if self._path is not None:
            self._file = open(self._path, "a", encoding="ascii")
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def parts(self, task: Task) -> list[Part] | None:
        """Result of a task, if it was done."""
        return self._tasks.pop(task.key, None) if self._tasks else None

    def remember(self, task: Task, parts: list[Part]) -> None:
        """Notes that a task is done."""
        if not any(part.error for part in parts):
            rows = [(part.url, b64encode(part.data).decode()) for part in parts]
            self._write(json.dumps({"task": task.key, "parts": rows}))

    def remember_entry(self, found: Entry | Exception) -> None:
        """Notes that a file is complete."""
        if isinstance(found, Entry):
            self._write(found.to_line().rstrip("\n"))

    def _write(self, line: str) -> None:
        if self._file is not None:
            # A line that was cut off stays apart from this one.
            self._file.write("\n" + line + "\n")
            self._file.flush()
