"""Progress on standard error: a bar on a terminal, and nothing where no one looks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(title: str, total: int | None = None) -> Iterator[Callable[[str], None]]:
    """A progress bar; the value is called with a line of text each time that one more is done. ``total`` None: not known."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    counted = (BarColumn(), MofNCompleteColumn()) if total is not None else (TextColumn("{task.completed}"),)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), *counted, TimeElapsedColumn(), TextColumn("[dim]{task.fields[now]}"))
    with Progress(*columns, console=Console(stderr=True, highlight=False), transient=True) as progress:
        task = progress.add_task(title, total=total, now="")

        def advance(text: str) -> None:
            progress.update(task, advance=1, now=text[:80].replace("[", "\\["))

        yield advance
