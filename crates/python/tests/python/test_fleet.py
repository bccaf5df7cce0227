"""Digests of many large files, on engines that are here."""

import multiprocessing
import os
import pickle
import subprocess
import sys
import unittest
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import casemate
import fsspec
from casemate import fleet, fsverity
from world import World, run, tool

#: Parts of 4 MiB.
SMALL = fleet.Parameters("sha512", 16384, b"salt")


def half(task):
    """A worker that dies in the middle of one task."""
    if any(piece.start for piece in task.pieces):
        os._exit(1)
    return fleet.run(task)


class Fleet(World):
    def files(self):
        """Files of sizes around blocks, and of several parts."""
        unit, found = SMALL.unit, {}
        self.assertEqual((unit, fleet.Parameters().unit), (4 << 20, 64 << 20))
        pool = os.urandom(3 * unit + 12_345)
        for size in [0, 1, 16383, 16384, 16385, unit - 1, unit, unit + 1, len(pool)]:
            path = self.folder / f"file-{size}"
            path.write_bytes(pool[:size])
            found[str(path)] = self.digest(path)
        return found

    @staticmethod
    def digest(path):
        return fsverity.digest(path, algorithm=SMALL.algorithm, block_size=SMALL.block_size, salt=SMALL.salt)

    def test_digests_are_those_of_the_files(self):
        files = self.files()
        options = {"shard": SMALL.unit, "parameters": SMALL}
        self.assertEqual(dict(fleet.digests(files, **options)), files)
        done = []
        with ThreadPoolExecutor(3) as pool:
            self.assertEqual(dict(fleet.digests(files, pool, progress=done.append, **options)), files)
        self.assertEqual((done[-1], done), (sum(os.path.getsize(path) for path in files), sorted(done)))
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
            self.assertEqual(dict(fleet.digests(files, pool, **options)), files)
        first = next(iter(files))
        text = run(tool("fsverity"), "digest", first, "--hash-alg=sha512", "--block-size=16384", f"--salt={SMALL.salt.hex()}")
        self.assertIn(str(files[first]), text)

    def test_dask_does_it(self):
        try:
            from distributed import Client
        except ImportError:
            self.skipTest("no distributed: the package python3-distributed")
        files = self.files()
        warnings.simplefilter("ignore", DeprecationWarning)
        self.addCleanup(warnings.resetwarnings)
        with Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as client:
            self.assertEqual(dict(fleet.digests(files, client, shard=SMALL.unit, parameters=SMALL)), files)

    def test_stores_are_read_in_ranges(self):
        store, data = fsspec.filesystem("memory"), os.urandom(3 * SMALL.unit + 5)
        store.pipe("/bucket/model.bin", data)
        url = "memory://bucket/model.bin"
        found = dict(fleet.digests([url], shard=SMALL.unit, parameters=SMALL))
        (self.folder / "same").write_bytes(data)
        self.assertEqual(found[url], self.digest(self.folder / "same"))
        # As stores that number versions name their arguments.
        self.addCleanup(setattr, type(store), "cat_file", type(store).cat_file)
        cat_file = type(store).cat_file
        type(store).cat_file = lambda self, path, version_id=None, start=None, end=None: cat_file(self, path, start, end)
        self.assertEqual(dict(fleet.digests([url], shard=SMALL.unit, parameters=SMALL)), found)
        # One that grows, is cut short or changes meanwhile.
        tasks = list(fleet.plan([url], shard=SMALL.unit, parameters=SMALL))
        self.assertEqual(len(tasks), 4)
        for other in [data + b"x", data[:-1]]:
            store.pipe("/bucket/model.bin", other)
            parts = [part for task in tasks for part in fleet.run(task)]
            self.assertTrue(all(part.error for part in parts[-1:]), parts)
            self.assertIsInstance(fleet.merge(parts)[url], OSError)

    def test_parts_that_do_not_belong_together_are_refused(self):
        files = self.files()
        path = list(files)[-1]
        parts = [part for task in fleet.plan([path], shard=SMALL.unit, parameters=SMALL) for part in fleet.run(task)]
        self.assertEqual(len(parts), 4)
        self.assertEqual(fleet.merge(parts + parts[:1]), {path: files[path]}, "a part that comes twice")
        self.assertEqual(pickle.loads(pickle.dumps(parts)), parts)
        lost = fleet.merge(parts[:2] + parts[3:])[path]
        self.assertIn(f"no part of bytes {2 * SMALL.unit} to {3 * SMALL.unit}", str(lost))
        damaged = parts[1]._replace(data=parts[1].data[:300] + b"?" + parts[1].data[301:])
        self.assertIsInstance(fleet.merge([parts[0], damaged, *parts[2:]])[path], casemate.CorruptError)
        other = list(files)[-2]
        strange = [part for task in fleet.plan([other], shard=SMALL.unit, parameters=SMALL) for part in fleet.run(task)]
        mixed = fleet.merge([*parts[:1], strange[1]._replace(url=path), *parts[2:]])[path]
        self.assertIsInstance(mixed, casemate.ArgumentError)

    def test_what_was_killed_goes_on(self):
        files, resume = self.files(), self.folder / "resume"
        options = {"shard": SMALL.unit, "parameters": SMALL, "resume": resume}
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
            running = fleet.digests(files, pool, **options)
            next(running)
            running.close()
        with open(resume, "a") as log:
            log.write('{"task": "cut o')
        lines = resume.read_text().count('"parts"')
        self.assertGreater(lines, 0)
        asked = []
        run_one = fleet.run
        self.addCleanup(setattr, fleet, "run", run_one)
        fleet.run = lambda task: asked.append(task) or run_one(task)
        self.assertEqual(dict(fleet.digests(files, **options)), files)
        self.assertEqual(len(asked) + lines, len(list(fleet.plan(files, shard=SMALL.unit, parameters=SMALL))))
        asked.clear()
        self.assertEqual(dict(fleet.digests(files, **options)), files)
        self.assertEqual(asked, [])

    def test_workers_that_die_are_told(self):
        files = self.files()
        run_one = fleet.run
        self.addCleanup(setattr, fleet, "run", run_one)
        fleet.run = half
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
            found = dict(fleet.digests(list(files)[-1:], pool, shard=SMALL.unit, parameters=SMALL))
        self.assertEqual([type(error) for error in found.values()], [OSError])

    def test_trees_prove_parts_of_files(self):
        files = self.files()
        found = dict(fleet.trees(files, shard=SMALL.unit, parameters=SMALL))
        self.assertEqual(found, files)
        for path, digest in files.items():
            whole = self.folder / "whole.tree"
            fsverity.Tree.build(path, whole, algorithm=SMALL.algorithm, block_size=SMALL.block_size, salt=SMALL.salt)
            self.assertEqual(whole.read_bytes(), open(path + ".fsverity", "rb").read(), path)
            whole.unlink()
            checked = fsverity.Tree.open(path + ".fsverity", digest).over(path)
            self.assertEqual(checked.pread(100, 70_000), open(path, "rb").read()[70_000:70_100])

    def test_manifests_and_images_are_checked(self):
        image = self.image()
        lines = [f"{fsverity.digest(image)} {image}\n", f"{fsverity.digest(self.tree / 'large')} {self.tree / 'large'}"]
        (self.folder / "manifest").write_text("".join(lines))
        self.assertEqual([wrong for _, wrong in fleet.verify(fleet.read_manifest(lines))], [None, None])
        self.assertEqual(dict(fleet.check_images([str(image)])), {str(image): []})
        words = [sys.executable, "-m", "casemate.fleet", "verify", str(self.folder / "manifest")]
        self.assertEqual(subprocess.run(words).returncode, 0)
        digest = run(sys.executable, "-m", "casemate.fleet", "digest", image)
        self.assertEqual(digest, lines[0])
        with open(self.tree / "large", "r+b") as file:
            file.write(b"other")
        failed = subprocess.run(words, capture_output=True, text=True)
        self.assertEqual(failed.returncode, 1)
        self.assertIn("was expected", failed.stderr)
        self.assertEqual(subprocess.run([*words[:3], "digest", "none"], capture_output=True).returncode, 2)


if __name__ == "__main__":
    unittest.main()
