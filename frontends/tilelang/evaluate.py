"""Expressions of the host and of the kernel: one evaluator, over values that may stay open."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, DType, dtype_of
from kir.ir.visit import transform

from . import arithmetic
from .arithmetic import convert
from .names import DTYPES
from .reader import Reader, Undecided, zero
from .values import (
    Builtin,
    Choice,
    Class,
    Function,
    Instance,
    Items,
    Loop,
    Memory,
    Method,
    NotUnderstood,
    Num,
    Open,
    Place,
    Scope,
    Slice,
    Table,
    TensorType,
    Text,
    TypeOf,
    Unknown,
    Value,
    describe,
    is_known,
    is_number,
)

DEEPEST = 60


def evaluate(r: Reader, scope: Scope, e: cst.BaseExpression) -> Value:
    """The value of an expression. Raises NotUnderstood, and Undecided where a static condition must be told first."""
    r.depth += 1
    if r.depth > DEEPEST:
        r.depth -= 1
        raise NotUnderstood("an expression nested too deeply")
    try:
        return _evaluate(r, scope, e)
    finally:
        r.depth -= 1


def _evaluate(r: Reader, scope: Scope, e: cst.BaseExpression) -> Value:
    match e:
        case cst.Integer() | cst.Float() | cst.SimpleString() | cst.ConcatenatedString():
            value = e.evaluated_value
            return value.decode() if isinstance(value, bytes) else value
        case cst.FormattedString():
            return _formatted(r, scope, e)
        case cst.Name(value="True"):
            return True
        case cst.Name(value="False"):
            return False
        case cst.Name(value="None"):
            return None
        case cst.Name():
            from .lookup import lookup

            return r.settled(lookup(r, scope, e.value))
        case cst.Attribute():
            return attribute(r, evaluate(r, scope, e.value), e.attr.value)
        case cst.Tuple() | cst.List() | cst.Set():
            return Items(tuple(_elements(r, scope, e.elements)))
        case cst.Subscript():
            return subscript(r, evaluate(r, scope, e.value), _indices(r, scope, e.slice))
        case cst.UnaryOperation():
            return _unary(r, e.operator, evaluate(r, scope, e.expression))
        case cst.BinaryOperation():
            return binary(r, arithmetic.BINARY[type(e.operator)], evaluate(r, scope, e.left), evaluate(r, scope, e.right))
        case cst.BooleanOperation():
            return _boolean(r, scope, e)
        case cst.Comparison():
            return _comparison(r, scope, e)
        case cst.IfExp():
            return _conditional(r, scope, e)
        case cst.Call():
            from .calls import call

            return call(r, scope, e)
        case cst.Lambda():
            return Function(e, scope)
        case cst.ListComp() | cst.GeneratorExp():
            return Items(tuple(_comprehended(r, scope, e.elt, e.for_in)))
        case cst.Dict():
            return Table(tuple(_pairs(r, scope, e)))
        case _:
            raise NotUnderstood(f"an expression of the form {type(e).__name__}")


def _formatted(r: Reader, scope: Scope, e: cst.FormattedString) -> Value:
    out = []
    for part in e.parts:
        if isinstance(part, cst.FormattedStringText):
            out.append(part.value)
            continue
        assert isinstance(part, cst.FormattedStringExpression)
        value = evaluate(r, scope, part.expression)
        if not is_known(value) or part.format_spec is not None:
            return Unknown("a text that is put together from open values")
        out.append(str(value))
    return "".join(out)


def _elements(r: Reader, scope: Scope, elements: Sequence[cst.BaseElement]) -> list[Value]:
    out: list[Value] = []
    for x in elements:
        value = evaluate(r, scope, x.value)
        if isinstance(x, cst.StarredElement):
            value = r.decided(value)
            if not isinstance(value, Items):
                raise NotUnderstood("a list spread from what is no list")
            out += value.items
        else:
            out.append(value)
    return out


def _pairs(r: Reader, scope: Scope, e: cst.Dict) -> list[tuple[Value, Value]]:
    out: list[tuple[Value, Value]] = []
    for x in e.elements:
        value = evaluate(r, scope, x.value)
        if isinstance(x, cst.DictElement):
            out.append((evaluate(r, scope, x.key), value))
        elif isinstance(value, Table):
            out += value.items
        else:
            raise NotUnderstood("a dict spread from what is no dict")
    return out


def _comprehended(r: Reader, scope: Scope, element: cst.BaseExpression, loop: cst.CompFor) -> list[Value]:
    out: list[Value] = []
    for item in iterated(r, evaluate(r, scope, loop.iter)):
        inner = Scope(dict(bound(r, loop.target, item)), scope.module, scope)
        outcomes = [r.truth(evaluate(r, inner, test.test)) for test in loop.ifs]
        undecided = [x for x in outcomes if not isinstance(x, bool)]
        if undecided:
            raise Undecided(undecided[0])
        if all(outcomes):
            if loop.inner_for_in is None:
                out.append(evaluate(r, inner, element))
            else:
                out += _comprehended(r, inner, element, loop.inner_for_in)
    return out


def iterated(r: Reader, v: Value) -> tuple[Value, ...]:
    """The elements of a list of the host. Raises NotUnderstood where they are not known."""
    v = r.decided(v)
    match v:
        case Items():
            return v.items
        case str():
            return tuple(v)
        case Table():
            return tuple(k for k, _ in v.items)
        case Loop(kind="range", args=args):
            ends = [r.known_int(a) for a in args]
            if all(x is not None for x in ends) and 1 <= len(ends) <= 3:
                values = range(*[x for x in ends if x is not None])
                if len(values) <= 4096:
                    return tuple(values)
    raise NotUnderstood(f"a loop of the host over {describe(v)}")


def bound(r: Reader, target: cst.BaseExpression, value: Value) -> list[tuple[str, Value]]:
    """The names of a target with what an assignment gives them."""
    match target:
        case cst.Name():
            return [(target.value, value)]
        case cst.Tuple() | cst.List():
            value = r.decided(value)
            if isinstance(value, Open):
                value = Items(tuple(
                    Open(x.value.value if value.kind == "asked" and isinstance(x.value, cst.Name) else f"{value.name}_{k}")
                    for k, x in enumerate(target.elements)))
            if not isinstance(value, Items):
                raise NotUnderstood(f"{describe(value)} taken apart into {len(target.elements)} names")
            if len(value.items) != len(target.elements):
                raise NotUnderstood(f"{len(value.items)} values for {len(target.elements)} names")
            return [p for x, v in zip(target.elements, value.items, strict=True) for p in bound(r, x.value, v)]
        case _:
            raise NotUnderstood("an assignment to what is no name")


# ------------------------------------------------------------------------------------------------------------------ attributes
def attribute(r: Reader, owner: Value, name: str) -> Value:
    """`owner.name`."""
    from . import lookup

    owner = r.settled(owner)
    match owner:
        case Choice():
            return r.merged(owner.cond, attribute(r, owner.a, name), attribute(r, owner.b, name))
        case Memory() | Place() if name == "shape":
            return Items(tuple(_outward(d) for d in owner.buffer.shape))
        case Memory() | Place() if name == "dtype":
            return TypeOf(owner.buffer.dtype)
        case Memory() if name == "strides":
            raise NotUnderstood("the strides of a buffer as a value")
        case Num() if name == "dtype":
            return TypeOf(dtype_of(owner.expr.type))
        case TensorType() if name == "shape":
            return Items(owner.shape)
        case TypeOf() if name in ("bits", "bytes", "itemsize"):
            return _width(owner, name)
        case TypeOf() if name == "lanes":
            return 1
        case Open():
            return _member_of_open(r, owner, name)
        case _:
            found = lookup.attribute(r, owner, name)
            if found is not None:
                return found
            if isinstance(owner, (Items, Table, str, TypeOf, Num)):
                return Method(owner, name)
            raise NotUnderstood(f"'{name}' of {describe(owner)}")


def _outward(d: n.Expr) -> Value:
    value = build.int_value(d)
    return Num(d) if value is None else value


def _width(t: TypeOf, name: str) -> Value:
    if not t.dtype.is_symbolic:
        return t.dtype.bits if name == "bits" else t.dtype.bytes
    bits = build.call("dtype_bits", term=t.dtype.name)
    return Num(bits if name == "bits" else build.floordiv(bits, 8))


def _member_of_open(r: Reader, owner: Open, name: str) -> Value:
    from . import lookup

    path = f"{owner.name}_{name}" if owner.kind != "asked" else name
    if owner.of is not None:
        found = lookup.member(r, owner, owner.of, name)
        if found is not None:
            return found
        declared = lookup.field_of(r, owner.of, name)
        if declared is not None:
            c, statement = declared
            if statement.value is not None and path not in r.defaults:
                try:
                    default = evaluate(r, c.scope, statement.value)
                    if is_known(default) or isinstance(default, TypeOf):
                        r.defaults[path] = default
                except NotUnderstood:
                    pass
            return annotated(r, path, statement.annotation.annotation, c.scope)
    if path in r.given:
        return r.given[path]
    return Open(path, None, "asked" if owner.kind == "asked" else "")


def annotated(r: Reader, name: str, annotation: cst.BaseExpression | None, scope: Scope) -> Value:
    """A parameter or field that is open, with what its annotation says."""
    kind, of = "", None
    text = scope.module.code(annotation).replace(" ", "") if annotation is not None else ""
    plain = text.removeprefix("Optional[").removesuffix("]") if text.startswith("Optional[") else text.removesuffix("|None")
    if plain in ("int", "bool", "float", "str"):
        kind = plain
    elif plain.rsplit(".", 1)[-1] == "dtype":
        kind = "dtype"
    elif annotation is not None:
        try:
            found = evaluate(r, scope, annotation)
            of = found if isinstance(found, Class) else None
        except (NotUnderstood, Undecided):
            of = None
    if kind and text != plain and kind != "bool":
        kind = "any" if kind != "str" else "str"
    if kind in ("", "str") and r.kinds.get(name) == "dtype":
        kind = "dtype"
    if name in r.given:
        value = r.given[name]
        return TypeOf(DTYPES[value]) if kind == "dtype" and isinstance(value, str) and value in DTYPES else value
    if kind == "str":
        r.meta(name, "str")
        return Text(name)
    if kind:
        r.kinds.setdefault(name, kind)
    return Open(name, of, kind)


# ------------------------------------------------------------------------------------------------------------------ subscripts
def _indices(r: Reader, scope: Scope, slices: Sequence[cst.SubscriptElement]) -> list[Value]:
    out: list[Value] = []
    for x in slices:
        match x.slice:
            case cst.Index(value=value):
                found = evaluate(r, scope, value)
                out += found.items if isinstance(found, Items) and len(slices) == 1 and isinstance(value, cst.Tuple) else [found]
            case cst.Slice():
                ends = [None if y is None else evaluate(r, scope, y) for y in (x.slice.lower, x.slice.upper, x.slice.step)]
                out.append(Slice(*ends))
    return out


def subscript(r: Reader, owner: Value, index: list[Value]) -> Value:
    """`owner[index]`."""
    owner = r.settled(owner)
    match owner:
        case Choice():
            return r.merged(owner.cond, subscript(r, owner.a, index), subscript(r, owner.b, index))
        case Memory():
            return place(r, owner.buffer, (), index, owner.var)
        case Place() if len(owner.index) < len(owner.buffer.shape):
            return place(r, owner.buffer, owner.index, index)
        case Place() if any(isinstance(i, n.Span) for i in owner.index):
            return _within(r, owner, index)
        case Items() | str():
            return _item(r, owner, index)
        case Table() if len(index) == 1:
            return _of_table(r, owner, index[0])
        case Open() if len(index) == 1 and isinstance(r.settled(index[0]), int):
            path = f"{owner.name}_{index[0]}"
            return r.given.get(path, Open(path, None, "asked" if owner.kind == "asked" else ""))
        case Open() if owner.kind == "asked":
            return owner
        case Builtin(name="tilelang.language.Tensor" | "tilelang.language.StridedTensor"):
            return tensor_type(index)
        case Builtin():
            return Builtin(f"{owner.name}[]")
        case _:
            raise NotUnderstood(f"a subscript of {describe(owner)}")


def tensor_type(args: list[Value]) -> TensorType:
    """`T.Tensor(shape, dtype)` or `T.StridedTensor(shape, strides, dtype)`, with the dtype f32 when there is none."""
    def dims(v: Value) -> tuple[Value, ...]:
        return v.items if isinstance(v, Items) else (v,)

    if not args:
        raise NotUnderstood("a tensor without a shape")
    if len(args) == 1:
        return TensorType(dims(args[0]), "float32")
    if len(args) == 2:
        return TensorType(dims(args[0]), args[1])
    return TensorType(dims(args[0]), args[2], dims(args[1]))


def place(r: Reader, buffer: n.Buffer, before: tuple[n.Expr | n.Span, ...], index: list[Value], var: bool = False) -> Place:
    """Part of a buffer: integers and slices, in order; a missing step is 1."""
    made: list[n.Expr | n.Span] = list(before)
    for value in index:
        if isinstance(value, Slice):
            dim = buffer.shape[len(made)] if len(made) < len(buffer.shape) else None
            if dim is None:
                raise NotUnderstood(f"more indices than '{buffer.name}' has dimensions")
            made.append(_span(r, value, dim))
        else:
            made.append(r.integer(value))
    if len(made) > len(buffer.shape):
        raise NotUnderstood(f"{len(made)} indices into '{buffer.name}', which has {len(buffer.shape)} dimensions")
    return Place(buffer, tuple(made), var)


def _span(r: Reader, s: Slice, dim: n.Expr) -> n.Span:
    if s.step is not None and r.known_int(s.step) != 1:
        raise NotUnderstood("a slice with a step")
    lo = build.const(0) if s.lo is None else r.integer(s.lo)
    if s.hi is None:
        extent = build.sub(convert(dim, _index(lo)), lo)
    else:
        hi = r.integer(s.hi)
        known = build.int_value(hi)
        if known is not None and known < 0:
            hi = build.add(convert(dim, _index(hi)), hi)
        a, b = arithmetic.both(hi, lo)
        lo, extent = b, build.sub(a, b)
        meant = build.sub(r.meaning(a), r.meaning(b))
        if r.is_static(meant):
            extent = meant
    return build.span(lo, convert(extent, I32))


def _index(e: n.Expr) -> DType:
    d = dtype_of(e.type)
    return I32 if d.is_symbolic else d


def _within(r: Reader, p: Place, index: list[Value]) -> Place:
    """An element or part of a region: indices count from where the spans begin."""
    out: list[n.Expr | n.Span] = []
    rest = list(index)
    for i in p.index:
        if isinstance(i, n.Span) and rest:
            value = rest.pop(0)
            if isinstance(value, Slice):
                if value.lo is None and value.hi is None:
                    out.append(i)
                    continue
                extent = build.const(i.extent) if isinstance(i.extent, int) else i.extent
                inner = _span(r, value, extent)
                a, b = arithmetic.both(i.lo, inner.lo)
                out.append(build.span(build.add(a, b), inner.extent))
            else:
                a, b = arithmetic.both(i.lo, r.integer(value))
                out.append(build.add(a, b))
        else:
            out.append(i)
    if rest:
        raise NotUnderstood(f"more indices than the region of '{p.buffer.name}' has dimensions")
    return Place(p.buffer, tuple(out))


def _item(r: Reader, owner: Items | str, index: list[Value]) -> Value:
    if len(index) != 1:
        raise NotUnderstood("several indices into a list")
    items: Sequence[Value] = owner.items if isinstance(owner, Items) else owner
    at = r.settled(index[0])
    if isinstance(at, Slice):
        ends = [None if x is None else r.known_int(x) for x in (at.lo, at.hi, at.step)]
        if any(x is None and y is not None for x, y in zip(ends, (at.lo, at.hi, at.step), strict=True)):
            raise NotUnderstood("a slice of a list whose ends are not known")
        part = items[slice(*ends)]
        return part if isinstance(part, str) else Items(tuple(part))
    k = r.known_int(at)
    if k is None:
        if isinstance(at, (Num, Open)) and r.is_static(r.run(at)) and isinstance(owner, Items) and 0 < len(owner.items) <= 16:
            out = owner.items[-1]
            for i in reversed(range(len(owner.items) - 1)):
                out = r.merged(build.compare("eq", r.run(at), i), owner.items[i], out)
            return out
        raise NotUnderstood("an index into a list that is not known")
    if not -len(items) <= k < len(items):
        raise NotUnderstood(f"index {k} of a list of {len(items)}")
    return items[k]


def _of_table(r: Reader, table: Table, key: Value) -> Value:
    key = r.decided(key) if not isinstance(key, Choice) else key
    if isinstance(key, Open) and key.name in r.given:
        key = r.given[key.name]
    if is_known(key) or isinstance(key, (TypeOf, Builtin)):
        for k, v in table.items:
            if k == key and type(k) is type(key):
                return v
        if isinstance(key, TypeOf) and key.dtype.is_symbolic:
            out: Value = Unknown("a dict has no such dtype")
            for k, v in reversed(table.items):
                out = v if isinstance(out, Unknown) else r.merged(_equal_types(r, key, k), v, out)
            return out
        raise NotUnderstood(f"the dict has no {describe(key)}")
    if isinstance(key, (Text, Open)) and table.items and all(isinstance(k, str) for k, _ in table.items):
        r.meta(key.name, "str")
        made: Value = table.items[-1][1]
        for k, v in reversed(table.items[:-1]):
            made = r.merged(build.call("meta_is", n.Var(key.name, n.meta_type(r.metas[key.name])), value=str(k)), v, made)
        return made
    if isinstance(key, (Num, Open)) and table.items and all(isinstance(k, int) for k, _ in table.items):
        made = table.items[-1][1]
        for k, v in reversed(table.items[:-1]):
            assert isinstance(k, int)
            made = r.merged(build.compare("eq", r.run(key), k), v, made)
        return made
    raise NotUnderstood(f"a dict asked for {describe(key)}")


# ------------------------------------------------------------------------------------------------------------------- operators
def _unary(r: Reader, operator: cst.BaseUnaryOp, value: Value) -> Value:
    match operator:
        case cst.Not():
            found = r.truth(value)
            return (not found) if isinstance(found, bool) else Num(build.invert(found))
        case cst.Plus():
            return value
        case cst.Minus():
            value = r.settled(value)
            if is_number(value):
                return -value  # type: ignore[operator]  # a number
            return Num(build.negate(_numeric(r.run(value))))
        case _:
            value = r.settled(value)
            if isinstance(value, int):
                return ~value
            return Num(build.invert(r.run(value)))


def _numeric(e: n.Expr) -> n.Expr:
    return convert(e, I32) if dtype_of(e.type).is_bool else e


def binary(r: Reader, op: str, a: Value, b: Value) -> Value:
    """`a op b` on numbers, lists and texts."""
    a, b = r.settled(a), r.settled(b)
    if op == "add" and isinstance(a, Items) and isinstance(b, Items):
        return Items(a.items + b.items)
    if op == "mul" and isinstance(a, (Items, str)):
        count = r.known_int(b)
        if count is None and isinstance(a, Items) and len(a.items) == 1:
            return Loop("repeat", (a.items[0], b))
        if count is None:
            raise NotUnderstood("a list repeated as often as the binding says")
        return Items(a.items * count) if isinstance(a, Items) else a * count
    if op == "mul" and isinstance(b, Items):
        return binary(r, op, b, a)
    if isinstance(a, Instance) or isinstance(b, Instance):
        raise NotUnderstood("arithmetic on an object")
    if op in ("eq", "ne"):
        return _equality(r, op, a, b)
    if isinstance(a, Open) and a.kind == "asked" or isinstance(b, Open) and b.kind == "asked":
        for x in (a, b):
            if isinstance(x, Open) and x.kind == "asked" and is_number(a if x is b else b) and op in ("floordiv", "mod", "add", "sub", "mul"):
                r.kinds.setdefault(x.name, "int")
    return arithmetic.binary(op, a, b, r.run)


def _equality(r: Reader, op: str, a: Value, b: Value) -> Value:
    found = _equal(r, a, b)
    if isinstance(found, bool):
        return found == (op == "eq")
    return Num(found if op == "eq" else build.invert(found))


def _equal(r: Reader, a: Value, b: Value) -> bool | n.Expr:
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Open) and x.name in r.given:
            return _equal(r, r.given[x.name], y)
        if isinstance(x, (Open, Text)) and isinstance(y, str):
            if isinstance(x, Open) and (r.kinds.get(x.name) == "dtype" or (x.name in r.metas and r.metas[x.name].kind == "dtype")):
                return _equal(r, TypeOf(r.dtype(x)), TypeOf(r.dtype(y)))
            var = r.meta(x.name, "str")
            return _outcome(r, build.call("meta_is", var, value=y))
        if isinstance(x, Open) and isinstance(y, TypeOf):
            return _outcome(r, _equal_types(r, TypeOf(r.dtype(x)), y))
        if isinstance(x, TypeOf) and isinstance(y, (str, TypeOf)) and not (isinstance(y, str) and not _names_dtype(y)):
            return _outcome(r, _equal_types(r, x, TypeOf(r.dtype(y))))
        if isinstance(x, Choice) and not is_number(y) and not isinstance(y, (Num, Choice)):
            one, two = _equal(r, x.a, y), _equal(r, x.b, y)
            left = arithmetic.literal(one) if isinstance(one, bool) else one
            right = arithmetic.literal(two) if isinstance(two, bool) else two
            return _outcome(r, build.logical_or(build.logical_and(x.cond, left), build.logical_and(build.invert(x.cond), right)))
    if is_known(a) and is_known(b):
        return a == b
    if isinstance(a, Items) and isinstance(b, Items):
        if len(a.items) != len(b.items):
            return False
        out: bool | n.Expr = True
        for p, q in zip(a.items, b.items, strict=True):
            one = _equal(r, p, q)
            if one is False:
                return False
            if not isinstance(one, bool):
                out = one if out is True else build.logical_and(_expr(out), one)
        return out
    if a is None or b is None:
        return _is_none(r, b if a is None else a)
    made = arithmetic.binary("eq", a, b, r.run)
    if isinstance(made, bool):
        return made
    assert isinstance(made, Num)
    return _outcome(r, made.expr)


def _expr(x: bool | n.Expr) -> n.Expr:
    return arithmetic.literal(x) if isinstance(x, bool) else x


def _names_dtype(text: str) -> bool:
    return text in DTYPES


def _outcome(r: Reader, cond: n.Expr) -> bool | n.Expr:
    found = r.outcome(cond)
    return cond if found is None else found


def _equal_types(r: Reader, a: TypeOf, b: Value) -> n.Expr:
    other = r.dtype(b)
    if not a.dtype.is_symbolic and not other.is_symbolic:
        return build.const(a.dtype == other, BOOL)
    return build.call("dtype_is", a=a.dtype.name, b=other.name)


def _is_none(r: Reader, v: Value) -> bool | n.Expr:
    v = r.settled(v)
    match v:
        case None:
            return True
        case Open() if v.name in r.given:
            return r.given[v.name] is None
        case Open() | Text():
            r.kinds.setdefault(v.name, "any")
            return _outcome(r, build.call("meta_is", r.meta(v.name, "any"), value="None"))
        case Choice():
            one, two = _expr(_is_none(r, v.a)), _expr(_is_none(r, v.b))
            return _outcome(r, build.logical_or(build.logical_and(v.cond, one), build.logical_and(build.invert(v.cond), two)))
        case _:
            return False


def _boolean(r: Reader, scope: Scope, e: cst.BooleanOperation) -> Value:
    left = r.settled(evaluate(r, scope, e.left))
    found = r.truth(left)
    conjunction = isinstance(e.operator, cst.And)
    if isinstance(found, bool):
        return evaluate(r, scope, e.right) if found == conjunction else left
    other = r.settled(evaluate(r, scope, e.right))
    if _is_thing(r, left) or _is_thing(r, other):
        return Choice(found, other, left) if conjunction else Choice(found, left, other)
    right = r.truth(other)
    if isinstance(right, bool):
        if right == conjunction:
            return Num(found)
        return right
    right = guarded(r, right)
    return Num((build.logical_and if conjunction else build.logical_or)(found, right))


def _is_thing(r: Reader, v: Value) -> bool:
    """Whether a value is no condition: `a or b` then means one of them."""
    match v:
        case Open():
            kind = r.metas[v.name].kind if v.name in r.metas else r.kinds.get(v.name) or v.kind
            return kind not in ("bool", "") and kind != "any"
        case TypeOf() | Items() | Text() | Table() | Memory():
            return not (isinstance(v, Memory) and v.var)
        case Choice():
            return _is_thing(r, v.a) or _is_thing(r, v.b)
        case _:
            return isinstance(v, str) or v is None


def _comparison(r: Reader, scope: Scope, e: cst.Comparison) -> Value:
    left = evaluate(r, scope, e.left)
    out: bool | n.Expr = True
    for part in e.comparisons:
        right = evaluate(r, scope, part.comparator)
        one = r.truth(_compared(r, part.operator, left, right))
        if one is False:
            return False
        if not isinstance(one, bool):
            out = one if out is True else build.logical_and(_expr(out), one)
        left = right
    return out if isinstance(out, bool) else Num(out)


def _compared(r: Reader, operator: cst.BaseCompOp, a: Value, b: Value) -> Value:
    match operator:
        case cst.Is() | cst.IsNot():
            wanted = isinstance(operator, cst.Is)
            if b is None or a is None:
                found = _is_none(r, a if b is None else b)
            else:
                found = _equal(r, r.settled(a), r.settled(b))
            return (found == wanted) if isinstance(found, bool) else Num(found if wanted else build.invert(found))
        case cst.In() | cst.NotIn():
            wanted = isinstance(operator, cst.In)
            found = _contained(r, a, r.decided(b))
            return (found == wanted) if isinstance(found, bool) else Num(found if wanted else build.invert(found))
        case _:
            return binary(r, arithmetic.BINARY[type(operator)], a, b)


def _contained(r: Reader, a: Value, b: Value) -> bool | n.Expr:
    if isinstance(b, str) and isinstance(a, str):
        return a in b
    items = b.items if isinstance(b, Items) else tuple(k for k, _ in b.items) if isinstance(b, Table) else None
    if items is None:
        raise NotUnderstood(f"'in' {describe(b)}")
    out: bool | n.Expr = False
    for x in items:
        one = _equal(r, r.settled(a), r.settled(x))
        if one is True:
            return True
        if not isinstance(one, bool):
            out = one if out is False else build.logical_or(_expr(out), one)
    return out


def _conditional(r: Reader, scope: Scope, e: cst.IfExp) -> Value:
    found = r.truth(evaluate(r, scope, e.test))
    if isinstance(found, bool):
        return evaluate(r, scope, e.body if found else e.orelse)
    if r.is_static(found):
        with r.assuming(found, True):
            a = evaluate(r, scope, e.body)
        with r.assuming(found, False):
            b = evaluate(r, scope, e.orelse)
        return r.merged(found, a, b)
    return chosen(r, found, evaluate(r, scope, e.body), evaluate(r, scope, e.orelse))


def chosen(r: Reader, cond: n.Expr, a: Value, b: Value) -> Value:
    """`a` where a condition of the kernel holds, else `b`; what only one of them reads is read under its condition."""
    left, right = arithmetic.paired(r.settled(a), r.settled(b), r.run)
    return Num(build.select(cond, guarded(r, left), guarded(r, right)))


def guarded(r: Reader, e: n.Expr) -> n.Expr:
    """An expression that counts only where a condition holds: loads that may lie outside their buffer elsewhere read 0 there."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if not isinstance(new, n.Load) or new.clip or not new.at.index or plainly_inside(r, new.at):
            return new
        return build.load(new.at, new.mask, zero(new.at.buffer.dtype), True)

    made: n.Expr = transform(e, leave, lambda x: not isinstance(x, n.Buffer))
    return made


def plainly_inside(r: Reader, at: n.Region) -> bool:
    """Whether each index of a place is a literal inside its dimension, or a loop's variable that ends with it."""
    for i, d in zip(at.index, at.buffer.shape, strict=False):
        if isinstance(i, n.Const):
            extent = build.int_value(d)
            if extent is None and i.value != 0 or extent is not None and not 0 <= i.value < extent:
                return False
        elif not (isinstance(i, n.Var) and r.inside.get(i.name) == d):
            return False
    return True
