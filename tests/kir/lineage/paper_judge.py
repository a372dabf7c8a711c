"""A gate on paper, and a softmax of tiles to walk back before it."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kir.ir.nodes import Program
from kir.lineage.records.record import Realization
from kir.lineage.walk import Judgement

SOFTMAX = """kir 1
program softmax
  size M: i32
  size N: i32
  in X: f16[M, N]
  out Y: f16[M, N]
  fact N <= 256
kernel main grid (row: M) threads 128
  let x = load(X[row, 0 +: 256] else -inf:f16 clip)
  let top = reduce(cast(x, f32), axis=0, op=max)
  let e = exp(cast(x, f32) - top)
  let total = reduce(e, axis=0, op=sum)
  Y[row, 0 +: 256] = cast(e / total, f16) clip
"""


@dataclass
class PaperJudge:
    """A gate that accepts everything without compiling; ``before`` is called before each word."""

    before: Callable[[int], None] = lambda number: None
    refuse: bool = False
    calls: int = 0
    copies: object = None
    """Not asked."""

    def gate(self, program: Program) -> Judgement:
        self.calls += 1
        self.before(self.calls)
        if self.refuse:
            return Judgement(False, "correctness", "Y[0, 0] is wrong", {"accepted": False})
        return Judgement(True, "gate", "", {"accepted": True}, "", {"sm_80": 1e-5}, program)

    def realized(self, before: Judgement, after: Judgement) -> Realization:
        return Realization(realized=before.artifact != after.artifact, reason="")
