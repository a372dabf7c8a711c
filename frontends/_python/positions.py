"""Where syntax nodes stand in their file: worked out for one top-level statement at a time, when something in it is first asked for.

libcst keeps no positions; they follow from writing its tree out. Its own provider writes a whole file and visits it twice over, which takes longer than
reading one kernel of it does. Where a top-level statement begins is known from Python's own parser.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from types import TracebackType

import libcst as cst
from libcst._nodes.internal import CodegenState

Place = tuple[int, int, int, int]
"""First line (1-based), column (0-based), last line, column after the last character."""
_LINES = re.compile(r"\r\n|\r|\n")


class Positions:
    """The places of the nodes of one file."""

    def __init__(self, text: str, tree: cst.Module) -> None:
        self._tree = tree
        self._found: dict[cst.CSTNode, Place] = {}
        self._begins = _begins(text, tree)
        self._pending: dict[int, int] = {id(s): k for k, s in enumerate(tree.body)}

    def of(self, node: cst.CSTNode, inside: cst.CSTNode | None = None) -> Place | None:
        """Where a node stands; None for one that is not in the file. `inside` is the top-level statement that it is probably in."""
        found = self._found.get(node)
        if found is None and self._pending:
            for k in self._order(inside if inside is not None else node):
                self._written(k)
                found = self._found.get(node)
                if found is not None:
                    break
        return found

    def line(self, node: cst.CSTNode, inside: cst.CSTNode | None = None) -> int:
        """The line on which a node starts; 1 for one that is not in the file."""
        k = self._pending.get(id(node))
        if k is not None and self._begins is not None:
            return self._begins[k][1]
        found = self.of(node, inside)
        return found[0] if found is not None else 1

    def _order(self, likely: cst.CSTNode) -> Iterator[int]:
        first = self._pending.get(id(likely))
        if first is not None:
            yield first
        yield from list(self._pending.values())

    def _written(self, k: int) -> None:
        """Works out the places of a top-level statement; of all of them, where it is not known where each begins."""
        state = _Writing(self._tree.default_indent, self._tree.default_newline, self._found)
        if self._begins is None:
            self._tree._codegen(state)
            self._pending.clear()
            return
        state.line = self._begins[k][0]
        self._tree.body[k]._codegen(state)
        del self._pending[id(self._tree.body[k])]


class _Writing(CodegenState):
    """Writes nodes out and notes where each begins and ends, as libcst's `PositionProvider` does."""

    def __init__(self, indent: str, newline: str, found: dict[cst.CSTNode, Place]) -> None:
        super().__init__(indent, newline)
        self.found = found
        self.line, self.column = 1, 0
        self.open: list[tuple[int, int]] = []

    def add_token(self, value: str) -> None:
        self.tokens.append(value)
        if "\n" not in value and "\r" not in value:
            self.column += len(value)
            return
        lines = _LINES.split(value)
        self.line, self.column = self.line + len(lines) - 1, len(lines[-1])

    def add_indent_tokens(self) -> None:
        for token in self.indent_tokens:
            self.add_token(token)

    def before_codegen(self, node: cst.CSTNode) -> None:
        self.open.append((self.line, self.column))

    def after_codegen(self, node: cst.CSTNode) -> None:
        began = self.open.pop()
        if node not in self.found:
            self.found[node] = (*began, self.line, self.column)

    def record_syntactic_position(  # type: ignore[override]  # libcst's own is a generator, which takes longer
        self, node: cst.CSTNode, *, start_node: cst.CSTNode | None = None, end_node: cst.CSTNode | None = None
    ) -> _Syntactic:
        return _Syntactic(self, node, start_node, end_node)


class _Syntactic:
    """The part of a node without the space around it."""

    __slots__ = ("at", "end_node", "node", "start_node", "state")

    def __init__(self, state: _Writing, node: cst.CSTNode, start_node: cst.CSTNode | None, end_node: cst.CSTNode | None) -> None:
        self.state, self.node, self.start_node, self.end_node = state, node, start_node, end_node

    def __enter__(self) -> None:
        self.at = (self.state.line, self.state.column)

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        found = self.state.found
        start = self.at if self.start_node is None else found[self.start_node][:2]
        end = (self.state.line, self.state.column) if self.end_node is None else found[self.end_node][2:]
        found[self.node] = (*start, *end)


def _begins(text: str, tree: cst.Module) -> list[tuple[int, int]] | None:
    """For each top-level statement, the line on which writing it out begins (with the empty lines and comments above it) and that of its
    first word, decorators apart. None where Python's parser and libcst disagree."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return None
    out: list[tuple[int, int]] = []
    k = 0
    for s in tree.body:
        many = len(s.body) if isinstance(s, cst.SimpleStatementLine) else 1
        if k + many > len(parsed):
            return None
        decorators: Sequence[ast.expr] = getattr(parsed[k], "decorator_list", ())
        first = decorators[0].lineno if decorators else parsed[k].lineno
        out.append((first - _above(s), parsed[k].lineno))
        k += many
    return out if k == len(parsed) else None


def _above(s: cst.BaseCompoundStatement | cst.SimpleStatementLine) -> int:
    """Lines that a statement is written with above its first word."""
    decorators: Sequence[cst.Decorator] = getattr(s, "decorators", ())
    return len(s.leading_lines) + (len(decorators[0].leading_lines) if decorators else 0)
