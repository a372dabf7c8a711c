"""One step tried at one site: what the pass says of it, and what a run says."""
from __future__ import annotations

from kir.base.diagnostic import KirError
from kir.hardware.target import Target
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.printer import program_text
from kir.learning.probes.record import Probe, Refusal, Standing
from kir.learning.probes.trials import Seen, Trials
from kir.problem import Problem
from kir.rewrite.anchor import anchor_text
from kir.rewrite.base import Pass, Site
from kir.rewrite.driver import apply, judge, refuses, rejection_reason
from kir.rewrite.step import Step
from kir.rewrite.verdict import Context, Verdict


def attempt(program: n.Program, site: Site, problem: Problem, target: Target, trials: Trials | None = None, varied: tuple[str, ...] = (),
            applied: bool = True) -> Probe:
    """A forward site judged; what it makes is run, forced where a precondition refuses it. Without `applied` what is not refused is only applied."""
    context, runs = Context(target), trials or Trials(program, problem, target)
    step = Step.of(site.params, anchor_text(program, site.path), path=site.path, hash=content_hash(program))
    probe = Probe(program=program_text(program), hash=content_hash(program), step=str(step), problem=problem.name, target=target.name, varied=varied,
                  status="applies")
    verdicts = judge(program, site, context)
    refused = refuses(site.params, verdicts)
    if not refused:
        if why := rejection_reason(program, site):
            return probe.model_copy(update={"status": "miss", "reason": why})
        made = apply(program, site.params, site, context=context).program
        return _with(probe, runs.of(made, numerics=site.params.numerics)) if applied else probe
    held = dict(verdicts)
    refusals = tuple(Refusal(id=id_, standing=standing(site.params, id_, held[id_]), reason=held[id_].reason) for id_ in refused)
    probe = probe.model_copy(update={"status": "refused", "refusals": refusals})
    try:
        made = apply(program, site.params, site, context=context, force=True).program
    except KirError as bad:
        return _with(probe, Seen("wrong", "rewrite", f"{bad.diagnostics[0].id}: {bad.diagnostics[0].message}"))
    return _with(probe, runs.of(made, tuple(held[id_].at for id_ in refused if held[id_].at), site.params.numerics))


def standing(item: Pass, id: str, verdict: Verdict) -> Standing:
    """What a refusing verdict of a precondition claims."""
    if verdict.kind == "refuted":
        category = next(p.category for p in item.preconditions if p.id == id)
        return "hardware" if verdict.rule or category == "hardware" else "refuted"
    return "by size" if verdict.by_size else "unknown"


def _with(probe: Probe, seen: Seen) -> Probe:
    return probe.model_copy(update={"outcome": seen.outcome, "by": seen.by, "said": seen.said, "sizes": dict(seen.sizes), "distribution": seen.distribution,
                                    "seed": seen.seed, "tried": tuple(map(dict, seen.tried))})
