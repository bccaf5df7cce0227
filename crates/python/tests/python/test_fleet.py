"""Digests of many large files, on engines that are here."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import unittest
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import casemate
import fsspec
from casemate import fleet, fsverity
from casemate.fleet import jobs
from casemate.fs import VerityFileSystem
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
        # A worker that is killed in the middle: what it had goes to another.
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
            running = fleet.digests(files, client, shard=SMALL.unit, parameters=SMALL)
            found = dict([next(running)])
            os.kill(min(client.run(os.getpid).values()), signal.SIGKILL)
            self.assertEqual({**found, **dict(running)}, files)
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
        lines = resume.read_text().count('"task"') - 1
        self.assertGreater(lines, 0)
        asked = []
        run_one = fleet.run
        self.addCleanup(setattr, jobs, "run", run_one)
        jobs.run = lambda task: asked.append(task) or run_one(task)
        self.assertEqual(dict(fleet.digests(files, **options)), files)
        self.assertEqual(len(asked) + lines, len(list(fleet.plan(files, shard=SMALL.unit, parameters=SMALL))))
        asked.clear()
        self.assertEqual(dict(fleet.digests(files, **options)), files)
        self.assertEqual(asked, [])

    def test_workers_that_die_are_told(self):
        files = self.files()
        run_one = fleet.run
        self.addCleanup(setattr, jobs, "run", run_one)
        jobs.run = half
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

    def test_trees_that_were_killed_go_on(self):
        files, resume = self.files(), self.folder / "resume"
        path = list(files)[-1]
        options = {"shard": SMALL.unit, "parameters": SMALL, "resume": resume}
        with ThreadPoolExecutor(1) as pool:
            running = fleet.trees(files, engine=pool, **options)
            next(running)
            running.close()
        asked = []
        run_one = fleet.run
        self.addCleanup(setattr, jobs, "run", run_one)
        jobs.run = lambda task: asked.append(task) or run_one(task)
        self.assertEqual(dict(fleet.trees(files, **options)), files)
        self.assertLess(len(asked), len(list(fleet.plan(files, shard=SMALL.unit, parameters=SMALL))))
        self.assertEqual(list(self.folder.glob("*.part")), [])
        self.assertEqual(fsverity.Tree.open(path + ".fsverity", files[path]).over(path).pread(9, 0), open(path, "rb").read(9))

    def test_hash_areas_are_veritysetup_s(self):
        area = fleet.Area("sha512", 4096, 4096, b"salt", "00112233-4455-6677-8899-aabbccddeeff")
        self.assertEqual((area.unit, fleet.Area().unit), (16 << 20, 64 << 20))
        sizes = [4096, 8192, 16 << 20, (16 << 20) + 4096, (40 << 20) + 100]
        pool, urls = os.urandom(sizes[-1]), []
        for size in sizes:
            urls.append(str(self.folder / f"data-{size}"))
            (self.folder / f"data-{size}").write_bytes(pool[:size])
        found = dict(fleet.trees(urls, shard=1, parameters=area))
        self.assertEqual(dict(fleet.digests(urls, parameters=area)), found)
        for url in urls:
            theirs = self.folder / "theirs"
            text = run(
                tool("veritysetup"), "format", url, theirs, "--hash=sha512", f"--salt={b'salt'.hex()}", f"--uuid={area.uuid}"
            )
            self.assertIn(found[url].digest.hex(), text)
            self.assertEqual(open(url + ".verity", "rb").read(), theirs.read_bytes(), url)
            theirs.unlink()
            size = os.path.getsize(url) // 4096 * 4096
            with casemate.open(url) as data, casemate.open(url + ".verity") as hashes:
                checked = data.verity(found[url].digest, hashes)
                self.assertEqual(checked.pread(100, size - 50), pool[size - 50 : size])
        # Without salt and UUID each run makes the same.
        twice = [list(fleet.trees(urls[:2], parameters=fleet.Area())) for _ in range(2)]
        self.assertEqual(twice[0], twice[1])
        (self.folder / "empty").touch()
        (error,) = dict(fleet.digests([str(self.folder / "empty")], parameters=fleet.Area())).values()
        self.assertIn("data block", str(error))

    def test_only_what_has_changed_is_read(self):
        files = self.files()
        options = {"shard": SMALL.unit, "parameters": SMALL}
        list(fleet.trees(files, **options))
        lines = [entry.to_line() for _, entry in fleet.manifest(files, **options)]
        before = list(fleet.read_manifest(lines))
        self.assertEqual({entry.url: entry.digest for entry in before}, files)
        asked = []
        run_one = fleet.run
        self.addCleanup(setattr, jobs, "run", run_one)
        jobs.run = lambda task: asked.extend(task.pieces) or run_one(task)
        self.assertEqual(dict(fleet.digests(files, before=before, **options)), files)
        self.assertEqual(asked, [])
        *_, path = files
        with open(path, "r+b") as file:
            file.seek(SMALL.unit + 5)
            file.write(b"changed")
        changed = {path: [(SMALL.unit + 5, SMALL.unit + 12)]}
        for work in [fleet.digests, fleet.trees]:
            asked.clear()
            found = dict(work(files, before=before, changed=changed, **options))
            self.assertEqual([(piece.start, piece.end) for piece in asked], [(SMALL.unit, 2 * SMALL.unit)])
            self.assertEqual(found, {**files, path: self.digest(path)})
        whole = self.folder / "whole.tree"
        fsverity.Tree.build(path, whole, algorithm=SMALL.algorithm, block_size=SMALL.block_size, salt=SMALL.salt)
        self.assertEqual(whole.read_bytes(), open(path + ".fsverity", "rb").read())
        # Nobody says what has changed: all of it may have.
        asked.clear()
        self.assertEqual(dict(fleet.digests([path], before=before, **options)), {path: self.digest(path)})
        self.assertEqual(len(asked), 4)

    def test_what_another_run_left_does_not_count(self):
        files = self.files()
        *_, path = files
        options = {"shard": SMALL.unit, "parameters": SMALL}
        entries = [entry for _, entry in fleet.manifest([path], place=lambda url: url + ".fsverity", **options)]

        def tree_is_right():
            whole = self.folder / "whole.tree"
            fsverity.Tree.build(path, whole, algorithm=SMALL.algorithm, block_size=SMALL.block_size, salt=SMALL.salt)
            self.assertEqual(whole.read_bytes(), open(path + ".fsverity", "rb").read())
            whole.unlink()

        def killed(count, **more):
            with ThreadPoolExecutor(1) as pool:
                running, taken = fleet.trees([path], engine=pool, resume=resume, **options, **more), []
                take = jobs._Trees.take

                def stop(trees, part):
                    if len(taken) == count:
                        raise KeyboardInterrupt
                    taken.append(part)
                    return take(trees, part)

                jobs._Trees.take = stop
                try:
                    with self.assertRaises(KeyboardInterrupt):
                        list(running)
                finally:
                    jobs._Trees.take = take

        # A file that was larger when a run was killed.
        resume = self.folder / "resume"
        data = open(path, "rb").read()
        with open(path, "ab") as file:
            file.write(data)
        killed(6)
        with open(path, "r+b") as file:
            file.truncate(len(data) - SMALL.unit)
        os.unlink(path + ".fsverity")
        self.assertEqual(dict(fleet.trees([path], resume=resume, **options)), {path: self.digest(path)})
        tree_is_right()
        # Two shards have changed, and a run was killed after the first.
        with open(path, "wb") as file:
            file.write(data)
        list(fleet.trees([path], **options))
        (before,) = [entry for _, entry in fleet.manifest([path], **options)]
        with open(path, "r+b") as file:
            for at in (5, 2 * SMALL.unit + 5):
                file.seek(at)
                file.write(b"changed")
        resume = self.folder / "again"
        more = {"before": [before], "changed": {path: [(5, 12), (2 * SMALL.unit, 2 * SMALL.unit + 12)]}}
        killed(1, **more)
        self.assertEqual(dict(fleet.trees([path], resume=resume, **options, **more)), {path: self.digest(path)})
        tree_is_right()
        # The same of a run that read everything: it has none of the blocks that need not be made again.
        with open(path, "r+b") as file:
            file.write(b"again")
        killed(1)
        self.assertEqual(dict(fleet.trees([path], resume=resume, **options, **more)), {path: self.digest(path)})
        tree_is_right()
        # Blocks that somebody has removed since are made again.
        resume = self.folder / "third"
        os.unlink(path + ".fsverity")
        killed(2)
        for partial in self.folder.glob("*.part"):
            partial.unlink()
        self.assertEqual(dict(fleet.trees([path], resume=resume, **options)), {path: self.digest(path)})
        tree_is_right()
        # A tree of another state, and a manifest that is damaged: everything is made again.
        with open(path, "r+b") as file:
            file.write(b"more")
        for entry in [entries[0]._replace(size=before.size), before._replace(parts=(b"damaged",))]:
            again = {"before": [entry], "changed": {path: [(0, 4)]}}
            self.assertEqual(dict(fleet.trees([path], **options, **again)), {path: self.digest(path)})
            tree_is_right()
            os.utime(path)
        # Without a resume file nothing stays of a run that ends early.
        resume = None
        os.unlink(path + ".fsverity")
        killed(2)
        self.assertEqual(list(self.folder.glob("*.part")), [])

    def test_names_in_manifests(self):
        digest = fsverity.Digest("sha256", bytes(range(32)))
        for parameters in [fleet.Parameters(), fleet.Checksum("sha256"), fleet.Area(), fleet.Parameters("sha512", 1024, b"s")]:
            for name in ["a b", "a\\b", "two\nlines", "*x", " x", "s3://bucket/x"]:
                entry = fleet.Entry(name, digest, parameters, 5, "state", (b"part", b"other"))
                self.assertEqual(list(fleet.read_manifest([entry.to_line()])), [entry])
                if isinstance(parameters, fleet.Checksum) or parameters == fleet.Parameters():
                    (read,) = fleet.read_manifest([entry.to_line("text")])
                    self.assertEqual(read, fleet.Entry(name, digest, parameters))
        for line in ["x", "sha256:zz name", "{}", '{"name": 5}', "00 x", fleet.Entry("x", digest, fleet.Area()).to_line("text")]:
            with self.assertRaisesRegex(ValueError, "no line of a manifest"):
                list(fleet.read_manifest([line]))

    def test_stores_that_serve_wrong_bytes_are_found_out(self):
        store, data = fsspec.filesystem("memory"), os.urandom(3 * SMALL.unit + 5)
        store.pipe("/bucket/model.bin", data)
        url = "memory://bucket/model.bin"
        (digest,) = dict(fleet.trees([url], shard=SMALL.unit, parameters=SMALL)).values()
        self.assertTrue(store.exists("/bucket/model.bin.fsverity"), "the tree lies beside the file")
        fsspec.register_implementation("verity", VerityFileSystem, clobber=True)
        checked = fsverity.Tree.open(url + ".fsverity", digest).over(url)
        self.assertEqual(checked.pread(100, SMALL.unit), data[SMALL.unit : SMALL.unit + 100])
        verified = fsspec.open("verity::" + url, verity={"digest": str(digest)})
        with verified as file:
            self.assertEqual(file.read(), data)
        cat_file = type(store).cat_file
        self.addCleanup(setattr, type(store), "cat_file", cat_file)
        lies = {
            "short": lambda bytes: bytes[:-1],
            "empty": lambda bytes: b"",
            "wrong": lambda bytes: bytes[:1000] + b"?" + bytes[1001:],
        }
        for name, lie in lies.items():
            type(store).cat_file = lambda self, *words, **named: lie(cat_file(self, *words, **named))
            (found,) = dict(fleet.digests([url], shard=SMALL.unit, parameters=SMALL)).values()
            self.assertNotEqual(found, digest, name)
            self.assertEqual(isinstance(found, OSError), name != "wrong", found)
            (wrong,) = dict(fleet.verify([fleet.Entry(url, digest, SMALL)], shard=SMALL.unit)).values()
            self.assertIsInstance(wrong, OSError if name != "wrong" else casemate.MismatchError)

    def test_manifests_and_images_are_checked(self):
        image = self.image()
        lines = [f"{fsverity.digest(image)} {image}\n", f"{fsverity.digest(self.tree / 'large')} {self.tree / 'large'}"]
        (self.folder / "manifest").write_text("".join(lines))
        self.assertEqual([wrong for _, wrong in fleet.verify(fleet.read_manifest(lines))], [None, None])
        self.assertEqual(dict(fleet.check_images([str(image)])), {str(image): []})
        sums = subprocess.run(["sha256sum", image], stdout=subprocess.PIPE, text=True, check=True).stdout
        (self.folder / "sums").write_text(sums)
        words = [sys.executable, "-m", "casemate.fleet", "verify", str(self.folder / "manifest"), str(self.folder / "sums")]
        self.assertEqual(subprocess.run(words).returncode, 0)
        digest = run(sys.executable, "-m", "casemate.fleet", "digest", image)
        self.assertEqual(digest, lines[0])
        self.assertEqual(run(sys.executable, "-m", "casemate.fleet", "sum", image), sums)
        self.assertEqual(run(sys.executable, "-m", "casemate.fleet", "check", image), "")
        # The command runs the package of the interpreter that it finds, and says what is missing.
        found_first = {**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
        found = run(tool("casemate"), "fleet", "digest", "--hash-alg", "sha256", image, env=found_first)
        self.assertEqual(found, lines[0])
        empty = {**found_first, "PYTHONPATH": "", "PYTHONSAFEPATH": "1"}
        failed = subprocess.run([tool("casemate"), "fleet", "digest", "x"], env=empty, cwd="/", capture_output=True, text=True)
        self.assertEqual(failed.returncode, 2)
        self.assertIn("Python has no module casemate: install casemate's wheel", failed.stderr)
        with open(self.tree / "large", "r+b") as file:
            file.write(b"other")
        failed = subprocess.run(words, capture_output=True, text=True)
        self.assertEqual(failed.returncode, 1)
        self.assertIn("was expected", failed.stderr)
        self.assertEqual(subprocess.run([*words[:3], "digest", "none"], capture_output=True).returncode, 2)


if __name__ == "__main__":
    unittest.main()
