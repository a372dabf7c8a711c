"""Text -> syntax tree, after the grammar `grammars/kir.lark`; every failure is located."""
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import ClassVar

from lark import Lark, Token, Tree
from lark.exceptions import LarkError, UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.indenter import DedentError, Indenter

from kir.base.diagnostic import KirError, Origin, did_you_mean, error
from kir.ir.grammar.lines import tree_of_lines
from kir.ir.grammar.tables import keep_beside, parser


class _Misaligned(LarkError):
    """A line that is indented as no block around it; the token before it."""

    def __init__(self, token: Token) -> None:
        super().__init__(token)
        self.token = token


class _Blocks(Indenter):
    NL_type = "_NL"
    OPEN_PAREN_types: ClassVar[list[str]] = []
    CLOSE_PAREN_types: ClassVar[list[str]] = []
    INDENT_type = "_INDENT"
    DEDENT_type = "_DEDENT"
    tab_len = 4

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        """The stream with indentation tokens. Each text has its own state, so that threads may parse at once."""
        tokens: Iterator[Token] = Indenter.process(_Blocks(), stream)  # type: ignore[no-untyped-call]  # lark leaves it untyped
        return tokens

    def handle_NL(self, token: Token) -> Iterator[Token]:
        try:
            yield from super().handle_NL(token)
        except DedentError:
            raise _Misaligned(token) from None


OPENING = "a program: the line `kir 1`, then `program NAME`"
_CHOICE = re.compile(r"\((\w+(?:\|\w+)*)\)\\b")
_WORDS = {
    "NAME": "a name", "INT": "an integer", "SIGNED": "a negative number", "FLOAT": "a float", "STRING": "a text in quotes", "SYMBOLIC": "a dtype such as $<T>",
    "COMPARE": "a comparison", "_NL": "the end of the line", "_INDENT": "an indented block", "_DEDENT": "the end of the block", "$END": "the end of the text",
}


def _lark() -> Lark:
    return parser("kir", _Blocks, positions=True, starts=("start", "stmt"))


def _unplaced() -> Lark:
    """The parser of lines: to say where each term stands takes it two fifths of its time, and nobody asks."""
    return parser("kir", _Blocks, starts=("start", "stmt"))


def keep_for_all() -> None:
    """Keep the tables of IR text where everybody who uses this installation finds them. Raises OSError where nothing can be written there."""
    keep_beside("kir", _Blocks, ("start", "stmt"))


def quick_tree(text: str) -> Tree[Token] | None:
    """The tree of an IR text as it is printed, whose terms have no positions of their own; None for a text that is wrong or written otherwise."""
    return tree_of_lines(_unplaced, text)


def syntax_tree(text: str, file: str) -> Tree[Token]:
    """The tree of an IR text. Raises KirError KIR-T001."""
    try:
        return _lark().parse(text.removeprefix("\ufeff").removesuffix("\n") + "\n", start="start")
    except UnexpectedInput as bad:
        raise _syntax_error(bad, file, text) from None
    except _Misaligned as bad:
        line, column = bad.token.end_line or 1, bad.token.end_column or 1
        raise error("KIR-T001", "this line is indented as no block around it", origin=Origin(file, line, column, line, column + 1),
                    needs="the indentation of one of the lines above") from None


def _syntax_error(bad: UnexpectedInput, file: str, text: str) -> KirError:
    line, column = max(bad.line, 1), max(bad.column, 1)
    lines = text.splitlines()
    rest = lines[line - 1][column - 1:].split() if line <= len(lines) else []
    found = f"'{rest[0]}'" if rest else "the end of the line"
    if not text.strip():
        return error("KIR-T001", "this is no IR text: it is empty", origin=Origin(file, 1, 1, 1, 1), needs=OPENING)
    if isinstance(bad, UnexpectedToken) and bad.token.type == "_INDENT":
        below = next((k for k in range(line, len(lines)) if lines[k].split("#")[0].strip()), line - 1)
        start = len(lines[below]) - len(lines[below].lstrip()) + 1
        return error("KIR-T001", "this line is indented more than the line above it, which begins no block",
                     origin=Origin(file, below + 1, start, below + 1, start + 1), needs="the indentation of the line above")
    allowed: Iterable[str] = ()
    if isinstance(bad, UnexpectedToken):
        allowed = bad.accepts or bad.expected
    elif isinstance(bad, UnexpectedCharacters):
        allowed = bad.allowed or ()
    expected = list(dict.fromkeys(word for name in sorted(allowed) for word in _readable(name)))
    needs = OPENING if (line, column) == (1, 1) else expected[0] if len(expected) == 1 else f"one of {', '.join(expected[:16])}" if expected else ""
    return error("KIR-T001", f"this is no IR text: unexpected {found}", origin=Origin(file, line, column, line, column + 1), needs=needs,
                 attempt=_meant(lines[line - 1] if line <= len(lines) else "", column))


_ELSEWHERE = {"+=": "x = x + y", "-=": "x = x - y", "*=": "x = x * y", "&&": "x & y (parentheses around comparisons)",
              "||": "x | y (parentheses around comparisons)", "?": "select(condition, x, y)", "!": "~x", "//": "# before a comment",
              "/*": "# before a comment", ";": "a statement a line"}
"""What other languages write, and how the IR says it."""
_STATEMENTS = ("let", "for", "if", "else", "while", "copy", "mma", "view", "roles", "return", "break", "continue", "opaque", "hole", "pass", "role",
               "global", "shared", "fragment", "register", "cluster", "constant", "kernel", "program", "plan", "launch", "dispatch", "function",
               "size", "scalar", "in", "out", "inout", "fact", "meta", "workspace", "struct", "map", "static")
"""The words that lines begin with."""


def _meant(row: str, column: int) -> str:
    """How the IR says what stands at a place of a line, where it is known from other languages or the line begins with a word misspelt."""
    here = row[column - 1:]
    for written, said in _ELSEWHERE.items():
        if here.startswith(written) or (written in ("&&", "||") and here.startswith(written[0]) and row[:column - 1].endswith(written[0])):
            return said
    first = re.match(r"\s*(?:@\w+\s+)?([a-z]\w+)\s+(?=\S)", row)
    if first is None or first[1] in _STATEMENTS or (first.end() != column - 1 and not row[first.end():column - 1].strip().isidentifier()):
        return ""
    return did_you_mean(first[1], _STATEMENTS)


def _readable(terminal: str) -> tuple[str, ...]:
    """A terminal of the grammar as one would say it: what is written as such in quotes, the rest in words."""
    if terminal in _WORDS:
        return (_WORDS[terminal],)
    found = next((t for t in _lark().terminals if t.name == terminal), None)
    if found is None:
        return (terminal.lower().strip("_"),)
    choice = _CHOICE.fullmatch(found.pattern.value)
    return tuple(f"'{word}'" for word in (choice[1].split("|") if choice else [found.pattern.value]))
