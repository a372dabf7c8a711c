"""Work that two processes share where that is safe."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

ONE_THREAD = ("torch", "triton", "tilelang")
"""Modules that start threads of their own, of which a copy of the process would have none."""


def halved(items: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """`work` of each item, in their order. A copy of this process does every second one, where there is a second core and this process has
    no other threads; what the copy does not bring back is done here. `work` must not write anything, and its results are pickled."""
    if len(items) < 2 or not may_be_copied():
        return [work(x) for x in items]
    out: list[R | None] = [None] * len(items)
    source, sink = os.pipe()
    copy = os.fork()
    if not copy:
        try:
            os.close(source)
            with os.fdopen(sink, "wb") as to:
                to.write(pickle.dumps([work(x) for x in items[1::2]]))
        finally:
            os._exit(0)  # nothing that this process has begun is ended twice
    os.close(sink)
    with os.fdopen(source, "rb") as back:
        try:
            out[0::2] = [work(x) for x in items[0::2]]
            told = back.read()
        finally:
            back.close()
            os.waitpid(copy, 0)
    try:
        out[1::2] = pickle.loads(told)
    except (EOFError, ValueError, pickle.UnpicklingError):
        out[1::2] = [work(x) for x in items[1::2]]
    return out  # type: ignore[return-value]  # every place is filled


def may_be_copied() -> bool:
    """Whether a copy of this process would find all that it needs, and a core of its own."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores > 1 and hasattr(os, "fork") and threading.active_count() == 1 and not any(name in sys.modules for name in ONE_THREAD)
