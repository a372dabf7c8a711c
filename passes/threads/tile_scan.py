"""Computes the running sums of a row as one scan of a tile instead of one element after the other.

pipeline: `tile-scan@main/total`

```diff
 kir 1
 program running_sums
   in X: f32[M, 256]
   out Y: f32[M, 256]
   size M: i32
 kernel main grid (row: M) threads 128
-  @total register total: f32 = 0.0
-  for j in 0..256
-    total = total + X[row, j]
-    Y[row, j] = total * 2.0
+  @total let total = scan(X[row, 0 +: 256], axis=0, op=sum)
+  Y[row, 0 +: 256] = total * 2.0
```
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from kir.analysis import Aliases, accesses
from kir.analysis.bounds import conjuncts
from kir.analysis.elements import NotElementwise
from kir.analysis.loops.reductions import OPS, identity
from kir.analysis.tiles.retile import CannotRetile
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, dtype_of, shape_of
from kir.ir.visit import names_read, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.match import block_and_index, counting, edited, fresh_var, is_counted, matched, matched_as, names_at, splice
from kir.rewrite.match.folds import folded_by, slice_of, tile_over
from kir.rewrite.match.local_buffers import mentions

from ..loops.split_loop import moved
from .partition_rows import PartitionRows, distinct, narrowed


@dataclass(frozen=True)
class _Running:
    """A loop that folds `term` into an accumulator by a reduction `op`, and stores what it holds after each step."""

    acc: n.Alloc
    loop: n.For
    op: str
    term: n.Expr
    stores: tuple[n.Store, ...]


def _running(block: n.Block, i: int) -> _Running | None:
    """The accumulator at `i` and the loop after it."""
    acc, loop = block[i], block[i + 1] if i + 1 < len(block) else None
    if not (isinstance(acc, n.Alloc) and acc.buffer.space in ("register", "fragment") and is_counted(loop, of=I32, plain=True) and len(loop.body) > 1):
        return None
    found = folded_by(acc, loop.body[0])
    stores = tuple(s for s in loop.body[1:] if isinstance(s, n.Store) and s.at.buffer.space == "global")
    if found is None or len(stores) < len(loop.body) - 1:
        return None
    return _Running(acc, loop, *found, stores)


TURNED = "%turned"
"""What a turned scan is called while its stores are looked at."""


def _turned(e: n.Expr) -> n.Expr:
    """A tile of two axes with these in each other's place."""
    return build.call("trans", e, build.const(1), build.const(0))


def _unturned(e: n.Expr) -> n.Expr | None:
    """The tile that one is with its two axes in each other's place; None for one that is not written so."""
    return matched_as(e.args[0], n.Expr) if isinstance(e, n.Call) and e.fn == "trans" and e == _turned(matched_as(e.args[0], n.Expr)) else None


def _without_turns(s: n.Stmt, name: str) -> n.Stmt:
    """A statement in which a tile that is turned is another, of that shape."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        of = _unturned(new) if isinstance(new, n.Call) else None
        return n.Var(TURNED, new.type) if isinstance(of, n.Var) and of.name == name and isinstance(new, n.Call) else new
    return matched_as(transform(s, leave), n.Stmt)


def _backwards(s: n.Stmt) -> n.Stmt:
    """A loop that comes to its last element first."""
    loop = matched_as(s, n.For)
    last = build.sub(build.sub(loop.hi, 1), loop.var)
    return replace(loop, body=tuple(moved(x, loop.var.name, last) for x in loop.body))


def apart(loop: n.For, accs: set[str], stores: Sequence[n.Store], aliases: Aliases) -> Verdict:
    """Whether a loop that folds into accumulators reads nothing that it stores, and stores to each tensor by one statement."""
    reads = {a.buffer for s in loop.body for a in accesses(s) if not a.writes} - accs
    written = [s.at.buffer.name for s in stores]
    for k, name in enumerate(written):
        if clash := next((r for r in sorted(reads) if aliases.may_be_one(name, r)), None):
            return refuted(f"'{name}' is written where the loop reads '{clash}'", "an element that the tile reads at once was to be written before")
        if any(aliases.may_be_one(name, other) for other in written[:k]):
            return refuted(f"two stores write '{name}'", "which of them is the last changes")
    return proved("nothing that the loop reads is written by it")


def _unchanged(program: n.Program, site: Site, context: Context) -> Verdict:
    running = matched(_running(*block_and_index(program, site.path)))
    return apart(running.loop, {running.acc.buffer.name}, running.stores, Aliases(program))


def _distinct(program: n.Program, site: Site, context: Context) -> Verdict:
    block, i = block_and_index(program, site.path)
    running = matched(_running(block, i))
    for s in running.stores:
        if _at_a_count(running, s):
            continue
        if any(isinstance(x, n.Load) and x.at.buffer == running.acc.buffer for x in walk(s.at)):
            return unknown(f"where '{s.at.buffer.name}' is stored is worked out from '{running.acc.buffer.name}', which two iterations may bring to one place",
                           needs="a number of what the store's mask chooses, and nothing else that moves")
        alone = splice(program, site.path, (replace(running.loop, body=(s,)),), 0, 2)
        if (verdict := distinct(alone, site, context)).kind != "proved":
            return verdict
    return proved("each iteration writes elements of its own")


def _at_a_count(running: _Running, s: n.Store) -> bool:
    """Whether elements are stored at the number of those so far for which a condition holds, and it holds for each that is stored: no two have one number."""
    condition = _condition(running.term)
    if running.op != "sum" or condition is None or s.mask is None or condition not in conjuncts(s.mask):
        return False
    own, extent, dtype = n.Load(n.Region(running.acc.buffer)), build.int_value(running.loop.hi), running.acc.buffer.dtype
    for i in s.at.index:
        terms = build.polynomial(i) if isinstance(i, n.Expr) and own in walk(i) else {}
        wide = [(x,) for x in walk(i) if isinstance(x, n.Cast) and x.x == own and x.dtype.bits >= dtype.bits]
        rest = [m for m in terms if m not in ((own,), *wide)]
        moves = any(x == own or (isinstance(x, n.Var) and x.name == running.loop.var.name) for m in rest for a in m for x in walk(a))
        if len(rest) == len(terms) - 1 and not moves:
            return extent is not None and extent < 1 << (dtype.bits - 1)
    return False


def _condition(term: n.Expr) -> n.Expr | None:
    """What is counted by a term that is 1 where it holds, and else 0."""
    match term:
        case n.Cast(x=x) if x.type == BOOL and term.dtype.is_integer and not term.dtype.is_bool:
            return x
        case n.Select(cond=cond, a=a, b=b) if build.is_const(a, 1) and build.is_const(b, 0):
            return cond
        case _:
            return None


@dataclass(frozen=True)
class TileScan(Pass):
    """`axis` of the tile along which the reduction runs. `spread`: what is the same along another axis is written out for all of it. `reverse`: the loop
    comes to the last element first. `turned`: rows and columns of the tile change places for the scan, so that columns are scanned as rows are."""

    intent: ClassVar[str] = "tile-scan"
    catalogue: ClassVar[tuple[int, ...]] = (58,)
    claim: ClassVar[str] = "A scan takes the logarithm of its length in steps, spread over the threads."
    numerics: ClassVar[str] = "reassociated(axis)"
    provides: ClassVar[tuple[str, ...]] = ("scan",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P992", "validity", "aliasing", "the loop reads nothing that it writes", _unchanged),
        Precondition("KIR-P993", "validity", "aliasing", "no two iterations write one element", _distinct),
    )

    axis: int = 0
    spread: bool = True
    reverse: bool = False
    turned: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an accumulator that the next statement, a loop of known length, folds into and stores after each step."""
        if not isinstance(node, n.Alloc):
            return None
        block, i = block_and_index(program, path)
        running = _running(block, i)
        if running is None:
            return None
        if build.int_value(running.loop.hi) is None:
            return Miss("the number of elements is not known")
        if any(mentions(s, node.buffer.name) for s in block[i + 2:]):
            return Miss(f"'{node.buffer.name}' is used after the loop, too")
        if self.axis > len(shape_of(running.term.type)):
            return Miss(f"there is no axis {self.axis}")
        try:
            self._tiles(running)
        except (CannotRetile, NotElementwise) as bad:
            return Miss(str(bad))
        return Site(path, self)

    def _tiles(self, running: _Running) -> n.Block:
        """The scan, and a store of a whole tile for each store of a slice. Raises CannotRetile, NotElementwise."""
        if self.reverse:
            running = matched(_running((running.acc, _backwards(running.loop)), 0))
        name, extent = running.acc.buffer.name, matched(build.int_value(running.loop.hi))
        source = tile_over(running.loop, running.term, self.axis)
        if self.turned and len(shape_of(source.type)) != 2:
            raise CannotRetile("there are not two axes that could change places")
        along, scanned = (1 - self.axis, _turned(source)) if self.turned else (self.axis, source)
        value = build.call("scan", scanned, axis=along, op=running.op, reverse=True) if self.reverse else build.call(
            "scan", scanned, axis=along, op=running.op)
        whole = n.Buffer(name, running.acc.buffer.dtype, tuple(build.const(matched_as(d, int)) for d in shape_of(source.type)), "fragment")
        var, own = n.Var(name, value.type), n.Load(n.Region(running.acc.buffer))
        held_as = _turned(var) if self.turned else var
        rest: list[n.Expr | n.Span] = [n.Span(build.const(0), d) for k, d in enumerate(shape_of(source.type)) if k != self.axis and isinstance(d, int)]
        rest.insert(self.axis, running.loop.var)
        part = n.Load(build.region(whole, *rest))
        assert extent
        made: list[n.Stmt] = [n.Let((name,), value, label=running.acc.label, origin=running.acc.origin)]
        for s in running.stores:
            held = transform(s, lambda old, new: part if new == own else new)
            if any(isinstance(x, n.Load) and x.at.buffer == running.acc.buffer for x in walk(held)):
                raise CannotRetile(f"a part of '{name}' is read alone")
            wide = PartitionRows(self.axis, spread=self.spread).widened(replace(running.loop, body=(matched_as(held, n.Store),)))
            made.append(matched_as(transform(replace(matched_as(wide, n.Store), label=s.label), lambda old, new: held_as if isinstance(
                new, n.Load) and new.at.buffer == whole else new), n.Store))
        return tuple(made)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One scan, and stores of tiles."""
        block, i = block_and_index(program, site.path)
        return edited(program, site.path, self._tiles(matched(_running(block, i))), 0, 2)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a named scan of a tile that only stores after it use."""
        if not (isinstance(node, n.Let) and isinstance(node.value, n.Call) and node.value.fn == "scan" and len(node.names) == 1):
            return None
        options = dict(node.value.attrs)
        if options.get("op") not in OPS or len(node.value.args) != 1:
            return Miss(f"{options.get('op') or 'a combine function'} is no operation of two elements that folds serially")
        if any(not isinstance(d, int) for d in shape_of(node.value.type)):
            return Miss("the number of elements is not known")
        block, i = block_and_index(program, path)
        used = self._users(block, i, node.names[0])
        if not used:
            return Miss(f"'{node.names[0]}' is used by more than the stores after it")
        try:
            source, axis = matched_as(node.value.args[0], n.Expr), int(options.get("axis", 0))
            turned = _unturned(source) is not None and not any(node.names[0] in names_read(_without_turns(block[k], node.names[0])) for k in used)
            shape = tuple(reversed(shape_of(source.type))) if turned else shape_of(source.type)
            masks = [s.mask for k in used if isinstance(s := block[k], n.Store)]
            item = TileScan(1 - axis if turned else axis, all(mask is None or shape_of(mask.type) == shape for mask in masks),
                            bool(options.get("reverse")), turned)
            item._slices(program, path)
        except (CannotRetile, NotElementwise) as bad:
            return Miss(str(bad))
        return Site(path, item)

    @staticmethod
    def _users(block: n.Block, i: int, name: str) -> tuple[int, ...]:
        """The numbers of the stores of tiles after statement `i` that use a name; none where anything else does."""
        using = tuple(k for k in range(i + 1, len(block)) if name in names_read(block[k]))
        stores = (isinstance(s := block[k], n.Store) and s.at.buffer.space == "global" and name in names_read(s.value) | names_read(s.at) for k in using)
        return using if all(stores) else ()

    def _slices(self, program: n.Program, path: Path) -> n.Block:
        """The accumulator and the loop. Raises CannotRetile, NotElementwise."""
        block, i = block_and_index(program, path)
        node = matched_as(block[i], n.Let)
        assert isinstance(node.value, n.Call)
        op, source, name = str(dict(node.value.attrs)["op"]), matched_as(node.value.args[0], n.Expr), node.names[0]
        source = matched(_unturned(source)) if self.turned else source
        shape, dtype = [matched_as(d, int) for d in shape_of(source.type)], dtype_of(source.type)
        j = fresh_var("j", names_at(program, path))
        rest = tuple(build.const(d) for k, d in enumerate(shape) if k != self.axis)
        acc, whole = n.Buffer(name, dtype, rest, "fragment" if rest else "register"), n.Buffer(name, dtype, tuple(map(build.const, shape)), "fragment")
        own = n.Region(acc)
        fold = n.Store(own, build.binary(OPS[op], n.Load(own), slice_of(source, self.axis, j)))
        stores: list[n.Stmt] = []
        for s in (matched_as(block[k], n.Store) for k in self._users(block, i, name)):
            if shape_of(s.at.type) != tuple(shape) or shape_of(s.value.type) != tuple(shape):
                raise CannotRetile("what is stored has another shape than the scan")
            held = transform(_without_turns(s, name) if self.turned else s,
                             lambda old, new: n.Load(n.Region(whole)) if isinstance(new, n.Var) and new.name == (TURNED if self.turned else name) else new)
            one = narrowed(matched_as(held, n.Store), self.axis, j, self.spread)
            stores.append(replace(matched_as(transform(one, lambda old, new: n.Load(own) if isinstance(new, n.Load) and new.at.buffer == whole else new),
                                             n.Store), label=s.label))
        loop = counting(j, shape[self.axis], (fold, *stores))
        return (n.Alloc(acc, identity(op, dtype), label=node.label, origin=node.origin), _backwards(loop) if self.reverse else loop)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One element after the other, after what stands between."""
        block, i = block_and_index(program, site.path)
        used = self._users(block, i, matched_as(block[i], n.Let).names[0])
        between = [block[k] for k in range(i + 1, used[-1]) if k not in used]
        return edited(program, site.path, (*between, *self._slices(program, site.path)), 0, 1 + used[-1] - i, at=len(between))
