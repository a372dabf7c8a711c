"""Whole numbers that a machine cannot hold: where a program's indices, bounds and conditions part from the numbers that they mean.

Nothing is run at these sizes. The values of sizes are as large as the facts allow; CTAs, threads, elements of tiles and iterations are the first and the
last of each; every whole number is worked out twice, as a machine of its dtype has it and exactly. Of data only
numbers that name places are known: the last.
"""
from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic
from kir.gate.inputs.places import Places, places
from kir.gate.shapes import Space
from kir.ir import nodes as n
from kir.ir.anchors import anchors
from kir.ir.canonical import content_hash
from kir.ir.printer import expr_text
from kir.ir.types import DType, TileType, dtype_of
from kir.ir.visit import children, walk

Array = NDArray[Any]
Sizes = dict[str, int]
LADDER = (1, 24, 320, *(5 << k - 2 for k in range(10, 31, 2)))
"""Values of a size that are tried: multiples of powers of two, so that facts about divisors hold."""
MOST_TRIED, MOST_SETS = 1500, 24
FIT = 1 << 31
"""Elements of a tensor that indices of 32 bits can name."""
LEAST, MOST = 1 << 22, 1 << 36
"""Elements of the largest tensor at sizes that are tried."""
ROOM = 1 << 25
"""So far below that rounding up to tiles stays there."""
BEYOND_FLOAT, NUDGES = 1 << 25, (1, 3, 2, 6, 4, 8, 16, 32, 64)
"""Whole numbers above that f32 does not hold all even ones, and what is added to such sizes."""
TEAMS = ("warpgroup", "warp", "thread")
FLOATS: Mapping[str, Any] = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


@dataclass(frozen=True)
class Parted:
    """Where a machine has another number: the expression `e` at the statement `anchor`, with the sizes and both values."""

    e: n.Expr
    anchor: str
    stmt: n.Stmt
    sizes: Sizes
    machine: float
    exact: float


def narrow(program: n.Program, space: Space, against: n.Program | None = None) -> tuple[list[Diagnostic], list[Diagnostic]]:
    """What refuses (KIR-G135): a number that is another one at sizes at which every tensor has fewer than 2^31 elements, unless a reference has such a
    number as well; and what is only said (KIR-G136): one at larger sizes that the facts allow. `space` says where sizes may lie, however large."""
    small, large = _sets(program, space)
    known = places(against) if against is not None else {}
    found = _parted(program, [space.own(at) for at in small], known)
    if found is not None and (against is None or _parted(against, small, known) is None):
        return [_said("KIR-G135", program, found, "another way to the number, or a wider type")], []
    beyond = _parted(program, [space.own(at) for at in large], known)
    return [], [_said("KIR-G136", program, beyond, "an index of 64 bits, or a fact about the sizes", "warning")] if beyond is not None else []


def _said(id: str, program: n.Program, p: Parted, needs: str, severity: Any = "error") -> Diagnostic:
    at = ", ".join(f"{k} = {v}" for k, v in p.sizes.items())
    elements = int(_elements(program, [p.sizes])[0])
    if id == "KIR-G135":
        message = f"'{expr_text(p.e)[:80]}' is {p.machine:.0f} in its type and means {p.exact:.0f} at {at}, where no tensor has 2^31 elements"
    else:
        message = f"right only below 2^31 elements of a tensor: '{expr_text(p.e)[:80]}' is {p.machine:.0f} in its type and means {p.exact:.0f} at {at}"
    return Diagnostic(id, message, p.stmt.origin, p.anchor, witness=(at, f"{elements} elements in the largest tensor"), needs=needs, severity=severity)


# ------------------------------------------------------------------------------------------------------------------------------- sizes

def _sets(program: n.Program, space: Space) -> tuple[list[Sizes], list[Sizes]]:
    """Sizes at which the largest tensor has many elements, though fewer than 2^31; and those at which it has as many or more."""
    if not space.names:
        return [], []
    if len(LADDER) ** len(space.names) <= MOST_TRIED:
        tried: Iterable[tuple[int, ...]] = product(LADDER, repeat=len(space.names))
    else:
        rng = random.Random(content_hash(program))
        tried = (tuple(rng.choice(LADDER) for _ in space.names) for _ in range(MOST_TRIED))
    pool = [dict(zip(space.names, values, strict=True)) for values in dict.fromkeys(tried)]
    most = _elements(program, [space.own(at) for at in pool])
    order = [int(i) for i in np.argsort(most, kind="stable") if LEAST <= most[i] < MOST and not FIT - ROOM < most[i] < FIT]
    allowed = dict(zip(order, space.allowed([pool[i] for i in order]), strict=True)) if order else {}
    small = [pool[i] for i in order if allowed[i] and most[i] < FIT]
    large = [pool[i] for i in order if allowed[i] and most[i] >= FIT]
    picked = small[::max(1, len(small) // MOST_SETS)]
    picked += [at for at in small[-MOST_SETS // 2:] if at not in picked]
    return [*picked, *_between(program, space, picked)], large[:MOST_SETS // 2]


def _between(program: n.Program, space: Space, picked: Sequence[Sizes]) -> list[Sizes]:
    """Sizes a little above those, between what floats of 24 bits hold: by the least that the facts allow."""
    of = [at for at in picked if any(v >= BEYOND_FLOAT for v in at.values())]
    tried = [{name: v + by if v >= BEYOND_FLOAT else v for name, v in at.items()} for at in of[-MOST_SETS // 2:] for by in NUDGES]
    if not tried:
        return []
    fine = space.allowed(tried) & (_elements(program, [space.own(at) for at in tried]) < FIT)
    rows = fine.reshape(-1, len(NUDGES))
    return [tried[i * len(NUDGES) + int(np.argmax(row))] for i, row in enumerate(rows) if row.any()]


def _elements(program: n.Program, sets: Sequence[Sizes]) -> Array:
    """Elements of the largest tensor at each of the sizes."""
    env = _host(program, sets)
    worker, most = _Worker({}), np.zeros(len(sets))
    for b in [*(p.of for p in program.params), *(w.buffer for w in program.workspaces)]:
        if isinstance(b, n.Buffer):
            total = np.ones(len(sets))
            for d in b.shape:
                if (extent := worker.value(d, env)) is not None:
                    total = total * extent.exact.astype(np.float64)
            most = np.maximum(most, total)
    return most


def _host(program: n.Program, sets: Sequence[Sizes]) -> Env:
    env: Env = {}
    for p in program.params:
        if isinstance(p.of, DType) and all(p.name in s for s in sets):
            env[p.name] = _given(np.array([s[p.name] for s in sets]))
        elif isinstance(p.of, DType) and p.value is not None and (found := _Worker({}).value(p.value, env)) is not None:
            env[p.name] = found
    return env


# -------------------------------------------------------------------------------------------------------------------------- two values

@dataclass(frozen=True)
class Two:
    """Values over lanes, and over the first and last elements of each axis of a tile: as a machine has them, and exactly."""

    machine: Array
    exact: Array


Env = dict[str, Two]


def _given(values: Array) -> Two:
    return Two(values.astype(np.int64), values.astype(np.longdouble))


def _floor(a: Array, b: Array) -> Array:
    return np.asarray(np.floor(a / b))


_EXACT: Mapping[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum, "floordiv": _floor,
    "ceildiv": lambda a, b: np.ceil(a / b), "tdiv": lambda a, b: np.trunc(a / b), "mod": lambda a, b: a - _floor(a, b) * b,
    "trem": lambda a, b: a - np.trunc(a / b) * b, "div": np.divide, "shl": lambda a, b: a * np.exp2(b), "shr": lambda a, b: np.floor(a / np.exp2(b)),
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal}
_MACHINE: Mapping[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum, "floordiv": np.floor_divide, "mod": np.mod,
    "ceildiv": lambda a, b: -(-a // b), "tdiv": lambda a, b: np.trunc(a.astype(np.longdouble) / b).astype(np.int64),
    "trem": np.fmod, "shl": np.left_shift, "shr": np.right_shift, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "eq": np.equal, "ne": np.not_equal}


def _wrapped(x: Array, to: DType) -> Array:
    bits = to.bits
    if bits >= 64:
        return x
    low = x & ((1 << bits) - 1)
    return low if to.name.startswith("u") else np.where(low >= 1 << bits - 1, low - (1 << bits), low)


class _Worker:
    """Works out expressions over lanes."""

    def __init__(self, loaded: Mapping[str, Two]) -> None:
        self.loaded = loaded

    def value(self, e: n.Expr, env: Env) -> Two | None:
        """An expression, or None where it is not known."""
        with np.errstate(all="ignore"):
            return self._value(e, env)

    def _value(self, e: n.Expr, env: Env) -> Two | None:
        match e:
            case n.Const(value=v, dtype=of):
                kind: Any = np.bool_ if of.is_bool else np.int64 if of.is_integer else FLOATS.get(of.name, np.float32)
                return Two(np.array([v], kind), np.array([v], np.bool_ if of.is_bool else np.longdouble))
            case n.Var(name=name):
                return env.get(name)
            case n.Load(at=n.Region(buffer=n.Buffer(name=name))):
                return self.loaded.get(name)
            case n.Cast(x=x, dtype=to, rounding=rounding):
                return self._cast(x, to, env) if rounding == "rn" or to.is_integer else None
            case n.Unary(op=op, x=x):
                a = self._value(x, env)
                of = dtype_of(e.type)
                if a is None:
                    return None
                if op == "neg":
                    return Two(_wrapped(-a.machine, of) if of.is_integer else -a.machine, -a.exact)
                return Two(~a.machine, ~a.exact) if of.is_bool else Two(_wrapped(~a.machine, of), -a.exact - 1)
            case n.Binary():
                return self._binary(e, env)
            case n.Select(cond=cond, a=x, b=y):
                c, a, b = (self._value(v, env) for v in (cond, x, y))
                if c is None or a is None or b is None:
                    return None
                return Two(np.where(*_over(c.machine, a.machine, b.machine)), np.where(*_over(c.exact, a.exact, b.exact)))
            case n.Call():
                return self._call(e, env)
            case _:
                return None

    def _cast(self, x: n.Expr, to: DType, env: Env) -> Two | None:
        a = self._value(x, env)
        if a is None or to.is_bool:
            return None
        if to.is_integer:
            machine = a.machine if dtype_of(x.type).is_integer or dtype_of(x.type).is_bool else np.trunc(np.nan_to_num(a.machine)).astype(np.int64)
            exact = a.exact.astype(np.longdouble) if dtype_of(x.type).is_integer or dtype_of(x.type).is_bool else np.trunc(a.exact)
            made = _wrapped(machine.astype(np.int64), to)
            if to.name in ("u32", "u64") and dtype_of(x.type).is_integer and dtype_of(x.type).bits <= to.bits:  # below 0, as `(unsigned)i < n` has it
                exact = np.where((exact < 0) & (machine == exact), made.astype(np.longdouble), exact)
            return Two(made, exact)
        kind = FLOATS.get(to.name)
        return Two(a.machine.astype(kind), a.exact.astype(np.longdouble)) if kind is not None else None

    def _binary(self, e: n.Binary, env: Env) -> Two | None:
        a, b = self._value(e.a, env), self._value(e.b, env)
        of = dtype_of(e.type)
        if a is None or b is None:
            return None
        (am, bm), (ax, bx) = _over(a.machine, b.machine), _over(a.exact, b.exact)
        if e.op in ("and", "or", "xor"):
            f = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[e.op]
            if of.is_bool:
                return Two(f(am, bm), f(ax, bx))
            machine = f(am, bm)
            same = (am == ax) & (bm == bx)
            return Two(machine, np.where(same, machine, np.nan).astype(np.longdouble))
        exact = _EXACT.get(e.op)
        if exact is None:
            return None
        if dtype_of(e.a.type).is_float:
            op = {"div": np.divide}.get(e.op, _MACHINE.get(e.op))
            if op is None or e.op in ("shl", "shr"):
                return None
            return Two(np.asarray(op(am, bm)), np.asarray(exact(ax, bx)))
        if e.op in ("floordiv", "mod", "tdiv", "trem", "ceildiv"):
            bm = np.where(bm == 0, 1, bm)
        machine = np.asarray(_MACHINE[e.op](am, bm))
        if not of.is_integer:
            return Two(machine, np.asarray(exact(ax, bx)))
        machine = _wrapped(machine, of)
        if of.name in ("u32", "u64"):  # a remainder by definition, as hashes and counters want it
            return Two(machine, machine.astype(np.longdouble))
        return Two(machine, np.asarray(exact(ax, bx)))

    def _call(self, e: n.Call, env: Env) -> Two | None:
        if e.of is not None:
            return None
        args = [a for a in e.args if isinstance(a, n.Expr)]
        if e.fn == "iota" and isinstance(e.type, TileType) and isinstance(e.type.shape[0], int):
            return _given(np.array([[0, e.type.shape[0] - 1]]))
        if e.fn in ("multiple_of", "max_contiguous", "max_constancy") and args:
            return self._value(args[0], env)
        if e.fn in ("floor", "ceil", "trunc", "round", "rint", "sqrt") and len(args) == 1 and (a := self._value(args[0], env)) is not None:
            f = getattr(np, "rint" if e.fn == "round" else e.fn)
            return Two(np.asarray(f(a.machine)), np.asarray(f(a.exact)))
        if e.fn in ("expand", "broadcast") and args and isinstance(e.type, TileType) and (a := self._value(args[0], env)) is not None:
            if e.fn == "expand":
                axis = int(dict(e.attrs)["axis"])
                axis = axis if axis >= 0 else axis + len(e.type.shape)
                return Two(np.expand_dims(a.machine, axis + 1), np.expand_dims(a.exact, axis + 1)) if a.machine.ndim > 1 else a
            more = len(e.type.shape) + 1 - a.machine.ndim
            return a if a.machine.ndim == 1 else Two(*(x.reshape((x.shape[0], *(1,) * more, *x.shape[1:])) for x in (a.machine, a.exact)))
        return None


def _over(*arrays: Array) -> tuple[Array, ...]:
    """Arrays of lanes and elements, with as many axes."""
    most = max(a.ndim for a in arrays)
    return tuple(a.reshape((a.shape[0], *(1,) * (most - a.ndim), *a.shape[1:])) for a in arrays)


# ------------------------------------------------------------------------------------------------------------------------------- a walk

def _parted(program: n.Program, sets: Sequence[Sizes], known: Mapping[str, Places]) -> Parted | None:
    """The first expression that the program reaches with another number than it means, at the first of the sizes. `known` says what it loads."""
    if not sets:
        return None
    names = {id(s): text for text, _, s in anchors(program)}
    found: list[tuple[int, Parted]] = []
    for k in program.kernels:
        walker = _Walk(program, sets, names, known)
        walker.kernel(k)
        found += walker.found
    return min(found, key=lambda f: f[0])[1] if found else None


class _Walk:
    """A walk over a kernel with lanes; `live` says which of them come to a statement."""

    def __init__(self, program: n.Program, sets: Sequence[Sizes], names: Mapping[int, str], known: Mapping[str, Places]) -> None:
        self.sets, self.names = sets, names
        self.found: list[tuple[int, Parted]] = []
        self.host = _host(program, sets)
        self.last = {name: last for name, of in known.items() if (last := self.largest(program, name, of)) is not None}
        self.loaded: dict[str, Two] = {}

    def largest(self, program: n.Program, name: str, of: Places) -> Array | None:
        """The largest number that an input holds, at each of the sizes."""
        dtype = next((p.of.dtype for p in program.params if p.name == name and isinstance(p.of, n.Buffer) and p.of.dtype.is_integer), None)
        ends = [_Worker({}).value(e, self.host) for e in of.below]
        if dtype is None or any(v is None for v in ends):
            return None
        most = 1 << dtype.bits - (not dtype.name.startswith("u"))
        found = np.min([np.broadcast_to(v.exact, (len(self.sets),)) for v in ends if v is not None], axis=0)
        return np.asarray(np.minimum(found, most) - 1)

    def kernel(self, k: n.Kernel) -> None:
        env, worker = dict(self.host), _Worker({})
        corners = list(product((False, True), repeat=len(k.grid)))[:16]
        self.set = np.tile(np.arange(len(self.sets)), len(corners))
        env = {name: Two(v.machine[self.set], v.exact[self.set]) if len(v.machine) == len(self.sets) else v for name, v in env.items()}
        for i, axis in enumerate(k.grid):
            extent = worker.value(axis.extent, self.host)
            if extent is not None:
                last = np.repeat([c[i] for c in corners], len(self.sets))
                count = np.broadcast_to(extent.exact, (len(self.sets),))[self.set]
                env[axis.name] = _given(np.where(last, count - 1, 0))
        self.loaded = {name: _given(last[self.set]) for name, last in self.last.items()}
        self.block(k.body, env, np.ones(len(self.set), np.bool_))

    def block(self, body: n.Block, env: Env, live: Array) -> Array:
        """The statements of a block; gives the lanes that go on."""
        for s in body:
            if not live.any():
                return live
            for e in self.asked(s):
                self.compare(e, s, env, live)
            for e in _halves(s):
                self.compare(e, s, env, live, infinite=True)
            match s:
                case n.Let(names=(name,)):
                    value = _Worker(self.loaded).value(s.value, env) if isinstance(s.value.type, (DType, TileType)) else None
                    env.pop(name, None)
                    if value is not None:
                        env[name] = value
                case n.View(buffer=n.Buffer(name=name, dtype=of), at=n.Region(buffer=base)) if base.name in self.loaded and of == base.dtype:
                    self.loaded[name] = self.loaded[base.name]
                case n.For():
                    self.loop(s, env, live)
                case n.If():
                    cond = _Worker(self.loaded).value(s.cond, env)
                    if cond is None or cond.exact.ndim > 1:
                        self.block(s.then, dict(env), live)
                        self.block(s.orelse, dict(env), live)
                        continue
                    holds = np.broadcast_to(cond.exact.astype(np.bool_), live.shape)
                    left = self.block(s.then, dict(env), live & holds), self.block(s.orelse, dict(env), live & ~holds)
                    live = left[0] | left[1]
                case n.While():
                    self.block(s.body, {}, live & False)
                case n.Roles():
                    for role in s.roles:
                        self.block(role.body, dict(env), live)
                case n.Jump():
                    return live & False
                case _:
                    pass
        return live

    def loop(self, s: n.For, env: Env, live: Array) -> None:
        """Its first and its last iteration."""
        worker = _Worker(self.loaded)
        bounds = [worker.value(x, env) for x in (s.lo, s.hi, s.step)]
        if any(b is None or b.exact.ndim > 1 for b in bounds):
            return
        lo, hi, step = (np.broadcast_to(b.exact, live.shape) for b in bounds if b is not None)
        with np.errstate(all="ignore"):
            trips = np.where(step > 0, np.ceil((hi - lo) / np.where(step == 0, 1, step)), 0)
        for last in (False, True):
            inner = dict(env)
            inner[s.var.name] = _given(np.where(trips > 0, lo + (trips - 1) * step if last else lo, 0))
            self.block(s.body, inner, live & (trips > (1 if last else 0)))

    def asked(self, s: n.Stmt) -> Iterator[n.Expr]:
        """The expressions of a statement that say where it acts, whether, or how often."""
        match s:
            case n.If(cond=cond):
                yield cond
            case n.For():
                yield from (s.lo, s.hi)
            case n.View():
                yield from _indices(s.at)
            case n.Eval(call=call):  # a phase, a count, where it acts
                yield from (a for a in call.args if isinstance(a, n.Expr) and isinstance(a.type, DType) and a.type.is_integer)
                yield from (i for x in walk(call) if isinstance(x, n.Region) for i in _indices(x))
            case _:
                for c in children(s):
                    if isinstance(c, n.Expr) and c is getattr(s, "mask", None):
                        yield c
                    for x in walk(c) if isinstance(c, (n.Expr, n.Region)) else ():
                        if isinstance(x, n.Region):
                            yield from _indices(x)
                        elif isinstance(x, n.Load) and x.mask is not None:
                            yield x.mask

    def compare(self, e: n.Expr, s: n.Stmt, env: Env, live: Array, infinite: bool = False) -> None:
        """Note an expression that has another value than it means where lanes come to it; or only one that is `infinite`."""
        if not isinstance(e.type, (DType, TileType)) or isinstance(e, n.Const):
            return
        value = _Worker(self.loaded).value(e, env)
        if value is None:
            return
        machine, exact = _over(value.machine, value.exact)
        with np.errstate(all="ignore"):
            apart = np.isinf(machine) if infinite else (machine != exact) if exact.dtype == np.bool_ else (np.abs(machine - exact) > 0.5)
        rows = np.broadcast_to(apart.reshape(apart.shape[0], -1).any(1), live.shape) & live
        if rows.any():
            inner = e
            if exact.dtype == np.bool_ and (parts := self._inside(e, env, live)) is not None:
                inner, machine, exact, rows = parts
            lane = min(np.flatnonzero(rows), key=lambda i: int(self.set[i]))
            m, x = (np.broadcast_to(v, (len(live), *v.shape[1:]))[lane].reshape(-1).astype(np.longdouble) for v in (machine, exact))
            at, order = int(np.abs(m - x).argmax()), int(self.set[lane])
            self.found.append((order, Parted(inner, self.names.get(id(s), ""), s, self.sets[order], float(m[at]), float(x[at]))))

    def _inside(self, e: n.Expr, env: Env, live: Array) -> tuple[n.Expr, Array, Array, Array] | None:
        """Of a condition that turns out otherwise, the number in it that does."""
        for x in walk(e):
            if isinstance(x, n.Expr) and isinstance(x.type, DType) and x.type.is_integer and (v := _Worker(self.loaded).value(x, env)) is not None:
                rows = np.broadcast_to((np.abs(v.machine - v.exact) > 0.5).reshape(v.machine.shape[0], -1).any(1), live.shape)
                if (rows & live).any():
                    return x, v.machine, v.exact, rows & live
        return None


def _halves(s: n.Stmt) -> Iterator[n.Expr]:
    """Whole numbers that become an f16, which has none from 65,520 on."""
    for e in (s.value if isinstance(s, (n.Let, n.Store)) else s.init if isinstance(s, n.Alloc) else None,):
        yield from (x for x in walk(e) if isinstance(x, n.Cast) and x.dtype.name == "f16" and dtype_of(x.x.type).is_integer) if e is not None else ()


def _indices(r: n.Region) -> Iterator[n.Expr]:
    yield from (i.lo if isinstance(i, n.Span) else i for i in r.index)


__all__ = ["narrow"]
