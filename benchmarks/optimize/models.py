"""Torch models of the operator kinds of KernelBench's levels 1 and 2, in its form, written here: its own files are not copied. Those are read with `--from`.

A row is a forward, its sizes and what it is called with; a model that holds parameters says how it makes them. Sizes keep a tensor beyond the L2 of a device
and small enough to be drawn on a CPU within seconds.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.base.store import write_atomic


@dataclass(frozen=True)
class Row:
    """A model: `forward` after `def forward(self, {takes}):`, `sizes` at module level, `inputs` of the call, `made` of parameters named by `given`."""

    forward: str
    sizes: Mapping[str, int]
    inputs: str
    takes: str = "x"
    made: str = ""
    given: Mapping[str, int] | None = None


WIDE = {"batch": 2048, "dim": 8192}
X = "torch.randn(batch, dim)"
PAIR = f"{X}, {X}"
IMAGE = {"batch": 16, "width": 128}
PICTURES = "torch.randn(batch, channels, width, width)"
F = "torch.nn.functional"


def _pointwise(text: str) -> Row:
    return Row(f"return {text}", WIDE, X)


def _row(text: str) -> Row:
    return Row(f"return {text}", WIDE, X)


def _loss(text: str, draws: str = PAIR) -> Row:
    return Row(f"return {text}", WIDE, draws, "a, b")


def _module(made: str, channels: int = 64, sizes: Mapping[str, int] = IMAGE, inputs: str = PICTURES, then: str = "self.part(x)") -> Row:
    return Row(f"return {then}", sizes, inputs, "x", f"self.part = {made}", {"channels": channels})


def _linear(then: str, rows: int = 1024, wide: int = 2048, out: int = 2048) -> Row:
    return Row(then, {"batch": rows}, "torch.randn(batch, features)", "x", "self.part = nn.Linear(features, out_features)",
               {"features": wide, "out_features": out})


def _conv(then: str, made: str = "nn.Conv2d(channels, 2 * channels, 3)", more: str = "", channels: int = 16) -> Row:
    return Row(then, {"batch": 32, "width": 64}, PICTURES, "x", f"self.part = {made}\n{more}".strip(), {"channels": channels})


LEVEL_1: Mapping[str, Row] = {
    "matmul_square": Row("return torch.matmul(A, B)", {"M": 2048, "N": 2048, "K": 2048}, "torch.randn(M, K), torch.randn(K, N)", "A, B"),
    "matmul_oblong": Row("return torch.matmul(A, B)", {"M": 1024, "N": 4096, "K": 2048}, "torch.randn(M, K), torch.randn(K, N)", "A, B"),
    "matmul_long_sum": Row("return torch.matmul(A, B)", {"M": 256, "N": 256, "K": 65536}, "torch.randn(M, K), torch.randn(K, N)", "A, B"),
    "matmul_thin": Row("return torch.matmul(A, B)", {"M": 16384, "N": 2048, "K": 32}, "torch.randn(M, K), torch.randn(K, N)", "A, B"),
    "matmul_left_turned": Row("return torch.matmul(A.T, B)", {"M": 2048, "N": 2048, "K": 2048}, "torch.randn(K, M), torch.randn(K, N)", "A, B"),
    "matmul_right_turned": Row("return torch.matmul(A, B.T)", {"M": 2048, "N": 2048, "K": 2048}, "torch.randn(M, K), torch.randn(N, K)", "A, B"),
    "matmul_batched": Row("return torch.bmm(A, B)", {"G": 64, "M": 512, "N": 512, "K": 512}, "torch.randn(G, M, K), torch.randn(G, K, N)", "A, B"),
    "matmul_lower": Row("return torch.tril(torch.matmul(A, B))", {"M": 2048, "K": 2048}, "torch.randn(M, K), torch.randn(K, M)", "A, B"),
    "matvec": Row("return torch.matmul(A, B)", {"M": 4096, "K": 8192}, "torch.randn(M, K), torch.randn(K, 1)", "A, B"),
    "scalar_product": Row("return A * s", WIDE, f"{X}, 3.14", "A, s"),
    "diagonal_product": Row("return torch.diag(d) @ B", {"M": 4096, "N": 4096}, "torch.randn(M), torch.randn(M, N)", "d, B"),
    "relu": _pointwise("torch.relu(x)"), "leaky_relu": _pointwise(f"{F}.leaky_relu(x, negative_slope=0.02)"), "sigmoid": _pointwise("torch.sigmoid(x)"),
    "tanh": _pointwise("torch.tanh(x)"), "swish": _pointwise("x * torch.sigmoid(x)"), "gelu": _pointwise(f"{F}.gelu(x)"),
    "gelu_tanh": _pointwise("0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3.0))))"), "selu": _pointwise("torch.selu(x)"),
    "hardsigmoid": _pointwise(f"{F}.hardsigmoid(x)"), "softplus": _pointwise(f"{F}.softplus(x)"), "softsign": _pointwise("x / (1 + torch.abs(x))"),
    "elu": _pointwise(f"{F}.elu(x)"), "hardtanh": _pointwise(f"{F}.hardtanh(x, min_val=-1.0, max_val=1.0)"),
    "softmax": _row("torch.softmax(x, dim=1)"), "log_softmax": _row("torch.log_softmax(x, dim=1)"),
    "rms_norm": _row("x / torch.sqrt(torch.mean(x ** 2, dim=1, keepdim=True) + 1e-5)"),
    "layer_norm": Row("return self.part(x)", {"batch": 2048}, "torch.randn(batch, features)", "x", "self.part = nn.LayerNorm(features)", {"features": 8192}),
    "group_norm": _module("nn.GroupNorm(8, channels)"), "instance_norm": _module("nn.InstanceNorm2d(channels)"),
    "batch_norm": _module("nn.BatchNorm2d(channels).eval()"),
    "frobenius_norm": _row("x / torch.norm(x, p='fro')"), "l1_norm": _row("x / torch.mean(torch.abs(x), dim=1, keepdim=True)"),
    "l2_norm": _row("x / torch.norm(x, p=2, dim=1, keepdim=True)"),
    "max_pool_1d": _module("nn.MaxPool1d(8, stride=1, padding=4, dilation=1)", 64, {"batch": 16, "length": 16384}, "torch.randn(batch, channels, length)"),
    "max_pool_2d": _module("nn.MaxPool2d(4, stride=1, padding=1)"), "avg_pool_2d": _module("nn.AvgPool2d(11)"),
    "avg_pool_1d": _module("nn.AvgPool1d(8, stride=1, padding=4)", 64, {"batch": 16, "length": 16384}, "torch.randn(batch, channels, length)"),
    "avg_pool_3d": _module("nn.AvgPool3d(3, stride=2, padding=1)", 32, {"batch": 8, "width": 48}, "torch.randn(batch, channels, width, width, width)"),
    "sum_of_axis": Row("return torch.sum(x, dim=1, keepdim=True)", {"batch": 32, "rows": 512, "dim": 1023}, "torch.randn(batch, rows, dim)"),
    "mean_of_axis": Row("return torch.mean(x, dim=1)", {"batch": 32, "rows": 512, "dim": 1023}, "torch.randn(batch, rows, dim)"),
    "max_of_axis": Row("return torch.max(x, dim=1)[0]", {"batch": 32, "rows": 512, "dim": 1023}, "torch.randn(batch, rows, dim)"),
    "min_of_axis": Row("return torch.min(x, dim=2)[0]", {"batch": 32, "rows": 512, "dim": 1023}, "torch.randn(batch, rows, dim)"),
    "argmax_of_axis": Row("return torch.argmax(x, dim=1)", {"batch": 32, "rows": 512, "dim": 1023}, "torch.randn(batch, rows, dim)"),
    "argmin_of_axis": Row("return torch.argmin(x, dim=1)", {"batch": 32, "rows": 512, "dim": 1023}, "torch.randn(batch, rows, dim)"),
    "conv_1d": _module("nn.Conv1d(channels, 128, 3)", 64, {"batch": 16, "length": 8192}, "torch.randn(batch, channels, length)"),
    "conv_2d": _module("nn.Conv2d(channels, 64, 3)", 16, {"batch": 16, "width": 128}),
    "conv_2d_wide": _module("nn.Conv2d(channels, 64, 11, stride=4, padding=2)", 3),
    "conv_2d_depthwise": _module("nn.Conv2d(channels, channels, 3, groups=channels)"),
    "conv_2d_pointwise": _module("nn.Conv2d(channels, 128, 1)"),
    "conv_3d": _module("nn.Conv3d(channels, 32, 3)", 3, {"batch": 8, "width": 48}, "torch.randn(batch, channels, width, width, width)"),
    "conv_2d_transposed": _module("nn.ConvTranspose2d(channels, 32, 3)", 32, {"batch": 16, "width": 64}),
    "prefix_sum": _row("torch.cumsum(x, dim=1)"), "prefix_product": Row("return torch.cumprod(x, dim=1)", WIDE, "torch.rand(batch, dim) + 0.5"),
    "suffix_sum": _row("torch.cumsum(x.flip(1), dim=1).flip(1)"),
    "masked_prefix_sum": Row("return torch.cumsum(x * m, dim=1)", WIDE, f"{X}, torch.randint(0, 2, (batch, dim)).bool()", "x, m"),
    "mse_loss": _loss("torch.mean((a - b) ** 2)"), "huber_loss": _loss(f"{F}.smooth_l1_loss(a, b)"),
    "hinge_loss": _loss("torch.mean(torch.clamp(1 - a * b, min=0))"),
    "kl_loss": _loss(f"{F}.kl_div(torch.log(a), b, reduction='batchmean')", ", ".join(["torch.rand(batch, dim).softmax(dim=-1)"] * 2)),
    "cosine_loss": _loss(f"torch.mean(1 - {F}.cosine_similarity(a, b, dim=1))"),
    "cross_entropy": Row(f"return {F}.cross_entropy(a, b)", {"batch": 32768},
                         "torch.randn(batch, 1024), torch.randint(0, 1024, (batch,))", "a, b"),
    "attention": Row(f"return {F}.scaled_dot_product_attention(q, k, v)", {"batch": 4, "length": 512},
                     ", ".join(["torch.randn(batch, 16, length, 64)"] * 3), "q, k, v"),
}

LEVEL_2: Mapping[str, Row] = {
    "linear_relu_divide": _linear("return torch.relu(self.part(x)) / 2.0"),
    "linear_gelu_softmax": _linear(f"return torch.softmax({F}.gelu(self.part(x)), dim=1)"),
    "linear_swish_divide_clamp": _linear("y = self.part(x)\ny = y * torch.sigmoid(y) / 2.0\nreturn torch.tanh(torch.clamp(y, min=-1.0, max=1.0))"),
    "linear_scale_residual": _linear("y = self.part(x)\nreturn y * 0.5 + y"), "linear_mish_mish": _linear(f"return {F}.mish({F}.mish(self.part(x)))"),
    "linear_sigmoid_sum": _linear("return torch.sum(torch.sigmoid(self.part(x)), dim=1, keepdim=True)"),
    "linear_logsumexp": _linear("return torch.logsumexp(self.part(x), dim=1, keepdim=True)"),
    "linear_max_mean": _linear("y = torch.max(self.part(x), dim=1, keepdim=True).values\nreturn y - x.mean(dim=1, keepdim=True)"),
    "linear_swish_add": Row(
        "y = self.part(x)\nreturn y * torch.sigmoid(y) + self.bias", {"batch": 1024}, "torch.randn(batch, features)", "x",
        "self.part = nn.Linear(features, 2048)\nself.bias = nn.Parameter(torch.randn(2048))", {"features": 2048}),
    "linear_group_norm_hardtanh": Row(
        f"return {F}.hardtanh(self.norm(self.part(x)), -2.0, 2.0)", {"batch": 1024}, "torch.randn(batch, features)", "x",
        "self.part = nn.Linear(features, 2048)\nself.norm = nn.GroupNorm(16, 2048)", {"features": 2048}),
    "linear_batch_norm_swish": Row(
        "y = self.norm(self.part(x))\nreturn y * torch.sigmoid(y)", {"batch": 1024}, "torch.randn(batch, features)", "x",
        "self.part = nn.Linear(features, 2048)\nself.norm = nn.BatchNorm1d(2048).eval()", {"features": 2048}),
    "linear_layer_norm_gelu": Row(
        f"return {F}.gelu(self.norm(self.part(x)))", {"batch": 4096}, "torch.randn(batch, features)", "x",
        "self.part = nn.Linear(features, 1024)\nself.norm = nn.LayerNorm(1024)", {"features": 1024}),
    "conv_relu_bias": _conv("return torch.relu(self.part(x)) + self.bias", more="self.bias = nn.Parameter(torch.randn(2 * channels, 1, 1))"),
    "conv_mish_scale": _conv(f"return {F}.mish(self.part(x) - 0.5) * 1.5"),
    "conv_min_tanh": _conv("return torch.tanh(torch.min(self.part(x), dim=1, keepdim=True)[0])"),
    "conv_divide_leaky": _conv(f"return {F}.leaky_relu(self.part(x) / 2.0, negative_slope=0.01)"),
    "conv_group_norm_tanh": _conv("return torch.tanh(self.norm(self.part(x)))", more="self.norm = nn.GroupNorm(8, 2 * channels)"),
    "conv_instance_norm_divide": _conv("return self.norm(self.part(x)) / 2.0", more="self.norm = nn.InstanceNorm2d(2 * channels)"),
    "conv_pool_sigmoid_sum": _conv(f"return torch.sum(torch.sigmoid({F}.avg_pool2d(self.part(x), 4)), dim=[1, 2, 3])"),
    "conv_hardswish_relu": _conv(f"return torch.relu({F}.hardswish(self.part(x)))"),
    "conv_gelu_mean": _conv(f"return torch.mean({F}.gelu(self.part(x)), dim=[2, 3])"),
    "conv_turned_bias_clamp": _conv(
        "return torch.clamp(torch.clamp(self.part(x) + self.bias, 0.0, 1.0) * 2.0, 0.0, 1.0) / 2.0", "nn.ConvTranspose2d(channels, 2 * channels, 3, padding=1)",
        "self.bias = nn.Parameter(torch.randn(2 * channels, 1, 1))"),
    "conv_turned_mean_softmax": _conv(
        "return torch.softmax(torch.mean(self.part(x), dim=1, keepdim=True), dim=2) * 2.0", "nn.ConvTranspose2d(channels, channels, 3)"),
    "bmm_scale_softmax": Row(
        "return torch.softmax(torch.bmm(a, b) * 0.125, dim=2)", {"G": 32, "M": 512, "K": 512}, "torch.randn(G, M, K), torch.randn(G, K, M)", "a, b"),
    "residual_layer_norm": Row("return self.norm(x + r) * r", {"batch": 4096}, "torch.randn(batch, features), torch.randn(batch, features)", "x, r",
                               "self.norm = nn.LayerNorm(features)", {"features": 4096}),
}


def text_of(row: Row) -> str:
    """A model as a file in the form of KernelBench."""
    given = row.given or {}
    lines = ["import torch", "import torch.nn as nn", "", "", "class Model(nn.Module):"]
    if row.made:
        lines += [f"    def __init__(self, {', '.join(given)}):", "        super().__init__()", textwrap.indent(row.made, " " * 8), ""]
    lines += [f"    def forward(self, {row.takes}):", textwrap.indent(row.forward, " " * 8), "", ""]
    lines += [f"{k} = {v}" for k, v in (*row.sizes.items(), *given.items())]
    lines += ["", "", "def get_inputs():", f"    return [{row.inputs}]", "", "", "def get_init_inputs():", f"    return [{', '.join(given)}]", ""]
    return "\n".join(lines)


def written(folder: Path) -> list[Path]:
    """All of them as files `levelN/NAME.py` in a folder."""
    out = []
    for level, rows in (("level1", LEVEL_1), ("level2", LEVEL_2)):
        for name, row in rows.items():
            out.append(folder / level / f"{name}.py")
            out[-1].parent.mkdir(parents=True, exist_ok=True)
            write_atomic(out[-1], text_of(row))
    return out
