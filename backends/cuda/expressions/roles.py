"""Roles of warps as C++: an enumeration that names them, and which of them a thread has."""
from __future__ import annotations

from kir.ir import nodes as n

from ..._cpp_names import RESERVED
from .expressions import Writer

IDLE = "idle"
"""What warps are that have no role."""


def chosen(w: Writer, s: n.Roles, threads: int) -> list[str]:
    """Writes the enumeration and the role of a thread; the conditions under which a thread has each role, in their order."""
    kind, own = w.fresh("Role"), w.fresh("role")
    names = [f"{r.name}_" if r.name in RESERVED or r.name == IDLE or r.name.endswith("_") else r.name for r in s.roles]
    segments = _segments([(32 * r.lo, 32 * r.hi, name) for r, name in zip(s.roles, names, strict=True)], threads)
    w.put(f"enum class {kind} {{ {', '.join(dict.fromkeys(name for _, name in segments))} }};")
    picks = "".join(f"threadIdx.x < {end} ? {kind}::{name} : " for end, name in segments[:-1])
    w.put(f"const {kind} {own} = {picks}{kind}::{segments[-1][1]};")
    return [f"{own} == {kind}::{name}" for name in names]


def _segments(roles: list[tuple[int, int, str]], threads: int) -> list[tuple[int, str]]:
    """Which role each thread has: ends of runs of threads and their role, those between roles being idle."""
    out: list[tuple[int, str]] = []
    at = 0
    for first, end, name in sorted(roles):
        out += [(first, IDLE)] if first > at else []
        out.append((end, name))
        at = end
    return [*out, (threads, IDLE)] if at < threads else out
