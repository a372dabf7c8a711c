"""What the workloads do with inputs at the edge of what their problems say: numbers that are none, infinities, rows that are empty, sizes that do not fit."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.interp import run
from kir.ir.nodes import Program
from kir.learning.tune.rank import Prefixes, assumed, built, given_of
from kir.learning.tune.space import Space, Value, find_space
from kir.problem import Shape, load_problem
from kir.rewrite import Context, Pipeline
from kir.rewrite import run as rewritten
from kir.surface.reading import load_expert

SKILLS = Path(__file__).parents[2] / "skills"
H200 = target("h200")
SOFTMAX = {"cuda": ("softmax.cu::softmax", "cuda_softmax"), "tilelang": ("tilelang.py::softmax_row", "tilelang_softmax")}
WIDTH = 70


def first_values(space: Space) -> Mapping[str, Value]:
    """What fills the holes of the first point that a space takes."""
    problem = load_problem(space.home)
    given = given_of(space, problem, problem.shapes[0], H200)
    return next(v for v in (space.values(p, given) for p in space.points()) if not space.refusal(v))


def first_point(name: str) -> Program:
    """The first point of a stored pipeline, over the problem's naive program."""
    space = find_space(name)
    return built(space, first_values(space), load_problem(space.home), H200, Prefixes())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("surface", ["naive", *SOFTMAX])
def test_softmax_of_nan_and_infinities_is_that_of_the_formula(surface: str) -> None:
    if surface == "naive":
        program = load_problem("softmax").naive
    else:
        file, binding = SOFTMAX[surface]
        program = load_expert(f"{SKILLS}/experts/softmax/{file}", SKILLS / "bindings" / f"{binding}.toml").program
    x = np.random.default_rng(3).standard_normal((8, WIDTH)).astype(np.float16)
    x[0, 5], x[1, WIDTH - 1], x[2], x[3], x[4, 9], x[5, ::2], x[6, :64] = np.nan, np.nan, np.nan, -np.inf, np.inf, -np.inf, -np.inf
    wide = x.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=1, keepdims=True))
    found = run(program, {"X": x}, {"M": 8, "N": WIDTH}).outputs["Y"].astype(np.float64)
    assert np.allclose(found, powers / powers.sum(axis=1, keepdims=True), atol=2e-3, equal_nan=True)
    assert np.isnan(found).any(axis=1).tolist() == [True, True, True, True, True, False, False, False]


@pytest.mark.parametrize("name", ["naive", "topk_sieve_triton", "topk_tilelang"])
def test_a_selection_takes_infinities_and_equal_elements_and_refuses_more_than_there_are(name: str) -> None:
    program = load_problem("topk").naive if name == "naive" else first_point(name)
    x = np.random.default_rng(3).standard_normal((4, WIDTH)).astype(np.float32)
    x[0], x[1], x[2, ::2], x[3] = -np.inf, np.inf, -0.0, 1.5
    out = run(program, {"X": x}, {"R": 4, "N": WIDTH, "K": 9}).outputs
    assert all(len(set(row)) == 9 and min(row) >= 0 and max(row) < WIDTH for row in out["I"].tolist())
    assert np.array_equal(np.take_along_axis(x, out["I"].astype(np.int64), 1), out["V"])
    assert np.array_equal(np.sort(out["V"], axis=1), np.sort(x, axis=1)[:, WIDTH - 9:])
    for sizes, fact in (({"R": 2, "N": WIDTH, "K": WIDTH + 1}, "K <= N"), ({"R": 2, "N": WIDTH, "K": 0}, "K >= 1")):
        with pytest.raises(KirError, match=rf"KIR-I008.*'{fact}' does not hold"):
            run(program, {"X": np.zeros((2, WIDTH), np.float32)}, sizes)


def test_what_a_selection_rests_on_is_said_nan_among_it() -> None:
    assert load_problem("topk").spec.title.endswith("no element is NaN")
    done = rewritten(load_problem("topk").naive, Pipeline.parse("radix-select{answer=histogram}@main"), Context(H200))
    assert [v.scope for _, v in done.steps[0].applied.record.verdicts] == ["inputs without NaN", "the contract's shapes and inputs"]


def test_a_selection_of_nan_is_no_question_of_its_problem() -> None:
    """Kernels answer it in different ways (the naive one never chooses NaN): nothing is called right or wrong there."""
    problem = load_problem("topk")
    right = problem.inputs("tail", distribution="infinite")
    outputs = problem.rounded(problem.oracle(right, "tail"))
    assert problem.compare(outputs, right, "tail").ok
    wrong = {"X": right["X"].copy()}
    wrong["X"][1, 7] = np.nan
    for asked in (lambda: problem.oracle(wrong, "tail"), lambda: problem.compare(outputs, wrong, "tail")):
        with pytest.raises(KirError, match=r"KIR-G907.*X\[1, 7\] is nan"):
            asked()


@pytest.mark.parametrize("name", ["fmha_varlen", "fmha_varlen_causal"])
def test_what_lies_past_the_end_of_a_sequence_is_finite_and_not_looked_at(name: str) -> None:
    problem = load_problem(name)
    shape = Shape(name="some", sizes={"B": 2, "H": 1, "L": 9}, tags=())
    inputs = {**problem.inputs(shape, seed=1), "lengths": np.array([4, 9], np.int32)}
    beyond = {k: v.copy() for k, v in inputs.items()}
    for k in "QKV":
        beyond[k][0, :, 4:] = np.inf
    with pytest.raises(KirError, match=r"KIR-G907.*Q\[0, 0, 4, 0\] is inf.*finite"):
        problem.compare(problem.rounded(problem.oracle(inputs, shape)), beyond, shape)
    seen = {**inputs, "V": beyond["V"]}
    wide = {k: v.astype(np.float64) for k, v in seen.items()}
    assert np.array_equal(problem.reference.oracle(wide, problem.values(shape))["O"], problem.oracle(inputs, shape)["O"]), "the reference sees nothing there"
    plain, other = (run(problem.naive, x, problem.scalars(shape)).outputs["O"] for x in (inputs, seen))
    assert np.array_equal(plain, other), "nor does the naive program"


def test_a_product_with_what_is_not_seen_says_that_inputs_are_finite() -> None:
    assert load_problem("fmha_varlen").spec.title.endswith("what lies there is finite")
    space = find_space("fmha_varlen_triton")
    steps = Pipeline.parse(space.filled(first_values(space)))
    done = rewritten(assumed(load_problem("fmha_varlen").naive, space), Pipeline(steps.steps[:6]), Context(H200))
    assert "finite inputs" in [v.scope for _, v in done.steps[-1].applied.record.verdicts]


@pytest.mark.parametrize(("name", "empty", "refused"), [
    ("gemm_sm90", ("M", "K"), ()), ("conv2d_sm80", ("N", "F"), ()), ("fmha_sm80", ("B", "H"), ("L",)), ("gemm_grouped_triton", (), ("T",))])
def test_sizes_of_nothing_are_computed_as_the_naive_program_does_or_refused(name: str, empty: tuple[str, ...], refused: tuple[str, ...]) -> None:
    space, made = find_space(name), first_point(name)
    problem = load_problem(space.home)
    for size in (*empty, *refused):
        shape = Shape(name="empty", sizes={**problem.shape("small").sizes, size: 0}, tags=())
        inputs = problem.inputs(shape, seed=1)
        if size in refused:
            with pytest.raises(KirError, match=rf"KIR-I008.*'{size} >= 1' does not hold"):
                run(made, inputs, problem.scalars(shape))
            continue
        wanted, found = (run(p, inputs, problem.scalars(shape), mode="check") for p in (problem.naive, made))
        assert not found.errors and all(np.array_equal(found.outputs[k], v) for k, v in wanted.outputs.items())
