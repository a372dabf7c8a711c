"""Text -> IR: the exact inverse of `kir.ir.printer`, after the grammar `grammars/kir.lark`.

Names are resolved while reading, so that every reference carries its type. Integer expressions come out in normal form.
"""
from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeGuard

from lark import Token, Tree

from kir.diagnostic import KirError, Origin, did_you_mean, error
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import SCHEMA
from kir.ir.syntax import syntax_tree
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
Item = T | Token


def parse_program(text: str, file: str = "<text>") -> n.Program:
    """The program of an IR text. Raises KirError: KIR-T001 (syntax), KIR-T002 (unknown name), KIR-T003 (name defined twice),
    KIR-T004 (schema), KIR-V002 and KIR-V003 (types)."""
    tree = syntax_tree(text, file)
    try:
        return _Reader(file).file(tree)
    except RecursionError:
        raise error("KIR-T001", "this text nests expressions too deeply", origin=Origin(file, 1, 1, 1, 1),
                    needs="lets for parts of them") from None


def parse_expression(text: str, values: Mapping[str, Type], buffers: Mapping[str, n.Buffer]) -> n.Expr:
    """The expression of a text over named values and buffers. Raises KirError as `parse_program`."""
    tree = syntax_tree(f"kir {SCHEMA}\nprogram p\n  fact {text}\n", "<expression>")
    scope = _Scope()
    scope.values.update(values)
    scope.buffers.update(buffers)
    fact = next(iter(tree.find_data("fact")))
    return _Reader("<expression>").expr(fact.children[0], scope)


class _Scope:
    """Names in view: a value's type, a buffer, or a function's results."""

    def __init__(self) -> None:
        self.values: dict[str, Type] = {}
        self.buffers: dict[str, n.Buffer] = {}
        self.functions: dict[str, tuple[Type, ...]] = {}

    def child(self) -> _Scope:
        out = _Scope()
        out.values, out.buffers, out.functions = dict(self.values), dict(self.buffers), self.functions
        return out

    def names(self) -> list[str]:
        return [*self.values, *self.buffers]


def _is_tree(x: Item | None, name: str) -> TypeGuard[T]:
    return isinstance(x, Tree) and x.data == name


class _Reader:
    def __init__(self, file: str) -> None:
        self.name_of_file = file
        self.structs: dict[str, StructType] = {}

    # ------------------------------------------------------------------------------------------------------------ places
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

    # ---------------------------------------------------------------------------------------------------------- programs
    def file(self, tree: T) -> n.Program:
        version, program = tree.children[:2]
        if str(version) != str(SCHEMA):
            raise self.fail("KIR-T004", f"this text has schema {version}; this KIR reads schema {SCHEMA}", version)
        assert isinstance(program, Tree)
        return self.program(program)

    def program(self, tree: T) -> n.Program:
        scope = _Scope()
        parts: dict[str, list[T]] = {}
        for c in tree.children[1:]:
            if isinstance(c, Tree):
                parts.setdefault(str(c.data), []).append(c)
        metas = tuple(self.meta(t, scope) for t in parts.get("meta", ()))
        for t in parts.get("struct", ()):
            made = StructType(_name(t.children[0]), tuple(self.field(f, scope) for f in t.children[1:] if isinstance(f, Tree)))
            self.structs[made.name] = made
        for t in parts.get("param", ()):
            if str(t.children[0]) in ("size", "scalar"):
                self.define(scope, t.children[2], self.dtype(_sub(t.children[3]).children[0]))
        params = tuple(self.param(t, scope) for t in parts.get("param", ()))
        facts = tuple(self.expr(t.children[0], scope) for t in parts.get("fact", ()))
        workspaces = []
        for t in parts.get("workspace", ()):
            buffer = self.buffer(t.children[0], t.children[1], "global", scope)
            workspaces.append(n.Workspace(buffer, self.maybe(t.children[2], scope)))
            self.define(scope, t.children[0], buffer)
        maps = tuple(self.tensor_map(t) for t in parts.get("tensor_map", ()))
        functions = []
        for t in parts.get("function", ()):
            function = self.function(t, scope)
            scope.functions[function.name] = function.results
            functions.append(function)
        kernels = tuple(self.kernel(t, scope) for t in parts.get("kernel", ()))
        plan = tuple(self.step(s, scope) for t in parts.get("plan", ()) for s in t.children)
        return n.Program(_name(tree.children[0]), metas, params, facts, tuple(self.structs.values()), tuple(workspaces), maps,
                         tuple(functions), kernels, plan)

    def define(self, scope: _Scope, name: Item | None, what: Type | n.Buffer) -> str:
        assert isinstance(name, Token)
        text = _name(name)
        if text in scope.values or text in scope.buffers:
            raise self.fail("KIR-T003", f"'{text}' is defined twice in this scope", name, needs="names that are unique within a kernel")
        if isinstance(what, n.Buffer):
            scope.buffers[text] = what
        else:
            scope.values[text] = what
        return text

    def meta(self, t: T, scope: _Scope) -> n.Meta:
        name, kind, default = t.children
        self.define(scope, name, n.meta_type(n.Meta(_name(name), str(kind))))
        value: int | float | bool | str | None = None
        if isinstance(default, Token):
            value = self.string(default)
        elif default is not None:
            const = self.expr(default, scope)
            if not isinstance(const, n.Const):
                raise self.fail("KIR-T001", "the default of a meta is a literal", default)
            value = const.value
        return n.Meta(_name(name), str(kind), value)

    def field(self, t: T, scope: _Scope) -> tuple[str, DType | TileType]:
        made = self.type(t.children[1], scope)
        if not isinstance(made, (DType, TileType)):
            raise self.fail("KIR-V003", "a field is a scalar or a vector", t)
        return _name(t.children[0]), made

    def param(self, t: T, scope: _Scope) -> n.Param:
        role, space, name, of, value, attributes = t.children
        text: Any = str(role)
        if text in ("size", "scalar"):
            kind: DType | n.Buffer = self.dtype(_sub(of).children[0])
        else:
            kind = self.buffer(name, of, self.space(space) if space is not None else "global", scope)
            self.define(scope, name, kind)
        return n.Param(_name(name), text, kind, self.maybe(value, scope), self.attrs(attributes))

    def tensor_map(self, t: T) -> n.TensorMap:
        name, of, *rest = t.children
        box = tuple(self.number(x) for x in rest if isinstance(x, Token))
        return n.TensorMap(_name(name), _name(of), box, self.attrs(rest[-1] if isinstance(rest[-1], Tree) else None))

    def function(self, t: T, outer: _Scope) -> n.Function:
        scope = outer.child()
        params: list[n.Var | n.Buffer] = []
        results: list[Type] = []
        for c in t.children[1:-1]:
            if _is_tree(c, "value_param"):
                kind = self.type(c.children[1], scope)
                params.append(n.Var(self.define(scope, c.children[0], kind), kind))
            elif _is_tree(c, "buffer_param"):
                made = self.buffer(c.children[1], c.children[2], self.space(c.children[0]), scope)
                self.define(scope, c.children[1], made)
                params.append(made)
            elif isinstance(c, Tree):
                results.append(self.type(c, scope))
        return n.Function(_name(t.children[0]), tuple(params), tuple(results), self.block(t.children[-1], scope), self.origin(t))

    def kernel(self, t: T, outer: _Scope) -> n.Kernel:
        label, name, *rest = t.children
        scope = outer.child()
        axes = [c for c in rest if _is_tree(c, "axis")]
        grid = tuple(n.Axis(_name(a.children[0]), self.expr(a.children[1], outer)) for a in axes)
        for a in axes:
            self.define(scope, a.children[0], I32)
        threads, cluster, attributes, block = [c for c in rest if not _is_tree(c, "axis")][-4:]
        sizes = tuple(self.number(c) for c in cluster.children if c is not None) if isinstance(cluster, Tree) else ()
        return n.Kernel(_name(name), grid, self.expr(threads, outer), self.block(block, scope), sizes, self.attrs(attributes),
                        self.label(label), self.origin(name))

    def step(self, t: Item | None, scope: _Scope) -> n.Launch | n.Dispatch:
        assert isinstance(t, Tree)
        if t.data == "launch":
            return n.Launch(_name(t.children[0]), self.attrs(t.children[1]))
        arms = tuple((self.expr(a.children[0], scope), tuple(self.step(s, scope) for s in a.children[1:]))
                     for a in t.children if _is_tree(a, "arm"))
        last = t.children[-1]
        return n.Dispatch(arms, tuple(self.step(s, scope) for s in last.children) if _is_tree(last, "otherwise") else ())

    # -------------------------------------------------------------------------------------------------------- statements
    def block(self, t: Item | None, outer: _Scope) -> n.Block:
        assert isinstance(t, Tree)
        scope = outer.child()
        return tuple(self.stmt(s, scope) for s in t.children if isinstance(s, Tree))

    def stmt(self, t: T, scope: _Scope) -> n.Stmt:
        label, inner = t.children
        assert isinstance(inner, Tree)
        try:
            made: n.Stmt = getattr(self, f"_{inner.data}")(inner, scope)
        except KirError as bad:
            raise self.located(bad, inner) from bad
        return replace(made, label=self.label(label), origin=self.origin(inner))  # type: ignore[type-var]  # every Stmt is a dataclass

    def label(self, t: Item | None) -> str | None:
        return _name(t.children[0]) if isinstance(t, Tree) else None

    def _let(self, t: T, scope: _Scope) -> n.Stmt:
        *names, value = t.children
        made = self.expr(value, scope)
        kinds = made.type.elements if isinstance(made.type, TupleType) else (made.type,)
        if len(kinds) != len(names):
            raise self.fail("KIR-V003", f"{len(names)} names for {len(kinds)} results", t)
        return n.Let(tuple(self.define(scope, x, k) for x, k in zip(names, kinds, strict=True)), made)

    def _alloc(self, t: T, scope: _Scope) -> n.Stmt:
        space, name, kind, init = t.children
        buffer = self.buffer(name, kind, self.space(space), scope)
        made = n.Alloc(buffer, self.maybe(init, scope))
        self.define(scope, name, buffer)
        return made

    def _view(self, t: T, scope: _Scope) -> n.Stmt:
        space, name, *axes, kind, place, fill = t.children
        named = tuple(a for a in axes if a is not None)
        buffer = self.buffer(name, kind, self.space(space), scope)
        inner = scope.child()
        for a in named:
            self.define(inner, a, I32)
        made = n.View(buffer, self.place(place, inner), tuple(_name(a) for a in named), self.maybe(fill, scope))
        self.define(scope, name, buffer)
        return made

    def _store(self, t: T, scope: _Scope) -> n.Stmt:
        place, value, where, clip, cache = t.children
        return n.Store(self.place(place, scope), self.expr(value, scope), self.maybe(where, scope), clip is not None, _cache(cache))

    def _copy(self, t: T, scope: _Scope) -> n.Stmt:
        src, dst, via, where, clip, signal, grouped, attributes = t.children
        source = self.expr(src, scope)
        if not isinstance(source, n.Load):
            raise self.fail("KIR-V003", "the source of a copy is a place", t)
        text = "plain" if via is None else _name(_sub(via).children[0]) + (
            f"({_sub(via).children[1]})" if _sub(via).children[1] is not None else "")
        return n.Copy(source, self.place(dst, scope), text, self.maybe(where, scope), clip is not None,
                      None if signal is None else self.place(signal, scope), grouped is not None, self.attrs(attributes))

    def _mma(self, t: T, scope: _Scope) -> n.Stmt:
        acc, a, b, via, precision, pending, attributes = t.children
        return n.Mma(self.place(acc, scope), self.expr(a, scope), self.expr(b, scope), "auto" if via is None else _name(via),
                     "ieee" if precision is None else _name(precision), pending is not None, self.attrs(attributes))

    def _eval(self, t: T, scope: _Scope) -> n.Stmt:
        made = self.expr(t.children[0], scope)
        if not isinstance(made, n.Call):
            raise self.fail("KIR-V003", "a statement is a call that has an effect", t)
        return n.Eval(made)

    def _jump(self, t: T, scope: _Scope) -> n.Stmt:
        kind: Any = str(t.children[0])
        return n.Jump(kind, tuple(self.expr(v, scope) for v in t.children[1:] if v is not None))

    def _opaque(self, t: T, scope: _Scope) -> n.Stmt:
        surface, reads, writes, reason, text = t.children
        return n.Opaque(str(surface), self.string(text), self.string(reason), _names(reads), _names(writes))

    def _hole(self, t: T, scope: _Scope) -> n.Stmt:
        name, contract, reads, writes, attributes = t.children
        def places(x: Item | None) -> tuple[n.Region, ...]:
            return tuple(self.place(c, scope) for c in x.children) if isinstance(x, Tree) else ()
        return n.Hole(_name(name), self.string(contract), places(reads), places(writes), self.attrs(attributes))

    def _for(self, t: T, scope: _Scope) -> n.Stmt:
        name, dtype, lo, hi, step, kind, attributes, body = t.children
        of = I32 if dtype is None else self.dtype(dtype)
        inner = scope.child()
        var = n.Var(self.define(inner, name, of), of)
        return n.For(var, self.expr(lo, scope), self.expr(hi, scope), build.const(1, of) if step is None else self.expr(step, scope),
                     self.block(body, inner), "serial" if kind is None else str(_sub(kind).children[0]), self.attrs(attributes))

    def _if(self, t: T, scope: _Scope) -> n.Stmt:
        static, cond, then, orelse = t.children
        otherwise = () if orelse is None else self.block(orelse, scope)
        return n.If(self.expr(cond, scope), self.block(then, scope), otherwise, static is not None)

    def _while(self, t: T, scope: _Scope) -> n.Stmt:
        return n.While(self.expr(t.children[0], scope), self.block(t.children[1], scope))

    def _roles(self, t: T, scope: _Scope) -> n.Stmt:
        out = []
        for r in t.children:
            name, lo, hi, registers, body = _sub(r).children
            limit = 0 if registers is None else self.number(registers)
            out.append(n.Role(_name(name), self.number(lo), self.number(hi), self.block(body, scope), limit))
        return n.Roles(tuple(out))

    # ------------------------------------------------------------------------------------------------- types and buffers
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

    def type(self, t: Item | None, scope: _Scope) -> Type:
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
                name = _name(t.children[0])
                if name not in self.structs:
                    raise self.fail("KIR-T002", f"there is no struct '{name}'", t, attempt=did_you_mean(name, self.structs))
                return self.structs[name]

    def tuple_of(self, types: tuple[Type, ...], at: Item) -> TupleType:
        try:
            return TupleType(value_types(types))
        except TypeError as bad:
            raise self.fail("KIR-V003", str(bad), at) from bad

    def buffer(self, name: Item | None, t: Item | None, space: Space, scope: _Scope) -> n.Buffer:
        assert isinstance(t, Tree)
        dtype = self.dtype(t.children[0])
        _, dims, layout, strides, align = t.children
        return n.Buffer(_name(name), dtype, self.dims(dims, scope), space, None if layout is None else self.layout(layout),
                        None if strides is None else self.dims(strides, scope), 0 if align is None else self.number(align))

    def dims(self, t: Item | None, scope: _Scope) -> tuple[n.Expr, ...]:
        return () if t is None else tuple(self.expr(c, scope) for c in _sub(t).children if c is not None)

    def layout(self, t: Item | None) -> n.Layout:
        assert isinstance(t, Tree)
        args: list[int | str | n.Layout | tuple[int, ...]] = []
        for c in t.children[1:]:
            if _is_tree(c, "layout"):
                args.append(self.layout(c))
            elif _is_tree(c, "layout_ints"):
                args.append(tuple(self.number(x) for x in c.children if x is not None))
            elif _is_tree(c, "layout_int"):
                args.append(self.number(c.children[0]))
            elif _is_tree(c, "layout_text"):
                args.append(self.string(c.children[0]))
        return n.Layout(_name(t.children[0]), tuple(args))

    def attrs(self, t: Item | None) -> n.Attrs:
        return n.attrs(**dict(self.attr(a) for a in t.children if isinstance(a, Tree))) if isinstance(t, Tree) else ()

    def attr(self, t: T) -> tuple[str, n.Attr]:
        key, value = t.children
        token = _sub(value).children[0]
        assert isinstance(token, Token)
        text = str(token)
        match token.type:
            case "BOOL":
                return _name(key), text == "true"
            case "STRING":
                return _name(key), self.string(token)
            case "INT" | "SIGNED" | "FLOAT":
                return _name(key), self.real(token) if any(x in text for x in ".eEn") else self.number(token)
            case _:
                return _name(key), text

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

    # ------------------------------------------------------------------------------------------------------- expressions
    def maybe(self, t: Item | None, scope: _Scope) -> n.Expr | None:
        if t is None:
            return None
        return self.expr(t.children[0] if _is_tree(t, "where") else t, scope)

    def expr(self, t: Item | None, scope: _Scope) -> n.Expr:
        assert isinstance(t, Tree), t
        try:
            return self._expr(t, scope)
        except KirError as bad:
            raise self.located(bad, t) from bad

    def _expr(self, t: T, scope: _Scope) -> n.Expr:
        kind, c = str(t.data), t.children
        match kind:
            case "literal":
                return _literal(str(c[0]))
            case "read":
                place = _sub(c[0])
                name = _name(place.children[0])
                if name in scope.values:
                    if len([x for x in place.children[1:] if x is not None]):
                        raise self.fail("KIR-V003", f"'{name}' is a value; its elements are read by pick({name}, ..)", t)
                    return n.Var(name, scope.values[name])
                return build.load(self.place(place, scope))
            case "load":
                at, where, other, clip, cache = c
                mask, value = self.maybe(where, scope), self.maybe(other, scope)
                return build.load(self.place(at, scope), mask, value, clip is not None, _cache(cache))
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

    def called(self, t: T, scope: _Scope) -> n.Expr:
        name = _name(t.children[0])
        args: list[n.Expr | n.Region] = []
        options: dict[str, n.Attr] = {}
        for a in t.children[1:]:
            if _is_tree(a, "reference"):
                args.append(self.place(a.children[0], scope))
            elif _is_tree(a, "option"):
                key, value = self.attr(a)
                options[key] = value
            elif a is not None:
                args.append(self.expr(a, scope))
        values = [a for a in args if isinstance(a, n.Expr)]
        if name in ("min", "max", "ceildiv", "tdiv", "trem") and len(values) == 2:
            return build.binary(name, *values)
        if name == "select" and len(values) == 3:
            return build.select(*values)
        results = scope.functions.get(name)
        if results is not None:
            of = UNIT if not results else results[0] if len(results) == 1 else self.tuple_of(results, t)
            return build.call_with(name, tuple(args), n.attrs(**options), of)
        return build.call_with(name, tuple(args), n.attrs(**options))

    def place(self, t: Item | None, scope: _Scope) -> n.Region:
        assert isinstance(t, Tree)
        name = _name(t.children[0])
        if name not in scope.buffers:
            what = "a value, not a buffer" if name in scope.values else "not defined here"
            raise self.fail("KIR-T002", f"'{name}' is {what}", t, attempt=did_you_mean(name, scope.names()))
        index: list[n.Expr | n.Span] = []
        for i in t.children[1:]:
            if _is_tree(i, "span"):
                lo, extent, step = i.children
                index.append(build.span(self.expr(lo, scope), self.expr(extent, scope), 1 if step is None else self.expr(step, scope)))
            elif i is not None:
                index.append(self.expr(i, scope))
        return build.region(scope.buffers[name], *index)


def _sub(t: Item | None) -> T:
    assert isinstance(t, Tree), t
    return t


def _name(t: Item | None) -> str:
    assert isinstance(t, Token), t
    return str(t).removeprefix("%")


def _names(t: Item | None) -> tuple[str, ...]:
    assert isinstance(t, Tree)
    return tuple(str(c).removeprefix("%") for c in t.children if c is not None)


def _cache(t: Item | None) -> str:
    return "" if t is None else _name(_sub(t).children[0])


def _dim(e: n.Expr) -> int | n.Expr:
    value = build.int_value(e)
    return e if value is None else value


def _literal(text: str) -> n.Const:
    if text in ("true", "false"):
        return build.const(text == "true", BOOL)
    body, _, suffix = text.partition(":")
    is_float = not body.isdigit()
    if suffix and suffix not in DTYPES:
        raise error("KIR-T002", f"there is no dtype '{suffix}'", attempt=did_you_mean(suffix, DTYPES))
    dtype = DTYPES[suffix] if suffix else F32 if is_float else I32
    if dtype.kind == "token" or (is_float and not dtype.is_float):
        raise error("KIR-V003", f"'{body}' is no literal of {dtype}")
    return build.const(float(body) if is_float or dtype.is_float else int(body), dtype)
