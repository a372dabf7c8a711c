"""How each fragment of a kernel lies in the registers of its threads, worked out from the statements that use it.

A product by mma.sync decides for its accumulator and operands; what is left is distributed linearly.
"""
from __future__ import annotations

from collections.abc import Iterator

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import region_text
from kir.ir.types import I32, DType, dtype_of, shape_of
from kir.ir.visit import blocks_of

from ._fragment_layout import WARP, Holding, Matrix, linear, matrix, operand, whole


class NotLowered(Exception):
    """A statement that this lowering has no threads' code for; the message says which and why."""


@dataclass(frozen=True)
class Team:
    """Who runs a statement: `threads` of the CTA, in warps numbered by `warp` (None: the CTA as a whole)."""

    threads: int
    warp: n.Var | None = None

    @property
    def own_threads(self) -> int:
        """Threads of one instance of the team."""
        return WARP if self.warp is not None else self.threads


@dataclass(frozen=True)
class Held:
    """A fragment, how it is held, and the team that declares it."""

    buffer: n.Buffer
    holding: Holding
    warp: bool


def with_teams(block: n.Block, team: Team) -> Iterator[tuple[n.Stmt, Team]]:
    """Every statement outside loops over threads, with its team."""
    for s in block:
        yield s, team
        if isinstance(s, n.For) and s.kind == "thread":
            continue
        inner = Team(team.threads, s.var) if isinstance(s, n.For) and s.kind == "warp" else team
        for b in blocks_of(s):
            yield from with_teams(b, inner)


def depth_of(a: DType) -> int:
    """k of the mma.m16n8k<k> for operands of a dtype: one 32-byte row of A's fragment (PTX ISA, "Matrix Fragments")."""
    return 256 // a.bits


def extents(shape: tuple[int | n.Expr, ...], what: str) -> tuple[int, ...]:
    """Literal extents. Raises NotLowered."""
    out = [d if isinstance(d, int) else build.int_value(d) for d in shape]
    if None in out:
        raise NotLowered(f"{what} has a symbolic extent")
    return tuple(d for d in out if d is not None)


def infer(kernel: n.Kernel, threads: int) -> dict[str, Held]:
    """The holding of every fragment. Raises NotLowered where the uses of one do not agree."""
    found: dict[str, Holding] = {}
    every = list(with_teams(kernel.body, Team(threads)))

    def settle(b: n.Buffer, holding: Holding | None, why: str) -> None:
        if holding is None:
            raise NotLowered(f"'{b.name}' is not made of whole fragments of mma.sync: {why}")
        if found.setdefault(b.name, holding) != holding:
            raise NotLowered(f"two products want '{b.name}' in different registers")
    for s, team in every:
        if isinstance(s, n.Mma) and (s.via == "mma_sync" or (team.warp is not None and _fits(s))):
            a = dtype_of(s.a.type)
            _accumulator(s, team, depth_of(a), a, settle)
            acc = found[s.acc.buffer.name]
            for axis, e in enumerate((s.a, s.b) if s.via == "fma" and isinstance(acc, Matrix) else ()):
                if isinstance(e, n.Load) and e.at.buffer.space == "fragment" and not e.at.index:
                    assert isinstance(acc, Matrix)
                    settle(e.at.buffer, operand(extents(e.at.buffer.shape, f"'{e.at.buffer.name}'"), axis, acc), "multiply-adds")
            if s.via == "mma_sync":
                for operand_, role in ((s.a, "a"), (s.b, "b")):
                    if isinstance(operand_, n.Load) and operand_.at.buffer.space == "fragment":
                        b = operand_.at.buffer
                        if operand_.at.index:
                            raise NotLowered(f"a part of the fragment '{b.name}' is an operand")
                        shape = extents(b.shape, f"'{b.name}'")
                        settle(b, matrix(shape, "a" if role == "a" else "b", a.bits, depth_of(a), (0, 0), threads), role)
    out: dict[str, Held] = {}
    for s, team in every:
        if isinstance(s, n.Alloc) and s.buffer.space == "fragment":
            shape = extents(s.buffer.shape, f"'{s.buffer.name}'")
            held = found.get(s.buffer.name)
            if s.buffer.layout is not None:
                raise NotLowered(f"'{s.buffer.name}' has a layout of its own")
            if held is None:
                held = whole(shape) if threads == 1 else linear(shape, team.own_threads)
            if held is None or (team.warp is not None and s.buffer.name not in found):
                raise NotLowered(f"nothing says which registers hold '{s.buffer.name}'")
            out[s.buffer.name] = Held(s.buffer, held, team.warp is not None)
    return out


def _fits(s: n.Mma) -> bool:
    rows, columns = shape_of(s.acc.type)[-2:]
    return isinstance(rows, int) and isinstance(columns, int) and rows % 16 == 0 and columns % 8 == 0


def _accumulator(s: n.Mma, team: Team, k: int, a: DType, settle: object) -> None:
    assert callable(settle)
    b = s.acc.buffer
    shape, part = extents(b.shape, f"'{b.name}'"), extents(shape_of(s.acc.type), region_text(s.acc))
    if len(shape) != 2:
        raise NotLowered(f"the accumulator '{b.name}' has {len(shape)} dimensions")
    if team.warp is None:
        if team.threads != WARP or s.acc.index:
            raise NotLowered("mma.sync of several warps: `warp-partition` says which warp computes what")
        settle(b, matrix(shape, "c", a.bits, k, (0, 0), team.threads), "c")
        return
    grid = shape[0] // part[0], shape[1] // part[1]
    for warps, down in (((0, 0), False), (grid, False), (grid, True)):
        made = matrix(shape, "c", a.bits, k, warps, team.threads, down)
        if isinstance(made, Matrix) and made.part == part and _begins(s.acc, made, team.warp):
            settle(b, made, "c")
            return
    raise NotLowered(f"the warps' parts {region_text(s.acc)} are no grid of parts")


def _begins(r: n.Region, held: Matrix, warp: n.Var) -> bool:
    """Whether a region is the part that a warp holds."""
    if held.warps == (0, 0):
        return not r.index
    wanted = held.starts(n.Var(warp.name, I32))
    index = r.index or tuple(build.span(0, d) for d in r.buffer.shape)
    return all(isinstance(i, n.Span) and i.lo == lo for i, lo in zip(index, wanted, strict=True))
