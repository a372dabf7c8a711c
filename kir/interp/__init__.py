"""Reference semantics: what a program means, on NumPy, with no GPU. `run` is the whole interface, `run_within` the same with an end.

Fast mode computes; checking mode also plays the adversary (races, undefined values, bounds, alignment, barriers, asynchronous timing)
and returns findings. Both give the same values.

Order: numerics, state, memory_access, scheduling, calls, checking, native, evaluation, launch.
"""
from kir.interp.launch import run, run_within
from kir.interp.state.result import Access, Counters, Finding, Result

__all__ = ["Access", "Counters", "Finding", "Result", "run", "run_within"]
