"""What a search has to tell: what each step brought, what was tried and lost, and how near the forecast limit the result is."""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.gate.cost import program_cost
from kir.gate.gpu.relative import ProgramProblem
from kir.ir.nodes import Program
from kir.ir.printer import expr_text
from kir.learning.optimize.judge import moved
from kir.learning.optimize.lift import FAULTS, Left, taken, taken_everywhere
from kir.learning.optimize.plan import Plan, Setting
from kir.learning.optimize.search import Candidate, Found
from kir.learning.optimize.several import alone, put_back
from kir.learning.optimize.starts import evenly_cut
from kir.learning.optimize.words import InWords, in_factors_of, in_words_of, numbers_of
from kir.learning.tune.rank import promised
from kir.rewrite import Step

TOLD = 4
"""Steps of a plan that could not be taken, which the text tells one by one."""
UNFIT = ("KIR-R004", "KIR-A002")
"""Why a step could not be taken that has no place in the kernel: it is there already, or was for what another kernel has. The text counts these."""


@dataclass(frozen=True)
class Effect:
    """One step, the modelled seconds after it, and what it does to rounding (`numerics` of its pass)."""

    step: str
    seconds: float
    numerics: str = "bitwise"

    def to_json(self) -> dict[str, Any]:
        """As the report has it: null for a state in between that has no time of its own."""
        return {"step": self.step, "seconds": None if math.isnan(self.seconds) else self.seconds, "numerics": self.numerics}


@dataclass(frozen=True)
class Limit:
    """The least seconds that moving the tensors once and the tensor cores' rate allow, and the resource that binds the program now."""

    seconds: float
    bound_by: str
    products: bool = True
    """Whether products are in it, where they count: those on scalar units alone are not, whose share of the arithmetic is not known."""


def limit(program: Program, setting: Setting, surface: str, given: Program | None = None) -> Limit:
    """How near a program is to what its device allows, by the cost model: every tensor moved once (or what of it the program or the one `given` moves, the
    larger), every product on tensor cores at their rate."""
    device, sizes = setting.target.device, setting.shape.sizes
    program, given = evenly_cut(program, sizes), evenly_cut(given, sizes) if given is not None else None
    costs = program_cost(program, sizes, setting.target, None, surface)
    begun = program_cost(given, sizes, setting.target, None, surface) if given is not None else costs
    least = moved(program, sizes, costs, begun) / device.bandwidth
    products = sum(c.parts.get("tensor", 0.0) for c in costs)
    slowest = max(costs, key=lambda c: c.seconds)
    return Limit(max(least, products), slowest.bound_by, bool(products) or sum(c.parts.get("fma", 0.0) for c in costs) <= least)


def effects(found: Found, best: Candidate) -> list[Effect]:
    """The steps from the start of the best to it, each with the modelled seconds after it. The plan is taken again, step by step."""
    setting, out = replace(found.setting, surface=best.surface), []
    chain = _chain(found, best)
    now = chain[0].start.program
    for c in chain:
        parts = c.plan.parts or (("", c.plan),)
        for name, plan in parts:
            whole = now

            def around(program: Program, name: str = name, whole: Program = whole) -> Program:
                return put_back(whole, name, program) if name else program

            done, more = _taken(alone(now, name) if name else now, plan, setting, around)
            now = around(done)
            out += more
    return out


def _chain(found: Found, best: Candidate) -> list[Candidate]:
    """The candidates that the best was made of, each on top of the one before."""
    parents = {c.key: c for c in found.tried}
    chain = [best]
    while chain[-1].parent and chain[-1].parent in parents:
        chain.append(parents[chain[-1].parent])
    return chain[::-1]


def _taken(program: Program, plan: Plan, setting: Setting, around: Callable[[Program], Program]) -> tuple[Program, list[Effect]]:
    """What a plan makes of a program, and its steps with the modelled seconds of what is `around` the program after each."""
    out: list[Effect] = []
    base = promised(program, plan.facts, plan.align) if plan.promises == "own" and (plan.facts or plan.align) else program
    words = in_words_of(plan.home, base) if plan.home is not None else None
    now = words.program if words is not None else base
    if plan.promises == "home" and (plan.facts or plan.align):
        now = promised(now, plan.facts, plan.align, numbers_of(plan.home, now) if plan.home is not None else {})
    for step in in_factors_of(plan.steps, plan.home, now) if plan.home is not None else plan.steps:
        done = (taken_everywhere if plan.everywhere else taken)(now, step, setting.context)
        for each in () if isinstance(done, Left) else done:
            now = each.program
            out.append(Effect(_own(each.record.step, words), _seconds(around(words.back(now) if words else now), setting), each.record.numerics))
    return (words.back(now) if words is not None else now), out


def _own(step: Step, words: InWords | None) -> str:
    """A step as text, at a place of the kernel by its own name."""
    here = replace(step, path=None, hash="")
    kernel, slash, rest = here.at.partition("/")
    return str(replace(here, at=f"{words.names.get(kernel, kernel)}{slash}{rest}") if words is not None else here)


def _seconds(program: Program, setting: Setting) -> float:
    try:
        return sum(c.seconds for c in program_cost(evenly_cut(program, setting.shape.sizes), setting.shape.sizes, setting.target, None, setting.surface))
    except (KirError, *FAULTS):
        return math.nan  # a state in between that has no launch of its own


def losses(best: Candidate, given: Program) -> list[str]:
    """What the result has not that the input had, or that its plan promised: steps left out, and sizes at which it may not be called."""
    out = [f"left out {each.step}: {each.reason}" for each in best.left]
    narrower = [f for f in best.program.facts if f not in given.facts]
    if narrower:
        out.append(f"called only where {' and '.join(map(expr_text, narrower))}")
    return out


def data(found: Found) -> dict[str, Any]:
    """The report as JSON."""
    best, setting = found.best, found.setting
    subject = best or found.baseline
    near = limit(subject.program, setting, subject.surface or "cuda", found.baseline.program)
    base = found.baseline.time
    shown = best.measured.seconds if best is not None and best.measured is not None else base
    out: dict[str, Any] = {
        "problem": f"what {found.baseline.program.name} computes" if isinstance(setting.problem, ProgramProblem) else setting.problem.name,
        "sizes": dict(setting.shape.sizes), "target": setting.target.name, "ended": found.ended,
        "built": found.built, "forecasts": found.spent.to_json(), "took": {"seconds": round(found.took[0], 1), "judging": round(found.took[1], 1)},
        "baseline": {"seconds": base, "kind": "measured" if found.measures and found.baseline.measured is not None else "modelled"},
        "limit": {"seconds": near.seconds, "share": min(1.0, near.seconds / shown), "bound_by": near.bound_by, "products": near.products},
        "speedup": found.speedup, "best": None, "tried": [_row(c) for c in found.tried], "pruned": dict(found.pruned)}
    if found.unjudged is not None:
        out["unjudged"] = _row(found.unjudged)
    if found.slight is not None:
        out["slight"] = _row(found.slight)
    if (trust := found.trust) is not None:
        out["trust"] = {"measured": trust.count, "quartiles": [round(x, 3) for x in (trust.low, trust.middle, trust.high)], "plans": trust.whose}
    if best is not None and best.measured is not None:
        start = _chain(found, best)[0].start
        begins = Effect(start.name, _seconds(start.program, replace(setting, surface=best.surface)))
        out["best"] = {**_row(best), "back": list(start.steps), "begins": begins.to_json(), "steps": [e.to_json() for e in effects(found, best)],
                       "losses": losses(best, found.baseline.program)}
    return out


def _row(c: Candidate) -> dict[str, Any]:
    m = c.measured
    return {"candidate": c.key, "surface": c.surface, "start": c.start.name, "plan": c.plan.key, "reason": c.plan.reason, "taken": len(c.steps),
            "left": len(c.left), "forecast": c.seconds, "accepted": bool(m and m.accepted), "seconds": m.seconds if m and m.accepted else None,
            "refusal": m.reason if m and not m.accepted else ""}


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The report as text."""
    base, best = report["baseline"], report["best"]
    sizes = ", ".join(f"{k}={v}" for k, v in report["sizes"].items())
    yield f"{report['problem']}{' at ' if sizes else ''}{sizes} on {report['target']}: {_time(base['seconds'])} as given ({base['kind']})"
    if report.get("assumed"):
        yield f"  taken for granted, as nothing says it: {'; '.join(report['assumed'])}"
    if best is None and (slight := report.get("slight")) is not None:
        times = base["seconds"] / slight["seconds"]
        yield (f"nothing is surely faster: {slight['plan']} from {_start(report, slight)} is {times:.2f} times as fast by the model, "
               "which is less than it errs by; --on gpu measures")
    elif best is None and (seems := report.get("unjudged")) is not None:
        yield f"nothing is known to be faster; not judged any more: {seems['plan']} from {_start(report, seems)}, {_time(seems['forecast'])} by its forecast"
    elif best is None:
        yield "nothing is faster" if report["tried"] or report["built"] or report["ended"] == "nothing is left to try" else "nothing was tried"
    else:
        yield f"{report['speedup']:.3g} times as fast: {_time(best['seconds'])}, {best['surface']}, from {_start(report, best)}, by {best['plan']}"
        if best["reason"]:
            yield f"  {best['reason']}"
        if best["back"]:
            yield f"  walked back by {', '.join(text.partition('{')[0].partition('@')[0] for text in best['back'])}"
        told = base["kind"] == "modelled" and best["begins"]["step"] == "as it is"  # in the first line
        for each in (*([] if told else [best["begins"]]), *best["steps"]):
            rounds = f"  ({said})" if (said := each.get("numerics", "bitwise")) != "bitwise" else ""
            yield f"  {_time(each['seconds']) if each['seconds'] is not None else '':>11}  {each['step']}{rounds}"
        left = [text for text in best["losses"] if text.startswith("left out ")]
        lost = [text for text in left if not any(f": {x}: " in text for x in UNFIT)]
        yield from (f"  {text}" for text in lost[:TOLD])
        if further := len(left) - len(lost[:TOLD]):
            unfit = " that do not fit this kernel" if len(lost) <= TOLD else ""
            yield f"  left out {further}{' further' if lost else ''} of its steps{unfit}, which the report as JSON tells"
        yield from (f"  {text}" for text in best["losses"] if text not in left)
    if (trust := report.get("trust")) is not None:
        of = f"by plans of {trust['plans']} " if trust["plans"] else ""
        low, _, high = trust["quartiles"]
        yield f"  of {trust['measured']} kernels {of}that were measured on {report['target']}, half took {low:.2g} to {high:.2g} times as long as modelled"
    near = report["limit"]
    allows = "what the device allows by the cost model" if near.get("products", True) else "what moving its tensors once allows, its products not counted"
    yield f"{near['share']:.0%} of {allows} ({_time(near['seconds'])}); it is bound by {near['bound_by']}"
    for c in sorted(report["tried"], key=lambda c: c["seconds"] or math.inf):
        if best is None or c["candidate"] != best["candidate"]:
            yield f"  tried {c['plan']} from {_start(report, c)}: {_time(c['seconds']) if c['accepted'] else c['refusal']}"
    built = "" if str(report["ended"]).endswith("plans were built") else f", {report['built']} plans built"
    yield f"{len(report['tried'])} candidate{'s' * (len(report['tried']) != 1)} gated{built}; {report['ended']}"


def spent(report: Mapping[str, Any]) -> str:
    """What the search itself took of the seconds, in words; "" of one that was replayed."""
    took = report["took"]
    part = f"{1 - took['judging'] / took['seconds']:.0%} of {took['seconds']:.0f} s" if took["judging"] else ""
    return part and f"{part} went into the search itself, the rest into compiling and gating"


def _start(report: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """What a candidate began with, in words: where that is another candidate, by its plan."""
    _, found, key = str(row["start"]).partition("on top of ")
    before = next((c for c in report["tried"] if found and c["candidate"].startswith(key)), None)
    return f"what {before['plan']} gave" if before is not None else str(row["start"])


def _time(seconds: float) -> str:
    return f"{seconds * 1e9:.0f} ns" if seconds < 1e-7 else f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.3f} ms"
