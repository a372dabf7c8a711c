"""Lets an address go on from where the loop inside has left it, instead of computing it anew in each iteration of the loop around.

pipeline: `go-on@main/i`

```diff
 kir 1
 program taps
   size N: i32
   in X: f32[N, 9]
   out Y: f32[N, 9]
 kernel main grid (n: N) threads 1
   view global Y_flat: f32[N * 9] at Y
+  register at: i64 = cast(n, i64) * 9:i64
   @i for i in 0..3
-    register at: i64 = cast(n, i64) * 9:i64 + cast(i, i64) * 3:i64
     for j in 0..3
       Y_flat[at] = X[n, i * 3 + j]
       at = at + 1:i64
```
"""
from __future__ import annotations

from typing import ClassVar

from kir.analysis.access import Aliases, buffers_written
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import I32, I64, dtype_of
from kir.ir.visit import buffers_named, names_read, statements, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.match import block_and_index, edited, is_counted, matched, node_as
from kir.rewrite.match.local_buffers import mentions


@dataclass(frozen=True)
class _Inner:
    """A loop that moves an address on: its number in the block, the address, by how much it moves in a round, and in all rounds."""

    at: int
    address: n.Buffer
    total: n.Expr


def _goes_through(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    if any(isinstance(x, n.Jump) for x in statements(loop.body)):
        return refuted("an iteration may end early, before the address has moved as far as it should", "the next one goes on from there",
                       needs="loops that run to their ends")
    return proved("every loop runs to its end")


@dataclass(frozen=True)
class GoOn(Pass):
    """No parameters: the site is the loop around."""

    intent: ClassVar[str] = "strength-reduce"
    catalogue: ClassVar[tuple[int, ...]] = (15,)
    claim: ClassVar[str] = "An address is computed once for all loops."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P152", "validity", "pipeline", "every loop runs to its end", _goes_through),)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop in which an address begins as far on as the loop inside moves it in an iteration."""
        if not is_counted(node, ("serial", "unroll")):
            return None
        for k, s in enumerate(node.body):
            if isinstance(s, n.Alloc) and _is_address(s.buffer) and s.init is not None:
                inner = _inner(node, s.buffer, k)
                if inner is None or inner.at != k + 1 or _parted(s.init, node.var, inner.total) is None:
                    continue
                return Site(path, self, {"alloc": k})
        return Miss("no address begins in it as far on as it moves in an iteration") if any(isinstance(s, n.Alloc) for s in node.body) else None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The address before the loop."""
        loop, k = node_as(program, site.path, n.For), int(site.captures["alloc"])
        alloc = loop.body[k]
        assert isinstance(alloc, n.Alloc) and alloc.init is not None
        base = matched(_parted(alloc.init, loop.var, matched(_inner(loop, alloc.buffer, k)).total))
        made = n.For(loop.var, loop.lo, loop.hi, loop.step, (*loop.body[:k], *loop.body[k + 1:]), loop.kind, loop.attrs, loop.label, loop.origin)
        done = edited(program, site.path, (n.Alloc(alloc.buffer, base, label=alloc.label, origin=alloc.origin), made), 0, 1)
        return Rewritten(done.program, (*site.path[:-1], int(site.path[-1]) + 1))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop in which only a loop inside moves an address on that begins before it."""
        if not is_counted(node, ("serial", "unroll")):
            return None
        (block, i), aliases, out = block_and_index(program, path), Aliases(program), []
        for k, s in enumerate(block[:i]):
            if not (isinstance(s, n.Alloc) and _is_address(s.buffer) and s.init is not None):
                continue
            name, inner = s.buffer.name, _inner(node, s.buffer, -1)
            if inner is None or any(mentions(x, name) for x in (*block[k + 1:i], *block[i + 1:])):
                continue
            if any(aliases.may_be_one(x, y) for x in buffers_written((*block[k + 1:i], node)) for y in buffers_named(s.init)):
                continue
            out.append(Site(path, self, {"alloc": k}))
        return tuple(out) or None

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The address before the loop inside, as far on as the iterations before have moved it."""
        (block, i), k = block_and_index(program, site.path), int(site.captures["alloc"])
        alloc, loop = block[k], node_as(program, site.path, n.For)
        assert isinstance(alloc, n.Alloc) and alloc.init is not None
        inner = matched(_inner(loop, alloc.buffer, -1))
        begin = build.add(alloc.init, build.mul(build.cast(loop.var, alloc.buffer.dtype), inner.total))
        own = n.Alloc(alloc.buffer, begin, label=alloc.label, origin=alloc.origin)
        body = (*loop.body[:inner.at], own, *loop.body[inner.at:])
        made = n.For(loop.var, loop.lo, loop.hi, loop.step, body, loop.kind, loop.attrs, loop.label, loop.origin)
        done = edited(program, (*site.path[:-1], k), (*block[k + 1:i], made), 0, i + 1 - k)
        return Rewritten(done.program, (*site.path[:-1], i - 1))


def _is_address(b: n.Buffer) -> bool:
    return b.space == "register" and not b.shape and b.dtype in (I32, I64)


def _inner(loop: n.For, address: n.Buffer, declared: int) -> _Inner | None:
    """The loop inside one that ends each round by moving an address on, as far in all iterations, and that alone uses it (beside its declaration)."""
    users = [k for k, s in enumerate(loop.body) if k != declared and address.name in buffers_named(s)]
    inner = loop.body[users[0]] if len(users) == 1 else None
    last = inner.body[-1] if isinstance(inner, n.For) and inner.body else None
    if not isinstance(inner, n.For) or not is_counted(inner, ("serial", "unroll")) or not isinstance(last, n.Store) or last.at != n.Region(address):
        return None
    own, changed = n.Load(n.Region(address)), {loop.var.name, *bound_names(loop.body)} - {address.name}
    if last.mask is not None or sum(isinstance(x, n.Store) and x.at.buffer == address for x in statements(inner.body)) != 1:
        return None
    step = build.sub(last.value, own) if last.value.type == own.type else None
    moved = {x.at.buffer.name for x in statements(loop.body) if isinstance(x, n.Store)}
    for e in (step, inner.hi):
        if e is None or names_read(e) & changed or any(isinstance(x, n.Call) or (isinstance(x, n.Load) and x.at.buffer.name in moved) for x in walk(e)):
            return None
    assert step is not None
    return _Inner(users[0], address, build.mul(build.cast(inner.hi, dtype_of(step.type)), step))


def _parted(begin: n.Expr, var: n.Var, total: n.Expr) -> n.Expr | None:
    """What an address begins with in the first iteration, if it is `total` further on in each other one."""
    dtype = dtype_of(begin.type)
    terms, moving = build.polynomial(begin), build.polynomial(build.mul(build.cast(var, dtype), total))
    if not moving or any(terms.get(m, 0) != c for m, c in moving.items()):
        return None
    rest = build.from_polynomial({m: c for m, c in terms.items() if m not in moving}, dtype)
    return rest if var.name not in names_read(rest) else None


__all__ = ["GoOn"]
