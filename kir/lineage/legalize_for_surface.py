"""A program brought into what a surface can say: optimizations that its compiler decides itself, or has no words for, are undone.

Each step is the inverse of a registered pass, checked as any other (forward restores the program exactly), so that what is written is the
expert as far as the surface goes, and the steps say what is missing.
First come steps after which the surface refuses less; where no single one does, the one that is nearest to a refused statement. Where that leads nowhere,
the threads of a CTA become elements of tiles, if that helps; and then come the steps of a walk to naive, in its order. Each ends after so many
steps that helped nothing, and when as much of a program has been looked through as a second is enough for, unless more steps are asked for: what
is then left is said to be left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import field, replace
from functools import cached_property

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError
from kir.ir import nodes as n
from kir.ir.build import is_const
from kir.ir.measures.measure import Measure, decreases, measure
from kir.ir.paths import paths
from kir.ir.visit import blocks_of, statements, walk
from kir.lineage.candidates import Candidate, Looks, candidates, nearness
from kir.lineage.carrier import declared
from kir.rewrite import Site, Trace, apply, misses, pass_class, sites
from kir.rewrite.anchor import anchor_text
from kir.rewrite.driver import Applied, run_backward
from kir.rewrite.edit import enclosing, node_at
from kir.surface import Backend

Refused = tuple[Diagnostic, ...]
Next = Callable[["_State"], "_Step | None"]
"""The next step back from a program; None where there is none."""
THREADS = "thread-loop"
"""What passes provide that write a tile program out for its threads."""
MOST_STEPS = 60
"""Steps that may be undone; each lowers the measure of law 9, so that there is an end anyway."""
MOST_WORK = 100_000
"""Statements times IR nodes of the programs that are looked through where nobody said how many steps may be taken: each place is tried in its whole
program. Steps that undo what only hardware explains count an eighth: they hide what else would be refused. GEMM, softmax and norm experts, with
up to 24 steps, need up to 90,000; a kernel of 500 lines has some three steps, or one if it is flat."""
MOST_REFUSED = 6 * MOST_WORK
"""Where more is refused than six times the steps that can be paid for, one is tried."""
HARDWARE = Measure._fields.index("lanes")
"""So many components of the measure count what only hardware explains: roles, asynchrony, stages, matrix instructions."""
MOST_PLACES = 4
"""Places at which a pass is tried at once: those nearest to what is refused."""
MOST_LEVEL = 20
"""Steps in a row after which nothing less is refused. The longest that led anywhere, over all experts and surfaces, had 16."""


@dataclass(frozen=True)
class _State:
    """A program and what the surface refuses of it."""

    program: n.Program
    by: Backend
    looks: Looks
    refused: Refused
    since: int = 0
    """Steps since one helped."""
    useless: set[str] = field(default_factory=set)
    """What helped nothing when it was looked at since then: it is not looked at again."""

    @property
    def threads(self) -> int:
        """Loops over threads that are refused as a whole, which hides what is refused in them."""
        known = dict(paths(self.program))
        found = [known.get(_place(d.anchor)) for d in self.refused]
        return sum(isinstance(s, n.For) and s.kind == "thread" for s in found)

    @property
    def of_warps(self) -> bool:
        """Whether a matrix instruction is refused that the threads of a warp give together: only tiles have other words for that."""
        return any((isinstance(s, n.Copy) and s.via.startswith(("ldmatrix", "stmatrix"))) or any(
            isinstance(x, n.Call) and x.fn == "mma_sync" for x in walk(s)) for s in self.statements.values() if s is not None and not blocks_of(s))

    def less(self, other: _State) -> bool:
        """Whether less is refused than of another program, or less of it as a whole."""
        return len(self.refused) < len(other.refused) or self.threads < other.threads

    def same(self, other: n.Program, at: Iterable[int | str]) -> bool:
        """Whether a step at a path that gives `other` leaves all that is refused as it is: the very statements, not around the step nor in it."""
        step = tuple(map(str, at))
        if _header(self.program) != _header(other):
            return False
        for path, refused in self.statements.items():
            if refused is None or nearness(step, (path,)) == min(len(step), len(path)):
                return False
        there = {id(s) for k in other.kernels for s in statements(k.body)}
        return all(id(refused) in there for refused in self.statements.values())

    @cached_property
    def statements(self) -> dict[tuple[str, ...], n.Stmt | None]:
        """What is refused, by its path."""
        known = dict(paths(self.program))
        return {tuple(map(str, path)): known.get(path) for path in (_place(d.anchor) for d in self.refused)}


@dataclass(frozen=True)
class _Step:
    """A step back, its anchor in the program before, and what the surface then still refuses."""

    applied: Applied
    anchor: str
    refused: Refused
    why: str = "cannot say what this pass does here"


def _size(program: n.Program) -> int:
    """How much a look through a program is."""
    return measure(program).statements * measure(program).nodes


@dataclass
class _Left:
    """What the search may still do: steps, and work (`MOST_WORK`)."""

    steps: int = MOST_STEPS
    work: float = MOST_WORK

    def pay(self, before: n.Program, after: n.Program) -> None:
        """Take off what a step and the look for it cost."""
        whole = _size(before)
        self.steps -= 1
        self.work -= whole // 8 if measure(after)[:HARDWARE] < measure(before)[:HARDWARE] else whole

    @property
    def nothing(self) -> bool:
        """Whether it has to end here."""
        return self.steps <= 0 or self.work <= 0


@dataclass(frozen=True)
class _Way:
    """The steps up to where least is refused, what is said of each, and what is refused there."""

    trace: Trace
    notes: tuple[Diagnostic, ...]
    state: _State


def brought(done: Trace, by: Backend, steps: int | None = None) -> tuple[Trace, tuple[Diagnostic, ...]]:
    """The trace with what the surface cannot say undone, and a note (KIR-B307) for each step, of which there may be as many as `steps`; None: as
    many as a second is enough for. Raises KirError with the refusals that were there first, when nothing that is undone helps, and KIR-B308,
    which says how near that came."""
    first, looks = by.accepts(done.program), Looks(lambda cls: not declared(cls))
    if not first:
        return done, ()
    nearest = _Way(done, (), _State(done.program, by, looks, first))
    left = _Left(work=1 if len(first) * _size(done.program) > MOST_REFUSED else MOST_WORK) if steps is None else _Left(steps, math.inf)
    aside = _Left(left.steps, 4 * MOST_WORK) if steps is not None or _size(done.program) <= MOST_WORK else _Left(0)
    for next_step, spent in ((_nearest, left), (_side_by_side, aside), (_walked, left)):
        if spent.nothing or (next_step is _side_by_side and not _has_elements(done.program)):
            continue
        way, ended = _undone(_Way(done, (), replace(nearest.state, program=done.program, refused=first)), spent, next_step)
        if not way.state.refused:
            if next_step is _nearest and _alone(way.state.program) and not _alone(done.program) and _has_elements(done.program):
                # one thread would do what all do
                beside, _ = _undone(_Way(done, (), replace(nearest.state, program=done.program, refused=first)), _Left(), _side_by_side)
                way = beside if not beside.state.refused else way
            return _on_tensor_cores(way.trace, by), way.notes
        if way.state.less(nearest.state):
            nearest = way
        if not ended and next_step is _nearest:
            left.steps = 0
    raise KirError(*first, _refused(first, nearest, cut=steps is None and left.work <= 0))


def _refused(first: Refused, nearest: _Way, *, cut: bool) -> Diagnostic:
    """What is in the way for good, as far as the search went."""
    state, steps = nearest.state, tuple(d.subject for d in nearest.notes)
    names = list(dict.fromkeys(d.message for d in state.refused))
    more = f"; and {len(names) - 3} more" if len(names) > 3 else ""
    after = f"after {len(steps)} steps back ({', '.join(dict.fromkeys(steps))}) " if steps else ""
    said = f"no pass that is registered undoes all that {state.by.surface} refuses here: {len(first)} at first, {len(state.refused)} at least"
    if cut:
        said = f"{said}, in as many steps as are taken unasked in a program of this size"
    other = "another surface: kir opt .. --emit cuda" if state.by.surface != "cuda" else ""
    return Diagnostic("KIR-B308", said, subject=state.program.name, anchor=state.refused[0].anchor, origin=state.refused[0].origin,
                      witness=(f"{after}these are left: {'; '.join(names[:3])}{more}", *_hindered(state)),
                      needs="other code at these places, or a pass whose inverse gives such code",
                      attempt="; or ".join(filter(None, (f"more steps: kir opt .. --emit {state.by.surface} --max-undo {MOST_STEPS}" if cut else "", other))))


def _hindered(state: _State) -> list[str]:
    """Why threads that are refused as a whole are not made tiles: what the passes say that do that."""
    if not state.threads:
        return []
    found: list[str] = []
    for cls in state.looks.which(lambda told: THREADS in told.features.provides):
        found += [f"{anchor_text(state.program, path)} is no ~{cls.name}: {why}" for path, why in misses(cls.with_options({}), state.program, "backward")]
    return found


def _undone(way: _Way, left: _Left, next_step: Next) -> tuple[_Way, bool]:
    """Steps until nothing is refused, or there are no more, or too many in a row that help nothing, or nothing is left to spend: the way up to
    where least is refused, and whether there are no more steps."""
    best, level, useless = way, 0, set[str]()
    while not left.nothing and level <= MOST_LEVEL:
        found = next_step(replace(way.state, since=level, useless=useless))
        if found is None:
            return best, True
        left.pay(way.state.program, found.applied.program)
        step = f"~{found.applied.witness.params.name}"
        said = f"{way.state.by.surface} {found.why}: {step} at {found.anchor} is undone"
        note = Diagnostic("KIR-B307", said, subject=step, anchor=found.anchor, severity="warning")
        state = replace(way.state, program=found.applied.program, refused=found.refused)
        way = _Way(way.trace.extended(found.applied), (*way.notes, note), state)
        level += 1
        if not state.refused or state.less(best.state):
            best, level, useless = way, 0, set()
        if not state.refused:
            break
    return best, False


def _side_by_side(state: _State) -> _Step | None:
    """All threads of a CTA as elements of tiles, where the surface knows no threads, and memory that they share as a part of a workspace; then what
    is nearest. Unrolled loops in one another are loops first: what one thread does in so many registers, tiles of all do in as many statements."""
    lanewise = _lanewise(state.program)
    for name in ("unroll", "element-per-thread", "localize-workspace"):
        for candidate in candidates(state.program, pass_class(name)):
            if name == "unroll" and not (lanewise and _unrolled_twice(state.program, candidate.handle)):
                continue
            try:
                applied = apply(state.program, candidate.handle.params, candidate.handle, "backward")
            except KirError:
                continue
            step = _Step(applied, candidate.anchor, state.by.accepts(applied.program))
            return replace(step, why="would write out all rounds of loops in one another") if name == "unroll" else step
    return None if lanewise else _nearest(state)


def _has_elements(program: n.Program) -> bool:
    """Whether a kernel is one loop over the threads of a CTA, which may be elements of tiles."""
    item = pass_class("element-per-thread").with_options({})
    return any(item.match_inverse(program, (k.name,), k) is not None for k in program.kernels)


def _lanewise(program: n.Program) -> bool:
    """Whether some code is written for each thread."""
    return any(isinstance(s, n.For) and s.kind == "thread" for k in program.kernels for s in statements(k.body))


def _alone(program: n.Program) -> bool:
    """Whether some CTA has one thread."""
    return any(is_const(k.threads, 1) for k in program.kernels)


def _unrolled_twice(program: n.Program, site: Site) -> bool:
    """Whether a loop that is marked to be unrolled stands in another one, or has one in it."""
    loop = node_at(program, site.path)
    around = [s for _, s in enclosing(program, site.path)]
    inside = list(statements(loop.body)) if isinstance(loop, n.For) else []
    return isinstance(loop, n.For) and loop.kind == "unroll" and any(isinstance(s, n.For) and s.kind == "unroll" for s in (*around, *inside))


def _walked(state: _State) -> _Step | None:
    """The next step of a walk to naive, in its order."""
    return next((step for each in state.looks.untried(state.program) if (step := _back(state, each)) is not None), None)


def _nearest(state: _State) -> _Step | None:
    """What makes tiles of threads, where matrix instructions of their warps are refused; else the first step after which less is refused (or as much,
    where threads become tiles again); else one that makes tiles of threads that are refused as a whole; else what another algorithm makes less, if
    the last step helped; else the step nearest to a refused statement. None where no pass can be undone."""
    whole: list[Candidate] = []
    fallback: list[tuple[int, Candidate]] = []
    places = [tuple(map(str, _place(d.anchor))) for d in state.refused]
    known = tuple(state.looks.untried(state.program, places, MOST_PLACES, lambda site: _left(state, site)))
    if state.of_warps:
        made_tiles = (each for each in known if THREADS in each.handle.params.provides)
        if (step := next((step for each in made_tiles if (step := _back(state, each)) is not None), None)) is not None:
            return step
    for candidate in known:
        site: Site = candidate.handle
        if candidate.text not in state.useless and (left := candidate.judged[0] if candidate.judged else _left(state, site)) is not None:
            refused, threads = left
            tiles = THREADS in site.params.provides and state.threads > 0
            state.useless.add(candidate.text)
            if refused < len(state.refused) + tiles:
                if (step := _back(state, candidate)) is not None:
                    return step
                continue
            if tiles and threads < state.threads:
                whole.append(candidate)
        fallback.append((nearness(site.path, places), candidate))
    if (found := _algorithm(state)) is not None:
        return found
    ordered = (*whole, *(each for _, each in sorted(fallback, key=lambda each: -each[0])))
    return next((step for each in ordered if (step := _back(state, each)) is not None), None)


def _left(state: _State, site: Site) -> tuple[int, int] | None:
    """How much is refused after a step back, and how many loops over threads as a whole; None where it changes nothing that is refused."""
    made = _simpler(state, site)
    if made is None or state.same(made, site.path):
        return None
    left = state.by.accepts(made)
    return len(left), replace(state, program=made, refused=left).threads


def _algorithm(state: _State) -> _Step | None:
    """What a carrier undoes whole, if less is refused then. To know an algorithm again is to run it, so that this is asked for once, not
    again after steps that helped nothing."""
    if state.since:
        return None
    for cls in state.looks.which(lambda told: told.carrier):
        for candidate in candidates(state.program, cls):
            simpler = _simpler(state, candidate.handle)
            if simpler is not None and len(state.by.accepts(simpler)) < len(state.refused) and (step := _back(state, candidate)) is not None:
                return step
    return None


def _simpler(state: _State, site: Site) -> n.Program | None:
    """What a step back gives, not yet checked; None where the pass cannot be undone, or makes nothing simpler (a carrier may)."""
    try:
        made = run_backward(state.program, site)[0]
    except KirError:
        return None
    return made if declared(type(site.params)) or decreases(state.program, made) else None


def _back(state: _State, candidate: Candidate) -> _Step | None:
    """A step back with every check; None where a precondition does not hold."""
    site = state.looks.site(state.program, candidate)
    if _simpler(state, site) is None:
        return None
    try:
        applied = apply(state.program, site.params, site, "backward")
    except KirError:
        return None
    return _Step(applied, candidate.anchor, state.by.accepts(applied.program))


def _header(program: n.Program) -> tuple[object, ...]:
    """What a program says beside its statements."""
    kernels = tuple((k.name, k.grid, k.threads, k.cluster, k.attrs) for k in program.kernels)
    return program.metas, program.params, program.workspaces, program.tensor_maps, program.functions, program.plan, kernels


def _place(anchor: str) -> tuple[int | str, ...]:
    """A diagnostic's structural path."""
    return tuple(int(part) if part.isdigit() else part for part in anchor.partition(" ")[0].split("/"))


def _on_tensor_cores(done: Trace, by: Backend) -> Trace:
    """Products that were left to scalar units, with the surface's own product where it has one."""
    while True:
        for site in sites(pass_class("mma").with_options({}), done.program, "forward"):
            try:
                made = apply(done.program, site.params, site, "forward")
            except KirError:
                continue
            if not by.accepts(made.program):
                done = done.extended(made)
                break
        else:
            return done


__all__ = ["brought"]
