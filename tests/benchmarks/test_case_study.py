"""The case study of FlashQLA: its own naive program is right, and its page says what was measured of the programs that it is of."""
from __future__ import annotations

from benchmarks.surfaces.case_study import FORGETTING, Step, Study, page
from kir.interp import run
from kir.ir.canonical import content_hash
from kir.problem import load_problem


def test_the_attention_that_forgets_is_right_where_it_ends_within_a_chunk() -> None:
    problem = load_problem(FORGETTING)
    shape = problem.shape("odd")
    inputs = problem.inputs(shape, seed=1)
    assert problem.compare(run(problem.naive, inputs, problem.scalars(shape), mode="check").outputs, inputs, shape).ok


def test_the_page_has_what_was_measured_and_says_what_was_not() -> None:
    before, after = load_problem(FORGETTING).naive, load_problem("gdn_d128").naive
    study = Study([Step("a-card", "a-step", 3e-3, 1e-3)], [before, after], "right on 6 runs", ["a-card"])
    row = {"accepted": True, "reason": "", "device": "NVIDIA H200", "when": "2026-01-01 00:00"}
    by = {content_hash(p): {**row, "seconds": s} for p, s in ((before, 4e-3), (after, 1e-3))}
    text = page((), {"it": study}, by)
    assert "| `a-step` | `a-card` | 3,000 us | 1,000 us | 3.00 | 4,000 us | 1,000 us | 4.00 |" in text
    assert "3.0 times as fast by the model, 4.00 times as measured (H200, 2026-01-01 00:00); the gate: right on 6 runs." in text
    assert "| not measured | not measured |  |" in page((), {"it": study}, {})
