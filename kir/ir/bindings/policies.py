"""Cache policies, orders and scopes of atomics that a setting decides: `evict_by_NAME` is the eviction policy that the meta NAME holds, a text or nothing,
`cached_by_NAME` the cache modifier, `order_by_NAME` the order of an atomic and `scope_by_NAME` its scope."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kir.base.diagnostic import error

from .. import nodes as n
from ..visit import transform, walk

CACHED_BY = "cached_by_"
EVICTED_BY = "evict_by_"
ORDERED_BY = "order_by_"
SCOPED_BY = "scope_by_"
ATOMICS = {"order": (ORDERED_BY, "acq_rel", frozenset({"relaxed", "acquire", "release", "acq_rel"})),
           "scope": (SCOPED_BY, "gpu", frozenset({"cta", "gpu", "sys"}))}
"""What a setting may say of an atomic: how its name is marked, what Triton has where nothing is said, and the texts that it takes."""
POLICIES = frozenset({"", "evict_first", "evict_last", "evict_normal"})
"""Texts that Triton takes as an eviction policy; `evict_normal` is what an access has without one."""
MODIFIERS = frozenset({"", ".ca", ".cg", ".cv", ".wb", ".cs", ".wt"})
"""Texts that Triton takes as a cache modifier of a load or a store."""


def settled(program: n.Program, settings: Mapping[str, object]) -> n.Program:
    """The program with each policy, order and scope that a setting decides in words. Raises KirError KIR-F012 for a setting that is none."""
    if not any(_decided(x) if isinstance(x, (n.Load, n.Store)) else _ordered(x) for k in program.kernels for s in k.body for x in walk(s)):
        return program

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, (n.Load, n.Store)) and _decided(new):
            return replace(new, cache=_word(new.cache, settings))
        if isinstance(new, n.Call) and (names := _ordered(new)):
            said = dict(new.attrs)
            for what, name in names.items():
                _, usual, known = ATOMICS[what]
                value = settings.get(name) or usual
                if value not in known:
                    raise error("KIR-F012", f"meta '{name}' is {value!r}, and the {what} of an atomic is meant", needs=f"one of {', '.join(sorted(known))}")
                said[what] = str(value)
            return replace(new, attrs=n.attrs(**said))
        return new

    made: n.Program = transform(program, leave)
    return made


def _ordered(x: n.Node) -> dict[str, str]:
    """The metas that decide the order and the scope of an atomic, by what they decide."""
    said = dict(x.attrs) if isinstance(x, n.Call) else {}
    return {what: str(said[what]).removeprefix(mark) for what, (mark, _, _) in ATOMICS.items() if str(said.get(what, "")).startswith(mark)}


def _decided(x: n.Load | n.Store) -> bool:
    """Whether a setting decides some of the cache policy of an access."""
    return EVICTED_BY in x.cache or x.cache.startswith(CACHED_BY)


def parts_of(cache: str) -> tuple[str, str, str]:
    """A cache policy as the meta that holds its modifier, the meta that holds its eviction policy, and the words beside; "" for what no meta decides."""
    before, _, evicted = cache.partition(EVICTED_BY)
    modified = before.startswith(CACHED_BY)
    name = before.removeprefix(CACHED_BY).rstrip("_") if modified else ""
    rest = [] if modified else [before.rstrip("_")]
    for word in ("volatile", "evict_first", "evict_last"):  # what stands behind a name of the two
        last = evicted or name
        if last.endswith(f"_{word}"):
            rest.append(word)
            evicted, name = (evicted.removesuffix(f"_{word}"), name) if evicted else ("", name.removesuffix(f"_{word}"))
    return name, evicted, "_".join(w for w in rest if w)


def _word(cache: str, settings: Mapping[str, object]) -> str:
    name, evicted, rest = parts_of(cache)
    modifier, value = settings.get(name) or "", settings.get(evicted) or ""
    if modifier not in MODIFIERS:
        raise error("KIR-F012", f"meta '{name}' is {modifier!r}, and a cache modifier is meant", needs=f"one of {', '.join(sorted(MODIFIERS - {''}))}")
    if value not in POLICIES:
        raise error("KIR-F012", f"meta '{evicted}' is {value!r}, and an eviction policy is meant", needs=f"one of {', '.join(sorted(POLICIES - {''}))}")
    first, _, last = rest.rpartition("_") if rest.endswith("volatile") else (rest, "", "")
    return "_".join(w for w in (str(modifier).lstrip("."), first, "" if value == "evict_normal" else str(value), last) if w)
