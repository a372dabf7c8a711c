"""``python -m benchmarks.forecast.analytic_errors [WORD]``: the cost model against the lineages that were measured on a GPU.

Every state that is stored in `skills/lineages` with every step of `benchmarks/results/gpu-lineage-*.json` (the lineages' name has WORD in it): modelled time and what bounds
it, and of each step the measured and the modelled speedup. At the end: right signs, and pairs of states of one lineage ordered rightly.
"""
from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kir.base.dataclass import dataclass
from kir.gate.cost import Cost, program_cost
from kir.hardware.target import target
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.problem import load_problem

ROOT = Path(__file__).parents[2]
RESULTS, STORED = ROOT / "benchmarks" / "results", ROOT / "skills" / "lineages"
NOTED, WELL = math.log(1.03), math.log(2.0)
"""Effects that count: beyond 3 %; and of those, the ones within a factor of 2 are counted again for themselves."""


@dataclass(frozen=True)
class Step:
    """A measured step between two stored programs (logarithms of speedups)."""

    lineage: str
    number: int
    text: str
    before: str
    after: str
    measured: float
    sizes: dict[str, int]
    surface: str


def stored() -> dict[str, Path]:
    """Files of the programs of all stored lineages, by content."""
    out: dict[str, Path] = {}
    for each in sorted(STORED.glob("*/lineage.json")):
        found = json.loads(each.read_text())
        for s in found["steps"]:
            for state in (s["before"], s["after"]):
                out[state["content"]] = each.parent / "store" / state["text"][:2] / f"{state['text'][2:]}.kir"
    return out


def steps(word: str = "") -> Iterator[Step]:
    """Every measured step of the results."""
    for each in sorted(RESULTS.glob("gpu-lineage-*.json")):
        name = each.stem.removeprefix("gpu-lineage-")
        if word not in name:
            continue
        found: dict[str, Any] = json.loads(each.read_text())
        timed = load_problem(found["problem"]).tagged("timed")
        sizes = dict(min((s for s in timed if "asked" not in s.tags), key=lambda s: math.prod(s.sizes.values())).sizes)
        for t in found["transitions"]:
            for m in t["speedup_measured"].values():
                yield Step(name, t["number"], t["forward"], t["before"], t["after"], math.log(m["median"]), sizes, found["surface"])


def main(words: list[str]) -> int:
    """The command."""
    files, every = stored(), list(steps(words[0] if words else ""))
    programs: dict[str, Program] = {}
    costs: dict[tuple[str, str], Cost] = {}
    at = target("h200")

    def cost(content: str, s: Step) -> Cost | None:
        if content not in files or not files[content].is_file():
            return None
        if (content, s.surface) not in costs:
            programs[content] = programs.get(content) or parse_program(files[content].read_text(), str(files[content]))
            made = program_cost(programs[content], s.sizes, at, None, s.surface)
            costs[content, s.surface] = max(made, key=lambda c: c.seconds)
        return costs[content, s.surface]
    chains: dict[str, list[tuple[float, float]]] = {}
    right = {"noted": [0, 0], "well": [0, 0]}
    for s in every:
        before, after = cost(s.before, s), cost(s.after, s)
        if before is None or after is None:
            chains.pop(s.lineage, None)
            continue
        modelled = math.log(before.seconds / after.seconds)
        mark = ""
        if abs(s.measured) > NOTED:
            good = modelled * s.measured > 0 and abs(modelled) > NOTED / 3
            for kind in ("noted", "well") if abs(s.measured) < WELL else ("noted",):
                right[kind][0] += good
                right[kind][1] += 1
            mark = "" if good else "WRONG"
        chain = chains.setdefault(s.lineage, [(0.0, math.log(before.seconds))])
        chain.append((chain[-1][0] - s.measured, math.log(after.seconds)))
        print(f"{s.lineage:16} {s.number:3} {math.exp(s.measured):8.3f} {math.exp(modelled):8.3f} {mark:5} {after.seconds * 1e6:10.1f} us {after.bound_by:8} "
              f"{_told(after)} {s.text[:60]}")
    pairs = [(a, b) for chain in chains.values() for i, a in enumerate(chain) for b in chain[:i] if abs(a[0] - b[0]) > NOTED]
    ordered = sum((a[0] - b[0]) * (a[1] - b[1]) > 0 for a, b in pairs)
    for kind, (good, all_) in right.items():
        print(f"right sign, {'beyond 3 %' if kind == 'noted' else 'of those between 0.5x and 2x'}: {good} of {all_}")
    print(f"pairs of a lineage ordered rightly: {ordered} of {len(pairs)} ({ordered / max(1, len(pairs)):.1%})")
    return 0


def _told(c: Cost) -> str:
    most = sorted(c.parts.items(), key=lambda kv: -kv[1])[:4]
    return " ".join(f"{k}={v * 1e6:.1f}" for k, v in most)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
