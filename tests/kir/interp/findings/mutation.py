"""Mechanical mutants of a program: each synchronization dropped, each guard weakened, each phase swapped, each layout made one-sided."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.anchors import anchors
from kir.ir.paths import insert, replace_at
from kir.ir.visit import transform

SYNCHRONIZATION = frozenset({
    "barrier", "warp_sync", "named_barrier_sync", "named_barrier_arrive", "fence", "fence_async", "fence_mbar_init", "mbar_init",
    "mbar_expect", "mbar_arrive", "mbar_arrive_expect", "mbar_wait", "async_commit", "async_wait", "bulk_commit", "bulk_wait",
    "wgmma_fence", "wgmma_commit", "wgmma_wait"})


@dataclass(frozen=True)
class Mutant:
    """`name` is stable: what was done, and the anchor where."""

    name: str
    program: n.Program


def mutants(program: n.Program) -> Iterator[Mutant]:
    """All mutants, in reading order."""
    for anchor, path, s in anchors(program):
        for what, changed in _changes(s):
            yield Mutant(f"{what} {anchor}", replace_at(program, path, changed))
    for i, t in enumerate(program.tensor_maps):
        options = dict(t.attrs)
        if options.get("swizzle"):
            yield Mutant(f"unswizzle map {t.name}", _with_map(program, i, replace(t, attrs=n.attrs(**{**options, "swizzle": 0}))))
        largest = max(range(len(t.box)), key=lambda d: t.box[d])
        box = tuple(d // 2 if at == largest else d for at, d in enumerate(t.box))
        yield Mutant(f"shrink map {t.name}", _with_map(program, i, replace(t, box=box)))


def _with_map(program: n.Program, i: int, t: n.TensorMap) -> n.Program:
    return replace(program, tensor_maps=(*program.tensor_maps[:i], t, *program.tensor_maps[i + 1:]))


def _changes(s: n.Stmt) -> Iterator[tuple[str, n.Block]]:
    match s:
        case n.Eval():
            yield from _calls(s)
        case n.Store():
            if s.mask is not None:
                yield "unmask", (replace(s, mask=None),)
            if s.clip:
                yield "unclip", (replace(s, clip=False),)
        case n.Copy():
            yield from _copies(s)
        case n.Let():
            if isinstance(s.value, n.Load) and (s.value.clip or s.value.mask is not None):
                yield "unclip", (replace(s, value=n.Load(s.value.at, None, None, False, s.value.cache)),)
        case n.If():
            if not s.orelse and not s.static:
                yield "unguard", s.then
        case _:
            pass


def _calls(s: n.Eval) -> Iterator[tuple[str, n.Block]]:
    call = s.call
    if call.fn in SYNCHRONIZATION:
        yield f"drop {call.fn}", ()
    if call.fn == "mbar_wait" and isinstance(call.args[1], n.Expr):
        flipped = replace(call, args=(call.args[0], build.mod(build.add(call.args[1], 1), 2)))
        yield "swap phase", (replace(s, call=flipped),)
    if call.fn in ("async_wait", "wgmma_wait") and isinstance(call.args[0], n.Expr):
        yield f"weaken {call.fn}", (replace(s, call=replace(call, args=(build.add(call.args[0], 1),))),)


def _copies(s: n.Copy) -> Iterator[tuple[str, n.Block]]:
    if s.src.clip:
        yield "unclip source", (replace(s, src=n.Load(s.src.at)),)
    if s.clip:
        yield "unclip target", (replace(s, clip=False),)
    if s.signal is not None:
        yield "unsignal", (replace(s, signal=None, grouped=True),)
    source, target = _shrunk(s.src.at), _shrunk(s.dst)
    if source is not None and target is not None:
        yield "shrink", (replace(s, src=replace(s.src, at=source), dst=target),)


def _shrunk(region: n.Region) -> n.Region | None:
    """The region with its last span halved; a whole buffer counts as spans over all of it."""
    index: list[n.Expr | n.Span] = list(region.index) or [build.span(0, d) for d in region.buffer.shape]
    for i in reversed(range(len(index))):
        at = index[i]
        if isinstance(at, n.Span) and isinstance(at.extent, int) and at.extent > 1:
            index[i] = build.span(at.lo, at.extent // 2, at.step)
            return n.Region(region.buffer, tuple(index))
    return None




def one_sided(program: n.Program) -> Iterator[Mutant]:
    """For each shared buffer with a layout, the program that reads its bytes in row-major order."""
    for anchor, path, s in anchors(program):
        if isinstance(s, n.Alloc) and s.buffer.space == "shared" and s.buffer.layout is not None:
            plain = replace(s.buffer, name=f"{s.buffer.name}_plain", layout=None)
            changed = transform(program, partial(_reading, s.buffer, plain))
            after = (*path[:-1], int(path[-1]) + 1)
            yield Mutant(f"unswizzle reads of {anchor}", insert(changed, after, (n.View(plain, n.Region(s.buffer)),)))


def _reading(of: n.Buffer, to: n.Buffer, _: n.Node, node: n.Node) -> n.Node:
    def moved(region: n.Region) -> n.Region:
        return n.Region(to, region.index) if region.buffer == of else region
    if isinstance(node, n.Load):
        return replace(node, at=moved(node.at))
    if isinstance(node, n.Call) and node.fn == "ldmatrix":
        return replace(node, args=tuple(moved(a) if isinstance(a, n.Region) else a for a in node.args))
    if isinstance(node, n.View):
        return replace(node, at=moved(node.at))
    return node
