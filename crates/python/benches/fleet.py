"""What engines cost beside the work: digests of parts of 1 GiB on each of them, and of the same parts in one process.

`python benches/fleet.py FOLDER [ENGINE...]`: the folder lies in memory, best, and gets files of 4 GiB in all. Prints a median of
five runs for each engine, and its ratio to the same tasks done one after the other by as many processes as there are cores.
"""

import os
import pathlib
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

from casemate import fleet
from casemate.fleet.__main__ import _engine

SHARDS, ROUNDS = 4, 5


def bare(tasks):
    """The tasks of one process, one after the other."""
    return [fleet.run(task) for task in tasks]


def rounds(work):
    times = []
    for _ in range(ROUNDS + 1):
        begin = time.perf_counter()
        found = work()
        times.append(time.perf_counter() - begin)
    # The first one starts workers.
    return statistics.median(times[1:]), found


def main(folder, engines):
    path, cores = pathlib.Path(folder) / "fleet.bin", len(os.sched_getaffinity(0))
    with open(path, "wb") as file:
        block = os.urandom(1 << 26)
        for _ in range(SHARDS << 30 >> 26):
            file.write(block)
    url = str(path)
    try:
        tasks = list(fleet.plan([url]))
        with ProcessPoolExecutor(cores) as pool:
            lanes = [tasks[first::cores] for first in range(cores)]
            floor, parts = rounds(lambda: [part for found in pool.map(bare, lanes) for part in found])
        print(f"{cores} processes, no engine: {floor:.3f} s, {SHARDS / floor:.2f} GiB/s")
        alone, _ = rounds(lambda: bare([parted for task in tasks for parted in [task]]))
        print(f"one process, one thread: {alone:.3f} s, {SHARDS / alone:.2f} GiB/s, {alone / floor:.2f} of it")
        expected = fleet.merge([part for parts in parts for part in parts])
        with ThreadPoolExecutor(cores) as threads, ProcessPoolExecutor(cores) as processes:
            for name, engine in [("no engine named", None), ("threads", threads), ("processes", processes)]:
                show(name, engine, url, floor, expected)
        for name in engines:
            with _engine(name, None, print) as engine:
                show(name, engine, url, floor, expected)
    finally:
        path.unlink()


def show(name, engine, url, floor, expected):
    seconds, found = rounds(lambda: dict(fleet.digests([url], engine)))
    assert found == expected, name
    overhead = (seconds - floor) / SHARDS
    print(f"{name}: {seconds:.3f} s, {seconds / floor:.3f} of the floor, {1e3 * overhead:+.0f} ms a shard")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
