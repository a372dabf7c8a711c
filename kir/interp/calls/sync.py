"""Instruction table, families `sync` and `async`: fences, barriers, mbarriers, groups.

`barrier()` meets the siblings of the innermost split into sub-teams; outside any split a team runs its statements in order, and it
means nothing. Counts are per thread for named and cluster barriers, and per executing instance (an active thread, or a whole team)
for mbarriers.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator

from kir.base.diagnostic import error
from kir.interp.calls.warp import given_mask, lanes_of, taking_part, together_of
from kir.interp.numerics.values import Val
from kir.interp.scheduling import async_operations
from kir.interp.scheduling.barriers import arrive_cluster, arrive_named, barriers, init_barriers, named_barrier, settle, waits_for_cluster
from kir.interp.state.frame import Frame
from kir.interp.state.machine import Machine, Semantics
from kir.interp.state.tasks import Wait
from kir.ir.nodes import Call, Expr, Region

Steps = Iterator[Wait]
NOTHING: tuple[Val, ...] = ()
WARPGROUP = 128


def _number(m: Machine, e: Call, at: int, f: Frame) -> int:
    value = e.args[at]
    assert isinstance(value, Expr)
    return m.uniform(value, f)


def _place(e: Call) -> Region:
    if not e.args or not isinstance(e.args[0], Region):
        raise error("KIR-I002", f"'{e.fn}' acts on an mbarrier (&bar[i])")
    return e.args[0]


def _fence(m: Machine, e: Call, f: Frame) -> tuple[Val, ...]:
    if e.fn == "wgmma_fence":
        m.must_converge(f, e.fn)
    if m.checking:
        m.checker.fence(f, e.fn, str(dict(e.attrs).get("scope", "")))
    return NOTHING


def _warp_sync(m: Machine, e: Call, f: Frame) -> tuple[Val, ...]:
    if m.checking and f.level == "thread":
        taking_part(m, e, f)
        given = given_mask(m, e, f)
        m.checker.warp_sync(f, int(dict(e.attrs).get("group", 32)), None if given is None else together_of(e, *lanes_of(f), given))
    return NOTHING


def _mbar_init(m: Machine, e: Call, f: Frame) -> tuple[Val, ...]:
    init_barriers(m, _place(e), _number(m, e, 1, f), f)
    return NOTHING


def _mbar_arrive(m: Machine, e: Call, f: Frame) -> tuple[Val, ...]:
    region = _place(e)
    size = None
    if e.fn != "mbar_arrive":
        second = e.args[1]
        assert isinstance(second, Expr)
        size = m.evaluate(second, f)
        m.must_be_defined(size, f, "a byte count")
    lanes = f.active().nonzero()[0]
    objects = barriers(m, region, f, "arrives on" if e.fn != "mbar_expect" else "expects bytes on")
    for lane, b in zip(lanes, objects, strict=True):
        if size is not None:
            b.tx += int(size.data[lane if size.data.shape[0] > 1 else 0])
        if e.fn != "mbar_expect":
            m.release(b, f, int(lane))
            b.pending -= 1
        settle(m, b)
    return NOTHING


def _named_arrive(m: Machine, e: Call, f: Frame) -> tuple[Val, ...]:
    arrive_named(m, f, ("named", _number(m, e, 0, f)), _number(m, e, 1, f))
    return NOTHING


def _cluster_arrive(m: Machine, e: Call, f: Frame) -> tuple[Val, ...]:
    arrive_cluster(m, f)
    return NOTHING


def _commit(m: Machine, e: Call, f: Frame) -> tuple[Val, ...]:
    if e.fn == "wgmma_commit":
        m.must_converge(f, e.fn)
    async_operations.commit(m, {"async_commit": "cp_async", "bulk_commit": "bulk", "wgmma_commit": "wgmma"}[e.fn], f)
    return NOTHING


def _group_wait(m: Machine, e: Call, f: Frame) -> tuple[Val, ...]:
    family = {"async_wait": "cp_async", "bulk_wait": "bulk"}[e.fn]
    async_operations.wait(m, family, _number(m, e, 0, f), f, bool(dict(e.attrs).get("read", False)))
    return NOTHING


def _trap(m: Machine, e: Call, f: Frame) -> tuple[Val, ...]:
    m.report("trap", "error", "the kernel traps here", f, id="KIR-I025")
    f.stop("return")
    return NOTHING


def _dependency(m: Machine, e: Call, f: Frame) -> tuple[Val, ...]:
    if m.checking:
        m.checker.dependency(f, e.fn)
    return NOTHING


def _set_registers(m: Machine, e: Call, f: Frame) -> tuple[Val, ...]:
    m.must_converge(f, e.fn)
    count = _number(m, e, 0, f)
    if count % 8 or not 24 <= count <= 256:
        m.report("registers", "error", f"a warpgroup asks for {count} registers a thread; it can have 24 to 256, in steps of 8", f, id="KIR-I071")
    return NOTHING


def _advice(m: Machine, e: Call, f: Frame) -> tuple[Val, ...]:
    for value in e.args:
        assert isinstance(value, Expr)
        m.must_be_defined(m.evaluate(value, f), f, e.fn)
    return NOTHING


SYNC: dict[str, Semantics] = {
    **dict.fromkeys(("fence", "fence_async", "fence_mbar_init", "wgmma_fence"), _fence), "warp_sync": _warp_sync,
    "mbar_init": _mbar_init, **dict.fromkeys(("mbar_expect", "mbar_arrive", "mbar_arrive_expect"), _mbar_arrive),
    "named_barrier_arrive": _named_arrive, "cluster_arrive": _cluster_arrive,
    **dict.fromkeys(("async_commit", "bulk_commit", "wgmma_commit"), _commit),
    **dict.fromkeys(("async_wait", "bulk_wait"), _group_wait),
    **dict.fromkeys(("grid_dependency_wait", "grid_dependency_launch"), _dependency), "trap": _trap,
    "set_registers": _set_registers, **dict.fromkeys(("nanosleep", "print"), _advice)}


# ------------------------------------------------------------------------------------------------------------------- waiting

def _barrier(m: Machine, e: Call, f: Frame) -> Steps:
    m.counters.barriers += 1
    team = f.team
    if m.checking:
        m.checker.must_meet(f, e.fn)
    if team is None:
        return
    if not f.split:
        if m.checking:
            m.checker.meet(f, [f.agents] if f.agents is not None else [])
        return
    generation = team.arrive(f.lanes, f.agents)

    def opened() -> bool:
        if team.generation == generation and team.arrived + team.left >= team.size:
            team.generation, team.arrived = generation + 1, 0
            if m.checking:
                m.checker.meet(f, team.agents)
            team.agents = []
        return team.generation != generation

    yield Wait(opened, "the other threads at barrier()")


def _named_sync(m: Machine, e: Call, f: Frame) -> Steps:
    m.counters.barriers += 1
    number, expected = _number(m, e, 0, f), _number(m, e, 1, f)
    b = named_barrier(m, f, ("named", number))
    generation = b.generation
    arrive_named(m, f, ("named", number), expected)
    if b.generation == generation:
        yield Wait(lambda: b.generation != generation, f"named barrier {number}, where {expected} threads meet")
    m.acquire(f, b.opened)


def _cluster_wait(m: Machine, e: Call, f: Frame) -> Steps:
    b = named_barrier(m, f, ("cluster", 0))
    generation = waits_for_cluster(m, f)
    if generation >= 0 and b.generation == generation:
        yield Wait(lambda: b.generation != generation, "the other CTAs of its cluster")
    m.acquire(f, b.opened)


def _grid_barrier(m: Machine, e: Call, f: Frame) -> Steps:
    b = named_barrier(m, f, ("grid", 0))
    generation = b.generation
    arrive_named(m, f, ("grid", 0), m.grid_threads)
    if b.generation == generation:
        yield Wait(lambda: b.generation != generation, "the other CTAs of its grid")
    m.acquire(f, b.opened)


def _mbar_wait(m: Machine, e: Call, f: Frame) -> Steps:
    parity_ = e.args[1]
    assert isinstance(parity_, Expr)
    parity = m.evaluate(parity_, f)
    m.must_be_defined(parity, f, "a phase parity")
    lanes = f.active().nonzero()[0]
    named = barriers(m, _place(e), f, "waits on")
    each = [int(parity.data[0])] * len(named) if parity.data.shape[0] == 1 else parity.data[lanes].tolist()
    unique = {(id(b), p & 1): (b, p & 1) for b, p in zip(named, each, strict=True)}
    for b, p in unique.values():
        if not b.passed(p):
            yield Wait(lambda b=b, p=p: b.passed(p), f"phase parity {p} of mbarrier {b.name}")  # type: ignore[misc]  # bound at once
    if m.checking:
        for b in {id(b): b for b in named}.values():
            m.acquire(f, b.completed, [lane for lane, own in zip(lanes.tolist(), named, strict=True) if own is b])


def _wgmma_wait(m: Machine, e: Call, f: Frame) -> Steps:
    """Groups of wgmma belong to a warpgroup (PTX ISA, wgmma.commit_group): when one of its warps has waited for them, all have issued theirs,
    and what these read has been read."""
    m.must_converge(f, e.fn)
    done = async_operations.wait(m, "wgmma", _number(m, e, 0, f), f)
    if f.level != "thread":
        return
    warpgroup = f.thread_numbers() // WARPGROUP
    if not f.split:
        for number in set(warpgroup.tolist()):
            lanes = warpgroup == number
            clock = None
            for agents, waited in done:
                clock = m.finished(f, agents, waited & lanes, clock)
            m.acquire(f, clock, (lanes & f.active()).nonzero()[0].tolist())
        return
    b = named_barrier(m, f, (f"wgmma {id(f.parent)}", int(warpgroup[0])))
    generation = b.generation
    b.arrived += f.lanes
    for agents, waited in done:
        b.clock = m.finished(f, agents, waited, b.clock)
    if b.arrived >= WARPGROUP:
        b.generation += 1
        b.arrived, b.opened, b.clock = 0, b.clock, None
    else:
        yield Wait(lambda: b.generation != generation, "the other warps of its warpgroup at wgmma_wait")
    m.acquire(f, b.opened)


WAITING: dict[str, Callable[[Machine, Call, Frame], Steps]] = {
    "barrier": _barrier, "named_barrier_sync": _named_sync, "cluster_wait": _cluster_wait, "grid_barrier": _grid_barrier, "mbar_wait": _mbar_wait,
    "wgmma_wait": _wgmma_wait}
