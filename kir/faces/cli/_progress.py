"""Progress on standard error: on a terminal what is being done, and for how long, of everything that takes longer than a moment; elsewhere nothing, or, for
programs that set KIR_PROGRESS=lines, a JSON object a line."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from kir.base.working import doing, watched

A_MOMENT = 2.0
"""Seconds after which a command that still works says so."""
TALKING = frozenset({"bind", "capture", "carrier", "completion", "explore", "mcp", "new"})
"""Commands that ask, serve, or hand the terminal to another program."""
LINES = "KIR_PROGRESS"
"""The variable that asks for lines (`lines`) instead of a display."""


@contextmanager
def bar(title: str, total: int | None = None) -> Iterator[Callable[[str], None]]:
    """A count of what is done; the value is called with a line of text each time that one more is. ``total`` None: not known."""
    done = 0
    doing(title, 0, total)

    def advance(text: str) -> None:
        nonlocal done
        done += 1
        doing(f"{title}: {text}", done, total)
    yield advance


@contextmanager
def shown(command: str) -> Iterator[None]:
    """Show what is told of inside: on a terminal from the second second on, one line that is gone at the end."""
    if os.environ.get(LINES) == "lines":
        with watched(_told):
            yield
    elif sys.stderr.isatty() and command not in TALKING:
        display = _Display(f"kir {command}")
        with watched(display.told):
            try:
                yield
            finally:
                display.close()
    else:
        yield


def _told(what: str, done: int | None, total: int | None) -> None:
    print(json.dumps({"progress": done, "total": total, "doing": what}), file=sys.stderr, flush=True)


class _Display:
    """A line on the terminal, made when the command has taken its time: what is done, how much of it, for how long, and how long it may still take."""

    def __init__(self, command: str) -> None:
        self.begun = time.monotonic()
        self.now: tuple[str, int | None, int | None] = (command, None, None)
        self.first = (self.begun, 0)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def told(self, what: str, done: int | None, total: int | None) -> None:
        if total != self.now[2] or not done:
            self.first = (time.monotonic(), done or 0)
        self.now = (what, done, total)

    def close(self) -> None:
        """Take the line away."""
        self.over.set()
        self.thread.join()

    def _run(self) -> None:
        if self.over.wait(A_MOMENT):
            return
        from rich.console import Console

        with suppress(Exception), Console(stderr=True, highlight=False).status("") as status:  # a terminal that is gone is no fault of the command's
            while True:
                status.update(said(self.now, time.monotonic() - self.begun, time.monotonic() - self.first[0], self.first[1]))
                if self.over.wait(0.25):
                    return


def said(now: tuple[str, int | None, int | None], seconds: float, since: float, first: int) -> str:
    """The line: what is done, how much of it, for how long; and about how long still, once enough is known (`since` seconds ago `first` were done)."""
    what, done, total = now
    count = f" {done}{f' of {total}' if total else ''}," if done is not None else ""
    left = ""
    if done and total and done > first:
        left = f", about {max(0.0, (total - done) * since / (done - first)):.0f} s left"
    return f"{what[:100]},{count} {seconds:.0f} s{left}".replace("[", "\\[")
