"""Copies between global and shared memory as boxes of tensor maps: what `tma-load` and `tma-store` share.

The limits are those of cuTensorMapEncodeTiled (CUDA driver API, "Tensor Map Object Management"): a swizzle spans the rows of its box, and
the place in shared memory repeats with it.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import dropwhile, takewhile

from kir.analysis.tiles.mapped_views import joined, pixels, shown_view
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import shape_of
from kir.ir.visit import statements, walk
from kir.rewrite import Path, Verdict, proved, refuted
from kir.rewrite.edit import block_at, enclosing, node_at
from kir.rewrite.match import matched
from kir.rewrite.match.local_buffers import is_left, kind_of_copy

SPANS = {1: 32, 2: 64, 3: 128}
"""Bits of a swizzle of 16-byte atoms over rows of eight -> bytes that it spans."""


@cache
def wait_for_all() -> n.Eval:
    """A team's wait until all its groups of stores are done."""
    return n.Eval(build.call("bulk_wait", build.const(0)))


def is_staging(s: n.Stmt, loads: bool) -> bool:
    """Whether a statement is a synchronous copy by the threads from global to shared memory (`loads`), or back."""
    if not isinstance(s, n.Copy) or kind_of_copy(s) not in ("plain", "vector") or s.signal is not None or s.grouped or s.attrs:
        return False
    spaces = (s.src.at.buffer.space, s.dst.buffer.space)
    return spaces == (("global", "shared") if loads else ("shared", "global")) and s.mask is None and s.src.mask is None and not s.src.cache


def far_and_near(s: n.Copy) -> tuple[n.Region, n.Region]:
    """The place in global memory, and that in shared memory."""
    return (s.src.at, s.dst) if s.src.at.buffer.space == "global" else (s.dst, s.src.at)


def is_near(r: n.Region) -> bool:
    """Whether a place in shared memory is dense rows of its buffer: whole in its last dimension, and with no steps."""
    if not r.index:
        return True
    last, extent = r.index[-1], r.buffer.shape[-1]
    return isinstance(last, n.Span) and int_value(last.lo) == 0 and int_value(last.extent) == int_value(extent) and all(
        not isinstance(i, n.Span) or int_value(i.step) == 1 for i in r.index)


def swizzle_of(b: n.Buffer) -> int | None:
    """Bytes of the swizzle that a tensor map gives the buffer's bytes (0: none); None for a layout that no map has."""
    if b.strides is not None:
        return None
    if b.layout is None:
        return 0
    args = b.layout.args
    if b.layout.name != "swizzle" or len(args) != 3 or args[1:] != (4, 3) or not isinstance(args[0], int):
        return None
    return SPANS.get(args[0])


def map_for(program: n.Program, s: n.Copy) -> tuple[str, tuple[int, ...], n.Attrs] | None:
    """What the map of a copy is of, its box, and its options; None for a place in a view that no map shows."""
    far, near = far_and_near(s)
    of, box, shows = far.buffer.name, tuple(i.extent if isinstance(i, n.Span) and isinstance(i.extent, int) else 1 for i in far.index), {}
    if (view := shown_view(program, of)) is not None:
        attrs = joined(view)
        attrs = pixels(view) if attrs is None and s.src.at == far else attrs
        if attrs is None:
            return None
        of, shows = view.at.buffer.name, dict(attrs)
    swizzle = swizzle_of(near.buffer)
    return of, box, n.attrs(**shows, **({"swizzle": swizzle} if swizzle else {}))


def with_map(program: n.Program, s: n.Copy) -> tuple[n.Program, str]:
    """The program with a tensor map for a copy, one that it has already if that says the same; and its name."""
    of, box, attrs = matched(map_for(program, s))
    for t in program.tensor_maps:
        if (t.of, t.box, t.attrs) == (of, box, attrs):
            return program, t.name
    taken = {p.name for p in program.params} | {t.name for t in program.tensor_maps} | {w.buffer.name for w in program.workspaces}
    taken |= {x.name for k in program.kernels for x in walk(k) if isinstance(x, (n.Buffer, n.Var))} | {k.name for k in program.kernels}
    name, i = f"{of}_map", 1
    while name in taken:
        i += 1
        name = f"{of}_map_{i}"
    return replace(program, tensor_maps=(*program.tensor_maps, n.TensorMap(name, of, box, attrs))), name


def on_tensor(program: n.Program, r: n.Region) -> n.Region:
    """A place in the tensor that a view is of, with the view's spans in its last dimensions: what a map's limits are asked of."""
    view = shown_view(program, r.buffer.name)
    if view is None or joined(view) is not None:
        return r
    base = view.at.buffer
    return n.Region(base, (*(build.const(0) for _ in base.shape[len(r.index):]), *r.index))


def without_unused_maps(program: n.Program) -> n.Program:
    """The program without tensor maps that no copy and no prefetch names."""
    used = {dict(x.attrs).get("descriptor") for k in program.kernels for x in walk(k) if isinstance(x, (n.Copy, n.Call))}
    return replace(program, tensor_maps=tuple(t for t in program.tensor_maps if t.name in used))


def map_fits(s: n.Copy) -> Verdict:
    """Whether a map orders the bytes in shared memory as the buffer's layout does."""
    _, near = far_and_near(s)
    if is_left(near.buffer):
        return proved("how the box lies is left to the compiler of a surface, which makes the map too")
    b, swizzle = near.buffer, swizzle_of(near.buffer)
    if swizzle is None:
        return refuted(f"'{b.name}' has a layout that no tensor map has", "maps swizzle 16-byte atoms over rows of 32, 64 or 128 bytes",
                       needs="no layout, or swizzle(b, 4, 3) with b from 1 to 3")
    row = int(str(shape_of(s.dst.type)[-1])) * b.dtype.bytes
    whole = (int_value(b.shape[-1]) or 0) * b.dtype.bytes
    if swizzle and not row == whole == swizzle:
        return refuted(f"rows of '{b.name}' have {whole} bytes, of which the box is {row}, and the swizzle spans {swizzle}",
                       f"byte {min(row, swizzle)} of a row", needs="rows as long as the span, in panels")
    least = 8 * swizzle or 128
    if not b.align or b.align % least:
        return refuted(f"'{b.name}' is aligned to {b.align or b.dtype.bytes} bytes", f"a box begins at a multiple of {least}",
                       needs=f"align {least}")
    sides = [int_value(i.extent) for i in near.index if isinstance(i, n.Span)] or [int_value(d) for d in b.shape]
    size = b.dtype.bytes
    for d in sides:
        size *= d or 0
    if size % least:
        return refuted(f"a box of '{b.name}' has {size} bytes, so that the next is not aligned to {least}", f"byte {size}",
                       needs=f"a multiple of {least} bytes")
    return proved(f"the map swizzles '{b.name}' as its layout does" if swizzle else f"boxes lie dense in '{b.name}'")


def beginning_of_team(program: n.Program, path: Path) -> Path:
    """The path of the first statement of the block that the whole team of a statement executes once: its role, its loop over warpgroups, or
    the kernel."""
    out: Path = (path[0], 0)
    for p, s in enclosing(program, path):
        if isinstance(s, n.For) and s.kind in ("warpgroup", "warp", "thread"):
            out = (*p, "body", 0)
        elif isinstance(s, n.Roles):
            out = (*path[:len(p) + 3], 0)
    return out


def sends_before(program: n.Program, path: Path) -> bool:
    """Whether the team of a statement may have sent stores in groups before it, in an earlier iteration too, and not have waited for them yet."""
    team, here = beginning_of_team(program, path), node_at(program, path)
    loops = [s for p, s in enclosing(program, path) if len(p) >= len(team) and isinstance(s, n.For | n.While)]
    around = tuple(statements(loops[0].body)) if loops else ()
    return _left_in_flight(takewhile(lambda s: s is not here, statements(block_at(program, team)))) or _left_in_flight(
        (*dropwhile(lambda s: s is not here, around), *takewhile(lambda s: s is not here, around)))


def _left_in_flight(run: Iterable[n.Stmt]) -> bool:
    sent = False
    for s in run:
        if isinstance(s, n.Copy) and s.grouped and s.dst.buffer.space == "global":
            sent = True
        elif s == wait_for_all():
            sent = False
    return sent
