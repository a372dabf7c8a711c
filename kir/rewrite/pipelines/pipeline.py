"""Running pipelines, and the trace of what they did: undo, replay on another program, bisect, explain."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error
from kir.base.registry import registry
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.changes.anchor_map import AnchorMap, identity
from kir.ir.measures.features import features, has
from kir.ir.printer import program_text
from kir.rewrite.anchor import anchor_text, paths_of
from kir.rewrite.base import Pass, Site, Witness
from kir.rewrite.catalog import provided
from kir.rewrite.driver import Applied, Record, apply, forward_site, misses, tried
from kir.rewrite.edit import Path
from kir.rewrite.pipelines.text import Direction, Pipeline, Step
from kir.rewrite.registry import pass_class
from kir.rewrite.residue import Residue
from kir.rewrite.verdict import ANYWHERE, Context


def find_site(program: n.Program, step: Step) -> tuple[Pass, Site]:
    """The pass and the one site that a step means. On the program whose hash the step recorded its path decides, on another one its
    anchor. Raises KirError KIR-R004 (nowhere, with the nearest miss) or KIR-R005 (several places, all listed)."""
    item, wanted, found = meant(program, step)
    if len(found) == 1:
        return item, found[0]
    subject = ("~" if step.direction == "backward" else "") + str(item)
    if found:
        choices = tuple(f"{subject.removesuffix(str(item))}{s.params}@{anchor_text(program, s.path)}" for s in found[:12])
        raise error("KIR-R005", f"it applies at {len(found)} places", subject=subject, witness=choices,
                    needs="an anchor, or a parameter, that tells them apart")
    near = [f"{anchor_text(program, p)}: {reason}" for p, reason in misses(item, program, step.direction) if wanted is None or p in wanted]
    where = f" at {step.at}" if step.at else ""
    raise error("KIR-R004", f"it does not apply{where}", subject=subject, anchor=step.at, witness=tuple(near[:5]),
                needs=_lacking(item, program) if step.direction == "forward" else "")


def meant(program: n.Program, step: Step) -> tuple[Pass, tuple[Path, ...] | None, Sequence[Site]]:
    """The pass of a step, the places that it names (None: any), and the sites there that it may mean: one where it is clear. Raises KirError where an
    anchor means nothing."""
    item = pass_of(step).with_options(step.options, step.places)
    wanted: tuple[Path, ...] | None = None
    if step.path is not None and step.hash == content_hash(program):
        wanted = (step.path,)
    elif step.at:
        wanted = paths_of(program, step.at)
    if wanted is not None and len(wanted) == 1 and step.direction == "forward":
        exact = _exact(program, item, wanted[0])
        if exact is not None:
            return item, wanted, (exact,)
    candidates = item.sites(program) if step.direction == "forward" else item.inverse_sites(program)
    found = [s for s in candidates
             if (wanted is None or s.path in wanted) and all(getattr(s.params, k) == getattr(item, k) for k in step.options)]
    if step.direction == "backward":
        found = [t for s in found if (t := tried(program, s)) is not None]
    if len({s.path for s in found}) == 1:
        found = [s for s in found if s.params == item] or found
    return item, wanted, found


def _lacking(item: Pass, program: n.Program) -> str:
    """The state features that a pass requires and a program has not, with the passes that bring them."""
    here = features(program)
    out = []
    for wanted in (f for f in item.requires if not has(here, f)):
        by = sorted(each.name for each in registry("kir.passes") if wanted in provided(each))
        out.append(f"{wanted} (from {', '.join(by[:4])}{', ..' if len(by) > 4 else ''})" if by else wanted)
    return ", ".join(out)


def pass_of(step: Step) -> type[Pass]:
    """The pass that a step names. Raises KirError as the registry does, with the step's place."""
    try:
        return pass_class(step.name)
    except KirError as bad:
        raise type(bad)(*(replace(d, origin=d.origin or step.places.get("")) for d in bad.diagnostics)) from bad


def _exact(program: n.Program, item: Pass, path: Path) -> Site | None:
    try:
        return forward_site(program, item, path)
    except KirError as bad:
        if any(d.id != "KIR-R004" for d in bad.diagnostics):
            raise
        return None


@dataclass(frozen=True)
class TraceStep:
    """One step that was run, and where the pass came from."""

    applied: Applied
    provenance: Mapping[str, str]

    @property
    def before(self) -> n.Program:
        """The program that the step was taken from."""
        return self.applied.before

    @property
    def after(self) -> n.Program:
        """The program that it gave."""
        return self.applied.program

    @property
    def record(self) -> Record:
        """What was done, as data."""
        return self.applied.record

    @property
    def witness(self) -> Witness:
        """What leads back."""
        return self.applied.witness

    @property
    def back(self) -> Step:
        """The step that undoes this one exactly, on the program after it."""
        direction: Direction = "forward" if self.record.step.direction == "backward" else "backward"
        guard = frozenset(id_ for id_, v in self.record.verdicts if v.kind == "guarded")
        return Step.of(self.witness.params, anchor_text(self.after, self.witness.path), direction, assume=self.record.step.assume,
                       guard=guard if direction == "forward" else frozenset(), force=self.record.step.force,
                       residue=self.witness.residue, path=self.witness.path, hash=self.record.after)

    def to_json(self) -> dict[str, Any]:
        """The record and the provenance; programs are named by their hash."""
        return {**self.record.to_json(), "provenance": dict(self.provenance)}


@dataclass(frozen=True)
class Trace:
    """A program, and the steps taken from it. A trace is a value: each operation gives a new one."""

    base: n.Program
    steps: tuple[TraceStep, ...] = ()

    @property
    def program(self) -> n.Program:
        """The program after the last step."""
        return self.steps[-1].after if self.steps else self.base

    @property
    def pipeline(self) -> Pipeline:
        """The steps as a pipeline that repeats them exactly."""
        return Pipeline(tuple(s.record.step for s in self.steps))

    @property
    def anchor_map(self) -> AnchorMap:
        """Where each statement of the base is now."""
        out = identity(self.base)
        for s in self.steps:
            out = out.then(s.applied.anchor_map)
        return out

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        plain = [str(replace(s.record.step, residue=Residue(), path=None, hash="")) for s in self.steps]
        listed = "".join(f"<li><code>{escape(step)}</code></li>" for step in plain)
        text = program_text(self.program)
        return {"text/plain": "; ".join(plain) or f"{self.base.name}, no step taken", "text/html":
                f"<p><b>{escape(self.base.name)}</b></p><ol>{listed}</ol><details><summary>the program</summary><pre>{escape(text)}</pre></details>"}

    def then(self, step: Step, context: Context = ANYWHERE) -> Trace:
        """The trace with one more step. Raises what `find_site` and `apply` raise, with the step's number."""
        try:
            item, site = find_site(self.program, step)
            done = apply(self.program, item, site, step.direction, assume=step.assume, guard=step.guard, force=step.force,
                         left=step.residue, context=context)
        except KirError as bad:
            number = f"step {len(self.steps) + 1} of the pipeline"
            raise type(bad)(*(replace(d, anchor=f"{d.anchor}, {number}" if d.anchor else number, origin=d.origin or step.places.get(""))
                              for d in bad.diagnostics)) from bad
        return self.extended(done)

    def extended(self, done: Applied) -> Trace:
        """The trace with a step that has been applied already."""
        step = TraceStep(done, _provenance(done.witness.params.name))
        return Trace(self.base, (*self.steps, step))

    def undo(self, count: int = 1) -> Trace:
        """The trace without its last steps."""
        return Trace(self.base, self.steps[:max(len(self.steps) - count, 0)])

    def replay(self, on: n.Program | None = None, context: Context = ANYWHERE) -> Trace:
        """Every step again, on the same program or another. On the same program each hash must be the one recorded (KIR-R007);
        on another the anchors decide, residues (names of this one) are dropped, and preconditions are judged anew."""
        same = on is None or content_hash(on) == content_hash(self.base)
        out = Trace(self.base if on is None else on)
        for old in self.steps:
            step = old.record.step if same else replace(old.record.step, residue=Residue(), path=None, hash="")
            out = out.then(step, context)
            if same and out.steps[-1].record.after != old.record.after:
                raise error("KIR-R007", "replay gives another program than the trace recorded", subject=str(step),
                            witness=(f"recorded {old.record.after}", f"now      {out.steps[-1].record.after}"))
        return out

    def bisect(self, is_good: Callable[[n.Program], bool]) -> int | None:
        """The number (from 0) of the first step whose result is not good, or None when the last one is. The base must be good and the
        property must not come back once lost; the predicate is asked about log2(steps) programs."""
        if not self.steps or is_good(self.program):
            return None
        low, high = 0, len(self.steps) - 1
        while low < high:
            middle = (low + high) // 2
            if is_good(self.steps[middle].after):
                low = middle + 1
            else:
                high = middle
        return low

    def explain(self, number: int) -> str:
        """What step `number` (from 0) did and why it was allowed, as text."""
        s = self.steps[number]
        r = s.record
        cls = pass_class(r.step.name)
        lines = [f"step {number + 1}: {'~' if r.step.direction == 'backward' else ''}{s.witness.params} at {r.anchor}",
                 f"  {cls.claim}", f"  before {r.before[:12]}  after {r.after[:12]}  numerics {r.numerics}"]
        sentences = {p.id: p.sentence for p in cls.preconditions}
        for id_, v in r.verdicts:
            mark = " (forced)" if id_ in r.waived else ""
            lines.append(f"  {id_} {v.kind}{mark}: {sentences[id_]}" + (f" [{v.reason}]" if v.reason else ""))
        residue = s.witness.residue if r.step.direction == "backward" else r.step.residue
        lines.append(f"  residue {residue.size} bytes" + (f": {residue.text()}" if residue else ""))
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The base's hash and every step."""
        return {"base": content_hash(self.base), "steps": [s.to_json() for s in self.steps]}


def _provenance(name: str) -> Mapping[str, str]:
    p = registry("kir.passes").entry(name).provenance()
    return {"distribution": p.distribution, "version": p.version, "module": p.module, "sha256": p.sha256}


def run(program: n.Program, pipeline: Pipeline | str, context: Context = ANYWHERE) -> Trace:
    """Run a pipeline (a value or its text) and return the trace."""
    trace = Trace(program)
    for step in (Pipeline.parse(pipeline) if isinstance(pipeline, str) else pipeline).steps:
        trace = trace.then(step, context)
    return trace
