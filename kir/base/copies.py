"""Copies of this process that work for it: what each of them has worked out stays there for what it is asked next."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

BETWEEN, STOP = 0.05, b"stop"
"""Seconds between two looks at whether an outcome is still wanted; and what is said to a copy where it is not."""


class Copy(Generic[T, R]):
    """A copy of this process that does `work` for it: of an item, and of a function that says whether the outcome is of no use any more. Items and
    outcomes are pickled. Made where `kir.base.fork_map.may_be_copied` says that it can be; it ends when it is closed, or with this process."""

    def __init__(self, work: Callable[[T, Callable[[], bool]], R]) -> None:
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
