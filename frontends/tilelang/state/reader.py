"""The reader of one function: its state, and the conversions between values and expressions of the IR."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.rebuild.condition_terms import condition_term
from kir.ir.types import BOOL, I32, DType, dtype_of, symbolic, variable
from kir.ir.visit import substitute, walk

from ..._python.project import Module, Project
from ..values import arithmetic
from ..values.arithmetic import convert
from ..values.names import DTYPES
from ..values.values import Choice, Items, Listed, Memory, NotUnderstood, Num, Open, Place, Table, Text, TypeOf, Unknown, Value, describe, is_known, is_number
from .handlers import Handlers
from .reading_state import ReadingState

OWN = "= "
"""How a question begins that answers itself once the other values are known."""
STATIC_CALLS = frozenset({"meta_is", "meta_true", "absent", "dtype_is", "dtype_kind", "dtype_bits", "next_power_of_2"})


class Undecided(Exception):
    """A statement means two things: one where a static condition holds, another where it does not."""

    def __init__(self, cond: n.Expr) -> None:
        super().__init__("undecided")
        self.cond = cond


class Another(Exception):
    """The function is one kernel where a condition of the binding holds, and another where it does not."""

    def __init__(self, cond: n.Expr) -> None:
        super().__init__("another kernel")
        self.cond = cond


class Refused(Exception):
    """The kernel is refused as a whole, with a diagnostic."""

    def __init__(self, error: KirError) -> None:
        super().__init__("refused")
        self.error = error


class Reader(ReadingState):
    """Reads one kernel, by functions that `handlers` names. `given` are values of metas that are known already."""

    def __init__(
        self, handlers: Handlers[Reader], project: Project, module: Module, given: Mapping[str, Value], bound: bool = False, sizes: Iterable[str] = (),
    ) -> None:
        super().__init__(project, module, given, bound, sizes)
        self.handlers = handlers

    # -------------------------------------------------------------------------------------------------------------- metas
    def ask(self, name: str, key: str, kind: str = "asked") -> Value:
        """What the binding answers to a question of the host, under a name that no other question has."""
        unique, k = name, 1
        while self.questions.setdefault(unique, key) != key:
            k += 1
            unique = f"{name}_{k}"
        if unique in self.given and kind != "asked":
            return self.given[unique]
        return Open(unique, None, kind, key)

    def meta(self, name: str, kind: str) -> n.Var:
        """The meta of that name, made with `kind` where it is not yet there."""
        found = self.metas.get(name)
        if found is None:
            wanted = self.kinds.get(name, "") or kind
            default = self.defaults.get(name)
            found = n.Meta(name, wanted, _default(default, wanted))
            self.metas[name] = found
            self.out.taken.add(name)
        return n.Var(name, n.meta_type(found))

    def number_of(self, v: Open) -> Value:
        """A parameter that is used as a number."""
        if v.name in self.given:
            return self.given[v.name]
        var = self.meta(v.name, v.kind if v.kind in ("int", "bool", "float", "any") else "int")
        if self.metas[v.name].kind in ("dtype", "str", "fn"):
            raise NotUnderstood(f"'{v.name}' is a {self.metas[v.name].kind} and is used as a number")
        return Num(var)

    def untold(self, v: Value) -> bool:
        """Whether nothing tells yet what kind a parameter of the factory is, nor that it may be left out."""
        return isinstance(v, Open) and v.of is None and v.kind in ("", "any") and v.name not in self.metas and v.name not in self.optional and (
            self.kinds.get(v.name, "any") == "any" and self.defaults.get(v.name, 0) is not None)

    def counts(self, v: Value) -> None:
        """A parameter of which nothing is told is used as a whole number."""
        if isinstance(v, Open) and self.untold(v):
            self.kinds[v.name] = "int"

    def given_items(self, v: Open) -> tuple[Value, ...]:
        """The elements of an open list that a binding gives one by one, under `name_0`, `name_1`, ..."""
        out: list[Value] = []
        while (key := f"{v.name}_{len(out)}") in self.given:
            out.append(self.given[key])
        return tuple(out)

    def is_static(self, e: n.Node) -> bool:
        """Whether an expression is over metas alone."""
        for x in walk(e):
            match x:
                case n.Var() if x.name not in self.metas:
                    return False
                case n.Load() | n.Address():
                    return False
                case _:
                    pass
        return True

    def of_sizes(self, e: n.Expr) -> bool:
        """Whether an expression is over parameters of the factory that the binding counts among the sizes."""
        return any(isinstance(x, n.Var) and x.name in self.bound_sizes for x in walk(e))

    def meaning(self, e: n.Expr) -> n.Expr:
        """An expression with named arithmetic written out."""
        made: n.Expr = substitute(e, self.meanings)
        return made

    # -------------------------------------------------------------------------------------------------- what values stand for
    def settled(self, v: Value) -> Value:
        """A choice that the conditions of this place decide, taken."""
        while isinstance(v, Choice):
            outcome = self.outcome(v.cond)
            if outcome is None:
                return v
            v = v.a if outcome else v.b
        return v

    def outcome(self, cond: n.Expr) -> bool | None:
        """What is known of a condition here."""
        if isinstance(cond, n.Const):
            return bool(cond.value)
        if cond in self.assumed:
            return True
        if build.invert(cond) in self.assumed or any(_excludes(x, cond) for x in self.assumed):
            return False
        if isinstance(cond, n.Binary) and cond.op in ("and", "or"):
            a, b = self.outcome(cond.a), self.outcome(cond.b)
            if cond.op == "and":
                return False if a is False or b is False else True if a and b else None
            return True if a or b else False if a is False and b is False else None
        if isinstance(cond, n.Unary) and cond.op == "not":
            x = self.outcome(cond.x)
            return None if x is None else not x
        return None

    @contextmanager
    def assuming(self, cond: n.Expr, holds: bool) -> Iterator[None]:
        """Inside, a static condition has this outcome."""
        mark = len(self.assumed)
        self.assume(cond if holds else build.invert(cond))
        try:
            yield
        finally:
            del self.assumed[mark:]

    def sure(self) -> None:
        """Raises NotUnderstood where the statements at hand may not be read at all: what fails in them tells nothing then."""
        if self.doubtful:
            raise NotUnderstood("what fails under a condition that the binding decides in part")

    def assume(self, cond: n.Expr) -> None:
        """From here on a condition holds, and what follows from it and the others."""
        new = _conjuncts(cond)
        while new:
            self.assumed.extend(new)
            new = [y for x in self.assumed if (y := self._follows(x)) is not None and y not in self.assumed]

    def _follows(self, x: n.Expr) -> n.Expr | None:
        """The part of a disjunction that holds since the other does not."""
        if isinstance(x, n.Unary) and x.op == "not" and isinstance(x.x, n.Binary) and x.x.op == "and":
            a, b = build.invert(x.x.a), build.invert(x.x.b)
        elif isinstance(x, n.Binary) and x.op == "or":
            a, b = x.a, x.b
        else:
            return None
        return b if build.invert(a) in self.assumed else a if build.invert(b) in self.assumed else None

    def decided(self, v: Value) -> Value:
        """A value that is no choice. Raises Undecided."""
        v = self.settled(v)
        if isinstance(v, Choice):
            raise Undecided(v.cond)
        if isinstance(v, Unknown):
            raise NotUnderstood(v.reason)
        return v

    def run(self, v: Value) -> n.Expr:
        """A value as an expression of the IR. Raises NotUnderstood."""
        v = self.settled(v)
        match v:
            case bool() | int() | float():
                return arithmetic.literal(v)
            case Num():
                return v.expr
            case Open():
                return self.run(self.number_of(v))
            case Choice():
                return self.selected(v)
            case Memory(var=True):
                return self.read(Place(v.buffer, (), True))
            case Memory() if not v.buffer.shape or all(build.is_const(d, 1) for d in v.buffer.shape):
                return self.read(Place(v.buffer, tuple(build.const(0) for _ in v.buffer.shape)))
            case Place():
                return self.read(v)
            case Unknown():
                raise NotUnderstood(v.reason)
            case TypeOf() | Text():
                raise NotUnderstood(f"{describe(v)} as a number")
            case _:
                raise NotUnderstood(f"{describe(v)} as a number")

    def selected(self, v: Choice) -> n.Expr:
        """A choice of two numbers."""
        a, b = self.settled(v.a), self.settled(v.b)
        for x in (a, b):
            if not (is_number(x) or isinstance(x, (Num, Open, Choice, Memory, Place))):
                raise Undecided(v.cond)
        left, right = arithmetic.paired(a, b, self.run)
        return build.select(v.cond, left, right)

    def read(self, p: Place) -> n.Expr:
        """The element that a place names; outside of global memory it is 0."""
        if any(isinstance(i, n.Span) for i in p.index) or (len(p.index) != len(p.buffer.shape) and not p.var):
            raise NotUnderstood(f"a region of '{p.buffer.name}' as a number")
        if p.buffer.space == "global":
            return build.load(build.region(p.buffer, *p.index), None, self.outside_value(p.buffer), True)
        return build.load(build.region(p.buffer, *p.index))

    def outside_value(self, buffer: n.Buffer) -> n.Expr:
        """What a load from outside of a tensor gives: 0, or as the kernel says."""
        found = self.outside.get(self.aliases.get(buffer.name, buffer.name))
        if found is None:
            return zero(buffer.dtype)
        return found if dtype_of(found.type) == buffer.dtype else convert(found, buffer.dtype)

    def integer(self, v: Value) -> n.Expr:
        """A value as an index: of an integer dtype."""
        self.counts(self.settled(v))
        e = self.run(v)
        dtype = dtype_of(e.type)
        if dtype.is_bool:
            return convert(e, I32)
        if dtype.is_float:
            if isinstance(e, n.Const) and float(e.value).is_integer():
                return build.const(int(e.value))
            raise NotUnderstood("a float as an index")
        return e

    def dim(self, v: Value) -> n.Expr:
        """A value as a dimension: i32."""
        return convert(self.integer(v), I32)

    def known_int(self, v: Value) -> int | None:
        """The value of a known integer; None for what is not known."""
        v = self.settled(v)
        if isinstance(v, bool):
            return int(v)
        if isinstance(v, int):
            return v
        if isinstance(v, Num):
            return build.int_value(v.expr)
        if isinstance(v, Open) and v.name in self.given:
            return self.known_int(self.given[v.name])
        return None

    def option(self, v: Value) -> n.Attr:
        """A number that is an attribute: known, or text over metas in functional notation. Raises NotUnderstood."""
        known = self.known_int(v)
        if known is not None:
            return known
        e = self.run(v)
        if not self.is_static(e):
            raise NotUnderstood("an option that is only known when the kernel runs")
        return said(e)

    def dtype(self, v: Value) -> DType:
        """A value as a dtype. Raises NotUnderstood."""
        v = self.settled(v)
        match v:
            case TypeOf():
                return v.dtype
            case str():
                found = DTYPES.get(v.removeprefix("torch.").removeprefix("T."))
                if found is None:
                    raise NotUnderstood(f"there is no dtype '{v}'")
                return found
            case Open() if v.name in self.given:
                return self.dtype(self.given[v.name])
            case Open():
                self.meta(v.name, "dtype")
                if self.metas[v.name].kind != "dtype":
                    raise NotUnderstood(f"'{v.name}' is a {self.metas[v.name].kind} and is used as a dtype")
                return variable(v.name)
            case Text():
                raise NotUnderstood(f"'{v.name}' is a text and is used as a dtype")
            case Choice():
                a, b = self.dtype(v.a), self.dtype(v.b)
                return a if a == b else symbolic(f"select({said(v.cond)},{a.name},{b.name})")
            case Unknown():
                raise NotUnderstood(v.reason)
            case _:
                raise NotUnderstood(f"{describe(v)} as a dtype")

    def truth(self, v: Value) -> bool | n.Expr:
        """Whether a value is true: known, or a condition."""
        v = self.settled(v)
        match v:
            case bool() | int() | float() | str() | None:
                return bool(v)
            case Items() | Table():
                return bool(v.items)
            case Open() if v.name in self.given:
                return self.truth(self.given[v.name])
            case Open():
                var = self.meta(v.name, "bool")
                kind = self.metas[v.name].kind
                cond = var if kind == "bool" else build.call("meta_true", var)
                return self._known(cond)
            case Text():
                return self._known(build.call("meta_true", n.Var(v.name, I32)))
            case Choice():
                with self.assuming(v.cond, True):
                    a = self.truth(v.a)
                with self.assuming(v.cond, False):
                    b = self.truth(v.b)
                if isinstance(a, bool):
                    if isinstance(b, bool):
                        return a if a == b else self._known(v.cond if a else build.invert(v.cond))
                    return self._known(build.logical_or(v.cond, b) if a else build.logical_and(build.invert(v.cond), b))
                if isinstance(b, bool):
                    return self._known(build.logical_or(build.invert(v.cond), a) if b else build.logical_and(v.cond, a))
                return self._known(build.logical_or(build.logical_and(v.cond, a), build.logical_and(build.invert(v.cond), b)))
            case Num() | Memory(var=True) | Place():
                return self._known(convert(self.run(v), BOOL))
            case Unknown():
                raise NotUnderstood(v.reason)
            case _:
                return True

    def _known(self, cond: n.Expr) -> bool | n.Expr:
        found = self.outcome(cond)
        return absorbed(cond) if found is None else found

    # ----------------------------------------------------------------------------------------------------------------- merges
    def merged(self, cond: n.Expr, a: Value, b: Value) -> Value:
        """What a name stands for after a static branch that binds it to `a` or `b`."""
        if same(a, b):
            return a
        if isinstance(a, bool) and isinstance(b, bool):
            return Num(cond if a else build.invert(cond))
        if isinstance(a, Items) and isinstance(b, Items) and len(a.items) == len(b.items):
            joined = tuple(self.merged(cond, x, y) for x, y in zip(a.items, b.items, strict=True))
            return Listed(joined) if isinstance(a, Listed) and isinstance(b, Listed) else Items(joined)
        if self._numeric(a) and self._numeric(b):
            try:
                left, right = arithmetic.paired(a, b, self.run)
                return Num(build.select(cond, left, right))
            except KirError:
                return Choice(cond, a, b)
        return Choice(cond, a, b)

    def _numeric(self, v: Value) -> bool:
        return is_number(v) or (isinstance(v, Num) and self.is_static(v.expr))


def zero(dtype: DType) -> n.Expr:
    """The zero of a dtype."""
    if dtype.is_symbolic:
        return build.cast(build.const(0), dtype)
    return build.const(0 if dtype.is_integer else False if dtype.is_bool else 0.0, dtype)


def same(a: Value, b: Value) -> bool:
    """Whether two values are one (True is not 1)."""
    if a is b:
        return True
    return type(a) is type(b) and a == b


def said(cond: n.Expr) -> str:
    """A static condition as text of a dtype term."""
    try:
        return condition_term(cond)
    except ValueError as bad:
        raise NotUnderstood(str(bad)) from bad


def _excludes(a: n.Expr, b: n.Expr) -> bool:
    """Whether one value is asked to be two: a text that is one is not the other. (A dtype has several names.)"""
    if not all(isinstance(x, n.Call) and x.fn == "meta_is" for x in (a, b)):
        return False
    assert isinstance(a, n.Call) and isinstance(b, n.Call)
    one, other = (str(dict(x.attrs)["value"]) for x in (a, b))
    return a.args == b.args and one != other and not (one in DTYPES and other in DTYPES)


def absorbed(cond: n.Expr) -> n.Expr:
    """A conjunction `a & ~(a & b)` as `a & ~b`."""
    if not (isinstance(cond, n.Binary) and cond.op == "and" and isinstance(cond.b, n.Unary) and cond.b.op == "not"):
        return cond
    held, inner = _parts(cond.a), _parts(cond.b.x)
    left = [x for x in inner if x not in held]
    if len(left) == len(inner) or not left:
        return cond
    rest = left[0]
    for x in left[1:]:
        rest = build.logical_and(rest, x)
    return build.logical_and(cond.a, build.invert(rest))


def _parts(cond: n.Expr) -> list[n.Expr]:
    return [*_parts(cond.a), *_parts(cond.b)] if isinstance(cond, n.Binary) and cond.op == "and" else [cond]


def _conjuncts(cond: n.Expr) -> list[n.Expr]:
    out = [cond]
    if isinstance(cond, n.Binary) and cond.op == "and":
        out += _conjuncts(cond.a) + _conjuncts(cond.b)
    if isinstance(cond, n.Unary) and cond.op == "not" and isinstance(cond.x, n.Binary) and cond.x.op == "or":
        out += _conjuncts(build.invert(cond.x.a)) + _conjuncts(build.invert(cond.x.b))
    return out


def _default(v: Value, kind: str) -> int | float | bool | str | None:
    if isinstance(v, TypeOf) and not v.dtype.is_symbolic:
        return v.dtype.name
    if kind == "dtype":
        return DTYPES[v].name if isinstance(v, str) and v in DTYPES else None
    if kind == "bool" and is_number(v):
        return bool(v)
    if kind == "int" and not isinstance(v, int):
        return None
    return v if is_known(v) and not (kind == "float" and isinstance(v, str)) else None  # type: ignore[return-value]  # a literal
