"""Engines that run tasks: executors, Ray, Dask and Spark, each in its own way."""

from __future__ import annotations

import itertools
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, ThreadPoolExecutor, wait
from typing import Any

from .crew import Crew

#: A task, what it came to, and what went wrong.
Result = tuple[Any, Any, Exception | None]


def results(
    engine: Any, work: Callable[[Any], Any], tasks: Iterable[Any], threads: int | None = 1,
    resources: Mapping[str, Any] | None = None,
) -> Iterator[Result]:
    """Tasks with what has become of them, as they come back; a bounded number are on their way. `resources` are what the engine
    is told that a task needs, in its own words."""
    hints = dict(resources or {})
    name = type(engine).__module__.partition(".")[0]
    if engine is None:
        with Crew(os.cpu_count() or 1) as crew:
            yield from _futures(crew.submit, wait, work, tasks, lambda: 2 * (os.cpu_count() or 1))
    elif isinstance(engine, Executor):
        yield from _futures(engine.submit, wait, work, tasks, lambda: 64)
    elif getattr(engine, "__name__", "") == "ray":
        yield from _ray(engine, work, tasks, {"num_cpus": threads or 1, **hints})
    elif getattr(engine, "__name__", "") == "ray.data":
        yield from _ray_data(engine, work, tasks, {"num_cpus": threads or 1, **hints})
    elif name == "distributed":
        yield from _dask(engine, work, tasks, hints)
    elif name == "pyspark":
        yield from _spark(engine, work, tasks)
    else:
        raise TypeError(f"{engine!r} is not an engine: an executor, the modules ray or ray.data, a dask Client or a SparkSession")


def _futures(
    submit: Callable[..., Any], wait_for: Callable[..., Any], work: Callable[[Any], Any], tasks: Iterable[Any],
    most: Callable[[], int],
) -> Iterator[Result]:
    """Results of futures; as many as `most` says at this moment are on their way."""
    running: dict[Any, Any] = {}
    waiting = iter(tasks)
    while True:
        room = most() - len(running)
        while room > 0 and (task := next(waiting, None)) is not None:
            try:
                running[submit(work, task)] = task
                room -= 1
            except RuntimeError as broken:
                # The executor has lost its workers.
                yield task, None, broken
        if not running:
            return
        finished, _ = wait_for(list(running), return_when=FIRST_COMPLETED)
        for future in finished:
            task = running.pop(future)
            try:
                result, error = future.result(), None
            except Exception as raised:
                result, error = None, raised
            yield task, result, error


def _call(work: Callable[[Any], Any], task: Any) -> Any:
    # Ray wants a function by its name.
    return work(task)


def _ray(ray: Any, work: Callable[[Any], Any], tasks: Iterable[Any], hints: Mapping[str, Any]) -> Iterator[Result]:
    remote = ray.remote(**hints)(_call)
    running: dict[Any, Any] = {}
    waiting = iter(tasks)
    while True:
        # Clusters grow and shrink.
        room = 2 * int(ray.cluster_resources().get("CPU", 1)) - len(running)
        while (room > 0 or not running) and (task := next(waiting, None)) is not None:
            room -= 1
            running[remote.remote(work, task)] = task
        if not running:
            return
        finished, _ = ray.wait(list(running), num_returns=1)
        for reference in finished:
            task = running.pop(reference)
            try:
                result, error = ray.get(reference), None
            except Exception as raised:
                result, error = None, raised
            yield task, result, error


def _ray_data(data: Any, work: Callable[[Any], Any], tasks: Iterable[Any], hints: Mapping[str, Any]) -> Iterator[Result]:
    def each(row: dict[str, Any]) -> dict[str, Any]:
        return {"number": row["number"], "result": _answer(work, row["task"])}

    all_tasks = list(tasks)
    rows = [{"number": number, "task": pickle.dumps(task)} for number, task in enumerate(all_tasks)]
    if rows:
        # Each task is a block of its own: some take a second, some a millisecond.
        items = data.from_items(rows, override_num_blocks=min(len(rows), 4096))
        for row in items.map(each, **hints).iter_rows():
            result, error = pickle.loads(row["result"])
            yield all_tasks[row["number"]], result, error


def _dask(client: Any, work: Callable[[Any], Any], tasks: Iterable[Any], hints: Mapping[str, Any]) -> Iterator[Result]:
    from distributed import wait as wait_for

    def submit(work: Callable[[Any], Any], task: Any) -> Any:
        return client.submit(work, task, pure=False, resources=dict(hints) or None)

    yield from _futures(submit, wait_for, work, tasks, lambda: 4 * max(int(sum(client.nthreads().values())), 1))


def _answer(work: Callable[[Any], Any], task: bytes) -> bytes:
    """Result of a task, for engines that send rows."""
    try:
        return pickle.dumps((work(pickle.loads(task)), None))
    except Exception as raised:
        return pickle.dumps((None, OSError(str(raised))))


def _spark(spark: Any, work: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Result]:
    import pyarrow

    schema = pyarrow.schema([("number", pyarrow.int64()), ("result", pyarrow.binary())])

    def each(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        for batch in batches:
            for number, task in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                result = _answer(work, task)
                yield pyarrow.RecordBatch.from_pydict({"number": [number], "result": [result]}, schema)

    def job(wave: list[Any]) -> list[Any]:
        rows = [(number, bytearray(pickle.dumps(task))) for number, task in enumerate(wave)]
        frame = spark.sparkContext.parallelize(rows, len(rows)).toDF("number long, task binary")
        return list(frame.mapInArrow(each, "number long, result binary").collect())

    # A job for a few tasks of each slot, and another one behind it: results come while others are at work.
    waiting, most = iter(tasks), 4 * spark.sparkContext.defaultParallelism
    waves = iter(lambda: list(itertools.islice(waiting, most)), [])
    with ThreadPoolExecutor(2) as pool:
        for wave, rows, failed in _futures(pool.submit, wait, job, waves, lambda: 2):
            if failed is not None:
                yield from ((task, None, failed) for task in wave)
                continue
            for row in rows:
                result, error = pickle.loads(bytes(row.result))
                yield wave[row.number], result, error
