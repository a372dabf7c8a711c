"""How attempts with bad input are run: each for so long and in so much memory at most, each kind of fault shown once."""

from __future__ import annotations

import resource
import signal
from collections import Counter
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TypeVar

T = TypeVar("T")


class Late(BaseException):
    """An attempt that takes longer than any may; no attempt's own handlers catch it."""


def faults(attempts: Iterable[T], fault: Callable[[T], str], shown: Callable[[T, str], None], seconds: int, megabytes: int) -> tuple[int, Counter[str]]:
    """How many attempts there were, and how many of them showed each fault: what `fault` says of one, or that it took longer than so many seconds. `shown` is
    called with the first attempt of each kind. This process may have so much memory from now on."""
    def late(number: int, frame: FrameType | None) -> None:
        raise Late(f"more than {seconds} s")

    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
    signal.signal(signal.SIGALRM, late)
    count, found = 0, Counter[str]()
    for attempt in attempts:
        count += 1
        signal.alarm(seconds)
        try:
            wrong = fault(attempt)
        except Late as stopped:
            wrong = str(stopped)
        signal.alarm(0)
        if wrong:
            if not found[wrong]:
                shown(attempt, wrong)
            found[wrong] += 1
    return count, found
