"""What a function does that only moves bytes between places that it is given, whatever it moves them through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from math import prod

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import TileType, dtype_of, shape_of

Byte = tuple[str, int, str]
"""A byte of memory: the parameter that it is reached by, its number from where that points to, and the cache policy of the load."""


class NoMoves(Exception):
    """The function does something else."""


@dataclass(frozen=True)
class Move:
    """`count` bytes from byte `start` of what `src` points to, to byte `at` of what `dst` points to; `cache` is the policy of the load."""

    dst: str
    at: int
    src: str
    start: int
    count: int
    cache: str


@dataclass
class _Bytes:
    """Follows bytes through one thread's code. `pointers` are the parameters that point to memory."""

    pointers: frozenset[str]
    views: dict[str, str] = field(default_factory=dict)
    values: dict[str, list[Byte]] = field(default_factory=dict)
    private: dict[str, list[Byte | None]] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)

    def block(self, block: Sequence[n.Stmt]) -> None:
        """Raises NoMoves."""
        for s in block:
            match s:
                case n.View(axes=(), fill=None) if not s.at.index and self._pointer(s.at.buffer.name) is not None:
                    self.views[s.buffer.name] = self._pointer(s.at.buffer.name) or ""
                case n.Alloc(init=None) if s.buffer.space == "register":
                    self.private[s.buffer.name] = [None] * self._size(s.buffer)
                case n.Let(names=(name,)):
                    self.values[name] = self.value(s.value)
                case n.Store(mask=None, cache=""):
                    self.store(s.at, self.value(s.value))
                case n.Copy(mask=None, signal=None, grouped=False, attrs=()) if s.via == "plain" or s.via.startswith("vector"):
                    self.store(s.dst, self.value(s.src))
                case _:
                    raise NoMoves

    def store(self, at: n.Region, held: list[Byte]) -> None:
        """Bytes put somewhere."""
        first, count = self._place(at)
        if count != len(held):
            raise NoMoves
        name = at.buffer.name
        if name in self.private:
            self.private[name][first:first + count] = held
            return
        to = self._pointer(name)
        if to is None:
            raise NoMoves
        begun = 0
        while begun < count:
            src, start, cache = held[begun]
            end = begun + 1
            while end < count and held[end] == (src, start + end - begun, cache):
                end += 1
            self.moves.append(Move(to, first + begun, src, start, end - begun, cache))
            begun = end

    def value(self, e: n.Expr) -> list[Byte]:
        """The bytes of a value."""
        match e:
            case n.Var() if e.name in self.values:
                return self.values[e.name]
            case n.Load(mask=None):
                first, count = self._place(e.at)
                name = e.at.buffer.name
                if name in self.private:
                    found = self.private[name][first:first + count]
                    if any(x is None for x in found):
                        raise NoMoves
                    return [x for x in found if x is not None]
                of = self._pointer(name)
                if of is None:
                    raise NoMoves
                return [(of, first + k, e.cache) for k in range(count)]
            case n.Cast(rounding="bits"):
                return self.value(e.x)
            case n.Call(fn="pack" | "unpack", of=None, args=(n.Expr() as x,)):
                return self.value(x)
            case n.Call(fn="vec", of=None):
                return [b for x in e.args if isinstance(x, n.Expr) for b in self.value(x)]
            case n.Call(fn="pick", of=None, args=(n.Expr() as x, n.Expr() as at)):
                size = dtype_of(x.type).bytes
                held = self.value(x)
                return [b for k in _numbers(at) for b in held[k * size:(k + 1) * size]]
            case _:
                raise NoMoves

    def _pointer(self, name: str) -> str | None:
        return name if name in self.pointers else self.views.get(name)

    def _size(self, b: n.Buffer) -> int:
        dims = [build.int_value(d) for d in b.shape]
        if any(d is None for d in dims) or b.dtype.is_symbolic or b.dtype.bits % 8 or b.strides is not None:
            raise NoMoves
        return prod(d or 1 for d in dims) * b.dtype.bytes

    def _place(self, at: n.Region) -> tuple[int, int]:
        """The first byte of a place, and how many there are."""
        if at.buffer.dtype.bits % 8:
            raise NoMoves
        size = at.buffer.dtype.bytes
        if not at.index and at.buffer.name in self.private:
            return 0, self._size(at.buffer)
        if not at.index and not at.buffer.shape:
            return 0, size
        if len(at.index) != 1:
            raise NoMoves
        (i,) = at.index
        lo, count = (build.int_value(i.lo), i.extent) if isinstance(i, n.Span) else (build.int_value(i), 1)
        if lo is None or not isinstance(count, int) or (isinstance(i, n.Span) and i.step != 1) or (isinstance(i, n.Expr) and shape_of(i.type)):
            raise NoMoves
        return lo * size, count * size


def _numbers(e: n.Expr) -> list[int]:
    """The numbers of `iota(k) + c`, or of one constant."""
    if (one := build.int_value(e)) is not None and not isinstance(e.type, TileType):
        return [one]
    terms, base = (e.a, build.int_value(e.b)) if isinstance(e, n.Binary) and e.op == "add" else (e, 0)
    if base is None or not (isinstance(terms, n.Call) and terms.fn == "iota" and terms.of is None):
        raise NoMoves
    (count,) = shape_of(terms.type)
    if not isinstance(count, int):
        raise NoMoves
    return [base + k for k in range(count)]


def moves_of(block: Sequence[n.Stmt], pointers: Mapping[str, object]) -> list[Move]:
    """The moves that one thread's code is, in order; a later one reads nothing that an earlier one wrote, for loads stand before stores or are of other
    places. Raises NoMoves for code that is more."""
    found = _Bytes(frozenset(pointers))
    found.block(block)
    return found.moves


__all__ = ["Move", "NoMoves", "moves_of"]
