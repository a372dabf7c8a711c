"""Which lanes of a warp may be missing at a place, and exchanges, which all lanes that are named must come to.

A condition that tells lanes of one warp apart parts them until its branch ends; a jump under such a condition leaves lanes behind for what follows in the
loop, or, a `return`, for the rest of the kernel.
"""
from __future__ import annotations

from dataclasses import field

from kir.analysis.proof.asking.question import Holding, Ranging
from kir.analysis.proof.sites import Place
from kir.analysis.proof.values import TRUE, Values, both, compared
from kir.analysis.uniform import of_whole_groups
from kir.base.dataclass import dataclass
from kir.base.instructions import masked
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const
from kir.ir.types import dtype_of
from kir.ir.visit import names_read, substitute

WARP_SIZE, FULL = 32, 0xFFFFFFFF
TOGETHER = frozenset({"shfl_xor", "shfl_up", "shfl_down", "shfl_idx", "vote_any", "vote_all", "ballot", "match_any", "warp_sync", "warp_reduce",
                      "ldmatrix", "stmatrix", "mma_sync"})
"""Calls that all lanes of a warp whom their mask names must execute (CUDA C++ Programming Guide, warp vote, match, reduce and shuffle functions)."""

Kept = tuple[n.Var | None, n.Var | None, bool, bool, bool, int]


@dataclass(frozen=True, eq=False)
class Exchange:
    """A call of lanes together: whether some may be missing (`parted`), and whether for a reason that no condition at the place tells (`behind`)."""

    place: Place
    call: n.Call
    thread: n.Var
    parted: bool
    behind: bool

    @property
    def what(self) -> str:
        """In words."""
        return f"the lanes of '{self.call.fn}'"


@dataclass
class Lanes:
    """Lanes on the way of a walk, beside what `values` says of them: `thread` numbers them; some `returned` while others went on; some are `behind` for a
    reason that conditions do not tell; some `jumped`."""

    values: Values
    thread: n.Var | None = None
    returned: bool = False
    behind: bool = False
    jumped: bool = False
    exchanges: list[Exchange] = field(default_factory=list)

    def parts(self, cond: n.Expr) -> bool:
        """Whether a condition may part the threads of a warp."""
        if (lane := self.values.lane) is not None:
            return lane.name in names_read(of_whole_groups(cond, lane.name, WARP_SIZE))
        return self.thread is not None and self.thread.name in names_read(cond)

    def enter(self, cond: n.Expr) -> tuple[bool, bool]:
        """Before what is done under a condition: what `leave` takes."""
        kept = self.values.parted, self.behind
        self.values.parted |= self.parts(cond)
        return kept

    def leave(self, kept: tuple[bool, bool], told: bool = False) -> None:
        """After it; `told`: what follows is under the opposite condition."""
        if not told:
            self.values.parted, self.behind = kept[0] or self.returned, kept[1] or self.returned

    def split(self, thread: n.Var | None, whole: bool, threads: int) -> Kept:
        """Before a loop over so many threads (None: over warps or warpgroups), which `whole` numbers from 0: what `joined` takes."""
        kept = self.thread, self.values.lane, self.values.parted, self.returned, self.behind, self.values.threads
        self.values.threads = threads
        self.thread, self.values.lane = (thread, thread if whole else None) if thread is not None else (self.thread, None)
        self.values.parted = self.returned = self.behind = False
        return kept

    def alone(self, place: Place) -> bool:
        """Whether it is one thread that comes there, and not a warp."""
        return self.thread is not None and self.thread.name == place.thread

    def joined(self, kept: Kept) -> None:
        """After it."""
        self.thread, self.values.lane, self.values.parted, self.returned, self.behind, self.values.threads = kept

    def jump(self, kind: str) -> None:
        """Lanes that are here jump."""
        self.jumped |= self.values.parted
        self.returned |= self.values.parted and kind == "return"

    def left_behind(self) -> None:
        """Lanes may be missing in any trip of a loop."""
        self.values.parted = self.behind = True

    def whole(self, call: n.Call) -> int:
        """How many neighbors a call brings together: where all lanes of each warp that comes to it do, and it names them; else 0."""
        attrs = dict(call.attrs)
        every = self.values.lane is not None and not self.values.parted and int(attrs.get("mask", FULL)) == FULL and not masked(call.fn, len(call.args))
        return int(attrs.get("group", WARP_SIZE)) if every else 0

    def note(self, call: n.Call, place: Place) -> None:
        """An exchange."""
        if self.thread is not None and call.of is None and call.fn in TOGETHER:
            self.exchanges.append(Exchange(place, call, self.thread, self.values.parted, self.behind or self.values.lane is None))


def together(x: Exchange, shared: set[str]) -> list[tuple[tuple[Holding, ...], n.Expr]] | None:
    """Questions whose answers say that all lanes that an exchange names come to it: of two of one warp (or group of the call) the second is there where the
    first one is; and the first one is named. None where it is not known what to ask: its mask is none of so many neighbors, or some are behind."""
    t, attrs = x.thread, dict(x.call.attrs)
    dtype = dtype_of(t.of)
    group, mask = int(attrs.get("group", WARP_SIZE)), int(attrs.get("mask", FULL)) & FULL
    low = (mask & -mask).bit_length() - 1
    high = mask.bit_length()
    if masked(x.call.fn, len(x.call.args)):
        return None
    if not x.parted and mask == FULL:
        return []
    if x.behind or mask == 0 or mask != (1 << high) - (1 << low):
        return None
    other = n.Var(f"{t.name}'", t.of)
    own = {v.name for v in x.place.scope if v.name != t.name} | shared

    def named(v: n.Expr) -> n.Expr:
        lane = build.mod(v, WARP_SIZE)
        return TRUE if mask == FULL else both(compared("ge", lane, const(low, dtype)), compared("lt", lane, const(high, dtype)))

    def renamed(e: n.Expr) -> n.Expr:
        made: n.Expr = substitute(e, {t.name: other})
        return made
    conditions = [both(compared("le", h.lo, h.var), compared("lt", h.var, h.hi)) if isinstance(h, Ranging) else h for h in x.place.holding]
    its = [c for c in conditions if t.name in names_read(c)]
    if any(names_read(c) - own - {t.name} - {y for y in names_read(c) if y.startswith("%")} for c in its):
        return None
    ranges = tuple(Ranging(other, h.lo, h.hi) for h in x.place.holding if isinstance(h, Ranging) and h.var.name == t.name)
    one = compared("eq", build.floordiv(t, const(group, dtype)), build.floordiv(other, const(group, dtype)))
    both_there = (*x.place.holding, *ranges, one, compared("ne", t, other), named(t), named(other))
    asks = [(both_there, both(*map(renamed, its)))] if x.parted else []
    return [*asks, (x.place.holding, named(t))] if mask != FULL else asks


__all__ = ["TOGETHER", "Exchange", "Lanes", "together"]
