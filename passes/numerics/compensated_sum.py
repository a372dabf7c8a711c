"""Carries what rounding loses along with a sum, and adds it back (Kahan's summation).

pipeline: `compensated-sum{buffer=acc}@main/loop`

```diff
 kir 1
 program total
   size M: i32
   size N: i32
   in X: f32[M, N]
   out Y: f32[M]
 kernel main grid (row: M) threads 1
   register acc: f32 = 0.0
+  register lost: f32 = 0.0
   @loop for j in 0..N
-    acc = acc + X[row, j]
+    let addend = X[row, j] - lost
+    let sum = acc + addend
+    lost = sum - acc - addend
+    acc = sum
   Y[row] = acc
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis import accesses
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType
from kir.ir.visit import statements, substitute, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import block_at, edit_block, fresh
from kir.rewrite.match import edited, fresh_var, matched, matched_as, names_at, node_as, params_as


def _only(program: n.Program, site: Site, context: Context) -> Verdict:
    item, loop = params_as(site, CompensatedSum), node_as(program, site.path, n.For)
    others = [a for s in loop.body if _addend(s, item.buffer) is None for a in accesses(s) if a.buffer == item.buffer and a.writes]
    if others:
        return unknown(f"'{item.buffer}' is set otherwise in the loop, and what was lost before is added to another sum", needs="a sum that only grows")
    lets = {name: s.value for s in statements(loop.body) if isinstance(s, n.Let) for name in s.names}
    added = next(e for s in loop.body if (e := _addend(s, item.buffer)) is not None)
    if any(isinstance(x, n.Region) and x.buffer.name == item.buffer for x in walk(substitute(added, lets))):
        return refuted(f"what is added is made of '{item.buffer}' itself, as other lanes have it", "lanes that had one sum have different ones",
                       needs="parts that come from elsewhere")
    return proved(f"the loop only adds to '{item.buffer}'")


@dataclass(frozen=True)
class CompensatedSum(Pass):
    """`buffer` is the running sum, a private scalar; without it, one site for each."""

    intent: ClassVar[str] = "compensated-sum"
    catalogue: ClassVar[tuple[int, ...]] = (65,)
    claim: ClassVar[str] = "The error of a long sum no longer grows with its length."
    numerics: ClassVar[str] = "reassociated(sum)"
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P650", "validity", "storage", "the loop does nothing with the sum but add to it", _only),)

    buffer: str = ""

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a serial loop whose body adds once to a private scalar of floats."""
        if not isinstance(node, n.For) or node.kind not in ("serial", "unroll"):
            return None
        sums = [s.at.buffer.name for s in node.body if isinstance(s, n.Store) and _addend(s, s.at.buffer.name) is not None]
        return tuple(Site(path, CompensatedSum(b)) for b in dict.fromkeys(sums) if self.buffer in ("", b) and sums.count(b) == 1) or None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The loop with a second scalar that holds what was lost."""
        loop, taken = node_as(program, site.path, n.For), names_at(program, site.path)
        at = next(i for i, s in enumerate(loop.body) if _addend(s, self.buffer) is not None)
        store, e = matched_as(loop.body[at], n.Store), matched(_addend(loop.body[at], self.buffer))
        d = store.at.buffer.dtype
        lost = n.Buffer(fresh("lost", taken), d, (), "register")
        addend, total = fresh_var("addend", taken, d), fresh_var("sum", taken, d)
        acc = n.Load(store.at)
        made = (n.Let((addend.name,), build.sub(e, n.Load(n.Region(lost)))),
                n.Let((total.name,), build.add(acc, addend)),
                n.Store(n.Region(lost), build.sub(build.sub(total, acc), addend)),
                replace(store, value=total))
        inner = replace(loop, body=(*loop.body[:at], *made, *loop.body[at + 1:]))
        i = int(site.path[-1])
        after = edit_block(program, site.path, lambda block: (*block[:i], n.Alloc(lost, build.const(0.0, d)), inner, *block[i + 1:]))
        hint = {(*site.path, *x): ((*site.path[:-1], i + 1, *x),) for x in ((), ("body", at))}
        return Rewritten(after, (*site.path[:-1], i + 1), hint)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop with the four statements, after the scalar that it carries."""
        if not isinstance(node, n.For) or not path[-1]:
            return None
        before = block_at(program, path)[int(path[-1]) - 1]
        if not (isinstance(before, n.Alloc) and before.buffer.space == "register" and before.init is not None and build.is_const(before.init, 0.0)):
            return None
        found = _carried(node, before.buffer)
        if found is None:
            return Miss(f"the loop does not carry a compensation in '{before.buffer.name}'")
        at, _, _ = found
        beside = (*node.body[:at], *node.body[at + 4:], *block_at(program, path)[int(path[-1]) + 1:])
        if any(isinstance(x, n.Region) and x.buffer.name == before.buffer.name for s in beside for x in walk(s)):
            return Miss(f"'{before.buffer.name}' is used beside the sum")
        return Site(path, CompensatedSum(found[1].at.buffer.name))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The plain sum."""
        i, block = int(site.path[-1]), block_at(program, site.path)
        loop, before = matched_as(block[i], n.For), matched_as(block[i - 1], n.Alloc)
        found = matched(_carried(loop, before.buffer))
        at, store, e = found
        plain = replace(store, value=build.add(n.Load(store.at), e))
        inner = replace(loop, body=(*loop.body[:at], plain, *loop.body[at + 4:]))
        return edited(program, site.path, (inner,), -1, at=-1)


def _addend(s: n.Stmt, name: str) -> n.Expr | None:
    """What a statement adds to a private scalar of floats of that name."""
    if not (isinstance(s, n.Store) and s.at.buffer.name == name and s.at.buffer.space == "register" and not s.at.buffer.shape):
        return None
    v = s.value
    if s.mask is not None or not s.at.buffer.dtype.is_float or not isinstance(v, n.Binary) or v.op != "add" or v.a != n.Load(s.at):
        return None
    return v.b if isinstance(v.b.type, DType) and not any(x == v.a for x in walk(v.b)) else None


def _carried(loop: n.For, lost: n.Buffer) -> tuple[int, n.Store, n.Expr] | None:
    """Where the four statements begin, the last of them, and what they add."""
    held = n.Load(n.Region(lost))
    for at in range(len(loop.body) - 3):
        a, b, c, d = loop.body[at:at + 4]
        if not (isinstance(a, n.Let) and isinstance(b, n.Let) and isinstance(c, n.Store) and isinstance(d, n.Store)):
            continue
        if c.at == n.Region(lost) and isinstance(a.value, n.Binary) and a.value.op == "sub" and a.value.b == held:
            return at, d, a.value.a
    return None
