"""What is known of one lane while tile statements become its code: how it holds fragments, and its loops over what it holds."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import region_text
from kir.ir.types import DType
from kir.rewrite.match import counting, fresh_var, matched_as

from ._fragment_inference import Held, NotLowered, Team
from ._fragment_layout import Exprs, Holding, Matrix, lane_of, linear

UNROLLED = 64
"""Shares of more atoms than this stay loops: compilers take long over them."""


def piece(r: n.Region, at: Exprs, count: int = 1) -> n.Region:
    """`count` neighbors of a region along its last axis, from the element at `at` on. Raises NotLowered for a region of another form."""
    index = r.index or tuple(build.span(0, d) for d in r.buffer.shape)
    spans = [k for k, i in enumerate(index) if isinstance(i, n.Span)]
    if len(spans) != len(at):
        raise NotLowered(f"{region_text(r)} is a gathered place")
    out: list[n.Expr | n.Span] = list(index)
    for k, position in zip(spans, at, strict=True):
        i = matched_as(index[k], n.Span)
        assert isinstance(i.lo.type, DType)
        step = i.step if isinstance(i.step, n.Expr) else build.const(i.step, i.lo.type)
        lo = build.add(i.lo, build.mul(build.cast(position, i.lo.type), build.cast(step, i.lo.type)))
        last = k == spans[-1] and count > 1
        out[k] = build.span(lo, count, i.step) if last else lo
    return build.region(r.buffer, *out)


@dataclass
class LaneState:
    """What is known of the code of thread `t` of `threads`. `held` says how fragments are held, `registers` which array stands for each."""

    t: n.Expr
    threads: int
    held: Mapping[str, Held]
    taken: set[str]
    bare: bool = False

    def __post_init__(self) -> None:
        self.registers = {name: x.holding.register(name, x.buffer) for name, x in self.held.items()}

    def nest(self, held: Holding, body: Callable[[Exprs], n.Block]) -> n.Block:
        """Loops over the atoms that a thread holds, around `body`."""
        at: list[n.Expr] = []
        variables: list[tuple[n.Var, int]] = []
        for extent in held.grid:
            if extent == 1:
                at.append(build.const(0))
            else:
                v = fresh_var("i", self.taken)
                variables.append((v, extent))
                at.append(v)
        made = body(tuple(at))
        guard = held.guard(self.t, tuple(at))
        if guard is not None:
            made = (n.If(guard, made),)
        for v, extent in reversed(variables):
            kind = "serial" if self.threads == 1 or extent > UNROLLED else "unroll"
            options = self.hint(extent) if kind == "unroll" else ()
            made = (counting(v, extent, made, kind, options),)
        return made

    def hint(self, extent: int) -> n.Attrs:
        """The options of an unrolled loop."""
        return () if self.bare else n.attrs(factor=extent)

    def share(self, shape: tuple[int, ...], chunk: int, team: Team) -> Holding:
        """The linear share of a thread of the team."""
        made = linear(shape, team.own_threads, chunk) if shape else None
        if made is None:
            raise NotLowered(f"chunks of {chunk} do not divide the rows of a tile of {' x '.join(map(str, shape))}")
        return made

    def rank(self, team: Team) -> n.Expr:
        """The thread's number within its team."""
        return lane_of(self.t, self.threads) if team.warp is not None else self.t

    def local(self, r: n.Region, team: Team) -> Held:
        """How a place in a fragment is held by the team that names it. Raises NotLowered for a part that is not its own."""
        held = self.held.get(r.buffer.name)
        if held is None:
            raise NotLowered(f"'{r.buffer.name}' is no fragment of this kernel")
        if held.warp or team.warp is None or self.threads == 1:
            if r.index:
                raise NotLowered(f"{region_text(r)} is a part of what the team holds")
            return held
        h = held.holding
        if isinstance(h, Matrix) and h.warps != (0, 0):
            starts, index = h.starts(team.warp), r.index or tuple(build.span(0, d) for d in r.buffer.shape)
            if all(isinstance(i, n.Span) and i.lo == lo and i.extent == p for i, lo, p in zip(index, starts, h.part, strict=True)):
                return replace(held, holding=replace(h, shape=h.part, warps=(0, 0)))
        if isinstance(h, Matrix) and not r.index:
            return held
        raise NotLowered(f"{region_text(r)} is no part that one warp holds")
