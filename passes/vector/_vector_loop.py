"""Loops over neighboring elements as statements on vectors of a thread, and back: the core of the passes that make accesses and arithmetic
wide.

`for v in 0..n: let x = e(v); A[.., i + v] = f(x, v)` is, element by element, `let x = e; A[.., i +: n] = f(x)` over vectors of n.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from kir.analysis import Aliases, Facts
from kir.analysis.access import may_overlap
from kir.analysis.elements import NotElementwise, element, element_region, tile, tile_region
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import TileType, shape_of
from kir.ir.visit import names_read, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import enclosing
from kir.rewrite.match import block_and_index, edited, fresh_at, from_zero, matched, matched_as, node_as, sibling, splice
from kir.rewrite.match.materialize import is_pure

MOST = 16
"""Elements of a vector."""
Kind = Callable[[set[str]], bool]


@dataclass(frozen=True)
class VectorLoop(Pass):
    """What the passes share; `admits` says, by the spaces that the statements touch, which of them a loop belongs to."""

    def admits(self, read: set[str], written: str) -> bool:
        """Whether a loop that reads and writes these spaces is this pass's."""
        raise TypeError(self.name)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over 0..n, n a power of two, of values and one store at neighboring places."""
        if not isinstance(node, n.For) or node.kind not in ("serial", "unroll") or not _in_threads(program, path):
            return None
        count = build.int_value(node.hi)
        if count is None or not from_zero(node) or count not in (2, 4, 8, 16):
            return None
        if node.kind != "unroll" or dict(node.attrs) != {"factor": count}:
            return None
        spaces = spaces_of(node.body)
        if spaces is None or not self.admits(*spaces):
            return None
        try:
            widened(node)
        except NotElementwise as bad:
            return Miss(f"its elements are no neighbors, or no expression of them ({bad})")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Statements on vectors."""
        loop, i = node_as(program, site.path, n.For), int(site.path[-1])
        made = widened(loop)
        at = (*site.path[:-1], i + len(made) - 1)
        hints = {site.path: (at,), **{(*site.path, "body", k): (sibling(site.path, k),) for k in range(len(made))}}
        return Rewritten(splice(program, site.path, made), at, hints)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a store of a vector, with the vectors just before it that only it needs."""
        if not isinstance(node, n.Store) or not _in_threads(program, path) or node.mask is not None or node.clip:
            return None
        shape = shape_of(node.at.type)
        if len(shape) != 1 or shape[0] not in (2, 4, 8, 16):
            return None
        block, i = block_and_index(program, path)
        start = i
        while start and _belongs(block, start - 1, i, int(str(shape[0]))):
            start -= 1
        spaces = spaces_of(block[start:i + 1])
        if spaces is None or not self.admits(*spaces):
            return None
        try:
            narrowed(block[start:i + 1], int(str(shape[0])), "v")
        except NotElementwise as bad:
            return Miss(f"a vector that is no expression of its elements ({bad})")
        return Site(path, self, {"start": start})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The loop over elements."""
        (block, i), start = block_and_index(program, site.path), int(site.captures["start"])
        store = matched_as(block[i], n.Store)
        var = fresh_at(program, site.path, "v")
        made = narrowed(block[start:i + 1], int(str(shape_of(store.at.type)[0])), var)
        return edited(program, site.path, (made,), start - i, at=start - i)


def _in_threads(program: n.Program, path: Path) -> bool:
    return any(isinstance(s, n.For) and s.kind == "thread" for _, s in enclosing(program, path))


def spaces_of(block: n.Block) -> tuple[set[str], str] | None:
    """The spaces that values and one store read and write; None for other statements."""
    *lets, store = block
    if not isinstance(store, n.Store) or store.mask is not None or store.clip or not is_pure(store.value):
        return None
    if not all(isinstance(s, n.Let) and len(s.names) == 1 and is_pure(s.value) for s in lets):
        return None
    read = {x.at.buffer.space for s in block for x in walk(s) if isinstance(x, n.Load)}
    return set(map(str, read)), str(store.at.buffer.space)


def widened(loop: n.For) -> tuple[n.Stmt, ...]:
    """The loop's statements over vectors. Raises NotElementwise where a place is no run of neighbors."""
    count = matched(build.int_value(loop.hi))
    axes = [(loop.var, count)]
    vectors: dict[str, n.Expr] = {}
    out: list[n.Stmt] = []

    def wide(e: n.Expr) -> n.Expr:
        made: n.Expr = tile(substitute(e, vectors), axes) if vectors else tile(e, axes)
        return made
    for s in loop.body:
        if isinstance(s, n.Let):
            value = wide(s.value)
            neighbors(value)
            out.append(replace(s, value=value))
            vectors[s.names[0]] = build.call("pick", n.Var(s.names[0], value.type), loop.var)
            continue
        assert isinstance(s, n.Store)
        if loop.var.name not in names_read(s.at):
            raise NotElementwise("every iteration writes the same place")
        place = tile_region(s.at, axes)
        if place is None or not isinstance(place[0].index[-1] if place[0].index else n.Span(build.const(0), 1), n.Span):
            raise NotElementwise("the place of the store")
        value = wide(s.value)
        neighbors(value)
        out.append(replace(s, at=place[0], value=value, label=loop.label or s.label))
    return tuple(out)


def neighbors(e: n.Expr) -> None:
    """Raises NotElementwise for a vector that is gathered, or strided, from memory."""
    for x in walk(e):
        if isinstance(x, n.Load) and shape_of(x.type):
            last = x.at.index[-1] if x.at.index else None
            if last is not None and not (isinstance(last, n.Span) and last.step == 1):
                raise NotElementwise(f"a read of '{x.at.buffer.name}' that is no run")
        if isinstance(x, n.Call) and x.fn in ("trans", "reshape"):
            raise NotElementwise(x.fn)


def narrowed(block: n.Block, count: int, var: str) -> n.For:
    """A loop over the elements of vectors. Raises NotElementwise."""
    at = n.Var(var, build.const(0).dtype)
    scalars: dict[str, n.Expr] = {}
    body: list[n.Stmt] = []

    def one(e: n.Expr) -> n.Expr:
        return element(e, [at], None) if shape_of(e.type) else e

    def settled(e: n.Expr) -> n.Expr:
        """Elements of vectors that the block itself computes, by their new names."""

        def leave(_: n.Node, x: n.Node) -> n.Node:
            if isinstance(x, n.Call) and x.fn == "pick" and isinstance(x.args[0], n.Var) and x.args[0].name in scalars and x.args[1] == at:
                return scalars[x.args[0].name]
            return x
        made: n.Expr = transform(e, leave)
        return made
    for s in block:
        if isinstance(s, n.Let):
            value = settled(one(s.value))
            body.append(replace(s, value=value))
            scalars[s.names[0]] = n.Var(s.names[0], value.type)
        else:
            assert isinstance(s, n.Store)
            body.append(replace(s, at=element_region(s.at, [at]), value=settled(one(s.value)), label=None))
    last = block[-1]
    return n.For(at, build.const(0), build.const(count), build.const(1), tuple(body), "unroll", n.attrs(factor=count), label=last.label,
                 origin=last.origin)


def _belongs(block: n.Block, k: int, store: int, count: int) -> bool:
    """Whether statement `k` is a vector of that length that only the store and the vectors before it need."""
    s = block[k]
    if not (isinstance(s, n.Let) and len(s.names) == 1 and is_pure(s.value) and isinstance(s.value.type, TileType)
            and s.value.type.shape == (count,)):
        return False
    users = [j for j in range(k + 1, len(block)) if set(s.names) & names_read(block[j])]
    return bool(users) and all(j <= store for j in users)


def one_owner(program: n.Program, site: Site, context: Context) -> Verdict:
    """Whether no element that the loop reads is one that another iteration writes."""
    loop = node_as(program, site.path, n.For)
    store, known, aliases = matched_as(loop.body[-1], n.Store), Facts.at(program, site.path), Aliases(program)
    other = n.Var(f"%{loop.var.name}", loop.var.of)
    inside = known.ranging(loop.var, loop.lo, loop.hi, loop.step)
    for x in walk(loop):
        if isinstance(x, n.Load) and aliases.may_be_one(x.at.buffer.name, store.at.buffer.name):
            if x.at == store.at:
                continue
            later = inside.ranging(other, build.add(loop.var, 1), loop.hi, loop.step)
            moved: Any = substitute(x.at, {loop.var.name: other})
            if x.at.buffer.name != store.at.buffer.name or may_overlap(store.at, moved, later):
                return refuted(f"an iteration reads '{x.at.buffer.name}' where an earlier one may have written",
                               "all elements of a vector are read before any is written", needs="places of its own for each iteration")
    return proved("every iteration reads before it writes, and only what no other one writes")


def regions_of(loop: n.For, space: str) -> Iterator[n.Region]:
    """The places in a space that a loop touches, each of one element."""
    for x in walk(loop):
        if isinstance(x, n.Load) and x.at.buffer.space == space:
            yield x.at
        if isinstance(x, n.Store) and x.at.buffer.space == space:
            yield x.at


def aligned(program: n.Program, site: Site, space: str) -> Verdict:
    """Whether the first element of each place in a space lies at a multiple of the vector's bytes, up to 16."""
    loop = node_as(program, site.path, n.For)
    count, known = build.int_value(loop.hi) or 1, Facts.at(program, site.path)
    for r in regions_of(loop, space):
        size = r.buffer.dtype.bytes
        width = min(16, count * size)
        if 0 < r.buffer.align < width:
            return refuted(f"'{r.buffer.name}' is aligned to {r.buffer.align} bytes", f"the vector at byte {r.buffer.align}", needs=f"align {width}")
        if loop.var.name not in names_read(r):
            continue
        offset = offset_of(r)
        if offset is None:
            return unknown(f"the place in '{r.buffer.name}' is no sum of indices of one width")
        first: Any = substitute(offset, {loop.var.name: build.const(0)})
        if not known.divides(width // size, first):
            found = known.domain(known.expanded(first))
            off = found.value is not None and found.value % (width // size)
            text = f"vectors of {width} bytes in '{r.buffer.name}' are not known to be aligned"
            if off or (found.modulus and found.modulus % (width // size) == 0 and found.residue % (width // size)):
                return refuted(text, f"a vector starts at element {found}", needs=f"a multiple of {width // size}")
            return unknown(text, needs=f"a place that is a multiple of {width // size}")
    return proved("every vector starts at a multiple of its width")


def offset_of(r: n.Region) -> n.Expr | None:
    """A region's offset in elements from the start of its buffer; None where it is no single element of a dense one."""
    out: n.Expr | None = None
    step: n.Expr = build.const(1)
    strides: list[n.Expr] = []
    for d in reversed(r.buffer.shape):
        strides.insert(0, step)
        if d.type != step.type:
            return None
        step = build.mul(step, d)
    for i, s in zip(r.index, r.buffer.strides or tuple(strides), strict=True):
        if not isinstance(i, n.Expr) or i.type != s.type:
            return None
        out = build.mul(i, s) if out is None else build.add(out, build.mul(i, s))
    return out
