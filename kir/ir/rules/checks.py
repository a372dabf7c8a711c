"""What every check of the verifier stands on: names in view, who executes, where a finding is."""
from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from functools import cached_property

from kir.base.diagnostic import Diagnostic, did_you_mean
from kir.base.instructions import table
from kir.ir import nodes as n
from kir.ir.anchors import Path, anchors
from kir.ir.printer import expr_text, is_name, region_text, type_text
from kir.ir.rules.wellformed import Expressions, fits, is_mask, out_of_bounds, parts, same_dims
from kir.ir.types import PointerType, StructType, TupleType, Type, UnitType, dtype_of, shape_of
from kir.ir.visit import statements, walk


class Scope:
    """Names in view inside one kernel or function, with what each block adds undone at its end."""

    def __init__(self, values: dict[str, Type], buffers: dict[str, n.Buffer], constants: Iterable[str]) -> None:
        self.values, self.buffers = dict(values), dict(buffers)
        self.constants = frozenset(constants)
        self.ever: set[str] = {*values, *buffers}

    def names(self) -> list[str]:
        """All names in view, values first."""
        return [*self.values, *self.buffers]


class Team:
    """Who executes: the level of the team, how many threads an instance has (None: unknown), and whether loops stand between."""

    def __init__(self, level: str, threads: int | None, in_loop: bool = False, function: n.Function | None = None) -> None:
        self.level, self.threads, self.in_loop, self.function = level, threads, in_loop, function
        self.key = level, threads, in_loop

    def inside_loop(self) -> Team:
        """The same team, with a loop between."""
        return Team(self.level, self.threads, True, self.function)


def is_term(v: n.Attr, metas: Container[str]) -> bool:
    """Whether an option is worked out from metas: the name of one, or a term in functional notation."""
    if not isinstance(v, str) or not v:
        return False
    words = re.findall(r"%?[^\W\d][\w.]*", re.sub(r"\bis\(([^,()]+),[^,()]*\)", r"is(\1)", v))  # without the texts that metas are compared with
    return all(x in metas or x in _OF_TERMS for x in (w.removeprefix("%") for w in words))


_OF_TERMS = frozenset({"select", "is", "true", "false", "not", "and", "or", "eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "floordiv", "mod",
                       "min", "max", "ceildiv", "dtype_is", "None"})


def same_type(a: Type, b: Type) -> bool:
    """Whether two types are equal, dimensions as numbers where they are."""
    if isinstance(a, (PointerType, StructType, TupleType, UnitType)) or isinstance(b, (PointerType, StructType, TupleType, UnitType)):
        return a == b
    return dtype_of(a) == dtype_of(b) and same_dims(shape_of(a), shape_of(b))


def pure_functions(program: n.Program) -> frozenset[str]:
    """Device functions that only compute: no store but to their own registers, no effect, no call of an impure function."""
    rows = table()
    pure: set[str] = set()
    for f in program.functions:
        own = {s.buffer.name for s in statements(f.body) if isinstance(s, n.Alloc)}
        sound = True
        for x in (x for s in f.body for x in walk(s)):
            match x:
                case n.Store():
                    sound = sound and x.at.buffer.name in own
                case n.Copy():
                    sound = sound and x.dst.buffer.name in own
                case n.Mma():
                    sound = sound and x.acc.buffer.name in own
                case n.Opaque() | n.Hole():
                    sound = False
                case n.Call():
                    sound = sound and (x.fn in pure or (x.fn in rows and rows[x.fn].is_pure))
                case _:
                    pass
        if sound:
            pure.add(f.name)
    return frozenset(pure)


class Checks:
    """A program under the verifier, and the place that it has come to."""

    def __init__(self, program: n.Program) -> None:
        self.program = program
        self.functions = {f.name: f for f in program.functions}
        self.expressions = Expressions(self.functions, pure_functions(program))
        self.path: Path = ()
        self.stmt: n.Stmt | None = None
        self.metas = {m.name for m in program.metas}
        self.inputs = {q.name for q in program.params if q.role == "in"}
        self.settings = frozenset(self.metas), frozenset(self.inputs)

    # ------------------------------------------------------------------------------------------------------------ findings
    def located(self, d: Diagnostic) -> Diagnostic:
        """`d` with the place of the statement at hand."""
        origin = d.origin or (self.stmt.origin if self.stmt is not None else None)
        return replace(d, origin=origin, anchor=d.anchor or self.anchors.get(self.path) or str(self.path[0]))

    @cached_property
    def anchors(self) -> dict[Path, str]:
        """Anchors by path; made for the first finding."""
        return {path: text for text, path, _ in anchors(self.program)}

    def fail(self, id: str, message: str, needs: str = "", attempt: str = "") -> Diagnostic:
        """A finding at the place that the verifier has come to."""
        return self.located(Diagnostic(id, message, needs=needs, attempt=attempt))

    # -------------------------------------------------------------------------------------------------------------- scopes
    def define(self, name: str, what: Type | n.Buffer, scope: Scope) -> Iterator[Diagnostic]:
        """A name that comes into view: it may not be taken, nor be no name."""
        if not is_name(name):
            yield self.fail("KIR-V004", f"'{name}' is no name", needs="letters, digits and underscores")
        if name in scope.ever:
            yield self.fail("KIR-V004", f"'{name}' is defined twice",
                            needs="names that are unique within a kernel and differ from parameters")
        scope.ever.add(name)
        if isinstance(what, n.Buffer):
            scope.buffers[name] = what
            scope.values.pop(name, None)
        else:
            scope.values[name] = what
            scope.buffers.pop(name, None)

    def scoped(self, e: n.Expr | n.Region | n.Span, scope: Scope) -> Iterator[Diagnostic]:
        """Names used in `e` that are not in view, or not what their declaration says."""
        stack, values = [e], scope.values
        while stack:
            x = stack.pop()
            if isinstance(x, n.Var):
                held = values.get(x.name)
                if held is x.of:
                    continue
                if held is None:
                    yield Diagnostic("KIR-V005", f"the value '{x.name}' is not defined here", attempt=did_you_mean(x.name, scope.names()))
                elif held != x.of:
                    yield Diagnostic("KIR-V006", f"'{x.name}' is used as {type_text(x.of)}, and is {type_text(held)}")
            elif isinstance(x, n.Region):
                declared = scope.buffers.get(x.buffer.name)
                if declared is None:
                    yield Diagnostic("KIR-V005", f"the buffer '{x.buffer.name}' is not declared here",
                                     attempt=did_you_mean(x.buffer.name, scope.names()))
                elif declared is not x.buffer and declared != x.buffer:
                    yield Diagnostic("KIR-V006", f"'{x.buffer.name}' differs from its declaration",
                                     needs=f"{declared.space} {declared.dtype} of rank {len(declared.shape)}, with the declared layout")
            stack += parts(x)

    def value(self, e: n.Expr | n.Region | None, scope: Scope, root: bool = False) -> Iterator[Diagnostic]:
        """Scope and well-formedness of one operand of a statement."""
        if e is not None:
            for d in (*self.scoped(e, scope), *self.expressions.check(e, root)):
                yield self.located(d)

    def bounded(self, at: n.Region, clip: bool, masked: bool) -> Iterator[Diagnostic]:
        """A place that leaves its buffer, where nothing clips or masks it."""
        if not clip and not masked and (d := out_of_bounds(at)) is not None:
            yield self.located(d)

    def reads(self, *items: n.Expr | n.Region | None) -> Iterator[Diagnostic]:
        """Literal indices out of bounds in the loads below."""
        for item in items:
            for x in walk(item) if item is not None else ():
                if isinstance(x, n.Load):
                    yield from self.bounded(x.at, x.clip, x.mask is not None)

    def written(self, at: n.Region) -> Iterator[Diagnostic]:
        """A place that is written may not be an input."""
        if at.buffer.name in self.inputs or at.buffer.space == "constant":
            yield self.fail("KIR-V025", f"'{at.buffer.name}' is read-only, and is written here", needs="role `inout` or `out`")

    def stored(self, value: Type, at: n.Region, mask: n.Expr | None) -> Iterator[Diagnostic]:
        """A value, and the mask that it is stored under, fit the place."""
        if not fits(value, at.type):
            yield self.fail("KIR-V009", f"{region_text(at)} is {type_text(at.type)}, and the value is {type_text(value)}",
                            needs="one dtype and a shape that broadcasts to the place's")
        if mask is not None and not is_mask(mask.type, at.type):
            yield self.fail("KIR-V009", f"the mask of {region_text(at)} is {type_text(mask.type)}",
                            needs="bools that broadcast to the place's shape")

    def constant(self, e: n.Expr, scope: Scope, what: str) -> Iterator[Diagnostic]:
        """An expression that a binding must decide."""
        for x in walk(e):
            if isinstance(x, n.Load):
                yield self.fail("KIR-V017", f"{what} reads memory ({expr_text(x)})", needs="metas and static loop variables alone")
            elif isinstance(x, n.Var) and x.name not in scope.constants:
                yield self.fail("KIR-V017", f"{what} depends on '{x.name}', which is no compile-time value",
                                needs="metas and static loop variables alone")
