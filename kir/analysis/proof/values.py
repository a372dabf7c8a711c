"""What an expression is, element by element: a scalar expression over the variables in scope and the element's indices, and when it is defined."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from kir.base.dataclass import dataclass
from kir.base.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.types import BOOL, I32, I64, DType, StructType, TileType, TupleType, Type, dtype_of, shape_of
from kir.ir.visit import substitute, walk

Index = tuple[n.Expr, ...]
Pair = tuple[n.Expr, n.Expr]
"""A value, and whether it is defined."""
Shape = tuple[int | n.Expr, ...]
TRUE: n.Expr = const(True, BOOL)
FALSE: n.Expr = const(False, BOOL)
BUTTERFLY = frozenset({"add", "mul", "min", "max"})
"""Operations that give the same bits for both orders of their operands."""
WARP = frozenset({1, 2, 4, 8, 16})
OTHER = DType("other", "symbolic", 0)
"""The dtype of what holds no number."""


class Val:
    """A value of `shape` whose elements are worked out when they are asked for, once."""

    def __init__(self, shape: Shape, at: Callable[[Index], Pair]) -> None:
        self.shape, self._at = shape, at
        self._kept: dict[Index, Pair] = {}
        self.alike: frozenset[int] = frozenset()
        """Masks under which the lanes of a warp have one value: that of lane l is that of lane l ^ mask."""
        self.shuffled: tuple[Val, int] | None = None
        """The value that this is of lane l ^ mask."""

    def at(self, index: Index) -> Pair:
        """The element of an index."""
        found = self._kept.get(index)
        if found is None:
            found = self._kept[index] = self._at(index)
        return found

    def stretched(self, index: Index) -> Pair:
        """The element of an index of a value that this one is broadcast to."""
        own = index[len(index) - len(self.shape):]
        return self.at(tuple(const(0) if int_or(d) == 1 else i for i, d in zip(own, self.shape, strict=True)))

    @property
    def scalar(self) -> Pair:
        """The value of a scalar."""
        return self.at(())


@dataclass(frozen=True)
class Env:
    """What is known at a place: values by name, contents of private buffers, views, and the variables that tell one execution of it from another."""

    names: Mapping[str, Val] = field(default_factory=dict)
    memory: Mapping[str, Val] = field(default_factory=dict)
    views: Mapping[str, n.View] = field(default_factory=dict)
    scope: tuple[n.Var, ...] = ()

    def naming(self, name: str, value: Val) -> Env:
        """With a name."""
        return replace(self, names={**self.names, name: value})

    def holding(self, buffer: str, value: Val) -> Env:
        """With the contents of a private buffer."""
        return replace(self, memory={**self.memory, buffer: value})


def root(name: str, views: Mapping[str, n.View]) -> str:
    """The memory that a name means."""
    while name in views:
        name = views[name].at.buffer.name
    return name


def int_or(d: int | n.Expr) -> int | n.Expr:
    """An extent as a number where it is one."""
    if isinstance(d, int):
        return d
    value = int_value(d)
    return d if value is None else value


def extent(d: int | n.Expr) -> n.Expr:
    """An extent as an expression."""
    return const(d) if isinstance(d, int) else d


def both(*conditions: n.Expr) -> n.Expr:
    """The conjunction of conditions."""
    out = TRUE
    for c in conditions:
        if c == FALSE or out == FALSE:
            return FALSE
        out = c if out == TRUE else out if c in (TRUE, out) else n.Binary("and", out, c)
    return out


def either(a: n.Expr, b: n.Expr) -> n.Expr:
    """The disjunction of two conditions."""
    if TRUE in (a, b):
        return TRUE
    return b if a in (FALSE, b) else a if b == FALSE else n.Binary("or", a, b)


def opposite(a: n.Expr) -> n.Expr:
    """The negation of a condition."""
    return FALSE if a == TRUE else TRUE if a == FALSE else n.Unary("not", a)


def folded(e: n.Expr) -> n.Expr:
    """A condition with true and false worked into it."""
    match e:
        case n.Binary() if e.op == "and":
            return both(folded(e.a), folded(e.b))
        case n.Binary() if e.op == "or":
            return either(folded(e.a), folded(e.b))
        case n.Binary() if e.op in ("eq", "ne") and e.a == e.b and not element_type(e.a.type).is_float:  # NaN is not itself
            return TRUE if e.op == "eq" else FALSE
        case _:
            return e


def chosen(cond: n.Expr, a: n.Expr, b: n.Expr) -> n.Expr:
    """One of two values of a dtype."""
    return a if cond == TRUE or a == b else b if cond == FALSE else n.Select(cond, a, b)


def wide(e: n.Expr) -> n.Expr:
    """An integer in 64 bits."""
    return e if e.type == I64 else build.cast(e, I64)


def compared(op: str, a: n.Expr, b: n.Expr) -> n.Expr:
    """A comparison of integers of any two dtypes."""
    if a.type != b.type:
        a, b = wide(a), wide(b)
    return build.compare(op, a, b)


def added(a: n.Expr, b: n.Expr) -> n.Expr:
    """The sum of two integers, in the dtype of the first where the second is narrower."""
    if a.type != b.type:
        if dtype_of(a.type).bits < dtype_of(b.type).bits:
            a = build.cast(a, dtype_of(b.type))
        else:
            b = build.cast(b, dtype_of(a.type))
    return build.add(a, b)


def scaled(a: n.Expr, by: int | n.Expr) -> n.Expr:
    """A multiple of an integer."""
    if isinstance(by, int):
        return a if by == 1 else build.mul(a, const(by, dtype_of(a.type)))
    return build.mul(*((a, by) if a.type == by.type else (wide(a), wide(by))))


def by_turns(first: n.Expr, total: int, count: n.Expr, ok: Callable[[Index], n.Expr]) -> Val:
    """A scalar that alternates between a value and `total` less that, after so many times."""
    other = build.sub(const(total, dtype_of(first.type)), first)
    now = build.add(first, build.mul(build.sub(other, first), build.mod(count, 2)))
    return Val((), lambda i: (now, ok(i)))


def within(i: n.Expr, d: int | n.Expr) -> n.Expr:
    """Whether an index is one of an extent."""
    return both(compared("ge", i, const(0, dtype_of(i.type))), compared("lt", i, extent(d)))


def element_type(t: Type) -> DType:
    """The dtype of the elements of a value; `OTHER` for what has none."""
    return OTHER if isinstance(t, (TupleType, StructType)) or not isinstance(t, (DType, TileType)) else dtype_of(t)


class Values:
    """Evaluates expressions. `read_only` are tensors that the kernel does not write."""

    def __init__(self, read_only: frozenset[str]) -> None:
        self.read_only = read_only
        self.count = 0
        self.lane: n.Var | None = None
        """The number of the thread; None where that is none from 0 on."""
        self.threads = 0
        """How many threads it counts; 0 where that is no number."""
        self.parted = False
        """Whether threads of one warp may not all be here."""

    # ----------------------------------------------------------------------------------------------------------------- fresh
    def unknown(self, env: Env, shape: Shape, dtype: DType, ok: Callable[[Index], n.Expr] = lambda i: TRUE) -> Val:
        """A value of which nothing is known but that one execution sees one."""
        self.count += 1
        name, scope = f"%data{self.count}", env.scope
        return Val(shape, lambda i: (n.Call(name, (*scope, *i), (), dtype), ok(i)))

    def variable(self, name: str, dtype: DType = I32) -> n.Var:
        """A variable of its own."""
        self.count += 1
        return n.Var(f"{name}.{self.count}", dtype)

    # ------------------------------------------------------------------------------------------------------------ expressions
    def value(self, e: n.Expr, env: Env) -> Val:
        """An expression at a place."""
        match e:
            case n.Const():
                return Val((), lambda i: (e, TRUE))
            case n.Var():
                found = env.names.get(e.name)
                return found if found is not None else Val(shape_of(e.type), lambda i: (e, TRUE))
            case n.Unary():
                return self._each(e, (e.x,), lambda x: build.unary(e.op, x), env)
            case n.Binary():
                return self._binary(e, env)
            case n.Cast():
                return self._each(e, (e.x,), lambda x: build.cast(x, e.dtype, e.rounding), env)
            case n.Select():
                return self._choice(e, env)
            case n.Load():
                return self._load(e, env)
            case n.Call():
                return self.call(e, env)
            case _:
                return self.unknown(env, shape_of(e.type) if isinstance(e.type, TileType) else (), element_type(e.type))

    def _each(self, e: n.Expr, below: Sequence[n.Expr], make: Callable[..., n.Expr], env: Env) -> Val:
        values = [self.value(x, env) for x in below]

        def at(i: Index) -> Pair:
            pairs = [v.stretched(i) for v in values]
            return make(*(p[0] for p in pairs)), both(*(p[1] for p in pairs))
        return Val(shape_of(e.type), at)

    def _binary(self, e: n.Binary, env: Env) -> Val:
        """An operation of two values. A butterfly makes lanes alike: `x op x of lane l ^ mask`, whatever the order, is of one value for both; after all of
        five masks for the whole warp."""
        made = self._each(e, (e.a, e.b), lambda a, b: build.binary(e.op, a, b), env)
        if e.op not in BUTTERFLY or made.shape or self.lane is None or self.parted:
            return made
        a, b = (self.value(x, env) for x in (e.a, e.b))
        for x, y in ((a, b), (b, a)):
            if y.shuffled is not None and y.shuffled[0] is x:
                masks = x.alike | {y.shuffled[1]}
                made = self._of_warp(self.lane, element_type(e.type), both(x.scalar[1], y.scalar[1]), env) if masks >= WARP else made
                made.alike = masks
        return made

    def _of_warp(self, lane: n.Var, dtype: DType, ok: n.Expr, env: Env) -> Val:
        """An unknown scalar that all lanes of a warp have."""
        self.count += 1
        made = n.Call(f"%data{self.count}", tuple(build.floordiv(v, const(32, dtype_of(v.of))) if v == lane else v for v in env.scope), (), dtype)
        return Val((), lambda i: (made, ok))

    def exchanges(self, e: n.Node) -> bool:
        """Whether all lanes of a warp exchange values in an expression, which none leaves before the others have come to it."""
        return self.lane is not None and not self.parted and any(
            isinstance(x, n.Call) and x.of is None and x.fn.startswith("shfl_") and not x.attrs for x in walk(e))

    def _choice(self, e: n.Select, env: Env) -> Val:
        cond, a, b = (self.value(x, env) for x in (e.cond, e.a, e.b))

        def at(i: Index) -> Pair:
            (c, c_ok), (x, x_ok), (y, y_ok) = cond.stretched(i), a.stretched(i), b.stretched(i)
            return chosen(c, x, y), both(c_ok, chosen(c, x_ok, y_ok))
        return Val(shape_of(e.type), at)

    def call(self, e: n.Call, env: Env) -> Val:
        """A call: what only moves elements is followed, what computes them is a function of them."""
        known = table().get(e.fn) if e.of is None else None
        attrs = dict(e.attrs)
        if known is None or isinstance(e.type, (TupleType, StructType)) or not isinstance(e.type, (DType, TileType)):
            return self.unknown(env, (), element_type(e.type))
        below = [a for a in e.args if isinstance(a, n.Expr)]
        shape = shape_of(e.type)
        if e.fn == "iota":
            return Val(shape, lambda i: (i[0], TRUE))
        if e.fn == "pick" and len(below) == 2 and len(shape_of(below[0].type)) == 1 and not shape:
            return self._picked(self.value(below[0], env), self.value(below[1], env))
        if known.level == "element" and known.effect == "" and len(below) == len(e.args):
            dtype = dtype_of(e.type)
            return self._each(e, below, lambda *x: n.Call(e.fn, x, e.attrs, dtype), env)
        if e.fn.startswith("shfl_") and len(below) == 2 and not self._sources_there(e.fn, attrs, int_value(self.value(below[1], env).scalar[0])):
            return self.unknown(env, shape, element_type(e.type), lambda i: FALSE)
        if e.fn == "shfl_xor" and not attrs and len(below) == 2 and not shape and (mask := int_value(self.value(below[1], env).scalar[0])) is not None:
            x = self.value(below[0], env)
            made = self._folded(e, [x], env)
            made.shuffled, made.alike = (x, mask), x.alike
            return made
        if e.fn in ("multiple_of", "max_contiguous", "max_constancy"):
            return self.value(below[0], env)
        if known.level == "tile" and below:
            x = self.value(below[0], env)
            moved = self._moved(e.fn, attrs, below, x, shape)
            if moved is not None:
                return moved
            return self._folded(e, [self.value(b, env) for b in below], env)
        return self._folded(e, [self.value(b, env) for b in below], env)

    def _sources_there(self, fn: str, attrs: Mapping[str, n.Attr], by: int | None) -> bool:
        """Whether each lane that an exchange reads from is a thread of the CTA that its mask names: lanes read within blocks of so many, and threads and mask
        are whole blocks. What others would give is undefined (CUDA C++ Programming Guide, warp shuffle functions)."""
        if self.lane is None:
            return True
        block = int(attrs.get("width", 32))
        mask = int(attrs.get("mask", 0xFFFFFFFF)) & 0xFFFFFFFF
        if fn == "shfl_xor" and by is not None and 0 <= by < 32:
            block = min(block, 1 << by.bit_length())
        if fn == "shfl_idx" and by is not None and 0 <= by < int(attrs.get("width", 32)) == 32:
            return bool(mask >> by & 1) and "group" not in attrs and (self.threads % 32 == 0 or by < self.threads % 32)
        if "group" in attrs and int(attrs["group"]) % block:
            return False
        blocks = [mask >> k & (1 << block) - 1 for k in range(0, 32, block)]
        return self.threads % block == 0 and all(b in (0, (1 << block) - 1) for b in blocks)

    @staticmethod
    def _picked(vector: Val, number: Val) -> Val:
        """One element of a vector."""
        def at(i: Index) -> Pair:
            k, known = number.at(())
            value, ok = vector.at((k,))
            return value, both(known, ok)
        return Val((), at)

    def _moved(self, fn: str, attrs: Mapping[str, n.Attr], below: Sequence[n.Expr], x: Val, shape: Shape) -> Val | None:
        match fn:
            case "expand":
                axis = int(attrs["axis"])
                axis = axis if axis >= 0 else axis + len(shape)
                return Val(shape, lambda i: x.at(i[:axis] + i[axis + 1:]))
            case "broadcast":
                return Val(shape, x.stretched)
            case "trans":
                order = [int_value(b) for b in below[1:]]
                return Val(shape, lambda i: x.at(tuple(i[order.index(k)] for k in range(len(order)))))
            case "reshape":
                sizes, own = [int_or(d) for d in shape], [int_or(d) for d in x.shape]
                if all(isinstance(d, int) for d in (*sizes, *own)):
                    return Val(shape, lambda i: x.at(_unraveled(_raveled(i, sizes), own)))
        return None

    def _folded(self, e: n.Call, values: Sequence[Val], env: Env) -> Val:
        """A value made of whole values: unknown, and defined where all of them are."""
        axes = [(v, tuple(self.variable("any") for _ in v.shape)) for v in values]

        def ok(i: Index) -> n.Expr:
            told = []
            for v, own in axes:
                inside = both(*(within(x, d) for x, d in zip(own, v.shape, strict=True)))
                told.append(either(opposite(inside), v.at(own)[1]) if v.at(own)[1] != TRUE else TRUE)
            return both(*told)
        made, of = self.unknown(env, shape_of(e.type), element_type(e.type), ok), element_type(e.type)
        axis, op = dict(e.attrs).get("axis"), dict(e.attrs).get("op")
        if e.fn != "reduce" or op not in ("argmax", "argmin") or not isinstance(axis, int) or not of.is_integer:
            return made
        extent = values[0].shape[axis]
        last = build.cast(build.sub(extent if isinstance(extent, n.Expr) else const(extent), 1), of)

        def place(i: Index) -> Pair:
            """A place along the axis lies on it."""
            x, there = made.at(i)
            return build.binary("min", build.binary("max", x, const(0, of)), last), there
        return Val(made.shape, place)

    # ----------------------------------------------------------------------------------------------------------------- memory
    def _load(self, e: n.Load, env: Env) -> Val:
        shape = shape_of(e.type)
        name = e.at.buffer.name
        place = self.place(e.at, env)
        mask = self.value(e.mask, env) if e.mask is not None else None
        other = self.value(e.other, env) if e.other is not None else None
        blank = env.memory.get(name)
        if blank is not None and not shape and not e.at.index and not blank.shape and mask is None and not e.clip:
            return blank
        data = self.unknown(env, shape, e.at.buffer.dtype)

        def inner(i: Index) -> Pair:
            index, ok = place(i)
            if blank is not None:
                value, defined = blank.at(index)
                return value, both(ok, defined)
            if name in self.read_only and name not in env.views:
                return n.Call(f"%in {name}", index, (), e.at.buffer.dtype), ok
            behind = root(name, env.views)
            known = TRUE if behind in self.read_only else n.Var(f"%defined {behind}", BOOL)
            return data.at(i)[0], both(ok, known)

        def at(i: Index) -> Pair:
            value, ok = inner(i)
            wanted = [mask.stretched(i)[0]] if mask is not None else []
            if e.clip:
                wanted += [within(x, d) for x, d in zip(place(i)[0], e.at.buffer.shape, strict=True)]
            if not wanted:
                return value, ok
            cond, mask_ok = both(*wanted), TRUE if mask is None else mask.stretched(i)[1]
            instead, instead_ok = (data.at(i)[0], FALSE) if other is None else other.stretched(i)
            return chosen(cond, value, instead), both(mask_ok, chosen(cond, ok, instead_ok))
        return Val(shape, at)

    def place(self, r: n.Region, env: Env) -> Callable[[Index], tuple[Index, n.Expr]]:
        """The indices into its buffer of each element of a region, and whether they are defined."""
        if not r.index:
            return lambda i: (i, TRUE)
        spans = [k for k, x in enumerate(r.index) if isinstance(x, n.Span)]
        values = [self.value(x.lo if isinstance(x, n.Span) else x, env) for x in r.index]
        steps = {k: self.value(extent(x.step), env).scalar[0] if not isinstance(x.step, int) else x.step
                 for k in spans if isinstance(x := r.index[k], n.Span)}

        def at(i: Index) -> tuple[Index, n.Expr]:
            out, ok = [], TRUE
            for k, v in enumerate(values):
                value, defined = v.scalar if spans else v.stretched(i)
                ok = both(ok, defined)
                out.append(added(value, scaled(i[spans.index(k)], steps[k])) if k in steps else value)
            return tuple(out), ok
        return at

    def stored(self, old: Val, r: n.Region, value: Val, mask: Val | None, env: Env) -> Val:
        """The contents of a private buffer after a store to a region of it."""
        if not r.index and mask is None:
            return value if not old.shape and not value.shape else Val(old.shape, value.stretched)
        if not r.index:
            assert mask is not None
            def whole(i: Index) -> Pair:
                cond, (new, new_ok), (was, was_ok) = mask.stretched(i)[0], value.stretched(i), old.at(i)
                return chosen(cond, new, was), chosen(cond, new_ok, was_ok)
            return Val(old.shape, whole)
        spans = [x for x in r.index if isinstance(x, n.Span)]
        if any(not isinstance(x, n.Span) and isinstance(x.type, TileType) for x in r.index) or any(x.step != 1 for x in spans):
            return self.unknown(env, old.shape, r.buffer.dtype, lambda i: old.at(i)[1])
        lows = [(self.value(x.lo, env).scalar[0], x.extent) if isinstance(x, n.Span) else (self.value(x, env).scalar[0], None) for x in r.index]

        def part(i: Index) -> Pair:
            hit, inner = TRUE, []
            for own, (lo, d) in zip(i, lows, strict=True):
                if d is None:
                    hit = both(hit, compared("eq", own, lo))
                else:
                    inner.append(added(own, build.unary("neg", lo)))
                    hit = both(hit, within(inner[-1], d))
            if mask is not None:
                hit = both(hit, mask.stretched(tuple(inner))[0])
            (new, new_ok), (was, was_ok) = value.stretched(tuple(inner)), old.at(i)
            return chosen(hit, new, was), chosen(hit, new_ok, was_ok)
        return Val(old.shape, part)


def _raveled(i: Index, shape: Sequence[int | n.Expr]) -> n.Expr:
    out: n.Expr = const(0)
    for x, d in zip(i, shape, strict=True):
        out = build.add(build.mul(out, const(int(d))), x)  # type: ignore[arg-type]  # numbers alone come here
    return out


def _unraveled(flat: n.Expr, shape: Sequence[int | n.Expr]) -> Index:
    out: list[n.Expr] = []
    for d in reversed(shape):
        size = int(d)  # type: ignore[arg-type]  # numbers alone come here
        out.append(const(0) if size == 1 else build.mod(flat, size))
        flat = flat if size == 1 else build.floordiv(flat, size)
    return tuple(reversed(out))


def as_before(old: Val | None, i: Index) -> n.Expr:
    """Whether an element is defined: where it was, of memory that keeps what is defined in it."""
    return FALSE if old is None else old.at(i)[1]


def outer(inner: Env, env: Env) -> Env:
    """What a block leaves behind: contents of memory that was there before."""
    return replace(env, memory={k: inner.memory.get(k, v) for k, v in env.memory.items()})


def merged(cond: n.Expr, a: Env, b: Env, env: Env) -> Env:
    """What two branches leave of the memory before them: `a`'s contents where the condition holds, else `b`'s."""
    memory: dict[str, Val] = {}
    for name, old in env.memory.items():
        x, y = a.memory.get(name, old), b.memory.get(name, old)

        def at(i: Index, x: Val = x, y: Val = y) -> Pair:
            (u, u_ok), (v, v_ok) = x.at(i), y.at(i)
            return chosen(cond, u, v), chosen(cond, u_ok, v_ok)
        memory[name] = x if x is y else Val(old.shape, at)
    return replace(env, memory=memory)


def defined_by(old: Val, after: Val, count: n.Var, trips: int) -> Callable[[Index], n.Expr]:
    """Where private memory is defined after so many trips, each of which defines what `after` says."""
    def ok(i: Index) -> n.Expr:
        one = after.at(i)[1]
        if TRUE in (one, old.at(i)[1]):
            return TRUE
        out = old.at(i)[1]
        for k in range(trips):
            out = either(out, substitute(one, {count.name: const(k, dtype_of(count.type))}))
        return out
    return ok
