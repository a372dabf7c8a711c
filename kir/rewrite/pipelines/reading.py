"""Pipelines read from their text. The grammar is `grammars/pipeline.lark`; what writes the text needs no parser."""
from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

from lark import Token, Tree
from lark.exceptions import UnexpectedInput

from kir.base.diagnostic import Origin, usage
from kir.ir.grammar.tables import parser
from kir.rewrite.options import current_name
from kir.rewrite.residue import Residue
from kir.rewrite.step import Direction, Step


def steps(text: str, file: str) -> tuple[Step, ...]:
    """The steps of a text, each with the places of its words. Raises UsageError KIR-R001 with the place."""
    try:
        tree = parser("pipeline").parse(text)
    except UnexpectedInput as bad:
        line, column = max(bad.line, 1), max(bad.column, 1)
        rows = text.splitlines() or [""]
        rest = rows[line - 1][column - 1:].split() if line <= len(rows) else []
        raise usage("KIR-R001", f"this is no pipeline: unexpected {repr(rest[0]) if rest else 'end'}",
                    origin=Origin(file, line, column, line, column + 1),
                    needs="steps such as `unroll{factor=4}@main/k_loop`, separated by `;`") from None
    return tuple(_step(t, file) for t in tree.children if isinstance(t, Tree))


def _step(t: Tree[Token], file: str) -> Step:
    back, name, options, at, *clauses = t.children
    more: dict[str, Any] = {}
    for c in clauses:
        assert isinstance(c, Tree)
        match c.data:
            case "assume" | "guard":
                more[c.data] = frozenset(map(str, c.children)) | more.get(c.data, frozenset())
            case "force":
                more["force"] = True
            case "keep":
                more["residue"] = Residue.parse(json.loads(str(c.children[0])))
            case _:
                parts = json.loads(str(c.children[1])).split("/")
                more["hash"], more["path"] = str(c.children[0]), tuple(int(p) if p.isdigit() else p for p in parts)
    found = {}
    assert isinstance(name, Token)
    places = {"": _place(file, name, name)}
    for o in options.children if isinstance(options, Tree) else ():
        assert isinstance(o, Tree)
        key = o.children[0]
        assert isinstance(key, Token)
        called = current_name(str(name), str(key))
        found[called] = _value(o.children[1])
        places[called] = _place(file, key, [*o.scan_values(lambda v: isinstance(v, Token))][-1])
    direction: Direction = "backward" if back is not None else "forward"
    return Step(str(name), MappingProxyType(found), "" if at is None else str(at)[1:], direction, **more, places=MappingProxyType(places))


def _place(file: str, first: Token, last: Token) -> Origin:
    """Where a text has what stands from one token to another."""
    return Origin(file, first.line or 1, first.column or 1, last.end_line or 1, last.end_column or 1)


def _value(t: Tree[Token] | Token) -> Any:
    assert isinstance(t, Tree)
    if t.data == "list":
        return tuple(_value(c) for c in t.children if c is not None)
    text = str(t.children[0])
    match t.data:
        case "integer":
            return int(text)
        case "number":
            return float(text)
        case "truth":
            return text == "true"
        case "string":
            return json.loads(text)
        case _:
            return text
