"""The shipped lineages: each is replayed to the letter on a machine without a GPU, and the crossing table is what they give."""
from __future__ import annotations

from math import log, sqrt

import pytest

from benchmarks.surfaces import crossing, workload_lineages
from kir.faces.api.pipelines import stored
from kir.faces.cli._main import run
from kir.ir.canonical import content_hash
from kir.ir.parser import parse_program
from kir.lineage.engine import PassEngine
from kir.lineage.parameter_replay import recover, same_in_any_order
from kir.lineage.records.folder import Folder
from kir.lineage.records.speedup import measured_speedups
from kir.lineage.replay import replay

SHIPPED = {folder.root.name: folder for folder in crossing.lineages()}
PIPELINES = "pipelines/"
OF_PIPELINES = [name for name, folder in SHIPPED.items() if folder.read().header.source.startswith(PIPELINES)]


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_lineage_replays_to_the_letter(name: str) -> None:
    folder: Folder = SHIPPED[name]
    record = folder.read()
    done = replay(record, folder, PassEngine.of(record.header))
    assert done.ok and all(each.exact for each in done.transitions), [str(d) for d in done.diagnostics]
    assert record.outcome.ended == "naive" and record.accepted


@pytest.mark.parametrize("name", OF_PIPELINES)
def test_a_lineage_of_a_pipeline_is_of_what_that_makes_today(name: str) -> None:
    record = SHIPPED[name].read()
    fixed = dict(line.split(" = ") for line in record.header.binding.splitlines())
    trace = stored(record.header.source.removeprefix(PIPELINES), record.header.problem, fixed).trace
    assert content_hash(trace.program) == record.states[0].content, f"kir lineage {record.header.expert} -o skills/lineages/{name} --restart"
    assert len(trace.steps) == len(record.accepted)


@pytest.mark.parametrize("name", ["gemm_sm90", "softmax_cuda"])
def test_an_expert_is_recovered_from_parameters_alone(name: str) -> None:
    folder: Folder = SHIPPED[name]
    record = folder.read()
    found = recover(record, folder, PassEngine.of(record.header))
    assert sum(step.residue_bytes for step in record.accepted) > 0 and found.same and len(found.steps) == len(record.accepted)
    assert {step.how for step in found.steps} == {"anchor", "path"} and not all(step.same for step in found.steps)


def test_the_measured_effects_explain_the_whole_ratio() -> None:
    record, device = SHIPPED["gemm_sm90"].read(), "NVIDIA H200"
    effects = [measured_speedups(step)[device] for step in record.accepted]
    total = sum(log(median) for median, _, _ in effects)
    within = sqrt(sum((log(high / low) / 2) ** 2 for _, low, high in effects))
    fast, slow = (state.measured[device][0] for state in (record.states[0], record.states[-1]))
    assert abs(total - log(slow / fast)) <= within and slow / fast > 1000


@pytest.mark.parametrize("name", ["gemm_cuda", "gemm_tilelang", "fmha_tilelang"])
def test_an_expert_written_by_hand_is_recovered_but_for_the_order_that_may_be_any(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", str(SHIPPED[name].root), "--without-residue"]) == 0
    steps = len(SHIPPED[name].read().accepted)
    said = capsys.readouterr().out
    assert f"{steps} of {steps} steps applied" in said and "recovered, up to names and the order of statements that do not depend on one another" in said


def test_a_step_that_finds_no_place_without_its_residue_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", str(SHIPPED["transpose_tilelang"].root), "--without-residue"]) == 1
    said = capsys.readouterr()
    assert "2 of 11 steps applied" in said.out and "KIR-A002" in said.err and "no 'tid'" in said.err


ORDERS = """
kir 1
program ordered
  in A: f16[64]
  in B: f16[64]
  out C: f16[64]
kernel main grid (i: 1) threads 32
  shared As: f16[64]
  shared Bs: f16[64]
  {0}
  {1}
  async_commit()
  {2}
  {3}
  C[0 +: 64] = As[0 +: 64] + Bs[0 +: 64]
"""
BEGUN = ("copy A -> As via cp_async grouped", "copy B -> Bs via cp_async grouped", "async_wait(0)", "barrier()")


@pytest.mark.parametrize("made, same", [
    ((BEGUN[1], BEGUN[0], *BEGUN[2:]), True),
    ((*BEGUN[:2], BEGUN[3], BEGUN[2]), False),  # threads would meet before their copies have arrived
    (("copy A -> As", "copy B -> As", *BEGUN[2:]), False),
])
def test_only_statements_that_do_not_depend_on_one_another_may_stand_in_another_order(made: tuple[str, ...], same: bool) -> None:
    wanted = BEGUN if made[0] != "copy A -> As" else (made[1], made[0], *BEGUN[2:])
    assert same_in_any_order(parse_program(ORDERS.format(*made)), parse_program(ORDERS.format(*wanted))) is same


def test_the_crossing_table_has_a_row_for_each_lineage_and_surface() -> None:
    rows = [line for line in crossing.PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][2:]
    records = [folder.read().header for folder in crossing.lineages()]
    wanted = [(header.expert, kernel.surface) for header in records for kernel in crossing.naive_kernels(header.problem)]
    assert [(row.split("`")[1], row.split("|")[3].strip()) for row in rows] == wanted


@pytest.mark.zoo
def test_a_row_of_the_table_is_what_the_lineage_gives() -> None:
    folder = SHIPPED["gemm_tilelang"]
    for kernel in crossing.naive_kernels("gemm"):
        assert crossing.row(folder, kernel) in crossing.PAGE.read_text(encoding="utf-8")


def test_the_page_of_workloads_is_what_is_shipped() -> None:
    page = workload_lineages.page()
    assert workload_lineages.PAGE.read_text(encoding="utf-8") == page
    assert "| none |" not in page, "every workload has a lineage on every surface"
    named = {line.split("`")[1] for line in page.splitlines() if "| `" in line}
    assert named <= set(SHIPPED) and {"fmha_sm90", "conv2d_triton", "topk_tilelang", "gdn_d128_sm90", "gemm_grouped_triton"} <= named
