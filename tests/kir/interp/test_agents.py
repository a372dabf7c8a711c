"""How many agents the checker makes of what is in flight: as many as issue, not as many as could."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.interp import run
from kir.interp.state import clocks
from kir.ir.parser import parse_program
from kir.problem import Shape, load_problem

EXPERT = Path(__file__).parents[3] / "skills" / "experts" / "gemm" / "gemm_sm90_lanes.kir"


def test_a_producer_that_never_waits_costs_an_agent_for_each_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[int, int] = {}
    block = clocks.Clocks.block

    def counted(self: clocks.Clocks, *words: object) -> int:
        out = block(self, *words)  # type: ignore[arg-type]  # passed on as they came
        made[id(self)] = self.count
        return out
    monkeypatch.setattr(clocks.Clocks, "block", counted)
    text = "\n".join(line for line in EXPERT.read_text().splitlines() if "mbar_wait(&empty" not in line)
    problem, tiles = load_problem("gemm"), 6
    at = Shape(name="deep", tags=("small",), sizes={"M": 128, "N": 256, "K": 64 * tiles})
    found = run(parse_program(text + "\n", "unwaited.kir"), problem.inputs(at, 0), dict(at.sizes), mode="check")
    assert {"KIR-I014", "KIR-I020"} <= {each.id for each in found.errors}
    threads, copies, parts = 384 + 128 + 256 + 8, 5 * tiles, 2
    assert max(made.values()) <= threads + copies * parts + 64
