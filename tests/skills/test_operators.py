"""The operators that skills are tried on compute what they are named for: each beside NumPy at a few small sizes."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from kir.interp import run
from kir.ir import nodes as n
from kir.ir.measures.naive import is_naive
from kir.ir.parser import parse_program
from kir.ir.printer import expr_text
from kir.learning.induce.transfers import operators, simplest
from kir.problem.schema import evaluate
from kir.rewrite import pass_class, sites

Array = NDArray[Any]
Inputs = Mapping[str, Array]
HOME = Path(__file__).parents[2] / "skills" / "operators"
MULTIPLES = {"fp8": {"M": 128, "N": 128, "K": 128}, "grouped": {"G": 2, "T": 16, "N": 128, "K": 64}, "inverse": {"B": 1, "L": 9, "H": 2, "G": 1},
             "few": {"M": 3, "N": 128, "K": 64}}
"""Sizes of operators that ask for whole tiles, by how their names begin."""
SIZES = {"R": 2, "T": 3, "N": 21, "E": 9, "C": 3, "K": 4, "L": 5, "S": 11, "H": 2, "B": 2, "W": 2, "M": 7}
ANSWERS = ("radix-select", "blocked-solve", "warp-sort", "chunk-recurrence", "chunk-recurrence-d128", "chunk-inverse")
TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f8e4m3": ml_dtypes.float8_e4m3fn, "u8": np.uint8, "i32": np.int32}
PARTS = {"fp8": "tile", "grouped": "tile", "eights": "jam-loop", "few": "tile"}
"""What an operator has a place for that is no host of an algorithm, by how its name begins."""


def largest(score: Array, count: int) -> dict[str, Array]:
    """The largest along the last axis, and where they are."""
    at = np.argsort(-score, axis=-1, kind="stable")[..., :count]
    return {"V": np.take_along_axis(score, at, -1), "I": at}


def solved(lower: Array, right: Array) -> Array:
    return np.linalg.solve(np.eye(64) + np.tril(lower, -1), right)


def order(keys: Array) -> dict[str, Array]:
    return {"P": np.argsort(keys, axis=-1, kind="stable")}


def delta(x: Inputs, axes: str, keys: str = "k") -> dict[str, Array]:
    """The gated delta rule token by token; `axes` are those of the gates."""
    q, k, v = (np.einsum(f"{axes}d->bhtd", x[name]) for name in ("q", keys, "v"))
    g, beta = (np.einsum(f"{axes}->bht", x[name]) for name in ("g", "beta"))
    if keys == "x":
        k = k / np.sqrt((k * k).sum(-1, keepdims=True) + 1e-6)
    state, out = np.zeros((*q.shape[:2], q.shape[-1], q.shape[-1])), np.zeros(q.shape)
    for t in range(q.shape[2]):
        state = state * np.exp(g[:, :, t])[..., None, None]
        update = beta[:, :, t, None] * (v[:, :, t] - np.einsum("bhde,bhd->bhe", state, k[:, :, t]))
        state = state + np.einsum("bhd,bhe->bhde", k[:, :, t], update)
        out[:, :, t] = np.einsum("bhde,bhd->bhe", state, q[:, :, t]) / np.sqrt(q.shape[-1])
    return {"o": np.einsum(f"bhtd->{axes}d", out)}


def values(x: Inputs) -> dict[str, Array]:
    return {"U": solved(x["beta"][..., None] * (x["k"] @ x["k"].swapaxes(-1, -2)), x["beta"][..., None] * x["v"])}


def inverse(x: Inputs, heads: int, tokens: int) -> dict[str, Array]:
    """Of one chunk that is shorter than 64; the axes of heads and of tokens, before that of a token's own numbers."""
    k, beta = np.moveaxis(x["k"], (heads, tokens), (-3, -2)), np.moveaxis(x["beta"], (heads, tokens), (-2, -1))
    k = np.repeat(k, beta.shape[-2] // k.shape[-3], axis=-3)
    found = np.linalg.inv(np.eye(k.shape[-2]) + np.tril(beta[..., None] * (k @ k.swapaxes(-1, -2)), -1))
    return {"A": np.moveaxis(np.pad(found, [(0, 0)] * (found.ndim - 1) + [(0, 64 - k.shape[-2])]), (-3, -2), (heads, tokens))}


def fp8(x: Inputs) -> Array:
    """A product whose rows of A and tiles of B have a scale every 128 columns."""
    columns = np.arange(x["A"].shape[1]) // 128
    return np.asarray((x["A"] * x["SA"][columns].T) @ (x["B"] * x["SB"][np.arange(len(x["B"])) // 128][:, columns]).T)


def grouped(x: Inputs, end: Callable[[Array, int, slice], Array]) -> dict[str, Array]:
    """The rows of each expert times its matrix, and what comes `end` of it."""
    at = x["offsets"].astype(int)
    return {"C": np.concatenate([end(x["A"][lo:hi] @ x["B"][g].T, g, slice(lo, hi)) for g, (lo, hi) in enumerate(pairwise(at))])}


def squared(found: Array, *_: object) -> Array:
    return np.asarray(np.maximum(found, 0) ** 2)


ORACLES: dict[str, Callable[[Inputs], dict[str, Array]]] = {
    "moe_router": lambda x: largest(x["X"] @ x["W"].T, 8),
    "nearest": lambda x: largest(-((x["A"][:, None] - x["B"]) ** 2).sum(-1), 4),
    "sparse_index": lambda x: largest(np.einsum("lh,lhs->ls", x["W"], np.maximum(np.einsum("lhd,sd->lhs", x["Q"], x["P"]), 0)), 4),
    "topk_beams": lambda x: largest(x["X"], 4),
    "topk_columns": lambda x: {name: found.T for name, found in largest(x["X"].T, 4).items()},
    "transpose_batch": lambda x: {"Y": x["X"].swapaxes(1, 2)},
    "transpose_add": lambda x: {"Y": x["X"].T + x["Z"]},
    "transpose_half": lambda x: {"Y": x["X"].T},
    "transpose_scale": lambda x: {"Y": x["X"].T * x["W"]},
    "transpose_gate": lambda x: {"Y": 1 / (1 + np.exp(-x["X"].T))},
    "eights_sum": lambda x: {"S": x["V"].sum(1)},
    "eights_weighted": lambda x: {"S": np.einsum("lc,lchd->lhd", x["W"], x["V"])},
    "eights_square": lambda x: {"S": (x["V"] ** 2).mean(1)},
    "fp8_bias": lambda x: {"C": fp8(x) + x["bias"]},
    "fp8_half": lambda x: {"C": fp8(x)},
    "fp8_relu": lambda x: {"C": squared(fp8(x))},
    "fp8_residual": lambda x: {"C": fp8(x) + x["R"]},
    "few_rows_layer": lambda x: {"C": x["A"] @ x["B"].T},
    "few_rows_logits": lambda x: {"C": x["A"] @ x["B"].T},
    "few_rows_scaled": lambda x: {"C": 1.25 * (x["A"] @ x["B"].T)},
    "grouped_bias": lambda x: grouped(x, lambda found, g, _: found + x["bias"][g]),
    "grouped_relu": partial(grouped, end=squared),
    "grouped_weighted": lambda x: grouped(x, lambda found, _, rows: found * x["W"][rows, None]),
    "delta_values": values,
    "solve_heads": lambda x: {"X": solved(x["L"].swapaxes(1, 2), x["B"].swapaxes(1, 2)).swapaxes(1, 2)},
    "solve_scaled": lambda x: {"X": solved(x["L"], x["B"] / x["D"][..., None])},
    "inverse_heads": partial(inverse, heads=1, tokens=0),
    "inverse_shared": partial(inverse, heads=1, tokens=0),
    "inverse_sequences": partial(inverse, heads=1, tokens=2),
    "expert_order": lambda x: order(x["logits"].argmax(-1)),
    "level_order": lambda x: order(np.trunc(np.float32(np.clip(x["X"], 0, 1)) * np.float32(255)).astype(int)),
    "order_columns": lambda x: order(x["keys"].swapaxes(1, 2)),
    **{f"gdn_{name}{tail}": partial(delta, axes=axes, keys=keys) for tail in ("", "_d128")
       for name, axes, keys in (("heads", "bht", "k"), ("first", "tbh", "k"), ("normed", "bth", "x"))}}


def drawn(p: n.Param, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    assert isinstance(p.of, n.Buffer)
    if p.name == "offsets":
        return np.linspace(0, 16, shape[0]).astype(np.int32)
    if p.of.dtype.name == "u8":
        return rng.integers(0, 256, shape).astype(np.uint8)
    found = 1.5 + rng.random(shape) if p.name == "D" else -rng.random(shape) if p.name == "g" else rng.normal(size=shape) * (0.1 if p.name == "L" else 0.4)
    return np.asarray(found, TYPES[p.of.dtype.name])


@pytest.mark.parametrize("name", sorted(ORACLES))
def test_an_operator_is_naive_and_computes_what_it_is_named_for(name: str) -> None:
    host = next(each for each in operators() if each.kernel == f"operators/{name}")
    program = simplest(host)
    assert {v.clause for v in is_naive(program)} <= {"state"} and host.package == "torch" and not host.problem
    sizes = {p.name: MULTIPLES.get(name.partition("_")[0], SIZES)[p.name] for p in program.params if p.role == "size"}

    def extents(of: n.Buffer) -> tuple[int, ...]:
        return tuple(evaluate(expr_text(d), sizes) if isinstance(d, n.Expr) else d for d in of.shape)
    rng = np.random.default_rng(0)
    given = {p.name: drawn(p, extents(p.of), rng) for p in program.params if p.role == "in" and isinstance(p.of, n.Buffer)}
    found = run(program, given, sizes).outputs
    wanted = ORACLES[name]({key: each.astype(np.float64) for key, each in given.items()})
    for key, each in wanted.items():
        assert np.allclose(np.asarray(found[key], np.float64), each, rtol=0.02, atol=0.02), key


def test_every_operator_has_an_oracle_and_a_place_for_what_is_tried_on_it_unless_it_only_moves_data() -> None:
    assert {file.stem for file in HOME.glob("*.kir")} == set(ORACLES)
    for file in (each for each in HOME.glob("*.kir") if not each.stem.startswith("transpose")):
        program = parse_program(file.read_text(encoding="utf-8"), str(file))
        own = PARTS.get(file.stem.partition("_")[0])
        wanted = (own,) if own else ANSWERS
        assert any(sites(pass_class(name).with_options({}), program) for name in wanted), file.stem
