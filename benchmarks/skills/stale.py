"""Walks of which today's code refuses a step, or makes another program by it: what is to be walked anew before a library is learned from it."""
from __future__ import annotations

from benchmarks.skills.given import Given, Rows, side_by_side
from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.learning.corpus.lineages import TARGET
from kir.learning.evidence.walked import Walked
from kir.learning.induce.settled import settled_hash
from kir.rewrite import Context, Pipeline, Step, run

ANOTHER = "makes another program"


def stale(given: Given) -> str:
    """The kernels, each with its steps that do not stand, and how many walks and steps were asked."""
    found = side_by_side(_stale, given.walks[:given.most], given)
    lines = [f"{len({row[0] for row in found})} of {len(given.walks[:given.most])} walks have steps that today's code refuses or takes otherwise:"]
    for kernel, ended, number, name, why in found:
        lines.append(f"  {kernel} ({ended}), step {number}, {name}: {why}")
    return "\n".join(lines)


def _stale(walk: Walked, _: Given) -> Rows:
    context, out = Context(target(walk.targets[-1] if walk.targets else TARGET)), Rows()
    for t in walk.transitions:
        try:
            made = run(walk.program(t.before_text), Pipeline((Step.from_json(t.step),)), context=context).program
            why = "" if settled_hash(made) == settled_hash(walk.program(t.after_text)) else ANOTHER
        except KirError as bad:
            why = f"{bad.diagnostics[0].id}: {bad.diagnostics[0].message}"
        if why:
            out.append((walk.kernel, walk.ended, t.number, t.name, why))
    return out
