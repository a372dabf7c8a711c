"""The syntax tree of an IR text put together from the trees of its lines, each of which is parsed once: programs of one lineage differ in few lines.

The tree is the one that the grammar gives, but for positions: only those of statements, functions and names of kernels are right. So whoever finds
something wrong with it reads the tree of the whole text, for the place.
"""
from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from lark import Lark, Token, Tree
from lark.exceptions import LarkError
from lark.tree import Meta

from kir.ir.grammar.walker import walker

T = Tree[Token]
UNUSUAL = re.compile(r"[\t\r\ufeff\v\f]")
"""What a text that is printed has not: tabs, and the like."""
COMMENTED = re.compile(r'^((?:[^"#\n]|"(?:[^"\\\n]|\\.)*")*)#[^\n]*', re.MULTILINE)
"""A line with a comment, outside of texts in quotes, and what stands before it."""
HEAD = re.compile(r"(?:@%?\w+ +)?(for|if|static|while|roles|role|else)\b")
"""How a line in a kernel begins that a block follows."""
BODY = re.compile(r"(?:@%?\w+ +)?(?:kernel|function)\b")
"""How a line begins that statements follow."""
LABEL = re.compile(r"@ *%?\w+ *")
"""What stands before a statement that has a label."""
KEPT = 1 << 13
"""Lines, and texts without their statements, whose trees are kept."""


class Line(NamedTuple):
    """A line that is not blank: its number from 1, its indentation, what stands there."""

    number: int
    indent: int
    text: str


class _Unusual(Exception):
    """This text is not put together from its lines."""


def tree_of_lines(lark: Callable[[], Lark], text: str) -> T | None:
    """The tree of a text; None for one that is wrong, or written as no printer writes it. The parser need say nothing of positions."""
    if UNUSUAL.search(text):
        return None
    rows = (COMMENTED.sub(r"\1", text) if "#" in text else text).split("\n")
    lines = [Line(k, len(row) - len(row.lstrip(" ")), row.strip(" ")) for k, row in enumerate(rows, start=1) if row.strip(" ")]
    try:
        return _Lines(lark(), lines, Line(len(rows) + (not text.endswith("\n")), 0, "")).whole()
    except (LarkError, _Unusual):
        return None


@lru_cache(maxsize=KEPT)
def _statement(lark: Lark, text: str) -> T:
    """The tree of a statement, or of a text that stands for one."""
    return walker(lark).tree(text, "stmt")


@lru_cache(maxsize=KEPT)
def _skeleton(lark: Lark, text: str) -> T:
    return walker(lark).tree(text, "start")


class _Lines:
    """Reads lines one after the other; `end` is where the text ends."""

    def __init__(self, lark: Lark, lines: list[Line], end: Line) -> None:
        self.lark, self.lines, self.end, self.at = lark, lines, end, 0

    def next(self) -> Line:
        return self.lines[self.at] if self.at < len(self.lines) else self.end

    def whole(self) -> T:
        """The tree, with the bodies of kernels and functions put in where the skeleton has empty ones."""
        rows, bodies = list[str](), list[tuple[Line, list[T], Line]]()
        while self.at < len(self.lines):
            line = self.next()
            self.at += 1
            rows.append(f"{' ' * line.indent}{line.text}")
            if line.indent == 0 and BODY.match(line.text):
                rows.append("  pass")
                body = self.block(line)
                bodies.append((line, body, self.next()))
        tree = _skeleton(self.lark, "\n".join(rows) + "\n")
        version, program = tree.children
        assert isinstance(program, Tree)
        rest = iter(bodies)
        made = [self.filled(child, *next(rest)) if isinstance(child, Tree) and child.data in ("kernel", "function") else child for child in program.children]
        return Tree(tree.data, [version, Tree(program.data, made)])

    def filled(self, tree: T, head: Line, body: list[T], after: Line) -> T:
        """A kernel or a function with its body, at its place."""
        children = [*tree.children[:-1], Tree("block", list(body))]
        if tree.data == "kernel":
            name = tree.children[1]
            assert isinstance(name, Token)
            children[1] = Token(name.type, str(name), line=head.number, column=name.column, end_line=head.number, end_column=name.end_column)
        return Tree(tree.data, children, _meta(head.number, head.indent + 1, after.number, after.indent + 1))

    def block(self, head: Line) -> list[T]:
        """The statements below a line, up to one that is indented less."""
        own = self.next().indent
        if own <= head.indent:
            raise _Unusual
        if self.next().text == "pass":
            self.at += 1
            found = list[T]()
        else:
            found = [self.statement()]
            while self.next().indent == own:
                found.append(self.statement())
        if self.next().indent > head.indent:
            raise _Unusual
        return found

    def statement(self) -> T:
        line = self.next()
        self.at += 1
        head, label_text = HEAD.match(line.text), LABEL.match(line.text)
        column = line.indent + 1 + (0 if label_text is None else label_text.end())
        if line.text == "pass" or (head is not None and head[1] in ("role", "else")):
            raise _Unusual
        if head is None:
            label, inner = _statement(self.lark, f"{line.text}\n").children
            assert isinstance(inner, Tree)
            return Tree("stmt", [label, Tree(inner.data, inner.children, _meta(line.number, column, line.number, line.indent + len(line.text) + 1))])
        if head[1] == "roles":
            label, inner = _statement(self.lark, f"{line.text}\n role r warps 0..1\n  pass\n").children
            blocks = self.roles(line)
        else:
            label, inner = _statement(self.lark, f"{line.text}\n pass\n").children
            blocks = [*(inner.children if isinstance(inner, Tree) else ())]
            then: T = Tree("block", list(self.block(line)))
            if head[1] in ("if", "static"):
                blocks[-2:] = [then, self.otherwise(line)]  # type: ignore[list-item]  # the grammar leaves None where there is none
            else:
                blocks[-1] = then
        assert isinstance(inner, Tree)
        after = self.next()
        return Tree("stmt", [label, Tree(inner.data, blocks, _meta(line.number, column, after.number, after.indent + 1))])

    def otherwise(self, head: Line) -> T | None:
        line = self.next()
        if line.indent != head.indent or line.text != "else":
            return None
        self.at += 1
        return Tree("block", list(self.block(line)))

    def roles(self, head: Line) -> list[T | Token]:
        own, found = self.next().indent, list[T | Token]()
        if own <= head.indent:
            raise _Unusual
        while self.next().indent == own:
            line = self.next()
            self.at += 1
            if not line.text.startswith("role "):
                raise _Unusual
            roles = _statement(self.lark, f"roles\n {line.text}\n  pass\n").children[1]
            assert isinstance(roles, Tree) and isinstance(roles.children[0], Tree)
            role = roles.children[0]
            found.append(Tree(role.data, [*role.children[:-1], Tree("block", list(self.block(line)))]))
        if self.next().indent > head.indent:
            raise _Unusual
        return found


def _meta(line: int, column: int, end_line: int, end_column: int) -> Meta:
    made = Meta()  # type: ignore[no-untyped-call]  # lark leaves it untyped
    made.empty, made.line, made.column, made.end_line, made.end_column = False, line, column, end_line, end_column
    return made
