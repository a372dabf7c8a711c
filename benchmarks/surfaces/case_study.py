"""Skills lifted from FlashQLA's kernels, used on a gated delta rule that is naive and on a linear attention that forgets, which is nobody's expert.

    python -m benchmarks.surfaces.case_study             # prints the page
    python -m benchmarks.surfaces.case_study --write     # writes it
    python -m benchmarks.surfaces.case_study --measure   # the same on a GPU, where each program on the way is judged and timed
    .. --again                                           # writes it, or with --measure measures, along the steps that the page tells: no new ways are tried

It takes the cards that have a use in a kernel of FlashQLA and, from each naive program, follows the applications after which the cost model has it fastest,
some ways at a time; what is reached is compared with the naive program by the checked interpreter. What was measured stays with the programs that it is of.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.surfaces.measured_steps import BUSY, TRIES, on_device
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.gate.cpu import gate_cpu
from kir.hardware.target import target
from kir.ir.canonical import content_hash
from kir.ir.nodes import Program
from kir.learning.cards.card import Card
from kir.learning.cards.library import library
from kir.learning.cards.use import applications
from kir.learning.tune.device import with_shape
from kir.learning.tune.rank import modelled
from kir.problem import Problem, Shape, load_problem
from kir.problem.problem import shape_of
from kir.rewrite import Context, Pipeline, run

PAGE = Path(__file__).parents[2] / "docs" / "tables" / "workloads-case-study.md"
KEPT, FORGETTING = Path(__file__).parents[1] / "results" / "case-study.jsonl", Path(__file__).parent / "forgetting"
AT = ("B=1,L=1024,H=16,G=3", "B=1,L=1024,H=48")
"""Sizes at which the two are measured: a quarter of the tokens that they are modelled at, for each program's answers are compared with the oracle's."""
THEIRS, LEAST, MOST = "flash_qla", 1.01, 16
"""Whose kernels the cards are of, how much faster a program is to be for each step, and how many steps are taken at most."""
BREADTH, PATIENCE = 6, 3
"""Ways that are followed at a time, and steps without gain after which they are given up."""
DEVICE = target("h200")


@dataclass(frozen=True)
class Step:
    """One application: of which card, which pipeline step, and the modelled seconds before and after it."""

    card: str
    said: str
    before: float
    after: float


def lifted() -> tuple[Card, ...]:
    """The cards of which a use is in one of their kernels."""
    return tuple(card for card in library().cards if any(THEIRS in use.kernel for use in card.evidence.uses))


def hosts() -> dict[str, tuple[Problem, Shape]]:
    """The problems, each with the sizes at which it is measured; they are modelled at their own."""
    problems = {"our gated delta rule (`skills/problems/gdn_d128`)": load_problem("gdn_d128"),
                "a linear attention that forgets (`benchmarks/surfaces/forgetting`)": load_problem(FORGETTING)}
    out = dict[str, tuple[Problem, Shape]]()
    for (name, each), sizes in zip(problems.items(), AT, strict=True):
        shape = shape_of(each, sizes)
        out[name] = with_shape(each, shape), shape
    return out


def climbed(program: Program, shape: Shape, cards: Sequence[Card]) -> list[tuple[Step, Program]]:
    """The steps to the program that the cost model has fastest, each with what it makes: `BREADTH` ways are followed at a time, each as long as it is fast."""
    context = Context(DEVICE)
    start = modelled(program, shape, DEVICE)
    ways: list[tuple[float, Program, list[tuple[Step, Program]]]] = [(start, program, [])]
    seen, best, idle = {content_hash(program)}, ways[0], 0
    for _ in range(MOST):
        further: list[tuple[float, Program, list[tuple[Step, Program]]]] = []
        for seconds, host, path in ways:
            for card in cards:
                for each in applications(card, host, context):
                    try:
                        after = run(host, Pipeline(each.steps), context=context).program
                    except KirError:
                        continue
                    if (key := content_hash(after)) not in seen:
                        seen.add(key)
                        took = modelled(after, shape, DEVICE)
                        said = "; ".join(str(s).partition(" on ")[0] for s in each.steps)
                        further.append((took, after, [*path, (Step(card.name, said, seconds, took), after)]))
        ways = sorted(further, key=lambda one: (one[0], len(one[2])))[:BREADTH]
        if not ways:
            break
        idle = 0 if ways[0][0] * LEAST <= best[0] else idle + 1
        best = min(best, ways[0], key=lambda one: one[0] * LEAST ** len(one[2]))
        print(f"{len(ways[0][2])} steps: {start / ways[0][0]:.2f}", file=sys.stderr, flush=True)
        if idle > PATIENCE:
            break
    return best[2]


def timed(programs: Sequence[Program], problem: Problem, shape: Shape) -> None:
    """Judges programs on the GPU at hand, written as CUDA, and keeps what it says and their medians at a shape, in seconds."""
    from kir.gate.gpu import Gpu
    from kir.gate.gpu.oracle import sharing

    with sharing(every=True) as shared, Gpu.open(KEPT.parents[2] / "build" / "case-study") as gpu:
        for program in programs:
            for _ in range(TRIES):
                accepted, reason, (seconds, *_), device = on_device(gpu, shared, program, problem, "cuda", shape.name)
                if BUSY not in reason:
                    break
            made = {"program": content_hash(program), "accepted": accepted, "reason": reason, "seconds": seconds, "device": device,
                    "when": time.strftime("%Y-%m-%d %H:%M", time.gmtime())}
            rows = [*(r for r in kept().values() if r["program"] != made["program"]), made]
            write_atomic(KEPT, "".join(json.dumps(r) + "\n" for r in sorted(rows, key=lambda r: str(r["program"]))))
            print(f"{problem.name}: {seconds * 1e6:,.0f} us {reason}", file=sys.stderr, flush=True)


def kept() -> dict[str, dict[str, Any]]:
    """What was measured, by the hash of the program."""
    rows = [json.loads(line) for line in KEPT.read_text(encoding="utf-8").splitlines()] if KEPT.exists() else []
    return {r["program"]: r for r in rows}


@dataclass(frozen=True)
class Study:
    """What became of one host: the steps, the programs from the naive one on, the gate's word on the last, and the cards that apply to the first."""

    steps: list[Step]
    programs: list[Program]
    said: str
    apply: list[str]


def page(cards: Sequence[Card], found: dict[str, Study], by: dict[str, dict[str, Any]]) -> str:
    """The page, with what was measured of programs `by` their hashes."""
    out = ["# Skills of FlashQLA's kernels on other programs", "",
           f"Written by `python -m benchmarks.surfaces.case_study --write`. {len(cards)} cards have a use in a kernel of FlashQLA: "
           f"{', '.join(f'`{card.name}`' for card in cards)}.", "",
           "From each naive program the applications are followed after which the cost model has it fastest on an "
           f"H200, {BREADTH} ways at a time, and those to the fastest are told; a step is worth it from {LEAST - 1:.0%} on. Each program was then "
           f"judged by the gate on a GPU and timed there (`--measure`), written as CUDA, at {' and '.join(AT)}; the model is of 4,096 tokens. Where the host "
           "waited longer than a call took, another process had the GPU, and the gate keeps no time.", ""]
    for name, each in found.items():
        out += [f"## On {name}", "", f"{len(each.apply)} of them apply to the naive program: {', '.join(f'`{x}`' for x in each.apply)}.", "",
                "| step | card | modelled before | after | times as fast | measured before | after | times as fast |",
                "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
        rows = [by.get(content_hash(p)) for p in each.programs]
        for step, before, after in zip(each.steps, rows, rows[1:], strict=False):
            out.append(f"| `{step.said}` | `{step.card}` | {step.before * 1e6:,.0f} us | {step.after * 1e6:,.0f} us | {step.before / step.after:.2f} | "
                       f"{_time(before)} | {_time(after)} | {_ratio(before, after)} |")
        steps = each.steps
        whole = f"{len(steps)} steps, {steps[0].before / steps[-1].after:.1f} times as fast by the model" if steps else "No step pays here by itself"
        if steps and (ratio := _ratio(rows[0], rows[-1])):
            assert rows[-1] is not None
            whole += f", {ratio} times as measured ({rows[-1]['device'].removeprefix('NVIDIA ')}, {rows[-1]['when']})"
        out += ["", f"{whole}; the gate: {each.said}.", ""]
    return "\n".join(out)


def _time(row: dict[str, Any] | None) -> str:
    return "not measured" if row is None else f"{row['seconds'] * 1e6:,.0f} us" if row["accepted"] else str(row["reason"])[:120].replace("|", "/")


def _ratio(before: dict[str, Any] | None, after: dict[str, Any] | None) -> str:
    return f"{before['seconds'] / after['seconds']:.2f}" if before and after and before["accepted"] and after["accepted"] else ""


def told(name: str, program: Program, shape: Shape) -> list[tuple[Step, Program]]:
    """The steps that the page tells of a host, each with what it makes today."""
    out = list[tuple[Step, Program]]()
    _, _, text = PAGE.read_text(encoding="utf-8").partition(f"## On {name}\n")
    for said, card in re.findall(r"(?m)^\| `(.+?)` \| `(.+?)` \|", text.partition("\n## ")[0]):
        after = run(program, Pipeline.parse(said), context=Context(DEVICE)).program
        out.append((Step(card, said, modelled(program, shape, DEVICE), modelled(after, shape, DEVICE)), after))
        program = after
    return out


def studied(measure: bool, again: bool = False) -> str:
    """The page, made anew; `again`, of the steps that it tells."""
    cards, found = lifted(), dict[str, Study]()
    for name, (problem, shape) in hosts().items():
        program = problem.naive
        taken = told(name, program, problem.shape("long")) if again else climbed(program, problem.shape("long"), cards)
        programs = [program, *(after for _, after in taken)]
        verdict = gate_cpu(programs[-1], None, "kir", [], program)
        found[name] = Study([step for step, _ in taken], programs, verdict.reason, [c.name for c in cards if applications(c, program, Context(DEVICE))])
        if measure:
            timed(programs, problem, shape)
    return page(cards, found, kept())


def main(words: list[str]) -> int:
    """0, or 2 for words that are none."""
    if words not in ([], ["--write"], ["--measure"], ["--again"], ["--measure", "--again"]):
        print(__doc__, file=sys.stderr)
        return 2
    text = studied("--measure" in words, "--again" in words)
    if words:
        write_atomic(PAGE, text)
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
