"""Syntax trees of types, places and expressions -> IR; names are resolved while reading, so that every reference carries its type."""
from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, TypeGuard

from lark import Token, Tree

from kir.base.diagnostic import KirError, Origin, did_you_mean, error
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import (
    BOOL,
    DTYPES,
    F32,
    I32,
    UNIT,
    DType,
    PointerType,
    Space,
    StructType,
    TileType,
    TupleType,
    Type,
    symbolic,
    value_types,
)

T = Tree[Token]
MOST_DIGITS = 4000
"""Digits of a number that is read: Python refuses longer ones."""
Item = T | Token


class Scope:
    """Names in view: a value's type, a buffer, or a function's results."""

    def __init__(self) -> None:
        self.values: dict[str, Type] = {}
        self.buffers: dict[str, n.Buffer] = {}
        self.functions: dict[str, tuple[Type, ...]] = {}

    def child(self) -> Scope:
        """The same names, to which more may come."""
        out = Scope()
        out.values, out.buffers, out.functions = dict(self.values), dict(self.buffers), self.functions
        return out

    def names(self) -> list[str]:
        """All names in view."""
        return [*self.values, *self.buffers]


def is_tree(x: Item | None, name: str) -> TypeGuard[T]:
    """Whether something is a tree of a rule."""
    return isinstance(x, Tree) and x.data == name


class Terms:
    """Reads terms of one text. `structs` are those declared so far."""

    def __init__(self, file: str) -> None:
        self.name_of_file = file
        self.structs: dict[str, StructType] = {}

    def origin(self, x: Item | None) -> Origin | None:
        if isinstance(x, Token):
            return Origin(self.name_of_file, x.line or 1, x.column or 1, x.end_line or 1, x.end_column or 1)
        if isinstance(x, Tree) and not x.meta.empty:
            return Origin(self.name_of_file, x.meta.line, x.meta.column, x.meta.end_line, x.meta.end_column)
        return None

    def fail(self, id: str, message: str, at: Item, **fields: Any) -> KirError:
        return error(id, message, origin=self.origin(at), **fields)

    def located(self, bad: KirError, at: Item) -> KirError:
        where = self.origin(at)
        return KirError(*(d if d.origin else replace(d, origin=where) for d in bad.diagnostics))

    def dtype(self, t: Item | None) -> DType:
        x = t.children[0] if isinstance(t, Tree) else t
        assert isinstance(x, Token)
        text = str(x)
        if text.startswith("$"):
            return symbolic(text[2:-1])
        if text not in DTYPES:
            raise self.fail("KIR-T002", f"there is no dtype '{text}'", x, attempt=did_you_mean(text, DTYPES))
        return DTYPES[text]

    def space(self, t: Item | None) -> Space:
        text: Any = str(t)
        return text  # type: ignore[no-any-return]  # the grammar admits only spaces

    def type(self, t: Item | None, scope: Scope) -> Type:
        assert isinstance(t, Tree)
        match t.data:
            case "value_type":
                dtype = self.dtype(t.children[0])
                return dtype if t.children[1] is None else TileType(dtype, tuple(_dim(d) for d in self.dims(t.children[1], scope)))
            case "pointer_type":
                return PointerType(self.dtype(t.children[0]), self.space(t.children[1]))
            case "tuple_type":
                return self.tuple_of(tuple(self.type(c, scope) for c in t.children), t)
            case _:
                name = name_of(t.children[0])
                if name not in self.structs:
                    raise self.fail("KIR-T002", f"there is no struct '{name}'", t, attempt=did_you_mean(name, self.structs))
                return self.structs[name]

    def tuple_of(self, types: tuple[Type, ...], at: Item) -> TupleType:
        try:
            return TupleType(value_types(types))
        except TypeError as bad:
            raise self.fail("KIR-V003", str(bad), at) from bad

    def buffer(self, name: Item | None, t: Item | None, space: Space, scope: Scope) -> n.Buffer:
        assert isinstance(t, Tree)
        dtype = self.dtype(t.children[0])
        _, dims, layout, strides, align = t.children
        return n.Buffer(name_of(name), dtype, self.dims(dims, scope), space, None if layout is None else self.layout(layout),
                        None if strides is None else self.dims(strides, scope), 0 if align is None else self.number(align))

    def dims(self, t: Item | None, scope: Scope) -> tuple[n.Expr, ...]:
        return () if t is None else tuple(self.expr(c, scope) for c in subtree(t).children if c is not None)

    def layout(self, t: Item | None) -> n.Layout:
        assert isinstance(t, Tree)
        args: list[int | str | n.Layout | tuple[int, ...]] = []
        for c in t.children[1:]:
            if is_tree(c, "layout"):
                args.append(self.layout(c))
            elif is_tree(c, "layout_ints"):
                args.append(tuple(self.number(x) for x in c.children if x is not None))
            elif is_tree(c, "layout_int"):
                args.append(self.number(c.children[0]))
            elif is_tree(c, "layout_text"):
                args.append(self.string(c.children[0]))
        return n.Layout(name_of(t.children[0]), tuple(args))

    def attrs(self, t: Item | None) -> n.Attrs:
        return n.attrs(**dict(self.attr(a) for a in t.children if isinstance(a, Tree))) if isinstance(t, Tree) else ()

    def attr(self, t: T) -> tuple[str, n.Attr]:
        key, value = t.children
        token = subtree(value).children[0]
        assert isinstance(token, Token)
        text = str(token)
        match token.type:
            case "BOOL":
                return name_of(key), text == "true"
            case "STRING":
                return name_of(key), self.string(token)
            case "INT" | "SIGNED" | "FLOAT":
                return name_of(key), self.real(token) if any(x in text for x in ".eEn") else self.number(token)
            case _:
                return name_of(key), text

    def number(self, x: Item | None) -> int:
        """A plain integer."""
        assert isinstance(x, Token)
        try:
            return int(str(x))
        except ValueError:
            raise self.fail("KIR-T001", f"'{x}' is no plain integer", x, needs="an integer without a dtype") from None

    def real(self, x: Token) -> float:
        """A plain number."""
        try:
            return float(str(x))
        except ValueError:
            raise self.fail("KIR-T001", f"'{x}' is no plain number", x, needs="a number without a dtype") from None

    def string(self, x: Item | None) -> str:
        """A text in quotes, with the escapes of JSON."""
        assert isinstance(x, Token)
        try:
            return str(json.loads(str(x)))
        except ValueError as bad:
            raise self.fail("KIR-T001", f"this text in quotes cannot be read: {bad}", x, needs="the escapes of JSON") from None

    def maybe(self, t: Item | None, scope: Scope) -> n.Expr | None:
        if t is None:
            return None
        return self.expr(t.children[0] if is_tree(t, "where") else t, scope)

    def expr(self, t: Item | None, scope: Scope) -> n.Expr:
        assert isinstance(t, Tree), t
        try:
            return self._expr(t, scope)
        except KirError as bad:
            raise self.located(bad, t) from bad

    def _expr(self, t: T, scope: Scope) -> n.Expr:
        kind, c = str(t.data), t.children
        match kind:
            case "literal":
                return _literal(str(c[0]))
            case "read":
                place = subtree(c[0])
                name = name_of(place.children[0])
                if name in scope.values:
                    if len([x for x in place.children[1:] if x is not None]):
                        raise self.fail("KIR-V003", f"'{name}' is a value; its elements are read by pick({name}, ..)", t)
                    return n.Var(name, scope.values[name])
                return build.load(self.place(place, scope))
            case "load":
                at, where, other, clip, cache = c
                mask, value = self.maybe(where, scope), self.maybe(other, scope)
                return build.load(self.place(at, scope), mask, value, clip is not None, cache_of(cache))
            case "address":
                return n.Address(self.place(c[0], scope))
            case "cast":
                return build.cast(self.expr(c[0], scope), self.dtype(c[1]), "rn" if c[2] is None else str(c[2]))
            case "called":
                return self.called(t, scope)
            case "neg" | "not":
                return build.unary(kind, self.expr(c[0], scope))
            case "compare":
                op = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}[str(c[1])]
                return build.binary(op, self.expr(c[0], scope), self.expr(c[2], scope))
            case _:
                return build.binary(kind, self.expr(c[0], scope), self.expr(c[1], scope))

    def called(self, t: T, scope: Scope) -> n.Expr:
        name = name_of(t.children[0])
        args: list[n.Expr | n.Region] = []
        options: dict[str, n.Attr] = {}
        for a in t.children[1:]:
            if is_tree(a, "reference"):
                args.append(self.place(a.children[0], scope))
            elif is_tree(a, "option"):
                key, value = self.attr(a)
                options[key] = value
            elif a is not None:
                args.append(self.expr(a, scope))
        values = [a for a in args if isinstance(a, n.Expr)]
        if (takes := FORMS.get(name)) is not None and name not in scope.functions:
            if len(values) != takes or len(args) != takes or options:
                raise self.fail("KIR-V003", f"'{name}' takes {takes} values, not {len(args) + len(options)}", t, attempt=f"kir explain {name}")
            return build.select(*values) if name == "select" else build.binary(name, *values)
        results = scope.functions.get(name)
        if results is not None:
            of = UNIT if not results else results[0] if len(results) == 1 else self.tuple_of(results, t)
            return build.call_with(name, tuple(args), n.attrs(**options), of)
        return build.call_with(name, tuple(args), n.attrs(**options))

    def place(self, t: Item | None, scope: Scope) -> n.Region:
        assert isinstance(t, Tree)
        name = name_of(t.children[0])
        if name not in scope.buffers:
            what = "a value, not a buffer" if name in scope.values else "not defined here"
            raise self.fail("KIR-T002", f"'{name}' is {what}", t, attempt=did_you_mean(name, scope.names()))
        index: list[n.Expr | n.Span] = []
        for i in t.children[1:]:
            if is_tree(i, "span"):
                lo, extent, step = i.children
                index.append(build.span(self.expr(lo, scope), self.expr(extent, scope), 1 if step is None else self.expr(step, scope)))
            elif i is not None:
                index.append(self.expr(i, scope))
        return build.region(scope.buffers[name], *index)


FORMS = {"min": 2, "max": 2, "ceildiv": 2, "tdiv": 2, "trem": 2, "select": 3}
"""Expressions that are written as calls, and how many values they take."""


def subtree(t: Item | None) -> T:
    """A part that is a tree."""
    assert isinstance(t, Tree), t
    return t


def name_of(t: Item | None) -> str:
    """The text of a name."""
    assert isinstance(t, Token), t
    return str(t).removeprefix("%")


def names_of(t: Item | None) -> tuple[str, ...]:
    """The texts of names."""
    assert isinstance(t, Tree)
    return tuple(str(c).removeprefix("%") for c in t.children if c is not None)


def cache_of(t: Item | None) -> str:
    """A cache policy ("" for none)."""
    return "" if t is None else name_of(subtree(t).children[0])


def _dim(e: n.Expr) -> int | n.Expr:
    value = build.int_value(e)
    return e if value is None else value


def _literal(text: str) -> n.Const:
    if len(text) < 10 and text.isdigit():
        return n.Const(int(text), I32)
    if text in ("true", "false"):
        return build.const(text == "true", BOOL)
    body, _, suffix = text.partition(":")
    is_float = not body.isdigit()
    if suffix and suffix not in DTYPES:
        raise error("KIR-T002", f"there is no dtype '{suffix}'", attempt=did_you_mean(suffix, DTYPES))
    if len(body) > MOST_DIGITS:
        raise error("KIR-V003", f"a number of {len(body):,} digits is beyond what any dtype holds")
    dtype = DTYPES[suffix] if suffix else F32 if is_float else I32
    if dtype.kind == "token" or (is_float and not dtype.is_float):
        raise error("KIR-V003", f"'{body}' is no literal of {dtype}")
    if dtype.is_integer and not dtype.is_bool and int(body) > max(dtype.range[1], -dtype.range[0]):  # that of the least number is its own
        raise error("KIR-V003", f"{body} is beyond what {dtype} holds", attempt=f"{body}:i64" if dtype == I32 else "")
    return build.const(float(body) if is_float or dtype.is_float else int(body), dtype)
