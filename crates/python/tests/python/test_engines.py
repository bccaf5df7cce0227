"""Fleets on real engines and a real store; `cargo xtask engines` installs these."""

import os
import signal
import subprocess
import sys
import time
import unittest
import urllib.request

import casemate
import fsspec
from casemate import fleet, fsverity
from casemate.fleet import jobs
from casemate.fs import VerityFileSystem
from world import World, run, tool

#: Sizes around blocks, whole hash blocks and parts.
SIZES = sorted({0, 1, *(size + more for size in (4096, 512 << 10, 64 << 20) for more in (-1, 0, 1)), (192 << 20) + 5000})
# Workers of Spark are whatever python3 is, otherwise.
os.environ["PYSPARK_PYTHON"] = sys.executable


def slow(task):
    """Work that somebody has time to kill."""
    time.sleep(0.3)
    return fleet.run(task)


class Engines(World):
    @classmethod
    def setUpClass(cls):
        fsspec.register_implementation("verity", VerityFileSystem, clobber=True)

    def files(self):
        pool, found = os.urandom(SIZES[-1]), {}
        for size in SIZES:
            path = self.folder / f"file-{size}"
            path.write_bytes(pool[:size])
            text = run(tool("fsverity"), "digest", path)
            found[str(path)] = fsverity.Digest("sha256", bytes.fromhex(text.partition(" ")[0].partition(":")[2]))
        return found

    def all_of_it(self, engine):
        """Digests, trees and hash areas are those of the real tools."""
        files = self.files()
        self.assertEqual(dict(fleet.digests(files, engine, shard=1)), files)
        self.assertEqual(dict(fleet.trees(files, engine=engine, shard=1)), files)
        area = fleet.Area(salt=b"salt", uuid="00112233-4455-6677-8899-aabbccddeeff")
        whole = [url for url in files if os.path.getsize(url) >= 4096]
        roots = dict(fleet.trees(whole, engine=engine, shard=1, parameters=area))
        theirs, tree = self.folder / "theirs", self.folder / "tree.bin"
        for url in files:
            if url in whole:
                text = run(tool("veritysetup"), "format", url, theirs, f"--salt={b'salt'.hex()}", f"--uuid={area.uuid}")
                self.assertIn(roots[url].digest.hex(), text)
                self.assertEqual(open(url + ".verity", "rb").read(), theirs.read_bytes(), url)
                theirs.unlink()
            run(tool("fsverity"), "digest", url, f"--out-merkle-tree={tree}")
            self.assertEqual(open(url + ".fsverity", "rb").read()[4096:], tree.read_bytes(), url)
        image = self.image()
        self.assertEqual(dict(fleet.check_images([str(image)], engine)), {str(image): []})
        missing = dict(fleet.digests([str(self.folder / "none")], engine))
        self.assertIsInstance(missing[str(self.folder / "none")], FileNotFoundError)

    def killing(self, engine, victims, **options):
        """A worker that is killed in the middle: the engine sends its work to another."""
        files = self.files()
        self.addCleanup(setattr, jobs, "run", jobs.run)
        jobs.run = slow
        running = fleet.digests(files, engine, shard=1, **options)
        found = dict([next(running)])
        killed = list(victims())[:1]
        self.assertTrue(killed)
        for process in killed:
            os.kill(process, signal.SIGKILL)
        self.assertEqual({**found, **dict(running)}, files)

    def ray(self):
        import ray

        ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False, logging_level="ERROR")
        self.addCleanup(ray.shutdown)

    def test_ray_data(self):
        import ray.data

        self.ray()
        ray.data.DataContext.get_current().enable_progress_bars = False
        self.all_of_it(ray.data)

    def test_ray(self):
        import psutil
        import ray

        self.ray()
        self.all_of_it(ray)

        def workers():
            # Those that have a task call themselves by its name.
            return [
                process.pid
                for process in psutil.process_iter(["cmdline"])
                if "ray::_call" in "".join(process.info["cmdline"] or [])
            ]

        self.killing(ray, workers)

    def test_the_command_s_workers_run_nothing_of_the_current_folder(self):
        """Ray's workers look for modules in the folder of the program that starts them."""
        good, ran = self.folder / "good", self.folder / "ran"
        good.write_bytes(b"good")
        for name in ["fsspec", "json", "queue"]:
            (self.folder / f"{name}.py").write_text(f"import os\nopen({str(ran)!r}, 'a').write('{name} ')\nos._exit(0)\n")
        path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
        for engine in ["ray", "dask"]:
            words = [tool("casemate"), "fleet", "digest", "--engine", engine, "good"]
            done = subprocess.run(words, cwd=self.folder, env={**os.environ, "PATH": path}, stdout=subprocess.PIPE, text=True)
            self.assertEqual((done.returncode, done.stdout), (0, f"{fsverity.digest(good)} good\n"), engine)
            self.assertFalse(ran.exists(), ran.exists() and ran.read_text())

    def test_dask(self):
        from distributed import Client

        with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
            self.all_of_it(client)
            self.killing(client, lambda: sorted(client.run(os.getpid).values()))

    def test_spark(self):
        import psutil
        from pyspark.sql import SparkSession

        # Four tries for each task: the default of clusters.
        spark = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false").getOrCreate()
        self.addCleanup(spark.stop)
        spark.sparkContext.setLogLevel("OFF")
        self.all_of_it(spark)

        def workers():
            daemons = [process for process in psutil.Process().children(recursive=True) if process.name().startswith("python")]
            return [process.pid for process in daemons if not process.children()]

        self.killing(spark, workers)

    def test_a_store(self):
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-p", "5795"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        for _ in range(100):
            try:
                urllib.request.urlopen("http://127.0.0.1:5795/moto-api/").close()
                break
            except OSError:
                time.sleep(0.2)
        options = {"key": "key", "secret": "secret", "client_kwargs": {"endpoint_url": "http://127.0.0.1:5795"}}
        store = fsspec.filesystem("s3", **options)
        store.mkdir("bucket")
        files = {}
        for path, digest in self.files().items():
            url = f"s3://bucket/{os.path.basename(path)}"
            store.put_file(path, url)
            files[url] = digest
        self.assertEqual(dict(fleet.digests(files, shard=1, storage_options=options)), files)
        self.assertEqual(dict(fleet.trees(files, shard=1, storage_options=options)), files)
        url, digest = list(files.items())[-1]
        with fsspec.open("verity::" + url, s3=options, verity={"digest": str(digest)}) as file:
            file.seek(100_000_000)
            begin = file.read(100)
        with open(self.folder / os.path.basename(url), "rb") as file:
            file.seek(100_000_000)
            self.assertEqual(file.read(100), begin)
        # Only what has changed is read again; an object that changes under a task is told.
        before = [entry for _, entry in fleet.manifest(files, shard=1, storage_options=options)]
        done = []
        list(fleet.digests(files, before=before, storage_options=options, progress=done.append))
        self.assertEqual(done, [0])
        (task, *_) = fleet.plan([url], shard=1, storage_options=options)
        data = store.cat_file(url)
        store.pipe_file(url, data[:50] + b"?" + data[51:])
        (part,) = fleet.run(task)
        self.assertIn("changed", part.error)
        (wrong,) = [wrong for name, wrong in fleet.verify(before, shard=1, storage_options=options) if wrong is not None]
        self.assertIsInstance(wrong, casemate.MismatchError)
        with self.assertRaises(casemate.MismatchError), fsspec.open("verity::" + url, s3=options, verity={"digest": str(digest)}) as file:
            file.read()


if __name__ == "__main__":
    unittest.main()
