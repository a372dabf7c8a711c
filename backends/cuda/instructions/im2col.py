"""Copies by tensor maps that show a tensor otherwise than it is: its first dimensions as one, or pixels by filter taps and channels (im2col).

In im2col mode the tensor memory accelerator goes over pixels of a bounding box (a corner cut from each side of the image), image after image,
and adds an offset to each that is the same for all (CUDA driver API, cuTensorMapEncodeIm2col; PTX ISA, "Im2col mode"). A view that says the
same of the tensor is written as coordinates and offsets; any other is refused.
"""
from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from kir.analysis.clipping import hangs_over, ranges_of
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.ir.types import DType, dtype_of
from kir.ir.visit import regions, statements, substitute

from ..expressions.expressions import Expressions
from ..spelling.literals import refuse

AXES = ("d", "h", "w")
MOST_TAPS = 16
"""Taps of a filter along one dimension that are looked for."""


def shown_by(view: n.View, program: n.Program) -> bool:
    """Whether a view of global memory is used by copies through tensor maps alone, which take no address of it."""
    kernel = next(k for k in program.kernels if any(x is view or x == view for x in statements(k.body)))
    through = sum(r.buffer == view.buffer for s in statements(kernel.body) if isinstance(s, n.Copy) and s.via == "tma" for r in regions(s))
    return view.buffer.space == "global" and through == sum(r.buffer == view.buffer for s in kernel.body for r in regions(s))


def around(program: n.Program, s: n.Copy) -> n.Kernel:
    """The kernel that a copy stands in."""
    return next(k for k in program.kernels if any(x is s or x == s for x in statements(k.body)))


def corner(to: Expressions, program: n.Program, s: n.Copy, far: n.Region, found: n.TensorMap) -> tuple[list[n.Expr], list[n.Expr]]:
    """Coordinates of a copy's box in the map's dimensions, outermost first, and the offsets of an im2col map. Raises KirError KIR-B002 for a
    region that the map does not show."""
    options = dict(found.attrs)
    merged, im2col = int(options.get("merge", 1)), options.get("mode", "tiled") == "im2col"
    at = [i.lo if isinstance(i, n.Span) else i for i in far.index] or [build.const(0, dtype_of(d.type)) for d in far.buffer.shape]
    if far.buffer.name == found.of and merged == 1 and not im2col:
        return at, []
    kernel = around(program, s)
    view = next((x for x in statements(kernel.body) if isinstance(x, n.View) and x.buffer.name == far.buffer.name), None)
    if view is None or view.at.buffer.name != found.of:
        raise refuse("KIR-B002", f"map '{found.name}' is of '{found.of}', and the copy is of '{far.buffer.name}'", f"a view of '{found.of}'")
    if im2col:
        return _pixels(to, kernel, view, far, found, at)
    shape = view.at.buffer.shape
    first = shape[0]
    for d in shape[1:merged]:
        first = build.mul(first, d)
    if view.axes or view.at.index or view.at.buffer.strides is not None or view.buffer.shape != (first, *shape[merged:]):
        raise refuse("KIR-B002", f"map '{found.name}' makes one dimension of the first {merged} of '{found.of}', and '{view.buffer.name}' does not",
                     "a view of the whole tensor with those dimensions as one")
    return at, []


def _pixels(to: Expressions, kernel: n.Kernel, view: n.View, far: n.Region, found: n.TensorMap, at: list[n.Expr]) -> tuple[list[n.Expr], list[n.Expr]]:
    """Coordinates and offsets of a box of pixels by channels."""
    name, channels = view.buffer.name, view.at.buffer.shape[-1]
    if len(view.axes) != 2 or len(at) != 2 or not 3 <= len(view.at.buffer.shape) <= 5 or view.fill != build.const(0, view.buffer.dtype):
        raise refuse("KIR-B002", f"the view '{name}' is none of pixels by taps and channels", "two axes, and zeros outside")
    said = next((made for made in _im2col(view, found) if made[0] == _less(view, made[1])), None)
    if said is None:
        raise refuse("KIR-B002", f"the view '{name}' is not what the im2col map '{found.name}' shows", _wanted(view, found))
    spans = [i for i in far.index if isinstance(i, n.Span)]
    if len(spans) != 2 or [i.extent for i in spans] != list(found.box):
        raise refuse("KIR-B002", f"the copy takes another box of '{name}' than map '{found.name}'", f"{found.box[0]} pixels of {found.box[1]} channels")
    if not (to.facts.divides(found.box[1], at[1]) and to.facts.divides(found.box[1], channels)):
        raise refuse("KIR-B002", f"{found.box[1]} channels of '{name}' may belong to two taps", f"a fact that {found.box[1]} divides the channels")
    ranges = {variable: to.facts.expanded(end) for variable, end in ranges_of(kernel).items()}
    if hangs_over(n.Region(far.buffer, (build.const(0), spans[1])), ranges, ()):
        raise refuse("KIR-B002", f"the copy may take taps of '{name}' that there are not", "a loop over whole boxes of taps and channels")
    coordinates, offsets = said
    values = {view.axes[0]: at[0], view.axes[1]: at[1]}
    return [substitute(e, values) for e in coordinates], [substitute(e, values) for e in offsets]


Said = tuple[tuple[n.Expr, ...], tuple[n.Expr, ...]]
"""Coordinates of a pixel (image, place in the bounding box, channel) and offsets of a tap, over the axes of a view."""


def _im2col(view: n.View, m: n.TensorMap) -> Iterator[Said]:
    """What a map can show, by the taps of the filter along all dimensions but the first."""
    _, *space, channels = view.at.buffer.shape
    of = view.buffer.shape[0].type
    assert isinstance(of, DType)
    pixel, tap = (build.var(axis, of) for axis in view.axes)
    options, names = dict(m.attrs), AXES[-len(space):]
    low, high = ([int(options.get(f"{end}_{axis}", 0)) for axis in names] for end in ("lower", "upper"))
    boxes = [build.add(extent, b - a) for extent, a, b in zip(space, low, high, strict=True)]
    for taps in product(range(1, MOST_TAPS + 1), repeat=len(space) - 1):
        places: list[n.Expr] = []
        offsets: list[n.Expr] = []
        step: n.Expr = build.const(1, of)
        reach = channels
        for k in reversed(range(len(space))):
            inner = pixel if build.is_const(step, 1) else build.floordiv(pixel, step)
            places.insert(0, build.add(build.mod(inner, boxes[k]), low[k]))
            turned = build.floordiv(tap, reach)
            offsets.insert(0, turned if k == 0 else build.mod(turned, taps[k - 1]))
            step = boxes[k] if build.is_const(step, 1) else build.mul(step, boxes[k])
            reach = build.mul(reach, taps[k - 1]) if k else reach
        yield (build.floordiv(pixel, step), *places, build.mod(tap, channels)), tuple(offsets)


def _less(view: n.View, offsets: tuple[n.Expr, ...]) -> tuple[n.Expr, ...]:
    """The place of a view's element less the offsets of its tap: the coordinates that a map shows, where the view is what it shows."""
    index = [i for i in view.at.index if isinstance(i, n.Expr)]
    return (index[0], *(build.sub(e, by) for e, by in zip(index[1:-1], offsets, strict=True)), index[-1]) if len(index) == len(offsets) + 2 else ()


def _wanted(view: n.View, m: n.TensorMap) -> str:
    """The place that the map would show, for a filter of three taps a dimension."""
    shown = list(_im2col(view, m))
    coordinates, offsets = next((x for x in shown if any("% 3" in expr_text(o) for o in x[1])), shown[0])
    moved = [coordinates[0], *(build.add(a, b) for a, b in zip(coordinates[1:-1], offsets, strict=True)), coordinates[-1]]
    return f"an element [{', '.join(map(expr_text, moved))}] of '{m.of}'"
