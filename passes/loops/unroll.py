"""Unrolls a loop: several iterations side by side in one, or a hint to the compiler to do so.

pipeline: `unroll{factor=2}@main/loop`

```diff
 kir 1
 program scale
   size N: i32
   in X: f32[N]
   out Y: f32[N]
   fact N % 8 == 0
 kernel main grid (b: 1) threads 1
-  @loop for i in 0..N
+  @loop for i in 0..N step 2
     let x = X[i]
     Y[i] = x * 2.0
+    let x_1 = X[i + 1]
+    Y[i + 1] = x_1 * 2.0
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from kir.analysis.facts import Facts
from kir.analysis.solver import multiple
from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.build import add, const, int_value, sub
from kir.ir.canonical import rename
from kir.ir.paths import block_paths
from kir.ir.types import dtype_of
from kir.ir.visit import substitute, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, decided, proved, refuted, unknown
from kir.rewrite.match import edited, fresh_names, names_at, node_as, params_as
from kir.rewrite.match.independence import independent


def _remainder(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, item = node_as(program, site.path, n.For), params_as(site, Unroll)
    if item.form != "copies":
        return proved("the compiler handles the remainder of a hinted loop")
    known, chunk = Facts.at(program, site.path), (int_value(loop.step) or 1) * item.factor
    span = sub(loop.hi, loop.lo)
    if known.divides(chunk, span):
        return proved(f"{item.factor} iterations divide the range")
    found = known.domain(known.expanded(span))
    if found.value is not None or (found.modulus % chunk == 0 and found.residue):
        left = (found.residue if found.value is None else found.value) % chunk
        if any(isinstance(x, n.Load) and x.clip for x in walk(loop)):
            return unknown("the last pass through the body would run past the end of the loop, where it may read only what fills in for what is outside",
                           needs=f"a range that is a multiple of {chunk}", attempt="another factor, or form=hint")
        return refuted("the last pass through the body would run past the end of the loop",
                       f"the range is {found}, which leaves {left} after steps of {chunk}", needs=f"a range that is a multiple of {chunk}",
                       attempt="another factor, or form=hint")
    return decided(multiple(span, chunk), known, f"{item.factor} iterations divide the range",
                   f"{item.factor} iterations do not divide the range",
                   needs=f"a fact that the range is a multiple of {chunk}")


MOST = 1 << 16
"""Statements that copies of a body may come to."""


@dataclass(frozen=True)
class Unroll(Pass):
    """`factor` iterations become one. `form`: `copies` writes the body that often, `hint` only marks the loop (0: all iterations), `vector` marks it
    for instructions on several elements at once."""

    intent: ClassVar[str] = "unroll"
    catalogue: ClassVar[tuple[int, ...]] = (52,)
    claim: ClassVar[str] = "Fewer loop tests, and more independent work in one body for the scheduler to overlap."
    provides: ClassVar[tuple[str, ...]] = ("unrolled",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P520", "validity", "shape", "the unrolled iterations divide the loop's range", _remainder),
    )

    factor: int = 4
    form: Literal["copies", "hint", "vector"] = "copies"

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        if not isinstance(node, n.For) or node.kind != "serial":
            return None
        if self.form == "vector":
            if self.factor or node.attrs or int_value(node.hi) is None:
                return Miss("a loop of vectors has a known length")
            return Site(path, self) if independent(program, path, node) else Miss("an iteration may touch what another writes")
        if self.factor < 2 and (self.factor, self.form) != (0, "hint"):
            return Miss("a factor below 2 changes nothing")
        if self.form == "copies":
            if int_value(node.step) is None:
                return Miss("the step is not a literal")
            if self.factor * len(node.body) > MOST:
                return Miss(f"{self.factor} copies of {len(node.body)} statements are more than {MOST}")
            if any(isinstance(s, n.Jump) for x in node.body for s in walk(x)):
                return Miss("the body leaves the loop early")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        loop = node_as(program, site.path, n.For)
        if self.form == "vector":
            return edited(program, site.path, (replace(loop, kind="vectorize"),))
        if self.form == "hint":
            attrs = n.attrs(**{**dict(loop.attrs), "factor": self.factor}) if self.factor else loop.attrs
            made = replace(loop, kind="unroll", attrs=attrs)
            return edited(program, site.path, (made,))
        step = int_value(loop.step) or 1
        taken = names_at(program, site.path)
        body = list(loop.body)
        for copy in range(1, self.factor):
            body += _shifted(loop.body, loop.var, copy * step, taken)
        made = replace(loop, step=const(step * self.factor, dtype_of(loop.var.type)), body=tuple(body))
        return edited(program, site.path, (made,), hints=_copied(site.path, loop.body, self.factor))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        if not isinstance(node, n.For):
            return None
        if node.kind == "unroll":
            factor = dict(node.attrs).get("factor", 0)
            return Site(path, Unroll(factor, "hint")) if isinstance(factor, int) and factor != 1 else Miss("the hint names a factor of 1")
        if node.kind == "vectorize":
            return Site(path, Unroll(0, "vector"))
        step, size = int_value(node.step), len(node.body)
        if node.kind != "serial" or step is None:
            return None
        found = tuple(Site(path, Unroll(factor)) for factor in range(size, 1, -1)
                      if size % factor == 0 and step % factor == 0 and _is_copies(node, factor))
        return found or Miss("its body is not a number of copies of one")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        loop = node_as(program, site.path, n.For)
        if self.form != "copies":
            made = replace(loop, kind="serial", attrs=tuple((k, v) for k, v in loop.attrs if k != "factor"))
        else:
            step = (int_value(loop.step) or 1) // self.factor
            made = replace(loop, step=const(step, dtype_of(loop.var.type)), body=loop.body[:len(loop.body) // self.factor])
        return edited(program, site.path, (made,))


def _shifted(body: n.Block, var: n.Var, offset: int, taken: set[str]) -> n.Block:
    """A copy of the body for the iteration `offset` later, its own names fresh."""
    names = fresh_names(body, taken)
    moved = {var.name: add(var, const(offset, dtype_of(var.type)))}
    return tuple(replace(copy, label=None) for s in body if isinstance(copy := substitute(rename(s, names), moved), n.Stmt))  # type: ignore[type-var]  # every Stmt is a dataclass


def _copied(path: Path, body: n.Block, factor: int) -> dict[Path, tuple[Path, ...]]:
    """Where each statement of the body went: to its place in every copy."""
    size = len(body)
    return {(*path, *below): tuple((*path, "body", int(below[1]) + copy * size, *below[2:]) for copy in range(factor))
            for below, _ in block_paths(body, ("body",))}


def _is_copies(loop: n.For, factor: int) -> bool:
    """Whether the body looks like `factor` copies: statement kinds agree (the framework compares the rest)."""
    size = len(loop.body) // factor
    kinds = [type(s) for s in loop.body]
    return all(kinds[i] == kinds[i % size] for i in range(len(kinds)))
