"""Where a kernel's statements stand in its file, for edits in place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from kir.surface import Outline, SourceStatement

from .liveness import assigned_names, target_names
from .positions import Place
from .project import Module
from .signature import nodes_below, parameters


def outline(module: Module, node: cst.FunctionDef) -> Outline:
    """The statements of a function with their places. One-line bodies (`if x: return`) count as part of their statement."""
    places = _Places(module)
    body = list(node.body.body)
    if body and node.get_docstring() is not None:
        del body[0]
    names = {x.value for x in nodes_below(node.body) if isinstance(x, cst.Name)}
    parameter_names = tuple(p.name.value for p in parameters(node))
    modules = frozenset(module.definitions)
    return Outline(module.text, tuple(places.block(body)), parameter_names, frozenset(names | set(parameter_names)), modules)


class _Places:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.starts = [0]
        self.starts += [found.end() for found in re.finditer(r"\r\n|\r|\n", module.text)]

    def offset(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def span(self, found: Place) -> tuple[int, int]:
        return self.offset(*found[:2]), self.offset(*found[2:])

    def place(self, node: cst.CSTNode) -> Place:
        found = self.module.positions.of(node)
        assert found is not None  # a node of this file
        return found

    def block(self, body: Sequence[cst.CSTNode]) -> Iterator[SourceStatement]:
        for s in body:
            found = self.module.positions.of(s)
            if found is not None and not isinstance(s, cst.EmptyLine):
                yield self.statement(s, *self.span(found))

    def statement(self, s: cst.CSTNode, start: int, end: int) -> SourceStatement:
        text = self.module.text
        end = len(text[:end].rstrip())
        line = text.rfind("\n", 0, start) + 1
        indent = text[line:start] if not text[line:start].strip() else ""
        match s:
            case cst.For(body=cst.IndentedBlock()):
                return SourceStatement(start, end, indent, self.colon(s.iter), tuple(sorted(target_names(s.target))), self.blocks(s))
            case cst.While(body=cst.IndentedBlock()) | cst.If(body=cst.IndentedBlock()):
                return SourceStatement(start, end, indent, self.colon(s.test), (), self.blocks(s))
            case cst.SimpleStatementLine() if s.body:
                end = self.span(self.place(s.body[-1]))[1]
                return SourceStatement(start, self.closed(s.body[-1], end), indent, 0, tuple(sorted(assigned_names([s]))))
            case _:
                return SourceStatement(start, end, indent, 0, tuple(sorted(assigned_names([s]))))

    def closed(self, s: cst.CSTNode, end: int) -> int:
        """The end of a statement with the parentheses that close around its last expression."""
        text = self.module.text
        code = self.module.code(s).rstrip().rstrip(";").rstrip()
        missing = len(code) - len(code.rstrip(")"))
        shown = text[:end]
        while missing > len(shown) - len(shown.rstrip(")")) and ")" in text[end:]:
            end = text.index(")", end) + 1
            shown = text[:end]
        return end

    def blocks(self, s: cst.For | cst.While | cst.If) -> tuple[tuple[SourceStatement, ...], ...]:
        inner = [tuple(self.block(s.body.body))]
        if isinstance(s.orelse, cst.If):
            inner.append(tuple(self.block([s.orelse])))
        elif s.orelse is not None:
            inner.append(tuple(self.block(s.orelse.body.body)))
        return tuple(inner)

    def colon(self, e: cst.BaseExpression) -> int:
        """Where the `:` after a compound statement's head stands."""
        return self.module.text.index(":", self.span(self.place(e))[1])
