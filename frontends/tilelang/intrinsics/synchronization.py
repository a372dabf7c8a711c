"""Words of threads, warps, barriers and asynchrony."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, U32, U64, dtype_of

from ..state.emission import store
from ..state.functions import called
from ..state.reader import Reader
from ..state.regions import barrier_place
from ..values.arithmetic import convert
from ..values.names import GRID_BARRIER
from ..values.values import Function, Items, Memory, NotUnderstood, Num, Signature, Value
from .memory import declare

Word = Callable[[Reader, Signature], Value]


def _emit(r: Reader, fn: str, *args: n.Expr | n.Region, **attrs: n.Attr) -> None:
    r.out.emit(n.Eval(build.call_with(fn, args, n.attrs(**attrs))))


def _plain(fn: str) -> Word:
    def made(r: Reader, given: Signature) -> Value:
        _emit(r, fn)
        return None

    return made


def _counted(fn: str, default: int = 0) -> Word:
    def made(r: Reader, given: Signature) -> Value:
        _emit(r, fn, r.dim(given.args[0] if given.args else next(iter(given.named.values()), default)))
        return None

    return made


def _wait(r: Reader, given: Signature) -> Value:
    parity = given.args[1] if len(given.args) > 1 else given.named.get("parity", 0)
    _emit(r, "mbar_wait", barrier_place(r, given.args[0]), convert(r.integer(parity), I32))
    return None


def _arrive(r: Reader, given: Signature) -> Value:
    if len(given.args) > 1 or given.named.get("cta_id") is not None:
        raise NotUnderstood("an arrival at another CTA's barrier")
    _emit(r, "mbar_arrive", barrier_place(r, given.args[0]))
    return None


def _expect(fn: str) -> Word:
    def made(r: Reader, given: Signature) -> Value:
        _emit(r, fn, barrier_place(r, given.args[0]), r.dim(given.args[1] if len(given.args) > 1 else given.named.get("tx")))
        return None

    return made


def _sync_threads(r: Reader, given: Signature) -> Value:
    number = given.args[0] if given.args else given.named.get("barrier_id")
    count = given.args[1] if len(given.args) > 1 else given.named.get("arrive_count")
    if number is None:
        _emit(r, "barrier")
    else:
        _emit(r, "named_barrier_sync", r.dim(number), r.threads if count is None else r.dim(count))
    return None


def _named_arrive(r: Reader, given: Signature) -> Value:
    _emit(r, "named_barrier_arrive", r.dim(given.args[0]), r.dim(given.args[1]))
    return None


def _store_wait(r: Reader, given: Signature) -> Value:
    count = given.args[0] if given.args else given.named.get("count", 0)
    read = given.args[1] if len(given.args) > 1 else given.named.get("read", True)
    _emit(r, "bulk_wait", r.dim(count), **({"read": True} if r.truth(read) is True else {}))
    return None


def _fenced(r: Reader, given: Signature) -> Value:
    """`T.warpgroup_fence_operand(acc, num_regs=n)`: the compiler moves no use of an accumulator's registers across."""
    acc, offset = r.decided(given.args[0]), given.named.get("offset", given.args[1] if len(given.args) > 1 else 0)
    count = given.args[2] if len(given.args) > 2 else given.named.get("num_regs")
    if not isinstance(acc, Memory) or acc.buffer.space not in ("fragment", "register") or r.known_int(offset) != 0:
        raise NotUnderstood("a fence of registers that are not all of one tile's")
    _emit(r, "register_fence", n.Region(acc.buffer), *([] if count is None else [r.dim(count)]))
    return None


def _registers(grow: bool | None) -> Word:
    def made(r: Reader, given: Signature) -> Value:
        count = r.dim(given.args[0])
        more = grow if grow is not None else r.truth(given.args[1] if len(given.args) > 1 else given.named.get("is_inc", True))
        if not isinstance(more, bool):
            raise NotUnderstood("registers that grow or shrink as the binding says")
        _emit(r, "set_registers", count, grow=more)
        return None

    return made


def thread(r: Reader) -> n.Expr:
    """The number of the thread in its CTA."""
    return n.Var(r.thread, I32)


def _thread(r: Reader, given: Signature) -> Value:
    dim = r.known_int(given.args[0] if given.args else given.named.get("dim", 0))
    return _along(r, dim if dim is not None else 0)


def _along(r: Reader, dim: int) -> Value:
    """The thread's place along an axis of the CTA."""
    if dim >= max(1, len(r.thread_shape)):
        return 0
    e = thread(r)
    if len(r.thread_shape) > 1:
        for extent in r.thread_shape[:dim]:
            e = build.floordiv(e, extent)
        if dim < len(r.thread_shape) - 1:
            e = build.mod(e, r.thread_shape[dim])
    return Num(e)


def _bound_thread(r: Reader, given: Signature) -> Value:
    """`T.thread_binding(0, n, thread="threadIdx.x")`: the thread's place along an axis of the CTA."""
    axis = next((a for a in (*given.args, given.named.get("thread")) if isinstance(a, str)), "")
    if not axis.startswith("threadIdx.") or axis[-1] not in "xyz":
        raise NotUnderstood(f"a binding to '{axis}', which T.Kernel makes")
    return _along(r, "xyz".index(axis[-1]))


def _threads(r: Reader, given: Signature) -> Value:
    return Items(tuple(_along(r, k) for k in range(3)))


def _combiner(r: Reader, given: Signature) -> Value:
    """`T.comm_reducer(lambda a, b: .., [identity])`."""
    if not given.args or not isinstance(given.args[0], Function):
        raise NotUnderstood("a reducer that is no function")
    return given.args[0]


def _same(r: Reader, given: Signature) -> Value:
    return given.args[0]


def _all_reduce(r: Reader, given: Signature) -> Value:
    """`T.tvm_thread_allreduce(1, value, True, out, thread, ..)`: among the threads that differ in the thread axes given, by shuffles where these are lanes
    of one warp, else through shared memory, by halves."""
    if len(given.args) < 5 or r.known_int(given.args[0]) not in (1, None) or not isinstance(r.combiner, Function):
        raise NotUnderstood("an all-reduce of an unusual form")
    if r.truth(given.args[2]) is not True:
        raise NotUnderstood("an all-reduce under a condition")
    axes = [r.meaning(r.run(x)) for x in given.args[4:]]
    places = [_along(r, k) for k in range(max(1, len(r.thread_shape)))]
    inner, lanes = 1, [0, 0]
    for k, p in enumerate(places):
        extent = r.known_int(Num(r.thread_shape[k] if r.thread_shape else r.threads))
        if extent is None:
            raise NotUnderstood("an all-reduce over threads whose number the binding decides")
        if isinstance(p, Num) and p.expr in axes:
            lanes = [inner if not lanes[1] else lanes[0], (lanes[1] or 1) * extent]
            axes.remove(p.expr)
        elif lanes[1] and axes:
            raise NotUnderstood("an all-reduce over axes of threads that are no neighbors")
        inner *= extent
    first, count = lanes
    if axes or not count or count & (count - 1):
        raise NotUnderstood(f"an all-reduce over {count or 'unknown'} threads, which are no power of two of them")
    value, combine = r.run(given.args[1]), r.combiner
    part_of_warp = first & (first - 1) == 0 and first * count <= 32
    store(r, given.args[3], Num(_by_shuffles(r, combine, value, first, count) if part_of_warp else _by_memory(r, combine, value, first, count, inner)))
    return None


def _joined(r: Reader, combine: Function, a: n.Expr, b: n.Expr) -> n.Expr:
    return r.run(called(r, combine, [Num(a), Num(b)], {}))


def _by_shuffles(r: Reader, combine: Function, value: n.Expr, first: int, count: int) -> n.Expr:
    """What `count` lanes of a warp, `first` apart, have together, in each of them."""
    total: n.Expr = r.out.let("part", value)
    distance = first * count // 2
    while distance >= first:
        other = r.out.let("other", build.call("shfl_xor", total, build.const(distance)))
        total = r.out.let("part", _joined(r, combine, total, other))
        distance //= 2
    return total


def _by_memory(r: Reader, combine: Function, value: n.Expr, first: int, count: int, threads: int) -> n.Expr:
    """What `count` threads, `first` apart, have together, in each of them, by halves of an array of all threads' values."""
    parts = declare(r, "parts", dtype_of(value.type), (build.const(threads),), "shared")
    own = n.Region(parts, (thread(r),))
    place = build.mod(build.floordiv(thread(r), first), count)
    r.out.emit(n.Store(own, value))
    distance = count // 2
    while distance:
        _emit(r, "barrier")
        with r.out.capture() as half:
            r.out.emit(n.Store(own, _joined(r, combine, n.Load(own), n.Load(n.Region(parts, (build.add(thread(r), distance * first),))))))
        r.out.emit(n.If(build.compare("lt", place, distance), tuple(half)))
        distance //= 2
    _emit(r, "barrier")
    total = r.out.let("total", n.Load(n.Region(parts, (build.sub(thread(r), build.mul(place, first)),))))
    _emit(r, "barrier")
    return total


def _warp_shuffle(fn: str) -> Word:
    """`T.tvm_warp_shuffle(mask, value, lane, width, warp_size)`."""
    def made(r: Reader, given: Signature) -> Value:
        value, lane = r.run(given.args[1]), convert(r.integer(given.args[2]), I32)
        return Num(r.out.let(r.wanted or "other", _shuffled(r, fn, value, lane, given.args[3])))

    return made


def _storage_sync(r: Reader, given: Signature) -> Value:
    if not given.args or str(given.args[0]) not in ("shared", "shared.dyn"):
        raise NotUnderstood("a barrier of another memory than the CTA's")
    _emit(r, "barrier")
    return None


def _sync_grid(r: Reader, given: Signature) -> Value:
    _emit(r, GRID_BARRIER)
    return None


def _elected(r: Reader, given: Signature) -> Value:
    """`T.shuffle_elect(n)`: whether this is the first of each n threads; of the CTA's with 0."""
    count = r.known_int(given.args[0])
    if count is None:
        raise NotUnderstood("one of as many threads as the binding decides")
    return Num(build.compare("eq", build.mod(thread(r), count) if count else thread(r), 0))


def _cluster_sync(r: Reader, given: Signature) -> Value:
    _emit(r, "cluster_arrive")
    _emit(r, "cluster_wait")
    return None


def _cluster_rank(r: Reader, given: Signature) -> Value:
    """The CTA's number in its cluster, x fastest."""
    out: n.Expr = build.const(0)
    step = 1
    for axis, extent in zip(r.grid, r.cluster, strict=False):
        out = build.add(out, build.mul(build.mod(n.Var(axis.name, I32), extent), step))
        step *= extent
    return Num(out)


def _cluster_size(r: Reader, given: Signature) -> Value:
    return math.prod(r.cluster)


def _block_extent(r: Reader, given: Signature) -> Value:
    dim = r.known_int(given.args[0] if given.args else given.named.get("dim", 0))
    if dim is None or not 0 <= dim < 3:
        raise NotUnderstood("a grid axis that there is not")
    return Num(r.grid[dim].extent) if dim < len(r.grid) else 1


def _blocks(r: Reader, given: Signature) -> Value:
    return Items(tuple(Num(n.Var(a.name, I32)) for a in r.grid))


def _part(size: int, op: str) -> Word:
    def made(r: Reader, given: Signature) -> Value:
        return Num(build.binary(op, thread(r), build.const(size)))

    return made


def _thread_extent(r: Reader, given: Signature) -> Value:
    dim = r.known_int(given.args[0] if given.args else 0)
    if dim is not None and dim < len(r.thread_shape):
        return Num(r.thread_shape[dim])
    return Num(r.threads) if dim == 0 else 1


def _block(r: Reader, given: Signature) -> Value:
    dim = r.known_int(given.args[0] if given.args else given.named.get("dim", 0))
    if dim is None or dim >= len(r.grid):
        raise NotUnderstood("a grid axis that there is not")
    return Num(n.Var(r.grid[dim].name, I32))


def _shuffle(fn: str) -> Word:
    def made(r: Reader, given: Signature) -> Value:
        if len(given.args) > 4:
            raise NotUnderstood("a shuffle with an unusual argument")
        _all_lanes(r, given.args[3] if len(given.args) > 3 else given.named.get("mask"))
        value, lane = r.run(given.args[0]), convert(r.integer(given.args[1]), I32)
        width = given.args[2] if len(given.args) > 2 else given.named.get("width")
        return Num(r.out.let(r.wanted or "other", _shuffled(r, fn, value, lane, 32 if width is None else width)))

    return made


def _shuffled(r: Reader, fn: str, value: n.Expr, lane: n.Expr, width: Value) -> n.Expr:
    """A shuffle among segments of `width` lanes."""
    known = r.known_int(width)
    if known is None:
        raise NotUnderstood("a shuffle among as many lanes as the binding decides")
    if known not in (1, 2, 4, 8, 16, 32):
        raise NotUnderstood(f"a shuffle among {known} lanes; a warp is divided by powers of two up to 32")
    return build.call(fn, value, lane) if known == 32 else build.call(fn, value, lane, width=known)


def _all_lanes(r: Reader, mask: Value) -> None:
    """Raises NotUnderstood for a mask of some lanes alone: the others' part is not known."""
    if mask is not None and r.known_int(mask) not in (0xFFFFFFFF, -1):
        raise NotUnderstood("a warp function of some lanes alone; without a mask it is of all 32")


def _warp_reduce(op: str) -> Word:
    def made(r: Reader, given: Signature) -> Value:
        name = r.wanted or "total"
        of = r.run(given.args[0])
        if of.type in (I32, U32):
            return Num(build.call("warp_reduce", of, op=op))
        value = r.out.let(name, of)
        for distance in (16, 8, 4, 2, 1):
            other = r.out.let("other", build.call("shfl_xor", value, build.const(distance)))
            value = r.out.let(name, build.binary(op, value, other))
        return Num(value)

    return made


def _vote(fn: str) -> Word:
    def made(r: Reader, given: Signature) -> Value:
        _all_lanes(r, given.args[1] if len(given.args) > 1 else given.named.get("mask"))
        cond = r.truth(given.args[0])
        e = build.const(cond, BOOL) if isinstance(cond, bool) else cond
        return Num(convert(r.out.let(r.wanted or "vote", build.call(fn, e)), U64 if fn == "ballot" else I32))

    return made


def _active(r: Reader, given: Signature) -> Value:
    return Num(convert(r.out.let(r.wanted or "active", build.call("active_mask")), U64))


def _match_any(r: Reader, given: Signature) -> Value:
    _all_lanes(r, given.args[1] if len(given.args) > 1 else given.named.get("mask"))
    return Num(r.out.let(r.wanted or "found", build.call("match_any", r.run(given.args[0]))))


def _said(fn: str) -> Word:
    def made(r: Reader, given: Signature) -> Value:
        cond = r.truth(given.args[0])
        if isinstance(cond, bool):
            if fn == "assertion" and not cond:
                r.out.emit(n.Eval(build.call(fn, build.const(False, BOOL))))
            return None
        r.out.emit(n.Eval(build.call(fn, cond)))
        return None

    return made


def _return(r: Reader, given: Signature) -> Value:
    r.out.emit(n.Jump("return"))
    return None


def _jump(kind: str) -> Word:
    def made(r: Reader, given: Signature) -> Value:
        r.out.emit(n.Jump("break" if kind == "break" else "continue"))
        return None

    return made


WORDS: Mapping[str, Word] = {
    "sync_threads": _sync_threads, "sync_warp": _plain("warp_sync"), "named_barrier_arrive": _named_arrive,
    "barrier_wait": _wait, "mbarrier_wait_parity": _wait, "barrier_arrive": _arrive, "mbarrier_arrive": _arrive,
    "mbarrier_expect_tx": _expect("mbar_expect"), "mbarrier_arrive_expect_tx": _expect("mbar_arrive_expect"),
    "fence_proxy_async": _plain("fence_async"), "ptx_wait_group": _counted("async_wait"), "ptx_commit_group": _plain("async_commit"),
    "tma_store_arrive": _plain("bulk_commit"), "tma_store_wait": _store_wait, "wait_wgmma": _counted("wgmma_wait"),
    "warpgroup_wait": _counted("wgmma_wait"), "warpgroup_arrive": _plain("wgmma_fence"), "warpgroup_commit_batch": _plain("wgmma_commit"),
    "set_max_nreg": _registers(None), "inc_max_nreg": _registers(True), "dec_max_nreg": _registers(False),
    "pdl_sync": _plain("grid_dependency_wait"), "pdl_trigger": _plain("grid_dependency_launch"),
    "comm_reducer": _combiner, "tvm_thread_allreduce": _all_reduce, "evaluate": _same,
    "thread_binding": _bound_thread, "get_thread_binding": _thread, "get_thread_bindings": _threads, "get_thread_extent": _thread_extent,
    "get_warp_idx": _part(32, "floordiv"), "get_warp_idx_sync": _part(32, "floordiv"), "get_lane_idx": _part(32, "mod"),
    "get_warp_group_idx": _part(128, "floordiv"), "get_block_binding": _block,
    "shfl_xor": _shuffle("shfl_xor"), "shfl_sync": _shuffle("shfl_idx"), "shfl_up": _shuffle("shfl_up"), "shfl_down": _shuffle("shfl_down"),
    "warp_reduce_sum": _warp_reduce("add"), "warp_reduce_max": _warp_reduce("max"), "warp_reduce_min": _warp_reduce("min"),
    "any_sync": _vote("vote_any"), "all_sync": _vote("vote_all"), "ballot": _vote("ballot"), "ballot_sync": _vote("ballot"),
    "activemask": _active, "match_any_sync": _match_any, "assume": _said("assume"), "device_assert": _said("assertion"),
    "thread_return": _return, "loop_break": _jump("break"), "break_loop": _jump("break"), "continue_loop": _jump("continue"),
    "warpgroup_fence_operand": _fenced, "sync_grid": _sync_grid, "tvm_warp_shuffle": _warp_shuffle("shfl_idx"), "tvm_warp_shuffle_up": _warp_shuffle("shfl_up"),
    "tvm_warp_shuffle_down": _warp_shuffle("shfl_down"), "tvm_storage_sync": _storage_sync, "shuffle_elect": _elected,
    "warp_reduce_bitand": _warp_reduce("and"), "warp_reduce_bitor": _warp_reduce("or"), "get_block_extent": _block_extent,
    "get_block_bindings": _blocks, "cluster_sync": _cluster_sync, "block_rank_in_cluster": _cluster_rank, "get_cluster_size": _cluster_size,
    "cluster_arrive": _plain("cluster_arrive"), "cluster_wait": _plain("cluster_wait"),
}  # fmt: skip
