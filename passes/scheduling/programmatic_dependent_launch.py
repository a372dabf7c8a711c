"""Lets a kernel start while the one before it in the stream is still running, and wait where it needs its results.

pipeline: `programmatic-dependent-launch{wait=1}@second`

```diff
 kir 1
 program two
   size N: i32
   in X: f32[N]
   out Z: f32[N]
   workspace raw: f32[N]
 kernel first grid (b: ceildiv(N, 64)) threads 64
   for t in 0..64 parallel thread
     raw[b * 64 + t] = load(X[b * 64 + t] else 0.0 clip) * 2.0 clip
 kernel second grid (b: ceildiv(N, 64)) threads 64
   for t in 0..64 parallel thread
     let weight = exp(cast(t, f32))
+    grid_dependency_wait()
     Z[b * 64 + t] = load(raw[b * 64 + t] else 0.0 clip) * weight clip
+    grid_dependency_launch()
+plan
+  launch first
+  launch second {pdl=true}
```
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, Literal

from kir.analysis import Aliases, accesses
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.rebuild.plans import Plan, launches, plan_of
from kir.ir.visit import walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import kernel_of, replace_kernel
from kir.rewrite.match import hardware_of, matched_as, node_as, params_as

WAIT, LAUNCH = "grid_dependency_wait", "grid_dependency_launch"


def _waits_in_time(program: n.Program, site: Site, context: Context) -> Verdict:
    item, kernel, aliases = params_as(site, ProgrammaticDependentLaunch), node_as(program, site.path, n.Kernel), Aliases(program)
    block = _block(kernel)
    touched = [a for s in block[:item.wait] for a in accesses(s)]
    earlier = _order(program)[:_order(program).index(kernel.name)]
    for name in earlier:
        for theirs in accesses(kernel_of(program, (name,))):
            for ours in touched:
                if (theirs.writes or ours.writes) and theirs.buffer != "*" and aliases.may_be_one(theirs.buffer, ours.buffer):
                    did = "writes" if theirs.writes else "reads"
                    return refuted(f"'{ours.buffer}' is touched before the wait, and kernel '{name}' {did} it",
                                   f"a CTA of '{kernel.name}' runs while '{name}' has not come that far", attempt="a smaller `wait`")
    tensors = {p.name for p in program.params if isinstance(p.of, n.Buffer)} | {w.buffer.name for w in program.workspaces}
    outside = sorted({a.buffer for a in touched} & tensors)
    if outside:
        return unknown(f"'{outside[0]}' is touched before the wait, and a kernel before this program may still be writing it",
                       needs="a wait before the first access to global memory", attempt="a smaller `wait`")
    return proved("nothing before the wait touches global memory")


def _overlaps(program: n.Program, site: Site, context: Context) -> Verdict:
    hardware = hardware_of(context, "sm_90a").architecture
    if hardware.capability >= (9, 0):
        return proved(f"{hardware.name} starts a kernel before the one ahead of it has ended")
    return refuted(f"{hardware.name} starts a kernel when the one ahead of it has ended", "the wait does nothing there", needs="sm_90 or newer")


@dataclass(frozen=True)
class ProgrammaticDependentLaunch(Pass):
    """The wait stands before statement `wait` of the kernel's innermost common block (that of its loop over all threads, if it has
    one); `trigger` is where the kernel after this one may start: after the last statement, before it, after the wait, or nowhere."""

    intent: ClassVar[str] = "programmatic-dependent-launch"
    catalogue: ClassVar[tuple[int, ...]] = (34,)
    claim: ClassVar[str] = "The start of a kernel, and what it does before it needs others' results, hides behind the end of the one ahead."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P340", "validity", "aliasing", "nothing that earlier kernels touch is touched before the wait", _waits_in_time),
        Precondition("KIR-P341", "profit", "hardware", "the target overlaps dependent launches", _overlaps))

    wait: int = 0
    trigger: Literal["end", "last", "start", "none"] = "end"

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that is launched without overlap."""
        if not isinstance(node, n.Kernel):
            return None
        if any(isinstance(x, n.Call) and x.fn in (WAIT, LAUNCH) for x in walk(node)) or _launch(program, node.name) is None:
            return Miss("the kernel waits for others already, or is not launched once")
        if program.plan and tuple(program.plan) == tuple(n.Launch(k.name) for k in program.kernels):
            return Miss("the plan says what it would be anyway")
        launch = _launch(program, node.name)
        if launch is not None and dict(launch.attrs).get("pdl"):
            return Miss("it is launched with overlap already")
        if self.wait > len(_block(node)) - 2 * (self.trigger == "last"):
            return Miss(f"its block has {len(_block(node))} statements")
        return Site(path, self)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that is launched with overlap, and waits at its own level."""
        if not isinstance(node, n.Kernel):
            return None
        launch = _launch(program, node.name)
        if launch is None or not dict(launch.attrs).get("pdl"):
            return None
        block = _block(node)
        waits = [i for i, s in enumerate(block) if _is(s, WAIT)]
        launches = [i for i, s in enumerate(block) if _is(s, LAUNCH)]
        calls = [x for x in walk(node) if isinstance(x, n.Call) and x.fn in (WAIT, LAUNCH)]
        if len(waits) != 1 or len(launches) > 1 or len(calls) != len(waits) + len(launches):
            return Miss("it does not wait once, at its own level")
        where = {(): "none", (len(block) - 2,): "last", (len(block) - 1,): "end", (waits[0] + 1,): "start"}.get(tuple(launches))
        if where is None:
            return Miss("the kernel after it is let in at an unusual place")
        return Site(path, ProgrammaticDependentLaunch(waits[0], where))  # type: ignore[arg-type]  # one of the four

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Wait, trigger and the launch's attribute."""
        kernel = kernel_of(program, site.path)
        block = _block(kernel)
        wait, launch = (n.Eval(build.call(fn)) for fn in (WAIT, LAUNCH))
        rest = block[self.wait:]
        at = {"start": 0, "last": len(rest) - 1, "end": len(rest), "none": None}[self.trigger]
        made: n.Block = (*block[:self.wait], wait, *(rest if at is None else (*rest[:at], launch, *rest[at:])))
        after = replace_kernel(program, kernel.name, _with(kernel, made))
        plan = _planned(plan_of(program), kernel.name, lambda attrs: n.attrs(**{**dict(attrs), "pdl": True}))
        return Rewritten(replace(after, plan=plan), site.path)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A launch after the end of the one before."""
        kernel = kernel_of(program, site.path)
        made = tuple(s for s in _block(kernel) if not _is(s, WAIT) and not _is(s, LAUNCH))
        after = replace_kernel(program, kernel.name, _with(kernel, made))
        plan = _planned(program.plan, kernel.name, lambda attrs: tuple(a for a in attrs if a[0] != "pdl"))
        plain = plan == tuple(n.Launch(k.name) for k in program.kernels)
        return Rewritten(replace(after, plan=() if plain else plan), site.path)


def _is(s: n.Stmt, fn: str) -> bool:
    return isinstance(s, n.Eval) and s.call.fn == fn


def _order(program: n.Program) -> list[str]:
    """Kernels in the order in which they are launched; of arms of which one is taken, all."""
    return [s.kernel for s in launches(program)]


def _planned(plan: Plan, kernel: str, made: Callable[[n.Attrs], n.Attrs]) -> tuple[n.Launch | n.Dispatch, ...]:
    """A plan in which the launches of a kernel have other attributes."""
    out: list[n.Launch | n.Dispatch] = []
    for step in plan:
        if isinstance(step, n.Dispatch):
            out.append(replace(step, arms=tuple((guard, _planned(arm, kernel, made)) for guard, arm in step.arms), orelse=_planned(step.orelse, kernel, made)))
        else:
            out.append(replace(step, attrs=made(step.attrs)) if step.kernel == kernel else step)
    return tuple(out)


def _launch(program: n.Program, name: str) -> n.Launch | None:
    """The one launch of a kernel."""
    found = [s for s in launches(program) if s.kernel == name]
    return found[0] if len(found) == 1 else None


def _team(kernel: n.Kernel) -> int | None:
    """Where the loop over all threads stands, when everything but declarations is in it."""
    loops = [i for i, s in enumerate(kernel.body) if isinstance(s, n.For) and s.kind == "thread"]
    rest = [s for i, s in enumerate(kernel.body) if i not in loops and not isinstance(s, n.Alloc)]
    return loops[0] if len(loops) == 1 and not rest else None


def _block(kernel: n.Kernel) -> n.Block:
    at = _team(kernel)
    loop = kernel.body[at] if at is not None else None
    return loop.body if isinstance(loop, n.For) else kernel.body


def _with(kernel: n.Kernel, block: n.Block) -> n.Kernel:
    at = _team(kernel)
    if at is None:
        return replace(kernel, body=block)
    loop = matched_as(kernel.body[at], n.For)
    return replace(kernel, body=(*kernel.body[:at], replace(loop, body=block), *kernel.body[at + 1:]))
