"""Text -> syntax tree, after the grammar `grammars/kir.lark`; every failure is located."""
from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from lark import Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.indenter import DedentError, Indenter

from kir.diagnostic import KirError, Origin, error
from kir.ir.tables import parser


class _Misaligned(Exception):
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


def syntax_tree(text: str, file: str) -> Tree[Token]:
    """The tree of an IR text. Raises KirError KIR-T001."""
    try:
        return parser("kir", _Blocks, positions=True).parse(text if text.endswith("\n") else text + "\n")
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
    expected = ""
    if isinstance(bad, UnexpectedToken):
        expected = ", ".join(sorted(t.lower().strip("_") for t in bad.accepts or bad.expected)[:12])
    elif isinstance(bad, UnexpectedCharacters):
        expected = ", ".join(sorted(t.lower().strip("_") for t in bad.allowed or ())[:12])
    return error("KIR-T001", f"this is no IR text: unexpected {found}", origin=Origin(file, line, column, line, column + 1),
                 needs=f"one of {expected}" if expected else "")
