"""Running a whole program: sizes from shapes, tensors into memory, the launch plan, and CTAs in chunks.

A kernel that never waits runs many CTAs at once as lanes of one frame; one that waits (mbarriers, named barriers, roles, spinning)
runs each CTA as a coroutine. Kernels of a plan run one after another, each seeing all that came before.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Literal

import numpy as np

from kir.base.diagnostic import KirError, error
from kir.interp.calls.tensor import left
from kir.interp.evaluation.expressions import constant
from kir.interp.evaluation.interpreter import Interpreter
from kir.interp.memory_access.buffers import layout_of
from kir.interp.memory_access.cluster_memory import ended
from kir.interp.native import loops
from kir.interp.numerics.number import Array, poison, storage
from kir.interp.numerics.values import Val
from kir.interp.scheduling.async_operations import complete_one, drain
from kir.interp.scheduling.scheduler import drive
from kir.interp.state import cluster
from kir.interp.state.coverage import Coverage, Place
from kir.interp.state.findings import FirstError, NoRoom
from kir.interp.state.frame import LEVELS, Frame, Queue
from kir.interp.state.machine import Machine
from kir.interp.state.memory import Handle, Memory, bytes_needed, fill_poison
from kir.interp.state.result import Access, Finding, Result
from kir.interp.state.tasks import Steps, Task
from kir.ir import nodes as n
from kir.ir.anchors import anchors
from kir.ir.printer import expr_text
from kir.ir.types import DType, TileType
from kir.ir.visit import once, once_for_each, walk, with_own_statements

LANE_BUDGET = 1 << 21
"""Elements of the largest value of a kernel, over all CTAs that run as one frame."""
THREAD_BUDGET = 1 << 16
CHECKED_THREADS = 1 << 12
"""The same for threads; the checker keeps what every thread knows of every other."""
RESIDENT = 1024
"""CTAs that run as coroutines at the same time."""
_WAITS = frozenset({"mbar_wait", "named_barrier_sync", "named_barrier_arrive", "cluster_wait", "cluster_arrive", "grid_barrier"})


def run(program: n.Program, arrays: Mapping[str, Array], scalars: Mapping[str, int | float] | None = None, *,
        mode: Literal["fast", "check"] = "fast", most_steps: int = sys.maxsize, cover: bool = False, compiles: bool = True,
        one_error: bool = False, ends: bool = False, traffic: bool = False) -> Result:
    """Runs a specialized program on NumPy arrays.

    `arrays` holds every `in` and `inout` tensor (and may hold `out` tensors, for their shape only) in its logical shape; bf16 and fp8 as
    ml_dtypes. Sizes come from shapes, the rest from `scalars`. Checking mode also runs every asynchronous operation as late as it may,
    and compares, and runs the CTAs from the last to the first where one may learn from an atomic operation how many came before it, unless the first run has
    found errors; one that has found errors ends where more operations that nobody waits for are in flight than it can follow, with the outputs as they are
    then. With `one_error` it ends with the first error that it finds, and has no outputs then. With `cover`
    the result says what the run reached, with `ends` how far into each tensor; with `traffic` checking mode counts sectors and bank conflicts, which takes a
    tenth of its time. Unless `compiles` is false, long loops of plain mode are compiled
    where llvmlite is installed; they give the same bits. Raises KirError KIR-I001 (cannot be run), KIR-I003 (generic),
    KIR-I008 (arguments do not fit), and KIR-I007 when one run takes more than `most_steps` statements."""
    _must_run(program)
    program = with_own_statements(program)
    first = _once(program, arrays, scalars or {}, mode, False, most_steps, Coverage(ends) if cover or ends else None, compiles and not ends, one_error,
                  traffic=traffic)
    wrong = any(x.severity == "error" for x in first[0].findings.values())
    if mode == "check" and not wrong and _takes_turns(program):
        other = _once(program, arrays, scalars or {}, mode, False, most_steps, None, compiles, one_error, True)[0].findings
        first[0].findings.update({k: v for k, v in other.items() if k not in first[0].findings})
        wrong = any(x.severity == "error" for x in other.values())
    if mode == "fast" or wrong or not _has_choice(program):
        return _result(first)
    second = _once(program, arrays, scalars or {}, mode, True, most_steps, None, compiles, one_error)
    return _agreeing(first, second, program)


_Writer = Callable[[str, tuple[int, ...]], Access | None]
_Run = tuple[Machine, dict[str, Array], _Writer]
"""A run that has ended, its outputs, and who wrote an element of a tensor last."""


def _result(m: _Run) -> Result:
    return Result(m[1], tuple(m[0].findings.values()), m[0].counters, m[2], _reached(m[0]), _ends(m[0]))


def _reached(m: Machine) -> dict[Place, int]:
    return {} if m.coverage is None else m.coverage.by_anchor(m.anchors)


def _ends(m: Machine) -> dict[str, int]:
    if m.coverage is None or m.coverage.ends is None:
        return {}
    ends = m.coverage.ends
    named = {name: h for name, h in m.globals.items() if isinstance(h, Handle)}
    return {name: -(-ends.get(id(h.memory), 0) // storage(h.buffer.dtype).itemsize) for name, h in named.items()}


def _writer(m: Machine) -> _Writer:
    """Who wrote an element last. The run is over: the machine gives up its checker, which knows it."""
    if not m.checking:
        return lambda name, index: None
    checker = m.checker
    del m.checker

    def found(name: str, index: tuple[int, ...]) -> Access | None:
        handle = m.globals.get(name)
        return checker.writer(handle, index) if isinstance(handle, Handle) else None
    return found


def _agreeing(first: _Run, second: _Run, program: n.Program) -> Result:
    """Findings of both runs, and one more for an output that depends on when asynchronous operations act (KIR-I024)."""
    merged = {**first[0].findings, **second[0].findings}
    atomics = any(isinstance(x, n.Call) and x.fn == "atomic_add" for k in program.kernels for x in walk(k))
    for name, b in second[1].items():
        a = first[1][name]
        if a.tobytes() != b.tobytes():
            at = (*a.shape, -1)
            differ = np.argwhere(np.ascontiguousarray(a).view(np.uint8).reshape(at) != np.ascontiguousarray(b).view(np.uint8).reshape(at))
            where = [int(x) for x in differ[0][:-1]]
            merged[("KIR-I024", name)] = Finding("KIR-I024", "timing", "weak" if atomics else "error",
                                                 f"{name}{where} depends on when asynchronous operations act", "", name)
    return Result(first[1], tuple(merged.values()), first[0].counters, first[2], _reached(first[0]))


def run_within(most: int, program: n.Program, arrays: Mapping[str, Array], scalars: Mapping[str, int | float]) -> Result | None:
    """What a program makes of copies of arrays, in plain mode and up to the first error; None where that takes more than `most` statements."""
    try:
        return run(program, {name: a.copy() for name, a in arrays.items()}, {**scalars}, most_steps=most, one_error=True)
    except KirError as e:
        if any(d.id == "KIR-I007" for d in e.diagnostics):
            return None
        raise


def _must_run(program: n.Program) -> None:
    if program.metas:
        raise error("KIR-I003", f"program '{program.name}' is generic in {', '.join(m.name for m in program.metas)}", needs="a binding")
    if (s := _without_meaning(program)) is not None:
        what = f"hole '{s.name}'" if isinstance(s, n.Hole) else f"opaque {s.surface} source ({s.reason})"
        raise error("KIR-I001", f"{what} has no meaning to run", origin=s.origin)


@once_for_each
def _without_meaning(program: n.Program) -> n.Opaque | n.Hole | None:
    return next((s for s in walk(program) if isinstance(s, (n.Opaque, n.Hole))), None)


@once_for_each
def _has_choice(program: n.Program) -> bool:
    return any((isinstance(x, n.Copy) and (x.grouped or x.signal is not None)) or (isinstance(x, n.Mma) and x.pending)
               or isinstance(x, n.Roles) or (isinstance(x, n.Call) and (x.fn in _WAITS or x.fn in ("wgmma", "tcgen05_mma", "tcgen05_ld")))
               for k in program.kernels for x in walk(k))


@once_for_each
def _takes_turns(program: n.Program) -> bool:
    """Whether CTAs may learn by atomic operations which of them come first, and none waits for another: then they may come in any order."""
    inside = [x for root in (*program.kernels, *program.functions) for x in walk(root)]
    asked = any(isinstance(x, n.Let) and any(isinstance(y, n.Call) and y.fn.startswith("atomic_") for y in walk(x.value)) for x in inside)
    return asked and not any(isinstance(x, n.While) and polls(x) for x in inside)


def _once(program: n.Program, arrays: Mapping[str, Array], scalars: Mapping[str, int | float], mode: str,
          lazy: bool, most_steps: int, coverage: Coverage | None = None, compiles: bool = False, one_error: bool = False,
          backward: bool = False, traffic: bool = False) -> _Run:
    m = Interpreter(program, lazy=lazy, most_steps=most_steps, coverage=coverage, compiles=compiles and loops.available(),
                    one_error=one_error, backward=backward, traffic=traffic)
    m.anchors = dict(_anchor_of_each(program))
    if mode == "check":
        from kir.interp.checking.checker import Checker
        m.checking, m.checker = True, Checker(m)
    with np.errstate(all="ignore"), suppress(FirstError):
        host = Frame(1, "host")
        _bind_sizes(m, arrays, scalars, host)
        for fact in program.facts:
            if not m.evaluate(fact, host).data.all():
                raise error("KIR-I008", f"the fact '{expr_text(fact)}' does not hold for these sizes",
                            needs="sizes for which each fact of the program holds (`kir parse` shows them)")
        for p in program.params:
            if isinstance(p.of, n.Buffer):
                m.globals[p.name] = _tensor(m, p, p.of, arrays.get(p.name), host)
        for w in program.workspaces:
            handle = _global(m, w.buffer, host)
            if w.init is not None:
                handle.memory.typed(w.buffer.dtype)[:] = m.evaluate(w.init, host).data.reshape(-1)[0]
            if m.checking:
                m.checker.adopt(handle.memory, w.buffer, w.init is not None)
            m.globals[w.buffer.name] = handle
        plan = program.plan or tuple(n.Launch(k.name) for k in program.kernels)
        kernels = {k.name: k for k in program.kernels}
        for launch in _launches(m, plan, host):
            if launch.kernel not in kernels:
                raise error("KIR-I005", f"there is no kernel '{launch.kernel}' to launch")
            try:
                _kernel(m, kernels[launch.kernel], host, launch)
            except NoRoom:
                m.checking = False  # what is not written is no finding: the run has not come to its end
                _abandon(m)
                break
        outputs = {p.name: _gathered(m, p) for p in program.params if p.role in ("out", "inout")}
        return m, outputs, _writer(m)
    _abandon(m)
    return m, {}, _writer(m)


def _abandon(m: Machine) -> None:
    """Forget what a run that is ended had under way."""
    m.tasks.clear()
    m.forget_barriers()
    m.leave_homes()


@once_for_each
def _anchor_of_each(program: n.Program) -> dict[int, str]:
    """By statement, the anchor of its first occurrence."""
    found: dict[int, str] = {}
    for text, _, stmt in anchors(program):
        found.setdefault(id(stmt), text)
    return found


def _launches(m: Machine, steps: tuple[n.Launch | n.Dispatch, ...], host: Frame) -> Iterator[n.Launch]:
    for s in steps:
        if isinstance(s, n.Launch):
            yield s
            continue
        taken = next((arm for guard, arm in s.arms if m.evaluate(guard, host).data.all()), s.orelse)
        yield from _launches(m, taken, host)


# ------------------------------------------------------------------------------------------------------- sizes and tensors

def _bind_sizes(m: Machine, arrays: Mapping[str, Array], scalars: Mapping[str, int | float], host: Frame) -> None:
    known: dict[str, int | float] = dict(scalars)
    wanted = {p.name: p for p in m.program.params if not isinstance(p.of, n.Buffer)}
    for p in m.program.params:
        if not isinstance(p.of, n.Buffer) or p.name not in arrays:
            continue
        array = arrays[p.name]
        if array.ndim != len(p.of.shape):
            raise error("KIR-I008", f"'{p.name}' has {array.ndim} dimensions where {len(p.of.shape)} are declared")
        for d, extent in zip(p.of.shape, array.shape, strict=True):
            if isinstance(d, n.Var) and d.name in wanted and known.setdefault(d.name, extent) != extent:
                raise error("KIR-I008", f"'{d.name}' is {known[d.name]} elsewhere and {extent} in '{p.name}'")
    for p in m.program.params:
        if isinstance(p.of, DType) and p.name in known:
            m.globals[p.name] = constant(known[p.name], p.of)
    for p in m.program.params:
        if isinstance(p.of, DType) and p.name not in known:
            if p.value is None:
                raise error("KIR-I008", f"{p.role} '{p.name}' is not given and no array's shape gives it")
            m.globals[p.name] = m.evaluate(p.value, host)


def _global(m: Machine, b: n.Buffer, host: Frame, given: bool = False) -> Handle:
    """A buffer in memory of its own: undefined, unless all of it is `given` next."""
    shape = tuple(m.size(d, host) for d in b.shape)
    if min(shape, default=0) < 0:
        raise error("KIR-I008", f"'{b.name}' has {min(shape)} elements along an axis at these sizes", needs="sizes at which every extent is 0 or more")
    strides, swizzles = layout_of(m, b, shape, host)
    memory = Memory(b.name, b.space, 1, bytes_needed(shape, strides, swizzles, storage(b.dtype).itemsize), None)
    handle = Handle(b, memory, shape, strides, swizzles)
    if not given or not handle.plain:
        fill_poison(memory, b.dtype)
    return handle


def _offsets(handle: Handle) -> Array:
    shape = handle.shape
    grid: list[Array] = [np.arange(d, dtype=np.int64).reshape((-1,) + (1,) * (len(shape) - 1 - i)) for i, d in enumerate(shape)]
    offset = handle.element(grid, storage(handle.buffer.dtype).itemsize)
    return np.broadcast_to(offset, shape) if shape else offset.reshape(())


def _tensor(m: Machine, p: n.Param, b: n.Buffer, array: Array | None, host: Frame) -> Handle:
    handle = _global(m, b, host, p.role != "out")
    if array is not None and tuple(array.shape) != handle.shape:
        raise error("KIR-I008", f"'{p.name}' has shape {list(array.shape)} where {list(handle.shape)} is declared")
    if p.role != "out":
        if array is None:
            raise error("KIR-I008", f"tensor '{p.name}' is not given")
        if array.dtype != storage(b.dtype):
            raise error("KIR-I008", f"'{p.name}' is {array.dtype} where {b.dtype} is declared")
        if handle.plain and p.name in _only_read(m.program) and array.flags.c_contiguous and array.nbytes == handle.memory.size:
            handle.memory.data = array.reshape(1, -1).view(np.uint8)
            handle.memory.data.flags.writeable = False
        elif handle.plain:
            handle.memory.typed(b.dtype)[array.size:] = poison(b.dtype)
            handle.whole[0, ...] = array
        else:
            handle.memory.typed(b.dtype)[_offsets(handle)] = array
    if m.checking:
        m.checker.adopt(handle.memory, b, False)
        if p.role != "out":
            m.checker.mark(handle.memory, _offsets(handle), storage(b.dtype).itemsize, None)
    return handle


@once_for_each
def _only_read(program: n.Program) -> frozenset[str]:
    """Tensors that every mention of reads: a run needs no copy of them."""
    inside = [x for root in (*program.kernels, *program.functions) for x in walk(root)]
    reads = {id(x.at if isinstance(x, n.Load) else x.src) for x in inside if isinstance(x, (n.Load, n.Copy))}
    other = {x.buffer.name for x in inside if isinstance(x, n.Region) and id(x) not in reads}
    other |= {x.at.buffer.name for x in inside if isinstance(x, n.Store)} | {x.dst.buffer.name for x in inside if isinstance(x, n.Copy)}
    return frozenset(p.name for p in program.params if p.role == "in" and p.name not in other)


def _gathered(m: Machine, p: n.Param) -> Array:
    """What a tensor holds at the end of a run, after which nothing writes its memory."""
    handle = m.globals[p.name]
    assert isinstance(handle, Handle)
    if m.checking:
        m.checker.on_output(handle, _offsets(handle))
    if handle.plain:
        return handle.whole[0, ...]
    return np.asarray(handle.memory.typed(handle.buffer.dtype)[_offsets(handle)])


# ------------------------------------------------------------------------------------------------------------------ kernels

def _kernel(m: Machine, k: n.Kernel, host: Frame, launch: n.Launch) -> None:
    m.kernel = k
    m.forget_barriers()
    m.split_loops.update(_split_loops(m.program, k))
    extents = [m.uniform(a.extent, host) for a in k.grid]
    threads = m.uniform(k.threads, host)
    if m.coverage is not None:
        m.coverage.grid(k, extents)
    total = int(np.prod(extents, dtype=np.int64))
    m.grid_threads = threads * total
    m.cluster_threads = threads * int(np.prod(k.cluster, dtype=np.int64)) if k.cluster else threads
    m.clusters = cluster.begun(extents, k.cluster, k.name)
    m.stepping = m.clusters.size > 1 or any(m.split_loops.values()) or _may_block(m.program, k)
    if m.checking:
        m.checker.begin(k, launch)
        m.checker.lookahead.begin()
    if m.stepping:
        turns = m.clusters.order(total)
        roots = (_cta(m, k, extents, np.array([i]), threads) for i in (reversed(turns) if m.backward and m.clusters.size == 1 else turns))
        drive(m, roots, RESIDENT)
    else:
        every = np.arange(total)[::-1] if m.backward else np.arange(total)
        for start in range(0, total, chunk := _chunk(m, k, threads)):
            task = _cta(m, k, extents, every[start:start + chunk], threads)
            drive(m, iter((task,)), 1)
    for queue, frame in m.queues:
        if m.checking:
            m.checker.ended(queue, frame)
        drain(m, queue)
    while complete_one(m):
        pass
    left(m)
    m.leave_homes()
    if m.checking:
        m.checker.end()


def _cta(m: Machine, k: n.Kernel, extents: list[int], ctas: Array, threads: int) -> Task:
    f = Frame(len(ctas), "cta", name=f"CTA {int(ctas[0])}", threads=threads)
    rest = ctas
    for axis, extent in zip(k.grid, extents, strict=True):
        f.env[axis.name] = Val((rest % max(1, extent)).astype(np.int32))
        rest = rest // max(1, extent)
    f.cta = ctas
    f.queue = Queue()
    m.queues.append((f.queue, f))
    if m.checking:
        m.checker.enter(f)
    if m.clusters.size == 1:
        return Task(f.name, m.block(k.body, f))
    m.clusters.roots[m.clusters.place(f)] = f
    return Task(f.name, _of_a_cluster(m, k, f))


def _of_a_cluster(m: Machine, k: n.Kernel, f: Frame) -> Steps:
    """A CTA whose shared memory others may use for as long as it runs."""
    yield from m.block(k.body, f)
    ended(m, f)


def _chunk(m: Machine, k: n.Kernel, threads: int) -> int:
    """CTAs that run as one frame: bounded by the elements of the largest value. A CTA that never splits is one lane, however many threads it has."""
    lanes = max(1, threads if m.checking or _splits(m.program, k) else 1)
    budget = max(1, LANE_BUDGET // max(lanes, once(k, "_largest_value", lambda: largest_value(k))))
    return max(1, min(budget, (CHECKED_THREADS if m.checking else THREAD_BUDGET) // lanes))


@once_for_each
def _splits(program: n.Program, k: n.Kernel) -> bool:
    """Whether a kernel, or a function that it calls, runs instances of a level of the machine side by side."""
    return any(isinstance(x, n.Roles) or (isinstance(x, n.For) and x.kind in LEVELS) for x in _reachable(program, k))


def largest_value(k: n.Kernel) -> int:
    """Elements of the largest value or buffer that a CTA holds; extents that are not known count as 64. What a view shows is not held."""
    most, shown = 1, {id(x.at) for x in walk(k) if isinstance(x, n.View)}
    for x in walk(k):
        if id(x) in shown:
            continue
        shape: tuple[Any, ...] = ()
        if isinstance(x, n.Buffer) and x.space in ("shared", "fragment", "register"):
            shape = x.shape
        elif isinstance(x, n.Region) and isinstance(x.type, TileType):
            shape = x.type.shape
        count = 1
        for d in shape:
            count *= int(d.value) if isinstance(d, n.Const) else d if isinstance(d, int) else 64
        most = max(most, count)
    return most


def may_block(x: n.Node) -> bool:
    """Whether a statement or call may wait for another coroutine."""
    return isinstance(x, n.Roles) or (isinstance(x, n.Call) and x.fn in _WAITS) or (isinstance(x, n.While) and polls(x))


def polls(s: n.While) -> bool:
    """Whether a loop may wait for another thread: it reads memory that others write, and writes none itself."""
    memory, reads = ("global", "shared", "cluster"), False
    for x in walk(s):
        if isinstance(x, (n.Store, n.Copy)) and (x.at if isinstance(x, n.Store) else x.dst).buffer.space in memory:
            return False
        reads = reads or (isinstance(x, n.Load) and x.at.buffer.space in memory) or (isinstance(x, n.Call) and x.fn.startswith("atomic_"))
    return reads


def _reachable(program: n.Program, k: n.Kernel) -> Iterator[n.Node]:
    yield from walk(k)
    for fn in program.functions:
        yield from walk(fn)


@once_for_each
def _may_block(program: n.Program, k: n.Kernel) -> bool:
    return any(may_block(x) for x in _reachable(program, k))


@once_for_each
def _split_loops(program: n.Program, k: n.Kernel) -> dict[int, bool]:
    """By loop over a level, whether its instances wait for one another."""
    waiting = {fn.name for fn in program.functions if any(isinstance(x, n.Call) and x.fn in _WAITS for x in walk(fn))}
    return {id(s): any(isinstance(x, n.Roles) or (isinstance(x, n.Call) and (x.fn in _WAITS or x.fn in waiting)) for b in s.body for x in walk(b))
            for s in walk(k) if isinstance(s, n.For) and s.kind in LEVELS}
