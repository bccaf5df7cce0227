"""Hashes of the module beside the same without an interpreter.

    python hashes.py FOLDER CASEMATE [CRC32C]

FOLDER gets a file of 2 GiB. CASEMATE is the command, for `casemate fsverity digest`; CRC32C the program that
`cargo build --release --bin crc32c` makes in `benches`, which times the Rust call. Results are compared first, contestants take
turns, times are medians of seven rounds and ratios medians of the rounds' ratios.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable

import casemate
from casemate import fsverity

ROUNDS = 7
SIZE = 2 << 30
#: Bytes of a call of `crc32c`, and calls that are timed together.
PIECE, CALLS = 65536, 2000


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def race(title: str, unit: float, contestants: dict[str, Callable[[], float]]) -> None:
    """Contestants tell their times, in turn; ratios are to the first one."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(ROUNDS):
        for name, contestant in contestants.items():
            times[name].append(contestant())
    first = next(iter(times.values()))
    for name, own in times.items():
        ratio = statistics.median(b / a for a, b in zip(first, own, strict=True))
        print(f"{title}: {name:24} {statistics.median(own) / unit:8.2f} {ratio:6.2f} times the first")


def digests(folder: str, command: str) -> None:
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        block = random.Random(1).randbytes(1 << 24)
        for _ in range(SIZE >> 24):
            file.write(block)
        file.flush()
        for threads in (1, 2):
            words = [command, "fsverity", "digest", "--threads", str(threads), file.name]
            own = lambda: str(fsverity.digest(file.name, threads=threads))
            theirs = lambda: subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()[0]
            assert own() == theirs(), (own(), theirs())
            contestants = {"the module": lambda: seconds(own), "the command": lambda: seconds(theirs)}
            race(f"digest of {SIZE} bytes, {threads} threads, ms", 1e-3, contestants)


def calls(program: str) -> None:
    """A call of `crc32c`, from one thread and from two, and the Rust call."""
    data, crc32c = random.Random(2).randbytes(PIECE), casemate.crc32c

    def many() -> None:
        for _ in range(CALLS):
            crc32c(data)

    def threads() -> None:
        workers = [threading.Thread(target=many) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def rust() -> float:
        found = subprocess.run([program, "time", str(PIECE)], check=True, capture_output=True, text=True).stdout
        return float(found) * 1e-9

    race(f"crc32c of {PIECE} bytes, us", 1e-6, {
        "the Rust call": rust,
        "the module": lambda: seconds(many) / CALLS,
        "the module, two threads": lambda: seconds(threads) / CALLS / 2,
    })


if __name__ == "__main__":
    print(f"{os.cpu_count()} processors, Python {sys.version.split()[0]}")
    digests(*sys.argv[1:3])
    for program in sys.argv[3:]:
        calls(program)
