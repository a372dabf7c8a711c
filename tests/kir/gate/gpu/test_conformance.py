"""The cases of instruction conformance: every row of the table has one or a reason, and the comparison says no where it must."""
from __future__ import annotations

import numpy as np
import pytest

from kir.base.diagnostic import KirError
from kir.base.instructions import table
from kir.gate.gpu import conformance
from kir.gate.gpu.conformance import cases, difference, own_text
from kir.interp import run


def test_every_row_is_run_or_the_table_says_why_not() -> None:
    every, left = cases()
    rows = {name for name, row in table().items() if row.level != "static"}
    run_ = {name for case in every for name in case.rows}
    assert run_ | set(left) >= rows and not run_ & set(left)
    assert len(run_) >= 100 and all(left.values())


def test_no_reason_outlives_itself() -> None:
    """A row that some backend writes is run, whatever the table of reasons still says of it."""
    every, left = cases()
    run_ = {name for case in every for name in case.rows}
    late = {"pack", "unpack", "warp_reduce", "atomic_load", "atomic_store", "named_barrier_sync", "named_barrier_arrive", "mbar_expect"}
    assert late | {"wgmma", "stmatrix", "cluster_wait"} <= run_
    stale = [name for name, reason in conformance.declared()["without"].items() if name in run_]
    assert stale == [] and len([name for name in left if not name.startswith("tcgen05_")]) <= 18  # no device here has tensor memory
    for case in (c for c in every if c.rows[0] in ("pack", "warp_reduce", "named_barrier_sync", "mbar_expect", "stmatrix", "cluster_arrive")):
        found = run(case.program, {k: v.copy() for k, v in case.inputs.items()}, dict(case.scalars), mode="check")
        assert [f for f in found.findings if f.severity == "error"] == []


def test_a_row_that_is_nowhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    without = conformance.declared()
    del without["without"]["trap"]
    monkeypatch.setattr(conformance, "declared", lambda: without)
    with pytest.raises(KirError) as refused:
        cases()
    assert refused.value.diagnostics[0].id == "KIR-G109" and "trap" in str(refused.value)


def test_cases_have_a_meaning_and_extreme_operands() -> None:
    every, _ = cases()
    for case in [c for c in every if c.rows[0] in ("exp", "mulhi", "ldexp", "bit_insert", "lanes", "shfl_xor")]:
        with np.errstate(all="ignore"):
            outputs = run(case.program, {k: v.copy() for k, v in case.inputs.items()}, dict(case.scalars)).outputs
        assert outputs
    exp = next(c for c in every if c.rows == ("exp",))
    assert np.isnan(exp.inputs["A"]).any() and np.isinf(exp.inputs["A"]).any()


def test_the_instruction_itself_is_what_runs_where_no_surface_spells_it() -> None:
    case = next(c for c in cases()[0] if c.rows == ("lop3",))
    text = own_text(case).text
    assert "lop3.b32 %0, %1, %2, %3, 202;" in text and '"r"(C[i])' in text


def test_what_may_differ_is_what_is_declared() -> None:
    one = np.array([1.0, np.nan, 0.0], np.float32)
    next_up = np.nextafter(one, np.float32(2.0)).astype(np.float32)
    assert difference(one, one, {}) == (0.0, 0)
    assert difference(next_up[:1], one[:1], {})[0] == 1.0
    assert difference(-one[2:], one[2:], {})[0] == np.inf, "bitwise: the sign of zero counts"
    assert difference(-one[2:], one[2:], {"ulp": 1})[0] == 0.0
    assert difference(np.array([3], np.int32), np.array([4], np.int32), {})[0] == np.inf
    assert difference(np.array([np.nan], np.float32), np.array([1.0], np.float32), {"ulp": 4})[0] == np.inf


def test_a_subnormal_result_may_be_flushed_only_where_the_surface_flushes() -> None:
    zero, small = np.zeros(1, np.float32), np.array([7.8e-39], np.float32)
    assert difference(zero, small, {})[0] > 0
    assert difference(zero, small, {}, flushes=True)[0] == 0.0
    assert difference(small * 2, small, {}, flushes=True)[0] > 0, "another subnormal is no flush"


def test_operands_outside_of_what_an_instruction_promises_are_left_out() -> None:
    every, _ = cases()
    sine = next(c for c in every if c.rows == ("sin_approx",)).inputs["A"]
    assert np.isfinite(sine).all() and np.abs(sine).max() < 3.15
    for case in (c for c in every if c.surface == "triton" and "A" in c.inputs and c.inputs["A"].dtype == np.float32):
        a = np.abs(case.inputs["A"])
        assert not ((a > 0) & (a < np.finfo(np.float32).smallest_normal)).any()
