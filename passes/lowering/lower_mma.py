"""Writes a tile kernel as the code of its threads: matrix instructions lane by lane, copies in shares, barriers where threads synchronize.

pipeline: `lower-mma@main`

```diff
 kir 1
 program product
   in A: f16[32, 16]
   in B: f16[16, 16]
   out C: f32[32, 16]
 kernel main grid (i: 1) threads 64
   shared As: f16[32, 16]
   shared Bs: f16[16, 16]
-  copy A -> As via vector(8)
-  copy B -> Bs
-  fragment acc: f32[32, 16] = 0.0
-  for w in 0..2 parallel warp
-    fragment a: f16[16, 16]
-    fragment b: f16[16, 16]
-    copy As[w * 16 +: 16, 0 +: 16] -> a via ldmatrix
-    copy Bs -> b via ldmatrix {trans=true}
-    mma acc[w * 16 +: 16, 0 +: 16] += a * b via mma_sync
-  C = acc
+  for t in 0..64 parallel thread
+    copy A[t // 2, t % 2 * 8 +: 8] -> As[t // 2, t % 2 * 8 +: 8] via vector(8)
+    for i_1 in 0..4 unroll {factor=4}
+      copy B[i_1 * 4 + t // 16, t % 16] -> Bs[i_1 * 4 + t // 16, t % 16]
+    register acc: f32[2, 4] = 0.0
+    barrier()
+    register a: f16[8]
+    register b: f16[2, 4]
+    let a_rows = ldmatrix(&As[t % 32 % 16 + t // 32 * 16, t % 32 // 16 * 8 +: 8], num=4)
+    a = a_rows
+    for i_2 in 0..2 unroll {factor=2}
+      let b_rows = ldmatrix(&Bs[t % 32 % 16, i_2 * 8 +: 8], num=2, trans=true)
+      b[i_2, 0 +: 4] = b_rows
+    for i_3 in 0..2 unroll {factor=2}
+      acc[i_3, 0 +: 4] = mma_sync(a, b[i_3, 0 +: 4], acc[i_3, 0 +: 4], shape=m16n8k16)
+    for i_4 in 0..2 unroll {factor=2}
+      C[t % 32 // 4 + t // 32 * 16, i_4 * 8 + t % 32 % 4 * 2 +: 2] = acc[i_4, 0 +: 2]
+      C[t % 32 // 4 + t // 32 * 16 + 8, i_4 * 8 + t % 32 % 4 * 2 +: 2] = acc[i_4, 2 +: 2]
```
"""
from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import statements, substitute_buffers
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import kernel_of, names_in, replace_kernel
from kir.rewrite.match import counting, fresh_var, matched_as
from kir.rewrite.match.thread_team import is_call, whole_team
from kir.rewrite.residue import residue

from ._barrier_placement import with_barriers
from ._footprint import Unreached
from ._fragment_inference import NotLowered, Team, infer
from ._lanes_to_tiles import NotRaised, Raise, arrangements, roles
from ._named_values import Unnamed, texts, with_names, without_names
from ._row_padding import narrowed, widened
from ._tiles_to_lanes import Lanes
from ._written_swizzle import NoArithmetic, recognized, written_out


@dataclass(frozen=True)
class LowerMma(Pass):
    """`named` are values that a thread's code computes by name, each after the loop in whose body it does (`i_1: t // 4`); shared memory
    is aligned to `align` bytes; loops are unrolled `bare`, without a factor; swizzles of `explicit` memory stand in the
    indices; `padded` rows are declared as wide as they are apart; barriers between iterations are `late`, at the end of the loop."""

    intent: ClassVar[str] = "lower-mma"
    catalogue: ClassVar[tuple[int, ...]] = (37, 47)
    claim: ClassVar[str] = "Each thread's part of a tile program is written out, down to the lanes of matrix instructions."
    numerics: ClassVar[str] = "reassociated(k)"
    provides: ClassVar[tuple[str, ...]] = ("thread-loop",)
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    named: tuple[str, ...] = ()
    align: int = 0
    bare: bool = False
    explicit: bool = False
    padded: bool = False
    late: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel of tile statements, all of which have a form for one thread."""
        if not isinstance(node, n.Kernel) or not any(isinstance(s, n.Mma) for s in statements(node.body)):
            return None
        try:
            made, named = self._made(program, node)
            return Site(path, replace(self, named=named), {"made": made})
        except NotLowered as why:
            return Miss(str(why))
        except NoArithmetic as why:
            return Miss(str(why))
        except Unnamed as why:
            return Miss(f"no thread computes {why}")
        except KirError as bad:
            return Miss(f"what is named is no expression here: {bad.diagnostics[0].message}")

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The code of the kernel's threads."""
        made = site.captures.get("made") or self._made(program, kernel_of(program, site.path))[0]
        return Rewritten(replace_kernel(program, made.name, made), site.path)

    def _made(self, program: n.Program, kernel: n.Kernel) -> tuple[n.Kernel, tuple[str, ...]]:
        """The code of the kernel's threads, and the texts of what it names."""
        made = lowered(program, kernel, self.bare, self.late)
        made = widened(made) if self.padded else made
        made = written_out(program, made) if self.explicit else made
        made, named = with_names(made, self.named, names_in(program, made)) if self.named else (made, ())
        return aligned(made, 0, self.align), named

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that is shared memory and one loop over its threads."""
        if not isinstance(node, n.Kernel):
            return None
        given = {s.buffer.align for s in node.body if isinstance(s, n.Alloc) and s.buffer.space == "shared"}
        align = given.pop() if len(given) == 1 else 0
        try:
            found = raised(program, aligned(node, align, 0))
        except (NotRaised, Unreached, NotLowered) as why:
            return Miss(str(why))
        return None if found is None else Site(path, replace(found.told, align=align), {"tiles": found.kernel})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The tile kernel whose lowering this is."""
        made = site.captures["tiles"]
        return Rewritten(replace_kernel(program, made.name, made), site.path)


def aligned(k: n.Kernel, old: int, new: int) -> n.Kernel:
    """The kernel with its shared memory aligned to `new` bytes where that was `old`."""
    if old == new:
        return k
    buffers = {s.buffer.name: replace(s.buffer, align=new) for s in k.body
               if isinstance(s, n.Alloc) and s.buffer.space == "shared" and s.buffer.align == old}
    made: n.Kernel = substitute_buffers(k, buffers)
    return made


def lowered(program: n.Program, kernel: n.Kernel, bare: bool = False, late: bool = False) -> n.Kernel:
    """The kernel as the code of its threads, whose loops are unrolled `bare` or by a factor, and whose barriers between iterations are
    `late`. Raises NotLowered."""
    threads = build.int_value(kernel.threads)
    if threads is None:
        raise NotLowered("the number of threads is not known")
    front = tuple(s for s in kernel.body if isinstance(s, n.Alloc) and s.buffer.space == "shared")
    rest = tuple(s for s in kernel.body if s not in front)
    if any(s.init is not None for s in front):
        raise NotLowered("shared memory that starts with a value")
    taken = names_in(program, kernel)
    t = fresh_var("t", taken)
    lanes = Lanes(t if threads > 1 else build.const(0), threads, infer(kernel, threads), taken, bare)
    body = lanes.block(with_barriers(rest, late) if threads > 1 else rest, Team(threads))
    if threads > 1:
        body = (counting(t, threads, body, "thread"),)
    return replace(kernel, body=(*front, *body))


@dataclass(frozen=True)
class Raised:
    """A tile kernel, and how its lowering gives the code that it was read from."""

    kernel: n.Kernel
    told: LowerMma


def raised(program: n.Program, kernel: n.Kernel) -> Raised | None:
    """The tile kernel whose lowering a kernel is. None where there is no code of threads to raise; raises NotRaised, Unreached or
    NotLowered."""
    front = kernel.body[:-1]
    team = whole_team(program, (kernel.name, len(kernel.body) - 1), kernel.body[-1]) if kernel.body else None
    if team is None or team.threads % 32 or not all(isinstance(s, n.Alloc) and s.buffer.space == "shared" for s in front):
        return None
    body, named = without_names(team.loop.body, team.thread)
    given = replace(kernel, body=(*front, replace(team.loop, body=body)))
    wanted = replace_kernel(program, kernel.name, given)
    seen = recognized(given)
    explicit = seen != given
    front, loop = seen.body[:-1], matched_as(seen.body[-1], n.For)
    body = loop.body
    bare = any(isinstance(s, n.For) and s.kind == "unroll" and not s.attrs for s in statements(body))
    late = any(isinstance(s, n.For) and s.kind != "thread" and s.body and is_call(s.body[-1], "barrier") for s in statements(body))
    found = roles(body, team.thread, team.threads)
    why: Exception = NotRaised("no arrangement of the warps gives this code")
    for (warps, down), direct in product(arrangements(team.threads // 32), (False, True)):
        try:
            raising = Raise(team.thread, team.threads, found, warps, names_in(program, kernel), direct, down)
            made = replace(kernel, body=(*front, *raising.cta(body)))
            narrow = narrowed(program, made)
            padded, made = narrow != made, narrow
            again = lowered(program, made, bare, late)
            again = widened(again) if padded else again
            again = written_out(program, again) if explicit else again
            left = residue(replace_kernel(program, kernel.name, again), wanted)
        except (NotRaised, Unreached, NotLowered, NoArithmetic) as bad:
            why = bad
            continue
        if left is not None:
            names = {theirs: ours for _, pairs in left.names for ours, theirs in pairs}
            return Raised(made, LowerMma(texts(named, names), 0, bare, explicit, padded, late))
    raise why
