"""Copies by tensor maps that show a tensor otherwise than it is: its first dimensions as one, or pixels by filter taps and channels (im2col).

In im2col mode the tensor memory accelerator goes over pixels of a bounding box (a corner cut from each side of the image), image after image,
and adds an offset to each that is the same for all (CUDA driver API, cuTensorMapEncodeIm2col; PTX ISA, "Im2col mode"). A view that says the
same of the tensor is written as coordinates and offsets; any other is refused.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from kir.analysis.clipping import hangs_over, ranges_of, within_parts
from kir.analysis.tiles.mapped_views import ends_joined, is_pixels, joined, may_show, shown, view_of
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.ir.types import dtype_of
from kir.ir.visit import names_read, regions, statements, substitute, walk

from ..expressions.expressions import Expressions
from ..spelling.literals import c_type, refuse


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
    im2col, ends = dict(found.attrs).get("mode", "tiled") == "im2col", ends_joined(found.attrs)
    at = [i.lo if isinstance(i, n.Span) else i for i in far.index] or [build.const(0, dtype_of(d.type)) for d in far.buffer.shape]
    if far.buffer.name == found.of and ends == (1, 1) and not im2col:
        return at, []
    view = view_of(around(program, s), far.buffer.name)
    if view is None or view.at.buffer.name != found.of:
        raise refuse("KIR-B002", f"map '{found.name}' is of '{found.of}', and the copy is of '{far.buffer.name}'", f"a view of '{found.of}'")
    if im2col:
        return _pixels(to, program, around(program, s), view, far, found, at)
    same = joined(view)
    if same is None or ends_joined(same) != ends:
        raise refuse("KIR-B002", f"map '{found.name}' makes one dimension of the first {ends[0]} of '{found.of}' and one of the last {ends[1]}, and "
                     f"'{view.buffer.name}' does not", "a view of the whole tensor with those dimensions as one")
    return at, []


def _pixels(
    to: Expressions, program: n.Program, kernel: n.Kernel, view: n.View, far: n.Region, found: n.TensorMap, at: list[n.Expr]
) -> tuple[list[n.Expr], list[n.Expr]]:
    """Coordinates and offsets of a box of pixels by channels."""
    name, channels = view.buffer.name, view.at.buffer.shape[-1]
    if not is_pixels(view) or len(at) != 2:
        raise refuse("KIR-B002", f"the view '{name}' is none of pixels by taps and channels", "two axes, and zeros outside")
    said = shown(view, found.attrs)
    if said is None:
        raise refuse("KIR-B002", f"the view '{name}' is not what the im2col map '{found.name}' shows", _wanted(view, found))
    spans = [i for i in far.index if isinstance(i, n.Span)]
    if len(spans) != 2 or [i.extent for i in spans] != list(found.box):
        raise refuse("KIR-B002", f"the copy takes another box of '{name}' than map '{found.name}'", f"{found.box[0]} pixels of {found.box[1]} channels")
    if not (to.facts.divides(found.box[1], at[1]) and to.facts.divides(found.box[1], channels)):
        raise refuse("KIR-B002", f"{found.box[1]} channels of '{name}' may belong to two taps", f"a fact that {found.box[1]} divides the channels")
    ranges = {variable: to.facts.expanded(end) for variable, end in ranges_of(kernel).items()}
    if hangs_over(n.Region(far.buffer, (build.const(0), spans[1])), ranges, program.facts) and not within_parts(
            to.facts.expanded(spans[1].lo), found.box[1], far.buffer.shape[1], ranges, program.facts):
        raise refuse("KIR-B002", f"the copy may take taps of '{name}' that there are not", "a loop over whole boxes of taps and channels")
    coordinates, offsets = said
    values = {view.axes[0]: at[0], view.axes[1]: at[1]}
    return [substitute(e, values) for e in coordinates], [substitute(e, values) for e in offsets]


@dataclass(frozen=True)
class Counted:
    """Places of a loop's gathers as variables: lines before the loop and at the end of its body, and coordinates and offsets by copy, outermost first.

    Divisions by extents stay out of the loop: a compiler moves none that may be by zero, and a producer is one thread."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    places: Mapping[n.Copy, tuple[tuple[str, ...], tuple[str, ...]]]


def counted(to: Expressions, program: n.Program, loop: n.For) -> Counted | None:
    """The places of gathers in the body of a loop that goes on by one box of channels; None where there are none, or they go on otherwise."""
    maps = {t.name: t for t in program.tensor_maps if dict(t.attrs).get("mode") == "im2col"}
    copies = [s for s in loop.body if isinstance(s, n.Copy) and dict(s.attrs).get("descriptor") in maps]
    if not copies or loop.kind != "serial" or not build.is_const(loop.step, 1) or any(isinstance(x, n.Jump) for x in walk(loop)):
        return None
    inside = {name for s in statements(loop.body) if isinstance(s, n.Let) for name in s.names} | {
        s.var.name for s in statements(loop.body) if isinstance(s, n.For)}
    before, after, places = list[str](), list[str](), {}
    for s in copies:
        found = maps[str(dict(s.attrs)["descriptor"])]
        try:
            coordinates, offsets = corner(to, program, s, s.src.at, found)
        except KirError:
            return None  # said where the copy is written
        view = view_of(around(program, s), s.src.at.buffer.name)
        of = [*coordinates, *offsets]
        if view is None or any(isinstance(x, n.Load) for e in of for x in walk(e)) or any(names_read(e) & inside for e in of):
            return None
        taps, channels = s.src.at.index[1], view.at.buffer.shape[-1]
        assert isinstance(taps, n.Span)
        moving = build.polynomial(taps.lo)
        if moving.get((loop.var,)) != found.box[1] or any(loop.var in m for m in moving if m != (loop.var,)) or any(
                loop.var.name in names_read(e) for e in coordinates[:-1]):
            return None
        named = [to.scalar(e) if e == taps.lo else _variable(to, e, loop, before) for e in of]
        if coordinates[-1] != taps.lo:
            radices = [to.scalar(channels), *(str(_radix(e)) for e in reversed(offsets[1:])), ""]
            after += _carried([named[len(coordinates) - 1], *reversed(named[len(coordinates):])], radices, found.box[1])
        places[s] = tuple(named[:len(coordinates)]), tuple(named[len(coordinates):])
    return Counted(tuple(before), tuple(after), places)


def _radix(e: n.Expr) -> int:
    """Taps along a dimension, from the offset of a tap there."""
    return (build.int_value(e.b) or 1) if isinstance(e, n.Binary) and e.op == "mod" else 1


def _variable(to: Expressions, e: n.Expr, loop: n.For, before: list[str]) -> str:
    """A variable with what an expression is as a loop begins; a literal as it is."""
    if isinstance(e, n.Const):
        return to.scalar(e)
    name = to.writer.fresh("at")
    moves = loop.var.name in names_read(e)
    before.append(f"{'' if moves else 'const '}{c_type(dtype_of(e.type))} {name} = {to.scalar(substitute(e, {loop.var.name: loop.lo}))};")
    return name


def _carried(digits: Sequence[str], radices: Sequence[str], by: int) -> list[str]:
    """Lines that add to the first digit and carry into those after it; a literal digit is always 0."""
    first, *more = digits
    out = [f"{first} += {by};" if by != 1 else f"++{first};"]
    if more:
        rest = [(d, r) for d, r in zip(more, radices[1:], strict=True) if d.isidentifier()]
        inner = _carried([d for d, _ in rest], [r for _, r in rest], 1) if rest else []
        out += [f"if ({first} == {radices[0]}) {{", f"  {first} = 0;", *(f"  {line}" for line in inner), "}"]
    return out


def _wanted(view: n.View, m: n.TensorMap) -> str:
    """The place that the map would show, for a filter of three taps a dimension."""
    may = list(may_show(view, m.attrs))
    coordinates, offsets = next((x for x in may if any("% 3" in expr_text(o) for o in x[1])), may[0])
    moved = [coordinates[0], *(build.add(a, b) for a, b in zip(coordinates[1:-1], offsets, strict=True)), coordinates[-1]]
    return f"an element [{', '.join(map(expr_text, moved))}] of '{m.of}'"
