"""Kernels whose warps have roles: each role becomes a loop over its own threads, and what a team does once is done by its first thread.

Before the roles stand values of the whole CTA and the initialization of mbarriers. A role that only issues copies and waits is one
thread's; another is lowered for its threads, or for those of each of its warpgroups, like a CTA of that size.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kir.analysis.access import buffers_written
from kir.analysis.facts import Facts
from kir.analysis.tiles.fragments import Spread
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.types import I32, TileType, dtype_of, shape_of
from kir.ir.visit import walk
from kir.surface.lowering.registers.barriers import joined
from kir.surface.lowering.registers.elements import element
from kir.surface.lowering.registers.state import ROUNDS, Held, State, refuse, shape_known
from kir.surface.lowering.tiles.binding import fill
from kir.surface.lowering.tiles.warpgroups import WARPGROUP, accumulator, begun, phases, released, shares

ISSUED = frozenset({"mbar_init", "mbar_expect", "mbar_arrive", "mbar_arrive_expect", "bulk_commit", "bulk_wait", "fence_mbar_init",
                    "prefetch_descriptor"})
"""What a team does once: its first thread does it."""
WAITS = frozenset({"mbar_wait", "wgmma_fence", "wgmma_commit", "wgmma_wait", "fence_async", "cluster_arrive", "cluster_wait"})
"""What every thread of a team does."""
MEETS = frozenset({"cluster_arrive", "cluster_wait"})
"""What every thread of the cluster takes part in: CTAs that meet."""
DEPENDS = frozenset({"grid_dependency_wait", "grid_dependency_launch"})
"""What every thread of the CTA does before the roles: it waits for the kernel before this one, and lets the next one begin."""
Lower = Callable[[State, n.Block], None]


def has_roles(k: n.Kernel) -> bool:
    """Whether a kernel ends in roles."""
    return bool(k.body) and isinstance(k.body[-1], n.Roles)


def is_issued(s: n.Stmt) -> bool:
    """Whether a statement is done once by a team, by whichever thread: bulk copies, arrivals, their groups, and control around them."""
    match s:
        case n.Eval():
            return s.call.of is None and s.call.fn in ISSUED
        case n.Copy():
            return s.via in ("tma", "bulk")
        case n.For():
            return s.kind in ("serial", "unroll") and bool(s.body) and all(map(is_issued, s.body))
        case n.If():
            return all(map(is_issued, (*s.then, *s.orelse)))
        case _:
            return False


def is_one_threads(s: n.Stmt) -> bool:
    """Whether one thread can do a statement for its whole team: what is issued, and the waits and scalars between."""
    match s:
        case n.Let():
            return not isinstance(s.value.type, TileType) and not any(isinstance(x, n.Load) for x in walk(s.value))
        case n.Eval():
            return is_issued(s) or (s.call.of is None and s.call.fn in ("mbar_wait", "fence_async"))
        case n.For():
            return s.kind in ("serial", "unroll") and all(map(is_one_threads, s.body))
        case n.If():
            return all(map(is_one_threads, (*s.then, *s.orelse)))
        case _:
            return is_issued(s)


def _is_read_alike(s: n.Let, written: set[str]) -> bool:
    """Whether all threads read the same scalar from memory that a kernel, which writes other memory, leaves as it is."""
    loads = [x for x in walk(s.value) if isinstance(x, n.Load)]
    return not isinstance(s.value.type, TileType) and "*" not in written and all(
        x.at.buffer.space == "global" and x.at.buffer.name not in written for x in loads)


def is_cluster_barrier(s: n.Stmt) -> bool:
    """Whether every thread of a team takes part in a statement that CTAs of a cluster meet by."""
    return isinstance(s, n.Eval) and s.call.of is None and s.call.fn in MEETS


def _depends(s: n.Stmt) -> bool:
    """Whether a statement waits for another kernel, or lets one begin."""
    return isinstance(s, n.Eval) and s.call.of is None and s.call.fn in DEPENDS


def lowered_roles(start: State, k: n.Kernel, lower: Lower) -> n.Block:
    """The body of such a kernel. Raises KirError KIR-B030."""
    *front, last = k.body
    assert isinstance(last, n.Roles)
    written = buffers_written(k.body)
    values: list[n.Stmt] = []
    first: list[n.Stmt] = []
    waiting: list[n.Stmt] = []
    later: list[n.Stmt] = []
    facts = start.facts
    for s in front:
        if (isinstance(s, n.Alloc) and s.buffer.space == "shared" and s.init is None) or (
                isinstance(s, n.View) and s.buffer.space in ("global", "cluster")):
            values.append(s)
        elif isinstance(s, n.Let) and (is_one_threads(s) or _is_read_alike(s, written)):
            (later if any(map(_depends, waiting)) else values).append(s)  # what is read is read after the wait
            facts = facts.after((s,))
        elif is_one_threads(s) and not waiting:
            first.append(s)
        elif is_cluster_barrier(s) or (_depends(s) and not later):
            waiting.append(s)
        else:
            raise refuse("a statement of the whole CTA before its roles that one thread cannot do", "values, shared memory and mbarriers alone")
    every = _loop(start, start.threads)
    known = {x for s in (*values, *later) if isinstance(s, n.Let) for x in s.names}
    roles = tuple(replace(r, body=_team(start, r.body, 32 * (r.hi - r.lo), facts, known, lower))
                  for r in last.roles)
    first = [*begun(start.boxes), *first]
    alone: n.Block = (n.If(build.compare("eq", every.var, 0), tuple(first)),) if first else ()
    init: n.Block = (replace(every, body=(*alone, *waiting), label="init"),) if first or waiting else ()
    return (*values, *(n.Alloc(bar) for bar, _ in start.boxes), *init, *later, replace(last, roles=roles))


def _loop(start: State, threads: int) -> n.For:
    return n.For(n.Var(start.fresh("t"), I32), const(0), const(threads), const(1), (), "thread")


def _team(start: State, body: n.Block, threads: int, facts: Facts, known: set[str], lower: Lower) -> n.Block:
    """The code of a role, or of a warpgroup of one, for its threads."""
    last = len(body)
    while last and is_cluster_barrier(body[last - 1]):
        last -= 1
    if all(map(is_one_threads, body[:last])):
        loop = _loop(start, threads)
        alone: n.Block = (n.If(build.compare("eq", loop.var, 0), body[:last]),) if last else ()
        return (replace(loop, body=(*alone, *body[last:])),)
    if len(body) == 1 and isinstance(split := body[0], n.For) and split.kind == "warpgroup":
        count = int_value(split.hi)
        if count is None or count * WARPGROUP != threads or int_value(split.lo) != 0:
            raise refuse(f"a loop over the warpgroups of a role of {threads} threads that is not 0..{threads // WARPGROUP}")
        inside, before = facts.ranging(split.var, split.lo, split.hi, split.step), len(start.boxes)
        made = _team(start, split.body, WARPGROUP, inside, {*known, split.var.name}, lower)
        if len(start.boxes) > before:
            raise refuse("one of several warpgroups that waits for a box", "`signal bar`, and a wait for it")
        return (replace(split, body=made),)
    thread, taken = n.Var(start.fresh("t"), I32), frozenset(start.taken)
    spreads: dict[str, Spread] = {}
    for _ in range(ROUNDS + 1):
        start.taken &= taken
        state = State(start.program, start.kernel, threads, thread, start.taken, facts.ranging(thread, const(0), const(threads)))
        state.constant, state.counters, state.spreads = {*start.constant, *known}, start.counters, {**spreads}
        lower(state, body)
        if not state.wanted:
            break
        spreads = {**state.spreads, **state.wanted}
    loop = n.For(thread, const(0), const(threads), const(1), (*phases(state), *joined(state.items, state.aliases.may_be_one)), "thread")
    start.boxes += state.boxes
    if state.scratch or state.shared:
        raise refuse("a role that needs shared memory to pass tiles through", "tiles that stay in the registers that hold them")
    return (loop,)


# --------------------------------------------------------------------------------------------------- statements of such teams

def issue(state: State, s: n.Stmt) -> None:
    """What a team does once, by its first thread. What a copy fills that signals an mbarrier is waited for; before it, all threads of the CTA are done
    with that memory. Roles say so by mbarriers of their own."""
    waited_for = False
    meets(state, s)
    for x in walk(s):
        match x:
            case n.Copy():
                signals = x.signal is not None
                for r, kind in ((x.src.at, "read"), (x.dst, "write")):
                    if not (kind == "write" and signals) or not has_roles(state.kernel):
                        state.touch(r, kind)
                waited_for |= signals
            case _:
                pass
    giving_back = released(state, s)
    state.put(n.If(build.compare("eq", state.lane, 0), (s,)), settled=giving_back or waited_for)


def meets(state: State, s: n.Stmt) -> None:
    """Notes the mbarriers of a statement: none is used before all threads know that it is initialized. Roles begin behind a barrier."""
    for x in walk(s) if not has_roles(state.kernel) else ():
        used = x.args if isinstance(x, n.Call) else (x.signal,) if isinstance(x, n.Copy) else ()
        for r in used:
            if isinstance(r, n.Region) and r.buffer.dtype.name == "mbarrier":
                state.touch(r, "write" if isinstance(x, n.Call) and x.fn == "mbar_init" else "read")


def product(state: State, s: n.Mma) -> None:
    """`acc += a * b`: a wgmma for each step of k and each 64 rows of a warpgroup, left in flight where the product is pending, else between
    its fence and the wait for it. Raises KirError KIR-B030 for operands that it does not read."""
    held, shape = state.held.get(s.acc.buffer.name), shape_known(s.acc)
    own = accumulator(shape, state.team)
    if held is None or s.acc.index or own is None or held.spread.canonical != own.canonical or (s.pending and state.team != WARPGROUP):
        raise refuse(f"wgmma adds to a whole fragment of warpgroups, not to '{s.acc.buffer.name}'",
                     "a fragment [64 m, n] of whole warpgroups; of one, if the product is pending")
    in_registers = _is_computed(state, s.a)
    if in_registers and shape[0] != 64 * (state.team // WARPGROUP):
        raise refuse("wgmma reads A from registers for 64 rows of each warpgroup")
    a, trans_a = (_registers(state, s), False) if in_registers else placed(state, s.a, rows=True)
    b, trans_b = placed(state, s.b, rows=False)
    depth = shape_of(s.a.type)[-1]
    step = 256 // a.buffer.dtype.bits
    columns = shape_of(s.b.type)[-1]
    if not isinstance(depth, int) or depth % step or not isinstance(columns, int):
        raise refuse(f"wgmma multiplies steps of {step} along k", f"tiles whose k axis is a multiple of {step}")
    options: dict[str, n.Attr] = {"shape": f"m64n{columns}k{step}"}
    if trans_a:
        options["trans_a"] = True
    if trans_b:
        options["trans_b"] = True
    loops: list[n.Stmt] = []
    for left, into in shares(state, s, held.buffer, a, 0 if in_registers else _axis_of_rows(a, trans_a)):
        kk = n.Var(state.fresh("kk"), I32)
        first = build.mul(kk, step)
        if in_registers:
            part_a = n.Region(left.buffer, (n.Span(build.mul(kk, 2), 2), *left.index[1:]))
        else:
            part_a = stepped(left, axis_of_k(left, True, trans_a), first, step)
        places = (into, part_a, stepped(b, axis_of_k(b, False, trans_b), first, step))
        call = n.Eval(build.call_with("wgmma", places, n.attrs(**options)), s.label)
        loops.append(n.For(kk, const(0), const(depth // step), const(1), (call,), "unroll", n.attrs(factor=depth // step)))
    if s.pending:
        state.put(*loops)
        return
    for r in (a, b):
        state.touch(r, "read")
    end = n.Eval(build.call("wgmma_commit")), n.Eval(build.call("wgmma_wait", const(0)))
    state.put(*(() if in_registers else (n.Eval(build.call("wgmma_fence")),)), *loops, *end)


def _is_computed(state: State, e: n.Expr) -> bool:
    """Whether an operand is a value of the threads, not a place in shared memory."""
    return any(isinstance(x, (n.Var, n.Load)) and (x.name if isinstance(x, n.Var) else x.at.buffer.name) in state.held for x in walk(e))


def _registers(state: State, s: n.Mma) -> n.Region:
    """A as the registers that wgmma reads it from: neighboring pairs of columns, as accumulators are held. A fence follows their writes."""
    shape, dtype = shape_known(s.a), dtype_of(s.a.type)
    own = accumulator(shape, state.team)
    if dtype.bits != 16 or own is None or shape[1] % 16:
        raise refuse(f"wgmma reads A from registers as [64, 16 n] elements of 16 bits, not {' x '.join(map(str, shape))} of {dtype}")
    held = Held(n.Buffer(state.fresh("a"), dtype, (const(shape[1] // 8), const(2), const(2)), "register"), own)
    filled = fill(state, held, lambda need: element(state, s.a, need), None)
    state.put(n.Alloc(held.buffer), *filled, n.Eval(build.call("wgmma_fence")))
    return n.Region(held.buffer, (n.Span(const(0), shape[1] // 8), n.Span(const(0), 2), n.Span(const(0), 2)))


def _axis_of_rows(r: n.Region, transposed: bool) -> int:
    """Which span of A runs along its rows."""
    spans = [axis for axis, i in enumerate(r.index) if isinstance(i, n.Span)]
    return spans[-1] if transposed else spans[-2]


def axis_of_k(r: n.Region, left: bool, transposed: bool) -> int:
    """Which span of an operand runs along k: the last of A, the last but one of B; the other one where it is transposed."""
    spans = [axis for axis, i in enumerate(r.index) if isinstance(i, n.Span)]
    return spans[-1] if left != transposed else spans[-2]


def stepped(r: n.Region, axis: int, first: n.Expr, step: int) -> n.Region:
    """A part of an operand: `step` elements from `first` along an axis, of its panels where the axis lies in some."""
    span, spans = r.index[axis], [k for k, i in enumerate(r.index) if isinstance(i, n.Span)]
    assert isinstance(span, n.Span)
    if len(spans) == 3 and axis == spans[2] and isinstance(panels := r.index[spans[0]], n.Span):
        width = r.buffer.shape[-1]
        index = list(r.index)
        index[spans[0]], index[axis] = build.add(panels.lo, build.floordiv(first, width)), n.Span(build.mod(first, width), step)
        return n.Region(r.buffer, tuple(index))
    part = n.Span(build.add(span.lo, first), step)
    return n.Region(r.buffer, (*r.index[:axis], part, *r.index[axis + 1:]))


def placed(state: State, e: n.Expr, rows: bool) -> tuple[n.Region, bool]:
    """The place in shared memory that an operand is read from, views resolved, and whether it lies there transposed."""
    if isinstance(e, n.Call) and e.of is None and e.fn == "trans" and [int_value(x) for x in e.args[1:] if isinstance(x, n.Expr)] == [1, 0]:
        inner = e.args[0]
        assert isinstance(inner, n.Expr)
        found, transposed = placed(state, inner, not rows)
        return found, not transposed
    if not isinstance(e, n.Load) or e.mask is not None or e.clip or e.at.buffer.space != "shared":
        raise refuse("wgmma reads its operands from shared memory", "a copy of the operand in swizzled shared memory")
    r = e.at if e.at.index else n.Region(e.at.buffer, tuple(build.span(const(0), d) for d in e.at.buffer.shape))
    view = state.views.get(r.buffer.name)
    return (r, False) if view is None else _through(view, r)


def _through(view: n.View, r: n.Region) -> tuple[n.Region, bool]:
    """A region of a view as a region of what it views: axes taken whole or in parts, split in panels (of which a part takes whole ones), or
    both the other way round."""
    name = view.buffer.name
    if len(view.axes) != 2 or len(r.index) != 2 or any(not isinstance(i, n.Span) or i.step not in (1, const(1)) for i in r.index):
        raise refuse(f"wgmma reads a part of the view '{name}' that is no matrix", "two ranges of neighbors")
    parts = {axis: i for axis, i in zip(view.axes, r.index, strict=True) if isinstance(i, n.Span)}
    index: list[n.Expr | n.Span] = []
    order: list[str] = []
    for i in view.at.index:
        if isinstance(i, n.Span):
            raise refuse(f"the view '{name}' has spans")
        match i:
            case n.Var() if i.name in parts:
                index.append(parts[i.name])
                order.append(i.name)
            case n.Binary(op="floordiv", a=n.Var(name=axis), b=n.Const(value=size)) if axis in parts:
                index.append(_panels(name, parts[axis], int(size)))
            case n.Binary(op="mod", a=n.Var(name=axis), b=n.Const(value=size)) if axis in parts:
                index.append(n.Span(const(0), int(size)))
                order.append(axis)
            case _:
                if any(isinstance(x, n.Var) and x.name in parts for x in walk(i)):
                    raise refuse(f"the view '{name}' is no matrix, whole or in panels")
                index.append(i)
    if sorted(order) != sorted(view.axes):
        raise refuse(f"the view '{name}' is no matrix, whole or in panels")
    return n.Region(view.at.buffer, tuple(index)), order != list(view.axes)


def _panels(view: str, part: n.Span, size: int) -> n.Expr | n.Span:
    """The panels of `size` that a part of an axis takes: the one, or a range of them. Raises KirError KIR-B030 for a part of a panel."""
    extent = part.extent if isinstance(part.extent, int) else int_value(part.extent)
    terms = build.polynomial(part.lo)
    if extent is None or extent % size or any(times % size for times in terms.values()):
        raise refuse(f"wgmma reads a part of a panel of the view '{view}'", f"whole panels of {size}")
    dtype = dtype_of(part.lo.type)
    first = build.from_polynomial({monomial: times // size for monomial, times in terms.items()}, dtype)
    return first if extent == size else n.Span(first, extent // size)
