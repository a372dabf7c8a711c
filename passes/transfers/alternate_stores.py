"""Gives stores by the tensor memory accelerator places that take turns: one is filled while what the other one holds is still read.

A loop that stages a part of a result waits, before it writes a place again, until the copy of the part before has read it. With several places in turn
only the copy that many parts ago has to have done so.

pipeline: `alternate-stores{slots=2}@main/h`

```diff
 kir 1
 program rows
   in X: f16[256, 64]
   out Y: f16[256, 64]
   map Y_map of Y box [64, 64]
 kernel main grid (i: 1) threads 128
-  shared Ys: f16[64, 64] align 128
+  shared Ys: f16[2, 64, 64] align 128
   @h for h in 0..4 unroll {factor=4}
-    bulk_wait(0, read=true)
-    Ys = load(X[h * 64 +: 64, 0 +: 64])
+    bulk_wait(1, read=true)
+    Ys[h % 2, 0 +: 64, 0 +: 64] = load(X[h * 64 +: 64, 0 +: 64])
     fence_async()
-    copy Ys -> Y[h * 64 +: 64, 0 +: 64] via tma grouped {descriptor=Y_map}
+    copy Ys[h % 2, 0 +: 64, 0 +: 64] -> Y[h * 64 +: 64, 0 +: 64] via tma grouped {descriptor=Y_map}
     bulk_commit()
   bulk_wait(0)
```
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import buffers_named, statements, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict
from kir.rewrite.edit import block_at, kernel_of, replace_kernel
from kir.rewrite.match import fits_shared, is_counted, node_as, params_as, shared_bytes
from kir.rewrite.match.local_buffers import byte_count

from ._tma_copies import beginning_of_team

KINDS = ("serial", "unroll")


def _fits(program: n.Program, site: Site, context: Context) -> Verdict:
    """Whether so many places fit shared memory."""
    staged, item = _staged(node_as(program, site.path, n.For)), params_as(site, AlternateStores)
    return fits_shared(shared_bytes(kernel_of(program, site.path), lambda b: item.slots if b == staged else 1,
                                    size=lambda b: 8 if b.dtype.kind == "token" else byte_count(b)), context, "smaller parts", usual="sm_90a")


@dataclass(frozen=True)
class AlternateStores(Pass):
    """`slots` places take turns."""

    intent: ClassVar[str] = "split-phase-barrier"
    catalogue: ClassVar[tuple[int, ...]] = (36, 21)
    claim: ClassVar[str] = "The next part of a result is staged while the one before is still on the way out."
    requires: ClassVar[tuple[str, ...]] = ("tma", "group")
    least: ClassVar[Mapping[str, int]] = {"slots": 2}
    preconditions: ClassVar[tuple[Precondition, ...]] = (Precondition("KIR-P785", "validity", "shape", "the places fit shared memory", _fits),)

    slots: int = 2

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over parts, whole turns of them, each of which waits for all copies to have read, stages and commits a group."""
        if not is_counted(node, KINDS) or not node.body or self.slots < 2:
            return None
        if _waits(node.body[0]) != 0:
            return None
        why = self._turns(program, path, node)
        if why:
            return Miss(why)
        staged = _staged(node)
        if staged is None or staged.strides is not None or any(staged.name in buffers_named(s) for s in _outside(program, path, node)):
            return Miss("it is not one place in shared memory, used in this loop alone, that its parts go through")
        return Site(path, self)

    def _turns(self, program: n.Program, path: Path, loop: n.For) -> str:
        """Why a group is not all that an iteration commits, or the loop is not whole turns."""
        count = build.int_value(loop.hi)
        if count is None or count % self.slots:
            return f"the parts are no whole turns of {self.slots}"
        calls = [s.call.fn for s in statements(block_at(program, beginning_of_team(program, path))) if isinstance(s, n.Eval) and s.call.fn.startswith("bulk_")]
        own = [s.call.fn for s in statements(loop.body) if isinstance(s, n.Eval) and s.call.fn.startswith("bulk_")]
        last = loop.body[-1]
        if own != ["bulk_wait", "bulk_commit"] or not (isinstance(last, n.Eval) and last.call.fn == "bulk_commit"):
            return "an iteration does not commit one group at its end"
        return "" if calls in (own, [*own, "bulk_wait"]) else "the team has other groups too"

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A place for each of `slots` iterations, and a wait for the group that many before."""
        loop = node_as(program, site.path, n.For)
        staged = _staged(loop)
        assert staged is not None
        more = replace(staged, shape=(build.const(self.slots), *staged.shape))
        turn = build.mod(loop.var, self.slots)
        return self._made(program, site, staged, more, lambda at: (turn, *(at or _whole(staged))), self.slots - 1)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop whose places take turns."""
        if not is_counted(node, KINDS) or not node.body:
            return None
        pending = _waits(node.body[0])
        staged = _staged(node)
        if not pending or staged is None or len(staged.shape) < 2 or build.int_value(staged.shape[0]) != pending + 1:
            return None
        item = AlternateStores(pending + 1)
        used = [x for s in node.body for x in walk(s) if isinstance(x, n.Region) and x.buffer == staged]
        if any(not x.index or x.index[0] != build.mod(node.var, item.slots) for x in used):
            return Miss("its places do not take turns")
        why = item._turns(program, path, node)
        if why or any(staged.name in buffers_named(s) for s in _outside(program, path, node)):
            return Miss(why or "the place is used elsewhere too")
        return Site(path, item)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One place, and a wait for all groups."""
        staged = _staged(node_as(program, site.path, n.For))
        assert staged is not None
        one = replace(staged, shape=staged.shape[1:])
        whole = _whole(one)
        return self._made(program, site, staged, one, lambda at: () if at[1:] == whole else at[1:], 0)

    def _made(self, program: n.Program, site: Site, old: n.Buffer, new: n.Buffer, index: Callable[[tuple[n.Expr | n.Span, ...]], tuple[n.Expr | n.Span, ...]],
              pending: int) -> Rewritten:
        """The program with another buffer at another index, and a wait that leaves so many groups."""
        first = node_as(program, site.path, n.For).body[0]

        def leave(before: n.Node, x: n.Node) -> n.Node:
            if before is first and isinstance(x, n.Eval):
                return replace(x, call=_wait(pending))
            if isinstance(x, n.Region) and x.buffer == old:
                return n.Region(new, index(x.index))
            return replace(x, buffer=new) if isinstance(x, n.Alloc) and x.buffer == old else x
        kernel = kernel_of(program, site.path)
        body = tuple(transform(s, leave, lambda x: not isinstance(x, n.Buffer)) for s in kernel.body)
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, body=body)), site.path)


def _wait(pending: int) -> n.Call:
    """The wait until all but so many groups have been read."""
    call = build.call("bulk_wait", build.const(pending), read=True)
    assert isinstance(call, n.Call)
    return call


def _waits(s: n.Stmt) -> int | None:
    """How many groups a wait for what has been read leaves; None where it is none."""
    if not isinstance(s, n.Eval) or s.call.fn != "bulk_wait" or not dict(s.call.attrs).get("read"):
        return None
    left = s.call.args[0]
    return build.int_value(left) if isinstance(left, n.Expr) else None


def _staged(loop: n.For) -> n.Buffer | None:
    """The one buffer that the copies of a loop's groups read."""
    found = {x.src.at.buffer.name: x.src.at.buffer for x in statements(loop.body) if isinstance(x, n.Copy) and x.via == "tma" and x.grouped}
    return next(iter(found.values())) if len(found) == 1 else None


def _outside(program: n.Program, path: Path, loop: n.For) -> list[n.Stmt]:
    """The kernel's statements that hold no others and are not in the loop, without declarations."""
    inside = {id(x) for x in statements((loop,))}
    return [s for s in statements(kernel_of(program, path).body) if id(s) not in inside and not isinstance(s, (n.Alloc, n.For, n.If, n.While, n.Roles))]


def _whole(b: n.Buffer) -> tuple[n.Span, ...]:
    """All of each dimension."""
    return tuple(build.span(build.const(0), int(build.int_value(d) or 0)) for d in b.shape)


__all__ = ["AlternateStores"]
