"""State features: what a program uses, read off the IR and never off its history.

A feature is `kind`, `kind@anchor` or `kind:name`: `mma@main/k_loop`, `pipelined@main/k_loop`, `shared:As`. Passes name kinds in
`requires`, `provides` and `conflicts`; `has` compares.
"""
from __future__ import annotations

from collections.abc import Iterator

from kir.base.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.anchors import anchors
from kir.ir.types import TileType
from kir.ir.visit import names_read, walk

KINDS: dict[str, str] = {
    "tiled": "a kernel holds whole tiles", "threads": "a CTA has several threads", "grid": "a loop runs over the grid's tiles (persistent)",
    "raster": "the tile of a CTA is computed from its index by division", "cluster": "CTAs form clusters",
    "roles": "warps have code of their own", "thread-loop": "statements are written per thread",
    "warp-loop": "statements are written per warp",
    "panels": "a loop reads tiles that move with it", "rows": "a store writes a whole row or tile", "mma": "a matrix multiply of tiles",
    "mma_sync": "mma.sync", "wgmma": "wgmma", "tcgen05": "a product into tensor memory",
    "pipelined": "a loop keeps several iterations in flight", "unrolled": "a loop is unrolled",
    "vectorized": "vector copies, or a vectorized loop", "shared": "a buffer in shared memory", "fragment": "a tile in registers of a team",
    "register-array": "a private array", "layout": "a local buffer with a layout", "swizzle": "a swizzled layout",
    "padded": "a strided local buffer",
    "view": "another name for memory", "cp_async": "cp.async", "bulk": "a bulk copy", "tma": "a TMA copy", "mbarrier": "an mbarrier",
    "group": "groups of asynchronous copies", "barrier": "a barrier", "fence": "a fence", "lanes": "exchange between lanes",
    "ldmatrix": "matrix loads of a warp", "atomics": "atomics", "reduction": "a reduction of a tile", "scan": "a scan of a tile",
    "masked": "a masked or clipped access", "cache-policy": "a cache policy", "opaque": "text that was not understood", "hole": "a hole",
    "generic": "the program needs a binding", "kernels": "several kernels", "workspace": "memory that the launch plan provides",
    "dispatch": "the launch plan chooses", "tensor-map": "a TMA descriptor", "function": "a device function", "branch": "a branch"}
"""The kinds of features, and what each says."""


def features(program: n.Program) -> frozenset[str]:
    """All features of a program; linear in its size."""
    return frozenset(_features(program))


def kinds(found: frozenset[str]) -> frozenset[str]:
    """The kinds of features, without where they hold."""
    return frozenset(f.partition("@")[0].partition(":")[0] for f in found)


def has(found: frozenset[str], wanted: str) -> bool:
    """Whether a feature holds: exactly, or anywhere when only its kind is given."""
    return wanted in found or ("@" not in wanted and ":" not in wanted and wanted in kinds(found))


def _features(p: n.Program) -> Iterator[str]:
    if p.metas:
        yield "generic"
    if len(p.kernels) > 1:
        yield "kernels"
    if any(isinstance(s, n.Dispatch) for s in p.plan):
        yield "dispatch"
    yield from (f"workspace:{w.buffer.name}" for w in p.workspaces)
    yield from (f"tensor-map:{t.name}" for t in p.tensor_maps)
    yield from (f"function:{f.name}" for f in p.functions)
    for k in p.kernels:
        if not build.is_const(k.threads, 1):
            yield f"threads@{k.name}"
        if k.cluster:
            yield f"cluster@{k.name}"
    axes = {a.name for k in p.kernels for a in k.grid}
    functions = {f.name for f in p.functions}
    loops: list[tuple[str, n.For]] = []
    for anchor, _, s in anchors(p):
        root = anchor.partition("/")[0]
        while loops and not anchor.startswith(loops[-1][0] + "/"):
            loops.pop()
        around = loops[-1] if loops else None
        if root not in functions:
            yield from _statement(s, anchor, root, around, axes)
        if isinstance(s, n.For):
            loops.append((anchor, s))


def _statement(s: n.Stmt, anchor: str, kernel: str, around: tuple[str, n.For] | None, axes: set[str]) -> Iterator[str]:
    at = around[0] if around is not None else kernel
    match s:
        case n.Let():
            if isinstance(s.value.type, TileType):
                yield f"tiled@{kernel}"
        case n.Alloc() | n.View():
            yield from _buffer(s.buffer, kernel)
            if isinstance(s, n.View):
                yield f"view:{s.buffer.name}"
        case n.Store():
            if isinstance(s.at.type, TileType) and s.at.buffer.space == "global":
                yield f"rows@{anchor}"
                yield f"tiled@{kernel}"
            if s.mask is not None or s.clip:
                yield f"masked@{anchor}"
            if s.cache:
                yield f"cache-policy@{anchor}"
        case n.Copy():
            yield from _copy(s, anchor, kernel)
        case n.Mma():
            yield f"mma@{at}"
            yield f"tiled@{kernel}"
            if s.via in ("mma_sync", "wgmma", "tcgen05"):
                yield f"{s.via}@{at}"
        case n.For():
            yield from _loop(s, anchor, axes)
        case n.If() | n.While():
            yield f"generic@{anchor}" if isinstance(s, n.If) and s.static else f"branch@{anchor}"
        case n.Roles():
            yield from (f"roles:{r.name}" for r in s.roles)
        case n.Opaque():
            yield f"opaque@{anchor}"
        case n.Hole():
            yield f"hole:{s.name}"
        case _:
            pass
    for e in _values(s):
        for x in walk(e):
            yield from _node(x, anchor, at, kernel, around, axes)


def _values(s: n.Stmt) -> Iterator[n.Node]:
    for name in s.compared_fields:
        if name not in ("body", "then", "orelse", "roles", "buffer"):
            value = getattr(s, name)
            yield from (x for x in (value if isinstance(value, tuple) else (value,)) if isinstance(x, n.Node))


def _buffer(b: n.Buffer, kernel: str) -> Iterator[str]:
    if b.dtype.name == "mbarrier":
        yield f"mbarrier:{b.name}"
    elif b.space in ("shared", "cluster"):
        yield f"shared:{b.name}"
    elif b.space == "fragment":
        yield f"fragment:{b.name}"
        yield f"tiled@{kernel}"
    elif b.space == "register" and b.shape:
        yield f"register-array:{b.name}"
    if b.layout is not None:
        yield f"layout:{b.name}"
        if b.layout.name == "swizzle" or any(isinstance(a, n.Layout) and a.name == "swizzle" for a in b.layout.args):
            yield f"swizzle:{b.name}"
    if b.strides is not None:
        yield f"padded:{b.name}"


def _copy(s: n.Copy, anchor: str, kernel: str) -> Iterator[str]:
    kind = s.via.partition("(")[0]
    if kind in ("cp_async", "bulk", "tma"):
        yield f"{kind}@{anchor}"
    if kind == "vector" or "vector" in dict(s.attrs):
        yield f"vectorized@{anchor}"
    if kind in ("ldmatrix", "stmatrix"):
        yield f"ldmatrix@{anchor}"
    if s.grouped:
        yield f"group@{anchor}"
    if s.mask is not None or s.clip or s.src.clip or s.src.mask is not None:
        yield f"masked@{anchor}"
    if isinstance(s.dst.type, TileType):
        yield f"tiled@{kernel}"


def _loop(s: n.For, anchor: str, axes: set[str]) -> Iterator[str]:
    named = {"pipelined": "pipelined", "unroll": "unrolled", "vectorize": "vectorized", "thread": "thread-loop", "warp": "warp-loop",
             "warpgroup": "warp-loop", "static": "generic"}.get(s.kind)
    if named is not None:
        yield f"{named}@{anchor}"
    if names_read(s.lo) & axes and s.kind in ("serial", "pipelined"):
        yield f"grid@{anchor}"
    step = build.int_value(s.step)
    if s.kind == "serial" and step is not None and step > 1 and len(s.body) % step == 0:
        yield f"unrolled@{anchor}"


def _node(x: n.Node, anchor: str, at: str, kernel: str, around: tuple[str, n.For] | None, axes: set[str]) -> Iterator[str]:
    match x:
        case n.Load():
            if x.mask is not None or x.clip:
                yield f"masked@{anchor}"
            if x.cache:
                yield f"cache-policy@{anchor}"
            if around is not None and x.at.buffer.space == "global" and isinstance(x.type,
                                                                                   TileType) and around[1].var.name in names_read(x.at):
                yield f"panels@{around[0]}"
        case n.Binary() if x.op in ("floordiv", "mod", "tdiv", "trem") and names_read(x.a) & axes:
            yield f"raster@{kernel}"
        case n.Call():
            row = table().get(x.fn)
            if x.fn == "reduce":
                yield f"reduction@{anchor}"
            elif x.fn == "scan":
                yield f"scan@{anchor}"
            elif x.fn == "mma_sync":
                yield f"mma_sync@{at}"
            elif x.fn in ("ldmatrix", "stmatrix"):
                yield f"ldmatrix@{at}"
            elif x.fn.startswith("atomic_"):
                yield f"atomics@{anchor}"
            elif x.fn.startswith("mbar_"):
                yield f"mbarrier@{anchor}"
            elif row is not None and row.effect == "async":
                yield f"group@{anchor}"
            elif row is not None and row.effect == "sync":
                yield f"fence@{anchor}" if "fence" in x.fn else f"barrier@{anchor}"
            elif row is not None and row.is_convergent:
                yield f"lanes@{at}"
        case _:
            pass
