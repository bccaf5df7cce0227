"""Overhead of engines beside the work: digests of parts of 1 GiB on each of them, and of the same parts in one process.

`python benches/fleet.py FOLDER [ENGINE...]`: the folder lies in memory, best, and gets a file of 4 GiB, with three names. Each engine in turn with the
same tasks done by as many processes as there are cores, which nobody schedules: medians of five rounds, ratios round by round.
"""

import os
import pathlib
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

from casemate import fleet
from casemate.fleet.__main__ import _engine

GIB, NAMES, ROUNDS = 4, 3, 5


def bare(tasks):
    """The tasks of one process, one after the other."""
    return [part for task in tasks for part in fleet.run(task)]


def seconds(work):
    begin = time.perf_counter()
    found = work()
    return time.perf_counter() - begin, found


def main(folder, engines):
    path, cores = pathlib.Path(folder) / "fleet.bin", len(os.sched_getaffinity(0))
    with open(path, "wb") as file:
        block = os.urandom(1 << 26)
        for _ in range(GIB << 30 >> 26):
            file.write(block)
    # The same bytes under several names.
    urls = [f"{path}.{number}" for number in range(NAMES)]
    for url in urls:
        os.link(path, url)
    try:
        tasks = list(fleet.plan(urls))
        with ProcessPoolExecutor(cores) as pool:
            lanes = [tasks[first::cores] for first in range(cores)]

            def floor():
                return [part for found in pool.map(bare, lanes) for part in found]

            expected = fleet.merge(floor())
            race("one process and thread", lambda: bare(tasks), floor)
            with ThreadPoolExecutor(cores) as threads, ProcessPoolExecutor(cores) as processes:
                for name, engine in [("no engine named", None), ("threads", threads), ("processes", processes)]:
                    race(name, lambda engine=engine: dict(fleet.digests(urls, engine)), floor, expected)
            for name in engines:
                with _engine(name, None, print) as engine:
                    race(name, lambda engine=engine: dict(fleet.digests(urls, engine)), floor, expected)
    finally:
        for url in [path, *urls]:
            os.unlink(url)


def race(name, work, floor, expected=None):
    # The first one starts workers.
    _, found = seconds(work)
    assert expected in (None, found), name
    pairs = [(seconds(work)[0], seconds(floor)[0]) for _ in range(ROUNDS)]
    ratio = statistics.median(ours / theirs for ours, theirs in pairs)
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"{name}: {ours:.3f} s beside {theirs:.3f}, {ratio:.3f} of it, {1e3 * (ours - theirs) / GIB / NAMES:+.0f} ms a shard", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
