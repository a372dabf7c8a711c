"""Device functions that wrap one PTX instruction: `T out; asm("op %0, %1;" : "=f"(out) : "f"(x)); return out;`.

Such a function is an expression: its call stands where its result is used, like a call of CUDA's own functions, and gives nothing a name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DTYPES, U32, U64, DType, dtype_of
from kir.ir.visit import substitute, walk
from kir.surface.ptx import AsmOperand, read_asm

from ..source.source import Node
from ..source.syntax import declared_name, text
from ..symbols.symbols import Bindings, Function, Scope, Value
from ..types.c_types import Prim
from ..types.errors import NotUnderstood
from ..types.number_conversions import converted
from ..values.conversions import convert
from ..values.literals import literal_text
from ..values.loads import rvalue
from ..values.reading import Reading
from ..values.values import Scalar, constant

FLOAT_BITS = {"__uint_as_float": "f32", "__int_as_float": "f32", "__float_as_uint": "u32", "__float_as_int": "i32"}
"""Functions that give the bits of a number another type."""
TF32 = "unsignedbits;memcpy(&bits,&x,4);if((bits&0x7f800000u)!=0x7f800000u)bits=(bits+0xfffu+(bits>>13&1u))&0xffffe000u;memcpy(&x,&bits,4);returnx;"
"""A function that rounds to tf32, without spaces."""


def wrapped(r: Reading, f: Function, bindings: Bindings, args: list[Value]) -> Scalar | None:
    """What a call of such a function gives; None for other functions."""
    kept = [c for c in f.body.named_children if c.type not in ("static_assert_declaration", "comment")] if f.body is not None else []
    if [c.type for c in kept] != ["declaration", "expression_statement", "return_statement"] or len(args) != len(f.parameters()):
        return None
    declared, (asm, *_), (given, *_) = kept[0], kept[1].named_children or [kept[1]], kept[2].named_children or [kept[2]]
    if asm.type != "gnu_asm_expression" or any(c.type == "gnu_asm_qualifier" for c in asm.children):
        return None
    scope = f.scope.inner(**bindings)
    names = declared.children_by_field_name("declarator")
    if len(names) != 1 or names[0].type != "identifier":
        return None
    kind, _ = r.types.declared_type(declared, names[0], scope)
    known = _arguments(r, f, args, scope)
    if known is None or not isinstance(kind, Prim):
        return None
    made = _instruction(r, asm, text(names[0]), kind.dtype, known, f, scope)
    return _bits(r, given, {text(names[0]): made}, scope) if made is not None else None


def _arguments(r: Reading, f: Function, args: list[Value], scope: Scope) -> dict[str, n.Expr] | None:
    """The numbers that a function is called with, by the names of its parameters."""
    out: dict[str, n.Expr] = {}
    for p, a in zip(f.parameters(), args, strict=True):
        d = p.child_by_field_name("declarator")
        name = declared_name(d) if d is not None else None
        kind, reference = r.types.declared_type(p, d, scope)
        if name is None or reference or not isinstance(kind, Prim):
            return None
        v = convert(r, a, kind)
        if not isinstance(v, Scalar):
            return None
        out[text(name)] = v.expr
    return out


def _instruction(r: Reading, asm: Node, result: str, dtype: DType, known: dict[str, n.Expr], f: Function, scope: Scope) -> n.Expr | None:
    """The value of the output of an asm with inputs that are each of the parameters once."""
    code, outputs, inputs = (asm.child_by_field_name(k) for k in ("assembly_code", "output_operands", "input_operands"))
    outs = [o for o in outputs.named_children if o.type == "gnu_asm_output_operand"] if outputs is not None else []
    ins = [o for o in inputs.named_children if o.type == "gnu_asm_input_operand"] if inputs is not None else []
    if code is None or len(outs) != 1 or len(ins) != len(known):
        return None
    mark, to = outs[0].child_by_field_name("constraint"), outs[0].child_by_field_name("value")
    if mark is None or to is None or not text(mark).strip('"').startswith("=") or text(to) != result:
        return None
    operands = [AsmOperand(text(mark).strip('"'), None, dtype)]
    used: list[str] = []
    for o in ins:
        how, e = o.child_by_field_name("constraint"), o.child_by_field_name("value")
        v = _bits(r, e, known, scope) if e is not None else None
        if how is None or e is None or v is None:
            return None
        used += [x for x in known if any(c == x for c in _words(e))]
        operands.append(AsmOperand(text(how).strip('"'), v.expr))
    if sorted(used) != sorted(known):
        return None
    try:
        meaning = read_asm(literal_text(code), operands, r.m.fresh, {}, f.unit.origin(asm))
    except KirError:
        return None
    value = meaning.outputs[0]
    for s in reversed(meaning.statements):
        if not isinstance(s, n.Let) or len(s.names) != 1 or value is None or sum(isinstance(x, n.Var) and x.name == s.names[0] for x in walk(value)) > 1:
            return None
        value = substitute(value, {s.names[0]: s.value})
    return value


def _words(e: Node) -> list[str]:
    out, stack = [], [e]
    while stack:
        top = stack.pop()
        if top.type == "identifier":
            out.append(text(top))
        stack += top.named_children
    return out


def _bits(r: Reading, e: Node, known: dict[str, n.Expr], scope: Scope) -> Scalar | None:
    """A name, or its bits as a number of another type."""
    if e.type == "identifier":
        return Scalar(known[text(e)]) if text(e) in known else None
    if e.type != "call_expression":
        return None
    fn, listed = e.child_by_field_name("function"), e.child_by_field_name("arguments")
    inner = [a for a in listed.named_children if a.type != "comment"] if listed is not None else []
    if fn is None or len(inner) != 1 or inner[0].type != "identifier" or text(inner[0]) not in known:
        return None
    value, to = known[text(inner[0])], None
    if text(fn) in FLOAT_BITS:
        to = DTYPES[FLOAT_BITS[text(fn)]]
    elif fn.type == "template_function" and text(fn.child_by_field_name("name") or fn) == "reinterpret_cast":
        listed = fn.child_by_field_name("arguments")
        target = [c for c in listed.named_children if c.type == "type_descriptor"] if listed is not None else []
        if len(target) == 1 and text(target[0]).rstrip().endswith("&"):
            inside = target[0].child_by_field_name("type")
            try:
                found = r.types.base_type(inside, scope) if inside is not None else None
            except NotUnderstood:
                return None
            to = found.dtype if isinstance(found, Prim) else None
    if to is None or dtype_of(value.type).bits != to.bits:
        return None
    if isinstance(value, n.Cast) and value.rounding == "bits" and dtype_of(value.x.type) == to:
        return Scalar(value.x)
    return Scalar(build.cast(value, to, "bits"))


def rounded(r: Reading, f: Function, args: list[Value]) -> Scalar | None:
    """What a call gives of a function that rounds the bits of a float to those that tf32 has, to nearest even. None for other functions."""
    kept = [c for c in f.body.named_children if c.type not in ("static_assert_declaration", "comment")] if f.body is not None else []
    params = [declared_name(d) for p in f.parameters() if (d := p.child_by_field_name("declarator")) is not None]
    if len(kept) != 5 or kept[0].type != "declaration" or len(args) != 1 or len(params) != 1 or params[0] is None:
        return None
    name = kept[0].child_by_field_name("declarator")
    names = {params[0]: "x", text(name) if name is not None else "": "bits"}
    found = "".join(re.sub(r"[A-Za-z_]\w*", lambda word: names.get(word[0], word[0]), text(c)) for c in kept)
    value = rvalue(r, args[0])
    if "".join(found.split()) != TF32 or not isinstance(value, Scalar) or value.dtype.name != "f32":
        return None
    return Scalar(build.call("to_tf32", value.expr, rounding="rn"))


def part(r: Reading, f: Function, bindings: Bindings, args: list[Value]) -> Scalar | None:
    """What a call gives of a function that copies the i-th piece out of the bytes of a number: `T out; memcpy(&out, (const char*)&x + i *
    sizeof(T), sizeof(T)); return out;`. None for other functions."""
    kept = [c for c in f.body.named_children if c.type not in ("static_assert_declaration", "comment")] if f.body is not None else []
    params = [declared_name(d) for p in f.parameters() if (d := p.child_by_field_name("declarator")) is not None]
    if [c.type for c in kept] != ["declaration", "expression_statement", "return_statement"] or len(args) != 2 or len(params) != 2 or None in params:
        return None
    (out, *_), (x, i) = kept[0].children_by_field_name("declarator"), (text(p) for p in params if p is not None)
    to, bare = text(out), "".join(text(kept[1]).split())
    kind, _ = r.types.declared_type(kept[0], out, f.scope.inner(**bindings))
    words = text(kept[0].child_by_field_name("type") or kept[0])
    if bare != f"memcpy(&{to},reinterpret_cast<constchar*>(&{x})+{i}*sizeof({words}),sizeof({words}));" or text(kept[2]).split() != ["return", f"{to};"]:
        return None
    value, at = (rvalue(r, a) for a in args)
    if not (isinstance(kind, Prim) and isinstance(value, Scalar) and isinstance(at, Scalar)) or value.dtype.bits % kind.dtype.bits:
        return None
    return Scalar(build.call("pick", build.call("unpack", value.expr, dtype=kind.dtype.name), at.expr))


def counted_bits(r: Reading, f: Function, bindings: Bindings, args: list[Value]) -> Scalar | None:
    """What a call gives of a function that is Philox 4x32 word for word, under whatever names: a lane of it for a seed and four counters, as many rounds as
    the template says. None for other functions."""
    if f.body is None or len(args) != 5 or len(f.params or ()) != 2:
        return None
    given = [declared_name(d) for p in f.parameters() if (d := p.child_by_field_name("declarator")) is not None]
    names = [p.name for p in f.params or ()] + [text(g) for g in given if g is not None]
    if _nameless(text(f.body), names) != PHILOX:
        return None
    lane, rounds = (constant(bindings[p.name]) for p in f.params or ())
    values = [rvalue(r, a) for a in args]
    if lane is None or rounds is None or not 0 <= lane < 4 or not all(isinstance(v, Scalar) for v in values):
        return None
    dtypes = (U64, U32, U32, U32, U32)
    words = [converted(v.expr, d) for v, d in zip(values, dtypes, strict=True) if isinstance(v, Scalar)]
    return Scalar(build.call("philox", *words, lane=lane, rounds=rounds))


def _nameless(body: str, names: Sequence[str]) -> str:
    """A body without blanks, its names by their order."""
    known = {name: f"x{k}" for k, name in enumerate(names)}
    for m in re.finditer(r"(?:\bunsigned|,)\s+(\w+)(?= = )|\bint (\w+) = 0", body):
        known.setdefault(m[1] or m[2], f"x{len(known)}")
    return "".join(re.sub(r"(?<![\w#])[A-Za-z_]\w*", lambda m: known.get(m[0], m[0]), body).split())


PHILOX = (
    "{unsignedx7=static_cast<unsigned>(x2),x8=static_cast<unsigned>(x2>>32);#pragmaunrollfor(intx9=0;x9<x1;++x9){constunsignedx10=__umulhi(0xD2511F53u,x3),"
    "x11=0xD2511F53u*x3,x12=__umulhi(0xCD9E8D57u,x5),x13=0xCD9E8D57u*x5;x3=x12^x4^x7;x4=x13;x5=x10^x6^x8;x6=x11;x7+=0x9E3779B9u;x8+=0xBB67AE85u;}"
    "returnx0==0?x3:x0==1?x4:x0==2?x5:x6;}"
)
