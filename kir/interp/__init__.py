"""Reference semantics: what a program means, on NumPy, with no GPU. `run` is the whole interface, `run_within` the same with an end.

Fast mode computes; checking mode also plays the adversary (races, undefined values, bounds, alignment, barriers, asynchronous timing)
and returns findings. Both give the same values.

Importing this package reads nothing; each part is loaded when it is used, so that what only reads a kernel does without.

Order: numerics, state, memory_access, scheduling, calls, checking, native, evaluation, launch.
"""
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kir.interp.launch import run, run_within
    from kir.interp.state.result import Access, Counters, Finding, Result

__all__ = ["Access", "Counters", "Finding", "Result", "run", "run_within"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{'launch' if name.startswith('run') else 'state.result'}"), name)
    return found
