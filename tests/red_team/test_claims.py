"""What a kernel claims to do: refused from the IR where it does not, though each value is right; and look-alikes that are accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.checks.claims import page, said
from kir.base.diagnostic import KirError
from kir.problem.schema import Claims

from .claims import BY_VALUES, FALSE, HONEST, Claimed


@pytest.mark.parametrize("case", FALSE, ids=lambda c: f"{c.problem} {c.name}")
def test_a_kernel_that_lacks_what_is_named_is_refused_though_its_values_are_right(case: Claimed) -> None:
    found = said(case)
    assert found.values, "the tests alone refuse it: it shows nothing"
    assert found.refusals and found.refusals[0].id == case.id, found.refusals
    assert found.refusals[0].anchor


@pytest.mark.parametrize("case", BY_VALUES, ids=lambda c: f"{c.problem} {c.name}")
def test_what_turns_by_one_element_is_seen_by_its_values_too(case: Claimed) -> None:
    found = said(case)
    assert not found.values and [each.id for each in found.refusals] == [case.id] * bool(case.id)


@pytest.mark.parametrize("case", HONEST, ids=lambda c: f"{c.problem} {c.name}")
def test_a_look_alike_is_accepted(case: Claimed) -> None:
    found = said(case)
    assert found.values and not found.refusals, found.refusals


def test_there_are_thirty_of_each_and_the_page_counts_them() -> None:
    assert len(FALSE) >= 30 and len(HONEST) >= 30
    rows = [(c, said(c)) for c in (FALSE[0], HONEST[0])]
    assert "1 of 1 refused" in page(rows) and "0 of 1" in page(rows)


def test_claims_that_say_nothing_are_refused() -> None:
    for wrong in ({"steps": [{"kind": "round"}]}, {"steps": [{"kind": "call"}]}, {"accumulator": "f12"}):
        with pytest.raises(ValueError, match=r"round|any_of|literal"):
            Claims.model_validate(wrong)


def test_a_claim_about_a_tensor_that_is_none_is_located(tmp_path: Path) -> None:
    from kir.problem import load_problem

    from .exploits import PROBLEMS
    folder = tmp_path / "compensated"
    folder.mkdir()
    text = (PROBLEMS / "compensated" / "problem.toml").read_text()
    (folder / "problem.toml").write_text(text.replace('of = "X"', 'of = "Z"'))
    with pytest.raises(KirError, match="'Z', which is no tensor"):
        load_problem(folder)
