"""Local buffers of a kernel: where they are declared, how wide they are accessed, and whether every access goes through their name."""
from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace

from kir.analysis.facts import Facts
from kir.analysis.order import at_most
from kir.analysis.target.warpgroup import DESCRIBED
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.printer import region_text
from kir.ir.types import DType, Space, TileType
from kir.ir.visit import blocks_of, buffers_named, children, statements, substitute_buffers, walk
from kir.rewrite.base import Path, Site
from kir.rewrite.edit import enclosing, kernel_of, node_at, replace_kernel
from kir.rewrite.match.cursor import node_as
from kir.rewrite.precondition import Verdict, proved, refuted
from kir.rewrite.verdict import Context

MATRIX_ROW = 16
"""Bytes of a row of the 8 x 8 matrices of b16 that ldmatrix and stmatrix move (PTX ISA, ldmatrix)."""


@dataclass(frozen=True)
class Transfer:
    """An access that moves `bytes` neighboring bytes at once, at a statement."""

    stmt: n.Stmt
    at: n.Region
    bytes: int


def sizes(b: n.Buffer) -> tuple[int, ...] | None:
    """The extents of a buffer, when all are literals."""
    found = tuple(int_value(d) for d in b.shape)
    return tuple(d for d in found if d is not None) if None not in found else None


def byte_count(b: n.Buffer) -> int | None:
    """Bytes of a dense buffer with literal extents."""
    shape = sizes(b)
    return None if shape is None else math.prod(shape) * b.dtype.bytes


def width_of(s: n.Copy) -> int:
    """Elements that a copy moves at once: n of `vector(n)`, the attr `vector` of an asynchronous one, else 1."""
    found = re.fullmatch(r"vector\((\d+)\)", s.via)
    if found:
        return int(found[1])
    given = dict(s.attrs).get("vector", 1)
    return given if isinstance(given, int) else 1


def kind_of_copy(s: n.Copy) -> str:
    """`plain`, `vector`, `cp_async`, .."""
    return s.via.partition("(")[0]


def mentions(node: n.Node, name: str) -> bool:
    """Whether a buffer of that name is read, written or declared below a node."""
    return name in buffers_named(node)


def transfers(kernel: n.Kernel, name: str) -> Iterator[Transfer]:
    """Accesses of a buffer that move several neighboring bytes at once."""
    for s in statements(kernel.body):
        match s:
            case n.Copy():
                for r in (s.src.at, s.dst):
                    if r.buffer.name == name:
                        width = MATRIX_ROW if s.via in ("ldmatrix", "stmatrix") else width_of(s) * r.buffer.dtype.bytes
                        if width > r.buffer.dtype.bytes:
                            yield Transfer(s, r, width)
            case n.Eval() | n.Let():
                value = s.call if isinstance(s, n.Eval) else s.value
                for x in walk(value):
                    if isinstance(x, n.Call) and x.fn in ("ldmatrix", "stmatrix"):
                        for place in x.args:
                            if isinstance(place, n.Region) and place.buffer.name == name:
                                yield Transfer(s, place, MATRIX_ROW)
            case _:
                pass


def at_once(kernel: n.Kernel, name: str) -> Iterator[Transfer]:
    """Those, and accesses of a thread to 2, 4, 8 or 16 neighbors, 16 bytes at most: one access each, as a copy of so many is."""
    yield from transfers(kernel, name)
    for s in _by_threads(kernel.body, False):
        for x in (y for part in children(s) if not isinstance(part, n.Stmt) for y in walk(part)):
            if isinstance(x, n.Region) and x.buffer.name == name and x.index and isinstance(last := x.index[-1], n.Span):
                count = int_value(last.extent)
                if count in (2, 4, 8, 16) and count * x.buffer.dtype.bytes <= MATRIX_ROW:
                    yield Transfer(s, x, count * x.buffer.dtype.bytes)


def _by_threads(block: n.Block, inside: bool) -> Iterator[n.Stmt]:
    """Statements that single threads execute."""
    for s in block:
        if inside:
            yield s
        for body in blocks_of(s):
            yield from _by_threads(body, inside or (isinstance(s, n.For) and s.kind == "thread"))


def goes_through_its_name(kernel: n.Kernel, name: str) -> Verdict:
    """Whether a change of the buffer's layout reaches every access: none takes its address, reinterprets its bytes, is made by a
    unit with a layout of its own (TMA, bulk copies, wgmma), or is text that was not understood."""
    seen = {name} | {s.buffer.name for s in statements(kernel.body) if isinstance(s, n.View) and s.at.buffer.name == name}
    for s in statements(kernel.body):
        match s:
            case n.View() if s.at.buffer.name == name and not s.axes:
                return refuted(f"the view '{s.buffer.name}' reads the bytes of '{name}' in their order", region_text(s.at),
                               needs=f"accesses to '{name}' by its own name")
            case n.Copy() if s.via in ("tma", "bulk") and name in (s.src.at.buffer.name, s.dst.buffer.name):
                return refuted(f"a copy via {s.via} has a layout of its own for '{name}'", s.label or region_text(s.dst),
                               needs="a copy by the threads")
            case n.Mma() if s.via in DESCRIBED and any(mentions(e, x) for e in (s.a, s.b) for x in seen):
                return refuted(f"wgmma reads '{name}' through a descriptor of its layout", s.label or "mma",
                               needs="a descriptor that is changed with the layout")
            case n.Opaque() if "*" in s.reads + s.writes or name in s.reads + s.writes:
                return refuted(f"opaque text may touch '{name}'", s.text.splitlines()[0] if s.text else "")
            case _:
                pass
        if name in buffers_named(s) and any(isinstance(x, n.Address) and x.at.buffer.name == name for e in own_parts(s) for x in walk(e)):
            return refuted(f"the address of '{name}' is taken", s.label or "", needs=f"accesses to '{name}' by its own name")
    return proved("every access goes through the buffer's name, and so through its layout")


def adopts_layout(program: n.Program, site: Site, context: Context) -> Verdict:
    """A precondition: a change of the layout of the array that is declared at a site reaches every access."""
    return goes_through_its_name(kernel_of(program, site.path), node_as(program, site.path, n.Alloc).buffer.name)


def own_parts(s: n.Stmt) -> Iterator[n.Node]:
    """The expressions and places of a statement, without its blocks."""
    for name in s.compared_fields:
        if name not in ("body", "then", "orelse", "roles"):
            value = getattr(s, name)
            yield from (x for x in (value if isinstance(value, tuple) else (value,)) if isinstance(x, n.Node))


def is_left(b: n.Buffer) -> bool:
    """Whether the compiler of a surface lays a buffer out."""
    return b.layout is not None and b.layout.name == "auto"


def redeclared(program: n.Program, path: Path, buffer: n.Buffer) -> n.Program:
    """`program` with the buffer of that name, in the kernel of `path`, replaced wherever it is mentioned."""
    kernel = kernel_of(program, path)
    made: n.Kernel = substitute_buffers(kernel, {buffer.name: buffer})
    return replace_kernel(program, kernel.name, made)


def declared(program: n.Program, path: Path, name: str) -> n.Alloc | None:
    """The declaration of a local buffer in the kernel of `path`."""
    return next((s for s in statements(kernel_of(program, path).body) if isinstance(s, n.Alloc) and s.buffer.name == name), None)


def team_level(program: n.Program, path: Path) -> str:
    """Which team executes the statement at `path`: `cta`, `role`, `warpgroup`, `warp` or `thread`."""
    level = "cta"
    for _, s in enclosing(program, path):
        if isinstance(s, n.For) and s.kind in ("warpgroup", "warp", "thread"):
            level = s.kind
        elif isinstance(s, n.Roles):
            level = "role"
    return level


def team_threads(program: n.Program, path: Path) -> int | None:
    """Threads of the team that executes the statement at `path`; None where that is not known."""
    threads = int_value(kernel_of(program, path).threads)
    rest = list(path)
    for inner, s in enclosing(program, path):
        if isinstance(s, n.For) and s.kind in ("warpgroup", "warp", "thread"):
            threads = {"warpgroup": 128, "warp": 32, "thread": 1}[s.kind]
        elif isinstance(s, n.Roles):
            role = s.roles[int(rest[len(inner) + 1])]
            threads = 32 * (role.hi - role.lo)
    return threads


def whole(b: n.Buffer, to: n.Region | None = None) -> n.Load:
    """A read of a whole buffer."""
    return n.Load(n.Region(b) if to is None else to)


def tile_of(e: n.Expr) -> tuple[int, ...] | None:
    """The shape of a tile with literal extents."""
    if not isinstance(e.type, TileType) or not all(isinstance(d, int) for d in e.type.shape):
        return None
    return tuple(d for d in e.type.shape if isinstance(d, int))


def dense(b: n.Buffer) -> n.Buffer:
    """The buffer without a layout, strides or alignment of its own."""
    return replace(b, layout=None, strides=None, align=0)


def moved_to(program: n.Program, path: Path, space: Space, align: int = 0) -> n.Program:
    """The program with the memory that the statement at `path` declares in another space, at a multiple of `align` bytes."""
    node, kernel = node_at(program, path), kernel_of(program, path)
    assert isinstance(node, n.Alloc)
    return replace_kernel(program, kernel.name, substitute_buffers(kernel, {node.buffer.name: replace(node.buffer, space=space, align=align)}))


def lies_inside(r: n.Region, known: Facts) -> bool:
    """Whether a box of a tensor is proved to lie inside it."""
    for i, extent in zip(r.index, r.buffer.shape, strict=True):
        lo, count = (i.lo, i.extent) if isinstance(i, n.Span) else (i, 1)
        if not isinstance(lo.type, DType) or lo.type != extent.type or (isinstance(count, n.Expr) and count.type != lo.type):
            return False
        size = count if isinstance(count, n.Expr) else build.const(count, lo.type)
        if not (at_most(build.add(lo, size), extent, known) and at_most(build.const(0, lo.type), lo, known)):
            return False
    return True
