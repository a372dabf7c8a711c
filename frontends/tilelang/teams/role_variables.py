"""A thread's own variables that branches on its number use, apart for branches that no thread takes both of: what one role keeps says nothing of another's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import statements, substitute_buffers, walk

from .divergence import is_local
from .mentions import seen
from .thread_variables import mentions
from .warp_roles import MOST_THREADS, evaluated


@dataclass(frozen=True)
class Arm:
    """One way through a branch: where it stands, whether it is the one where the condition holds, and the threads that take it."""

    at: int
    holds: bool
    threads: frozenset[int]


def apart(block: n.Block, thread: str, threads: n.Expr, fresh: Callable[[str], str]) -> n.Block:
    """The block with a variable of its own for each group of branches that share threads, in place of one that only such branches use."""
    count = build.int_value(threads)
    if count is None or not 0 < count <= MOST_THREADS:
        return block
    named = {s.names[0]: s.value for s in statements(block) if isinstance(s, n.Let) and len(s.names) == 1 and _plain(s.value)}
    arms = {k: found for k, s in enumerate(block) if isinstance(s, n.If) and (found := list(_arms(k, s, thread, count, named)))}
    if len(arms) < 2:
        return block
    out: list[n.Stmt] = list(block)
    copies: dict[int, list[n.Stmt]] = {}
    for k, s in enumerate(block):
        if not (isinstance(s, n.Alloc) and is_local(s.buffer) and (s.init is None or _plain(s.init))):
            continue
        users = [j for j, x in enumerate(block) if j != k and mentions(x, s.buffer.name)]
        if not all(j in arms and j > k and s.buffer.name not in seen(_branch(block[j]).cond).buffers for j in users):
            continue
        using = [arm for j in users for arm in arms[j] if any(mentions(x, s.buffer.name) for x in _ways(block[j])[not arm.holds])]
        for group in _groups(using)[1:]:
            own = replace(s.buffer, name=fresh(s.buffer.name))
            copies.setdefault(k, []).append(replace(s, buffer=own))
            for arm in group:
                out[arm.at] = _with(_branch(out[arm.at]), arm.holds, s.buffer, own)
    return tuple(x for k, s in enumerate(out) for x in (s, *copies.get(k, ())))


def _plain(e: n.Expr) -> bool:
    """Whether an expression is arithmetic on names and numbers."""
    return not seen(e).loads and not any(isinstance(x, n.Call) for x in walk(e))


def _arms(at: int, s: n.If, thread: str, count: int, named: dict[str, n.Expr]) -> Iterator[Arm]:
    values = [evaluated(s.cond, {thread: t}, named) for t in range(count)]
    if None in values:
        return
    for holds in (True, False):
        if _ways(s)[not holds]:
            yield Arm(at, holds, frozenset(t for t, v in enumerate(values) if bool(v) == holds))


def _branch(s: n.Stmt) -> n.If:
    assert isinstance(s, n.If)
    return s


def _ways(s: n.Stmt) -> tuple[n.Block, n.Block]:
    return _branch(s).then, _branch(s).orelse


def _groups(arms: list[Arm]) -> list[list[Arm]]:
    """Arms that some thread takes both of together, in order."""
    out: list[list[Arm]] = []
    for arm in arms:
        near = [g for g in out if any(arm.threads & x.threads for x in g)]
        out = [g for g in out if g not in near]
        out.append([*(x for g in near for x in g), arm])
    return sorted(out, key=lambda g: min(x.at for x in g))


def _with(s: n.If, holds: bool, old: n.Buffer, new: n.Buffer) -> n.If:
    block = tuple(substitute_buffers(x, {old.name: new}) for x in _ways(s)[not holds])
    return replace(s, then=block) if holds else replace(s, orelse=block)
