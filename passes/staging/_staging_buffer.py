"""Reading a tile through a buffer of the CTA or of a warp, instead of where it is: the core of several passes."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from kir.analysis import Aliases
from kir.base.dataclass import dataclass
from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.printer import expr_text
from kir.ir.types import DType, dtype_of
from kir.ir.visit import names_read, once, statements, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import block_at, fresh, kernel_of, names_in
from kir.rewrite.match import block_and_index, loads_of, matched, node_as, params_as, regions_of
from kir.rewrite.match.local_buffers import mentions, own_parts, team_level, tile_of
from kir.rewrite.match.materialize import buffers_read, buffers_written, may_lie_outside

from ._buffered_value import can_be_declared, declared, holding, replaced_by


def unchanged_meanwhile(program: n.Program, site: Site, context: Context) -> Verdict:
    """Whether memory that the tile is read from stays as it is from the copy to the last use."""
    item = params_as(site, ThroughBuffer)
    block, i = block_and_index(program, site.path)
    value = matched(item.found(block[i]))
    last = max(k for k in range(i, len(block)) if reads(block[k], value))
    # A store has worked out what it writes before it writes: its own use sees the old contents anyhow.
    written = buffers_written(block[i:last + (0 if isinstance(block[last], n.Store) else 1)])
    clash = sorted(Aliases(program).aliased(buffers_read(value), written))
    if "*" in written:
        return refuted("opaque text between the uses may write anything", expr_text(value))
    if clash:
        return refuted(f"'{clash[0]}' is written between the uses of {expr_text(value)}", f"a later use sees the old '{clash[0]}'")
    beside = sorted(Aliases(program).aliased(buffers_read(value), _written_beside(kernel_of(program, site.path), block[i])))
    if beside and any(_waits(s) for s in block[i:last]):
        return refuted(f"another role writes '{beside[0]}', and what is waited for between the uses of {expr_text(value)} may be that",
                       f"a later use sees the old '{beside[0]}'")
    return proved("nothing that the tile is read from is written while it is kept")


def _written_beside(kernel: n.Kernel, s: n.Stmt) -> frozenset[str]:
    """What roles beside that of a statement write."""
    of_roles = [x for x in statements(kernel.body) if isinstance(x, n.Roles)]
    return frozenset(name for each in of_roles for own in each.roles if any(x is s for x in statements(own.body))
                     for other in each.roles if other is not own for name in buffers_written(other.body))


def _waits(s: n.Stmt) -> bool:
    """Whether something is waited for in a statement."""
    return any(isinstance(x, n.Call) and x.of is None and instruction(x.fn).effect == "sync" for x in walk(s))


def _moved(s: n.Stmt) -> frozenset[n.Expr]:
    """What the copies of a statement move: it would be read from the buffer, which is then not read as a whole."""
    return once(s, "_moved", lambda: frozenset(x.src for x in statements((s,)) if isinstance(x, n.Copy)))


def reads(s: n.Stmt, value: n.Expr) -> bool:
    """Whether a statement reads exactly that."""
    return any(x == value for x in walk(s))


@dataclass(frozen=True)
class ThroughBuffer(Pass):
    """Base: `value` is the text of the load that goes through a buffer, filled before the statement at the site and declared `hoist`
    loops further out."""

    space: ClassVar[str] = ""
    """The space of the buffer."""
    sources: ClassVar[frozenset[str]] = frozenset()
    """The spaces that may be read through it."""
    base_name: ClassVar[str] = ""
    """The end of the buffer's name."""

    value: str = ""
    hoist: int = 0

    def admits(self, e: n.Node) -> bool:
        """Whether a node is a load of a tile of literal extents from a space that may be read through such a buffer."""
        return isinstance(e, n.Load) and e.at.buffer.space in self.sources and tile_of(e) is not None and not any(
            isinstance(i, n.Expr) and not isinstance(i.type, DType) for i in e.at.index)

    def found(self, s: n.Stmt) -> n.Load | None:
        """The load with the text `value` in a statement."""
        for x in self._loads(s):
            if expr_text(x) == self.value:
                return x
        return None

    def _loads(self, s: n.Stmt) -> Iterator[n.Load]:
        """Loads in a statement that could go through a buffer filled before it."""
        inner = set(bound_names((s,)))
        if isinstance(s, n.Copy):
            return
        seen = set(_moved(s))
        for x in walk(s):
            if isinstance(x, n.Load) and self.admits(x) and x not in seen and not names_read(x) & inner and x.at.buffer.name not in inner:
                seen.add(x)
                yield x

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a statement that reads such a tile; with no `value`, at each."""
        if not isinstance(node, n.Stmt) or isinstance(node, n.Alloc):
            return None
        if not can_be_declared(program, path, self.hoist):
            return Miss("the buffer cannot be declared that far out") if self.value else None
        loads = list(self._loads(node))
        if loads and self.space == "fragment" and team_level(program, path) == "thread":
            return Miss("a thread of its own keeps values in registers, not in a fragment") if self.value else None
        block, i = block_and_index(program, path)
        outside = {x: why for x in loads if (why := may_lie_outside(program, path, block[i:], x))}
        later = frozenset[n.Expr]().union(*map(_moved, block_at(program, path)[int(path[-1]) + 1:])) if loads else frozenset()
        texts = [expr_text(x) for x in loads if x not in later and x not in outside]
        found = tuple(Site(path, replace(self, value=text)) for text in texts if self.value in ("", text))
        why = next((outside[x] for x in outside if expr_text(x) == self.value), "the statement does not read that")
        return found or (Miss(why) if self.value else None)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A buffer, a copy into it before the statement, and reads of it in the rest of the block."""
        kernel, i = kernel_of(program, site.path), int(site.path[-1])
        value = matched(self.found(block_at(program, site.path)[i]))
        shape = tile_of(value)
        dtype = dtype_of(value.type)
        assert shape is not None
        name = fresh(f"{value.at.buffer.name}{self.base_name}", names_in(program, kernel))
        made = n.Buffer(name, dtype, tuple(build.const(d) for d in shape), self.space)  # type: ignore[arg-type]  # a Space by declaration
        held = n.Load(n.Region(made))
        rest = tuple(transform(s, lambda old, new: held if old == value else new) for s in block_at(program, site.path)[i:])
        return holding(program, site.path, made, (n.Copy(value, n.Region(made)),), rest, self.hoist)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a plain copy that fills such a buffer, of which everything else is a read of the whole after it."""
        if not (isinstance(node, n.Copy) and node.via == "plain" and node.dst.buffer.space == self.space and self.admits(node.src)):
            return None
        b = node.dst.buffer
        if node.dst.index or node.mask is not None or node.clip or node.attrs:
            return Miss(f"only a part of '{b.name}' is filled, or under a mask")
        if b.layout is not None or b.strides is not None or b.align:
            return Miss(f"'{b.name}' has a layout of its own")
        block, i = block_and_index(program, path)
        where = declared(program, path, b.name)
        if where is None:
            return Miss(f"'{b.name}' is declared elsewhere, or with a value")
        rest = {id(x) for x in statements(block[i + 1:])}
        used = False
        for x in statements(kernel_of(program, path).body):
            if x is node or isinstance(x, n.Alloc) or not any(mentions(part, b.name) for part in own_parts(x)):
                continue
            if id(x) not in rest:
                return Miss(f"'{b.name}' is used before it is filled, or in another block")
            regions = regions_of(own_parts(x), b.name)
            loads = loads_of(own_parts(x), b.name)
            if len(loads) != len(regions) or any(y.at.index or y.mask is not None for y in loads) or isinstance(x, n.Copy):
                return Miss(f"'{b.name}' is not only read as a whole")
            used = True
        if not used:
            return Miss(f"'{b.name}' is never read")
        return Site(path, replace(self, value=expr_text(node.src), hoist=where[1]), {"declared": where[0]})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Reads of the tile where it is; no buffer, no copy."""
        node, (block, i) = node_as(program, site.path, n.Copy), block_and_index(program, site.path)
        name, value = node.dst.buffer.name, node.src

        def leave(old: n.Node, new: n.Node) -> n.Node:
            return value if isinstance(old, n.Load) and old.at.buffer.name == name else new
        return replaced_by(program, site.path, name, site.captures["declared"], tuple(transform(s, leave) for s in block[i + 1:]))
