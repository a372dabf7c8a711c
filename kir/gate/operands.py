"""What else a program may give by right: operands of its products in tf32 cut off, functions without the errors of their approximations, and sums
without the errors of their order.

`precision tf32` says that f32 operands lose 13 of their bits, not how: tensor cores ignore those bits (PTX ISA, `mma` and `wgmma` with .tf32), a
surface may round to nearest before. Both are right, and over a long sum they drift apart by more than the order of additions does.
`tanh.approx` may be off by 2^-11: a program that computes the function itself is no less right than the one that it is compared with.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.base.diagnostic import KirError
from kir.interp import run
from kir.interp.numerics import rounding
from kir.ir import nodes as n
from kir.ir.types import F32, DType, TileType, dtype_of
from kir.ir.visit import once, once_for_each, statements, transform, walk
from kir.problem.problem import widened

Array = NDArray[Any]

COARSE = {"tanh_approx": "tanh", "sin_approx": "sin", "cos_approx": "cos"}
"""Approximations whose errors a comparison of programs tells from rounding, and the functions that they stand for."""
SWAY = 2.0**-22
"""By which share of itself an input is moved where it is asked how well its numbers determine a result."""

MOVES = frozenset({"trans", "expand", "broadcast", "pick"})
"""Calls that give what they are given, at other places."""


@once_for_each
def otherwise(program: n.Program) -> n.Program | None:
    """The program with operands of its products in tf32 cut off (the interpreter rounds them to nearest), and with coarse approximations computed in full
    (the interpreter gives them their errors); None where it has neither."""
    seen: list[n.Node] = []

    def leave(old: n.Node, new: n.Node) -> Any:
        if isinstance(new, n.Mma) and new.precision == "tf32" and dtype_of(new.a.type) == F32:
            seen.append(new)
            return n.Mma(new.acc, _cut(new.a), _cut(new.b), new.via, new.precision, new.pending, new.attrs, new.label, new.origin)
        if isinstance(new, n.Call) and new.fn == "mma_sync" and all(not isinstance(x, n.Region) for x in new.args) and dtype_of(new.args[0].type) == F32:
            seen.append(new)
            return n.Call(new.fn, tuple(x if i > 1 or isinstance(x, n.Region) else _cut(x) for i, x in enumerate(new.args)), new.attrs, new.of)
        if isinstance(new, n.Call) and new.fn in COARSE and new.of is None:
            seen.append(new)
            return n.Call(COARSE[new.fn], new.args)
        return new

    out: n.Program = transform(program, leave)
    return out if seen else None


def in_f64(program: n.Program, arrays: Mapping[str, Array], scalars: Mapping[str, int | float]) -> Mapping[str, Array] | None:
    """The outputs of a program with every float in f64, approximations in full; None where it takes the bits of a float."""
    floats = {p.name for p in program.params if isinstance(p.of, n.Buffer) and p.of.dtype.name in ("f32", "f16", "bf16")}
    try:
        with rounding.exact():
            return run(widened(program), {k: v.astype(np.float64) if k in floats else v.copy() for k, v in arrays.items()}, {**scalars}).outputs
    except KirError:
        return None


def in_full(program: n.Program, arrays: Mapping[str, Array], scalars: Mapping[str, int | float], given: Mapping[str, Array]) -> Mapping[str, Array]:
    """The outputs of a program without the errors of its coarse approximations; `given`, which it has with them, where there are none."""
    if not once(program, "_coarse", lambda: any(isinstance(x, n.Call) and x.fn in COARSE and x.of is None for k in program.kernels for x in walk(k))):
        return given
    with rounding.exact():
        return run(program, {k: v.copy() for k, v in arrays.items()}, {**scalars}).outputs


def exactly(program: n.Program, arrays: Mapping[str, Array], scalars: Mapping[str, int | float], moved: int = 0) -> Mapping[str, Array] | None:
    """The outputs of a program without rounding: of one in f32, or whose results alone are narrower. One that rounds on the way to a narrower dtype
    means to, and has none. `moved`: each input in f32 is `SWAY` of itself larger or smaller, by chance of that seed."""
    if moved:
        chance = np.random.default_rng(moved)
        arrays = {k: v * (1 + SWAY * chance.choice((-1, 1), v.shape)) if v.dtype.kind == "f" and v.dtype.itemsize >= 4 else v for k, v in arrays.items()}
    return None if once(program, "_rounds", lambda: any(_rounds(k, _results(program)) for k in program.kernels)) else in_f64(program, arrays, scalars)


def _results(program: n.Program) -> set[str]:
    """The outputs that no kernel reads."""
    read = {x.at.buffer.name for k in program.kernels for x in walk(k) if isinstance(x, n.Load)}
    return {p.name for p in program.params if isinstance(p.of, n.Buffer) and p.role == "out"} - read


def _rounds(kernel: n.Kernel, results: set[str]) -> bool:
    results = results | _on_the_way(kernel, results)
    last = {id(s.value) for s in statements(kernel.body) if isinstance(s, n.Store) and s.at.buffer.name in results and isinstance(s.value, n.Cast)}
    made = (x.type for x in walk(kernel) if isinstance(x, (n.Binary, n.Unary, n.Call, n.Cast)) and id(x) not in last and not (
        isinstance(x, n.Call) and x.fn in MOVES))
    return any(isinstance(t, (DType, TileType)) and dtype_of(t).is_float and dtype_of(t).bits < 32 for t in made)


def _on_the_way(kernel: n.Kernel, results: set[str]) -> set[str]:
    """Memory of the CTA's own from which results are only copied."""
    copied = {id(s.src): s.src.at.buffer.name for s in statements(kernel.body) if isinstance(s, n.Copy) and s.dst.buffer.name in results}
    copied |= {id(s.value): s.value.at.buffer.name for s in statements(kernel.body) if isinstance(s, n.Store) and s.at.buffer.name in results
               and isinstance(s.value, n.Load)}
    return set(copied.values()) - {x.at.buffer.name for x in walk(kernel) if isinstance(x, n.Load) and id(x) not in copied}


def _cut(e: n.Expr) -> n.Expr:
    return n.Call("to_tf32", (e,), (("rounding", "rz"),))
