"""Attributes, and parts of buffers, lists, dicts and open values."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, DType, dtype_of

from ..state.evaluate import evaluate
from ..state.open_values import annotated, item_of_open
from ..state.reader import Reader, Undecided
from ..values import arithmetic
from ..values.arithmetic import convert
from ..values.names import DTYPES
from ..values.values import (
    Builtin,
    Choice,
    Instance,
    Items,
    Listed,
    Memory,
    Method,
    NotUnderstood,
    Num,
    Open,
    Place,
    Raised,
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
    tensor_type,
)
from . import classes, lookup, operators
from .iteration import listed


def attribute_reference(r: Reader, scope: Scope, e: cst.Attribute) -> Value:
    """`owner.name`."""
    return attribute(r, evaluate(r, scope, e.value), e.attr.value)


def subscription(r: Reader, scope: Scope, e: cst.Subscript) -> Value:
    """`owner[index]`."""
    if r.assumed and isinstance(e.value, cst.Name) and evaluate(r, scope, e.value) is None:
        raise Raised(f"a subscript of '{e.value.value}', which is None", (), scope.module.origin(e))
    return subscript(r, evaluate(r, scope, e.value), indices(r, scope, e.slice))


def attribute(r: Reader, owner: Value, name: str) -> Value:
    """`owner.name`."""
    owner = r.settled(owner)
    match owner:
        case Choice(a=Unknown() | None) | Choice(b=Unknown() | None):
            raise Undecided(owner.cond)
        case Choice():
            return r.merged(owner.cond, attribute(r, owner.a, name), attribute(r, owner.b, name))
        case Memory() | Place() if name == "shape":
            return Items(tuple(_outward(d) for d in owner.buffer.shape))
        case Memory() | Place() if name == "dtype":
            return TypeOf(owner.buffer.dtype)
        case Memory() if name == "data":
            return owner
        case Memory() if name == "strides":
            raise NotUnderstood("the strides of a buffer as a value")
        case Num() if name == "dtype":
            return TypeOf(dtype_of(owner.expr.type))
        case TensorType() if name == "shape":
            return Items(owner.shape)
        case str() | Text() if name == "value":  # of a member of an enumeration: a text has none
            return owner
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
            if isinstance(owner, (Items, Table, str, int, float, TypeOf, Num, Place, Memory)):
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
    if owner.kind == "asked":
        return r.ask(name, f"{owner.key}.{name}")
    path = f"{owner.name}_{name}"
    if owner.of is not None:
        found = classes.member(r, owner, owner.of, name)
        if found is not None:
            return found
        declared = classes.field_of(r, owner.of, name)
        if declared is not None:
            c, statement = declared
            if statement.value is not None and path not in r.defaults:
                try:
                    default = evaluate(r, c.scope, statement.value)
                    if is_known(default) or isinstance(default, TypeOf):
                        r.defaults[path] = default
                    elif isinstance(default, Items):
                        r.defaults.update({f"{path}_{k}": x for k, x in enumerate(default.items)})
                except NotUnderstood:
                    pass
            return annotated(r, path, statement.annotation.annotation, c.scope)
    if path in r.given:
        return r.given[path]
    return Open(path)


def indices(r: Reader, scope: Scope, slices: Sequence[cst.SubscriptElement]) -> list[Value]:
    """The values of a subscript, slices among them."""
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
        case Choice(a=Unknown() | None) | Choice(b=Unknown() | None):
            raise Undecided(owner.cond)
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
        case Table():
            return _of_table(r, owner, index[0] if len(index) == 1 else Items(tuple(index)))
        case Instance():
            return _item(r, Items(classes.unpacked(r, owner)), index)
        case Open() if len(index) == 1 and isinstance(r.settled(index[0]), int):
            return item_of_open(r, owner, int(str(r.settled(index[0]))))
        case Open() if owner.kind == "asked":
            return owner
        case Open() if (items := r.given_items(owner)):
            return _item(r, Items(items), index)
        case Open():
            raise NotUnderstood(f"a subscript of {describe(owner)}{listed(r, owner)}")
        case Builtin(name="tilelang.language.Tensor" | "tilelang.language.StridedTensor"):
            return tensor_type(index)
        case Builtin():
            return Builtin(f"{owner.name}[]")
        case None if r.assumed:
            raise Raised("a subscript of None", (), r.out.origin)
        case _:
            raise NotUnderstood(f"a subscript of {describe(owner)}")


def place(r: Reader, buffer: n.Buffer, before: tuple[n.Expr | n.Span, ...], index: list[Value], var: bool = False) -> Place:
    """Part of a buffer: integers and slices, in order; a missing step is 1."""
    made: list[n.Expr | n.Span] = list(before)
    for value in _spread(r, index):
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


def _spread(r: Reader, index: list[Value]) -> list[Value]:
    """The indices of a subscript of memory, one tuple alone as its elements."""
    only = r.settled(index[0]) if len(index) == 1 else None
    if isinstance(only, Choice) and any(isinstance(x, Items) for x in (only.a, only.b)):
        only = r.decided(only)
    return list(only.items) if isinstance(only, Items) else index


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
    rest = _spread(r, index)
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
        return part if isinstance(part, str) else (Listed if isinstance(owner, Listed) else Items)(tuple(part))
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
    if isinstance(key, Open) and operators.is_dtype(r, key) and table.items and all(isinstance(k, str) and k in DTYPES for k, _ in table.items):
        table = Table((TypeOf(DTYPES[k]), v) for k, v in table.items)
    if isinstance(key, (Open, Choice)) and table.items and all(isinstance(k, TypeOf) for k, _ in table.items):
        key = TypeOf(r.dtype(key))
    if isinstance(key, TypeOf) and not key.dtype.is_symbolic:  # a dtype's name, however it is written
        key = next((k for k, _ in table.items if isinstance(k, str) and DTYPES.get(k) == key.dtype), key)
    if is_known(key) or isinstance(key, (TypeOf, Builtin, Memory, Items)):
        found: list[Value] = [v for k, v in table.items if k == key and type(k) is type(key)]
        if found:
            return found[0]
        if isinstance(key, TypeOf) and key.dtype.is_symbolic:
            out: Value = Unknown("a dict has no such dtype")
            for k, v in reversed(table.items):
                out = v if isinstance(out, Unknown) else r.merged(operators.equal_types(r, key, k), v, out)
            return out
        raise NotUnderstood(f"the dict has no {describe(key)}")
    if isinstance(key, (Text, Open)) and table.items and all(isinstance(k, str) for k, _ in table.items):
        r.meta(key.name, "str")
        r.choices.setdefault(key.name, []).extend(k for k, _ in table.items)
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
