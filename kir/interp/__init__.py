"""Reference semantics: what a program means, on NumPy, with no GPU. `run` is the whole interface.

Fast mode computes; checking mode also plays the adversary (races, undefined values, bounds, alignment, barriers, asynchronous timing)
and returns findings. Both give the same values.
"""
from kir.interp.launch import run
from kir.interp.result import Access, Counters, Finding, Result

__all__ = ["Access", "Counters", "Finding", "Result", "run"]
