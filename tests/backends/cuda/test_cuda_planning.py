"""Plans for tiles: verified once, and step by step where that finds something wrong."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kir.backends.cuda.lowering import planning
from kir.base.diagnostic import Diagnostic
from kir.rewrite import apply
from kir.rewrite.driver import Applied
from kir.surface.reading import load_expert


def test_a_plan_whose_result_is_no_program_is_made_again_with_each_step_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    program = load_expert("skills/experts/gemm/tilelang.py", Path("skills/bindings/tilelang_gemm.toml")).program
    plain, steps = planning.planned(program, program.kernels[0].name)
    asked = list[Any]()

    def wrong(found: Any) -> tuple[Diagnostic, ...]:
        asked.append(found)
        return (Diagnostic("KIR-V001", "no program"),)

    taken = list[bool]()

    def applied(*found: Any, verified: bool, **more: Any) -> Applied:
        taken.append(verified)
        return apply(*found, verified=verified, **more)

    monkeypatch.setattr(planning, "verify", wrong)
    monkeypatch.setattr(planning, "apply", applied)
    again, same = planning.planned(program, program.kernels[0].name)
    assert asked == [plain] and (again, same) == (plain, steps) and steps
    assert taken == sorted(taken) and {*taken} == {False, True}
