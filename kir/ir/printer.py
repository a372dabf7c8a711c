"""IR -> text: byte-stable, and the exact inverse of `kir.ir.parser` (the grammar is `grammars/kir.lark`)."""
from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from functools import cache
from typing import assert_never

from kir.ir import nodes as n
from kir.ir.types import I32, DType, PointerType, StructType, TileType, TupleType, Type, UnitType

SCHEMA = 1
"""Version of the text and of everything hashed from it."""

_INFIX = {"or": ("|", 1), "xor": ("^", 2), "and": ("&", 3), "shl": ("<<", 5), "shr": (">>", 5), "add": ("+", 6), "sub": ("-", 6),
          "mul": ("*", 7), "div": ("/", 7), "floordiv": ("//", 7), "mod": ("%", 7)}
_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_UNARY, _ATOM = 8, 9


@cache
def reserved() -> frozenset[str]:
    """Words of the grammar: a name equal to one is written with a leading `%`."""
    from importlib import resources
    grammar = resources.files("kir.grammars").joinpath("kir.lark").read_text(encoding="utf-8")
    classes = re.findall(r"^[A-Z]+\.\d: /\(([a-z|]+)\)", grammar, re.MULTILINE)
    return frozenset(re.findall(r'"([a-z]+)"', grammar)) | {w for c in classes for w in c.split("|")} | {"inf", "nan"}


def is_name(text: str) -> bool:
    """Whether the grammar takes `text` for a name: letters (of any script), digits and underscores, no digit first."""
    return re.fullmatch(r"[^\W\d]\w*", text) is not None


def name_text(name: str) -> str:
    """A name as the text has it."""
    return "%" + name if name in reserved() else name


def _precision(name: str) -> str:
    """The precision of a product; that of a meta called like a precision begins with `%` already."""
    return name if name.startswith("%") else name_text(name)


def dtype_text(d: DType) -> str:
    """A dtype; symbolic ones in `$<..>`."""
    return f"$<{d.name}>" if d.is_symbolic else d.name


def type_text(t: Type) -> str:
    """A type."""
    match t:
        case DType():
            return dtype_text(t)
        case TileType():
            return f"{dtype_text(t.dtype)}[{', '.join(dim_text(d) for d in t.shape)}]"
        case PointerType():
            return f"ptr<{dtype_text(t.dtype)}, {t.space}>"
        case StructType():
            return f"struct {name_text(t.name)}"
        case TupleType():
            return "(" + ", ".join(type_text(e) for e in t.elements) + ")"
        case UnitType():
            return "()"
        case _:
            assert_never(t)


def dim_text(d: int | n.Expr) -> str:
    """A tile dimension."""
    return str(d) if isinstance(d, int) else expr_text(d)


def const_text(c: n.Const) -> str:
    """A literal: i32, f32 and bool bare, others with their dtype."""
    if c.dtype.is_bool:
        return "true" if c.value else "false"
    if isinstance(c.value, float):
        text = "nan" if math.isnan(c.value) else "inf" if math.isinf(c.value) else repr(abs(c.value))
        sign = "-" if math.copysign(1.0, c.value) < 0 and not math.isnan(c.value) else ""
        return f"{sign}{text}" + ("" if c.dtype.name == "f32" else f":{c.dtype.name}")
    return str(c.value) + ("" if c.dtype.name == "i32" else f":{c.dtype.name}")


def attr_text(v: n.Attr) -> str:
    """An attribute value: identifiers bare, other strings quoted."""
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, str):
        return v if is_name(v) and v not in reserved() else json.dumps(v)
    return repr(v)


def attrs_text(a: n.Attrs) -> str:
    """` {k=v, ..}`, or nothing."""
    return " {" + ", ".join(f"{name_text(k)}={attr_text(v)}" for k, v in a) + "}" if a else ""




def expr_text(e: n.Expr) -> str:
    """An expression; cached on the node."""
    cached: tuple[str, int] | None = e.__dict__.get("_levelled")
    return _levelled(e)[0] if cached is None else cached[0]


def _at(e: n.Expr, least: int) -> str:
    text, level = _levelled(e)
    return text if level >= least else f"({text})"


def _levelled(e: n.Expr) -> tuple[str, int]:
    """The text of an expression and how tightly it holds together."""
    cached: tuple[str, int] | None = e.__dict__.get("_levelled")
    if cached is None:
        cached = e.__dict__["_levelled"] = _expr(e)
    return cached


def _expr(e: n.Expr) -> tuple[str, int]:
    match e:
        case n.Const():
            text = const_text(e)
            return text, _UNARY if text.startswith("-") else _ATOM
        case n.Var():
            return name_text(e.name), _ATOM
        case n.Unary():
            return ("-" if e.op == "neg" else "~") + _at(e.x, _UNARY), _UNARY
        case n.Binary() if e.op in _INFIX:
            sign, level = _INFIX[e.op]
            return f"{_at(e.a, level)} {sign} {_at(e.b, level + 1)}", level
        case n.Binary() if e.op in _COMPARE:
            return f"{_at(e.a, 5)} {_COMPARE[e.op]} {_at(e.b, 5)}", 4
        case n.Binary():
            return f"{e.op}({expr_text(e.a)}, {expr_text(e.b)})", _ATOM
        case n.Select():
            return f"select({expr_text(e.cond)}, {expr_text(e.a)}, {expr_text(e.b)})", _ATOM
        case n.Cast():
            rounding = "" if e.rounding == "rn" else f", {e.rounding}"
            return f"cast({expr_text(e.x)}, {dtype_text(e.dtype)}{rounding})", _ATOM
        case n.Call():
            items = [("&" + region_text(a)) if isinstance(a, n.Region) else expr_text(a) for a in e.args]
            items += [f"{name_text(k)}={attr_text(v)}" for k, v in e.attrs]
            return f"{name_text(e.fn)}({', '.join(items)})", _ATOM
        case n.Load():
            options = _options(e.mask, e.clip, e.cache, e.other)
            return (f"load({region_text(e.at)}{options})" if options else region_text(e.at)), _ATOM
        case n.Address():
            return f"addr({region_text(e.at)})", _ATOM
        case _:
            raise TypeError(f"no text for {type(e).__name__}")


def _options(mask: n.Expr | None, clip: bool, cache: str, other: n.Expr | None = None) -> str:
    out = f" where {expr_text(mask)}" if mask is not None else ""
    out += f" else {expr_text(other)}" if other is not None else ""
    return out + (" clip" if clip else "") + (f" cache {name_text(cache)}" if cache else "")


def region_text(r: n.Region) -> str:
    """A place."""
    name = name_text(r.buffer.name)
    return f"{name}[{', '.join(_index(i) for i in r.index)}]" if r.index else name


def _index(i: n.Expr | n.Span) -> str:
    if isinstance(i, n.Span):
        extent = str(i.extent) if isinstance(i.extent, int) else _at(i.extent, 6)
        step = "" if i.step == 1 else f" step {i.step if isinstance(i.step, int) else _at(i.step, 6)}"
        return f"{_at(i.lo, 6)} +: {extent}{step}"
    return expr_text(i)


def layout_text(layout: n.Layout) -> str:
    """A term of the layout algebra."""
    def arg(a: int | str | n.Layout | tuple[int, ...]) -> str:
        match a:
            case n.Layout():
                return layout_text(a)
            case tuple():
                return "[" + ", ".join(map(str, a)) + "]"
            case str():
                return json.dumps(a)
            case _:
                return str(a)
    return layout.name + (f"({', '.join(map(arg, layout.args))})" if layout.args else "")


def buffer_type_text(b: n.Buffer) -> str:
    """dtype, shape, layout, strides and alignment of a buffer."""
    out = dtype_text(b.dtype) + (f"[{', '.join(map(expr_text, b.shape))}]" if b.shape else "")
    out += f" layout {layout_text(b.layout)}" if b.layout else ""
    out += f" strides [{', '.join(map(expr_text, b.strides))}]" if b.strides else ""
    return out + (f" align {b.align}" if b.align else "")


def stmt_lines(s: n.Stmt, depth: int = 0) -> Iterator[str]:
    """The lines of a statement, indented by two blanks a level."""
    pad = "  " * depth
    head = pad + (f"@{name_text(s.label)} " if s.label else "")
    match s:
        case n.Let():
            yield f"{head}let {', '.join(map(name_text, s.names))} = {expr_text(s.value)}"
        case n.Alloc():
            init = f" = {expr_text(s.init)}" if s.init is not None else ""
            yield f"{head}{s.buffer.space} {name_text(s.buffer.name)}: {buffer_type_text(s.buffer)}{init}"
        case n.View():
            axes = f"({', '.join(map(name_text, s.axes))})" if s.axes else ""
            fill = f" fill {expr_text(s.fill)}" if s.fill is not None else ""
            yield f"{head}view {s.buffer.space} {name_text(s.buffer.name)}{axes}: {buffer_type_text(s.buffer)} at {region_text(s.at)}{fill}"
        case n.Store():
            yield f"{head}{region_text(s.at)} = {expr_text(s.value)}{_options(s.mask, s.clip, s.cache)}"
        case n.Copy():
            via = f" via {s.via}" if s.via != "plain" else ""
            signal = f" signal {region_text(s.signal)}" if s.signal is not None else ""
            yield (f"{head}copy {expr_text(s.src)} -> {region_text(s.dst)}{via}{_options(s.mask, s.clip, '')}{signal}"
                   f"{' grouped' if s.grouped else ''}{attrs_text(s.attrs)}")
        case n.Mma():
            via = f" via {name_text(s.via)}" if s.via != "auto" else ""
            precision = f" precision {_precision(s.precision)}" if s.precision != "ieee" else ""
            yield (f"{head}mma {region_text(s.acc)} += {_at(s.a, _UNARY)} * {_at(s.b, _UNARY)}{via}{precision}"
                   f"{' pending' if s.pending else ''}{attrs_text(s.attrs)}")
        case n.Eval():
            yield head + expr_text(s.call)
        case n.For():
            dtype = "" if s.var.of == I32 else f": {type_text(s.var.of)}"
            step = f" step {_at(s.step, 6)}" if not (isinstance(s.step, n.Const) and s.step.value == 1) else ""
            kind = "" if s.kind == "serial" else f" parallel {s.kind}" if s.kind in ("warpgroup", "warp", "thread") else f" {s.kind}"
            yield f"{head}for {name_text(s.var.name)}{dtype} in {_at(s.lo, 6)}..{_at(s.hi, 6)}{step}{kind}{attrs_text(s.attrs)}"
            yield from block_lines(s.body, depth + 1)
        case n.If():
            yield f"{head}{'static ' if s.static else ''}if {expr_text(s.cond)}"
            yield from block_lines(s.then, depth + 1)
            if s.orelse:
                yield f"{pad}else"
                yield from block_lines(s.orelse, depth + 1)
        case n.While():
            yield f"{head}while {expr_text(s.cond)}"
            yield from block_lines(s.body, depth + 1)
        case n.Jump():
            yield f"{head}{s.kind}" + (" " + ", ".join(map(expr_text, s.values)) if s.values else "")
        case n.Roles():
            yield f"{head}roles"
            for r in s.roles:
                registers = f" registers {r.registers}" if r.registers else ""
                yield f"{pad}  role {name_text(r.name)} warps {r.lo}..{r.hi}{registers}"
                yield from block_lines(r.body, depth + 2)
        case n.Opaque():
            yield (f"{head}opaque {s.surface} reads {_names(s.reads)} writes {_names(s.writes)} because {json.dumps(s.reason)} "
                   f"text {json.dumps(s.text)}")
        case n.Hole():
            reads = f" reads {', '.join(map(region_text, s.reads))}" if s.reads else ""
            writes = f" writes {', '.join(map(region_text, s.writes))}" if s.writes else ""
            yield f"{head}hole {name_text(s.name)} contract {json.dumps(s.contract)}{reads}{writes}{attrs_text(s.attrs)}"
        case _:
            raise TypeError(f"no text for {type(s).__name__}")



def _names(names: tuple[str, ...]) -> str:
    return "nothing" if not names else ", ".join("*" if x == "*" else name_text(x) for x in names)


def block_lines(block: n.Block, depth: int) -> Iterator[str]:
    """The lines of a block; an empty one is `pass`."""
    if not block:
        yield "  " * depth + "pass"
    for s in block:
        yield from stmt_lines(s, depth)


def _header_lines(p: n.Program) -> Iterator[str]:
    for m in p.metas:
        default = "" if m.default is None else f" = {json.dumps(m.default) if isinstance(m.default, str) else attr_text(m.default)}"
        yield f"meta {name_text(m.name)}: {m.kind}{default}"
    for q in p.params:
        of = buffer_type_text(q.of) if isinstance(q.of, n.Buffer) else dtype_text(q.of)
        value = f" = {expr_text(q.value)}" if q.value is not None else ""
        space = f"{q.of.space} " if isinstance(q.of, n.Buffer) and q.of.space != "global" else ""
        yield f"{q.role} {space}{name_text(q.name)}: {of}{value}{attrs_text(q.attrs)}"
    for s in p.structs:
        yield f"struct {name_text(s.name)} " + ", ".join(f"{name_text(k)}: {type_text(t)}" for k, t in s.fields)
    for f in p.facts:
        yield f"fact {expr_text(f)}"
    for w in p.workspaces:
        init = f" = {expr_text(w.init)}" if w.init is not None else ""
        yield f"workspace {name_text(w.buffer.name)}: {buffer_type_text(w.buffer)}{init}"
    for t in p.tensor_maps:
        yield f"map {name_text(t.name)} of {name_text(t.of)} box [{', '.join(map(str, t.box))}]{attrs_text(t.attrs)}"


def kernel_lines(k: n.Kernel) -> Iterator[str]:
    """The lines of a kernel."""
    grid = ", ".join(f"{name_text(a.name)}: {expr_text(a.extent)}" for a in k.grid)
    cluster = f" cluster ({', '.join(map(str, k.cluster))})" if k.cluster else ""
    label = f"@{name_text(k.label)} " if k.label else ""
    yield f"{label}kernel {name_text(k.name)} grid ({grid}) threads {expr_text(k.threads)}{cluster}{attrs_text(k.attrs)}"
    yield from block_lines(k.body, 1)


def _function_lines(f: n.Function) -> Iterator[str]:
    def param(x: n.Var | n.Buffer) -> str:
        if isinstance(x, n.Buffer):
            return f"{x.space} {name_text(x.name)}: {buffer_type_text(x)}"
        return f"{name_text(x.name)}: {type_text(x.of)}"
    params = [param(x) for x in f.params]
    results = " -> " + ", ".join(map(type_text, f.results)) if f.results else ""
    yield f"function {name_text(f.name)}({', '.join(params)}){results}"
    yield from block_lines(f.body, 1)


def _plan_lines(steps: tuple[n.Launch | n.Dispatch, ...], depth: int) -> Iterator[str]:
    pad = "  " * depth
    for s in steps:
        if isinstance(s, n.Launch):
            yield f"{pad}launch {name_text(s.kernel)}{attrs_text(s.attrs)}"
            continue
        yield f"{pad}dispatch"
        for guard, arm in s.arms:
            yield f"{pad}  when {expr_text(guard)}"
            yield from _plan_lines(arm, depth + 2)
        if s.orelse:
            yield f"{pad}  else"
            yield from _plan_lines(s.orelse, depth + 2)


def program_text(p: n.Program) -> str:
    """The whole program, ending in a newline; cached on the node."""
    cached = p.__dict__.get("_text")
    if cached is None:
        cached = p.__dict__["_text"] = _program_text(p)
    return str(cached)


def _program_text(p: n.Program) -> str:
    lines = [f"kir {SCHEMA}", f"program {name_text(p.name)}"]
    lines += ["  " + line for line in _header_lines(p)]
    for f in p.functions:
        lines += _function_lines(f)
    for k in p.kernels:
        lines += kernel_lines(k)
    if p.plan:
        lines += ["plan", *_plan_lines(p.plan, 1)]
    return "\n".join(lines) + "\n"
