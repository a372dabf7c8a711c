"""Views of global memory that tensor maps show: dimensions joined to one, or pixels by filter taps and channels (im2col).

In im2col mode the tensor memory accelerator goes over pixels of a bounding box (a corner cut from each side of the image) in steps, image after
image, and adds an offset to each that is the same for all (CUDA driver API, cuTensorMapEncodeIm2col; PTX ISA, "Im2col mode").
"""
from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType
from kir.ir.visit import names_read, statements

AXES = ("d", "h", "w")
MOST_TAPS, FARTHEST = 16, 16
"""Taps of a filter along one dimension that are looked for; how far a corner may lie from the image's."""

Said = tuple[tuple[n.Expr, ...], tuple[n.Expr, ...]]
"""Coordinates of a pixel (image, place in the bounding box, channel) and offsets of a tap, over the axes of a view."""


def view_of(kernel: n.Kernel, name: str) -> n.View | None:
    """The view of that name in a kernel."""
    return next((s for s in statements(kernel.body) if isinstance(s, n.View) and s.buffer.name == name), None)


def joined(view: n.View) -> n.Attrs | None:
    """What a tiled map says to show a view: `merge` of the first dimensions, `merge_last` of the last; None for a view that none shows."""
    base, shape = view.at.buffer, view.buffer.shape
    if view.axes or view.at.index or base.strides is not None or view.buffer.strides is not None or view.buffer.dtype != base.dtype:
        return None
    whole, rank = base.shape, len(base.shape)
    for first in range(1, rank + 1):
        for last in range(1, rank - first + 1):
            if shape == (_product(whole[:first]), *whole[first:rank - last], _product(whole[rank - last:])):
                said = {"merge": first} if first > 1 else {}
                return n.attrs(**said, **({"merge_last": last} if last > 1 else {}))
    return None


def _product(dims: tuple[n.Expr, ...]) -> n.Expr:
    out = dims[0]
    for d in dims[1:]:
        out = build.mul(out, d)
    return out


def joined_shape(attrs: n.Attrs, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Extents of a tiled map's dimensions, of the extents of its tensor."""
    first, last = ends_joined(attrs)
    left = len(shape) - last
    return (prod(shape[:first]), *shape[first:left], prod(shape[left:])) if left >= first else (prod(shape),)


def ends_joined(attrs: n.Attrs) -> tuple[int, int]:
    """How many of the first and of the last dimensions a map makes one."""
    options = dict(attrs)
    first, last = options.get("merge", 1), options.get("merge_last", 1)
    return (first if isinstance(first, int) else 1), (last if isinstance(last, int) else 1)


def shown(view: n.View, attrs: n.Attrs) -> Said | None:
    """Coordinates and offsets of a view of two axes, pixels and taps by channels, that an im2col map of these attributes shows; None for
    a view that it does not show."""
    return next((made for made in may_show(view, attrs) if made[0] == _less(view, made[1])), None)


def is_pixels(view: n.View) -> bool:
    """Whether a view has the form of pixels by taps and channels: two axes of a tensor of images, and zeros outside."""
    return len(view.axes) == 2 and 3 <= len(view.at.buffer.shape) <= 5 and view.fill == build.const(0, view.buffer.dtype)


def may_show(view: n.View, attrs: n.Attrs) -> Iterator[Said]:
    """What a map can show, by the taps of the filter along all dimensions but the first."""
    _, *space, channels = view.at.buffer.shape
    of = view.buffer.shape[0].type
    assert isinstance(of, DType)
    pixel, tap = (build.var(axis, of) for axis in view.axes)
    options, names = dict(attrs), AXES[-len(space):]
    low, high, steps = ([int(options.get(f"{end}_{axis}", least)) for axis in names] for end, least in (("lower", 0), ("upper", 0), ("step", 1)))
    boxes = [_steps(extent, a, b, by) for extent, a, b, by in zip(space, low, high, steps, strict=True)]
    one = view.buffer.shape[1] == channels
    for taps in product(range(1, 2 if one else MOST_TAPS + 1), repeat=len(space) - 1):
        places: list[n.Expr] = []
        offsets: list[n.Expr] = []
        step: n.Expr = build.const(1, of)
        reach = channels
        for k in reversed(range(len(space))):
            inner = pixel if build.is_const(step, 1) else build.floordiv(pixel, step)
            places.insert(0, build.add(build.mul(build.mod(inner, boxes[k]), steps[k]), low[k]))
            turned = build.floordiv(tap, reach)
            offsets.insert(0, build.const(0, of) if one else turned if k == 0 else build.mod(turned, taps[k - 1]))
            step = boxes[k] if build.is_const(step, 1) else build.mul(step, boxes[k])
            reach = build.mul(reach, taps[k - 1]) if k else reach
        yield (build.floordiv(pixel, step), *places, tap if one else build.mod(tap, channels)), tuple(offsets)


def _steps(extent: n.Expr, low: int, high: int, by: int) -> n.Expr:
    """Places of a bounding box along a dimension."""
    reach = build.add(extent, high - low)
    return reach if by == 1 else build.ceildiv(reach, by)


def _less(view: n.View, offsets: tuple[n.Expr, ...]) -> tuple[n.Expr, ...]:
    """The place of a view's element less the offsets of its tap: the coordinates that a map shows, where the view is what it shows."""
    index = [i for i in view.at.index if isinstance(i, n.Expr)]
    return (index[0], *(build.sub(e, by) for e, by in zip(index[1:-1], offsets, strict=True)), index[-1]) if len(index) == len(offsets) + 2 else ()


def pixels(view: n.View) -> n.Attrs | None:
    """What an im2col map says to show a view of pixels by taps and channels, its corners and steps; None for a view that none shows."""
    if not is_pixels(view) or len(view.at.index) != len(view.at.buffer.shape):
        return None
    said: dict[str, n.Attr] = {"mode": "im2col"}
    space = view.at.buffer.shape[1:-1]
    for axis, extent, e in zip(AXES[-len(space):], space, view.at.index[1:-1], strict=True):
        found = _side(view, extent, e) if isinstance(e, n.Expr) else None
        if found is None:
            return None
        low, high, by = found
        said |= {f"lower_{axis}": low} if low else {}
        said |= {f"upper_{axis}": high} if high else {}
        said |= {f"step_{axis}": by} if by != 1 else {}
    attrs = n.attrs(**said)
    return attrs if shown(view, attrs) is not None else None


def _side(view: n.View, extent: n.Expr, e: n.Expr) -> tuple[int, int, int] | None:
    """Corners and step along one dimension, from the places of a view there."""
    terms = build.polynomial(e)
    low = terms.get((), 0)
    for atoms, by in terms.items():
        turn = atoms[0] if len(atoms) == 1 else None
        if isinstance(turn, n.Binary) and turn.op == "mod" and view.axes[0] in names_read(turn) and 1 <= by <= 8:
            for high in sorted(range(-FARTHEST, FARTHEST + 1), key=lambda x: abs(x - low)):
                if _steps(extent, low, high, by) == turn.b:
                    return low, high, by
    return None


def shown_view(program: n.Program, name: str) -> n.View | None:
    """The view of global memory of that name, of a tensor or workspace of the program, in whichever kernel; None where there is none."""
    tensors = {p.name for p in program.params if isinstance(p.of, n.Buffer)} | {w.buffer.name for w in program.workspaces}
    found = (view_of(k, name) for k in program.kernels)
    return next((v for v in found if v is not None and v.at.buffer.name in tensors), None)


__all__ = ["AXES", "Said", "ends_joined", "is_pixels", "joined", "joined_shape", "may_show", "pixels", "shown", "shown_view", "view_of"]
