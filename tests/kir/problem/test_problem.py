"""Every problem proves that its own check tells right from wrong."""
from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tomli_w
from numpy.typing import NDArray

from kir.base.diagnostic import KirError
from kir.ir.measures.naive import is_naive
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.problem import Problem, Shape, load_problem, problem_names, schema
from kir.problem.comparison import Comparison, elementwise
from kir.problem.problem import shape_of, widened

VARIANTS = [f"{name}:{dtype}" if dtype else name for name in problem_names() for dtype in load_problem(name).spec.dtypes or ("",)]


@pytest.fixture(params=VARIANTS)
def problem(request: pytest.FixtureRequest) -> Problem:
    return load_problem(str(request.param))


def of_the_oracle(problem: Problem, inputs: Mapping[str, NDArray[Any]], shape: Shape) -> Comparison:
    """What is said of the oracle's own answer, rounded; the oracle is asked once."""
    exact, bounds = problem.expected(inputs, shape)
    return problem.compare_with(problem.rounded(exact), inputs, shape, lambda: (exact, bounds))


def test_a_perfect_answer_passes(problem: Problem) -> None:
    for shape in problem.tagged("one", "small", "tail", "odd"):
        if "timed" in shape.tags:
            continue
        for distribution in problem.distributions:
            inputs = problem.inputs(shape, 1, distribution)
            verdict = of_the_oracle(problem, inputs, shape)
            assert verdict.ok, (shape.name, distribution, verdict)


def test_forgeries_fail(problem: Problem) -> None:
    for shape in problem.tagged("small", "tail", "odd"):
        if "timed" in shape.tags:
            continue
        inputs = problem.inputs(shape, 2)
        for what, outputs in problem.forgeries(inputs, shape).items():
            assert not problem.compare(outputs, inputs, shape).ok, f"{what} passes at {shape.name}"


def test_one_nan_never_passes(problem: Problem) -> None:
    shape = problem.tagged("small")[0]
    inputs = problem.inputs(shape)
    right = problem.rounded(problem.oracle(inputs, shape))
    for name, value in right.items():
        if "float" not in value.dtype.name:
            continue
        wrong = {k: v.copy() for k, v in right.items()}
        wrong[name].reshape(-1)[3] = np.nan
        assert not problem.compare(wrong, inputs, shape).ok


def test_another_dtype_or_shape_or_a_missing_output_fails(problem: Problem) -> None:
    shape = problem.tagged("small")[0]
    inputs = problem.inputs(shape)
    right = problem.rounded(problem.oracle(inputs, shape))
    name = next(iter(right))
    assert "dtype" in problem.compare({**right, name: right[name].astype(np.float64)}, inputs, shape).reason
    assert "shape" in problem.compare({**right, name: right[name].reshape(-1)}, inputs, shape).reason
    assert "not returned" in problem.compare({}, inputs, shape).reason


def test_inputs_depend_on_their_arguments_alone(problem: Problem) -> None:
    shape = problem.tagged("small")[0]
    first, again, other = problem.inputs(shape, 5), problem.inputs(shape, 5), problem.inputs(shape, 6)
    assert all(first[k].tobytes() == again[k].tobytes() for k in first)
    assert any(first[k].tobytes() != other[k].tobytes() for k in first)


def test_the_naive_program_parses_and_has_the_problems_tensors(problem: Problem) -> None:
    program = problem.naive
    assert parse_program(program_text(program)) == program
    tensors = {p.name: p.role for p in program.params if p.role in ("in", "out", "inout")}
    assert tensors == {t.name: t.role for t in problem.spec.tensors}
    for p in program.params:
        for t in problem.spec.tensors:
            if p.name == t.name:
                assert p.of.dtype.name == problem.tensor_dtype(t)  # type: ignore[union-attr]  # tensors have buffers


def test_the_naive_program_satisfies_predicate_n(problem: Problem) -> None:
    assert is_naive(problem.naive, problem.work_item, problem.state, problem.spec.scatter) == ()


def test_an_infinite_oracle_asks_for_an_infinity() -> None:
    problem = load_problem("gemm")
    inputs = {"A": np.full((64, 64), 60000, np.float16), "B": np.full((64, 64), 60000, np.float16)}
    assert problem.compare({"C": np.full((64, 64), np.inf, np.float16)}, inputs, "small").ok
    assert not problem.compare({"C": np.full((64, 64), 65504, np.float16)}, inputs, "small").ok
    assert not problem.compare({"C": np.full((64, 64), -np.inf, np.float16)}, inputs, "small").ok


def test_the_sign_of_a_zero_counts_where_a_problem_draws_it() -> None:
    """Values that are moved keep it; which of both zeros is the larger is left open, so that neither answer of a maximum is refused."""
    got, exact, bound = np.array([-0.0, 1.0], np.float32), np.array([0.0, 1.0]), np.zeros(2)
    assert elementwise("Y", "f32", got, exact, bound, 1.0).ok
    assert not elementwise("Y", "f32", got, exact, bound, 1.0, signed_zeros=True).ok
    assert [name for name in ("transpose", "softmax") if load_problem(name).signed_zeros] == ["transpose"]


def test_a_bias_within_each_bound_is_no_rounding_noise() -> None:
    problem = load_problem("gemm")
    inputs = problem.inputs("small")
    exact, bound = problem.oracle(inputs, "small")["C"], problem.bounds(inputs, "small")["C"]
    assert "norm" in elementwise("C", "f32", (exact + 0.9 * bound).astype(np.float32), exact, bound, 0.75).reason


@pytest.mark.parametrize(("name", "id", "says"), [
    ("gem", "KIR-G901", "gemm"), ("gemm:f61", "KIR-G906", "f16"), ("/nowhere", "KIR-G901", "softmax")])
def test_an_unknown_problem_or_dtype_names_the_nearest(name: str, id: str, says: str) -> None:
    with pytest.raises(KirError) as caught:
        load_problem(name)
    assert caught.value.diagnostics[0].id == id
    assert says in caught.value.diagnostics[0].attempt + caught.value.diagnostics[0].needs


def test_an_unknown_shape_or_distribution_is_refused() -> None:
    problem = load_problem("gemm")
    with pytest.raises(KirError, match=r"KIR-G902.*'K <= N' does not hold"):
        shape_of(load_problem("topk"), "R=2,N=8,K=9")
    with pytest.raises(KirError, match="KIR-G902"):
        problem.inputs("smal")
    with pytest.raises(KirError, match="KIR-G903"):
        problem.inputs("small", 0, "gaussian")


def test_a_wrong_file_is_located(tmp_path: Path) -> None:
    text = (Path(load_problem("gemm").folder) / "problem.toml").read_text()
    file = tmp_path / "problem.toml"
    file.write_text(text.replace("operator =", "operater ="))
    with pytest.raises(KirError) as caught:
        load_problem(tmp_path)
    assert caught.value.diagnostics[0].id == "KIR-G905"
    file.write_text(text.replace('shape = ["M", "K"]', 'shape = ["M", "L"]'))
    with pytest.raises(KirError, match="no expression over"):
        load_problem(tmp_path)
    file.write_text("name = ")
    with pytest.raises(KirError, match="KIR-G905"):
        load_problem(tmp_path)


def test_a_problem_without_shapes_is_one_clear_error(tmp_path: Path) -> None:
    raw = tomllib.loads((Path(load_problem("gemm").folder) / "problem.toml").read_text())
    for shapes, said in ((None, "'shapes' is missing"), ([], "shapes: there is none")):
        file = tmp_path / "problem.toml"
        file.write_text(tomli_w.dumps({k: v for k, v in raw.items() if k != "shapes"} | ({} if shapes is None else {"shapes": shapes})))
        with pytest.raises(KirError) as caught:
            load_problem(tmp_path)
        (told,) = caught.value.diagnostics
        assert told.id == "KIR-G905" and str(file) in told.message and said in told.message


WRONG = [
    ('dtypes = ["f16", "bf16", "f32"]', 'dtypes = ["f17"]', "there is no dtype 'f17' here"),
    ('name = "W", role = "in", dtype = "T"', 'name = "W", role = "in", dtype = "q8"', "there is no dtype 'q8' here"),
    ('name = "W", role = "in", dtype = "T", shape = ["N"]', 'name = "W", role = "in", dtype = "T", shape = ["N +"]', "'N +' has no value: invalid syntax"),
    ('operator = "row statistic"', 'operator = "row statistic"\nfacts = ["M % 0 == 0"]', "'M % 0 == 0' has no value: integer modulo by zero"),
    ('role = "out"', 'role = "in"', "nothing would be computed"),
    ('eps = "T"\n', 'eps = "f12"\n', "there is no dtype 'f12'"),
    ('outputs = ["Y"]', 'outputs = ["Z"]', "'Z' is named where outputs are"),
    ('operator = "row statistic"', 'operator = "row statistic"\nnumbers = { Y = "finite" }', "'numbers' names 'Y', which is no input"),
    ('operator = "row statistic"', 'operator = "row statistic"\nnumbers = { X = "whole" }', "'finite' or 'not nan'"),
    ('name = "W", role', 'name = "X", role', "two tensors have the same name"),
    ('dtypes = ["f16", "bf16", "f32"]', '', "'dtypes' does not say what that is"),
    ('"*" = { kind = "normal" }', '"*" = { kind = "partition" }', "a partition says 'of' how many things it is"),
]


@pytest.mark.parametrize(("old", "new", "said"), WRONG, ids=lambda x: x if len(x) < 30 else "")
def test_what_a_file_says_wrongly_is_one_clear_error(tmp_path: Path, old: str, new: str, said: str) -> None:
    file = tmp_path / "problem.toml"
    text = (load_problem("rmsnorm").folder / "problem.toml").read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(KirError) as caught:
        load_problem(file)
    told = caught.value.diagnostics[0]
    assert told.id == "KIR-G905" and said in told.message


def test_no_distribution_draws_what_the_problem_is_not_defined_for(tmp_path: Path) -> None:
    text = (load_problem("topk").folder / "problem.toml").read_text()
    (tmp_path / "problem.toml").write_text(text.replace('values = ["inf", "-inf"]', 'values = ["inf", "nan"]'))
    with pytest.raises(KirError, match=r"KIR-G905.*draws inf, nan for 'X', which is not nan"):
        load_problem(tmp_path)


MAGNITUDES = "def magnitudes(inputs, sizes):\n    return {}\n"
REFERENCES = [
    (None, "there is no", 0), ("def oracle(:\n", "SyntaxError", 1), ("x = 1\n", "does not define oracle and magnitudes", 0),
    ("import nothere\n", "ModuleNotFoundError: No module named 'nothere'", 1), ("import sys\nsys.exit(3)\n", "SystemExit: 3", 2),
    (f"def oracle(inputs, sizes):\n    raise RuntimeError('boom')\n{MAGNITUDES}", "RuntimeError: boom", 2),
    (f"def oracle(inputs, sizes):\n    return None\n{MAGNITUDES}", "oracle gives NoneType, not a dict", 0),
    (f"def oracle(inputs, sizes):\n    return {{}}\n{MAGNITUDES}", "oracle gives no 'Y'", 0),
    (f"def oracle(inputs, sizes):\n    return {{'Y': inputs['W']}}\n{MAGNITUDES}", "at shape 'odd' oracle gives 'Y' as [37], where it is [3, 37]", 0),
    (f"def oracle(inputs, sizes):\n    return {{'Y': inputs['X']}}\n{MAGNITUDES}", "magnitudes gives no 'weights' of 'Y'", 0),
]


@pytest.mark.parametrize(("text", "said", "line"), REFERENCES, ids=lambda x: str(x)[:12])
def test_a_reference_that_cannot_be_asked_is_one_clear_error_at_its_line(tmp_path: Path, text: str | None, said: str, line: int) -> None:
    (tmp_path / "problem.toml").write_text((load_problem("rmsnorm").folder / "problem.toml").read_text())
    if text is not None:
        (tmp_path / "reference.py").write_text(text)
    problem = load_problem(tmp_path)
    inputs = problem.inputs("odd", 1)
    with pytest.raises(KirError) as caught:
        problem.compare({"Y": inputs["X"]}, inputs, "odd")
    told = caught.value.diagnostics[0]
    assert told.id == "KIR-G904" and said in told.message, told.message
    assert (told.origin.line if told.origin else 0) == line


def test_shapes_for_keeps_where_the_facts_hold() -> None:
    problem = load_problem("gemm")
    text = (Path(problem.folder) / "naive.kir").read_text().replace("kernel main", "  fact K % 8 == 0\nkernel main")
    assert {s.name for s in problem.shapes_for(parse_program(text))} == {s.name for s in problem.shapes if s.sizes["K"] % 8 == 0}


def test_numpy_holds_every_dtype_that_a_problem_may_name() -> None:
    from kir.problem.draws import _NUMPY
    from kir.problem.schema import HELD
    assert set(HELD) == set(_NUMPY)


def test_a_partition_cuts_all_there_is_into_uneven_pieces_some_of_them_empty() -> None:
    problem = load_problem("gemm_grouped")
    for at in ("one", "odd", "many", "deep"):
        sizes = problem.shape(at).sizes
        for distribution in problem.distributions:
            ends = problem.inputs(at, 2, distribution)["offsets"]
            assert ends[0] == 0 and ends[-1] == sizes["T"] and (np.diff(ends) >= 0).all()
    few = np.diff(problem.inputs("many", 2, "few")["offsets"])
    assert (few == 0).any() and few.max() > 2 * few.mean()
    assert problem.drawn_by_host and not load_problem("gemm").drawn_by_host


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("value", [-1000.0, 40000.0])
def test_values_about_a_number_lie_on_both_sides_of_it_and_are_finite(dtype: str, value: float) -> None:
    from kir.problem.draws import AROUND

    problem = load_problem(f"softmax:{dtype}")
    at = problem.shape("small")
    first, second = (problem.inputs(at, 1, f"{AROUND}{value!r}")["X"].astype(np.float64) for _ in range(2))
    assert np.array_equal(first, second) and np.isfinite(first).all()
    below, mixed, above, just = (first[[i for i in range(at.sizes["M"]) if (i + 1) % 4 == turn]] for turn in range(4))
    assert (below < -abs(value)).all() and (above > abs(value)).all()
    assert (just[:, 0] == 0).all() and (just[:, 1:] <= -abs(value) * 0.99).all() and (just[:, 1:] >= -abs(value) * 1.11).all()
    assert (np.abs(mixed[:, 0] - value) <= abs(value) / 128).all() and (np.abs(mixed) < 100).any(axis=1).all()


@pytest.mark.parametrize("line", ["pack(vec(x[0], x[1]), dtype=u32)", "cast(pick(unpack(x[0], dtype=u8), 1), u32)"])
def test_bits_of_floats_have_no_wider_storage(line: str) -> None:
    text = """kir 1
program halves
  in x: f16[2]
  out y: u32[1]

kernel main grid (b: 1) threads 1
  y[0] = LINE
""".replace("LINE", line)
    with pytest.raises(KirError) as refused:
        widened(parse_program(text, "halves.kir"))
    assert refused.value.diagnostics[0].id == "KIR-V002"


@pytest.mark.parametrize("sizes", [{"M": 5, "N": 3}, {"M": 0.5, "N": 2}, {"min": 4, "M": 1, "N": 9}, {}])
@pytest.mark.parametrize("text", ["M", "M*N", "ceildiv(M, 4)", "M % 4 == 0", "-M", "min(M, N)", "max(M,N)+1", "M//0", "Q", "M.x", "f(M)",
                                  "min", "True", "M+", "__min(M, N)",
                                  "1.5", "min(M,N,3)", "M < N", "[M for M in N]", "M if N else 1", "().__class__"])
def test_a_compiled_expression_says_what_its_parts_say(text: str, sizes: dict[str, float]) -> None:
    def said(value: Callable[[], object]) -> object:
        try:
            return value()
        except (SyntaxError, ValueError, ZeroDivisionError, TypeError):
            return "no value"
    assert said(lambda: schema.evaluate(text, sizes)) == said(lambda: int(schema._value(schema._parsed(text), sizes)))


def test_inputs_that_are_drawn_once_are_the_same_and_are_not_written() -> None:
    problem = load_problem("gemm")
    shape, copy = problem.shape("tail"), load_problem("gemm")
    first = problem.drawn(shape, 3, "wide")
    assert problem.drawn(shape, 3, "wide") is first and all((a == b).all() for a, b in zip(first.values(), copy.inputs(shape, 3, "wide").values(), strict=True))
    with pytest.raises(ValueError, match="read-only"):
        first["A"][0] = 0
    assert problem.drawn(shape, 4, "wide") is not first and problem.inputs(shape, 3, "wide")["A"].flags.writeable


def test_errors_of_a_devices_units_are_no_excuse_for_what_was_interpreted() -> None:
    """fp8 products on Hopper are summed in 13 bits: 2^-8 of the magnitudes there, and not where the interpreter sums."""
    own = load_problem("gemm_fp8")
    shape = next(s for s in own.shapes if s.sizes["K"] >= 256)
    inputs = own.inputs(shape, 1, "normal")
    exact = own.oracle(inputs, shape)["C"]
    off = {"C": (exact + own.on_device().bounds(inputs, shape)["C"] / 2).astype(ml_dtypes.bfloat16)}
    assert not own.compare(off, inputs, shape).ok and own.on_device().compare(off, inputs, shape).ok
