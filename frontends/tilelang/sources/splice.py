"""One thread's code of a CUDA function, with the places and numbers of a call in place of its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, TileType, dtype_of
from kir.ir.visit import statements, substitute, transform, walk

from ..state.reader import zero
from ..state.regions import behind
from ..values.arithmetic import convert
from ..values.values import NotUnderstood, Place

ROW = 16
"""Bytes of shared memory that lie together in each layout that TileLang chooses."""
RESULT = "kir_result"
"""The parameter that takes what the function returns."""


@dataclass
class Splice:
    """`places` are what parameters point to, `values` the numbers of others and of the launch, `fresh` gives names that nothing has."""

    places: Mapping[str, Place]
    values: Mapping[str, n.Expr]
    fresh: Callable[[str], str]
    renamed: dict[str, n.Expr] = field(default_factory=dict)
    buffers: dict[str, n.Buffer] = field(default_factory=dict)

    def made(self, block: Sequence[n.Stmt]) -> tuple[n.Block, n.Expr | None]:
        """The statements, and what the function returns. Raises NotUnderstood for memory that is reached as something else."""
        body = list(block)
        returned: n.Expr | None = None
        if body and isinstance(last := body[-1], n.Store) and last.at.buffer.name == RESULT:
            returned = last.value
            body.pop()
        body, returned = _folded(body, returned)
        for s in statements(tuple(body)):
            match s:
                case n.View():
                    raise NotUnderstood(f"memory at an address, which a function of CUDA source takes for {s.buffer.dtype}")
                case n.Alloc() if s.buffer.space != "register":
                    raise NotUnderstood("a function of CUDA source with shared memory of its own")
                case n.Alloc():
                    self.buffers[s.buffer.name] = replace(s.buffer, name=self.fresh(s.buffer.name))
                case n.Let():
                    for x in s.names:
                        self.renamed[x] = n.Var(self.fresh(x), s.value.type)
                case n.For():
                    self.renamed[s.var.name] = n.Var(self.fresh(s.var.name), s.var.of)
                case _:
                    pass
        if any(isinstance(x, n.Region) and x.buffer.name == RESULT for s in body for x in walk(s)):
            raise NotUnderstood("a function of CUDA source that returns in several places")
        return tuple(transform(s, self.leave, self.enter) for s in body), None if returned is None else transform(returned, self.leave, self.enter)

    def enter(self, x: n.Node) -> bool:
        """Whether what is in a node is the function's own: how long the memory of a parameter is, is not."""
        return not (isinstance(x, n.Buffer) and x.name in self.places)

    def leave(self, old: n.Node, new: n.Node) -> n.Node:
        """A node of the function as one of the kernel."""
        match new:
            case n.Var():
                found = self.renamed.get(new.name, self.values.get(new.name))
                if found is None:
                    raise NotUnderstood(f"'{new.name}' in a function of CUDA source")
                if found.type == new.of:
                    return found
                if new.of != I32 or not dtype_of(found.type).is_integer:
                    raise NotUnderstood("a number of a dtype that the binding decides, in a function of CUDA source")
                return convert(found, I32)
            case n.Region() if new.buffer.name in self.places:
                return self.region(new)
            case n.Buffer() if new.name in self.buffers:
                return self.buffers[new.name]
            case n.Store(mask=None) if _inside(new.at):
                return replace(new, clip=True)  # as TileLang has a place in a tensor
            case n.Load(mask=None) if _inside(new.at) and not new.cache:
                return replace(new, clip=True, other=zero(new.at.buffer.dtype))
            case n.Let():
                return replace(new, names=tuple(x.name for x in (self.renamed[y] for y in new.names) if isinstance(x, n.Var)))
            case _:
                return new

    def region(self, at: n.Region) -> n.Region:
        """A place counted from where a parameter points to, along the last dimension of what that is."""
        to = self.places[at.buffer.name]
        if len(at.index) != 1:
            raise NotUnderstood("all of what an address points to")
        (i,) = at.index
        lo = _i32(i.lo if isinstance(i, n.Span) else i)
        if not to.index:
            if not build.is_const(lo, 0) or isinstance(i, n.Span):
                raise NotUnderstood(f"more than '{to.buffer.name}', which is one number")
            return build.region(to.buffer)
        first, count = to.index[-1], i.extent if isinstance(i, n.Span) else 1
        assert isinstance(first, n.Expr)
        b, known = to.buffer, build.int_value(lo)
        if b.space == "shared" and len(b.shape) > 1 and not (isinstance(count, int) and known is not None and known >= 0 and (
                (known + count) * b.dtype.bytes <= ROW)):
            raise NotUnderstood(f"places of '{b.name}' from an address on, which TileLang may lay out otherwise")
        at_last = build.add(first, lo)
        outer: tuple[n.Expr | n.Span, ...] = to.index[:-1]
        last, width = build.int_value(at_last), build.int_value(b.shape[-1])
        inside = known == 0 or (last is not None and width is not None and isinstance(count, int) and 0 <= last <= width - count)
        if len(b.shape) > 1 and b.space != "shared" and not inside:  # it may lie in another row
            found = behind(b, tuple(x for x in to.index if isinstance(x, n.Expr)), lo)
            outer, at_last = found[:-1], found[-1]
        return build.region(to.buffer, *outer, build.span(at_last, i.extent) if isinstance(i, n.Span) else at_last)


def _inside(at: n.Region) -> bool:
    """Whether one element of a tensor is one of it, whatever its launch."""
    places = [(build.int_value(i) if isinstance(i, n.Expr) else None, build.int_value(d)) for i, d in zip(at.index, at.buffer.shape, strict=False)]
    return at.buffer.space == "global" and bool(places) and all(i is not None and d is not None and 0 <= i < d for i, d in places)


def _i32(e: n.Expr) -> n.Expr:
    if isinstance(e.type, TileType):
        raise NotUnderstood("gathered places of what an address points to")
    known = build.int_value(e)
    return build.const(known) if known is not None else convert(e, I32)


def _folded(body: Sequence[n.Stmt], returned: n.Expr | None) -> tuple[list[n.Stmt], n.Expr | None]:
    """The last names worked out where they are used once, in what is returned."""
    out = list(body)
    while returned is not None and out and isinstance(last := out[-1], n.Let) and len(last.names) == 1:
        uses = sum(isinstance(x, n.Var) and x.name == last.names[0] for x in walk(returned))
        calls = any(isinstance(x, n.Call) and _acts(x) for x in walk(last.value))
        if uses != 1 or calls:
            break
        returned = transform(substitute(returned, {last.names[0]: last.value}), _same_bits)
        out.pop()
    return out, returned


def _same_bits(old: n.Node, new: n.Node) -> n.Node:
    if isinstance(new, n.Cast) and new.rounding == "bits" and isinstance(new.x, n.Cast) and new.x.rounding == "bits" and new.x.x.type == new.type:
        return new.x.x
    return new


def _acts(x: n.Call) -> bool:
    return any(isinstance(a, n.Region) for a in x.args) or x.fn.startswith(("shfl", "vote", "ballot", "match", "warp_", "active_mask"))
