"""One run of a program with symbols for its inputs: what each element of its outputs is, as a term.

A program without races computes the same whatever the order of its threads, so one order is taken: instances of a team run one after the other up to where
they wait, and asynchronous operations act at once. That nothing races is checked elsewhere; a proof here says what that order computes.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from kir.analysis.algebra import tile_calls
from kir.analysis.algebra.memory import Array, Handle, new, numbers, place, read, write
from kir.analysis.algebra.scopes import Counter, Jumped, Scope
from kir.analysis.algebra.terms import Term, Terms, Undecided, Value
from kir.analysis.algebra.tile_calls import each
from kir.base.instructions import instruction, masked
from kir.ir import nodes as n
from kir.ir.layouts import layout_tables
from kir.ir.rebuild.plans import launches
from kir.ir.types import DType, TupleType, dtype_of, rounded
from kir.ir.visit import children

LEVELS = frozenset({"warpgroup", "warp", "thread"})
WARP = 32
STATEMENT = 2
"""Operations that a statement is counted as."""
QUIET = frozenset({"fence", "fence_async", "fence_mbar_init", "wgmma_fence", "wgmma_commit", "wgmma_wait", "async_commit", "async_wait", "bulk_commit",
                   "bulk_wait", "set_registers", "nanosleep", "prefetch", "prefetch_descriptor", "register_fence", "assume", "assertion",
                   "grid_dependency_wait", "grid_dependency_launch"})
"""Calls that change no value where nothing races."""
OF_WARPS = frozenset({"shfl_xor", "shfl_up", "shfl_down", "shfl_idx", "vote_any", "vote_all", "ballot", "warp_reduce", "active_mask", "mma_sync", "ldmatrix",
                      "stmatrix", "warp_sync"})
Wait = tuple[Any, ...]
"""What an instance waits for: `barrier`; `warp`, a call and its operands; `until`, a condition."""
Steps = Iterator[Wait]


class Run:
    """A run of a program at sizes; tensors are called otherwise as `called` says."""

    def __init__(self, program: n.Program, sizes: Mapping[str, int], terms: Terms, called: Mapping[str, str]) -> None:
        self.program, self.terms, self.called, self.longest = program, terms, called, max(1, terms.most // STATEMENT)
        self.functions = {f.name: f for f in program.functions}
        self.counters: dict[tuple[int, tuple[int, ...]], Counter] = {}
        self.steps = 0
        self.waiting: dict[int, bool] = {}
        """By an expression of the program, which lives as long: see `_waits`."""
        self.host = Scope()
        for p in program.params:
            if isinstance(p.of, DType):
                self.host.names[p.name] = self._scalar(p, p.of, sizes)
        for p in program.params:
            if isinstance(p.of, n.Buffer):
                self.host.names[p.name] = self._tensor(p, p.of)
        for w in program.workspaces:
            self._buffer(w.buffer, self.host, new(self._shape(w.buffer, self.host), None if w.init is None else self.value(w.init, self.host)))

    def outputs(self) -> dict[str, Array]:
        """Runs it; the elements of its outputs."""
        for step in launches(self.program) if all(isinstance(x, n.Launch) for x in self.program.plan) else self._none():
            kernel = next(k for k in self.program.kernels if k.name == step.kernel)
            if kernel.cluster:
                raise Undecided("it runs in clusters")
            extents = [int(numbers(self.value(a.extent, self.host))) for a in kernel.grid]
            for at in np.ndindex(*reversed(extents)):
                scope = self.host.child({a.name: i for a, i in zip(kernel.grid, reversed(at), strict=True)}, "cta", 0)
                scope.shared = {}
                self._drive(self.block(kernel.body, scope))
        return {self.called.get(p.name, p.name): self.host.names[p.name].data for p in self.program.params if p.role in ("out", "inout")}

    def _none(self) -> tuple[n.Launch, ...]:
        raise Undecided("which kernels run depends on a guard")

    def _drive(self, steps: Steps) -> None:
        try:
            for _ in steps:
                if _[0] == "until" and not _[1]():
                    raise Undecided("nobody can go on")
        except Jumped:
            pass

    def _scalar(self, p: n.Param, of: DType, sizes: Mapping[str, int]) -> Value:
        if p.name in sizes:
            return self.terms.number(sizes[p.name]) if of.is_float else sizes[p.name]
        if p.value is not None:
            return self.value(p.value, self.host)
        if not of.is_float:
            raise Undecided(f"'{p.name}' has no value")
        return self.terms.make("in", p.name)

    def _tensor(self, p: n.Param, b: n.Buffer) -> Handle:
        if any(name == "alias" for name, _ in p.attrs):
            raise Undecided("tensors may be one memory")
        shape = self._shape(b, self.host)
        data = new(shape)
        if p.role != "out":
            for at in np.ndindex(*shape):
                data[at] = self.terms.make("in", self.called.get(p.name, p.name), *at)
        return Handle(b, data, shape=shape)

    def _shape(self, b: n.Buffer, scope: Scope) -> tuple[int, ...]:
        return tuple(int(numbers(self.value(d, scope))) for d in b.shape)

    def _buffer(self, b: n.Buffer, scope: Scope, data: Array) -> None:
        scope.names[b.name] = Handle(b, data, shape=data.shape)

    # --------------------------------------------------------------------------------------------------------- statements
    def block(self, block: n.Block, scope: Scope) -> Steps:
        """The statements of a block."""
        for s in block:
            self.steps += 1
            if self.steps > self.longest:
                raise Undecided("it is too long")
            yield from self.statement(s, scope)

    def statement(self, s: n.Stmt, scope: Scope) -> Steps:
        """One statement."""
        if not isinstance(s, (n.For, n.While, n.Roles)):
            yield from self._before(s, scope)
        match s:
            case n.Let():
                value = self.value(s.value, scope)
                for name, v in zip(s.names, value if isinstance(s.value.type, TupleType) or len(s.names) > 1 else (value,), strict=True):
                    scope.names[name] = v
            case n.Alloc():
                self._alloc(s, scope)
            case n.View():
                self._view(s, scope)
            case n.Store():
                at = place(scope.find(s.at.buffer.name), s.at.index, scope, self.value)
                write(at, self.value(s.value, scope), self._wanted(s.mask, scope), s.clip)
            case n.Copy():
                self._copy(s, scope)
            case n.Mma():
                self._product(s, scope)
            case n.Eval():
                yield from self._effect(s.call, scope)
            case n.For() if s.kind in LEVELS:
                yield from self._split(s, scope)
            case n.For() | n.While():
                yield from self._loop(s, scope)
            case n.If():
                taken = self.value(s.cond, scope)
                if taken is None:
                    raise Undecided("a branch on what is not defined")
                yield from self.block(s.then if taken else s.orelse, scope.child())
            case n.Jump():
                raise Jumped(s.kind, tuple(self.value(v, scope) for v in s.values))
            case n.Roles():
                inner = [scope.child({}, "role", k) for k in range(len(s.roles))]
                yield from self._together([self._ending(r.body, x) for r, x in zip(s.roles, inner, strict=True)], inner)
            case _:
                raise Undecided("it has text, or a hole")

    def _loop(self, s: n.For | n.While, scope: Scope) -> Steps:
        if isinstance(s, n.For):
            lo, hi, step = (int(numbers(self.value(x, scope))) for x in (s.lo, s.hi, s.step))
            rounds: Any = range(lo, hi, step)
        else:
            rounds = iter(lambda: True, False)
        for i in rounds:
            if isinstance(s, n.While):
                yield from self._before_expression(s.cond, scope)
                if not self.value(s.cond, scope):
                    return
            try:
                yield from self.block(s.body, scope.child({s.var.name: i} if isinstance(s, n.For) else {}))
            except Jumped as jump:
                if jump.kind == "break":
                    return
                if jump.kind != "continue":
                    raise

    def _split(self, s: n.For, scope: Scope) -> Steps:
        lo, hi, step = (int(numbers(self.value(x, scope))) for x in (s.lo, s.hi, s.step))
        inner = [scope.child({s.var.name: i}, s.kind, k) for k, i in enumerate(range(lo, hi, step))]
        yield from self._together([self._ending(s.body, x) for x in inner], inner)

    def _ending(self, body: n.Block, scope: Scope) -> Steps:
        try:
            yield from self.block(body, scope)
        except Jumped as jump:
            if jump.kind != "return":
                raise

    def _together(self, parts: list[Steps], scopes: list[Scope]) -> Steps:
        """Instances side by side, until all have ended."""
        waits: dict[int, Wait | None] = dict.fromkeys(range(len(parts)))
        while waits:
            moved = False
            for k in [k for k, w in waits.items() if w is None or (w[0] == "until" and w[1]())]:
                moved, waits[k] = True, next(parts[k], ("ended",))
                if waits[k] == ("ended",):
                    del waits[k]
            if waits and all(w is not None and w[0] == "barrier" for w in waits.values()):
                waits, moved = dict.fromkeys(waits), True
            moved = self._exchanged(waits, scopes) or moved
            if waits and not moved:
                if not any(w is not None and w[0] == "until" for w in waits.values()):
                    raise Undecided("nobody can go on")
                held = dict(waits)
                yield "until", lambda held=held: any(w is not None and w[0] == "until" and w[1]() for w in held.values())

    def _exchanged(self, waits: dict[int, Wait | None], scopes: list[Scope]) -> bool:
        """Calls of warps all of whose threads wait for something."""
        done = False
        for first in {scopes[k].number // WARP for k in waits}:
            lanes = [k for k in waits if scopes[k].number // WARP == first]
            if any(waits[k] is None for k in lanes):
                continue
            for call in {id(w[1]): w[1] for k in lanes if (w := waits[k]) is not None and w[0] == "warp"}.values():
                at = {scopes[k].number % WARP: w[2] for k in lanes if (w := waits[k]) is not None and w[0] == "warp" and w[1] is call}
                made = self._of_warp(call, at)
                for k in lanes:
                    w = waits[k]
                    if w is not None and w[0] == "warp" and w[1] is call:
                        scopes[k].told[id(call)] = made[scopes[k].number % WARP]
                        waits[k], done = None, True
        return done

    # -------------------------------------------------------------------------------------------------------- in statements
    def _before(self, s: n.Stmt, scope: Scope) -> Steps:
        """Calls in the expressions of a statement that others take part in, or that run statements of their own."""
        for x in children(s) if not isinstance(s, n.If) else (s.cond,):
            if not isinstance(x, n.Stmt) and self._waits(x):
                yield from self._before_expression(x, scope)

    def _waits(self, e: n.Node) -> bool:
        """Whether a call that others take part in, or that runs statements of its own, is in an expression."""
        found = self.waiting.get(id(e))
        if found is None:
            found = (isinstance(e, n.Call) and (e.of is not None or e.fn in OF_WARPS)) or any(self._waits(x) for x in children(e) if not isinstance(x, n.Stmt))
            self.waiting[id(e)] = found
        return found

    def _before_expression(self, e: n.Node, scope: Scope) -> Steps:
        if isinstance(e, n.Stmt) or not self._waits(e):
            return
        for x in children(e):
            yield from self._before_expression(x, scope)
        if isinstance(e, n.Call) and e.of is not None:
            yield from self._function(e, scope)
        elif isinstance(e, n.Call) and e.fn in OF_WARPS:
            if scope.level != "thread":
                raise Undecided(f"'{e.fn}' outside of threads")
            yield "warp", e, [self._row(a, scope) if isinstance(a, n.Region) else self.value(a, scope) for a in e.args]

    def _row(self, r: n.Region, scope: Scope) -> Any:
        """The 8 elements that begin where a lane says, as a place."""
        handle = scope.find(r.buffer.name)
        index = (*r.index[:-1], n.Span(r.index[-1], 8)) if r.index and not isinstance(r.index[-1], n.Span) else r.index
        return place(handle, index, scope, self.value)

    def _function(self, e: n.Call, scope: Scope) -> Steps:
        f = self.functions[e.fn]
        inner = Scope(self.host, {}, scope.level, scope.number, {}, scope.shared)
        for p, a in zip(f.params, e.args, strict=True):
            inner.names[p.name] = scope.find(a.buffer.name) if isinstance(a, n.Region) else self.value(a, scope)
            if isinstance(a, n.Region) and a.index:
                raise Undecided("a part of a buffer is passed to a function")
        result: tuple[Value, ...] = ()
        try:
            yield from self.block(f.body, inner)
        except Jumped as jump:
            result = jump.values
        scope.told[id(e)] = result[0] if len(result) == 1 else result

    def _of_warp(self, e: n.Call, at: Mapping[int, list[Value]]) -> dict[int, Value]:
        """What each lane of a warp gets."""
        attrs = dict(e.attrs)
        match e.fn:
            case _ if masked(e.fn, len(e.args)):
                raise Undecided("lanes that only the run knows")
            case "shfl_xor" | "shfl_up" | "shfl_down" | "shfl_idx":
                return {lane: self._shuffled(e.fn, lane, at, int(attrs.get("width", WARP))) for lane in at}
            case "vote_any" | "vote_all" | "ballot":
                bits = sum(1 << lane for lane, args in at.items() if args[0])
                return dict.fromkeys(at, {"vote_any": bits != 0, "vote_all": bits == sum(1 << lane for lane in at), "ballot": bits}[e.fn])
            case "active_mask":
                return dict.fromkeys(at, sum(1 << lane for lane in at))
            case "warp_reduce":
                fold = tile_calls.binary(self.terms, str(attrs.get("op", "add")), dtype_of(e.type))
                total = None
                for lane in sorted(at):
                    total = at[lane][0] if total is None else fold(total, at[lane][0])
                return dict.fromkeys(at, total)
            case "warp_sync":
                return dict.fromkeys(at)
            case "mma_sync":
                return self._matrix_product(e, at)
            case "ldmatrix" | "stmatrix":
                return self._matrices(e, at)
            case _:
                raise Undecided(f"'{e.fn}' is not followed")

    def _shuffled(self, fn: str, lane: int, at: Mapping[int, list[Value]], width: int) -> Value:
        by, segment = int(numbers(at[lane][1])), lane // width * width
        source = {"shfl_xor": lane ^ by, "shfl_up": lane - by, "shfl_down": lane + by, "shfl_idx": segment + by % width}[fn]
        held = source >= segment if fn == "shfl_up" else source < segment + width
        return at[to][0] if (to := source if held else lane) in at else None

    def _matrix_product(self, e: n.Call, at: Mapping[int, list[Value]]) -> dict[int, Value]:
        if len(at) != WARP:
            raise Undecided("a product of a part of a warp")
        k, of = int(str(dict(e.attrs).get("shape", "m16n8k16")).removeprefix("m16n8k")), dtype_of(e.args[0].type)
        tiles, c = [], layout_tables.mma_c()
        for i, held in enumerate((layout_tables.mma_a(k, of.bits), layout_tables.mma_b(k, of.bits), c)):
            tile = new(held.shape)
            for lane in range(WARP):
                tile[held.rows[lane], held.cols[lane]] = np.asarray(at[lane][i], dtype=object).reshape(-1)
            tiles.append(tile)
        made = self.multiplied(tiles[0], tiles[1], tiles[2])
        return {lane: made[c.rows[lane], c.cols[lane]] for lane in range(WARP)}

    def _matrices(self, e: n.Call, at: Mapping[int, list[Value]]) -> dict[int, Value]:
        attrs = dict(e.attrs)
        loads = e.fn == "ldmatrix"
        num = int(attrs.get("num", 4)) if loads else len(at[0][1]) // 2
        table = layout_tables.ldmatrix(num, bool(attrs.get("trans", False)))
        which, row, column = (np.broadcast_to(t, (WARP, 2 * num)) if t.ndim < 2 else t for t in np.broadcast_arrays(*table))
        if which.shape != (WARP, 2 * num):
            raise Undecided("matrices of another shape")
        rows = {lane: at[lane][0] for lane in range(8 * num)}
        values = {lane: read(p, None, None, False) for lane, p in rows.items()}
        if loads:
            out = {lane: new((2 * num,)) for lane in at}
            for lane in at:
                for i in range(2 * num):
                    out[lane][i] = values[8 * int(which[lane, i]) + int(row[lane, i])][int(column[lane, i])]
            return out
        for lane, args in at.items():
            for i in range(2 * num):
                values[8 * int(which[lane, i]) + int(row[lane, i])][int(column[lane, i])] = args[1][i]
        for lane, p in rows.items():
            write(p, values[lane], None, False)
        return dict.fromkeys(at)

    # ------------------------------------------------------------------------------------------------------ what they do
    def _alloc(self, s: n.Alloc, scope: Scope) -> None:
        b = s.buffer
        if b.space == "cluster":
            raise Undecided("memory of a cluster")
        shape = self._shape(b, scope)
        kept = scope.shared.get(id(s)) if b.space == "shared" and scope.level != "cta" else None
        data = new(shape) if kept is None else kept
        if b.space == "shared":
            scope.shared[id(s)] = data
        if s.init is not None:
            data[...] = self.value(s.init, scope)
        self._buffer(b, scope, data)

    def _view(self, s: n.View, scope: Scope) -> None:
        below = scope.find(s.at.buffer.name)
        if s.axes:
            scope.names[s.buffer.name] = Handle(s.buffer, None, s, scope, self._shape(s.buffer, scope))
            return
        other = s.buffer.dtype != below.buffer.dtype or below.buffer.layout is not None or s.buffer.strides is not None
        if below.view is not None or below.data is None or other:
            raise Undecided("memory is seen as something else")
        shape = self._shape(s.buffer, scope)
        first = [int(numbers(self.value(i.lo if isinstance(i, n.Span) else i, scope))) for i in s.at.index] or [0] * len(below.shape)
        start = int(np.ravel_multi_index(first, below.shape)) if below.shape else 0
        flat = below.data.reshape(-1)
        count = int(np.prod(shape, dtype=np.int64))
        if not np.shares_memory(flat, below.data) or start + count > flat.size:
            raise Undecided("memory is seen as something else")
        self._buffer(s.buffer, scope, flat[start:start + count].reshape(shape))

    def _wanted(self, mask: n.Expr | None, scope: Scope) -> Array | None:
        if mask is None:
            return None
        v = self.value(mask, scope)
        try:
            return np.asarray(v.tolist() if isinstance(v, np.ndarray) else bool(v), dtype=np.bool_)
        except TypeError as bad:
            raise Undecided("a mask is not defined") from bad

    def _copy(self, s: n.Copy, scope: Scope) -> None:
        if dict(s.attrs).get("multicast"):
            raise Undecided("a copy to several CTAs")
        value = self.value(s.src, scope)
        at = place(scope.find(s.dst.buffer.name), s.dst.index, scope, self.value)
        value = value.reshape(at.shape) if isinstance(value, np.ndarray) and value.shape != at.shape else value
        write(at, value, self._wanted(s.mask, scope), s.clip)
        if s.signal is not None:
            for c in self._mbarriers(s.signal, scope):
                if s.via in ("bulk", "tma"):
                    c.bytes -= int(np.prod(at.shape, dtype=np.int64)) * s.dst.buffer.dtype.bytes
                else:
                    c.pending -= 1
                c.settle()

    def multiplied(self, a: Array, b: Array, acc: Array) -> Array:
        """`acc + a * b`."""
        if a.ndim > 2:
            return np.stack([self.multiplied(x, y, z) for x, y, z in zip(a, b, acc, strict=True)])
        out = new(acc.shape)
        for i, j in np.ndindex(*acc.shape):
            total: Value = acc[i, j]
            for x, y in zip(a[i], b[:, j], strict=True):
                if x is None or y is None or total is None:
                    total = None
                    break
                total = self.terms.add(self.terms.of(total), self.terms.mul(self.terms.of(x), self.terms.of(y)))
            out[i, j] = total
        return out

    def _product(self, s: n.Mma, scope: Scope) -> None:
        at = place(scope.find(s.acc.buffer.name), s.acc.index, scope, self.value)
        write(at, self.multiplied(self.value(s.a, scope), self.value(s.b, scope), read(at, None, None, False)), None, False)

    def _mbarriers(self, r: n.Region, scope: Scope, made: int = 0) -> list[Counter]:
        at = place(scope.find(r.buffer.name), r.index, scope, self.value)
        out = []
        for k in np.ndindex(*at.shape):
            key = id(at.handle.data), tuple(int(np.broadcast_to(x, at.shape)[k]) for x in at.index)
            if made:
                self.counters[key] = Counter(made, made)
            if key not in self.counters:
                raise Undecided("an mbarrier is not initialized")
            out.append(self.counters[key])
        return out

    def _effect(self, e: n.Call, scope: Scope) -> Steps:
        """A call for its effect."""
        number = [a for a in e.args if isinstance(a, n.Expr)]
        match e.fn:
            case _ if e.of is not None or e.fn in QUIET or e.fn in OF_WARPS:
                pass
            case "barrier":
                if scope.level != "cta":
                    yield ("barrier",)
            case "mbar_init" if isinstance(e.args[0], n.Region):
                self._mbarriers(e.args[0], scope, int(numbers(self.value(number[0], scope))))
            case "mbar_expect" | "mbar_arrive" | "mbar_arrive_expect" if isinstance(e.args[0], n.Region):
                for c in self._mbarriers(e.args[0], scope):
                    c.bytes += int(numbers(self.value(number[0], scope))) if number else 0
                    c.pending -= e.fn != "mbar_expect"
                    c.settle()
            case "mbar_wait" if isinstance(e.args[0], n.Region):
                parity = int(numbers(self.value(number[0], scope))) & 1
                waited = self._mbarriers(e.args[0], scope)
                if not all(c.phase & 1 != parity for c in waited):
                    yield "until", lambda: all(c.phase & 1 != parity for c in waited)
            case _ if e.fn.startswith("atomic_"):
                self.value(e, scope)
            case _:
                raise Undecided(f"'{e.fn}' is not followed")

    def _atomic(self, e: n.Call, scope: Scope) -> Value:
        """An atomic update of each element in turn; what was there before."""
        assert isinstance(e.args[0], n.Region)
        at = place(scope.find(e.args[0].buffer.name), e.args[0].index, scope, self.value)
        args = [self.value(a, scope) for a in e.args[1:] if isinstance(a, n.Expr)]
        if at.shape or e.fn in ("atomic_cas",):
            raise Undecided("an atomic update of several elements")
        if e.fn == "atomic_load":
            return read(at, None, None, False)
        if len(args) > 1 and not args[1]:
            return read(at, np.asarray(False), None, False)
        old = read(at, None, None, False)
        op = {"atomic_add": "add", "atomic_max": "max", "atomic_min": "min", "atomic_and": "and", "atomic_or": "or", "atomic_xor": "xor"}.get(e.fn)
        put = args[0] if op is None else each(tile_calls.binary(self.terms, op, e.args[0].buffer.dtype), old, args[0])
        write(at, put, None, False)
        return old

    # --------------------------------------------------------------------------------------------------------- expressions
    def value(self, e: n.Expr | int, scope: Scope) -> Value:
        """The value of an expression."""
        match e:
            case int():
                return e
            case n.Const():
                return self.terms.number(float(rounded(e.value, e.dtype))) if e.dtype.is_float else bool(e.value) if e.dtype.is_bool else int(e.value)
            case n.Var():
                return scope.find(e.name)
            case n.Unary():
                return each(tile_calls.unary(self.terms, e.op, dtype_of(e.x.type)), self.value(e.x, scope))
            case n.Binary():
                return each(tile_calls.binary(self.terms, e.op, dtype_of(e.a.type)), self.value(e.a, scope), self.value(e.b, scope))
            case n.Select():
                return self._selected(e, scope)
            case n.Cast():
                return each(tile_calls.cast(self.terms, dtype_of(e.x.type), e.dtype, e.rounding), self.value(e.x, scope))
            case n.Load():
                at = place(scope.find(e.at.buffer.name), e.at.index, scope, self.value)
                return read(at, self._wanted(e.mask, scope), None if e.other is None else self.value(e.other, scope), e.clip)
            case n.Call():
                return self._called(e, scope)
            case _:
                raise Undecided("an address is taken")

    def _selected(self, e: n.Select, scope: Scope) -> Value:
        chosen = tile_calls.select(self.terms, dtype_of(e.a.type).is_float)
        cond, a, b = self.value(e.cond, scope), self.value(e.a, scope), self.value(e.b, scope)
        def one(c: Value, x: Value, y: Value) -> Value:
            if c is None or (isinstance(c, Term) and (x is None or y is None)):
                return None
            return chosen(c, x, y)
        if not any(isinstance(v, np.ndarray) for v in (cond, a, b)):
            return one(cond, a, b)
        return np.frompyfunc(one, 3, 1)(cond, a, b)

    def _called(self, e: n.Call, scope: Scope) -> Value:
        told: Scope | None = scope
        while told is not None:
            if id(e) in told.told:
                return told.told[id(e)]
            told = told.parent
        if e.of is not None or e.fn in OF_WARPS:
            raise Undecided(f"'{e.fn}' in a place where it is not followed")
        if e.fn.startswith("atomic_"):
            return self._atomic(e, scope)
        attrs = dict(e.attrs)
        args = [self.value(a, scope) for a in e.args if isinstance(a, n.Expr)]
        if e.fn in ("reduce", "scan"):
            return self._along(e, attrs, args, scope)
        row = instruction(e.fn)
        if row.level != "element" or e.fn in ("multiple_of", "max_contiguous", "max_constancy"):
            return tile_calls.shaped(e.fn, args, attrs)
        of = dtype_of(e.args[0].type)
        if of.is_float and row.rule == "same":
            if attrs.get("sat"):
                raise Undecided("it saturates")
            return each(lambda *x: self.terms.call(e.fn, [self.terms.of(v) for v in x]), *args)
        if e.fn == "fma" and not of.is_float:
            return each(tile_calls.binary(self.terms, "add", of), each(tile_calls.binary(self.terms, "mul", of), args[0], args[1]), args[2])
        kinds = ",".join(str(dtype_of(a.type)) for a in e.args)
        return each(lambda *x: self.terms.make("fn", f"{e.fn} {kinds} {e.attrs}", *(self.terms.of(v) for v in x)), *args)

    def _along(self, e: n.Call, attrs: Mapping[str, Any], args: list[Value], scope: Scope) -> Value:
        """A reduction or a scan."""
        op, of = str(attrs.get("op", "sum")), dtype_of(e.args[0].type)
        fold: Callable[..., tuple[Value, ...]]
        if "combine" in attrs:
            fold = lambda a, b: self._combined(str(attrs["combine"]), (*a, *b), scope)  # noqa: E731  # one of two
        elif op in ("argmax", "argmin"):
            raise Undecided(f"'{op}' is not followed")
        else:
            name = {"sum": "add", "prod": "mul", "max_nan": "max", "min_nan": "min"}.get(op, op)
            fold = lambda a, b: (each(tile_calls.binary(self.terms, name, of), a[0], b[0]),)  # noqa: E731  # one of two
        parts = tuple(np.asarray(a, dtype=object) for a in np.broadcast_arrays(*(np.asarray(a, dtype=object) for a in args)))
        axis = int(attrs.get("axis", 0))
        if e.fn == "scan":
            out: tuple[Value, ...] = tile_calls.scanned(fold, parts, axis, bool(attrs.get("reverse")))
        else:
            out = tile_calls.folded(fold, parts, axis)
            if attrs.get("keep"):
                out = tuple(np.expand_dims(np.asarray(x, dtype=object), axis) for x in out)
        return out[0] if len(out) == 1 else out

    def _combined(self, name: str, args: tuple[Value, ...], scope: Scope) -> tuple[Value, ...]:
        f = self.functions[name]
        inner = Scope(self.host, {p.name: a for p, a in zip(f.params, args, strict=True)}, scope.level, scope.number)
        try:
            for _ in self.block(f.body, inner):
                raise Undecided("a combination waits")
        except Jumped as jump:
            return jump.values
        raise Undecided(f"'{name}' gives nothing")
