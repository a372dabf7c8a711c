"""Problems from files in the form of KernelBench: the ABI, the oracle and its bound, shapes, both gates, and what is refused, with its place."""
from __future__ import annotations

import importlib.util
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from kir.base.diagnostic import KirError
from kir.gate import gate_cpu
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.problem import load_problem
from kir.problem.model import ModelProblem, Runner, _expression
from kir.problem.model_source import ModelSource

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

MATMUL = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, A, B):
        return torch.matmul(A, B)

M = 48
K = 40
N = 2 * 16
panel = 8

def get_inputs():
    return [torch.rand(M, K), torch.rand(K, N)]

def get_init_inputs():
    return []
"""
LAYER = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.fc = nn.Linear(width, out)

    def forward(self, x, slope):
        return torch.nn.functional.leaky_relu(self.fc(x), negative_slope=slope)

batch = 24
width = 12

def get_inputs():
    return [torch.randn(batch, width), 0.25]

def get_init_inputs():
    return [width, 10]
"""
KERNEL = """kir 1
program matmul
  size m: i32
  size k: i32
  in A: f32[m, k]
  in B: f32[k, 32]
  out out: f32[m, 32]
kernel main grid (i: m, j: 32) threads 1
  register acc: f32 = 0.0
  for x in 0..k
    acc = acc + {product}
  out[i, j] = acc
"""
LAYER_KERNEL = """kir 1
program layer
  size b: i32
  scalar slope: f32
  in x: f32[b, 12]
  in w: f32[10, 12] {{tensor=fc_weight}}
  in fc_bias: f32[10]
  out out: f32[b, 10]
kernel main grid (i: b, j: 10) threads 1
  register acc: f32 = fc_bias[j]
  for k in 0..12
    acc = acc + x[i, k] * w[j, k]
  out[i, j] = select(acc > 0.0, acc, acc * slope)
"""


def made(tmp_path: Path, text: str, name: str = "problem.py") -> Path:
    path = tmp_path / name
    path.write_text(textwrap.dedent(text).lstrip())
    return path


@pytest.fixture(scope="module")
def matmul(tmp_path_factory: pytest.TempPathFactory) -> ModelProblem:
    found = load_problem(made(tmp_path_factory.mktemp("matmul"), MATMUL, "matmul.py"))
    assert isinstance(found, ModelProblem)
    return found


def kernel(product: str = "A[i, x] * B[x, j]") -> Program:
    return parse_program(KERNEL.format(product=product), "matmul.kir")


# ------------------------------------------------------------------------------------------------------------- what is read as text

def test_sizes_are_what_only_the_inputs_need(tmp_path: Path) -> None:
    source = ModelSource.read(made(tmp_path, MATMUL))
    assert source.sizes == {"M": 48, "K": 40}
    assert "M = 7\n" in source.at({"M": 7}) and source.at({}) == source.text
    assert ModelSource.read(made(tmp_path, LAYER)).sizes == {"batch": 24}, "the model is made of the width"
    literal = ModelSource("m.py", "def get_inputs():\n    return [torch.randn(64, 32), torch.randn((64, 3)), torch.randint(0, 5, (32,), device='cpu')]\n"
                                  "def get_init_inputs():\n    return []\n")
    assert literal.sizes == {"N0": 64, "N1": 32}, "of a file that names none, what it calls with"
    assert "[torch.randn(5, 7), torch.randn((5, 3)), torch.randint(0, 5, (7,), device='cpu')]" in literal.at({"N0": 5, "N1": 7})


@pytest.mark.parametrize(("extents", "expected"), [
    ({8: 8, 5: 5}, "n"), ({8: 3, 5: 3}, "3"), ({8: 32, 5: 20}, "n * 4"), ({8: 10, 5: 7}, "n + 2"), ({8: 17, 5: 11}, "n * 2 + 1"),
    ({8: 4, 5: 3, 64: 32}, "(n + 1) // 2"), ({8: 5, 5: 1, 64: 2}, None)])
def test_extents_become_expressions_over_the_sizes(extents: dict[int, int], expected: str | None) -> None:
    assert _expression([({"n": value}, extent) for value, extent in extents.items()]) == expected


@pytest.mark.parametrize(("old", "new", "words", "line"), [
    ("class Model(", "class Net(", "no class 'Model'", 1), ("def forward", "def run", "no method 'forward'", 4),
    ("def get_inputs", "def inputs", "no function 'get_inputs'", 17), ("return torch", "return return torch", "no Python", 6)])
def test_a_file_that_lacks_a_part_is_refused_at_its_place(tmp_path: Path, old: str, new: str, words: str, line: int) -> None:
    with pytest.raises(KirError) as refused:
        load_problem(made(tmp_path, MATMUL.replace(old, new)))
    told = refused.value.diagnostics[0]
    assert told.id == "KIR-G910" and words in told.message and told.origin is not None and told.origin.line == line


# ------------------------------------------------------------------------------------------------------------------ what is judged

@needs_torch
def test_the_call_becomes_an_abi_with_smaller_shapes(matmul: ModelProblem) -> None:
    assert [(t.name, t.role, t.dtype, t.shape) for t in matmul.spec.tensors] == [
        ("A", "in", "f32", ("M", "K")), ("B", "in", "f32", ("K", "32")), ("out", "out", "f32", ("M", "32"))]
    assert matmul.shape("given").sizes == {"M": 48, "K": 40} and matmul.tagged("timed") == (matmul.shape("given"),)
    assert matmul.shape("odd").sizes == {"M": 5, "K": 7} and matmul.shape("one").tags == ("one",)
    assert set(matmul.distributions) == {"normal", "sparse", "large", "tiny", "huge", "signed", "negative"} and not matmul.caveats
    assert matmul.spec.bytes == "(M) * (K) * 4 + (K) * (32) * 4"


@needs_torch
def test_wrong_answers_and_lower_precision_fail_where_honest_ones_pass(matmul: ModelProblem) -> None:
    at = matmul.shape("tail")
    for distribution in ("normal", "sparse"):
        inputs = matmul.inputs(at, 5, distribution)
        a, b = inputs["A"], inputs["B"]
        in_turn = np.zeros((a.shape[0], b.shape[1]), np.float32)
        for k in range(a.shape[1]):
            in_turn += a[:, k:k + 1] * b[k]
        assert matmul.compare({"out": in_turn}, inputs, at).ok, distribution
        for name, forged in matmul.forgeries(inputs, at).items() if distribution == "normal" else ():
            assert not matmul.compare(forged, inputs, at).ok, (distribution, name)
        truncated = {k: (v.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for k, v in (("A", a), ("B", b))}
        tf32 = (truncated["A"].astype(np.float64) @ truncated["B"].astype(np.float64)).astype(np.float32)
        assert not matmul.compare({"out": tf32}, inputs, at).ok, "tf32 is no f32"
    assert not np.array_equal(matmul.inputs(at, 5)["A"], matmul.inputs(at, 6)["A"])
    assert np.array_equal(matmul.inputs(at, 5)["A"], matmul.inputs(at, 5)["A"])


@needs_torch
def test_the_cpu_gate_takes_a_right_kernel_and_no_wrong_one(matmul: ModelProblem) -> None:
    verdict = gate_cpu(kernel(), matmul, "kir", ())
    assert verdict.accepted, verdict.reason
    assert verdict.correctness is not None and {r.shape for r in verdict.correctness.runs} >= {"one", "odd", "small", "tail"}
    for wrong in ("A[i, x] * B[x, j] + 0.001", "cast(cast(A[i, x], bf16), f32) * B[x, j]"):
        verdict = gate_cpu(kernel(wrong), matmul, "kir", ())
        assert not verdict.accepted and verdict.stage == "correctness" and "oracle says" in verdict.reason


@needs_torch
def test_state_and_numbers_are_inputs(tmp_path: Path) -> None:
    problem = load_problem(made(tmp_path, LAYER))
    assert [t.name for t in problem.spec.tensors] == ["x", "fc_weight", "fc_bias", "out"] and problem.spec.scalars == {"slope": 0.25}
    verdict = gate_cpu(parse_program(LAYER_KERNEL.format(), "layer.kir"), problem, "kir", ())
    assert verdict.accepted, verdict.reason


@needs_torch
def test_the_file_itself_is_a_reference_and_a_traces_definition(tmp_path: Path) -> None:
    import torch

    from kir.gate.gpu.references import of_file
    from kir.gate.trace import definition_of
    from kir.problem.model_run import to_numpy, to_torch
    path = made(tmp_path, LAYER)
    problem = load_problem(path)
    assert isinstance(problem, ModelProblem) and problem is load_problem(path), "one process for one file"
    at = problem.shape("odd")
    inputs = problem.inputs(at, 3)
    tensors = {k: to_torch(v) for k, v in inputs.items()}
    eager = of_file(str(path), path.read_text(), "cpu")(tensors, {"sizes": at.sizes})()["out"]
    assert problem.compare({"out": to_numpy(eager)}, inputs, at).ok
    text = definition_of(problem).reference
    space: dict[str, Any] = {}
    exec(text, space)
    with torch.no_grad():
        assert problem.compare({"out": to_numpy(space["run"](*tensors.values(), slope=0.25))}, inputs, at).ok


RECURRENT = """
import torch
import torch.nn as nn

class Cell(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(width)) for _ in range(2)])
        self.table = torch.linspace(0.5, 1.5, width)

    def forward(self, x):
        return x * self.weights[0] + self.weights[1] * self.table

class Model(nn.Module):
    def __init__(self, width, *, act="relu"):
        super().__init__()
        self.cell, self.act = Cell(width), act
        self.h0 = torch.randn(1, width)
        self.mask = torch.triu(torch.ones(width, width), diagonal=1).bool()

    def forward(self, x, bias):
        y = torch.where(self.mask, (self.cell(x) @ self.cell(x).T)[:1, :1] + self.h0, bias)
        return torch.relu(y) + x.sum(0) if self.act == "relu" else y

batch, other = 8, 3
width = 16

def get_inputs():
    return [torch.randn(batch, width), torch.randn(width)]

def get_init_inputs():
    return [[width], {"act": "relu"}]
"""
LOSS = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, predictions, targets):
        return nn.functional.cross_entropy(predictions, targets)

batch, classes = 24, 10

def get_inputs():
    return [torch.randn(batch, classes), torch.randint(0, classes, (batch,))]

def get_init_inputs():
    return []
"""
RELU = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * torch.arange(15, -1, -1)

n = 40

def get_inputs():
    return [torch.randn(n, 16)]

def get_init_inputs():
    return []
"""


@needs_torch
def test_tensors_that_a_model_holds_in_any_way_are_inputs_in_the_oracles_precision_too(tmp_path: Path) -> None:
    import torch

    from kir.gate.gpu.references import of_file
    from kir.gate.trace import definition_of
    from kir.problem.model_run import to_numpy, to_torch
    path = made(tmp_path, RECURRENT)
    problem = load_problem(path)
    assert isinstance(problem, ModelProblem)
    assert {t.name: t.shape for t in problem.spec.tensors} == {
        "x": ("batch", "16"), "bias": ("16",), "h0": ("1", "16"), "mask": ("16", "16"), "cell_table": ("16",), "cell_weights_0": ("16",),
        "cell_weights_1": ("16",), "out": ("16", "16")}
    at = problem.shape("odd")
    inputs = problem.inputs(at, 3)
    tensors = {k: to_torch(v) for k, v in inputs.items()}
    eager = of_file(str(path), path.read_text(), "cpu")(tensors, {"sizes": at.sizes})()["out"]
    assert problem.compare({"out": to_numpy(eager)}, inputs, at).ok
    space: dict[str, Any] = {}
    exec(definition_of(problem).reference, space)
    with torch.no_grad():
        assert problem.compare({"out": to_numpy(space["run"](*tensors.values()))}, inputs, at).ok


@needs_torch
def test_what_is_rounded_beside_exact_zeros_may_err_as_its_like_does(tmp_path: Path) -> None:
    """The first elements of a lower triangle stand among zeros that nothing disturbs: these do not make the others' bound small."""
    text = MATMUL.replace("torch.matmul(A, B)", "torch.tril(torch.matmul(A, B))").replace("M = 48", "M = 64").replace("2 * 16", "1024")
    problem = load_problem(made(tmp_path, text))
    assert isinstance(problem, ModelProblem)
    inputs = problem.inputs("given", 5)
    bound, right = problem.bounds(inputs, "given")["out"], problem.oracle(inputs, "given")["out"]
    assert bound[:16][right[:16] != 0].min() > 0.2 * np.median(bound[48:][right[48:] != 0])


@needs_torch
@pytest.mark.parametrize("text", [LOSS, RELU], ids=["a loss is one element, which is its own mean", "the last element may be zero by itself"])
def test_an_honest_model_is_not_refused_for_what_its_output_happens_to_be(tmp_path: Path, text: str) -> None:
    problem = load_problem(made(tmp_path, text))
    assert isinstance(problem, ModelProblem) and problem.shape("odd").sizes
    at = problem.shape("odd")
    inputs = problem.inputs(at, 5)
    right = problem.rounded(problem.oracle(inputs, at))
    assert problem.compare(right, inputs, at).ok
    assert not problem.compare({"out": np.zeros_like(right["out"])}, inputs, at).ok


@needs_torch
def test_a_program_of_other_extents_has_no_shape(matmul: ModelProblem) -> None:
    fixed = parse_program(KERNEL.format(product="A[i, x] * B[x, j]").replace("32]", "33]").replace("j: 32", "j: 33"), "fixed.kir")
    assert matmul.shapes_for(fixed) == ()
    assert len(matmul.shapes_for(kernel())) == len(matmul.shapes)


@needs_torch
def test_a_model_gives_its_naive_program(tmp_path: Path, matmul: ModelProblem) -> None:
    """Written from a confined run of the file, over the problem's sizes: right at all of its shapes."""
    assert [p.name for p in matmul.naive.params if p.role == "size"] == ["M", "K"] and len(matmul.naive.kernels) == 1
    layer = load_problem(made(tmp_path, LAYER, "layer.py"))
    for problem in (matmul, layer):
        assert problem.shapes_for(problem.naive) == problem.shapes and gate_cpu(problem.naive, problem, "kir", []).accepted


@needs_torch
def test_a_model_that_no_naive_program_says_is_refused(tmp_path: Path) -> None:
    sorts = load_problem(made(tmp_path, MATMUL.replace("torch.matmul(A, B)", "torch.sort(torch.matmul(A, B), dim=1)[0]")))
    with pytest.raises(KirError, match="KIR-G918") as refused:
        _ = sorts.naive
    assert "sort" in refused.value.diagnostics[0].message and refused.value.diagnostics[0].origin is not None


# ----------------------------------------------------------------------------------------------------------------- what is refused

FORWARD = "        return torch.matmul(A, B)"
REFUSED = [
    ("KIR-G911", FORWARD, "        raise ValueError('of its own')", "ValueError: of its own", 6),
    ("KIR-G911", FORWARD, "        open('/tmp/kir-model-problem', 'w')\n        return A @ B", "PermissionError", 6),
    ("KIR-G911", FORWARD, "        import socket; socket.create_connection(('127.0.0.1', 9))\n        return A @ B", "Error", 6),
    ("KIR-G911", FORWARD, "        import os; os.kill(os.getpid(), 9)\n        return A @ B", "SIGKILL", 1),
    ("KIR-G912", FORWARD, "        return A @ B, A.sum()", "2 outputs (tuple)", 6),
    ("KIR-G912", FORWARD, "        return 3", "int, not a tensor", 6),
    ("KIR-G913", "torch.rand(K, N)]", "torch.rand(K, N), [1, 2]]", "is list: neither a tensor nor a number", 14),
    ("KIR-G913", "return []", "return 7", "gives int, not a list", 17),
    ("KIR-G914", FORWARD, "        C = torch.matmul(A, B)\n        return torch.nn.functional.dropout(C, 0.5)", "draws numbers", 7),
    ("KIR-G915", FORWARD, "        A.mul_(2)\n        return torch.matmul(A, B)", "changes its input 'A'", 5),
    ("KIR-G916", FORWARD, "        return torch.fft.fft(torch.matmul(A, B))", "complex64", 6),
    ("KIR-G917", FORWARD, "        return torch.matmul(A, B) * 0.0", "writes zeros would be right", 6),
]


@needs_torch
@pytest.mark.parametrize(("id_", "old", "new", "words", "line"), REFUSED)
def test_what_no_kernel_could_be_held_to_is_refused_at_its_line(tmp_path: Path, id_: str, old: str, new: str, words: str, line: int) -> None:
    assert old in MATMUL
    with pytest.raises(KirError) as refused:
        load_problem(made(tmp_path, MATMUL.replace(old, new)))
    told = refused.value.diagnostics[0]
    assert told.id == id_ and words in told.message, str(told)
    assert told.origin is not None and told.origin.line == line
    assert not Path("/tmp/kir-model-problem").exists()


@needs_torch
def test_state_that_forward_changes_is_refused_and_eval_mends_it(tmp_path: Path) -> None:
    text = LAYER.replace("self.fc = nn.Linear(width, out)", "self.fc = nn.Linear(width, out); self.norm = nn.BatchNorm1d(out)").replace(
        "self.fc(x)", "self.norm(self.fc(x))")
    with pytest.raises(KirError) as refused:
        load_problem(made(tmp_path, text))
    assert refused.value.diagnostics[0].id == "KIR-G915" and "norm_running_mean" in str(refused.value)
    mended = load_problem(made(tmp_path, text.replace("nn.BatchNorm1d(out)", "nn.BatchNorm1d(out); self.eval()")))
    assert "norm_running_var" in [t.name for t in mended.spec.tensors]


def test_without_torch_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kir.hardware import machine
    monkeypatch.setattr(machine, "package_version", lambda name: None)
    with pytest.raises(KirError, match="KIR-G919"):
        load_problem(made(tmp_path, MATMUL))


@needs_torch
def test_a_bound_is_the_same_whatever_runs_share_and_however_much_is_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contractions of what all disturbed runs are given are made once; one that forward wrote to since is made again."""
    import torch

    from kir.problem import model_run, rounding_noise

    text = LAYER.replace("batch = 24", "batch = 64")
    file = model_run.ModelFile(ModelSource("model.py", text))
    given = file.inputs({}, 3, "sparse")
    exact = file.oracle({}, given)
    usual = file.bound({}, given, exact, 2.0**-24)
    monkeypatch.setattr(model_run, "BLOCK", model_run.WINDOW)
    assert np.array_equal(file.bound({}, given, exact, 2.0**-24), usual)
    monkeypatch.setattr(rounding_noise.Known, "of", lambda self, name, args, words, make: make())
    assert np.array_equal(file.bound({}, given, exact, 2.0**-24), usual)
    monkeypatch.undo()
    held, calls = torch.ones(3, 3), list[int]()
    known = rounding_noise.Known([held])

    def made() -> tuple[Any, Any]:
        calls.append(1)
        return held @ held, held
    for _ in range(2):
        known.of("aten.mm", (held, held), {}, made)
    held += 1
    known.of("aten.mm", (held, held), {}, made)
    known.of("aten.mm", (held, torch.ones(3, 3)), {}, made)
    assert len(calls) == 3, "made once, again after a write, and each time with what was not held"


@needs_torch
def test_candidates_of_one_search_share_what_a_model_draws_and_answers(matmul: ModelProblem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is run once for each inputs; what it said judges every candidate, and a wrong one all the same."""
    from kir.gate.gpu import oracle as gate
    from kir.problem.answers import Answers, key_of

    asked: list[str] = []
    ask = Runner.ask

    def counted(self: Runner, op: str, *given: Any, **words: Any) -> Any:
        asked.append(op)
        return ask(self, op, *given, **words)
    monkeypatch.setattr(Runner, "ask", counted)
    monkeypatch.setattr(gate, "SHARED_BYTES", 1)
    at = matmul.tagged("timed")[0]
    first, second = (gate.OwnOracle(cast(Any, None), matmul, gate.Shared(7, Answers(tmp_path / "arrays"))) for _ in range(2))
    given = first.inputs(at, 3, "normal", keep=True)
    again = second.inputs(at, 3, "normal", keep=True)
    assert asked == ["inputs"] and all(np.array_equal(given[k], again[k]) for k in given)
    right = (given["A"].astype(np.float64) @ given["B"].astype(np.float64)).astype(np.float32)
    assert first.compare(at, given, {"out": right}).ok and not second.compare(at, again, {"out": right * 1.01}).ok
    assert asked == ["inputs", "bounded"]
    second.inputs(at, 3, "normal")
    assert asked[-1] == "inputs", "what is kept for one candidate alone is drawn for it"
    other = replace(matmul, runner=Runner(ModelSource("other.py", matmul.runner.source.text + "\n")))
    assert key_of(other, at) != key_of(matmul, at), "of another text"


@needs_torch
@pytest.mark.parametrize(("model", "right", "wrong"), [
    ("torch.amax(A, dim=1)", "-inf; max(top, A[i, x])", "0.0; max(top, A[i, x])"), ("torch.abs(A).sum(1)", "0.0; top + abs(A[i, x])", "0.0; top + A[i, x]"),
    ("torch.amin(A, dim=1)", "inf; min(top, A[i, x])", "1.0; min(top, A[i, x])")])
def test_inputs_that_a_file_draws_on_one_side_of_zero_are_drawn_on_the_other_too(model: str, right: str, wrong: str, tmp_path: Path) -> None:
    text = MATMUL.replace("def forward(self, A, B)", "def forward(self, A)").replace("torch.matmul(A, B)", model).replace(", torch.rand(K, N)]", "]")
    problem = load_problem(made(tmp_path, text))
    for each, accepted in ((right, True), (wrong, False)):
        first, step = each.split("; ")
        program = parse_program(f"""kir 1
program p
  size M: i32
  size K: i32
  in A: f32[M, K]
  out out: f32[M]
kernel main grid (i: M) threads 1
  register top: f32 = {first}
  for x in 0..K
    top = {step}
  out[i] = top
""")
        assert gate_cpu(program, problem, "kir", ()).accepted == accepted, each


@needs_torch
def test_what_only_passes_its_input_on_where_that_is_positive_is_a_problem_all_the_same(tmp_path: Path) -> None:
    """Drawn from 0 to 1 alone, a kernel that writes its input would be right: the file was refused."""
    text = MATMUL.replace("def forward(self, A, B)", "def forward(self, A)").replace("torch.matmul(A, B)", "torch.relu(A)").replace(", torch.rand(K, N)]", "]")
    problem = load_problem(made(tmp_path, text))
    assert {"signed", "negative"} <= set(problem.distributions) and problem.always
    with pytest.raises(KirError):
        load_problem(made(tmp_path, text.replace("torch.relu(A)", "A * 1.0")))
