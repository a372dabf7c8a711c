"""Deciding what is static: the statements of a generic program under known metas and dtypes.

Works top down, so that a branch that is not taken is never typed: under the binding it may not even make sense.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count

from kir.base.diagnostic import KirError, Origin, error
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.dtype_terms import PRECISIONS, Setting, of_kind, resolve
from kir.ir.printer import expr_text
from kir.ir.types import BOOL, DTYPES, I32, DType, PointerType, TileType, TupleType, Type, dtype_of, shape_of, symbolic
from kir.ir.visit import transform, walk

MAX_UNROLLED = 4096
MAX_STAGES = 64


class Statics:
    """`values` replaces names, `buffers` buffers; both grow while a block is walked."""

    def __init__(
        self, dtypes: Mapping[str, DType], settings: Mapping[str, Setting], values: dict[str, n.Expr], buffers: dict[str, n.Buffer], taken: set[str],
        at: Callable[[str], Origin | None] = lambda name: None,
    ) -> None:
        """`taken` is every name of the program, for a copy is called like none; `at` says where the binding gives a meta its value."""
        self.dtypes, self.settings, self.values, self.buffers, self.taken, self.at = dtypes, settings, values, buffers, taken, at
        self.texts = frozenset(k for k, v in settings.items() if isinstance(v, str) and k not in dtypes)
        self.copies: set[str] = set()
        self.copying = 0

    # ----------------------------------------------------------------------------------------------------------- expressions
    def dtype(self, d: DType) -> DType:
        """A dtype without symbols. Raises KirError KIR-F012 for one that nothing gives."""
        made = resolve(d, self.dtypes, self.settings)
        if made.is_symbolic:
            raise error("KIR-F012", f"the binding does not decide the dtype '{d.name}'", needs="the dtypes it is made of")
        return made

    def type(self, t: Type) -> Type:
        """A type without symbols."""
        match t:
            case DType():
                return self.dtype(t)
            case TileType():
                return TileType(self.dtype(t.dtype), tuple(self.dim(d) for d in t.shape))
            case PointerType():
                return PointerType(self.dtype(t.dtype), t.space)
            case TupleType():
                return TupleType(tuple(self.type(e) for e in t.elements))  # type: ignore[misc]  # elements stay what they are
            case _:
                return t

    def dim(self, d: int | n.Expr) -> int | n.Expr:
        """A dimension, as a number where it is one."""
        if isinstance(d, int):
            return d
        made = self.expr(d)
        value = build.int_value(made)
        return made if value is None else value

    def expr(self, e: n.Expr) -> n.Expr:
        """An expression under the binding."""
        made: n.Expr = transform(e, self.leave, self.enter)
        self.without_texts(made)
        return made

    def without_texts(self, made: n.Node) -> None:
        """Raises KirError KIR-F011 where a meta that is a text stands for a number: only questions about it have answers."""
        for x in walk(made) if self.texts else ():
            if isinstance(x, n.Var) and x.name in self.texts:
                raise error("KIR-F011", f"'{x.name}' = \"{self.settings[x.name]}\" is a text, and the kernel computes with it",
                            origin=self.at(x.name), needs="a number")

    def enter(self, e: n.Node) -> bool:
        return not isinstance(e, n.Buffer)

    def region(self, r: n.Region) -> n.Region:
        """A place under the binding."""
        made: n.Region = transform(r, self.leave, self.enter)
        self.without_texts(made)
        return made

    def buffer(self, b: n.Buffer) -> n.Buffer:
        """A buffer: the tensor it stands for, or the local one with its dtype and shape known."""
        if b.name in self.buffers:
            return self.buffers[b.name]
        shape = tuple(self.expr(d) for d in b.shape)
        return replace(b, dtype=self.dtype(b.dtype), shape=shape)

    def leave(self, old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Var():
                if new.name in self.values:
                    return self.values[new.name]
                if new.name in self.texts:
                    return n.Var(new.name, I32)
                return n.Var(new.name, self.type(new.of))
            case n.Buffer():
                return self.buffer(new)
            case n.Region():
                return build.region(self.buffer(new.buffer), *new.index) if new.index else n.Region(self.buffer(new.buffer))
            case n.Cast():
                return build.cast(new.x, self.dtype(new.dtype), new.rounding)
            case n.Binary(op="trem" | "mod") if dtype_of(new.type).is_float:
                return build.call("fmod", new.a, new.b)
            case n.Call(fn="meta_is" | "meta_true"):
                assert isinstance(old, n.Call)
                return self.call(old)
            case n.Call():
                return self.call(new)
            case _:
                return new

    def call(self, e: n.Call) -> n.Expr:
        """A question about the binding answered, a tile call with its dimensions known."""
        named = dict(e.attrs)
        match e.fn:
            case "meta_is":
                return build.const(str(self.meta(e)) == str(named["value"]), BOOL)
            case "meta_true":
                return build.const(bool(self.meta(e)), BOOL)
            case "absent":
                return build.const(bool(self.settings.get(f"absent:{named['param']}")), BOOL)
            case "dtype_is":
                a, b = (self.dtype(self.named(str(named[k]))) for k in ("a", "b"))
                return build.const(a == b, BOOL)
            case "dtype_kind":
                return build.const(of_kind(self.dtype(self.named(str(named["term"]))), str(named["kind"])), BOOL)
            case "dtype_bits":
                return build.const(self.dtype(self.named(str(named["term"]))).bits, I32)
            case "log2" if (
                isinstance(x := e.args[0], n.Cast)
                and (value := build.int_value(x.x)) is not None
                and value > 0
                and value & (value - 1) == 0
            ):
                return build.const(value.bit_length() - 1, x.dtype)
            case "gcd" if None not in (pair := _shape(e.args)):
                return build.const(math.gcd(*(x for x in pair if x is not None)), I32)
            case "next_power_of_2" if (value := build.int_value(_value(e.args[0]))) is not None:
                return build.const(1 << max(value - 1, 0).bit_length(), I32)
            case "broadcast" | "reshape" if isinstance(e.args[0], n.Expr) and _shape(e.args[1:]) == shape_of(e.args[0].type):
                return e.args[0]
        if e.of is not None:
            return replace(e, of=self.type(e.of))
        return build.call_with(e.fn, e.args, e.attrs)

    def meta(self, e: n.Call) -> Setting:
        """The value of the meta that a question is about."""
        x = e.args[0]
        assert isinstance(x, n.Var)
        return self.settings.get(x.name)

    def named(self, text: str) -> DType:
        """A dtype term by its text."""
        return DTYPES.get(text) or symbolic(text)

    # ------------------------------------------------------------------------------------------------------------ statements
    def block(self, body: n.Block) -> n.Block:
        """A block under the binding."""
        out: list[n.Stmt] = []
        for s in body:
            try:
                made = self.stmt(s)
            except KirError as bad:
                raise KirError(*(replace(d, origin=d.origin or s.origin) for d in bad.diagnostics)) from bad
            out.extend(made)
            if made and isinstance(made[-1], n.Jump):
                break
        return tuple(out)

    def stmt(self, s: n.Stmt) -> tuple[n.Stmt, ...]:
        match s:
            case n.If() if s.static:
                return self.block(s.then if self.decided(s.cond) else s.orelse)
            case n.If():
                cond = self.expr(s.cond)
                if isinstance(cond, n.Const):
                    return self.block(s.then if cond.value else s.orelse)
                return (replace(s, cond=cond, then=self.block(s.then), orelse=self.block(s.orelse)),)
            case n.For() if s.kind == "static":
                return self.unrolled(s)
            case n.For():
                lo, hi, step = self.expr(s.lo), self.expr(s.hi), self.expr(s.step)
                var = n.Var(self.fresh(s.var.name), self.type(s.var.of))
                self.values[s.var.name] = var
                attrs = n.attrs(**{k: self.attr(v) for k, v in s.attrs})
                self.staged(dict(s.attrs).get("stages"), dict(attrs).get("stages"))
                kind = "serial" if s.kind == "pipelined" and dict(attrs).get("stages") in (0, 1, None) else s.kind
                if kind == "serial":
                    attrs = tuple((k, v) for k, v in attrs if k != "stages")
                return (replace(s, var=var, lo=lo, hi=hi, step=step, kind=kind, attrs=attrs, body=self.block(s.body)),)
            case n.While():
                return (replace(s, cond=self.expr(s.cond), body=self.block(s.body)),)
            case n.Let():
                value = self.expr(s.value)
                kinds = value.type.elements if isinstance(value.type, TupleType) else (value.type,)
                names = tuple(self.fresh(x) for x in s.names)
                for old, name, kind_ in zip(s.names, names, kinds, strict=True):
                    self.values[old] = n.Var(name, kind_)
                return (replace(s, names=names, value=value),)
            case n.Alloc():
                init = None if s.init is None else self.expr(s.init)
                self.buffers.pop(s.buffer.name, None)
                try:
                    declared = self.buffer(s.buffer)
                except KirError as bad:
                    if init is not None or any(d.id != "KIR-F012" for d in bad.diagnostics):
                        raise
                    return ()  # of a branch that is not taken, as a rule: whatever uses it is refused for the same reason
                buffer = replace(declared, name=self.fresh(s.buffer.name))
                self.buffers[s.buffer.name] = buffer
                return (replace(s, buffer=buffer, init=init),)
            case n.View():
                at = self.region(s.at)
                self.buffers.pop(s.buffer.name, None)
                buffer = replace(self.buffer(s.buffer), name=self.fresh(s.buffer.name))
                self.buffers[s.buffer.name] = buffer
                return (replace(s, buffer=buffer, at=at),)
            case n.Store():
                mask = None if s.mask is None else self.expr(s.mask)
                if isinstance(mask, n.Const):
                    if not mask.value:
                        return ()
                    mask = None
                return (replace(s, at=self.region(s.at), value=self.expr(s.value), mask=mask),)
            case n.Mma():
                return (self.product(s),)
            case n.Roles():
                return (replace(s, roles=tuple(replace(r, body=self.block(r.body)) for r in s.roles)),)
            case n.Jump():
                return (replace(s, values=tuple(self.expr(v) for v in s.values)),)
            case n.Eval():
                made = self.expr(s.call)
                return (replace(s, call=made),) if isinstance(made, n.Call) else ()
            case _:
                changed: n.Stmt = transform(s, self.leave, self.enter)
                self.without_texts(changed)
                return (changed,)

    def decided(self, cond: n.Expr) -> bool:
        """The outcome of a static condition. Raises KirError KIR-F012 where the binding does not decide it."""
        made = _compared(self.expr(cond))
        if not isinstance(made, n.Const):
            raise error("KIR-F012", f"the binding does not decide '{expr_text(cond)}'", needs="values for the metas in it")
        return bool(made.value)

    def unrolled(self, s: n.For) -> tuple[n.Stmt, ...]:
        """A static loop, once for each value of its variable."""
        ends = [build.int_value(self.expr(x)) for x in (s.lo, s.hi, s.step)]
        lo, hi, step = ends
        if step == 0:
            raise error("KIR-V009", f"the loop over '{s.var.name}' has step 0", needs="a step up or down")
        if lo is None or hi is None or step is None:
            raise error("KIR-F012", f"the binding does not decide the range of '{s.var.name}'", needs="values for the metas in it")
        values = range(lo, hi, step)
        if len(values) > MAX_UNROLLED:
            raise error("KIR-F013", f"the static loop over '{s.var.name}' has {len(values)} iterations", needs=f"at most {MAX_UNROLLED}")
        out: list[n.Stmt] = []
        self.copying += 1
        for v in values:
            self.values[s.var.name] = build.const(v, s.var.of if isinstance(s.var.of, DType) else I32)
            made = self.block(s.body)
            out.extend(made)
            if made and isinstance(made[-1], n.Jump):
                if made[-1].kind == "break":
                    out.pop()
                if made[-1].kind != "continue":
                    break
                out.pop()
        self.copying -= 1
        return tuple(out)

    def fresh(self, name: str) -> str:
        """The name of a copy: the first keeps it."""
        if name not in self.copies:
            self.copies.add(name)
            return name
        chosen = next(x for k in count(1) if (x := f"{name}__{k}") not in self.taken)
        self.taken.add(chosen)
        return chosen

    def product(self, s: n.Mma) -> n.Mma:
        """A matrix product with its precision decided."""
        a, b = self.expr(s.a), self.expr(s.b)
        precision = s.precision
        if precision not in PRECISIONS and precision.removeprefix("%") in self.settings:
            given = self.settings[precision.removeprefix("%")]
            precision = given if isinstance(given, str) else "tf32" if given is None or given else "ieee"
        kind = a.type.dtype if isinstance(a.type, TileType) else None
        if kind is None or kind.name != "f32":
            precision = "ieee"
        return replace(s, acc=self.region(s.acc), a=a, b=b, precision=precision)

    def staged(self, name: n.Attr | None, stages: n.Attr | None) -> None:
        """Raises KirError KIR-F011 for a number of stages that is none."""
        if stages is not None and (isinstance(stages, (bool, str, float)) or not 0 <= int(str(stages)) <= MAX_STAGES):
            raise error("KIR-F011", f"a loop cannot have {stages} stages", origin=self.at(str(name)), needs=f"a whole number from 0 to {MAX_STAGES}")

    def attr(self, v: n.Attr) -> n.Attr:
        """An attribute that may name a meta."""
        if isinstance(v, str) and v in self.settings:
            given = self.settings[v]
            return 0 if given is None else given
        return v


def _compared(e: n.Expr) -> n.Expr:
    """A condition with its comparisons of known floats worked out: they are exact, and a branch that they decide is static."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Binary(op=op, a=n.Const(value=x), b=n.Const(value=y)) if op in n.COMPARISONS:
                return build.const({"lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y, "eq": x == y, "ne": x != y}[op], BOOL)
            case _:
                return new
    made: n.Expr = transform(e, leave)
    return made


def _value(x: n.Expr | n.Region) -> n.Expr:
    assert isinstance(x, n.Expr)
    return x


def _shape(args: tuple[n.Expr | n.Region, ...]) -> tuple[int | None, ...]:
    return tuple(build.int_value(_value(a)) for a in args)
