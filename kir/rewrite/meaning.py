"""Whether two programs mean the same: both are interpreted on drawn inputs and compared within a pass's declared numerics."""
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.analysis.target.metas import at_defaults
from kir.base.diagnostic import error
from kir.interp import Result, run
from kir.interp.numerics.number import storage
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import DType
from kir.ir.visit import substitute

EPSILON = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7, "f8e4m3": 2.0**-3, "f8e5m2": 2.0**-2}
"""Distance from 1 to the next value, by dtype."""


def draw(program: n.Program, sizes: Mapping[str, int], seed: int = 0) -> dict[str, NDArray[Any]]:
    """Inputs of a program at given sizes: standard normal floats, integers of 0 to 3. Raises KirError KIR-R011 for a size that is
    neither given nor follows."""
    rng = np.random.default_rng(seed)
    out = {}
    values: dict[str, n.Expr] = {}
    for p in program.params:
        if isinstance(p.of, DType) and p.name in sizes:
            values[p.name] = n.Const(sizes[p.name], p.of)
    for p in program.params:
        if isinstance(p.of, DType):
            continue
        shape = []
        for dim in p.of.shape:
            extent = int_value(substitute(dim, values))
            if extent is None:
                raise error("KIR-R011", f"the shape of '{p.name}' does not follow from the sizes given", needs="a value for each size")
            shape.append(extent)
        kind, dtype = storage(p.of.dtype), p.of.dtype
        if dtype.is_float:
            out[p.name] = rng.standard_normal(shape).astype(np.float32).astype(kind)
        elif dtype.is_bool:
            out[p.name] = rng.integers(0, 2, shape).astype(kind)
        else:
            out[p.name] = rng.integers(0, 4, shape).astype(kind)
    return out


def interpreted(program: n.Program, sizes: Mapping[str, int], seed: int = 0, checked: bool = False) -> Result:
    """The program run on drawn inputs; a generic one at the defaults of its metas."""
    program = at_defaults(program)
    scalars = {p.name: sizes[p.name] for p in program.params if isinstance(p.of, DType) and p.name in sizes}
    return run(program, draw(program, sizes, seed), scalars, mode="check" if checked else "fast")


def difference(a: Result, b: Result, numerics: str = "bitwise", operands: str = "f32") -> str:
    """Where two results differ by more than `numerics` allows, as text ("" when they agree). Reassociated, moved and approximate
    floats may differ by 64 units in the last place of the output's largest finite magnitude, in the coarser of f32 and the output's dtype, and by two of
    `operands`, the dtype that a step rounds operands to; where `numerics` names a coarser error ("2^-11"), by twice that."""
    coarse = max((2.0 ** -int(bits) for bits in re.findall(r"2\^-(\d+)", numerics)), default=0.0)
    for name, x in a.outputs.items():
        y = b.outputs[name]
        if x.shape != y.shape:
            return f"{name}: shapes {x.shape} and {y.shape}"
        if x.tobytes() == y.tobytes():
            continue
        first, second = x.astype(np.float64), y.astype(np.float64)
        same = (first == second) | (np.isnan(first) & np.isnan(second))
        if numerics != "bitwise" and x.dtype.kind not in "iub":
            kind = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}.get(str(x.dtype), "f8e4m3")
            every = np.abs(np.concatenate([first.ravel(), second.ravel(), [1.0]]))
            magnitude = every[np.isfinite(every)].max()
            same |= np.abs(first - second) <= max(64 * EPSILON[kind], 64 * EPSILON["f32"], 2 * EPSILON[operands], 2 * coarse) * magnitude
        if not same.all():
            at = tuple(int(i) for i in np.argwhere(~same)[0])
            return f"{name}{list(at)}: {first[at]} and {second[at]}"
    return ""
