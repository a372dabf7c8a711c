"""The Hopper GEMM and its passes: walked back to naive step by step, made again by a stored pipeline; what its synchronization is for."""
from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from kir.analysis import normalize
from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.canonical import alpha_equal, content_hash
from kir.ir.measures.features import features, kinds
from kir.ir.measures.naive import is_naive
from kir.ir.parser import parse_program
from kir.ir.visit import statements
from kir.learning.tune import load_space
from kir.learning.tune.rank import built, given_of
from kir.problem import load_problem
from kir.rewrite import Applied, apply, passes
from kir.rewrite.driver import forward_site
from kir.rewrite.meaning import difference, interpreted
from kir.rewrite.pipelines.pipeline import run as run_pipeline
from kir.surface import backend
from kir.surface.lowering import lowered
from tests.laws.walks import lineage_of
from tests.programs import EXPERTS, SKILLS

EXPERT = EXPERTS / "gemm" / "gemm_sm90_persistent.kir"
SIZES = {"M": 136, "N": 40, "K": 136}
"""Two tiles for one CTA, all edges cut, and a ring of four that goes on from tile to tile."""
LAST = ("partition-rows", "partition-block", "fuse-epilogue", "unroll")


@cache
def expert(ctas: int = 1) -> n.Program:
    """The persistent GEMM, with so few CTAs that each takes several tiles."""
    return normalize(parse_program(EXPERT.read_text(encoding="utf-8").replace("132", str(ctas)), EXPERT.name))


def _walked(p: n.Program) -> tuple[tuple[n.Program, Applied], ...]:
    return lineage_of(p, load_problem("gemm"), sorted(passes(), key=lambda c: (c.name in LAST, c.name)))


@cache
def lineage() -> tuple[tuple[n.Program, Applied], ...]:
    """Each step with the program that it was taken from, the expert's first."""
    return _walked(expert())


def _tuned(name: str, point: dict[str, int], problem: str) -> n.Program:
    """A point of a stored subject of tuning, with two CTAs."""
    found, wanted, hardware = load_space(SKILLS / "pipelines" / f"{name}.toml"), load_problem(f"{problem}:f16"), target("h200")
    values = found.values(point, {**given_of(found, wanted, wanted.shape("square"), hardware), "sms": 2})
    assert found.refusal(values) == ""
    return built(found, values, wanted, hardware)


def test_it_ends_in_a_naive_program_by_steps_of_many_intents() -> None:
    problem, steps = load_problem("gemm"), lineage()
    assert is_naive(steps[-1][1].program, problem.work_item, problem.state, kernels=1) == ()
    intents = [done.witness.params.intent for _, done in steps]
    assert len(steps) >= 14 and set(intents) >= {
        "register-redistribution", "persistent", "raster-l2", "split-phase-barrier", "tma-store", "stage-epilogue", "pipeline", "wgmma",
        "cooperative-consumers", "warp-specialize", "tma-load", "swizzle-shared", "pack-panels", "stage-shared", "mma", "tile"}


def test_every_condition_is_proved_and_forward_replays() -> None:
    p = lineage()[-1][1].program
    for before, done in reversed(lineage()):
        by_id = {q.id: q.kind for q in done.witness.params.preconditions}
        assert all(v.kind == "proved" for id_, v in done.record.verdicts if by_id[id_] == "validity")
        w = done.witness
        p = apply(p, w.params, forward_site(p, w.params, w.path), left=w.residue).program
        assert content_hash(p) == content_hash(before)
    assert p == expert()


def test_parameters_alone_make_the_same_kernel_but_for_names_and_order() -> None:
    p = lineage()[-1][1].program
    for _, done in reversed(lineage()):
        w = done.witness
        try:
            site = forward_site(p, w.params, w.path)
        except KirError:  # statements that the residue would have moved stand elsewhere
            site = next(s for s in w.params.sites(p) if s.params == w.params)
        p = apply(p, w.params, site).program
    made, wanted = (sorted(type(s).__name__ for s in statements(x.kernels[0].body)) for x in (p, expert()))
    assert made == wanted and kinds(features(p)) == kinds(features(expert()))
    found = interpreted(p, SIZES, checked=True)
    assert found.errors == () and difference(interpreted(expert(), SIZES), found) == ""


def test_every_state_computes_the_same_without_a_hazard() -> None:
    expected = interpreted(expert(), SIZES)
    for before, done in lineage():
        after = interpreted(done.program, SIZES, checked=True)
        assert after.errors == (), done.record.step
        assert difference(expected, after, "reassociated(k)") == "", done.record.step
        if done.witness.params.numerics == "bitwise":
            assert difference(interpreted(before, SIZES), after) == "", done.record.step


def test_the_stored_pipeline_makes_it_from_the_naive_program() -> None:
    naive = parse_program((SKILLS / "problems" / "gemm" / "naive.kir").read_text(encoding="utf-8"))
    made = run_pipeline(naive, (SKILLS / "pipelines" / "gemm_sm90.pipeline").read_text(encoding="utf-8")).program
    wanted = expert(132)
    assert made.tensor_maps == wanted.tensor_maps
    assert alpha_equal(n.Program("gemm", kernels=(made.kernels[0],)), n.Program("gemm", kernels=wanted.kernels))
    problem = load_problem("gemm")
    for name in ("odd", "tail"):  # what no tensor map describes takes the other version
        shape = problem.shape(name)
        inputs = problem.inputs(shape, seed=2)
        assert problem.compare(run(made, inputs, problem.scalars(shape), mode="fast").outputs, inputs, shape).ok


@pytest.mark.parametrize("layout", ["nt", "tn"])
def test_kernels_of_other_layouts_are_walked_back_too(layout: str) -> None:
    made = _tuned(f"gemm_sm90_{layout}", {"rows": 128, "columns": 128, "stages": 5, "raster": 8, "rounds": 2}, f"gemm_{layout}")
    choice = made.plan[0]
    assert isinstance(choice, n.Dispatch)
    guard = choice.arms[0][0]
    assert isinstance(guard, n.Binary)
    steps = _walked(normalize(replace(made, kernels=made.kernels[:1], plan=(), facts=(*made.facts, guard.a, guard.b))))
    assert is_naive(steps[-1][1].program, load_problem("gemm").work_item) == ()
    assert len({done.witness.params.intent for _, done in steps}) >= 14
    assert difference(interpreted(steps[0][0], SIZES), interpreted(steps[-1][1].program, SIZES), "reassociated(k)") == ""


@pytest.mark.parametrize(("old", "new"), [
    ("            fence_async()\n", ""),
    ("(it // 4 + 1) % 2", "it // 4 % 2"),
    ("it1 // 4 % 2", "(it1 // 4 + 1) % 2"),
    ("mbar_init(&empty[s], 2)", "mbar_init(&empty[s], 1)"),
    ("49152", "49136"),
    ("            wgmma_wait(1)\n", ""),
    ("          wgmma_wait(0)\n", ""),
    ("(it1 + 3) % 4", "it1 % 4"),
    ("bulk_wait(0, read=true)", "bulk_wait(2, read=true)"),
    ("shared As: f16[4, 128, 64] layout swizzle(3, 4, 3)", "shared As: f16[4, 128, 64] layout swizzle(2, 4, 3)"),
    ("map B_map of B box [64, 64] {swizzle=128}", "map B_map of B box [64, 64] {swizzle=64}"),
])
def test_what_is_dropped_or_wrong_is_found_on_the_cpu(old: str, new: str) -> None:
    text = EXPERT.read_text(encoding="utf-8").replace("132", "1")
    assert old in text
    problem = load_problem("gemm")
    shape = problem.shape("deep").model_copy(update={"sizes": {"M": 136, "N": 8, "K": 328}})
    inputs = problem.inputs(shape, seed=0)
    try:
        found = run(parse_program(text.replace(old, new)), inputs, problem.scalars(shape), mode="check", one_error=True)
    except KirError:
        return
    assert found.errors or not problem.compare(found.outputs, inputs, shape).ok


@cache
def _states() -> dict[str, n.Program]:
    """Programs in which warpgroups work together, by the pass that is undone next."""
    return {done.witness.params.name: before for before, done in lineage()}


@pytest.mark.parametrize("name", ["wgmma", "tma-load", "warp-specialize"])
def test_teams_of_several_warpgroups_are_right_by_threads(name: str) -> None:
    program = _states()[name]
    assert difference(interpreted(program, SIZES), (found := interpreted(lowered(program), SIZES, checked=True)), "reassociated(k)") == ""
    assert found.errors == ()


@pytest.mark.nvcc
@pytest.mark.parametrize(("name", "wanted"), [("wgmma", {"HGMMA"}), ("tma-load", {"HGMMA", "UTMALDG"}), ("warp-specialize", {"HGMMA", "UTMALDG"})])
def test_they_compile_without_spills(name: str, wanted: set[str]) -> None:
    by = backend("cuda")
    artifact = by.compile(by.emit(_states()[name]), target("sm_90a"))
    assert artifact.spills == 0 and (not artifact.mix or wanted <= set(artifact.mix))
