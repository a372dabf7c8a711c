"""Static conditions as dtype terms name them (`kir.ir.dtype_terms`)."""

from __future__ import annotations

import re

from kir.ir import nodes as n
from kir.ir.types import BOOL, mention


def condition_term(e: n.Expr) -> str:
    """A static condition in the functional notation of dtype terms. Raises ValueError for one that has none."""
    match e:
        case n.Var():
            return mention(e.name)
        case n.Const():
            return str(e.value).lower()
        case n.Cast():
            return condition_term(e.x)
        case n.Unary():
            return f"{e.op}({condition_term(e.x)})"
        case n.Binary(op="and" | "or") if e.type != BOOL:
            return f"bits_{e.op}({condition_term(e.a)},{condition_term(e.b)})"
        case n.Binary():
            return f"{e.op}({condition_term(e.a)},{condition_term(e.b)})"
        case n.Select():
            return f"select({condition_term(e.cond)},{condition_term(e.a)},{condition_term(e.b)})"
        case n.Call(fn="meta_is", args=(n.Var(name=name),), attrs=((_, value),)) if re.fullmatch(r"[\w.]+", str(value)):
            return f"is({name},{value})"
        case n.Call(fn="dtype_is"):
            named = dict(e.attrs)
            return f"dtype_is({named['a']},{named['b']})"
        case n.Call(fn="meta_true", args=(n.Var(name=name),)):
            return f"true({name})"
        case n.Call(fn="dtype_kind"):
            named = dict(e.attrs)
            return f"dtype_kind({named['term']},{named['kind']})"
        case n.Call(fn="absent"):
            return f"absent({dict(e.attrs)['param']})"
        case _:
            raise ValueError("a type that depends on a condition of unusual form")
