"""Splits a contracted axis over several CTAs, whose partial results a second kernel adds.

pipeline: `split-k{parts=4}@main/loop`

```diff
 kir 1
 program product
   size M: i32
   size N: i32
   size K: i32
   in A: f32[M, K]
   in B: f32[K, N]
   out C: f32[M, N]
-kernel main grid (j: N, i: M) threads 1
+  workspace partial: f32[4, M, N]
+kernel main grid (j: N, i: M, part: 4) threads 1
   register acc: f32 = 0.0
-  @loop for k in 0..K
+  @loop for k in ceildiv(K, 4) * part..min(K, ceildiv(K, 4) * part + ceildiv(K, 4))
     acc = acc + A[i, k] * B[k, j]
+  partial[part, i, j] = acc
+kernel combine grid (j: N, i: M) threads 1
+  register acc: f32 = 0.0
+  for p in 0..4
+    acc = acc + partial[p, i, j]
   C[i, j] = acc
```
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Literal

from kir.analysis.clipping import divides
from kir.analysis.facts import Facts
from kir.analysis.integers.integer_sums import Terms, in_sums, replaced
from kir.analysis.solver import multiple
from kir.base.dataclass import dataclass
from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import I32
from kir.ir.visit import buffers_named, children, names_read, substitute, substitute_buffers, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown, unless
from kir.rewrite.edit import kernel_of, names_in, node_at, replace_kernel
from kir.rewrite.match import counting, fresh_var, from_zero, matched, matched_as, params_as, values_for
from kir.rewrite.match.local_buffers import mentions


def _only_adds(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel, loop = kernel_of(program, site.path), node_at(program, site.path)
    found = matched(_parts(kernel, int(site.path[1])))
    assert isinstance(loop, n.For)
    acc, inside = found[0].buffer, set(bound_names(loop.body))
    for s in loop.body:
        for x in walk(s):
            place = x.at if isinstance(x, n.Store) else x.dst if isinstance(x, n.Copy) else x.acc if isinstance(x, n.Mma) else None
            if place is None or place.buffer.name in inside:
                continue
            if place.buffer.name != acc.name:
                return unknown(f"the loop writes '{place.buffer.name}' too, and its parts run side by side, and in no order", needs="a loop that only adds up")
            if isinstance(x, n.Store) and _term(x, acc) is None:
                return refuted(f"the loop does more to '{acc.name}' than add", "a part does not know the sum of those before it",
                               needs="a sum of terms that do not depend on it")
            if isinstance(x, n.Mma) and any(acc.name in buffers_named(e) for e in (x.a, x.b)):
                return refuted(f"an operand of the product is '{acc.name}' itself", "a part does not know the sum of those before it")
    item = params_as(site, SplitK)
    if item.into == "whole" and not divides(item.parts, loop.hi, program.facts):
        said = unknown(f"{item.parts} parts are not known to divide the loop, so its last terms may be left out",
                       needs=f"a fact that {item.parts} divides its length", attempt="into=sum")
        return unless(multiple(loop.hi, item.parts), Facts.at(program, site.path), said)
    return proved("the loop adds terms that do not depend on the sum")


@dataclass(frozen=True)
class SplitK(Pass):
    """`parts` CTAs share the loop. `kernel`, `workspace` and `axis` are the names of what is new. `into`: a `workspace`, which another kernel adds up;
    or the `sum` itself, which they update together, where it is added to the old value (`whole`: in parts that divide the loop)."""

    intent: ClassVar[str] = "split-k"
    catalogue: ClassVar[tuple[int, ...]] = (32,)
    claim: ClassVar[str] = "A result with few tiles still fills the machine, when several CTAs share the work of each."
    numerics: ClassVar[str] = "reassociated(k)"
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P320", "validity", "numerics", "the loop only adds terms to a sum that starts at zero", _only_adds),)

    parts: int = 4
    kernel: str = "combine"
    workspace: str = "partial"
    axis: str = "part"
    into: Literal["workspace", "sum", "whole"] = "workspace"

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the loop of a kernel that sums up in registers or a fragment, and stores the sum."""
        if not isinstance(node, n.For) or node.kind not in ("serial", "pipelined") or len(path) != 2:
            return None
        kernel = kernel_of(program, path)
        if program.plan or program.functions or _parts(kernel, int(path[1])) is None:
            return None
        if not (from_zero(node) and node.var.of == I32):
            return Miss("the loop does not count from 0")
        if self.parts < 2 or len(kernel.grid) > 2 or kernel.cluster or kernel.attrs:
            return Miss("fewer than two parts, or a grid that has no axis left")
        if self.into != "workspace":
            added = _added(kernel, int(path[1])) is not None and self.axis not in names_in(program, kernel)
            return Site(path, self) if added else Miss("the sum is not added to the old value, or the name of the axis is taken")
        if {self.kernel} & {k.name for k in program.kernels} or {self.workspace, self.axis} & names_in(program, kernel):
            return Miss("a name of what is new is taken")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Partial sums of each part, and the kernel that adds them."""
        kernel, i = kernel_of(program, site.path), int(site.path[1])
        found = matched(_parts(kernel, i))
        acc, loop, store = found
        if self.into != "workspace":
            part = n.Var(self.axis, I32)
            lo, length = _share(loop.hi, self.parts, part, self.into == "whole")
            inner = replace(loop, hi=length, body=tuple(substitute(s, {loop.var.name: build.add(lo, loop.var)}) for s in loop.body))
            update = n.Eval(build.call("atomic_add", store.at, n.Load(n.Region(acc.buffer))), label=store.label)
            grid = (*kernel.grid, n.Axis(self.axis, build.const(self.parts)))
            return Rewritten(replace_kernel(program, kernel.name, replace(kernel, grid=grid, body=(
                *kernel.body[:i], inner, *kernel.body[i + 1:-1], update))), site.path)
        out = store.at.buffer
        b = n.Buffer(self.workspace, acc.buffer.dtype, (build.const(self.parts), *out.shape), "global")
        part, taken = n.Var(self.axis, I32), names_in(program, kernel)
        chunk = build.ceildiv(loop.hi, self.parts)
        lo = build.mul(part, chunk)
        inner = replace(loop, lo=lo, hi=build.minimum(loop.hi, build.add(lo, chunk)))
        index = store.at.index or tuple(build.span(0, d) for d in out.shape)
        axes = _turned(store, acc.buffer)
        held = n.Load(n.Region(acc.buffer))
        partial = replace(store, at=build.region(b, part, *index), value=build.call("trans", held, *map(build.const, axes)) if axes else held, label=None)
        first = replace(kernel, grid=(*kernel.grid, n.Axis(self.axis, build.const(self.parts))),
                        body=(*kernel.body[:i], inner, *kernel.body[i + 1:-1], partial))
        p = fresh_var("p", taken)
        other = None if not store.clip else build.const(0, b.dtype)
        term: n.Expr = build.load(build.region(b, p, *index), None, other, store.clip)
        if axes:
            term = build.call("trans", term, *(build.const(axes.index(k)) for k in range(len(axes))))
        step = n.Store(n.Region(acc.buffer), build.add(n.Load(n.Region(acc.buffer)), term))
        sums = counting(p, self.parts, (step,))
        needed = values_for(kernel.body[:i], names_read(store))
        second = n.Kernel(self.kernel, kernel.grid, kernel.threads, (*needed, acc, sums, store))
        after = replace_kernel(program, kernel.name, first)
        at = [k.name for k in program.kernels].index(kernel.name) + 1
        after = replace(after, kernels=(*after.kernels[:at], second, *after.kernels[at:]), workspaces=(*program.workspaces, n.Workspace(b)))
        return Rewritten(after, site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the loop of a kernel with an axis of parts, whose sums the next kernel adds up."""
        if not isinstance(node, n.For) or len(path) != 2 or program.plan or program.functions:
            return None
        kernel = kernel_of(program, path)
        if isinstance(kernel.body[-1], n.Eval):
            return self._together(program, path, node)
        names = [k.name for k in program.kernels]
        at = names.index(kernel.name) + 1
        if at >= len(names) or _parts(kernel, int(path[1])) is None or len(kernel.grid) < 2:
            return None
        last, axis, second = kernel.body[-1], kernel.grid[-1], program.kernels[at]
        parts, done = build.int_value(axis.extent), second.body[-1] if second.body else None
        if not isinstance(last, n.Store) or parts is None or not isinstance(done, n.Store):
            return None
        if not any(w.buffer.name == last.at.buffer.name for w in program.workspaces):
            return None
        if not (any(isinstance(s, n.Alloc) for s in second.body) and any(isinstance(s, n.Alloc) and mentions(last, s.buffer.name) for s in kernel.body)):
            return Miss("one of the two kernels keeps no sum")
        if second.grid != kernel.grid[:-1] or not isinstance(node.hi, n.Binary) or node.hi.op != "min":
            return Miss("its range is not a part of a loop's, or the next kernel has another grid")
        return Site(path, SplitK(parts, second.name, last.at.buffer.name, axis.name))

    def _together(self, program: n.Program, path: Path, loop: n.For) -> Found:
        """The site of a loop whose parts update their sum together."""
        kernel, i = kernel_of(program, path), int(path[1])
        update, axis = kernel.body[-1], kernel.grid[-1] if len(kernel.grid) > 1 else None
        parts = build.int_value(axis.extent) if axis is not None else None
        args = update.call.args if isinstance(update, n.Eval) and update.call.fn == "atomic_add" and not update.call.attrs else ()
        if parts is None or parts < 2 or axis is None or len(args) != 2 or not isinstance(args[0], n.Region) or not isinstance(args[1], n.Load):
            return None
        part = n.Var(axis.name, I32)
        for length, lo, all_whole in shares(loop, parts, part):
            into: Literal["sum", "whole"] = "whole" if all_whole else "sum"
            terms = build.polynomial(build.add(lo, loop.var))

            def change(found: Terms, terms: Terms = terms) -> Terms | None:
                return replaced(found, ((terms, n.Var("%k", I32)),))
            body = tuple(substitute(in_sums(s, change), {"%k": loop.var}) for s in loop.body)
            if any(axis.name in names_read(s) for s in body) or axis.name in names_read(args[0]):
                return Miss("a part knows more than where its terms begin")
            store = n.Store(args[0], build.add(n.Load(args[0]), args[1]), label=update.label)
            whole = replace(loop, hi=length, body=body)
            made = replace(kernel, grid=kernel.grid[:-1], body=(*kernel.body[:i], whole, *kernel.body[i + 1:-1], store))
            if _added(made, i) is not None:
                return Site(path, SplitK(parts, axis=axis.name, into=into), {"made": made})
        return Miss("its range is not a part of a loop's")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One loop over all."""
        kernel, i = kernel_of(program, site.path), int(site.path[1])
        if self.into != "workspace":
            return Rewritten(replace_kernel(program, kernel.name, site.captures["made"]), site.path)
        loop, second = kernel.body[i], kernel_of(program, (self.kernel,))
        store = matched_as(second.body[-1], n.Store)
        assert isinstance(loop, n.For) and isinstance(loop.hi, n.Binary)
        own = {s.buffer.name for s in kernel.body if isinstance(s, n.Alloc)}
        theirs = next(s for s in second.body if isinstance(s, n.Alloc))
        ours = next(s for s in kernel.body if isinstance(s, n.Alloc) and mentions(kernel.body[-1], s.buffer.name) and s.buffer.name in own)
        hi = loop.hi.a if self.axis not in names_read(loop.hi.a) else loop.hi.b
        stored: n.Store = substitute_buffers(store, {theirs.buffer.name: ours.buffer})
        inner = replace(loop, lo=build.const(0), hi=hi)
        made = replace(kernel, grid=kernel.grid[:-1], body=(*kernel.body[:i], inner, *kernel.body[i + 1:-1], stored))
        after = replace_kernel(program, kernel.name, made)
        return Rewritten(replace(after, kernels=tuple(k for k in after.kernels if k.name != self.kernel),
                                 workspaces=tuple(w for w in program.workspaces if w.buffer.name != self.workspace)), site.path)


def shares(loop: n.For, parts: int, part: n.Var) -> Iterator[tuple[n.Expr, n.Expr, bool]]:
    """The ranges of which a loop is one part of so many: (length, where the part begins, whether the parts divide it)."""
    for length in (loop.hi.a if isinstance(loop.hi, n.Binary) and loop.hi.op == "floordiv" else None,
                   *(y for x in walk(loop.hi) if isinstance(x, n.Binary) and x.op == "min" for y in (x.a, x.b))):
        for whole in (False, True) if length is not None else ():
            lo, hi = _share(length, parts, part, whole) if length is not None else (None, None)
            if hi == loop.hi and lo is not None and length is not None:
                yield length, lo, whole


def _share(length: n.Expr, parts: int, part: n.Var, whole: bool) -> tuple[n.Expr, n.Expr]:
    """Where the terms of a part begin, and how many there are."""
    chunk = (build.floordiv if whole else build.ceildiv)(length, parts)
    lo = build.mul(part, chunk)
    return lo, chunk if whole else build.sub(build.minimum(length, build.add(lo, chunk)), lo)


def _added(kernel: n.Kernel, i: int) -> n.Store | None:
    """The store of a kernel's sum, where it adds a private scalar to the old value."""
    found = _parts(kernel, i)
    store = found[2] if found is not None else None
    if store is None or found is None or found[0].buffer.shape or store.clip or not build.is_const(kernel.threads, 1):
        return None
    if store.at.buffer.dtype != found[0].buffer.dtype or any(mentions(x, store.at.buffer.name) for x in kernel.body[:-1]):
        return None
    return store if store.value == build.add(n.Load(store.at), n.Load(n.Region(found[0].buffer))) else None


def _parts(kernel: n.Kernel, i: int) -> tuple[n.Alloc, n.For, n.Store] | None:
    """The sum, the loop and the store of a kernel that declares, adds up and stores."""
    loop, store = kernel.body[i], kernel.body[-1]
    if not isinstance(loop, n.For) or not isinstance(store, n.Store) or i != len(kernel.body) - 2 or store.mask is not None:
        return None
    if not all(isinstance(s, (n.Alloc, n.Let)) for s in kernel.body[:i]) or store.at.buffer.space != "global":
        return None
    held = [s for s in kernel.body[:i] if isinstance(s, n.Alloc) and s.buffer.space in ("register", "fragment") and mentions(store, s.buffer.name)]
    if len(held) != 1 or held[0].init is None or not build.is_const(held[0].init, 0.0) or held[0].buffer.layout is not None:
        return None
    others = [s for s in kernel.body[:i] if isinstance(s, n.Alloc) and s is not held[0] and s.buffer.space in ("register", "fragment")]
    if others or n.Region(held[0].buffer).type != n.Load(n.Region(held[0].buffer)).type:
        return None
    if _turned(store, held[0].buffer) is None:
        return None
    return (held[0], loop, store) if _spans(store) == len(held[0].buffer.shape) else None


def _turned(store: n.Store, acc: n.Buffer) -> tuple[int, ...] | None:
    """The axes in whose order a store has the sum, none where as it is; None where an element of the store is no function of one element of the sum."""
    ways: set[tuple[int, ...]] = set()

    def goes(e: n.Node) -> bool:
        if isinstance(e, n.Load) and e.at.buffer.name == acc.name:
            ways.add(())
            return e.at == n.Region(acc)
        if not isinstance(e, n.Expr) or not mentions(e, acc.name):
            return True
        if isinstance(e, n.Call) and e.fn == "trans" and isinstance(e.args[0], n.Load) and e.args[0].at == n.Region(acc):
            ways.add(tuple(build.int_value(a) or 0 for a in e.args[1:] if isinstance(a, n.Expr)))
            return True
        whole = isinstance(e, (n.Binary, n.Unary, n.Select, n.Cast)) or (
            isinstance(e, n.Call) and e.of is None and instruction(e.fn).level == "element")
        return whole and all(goes(x) for x in children(e))
    if not goes(store.value) or len(ways) > 1:
        return None
    return ways.pop() if ways else ()


def _spans(store: n.Store) -> int:
    index = store.at.index or tuple(build.span(0, d) for d in store.at.buffer.shape)
    return sum(isinstance(x, n.Span) for x in index)


def _term(s: n.Store, acc: n.Buffer) -> n.Expr | None:
    """What a statement adds to the sum."""
    own, v = n.Load(s.at), s.value
    if s.at.buffer.name != acc.name or s.mask is not None or not isinstance(v, n.Binary) or v.op != "add":
        return None
    e = v.b if v.a == own else v.a if v.b == own else None
    return None if e is None or acc.name in buffers_named(e) else e
