"""A round-robin scheduler of coroutines that sees deadlocks."""
from __future__ import annotations

from collections.abc import Iterator

from kir.interp.scheduling.async_operations import complete_one
from kir.interp.scheduling.barriers import deadlock
from kir.interp.state.machine import Machine
from kir.interp.state.tasks import Task

SPIN_LIMIT = 2_000
"""Rounds in which every runnable coroutine only polls, after which the kernel counts as stuck."""


def drive(m: Machine, roots: Iterator[Task], most: int) -> None:
    """Runs coroutines to their end, at most `most` roots at a time. Reports a deadlock (KIR-I020) when none can go on."""
    running: list[Task] = []
    m.tasks = running
    spun, exhausted = 0, False
    while True:
        while not exhausted and len(running) < most:
            task = next(roots, None)
            if task is None:
                exhausted = True
            else:
                running.append(task)
        if not running:
            return
        moved = polled = 0
        for task in list(reversed(running)) if m.lazy else list(running):
            if task.wait is not None and not task.wait.ready():
                continue
            polling = task.wait is not None and task.wait.spinning
            moved, polled = moved + 1, polled + polling
            step(m, task)
            if task.done:
                running.remove(task)
        spun = spun + 1 if moved and moved == polled else 0
        if (not moved and not complete_one(m)) or spun > SPIN_LIMIT:
            deadlock(m, running)
            running.clear()


def step(m: Machine, task: Task) -> None:
    """Runs a coroutine until it waits or ends."""
    m.site, m.task = task.site, task
    try:
        task.wait = next(task.steps)
    except StopIteration:
        task.done, task.wait = True, None
    task.site = m.site
