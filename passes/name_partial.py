"""Gives the reduction of a panel a name before it is folded into what lasts.

before:

```kir
kir 1
program row_sums
  in X: f32[M, 256]
  out S: f32[M]
  size M: i32
kernel main grid (row: M) threads 128
  register total: f32 = 0.0
  for k in 0..4
    @add total = total + reduce(X[row, k * 64 +: 64], axis=0, op=sum)
  S[row] = total
```

pipeline: `name-partial@main/k/add`

after:

```kir
kir 1
program row_sums
  in X: f32[M, 256]
  out S: f32[M]
  size M: i32
kernel main grid (row: M) threads 128
  register total: f32 = 0.0
  for k in 0..4
    let part = reduce(X[row, k * 64 +: 64], axis=0, op=sum)
    @add total = total + part
  S[row] = total
```
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import names_read
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import block_at, edit_block, fresh, kernel_of, names_in, node_at

from ._local_buffers import team_level

FOLDS = {"add": "sum", "max": "max", "min": "min"}
"""The reduction that an operation folds."""


@dataclass(frozen=True)
class NamePartial(Pass):
    """No parameters: the site is the statement that folds."""

    intent: ClassVar[str] = "tree-reduction"
    catalogue: ClassVar[tuple[int, ...]] = (44,)
    claim: ClassVar[str] = "What a panel adds is complete before it is added, so that threads meet over it and not over the sum."
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a store of the whole CTA that folds a reduction into what it stores to."""
        if team_level(program, path) != "cta" or not isinstance(node, n.Store):
            return None
        v = node.value
        if not (isinstance(v, n.Binary) and v.op in FOLDS and v.a == n.Load(node.at)):
            return None
        return Site(path, self) if _is_reduction(v.b, v.op) else None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A let before the store."""
        s, i = node_at(program, site.path), int(site.path[-1])
        assert isinstance(s, n.Store) and isinstance(s.value, n.Binary)
        name = fresh("part", names_in(program, kernel_of(program, site.path)))
        made = replace(s, value=build.binary(s.value.op, s.value.a, n.Var(name, s.value.b.type)))
        let = n.Let((name,), s.value.b)
        return Rewritten(edit_block(program, site.path, lambda b: (*b[:i], let, made, *b[i + 1:])), site.path, {site.path: ((*site.path[:-1], i + 1),)})

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a named reduction of the whole CTA that one later statement of the block folds, and nothing else reads."""
        if team_level(program, path) != "cta" or not (isinstance(node, n.Let) and len(node.names) == 1):
            return None
        name, i = node.names[0], int(path[-1])
        readers = [k for k, s in enumerate(block_at(program, path)) if k > i and name in names_read(s)]
        if len(readers) != 1:
            return None
        s = block_at(program, path)[readers[0]]
        if not (isinstance(s, n.Store) and isinstance(v := s.value, n.Binary) and v.a == n.Load(s.at) and v.b == n.Var(name, node.value.type)
                and _is_reduction(node.value, v.op)):
            return Miss(f"'{name}' is not folded into a result as it is") if isinstance(node.value, n.Call) and node.value.fn == "reduce" else None
        return Site(path, self, {"reader": readers[0]})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The reduction where it is folded."""
        let, i, k = node_at(program, site.path), int(site.path[-1]), int(site.captures["reader"])
        s = block_at(program, site.path)[k]
        assert isinstance(let, n.Let) and isinstance(s, n.Store) and isinstance(s.value, n.Binary)
        made = replace(s, value=build.binary(s.value.op, s.value.a, let.value))
        return Rewritten(edit_block(program, site.path, lambda b: (*b[:i], *b[i + 1:k], made, *b[k + 1:])), (*site.path[:-1], k - 1))


def _is_reduction(e: n.Expr, op: str) -> bool:
    return isinstance(e, n.Call) and e.fn == "reduce" and dict(e.attrs).get("op") == FOLDS.get(op) and len(e.args) == 1
