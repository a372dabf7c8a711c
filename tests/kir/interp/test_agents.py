"""How many agents the checker makes of what is in flight: as many as issue, not as many as could."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kir.base.diagnostic import KirError
from kir.interp import run
from kir.interp.checking import happens_before
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


UNAWAITED = """kir 1
program summed
  size K: i32
  in X: f32[K]
  out Y: f32[128]
kernel main grid (i: 1) threads 32
  shared Xs: f32[128]
  fragment acc: f32[128] = 0.0
  for k in 0..K // 128
    copy X[k * 128 +: 128] -> Xs via cp_async grouped {vector=4}
    async_commit()
    async_wait(0)
    acc = acc + Xs
  Y = acc
"""


def test_operations_that_nobody_waits_for_are_followed_until_an_error_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is an agent of its own, and what agents know of one another took 32 GiB where a wait was missing in a loop of 31 turns."""
    monkeypatch.setattr(happens_before, "ENOUGH_BYTES", 0)
    x = np.ones(1024, np.float32)
    waited = parse_program(UNAWAITED)
    assert run(waited, {"X": x}, mode="check").outputs["Y"].tolist() == [8.0] * 128
    missing = run(parse_program(UNAWAITED.replace("    async_wait(0)\n", "")), {"X": x}, mode="check")
    assert {f.id for f in missing.errors} == {"KIR-I014"} and missing.outputs["Y"].shape == (128,)
    assert missing.counters.steps < run(waited, {"X": x}, mode="check").counters.steps
    monkeypatch.setattr(happens_before, "MOST_BYTES", 0)
    with pytest.raises(KirError) as caught:
        run(waited, {"X": x}, mode="check")
    assert caught.value.diagnostics[0].id == "KIR-I007"
