"""What the whole numbers of an input may be, where a program finds memory by them or counts by them: indices, offsets, lengths.

A program says it only by what it does. So it is run at small sizes with one such input rising to a bound, for bounds that follow from its own extents;
the largest that it takes without a fault is what the input's numbers stay below, at whatever sizes.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.analysis.access import offset_tables
from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError
from kir.gate.inputs.sets import size_sets
from kir.gate.shapes import MOST_ELEMENTS, constants
from kir.interp import run
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.types import I64, DType
from kir.ir.visit import once, substitute, walk
from kir.problem.draws import draw, generator, numpy_dtype
from kir.problem.schema import Draw

Array = NDArray[Any]
BASE, BETWEEN = (24, 8, 1), 7
"""Where sizes begin at which a program is tried, and how far apart they are, so that extents differ."""
MOST_TRIPS = 2048
"""A number that says how often a loop runs is not drawn larger."""
MOST_CONSTANTS = 4


@dataclass(frozen=True)
class Places:
    """The numbers of an input: from 0, or from -1 (`skips`), to below the least of `below`; `counts` where loops run by them; `apart` where no two may be
    alike, since what is stored by them would meet; `rises` where each says where a part begins and the next one where it ends."""

    below: tuple[n.Expr, ...]
    skips: bool
    counts: bool
    apart: bool = False
    rises: bool = False

    def end(self, sizes: Mapping[str, n.Expr], dtype: DType) -> int:
        """One more than the largest number at these sizes, 0 where there is none; what the dtype can hold."""
        found = [v for e in self.below if (v := int_value(substitute(e, sizes))) is not None]
        most = min(int(np.iinfo(numpy_dtype(dtype.name)).max) + 1, MOST_TRIPS if self.counts else MOST_ELEMENTS)
        return max(0, min([most, *found]))

    def drawn(self, shape: tuple[int, ...], sizes: Mapping[str, n.Expr], dtype: DType, random: np.random.Generator, turn: int) -> Array | None:
        """Numbers over the whole extent, the first and the last among them: in any order, rising, each once as far as they go, or falling; by turns. All 0
        where there is one alone, None where there is none."""
        end, count = self.end(sizes, dtype), math.prod(shape)
        if end == 1 and not self.apart:
            return np.zeros(shape, numpy_dtype(dtype.name))
        if end < 2 or not count or (self.apart and count > end and not self.skips):
            return None
        if self.apart:
            chosen = random.permutation(end)[:count]
            out = np.full(count, -1)
            out[random.permutation(count)[:len(chosen)] if turn % 2 == 0 else slice(len(chosen))] = chosen if turn % 2 == 0 else np.sort(chosen)
            return out.reshape(shape).astype(numpy_dtype(dtype.name))
        match 1 if self.rises else turn % 4:
            case 0:
                out = random.integers(0, end, count)
                out[-2:] = end - 1
                out[:1] = 0 if count > 2 else out[:1]
            case 1:
                out = rising(shape, end, random, most=3 if self.rises and turn % 2 == 0 else None).reshape(-1)
            case 2:
                out = end - 1 - random.permutation(max(end, count))[:count] % end
                out[count // 2] = end - 1
            case _:
                out = np.sort(random.integers(0, end, shape), axis=-1)[..., ::-1].reshape(-1)
                if self.skips:
                    out[random.integers(0, 3, count) == 0] = -1
        return out.reshape(shape).astype(numpy_dtype(dtype.name))


def rising(shape: tuple[int, ...], end: int, random: np.random.Generator, most: int | None = None) -> Array:
    """Numbers that rise along the last axis, from 0 to `end` - 1 in each row, most of it in one step; the others, of about a fourth, are any, or (in a row of
    more than `most`) of about `most`: where there are many, the longest part is a short one else."""
    count = shape[-1] if shape else 1
    after = np.arange(count) >= random.integers(0, max(1, count), (*shape[:-1], 1))
    apart = random.integers(0, 4 if most is None else max(4, count // most), shape) == 0
    out = np.sort(np.where(apart, random.integers(0, end, shape), np.broadcast_to(after, shape) * (end - 1)), axis=-1)
    if out.shape[-1:] > (1,):
        out[..., 0] = 0
    out[..., -1:] = end - 1
    return out


def places(program: n.Program) -> Mapping[str, Places]:
    """By name, the inputs of whole numbers that a program finds memory or counts by."""
    return once(program, "_drawn_places", lambda: _places(program))


def taken_apart(program: n.Program) -> tuple[Diagnostic, ...]:
    """That numbers of an input are taken to be all different, for each of which that is so."""
    return tuple(Diagnostic("KIR-G145", f"the numbers in '{name}' are taken to be all different: by two alike two CTAs, or threads, store to one place",
                            subject=name, severity="warning") for name, found in places(program).items() if found.apart)


def _places(program: n.Program) -> dict[str, Places]:
    wanted = [p for p in program.params if isinstance(p.of, n.Buffer) and p.role != "out" and p.of.dtype.is_integer and not p.of.dtype.is_bool]
    roles = {p.name: role for p in wanted if (role := _used(program, p.name)) is not None}
    if not roles or not (found := size_sets(program, BASE, BETWEEN)):
        return {}
    at = found[0]
    known = {p.name: const(at[p.name], p.of) for p in program.params if isinstance(p.of, DType) and p.name in at}
    arrays: dict[str, Array] = {}
    scalars: dict[str, int | float] = {**at}
    for p in program.params:
        if isinstance(p.of, n.Buffer):
            shape = tuple(int_value(substitute(d, known)) or 0 for d in p.of.shape)
            if math.prod(shape) > MOST_ELEMENTS:
                return {}
            if p.role != "out":
                how = Draw(kind="normal") if p.of.dtype.is_float else Draw(kind="integers", low=0, high=2)
                arrays[p.name] = draw(how, shape, p.of.dtype.name, generator("places", p.name))
        elif p.role == "scalar" and p.value is None and isinstance(p.of, DType):
            scalars[p.name] = 0.5 if p.of.is_float else 1

    def takes(name: str, values: Array) -> bool:
        try:
            with np.errstate(all="ignore"):
                return not run(program, {k: (values if k == name else v).copy() for k, v in arrays.items()}, {**scalars}).errors
        except (KirError, ArithmeticError, MemoryError):
            return False

    def meets(name: str, values: Array) -> bool:
        """Whether two accesses meet that are not ordered."""
        with np.errstate(all="ignore"):
            found = run(program, {k: (values if k == name else v).copy() for k, v in arrays.items()}, {**scalars}, mode="check")
        return any(x.severity == "error" and x.kind == "race" for x in found.findings)

    bounds: dict[int, list[n.Expr]] = {}
    for e in _bounds(program):
        if (v := int_value(substitute(e, known))) is not None and 2 < v <= MOST_ELEMENTS:
            bounds.setdefault(v, []).append(e)
    out: dict[str, Places] = {}
    ends = sorted(bounds)
    for p in (*wanted, *wanted):  # what is read only where others say so shows when those are known
        assert isinstance(p.of, n.Buffer)
        if p.name not in roles or p.name in out:
            continue
        dtype, shape = numpy_dtype(p.of.dtype.name), arrays[p.name].shape
        mine = [v for v in ends if v - 1 <= int(np.iinfo(dtype).max)]
        few, many = -1, len(mine)  # taken, and not
        while many - few > 1:
            middle = (few + many) // 2
            if takes(p.name, rising(shape, mine[middle], generator("places", p.name, middle)).astype(dtype)):
                few = middle
            else:
                many = middle
        if 0 <= few < len(mine) - 1:
            skips = dtype.kind == "i" and takes(p.name, np.full(shape, -1, dtype))
            out[p.name] = Places(tuple(bounds[mine[few]]), skips, roles[p.name].counts, rises=p.name in offset_tables(program))
            arrays[p.name] = rising(shape, mine[few], generator("places", p.name)).astype(dtype)
    for name in (p.name for p in wanted if p.name in out and roles[p.name].stores and not out[p.name].rises):
        end, count = out[name].end(known, I64), arrays[name].size
        if 1 < count <= end and meets(name, np.zeros_like(arrays[name])) and not meets(
                name, generator("places", name).permutation(end)[:count].reshape(arrays[name].shape).astype(arrays[name].dtype)):
            out[name] = replace(out[name], apart=True)
    free = {name: role for name, role in roles.items() if name not in out and role.extents}  # reads beyond the end give something, or are masked
    return out | {name: Places(role.extents, False, role.counts, rises=name in offset_tables(program)) for name, role in free.items()}


def _bounds(program: n.Program) -> Iterator[n.Expr]:
    """What the numbers may stay below: an extent or a size (a row of what lies flat), one more, a piece of one or several, two extents together, or an extent
    and a size (pages of so many places)."""
    dims = list(dict.fromkeys(d for p in program.params if isinstance(p.of, n.Buffer) for d in p.of.shape))
    dims += [d for d in dict.fromkeys(d for w in program.workspaces for d in w.buffer.shape) if d not in dims]
    wide = [build.cast(d, I64) for d in dims]
    steps = [const(c, I64) for c in constants((program,))[:MOST_CONSTANTS]]
    found = [*wide, *(build.ceildiv(d, c) for d in wide for c in steps), *(build.mul(d, c) for d in wide for c in steps)]
    found += [build.mul(a, b) for a, b in combinations_with_replacement(wide, 2)]
    sizes = [build.cast(n.Var(p.name, p.of), I64) for p in program.params if p.role == "size" and p.value is None and isinstance(p.of, DType)]
    found += [e for e in (*sizes, *(build.mul(d, x) for d in wide if not isinstance(d, n.Cast) or isinstance(d.x, n.Var) for x in sizes)) if e not in found]
    yield from (e for d in found for e in (d, build.add(d, 1)))


@dataclass(frozen=True)
class Role:
    """What numbers are used for: whether loops run by them, the extents of memory that is found by them, and whether it is stored to."""

    counts: bool
    extents: tuple[n.Expr, ...]
    stores: bool


def _used(program: n.Program, name: str) -> Role | None:
    """What numbers of a tensor are used for, by names that they go into; None where they are neither indices nor counts."""
    counts, index, stores = False, False, False
    extents: dict[n.Expr, None] = {}
    sizes = {p.name for p in program.params if isinstance(p.of, DType)}
    for k in program.kernels:
        names, nodes = {name}, [x for s in k.body for x in walk(s)]

        def about(e: n.Node, names: set[str] = names) -> bool:
            return any((isinstance(x, n.Var) and x.name in names) or (isinstance(x, n.Region) and x.buffer.name in names) for x in walk(e))
        before = -1
        while before < len(names):
            before = len(names)
            for x in nodes:
                match x:
                    case n.Let() if about(x.value):
                        names.update(x.names)
                    case n.Store() if x.at.buffer.space != "global" and about(x.value):
                        names.add(x.at.buffer.name)
                    case n.View() if x.at.buffer.name in names:
                        names.add(x.buffer.name)
                    case n.Copy() if x.dst.buffer.space != "global" and about(x.src):
                        names.add(x.dst.buffer.name)
                    case _:
                        pass
        for x in nodes:
            match x:
                case n.For() if any(about(e) for e in (x.lo, x.hi, x.step)):
                    counts = True
                case n.While() if about(x):
                    counts = True
                case n.Store(at=n.Region(buffer=n.Buffer(space="global"), index=at)) if any(about(i) for i in at):
                    stores = True
                case n.Region():
                    for i, d in zip(x.index, x.buffer.shape, strict=False):
                        if about(i.lo if isinstance(i, n.Span) else i):
                            index = True
                            if {v.name for v in walk(d) if isinstance(v, n.Var)} <= sizes:
                                extents[d] = None
                case _:
                    pass
    return Role(counts, tuple(extents), stores) if counts or index else None


__all__ = ["Places", "places", "rising", "taken_apart"]
