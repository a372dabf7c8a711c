"""Which CTAs write an element: what the places of a kernel's stores say, solved for the axes of its grid."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType
from kir.ir.visit import statements, substitute

ENDS = 2
"""CTAs at the beginning of each axis that are run in any case, beside the last."""
MOST_PLACES, MOST_CTAS = 512, 4096
"""CTAs along one axis, and of one kernel, that are run at most."""
Picks = tuple[tuple[tuple[int, ...], ...], ...]
"""Of each kernel along each axis of its grid the CTAs that are run, in order."""
Array = NDArray[Any]


def ends(program: n.Program) -> Picks:
    """The first two CTAs and the last of each axis. Raises ValueError for a grid that is not known."""
    return tuple(tuple(tuple(sorted({*range(min(ENDS, extent)), extent - 1})) for extent in _extents(k)) for k in program.kernels)


def _extents(kernel: n.Kernel) -> list[int]:
    out = [build.int_value(axis.extent) for axis in kernel.grid]
    if None in out:
        raise ValueError("its grid is not known")
    return [x for x in out if x is not None]


def owners(program: n.Program, marks: Mapping[str, Array]) -> Picks:
    """The CTAs that write the marked elements of tensors, as far as the places of stores tell it, and those at the ends. Raises ValueError for more than are
    run."""
    out = []
    for kernel, first in zip(program.kernels, ends(program), strict=True):
        extents, found = _extents(kernel), [set(x) for x in first]
        order = {axis.name: k for k, axis in enumerate(kernel.grid)}
        for name, index, buffer in _stores(kernel):
            mark = marks.get(name)
            shape = tuple(build.int_value(d) or 0 for d in buffer.shape)
            if mark is None or not mark.any() or int(np.prod(shape)) != mark.size:
                continue
            for at, place in zip(np.unravel_index(np.flatnonzero(mark), shape), index, strict=True):
                for axis, values in _solved(place, at, {s.var.name: s for s in statements(kernel.body) if isinstance(s, n.For)}, set(order)).items():
                    found[order[axis]] |= {x for x in np.unique(values).tolist() if 0 <= x < extents[order[axis]]}
        if any(len(x) > MOST_PLACES for x in found) or int(np.prod([len(x) for x in found])) > MOST_CTAS:
            raise ValueError("too many of its CTAs write what a few of the kernel as given do")
        out.append(tuple(tuple(sorted(x)) for x in found))
    return tuple(out)


def _stores(kernel: n.Kernel) -> list[tuple[str, list[n.Expr], n.Buffer]]:
    """The tensors that a kernel stores to, where each index begins, without the names of its own values, and by which shape it counts: another name for the
    same elements may have its own."""
    known, named = dict[str, n.Expr](), dict[str, str]()
    out = list[tuple[str, list[n.Expr], n.Buffer]]()
    for s in statements(kernel.body):
        if isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value.type, DType) and s.value.type.is_integer:
            known[s.names[0]] = substitute(s.value, known)
        elif isinstance(s, n.View) and not s.axes and s.buffer.dtype == s.at.buffer.dtype:
            named[s.buffer.name] = named.get(s.at.buffer.name, s.at.buffer.name)
        elif isinstance(s, n.Store) and s.at.buffer.space == "global" and len(s.at.index) == len(s.at.buffer.shape):
            index = [substitute(i if isinstance(i, n.Expr) else i.lo, known) for i in s.at.index]
            out.append((named.get(s.at.buffer.name, s.at.buffer.name), index, s.at.buffer))
    return out


def _solved(place: n.Expr, at: Array, loops: Mapping[str, n.For], axes: set[str]) -> dict[str, Array]:
    """Values of axes for which a place is one of these, the axis with the largest factor first; a loop that begins at an axis and goes on by a number names
    it, too."""
    terms = {m[0].name: c for m, c in build.polynomial(place).items() if len(m) == 1 and isinstance(m[0], n.Var) and c > 0}
    rest, out = at - build.polynomial(place).get((), 0), dict[str, Array]()
    for name, factor in sorted(terms.items(), key=lambda x: -x[1]):
        loop = loops.get(name)
        if name in axes:
            out[name] = rest // factor
        elif loop is not None and isinstance(loop.lo, n.Var) and loop.lo.name in axes and (step := build.int_value(loop.step)):
            out[loop.lo.name] = rest // factor % step
        rest = rest % factor
    return out


__all__ = ["Picks", "ends", "owners"]
