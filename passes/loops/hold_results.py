"""Computes the values of a short loop first, in an array of the thread's own, and uses them in a second loop.

pipeline: `hold-results{first=1}@main/each`

```diff
 kir 1
 program scaled
   in X: f32[64]
   out Y: f32[64]
 kernel main grid (b: 1) threads 1
+  register value: f32[8]
   @each for j in 0..8
-    register value: f32
-    value = X[b * 8 + j] * 2.0
-    if b * 8 + j < 60
-      Y[b * 8 + j] = value
+    value[j] = X[b * 8 + j] * 2.0
+  for j_1 in 0..8
+    if b * 8 + j_1 < 60
+      Y[b * 8 + j_1] = value[j_1]
```
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from kir.analysis.access import Aliases, accesses
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import I32
from kir.ir.visit import buffers_named, names_read, statements, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import kernel_of
from kir.rewrite.match import block_and_index, edited, fresh_var, is_counted, matched_as, names_at, node_as, params_as, regions_of
from kir.rewrite.match.local_buffers import team_level

MOST = 64
"""Elements of an array that a thread keeps in registers."""


def _halves(program: n.Program, site: Site) -> tuple[n.Block, n.Block]:
    loop, first = node_as(program, site.path, n.For), params_as(site, HoldResults).first
    return loop.body[1:1 + first], loop.body[1 + first:]


def _unchanged(program: n.Program, site: Site, context: Context) -> Verdict:
    (front, back), aliases = _halves(program, site), Aliases(program)
    read = {a.buffer for s in front for a in accesses(s) if not a.writes}
    for a in (a for s in back for a in accesses(s) if a.writes):
        for name in sorted(read):
            if a.buffer == "*" or aliases.may_be_one(a.buffer, name):
                return refuted(f"'{a.buffer}' is written where values are used, and read where they are computed",
                               "iteration 1 computes with what iteration 0 is yet to write", needs="values that do not depend on how others are used")
    return proved("nothing that the values are made of is written where they are used")


@dataclass(frozen=True)
class HoldResults(Pass):
    """`first` is how many statements, after the declaration of the value, compute it; those after them use it."""

    intent: ClassVar[str] = "register-tile"
    catalogue: ClassVar[tuple[int, ...]] = (50, 11)
    claim: ClassVar[str] = "Results that wait together can leave together, in instructions that take several at once."
    least: ClassVar[Mapping[str, int]] = {"first": 1}
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P953", "validity", "aliasing", "what the values are made of is not written where they are used", _unchanged),
    )

    first: int = 1

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop of known length whose first statement declares the value."""
        if not is_counted(node, of=I32, plain=True) or len(node.body) < 2 + self.first:
            return None
        value, count = node.body[0], build.int_value(node.hi)
        if not (isinstance(value, n.Alloc) and value.buffer.space == "register" and not value.buffer.shape and value.init is None):
            return None
        if count is None or not 1 < count <= MOST:
            return Miss(f"no length from 2 to {MOST}")
        if not _is_own(program, path):
            return Miss("more than a thread computes it")
        front, back = node.body[1:1 + self.first], node.body[1 + self.first:]
        return Site(path, self) if not (reason := _apart(value.buffer, front, back)) else Miss(reason)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The array, and two loops."""
        loop, (front, back) = node_as(program, site.path, n.For), _halves(program, site)
        value = matched_as(loop.body[0], n.Alloc)
        held, var = replace(value.buffer, shape=(loop.hi,)), fresh_var(loop.var.name, names_at(program, site.path))
        second = substitute(replace(loop, body=_placed(back, value.buffer.name, build.region(held, loop.var)), hi=build.const(0)), {loop.var.name: var})
        made = (replace(value, buffer=held), replace(loop, body=_placed(front, value.buffer.name, build.region(held, loop.var))),
                replace(second, var=var, hi=loop.hi, label=None))
        return edited(program, site.path, made)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a private array that one loop fills and the next uses, element by element."""
        if not (isinstance(node, n.Alloc) and node.buffer.space == "register" and len(node.buffer.shape) == 1 and node.init is None):
            return None
        block, i = block_and_index(program, path)
        loops = [s for s in block[i + 1:i + 3] if is_counted(s, of=I32, plain=True) and s.hi == node.buffer.shape[0]]
        if len(loops) != 2 or node.buffer.layout is not None or node.buffer.align:
            return Miss("no two loops over its elements stand behind it")
        if not _is_own(program, path):
            return Miss("more than a thread has it")
        name = node.buffer.name
        inside = [[r.index for r in regions_of(loop, name)] for loop in loops]
        everywhere = sum(isinstance(x, n.Region) and x.buffer.name == name for x in walk(kernel_of(program, path)))
        if any(index != (loop.var,) for loop, found in zip(loops, inside) for index in found) or sum(map(len, inside)) != everywhere:
            return Miss(f"'{name}' is not only filled and used, an element an iteration")
        value = replace(node.buffer, shape=())
        fused = _fused(loops[0], loops[1], value)
        if fused is None or (reason := _apart(value, fused.body[1:1 + len(loops[0].body)], fused.body[1 + len(loops[0].body):])):
            return Miss(reason if fused is not None else "the loops share names")
        return Site(path, HoldResults(len(loops[0].body)))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One loop, with a scalar."""
        block, i = block_and_index(program, site.path)
        node, first, second = matched_as(block[i], n.Alloc), matched_as(block[i + 1], n.For), matched_as(block[i + 2], n.For)
        fused = _fused(first, second, replace(node.buffer, shape=()))
        assert fused is not None
        return edited(program, site.path, (replace(fused, body=(replace(node, buffer=replace(node.buffer, shape=())), *fused.body[1:])),), 0, 3)


def _is_own(program: n.Program, path: Path) -> bool:
    """Whether a thread alone executes a statement."""
    return team_level(program, path) == "thread" or build.is_const(kernel_of(program, path).threads, 1)


def _placed(block: n.Block, name: str, at: n.Region) -> n.Block:
    """A block with another place for a buffer of a name."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        return at if isinstance(new, n.Region) and new.buffer.name == name else new
    return tuple(transform(s, leave, lambda x: not isinstance(x, n.Buffer)) for s in block)


def _fused(first: n.For, second: n.For, value: n.Buffer) -> n.For | None:
    """Both loops as one, its first statement the declaration of the value; None where names of one are those of the other."""
    if set(bound_names(first.body)) & set(bound_names(second.body)):
        return None
    back: Any = substitute(replace(second, hi=build.const(0)), {second.var.name: first.var})
    at = n.Region(value)
    return replace(first, body=(n.Alloc(value), *_placed(first.body, value.name, at), *_placed(back.body, value.name, at)))


def _apart(value: n.Buffer, front: n.Block, back: n.Block) -> str:
    """Why statements that compute a value and those that use it are not told apart ("" where they are)."""
    own = set(bound_names(front))
    if own & {name for s in back for name in names_read(s) | buffers_named(s)}:
        return "what uses the value uses more of what computes it"
    if any(isinstance(s, (n.Jump, n.Opaque, n.Hole, n.View)) for s in statements((*front, *back))):
        return "a statement leaves the loop"
    written = {a.buffer for s in front for a in accesses(s) if a.writes}
    if written - own != {value.name} or any(a.sync for s in front for a in accesses(s)):
        return "it does more than compute the value"
    if any(a.writes and a.buffer == value.name for s in back for a in accesses(s)):
        return "the value is written where it is used"
    first = next((s for s in front if value.name in buffers_named(s)), None)
    return "" if first is not None and _writes_first(first, value) else "the value is not written first"


def _writes_first(s: n.Stmt, value: n.Buffer) -> bool:
    """Whether a statement writes the value before it reads it; on a branch that does not, nobody has, in one form as in the other."""
    match s:
        case n.Store():
            return s.at == n.Region(value) and s.mask is None and value.name not in buffers_named(s.value)
        case n.If():
            ways = [next((x for x in way if value.name in buffers_named(x)), None) for way in (s.then, s.orelse)]
            return value.name not in buffers_named(s.cond) and all(x is None or _writes_first(x, value) for x in ways)
        case _:
            return False
