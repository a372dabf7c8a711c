"""A pipeline that was learned from one kernel, replayed on another: which steps carry over, and why the others do not.

The other kernel's names are its own. Where it meets the naive program of the lineage (`kir.lineage.meeting`), they are replaced by the lineage's
for the time of the replay, so that every place and every parameter means what it meant; once a step has been left out, or where the kernels differ,
anchors and patterns decide, and parameters that speak of names which are not there are found anew. Preconditions are judged afresh in any case.
A step whose result the surface cannot say is left out, as far as the surface goes, with the surface's own reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from kir.diagnostic import Diagnostic, KirError
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, content_hash, rename
from kir.ir.nodes import Program
from kir.ir.visit import walk
from kir.lineage.meeting import by_use, meetings, parameter_order
from kir.rewrite import Context, Pass, Site, Step, apply, pass_class
from kir.rewrite.anchor import anchor_text
from kir.rewrite.driver import forward_site
from kir.rewrite.pipeline import find_site
from kir.rewrite.residue import NOTHING
from kir.surface import Backend

Why = Literal["", "place", "precondition", "surface"]


@dataclass(frozen=True)
class Learned:
    """A step of a lineage on its way forward: the program that it was taken from, and the step with its place and residue."""

    before: Program
    step: Step

    @property
    def intent(self) -> str:
        """The intent of its pass."""
        return pass_class(self.step.name).intent or self.step.name


@dataclass(frozen=True)
class Crossing:
    """One step on the other kernel. `why` tells the kinds of refusal apart: no `place` where it applies, a `precondition`, or the
    `surface`, which cannot say the result. `done` is the step as it was taken there."""

    number: int
    learned: str
    intent: str
    carried: bool
    done: str = ""
    why: Why = ""
    reason: str = ""
    diagnostic: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"number": self.number, "step": self.learned, "intent": self.intent, "carried": self.carried, "done": self.done, "why": self.why,
                "reason": self.reason, "diagnostic": self.diagnostic}


@dataclass(frozen=True)
class Crossed:
    """The outcome: every step, the program that came of those that were carried, and whether the kernel met the lineage's naive program."""

    met: bool
    steps: tuple[Crossing, ...]
    program: Program

    @property
    def carried(self) -> int:
        """How many steps were carried over."""
        return sum(s.carried for s in self.steps)

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"met": self.met, "carried": self.carried, "refused": len(self.steps) - self.carried, "hash": content_hash(self.program),
                "steps": [s.to_json() for s in self.steps]}


def cross(learned: Sequence[Learned], on: Program, by: Backend | None = None, context: Context | None = None) -> Crossed:
    """Replay a lineage's steps on `on`. With a backend, each result must be one that its surface can say. Raises KirError with the
    backend's refusals when it cannot say `on` itself."""
    context = context or Context()
    if by is not None and (refused := by.accepts(on)):
        raise KirError(*refused)
    naive = learned[0].before if learned else on
    met = meetings([on]) == meetings([naive])
    there, back = _aligned(on, naive) if met else (on, {})
    out: list[Crossing] = []
    whole = met
    for number, each in enumerate(learned, 1):
        whole = whole and meetings([there]) == meetings([each.before])
        said = _said(each.step, there)
        try:
            made, done = _taken(each, there, whole, context)
        except KirError as bad:
            first = bad.diagnostics[0]
            why: Why = "place" if first.id.startswith("KIR-R") else "precondition"
            out.append(Crossing(number, said, each.intent, False, "", why, _reason(first), first.id))
            continue
        if by is not None and (refused := by.accepts(_named_back(made, back))):
            out.append(Crossing(number, said, each.intent, False, done, "surface", _reason(refused[0]), refused[0].id))
            continue
        there = made
        out.append(Crossing(number, said, each.intent, True, done))
    return Crossed(met, tuple(out), _named_back(there, back))


def _said(step: Step, program: Program) -> str:
    return str(replace(step, residue=NOTHING, path=None, hash=""))


def _reason(d: Diagnostic) -> str:
    return f"{d.message}{f' (needs {d.needs})' if d.needs else ''}"


def _taken(each: Learned, there: Program, whole: bool, context: Context) -> tuple[Program, str]:
    """The program after a step, and the step as it was taken. Raises KirError: KIR-R.. for no place, else a precondition's."""
    step = each.step
    item = pass_class(step.name).with_options(step.options)
    if whole and step.path is not None:
        site = forward_site(there, item, step.path)
        made = apply(there, item, site, "forward", assume=step.assume, left=step.residue, context=context)
    else:
        item, site = _found(step, there)
        made = apply(there, item, site, "forward", assume=step.assume, left=NOTHING, context=context)
    return made.program, str(Step.of(site.params, anchor_text(there, site.path)))


def _found(step: Step, there: Program) -> tuple[Pass, Site]:
    """Where a step means to act in a program that is not the one it was learned from: at its anchor, else at the one place where it applies,
    with all its parameters, else with those that mention no name which is not there."""
    names = {x.name for k in there.kernels for x in walk(k) if isinstance(x, (n.Var, n.Buffer))}
    cls = pass_class(step.name)
    known = {k: v for k, v in step.options.items() if not _speaks_of_others(v, names)}
    plain = replace(step, residue=NOTHING, path=None, hash="")
    first: KirError | None = None
    for attempt in (plain, replace(plain, at=""), replace(plain, at="", options=known)):
        try:
            cls.with_options(attempt.options)
            return find_site(there, attempt)
        except KirError as bad:
            if first is None or first.diagnostics[0].id == "KIR-R004":
                first = bad if first is None or bad.diagnostics[0].id != "KIR-R004" else first
    assert first is not None
    raise first


def _speaks_of_others(value: object, names: set[str]) -> bool:
    """Whether a parameter names something that the program has not."""
    if not isinstance(value, str) or "[" not in value:
        return False
    words = "".join(c if c.isalnum() or c == "_" else " " for c in value).split()
    common = {"load", "cast", "else", "clip", "where", "cache", "expand", "axis", "trans", "iota", "exp", "select"}
    return any(not (w[0].isdigit() or w in names or w in common or w in ("f16", "bf16", "f32", "i32")) for w in words)


def _aligned(on: Program, naive: Program) -> tuple[Program, dict[str, str]]:
    """`on` with the lineage's names and its order of grid axes, and the names to give back to what a caller sees."""
    kernels = []
    names: dict[str, str] = {}
    for mine, theirs in zip(on.kernels, naive.kernels, strict=True):
        axes = dict(zip((a.name for a in by_use(theirs)), by_use(mine), strict=True))
        kernels.append(replace(mine, grid=tuple(axes[a.name] for a in theirs.grid)))
        names |= dict(zip((a.name for a in kernels[-1].grid), (a.name for a in theirs.grid), strict=True))
        names |= dict(zip(bound_names(mine.body), bound_names(theirs.body), strict=True))
    params = dict(zip(parameter_order(on), parameter_order(naive), strict=True))
    names |= params
    calls = {mine.name: theirs.name for mine, theirs in zip(on.kernels, naive.kernels, strict=True)}
    made = _renamed(replace(on, kernels=tuple(kernels)), names, calls)
    return made, {new: old for old, new in (*params.items(), *calls.items())}


def _renamed(p: Program, names: Mapping[str, str], calls: Mapping[str, str]) -> Program:
    """The program with names replaced all at once, those of parameters and kernels too."""
    made: Program = rename(p, dict(names))
    params = tuple(replace(q, name=names.get(q.name, q.name)) for q in made.params)
    maps = tuple(replace(m, of=names.get(m.of, m.of)) for m in made.tensor_maps)
    plan = tuple(replace(s, kernel=calls.get(s.kernel, s.kernel)) if isinstance(s, n.Launch) else s for s in made.plan)
    kernels = tuple(replace(k, name=calls.get(k.name, k.name)) for k in made.kernels)
    return replace(made, params=params, tensor_maps=maps, plan=plan, kernels=kernels)


def _named_back(p: Program, back: Mapping[str, str]) -> Program:
    """The program with its own names for what a caller sees; a local name in their way gives way."""
    if not back:
        return p
    outer = {back.get(q.name, q.name) for q in p.params}
    local = [x for k in p.kernels for x in (*(a.name for a in k.grid), *bound_names(k.body))]
    taken = {*outer, *local, *back}
    names = {q.name: back[q.name] for q in p.params if q.name in back}
    for x in local:
        if x in outer:
            fresh = next(f"{x}_{i}" for i in range(1, len(taken) + 2) if f"{x}_{i}" not in taken)
            taken.add(fresh)
            names[x] = fresh
    return _renamed(p, names, {k.name: back[k.name] for k in p.kernels if k.name in back})


__all__ = ["Crossed", "Crossing", "Learned", "cross"]
