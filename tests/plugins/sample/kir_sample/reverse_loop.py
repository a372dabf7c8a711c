"""Run a loop's iterations in the opposite order.

before:

```kir
kir 1
program copy
  in X: f32[16]
  out Y: f32[16]
kernel main grid (b: 1) threads 1
  for i in 0..16
    Y[i] = X[i]
```

pipeline: `reverse-loop@main/i`

after:

```kir
kir 1
program copy
  in X: f32[16]
  out Y: f32[16]
kernel main grid (b: 1) threads 1
  for i in 0..16 {order=down}
    Y[15 - i] = X[15 - i]
```
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from kir.ir import nodes as n
from kir.ir.build import is_const, sub
from kir.ir.visit import substitute, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, unknown
from kir.rewrite.edit import node_at, replace_stmts


def _independent(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_at(program, site.path)
    assert isinstance(loop, n.For)
    written = {s.at.buffer.name for s in walk(loop) if isinstance(s, n.Store)}
    read = {x.at.buffer.name for x in walk(loop) if isinstance(x, n.Load)}
    if written & read:
        return unknown(f"'{min(written & read)}' is written and read in the loop")
    return proved("nothing that the loop writes is read in it")


@dataclass(frozen=True)
class ReverseLoop(Pass):
    """No parameters."""

    intent: ClassVar[str] = "reverse-loop"
    catalogue: ClassVar[tuple[int, ...]] = (15,)
    claim: ClassVar[str] = "The last elements of one loop are the first of the next, while they are still in cache."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P159", "validity", "aliasing", "no iteration reads what another writes", _independent),
    )

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        if not isinstance(node, n.For) or node.kind != "serial" or node.attrs:
            return None
        return Site(path, self) if is_const(node.lo, 0) and is_const(node.step, 1) else Miss("it does not count up from 0 by 1")

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        return Site(path, self) if isinstance(node, n.For) and node.attrs == n.attrs(order="down") else None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        return _mirrored(program, site, n.attrs(order="down"))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        return _mirrored(program, site, ())


def _mirrored(program: n.Program, site: Site, attrs: n.Attrs) -> Rewritten:
    loop = node_at(program, site.path)
    assert isinstance(loop, n.For)
    body = tuple(substitute(s, {loop.var.name: sub(sub(loop.hi, 1), loop.var)}) for s in loop.body)
    return Rewritten(replace_stmts(program, site.path, (replace(loop, body=body, attrs=attrs),)), site.path)
