"""What is being done, for whoever wants to watch: told by what takes long, shown where somebody looks, and lost elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from threading import RLock
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
_SOLVING = RLock()
Watcher = Callable[[str, "int | None", "int | None"], None]
"""Called with what is done now, how many of its parts are done, and how many there are (None: not known)."""
_END: ContextVar[float | None] = ContextVar("end", default=None)
_WATCHER: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


def solving(ask: Callable[P, R]) -> Callable[P, R]:
    """A function that asks z3, one thread after the other: all of a process share what z3 holds, the number of its steps too."""
    @wraps(ask)
    def alone(*args: P.args, **named: P.kwargs) -> R:
        with _SOLVING:
            return ask(*args, **named)
    return alone


def doing(what: str, done: int | None = None, total: int | None = None) -> None:
    """Say what is done now. Costs next to nothing where nobody watches."""
    watcher = _WATCHER.get()
    if watcher is not None:
        watcher(what, done, total)


@contextmanager
def watched(by: Watcher) -> Iterator[None]:
    """Who is told of what is done inside."""
    token = _WATCHER.set(by)
    try:
        yield
    finally:
        _WATCHER.reset(token)


@contextmanager
def ending(at: float | None) -> Iterator[None]:
    """What is done inside is of no use any more from a time (of `time.monotonic`) on; None: it always is."""
    token = _END.set(at)
    try:
        yield
    finally:
        _END.reset(token)


def end() -> float | None:
    """The time from which on what is being done here is of no use any more."""
    return _END.get()


def left(seconds: float) -> float:
    """So many seconds, or those until what is being done here is of no use any more."""
    at = _END.get()
    return seconds if at is None else max(0.01, min(seconds, at - time.monotonic()))


def late() -> bool:
    """Whether what is being done here is of no use any more."""
    at = _END.get()
    return at is not None and time.monotonic() > at
