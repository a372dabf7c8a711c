"""Buffers that a static branch fills in one arm only, and that are mentioned where the other arm may have been taken.

What such a buffer holds then is poison, which no kernel uses: `alpha = None` under one setting, and copied around until a branch on the
same setting asks. A surface that reads every arm that is taken, and wants each name there to hold something, cannot say that. A value in
place of poison is a refinement, so `both_arms` puts zero there.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from functools import lru_cache

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, TileType, dtype_of
from kir.ir.visit import children, walk

Literal = tuple[n.Expr, bool]
"""A static condition and how it came out."""
Ways = frozenset[frozenset[Literal]]
"""Under which settings a buffer is filled, for all that is known: any of the sets of literals."""
_NEVER: Ways = frozenset()
_ALWAYS: Ways = frozenset({frozenset()})


@lru_cache(64)
def both_arms(p: n.Program) -> n.Program:
    """The program with zeros stored in the arms of static branches that leave a buffer poison which is mentioned later."""
    kernels = tuple(replace(k, body=_completed(k.body)) for k in p.kernels)
    functions = tuple(replace(f, body=_completed(f.body)) for f in p.functions)
    unchanged = all(a.body is b.body for a, b in zip(p.kernels, kernels, strict=True))
    unchanged = unchanged and all(a.body is b.body for a, b in zip(p.functions, functions, strict=True))
    return p if unchanged else replace(p, kernels=kernels, functions=functions)


def _completed(body: n.Block) -> n.Block:
    found = _Walk()
    found.block(body, {}, frozenset(), 0)
    return _Walk(frozenset(found.needed), True).block(body, {}, frozenset(), 0) if found.needed else body


@dataclass(frozen=True)
class _Known:
    """A buffer: when it is filled, how many loops are around its declaration, and itself."""

    ways: Ways
    loops: int
    buffer: n.Buffer


@dataclass
class _Walk:
    """Reads blocks in order; finds the buffers to complete, or (`mend`) completes them."""

    wanted: frozenset[str] = frozenset()
    mend: bool = False
    needed: set[str] = field(default_factory=set)

    def block(self, block: n.Block, known: dict[str, _Known], under: frozenset[Literal], loops: int) -> n.Block:
        """The block, completed; `known` is brought up to date."""
        out = [self._statement(s, known, under, loops) for s in block]
        return tuple(out) if any(a is not b for a, b in zip(out, block, strict=True)) else block

    def _statement(self, s: n.Stmt, known: dict[str, _Known], under: frozenset[Literal], loops: int) -> n.Stmt:
        match s:
            case n.Alloc(init=None) if s.buffer.space in ("register", "fragment"):
                known[s.buffer.name] = _Known(_NEVER, loops, s.buffer)
            case n.If():
                self._mentions(s.cond, known, under)
                return self._branch(s, known, under, loops)
            case n.For():
                for head in (s.lo, s.hi, s.step):
                    self._mentions(head, known, under)
                body = self.block(s.body, known, under, loops + 1)
                return s if body is s.body else replace(s, body=body)
            case n.While():
                self._mentions(s.cond, known, under)
                body = self.block(s.body, known, under, loops + 1)
                return s if body is s.body else replace(s, body=body)
            case n.Store(at=n.Region(index=()), mask=None) if s.at.buffer.name in known:
                self._mentions(s.value, known, under)
                _fill(known, s.at.buffer.name)
            case n.Copy(dst=n.Region(index=())) if s.dst.buffer.name in known:
                self._mentions(s.src, known, under)
                _fill(known, s.dst.buffer.name)
            case _:
                self._mentions(s, known, under)
        return s

    def _mentions(self, x: n.Node, known: dict[str, _Known], under: frozenset[Literal]) -> None:
        if not self.mend and known:
            for name in _buffers(x):
                if name in known and not any(way <= under for way in known[name].ways):
                    self.needed.add(name)

    def _branch(self, s: n.If, known: dict[str, _Known], under: frozenset[Literal], loops: int) -> n.If:
        outcomes = [frozenset(_learned(s.cond, held)) if s.static else frozenset[Literal]() for held in (True, False)]
        arms, states = [], []
        for body, learned in zip((s.then, s.orelse), outcomes, strict=True):
            state = dict(known)
            arms.append(self.block(body, state, under | learned, loops))
            states.append(state)
        for name, before in list(known.items()):
            ways = [state[name].ways for state in states]
            if ways[0] is before.ways and ways[1] is before.ways:  # neither arm touches it
                continue
            if self.mend and s.static and name in self.wanted and before.ways == _NEVER and before.loops == loops and (bool(ways[0]) != bool(ways[1])):
                poor = 0 if not ways[0] else 1
                if not _leaves(arms[poor]):
                    arms[poor] = (*arms[poor], n.Store(n.Region(before.buffer), _zero(before.buffer)))
                    ways[poor] = _ALWAYS
            ended = [_leaves(arm) for arm in arms]
            known[name] = replace(before, ways=_joined(before.ways, ways, outcomes, ended, s.static))
        if arms[0] is s.then and arms[1] is s.orelse:
            return s
        return replace(s, then=arms[0], orelse=arms[1])


def _joined(before: Ways, ways: list[Ways], outcomes: list[frozenset[Literal]], ended: list[bool], static: bool) -> Ways:
    """When a buffer is filled after a branch."""
    if ended[0] != ended[1]:
        return ways[1 if ended[0] else 0]
    if ways[0] == ways[1]:
        return ways[0]
    if static:
        return before | frozenset(way | learned for own, learned in zip(ways, outcomes, strict=True) for way in own)
    return before | frozenset(a | b for a in ways[0] for b in ways[1])


def _fill(known: dict[str, _Known], name: str) -> None:
    known[name] = replace(known[name], ways=_ALWAYS)


def _learned(cond: n.Expr, held: bool) -> Iterator[Literal]:
    """What the outcome of a condition says about its parts."""
    match cond:
        case n.Unary(op="not"):
            yield from _learned(cond.x, not held)
        case n.Binary(op="and" | "or") if (cond.op == "and") == held:
            yield from _learned(cond.a, held)
            yield from _learned(cond.b, held)
        case _:
            pass
    yield cond, held


def _buffers(x: n.Node) -> Iterator[str]:
    for child in (x, *children(x)) if isinstance(x, n.Stmt) else (x,):
        if not isinstance(child, n.Stmt):
            yield from (b.name for b in walk(child) if isinstance(b, n.Buffer))


def _leaves(block: n.Block) -> bool:
    return bool(block) and isinstance(block[-1], n.Jump)


def _zero(b: n.Buffer) -> n.Expr:
    """Zero of a buffer's dtype and shape."""
    dtype = b.dtype
    one: n.Expr
    if dtype.is_symbolic:
        one = build.cast(n.Const(0, I32), dtype)
    else:
        one = n.Const(0.0 if dtype.is_float else False if dtype.is_bool else 0, dtype)
    of = n.Region(b).type
    return build.broadcast(one, TileType(dtype_of(of), of.shape)) if isinstance(of, TileType) else one
