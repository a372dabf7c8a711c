"""What callers of a program know by name, under other names: parameters, metas, workspaces and tensor maps, wherever they are mentioned."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kir.ir import nodes as n
from kir.ir.canonical import rename
from kir.ir.dtype_terms import PRECISIONS, TOKEN, precision_of
from kir.ir.names import Names
from kir.ir.printer import program_text
from kir.ir.types import DTYPES, DType, PointerType, TileType, TupleType, Type, mention, symbolic
from kir.ir.visit import transform

_ASKING = frozenset({"is", "true", "absent"})
"""Questions of a term whose first argument is a name and nothing else."""
_IN_TERMS = frozenset({"term", "a", "b"})
"""Options of a call that are terms, and `param`, which is a name."""


def called(p: n.Program, names: Mapping[str, str]) -> n.Program:
    """The program with what callers know renamed, all at once. No local name may be among the new ones."""
    if all(old == new for old, new in names.items()):
        return p
    moved = {old: new for old, new in names.items() if old != new}
    if not moved.keys().isdisjoint(moved.values()):  # two that change places, say: by way of names that nothing has
        free = Names(set(re.findall(r"\w+", program_text(p))))
        between = {old: free.fresh(f"{old}_between") for old in moved}
        return called(called(p, between), {between[old]: new for old, new in moved.items()})
    to = _Called(moved, frozenset(m.name for m in p.metas))
    made = replace(p, functions=tuple(rename(f, names) for f in p.functions), kernels=tuple(rename(k, names) for k in p.kernels),
                   params=tuple(replace(q, name=to.name(q.name), of=rename(q.of, names) if isinstance(q.of, n.Buffer) else q.of,
                                        value=None if q.value is None else rename(q.value, names), attrs=to.attrs(q.attrs)) for q in p.params),
                   facts=tuple(rename(f, names) for f in p.facts),
                   workspaces=tuple(replace(w, buffer=rename(w.buffer, names), init=None if w.init is None else rename(w.init, names)) for w in p.workspaces),
                   tensor_maps=tuple(replace(m, name=to.name(m.name), of=to.name(m.of)) for m in p.tensor_maps),
                   metas=tuple(replace(m, name=to.name(m.name), default=to.term(m.default) if m.kind == "dtype" and isinstance(m.default, str) else m.default)
                               for m in p.metas),
                   plan=tuple(rename(s, names) for s in p.plan))
    result: n.Program = transform(made, to.leave)
    return result


class _Called:
    def __init__(self, names: Mapping[str, str], metas: frozenset[str]) -> None:
        self.names, self.metas = names, metas

    def name(self, x: str) -> str:
        return self.names.get(x, x)

    def term(self, text: str) -> str:
        """A dtype term with other names in it."""
        if text in DTYPES:
            return text
        out: list[str] = []
        tokens = TOKEN.findall(text)
        for i, t in enumerate(tokens):
            bare = t.removeprefix("%")
            called_ = i + 1 < len(tokens) and tokens[i + 1] == "("
            after = tokens[i - 2] if i > 1 and tokens[i - 1] == "(" else ""
            if called_ or not (t[0] == "%" or t[0].isalpha() or t[0] == "_") or bare not in self.names:
                out.append(t)
            elif after in _ASKING:
                out.append(self.name(bare))
            elif _is_value(tokens, i) or (t in DTYPES or t in ("true", "false")):
                out.append(t)
            else:
                out.append(mention(self.name(bare)))
        return _sorted("".join(out))

    def attrs(self, attrs: n.Attrs) -> n.Attrs:
        """Options that name metas, and tensors with what is said of each."""
        return tuple((k, self.ratios(str(v)) if k == "l2_hit_ratio" else self.option(v)) for k, v in attrs)

    def ratios(self, text: str) -> str:
        """`A=0.5,B=1`: the part of each tensor's accesses that shall stay in the L2 cache."""
        pairs = (x.partition("=") for x in text.split(","))
        return ",".join(f"{self.name(name)}{sign}{ratio}" for name, sign, ratio in pairs)

    def option(self, v: n.Attr) -> n.Attr:
        return self.names.get(v, v) if isinstance(v, str) and v in self.metas else v

    def dtype(self, d: DType) -> DType:
        return symbolic(self.term(d.name)) if d.is_symbolic else d

    def type(self, t: Type) -> Type:
        match t:
            case DType():
                return self.dtype(t)
            case TileType():
                return TileType(self.dtype(t.dtype), tuple(d if isinstance(d, int) else rename(d, self.names) for d in t.shape))
            case PointerType():
                return PointerType(self.dtype(t.dtype), t.space)
            case TupleType():
                return TupleType(tuple(self.type(e) for e in t.elements))  # type: ignore[misc]  # elements stay what they are
            case _:
                return t

    def leave(self, old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Var():
                return n.Var(new.name, self.type(new.of))
            case n.Const():
                return n.Const(new.value, self.dtype(new.dtype))
            case n.Cast() | n.Buffer():
                return replace(new, dtype=self.dtype(new.dtype))
            case n.Param() if isinstance(new.of, DType):
                return replace(new, of=self.dtype(new.of))
            case n.Function():
                return replace(new, results=tuple(self.type(t) for t in new.results))
            case n.Call():
                of = None if new.of is None else self.type(new.of)
                return replace(new, of=of, attrs=tuple((k, self.asked(new.fn, k, v)) for k, v in new.attrs))
            case n.For() | n.Kernel():
                return replace(new, attrs=self.attrs(new.attrs))
            case n.Mma():
                return replace(new, precision=self.precision(new.precision))
            case _:
                return new

    def precision(self, word: str) -> str:
        meta = word.removeprefix("%")
        return precision_of(self.name(meta)) if word not in PRECISIONS and meta in self.metas else word

    def asked(self, fn: str, key: str, v: n.Attr) -> Any:
        """An option of a call."""
        if fn in ("dtype_is", "dtype_kind", "dtype_bits") and key in _IN_TERMS:
            return self.term(str(v))
        return self.name(str(v)) if fn == "absent" and key == "param" else v


def _sorted(text: str) -> str:
    """A term with the parts of each join in the order of their texts, as joins are made."""
    if "join(" not in text and "promote(" not in text:
        return text
    tokens = TOKEN.findall(text)

    def read(i: int) -> tuple[str, int]:
        head = tokens[i]
        if i + 1 >= len(tokens) or tokens[i + 1] != "(":
            return head, i + 1
        parts, i = [], i + 2
        while tokens[i - 1] != ")":
            part, i = read(i)
            parts.append(part)
            i += 1
        return f"{head}({','.join(sorted(parts) if head in ('join', 'promote') else parts)})", i
    return read(0)[0]


def _is_value(tokens: list[str], i: int) -> bool:
    """Whether a word is the second argument of `is` or `dtype_kind`, which is no name."""
    depth, k = 0, i - 1
    seen = 0
    while k > 0:
        if tokens[k] == ")":
            depth += 1
        elif tokens[k] == "(" and depth:
            depth -= 1
        elif tokens[k] == "(":
            return tokens[k - 1] in ("is", "dtype_kind") and seen == 1
        elif tokens[k] == "," and not depth:
            seen += 1
        k -= 1
    return False
