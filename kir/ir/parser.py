"""Text -> IR: the exact inverse of `kir.ir.printer`, after the grammar `grammars/kir.lark`.

Names are resolved while reading, so that every reference carries its type. Integer expressions come out in normal form.
"""
from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

from lark import Token, Tree

from kir.base.dataclass import replace
from kir.base.diagnostic import KirError, Origin, error
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.dtype_terms import precision_of
from kir.ir.grammar.syntax import quick_tree, syntax_tree
from kir.ir.printer import SCHEMA
from kir.ir.terms import Item, Scope, T, Terms, cache_of, is_tree, name_of, names_of, subtree
from kir.ir.types import (
    I32,
    DType,
    StructType,
    TileType,
    TupleType,
    Type,
)

MOST_NESTED = 20_000
"""Brackets of a line from which it is not parsed at all: the parser takes a minute for 100,000 within one another."""


def parse_program(text: str, file: str = "<text>") -> n.Program:
    """The program of an IR text. Raises KirError: KIR-T001 (syntax), KIR-T002 (unknown name), KIR-T003 (name defined twice),
    KIR-T004 (schema), KIR-V002 and KIR-V003 (types)."""
    if (line := _too_deep(text)) is not None:
        raise error("KIR-T001", "this text nests expressions too deeply", origin=Origin(file, line, 1, line, 1), needs="lets for parts of them")
    if (quick := quick_tree(text)) is not None:
        with suppress(KirError, RecursionError):  # the whole text is parsed then, for the place of the fault
            return _Reader(file).file(quick)
    tree = syntax_tree(text, file)
    try:
        return _Reader(file).file(tree)
    except RecursionError:
        raise error("KIR-T001", "this text nests expressions too deeply", origin=Origin(file, 1, 1, 1, 1),
                    needs="lets for parts of them") from None


def _too_deep(text: str) -> int | None:
    """The first line with more brackets that open than are ever read within one another; None where there is none."""
    if text.count("(") + text.count("[") < MOST_NESTED:
        return None
    return next((k for k, line in enumerate(text.split("\n"), 1) if line.count("(") + line.count("[") > MOST_NESTED), None)


def parse_expression(text: str, values: Mapping[str, Type], buffers: Mapping[str, n.Buffer]) -> n.Expr:
    """The expression of a text over named values and buffers. Raises KirError as `parse_program`."""
    tree = _tree_of(text)
    if isinstance(tree, KirError):
        raise KirError(*tree.diagnostics)
    scope = Scope()
    scope.values.update(values)
    scope.buffers.update(buffers)
    fact = next(iter(tree.find_data("fact")))
    return _Reader("<expression>").expr(fact.children[0], scope)


@lru_cache(maxsize=4096)
def _tree_of(text: str) -> Tree[Token] | KirError:
    """The syntax of an expression, or what is wrong with it: steps name expressions by texts that are read at many places."""
    try:
        return syntax_tree(f"kir {SCHEMA}\nprogram p\n  fact {text}\n", "<expression>")
    except KirError as bad:
        return bad


class _Reader(Terms):

    # ---------------------------------------------------------------------------------------------------------- programs
    def file(self, tree: T) -> n.Program:
        version, program = tree.children[:2]
        if str(version) != str(SCHEMA):
            raise self.fail("KIR-T004", f"this text has schema {version}; this KIR reads schema {SCHEMA}", version)
        assert isinstance(program, Tree)
        return self.program(program)

    def program(self, tree: T) -> n.Program:
        scope = Scope()
        parts: dict[str, list[T]] = {}
        for c in tree.children[1:]:
            if isinstance(c, Tree):
                parts.setdefault(str(c.data), []).append(c)
        metas = tuple(self.meta(t, scope) for t in parts.get("meta", ()))
        for t in parts.get("struct", ()):
            made = StructType(name_of(t.children[0]), tuple(self.field(f, scope) for f in t.children[1:] if isinstance(f, Tree)))
            self.structs[made.name] = made
        for t in parts.get("param", ()):
            if str(t.children[0]) in ("size", "scalar"):
                self.define(scope, t.children[2], self.dtype(subtree(t.children[3]).children[0]))
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
        return n.Program(name_of(tree.children[0]), metas, params, facts, tuple(self.structs.values()), tuple(workspaces), maps,
                         tuple(functions), kernels, plan)

    def define(self, scope: Scope, name: Item | None, what: Type | n.Buffer) -> str:
        assert isinstance(name, Token)
        text = name_of(name)
        if text in scope.values or text in scope.buffers:
            raise self.fail("KIR-T003", f"'{text}' is defined twice in this scope", name, needs="names that are unique within a kernel")
        if isinstance(what, n.Buffer):
            scope.buffers[text] = what
        else:
            scope.values[text] = what
        return text

    def meta(self, t: T, scope: Scope) -> n.Meta:
        name, kind, default = t.children
        self.define(scope, name, n.meta_type(n.Meta(name_of(name), str(kind))))
        value: int | float | bool | str | None = None
        if isinstance(default, Token):
            value = self.string(default)
        elif default is not None:
            const = self.expr(default, scope)
            if not isinstance(const, n.Const):
                raise self.fail("KIR-T001", "the default of a meta is a literal", default)
            value = const.value
        return n.Meta(name_of(name), str(kind), value)

    def field(self, t: T, scope: Scope) -> tuple[str, DType | TileType]:
        made = self.type(t.children[1], scope)
        if not isinstance(made, (DType, TileType)):
            raise self.fail("KIR-V003", "a field is a scalar or a vector", t)
        return name_of(t.children[0]), made

    def param(self, t: T, scope: Scope) -> n.Param:
        role, space, name, of, value, attributes = t.children
        text: Any = str(role)
        if text in ("size", "scalar"):
            kind: DType | n.Buffer = self.dtype(subtree(of).children[0])
        else:
            kind = self.buffer(name, of, self.space(space) if space is not None else "global", scope)
            self.define(scope, name, kind)
        return n.Param(name_of(name), text, kind, self.maybe(value, scope), self.attrs(attributes))

    def tensor_map(self, t: T) -> n.TensorMap:
        name, of, *rest = t.children
        box = tuple(self.number(x) for x in rest if isinstance(x, Token))
        return n.TensorMap(name_of(name), name_of(of), box, self.attrs(rest[-1] if isinstance(rest[-1], Tree) else None))

    def function(self, t: T, outer: Scope) -> n.Function:
        scope = outer.child()
        params: list[n.Var | n.Buffer] = []
        results: list[Type] = []
        for c in t.children[1:-1]:
            if is_tree(c, "value_param"):
                kind = self.type(c.children[1], scope)
                params.append(n.Var(self.define(scope, c.children[0], kind), kind))
            elif is_tree(c, "buffer_param"):
                made = self.buffer(c.children[1], c.children[2], self.space(c.children[0]), scope)
                self.define(scope, c.children[1], made)
                params.append(made)
            elif isinstance(c, Tree):
                results.append(self.type(c, scope))
        return n.Function(name_of(t.children[0]), tuple(params), tuple(results), self.block(t.children[-1], scope), self.origin(t))

    def kernel(self, t: T, outer: Scope) -> n.Kernel:
        label, name, *rest = t.children
        scope = outer.child()
        axes = [c for c in rest if is_tree(c, "axis")]
        grid = tuple(n.Axis(name_of(a.children[0]), self.expr(a.children[1], outer)) for a in axes)
        for a in axes:
            self.define(scope, a.children[0], I32)
        threads, cluster, attributes, block = [c for c in rest if not is_tree(c, "axis")][-4:]
        sizes = tuple(self.number(c) for c in cluster.children if c is not None) if isinstance(cluster, Tree) else ()
        return n.Kernel(name_of(name), grid, self.expr(threads, outer), self.block(block, scope), sizes, self.attrs(attributes),
                        self.label(label), self.origin(name))

    def step(self, t: Item | None, scope: Scope) -> n.Launch | n.Dispatch:
        assert isinstance(t, Tree)
        if t.data == "launch":
            return n.Launch(name_of(t.children[0]), self.attrs(t.children[1]))
        arms = tuple((self.expr(a.children[0], scope), tuple(self.step(s, scope) for s in a.children[1:]))
                     for a in t.children if is_tree(a, "arm"))
        last = t.children[-1]
        return n.Dispatch(arms, tuple(self.step(s, scope) for s in last.children) if is_tree(last, "otherwise") else ())

    # -------------------------------------------------------------------------------------------------------- statements
    def block(self, t: Item | None, outer: Scope) -> n.Block:
        assert isinstance(t, Tree)
        scope = outer.child()
        return tuple(self.stmt(s, scope) for s in t.children if isinstance(s, Tree))

    def stmt(self, t: T, scope: Scope) -> n.Stmt:
        label, inner = t.children
        assert isinstance(inner, Tree)
        try:
            made: n.Stmt = getattr(self, f"_{inner.data}")(inner, scope)
        except KirError as bad:
            raise self.located(bad, inner) from bad
        return replace(made, label=self.label(label), origin=self.origin(inner))  # type: ignore[type-var]  # every Stmt is a dataclass

    def label(self, t: Item | None) -> str | None:
        return name_of(t.children[0]) if isinstance(t, Tree) else None

    def _let(self, t: T, scope: Scope) -> n.Stmt:
        *names, value = t.children
        made = self.expr(value, scope)
        kinds = made.type.elements if isinstance(made.type, TupleType) else (made.type,)
        if len(kinds) != len(names):
            raise self.fail("KIR-V003", f"{len(names)} names for {len(kinds)} results", t)
        return n.Let(tuple(self.define(scope, x, k) for x, k in zip(names, kinds, strict=True)), made)

    def _alloc(self, t: T, scope: Scope) -> n.Stmt:
        space, name, kind, init = t.children
        buffer = self.buffer(name, kind, self.space(space), scope)
        made = n.Alloc(buffer, self.maybe(init, scope))
        self.define(scope, name, buffer)
        return made

    def _view(self, t: T, scope: Scope) -> n.Stmt:
        space, name, *axes, kind, place, fill = t.children
        named = tuple(a for a in axes if a is not None)
        buffer = self.buffer(name, kind, self.space(space), scope)
        inner = scope.child()
        for a in named:
            self.define(inner, a, I32)
        made = n.View(buffer, self.place(place, inner), tuple(name_of(a) for a in named), self.maybe(fill, scope))
        self.define(scope, name, buffer)
        return made

    def _store(self, t: T, scope: Scope) -> n.Stmt:
        place, value, where, clip, cache = t.children
        return n.Store(self.place(place, scope), self.expr(value, scope), self.maybe(where, scope), clip is not None, cache_of(cache))

    def _copy(self, t: T, scope: Scope) -> n.Stmt:
        src, dst, via, where, clip, signal, grouped, attributes = t.children
        source = self.expr(src, scope)
        if not isinstance(source, n.Load):
            raise self.fail("KIR-V003", "the source of a copy is a place", t)
        text = "plain" if via is None else name_of(subtree(via).children[0]) + (
            f"({subtree(via).children[1]})" if subtree(via).children[1] is not None else "")
        return n.Copy(source, self.place(dst, scope), text, self.maybe(where, scope), clip is not None,
                      None if signal is None else self.place(signal, scope), grouped is not None, self.attrs(attributes))

    def _mma(self, t: T, scope: Scope) -> n.Stmt:
        acc, a, b, via, precision, pending, attributes = t.children
        word = "ieee" if precision is None else precision_of(name_of(precision)) if str(precision).startswith("%") else str(precision)
        return n.Mma(self.place(acc, scope), self.expr(a, scope), self.expr(b, scope), "auto" if via is None else name_of(via),
                     word, pending is not None, self.attrs(attributes))

    def _eval(self, t: T, scope: Scope) -> n.Stmt:
        made = self.expr(t.children[0], scope)
        if not isinstance(made, n.Call):
            raise self.fail("KIR-V003", "a statement is a call that has an effect", t)
        return n.Eval(made)

    def _jump(self, t: T, scope: Scope) -> n.Stmt:
        kind: Any = str(t.children[0])
        return n.Jump(kind, tuple(self.expr(v, scope) for v in t.children[1:] if v is not None))

    def _opaque(self, t: T, scope: Scope) -> n.Stmt:
        surface, reads, writes, reason, text = t.children
        return n.Opaque(str(surface), self.string(text), self.string(reason), names_of(reads), names_of(writes))

    def _hole(self, t: T, scope: Scope) -> n.Stmt:
        name, contract, reads, writes, attributes = t.children
        def places(x: Item | None) -> tuple[n.Region, ...]:
            return tuple(self.place(c, scope) for c in x.children) if isinstance(x, Tree) else ()
        return n.Hole(name_of(name), self.string(contract), places(reads), places(writes), self.attrs(attributes))

    def _for(self, t: T, scope: Scope) -> n.Stmt:
        name, dtype, lo, hi, step, kind, attributes, body = t.children
        of = I32 if dtype is None else self.dtype(dtype)
        inner = scope.child()
        var = n.Var(self.define(inner, name, of), of)
        return n.For(var, self.expr(lo, scope), self.expr(hi, scope), build.const(1, of) if step is None else self.expr(step, scope),
                     self.block(body, inner), "serial" if kind is None else str(subtree(kind).children[0]), self.attrs(attributes))

    def _if(self, t: T, scope: Scope) -> n.Stmt:
        static, cond, then, orelse = t.children
        otherwise = () if orelse is None else self.block(orelse, scope)
        return n.If(self.expr(cond, scope), self.block(then, scope), otherwise, static is not None)

    def _while(self, t: T, scope: Scope) -> n.Stmt:
        return n.While(self.expr(t.children[0], scope), self.block(t.children[1], scope))

    def _roles(self, t: T, scope: Scope) -> n.Stmt:
        out = []
        for r in t.children:
            name, lo, hi, registers, body = subtree(r).children
            limit = 0 if registers is None else self.number(registers)
            out.append(n.Role(name_of(name), self.number(lo), self.number(hi), self.block(body, scope), limit))
        return n.Roles(tuple(out))
