"""Work that two processes share where that is safe."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

MOST = 1 << 14
"""Items whose numbers a pipe holds."""
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
