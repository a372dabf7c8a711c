"""The naive program of a torch model: what its operators compute, written once for all sizes, and what is refused.

Models are recorded in this process, in which torch is anyway; that a file is recorded in a confined process is tested with the other questions to it.
"""
from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from kir.base.diagnostic import KirError, Origin
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.measures.naive import is_naive
from kir.ir.nodes import Program
from kir.ir.printer import expr_text
from kir.ir.visit import walk
from kir.problem.model import _expression
from kir.problem.naive import graph, writing
from kir.problem.naive import kernels as naive_kernels
from kir.problem.naive.program import naive_program
from kir.problem.schema import Tensor

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
SIZES: Sequence[Mapping[str, int]] = ({"b": 3, "n": 5}, {"b": 4, "n": 8}, {"b": 2, "n": 7})
HERE = Origin("model.py", 1, 1, 1, 2)
ROWS, SQUARE, IMAGE, LINE = ("b", "n"), ("n", "n"), ("b", "4", "n", "n"), ("b", "4", "n")
"""Extents of an argument, over the sizes."""


def inputs(shapes: Sequence[tuple[str, ...]], sizes: Mapping[str, int], seed: int = 0) -> list[Any]:
    """Drawn tensors of these extents."""
    import torch

    random = torch.Generator().manual_seed(seed)
    return [torch.randn(*(sizes.get(d) or int(d) for d in shape), generator=random) for shape in shapes]


def made(forward: Callable[..., Any], shapes: Sequence[tuple[str, ...]], held: Mapping[str, Any] | None = None) -> Program:
    """The naive program of a function of tensors, and of tensors that it holds."""
    from kir.problem.naive.recording import recorded

    held = held or {}
    recordings, outs = [], []
    for sizes in SIZES:
        given = [x.to("meta") for x in inputs(shapes, sizes)]
        recordings.append(recorded(forward, given, {f"x{k}": x for k, x in enumerate(given)} | dict(held), HERE))
        outs.append([row["shape"] or [1] for call in recordings[-1]["calls"] for row in call["out"] if row and row["id"] == recordings[-1]["result"]][-1])

    def text(values: tuple[int, ...]) -> str | None:
        return _expression(list(zip(SIZES, values, strict=True)))
    extents = [text(tuple(o[k] for o in outs)) or "" for k in range(len(outs[0]))]
    tensors = [Tensor(name=f"x{k}", role="in", dtype="f32", shape=shape) for k, shape in enumerate(shapes)]
    tensors += [Tensor(name=name, role="in", dtype="f32", shape=tuple(map(str, x.shape))) for name, x in held.items()]
    dtype = next(row["dtype"] for call in recordings[0]["calls"] for row in call["out"] if row and row["id"] == recordings[0]["result"])
    return naive_program("model", recordings, SIZES[0], [*tensors, Tensor(name="out", role="out", dtype=dtype, shape=tuple(extents))], (), text, HERE)


def functions(torch: Any, f: Any) -> Mapping[str, tuple[Callable[..., Any], Sequence[tuple[str, ...]]]]:
    """Forwards by name, with the extents of their arguments: made of the modules `torch` and `torch.nn.functional`."""
    one = {"relu": torch.relu,
           "gelu": f.gelu, "gelu_tanh": lambda x: f.gelu(x, approximate="tanh"), "silu": f.silu, "mish": f.mish, "selu": f.selu, "elu": f.elu,
           "softplus": f.softplus, "hardswish": f.hardswish, "hardsigmoid": f.hardsigmoid, "leaky": f.leaky_relu, "clamp": lambda x: x.clamp(-0.5, 0.5),
           "softsign": f.softsign, "log1p": lambda x: torch.log1p(x * x), "power": lambda x: torch.pow(x, 3.0) - x**2,
           "compare": lambda x: torch.where(x > 0, x, -x)}
    rows = {"softmax": lambda x: torch.softmax(x, 1), "log_softmax": lambda x: torch.log_softmax(x, 1), "down_columns": lambda x: torch.softmax(x, 0),
            "rms": lambda x: x / torch.sqrt(torch.mean(x**2, 1, keepdim=True) + 1e-5), "layer_norm": lambda x: f.layer_norm(x, x.shape[1:]),
            "l2": lambda x: x / torch.norm(x, p=2, dim=1, keepdim=True), "logsumexp": lambda x: torch.logsumexp(x, 1), "max": lambda x: torch.max(x, 1)[0],
            "least": lambda x: torch.amin(x, 0),
            "argmax": lambda x: torch.argmax(x, 1), "argmin": lambda x: torch.argmin(x, 0), "sum": lambda x: x.sum(0), "all": lambda x: (x * x).mean(),
            "prefix": lambda x: torch.cumsum(x, 1), "suffix": lambda x: torch.cumsum(x.flip(1), 1).flip(1), "product": lambda x: torch.cumprod(x, 0),
            "spread": lambda x: torch.var(x, 1), "joined": lambda x: torch.cat([x, x * 2], 1)[:, 1:], "padded": lambda x: f.pad(x, (1, 2)),
            "lower": lambda x: torch.tril(x), "parts": lambda x: x.chunk(2, 0)[0] + 1, "diagonal": lambda x: torch.diag(x[0]) @ x.T}
    images = {"group_norm": lambda x: f.group_norm(x, 2), "instance_norm": f.instance_norm, "max_pool": lambda x: f.max_pool2d(x, 3, 2, 1),
              "avg_pool": lambda x: f.avg_pool2d(x, 2), "global_pool": lambda x: f.adaptive_avg_pool2d(x, 1), "sums": lambda x: x.sum((1, 2, 3)),
              "tops": lambda x: x.amax((1, 2, 3)), "top_of_flat": lambda x: x.flatten(1).amax(1),
              "turned": lambda x: x.permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4), "over_batch": lambda x: x.mean((0, 2, 3)), "flat": lambda x: x.flatten(1),
              "pooled_sum": lambda x: f.avg_pool2d(x, 2).sum((1, 2, 3))}
    pairs = {"divergence": lambda a, b: f.kl_div(a, torch.softmax(b, 1), reduction="batchmean"),
             "mse": f.mse_loss, "huber": f.smooth_l1_loss, "hinge": lambda a, b: torch.clamp(1 - a * b, min=0).mean(),
             "cosine": lambda a, b: 1 - f.cosine_similarity(a, b, dim=1).mean(), "product": lambda a, b: torch.relu(a @ b.T + 1)}
    return {**{k: (v, [ROWS]) for k, v in (*one.items(), *rows.items())}, **{k: (v, [IMAGE]) for k, v in images.items()},
            **{f"pair_{k}": (v, [ROWS, ROWS]) for k, v in pairs.items()}, "line_pool": (lambda x: f.max_pool1d(x, 2, 1), [LINE]),
            "attention": (f.scaled_dot_product_attention, [("b", "2", "n", "4")] * 3), "batched": (torch.bmm, [("b", "3", "n"), ("b", "n", "2")])}


NAMES = list(functions(Mock(), Mock()))
"""Their names, without importing PyTorch, which takes seconds."""


@needs_torch
@pytest.mark.parametrize("name", NAMES)
def test_it_computes_what_the_model_does(name: str) -> None:
    """At every size that it was written from, one more, and by programs that predicate N takes for naive."""
    import torch

    forward, shapes = functions(torch, torch.nn.functional)[name]
    program = made(forward, shapes)
    assert is_naive(program) == ()
    assert name != "attention" or isinstance(program.kernels[-1].body[0], n.Let), "what a product's heads are parts of has names"
    for sizes in (*SIZES, {"b": 5, "n": 6}):
        given = inputs(shapes, sizes, 1)
        expected = forward(*given)
        expected = expected.reshape(expected.shape or (1,)).numpy()
        out = run(program, {**{f"x{k}": x.numpy() for k, x in enumerate(given)}, "out": np.zeros_like(expected)}, mode="check")
        assert not out.findings and np.allclose(out.outputs["out"], expected, rtol=2e-5, atol=2e-6), sizes


@needs_torch
@pytest.mark.parametrize(("name", "kernels"), [("group_norm", 1), ("instance_norm", 1), ("sums", 1), ("tops", 1), ("top_of_flat", 1), ("pooled_sum", 2),
                                               ("global_pool", 1), ("grouped_products", 2), ("weighted", 1)])
def test_rows_of_several_axes_stay_in_one_kernel_where_there_are_many(name: str, kernels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of channels is a row in one piece: what is folded over it and what becomes of its elements are one kernel, as a normalization of rows is."""
    import torch

    for module in (graph, writing, naive_kernels):
        monkeypatch.setattr(module, "ENOUGH", 1)
    f = torch.nn.functional
    own: dict[str, tuple[Callable[..., Any], Sequence[tuple[str, ...]]]] = {}
    own["grouped_products"] = (lambda x, w: torch.tanh(f.group_norm(torch.einsum("oc,bchw->bohw", w, x) * 2, 2) + 1), [IMAGE, ("4", "4")])
    own["weighted"] = (lambda x, w, v: f.group_norm(x, 2, w, v), [IMAGE, ("4",), ("4",)])
    forward, shapes = own.get(name) or functions(torch, f)[name]
    program = made(forward, shapes)
    assert is_naive(program) == () and len(program.kernels) == kernels
    if name == "weighted":  # a channel's weight is read at its channel, not at what is left of a row's place
        last = program.kernels[-1].body[-1]
        assert isinstance(last, n.For) and isinstance(last.body[0], n.For) and not any(
            isinstance(x, n.Binary) and x.op == "floordiv" for s in last.body for x in walk(s))
    for sizes in (*SIZES, {"b": 5, "n": 6}):
        given = inputs(shapes, sizes, 1)
        expected = forward(*given).numpy()
        out = run(program, {**{f"x{k}": x.numpy() for k, x in enumerate(given)}, "out": np.zeros_like(expected)}, mode="check")
        assert not out.findings and np.allclose(out.outputs["out"], expected, rtol=2e-5, atol=2e-6), sizes


@needs_torch
def test_a_negative_zero_is_rectified_as_torch_does() -> None:
    """A zero has the sign that torch gives it."""
    import torch

    x = np.array([[-0.0, 0.0, -1.0, np.nan]], dtype=np.float32)
    found = run(made(torch.relu, [("b", "n")]), {"x0": x, "out": np.ones_like(x)}).outputs["out"]
    expected = torch.relu(torch.from_numpy(x)).numpy()
    assert np.array_equal(found, expected, equal_nan=True) and np.array_equal(np.signbit(found[0, :3]), np.signbit(expected[0, :3]))


@needs_torch
@pytest.mark.parametrize("name", ["amax", "amin"])
def test_a_nan_is_what_an_extreme_value_is(name: str) -> None:
    """Wherever it stands, also beside infinities."""
    import torch

    x = np.array([[1.0, np.nan, 2.0], [np.inf, 0.0, -np.inf], [-np.inf, -np.inf, -np.inf], [np.nan, np.inf, 1.0]], dtype=np.float32)
    forward = getattr(torch, name)
    found = run(made(lambda x: forward(x, 1), [("b", "n")]), {"x0": x, "out": np.ones(4, np.float32)}).outputs["out"]
    assert np.array_equal(found, forward(torch.from_numpy(x), 1).numpy(), equal_nan=True)


@needs_torch
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("turned", [False, True])
def test_convolutions(groups: int, turned: bool) -> None:
    """With padding, strides, groups, biases, forward and turned round."""
    import torch

    kind = torch.nn.ConvTranspose2d if turned else torch.nn.Conv2d
    part = kind(4, 8, 3, stride=2, padding=1, groups=groups)
    held = {"part_weight": part.weight.detach(), "part_bias": part.bias.detach()}
    there = part.to("meta")
    program = made(lambda x: torch.tanh(there(x)), [IMAGE], {"part_weight": there.weight, "part_bias": there.bias})
    x = inputs([IMAGE], SIZES[0])[0]
    call = torch.nn.functional.conv_transpose2d if turned else torch.nn.functional.conv2d
    expected = torch.tanh(call(x, held["part_weight"], held["part_bias"], stride=2, padding=1, groups=groups)).numpy()
    arrays = {"x0": x.numpy(), **{k: v.numpy() for k, v in held.items()}, "out": np.zeros_like(expected)}
    assert np.allclose(run(program, arrays).outputs["out"], expected, rtol=1e-4, atol=1e-5)


@needs_torch
def test_a_row_is_one_kernel_and_a_sum_of_all_is_two() -> None:
    """What a row's reductions are shared by stays with them; what has too few elements for a device is made in parts."""
    import torch

    assert len(made(lambda x: torch.softmax(x, 1), [("4096", "n")]).kernels) == 1
    assert [len(k.grid) for k in made(lambda x: (x * x).sum(), [("b", "n")]).kernels] == [1, 0]


@needs_torch
def test_a_product_is_made_once_and_a_convolution_has_filters_and_pixels_as_axes() -> None:
    """What is multiplied lies in memory where a row's reduction and the row itself need it; sizes that are multiplied, or divide, are said to be fit for it."""
    import torch

    program = made(lambda x, y: torch.softmax(torch.relu(x @ y.T), 1), [("4096", "n"), ("64", "n")])
    assert [len([x for x in walk(k) if isinstance(x, n.Binary) and x.op == "mul"]) for k in program.kernels] == [1, 0]
    there = torch.nn.Conv2d(4, 8, 3).to("meta")
    conv, = made(lambda x: there(x), [IMAGE], {"part_weight": there.weight, "part_bias": there.bias}).kernels
    assert [expr_text(a.extent) for a in conv.grid][1:] == ["8", "n - 2"]
    assert len(made(lambda x: (h := there(x)) * torch.relu(h), [IMAGE], {"part_weight": there.weight, "part_bias": there.bias}).kernels) == 1
    grouped = made(lambda x, y: torch.nn.functional.group_norm(x @ y.T, 4), [("4096", "n"), ("64", "n")])
    assert [len(w.buffer.shape) for w in grouped.workspaces if w.buffer.name == "t0"] == [2], "as it is made, not as its groups are seen"
    pooled = made(lambda x: torch.nn.functional.max_pool2d(x, 2, stride=1), [IMAGE])
    assert [expr_text(f) for f in pooled.facts] == [f"b <= {(2**31 - 1) // 4}"]


@needs_torch
@pytest.mark.parametrize(("name", "words"), [("fourier", "view_as_real"), ("in place", "share"), ("order", "sort"), ("whole", "other operators")])
def test_what_no_naive_program_says_is_refused(name: str, words: str) -> None:
    import torch

    def in_place(x: Any) -> Any:
        y = x * 1.5
        y[0] += 1
        return y

    forwards: Mapping[str, Callable[..., Any]] = {
        "fourier": lambda x: torch.fft.rfft(x).real, "in place": in_place, "order": lambda x: torch.sort(x, 1)[0],
        "whole": lambda x: torch.relu(x) if x.shape[0] > 3 else torch.tanh(x)}
    with pytest.raises(KirError) as refused:
        made(forwards[name], [ROWS])
    assert refused.value.diagnostics[0].id == "KIR-G918" and words in refused.value.diagnostics[0].message
