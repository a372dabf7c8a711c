"""What a walk over a kernel notes: accesses, barriers and the structure around them, claims that must hold, and what it could not follow."""
from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from kir.analysis.proof.asking.question import Holding
from kir.analysis.proof.values import TRUE, Val
from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.base import Node
from kir.ir.paths import Path
from kir.ir.visit import walk

Kind = Literal["bounds", "race", "barrier", "undefined", "alignment", "wait", "ring", "overflow"]
KINDS: tuple[Kind, ...] = ("bounds", "race", "barrier", "undefined", "alignment", "wait", "ring", "overflow")
WARP_SYNC = "warp_sync"
SHUFFLE = "shuffle"
"""What a `Sync` is called where all lanes of a warp exchange values."""
Verb = Literal["read", "write", "update"]
SYNCHRONIZING = frozenset({"volatile", "relaxed", "acquire", "release", "cv", "wt"})
"""Cache policies of loads and stores of global memory that may meet those of other threads, as atomics do."""
READ_ONLY_CACHES = frozenset({"nc", "ldg"})
"""Policies of loads through a cache that does not see what the same kernel writes (PTX ISA, "ld.global.nc")."""
PRIVATE = frozenset({"register", "fragment"})
QUIET = frozenset({"fence", "warp_sync", "set_registers", "nanosleep", "print", "prefetch", "prefetch_descriptor", "register_fence", "assume", "assertion",
                   "trap"})
"""Calls that touch no memory that a hazard could be on, and order nothing that is relied on here."""
GROUPS = frozenset({"async_commit", "async_wait", "bulk_commit", "bulk_wait", "wgmma_fence", "wgmma_commit", "wgmma_wait", "fence_async",
                    "fence_mbar_init"})
RINGS = frozenset({"mbar_init", "mbar_expect", "mbar_arrive", "mbar_arrive_expect", "mbar_wait"})
NAMED = frozenset({"named_barrier_sync", "named_barrier_arrive"})
OTHERS = frozenset({"cluster_arrive", "cluster_wait", "grid_barrier", "grid_dependency_wait", "grid_dependency_launch"})


@dataclass(frozen=True, eq=False)
class Place:
    """A statement, where it stands, and what holds there."""

    stmt: n.Stmt
    anchor: str
    path: Path
    holding: tuple[Holding, ...]
    scope: tuple[n.Var, ...]
    thread: str = ""
    """The variable that numbers the instances of the innermost split; "" outside of any."""


@dataclass(frozen=True, eq=False)
class Flight:
    """How an access acts some time after its statement: with a group of a family (`cp_async`, `bulk`, `wgmma`), or until the phase of the `barrier` at
    `slot` completes, which it brings so many `bytes` of."""

    family: Literal["cp_async", "bulk", "wgmma", "signal"]
    barrier: str = ""
    slot: n.Expr = TRUE
    bytes: int = 0

    @property
    def proxy(self) -> bool:
        """Whether it goes through the async proxy."""
        return self.family != "cp_async"


@dataclass(frozen=True, eq=False)
class Access:
    """An access of each of `elements` (variables from 0 below an extent) where `mask` holds: to the element `index` of `buffer`, which is what a
    declaration names, or a view. `root` is the memory behind it. `value` is what is written, `late` says how it acts after its statement."""

    verb: Verb
    place: Place
    buffer: n.Buffer
    root: str
    index: tuple[n.Expr, ...]
    elements: tuple[tuple[n.Var, int | n.Expr], ...] = ()
    mask: n.Expr = TRUE
    clip: bool = False
    value: Val | None = None
    late: Flight | None = None
    plain: bool = True
    """Whether the index is that of the memory itself, or of a view that reinterprets it."""


def of_peers(x: n.Node) -> bool:
    """Whether something is of another CTA of the cluster."""
    return (isinstance(x, n.Buffer) and x.space == "cluster") or (isinstance(x, n.Call) and x.fn.startswith("cluster_")) or (
        isinstance(x, n.Copy) and "multicast" in dict(x.attrs))


def of_one_kind(a: Access, b: Access, ctas: bool = False) -> bool:
    """Whether two accesses may come at the same time wherever they lie: both read, or both update atomically; of two CTAs not where one does so for its own
    CTA alone."""
    def narrow(x: Access) -> bool:
        return any(isinstance(c, n.Call) and c.fn.startswith("atomic_") and dict(c.attrs).get("scope") == "cta" for c in walk(x.place.stmt))
    return a.verb == b.verb and (a.verb == "read" or (a.verb == "update" and not (ctas and (narrow(a) or narrow(b)))))


@dataclass(frozen=True, eq=False)
class Claim:
    """A condition that must hold at a place."""

    kind: Kind
    place: Place
    what: str
    condition: n.Expr
    holding: tuple[Holding, ...] = ()


@dataclass(frozen=True, eq=False)
class Barrier:
    """All threads of a team meet here."""

    place: Place


@dataclass(frozen=True, eq=False)
class Sync:
    """A call that orders what is asynchronous: `fn`, the mbarriers (`barrier`, one at `slot`) it acts on, and its number: a parity, bytes, an expected
    count, or how many groups a wait leaves pending (`read`: until their sources have been read)."""

    place: Place
    fn: str
    barrier: str = ""
    slot: n.Expr | None = None
    number: n.Expr | None = None
    read: bool = False


@dataclass(frozen=True, eq=False)
class Loop:
    """A loop, its trips counted by `count`, with what its body holds. `runs` is the condition of a trip, `trips` how many there are (below 0: none)."""

    place: Place
    count: n.Var
    runs: n.Expr | None
    items: tuple[Item, ...]
    trips: n.Expr | None = None


@dataclass(frozen=True, eq=False)
class Branch:
    """A branch."""

    place: Place
    cond: n.Expr
    arms: tuple[tuple[Item, ...], tuple[Item, ...]]


@dataclass(frozen=True, eq=False)
class Split:
    """A team splits into instances of a level, numbered by `var`, and comes together again."""

    place: Place
    loop: n.For
    var: n.Var
    items: tuple[Item, ...]


@dataclass(frozen=True, eq=False)
class Team:
    """A role: some warps that run beside others, until all come together."""

    place: Place
    name: str
    items: tuple[Item, ...]


Item = Access | Barrier | Sync | Loop | Branch | Split | Team


@dataclass(frozen=True, eq=False)
class Gap:
    """Something that is not followed, and what that leaves undecided."""

    kinds: tuple[Kind, ...]
    why: str
    anchor: str
    node: Node | None = None


def verb(verb: Verb, x: n.Load | n.Store, place: Place, gap: Callable[[tuple[Kind, ...], str, n.Stmt | None], None]) -> Verb:
    """What a load or store is: one that may meet those of other threads is an update, and may order memory, which is told to `gap`."""
    if x.cache not in SYNCHRONIZING or x.at.buffer.space != "global":
        return verb
    gap(("race", "wait"), f"a '{x.cache}' access may order what others do", place.stmt)
    return "update"
