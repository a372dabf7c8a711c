"""What is worth telling beside a result: whoever calls collects it, and where nobody does it is left out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from kir.base.diagnostic import Diagnostic

_COLLECTED: ContextVar[list[Diagnostic] | None] = ContextVar("notices", default=None)


def tell(notice: Diagnostic) -> None:
    """Add a notice for whoever collects them, once."""
    collected = _COLLECTED.get()
    if collected is not None and notice not in collected:
        collected.append(notice)


@contextmanager
def notices() -> Iterator[list[Diagnostic]]:
    """The notices that are told inside."""
    collected: list[Diagnostic] = []
    token = _COLLECTED.set(collected)
    try:
        yield collected
    finally:
        _COLLECTED.reset(token)
