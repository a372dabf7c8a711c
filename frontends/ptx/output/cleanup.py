"""Names that only pass a value on, written where it is used; and those that nobody uses, left out."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BF16, DType, dtype_of, shape_of
from kir.ir.visit import transform, walk

N = TypeVar("N", bound=n.Node)
MOST = 60
"""Nodes of an expression beyond which it keeps its name."""


def cleaned(body: n.Block, kept: frozenset[str] = frozenset()) -> n.Block:
    """A body without names that are used once or not at all."""
    uses: Counter[str] = Counter()
    read: set[str] = set()
    for s in body:
        for x in walk(s):
            if isinstance(x, n.Var):
                uses[x.name] += 1
            elif isinstance(x, n.Load):
                read.add(x.at.buffer.name)
    return tuple(plain(s) for s in _Tidy(uses, read).block(body, {}, 0))


_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}


def plain(s: n.Stmt) -> n.Stmt:
    """A statement with numbers in place of their bits, and comparisons of integers in place of their opposites'."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Cast(x=n.Const() as bits, rounding="bits") if bits.dtype.is_integer and new.dtype.is_float and not shape_of(new.type):
                found = number_of(int(bits.value), bits.dtype.bits, new.dtype)
                return new if found is None else build.const(found, new.dtype)
            case n.Unary(op="not", x=n.Binary() as of) if of.op in _OPPOSITE and dtype_of(of.a.type).is_integer:
                return n.Binary(_OPPOSITE[of.op], of.a, of.b)
        return new

    made: n.Stmt = transform(s, leave)
    return made


def number_of(bits: int, width: int, dtype: DType) -> float | None:
    """The number of a float's bits; None for what is no number, whose bits would be lost."""
    raw = (bits & ((1 << width) - 1)).to_bytes(width // 8, "little")
    if dtype.bits != width or dtype.name not in ("f16", "bf16", "f32", "f64"):
        return None
    value: float = struct.unpack({"f16": "<e", "f32": "<f", "f64": "<d"}[dtype.name], raw)[0] if dtype != BF16 else struct.unpack("<f", b"\0\0" + raw)[0]
    return None if value != value else value


def fixed(e: n.Expr) -> bool:
    """Whether an expression has the same value wherever it stands: it reads no memory, and does nothing."""
    for x in walk(e):
        if isinstance(x, n.Load):
            return False
        if isinstance(x, n.Call) and not _pure(x):
            return False
    return True


def _pure(c: n.Call) -> bool:
    return c.of is None and instruction(c.fn).effect == "" and instruction(c.fn).level in ("element", "tile", "static")


class _Tidy:
    def __init__(self, uses: Counter[str], read: set[str]) -> None:
        self.uses, self.read = uses, read
        self.sizes: dict[str, int] = {}

    def block(self, body: n.Block, known: dict[str, n.Expr], depth: int) -> n.Block:
        out: list[n.Stmt] = []
        for s in body:
            if isinstance(s, n.Let) and len(s.names) == 1:
                name = s.names[0]
                uses = self.uses[name]
                value = self.put(s.value, known)
                still = fixed(value)
                if uses == 0 and (still or (isinstance(value, n.Load) and _fixed_load(value))):
                    self._gone(value)
                    continue
                if still and (isinstance(value, (n.Var, n.Const)) or (uses == 1 and self._small(value)) or _renaming(value)):
                    known[name] = value
                    continue
                out.append(replace(s, value=value))
                continue
            if isinstance(s, n.Store) and s.at.buffer.space == "register" and not s.at.index and s.at.buffer.name not in self.read:
                continue
            out.append(self.statement(s, known, depth))
        return tuple(out)

    def _small(self, e: n.Expr) -> bool:
        return sum(1 for _ in walk(e)) <= MOST

    def _gone(self, e: n.Expr) -> None:
        for x in walk(e):
            if isinstance(x, n.Var):
                self.uses[x.name] -= 1

    def put(self, e: n.Expr, known: dict[str, n.Expr]) -> n.Expr:
        return substituted(e, known)

    def statement(self, s: n.Stmt, known: dict[str, n.Expr], depth: int) -> n.Stmt:
        match s:
            case n.If():
                return replace(s, cond=self.put(s.cond, known), then=self.block(s.then, dict(known), depth), orelse=self.block(s.orelse, dict(known), depth))
            case n.While():
                return replace(s, cond=self.put(s.cond, known), body=self.block(s.body, dict(known), depth + 1))
            case n.For():
                return replace(s, lo=self.put(s.lo, known), hi=self.put(s.hi, known), step=self.put(s.step, known),
                               body=self.block(s.body, dict(known), depth + 1))
            case _:
                made: n.Stmt = substituted(s, known)
                return made


def _fixed_load(e: n.Load) -> bool:
    """A load whose value nobody takes may go; where it reads outside of a buffer it may not, for that is seen."""
    return e.at.buffer.space == "register"


def _renaming(e: n.Expr) -> bool:
    """The bits of a name, or an element of one."""
    bare = e.x if isinstance(e, n.Cast) and e.rounding == "bits" else e
    if isinstance(bare, n.Call) and bare.of is None and bare.fn in ("pick", "unpack", "pack"):
        return all(isinstance(a, (n.Var, n.Const)) or (isinstance(a, n.Expr) and _renaming(a)) for a in bare.args)
    return isinstance(bare, n.Var) or (isinstance(e, n.Unary) and isinstance(e.x, n.Var))


def substituted(x: N, known: Mapping[str, n.Expr]) -> N:
    """A node with what its names stand for."""
    if not any(isinstance(y, n.Var) and y.name in known for y in walk(x)):
        return x
    made: N = transform(x, lambda old, new: known.get(new.name, new) if isinstance(new, n.Var) else new)
    return made


__all__ = ["build", "cleaned", "substituted"]
