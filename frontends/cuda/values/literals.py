"""Literals of the source."""

from __future__ import annotations

import re

from kir.ir import build
from kir.ir.types import F32, F64, I8, I32, I64, U32, U64

from ..source.source import Node
from ..source.syntax import text
from ..symbols.symbols import Scope, Value
from ..types.errors import NotUnderstood
from ..types.number_conversions import converted
from .reading import Reading
from .values import Scalar, Text

MOST_DIGITS = 4000
"""Digits of a number that is read: Python refuses longer ones."""


def number(r: Reading, node: Node, scope: Scope) -> Value:
    """A number, with the type that its suffix gives it."""
    word = text(node).replace("'", "")
    if word[:1] in "+-":
        v = _positive(word[1:].strip(), node)
        return Scalar(build.negate(v.expr)) if word[0] == "-" else v
    return _positive(word, node)


def _positive(word: str, node: Node) -> Scalar:
    is_hex = word[:2].lower() == "0x"
    if re.search(r"[.pP]" if is_hex else r"[.eE]", word):
        suffix = re.search(r"(bf16|f16|[fFlL])$", word)
        body = word[: suffix.start()] if suffix and not (is_hex and "p" not in word.lower()) else word
        number = float.fromhex(body) if is_hex else float(body)
        single = suffix is not None and suffix[0] in ("f", "F")
        if single:
            return Scalar(converted(build.const(number, F64), F32))
        return Scalar(build.const(number, F64))
    m = re.fullmatch(r"(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)([uUlLzZ]*)", word)
    if m is None:
        raise NotUnderstood(f"the number {word}", node)
    digits, suffix_ = m[1], m[2].lower()
    if len(digits) > MOST_DIGITS:
        raise NotUnderstood(f"a number of {len(digits):,} digits", node)
    octal = re.fullmatch(r"0[0-7]+", digits)
    n_ = int(digits, 8) if octal else int(digits, 0)
    wide = "l" in suffix_ or "z" in suffix_
    unsigned = "u" in suffix_
    decimal = digits[:2].lower() not in ("0x", "0b") and not octal
    if unsigned:
        dtype = U64 if wide or n_ >= 1 << 32 else U32
    elif not wide and n_ < 1 << 31:
        dtype = I32
    elif not wide and not decimal and n_ < 1 << 32:
        dtype = U32
    else:
        dtype = I64 if n_ < 1 << 63 else U64
    return Scalar(build.const(n_, dtype))


_ESCAPES = {"n": 10, "t": 9, "r": 13, "0": 0, "\\": 92, "'": 39, '"': 34, "a": 7, "b": 8, "f": 12, "v": 11}


def character(r: Reading, node: Node, scope: Scope) -> Value:
    """A character."""
    body = text(node).removeprefix("'").removesuffix("'")
    m = re.fullmatch(r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))|([\x20-\x7e])", body)
    if m is None or (m[3] is not None and m[3] not in _ESCAPES):
        raise NotUnderstood(f"the character '{body}'", node)
    code = int(m[1], 16) if m[1] else int(m[2], 8) if m[2] else _ESCAPES[m[3]] if m[3] else ord(m[4])
    return Scalar(build.const(code - 256 if code > 127 else code, I8))


def string(r: Reading, node: Node, scope: Scope) -> Value:
    """A text."""
    return Text(literal_text(node))


def literal_text(node: Node) -> str:
    """The characters of a string literal, adjacent pieces joined."""
    pieces = [node] if node.type in ("string_literal", "raw_string_literal") else node.named_children
    out = []
    for p in pieces:
        if p.type == "raw_string_literal":
            out.append(re.sub(r'^R"[^(]*\((.*)\)[^)]*"$', r"\1", text(p), flags=re.DOTALL))
        else:
            out.append(re.sub(r"\\(n|t|r|\\|\"|')", lambda m: chr(_ESCAPES[m[1]]), text(p).strip()[1:-1]))
    return "".join(out)
