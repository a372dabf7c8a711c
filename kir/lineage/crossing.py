"""Crossing: the steps of a lineage replayed on a kernel that it was not learned from, in whatever language that is written.

Each forward step is looked for on the other program (at the same place, else at the one that matches best), its preconditions are judged
there anew, and the surface that is to be written must be able to say the result. What does not hold is left out, with the reason, and the
next step is tried on what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Literal

from kir.analysis.normal.normal_form import normalize
from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, rename
from kir.ir.nodes import Program
from kir.ir.visit import transform
from kir.lineage.candidates import Looks
from kir.lineage.carrier import declared
from kir.lineage.convergence import common_form, common_names
from kir.lineage.engine import PassEngine
from kir.lineage.plan import plan
from kir.lineage.records.folder import Folder
from kir.lineage.records.record import Lineage
from kir.lineage.records.record import Step as Recorded
from kir.rewrite import Context, Pass, Path, Site, Step, apply, each_site, pass_class, passes
from kir.rewrite.anchor import anchor_text
from kir.rewrite.base import Option
from kir.rewrite.driver import forward_site
from kir.rewrite.residue import NOTHING, Residue

Outcome = Literal["carried", "elsewhere", "adapted", "refused", "no place", "unsaid"]
"""`carried`: at the same place; `elsewhere`: at another; `adapted`: with another parameter, or by another pass of the same intent;
`refused`: by a precondition; `unsaid`: the surface cannot say the result."""
MOST_BACK = 24
"""Steps of a kernel that are undone before what was learned is tried on it."""
MOST_DOWN = 60
"""Steps of a kernel's own walk down to its naive end."""
MOST_NAMED = 3
"""Steps left out earlier that a step without a place names."""
LINE = "linear"
"""What passes provide that number CTAs in one line: what the lineage has in more axes, people number so by hand."""
Says = Callable[[Program], tuple[Diagnostic, ...]]


@dataclass(frozen=True)
class Crossing:
    """What became of one step: its number from the naive end, the step as stored, and as applied (or as it was tried), and why not."""

    number: int
    step: Recorded
    outcome: Outcome
    text: str
    reason: str = ""
    diagnostic: Diagnostic | None = None

    @property
    def carried(self) -> bool:
        return self.outcome in ("carried", "elsewhere", "adapted")


@dataclass(frozen=True)
class Crossed:
    """The program after all steps that were carried, and what became of each. `meets`: it was the lineage's naive program, in other words;
    perhaps after steps back, `undone` (a surface may not be able to say the naive program itself: Triton has no CTA of one thread; and what people
    write first has blocks of threads already)."""

    program: Program
    steps: tuple[Crossing, ...]
    meets: bool
    undone: str = ""


def cross(lineage: Lineage, folder: Folder, program: Program, says: Says = lambda _: (), assume: Iterable[str] = (),
          context: Context | None = None) -> Crossed:
    """Replay the lineage's steps on `program` (specialized). `says` is what a surface cannot say of a program; `assume` are precondition
    ids that count as assumed where they cannot be decided. Raises KirError only when a stored program is missing or was changed."""
    naive = folder.program(lineage.states[-1])
    now, undone = _met(lineage, common_form(naive), normalize(program))
    meets = common_form(naive) == common_form(now)
    names: Mapping[str, str] = {}
    if meets:
        now, names = in_words_of(naive, now)
    kernels = dict(zip((k.name for k in naive.kernels), (k.name for k in now.kernels), strict=False))
    done: list[Crossing] = []
    for number, step in lineage.transitions():
        assert step.after is not None
        source = folder.program(step.after)
        crossing, now = _Attempt(number, step, source, now, names, kernels, frozenset(assume), context or Context(), says).run()
        left = [each for each in done if not each.carried]
        if crossing.outcome == "no place" and left:
            first = ", ".join(f"{each.number} {each.step.intent}" for each in left[:MOST_NAMED])
            crossing = replace(crossing, reason=f"no such place; left out before it: {first}{', ..' if len(left) > MOST_NAMED else ''}")
        done.append(crossing)
    return Crossed(now, tuple(done), meets, undone)


def _met(lineage: Lineage, wanted: Program, program: Program) -> tuple[Program, str]:
    """The program, or what steps back from it give where that is the program that is wanted, or a naive one. Of a naive program that is another,
    what the lineage's own passes may have brought in is undone too."""
    if common_form(program) == wanted:
        return program, ""
    for cls in passes():
        for site in each_site(cls.with_options({}), program, "backward"):
            back = _back(program, site)
            if back is not None and common_form(back) == wanted:
                return back, _named(program, site)
    full = PassEngine.of(lineage.header)
    looks = Looks(lambda cls: not declared(cls))
    own = {Step.from_json(step.witness).name for _, step in lineage.transitions()}
    own |= {cls.name for cls in passes() if LINE in cls.provides and any(len(k.grid) > 1 for k in wanted.kernels)}
    now, steps = _descended(full, program)
    for _ in range(MOST_BACK):
        naive = not full.violations(now)
        found = ((each.handle, back) for each in looks.untried(now) if not naive or each.name in own
                 if (back := _back(now, each.handle)) is not None)
        step = next(found, None)
        if step is None or common_form(now) == wanted:
            break
        steps.append(_named(now, step[0]))
        now = step[1]
    return (program, "") if full.violations(now) else (now, "; ".join(steps))


def _descended(engine: PassEngine, program: Program) -> tuple[Program, list[str]]:
    """The naive end of a kernel's own walk back, and its steps: what lowers the measure first. A kernel whose walk ends before stays as it is."""
    now, steps, seen = program, list[str](), {engine.content(program)}
    delayed = plan(program, engine).delayed if engine.violations(program) else ()
    while engine.violations(now) and len(steps) < MOST_DOWN:
        measure = engine.measure(now)
        for candidate in engine.candidates(now, delayed):
            try:
                made = engine.backward(now, candidate).program
            except KirError:
                continue
            if engine.measure(made) < measure and engine.content(made) not in seen:
                now = made
                steps.append(candidate.text)
                seen.add(engine.content(made))
                break
        else:
            return program, []
    return (program, []) if engine.violations(now) else (now, steps)


def _back(program: Program, site: Site) -> Program | None:
    """What a step back gives, with every check; None where it is refused."""
    try:
        return apply(program, site.params, site, "backward").program
    except KirError:
        return None


def _named(program: Program, site: Site) -> str:
    return f"~{site.params}@{anchor_text(program, site.path)}"


def in_words_of(naive: Program, program: Program) -> tuple[Program, dict[str, str]]:
    """`naive` with the names, parameters and promises of `program`, which computes the same; and the names: naive's -> program's.
    What differs from `program` is the order of the grid's axes, and the names of locals."""
    here, there = common_names(naive), common_names(program)
    back = {common: name for name, common in there.items()}
    names = {name: back[common] for name, common in here.items()}
    buffers = {p.name: p.of for p in program.params if isinstance(p.of, n.Buffer)}
    kernels = {a.name: b.name for a, b in zip(naive.kernels, program.kernels, strict=True)}

    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Buffer(space="global") if new.name in buffers:
                return buffers[new.name]
            case n.Kernel():
                return replace(new, name=kernels[new.name])
            case n.Launch():
                return replace(new, kernel=kernels[new.kernel])
            case _:
                return new

    spelled: Program = transform(rename(_apart(naive, names), names), leave)
    return replace(spelled, name=program.name, params=program.params, facts=program.facts, plan=program.plan), names | kernels


def _apart(naive: Program, names: Mapping[str, str]) -> Program:
    """`naive` with local names moved out of the way of the names that its parameters are to have."""
    wanted = set(names.values())
    kernels = []
    for k in naive.kernels:
        local = dict.fromkeys((*(a.name for a in k.grid), *bound_names(k.body)))
        taken = {*local, *names, *wanted}
        moved: dict[str, str] = {}
        for name in local:
            if name in wanted:
                moved[name] = next(x for i in range(1, len(taken) + 2) if (x := f"{name}_{i}") not in taken)
                taken.add(moved[name])
        kernels.append(rename(k, moved))
    return replace(naive, kernels=tuple(kernels))


@dataclass(frozen=True)
class _Attempt:
    """One step on one program."""

    number: int
    step: Recorded
    source: Program
    program: Program
    names: Mapping[str, str]
    kernels: Mapping[str, str]
    assume: frozenset[str]
    context: Context
    says: Says

    def run(self) -> tuple[Crossing, Program]:
        """The step itself; where that cannot be, what says the same less exactly."""
        stored = Step.from_json(self.step.witness)
        options = {k: self._translated(v) for k, v in stored.options.items()}
        first, made = self._tried(pass_class(stored.name), options)
        if first.carried:
            return first, made
        for cls, fewer in self._alternatives(stored.name, options):
            again, made = self._tried(cls, fewer)
            if again.carried:
                return replace(again, outcome="adapted", reason=first.reason, diagnostic=first.diagnostic), made
        return first, self.program

    def _alternatives(self, name: str, options: Mapping[str, Option]) -> Iterator[tuple[type[Pass], Mapping[str, Option]]]:
        """The same pass with one parameter left to it; other passes of the same intent, with the parameters that they share."""
        own = pass_class(name)
        types = {f.name: f.type for f in fields(own)}
        for left in options:
            yield own, {k: v for k, v in options.items() if k != left}
        for cls in passes():
            if cls.intent == own.intent and cls is not own:
                known = {f.name for f in fields(cls) if f.type == types.get(f.name)}
                yield cls, {k: v for k, v in options.items() if k in known}

    def _tried(self, cls: type[Pass], options: Mapping[str, Option]) -> tuple[Crossing, Program]:
        stored = Step.from_json(self.step.witness)
        item = cls.with_options(options)
        try:
            site, outcome = self._site(item, options, self._place(stored))
        except KirError as bad:
            return self._left("no place", str(item), bad.diagnostics[0])
        text = f"{site.params}@{anchor_text(self.program, site.path)}"
        assume = (stored.assume | self.assume) & {p.id for p in site.params.preconditions}
        try:
            made = self._applied(site, stored.residue, assume)
        except KirError as bad:
            refused = next((d for d in bad.diagnostics if d.id.startswith("KIR-P")), bad.diagnostics[0])
            return self._left("refused", text, refused)
        if unsaid := self.says(made):
            return self._left("unsaid", text, unsaid[0])
        return Crossing(self.number, self.step, outcome, text), made

    def _left(self, outcome: Outcome, text: str, why: Diagnostic) -> tuple[Crossing, Program]:
        told = "; ".join((f"{why.id}: {why.message}", *why.witness[:1]))
        return Crossing(self.number, self.step, outcome, text, told, why), self.program

    def _translated(self, value: Option) -> Option:
        if isinstance(value, tuple):
            return tuple(self.names.get(x, x) if isinstance(x, str) else x for x in value)  # type: ignore[return-value]  # of one type, as before
        return self.names.get(value, value) if isinstance(value, str) else value

    def _place(self, stored: Step) -> Path:
        path = stored.path or (self.source.kernels[0].name,)
        return (self.kernels.get(str(path[0]), path[0]), *path[1:])

    def _site(self, item: Pass, options: Mapping[str, Option], path: Path) -> tuple[Site, Outcome]:
        """The same place if the pass applies there, else the one that stands where the step's stood among its own."""
        try:
            return forward_site(self.program, item, path), "carried"
        except KirError:
            here = [s for s in item.sites(self.program) if all(getattr(s.params, k) == v for k, v in options.items())]
            if not here:
                raise
        exact = [s for s in here if s.path == path]
        if exact:
            return exact[0], "carried"
        stored = Step.from_json(self.step.witness)
        own = pass_class(stored.name).with_options(stored.options)
        there = [s.path for s in own.sites(self.source) if all(getattr(s.params, k) == v for k, v in stored.options.items())]
        at = there.index(stored.path) if stored.path in there else 0
        return here[min(at, len(here) - 1)], "elsewhere"

    def _applied(self, site: Site, left: Residue, assume: frozenset[str]) -> Program:
        """The step with its own names and order where these fit (they need not, on a program of another shape), else without."""
        def applied(residue: Residue) -> Program:
            return apply(self.program, site.params, site, "forward", assume=assume, left=residue, context=self.context).program

        if left:
            try:
                return applied(left)
            except KirError as bad:
                if any(d.id.startswith("KIR-P") for d in bad.diagnostics):
                    raise
            except (KeyError, IndexError, ValueError, StopIteration):
                pass  # a residue of another program
        return applied(NOTHING)
