"""Skills lifted from FlashQLA's kernels, used on a gated delta rule that is naive and on a linear attention that forgets, which is nobody's expert.

``python -m benchmarks.surfaces.case_study [--write]`` takes the cards that have a use in a kernel of FlashQLA and, from each naive program, follows the
applications after which the cost model has it fastest, some ways at a time; what is reached is compared with the naive program by the checked
interpreter. No GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.gate.cpu import gate_cpu
from kir.hardware.target import target
from kir.ir.canonical import content_hash
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.learning.cards.card import Card
from kir.learning.cards.library import library
from kir.learning.cards.use import applications
from kir.learning.tune.rank import modelled
from kir.problem import Shape, load_problem
from kir.rewrite import Context, Pipeline, run

PAGE = Path(__file__).parents[2] / "docs" / "tables" / "workloads-case-study.md"
THEIRS, LEAST, MOST = "flash_qla", 1.01, 16
"""Whose kernels the cards are of, how much faster a program is to be for each step, and how many steps are taken at most."""
BREADTH, PATIENCE = 6, 3
"""Ways that are followed at a time, and steps without gain after which they are given up."""
FORGETTING = """kir 1
program forgetting_attention
  size B: i32
  size L: i32
  size H: i32
  in q: bf16[B, L, H, 128]
  in k: bf16[B, L, H, 128]
  in v: bf16[B, L, H, 128]
  in g: f32[B, L, H]
  out o: bf16[B, L, H, 128]
kernel main grid (e: 128, h: H, b: B) threads 1
  register state: f32[128] = 0.0
  @token_loop for t in 0..L
    let decay = exp(g[b, t, h])
    let value = cast(v[b, t, h, e], f32)
    register dot: f32 = 0.0
    @update_loop for d in 0..128
      state[d] = decay * state[d] + cast(k[b, t, h, d], f32) * value
      dot = dot + state[d] * cast(q[b, t, h, d], f32)
    @store_o o[b, t, h, e] = cast(dot, bf16)
"""
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


def hosts() -> dict[str, tuple[Program, Shape]]:
    """The naive programs, each with the sizes at which it is modelled."""
    problem = load_problem("gdn_d128")
    return {"our gated delta rule (`skills/problems/gdn_d128/naive.kir`)": (problem.naive,
                                                                            Shape(name="long", tags=("timed",), sizes={"B": 1, "L": 4096, "H": 16, "G": 3})),
            "a linear attention that forgets (in this command's module)": (parse_program(FORGETTING, "forgetting.kir"),
                                                                          Shape(name="long", tags=("timed",), sizes={"B": 1, "L": 4096, "H": 48}))}


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


def page(cards: Sequence[Card], found: dict[str, tuple[list[Step], str, list[str]]]) -> str:
    """The page."""
    out = ["# Skills of FlashQLA's kernels on other programs", "",
           f"Written by `python -m benchmarks.surfaces.case_study --write`. {len(cards)} cards have a use in a kernel of FlashQLA: "
           f"{', '.join(f'`{card.name}`' for card in cards)}.", "",
           "From each naive program the applications are followed after which the cost model has it fastest on an "
           f"H200, {BREADTH} ways at a time, and those to the fastest are told; a step is worth it from {LEAST - 1:.0%} on. Nothing was measured.", ""]
    for name, (steps, said, apply) in found.items():
        out += [f"## On {name}", "", f"{len(apply)} of them apply to the naive program: {', '.join(f'`{x}`' for x in apply)}.", "",
                "| step | card | modelled before | after | times as fast |", "| --- | --- | ---: | ---: | ---: |"]
        out += [f"| `{s.said}` | `{s.card}` | {s.before * 1e6:,.0f} us | {s.after * 1e6:,.0f} us | {s.before / s.after:.2f} |" for s in steps]
        whole = f"{len(steps)} steps, {steps[0].before / steps[-1].after:.1f} times as fast by the model" if steps else "No step pays here by itself"
        out += ["", f"{whole}; the gate: {said}.", ""]
    return "\n".join(out)


def studied() -> str:
    """The page, made anew."""
    cards, found = lifted(), dict[str, tuple[list[Step], str, list[str]]]()
    for name, (program, shape) in hosts().items():
        taken = climbed(program, shape, cards)
        steps, last = [step for step, _ in taken], taken[-1][1] if taken else program
        verdict = gate_cpu(last, None, "kir", [], program)
        found[name] = steps, verdict.reason, [card.name for card in cards if applications(card, program, Context(DEVICE))]
    return page(cards, found)


def main(words: list[str]) -> int:
    """0, or 2 for words that are none."""
    if words not in ([], ["--write"]):
        print("python -m benchmarks.surfaces.case_study [--write]", file=sys.stderr)
        return 2
    text = studied()
    if words:
        write_atomic(PAGE, text)
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
