"""Gives each role as many registers as it needs: warpgroups that only copy hand theirs to those that hold results.

pipeline: `redistribute-registers{registers=[40, 232]}@main/teams`

```diff
 kir 1
 program copy_rows
   size M: i32
   in X: f16[M, 64]
   out Y: f16[M, 64]
   map X_map of X box [64, 64]
 kernel main grid (i: 1) threads 256
   shared Xs: f16[64, 64] align 128
   shared full: mbarrier[1]
   mbar_init(&full[0], 1)
   fence_mbar_init()
   @teams roles
-    role producer warps 0..4
+    role producer warps 0..4 registers 40
       mbar_arrive_expect(&full[0], 8192)
       copy load(X[0 +: 64, 0 +: 64] else 0.0:f16 clip) -> Xs via tma signal full[0] {descriptor=X_map}
-    role consumer warps 4..8
+    role consumer warps 4..8 registers 232
       mbar_wait(&full[0], 0)
       Y[0 +: 64, 0 +: 64] = Xs clip
```
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from kir.analysis.target.legalize import registers_refusal, whole_warpgroups
from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.visit import statements
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import kernel_of
from kir.rewrite.match import edited, hardware_of, node_as, params_as

FEW = (24, 32, 40)
"""Registers a thread that suffice to copy: from the least that there may be on."""
MOST, ALL = 240, 512
"""Registers of a thread that holds results, at most (of 255 that instructions name, in steps of 8), and of one thread in every warpgroup together: those of
an SM, divided by the threads of a warpgroup (CUDA C++ Programming Guide, compute capability 9.0)."""


def _given(program: n.Program, site: Site) -> n.Roles:
    node, item = node_as(program, site.path, n.Roles), params_as(site, RedistributeRegisters)
    return item.given(node)


def _hardware(program: n.Program, site: Site, context: Context) -> Verdict:
    hardware = hardware_of(context, "sm_90a")
    if hardware.architecture.has("setmaxnreg"):
        return proved(f"warpgroups of {hardware.name} may change how many registers they have")
    return refuted(f"{hardware.name} has no setmaxnreg", "registers are those of the launch for each warp", needs="sm_90a")


def _whole_warpgroups(program: n.Program, site: Site, context: Context) -> Verdict:
    given = _given(program, site)
    for r in given.roles:
        if not whole_warpgroups(given, r):
            return refuted(f"'{r.name}' is warps {r.lo} up to {r.hi}, no whole warpgroups", f"warp {r.lo if r.lo % 4 else r.hi} shares a warpgroup "
                           "with another role", needs="roles that begin and end at multiples of 4 warps, or as many registers for all of a warpgroup")
    return proved("all warps of a warpgroup change their registers together")


def _adds_up(program: n.Program, site: Site, context: Context) -> Verdict:
    hardware = hardware_of(context, "sm_90a").architecture
    reason = registers_refusal(kernel_of(program, site.path), _given(program, site), hardware)
    if reason:
        return refuted(reason, "a warpgroup that asks for more waits until others have given theirs back, for ever",
                       needs="multiples of 8 from 24 to 256, in all no more than the launch gives")
    return proved("what some roles give back is enough for the others")


def _offers(node: n.Roles) -> Iterator[tuple[int, ...]]:
    """Registers of the roles: a few for those that store nothing and multiply nothing, and for the others what is left, in steps of 8."""
    holds = [any(isinstance(s, (n.Mma, n.Store)) for s in statements(r.body)) for r in node.roles]
    warpgroups = [(r.hi - r.lo) // 4 for r in node.roles]
    givers, takers = (sum(w for w, h in zip(warpgroups, holds, strict=True) if h is which) for which in (False, True))
    for few in FEW if givers and takers else ():
        launched = ALL // (givers + takers) // 8 * 8 * (givers + takers)
        many = min(MOST, (launched - few * givers) // takers // 8 * 8)
        if many > few:
            yield tuple(many if h else few for h in holds)


@dataclass(frozen=True)
class RedistributeRegisters(Pass):
    """`registers` of a thread in each role, in order; 0 leaves a role those of the launch. Where none are said, each few that the roles which hold no
    results may keep, and for the others all that this leaves them."""

    intent: ClassVar[str] = "register-redistribution"
    catalogue: ClassVar[tuple[int, ...]] = (28,)
    claim: ClassVar[str] = "Those who hold results have the registers for them, and none are spilled."
    requires: ClassVar[tuple[str, ...]] = ("roles",)
    provides: ClassVar[tuple[str, ...]] = ("registers",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P774", "validity", "storage", "the registers of all warps add up to what there are", _adds_up),
        Precondition("KIR-P775", "validity", "hardware", "warps of a warpgroup have as many registers each", _whole_warpgroups),
        Precondition("KIR-P776", "validity", "hardware", "the target redistributes registers", _hardware),
    )

    registers: tuple[int, ...] = ()

    def given(self, roles: n.Roles) -> n.Roles:
        """The roles with these registers."""
        return replace(roles, roles=tuple(replace(r, registers=c) for r, c in zip(roles.roles, self.registers, strict=True)))

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At roles that all have the registers of the launch."""
        if not isinstance(node, n.Roles):
            return None
        if not self.registers and not any(r.registers for r in node.roles):
            return tuple(Site(path, RedistributeRegisters(each)) for each in _offers(node)) or Miss("no role only copies, or none holds results")
        if len(self.registers) != len(node.roles) or min(self.registers) < 0:
            return Miss(f"{len(node.roles)} roles, and registers of {len(self.registers)}")
        return Miss("a role has registers of its own already") if any(r.registers for r in node.roles) else Site(path, self)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At roles that have registers of their own."""
        if not isinstance(node, n.Roles) or not any(r.registers for r in node.roles):
            return None
        return Site(path, RedistributeRegisters(tuple(r.registers for r in node.roles)))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The same roles with registers of their own."""
        return edited(program, site.path, (_given(program, site),))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The registers of the launch."""
        node = node_as(program, site.path, n.Roles)
        plain = replace(node, roles=tuple(replace(r, registers=0) for r in node.roles))
        return edited(program, site.path, (plain,))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """Registers of the role that has most; of the launch they stay as they are."""
        return Effect(registers=0)
