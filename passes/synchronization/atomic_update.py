"""Makes an update of memory of the CTA one indivisible operation, so that several threads may do it.

pipeline: `atomic-update@main/j/count`

```diff
 kir 1
 program histogram
   size N: i32
   in X: i32[N]
   out H: i32[4]
 kernel main grid (b: 1) threads 1
   shared counts: i32[4]
   for i in 0..4
     counts[i] = 0
   for j in 0..N
-    @count counts[X[j]] = counts[X[j]] + 1
+    @count atomic_add(&counts[X[j]], 1)
   for i1 in 0..4
     H[i1] = counts[i1]
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from kir.analysis import Aliases
from kir.base.dataclass import dataclass
from kir.base.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType, TileType
from kir.ir.visit import regions, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import block_at, kernel_of
from kir.rewrite.match import block_and_index, edited, matched, matched_as, node_as
from kir.rewrite.match.independence import ctas_apart

ATOMICS = {"add": "atomic_add", "max": "atomic_max", "min": "atomic_min", "and": "atomic_and", "or": "atomic_or", "xor": "atomic_xor"}
"""Atomics by the operation that they do."""
RELAXED = n.attrs(order="relaxed")
WIDTHS = {"atomic_add": ("i32", "u32", "u64", "f32", "f16", "bf16", "f64")}
"""Dtypes that have the operation in hardware (PTX ISA, `atom`); other operations take integers of 32 and 64 bits."""


def _has_dtype(program: n.Program, site: Site, context: Context) -> Verdict:
    found = matched(_update(block_at(program, site.path), int(site.path[-1])))
    at, op, _, _ = found
    known = WIDTHS.get(ATOMICS[op], ("i32", "u32", "i64", "u64"))
    if at.buffer.dtype.name not in known:
        return refuted(f"no instruction does {ATOMICS[op]} on {at.buffer.dtype}", needs=f"one of {', '.join(known)}",
                       rule=f"PTX ISA, atom: the dtypes of .{op}")
    return proved(f"atom.{op} takes {at.buffer.dtype}")


def _update(block: n.Block, i: int) -> tuple[n.Region, str, n.Expr, str | None] | None:
    """(place, operation, operand, name of the old value) of an update at statement `i`, and at the next one when the old value is kept."""
    s = block[i]
    if isinstance(s, n.Store):
        return _stored(s, n.Load(s.at), None)
    follows = block[i + 1] if i + 1 < len(block) else None
    if isinstance(s, n.Let) and len(s.names) == 1 and isinstance(follows, n.Store) and s.value == n.Load(follows.at):
        return _stored(follows, n.Var(s.names[0], s.value.type), s.names[0])
    return None


def _stored(s: n.Store, old: n.Expr, name: str | None) -> tuple[n.Region, str, n.Expr, str | None] | None:
    if s.mask is not None or s.clip or s.cache or s.at.buffer.space not in ("shared", "global") or isinstance(s.at.type, TileType):
        return None
    operand: n.Expr | None = None
    op = "add"
    if s.at.buffer.dtype.is_integer and _is_sum(s.value, old):
        operand = build.sub(s.value, old)
    elif isinstance(s.value, n.Binary) and s.value.op in ATOMICS and (s.value.op != "add" or not s.at.buffer.dtype.is_integer):
        op = s.value.op
        operand = s.value.b if s.value.a == old else s.value.a if s.value.b == old else None
    if operand is None or any(x == old for x in walk(operand)) or s.at.buffer.dtype.is_bool:
        return None
    return s.at, op, operand, name


def _is_sum(value: n.Expr, old: n.Expr) -> bool:
    return build.polynomial(value).get((old,)) == 1


def _written(at: n.Region, op: str, operand: n.Expr, name: str | None) -> n.Block:
    """The update in parts."""
    old: n.Expr = n.Load(at) if name is None else n.Var(name, at.type)
    store = n.Store(at, build.binary(op, old, operand))
    return (store,) if name is None else (n.Let((name,), n.Load(at)), store)


def _alone(k: n.Kernel) -> bool:
    """Whether no other CTA runs beside one of a kernel."""
    return not k.cluster and all(build.is_const(a.extent, 1) for a in k.grid)


def _apart(program: n.Program, path: Path, at: n.Region) -> bool:
    """Whether each CTA updates places of its own, of a tensor that nothing else in the kernel touches."""
    kernel, aliases = kernel_of(program, path), Aliases(program)
    others = [r for s in kernel.body if not isinstance(s, n.View) for r in regions(s) if r != at and aliases.may_be_one(r.buffer.name, at.buffer.name)]
    return not others and not any(isinstance(x, (n.Opaque, n.Hole)) for x in walk(kernel)) and ctas_apart(program, kernel, at.buffer.name)


def _call(s: n.Stmt) -> n.Expr | None:
    """The call that a statement is, or names."""
    return s.call if isinstance(s, n.Eval) else s.value if isinstance(s, n.Let) and len(s.names) == 1 else None


def _atomic(s: n.Stmt) -> tuple[n.Region, str, n.Expr, str | None] | None:
    """(place, operation, operand, name of the old value) of an atomic."""
    call = _call(s)
    op = next((op for op, fn in ATOMICS.items() if isinstance(call, n.Call) and call.fn == fn), None)
    if op is None or not isinstance(call, n.Call) or call.attrs not in ((), RELAXED) or len(call.args) != 2:
        return None
    at, operand = call.args
    if not isinstance(at, n.Region) or not isinstance(operand, n.Expr) or not isinstance(at.type, DType):
        return None
    return at, op, operand, s.names[0] if isinstance(s, n.Let) else None


@dataclass(frozen=True)
class AtomicUpdate(Pass):
    """`order` is what the atomic says of other accesses: nothing (which is all that the machine can), or `relaxed`."""

    intent: ClassVar[str] = "atomics"
    catalogue: ClassVar[tuple[int, ...]] = (49,)
    claim: ClassVar[str] = "Threads count in one place together, with no barrier between their updates."
    provides: ClassVar[tuple[str, ...]] = ("atomics",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P490", "validity", "dtype", "an instruction does the operation on the dtype", _has_dtype),
    )

    order: Literal["", "relaxed"] = ""

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a store that updates its place, or a let that keeps the value that the next statement updates."""
        if not isinstance(node, (n.Store, n.Let)) or not build.is_const(kernel_of(program, path).threads, 1):
            return None
        found = _update(block_at(program, path), int(path[-1]))
        if found is None:
            return None
        if ATOMICS[found[1]] not in table():
            return Miss(f"there is no {ATOMICS[found[1]]}")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One atomic."""
        block, i = block_and_index(program, site.path)
        found = matched(_update(block, i))
        at, op, operand, name = found
        call, s = replace(build.call(ATOMICS[op], at, operand), attrs=RELAXED if self.order else ()), block[i]
        made: n.Stmt = n.Eval(call) if name is None else n.Let((name,), call)
        made = replace(made, label=s.label, origin=s.origin)  # type: ignore[type-var]  # every Stmt is a dataclass
        return edited(program, site.path, (made,), 0, 1 if name is None else 2)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an atomic of a kernel with one thread in a CTA, on memory of the CTA, or on any where it is the only CTA or each has places of its own."""
        if not isinstance(node, (n.Eval, n.Let)):
            return None
        found = _atomic(node)
        if found is None:
            return None
        if not build.is_const(kernel_of(program, path).threads, 1):
            return Miss("several threads may do it at once")
        if found[0].buffer.space != "shared" and not _alone(kernel_of(program, path)) and not _apart(program, path, found[0]):
            return Miss("other CTAs may do it at once")
        return Site(path, AtomicUpdate("relaxed" if matched_as(_call(node), n.Call).attrs else ""))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A read and a write."""
        node = node_as(program, site.path, n.Stmt)
        found = matched(_atomic(node))
        first, *rest = _written(*found)
        labeled: n.Stmt = replace(first, label=node.label, origin=node.origin)  # type: ignore[type-var]  # every Stmt is a dataclass
        return edited(program, site.path, (labeled, *rest))
