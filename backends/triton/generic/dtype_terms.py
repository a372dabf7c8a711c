"""Symbolic dtypes and static conditions of generic programs as Triton expressions.

A dtype term has no name in Triton, but an expression of that dtype has: `join(A,B)` is `(tl.zeros((1,), A) + tl.zeros((1,), B)).dtype`. Such
expressions are worked out while the kernel is compiled and leave no code behind.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.dtype_terms import TOKEN
from kir.ir.types import I32, I64, DType, mention

from ..tiles.expressions import DTYPES, refuse

_ZERO, _TILE = "tl.zeros((1,), {0})", "tl.zeros((32, 32), {0})"
_OF_NUMBER = "tl.core.to_tensor({0}).dtype"
_OF_ONE: Mapping[str, str] = {
    "quotient": f"({_ZERO} / {_ZERO}).dtype", "with_int": f"({_ZERO} + 1).dtype", "with_float": f"({_ZERO} + 1.0).dtype",
    "widened": f"tl.max({_ZERO}, 0).dtype", "summed": f"tl.sum({_ZERO}, 0).dtype", "accumulated": f"tl.dot({_TILE}, {_TILE}).dtype",
    "rounded": f"tl.maximum({_ZERO}, {_ZERO}).dtype", "unhalved": f"({_ZERO} % {_ZERO}).dtype",
    "int_like": "tl.core.get_int_dtype({0}.primitive_bitwidth, True)", "uint_like": "tl.core.get_int_dtype({0}.primitive_bitwidth, False)",
}
QUESTIONS: Mapping[str, str] = {
    "float": "is_floating", "integer": "is_int", "int": "is_int_signed", "uint": "is_int_unsigned", "bool": "is_bool", "f16": "is_fp16",
    "bf16": "is_bf16", "f32": "is_fp32", "f64": "is_fp64", "f8": "is_fp8", "standard": "is_standard_floating", "f8e4m3": "is_fp8e4nv",
    "f8e5m2": "is_fp8e5", "f8e4m3fnuz": "is_fp8e4b8", **{f"i{k}": f"is_int{k}" for k in (8, 16, 32, 64)}, **{f"u{k}": f"is_uint{k}" for k in (8, 16, 32, 64)},
}
"""Kinds of dtypes, as `dtype_kind` asks for them, by the method of a Triton dtype."""
_INFIX = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "and", "or": "or", "add": "+", "sub": "-", "mul": "*",
          "floordiv": "//", "mod": "%", "bits_and": "&", "bits_or": "|", "xor": "^", "shl": "<<", "shr": ">>"}


@dataclass
class Terms:
    """Spells dtypes. `roots` are the texts of what parameters are made of, `derived` the terms that metas stand for. A term that is worth
    a name gets one in the innermost block being written (`define`), and loses it when the block ends."""

    roots: Mapping[str, str]
    derived: Mapping[str, str]
    define: Callable[[str], str]
    known: list[dict[str, str]] = field(default_factory=lambda: [{}])
    optional: frozenset[str] = frozenset()
    """Parameters that a caller may leave out."""

    def text(self, d: DType) -> str:
        """A dtype as an atom. Raises KirError KIR-B004 for one that has no spelling."""
        if not d.is_symbolic:
            if d.name not in DTYPES:
                raise refuse("KIR-B004", f"Triton has no dtype {d.name}")
            return f"tl.{DTYPES[d.name]}"
        return self._named(d.name)

    def constant(self, d: DType) -> str:
        """The dtype of a constant, which may stand where the argument with that dtype is left out."""
        return self._part(d.name) if d.is_symbolic else self.text(d)

    def condition(self, text: str) -> str:
        """A static condition in functional notation, as Python."""
        return _Reader(self, text).condition()

    def _part(self, term: str) -> str:
        """A dtype within a term. That of an argument that is left out is no matter, but must not fail."""
        made = self._named(term)
        return f"({made} if {term} is not None else tl.float32)" if term in self.optional else made

    def _beside(self, own: str, other: str) -> str:
        """The dtype of a value beside a literal, which is a meta or made of some."""
        zero = _ZERO.format(self._part(other))
        meta = own.removeprefix("%")
        if own in self.roots and self.roots[own] == _OF_NUMBER.format(meta):
            made = f"({zero} + {meta}).dtype"
            return f"({made} if {meta} is not None else tl.float32)" if own in self.optional else made
        return f"(({zero} + 1.0) if {self._part(own)}.is_floating() else ({zero} + 1)).dtype"

    def _named(self, term: str) -> str:
        if term in self.roots:
            return self.roots[term]
        if term in DTYPES:
            return f"tl.{DTYPES[term]}"
        for level in self.known:
            if term in level:
                return level[term]
        shown = _Reader(self, self.derived.get(term, term)).dtype()
        made = self.define(shown)
        self.known[-1][term] = made
        return made


class _Reader:
    def __init__(self, terms: Terms, text: str) -> None:
        self.terms, self.source = terms, text
        self.tokens = TOKEN.findall(text)
        self.at = 0

    def take(self) -> str:
        if self.at >= len(self.tokens):
            raise refuse("KIR-B004", f"the dtype term '{self.source}' ends too early")
        self.at += 1
        return str(self.tokens[self.at - 1])

    def peek(self) -> str:
        return str(self.tokens[self.at]) if self.at < len(self.tokens) else ""

    def term(self) -> str:
        """The text of the term that starts here."""
        start = self.at
        self.take()
        if self.peek() == "(":
            depth = 0
            while True:
                token = self.take()
                depth += (token == "(") - (token == ")")
                if depth == 0:
                    break
        return "".join(self.tokens[start:self.at])

    def terms_until_end(self) -> list[str]:
        out = []
        while True:
            out.append(self.term())
            if self.take() == ")":
                return out

    def dtype(self) -> str:
        name = self.take()
        if self.peek() != "(":
            return self.terms._named(name)
        self.take()
        if name == "select":
            cond = self.condition()
            self.take()
            a, b = self.terms_until_end()
            return f"({self.terms._part(a)} if {cond} else {self.terms._part(b)})"
        inner = self.terms_until_end()
        if name == "beside" and len(inner) == 2:
            return self.terms._beside(inner[0], inner[1])
        parts = [self.terms._part(t) for t in inner]
        if name in _OF_ONE and len(parts) == 1:
            return _OF_ONE[name].format(parts[0])
        if name == "join":
            return "(" + " + ".join(_ZERO.format(p) for p in parts) + ").dtype"
        raise refuse("KIR-B004", f"the dtype '{self.source}' has no spelling in Triton")

    def condition(self) -> str:
        name = self.take()
        if self.peek() != "(":
            return {"true": "True", "false": "False"}.get(name, name.removeprefix("%"))
        self.take()
        if name in ("is", "true", "absent", "dtype_is", "dtype_kind"):
            parts = self.terms_until_end()
            match name, parts:
                case "is", [meta, value]:
                    return f"({meta} is None)" if value == "None" else f'({meta} == "{value}")'
                case "true", [meta]:
                    return meta
                case "absent", [param]:
                    return f"({param} is None)"
                case "dtype_is", [a, b]:
                    return f"({self.terms._named(a)} == {self.terms._named(b)})"
                case "dtype_kind", [term, kind]:
                    return f"{self.terms._named(term)}.{QUESTIONS[kind]}()"
        args = [self.condition()]
        while self.take() == ",":
            args.append(self.condition())
        if name == "not":
            return f"(not {args[0]})"
        if name == "neg":
            return f"(-{args[0]})"
        if name in _INFIX and len(args) == 2:
            return f"({args[0]} {_INFIX[name]} {args[1]})"
        raise refuse("KIR-B004", f"the condition '{self.source}' has no spelling in Triton")


def select_arms(term: str) -> tuple[str, str] | None:
    """The dtypes between which a `select` term chooses."""
    tokens = TOKEN.findall(term)
    if tokens[:2] != ["select", "("]:
        return None
    parts: list[str] = [""]
    depth = 0
    for token in tokens[2:-1]:
        depth += (token == "(") - (token == ")")
        if token == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += token
    return (parts[1], parts[2]) if len(parts) == 3 else None


def roots_of(p: n.Program) -> dict[str, str]:
    """How the dtypes of parameters and the metas that are dtypes are spelled."""
    out = {}
    for q in p.params:
        if isinstance(q.of, n.Buffer):
            out[mention(q.name)] = f"{q.name}.dtype" if is_descriptor(q.of) else f"{q.name}.dtype.element_ty"
        elif q.of.is_symbolic:
            out[mention(q.name)] = _OF_NUMBER.format(q.name)  # an argument that is 1 has no dtype of its own
    for m in p.metas:
        if m.kind == "dtype" and not is_derived(m):
            out[mention(m.name)] = m.name
        elif m.kind == "any":
            out[mention(m.name)] = _OF_NUMBER.format(m.name)
    return out


def is_descriptor(b: n.Buffer) -> bool:
    """Whether a parameter of a generic program that `is_readable` is a tensor descriptor, or a tile that a helper is given."""
    return bool(b.shape) and (b.space == "fragment" or (isinstance(b.shape[0], n.Var) and b.shape[0].of == I32))


def is_flat(b: n.Buffer) -> bool:
    """Whether a parameter of a generic program that `is_readable` is a pointer, whose extent nothing knows."""
    return len(b.shape) == 1 and isinstance(b.shape[0], n.Var) and b.shape[0].of == I64


def is_all_memory(q: n.Param) -> bool:
    """Whether a parameter stands for all memory, at whose addresses a kernel works that makes them of integers; its callers do not give it."""
    return bool(dict(q.attrs).get("addressed"))


def address_of(q: n.Param) -> str:
    """The tensor whose address a parameter is, which its callers do not give either; "" for any other."""
    return str(dict(q.attrs).get("address", ""))


def is_readable(q: n.Param, p: n.Program) -> bool:
    """Whether a tensor is one as this surface's frontend reads it: each extent is a name of its own that the source does not have."""
    assert isinstance(q.of, n.Buffer)
    own = {x.name for x in (p.metas if q.of.space == "fragment" else p.params) if isinstance(x, n.Meta) or dict(x.attrs).get("implicit")}
    shape = [d.name if isinstance(d, n.Var) else "" for d in q.of.shape if not (q.of.space == "fragment" and isinstance(d, n.Const))]
    return bool(q.of.shape) and q.of.strides is None and set(shape) <= own and len(set(shape)) == len(shape) and (is_flat(q.of) or is_descriptor(q.of))


def block_of(q: n.Param) -> tuple[str, ...]:
    """The metas that are the block of a descriptor, or the shape of a tile."""
    assert isinstance(q.of, n.Buffer)
    said = dict(q.attrs)
    if q.of.space == "fragment":
        return tuple(d.name for d in q.of.shape if isinstance(d, n.Var))
    return tuple(str(said.get(f"block_{i}", f"{q.name}_block_{i}")) for i in range(len(q.of.shape)))


def is_derived(m: n.Meta) -> bool:
    """Whether a meta only names a dtype term."""
    return m.kind == "dtype" and isinstance(m.default, str) and "(" in m.default
