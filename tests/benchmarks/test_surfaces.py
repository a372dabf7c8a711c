"""The pages of programs on other surfaces and architectures say what their commands say: stored pipelines there, and skills on kernels of others."""
from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.surfaces import architectures, case_study
from benchmarks.surfaces.case_study import FORGETTING, Step, Study
from kir.interp import run
from kir.ir.canonical import content_hash
from kir.learning.tune.space import find_space, space_names
from kir.problem import load_problem


@pytest.mark.parametrize("name", [
    "gemm_sm90_nt_wide",
    pytest.param("gemm_sm80", marks=pytest.mark.nvcc),
    pytest.param("fmha_even_triton", marks=pytest.mark.triton),
])
def test_a_row_is_as_written(name: str) -> None:
    assert architectures.row(name) in architectures.PAGE.read_text().splitlines()


def test_a_row_goes_where_it_belongs() -> None:
    text, names = architectures.PAGE.read_text(), [name for name in space_names() if find_space(name).surface != "tilelang"]
    rows = [line for line in text.splitlines() if line.startswith("| gemm_sm80 | ")]
    assert architectures.written(rows[:1], names, text) == text == architectures.written(rows[1:], names, text, True)
    assert "## The next" not in architectures.written(rows[:1], ["gemm_sm80"], rows[0])


def test_a_word_that_is_no_pipeline_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert architectures.main(["--help"]) == 2 and "no pipeline is called --help; there are" in capsys.readouterr().err


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
    text = case_study.page((), {"it": study}, by)
    assert "| `a-step` | `a-card` | 3,000 us | 1,000 us | 3.00 | 4,000 us | 1,000 us | 4.00 |" in text
    assert "3.0 times as fast by the model, 4.00 times as measured (H200, 2026-01-01 00:00); the gate: right on 6 runs." in text
    assert "| not measured | not measured |  |" in case_study.page((), {"it": study}, {})


def test_skills_of_another_package_are_used_where_nobody_has_gone(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
                                                                  ) -> None:
    """One of them on a linear attention that no expert computes; a card that gains nothing there takes no step."""
    cards = {card.name: card for card in case_study.lifted()}
    assert "chunk-inverse.kernel" in cards and case_study.main(["all"]) == 2 and "--measure" in capsys.readouterr().err
    (name, (problem, shape)) = list(case_study.hosts().items())[1]
    (step, made), = case_study.climbed(problem.naive, shape, [cards["cache-converted-value.store"], cards["chunk-inverse.kernel"]])
    assert step.before / step.after > case_study.LEAST and made != problem.naive and step.card == "cache-converted-value.store"
    page = case_study.page([cards["mma.mma"]], {"a": Study([step], [problem.naive, made], "right", ["mma.mma"]),
                                                "b": Study([], [problem.naive], "right", [])}, {})
    assert "1 steps, 1." in page and "No step pays here by itself; the gate: right." in page
    assert not [line for line in case_study.PAGE.read_text().splitlines() if "the gate:" in line and "the gate: right" not in line]
    study = Study([step], [problem.naive, made], "right", [])
    monkeypatch.setattr(case_study, "PAGE", tmp_path / "page.md")
    case_study.PAGE.write_text(case_study.page([], {"other": study, name: study}, {}), encoding="utf-8")
    assert case_study.told(name, problem.naive, shape) == [(step, made)] and not case_study.told("none", problem.naive, shape)
