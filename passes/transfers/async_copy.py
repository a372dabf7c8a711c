"""Copies to shared memory with cp.async: a loop's copies run while it computes, and are waited for by count.

pipeline: `async-copy{place=use}@main/k`

```diff
 kir 1
 program sum
   in X: f32[K]
   out Y: f32[128]
   size K: i32
   fact K % 128 == 0
 kernel main grid (i: 1) threads 32
   shared Xs: f32[128]
   fragment acc: f32[128] = 0.0
   @k for k in 0..K // 128
-    copy X[k * 128 +: 128] -> Xs via vector(4)
+    copy X[k * 128 +: 128] -> Xs via cp_async grouped {vector=4}
+    async_commit()
+    async_wait(0)
     acc = acc + Xs
+  async_wait(0)
   Y = acc
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from kir.analysis.target.legalize import copy_refusal
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import region_text
from kir.ir.visit import statements
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import block_at, edit_block, kernel_of
from kir.rewrite.match import node_as, splice
from kir.rewrite.match.local_buffers import kind_of_copy, mentions, team_level, width_of

from ._async_schedule import Flight, Undecided, period_of


def _chunks(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    for s in loop.body:
        if isinstance(s, n.Copy) and _is_staging(s):
            if reason := copy_refusal(_asynchronous(s), "cta"):
                element = s.dst.buffer.dtype.bytes
                return refuted(reason, f"the copy to '{s.dst.buffer.name}'", needs="chunks of 4, 8 or 16 bytes, and zeros outside",
                               attempt=f"vectorize-global{{width={16 // element}}}" if width_of(s) > 1 else "")
            if s.mask is not None or s.src.mask is not None:
                return unknown("a mask may cut a chunk", needs="a bound instead of a mask")
    return proved("each copy moves chunks of 4, 8 or 16 bytes and fills with zeros")


def _arrived(program: n.Program, site: Site, context: Context) -> Verdict:
    made = site.params.optimize(program, site).program
    kernel = kernel_of(made, site.path)
    period = period_of(kernel.body)
    trips = 2 * period + 2
    try:
        found = Flight(trips).walk(kernel.body, {})
    except Undecided as why:
        return unknown(f"the schedule is not known: {why}")
    if found is not None:
        return refuted(f"{found.access} is touched while the copy to {found.copy} is in flight", f"at {found.at}",
                       needs="fewer groups pending at the wait")
    return proved("nothing touches a place before the copy to it has been waited for",
                  scope=f"{trips} iterations; indices repeat after {period}")


def _immutable(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    read = {s.src.at.buffer.name for s in loop.body if isinstance(s, n.Copy) and _is_staging(s)}
    for s in statements(loop.body):
        written = s.at if isinstance(s, n.Store) else s.dst if isinstance(s, n.Copy) else None
        if written is not None and written.buffer.name in read:
            return refuted(f"'{written.buffer.name}' is written while it may be read", s.label or region_text(written))
    return proved("nothing that is copied is written in the loop")


def _is_staging(s: n.Stmt) -> bool:
    """Whether a statement is a synchronous copy from global to shared memory."""
    return (isinstance(s, n.Copy) and kind_of_copy(s) in ("plain", "vector") and s.signal is None
            and (s.src.at.buffer.space, s.dst.buffer.space) == ("global", "shared"))


def _call(fn: str, *args: n.Expr) -> n.Eval:
    return n.Eval(build.call(fn, *args))


@dataclass(frozen=True)
class AsyncCopy(Pass):
    """`pending` groups may be in flight after the wait, which stands at the start of the loop's body or before the first `use`. With
    `drain` the last groups are waited for after the loop."""

    intent: ClassVar[str] = "async-copy"
    catalogue: ClassVar[tuple[int, ...]] = (17,)
    claim: ClassVar[str] = "Copies to shared memory run in the background and need no registers on the way."
    requires: ClassVar[tuple[str, ...]] = ("shared", "vectorized")
    provides: ClassVar[tuple[str, ...]] = ("cp_async",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P170", "validity", "layout", "copies move 4, 8 or 16 bytes at once and fill with zeros", _chunks),
        Precondition("KIR-P171", "validity", "pipeline", "nothing touches a place while a copy to it is in flight", _arrived),
        Precondition("KIR-P172", "validity", "aliasing", "what is copied is not written meanwhile", _immutable),
    )

    pending: int = 0
    place: Literal["start", "use"] = "start"
    drain: bool = True

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop whose body copies from global to shared memory."""
        if not (isinstance(node, n.For) and node.kind in ("serial", "unroll")):
            return None
        if not any(_is_staging(s) for s in node.body):
            return None
        if team_level(program, path) != "cta":
            return Miss("the loop belongs to a part of the CTA")
        if any(isinstance(x, n.Eval) and x.call.fn in ("async_commit", "async_wait") for x in statements(kernel_of(program, path).body)):
            return Miss("the kernel has groups of asynchronous copies already")
        if self.pending < 0:
            return Miss("a negative number of groups")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The copies of the loop, and those before it to the same buffers, asynchronous: a group for each run of them."""
        loop = node_as(program, site.path, n.For)
        i = int(site.path[-1])
        names = {s.dst.buffer.name for s in loop.body if isinstance(s, n.Copy) and _is_staging(s)}
        body = _grouped(loop.body, names, deep=False)
        use = 0
        if self.place == "use":
            use = next((k for k, s in enumerate(body) if not _is_issue(s, names) and any(mentions(s, x) for x in names)), len(body))
        body = (*body[:use], _call("async_wait", build.const(self.pending)), *body[use:])
        drain = (_call("async_wait", build.const(0)),) if self.drain else ()
        front = _grouped(block_at(program, site.path)[:i], names, deep=True)
        made = splice(program, site.path, (*front, replace(loop, body=body), *drain), -i)
        return Rewritten(made, (*site.path[:-1], len(front)))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop with grouped cp.async copies and one wait for them."""
        if not (isinstance(node, n.For) and node.kind in ("serial", "unroll") and any(
                isinstance(s, n.Copy) and s.via == "cp_async" and s.grouped for s in node.body)):
            return None
        waits = [(k, s) for k, s in enumerate(node.body) if isinstance(s, n.Eval) and s.call.fn == "async_wait"]
        if len(waits) != 1:
            return Miss(f"{len(waits)} waits in the loop")
        at, wait = waits[0]
        left = wait.call.args[0]
        pending = build.int_value(left) if isinstance(left, n.Expr) else None
        if pending is None:
            return Miss("the wait is for an unknown number of groups")
        following = block_at(program, path)[int(path[-1]) + 1:]
        drain = any(isinstance(s, n.Eval) and s.call.fn == "async_wait" for s in following)
        first = next((k for k, s in enumerate(node.body) if isinstance(s, n.Copy) and s.via == "cp_async"), 0)
        return Site(path, AsyncCopy(pending, "start" if at < first else "use", drain))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The copies of the loop, and those before it to the same buffers, synchronous; no groups, no waits."""
        loop = node_as(program, site.path, n.For)
        i = int(site.path[-1])
        names = {s.dst.buffer.name for s in loop.body if isinstance(s, n.Copy) and s.via == "cp_async"}
        block = block_at(program, site.path)
        before = _synchronous(block[:i], names)
        after = block[i + 1:]
        if self.drain:
            k = next(k for k, s in enumerate(after) if isinstance(s, n.Eval) and s.call.fn == "async_wait")
            after = (*after[:k], *after[k + 1:])
        made = edit_block(program, site.path, lambda _: (*before, replace(loop, body=_synchronous(loop.body, names)), *after))
        return Rewritten(made, (*site.path[:-1], len(before)))


def _is_issue(s: n.Stmt, names: set[str]) -> bool:
    return (isinstance(s, n.Copy) and s.dst.buffer.name in names) or (isinstance(s, n.Eval) and s.call.fn == "async_commit")


def _asynchronous(s: n.Copy) -> n.Copy:
    """A copy as cp.async makes it, in chunks of the width that it has said, if it has."""
    width = width_of(s)
    return replace(s, via="cp_async", grouped=True, attrs=n.attrs(**{**dict(s.attrs), "vector": width}) if width > 1 else s.attrs)


def _grouped(block: n.Block, names: set[str], deep: bool) -> n.Block:
    """A block with its copies to those buffers asynchronous, each run of them closed by a commit."""
    out: list[n.Stmt] = []
    running = False
    for s in block:
        if isinstance(s, n.Copy) and _is_staging(s) and s.dst.buffer.name in names:
            out.append(_asynchronous(s))
            running = True
            continue
        if running:
            out.append(_call("async_commit"))
            running = False
        if deep and isinstance(s, n.For) and any(mentions(x, name) for x in s.body for name in names):
            s = replace(s, body=_grouped(s.body, names, deep))
        out.append(s)
    if running:
        out.append(_call("async_commit"))
    return tuple(out)


def _synchronous(block: n.Block, names: set[str]) -> n.Block:
    """The inverse of `_grouped`, waits left out too."""
    out: list[n.Stmt] = []
    for s in block:
        match s:
            case n.Copy() if s.via == "cp_async" and s.grouped and s.dst.buffer.name in names:
                width = dict(s.attrs).get("vector", 1)
                attrs = tuple((k, v) for k, v in s.attrs if k != "vector")
                out.append(replace(s, via=f"vector({width})" if width != 1 else "plain", grouped=False, attrs=attrs))
            case n.Eval() if s.call.fn in ("async_commit", "async_wait"):
                pass
            case n.For():
                out.append(replace(s, body=_synchronous(s.body, names)))
            case _:
                out.append(s)
    return tuple(out)
