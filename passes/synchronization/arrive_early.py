"""Gives memory that is brought once for a tile back as soon as nobody reads it, before the rest of the tile is worked on.

pipeline: `arrive-early@main/roles/consumer/back`

```diff
 kir 1
 program rows
   size M: i32
   in X: f16[M, 64]
   out Y: f16[M, 64]
   map X_map of X box [64, 64]
 kernel main grid (i: ceildiv(M, 64)) threads 256
   shared Xs: f16[64, 64] align 128
   shared full: mbarrier
   shared empty: mbarrier
   mbar_init(&full, 1)
   mbar_init(&empty, 1)
   fence_mbar_init()
   roles
     role producer warps 0..4
       mbar_wait(&empty, 1)
       mbar_arrive_expect(&full, 8192)
       copy load(X[i * 64 +: 64, 0 +: 64] else 0.0:f16 clip) -> Xs via tma signal full {descriptor=X_map}
     role consumer warps 4..8
       mbar_wait(&full, 0)
       fragment x: f32[64, 64] = cast(Xs, f32)
+      @back mbar_arrive(&empty)
       x = x * 2.0
       Y[i * 64 +: 64, 0 +: 64] = cast(x, f16) clip
-      @back mbar_arrive(&empty)
```

Of attention that is the last product with the queries: those of the next tile arrive while the last values are multiplied, and results leave.
"""
from __future__ import annotations

from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.paths import child_blocks
from kir.ir.visit import statements
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, unknown
from kir.rewrite.edit import kernel_of
from kir.rewrite.match import block_and_index, params_as, sibling, splice
from kir.rewrite.match.local_buffers import mentions

from ..pipelining._rings import roles_at
from ..pipelining.warp_specialize import filled_by


def _filled(kernel: n.Kernel, bar: n.Region) -> set[str]:
    """The shared memory that a producer fills once this mbarrier says that it is free, and the views of it."""
    found = roles_at(kernel)
    names = set[str]()
    if found is None:
        return names
    for block in _blocks(found[1].roles[0].body):
        for k, s in enumerate(block):
            if isinstance(s, n.Eval) and s.call.fn == "mbar_wait" and s.call.args[0] == bar:
                names |= filled_by(block[k + 1:k + 3])
    for s in statements(kernel.body):
        if isinstance(s, n.View) and s.at.buffer.name in names:
            names.add(s.buffer.name)
    return names


def _blocks(block: n.Block) -> list[n.Block]:
    return [block, *(x for s in block for _, inner in child_blocks(s) for x in _blocks(inner))]


def _place(block: n.Block, i: int, names: set[str]) -> int:
    """The place behind the last statement before `i` that uses a buffer."""
    return next((k + 1 for k in range(i - 1, -1, -1) if any(mentions(block[k], x) for x in names)), 0)


def _done(block: n.Block, names: set[str]) -> bool:
    """Whether all products of a block, and of those inside it, that read a buffer are waited for in the block where they are issued."""
    for inner in _blocks(block):
        for k, s in enumerate(inner):
            if isinstance(s, n.Mma) and s.pending and any(mentions(s, x) for x in names) and not _waited(inner[k + 1:]):
                return False
    return True


def _waited(block: n.Block) -> bool:
    """Whether a block waits for the group of the product that stands before it."""
    groups = 0
    for s in block:
        call = s.call if isinstance(s, n.Eval) else None
        if call is not None and call.fn == "wgmma_commit":
            groups += 1
        elif call is not None and call.fn == "wgmma_wait" and groups:
            left = int_value(call.args[0]) if isinstance(call.args[0], n.Expr) else None
            if left is not None and left < groups:
                return True
        elif not isinstance(s, n.Let | n.Eval | n.Mma | n.View | n.Alloc | n.Store):
            return False
    return False


def _finished(program: n.Program, site: Site, context: Context) -> Verdict:
    block, _ = block_and_index(program, site.path)
    names = site.captures["names"]
    if not _done(block[:site.captures["place"]], names):
        return unknown(f"a product that reads '{min(names)}' may still be under way", needs="a wait for the group of that product")
    return proved("all that reads it has ended")


@dataclass(frozen=True)
class ArriveEarly(Pass):
    """`over` is the number of statements that the arrival comes to stand before; where none is given, all that use nothing of what is given back."""

    intent: ClassVar[str] = "split-phase-barrier"
    catalogue: ClassVar[tuple[int, ...]] = (36, 27)
    claim: ClassVar[str] = "What the next tile reads arrives while the rest of this one is worked on."
    requires: ClassVar[tuple[str, ...]] = ("tma", "roles")
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P363", "validity", "pipeline", "all that reads the memory has ended when it is given back", _finished),)

    over: int = 0

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the arrival by which a role gives back what it is brought once a tile, behind statements that do not use it."""
        names = self._given_back(program, path, node)
        if not names:
            return None
        block, i = block_and_index(program, path)
        place = _place(block, i, names)
        if place == i or self.over not in (0, i - place):
            return Miss("it stands behind the last use" if place == i else f"it would stand before {i - place} statements")
        return Site(path, ArriveEarly(i - place), {"names": names, "place": place})

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At such an arrival right behind the last use, before other statements."""
        names = self._given_back(program, path, node)
        if not names:
            return None
        block, i = block_and_index(program, path)
        if _place(block, i, names) != i:
            return Miss("it does not stand behind the last use")
        free = next((k for k, s in enumerate(block[i + 1:]) if any(mentions(s, x) for x in names)), len(block) - i - 1)
        return tuple(Site(path, ArriveEarly(k), {"names": names, "place": i}) for k in range(1, free + 1)) or None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The arrival behind the last use."""
        block, i = block_and_index(program, site.path)
        over = params_as(site, ArriveEarly).over
        return Rewritten(splice(program, site.path, (block[i], *block[i - over:i]), -over, 1), sibling(site.path, -over))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The arrival behind what it stood before."""
        block, i = block_and_index(program, site.path)
        over = params_as(site, ArriveEarly).over
        return Rewritten(splice(program, site.path, (*block[i + 1:i + 1 + over], block[i]), 0, 1 + over), sibling(site.path, over))

    def _given_back(self, program: n.Program, path: Path, node: Place) -> set[str]:
        """What an arrival at an mbarrier without slots gives back."""
        if not (isinstance(node, n.Eval) and node.call.fn == "mbar_arrive" and isinstance(bar := node.call.args[0], n.Region) and not bar.index):
            return set()
        return _filled(kernel_of(program, path), bar)
