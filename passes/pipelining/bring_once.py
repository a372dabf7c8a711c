"""Lets the producer also bring what those who compute read in all iterations: they wait for it once, and issue no copy.

pipeline: `bring-once@main/roles/consumer/weights`

```diff
 kir 1
 program scaled_sums
   size M: i32
   in X: f16[M, 64]
   in W: f16[64, 64]
   out Y: f16[64]
   map X_map of X box [64, 64]
   map W_map of W box [64, 64]
 kernel main grid (i: 1) threads 256
   shared Xs: f16[64, 64] align 128
   shared Ws: f16[64, 64] align 128
   shared full: mbarrier[1]
   shared empty: mbarrier[1]
+  shared Ws_full: mbarrier
+  mbar_init(&Ws_full, 1)
   mbar_init(&full[0], 1)
   mbar_init(&empty[0], 1)
   fence_mbar_init()
   roles
     role producer warps 0..4
+      mbar_arrive_expect(&Ws_full, 8192)
+      copy W[0 +: 64, 0 +: 64] -> Ws via tma signal Ws_full {descriptor=W_map}
       for j in 0..ceildiv(M, 64)
         mbar_wait(&empty[0], (j + 1) % 2)
         mbar_arrive_expect(&full[0], 8192)
         copy load(X[j * 64 +: 64, 0 +: 64] else 0.0:f16 clip) -> Xs via tma signal full[0] {descriptor=X_map}
     role consumer warps 4..8
       fragment acc: f32[64] = 0.0
-      @weights copy W[0 +: 64, 0 +: 64] -> Ws via tma {descriptor=W_map}
+      @weights mbar_wait(&Ws_full, 0)
       for k in 0..ceildiv(M, 64)
         mbar_wait(&full[0], k % 2)
         acc = acc + reduce(cast(Xs * Ws, f32), axis=0, op=sum)
         mbar_arrive(&empty[0])
       Y = cast(acc, f16)
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis import Aliases
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.canonical import bound_names
from kir.ir.types import MBARRIER
from kir.ir.visit import names_read, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import fresh, kernel_of, names_in, replace_kernel
from kir.rewrite.match import matched_as, params_as
from kir.rewrite.match.local_buffers import mentions
from kir.rewrite.match.materialize import buffers_read, buffers_written

from ._rings import NoRing, Rings, init_at
from .warp_specialize import brought_bytes, filled_by, is_load, signaling, silent


def _copies(s: n.Stmt) -> list[n.Copy]:
    return [x for x in walk(s) if isinstance(x, n.Copy)]


def _roles(program: n.Program, path: Path) -> tuple[n.Kernel, n.Roles, int, int] | None:
    """The kernel, its roles of which the first produces, and for a statement of another one's body: the role's number and its own."""
    kernel = kernel_of(program, path)
    if not (len(path) == 6 and path[2] == "roles" and path[4] == "body" and isinstance(roles := kernel.body[int(path[1])], n.Roles)):
        return None
    return (kernel, roles, int(path[3]), int(path[5])) if int(path[3]) else None


def _unchanged(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel, roles, at, i = matched_as(_roles(program, site.path), tuple)
    s = roles.roles[at].body[i]
    read = {x for c in _copies(s) for x in buffers_read(c.src) | {c.src.at.buffer.name}}
    clash = Aliases(program).aliased(read, buffers_written(kernel.body))
    if clash:
        return refuted(f"'{min(clash)}' is written by the kernel, and the producer may read it before that or after", min(clash),
                       needs="a copy of what the kernel does not change")
    return proved("what is copied stays as it is")


def _untouched(program: n.Program, site: Site, context: Context) -> Verdict:
    _, roles, at, i = matched_as(_roles(program, site.path), tuple)
    s = roles.roles[at].body[i]
    for name in sorted(filled_by((s,))):
        for r, role in enumerate(roles.roles):
            if any(mentions(x, name) for x in (role.body[:i] if r == at else role.body)):
                return refuted(f"'{name}' is used by '{role.name}' when the producer fills it", role.name, needs=f"'{name}' used after its copy, by one role")
    return proved("nobody uses what is filled before it is waited for")


@dataclass(frozen=True)
class BringOnce(Pass):
    """The first role brings it, before its ring. With `back`, it waits until the memory is given back, as it is after its last use: a role that
    walks over tiles can so bring the next one."""

    intent: ClassVar[str] = "bring-once"
    catalogue: ClassVar[tuple[int, ...]] = (27, 3)
    claim: ClassVar[str] = "What is read in every iteration arrives beside the first tiles of the ring, and no consumer issues copies."
    requires: ClassVar[tuple[str, ...]] = ("tma", "roles")
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P711", "validity", "aliasing", "the kernel does not change what is copied", _unchanged),
        Precondition("KIR-P712", "validity", "pipeline", "nobody uses what is filled before it is waited for", _untouched),
    )

    back: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At loads of boxes that a role waits for, before its loop."""
        if not (isinstance(node, n.Copy | n.For) and is_load(node)):
            return None
        found = _roles(program, path)
        if found is None:
            return Miss("the copy is not one of a role beside the producer's")
        kernel, roles, at, i = found
        try:
            init_at(kernel, Rings.of(kernel))
        except NoRing as why:
            return Miss(str(why))
        if names_read(node) & set(bound_names(roles.roles[at].body[:i])):
            return Miss("what is copied depends on what the role computes")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The copies first in the producer, with an mbarrier of their own, and a wait for it."""
        kernel, roles, at, i = matched_as(_roles(program, site.path), tuple)
        body = roles.roles[at].body
        s, item = body[i], params_as(site, BringOnce)
        first, _, _, _ = init_at(kernel, Rings.of(kernel))
        name, taken = min(filled_by((s,))), names_in(program, kernel)
        full, empty = (n.Region(n.Buffer(fresh(f"{name}_{end}", taken), MBARRIER, (), "shared")) for end in ("full", "empty"))
        bars = (full, empty) if item.back else (full,)
        wait = n.Eval(build.call("mbar_wait", full, build.const(0)), label=s.label)
        load: n.Stmt = replace(signaling(s, full), label=None)  # type: ignore[type-var]  # of a dataclass
        lead: n.Block = (n.Eval(build.call("mbar_arrive_expect", full, build.const(brought_bytes(s)))), load)
        rest = body[i + 1:]
        if item.back:
            lead, last = (_free(empty), *lead), _last_use(rest, filled_by((s,)))
            rest = (*rest[:last], n.Eval(build.call("mbar_arrive", empty)), *rest[last:])
        front = (*kernel.body[:first], *(n.Alloc(bar.buffer) for bar in bars), *(n.Eval(build.call("mbar_init", bar, build.const(1))) for bar in bars),
                 *kernel.body[first:-1])
        made = _with(roles, at, (*body[:i], wait, *rest), (*lead, *roles.roles[0].body))
        out = replace_kernel(program, kernel.name, replace(kernel, body=(*front, made)))
        return Rewritten(out, (kernel.name, len(front), *site.path[2:]))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a wait for what the producer brings before all else."""
        if not (isinstance(node, n.Eval) and node.call.fn == "mbar_wait" and isinstance(here := node.call.args[0], n.Region) and not here.index):
            return None
        found = _roles(program, path)
        if found is None or node.call.args[1] != build.const(0):
            return Miss("the wait is not one of a role beside the producer's")
        kernel, roles, at, i = found
        lead = roles.roles[0].body
        back = next((x.call.args[0] for x in lead[:1] if isinstance(x, n.Eval) and isinstance(x.call.args[0], n.Region) and x == _free(x.call.args[0])), None)
        bars = (here, back) if isinstance(back, n.Region) else (here,)
        expect, load = (*lead[len(bars) - 1:][:2], None, None)[:2]
        if not (isinstance(expect, n.Eval) and expect.call.fn == "mbar_arrive_expect" and expect.call.args[0] == here and load is not None):
            return Miss("the producer does not begin with what is waited for")
        try:
            plain = silent(load, here)
        except NoRing as why:
            return Miss(str(why))
        count = int_value(expect.call.args[1]) if isinstance(expect.call.args[1], n.Expr) else None
        if not is_load(plain) or brought_bytes(plain) != count:
            return Miss("other bytes are expected than are copied")
        names = {bar.buffer.name for bar in bars}
        kept = [s for s in kernel.body[:-1] if any(mentions(s, x) for x in names)]
        used = [sum(x == bar for s in (roles,) for x in walk(s)) for bar in bars]
        if len(kept) != 2 * len(bars) or used != [3, 2][:len(bars)]:
            return Miss("the mbarrier is used for more than that")
        rest = roles.roles[at].body[i + 1:]
        if isinstance(back, n.Region):
            gone = n.Eval(build.call("mbar_arrive", back))
            without = tuple(s for s in rest if s != gone)
            last = _last_use(without, filled_by((plain,)))
            if (*without[:last], gone, *without[last:]) != rest or n.Eval(build.call("mbar_init", back, build.const(1))) not in kept:
                return Miss("it is not given back after its last use, by one arrival")
            rest = without
        return Site(path, BringOnce(len(bars) == 2), {"load": plain, "bars": names, "rest": rest, "lead": lead[len(bars) + 1:]})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The copies where they are waited for."""
        kernel, roles, at, i = matched_as(_roles(program, site.path), tuple)
        wait = roles.roles[at].body[i]
        front = tuple(s for s in kernel.body[:-1] if not any(mentions(s, x) for x in site.captures["bars"]))
        body = (*roles.roles[at].body[:i], replace(site.captures["load"], label=wait.label), *site.captures["rest"])
        made = _with(roles, at, body, site.captures["lead"])
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, body=(*front, made))), (kernel.name, len(front), *site.path[2:]))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """An mbarrier or two."""
        return Effect(shared_bytes=16 if params_as(site, BringOnce).back else 8)


def _free(bar: n.Region) -> n.Eval:
    """The wait for memory that is free at first."""
    return n.Eval(build.call("mbar_wait", bar, build.const(1)))


def _last_use(block: n.Block, names: set[str]) -> int:
    """The number of statements up to the last that uses a buffer, or a view of it."""
    seen, last = set(names), 0
    for k, s in enumerate(block):
        if any(mentions(s, x) for x in seen):
            last = k + 1
            seen |= {s.buffer.name} if isinstance(s, n.View) else set()
    return last


def _with(roles: n.Roles, at: int, body: n.Block, lead: n.Block) -> n.Roles:
    """Roles of which one has another body, and the first as well."""
    bodies = {at: body, 0: lead}
    return replace(roles, roles=tuple(replace(r, body=bodies.get(k, r.body)) for k, r in enumerate(roles.roles)))
