"""Cache policies and orders of atomics that a setting decides: `evict_by_NAME` is the eviction policy that the meta NAME holds, a text or nothing, and
`order_by_NAME` the order of an atomic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kir.base.diagnostic import error

from .. import nodes as n
from ..visit import transform, walk

EVICTED_BY = "evict_by_"
ORDERED_BY = "order_by_"
ORDERS = frozenset({"relaxed", "acquire", "release", "acq_rel"})
POLICIES = frozenset({"", "evict_first", "evict_last", "evict_normal"})
"""Texts that Triton takes as an eviction policy; `evict_normal` is what an access has without one."""


def settled(program: n.Program, settings: Mapping[str, object]) -> n.Program:
    """The program with each policy and order that a setting decides in words. Raises KirError KIR-F012 for a setting that is none."""
    if not any(EVICTED_BY in x.cache if isinstance(x, (n.Load, n.Store)) else _order(x) for k in program.kernels for s in k.body for x in walk(s)):
        return program

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, (n.Load, n.Store)) and EVICTED_BY in new.cache:
            return replace(new, cache=_word(new.cache, settings))
        if isinstance(new, n.Call) and (name := _order(new)):
            value = settings.get(name) or "acq_rel"  # as Triton has it where nothing is said
            if value not in ORDERS:
                raise error("KIR-F012", f"meta '{name}' is {value!r}, and the order of an atomic is meant", needs=f"one of {', '.join(sorted(ORDERS))}")
            return replace(new, attrs=n.attrs(**{**dict(new.attrs), "order": str(value)}))
        return new

    made: n.Program = transform(program, leave)
    return made


def _order(x: n.Node) -> str:
    """The meta that decides the order of an atomic; "" where none does."""
    said = str(dict(x.attrs).get("order", "")) if isinstance(x, n.Call) else ""
    return said.removeprefix(ORDERED_BY) if said.startswith(ORDERED_BY) else ""


def _word(cache: str, settings: Mapping[str, object]) -> str:
    before, _, name = cache.partition(EVICTED_BY)
    volatile = name.endswith("_volatile") and name not in settings
    name = name.removesuffix("_volatile") if volatile else name
    value = settings.get(name) or ""
    if value not in POLICIES:
        raise error("KIR-F012", f"meta '{name}' is {value!r}, and an eviction policy is meant", needs=f"one of {', '.join(sorted(POLICIES - {''}))}")
    words = (before.rstrip("_"), "" if value == "evict_normal" else str(value), "volatile" if volatile else "")
    return "_".join(w for w in words if w)
