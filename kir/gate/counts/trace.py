"""What a kernel's warps do, as a tree of operations and loops that a model of an SM is run on (`kir.gate.schedule`)."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Literal

from kir.base.dataclass import dataclass

Pipe = Literal["fma", "alu", "half", "special", "convert", "double", "tensor", "shared", "memory", "none"]
"""Where an instruction is executed. `shared` and `memory` (global memory's way through L1) belong to an SM as a whole, the others to its partitions."""
Key = str | int
"""What operations read and write: names of values and buffers, numbers of results without a name."""
Verb = Literal["read", "write", "update"]


@dataclass
class Access:
    """One access to global memory by a team. `requests`: warp instructions of the team for one execution; `sectors`: sectors that they ask of L1; `fresh`:
    those of them that no other warp of the CTA and no neighboring round asks for as well; `footprint`: bytes that the CTA touches with it in all; `again`:
    how often it goes over those; `executions`: how often a CTA comes by; `distinct`: which of the CTAs that run together touch places of their own (a share
    of them); `unique`: bytes that the whole grid touches with it; `contended`: instances of the team that update one place. `moved`: bytes that come from
    (or go to) L2 for it; `first`: the place of its first lane at the beginning, in bytes (-1: not known); `turns`: rounds of loops that CTAs begin at
    places of their own (persistent ones), of each of which `footprint` is; `rounds`: bytes that it touches in a round of each loop around, by its number;
    `reach`: how many bytes lie side by side that the innermost loop touches with it."""

    buffer: str
    verb: Verb
    requests: float
    sectors: float
    fresh: float
    footprint: float
    again: float = 1.0
    executions: float = 1.0
    distinct: float = 1.0
    unique: float = 0.0
    contended: float = 1.0
    moved: float = 0.0
    first: int = -1
    turns: float = 1.0
    rounds: tuple[tuple[int, float], ...] = ()
    reach: float = 0.0


@dataclass
class Op:
    """Instructions of one kind that a warp issues together: `count` of them, by a `share` of the team's warps. `units`: of `shared` and `memory`
    the cycles that
    one takes, of `tensor` its floating-point operations of `dtype`. `latency`: cycles until its result is there, beyond what the pipe and the access
    take. `reads` is waited for, `writes` given; neither is carried along loops over `varies`."""

    pipe: Pipe
    count: float
    units: float = 0.0
    latency: float = 0.0
    reads: tuple[Key, ...] = ()
    writes: Key | None = None
    access: Access | None = None
    share: float = 1.0
    varies: frozenset[str] = frozenset()
    dtype: str = ""
    most: float = 0.0
    """How many of them a thread has under way at once in unrolled code (0: as many as there are)."""
    apart: Literal["", "copy", "product", "store"] = ""
    """Goes on beside the warp that began it, until a `Wait` of this kind."""


@dataclass
class Wait:
    """A wait for what goes on apart, all but the last `pending`. `depth`: how many rounds ahead it was begun (0: just before)."""

    kind: Literal["copy", "product", "store"]
    pending: int = 0
    depth: int = 0
    share: float = 1.0


@dataclass
class Barrier:
    """A barrier of the team (`warps` 0) or of some warps; `cluster`: of all CTAs of the cluster."""

    warps: float = 0.0
    cluster: bool = False


@dataclass
class Loop:
    """`trips` rounds of `body`, of which `together` are one straight piece of code."""

    var: str
    trips: float
    together: float
    body: list[Item] = field(default_factory=list)


@dataclass
class Team:
    """What `warps` warps do one after the other; the teams of `beside` do theirs at the same time."""

    warps: float
    body: list[Item] = field(default_factory=list)
    beside: tuple[Team, ...] = ()


Item = Op | Wait | Barrier | Loop | Team


def operations(items: Sequence[Item], times: float = 1.0, warps: float = 1.0) -> Iterator[tuple[Op, float, float]]:
    """Every operation, how often a warp comes by, and how many warps do."""
    for item in items:
        match item:
            case Op():
                yield item, times, warps * item.share
            case Loop():
                yield from operations(item.body, times * item.trips, warps)
            case Team():
                yield from operations(item.body, times, item.warps)
                for each in item.beside:
                    yield from operations([each], times, each.warps)
            case _:
                pass
