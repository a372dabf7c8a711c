"""What two programs make of inputs that are not finite: said beside a verdict, and no reason to refuse."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.base.diagnostic import Diagnostic, KirError
from kir.interp import run
from kir.ir import nodes as n
from kir.problem.draws import draw, generator
from kir.problem.schema import Draw

Array = NDArray[Any]
KINDS: Mapping[str, Draw] = {"infinities": Draw(kind="special", every=24, values=("inf", "-inf")), "NaN": Draw(kind="special", every=24, values=("nan",))}
"""How floats are drawn; and what that is called."""


def nonfinite(program: n.Program, against: n.Program, inputs: Mapping[str, Array], scalars: Mapping[str, int | float]) -> list[Diagnostic]:
    """A warning (KIR-G144) where two programs differ in which results are finite, infinite or no number, given such inputs; `inputs` are usual ones."""
    out: list[Diagnostic] = []
    for called, how in KINDS.items():
        arrays = {p.name: draw(how, inputs[p.name].shape, p.of.dtype.name, generator("nonfinite", called, p.name))
                  if p.of.dtype.is_float and p.of.dtype.bits >= 16 else inputs[p.name]
                  for p in against.params if isinstance(p.of, n.Buffer) and p.name in inputs}
        try:
            with np.errstate(all="ignore"):
                got, want = (run(p, {k: v.copy() for k, v in arrays.items()}, {k: v for k, v in scalars.items() if k in {x.name for x in p.params}}).outputs
                             for p in (program, against))
        except (KirError, ArithmeticError):
            continue
        for name, expected in want.items():
            if name not in got or expected.dtype.kind in "iub" or got[name].shape != expected.shape:
                continue
            a, b = got[name].astype(np.float64), expected.astype(np.float64)
            same = (np.isnan(a) & np.isnan(b)) | (np.isfinite(a) & np.isfinite(b)) | (a == b)
            if not same.all():
                at = np.unravel_index(int(np.argmin(same)), same.shape)
                where = f"{name}[{', '.join(map(str, at))}]"
                out.append(Diagnostic("KIR-G144", f"with {called} among the inputs {where} is {a[at]:g}, and the other program gives {b[at]:g}", subject=name,
                                      severity="warning"))
                break
    return out


__all__ = ["nonfinite"]
