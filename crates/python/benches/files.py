"""All files of an image, walked through and read: casemate beside dissect.extfs and pyfsext (libfsext-python).

    python files.py FOLDER [FILES [ROUNDS]]

The image is made in FOLDER by `mke2fs -d`, of FILES files (60,000) of 0 to 20 KB. What every contestant finds (paths, and each
file's bytes) is compared before anything is timed. Then contestants take turns; times are medians of the rounds (5), and
ratios those of each round's times. `pip install libfsext-python dissect.extfs` brings the
peers; a contestant that is not installed is left out.
"""

from __future__ import annotations

import hashlib
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import casemate

#: Files of a folder, and folders of the folder above.
PER_FOLDER = 100
#: Bytes of the largest file. Most are smaller than the mean, as files of a system are.
LARGEST = 20_000

Contents = Iterator[tuple[object, bytes]]


def make(folder: Path, files: int) -> tuple[Path, int]:
    """The image, and how many bytes its files have."""
    rng, tree, total = random.Random(1), folder / "tree", 0
    for number in range(files):
        place = tree / f"{number // PER_FOLDER // 30:03}" / f"{number // PER_FOLDER % 30:03}"
        if number % PER_FOLDER == 0:
            place.mkdir(parents=True)
        size = int(LARGEST * rng.random() ** 3)
        (place / f"file-{number:06}.txt").write_bytes(rng.randbytes(size))
        total += size
    image = folder / "image"
    # mke2fs makes an inode for each 16 KiB.
    room = f"{(files * 18 >> 10) + 64}M"
    words = ["mke2fs", "-q", "-F", "-t", "ext4", "-d", tree, image, room]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return image, total


def by_path(image: Path) -> Contents:
    for top, _, names in casemate.open(image).ext4().root.walk():
        for name in names:
            yield top / name, (top / name).read_bytes()


def by_entry(image: Path) -> Contents:
    waiting = [casemate.open(image).ext4().root]
    while waiting:
        for path in waiting.pop().iterdir():
            if path.is_dir():
                waiting.append(path)
            else:
                yield path, path.read_bytes()


def by_read_many(image: Path) -> Contents:
    fs = casemate.open(image).ext4()
    waiting = [fs.root]
    while waiting:
        entries = list(waiting.pop().iterdir())
        waiting.extend(path for path in entries if path.is_dir())
        yield from fs.read_many(path for path in entries if path.is_file())


def by_tree(image: Path) -> Contents:
    return casemate.open(image).ext4().root.read_tree()


def by_tree_alone(image: Path) -> Contents:
    return casemate.open(image).ext4().root.read_tree(threads=1)


def pyfsext(image: Path) -> Contents:
    import pyfsext

    volume = pyfsext.volume()
    volume.open(str(image))
    waiting = [("", volume.get_root_directory())]
    while waiting:
        top, folder = waiting.pop()
        for entry in folder.sub_file_entries:
            path = f"{top}/{entry.name}"
            mode = entry.file_mode & 0o170000
            if mode == 0o040000:
                waiting.append((path, entry))
            elif mode == 0o100000:
                yield path, entry.read_buffer(entry.size)


def dissect(image: Path) -> Contents:
    from dissect.extfs import ExtFS

    with open(image, "rb") as file:
        waiting = [("", ExtFS(file).root)]
        while waiting:
            top, folder = waiting.pop()
            for name, entry in folder.listdir().items():
                path = f"{top}/{name}"
                if name in (".", ".."):
                    continue
                if entry.filetype == 0o040000:
                    waiting.append((path, entry))
                elif entry.filetype == 0o100000:
                    yield path, entry.open().read()


def found(contestant: Callable[[Path], Contents], image: Path) -> tuple[int, str]:
    """How many files a contestant finds, and a hash of their paths and bytes."""
    digests = {str(path): hashlib.blake2b(data).digest() for path, data in contestant(image)}
    whole = hashlib.blake2b(digest_size=16)
    for path, digest in sorted(digests.items()):
        whole.update(path.encode("utf-8", "surrogateescape") + b"\0" + digest)
    return len(digests), whole.hexdigest()


def seconds(contestant: Callable[[Path], Contents], image: Path, total: int) -> float:
    """How long a contestant takes for all files, from opening the image on."""
    begin = time.perf_counter()
    count = sum(len(data) for _, data in contestant(image))
    took = time.perf_counter() - begin
    assert count == total, (count, total)
    return took


def main(place: str, files: int = 60_000, rounds: int = 5) -> None:
    race = [by_tree, by_tree_alone, by_entry, by_read_many, by_path, pyfsext, dissect]
    with tempfile.TemporaryDirectory(dir=place) as folder:
        image, total = make(Path(folder), files)
        results = {}
        for contestant in list(race):
            try:
                results[contestant] = found(contestant, image)
            except ImportError as error:
                print(f"{contestant.__name__}: {error}")
                race.remove(contestant)
        assert len(set(results.values())) == 1 and results[by_tree][0] == files, results
        print(f"{files} files, {total} bytes, {os.cpu_count()} processors, Python {sys.version.split()[0]}")
        times: dict[Callable[[Path], Contents], list[float]] = {contestant: [] for contestant in race}
        for contestant in race * rounds:
            times[contestant].append(seconds(contestant, image, total))
        for contestant in race:
            ratio = statistics.median(b / a for a, b in zip(times[by_tree], times[contestant], strict=True))
            print(f"{contestant.__name__:14} {statistics.median(times[contestant]):7.3f} s {ratio:6.2f} times {by_tree.__name__}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
