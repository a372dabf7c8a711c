"""Every hazard of a program's kernels: proved for all sizes, refuted by values, or open."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property, partial, reduce
from typing import Any, Literal

from kir.analysis.access import Aliases
from kir.analysis.facts import Facts
from kir.analysis.proof.asking.question import Holding, Ranging, Reply, Steps, asked, consistent, fitted, fitting
from kir.analysis.proof.asking.terms import SAME
from kir.analysis.proof.covered import covered
from kir.analysis.proof.flight import troubles
from kir.analysis.proof.indices.contents import inside, top_of_contents, where_parts_begin
from kir.analysis.proof.indices.numbered import as_number, bare, equal_parts, in_turn, of_divisions
from kir.analysis.proof.indices.widths import at_the_most, known_before, more_than, only_extents, overflows, polynomial_of, relevant, worked_out
from kir.analysis.proof.intervals import Pair, Reached, accesses, apart_by, by_all, concurrent, every, exits, has_barrier, leavers, leaving, other_threads, past
from kir.analysis.proof.overlap import Overlap
from kir.analysis.proof.sites import KINDS, Access, Barrier, Branch, Claim, Kind, Loop, Place, Split, of_one_kind
from kir.analysis.proof.stored import before, filled, reached
from kir.analysis.proof.values import FALSE, TRUE, both, compared, either, folded, opposite, wide
from kir.analysis.proof.walk import Walk
from kir.analysis.proof.warps.lanes import together
from kir.analysis.uniform import depends, varying
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.printer import expr_text
from kir.ir.types import BOOL, I64, DType, dtype_of
from kir.ir.visit import names_read, statements, substitute, walk

MOST_QUESTIONS = 600
"""Questions to the solver for one kernel; what is left is not decided."""
MOST_CTAS = (2**31 - 1, 65535, 65535)
"""CTAs along the axes of a grid at most (CUDA C++ Programming Guide, technical specifications)."""
Status = Literal["proved", "refuted", "open"]
ORDERED: tuple[Kind, ...] = ("race", "undefined", "wait", "ring")
"""What depends on the order of accesses."""
EXIT = "a branch that leaves before a barrier"


@dataclass(frozen=True)
class Obligation:
    """One thing that must hold. `proved` for all sizes; `refuted` by the `values` of z3's model, which nobody has tried yet; `open`, with why."""

    kind: Kind
    status: Status
    what: str
    anchor: str
    why: str = ""
    values: Mapping[str, int] = field(default_factory=dict)
    other: str = ""
    """The anchor of the other access of a race."""
    given: str = ""
    """What the contents of a tensor are taken to be: nothing says so."""
    parts: str = ""
    """A tensor that is taken to hold where parts begin, so that its contents never fall."""
    exact: bool = False
    """Of an access out of bounds: sizes, places and trips alone decide it, and worked out at `values` it is."""


@dataclass(frozen=True)
class KernelProof:
    """What was decided of one kernel."""

    kernel: str
    obligations: tuple[Obligation, ...]

    def status(self, kind: Kind) -> Status:
        """The worst of a kind: refuted, open, proved (also where there is nothing of the kind)."""
        found = {o.status for o in self.obligations if o.kind == kind}
        return "refuted" if "refuted" in found else "open" if "open" in found else "proved"


class Contradiction(Exception):
    """The facts of a program hold for no sizes at all."""


def decided(program: n.Program) -> tuple[KernelProof, ...]:
    """Every kernel's obligations. Raises Contradiction where the facts exclude one another."""
    of = _kernels(program)
    return tuple(KernelProof(kernel.name, tuple(of(kernel.name).checked())) for kernel in program.kernels)


def unordered(program: n.Program, kernel: str) -> Obligation | None:
    """The first obligation about the order of a kernel's accesses (`ORDERED`) that is not proved, as `decided` has it, which works out all the others too.
    Raises Contradiction as that does."""
    of = _kernels(program)
    for k in program.kernels:
        if k.name != kernel and consistent(Facts.in_kernel(program, k.name), Steps()) is False:
            raise Contradiction
    return next((o for o in of(kernel).checked(ordered=True) if o.kind in ORDERED and o.status != "proved"), None)


def _kernels(program: n.Program) -> Callable[[str], _Kernel]:
    """The kernels of a program by their names, each made when it is asked for, after those that are launched before it."""
    made: dict[str, _Kernel] = {}

    def of(name: str) -> _Kernel:
        if name not in made:
            earlier = [of(x) for x in dict.fromkeys(before(program, name))]
            made[name] = _Kernel(program, next(k for k in program.kernels if k.name == name), frozenset[str]().union(*(k.fills for k in earlier)))
        return made[name]
    if FALSE in program.facts:
        raise Contradiction
    return of


def of_widths(program: n.Program, steps: bool = False) -> tuple[KernelProof, ...]:
    """Of every kernel only whether the indices that it computes fit their dtype: for a program as it was written, before its normal form, whose arithmetic
    is exact, leaves no trace of the width in which an index was computed. With `steps` what a loop counts to when it ends is an index too."""
    extents = only_extents(program)
    return tuple(KernelProof(k.name, tuple(_Widths(program, k, frozenset()).of(extents, steps))) for k in program.kernels)


class _Kernel:
    """The obligations of one kernel, one after the other."""

    def __init__(self, program: n.Program, kernel: n.Kernel, before: frozenset[str]) -> None:
        self.program, self.kernel, self.base, self.before = program, kernel, Facts.in_kernel(program, kernel.name), before
        self.params = {p.name for p in program.params}
        self.axes = [a.name for a in kernel.grid]
        self.sizes = [p.name for p in program.params if isinstance(p.of, DType)]
        self.questions, self.steps = 0, Steps()
        self.possible = consistent(self.base, self.steps)
        if self.possible is False:
            raise Contradiction
        self.kept: dict[Any, Reply] = {}
        self.wraps: dict[n.Expr, tuple[Place, tuple[Holding, ...]]] = {}
        self.defined: set[str] = set()
        self.overlap: Overlap | None = None
        self.divided: tuple[n.Expr, ...] | None = None
        self.contents: dict[str, list[n.Expr]] = {}
        self.walk = self._walked()

    def ask(self, holding: Iterable[Holding], claim: n.Expr, place: Place, beside: n.Expr | None = None) -> Reply:
        """A question, once; sums that were taken to fit are noted."""
        holding = tuple(h for h in dict.fromkeys(holding) if h != TRUE)
        if TRUE in (claim, beside) or any(h == FALSE for h in holding):
            return Reply("proved", {})
        key = (holding, claim, beside)
        if key not in self.kept:
            self.questions += 1
            enough = self.questions > MOST_QUESTIONS or self.steps.spent
            self.kept[key] = Reply("unknown", {}) if enough else asked(self.base, holding, claim, self.sizes, beside, self.steps)
            if not enough and self.kept[key].kind == "unknown" and (cuts := self._cuts(holding)):
                self.kept[key] = asked(self.base, (*holding, *cuts), claim, self.sizes, beside, self.steps)
        self._note(self.kept[key].wraps, place, holding)
        return self.kept[key]

    def _note(self, sums: Iterable[n.Expr], place: Place, holding: tuple[Holding, ...]) -> None:
        """Sums that were taken to fit, but for those of our own."""
        for e in sums:
            if not any("'" in name or name.startswith(("any.", "%")) for name in names_read(e)):
                self.wraps.setdefault(e, (place, holding))

    def _cuts(self, holding: Iterable[Holding]) -> tuple[n.Expr, ...]:
        """What is proved of divisions of the grid, for each CTA whose axes have a range here."""
        if self.divided is None:
            self.divided = ()
            index = [i for a in accesses(self.walk.items) for i in a.index]
            def asks(held: tuple[Holding, ...], claim: n.Expr) -> bool:
                return asked(self.base, held, claim, self.sizes, None, self.steps).kind == "proved"
            self.divided = of_divisions(index, self._axes_range(), self.params, asks)
        if not self.divided:
            return ()
        there = {h.var.name for h in holding if isinstance(h, Ranging)}
        twin = {x.name: n.Var(f"{x.name}'", x.of) for x in self._grid()}
        own = self.divided if set(self.axes) <= there else ()
        return (*own, *(substitute(c, twin) for c in self.divided if {v.name for v in twin.values()} <= there))

    def _axes_range(self) -> tuple[Ranging, ...]:
        first = next((a for a in accesses(self.walk.items)), None)
        return tuple(h for h in first.place.holding if isinstance(h, Ranging) and h.var.name in self.axes) if first is not None else ()

    def _walked(self) -> Walk:
        """The walk, with memory left out of what is relied on that may hold what is not defined."""
        unsure: frozenset[str] = frozenset()
        while True:
            self.walk = made = Walk(self.program, self.kernel, unsure)
            if made.asynchronous:
                self.overlap = Overlap(self.program, self.kernel, made, self.params | set(self.axes), self._proves)
            self.defined = self._covered() - unsure
            more = {name for name, c in made.kept if name not in unsure
                    and self.ask((*c.place.holding, *c.holding), self._known(c.condition), c.place).kind != "proved"}
            if not more:
                return made
            unsure |= more

    @cached_property
    def fills(self) -> frozenset[str]:
        """Global memory that it stores to all of."""
        given = self.params | {w.buffer.name for w in self.program.workspaces}
        writes = {name: w for name, w in self.walk.written.items() if name in given}
        return frozenset(filled(self.kernel, writes, lambda held, claim: self._proves(held, claim, next(iter(writes.values()))[0].place)))

    def _covered(self) -> set[str]:
        """Memory that is defined wherever it is read, because it is given, by what is launched before too, or because stores before each read cover it."""
        known, reads = {*self.walk.filled, *self.before}, [a for a in accesses(self.walk.items) if a.verb != "write"]
        told = partial(by_all, leavers(tuple(self.walk.items)), self.params | set(self.axes), self._proves)
        for root in dict.fromkeys(a.root for a in reads):
            if root not in known and root not in self.params:
                at, writes = [a for a in reads if a.root == root], self.walk.written.get(root, [])
                if all(covered(a, writes, partial(self._holds_at, a), told) or (self.overlap is not None and self.overlap.filled(a))
                       or any(told(w) and reached(self.kernel, w, a, partial(self._proves, place=a.place)) for w in writes) for a in at):
                    known.add(root)
        return known

    def _proves(self, holding: tuple[Holding, ...], claim: n.Expr, place: Place) -> bool:
        """A question of our own: the counts that it speaks of, of 64 bits, are no values that the kernel narrows."""
        before = set(self.wraps)
        reply = self.ask(holding, claim, place)
        if reply.kind == "unknown" and (fewer := relevant(holding, claim, self.params)) != holding:
            reply = self.ask(fewer, claim, place)
        for e in self.wraps.keys() - before:
            if any(isinstance(x, n.Cast) and x.x.type == I64 for x in walk(e)):
                del self.wraps[e]
        return reply.kind == "proved"

    def _holds_at(self, a: Access, claim: n.Expr) -> bool:
        """Whether a condition follows from what holds at an access."""
        holding = (*a.place.holding, *(Ranging(v, const(0), _extent(d)) for v, d in a.elements), a.mask)
        return self.ask(holding, claim, a.place).kind == "proved"

    def _known(self, e: n.Expr, wrong: Iterable[str] = ()) -> n.Expr:
        """A condition with what is known of memory that is shared."""
        told = {name: TRUE if name.partition(" ")[2] in self.defined else FALSE for name in names_read(e) if name.startswith("%defined ")}
        return folded(substitute(e, told)) if told else e

    # ------------------------------------------------------------------------------------------------------------ obligations
    def checked(self, ordered: bool = False) -> Iterator[Obligation]:
        """All of them, or those up to the last of `ORDERED`; nothing is proved by facts that are not known to hold for any sizes."""
        for o in self.of_order() if ordered else self.obligations():
            proved = o.status == "proved" and not self.possible
            yield Obligation(o.kind, "open", o.what, o.anchor, "no sizes are found for which the facts hold", other=o.other) if proved else o

    def obligations(self) -> Iterator[Obligation]:
        """All of them."""
        yield from self.of_order()
        yield from self._of_lanes()
        yield from self._of_widths()
        yield from self._of_grid()

    def of_order(self) -> Iterator[Obligation]:
        """Those of `ORDERED`, and what is asked beside them."""
        for gap in self.walk.gaps:
            for kind in gap.kinds:
                yield Obligation(kind, "open", "not followed", gap.anchor, gap.why)
        for c in self.walk.claims:
            yield self._claimed(c)
        if self.overlap is not None:
            yield from self._of_overlap(self.overlap)
        else:
            for t in troubles(self.program, self.kernel):
                yield from (Obligation(kind, "open", "in order", self.walk.anchors.get(id(t.stmt), self.kernel.name), t.why) for kind in t.kinds)
            if self.walk.nested:
                yield from (Obligation(k, "open", "not followed", self.kernel.name, "a team splits twice") for k in ("race", "barrier", "wait"))
            for item in every(self.walk.items):
                if isinstance(item, Split):
                    yield from self._of_split(item)
        yield from self._of_ctas()
        yield from self._of_tiles()

    def _claimed(self, c: Claim) -> Obligation:
        condition = self._known(c.condition) if c.kind == "undefined" else c.condition
        holding = (*c.place.holding, *c.holding)
        told = as_number(condition, holding, self.params, lambda held, claim: self._proves(held, claim, c.place))
        if told is not None and self._proves(told[1], told[0], c.place):
            self._note(fitted(self.base, holding, condition, self.steps), c.place, holding)
            return Obligation(c.kind, "proved", c.what, c.place.anchor)
        reply = self.ask(holding, condition, c.place)
        if reply.kind == "fails" and c.kind == "bounds" and (found := top_of_contents(
                condition, holding, lambda held: self._proves((*holding, *held), condition, c.place))):
            self.contents.setdefault(found[0], []).append(found[1])
            top = int_value(found[1])
            given = f"0 <= {found[0]}[...] < {expr_text(bare(found[1])) if top is None else top}"
            return Obligation(c.kind, "proved", c.what, c.place.anchor, given=given)
        unknown = [x.partition(" ")[2] for x in sorted(names_read(c.condition)) if x.startswith("%defined ") and x.partition(" ")[2] not in self.defined]
        if reply.kind == "fails" and unknown:
            return Obligation(c.kind, "open", c.what, c.place.anchor, f"whether '{unknown[0]}' has been written there before", reply.values)
        said = self._told(c.kind, c.what, c.place, reply, condition)
        if said.status == "refuted" and c.kind == "bounds" and not any(isinstance(s, (n.Jump, n.While)) for s in statements(self.kernel.body)):
            exact = worked_out(condition, reply.values) is False and all(worked_out(h, reply.values) for h in (*self.base.holds, *holding))
            return replace(said, exact=exact)
        return said

    def _told(self, kind: Kind, what: str, place: Place, reply: Reply, claim: n.Expr, other: str = "") -> Obligation:
        if reply.kind == "proved":
            return Obligation(kind, "proved", what, place.anchor, other=other)
        if reply.kind == "unknown":
            why = "the solver gave up" if self.questions <= MOST_QUESTIONS else "there are too many questions for one kernel"
            return Obligation(kind, "open", what, place.anchor, why, other=other)
        data = sorted({x.fn for x in walk(claim) if isinstance(x, n.Call) and x.fn.startswith("%")})
        why = f"it depends on the contents of {_memory(data)}" if data else ""
        return Obligation(kind, "open" if data and kind != "race" else "refuted", what, place.anchor, why, reply.values, other)

    # ----------------------------------------------------------------------------------------------------------- asynchronous
    def _of_overlap(self, o: Overlap) -> Iterator[Obligation]:
        """What is asynchronous: accesses in an order, mbarriers, what is in flight; and barriers."""
        for kinds, what, place, why in o.broken:
            for kind in kinds:
                yield Obligation(kind, "open", what, place.anchor if place is not None else self.kernel.name, why)
        for split in o.meeting_splits():
            yield from self._meetings(split)
        for m in o.pairs(self._may_meet, self._same_place, self._same_value):
            a, b = m.first, m.second
            equal = self._equal(a, b, m.named, m.holding, m.apart) if m.order != FALSE else ()
            proved = bool(equal) and (self._follows(equal, m.holding, m.order, a.place)
                                      or self._proves((*m.holding, opposite(m.apart), *equal), m.order, a.place))
            proved = proved or self._proves(m.holding, either(m.apart, m.order), a.place)
            for kind in ("race", "wait") if m.late else ("race",):
                what = f"{a.verb} of '{a.root}' before or after {b.verb}"
                yield Obligation(kind, "proved" if proved else "open", what, a.place.anchor, "" if proved else "that one is over before the other begins",
                                 other=b.place.anchor)

    # ------------------------------------------------------------------------------------------------------------------ races
    def _of_split(self, split: Split) -> Iterator[Obligation]:
        if any(isinstance(i, Split) and has_barrier(i.items) for i in every(split.items)):
            for kind in ("race", "barrier"):
                yield Obligation(kind, "open", "not followed", split.place.anchor, "a team splits again around a barrier")
            return
        past = {id(x) for x in leaving(split.items)}
        left = any(alike or id(x) not in past for x, _, alike in leavers((split,)))
        for o in self._meetings(split) if has_barrier(split.items) else ():
            if o.what == EXIT and o.status != "proved":
                left, o = True, Obligation(o.kind, "proved", o.what, o.anchor)
            yield o
        shared = self.params | set(self.axes) | {v.name for v in split.place.scope}
        seen = set[Any]()
        for pair in concurrent(split.items, left):
            a, b = pair.first.access, pair.second.access
            key = (id(a), id(b), pair.first.shuffled, pair.first.synced, pair.first.when, pair.second.when, pair.among, tuple(sorted(pair.trips.items())))
            if key in seen or of_one_kind(a, b) or not self._may_meet(a, b):
                continue
            seen.add(key)
            yield self._race(pair, shared, split.var)

    def _may_meet(self, a: Access, b: Access) -> bool:
        return a.root == b.root or Aliases(self.program).may_be_one(a.root, b.root)

    def _race(self, pair: Pair, shared: set[str], thread: n.Var | None) -> Obligation:
        """Two accesses of two threads of a CTA, or of two CTAs where there is no `thread`."""
        a, b = pair.first.access, pair.second.access
        what = f"{a.verb} of '{a.root}' against {b.verb}" + (" by another CTA" if thread is None else " by another thread")
        if a.buffer != b.buffer:
            return Obligation("race", "open", what, a.place.anchor, f"'{a.buffer.name}' and '{b.buffer.name}' may be the same memory", other=b.place.anchor)
        renamed, held = apart_by(pair.second, pair.trips, shared)
        second = pair.second.access.place.holding
        apart = other_threads(pair, thread, renamed(thread)) if thread is not None else _any(compared("ne", x, renamed(x)) for x in self._grid())
        holding = [*a.place.holding, *(Ranging(v, const(0), _extent(d)) for v, d in a.elements), a.mask, *pair.first.when,
                   *map(renamed, (*second, *(Ranging(v, const(0), _extent(d)) for v, d in b.elements), b.mask, *pair.second.when)), *held, apart]
        holding += [compared("ge", d, const(0, dtype_of(d.type))) for d in a.buffer.shape if int_value(d) is None and not isinstance(d, n.Var)]  # it is there
        claim = opposite(self._same_place(a, b, renamed))
        beside = self._same_value(a, b, renamed)
        equal = self._equal(a, b, renamed, tuple(holding), claim) if thread is None else ()
        if equal and (self._follows(equal, holding, FALSE, a.place) or self._proves((*holding, opposite(claim), *equal), FALSE, a.place)):
            return Obligation("race", "proved", what, a.place.anchor, other=b.place.anchor)
        reply = self.ask(holding, claim, a.place, beside)
        extents = [(i, _extent(d)) for i, d in zip(a.index, a.buffer.shape, strict=True)]
        for name, extent, rising in where_parts_begin((*holding, claim), extents) if reply.kind == "fails" else ():
            if self._proves((*holding, *rising), claim, a.place):
                self.contents.setdefault(name, []).append(build.add(extent, const(1, dtype_of(extent.type))))
                return Obligation("race", "proved", what, a.place.anchor, other=b.place.anchor,
                                  given=f"0 <= {name}[...] <= {expr_text(bare(extent))}, and it never falls", parts=name)
        return self._told("race", what, a.place, reply, claim, b.place.anchor)

    def _equal(self, a: Access, b: Access, renamed: Any, holding: tuple[Holding, ...], apart: n.Expr) -> tuple[n.Expr, ...]:
        """Parts of an index that are equal where two executions touch one place, of one that is taken apart by divisions."""
        alike = a.index == b.index and a.buffer.strides is None
        if not in_turn(a.index, renamed):
            return ()
        def asks(held: tuple[Holding, ...], claim: n.Expr) -> bool:
            fewer = relevant(held, claim, self.params)  # what is not of the claim's own names seldom matters, and costs
            return (len(fewer) < len(held) and self._proves(fewer, claim, a.place)) or self._proves(held, claim, a.place)
        return equal_parts(a.index, renamed, holding, apart, asks, self.params, alike)

    def _follows(self, equal: Iterable[n.Expr], holding: Iterable[Holding], claim: n.Expr, place: Place) -> bool:
        """Whether a claim follows where the names of two executions that are equal are the same: then what remains is mostly little."""
        one: dict[str, n.Expr] = {}
        for e in equal:
            if isinstance(e, n.Binary) and e.op == "eq" and isinstance(e.a, n.Var) and isinstance(e.b, n.Var) and e.b.name not in one:
                one[e.b.name] = e.a
        if not one:
            return False
        held = [h if isinstance(h, Ranging) else folded(substitute(h, one)) for h in holding if not (isinstance(h, Ranging) and h.var.name in one)]
        return FALSE in held or self._proves(tuple(held), folded(substitute(claim, one)), place)

    def _grid(self) -> list[n.Var]:
        return [n.Var(x.name, dtype_of(x.extent.type)) for x in self.kernel.grid]

    def _same_place(self, a: Access, b: Access, renamed: Any) -> n.Expr:
        if a.buffer.strides is None:
            return both(*(compared("eq", x, renamed(y)) for x, y in zip(a.index, b.index, strict=True)))
        sums: list[n.Expr] = []
        for index in (a.index, tuple(map(renamed, b.index))):
            total: n.Expr = const(0, wide(const(0)).type)  # type: ignore[arg-type]  # i64
            for i, each in zip(index, a.buffer.strides, strict=True):
                total = build.add(total, build.mul(wide(i), wide(each)))
            sums.append(total)
        return compared("eq", *sums)

    def _same_value(self, a: Access, b: Access, renamed: Any) -> n.Expr:
        """Whether both store the same: then their order does not matter."""
        if a.value is None or b.value is None or a.verb != "write" or b.verb != "write":
            return FALSE
        x = a.value.stretched(tuple(v for v, _ in a.elements))[0]
        y = renamed(b.value.stretched(tuple(v for v, _ in b.elements))[0])
        if x == y:
            return TRUE
        return n.Call(SAME, (x, y), (), BOOL) if x.type == y.type and isinstance(x.type, DType) else FALSE

    def _of_ctas(self) -> Iterator[Obligation]:
        """Two CTAs that touch the same global memory."""
        if not self.axes:
            return
        given = self.params | {w.buffer.name for w in self.program.workspaces}
        every_one = [a for a in accesses(self.walk.items) if a.root in given]
        for k, a in enumerate(every_one):
            for b in every_one[k:]:
                if of_one_kind(a, b, True) or not self._may_meet(a, b):
                    continue
                yield self._race(Pair(Reached(a), Reached(b), {}), set(self.params), None)

    def _of_tiles(self) -> Iterator[Obligation]:
        """Elements of one tile that a store puts in one place."""
        for a in accesses(self.walk.items):
            if a.verb != "write" or a.place.thread or not a.elements:
                continue
            twin = {name: n.Var(f"{name}'", v.of) for v, _ in a.elements for name in (v.name,)}

            def renamed(e: Any, twin: Mapping[str, n.Var] = twin) -> Any:
                return Ranging(twin[e.var.name], e.lo, e.hi) if isinstance(e, Ranging) else substitute(e, twin)
            ranges = [Ranging(v, const(0), _extent(d)) for v, d in a.elements]
            apart = _any(compared("ne", v, twin[v.name]) for v, _ in a.elements)
            holding = [*a.place.holding, *ranges, *map(renamed, ranges), a.mask, renamed(a.mask), apart]
            claim = opposite(self._same_place(a, a, renamed))
            reply = self.ask(holding, claim, a.place, self._same_value(a, a, renamed))
            yield self._told("race", f"two elements of one store to '{a.root}'", a.place, reply, claim, a.place.anchor)

    def _of_lanes(self) -> Iterator[Obligation]:
        """Lanes of a warp that do something together all come to it."""
        for x in self.walk.lanes.exchanges:
            if (asks := together(x, self.params | set(self.axes))) is None:
                yield Obligation("barrier", "open", x.what, x.place.anchor, "some of them may have left before" if x.behind else "which of them come to it")
                continue
            told = (self._told("barrier", x.what, x.place, self.ask(held, claim, x.place), claim) for held, claim in asks)
            yield next((o for o in told if o.status != "proved"), Obligation("barrier", "proved", x.what, x.place.anchor))

    # --------------------------------------------------------------------------------------------------------------- barriers
    def _meetings(self, split: Split) -> Iterator[Obligation]:
        """Every barrier is reached by all threads: branches and loops around one are taken by all alike."""
        differs = varying(split.loop)
        start = len(split.place.path)
        for item in every(split.items):
            if isinstance(item, Branch) and any(map(has_barrier, item.arms)):
                cond = item.place.stmt.cond if isinstance(item.place.stmt, n.If) else None
                if cond is not None and not depends(cond, differs[item.place.path[start:]]):
                    yield Obligation("barrier", "proved", "a branch around a barrier", item.place.anchor)
                else:
                    yield self._alike(item.place, item.cond, split, "a branch around a barrier")
            if isinstance(item, Loop) and has_barrier(item.items):
                yield self._loop_alike(item, split, differs[item.place.path[start:]])
        for item in leaving(split.items):
            cond = item.place.stmt.cond if isinstance(item.place.stmt, n.If) else None
            if cond is None or depends(cond, differs[item.place.path[start:]]):
                yield self._alike(item.place, item.cond, split, EXIT if exits(split.items, item) else "a branch past a barrier")
        for item in every(split.items):
            if isinstance(item, Barrier):
                yield Obligation("barrier", "proved", "a barrier", item.place.anchor)

    def _loop_alike(self, item: Loop, split: Split, differs: Any) -> Obligation:
        s = item.place.stmt
        parts = (s.lo, s.hi, s.step) if isinstance(s, n.For) else (s.cond,) if isinstance(s, n.While) else ()
        inside = varying(split.loop)
        if isinstance(s, n.While):
            after = [names for path, names in inside.items() if path[:len(item.place.path) - len(split.place.path)] == item.place.path[len(split.place.path):]]
            differs = frozenset().union(differs, *after)
        if not any(depends(e, differs) for e in parts):
            return Obligation("barrier", "proved", "a loop around a barrier", item.place.anchor)
        if item.runs is None:
            return Obligation("barrier", "open", "a loop around a barrier", item.place.anchor, "how often threads go round is not known")
        return self._alike(item.place, item.runs, split, "a loop around a barrier", item.count)

    def _alike(self, place: Place, cond: n.Expr, split: Split, what: str, count: n.Var | None = None) -> Obligation:
        shared = self.params | set(self.axes) | {v.name for v in split.place.scope} | {v.name for v in place.scope if v != split.var}
        reached = Reached(Access("read", place, n.Buffer("%", BOOL, (), "shared"), "%", ()))
        renamed, _ = apart_by(reached, {}, shared | ({count.name} if count is not None else set()))
        more = [build.compare("ge", count, const(0, dtype_of(count.type)))] if count is not None else []
        holding = [*place.holding, *map(renamed, place.holding), *more, cond]
        claim = renamed(cond)
        return self._told("barrier", what, place, self.ask(holding, claim, place), claim)

    # ------------------------------------------------------------------------------------------------------------------ widths
    def _of_widths(self) -> Iterator[Obligation]:
        """Sums that were taken to fit their 32 bits. A counterexample is worked out before it is believed."""
        done: set[n.Expr] = set()
        while left := [e for e in self.wraps if e not in done]:
            done.add(e := left[0])
            place, held = self.wraps[e]
            holding = known_before(e, held)
            for hard in (False, True):  # most sums of which the solver says nothing at once do not fit
                told = self._told("overflow", f"{expr_text(e)[:60]} fits its 32 bits", place, reply := self._fits(e, place, holding, hard), e)
                values = reply.values if told.status == "refuted" and overflows(e, holding, reply.values) else None
                values = at_the_most(self.program, e, holding) if told.status != "proved" and values is None and not hard else values
                if values is not None or reply.kind != "unknown":
                    break
            if values is not None:
                told = Obligation("overflow", "refuted", told.what, told.anchor, values={k: v for k, v in values.items() if k in {*self.params, *self.axes}})
            elif told.status != "proved":
                told = Obligation("overflow", "open", told.what, told.anchor, told.why or "the solver's counterexample is none")
            yield told

    def _fits(self, e: n.Expr, place: Place, holding: tuple[Holding, ...], hard: bool) -> Reply:
        """Whether a sum fits its dtype; where the solver does not say so, with what is proved of divisions, and with a number that it is made of as one."""
        parts = self._smaller(e, holding)
        read = dict.fromkeys(x for x in walk(e) if isinstance(x, n.Call) and x.fn.startswith("%in "))
        holding = (*holding, *(inside(x, top) for x in read for top in self.contents.get(x.fn.partition(" ")[2], ())))
        reply = fitting(self.base, holding, e, parts, self.steps, hard)
        if reply.kind == "unknown" and (cuts := self._cuts(holding)):
            reply = fitting(self.base, (*holding, *cuts), e, parts, self.steps, hard)
        if reply.kind != "proved" and (told := as_number(e, holding, self.params, lambda held, claim: self._proves(held, claim, place))):
            other = fitting(self.base, told[1], told[0], parts, self.steps, hard)
            reply = other if other.kind == "proved" else reply
        return reply

    def _smaller(self, e: n.Expr, holding: tuple[Holding, ...]) -> list[n.Expr]:
        """Sums that a sum is made of, or is below, that are questions of their own, and smaller ones."""
        size = sum(1 for _ in walk(e))
        around = [e, *(end for h in holding if isinstance(h, Ranging) and h.var.name in names_read(e) for end in (h.lo, h.hi))]
        found = dict.fromkeys(x for end in around for x in walk(end) if isinstance(x, n.Expr) and x in self.wraps)
        return [x for x in found if sum(1 for _ in walk(x)) < size]

    def _of_grid(self) -> Iterator[Obligation]:
        """CTAs along the axes of a grid, which a launch takes up to 65,535 of beyond the first axis."""
        for axis, most in zip(self.kernel.grid, MOST_CTAS, strict=False):
            what = f"{expr_text(axis.extent)[:60]} CTAs along '{axis.name}' can be launched, at most {most:,}"
            if most == MOST_CTAS[0] and dtype_of(axis.extent.type).bits <= 32:
                yield Obligation("overflow", "proved", what, self.kernel.name)  # a number of 32 bits, where it fits them
                continue
            extent = wide(axis.extent)
            reply = asked(self.base, (), compared("le", extent, const(most, dtype_of(extent.type))), self.sizes, None, self.steps)
            if reply.kind == "fails":
                known = {p.name: const(reply.values[p.name], p.of) for p in self.program.params if p.name in reply.values and isinstance(p.of, DType)}
                found = int_value(substitute(axis.extent, known))
                if found is not None and found > most:
                    given = {k: v for k, v in reply.values.items() if k in self.params}
                    yield Obligation("overflow", "refuted", what, self.kernel.name, values=given)
                    continue
            if reply.kind == "unknown" and (large := more_than(self.program, axis.extent, most)) is not None:
                yield Obligation("overflow", "refuted", what, self.kernel.name, values=large)
                continue
            if reply.kind == "proved":
                yield Obligation("overflow", "proved", what, self.kernel.name)
            else:
                yield Obligation("overflow", "open", what, self.kernel.name, "the solver gave up")


class _Widths(_Kernel):
    """The widths of a kernel's indices, without all else."""

    def _walked(self) -> Walk:
        self.walk = Walk(self.program, self.kernel, frozenset())
        return self.walk

    def of(self, extents: frozenset[tuple[object, ...]], steps: bool) -> Iterator[Obligation]:
        """What is computed on the way to each access, but for the sizes of tensors."""
        for gap in self.walk.gaps:
            if "bounds" in gap.kinds:
                yield Obligation("overflow", "open", "not followed", gap.anchor, gap.why)
        asked_of = [(c.condition, c.place, (*c.place.holding, *c.holding)) for c in self.walk.claims]
        for a in accesses(self.walk.items):
            there = (*a.place.holding, *(Ranging(v, const(0), _extent(d)) for v, d in a.elements), a.mask)
            asked_of += [(compared("ge", i, const(0, dtype_of(i.type))), a.place, there) for i in a.index]
        asked_of += [(compared("ge", e, const(0, dtype_of(e.type))), place, held) for e, place, held in past(self.walk.items)] if steps else []
        for claim, place, holding in asked_of:
            self._note(fitted(self.base, holding, claim, self.steps), place, holding)
        self.wraps = {e: at for e, at in self.wraps.items() if polynomial_of(e) not in extents}
        yield from self._of_widths()
        yield from self._of_grid()


def _memory(data: list[str]) -> str:
    named = sorted({f"'{x.partition(' ')[2]}'" for x in data if x.startswith("%in ")})
    return " and ".join(named) if named else "memory"


def _extent(d: int | n.Expr) -> n.Expr:
    return const(d) if isinstance(d, int) else d


def _any(conditions: Iterable[n.Expr]) -> n.Expr:
    return reduce(either, conditions, FALSE)


__all__ = ["KINDS", "Contradiction", "KernelProof", "Obligation", "decided", "of_widths", "unordered"]
