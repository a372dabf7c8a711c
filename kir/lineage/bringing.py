"""A program brought into what a surface can say: optimizations that its compiler decides itself, or has no words for, are taken back.

Each step is the inverse of a registered pass, checked as any other (forward restores the program exactly), so that what is written is the
expert as far as the surface goes, and the steps say what is missing.
First come steps after which the surface refuses less; where no single one does, the one that is nearest to a refused statement. Where that leads nowhere,
the steps of a walk to naive, in its order. Both end after so many steps that helped nothing: what is then left is said to be left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from kir.carrier import declared
from kir.diagnostic import Diagnostic, KirError
from kir.ir import nodes as n
from kir.ir.paths import paths
from kir.ir.visit import statements
from kir.lineage.engine import PassEngine
from kir.rewrite import Site, Trace, apply, pass_class, passes, sites
from kir.rewrite.driver import Applied, run_backward
from kir.surface import Backend

Refused = tuple[Diagnostic, ...]
Next = Callable[["_State"], tuple[Applied, Refused] | None]
"""The next step back from a program, and what the surface then still refuses."""
THREADS = "thread-loop"
"""What passes provide that write a tile program out for its threads."""
MOST_STEPS = 60
"""Steps that may be taken back; each lowers the measure of law 9, so that there is an end anyway."""
MOST_LEVEL = 20
"""Steps in a row after which nothing less is refused. The longest that led anywhere, over all experts and surfaces, had 16."""


@dataclass(frozen=True)
class _State:
    """A program and what the surface refuses of it."""

    program: n.Program
    by: Backend
    engine: PassEngine
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

    def less(self, other: _State) -> bool:
        """Whether less is refused than of another program, or less of it as a whole."""
        return len(self.refused) < len(other.refused) or self.threads < other.threads

    def same(self, other: n.Program, at: Iterable[int | str]) -> bool:
        """Whether a step at a path that gives `other` leaves all that is refused as it is."""
        place = tuple(map(str, at))
        if _header(self.program) != _header(other):
            return False
        known = dict(paths(self.program))
        there = {s for k in other.kernels for s in statements(k.body)}
        for d in self.refused:
            path = _place(d.anchor)
            refused = known.get(path)
            if refused is None or refused not in there or tuple(map(str, path))[:len(place)] == place:
                return False
        return True


def brought(done: Trace, by: Backend) -> tuple[Trace, tuple[Diagnostic, ...]]:
    """The trace with what the surface cannot say taken back, and a note (KIR-B307) for each step. Raises KirError with the refusals that were there
    first, when nothing that is taken back helps, and KIR-B308, which says how near that came."""
    first, engine = by.accepts(done.program), PassEngine(only=lambda cls: not declared(cls))
    if not first:
        return done, ()
    nearest = _State(done.program, by, engine, first)
    steps: tuple[str, ...] = ()
    for next_step in (_nearest, _side_by_side, _walked):
        trace, notes, state, ended = _taken_back(done, nearest.by, engine, first, next_step)
        if not state.refused:
            return _on_tensor_cores(trace, by), notes
        if state.less(nearest):
            nearest, steps = state, tuple(d.subject for d in notes)
        if not ended:
            break
    raise KirError(*first, _left(first, nearest, steps))


def _left(first: Refused, nearest: _State, steps: tuple[str, ...]) -> Diagnostic:
    """What is in the way for good, as far as the search went."""
    names = list(dict.fromkeys(d.message for d in nearest.refused))
    more = f"; and {len(names) - 3} more" if len(names) > 3 else ""
    after = f"after {len(steps)} steps back ({', '.join(dict.fromkeys(steps))}) " if steps else ""
    said = f"no pass that is registered takes back all that {nearest.by.surface} refuses here: {len(first)} at first, {len(nearest.refused)} at least"
    return Diagnostic("KIR-B308", said, subject=nearest.program.name, anchor=nearest.refused[0].anchor, origin=nearest.refused[0].origin,
                      witness=(f"{after}these are left: {'; '.join(names[:3])}{more}",),
                      needs="other code at these places, or a pass whose inverse gives such code", attempt="another surface: kir opt .. --emit cuda"
                      if nearest.by.surface != "cuda" else "")


def _taken_back(done: Trace, by: Backend, engine: PassEngine, refused: Refused, next_step: Next) -> tuple[Trace, tuple[Diagnostic, ...], _State, bool]:
    """Steps until nothing is refused, or there are no more, or too many in a row that help nothing: the trace up to where least is refused, notes
    for its steps, what is refused there, and whether there are no more steps."""
    state = _State(done.program, by, engine, refused)
    best, level, useless = (done, 0, state), 0, set[str]()
    notes: list[Diagnostic] = []
    while len(notes) < MOST_STEPS and level <= MOST_LEVEL:
        found = next_step(replace(state, since=level, useless=useless))
        if found is None:
            return best[0], tuple(notes[:best[1]]), best[2], True
        applied, refused = found
        done, state = done.extended(applied), _State(applied.program, by, engine, refused)
        step = applied.record.step
        said = f"{by.surface} has no word for what this pass does here: ~{step.name} at {applied.record.anchor} is taken back"
        notes.append(Diagnostic("KIR-B307", said, subject=f"~{step.name}", anchor=applied.record.anchor, severity="warning"))
        level += 1
        if not refused or state.less(best[2]):
            best, level, useless = (done, len(notes), state), 0, set()
        if not refused:
            break
    return best[0], tuple(notes[:best[1]]), best[2], False


def _side_by_side(state: _State) -> tuple[Applied, Refused] | None:
    """All threads of a CTA as elements of tiles, where the surface knows no threads, and memory that they share as a part of a workspace; then what
    is nearest."""
    for name in ("element-per-thread", "localize-workspace"):
        for site in sites(pass_class(name).with_options({}), state.program, "backward"):
            if (applied := _back(state.program, site)) is not None:
                return applied, state.by.accepts(applied.program)
    return _nearest(state) if THREADS not in {kind for k in state.program.kernels for kind in _teams(k)} else None


def _teams(k: n.Kernel) -> set[str]:
    return {THREADS for s in statements(k.body) if isinstance(s, n.For) and s.kind == "thread"}


def _walked(state: _State) -> tuple[Applied, Refused] | None:
    """The next step of a walk to naive, in its order."""
    for candidate in state.engine.untried(state.program):
        if (made := _back(state.program, candidate.handle)) is not None:
            return made, state.by.accepts(made.program)
    return None


def _nearest(state: _State) -> tuple[Applied, Refused] | None:
    """The first step after which less is refused (or as much, where threads become tiles again); else one that makes tiles of threads that are refused as
    a whole; else what another algorithm makes less, if the last step helped; else the step nearest to a refused statement. None where no pass
    can be taken back."""
    whole: list[Site] = []
    fallback: list[tuple[int, Site]] = []
    program, places = state.program, [tuple(map(str, _place(d.anchor))) for d in state.refused]
    for candidate in state.engine.untried(program):
        site: Site = candidate.handle
        made = run_backward(program, site)[0]
        if candidate.text not in state.useless and not state.same(made, site.path):
            left = state.by.accepts(made)
            tiles = THREADS in site.params.provides
            state.useless.add(candidate.text)
            if len(left) < len(state.refused) + tiles:
                if (applied := _back(program, site)) is not None:
                    return applied, left
                continue
            if tiles and replace(state, program=made, refused=left).threads < state.threads:
                whole.append(site)
        fallback.append((max((_shared(tuple(map(str, site.path)), p) for p in places), default=0), site))
    if (found := _algorithm(state)) is not None:
        return found
    for site in (*whole, *(site for _, site in sorted(fallback, key=lambda each: -each[0]))):
        if (applied := _back(program, site)) is not None:
            return applied, state.by.accepts(applied.program)
    return None


def _algorithm(state: _State) -> tuple[Applied, Refused] | None:
    """What a carrier takes back whole, if less is refused then. To know an algorithm again is to run it, so that this is asked for once, not
    again after steps that helped nothing."""
    if state.since:
        return None
    for cls in filter(declared, passes()):
        for site in sites(cls.with_options({}), state.program, "backward"):
            left = state.by.accepts(run_backward(state.program, site)[0])
            if len(left) < len(state.refused) and (applied := _back(state.program, site)) is not None:
                return applied, left
    return None


def _back(program: n.Program, site: Site) -> Applied | None:
    """A step back with every check; None where a precondition does not hold."""
    try:
        return apply(program, site.params, site, "backward")
    except KirError:
        return None


def _header(program: n.Program) -> tuple[object, ...]:
    """What a program says beside its statements."""
    kernels = tuple((k.name, k.grid, k.threads, k.cluster, k.attrs) for k in program.kernels)
    return program.metas, program.params, program.workspaces, program.tensor_maps, program.functions, program.plan, kernels


def _place(anchor: str) -> tuple[int | str, ...]:
    """A diagnostic's structural path."""
    return tuple(int(part) if part.isdigit() else part for part in anchor.partition(" ")[0].split("/"))


def _shared(a: tuple[str, ...], b: tuple[str, ...]) -> int:
    """How many steps two paths have in common."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


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
