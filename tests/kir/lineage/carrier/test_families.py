"""Families of answers: one text with parameters, of which each is an answer; and the three ways to share a row among CTAs."""
from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kir.base.diagnostic import KirError
from kir.faces.api.named import pipeline_of
from kir.hardware.target import target
from kir.interp import run as interpret
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.learning.tune import load_space
from kir.lineage.carrier import Contract
from kir.lineage.carrier.recognition import known
from kir.lineage.carrier.records import read_record, spelled
from kir.passes.algorithms._carrier import asked_of
from kir.problem import load_problem
from kir.rewrite import Context, run
from kir.rewrite.driver import sites
from kir.rewrite.registry import pass_class

CONTRACT = Contract.shipped("radix_select")
PIPELINES = Path(__file__).parents[4] / "skills" / "pipelines"
SMALL = {"rows": "rows(threads=128, items=2, room=256)", "clusters": "clusters(threads=128, items=2, room=256, bits=8)",
         "chunks": "chunks(threads=128, items=2, blocks=2, bits=8)", "spread": "spread(tile=256, threads=32)", "alone": "alone(tile=256, threads=32)"}


def test_an_answer_of_a_family_is_named_by_its_parameters() -> None:
    assert spelled("rows(threads=128, items=4)") == ("rows", {"threads": 128, "items": 4})
    assert spelled("histogram") == ("histogram", {})
    first = known(CONTRACT, "rows")
    assert known(CONTRACT, "rows(threads=256)").program == first.program and known(CONTRACT, "rows(threads=256)").source == "shipped"
    other = known(CONTRACT, "rows(threads=512)")
    assert other.source == "recorded" and other.hash != first.hash and other.program.kernels[0].threads.value == 512  # type: ignore[attr-defined]


@pytest.mark.parametrize("wanted", ["rows(threads=96)", "rows(warps=4)", "histogram(threads=256)"])
def test_what_a_family_does_not_list_is_no_answer(wanted: str) -> None:
    with pytest.raises(KirError) as refused:
        known(CONTRACT, wanted)
    assert refused.value.diagnostics[0].id == "KIR-H144" and refused.value.diagnostics[0].needs


def test_a_hole_that_the_record_does_not_list_is_located(tmp_path: Path) -> None:
    for name in ("rows.toml", "rows.kir.in"):
        shutil.copy(CONTRACT.folder / name, tmp_path / name)
    text = tmp_path / "rows.kir.in"
    text.write_text(text.read_text(encoding="utf-8").replace("${room}", "${space}"), encoding="utf-8")
    with pytest.raises(KirError) as refused:
        read_record(tmp_path / "rows.toml")
    assert refused.value.diagnostics[0].id == "KIR-H140" and "space" in refused.value.diagnostics[0].message


@pytest.mark.parametrize(("name", "distribution"), [("rows", "equal"), ("rows", "ties"), ("clusters", "ties"), ("chunks", "infinite")])
def test_a_bucket_that_fits_nowhere_is_looked_at_where_it_is(name: str, distribution: str) -> None:
    problem = CONTRACT.problem("f32")
    shape = problem.shape("long")
    inputs = problem.inputs(shape, 2, distribution)
    found = interpret(known(CONTRACT, SMALL[name], "f32").program, inputs, problem.scalars(shape))
    assert problem.compare(found.outputs, inputs, shape).ok


@pytest.mark.parametrize(("name", "old", "new"), [
    ("rows", "        counts[c * 128 + t] = 0\n      barrier()\n", "        counts[c * 128 + t] = 0\n"),
    ("clusters", "    cluster_arrive()\n    cluster_wait()\n    if rank == 0", "    if rank == 0"),
    ("chunks", "if place < N & digit == found[0]", "if digit == found[0]"),
    ("spread", "let just = K == upto", "let just = K <= upto"),
    ("alone", "let just = K == upto", "let just = K <= upto"),
    ("alone", "reshape(-of_thread + ", "reshape("),
])
def test_a_mistake_in_a_family_is_found(name: str, old: str, new: str) -> None:
    program = known(CONTRACT, SMALL[name], "f32").program
    text = program_text(program)
    assert old in text
    problem = CONTRACT.problem("f32")
    shape = problem.shape("small" if name in ("rows", "spread", "alone") else "tail")
    inputs = problem.inputs(shape, 1, "ties" if name != "chunks" else "zeros")
    found = interpret(parse_program(text.replace(old, new)), inputs, problem.scalars(shape), mode="check", one_error=True)
    assert found.errors or not problem.compare(found.outputs, inputs, shape).ok


@pytest.mark.parametrize("name", ["rows", "clusters", "chunks"])
def test_what_is_tuned_are_answers_of_the_family(name: str) -> None:
    space = load_space(PIPELINES / f"topk_{name}.toml")
    listed = read_record(CONTRACT.folder / f"{name}.toml", shipped=True).record.parameters
    assert set(space.parameters) == set(listed) and all(set(values) <= set(listed[key]) for key, values in space.parameters.items())


def test_all_kernels_of_an_answer_ask_their_surface_for_the_same_and_are_undone_at_once() -> None:
    naive, asks = load_problem("topk").naive, 'asks=["tl_disable_thread_storage_sync=true"]'
    done = run(naive, pipeline_of(f'radix-select{{answer="{SMALL["chunks"]}" {asks}}}@main'), Context(target("sm_90a"))).program
    assert [dict(k.attrs) for k in done.kernels] == [{"tl_disable_thread_storage_sync": True}] * 4
    back = next(s for s in sites(pass_class("radix-select").with_options({"answer": SMALL["chunks"]}), done, "backward"))
    assert asks in str(back.params) and back.params.backward(done, back)[0] == naive
    other = replace(done, kernels=(replace(done.kernels[0], attrs=()), *done.kernels[1:]))
    assert asked_of(other, tuple(k.name for k in other.kernels)) == ((), other), "one asks for something else than the others"
    with pytest.raises(KirError, match="what the CTA does as a whole has no barriers of its own"):
        run(naive, pipeline_of(f'radix-select{{answer="tiles(tile=4096, threads=256)" {asks}}}@main'), Context(target("sm_90a")))
