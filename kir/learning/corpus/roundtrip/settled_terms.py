"""Dtype terms of a program without the names that were given to them, so that two programs that say the same of a dtype say it alike."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from hashlib import sha256
from typing import Any

from kir.ir import nodes as n
from kir.ir.dtype_terms import TOKEN, join, quotient, with_float, with_int
from kir.ir.types import DTYPES, DType, PointerType, TileType, TupleType, Type, dtype_of, symbolic
from kir.ir.visit import transform

_OF_ONE: dict[str, Callable[[DType], DType]] = {"quotient": quotient, "with_float": with_float, "with_int": with_int}


def _dtype(term: str) -> DType:
    return DTYPES.get(term) or symbolic(term)


class Terms:
    """Dtype terms without names of their own: a name stands for its definition, by a short digest, and joins are in order."""

    def __init__(self, derived: dict[str, str]) -> None:
        self.derived = derived
        self._known: dict[str, str] = {}

    def text(self, term: str) -> str:
        if term in self._known:
            return self._known[term]
        if term in self.derived:
            made = f"t{sha256(self.text(self.derived[term]).encode()).hexdigest()[:16]}"
        else:
            made = self._tree(TOKEN.findall(term))
        self._known[term] = made
        return made

    def _tree(self, tokens: list[str]) -> str:
        if len(tokens) == 1:
            return self.text(tokens[0]) if tokens[0] in self.derived else tokens[0]
        parts: list[list[str]] = [[]]
        depth = 0
        for token in tokens[2:-1]:
            depth += (token == "(") - (token == ")")
            if token == "," and depth == 0:
                parts.append([])
            else:
                parts[-1].append(token)
        inner = [self._tree(x) for x in parts if x]
        if tokens[0] == "dtype_is":
            inner.sort()
        if tokens[0] == "join":
            return reduce(join, map(_dtype, inner)).name
        if tokens[0] in _OF_ONE and len(inner) == 1:
            return _OF_ONE[tokens[0]](_dtype(inner[0])).name
        return f"{tokens[0]}({','.join(inner)})"

    def dtype(self, d: DType) -> DType:
        return symbolic(self.text(d.name)) if d.is_symbolic else d

    def type(self, t: Type) -> Type:
        match t:
            case DType():
                return self.dtype(t)
            case TileType():
                return TileType(self.dtype(t.dtype), tuple(d if isinstance(d, int) else self.program(d) for d in t.shape))
            case PointerType():
                return PointerType(self.dtype(t.dtype), t.space)
            case TupleType():
                return TupleType(tuple(self.type(e) for e in t.elements))  # type: ignore[misc]  # elements stay what they are
            case _:
                return t

    def program(self, item: Any) -> Any:
        """Any node with its dtypes settled."""
        def leave(old: n.Node, new: n.Node) -> n.Node:
            match new:
                case n.Var():
                    return n.Var(new.name, self.type(new.of))
                case n.Const():
                    return n.Const(new.value, self.dtype(new.dtype))
                case n.Cast():
                    dtype = self.dtype(new.dtype)
                    return new.x if dtype.is_symbolic and dtype_of(new.x.type) == dtype else replace(new, dtype=dtype)
                case n.Buffer():
                    return replace(new, dtype=self.dtype(new.dtype))
                case n.Param() if isinstance(new.of, DType):
                    return replace(new, of=self.dtype(new.of))
                case n.Function():
                    return replace(new, results=tuple(self.type(t) for t in new.results))
                case n.Call(fn="dtype_is"):
                    a, b = sorted(self.text(str(dict(new.attrs)[k])) for k in "ab")
                    return replace(new, attrs=n.attrs(a=a, b=b))
                case n.Call(fn="dtype_kind" | "dtype_bits"):
                    return replace(new, attrs=n.attrs(**{**dict(new.attrs), "term": self.text(str(dict(new.attrs)["term"]))}))
                case n.Call() if new.of is not None:
                    return replace(new, of=self.type(new.of))
                case _:
                    return new
        return transform(item, leave)
