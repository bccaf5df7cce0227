"""Threads for work on this machine, which end when somebody wants the results no more, as at Ctrl-C."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

#: Seconds after which a thread that waits asks whether it should go on, and for how many the end of a crew waits for its threads.
ASK, PATIENCE = 0.05, 0.3

_here = threading.local()


class Stopped(KeyboardInterrupt):
    """Nobody wants the result any more."""


class Crew:
    """Threads that do calls in their order. The end of the `with` block stops them: it does not wait for calls that are in
    progress, such as those of a store that does not answer, nor does the end of the interpreter."""

    def __init__(self, count: int) -> None:
        self._count, self._above = count, current()
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._is_stopped = False

    def submit(self, work: Callable[..., Any], *given: Any) -> Future[Any]:
        """The result of a call, which a thread makes."""
        future: Future[Any] = Future()
        self._calls.put((future, lambda: work(*given)))
        if len(self._threads) < self._count:
            self._threads.append(threading.Thread(target=self._serve, daemon=True))
            self._threads[-1].start()
        return future

    def check(self, *_: object) -> None:
        """Ends the work of a thread whose result nobody wants; a listener for progress."""
        if self._is_stopped:
            raise Stopped
        if self._above is not None:
            self._above.check()

    def stop(self) -> None:
        """Ends the threads, each after its call."""
        self._is_stopped = True
        for _ in self._threads:
            self._calls.put(None)

    def _serve(self) -> None:
        _here.crew = self
        while (call := self._calls.get()) is not None:
            future, work = call
            if self._is_stopped or not future.set_running_or_notify_cancel():
                future.cancel()
                continue
            try:
                result = work()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            # Nothing is kept while the thread waits for the next call.
            del call, future, work

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        end = time.monotonic() + PATIENCE
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0))


def current() -> Crew | None:
    """The crew that this thread belongs to."""
    found: Crew | None = getattr(_here, "crew", None)
    return found


def listener() -> Callable[[int], None] | None:
    """A listener for the progress of work of this thread, which ends it when nobody wants the result."""
    crew = current()
    return None if crew is None else crew.check


def result(future: Future[Any], crew: Crew | None) -> Any:
    """The result of a future, unless nobody wants it any more. Not `Future.result` with a timeout: the call may have raised that."""
    while not wait([future], ASK).done:
        if crew is not None:
            crew.check()
    return future.result()
