"""A compiled program as calls: what to allocate, what to pass, which grids. One form for every surface."""
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from kir.analysis.tiles.mapped_views import ends_joined, joined_shape
from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.rebuild.plans import launches, made
from kir.ir.types import DType
from kir.ir.visit import substitute
from kir.problem import Problem, Shape, numpy_dtype
from kir.problem.schema import Number
from kir.surface import Argument, Artifact, Emitted, Image, Passed

Array = NDArray[Any]
LAID_OUT = 16
"""Bytes that a tensor map's address must be a multiple of (CUDA driver API, `cuTensorMapEncodeTiled`), and that compilers which lay arguments out
by themselves take every pointer to be."""


@dataclass(frozen=True)
class Layout:
    """A tensor in memory: extents, strides in elements, and elements from the first to the last."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    span: int

    @property
    def dense(self) -> bool:
        """Row-major without gaps."""
        step = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if extent != 1 and stride != step:
                return False
            step *= extent
        return True

    @property
    def size(self) -> int:
        """Bytes of the span."""
        return self.span * numpy_dtype(self.dtype).itemsize

    def packed(self, array: Array) -> bytes:
        """The memory of an array; bytes between elements are zero."""
        if self.dense:
            return np.ascontiguousarray(array).tobytes()
        flat = np.zeros(self.span, array.dtype)
        self._view(flat)[...] = array
        return flat.tobytes()

    def unpacked(self, data: bytes | bytearray) -> Array:
        """The array in memory."""
        flat: Array = np.frombuffer(data, numpy_dtype(self.dtype))
        return flat.reshape(self.shape) if self.dense else self._view(flat).copy()

    def _view(self, flat: Array) -> Array:
        return np.lib.stride_tricks.as_strided(flat, self.shape, tuple(s * flat.itemsize for s in self.strides))


@dataclass(frozen=True)
class Bound:
    """A program at one set of sizes: values of its scalars, layouts of its tensors and workspaces."""

    values: Mapping[str, Number]
    layouts: Mapping[str, Layout]


def bound(program: n.Program, scalars: Mapping[str, int | float], shapes: Mapping[str, tuple[int, ...]]) -> Bound:
    """Sizes from `scalars` and from the shapes of tensors, then what is derived from them. Raises KirError KIR-G103 for what stays open."""
    values: dict[str, Number] = {p.name: scalars[p.name] for p in program.params if isinstance(p.of, DType) and p.name in scalars}
    for p in program.params:
        if isinstance(p.of, n.Buffer) and p.name in shapes:
            for d, extent in zip(p.of.shape, shapes[p.name], strict=False):
                if isinstance(d, n.Var):
                    values.setdefault(d.name, extent)
    for p in program.params:
        if isinstance(p.of, DType) and p.name not in values:
            found = None if p.value is None else substitute(p.value, _known(program, values))
            if not isinstance(found, n.Const):
                raise error("KIR-G103", f"nothing says what '{p.name}' is at these sizes", subject=program.name,
                            needs="a size of the problem, a shape that names it, or a value in the binding")
            values[p.name] = found.value
    known = _known(program, values)
    buffers = {p.name: p.of for p in program.params if isinstance(p.of, n.Buffer)} | {w.buffer.name: w.buffer for w in program.workspaces}
    return Bound(values, {name: _layout(program, b, known) for name, b in buffers.items()})


def _known(program: n.Program, values: Mapping[str, Number]) -> dict[str, n.Expr]:
    return {p.name: const(values[p.name], p.of) for p in program.params if isinstance(p.of, DType) and p.name in values}


def _layout(program: n.Program, b: n.Buffer, known: Mapping[str, n.Expr]) -> Layout:
    def integer(e: n.Expr) -> int:
        value = int_value(substitute(e, known))
        if value is None:
            raise error("KIR-G103", f"an extent or stride of '{b.name}' is not known at these sizes", subject=program.name)
        return value
    shape = tuple(map(integer, b.shape))
    if b.strides is not None:
        strides = tuple(map(integer, b.strides))
    else:
        strides = tuple(int(np.prod(shape[i + 1:], dtype=np.int64)) for i in range(len(shape)))
    span = 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)) if all(shape) else 0
    return Layout(b.dtype.name, shape, strides, span)


@dataclass(frozen=True)
class Executable:
    """A program, its text, and the cubins of each variant that the surface's launcher takes. `first` gives, by variant, the number of
    its first image in `images`."""

    program: n.Program
    emitted: Emitted
    artifacts: Mapping[tuple[Any, ...], Artifact] = field(default_factory=dict)

    @cached_property
    def images(self) -> tuple[Image, ...]:
        """All images, variants one after another. Raises KirError KIR-G102 for an artifact without one."""
        out = []
        for artifact in self.artifacts.values():
            for k in artifact.kernels:
                if k.image is None:
                    raise error("KIR-G102", f"the {artifact.surface} backend compiled {k.kernel} to nothing that can be launched",
                                needs="a backend whose artifacts hold images")
                out.append(k.image)
        return tuple(out)

    @staticmethod
    def variant(emitted: Emitted) -> tuple[Any, ...]:
        """What tells one variant of a text from another."""
        return tuple((e.function, e.options, *((a.name, a.divisor) for a in e.arguments)) for e in emitted.entries)

    def opening(self) -> tuple[list[dict[str, Any]], list[bytes]]:
        """What an executor loads."""
        rows = [{"function": i.function, "dynamic_shared": i.dynamic_shared, "cluster": list(i.cluster), "hidden": list(i.hidden),
                 "cooperative": i.cooperative} for i in self.images]
        return rows, [i.cubin for i in self.images]

    def alignment(self, name: str) -> int:
        """What the address of a tensor must be a multiple of, for all that its dtype, the program and every text rely on."""
        b = next((p.of for p in self.program.params if p.name == name and isinstance(p.of, n.Buffer)), None)
        wanted = [1] if b is None else [numpy_dtype(b.dtype.name).itemsize, b.align or 1]
        for emitted, artifact in ((self.emitted, None), *((None, x) for x in self.artifacts.values())):
            for e in emitted.entries if emitted is not None else ():
                wanted += [LAID_OUT if a.shown else a.divisor for a in e.arguments if a.source == name and (a.shown or a.kind == "pointer")]
            for k in artifact.kernels if artifact is not None else ():
                laid_out = k.image.arguments if k.image is not None else None
                wanted += [32 if a.interleave else LAID_OUT for a in laid_out or () if a.of == name and a.kind != "scalar"]
        wanted += [LAID_OUT for m in self.program.tensor_maps if m.of == name]
        return math.lcm(*wanted)

    def launches(self, emitted: Emitted, at: Bound) -> list[dict[str, Any]]:
        """The launches of one call; `emitted` is the variant for these sizes. The first depends on none: nothing of a call begins before it."""
        known = _known(self.program, at.values)
        first = 0
        for key, artifact in self.artifacts.items():
            if key == self.variant(emitted):
                break
            first += len(artifact.kernels)
        else:
            raise error("KIR-G102", "the variant for these sizes was not compiled", subject=self.program.name)
        order = list(dict.fromkeys(e.function for e in emitted.entries))
        out: list[dict[str, Any]] = []
        for e, step, wanted in zip(emitted.entries, launches(self.program), made(self.program, known), strict=True):
            if not wanted:
                continue
            grid = []
            for extent in e.grid:
                value = int_value(substitute(extent, known))
                if value is None:
                    raise error("KIR-G103", f"the grid of {e.kernel} is not known at these sizes", subject=self.program.name)
                grid.append(value)
            for ctas, each in zip(grid, self.images[first + order.index(e.function)].cluster, strict=False):
                if ctas % each:
                    raise error("KIR-G103", f"the grid of {e.kernel} has {ctas} CTAs at these sizes, which are no whole clusters of {each}",
                                subject=self.program.name)
            grid = grid or [1]
            grid[0] *= int(dict(e.options).get("num_ctas", 1))
            pdl = bool(dict(step.attrs).get("pdl"))
            image = self.images[first + order.index(e.function)]
            boxes = iter(image.boxes)
            passed = ([x for a in e.arguments for x in (self._tensor_map(a, known, *next(boxes)) if a.shown is not None else (self._argument(a, at),))]
                      if image.arguments is None else [_passed(a, at) for a in image.arguments])
            out.append({"image": first + order.index(e.function), "grid": grid, "threads": image.threads or e.threads, "dependent": pdl and bool(out),
                        "arguments": passed})
        return [x for x in out if all(extent > 0 for extent in x["grid"])]

    def _argument(self, a: Argument, at: Bound) -> list[Any]:
        if a.kind == "map":
            found = next(m for m in self.program.tensor_maps if m.name == a.source)
            return ["map", descriptor(found, at.layouts[found.of])]
        return ["buffer", a.source, a.divisor] if a.kind == "pointer" else ["scalar", a.dtype, at.values[a.source]]

    def _tensor_map(self, a: Argument, known: Mapping[str, n.Expr], box: tuple[int, ...], swizzle: int) -> list[list[Any]]:
        """A map of a tensor with what the surface's compiler takes behind it."""
        assert a.shown is not None
        layout = _layout(self.program, a.shown, known)
        row = descriptor(n.TensorMap(a.name, a.source, box, n.attrs(swizzle=swizzle)), layout)
        return [["map", row], *(["scalar", "i32", extent] for extent in layout.shape), *(["scalar", "i64", stride] for stride in layout.strides)]

    def memsets(self, at: Bound) -> list[dict[str, Any]]:
        """Initial values of workspaces, which are part of the call. Raises KirError KIR-G103 for one that is no repeated pattern."""
        out = []
        for w in self.program.workspaces:
            if w.init is None:
                continue
            layout = at.layouts[w.buffer.name]
            value = np.asarray(w.init.value if isinstance(w.init, n.Const) else np.nan).astype(numpy_dtype(layout.dtype)).tobytes()
            count = layout.span
            if len(value) == 8 and value[:4] == value[4:]:
                value, count = value[:4], 2 * count
            if not isinstance(w.init, n.Const) or len(value) > 8:
                raise error("KIR-G103", f"the initial value of workspace '{w.buffer.name}' is no pattern of at most 8 bytes")
            out.append({"name": w.buffer.name, "pattern": value.hex(), "count": count})
        return out


def _passed(a: Passed, at: Bound) -> list[Any]:
    """An argument that the surface's compiler laid out."""
    match a.kind:
        case "pointer":
            return ["buffer", a.of]
        case "scalar":
            return ["scalar", a.dtype, at.values[a.of]]
        case "map" if a.lower:
            pixels, channels = a.box
            return ["map", {"of": a.of, "dtype": a.dtype, "extents": list(a.extents), "strides": list(a.strides), "swizzle": a.swizzle, "mode": "im2col",
                            "lower": list(a.lower), "upper": list(a.upper), "pixels": pixels, "channels": channels, "steps": list(a.steps)}]
        case "map":
            return ["map", {"of": a.of, "dtype": a.dtype, "extents": list(a.extents), "strides": list(a.strides), "box": list(a.box),
                            "steps": list(a.steps), "swizzle": a.swizzle, "interleave": a.interleave, "promotion": a.promotion,
                            "nan_fill": a.nan_fill}]
        case other:
            assert_never(other)


def descriptor(m: n.TensorMap, layout: Layout) -> dict[str, Any]:
    """What the driver encodes of a tensor map: extents, strides, box and steps innermost first, strides in bytes without the innermost.

    `merge` makes one dimension of the first ones, `merge_last` of the last; an im2col map has a box of pixels and channels, and corners and
    steps by dimension of the image."""
    options = dict(m.attrs)
    item = numpy_dtype(layout.dtype).itemsize
    first, last = ends_joined(m.attrs)
    shape = joined_shape(m.attrs, tuple(layout.shape))
    strides = (*layout.strides[first - 1:len(layout.shape) - last], layout.strides[-1])
    row: dict[str, Any] = {"of": m.of, "dtype": layout.dtype, "extents": list(reversed(shape)), "swizzle": int(options.get("swizzle", 0)),
                           "strides": [s * item for s in reversed(strides[:-1])]}
    if options.get("mode") == "im2col":
        axes = ("d", "h", "w")[-(len(shape) - 2):]
        lower, upper = ([int(options.get(f"{end}_{axis}", 0)) for axis in reversed(axes)] for end in ("lower", "upper"))
        steps = [1, *(int(options.get(f"step_{axis}", 1)) for axis in reversed(axes)), 1]
        return {**row, "mode": "im2col", "lower": lower, "upper": upper, "pixels": m.box[0], "channels": m.box[1], "steps": steps}
    return {**row, "box": list(reversed(m.box))}


def problem_shapes(problem: Problem, shape: Shape, names: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    """Shapes of a program's tensors, by its own names."""
    of = {t.name: problem.tensor_shape(t, shape) for t in problem.spec.tensors}
    return {mine: of[theirs] for mine, theirs in names.items() if theirs in of}


__all__ = ["Bound", "Executable", "Layout", "bound", "descriptor", "problem_shapes"]
