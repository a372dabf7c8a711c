"""Work that two processes share where that is safe."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")
R = TypeVar("R")

MOST = 1 << 14
"""Items whose numbers a pipe holds."""
BETWEEN, STOP = 0.05, b"stop"
"""Seconds between two looks at whether an outcome is still wanted; and what is said to a copy where it is not."""
ONE_THREAD = ("torch", "triton", "tilelang")
"""Modules that start threads of their own, of which a copy of the process would have none."""


def halved(items: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """`work` of each item, in their order. A copy of this process takes part, where there is a second core and this process has no other
    threads: both take the next item from one queue, the last one first. What the copy does not bring back is done here. `work` must not
    write anything, and its results are pickled."""
    done: dict[int, R] = {}
    if 1 < len(items) < MOST and may_be_copied():
        queue, fill = os.pipe()
        os.write(fill, b"".join(number.to_bytes(2, "big") for number in reversed(range(len(items)))))
        os.close(fill)
        source, sink = os.pipe()
        copy = os.fork()
        if not copy:
            try:
                os.close(source)
                with os.fdopen(sink, "wb") as to:
                    to.write(pickle.dumps({number: work(items[number]) for number in _taken(queue)}))
            finally:
                os._exit(0)  # nothing that this process has begun is ended twice
        os.close(sink)
        with os.fdopen(source, "rb") as back:
            try:
                done = {number: work(items[number]) for number in _taken(queue)}
                told = back.read()
            finally:
                os.close(queue)
                back.close()
                os.waitpid(copy, 0)
        with suppress(EOFError, ValueError, pickle.UnpicklingError):
            done |= pickle.loads(told)
    return [done[number] if number in done else work(item) for number, item in enumerate(items)]


def _taken(queue: int) -> Iterator[int]:
    """Numbers of items, each taken from the queue when it is asked for."""
    while number := os.read(queue, 2):
        yield int.from_bytes(number, "big")


def may_be_copied() -> bool:
    """Whether a copy of this process would find all that it needs, and a core of its own."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores > 1 and hasattr(os, "fork") and threading.active_count() == 1 and not any(name in sys.modules for name in ONE_THREAD)


class Copy(Generic[T, R]):
    """A copy of this process that does `work` for it: of an item, and of a function that says whether the outcome is of no use any more. Items and
    outcomes are pickled. Made where `may_be_copied` says that it can be; it ends when it is closed, or with this process."""

    def __init__(self, work: Callable[[T, Callable[[], bool]], R]) -> None:
        from multiprocessing import Pipe
        self._here, there = Pipe()
        self._process = os.fork()
        if not self._process:
            with suppress(BaseException):  # an interrupt of all processes of the terminal, too
                self._here.close()
                _serve(there, work)
            os._exit(0)
        there.close()

    def ask(self, item: T, stopped: Callable[[], bool]) -> R:
        """The outcome for an item. `stopped` is asked again and again until it is there. Raises EOFError where the copy is gone, or its work failed."""
        told = False
        try:
            self._here.send_bytes(pickle.dumps(item))
            while not self._here.poll(BETWEEN):
                if not told and stopped():
                    told = True
                    self._here.send_bytes(STOP)
            found: R = pickle.loads(self._here.recv_bytes())
        except (OSError, ValueError, pickle.PickleError) as gone:
            self.close()
            raise EOFError(str(gone)) from gone
        return found

    def close(self) -> None:
        """End the copy, and wait for it."""
        if not self._here.closed:
            self._here.close()
            with suppress(ProcessLookupError):
                os.kill(self._process, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self._process, 0)


def _serve(channel: Connection, work: Callable[[T, Callable[[], bool]], R]) -> None:
    """Items as they come, until there are no more or one cannot be done."""
    while True:
        told = channel.recv_bytes()
        if told == STOP:
            continue  # of an outcome that was already on its way
        asked: T = pickle.loads(told)
        stops = [False]

        def stopped(stops: list[bool] = stops) -> bool:
            if not stops[0] and channel.poll():
                stops[0] = channel.recv_bytes() == STOP
            return stops[0]
        channel.send_bytes(pickle.dumps(work(asked, stopped)))
