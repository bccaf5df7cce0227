"""`casemate fleet`: digests, trees and checks of many large files, from the shell."""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import fsspec

from ..errors import Error, MismatchError
from . import SHARD, Area, Checksum, Entry, Kind, Parameters, check_images, manifest, read_manifest, verify
from .plan import names, told
from .stores import is_local
from .web import is_web, web_size

_Found = TypeVar("_Found")

_SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _size(text: str) -> int:
    unit = _SIZES.get(text[-1:].upper())
    return int(text[:-1]) * unit if unit else int(text)


def _salt(text: str) -> bytes:
    return b"" if text == "-" else bytes.fromhex(text)


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(text)
    return name, value


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    group = common.add_argument_group("where the work is done")
    group.add_argument(
        "--engine", choices=["local", "ray", "ray-data", "dask", "spark"], default="local",
        help="this machine's cores, or an engine [default: local]",
    )
    group.add_argument("--address", metavar="ADDRESS", help="the engine's scheduler; without one it is started here")
    group.add_argument("--shard", type=_size, default=SHARD, metavar="BYTES", help="bytes of a task [default: 1G]")
    group.add_argument("--threads", type=int, default=1, metavar="N", help="threads of a task [default: 1]")
    group.add_argument(
        "--storage-option", action="append", default=[], type=_option, metavar="NAME=VALUE",
        help="an option that fsspec needs to open the files; may be repeated",
    )
    group.add_argument(
        "--resume", metavar="FILE", help="keep progress in this file, and continue from it; it is created if there is none",
    )
    group.add_argument(
        "--assume-unchanged", action="store_true",
        help="with --resume and --update: take files of the same size for the same, if the store has no versions",
    )

    parser = argparse.ArgumentParser(
        prog="casemate fleet",
        description="fs-verity and dm-verity of more data than one machine holds, on Ray, Dask, Spark or here.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(
        name: str, text: str, more: str = "", what: str = "URL", named: str = "files as fsspec names them: paths, s3://...",
    ) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=f"{text}. {more}".strip(), parents=[common])
        made.add_argument("files", nargs="*" if what == "URL" else "+", metavar=what, help=named)
        if what == "URL":
            made.add_argument(
                "--files-from", action="append", default=[], metavar="FILE",
                help="read more names from this file, one a line; - is standard input; may be repeated",
            )
        return made

    ordered = "Lines have the order of the arguments."
    for name, text, more in [
        ("digest", "Print files' fs-verity digests as `fsverity digest` does", ordered),
        ("tree", "Make an fs-verity tree beside each file: FILE.fsverity", ordered),
        (
            "manifest", "Print a manifest of all that is known of files, for `verify` and --update",
            f"{ordered} To compare two machines, run `verify` with the manifest of one on the other: manifests differ in "
            "`version`, which is a local file's time of change. `digest` prints the same lines for the same files.",
        ),
    ]:
        made = command(name, text, more)
        made.add_argument("--hash-alg", choices=["sha256", "sha512"], default="sha256")
        made.add_argument("--block-size", type=int, default=4096, metavar="BYTES")
        made.add_argument("--salt", type=_salt, default=b"", metavar="HEX")
        if name == "manifest":
            made.add_argument("--update", metavar="MANIFEST", help="do not read files again that are as in this manifest")
    made = command("sum", "Print files' checksums as `sha256sum` does")
    made.add_argument("--hash", default="sha256", metavar="NAME")
    made = command("format", "Make a dm-verity hash area beside each file, FILE.verity, and print its root hash")
    made.add_argument("--hash", default="sha256", metavar="NAME")
    made.add_argument("--data-block-size", type=int, default=4096, metavar="BYTES")
    made.add_argument("--hash-block-size", type=int, default=4096, metavar="BYTES")
    made.add_argument("--salt", type=_salt, metavar="HEX", help="- for none [default: derived from the file's name]")
    made.add_argument("--uuid", help="[default: derived from the file's name]")
    command(
        "verify", "Compare files with manifests, or with lines of `fsverity digest` or `sha256sum`",
        "The exit status is 1 if a file does not match or is missing, and else 2 if one could not be read. Files that no manifest "
        "names are not looked for.", "MANIFEST",
        "manifests of `fleet manifest`, or lines of `fsverity digest` or `sha256sum`",
    )
    command("check", "Check ext4 images")
    return parser


def _ray_job() -> Any:
    """Job of Ray whose workers take no modules from this folder, which may hold anything: Ray would have them look here first."""
    from ray.job_config import JobConfig

    class Job(JobConfig):
        def _runtime_env_has_working_dir(self) -> bool:
            return True

    return Job()


@contextlib.contextmanager
def _engine(name: str, address: str | None, shown: Callable[[str], object]) -> Iterator[Any]:
    try:
        if name in ("ray", "ray-data"):
            import ray

            config = None if (address or "").startswith("ray://") else _ray_job()
            ray.init(address=address, ignore_reinit_error=True, log_to_driver=False, job_config=config)
            if name == "ray":
                yield ray
            else:
                import ray.data

                ray.data.DataContext.get_current().enable_progress_bars = False
                yield ray.data
        elif name == "dask":
            from distributed import Client

            with Client(address) as client:
                yield client
        elif name == "spark":
            from pyspark.sql import SparkSession

            # Workers on this machine are whatever python3 is, otherwise.
            os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
            if address is None:
                os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            builder = SparkSession.builder.appName("casemate")
            yield (builder.master(address) if address else builder).getOrCreate()
        else:
            yield None
    except ModuleNotFoundError as error:
        shown(f"casemate: {error.name}: not installed: pip install {error.name}")
        raise SystemExit(2) from None


def _in_order(urls: list[str], results: Iterable[tuple[str, _Found]]) -> Iterator[tuple[str, _Found]]:
    """Results in the order of the files' names: two runs can be compared. Those that come too early wait; engines have a bounded
    number of tasks on their way."""
    early: dict[str, _Found] = {}
    awaited = names(urls)
    url = next(awaited, None)
    try:
        for name, found in results:
            early[name] = found
            while url is not None and url in early:
                yield url, early.pop(url)
                url = next(awaited, None)
    except (Exception, KeyboardInterrupt):
        # What is known is told, whatever keeps the rest from being known.
        yield from early.items()
        raise


def _kind(given: argparse.Namespace) -> Kind:
    if given.command == "sum":
        return Checksum(given.hash)
    if given.command == "format":
        return Area(given.hash, given.data_block_size, given.hash_block_size, given.salt, given.uuid)
    return Parameters(given.hash_alg, given.block_size, given.salt)


def _tell(text: str, end: str = "\n") -> None:
    """Prints to standard error. One that is full changes no exit status."""
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except OSError:
        # Nor does what is left of the text, at the end of the interpreter.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


class _Shown:
    """How far the work is, on a terminal."""

    def __init__(self) -> None:
        self._last, self._line = 0.0, sys.stderr.isatty()

    def __call__(self, done: int) -> None:
        if self._line and time.monotonic() - self._last > 0.2:
            self._last = time.monotonic()
            _tell(f"\r{done / 1e9:.1f} GB\x1b[K", end="")

    def say(self, text: str) -> None:
        _tell(("\r\x1b[K" if self._line else "") + text)


class _Notes(logging.Handler):
    """Notes of the package, as the command's own."""

    def __init__(self, shown: _Shown) -> None:
        super().__init__()
        self._shown = shown

    def emit(self, record: logging.LogRecord) -> None:
        self._shown.say(f"casemate: {_visible(record.getMessage())}")


def main(arguments: list[str] | None = None) -> int:
    """Exits with 0 if all is well, 1 if something does not match, 2 if something could not be done."""
    parser = _parser()
    given, shown, status = parser.parse_args(arguments), _Shown(), 0
    # An option that does nothing is a mistake.
    if given.assume_unchanged and given.resume is None and getattr(given, "update", None) is None:
        parser.error("--assume-unchanged goes with --resume or --update")
    if given.command == "check" and given.resume is not None:
        parser.error("--resume: a check begins anew")
    for name in getattr(given, "files_from", []):
        given.files.extend(_names(name))
    if not given.files:
        parser.error("no file is named")
    notes = logging.getLogger("casemate")
    notes.addHandler(_Notes(shown))
    notes.propagate = False
    options: dict[str, Any] = {"storage_options": dict(given.storage_option) or None}
    with _engine(given.engine, given.address, shown.say) as engine:
        if given.command == "check":
            for url, findings in _in_order(given.files, check_images(given.files, engine, **options)):
                if isinstance(findings, Exception):
                    shown.say(f"casemate: {_text(findings, url)}")
                    status = 2
                for finding in [] if isinstance(findings, Exception) else findings:
                    print(f"{url}: {finding.place}: {finding.text}")
                    status = max(status, finding.level == "fault")
            return status
        options |= {"shard": given.shard, "threads": given.threads, "resume": given.resume, "progress": shown}
        options["assume_unchanged"] = given.assume_unchanged
        if given.command == "verify":
            rows, answers = [], set()
            for name in given.files:
                entries, texts = _lines(name)
                for text in texts:
                    shown.say(f"casemate: {text}")
                    answers.add(2)
                rows.extend(entries)
                if not entries and not texts:
                    shown.say(f"casemate: {name}: no file was verified")
                    answers.add(1)
            try:
                for url, wrong in verify(rows, engine, **options):
                    if wrong is not None:
                        shown.say(f"casemate: {_text(wrong, url)}")
                        answers.add(1 if isinstance(wrong, (MismatchError, FileNotFoundError)) else 2)
            except Exception as error:
                shown.say(f"casemate: {_text(error)}")
                answers.add(2)
            # What is known to be wrong counts, whatever else could not be looked at.
            status = min(answers, default=0)
            if status == 0 and sys.stderr.isatty():
                shown.say(f"casemate: {len({row.url for row in rows})} files: verified")
            return status
        options["parameters"] = kind = _kind(given)
        if given.command in ("tree", "format"):
            options["place"] = lambda url: url + kind.suffix
        if given.command == "manifest" and given.update is not None:
            options["before"] = _manifest(given.update)
        for url, found in _in_order(given.files, manifest(given.files, engine, **options)):
            if isinstance(found, Entry):
                print(found.to_line("json" if given.command == "manifest" else "text"), end="")
            else:
                shown.say(f"casemate: {_text(found, url)}")
                status = 2
    return status


def _text(error: Exception, url: str | None = None) -> str:
    """Text of an error in one line, with the file's name."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{os.fsdecode(error.filename)}: {error.strerror}"
    else:
        is_own = type(error) is OSError or isinstance(error, (Error, ValueError))
        text = " ".join(str(error).split()) if is_own and str(error) else told(error)
        text = text if url is None or url in text else f"{url}: {text}"
    return _visible(text)


def _visible(text: str) -> str:
    # Servers write some of it, for whatever a terminal does with it.
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _names(name: str) -> list[str]:
    """Names in a file, one a line, whatever bytes they have."""
    with open(0 if name == "-" else name, "rb", closefd=name != "-") as file:
        return [os.fsdecode(line) for line in file.read().split(b"\n") if line]


def _opened(name: str) -> Any:
    """A manifest, to be read."""
    if not is_local(name):
        fs, path = fsspec.core.url_to_fs(name)
        if is_web(fs):
            # What a server gives no contents of is not an empty one.
            web_size(fs, path)
    return fsspec.open(name, "rt", encoding="utf-8", errors="surrogateescape", newline="\n")


def _manifest(name: str) -> list[Entry]:
    try:
        with _opened(name) as file:
            return list(read_manifest(file))
    except Exception as error:
        raise OSError(_text(error, name)) from error


#: Lines at most of a file that are said to be none of a manifest, as of one that is none.
_WRONG = 10


def _lines(name: str) -> tuple[list[Entry], list[str]]:
    """The entries of a manifest, whatever is wrong with other lines of it; and texts of that."""
    entries: list[Entry] = []
    texts: list[str] = []
    more = 0
    try:
        with _opened(name) as file:
            for line in file:
                try:
                    entries.extend(read_manifest([line]))
                except ValueError as error:
                    if len(texts) < _WRONG:
                        texts.append(_visible(f"{name}: {error}"))
                    else:
                        more += 1
    except Exception as error:
        texts.append(_text(error, name))
    return entries, texts + [f"{_visible(name)}: {more} more lines are not lines of a manifest"] * (more > 0)


def _run() -> int:
    """The command's exit status. Whatever keeps it from its work is told in one line."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")
    try:
        if sys.stdout is None:
            raise OSError("standard output is closed")
        # Names are bytes.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="surrogateescape")
        status = main()
        # What can't be written was not told.
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Nothing of what is left is written at the end of the interpreter.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _tell("casemate: standard output: Broken pipe")
    except Exception as error:
        _tell(f"casemate: {_text(error)}")
    return 2


if __name__ == "__main__":
    status = _run()
    if status == 130:
        # Nothing waits for stores that do not answer, nor for engines.
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(status)
    sys.exit(status)
