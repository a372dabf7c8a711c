"""Features of programs and pairs: what they are, what they are not, and what is refused."""
from __future__ import annotations

import math
from dataclasses import replace

import pytest

from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.learning.forecast import Pair
from kir.learning.forecast.comparison import Compared, family_of, of_pair, of_step, opposite, pair_features, vector
from kir.learning.forecast.features import state
from kir.surface import Artifact, CompiledKernel
from tests.kir.learning.forecast.made import copying

H200 = target("h200")


def test_a_pair_turned_round_has_the_opposite_quotients() -> None:
    a, b = (state(copying(threads), {"N": 1 << 22}, H200) for threads in (32, 256))
    one, other = of_pair(a, b, "", "cuda", H200), of_pair(b, a, "", "cuda", H200)
    assert one["log o.threads"] == pytest.approx(-3.0, abs=0.01)
    assert all(one[name] == pytest.approx(-other[name]) for name in one if name.startswith("log "))
    assert of_pair(a, a, "", "cuda", H200)["log t.total"] == 0.0


def test_pairs_compared_by_columns_have_the_features_of_pairs() -> None:
    made = Artifact("cuda", "sm_90a", (CompiledKernel("main", 40, 8, 0, 64, {"LDGSTS.E": 4, "LDG.E": 2, "LDL": 8}),))
    sides = [state(copying(threads, times), {"N": 1 << 20}, H200, artifact=each) for threads, times, each in ((32, 1, None), (256, 3, made), (64, 3, made))]
    found = {name for a in sides for b in sides for name in of_pair(a, b, "unroll@main/k", "cuda", H200)}
    names = sorted(found | {"log t.unheard", "log s.unheard", "pass tile"})
    by_columns = Compared(names)
    kept = [by_columns.side(each) for each in sides]
    for i, a in enumerate(sides):
        for j, b in enumerate(sides):
            row = by_columns.pair(kept[i], kept[j], "~unroll@main/k", "cuda", H200)
            assert row == pytest.approx(vector(of_pair(a, b, "~unroll@main/k", "cuda", H200), names), nan_ok=True)


def test_what_a_program_stores_does_not_depend_on_how() -> None:
    stored = [state(copying(threads), {"N": 1 << 20}, H200)["c.stored"] for threads in (32, 256)]
    assert stored == [4 << 20, 4 << 20]


def test_names_of_programs_and_kernels_leave_no_trace() -> None:
    a, b = (state(copying(64, name=name), {"N": 4096}, H200) for name in ("copied", "gemm_sm90"))
    assert a == b and not any("copied" in name or "main" in name for name in a)


def test_another_device_is_seen() -> None:
    pair = Pair(copying(32), copying(64), {"N": 1 << 22}, H200)
    here, there = pair_features(pair), pair_features(replace(pair, target=target("a100")))
    assert here["device dram"] != there["device dram"] and here["at t.total"] < there["at t.total"]


def test_machine_code_counts_only_where_both_have_it() -> None:
    made = Artifact("cuda", "sm_90a", (CompiledKernel("main", 40, 8, 0, 64, {"LDGSTS.E": 4, "LDG.E": 2, "LDL": 8}),))
    a, b = state(copying(64), {"N": 4096}, H200, artifact=made), state(copying(64), {"N": 4096}, H200)
    assert (a["s.asynchronous"], a["s.load"], a["s.spill"], a["s.spills"]) == (4, 2, 8, 8)
    assert not any(" s." in name for name in of_pair(a, b, "", "cuda", H200) if name.startswith("log "))
    assert of_pair(a, a, "", "cuda", H200)["log s.registers"] == 0.0


def test_what_is_not_there_is_nothing_but_of_machine_code_it_is_unknown() -> None:
    found = vector({"log t.dram": 1.0}, ["log t.dram", "log t.l2", "log s.spills"])
    assert found[:2] == [1.0, 0.0] and math.isnan(found[2])


def test_a_step_is_its_family_and_direction() -> None:
    assert family_of("stage-shared") == "staging" and family_of("no-such-pass") == ""
    assert of_step("~stage-shared{buffer=A}@main/x") == {"step staging": 1.0, "pass stage-shared": 1.0, "step backward": 1.0}
    assert of_step("") == {"step none": 1.0}
    assert opposite("~unroll@main/k") == "unroll@main/k" and opposite("unroll@main/k") == "~unroll@main/k" and opposite("") == ""


@pytest.mark.parametrize("sizes", [{}, {"N": 0}, {"N": -4}])
def test_sizes_that_are_no_launch(sizes: dict[str, int]) -> None:
    with pytest.raises(KirError, match="KIR-E007"):
        state(copying(), sizes, H200)


def test_a_program_that_is_generic_in_its_numbers_runs_with_their_defaults() -> None:
    text = program_text(copying(256, 2))
    named = text.replace("  size N", "  meta THREADS: int = 256\n  size N", 1).replace("threads 256", "threads THREADS").replace("0..256", "0..THREADS")
    assert "meta THREADS" in named and "threads THREADS" in named
    assert state(parse_program(named, "p.kir"), {"N": 4096}, H200) == state(parse_program(text, "p.kir"), {"N": 4096}, H200)
    generic, known = (state(parse_program(t, "p.kir"), {"N": 4096}, H200, "tilelang") for t in (named, text))
    assert {name: value for name, value in generic.items() if value != known[name]} == {"x.open sizes": 1.0}, "TileLang knows the sizes of the other"
