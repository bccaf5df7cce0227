"""Digests of many large files, on engines that are here."""

import asyncio
import contextlib
import errno
import hashlib
import io
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import types
import unittest
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import casemate
import fsspec
from casemate import fleet, fsverity
from casemate.fleet import jobs, stores
from casemate.fleet.__main__ import main as fleet_main
from casemate.fleet.plan import TASKS
from casemate.fs import VerityFileSystem
from fsspec.asyn import get_loop
from world import World, run, tool

#: Parts of 4 MiB.
SMALL = fleet.Parameters("sha512", 16384, b"salt")


def half(task):
    """A worker that dies in the middle of one task."""
    if any(piece.start for piece in task.pieces):
        os._exit(1)
    return fleet.run(task)


class HTTPFileSystem(fsspec.AbstractFileSystem):
    """Files of a web server, as fsspec's own asks for them, without a network: `serve(method, start, end)` answers with status,
    headers and contents."""

    protocol = "web"
    cachable = False
    serve = None

    def __init__(self, **options):
        super().__init__(**options)
        self.kwargs, self.loop = {}, get_loop()

    def info(self, path, **_):
        try:
            status, headers, _ = type(self).serve("HEAD", 0, None)
        except OSError as error:
            raise FileNotFoundError(path) from error
        # As fsspec's own calls each failure.
        if status >= 400:
            raise FileNotFoundError(path)
        size = headers.get("Content-Length")
        return {"name": path, "size": None if size is None else int(size), "type": "file", **headers}

    def cat_file(self, path, start=None, end=None, **_):
        return type(self).serve("GET", start, end)[2]

    def encode_url(self, url):
        return url

    def _raise_not_found_for_status(self, answer, url):
        if answer.status == 404:
            raise FileNotFoundError(url)
        if answer.status >= 400:
            raise OSError(f"{url}: {answer.status}")

    async def set_session(self):
        return self

    @contextlib.asynccontextmanager
    async def get(self, url, headers):
        start, end = headers["Range"].removeprefix("bytes=").split("-")
        status, headers, data = type(self).serve("GET", int(start), int(end) + 1)

        async def iter_chunked(size):
            if data is None:
                await asyncio.sleep(3600)
            for at in range(0, len(data), 100_000):
                yield data[at : at + 100_000]

        yield types.SimpleNamespace(status=status, headers=headers, content=types.SimpleNamespace(iter_chunked=iter_chunked))


fsspec.register_implementation("web", HTTPFileSystem, clobber=True)


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
        self.assertIn(f"bytes {2 * SMALL.unit} to {3 * SMALL.unit} are in no part", str(lost))
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
        for line in ["x", "sha256:zz name", "{}", '{"name": 5}', "00 x", fleet.Entry("x", digest, fleet.Area()).to_line("text"),
                     '{"name": ' + "[" * 200_000]:
            with self.assertRaisesRegex(ValueError, "not a line of a manifest"):
                list(fleet.read_manifest([line]))
        # Each value of each type but its own.
        values = ["4096", 4096.0, True, None, [], [1], {}, -1, 1 << 64, 17, "", "00", "sha256"]
        for parameters in [fleet.Parameters(), fleet.Checksum("sha256"), fleet.Area()]:
            row = json.loads(fleet.Entry(str(self.folder / "none"), digest, parameters, 5, "state", (b"part",)).to_line())
            for name in row:
                for value in values:
                    line = json.dumps({**row, name: value})
                    try:
                        (entry,) = fleet.read_manifest([line])
                    except ValueError as error:
                        self.assertRegex(str(error), "not a line of a manifest")
                        continue
                    self.assertIn(type(value), [str, int, type(None)] if name != "parts" else [list], (name, value))
                    for _, found in fleet.verify([entry]):
                        self.assertNotIsInstance(found, (TypeError, OverflowError), (name, value))
                    list(fleet.manifest([self.folder / "none"], before=[entry], parameters=parameters))

    def test_a_bad_line_keeps_no_other_from_being_compared(self):
        good, wrong = self.folder / "good", self.folder / "wrong"
        for path in [good, wrong]:
            path.write_bytes(b"contents")
        ((_, entry),) = fleet.manifest([str(good)])
        bad = json.dumps({**json.loads(entry.to_line()), "block_size": "4096"}) + "\n"
        other = f"sha256:{'00' * 32} {wrong}\n"
        manifest = self.folder / "manifest"

        def verify(*lines):
            manifest.write_text("".join(lines))
            words = [sys.executable, "-m", "casemate.fleet", "verify", manifest]
            done = subprocess.run(words, stderr=subprocess.PIPE, text=True)
            return done.returncode, done.stderr.splitlines()

        for lines in [[bad, other], [other, bad]]:
            status, told = verify(*lines)
            self.assertEqual((status, len(told)), (1, 2), told)
            self.assertTrue(told[0].startswith(f"casemate: {manifest}: ") and "is not a line of a manifest" in told[0], told)
            self.assertIn("was expected", told[1])
        self.assertEqual(verify(bad, entry.to_line())[0], 2)
        status, told = verify(*[bad] * 100)
        self.assertEqual((status, len(told)), (2, 11), told)
        self.assertIn("90 more lines", told[-1])
        # Entries of a program, of which one makes no sense.
        for parameters in [
            fleet.Parameters(block_size="4096"), fleet.Parameters(salt=[]), fleet.Parameters(block_size=1 << 70), fleet.Area(hash_offset=-1),
        ]:
            rows = [entry._replace(parameters=parameters), (str(wrong), fsverity.Digest("sha256", bytes(32)))]
            found = dict(fleet.verify(rows))
            self.assertIsInstance(found[str(good)], casemate.ArgumentError)
            self.assertIsInstance(found[str(wrong)], casemate.MismatchError)
        # A path is a name.
        self.assertIsInstance(dict(fleet.verify([entry._replace(url=wrong, digest=fsverity.Digest("sha256", bytes(32)))]))[str(wrong)],
                              casemate.MismatchError)

    def test_a_file_of_another_size_does_not_match(self):
        """A file that was replaced by the topmost hash block of its own hash area, which has the same root hash."""
        path = self.folder / "file"
        path.write_bytes(os.urandom(97 * 4096))
        (entry,) = dict(fleet.manifest([path], parameters=fleet.Area(), place=lambda url: url + ".verity")).values()
        self.assertEqual(dict(fleet.verify([entry])), {str(path): None})
        with open(f"{path}.verity", "rb") as area:
            area.seek(4096)
            path.write_bytes(area.read(4096))
        (found,) = dict(fleet.verify([entry])).values()
        self.assertIsInstance(found, casemate.MismatchError)
        self.assertIn("4096 bytes, and 397312 were expected", str(found))
        (self.folder / "manifest").write_text(entry.to_line())
        words = [sys.executable, "-m", "casemate.fleet", "verify", self.folder / "manifest"]
        self.assertEqual(subprocess.run(words, stderr=subprocess.DEVNULL).returncode, 1)
        # The digest of fs-verity is another one for each size.
        (entry,) = dict(fleet.manifest([path])).values()
        self.assertIsInstance(dict(fleet.verify([entry._replace(size=5)]))[str(path)], casemate.MismatchError)
        self.assertEqual(dict(fleet.verify([entry._replace(size=None)])), {str(path): None})

    def test_parts_that_contradict_their_digest_are_not_taken(self):
        files = self.files()
        path = list(files)[-1]
        other = self.folder / "other"
        other.write_bytes(os.urandom(os.path.getsize(path)))
        options = {"shard": SMALL.unit, "parameters": SMALL}
        entries = dict(fleet.manifest([path, other], **options))
        entry = entries[path]._replace(parts=entries[str(other)].parts)
        with open(path, "r+b") as file:
            file.write(b"new")
        for work in [fleet.digests, fleet.trees]:
            found = dict(work([path], before=[entry], changed={path: [(0, 3)]}, **options))
            self.assertEqual(found, {path: self.digest(path)})

    def test_a_damaged_tree_is_made_again(self):
        path, memory = self.folder / "file", fsspec.filesystem("memory")
        data = os.urandom((13 << 20) + 8192)
        edited = {
            "cut off behind the top": lambda tree: tree[:8192], "cut off in the last block": lambda tree: tree[:-1],
            "longer": lambda tree: tree + bytes(4096), "the last digest": lambda tree: flipped(tree, len(tree) - 4096),
            "a digest in the middle": lambda tree: flipped(tree, len(tree) // 2), "its end": lambda tree: flipped(tree, len(tree) - 1),
            "its beginning": lambda tree: flipped(tree, 40), "behind its beginning": lambda tree: flipped(tree, 300),
            "nothing": lambda _: b"",
        }

        def flipped(tree, at):
            return tree[:at] + bytes([tree[at] ^ 1]) + tree[at + 1 :]

        for parameters in [fleet.Parameters(salt=b"salt"), fleet.Area()]:
            options, resume = {"parameters": parameters, "shard": 64 << 20}, self.folder / "resume"
            for place in [self.folder / "tree", "memory://store/damaged"]:
                path.write_bytes(data)
                (entry,) = dict(fleet.manifest([path], place=lambda url: place, resume=resume, **options)).values()
                read = place.read_bytes if isinstance(place, type(path)) else lambda: memory.cat("/store/damaged")
                write = place.write_bytes if isinstance(place, type(path)) else lambda tree: memory.pipe("/store/damaged", tree)
                whole = read()
                for name, edit in edited.items():
                    self.assertFalse(edit(whole) == whole, name)
                    for again in [{"resume": resume}, {"before": [entry]}]:
                        write(edit(whole))
                        found = dict(fleet.trees([path], lambda url: place, **options, **again))
                        self.assertEqual((found, read() == whole), ({str(path): entry.digest}, True), (name, place, again.keys()))
                resume.unlink()
            # What a run copies from the tree that was there is as good as what it makes.
            options["shard"] = parameters.unit
            large = self.folder / "large"
            with open(large, "wb") as file:
                file.write(data)
                file.truncate(2 * parameters.unit)
            before = list(dict(fleet.manifest([large], place=lambda url: place, **options)).values())
            with open(large, "r+b") as file:
                file.write(b"new")
            changed = {"before": before, "changed": {str(large): [(0, 3)]}}
            dict(fleet.trees([large], lambda url: self.folder / "expected", parameters=parameters))
            write(edited["the last digest"](read()))
            dict(fleet.trees([large], lambda url: place, **options, **changed))
            self.assertTrue(read() == (self.folder / "expected").read_bytes())
            (self.folder / "expected").unlink()
            (self.folder / "tree").unlink()
            memory.rm("/store/damaged")

    def test_a_server_that_gives_no_answer_is_not_one_without_the_file(self):
        refused = ConnectionRefusedError(errno.ECONNREFUSED, "refused")
        ranges = []

        def answering(status):
            def serve(method, start, end):
                ranges.append(method)
                if isinstance(status, Exception):
                    raise status
                return status, {}, b""

            return serve

        for status, is_missing in [(404, True), (410, True), (500, False), (403, False), (302, False), (refused, False)]:
            HTTPFileSystem.serve = answering(status if status != 302 else OSError("TooManyRedirects"))
            (found,) = dict(fleet.verify([("web://host/file", fsverity.Digest("sha256", bytes(32)))])).values()
            self.assertIsInstance(found, OSError)
            self.assertEqual(isinstance(found, FileNotFoundError), is_missing, (status, found))
            (found,) = dict(fleet.check_images(["web://host/file"])).values()
            self.assertEqual(isinstance(found, FileNotFoundError), is_missing, (status, found))
            # Nor is there nothing at a place that can't be looked at.
            try:
                with stores.looked_at("web://host/file", None) as place:
                    self.assertEqual((place, is_missing), (None, True), status)
            except OSError as error:
                self.assertFalse(is_missing, error)

    def test_a_server_that_gives_no_contents_has_no_empty_file(self):
        empty = [(200, {"Content-Length": "0"}), (206, {"Content-Range": "bytes */0"}), (416, {"Content-Range": "bytes */0"})]
        none = [(status, {}) for status in (201, 202, 203, 204, 205, 304)]
        wanted = fleet.Entry("web://host/file", fsverity.digest(casemate.Device.from_bytes(b"")), fleet.Parameters())
        for status, headers in empty + none:
            for size in (None, "0"):
                told = headers if size is None else {"Content-Length": size}
                HTTPFileSystem.serve = lambda method, *_: (200 if method == "HEAD" else status, told if method == "HEAD" else headers, b"")
                (wrong,) = dict(fleet.verify([wanted])).values()
                if (status, headers) in empty:
                    self.assertIsNone(wrong)
                else:
                    self.assertIsInstance(wrong, OSError)
                    self.assertNotIsInstance(wrong, FileNotFoundError)
                    self.assertIn(f"status {status}", str(wrong))
                    # Nor is it a manifest of no files, which is an answer.
                    with contextlib.redirect_stderr(io.StringIO()) as said:
                        self.assertEqual(fleet_main(["verify", "web://host/file"]), 2)
                    self.assertIn(f"status {status}", said.getvalue())

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
            # As web servers do that know no ranges.
            "whole": lambda bytes: data,
            "wrong": lambda bytes: bytes[:1] + b"?" + bytes[2:],
        }
        for name, lie in lies.items():
            type(store).cat_file = lambda self, *words, **named: lie(cat_file(self, *words, **named))
            (found,) = dict(fleet.digests([url], shard=SMALL.unit, parameters=SMALL)).values()
            self.assertNotEqual(found, digest, name)
            self.assertEqual(isinstance(found, OSError), name != "wrong", found)
            (wrong,) = dict(fleet.verify([fleet.Entry(url, digest, SMALL)], shard=SMALL.unit)).values()
            self.assertIsInstance(wrong, OSError if name != "wrong" else casemate.MismatchError)

    def web(self, data, **changes):
        """The digest of what a web server has, some of whose answers are other ones than they should be: those of a kind that
        `changes` names."""

        def serve(method, start, end):
            begin, behind = min(start or 0, len(data)), len(data) if end is None else min(end, len(data))
            headers = {"ETag": '"one"', "Content-Length": str(behind - begin)}
            status, found = 200, data[begin:behind]
            if method == "GET" and end is not None:
                status = 206 if begin < len(data) else 416
                headers["Content-Range"] = f"bytes {begin}-{behind - 1}/{len(data)}" if status == 206 else f"bytes */{len(data)}"
            for kind, change in changes.items():
                if kind == method or (kind == "LATER" and method == "GET" and begin > 0):
                    status, headers, found = change(status, dict(headers), found, begin)
            return status, headers, found

        HTTPFileSystem.serve = serve
        (found,) = dict(fleet.digests(["web://host/file"], parameters=SMALL)).values()
        return found

    def test_web_answers_are_compared_with_what_was_asked(self):
        data = os.urandom((20 << 20) + 5)
        (self.folder / "same").write_bytes(data)
        right, total = self.digest(self.folder / "same"), len(data)
        self.assertEqual(self.web(data), right)
        at = {"Content-Range": f"bytes 0-{(8 << 20) - 1}/{total}"}

        def header(**named):
            return lambda status, headers, found, _: (status, headers | {name.replace("_", "-"): text for name, text in named.items()}, found)

        lies = {
            "the beginning in place of a range": {"LATER": lambda status, headers, found, _: (206, headers | at, data[: len(found)])},
            "a range that lies before": {
                "LATER": lambda status, headers, found, begin: (
                    206,
                    headers | {"Content-Range": f"bytes {begin - 512}-{begin - 513 + len(found)}/{total}"},
                    data[begin - 512 : begin - 512 + len(found)],
                )
            },
            "no range": {"LATER": lambda status, headers, found, _: (206, {"ETag": '"one"'}, found)},
            "all of it": {"LATER": lambda status, headers, found, _: (200, {"ETag": '"one"'}, data)},
            "as much of all of it": {"LATER": lambda status, headers, found, _: (200, {"ETag": '"one"'}, data[: len(found)])},
            "another version": {"LATER": header(ETag='"two"')},
            "another version of all": {"GET": header(ETag='"two"')},
            "another size": {"LATER": lambda status, headers, found, begin: (
                206, headers | {"Content-Range": f"bytes {begin}-{begin + len(found) - 1}/{total + 1}"}, found
            )},
            "too small a size": {"HEAD": header(Content_Length="4096")},
            "too large a size": {"HEAD": header(Content_Length=str(total + 1))},
        }
        for name, changes in lies.items():
            self.assertIsInstance(self.web(data, **changes), OSError, name)
        # What is no lie: caches make tags weak, HEAD has no length, a server tells no size.
        for name, changes in {
            "a weak tag": {"LATER": header(ETag='W/"one"')},
            "no tag": {"GET": lambda status, headers, found, _: (status, {"Content-Range": headers["Content-Range"]}, found)},
            "no length": {"HEAD": lambda status, headers, found, _: (200, {"ETag": '"one"'}, None)},
            "a length of 0": {"HEAD": header(Content_Length="0")},
            "an unknown size": {"GET": lambda status, headers, found, _: (
                status, headers | {"Content-Range": headers["Content-Range"].rpartition("/")[0] + "/*"}, found
            )},
        }.items():
            self.assertEqual(self.web(data, **changes), right, name)
        (self.folder / "same").write_bytes(b"")
        self.assertEqual(self.web(b""), self.digest(self.folder / "same"))
        self.assertEqual(self.web(b"", HEAD=header(Content_Length="0"), GET=lambda *_: (200, {}, b"")), self.digest(self.folder / "same"))

    def test_the_first_error_of_a_file_ends_the_work_on_it(self):
        asked = []

        def refuse(status, headers, found, begin):
            asked.append(begin)
            return 403, {}, b""

        # More tasks than could ever be refused one by one.
        size = TASKS * fleet.SHARD - 5
        found = self.web(b"x", HEAD=lambda status, headers, _, __: (200, headers | {"Content-Length": str(size)}, None), GET=refuse)
        self.assertIsInstance(found, OSError)
        self.assertLess(len(asked), 1000)
        for absurd in [1 << 62, -1]:
            found = self.web(b"x", HEAD=lambda status, headers, _, __: (200, headers | {"Content-Length": str(absurd)}, None))
            self.assertIsInstance(found, (ValueError, OSError))
        # Others are not hurt by it, on any engine.
        good = self.folder / "good"
        good.write_bytes(os.urandom(3 * SMALL.unit))
        HTTPFileSystem.serve = lambda method, start, end: (
            (200, {"Content-Length": str(5 * SMALL.unit)}, None) if method == "HEAD" else (403, {}, b"")
        )
        with ThreadPoolExecutor(2) as pool:
            for engine in [None, pool]:
                options = {"shard": SMALL.unit, "parameters": SMALL}
                rows = list(fleet.trees(["web://host/bad", good], lambda url: self.folder / f"tree-{url[-4:]}", engine, **options))
                self.assertEqual(len(rows), 2)
                self.assertEqual(dict(rows)[str(good)], self.digest(good))
                self.assertIsInstance(dict(rows)["web://host/bad"], OSError)
                self.assertEqual([path.name for path in self.folder.glob("tree*")], ["tree-good"])

    def test_ctrl_c_ends_the_work(self):
        """Of stores that are silent, and of large files on this machine."""
        with open(self.folder / "large", "wb") as file:
            file.truncate(1 << 42)
        code = """
import signal, sys, threading, fsspec
from casemate import fleet
signal.signal(signal.SIGINT, signal.default_int_handler)

class Silent(fsspec.AbstractFileSystem):
    protocol = "silent"
    def info(self, path, **_):
        return {"name": path, "size": 5 if "range" in path else 1 << 20, "type": "file", "ETag": "one"}
    def cat_file(self, path, start=None, end=None, **_):
        print("begun", flush=True)
        threading.Event().wait()

fsspec.register_implementation("silent", Silent)
if sys.argv[2] == "large":
    threading.Timer(0.5, print, ["begun"], {"flush": True}).start()
work = {"digests": fleet.digests, "check": fleet.check_images}[sys.argv[1]]
options = {"shard": 1 << 42} if sys.argv[2] == "large" else {}
print(list(work([sys.argv[2]], **options)))
"""
        for words in [["digests", "silent://x"], ["check", "silent://x"], ["digests", "large"]]:
            with subprocess.Popen(
                [sys.executable, "-c", code, *words], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            ) as process:
                self.addCleanup(process.kill)
                self.assertEqual(process.stdout.readline(), "begun\n", words)
                process.send_signal(signal.SIGINT)
                try:
                    # Half a second on a machine that has nothing else to do.
                    _, text = process.communicate(timeout=60)
                except subprocess.TimeoutExpired:
                    process.kill()
                    self.fail(f"{words} did not end")
                self.assertIn("KeyboardInterrupt", text)
                self.assertEqual(process.returncode, -signal.SIGINT, text)

    def test_an_image_that_changes_while_it_is_checked_is_no_answer(self):
        data = self.image().read_bytes()
        for heads, of_ranges in [(["one", "one"], "two"), (["one", "two"], "one"), (["one", "one"], "one")]:
            given = iter(heads)

            def serve(method, start, end):
                tag = next(given, heads[-1]) if method == "HEAD" else of_ranges
                headers = {"ETag": f'"{tag}"', "Content-Length": str(len(data))}
                if method == "HEAD":
                    return 200, headers, None
                return 206, headers | {"Content-Range": f"bytes {start}-{end - 1}/{len(data)}"}, data[start:end]

            HTTPFileSystem.serve = serve
            (found,) = dict(fleet.check_images(["web://host/file"])).values()
            self.assertEqual(isinstance(found, OSError), {*heads, of_ranges} != {"one"}, (heads, of_ranges, found))

    def test_files_without_versions_are_read_again(self):
        store, data = fsspec.filesystem("memory"), os.urandom(2 * SMALL.unit + 5)
        url, resume = "memory://bucket/model.bin", self.folder / "resume"
        self.addCleanup(setattr, type(store), "info", type(store).info)
        info = type(store).info
        type(store).info = lambda self, path: {key: value for key, value in info(self, path).items() if key != "created"}
        options = {"shard": SMALL.unit, "parameters": SMALL}

        def digest(data):
            (self.folder / "same").write_bytes(data)
            return self.digest(self.folder / "same")

        store.pipe("/bucket/model.bin", data)
        (before,) = [entry for _, entry in fleet.manifest([url], resume=resume, **options)]
        self.assertEqual((before.version, before.digest), (None, digest(data)))
        other = data[:-1] + bytes([data[-1] ^ 1])
        store.pipe("/bucket/model.bin", other)
        self.assertEqual(dict(fleet.digests([url], before=[before], **options)), {url: digest(other)})
        self.assertEqual(dict(fleet.digests([url], resume=resume, **options)), {url: digest(other)})
        # Somebody knows that nothing has changed.
        kept = dict(fleet.digests([url], before=[before], assume_unchanged=True, **options))
        self.assertEqual(kept, {url: before.digest})
        # Blocks of trees that a run has left are made again.
        resume = self.folder / "again"
        with ThreadPoolExecutor(1) as pool:
            running = fleet.trees([url, "memory://bucket/none"], lambda url: str(self.folder / "tree"), pool, resume=resume, **options)
            next(running)
            running.close()
        store.pipe("/bucket/model.bin", data)
        self.assertEqual(dict(fleet.trees([url], lambda url: str(self.folder / "tree"), resume=resume, **options)), {url: digest(data)})
        fsverity.Tree.open(self.folder / "tree", digest(data)).over(casemate.Device.from_bytes(data)).read()

    def test_one_file_s_failure_is_not_that_of_others(self):
        """Stores raise whatever their clients do."""
        (self.folder / "good").write_bytes(b"good")
        good, digest = str(self.folder / "good"), self.digest(self.folder / "good")

        class Unreachable(fsspec.AbstractFileSystem):
            protocol = "unreachable"

            def info(self, path, **_):
                if "late" in path:
                    return {"name": path, "size": 5, "type": "file"}
                raise NameError("no credentials\nanywhere")

            def cat_file(self, path, *_, **__):
                raise NameError("connection refused")

            def put_file(self, *_, **__):
                raise NameError("connection refused")

            def exists(self, path, **_):
                return True

        fsspec.register_implementation("unreachable", Unreachable, clobber=True)
        urls = ["unreachable://a", good, "unreachable://late", "nosuchprotocol://b"]
        for work in [fleet.digests, lambda *words, **named: fleet.trees(*words, lambda url: str(self.folder / "tree"), **named)]:
            found = dict(work(urls, parameters=SMALL))
            self.assertEqual((set(found), found[good]), (set(urls), digest))
            self.assertTrue(all(isinstance(found[url], Exception) for url in urls if url != good), found)
            (self.folder / "tree").unlink(missing_ok=True)
        # A tree that can't be put where it belongs.
        def place(url):
            return "unreachable://tree" if url == good else url + ".tree"

        (self.folder / "other").write_bytes(b"other")
        found = dict(fleet.trees([good, str(self.folder / "other")], place, parameters=SMALL))
        self.assertIsInstance(found[good], NameError)
        self.assertEqual(found[str(self.folder / "other")], self.digest(self.folder / "other"))
        found = dict(fleet.check_images(["unreachable://a", good]))
        self.assertEqual([isinstance(error, Exception) for error in found.values()], [True, True])

    def test_what_makes_no_sense_is_refused(self):
        path = self.folder / "file"
        path.write_bytes(os.urandom(3 * SMALL.unit))
        options = {"shard": SMALL.unit, "parameters": SMALL}
        for work in [fleet.digests, fleet.plan, fleet.check_images, fleet.trees]:
            for urls in [str(path), path]:
                with self.assertRaisesRegex(TypeError, "list"):
                    list(work(urls))
        for shard in [0, -1]:
            with self.assertRaisesRegex(ValueError, "shard"):
                list(fleet.digests([path], shard=shard))
        # A name twice is one file, and paths are names.
        self.assertEqual(list(fleet.digests([path, str(path), path], **options)), [(str(path), self.digest(path))])

    def test_what_has_no_size_is_not_hashed_as_nothing(self):
        os.mkfifo(self.folder / "fifo")
        names = [str(self.folder / "fifo"), str(self.folder), "/dev/null", "/proc/self"]
        for work in [fleet.digests, fleet.check_images]:
            found = dict(work(names))
            self.assertTrue(all(isinstance(error, OSError) for error in found.values()), found)
        device = next((name for name in ["/dev/loop0", "/dev/sda", "/dev/vda"] if os.path.exists(name)), None)
        if device is not None and os.access(device, os.R_OK):
            with casemate.open(device) as opened:
                self.assertEqual(stores.state(device, None), (opened.size, None))

    def test_each_line_of_a_manifest_counts(self):
        path = self.folder / "file"
        path.write_bytes(b"contents")
        right, wrong = fsverity.digest(path), fsverity.Digest("sha256", bytes(32))
        for digests in [[right, wrong], [wrong, right]]:
            (found,) = dict(fleet.verify([(str(path), digest) for digest in digests])).values()
            self.assertIsInstance(found, casemate.MismatchError)
            entries = [fleet.Entry(str(path), digest, fleet.Parameters()) for digest in digests]
            self.assertIsInstance(dict(fleet.verify(entries))[str(path)], casemate.MismatchError)
        self.assertEqual(dict(fleet.verify([(str(path), right)] * 2)), {str(path): None})

    def test_a_resume_file_is_nothing_else(self):
        path, other = self.folder / "file", self.folder / "other"
        path.write_bytes(b"contents")
        for before in [b"text that somebody needs", b'{"name": "x"}\n', bytes(range(256))]:
            other.write_bytes(before)
            with self.assertRaisesRegex(ValueError, "resume file"):
                list(fleet.digests([path], resume=other))
            self.assertEqual(other.read_bytes(), before)
        # Nor a file of the run, nor one that a tree goes to.
        path.write_bytes(b"")
        link = self.folder / "a link"
        link.symlink_to(path)
        for resume in [path, link]:
            with self.assertRaisesRegex(casemate.ArgumentError, "resume file"):
                list(fleet.digests([other, path], resume=resume))
        self.assertEqual(path.read_bytes(), b"")
        with self.assertRaisesRegex(casemate.ArgumentError, "resume file"):
            list(fleet.trees([path], lambda url: self.folder / "new", resume=self.folder / "new"))
        path.write_bytes(b"contents")
        other.write_bytes(b"")
        for _ in range(2):
            self.assertEqual(dict(fleet.digests([path], resume=other)), {str(path): fsverity.digest(path)})

    def test_trees_replace_no_files(self):
        contents = {name: os.urandom(9000) for name in ["one", "two", "three"]}
        for name, data in contents.items():
            (self.folder / name).write_bytes(data)
        one, two, three = (str(self.folder / name) for name in contents)
        (self.folder / "link").symlink_to(two)
        (self.folder / "hard").hardlink_to(three)
        places = {one: one, two: self.folder / "link", three: self.folder / "hard"}
        found = dict(fleet.trees(places, places.get))
        self.assertEqual([type(error) for error in found.values()], [casemate.ArgumentError] * 3)
        found = list(dict(fleet.trees([one, two, three], lambda url: self.folder / "tree")).values())
        self.assertEqual([isinstance(error, casemate.ArgumentError) for error in found].count(True), 2, found)
        self.assertIsInstance(dict(fleet.trees([one, two], lambda url: one if url == two else two))[two], casemate.ArgumentError)
        for name in ["one", "three"]:
            self.assertEqual((self.folder / name).read_bytes(), contents[name], name)
        memory = fsspec.filesystem("memory")
        memory.pipe("/store/file", b"data")
        (error,) = dict(fleet.trees(["memory://store/file"], lambda url: url)).values()
        self.assertIsInstance(error, casemate.ArgumentError)
        self.assertEqual(memory.cat("/store/file"), b"data")

    def test_trees_replace_no_volumes_and_no_file_systems(self):
        path, place = self.folder / "file", self.folder / "place"
        path.write_bytes(os.urandom(3 * SMALL.unit))
        memory = fsspec.filesystem("memory")
        holding = {"an ext2, ext3 or ext4": self.image().read_bytes()}
        volume = self.blank(20 << 20)
        with casemate.open(volume, writable=True) as device:
            casemate.luks.format(device, "x", pbkdf=casemate.luks.Pbkdf("pbkdf2", 1000))
        holding["a LUKS header"] = volume.read_bytes()
        for parameters in [SMALL, fleet.Area()]:
            options = {"shard": SMALL.unit, "parameters": parameters}
            for what, data in holding.items():
                place.write_bytes(data)
                memory.pipe("/store/place", data)
                for where in [place, "memory://store/place"]:
                    (error,) = dict(fleet.trees([path], lambda url: where, **options)).values()
                    self.assertIsInstance(error, casemate.ArgumentError, (where, parameters))
                    self.assertIn(what, str(error))
                self.assertEqual((place.read_bytes(), memory.cat("/store/place")), (data, data))
            # An earlier tree is made again, and so is what is nothing known. Of another kind it is what it is.
            for earlier in [None, os.urandom(5000), b""]:
                place.unlink()
                memory.rm("/store/place")
                if earlier is not None:
                    place.write_bytes(earlier)
                    memory.pipe("/store/place", earlier)
                for where in [place, "memory://store/place"]:
                    for _ in range(2):
                        (found,) = dict(fleet.trees([path], lambda url: where, **options)).values()
                        self.assertIsInstance(found, fsverity.Digest)
                self.assertEqual(place.read_bytes(), memory.cat("/store/place"))
        (error,) = dict(fleet.trees([path], lambda url: place, parameters=SMALL)).values()
        self.assertIsInstance(error, casemate.ArgumentError)
        # One that came while the work was done.
        place.unlink()

        def late(done):
            place.write_bytes(holding["a LUKS header"])

        ((_, error),) = fleet.trees([path], lambda url: place, shard=SMALL.unit, parameters=SMALL, progress=late)
        self.assertIsInstance(error, casemate.ArgumentError)
        place.unlink()
        os.mkfifo(place)
        ((_, error),) = fleet.trees([path], lambda url: place, parameters=SMALL)
        self.assertIsInstance(error, OSError)

    def test_a_tree_of_other_contents_is_made_again(self):
        path, memory = self.folder / "file", fsspec.filesystem("memory")
        for parameters in [SMALL, fleet.Area()]:
            for place in [self.folder / "tree", "memory://store/tree"]:
                path.write_bytes(os.urandom(2 * SMALL.unit))
                options = {"shard": SMALL.unit, "parameters": parameters}
                dict(fleet.trees([path], lambda url: place, **options))
                path.write_bytes(os.urandom(2 * SMALL.unit))
                resume = self.folder / "resume"
                (entry,) = dict(fleet.manifest([path], resume=resume, **options)).values()
                for again in [{"resume": resume}, {"before": [entry]}]:
                    (found,) = dict(fleet.trees([path], lambda url: place, **options, **again)).values()
                    self.assertEqual(found, entry.digest)
                    tree = casemate.Device.from_bytes(memory.cat("/store/tree") if isinstance(place, str) else place.read_bytes())
                    if parameters == SMALL:
                        fsverity.Tree.open(tree, found).over(path).read()
                    else:
                        self.assertTrue(casemate.verity.verify(path, tree, found.digest).ok)
                # That of these contents stays.
                if not isinstance(place, str):
                    before = place.stat().st_ino
                    dict(fleet.trees([path], lambda url: place, **options, resume=resume))
                    self.assertEqual(place.stat().st_ino, before)
                    place.unlink()
                resume.unlink()

    def test_an_unfinished_tree_is_written_through_no_link(self):
        path, resume, victim = self.folder / "file", self.folder / "resume", self.folder / "victim"
        path.write_bytes(os.urandom(3 * SMALL.unit))
        options = {"shard": SMALL.unit, "parameters": SMALL, "resume": resume}

        def stop(done):
            raise InterruptedError

        for link in [os.symlink, os.link]:
            with self.assertRaises(InterruptedError):
                list(fleet.trees([path], **options, progress=stop))
            (partial,) = self.folder.glob("*.part")
            partial.unlink()
            resume.unlink()
            victim.write_bytes(b"that somebody needs")
            link(victim, partial)
            self.assertEqual(dict(fleet.trees([path], **options)), {str(path): self.digest(path)})
            self.assertEqual(victim.read_bytes(), b"that somebody needs")
            self.assertFalse(os.path.lexists(partial))
            fsverity.Tree.open(f"{path}.fsverity", self.digest(path)).over(path).read()
            os.unlink(f"{path}.fsverity")
            resume.unlink()

    def test_a_link_in_place_of_an_unfinished_tree_is_refused(self):
        path, victim = self.folder / "file", self.folder / "victim"
        path.write_bytes(os.urandom(3 * SMALL.unit))
        victim.write_bytes(b"that somebody needs")
        finish = jobs._Trees.finish
        self.addCleanup(setattr, jobs._Trees, "finish", finish)

        def swap(*_):
            for partial in self.folder.glob("*.part"):
                partial.unlink()
                partial.symlink_to(victim)

        def swap_before(trees, *given):
            swap()
            return finish(trees, *given)

        options = {"shard": SMALL.unit, "parameters": SMALL}
        for named in [{"progress": swap}, {}]:
            jobs._Trees.finish = finish if named else swap_before
            ((_, error),) = fleet.trees([path], **options, **named)
            self.assertIsInstance(error, OSError)
            self.assertEqual(victim.read_bytes(), b"that somebody needs")
            self.assertFalse((self.folder / "file.fsverity").exists())

    def test_bytes_that_no_hash_protects_are_told(self):
        path = self.folder / "file"
        path.write_bytes(os.urandom(10_000))
        with self.assertLogs("casemate", "WARNING") as logs:
            (entry,) = dict(fleet.manifest([path], parameters=fleet.Area())).values()
        self.assertIn("1808 bytes behind byte 8192", logs.output[0])
        with self.assertLogs("casemate", "WARNING"):
            self.assertEqual(dict(fleet.verify([entry])), {str(path): None})
        # The size of the file is the manifest's, whatever part of it is protected.
        self.assertEqual((entry.size, entry.file_size), (8192, 10_000))
        manifest = self.folder / "manifest"
        manifest.write_text(entry.to_line())
        self.assertEqual(list(fleet.read_manifest([entry.to_line()])), [entry])
        data = path.read_bytes()
        for contents, status, said in [
            (data, 0, r"file: 1808 bytes behind byte 8192"),
            (data[:-1] + b"?", 0, r"file: 1808 bytes behind byte 8192"),
            (data[:8192], 1, r"file: the file has 8192 bytes, and 10000 were expected"),
            (data + b"more", 1, r"file: the file has 10004 bytes, and 10000 were expected"),
            (data[:4096], 1, r"file: the digest is"),
        ]:
            path.write_bytes(contents)
            words = [sys.executable, "-m", "casemate.fleet", "verify", manifest]
            done = subprocess.run(words, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertRegex(done.stderr, said)
        # A whole number of blocks has a size, too.
        path.write_bytes(data[:8192])
        (whole,) = dict(fleet.manifest([path], parameters=fleet.Area())).values()
        self.assertEqual((whole.digest, whole.file_size), (entry.digest, 8192))
        path.write_bytes(data)
        with self.assertLogs("casemate", "WARNING"):
            (wrong,) = dict(fleet.verify([whole])).values()
        self.assertIsInstance(wrong, casemate.MismatchError)
        # Lines of earlier versions have no such size, and what is known of a file of another size is not kept.
        with self.assertLogs("casemate", "WARNING"):
            old = entry._replace(file_size=None)
            self.assertEqual(dict(fleet.verify([old])), {str(path): None})
            for before in (old, entry, whole):
                options = {"before": [before], "assume_unchanged": True, "parameters": fleet.Area()}
                (again,) = dict(fleet.manifest([path], **options)).values()
                self.assertEqual((again.digest, again.file_size), (entry.digest, 10_000))
        words = [sys.executable, "-m", "casemate.fleet", "format", path]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"^casemate: .*file: 1808 bytes behind byte 8192 .*\n$")

    def test_the_command_s_exit_status_tells_a_failure_from_a_mismatch(self):
        def fleet_command(*words, **options):
            words = [sys.executable, "-m", "casemate.fleet", *map(str, words)]
            return subprocess.run(words, stderr=subprocess.PIPE, text=True, **options)

        good = self.folder / "good"
        good.write_bytes(b"good")
        manifest, empty = self.folder / "manifest", self.folder / "empty"
        manifest.write_text(f"{fsverity.digest(good)} {good}\n")
        empty.write_text("")
        gone, folder, both = self.folder / "gone", self.folder / "folder", self.folder / "both"
        gone.write_text(f"{fsverity.digest(good)} {self.folder}/none\n")
        folder.write_text(f"{fsverity.digest(good)} {self.folder}\n")
        both.write_text(f"{fsverity.digest(manifest)} {good}\n")
        lines = [
            (["digest", "nosuchprotocol://x", good], 2),
            (["tree", "memory://nothing/x"], 2),
            (["verify", "nosuchprotocol://x"], 2),
            (["verify", self.folder / "none"], 2),
            (["check", "nosuchprotocol://x"], 2),
            (["digest", "--shard", "0", good], 2),
            (["digest", "--assume-unchanged", good], 2),
            (["verify", empty], 1),
            (["verify", manifest], 0),
            (["verify", gone], 1),
            (["verify", folder], 2),
            (["verify", both], 1),
        ]
        for words, status in lines:
            done = fleet_command(*words, stdout=subprocess.PIPE)
            self.assertEqual(done.returncode, status, (words, done.stderr))
            self.assertNotIn("Traceback", done.stderr)
            if "--assume-unchanged" not in words:
                self.assertEqual(len(done.stderr.splitlines()), status > 0, done.stderr)
        # A mismatch is an answer, whatever else could not be read.
        for names in [[folder, both], [both, folder], [folder, gone]]:
            self.assertEqual(fleet_command("verify", *names).returncode, 1)
        self.assertIn("no file was verified", fleet_command("verify", empty).stderr)
        done = subprocess.run(["sh", "-c", f"{sys.executable} -m casemate.fleet digest {good} >&-"], stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stderr), (2, "casemate: standard output is closed\n"))
        # Names of any bytes go in and out, but for those that a terminal would obey.
        odd = os.fsencode(self.folder) + b"/odd \xff"
        with open(odd, "wb") as file:
            file.write(b"good")
        lines = subprocess.run([sys.executable, "-m", "casemate.fleet", "digest", odd, good], stdout=subprocess.PIPE, check=True).stdout
        self.assertEqual(lines.split(b"\n")[0].split(b" ", 1)[1], odd)
        manifest.write_bytes(lines)
        self.assertEqual(fleet_command("verify", manifest).returncode, 0)
        self.assertEqual(fleet_command("format", os.fsdecode(odd), stdout=subprocess.PIPE).returncode, 2, "no whole block")
        done = fleet_command("digest", f"{self.folder}/\x1b[2Jnone", good, stdout=subprocess.PIPE)
        self.assertEqual((done.returncode, "\x1b" in done.stderr), (2, False), done.stderr)
        # A module that can't be loaded is not a mismatch.
        (self.folder / "fsspec.py").write_text("raise ImportError('of another Python')")
        words = [tool("casemate"), "fleet", "digest", good]
        broken = {**os.environ, "PYTHONPATH": f"{self.folder}:{os.environ['PYTHONPATH']}"}
        broken["PATH"] = f"{os.path.dirname(sys.executable)}:{broken['PATH']}"
        done = subprocess.run(words, env=broken, stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stderr), (2, "casemate: of another Python\n"))
        # The reader of what is printed has gone.
        for words in [["digest", good], ["manifest", good]]:
            out, end = os.pipe()
            os.close(out)
            done = fleet_command(*words, stdout=end)
            os.close(end)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertNotIn("Exception ignored", done.stderr)

    def test_the_command_runs_nothing_of_the_current_folder(self):
        """A module that lies beside the data, under the name of one that Python or casemate imports."""
        good, ran = self.folder / "good", self.folder / "ran"
        good.write_bytes(b"good")
        (self.folder / "manifest").write_text(f"{fsverity.digest(casemate.Device.from_bytes(b'evil'))} good\n")
        for name in ["json", "base64", "queue", "logging", "tempfile", "fsspec", "casemate", "runpy", "os", "types", "sitecustomize"]:
            (self.folder / f"{name}.py").write_text(f"import os\nopen({str(ran)!r}, 'a').write('{name} ')\nos._exit(0)\n")
        path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
        words = [tool("casemate"), "fleet", "verify", "manifest"]
        for more in [{}, {"PYTHONSAFEPATH": ""}]:
            done = subprocess.run(words, cwd=self.folder, env={**os.environ, "PATH": path, **more}, capture_output=True, text=True)
            self.assertFalse(ran.exists(), ran.exists() and ran.read_text())
            self.assertEqual(done.returncode, 1, done.stderr)
        # Nor do interpreters that the command's starts.
        code = "import os; os.environ.get('PYTHONSAFEPATH') == '1' or os._exit(9)"
        (self.folder / "site").mkdir()
        (self.folder / "site/usercustomize.py").write_text("")
        (self.folder / "site/sitecustomize.py").write_text(code)
        found = {**os.environ, "PATH": path, "PYTHONPATH": f"{os.environ['PYTHONPATH']}:{self.folder}/site"}
        self.assertEqual(subprocess.run(words, cwd=self.folder, env=found, stderr=subprocess.PIPE).returncode, 1)

    def test_what_is_wrong_counts_whatever_else_fails(self):
        def fleet_command(*words, **options):
            return subprocess.run([sys.executable, "-m", "casemate.fleet", *map(str, words)], text=True, **options).returncode

        good, missing = self.folder / "good", self.folder / "missing"
        good.write_bytes(b"good")
        wrong, bad, folder = (self.folder / name for name in ["wrong", "bad", "of a folder"])
        wrong.write_text(f"sha256:{'00' * 32} {good}\n")
        folder.write_text(f"sha256:{'00' * 32} {self.folder}\n")
        line = json.loads(next(iter(dict(fleet.manifest([str(good)])).values())).to_line())
        bad.write_text(json.dumps({**line, "block_size": 17}) + "\n")
        with open(os.devnull, "w") as nothing, open("/dev/full", "w") as full:
            for names in [[wrong, bad], [bad, wrong], [wrong, missing], [missing, wrong]]:
                self.assertEqual(fleet_command("verify", *names, stderr=nothing), 1, names)
            for stderr in [nothing, full]:
                for names, status in [([bad], 2), ([missing], 2), ([folder], 2), ([wrong], 1)]:
                    self.assertEqual(fleet_command("verify", *names, stderr=stderr), status, (names, stderr))
        words = f"{sys.executable} -m casemate.fleet verify '{folder}' 2>&-"
        self.assertEqual(subprocess.run(["sh", "-c", words]).returncode, 2)

    def test_files_that_are_said_to_have_no_bytes_are_read(self):
        name = "/proc/version"
        with open(name, "rb") as file:
            data = file.read()
        self.assertEqual((os.path.getsize(name), bool(data)), (0, True))
        ((_, entry),) = fleet.manifest([name], parameters=fleet.Checksum("sha256"))
        self.assertEqual(entry.digest.digest, hashlib.sha256(data).digest())
        ((_, digest),) = fleet.digests([name])
        self.assertEqual(digest, fsverity.digest(casemate.Device.from_bytes(data)))

    def test_the_command_prints_files_in_the_order_of_its_arguments(self):
        names = []
        for number in range(40):
            file = self.folder / f"f{number * 7 % 40}"
            file.write_bytes(bytes([number]))
            names.append(str(file))
        # Tasks of its own, which last longer than that of all others.
        os.truncate(names[0], 80 << 20)
        asked = [*names[:20], str(self.folder / "none"), *names[20:], names[0]]
        before = self.folder / "before"
        known = [entry.to_line() for _, entry in fleet.manifest(names[10:20])]
        before.write_text("".join(known))

        def printed(*words):
            words = [sys.executable, "-m", "casemate.fleet", *map(str, words)]
            done = subprocess.run(words, capture_output=True, text=True)
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1), done.stderr)
            return done.stdout

        for _ in range(3):
            lines = printed("digest", *asked).splitlines()
            self.assertEqual([line.split(" ", 1)[1] for line in lines], names)
            lines = printed("manifest", "--update", before, *asked).splitlines()
            self.assertEqual([json.loads(line)["name"] for line in lines], names)

    def test_the_command_reads_names_from_a_list(self):
        # More names than a command line takes, with any bytes.
        files = [os.fsencode(self.folder) + b"/f%d \xff" % number for number in range(20)]
        for file in files:
            with open(file, "wb") as opened:
                opened.write(file)
        listed = self.folder / "list"
        listed.write_bytes(b"\n".join(files[5:]) + b"\n")
        words = [sys.executable, "-m", "casemate.fleet", "digest"]
        done = subprocess.run([*words, *files], stdout=subprocess.PIPE, check=True)
        for line, stdin in [([*files[:5], "--files-from", listed], None), (["--files-from", "-", *files[:5]], listed.read_bytes())]:
            self.assertEqual(subprocess.run([*words, *line], input=stdin, stdout=subprocess.PIPE, check=True).stdout, done.stdout)
        # An empty list is no yes.
        for line in [[], ["--files-from", os.devnull]]:
            empty = subprocess.run([*words, *line], stdin=subprocess.DEVNULL, capture_output=True, text=True)
            self.assertEqual((empty.returncode, empty.stdout), (2, ""), empty.stderr)
            self.assertIn("no file is named", empty.stderr)
        none = subprocess.run([*words, "--files-from", "none"], capture_output=True, text=True)
        self.assertEqual((none.returncode, none.stderr), (2, "casemate: none: No such file or directory\n"))

    def test_results_come_as_they_are_known(self):
        # What needs no reading, and what fails, does not wait for what is read.
        files = [self.folder / f"f{number}" for number in range(6000)]
        for file in files:
            file.write_bytes(b"x")
        known = [entry for _, entry in fleet.manifest(files[:100])]
        found = [url for url, _ in fleet.manifest([*files[:100], self.folder / "none", *files[100:]], before=known)]
        self.assertEqual(len(found), 6001)
        self.assertLess(found.index(str(self.folder / "none")), 5500)
        self.assertLess(found.index(str(files[0])), 5500)

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
