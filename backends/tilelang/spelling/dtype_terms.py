"""What only a binding decides, as Python of the factory: dtypes that depend on others, and questions about metas."""
from __future__ import annotations

import re
from collections.abc import Mapping

from kir.ir.types import DTYPES, mention

_TOKEN = re.compile(r"\s*([^(),\s]+|[(),])")
_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_JOINED = {"and": "and", "or": "or", "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"}
_CALLED = {"min": "min", "max": "max", "ceildiv": "tilelang.cdiv"}


class NoTerm(Exception):
    """A term that Python in a factory cannot say."""


def is_compound(term: str) -> bool:
    """Whether a dtype is worked out from others."""
    return "(" in term


def term_text(text: str, names: Mapping[str, str], dtypes: Mapping[str, str]) -> str:
    """A term in functional notation (`kir/ir/dtype_terms.py`) as an expression. `names` are keyed as terms mention them; those of metas that are numbers
    begin with `=`, which stands for the dtype of that number. Raises NoTerm."""
    tokens = list(_TOKEN.findall(text))
    made, rest = _term(tokens, names, dtypes)
    if rest:
        raise NoTerm(text)
    return made


def _term(tokens: list[str], names: Mapping[str, str], dtypes: Mapping[str, str]) -> tuple[str, list[str]]:
    if not tokens:
        raise NoTerm("")
    head, rest = tokens[0], tokens[1:]
    if not rest or rest[0] != "(":
        return _leaf(head, names, dtypes), rest
    if head in ("is", "meta_is"):
        what, _, value, close, *rest = rest[1:]
        if close != ")":
            raise NoTerm(head)
        return asked(_value(names.get(mention(what), what)), value), rest
    if head in ("true", "meta_true") and len(rest) > 2 and rest[2] == ")":
        return _value(names.get(mention(rest[1]), rest[1])), rest[3:]
    args, rest = [], rest[1:]
    while rest and rest[0] != ")":
        made, rest = _term(rest, names, dtypes)
        args.append(made)
        if rest and rest[0] == ",":
            rest = rest[1:]
    rest = rest[1:]
    match head, args:
        case "promote", [_, _, *_]:
            return f"({' + '.join(_number(x) for x in args)}).dtype", rest
        case "select", [_, a, b] if "=" in (a[0], b[0]):
            raise NoTerm(head)
        case "select", [cond, a, b]:
            return f"({a} if {cond} else {b})", rest
        case "not", [a]:
            return f"(not {a})", rest
        case ("true" | "meta_true"), [a]:
            return a, rest
        case "dtype_is", [a, b]:
            return f"({a} == {b})", rest
        case _, [a, b] if head in _CALLED:
            return f"{_CALLED[head]}({_value(a)}, {_value(b)})", rest
        case _, [a, b] if head in _COMPARED or head in _JOINED:
            return f"({_value(a)} {_COMPARED.get(head) or _JOINED[head]} {_value(b)})", rest
        case _:
            raise NoTerm(head)


def _value(text: str) -> str:
    """A number itself, where it stands for its dtype."""
    return text.removeprefix("=")


def _number(dtype: str) -> str:
    """A number of a dtype that is written as an expression."""
    if dtype.startswith("="):
        return dtype[1:]
    return dtype.removesuffix(".dtype") if dtype.endswith(").dtype") else f"T.Cast({dtype}, 0)"


def _leaf(word: str, names: Mapping[str, str], dtypes: Mapping[str, str]) -> str:
    if word in names:
        return names[word]
    if word in DTYPES and word in dtypes:
        return f'"{dtypes[word]}"'
    if re.fullmatch(r"-?\d+", word):
        return word
    raise NoTerm(word)


def asked(name: str, value: str) -> str:
    """Whether a meta is a value that is given as text."""
    if value in ("None", "True", "False"):
        return f"{name} is {value}" if value == "None" else f"{name} == {value}"
    if re.fullmatch(r"-?\d+(\.\d+)?", value):
        return f"{name} == {value}"
    return f"{name} == {value!r}"
