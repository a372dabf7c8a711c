"""Text -> syntax tree, after the grammar `grammars/kir.lark`; every failure is located."""
from __future__ import annotations

import contextlib
import hashlib
import io
import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import ClassVar

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.indenter import DedentError, Indenter

from kir.diagnostic import KirError, Origin, error


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


@cache
def _lark() -> Lark:
    grammar = resources.files("kir.grammars").joinpath("kir.lark").read_text()
    kept = _kept(grammar)
    try:
        seal, _, data = kept.read_bytes().partition(b"\n")
        if seal == _seal(data):
            return Lark.load(io.BytesIO(data))
    except OSError:
        pass  # not there yet
    made = Lark(grammar, parser="lalr", postlex=_Blocks(), propagate_positions=True, maybe_placeholders=True, start="start")
    tables = io.BytesIO()
    made.save(tables)
    with contextlib.suppress(OSError):  # where nothing can be kept, they are worked out again
        kept.parent.mkdir(parents=True, exist_ok=True)
        own = kept.with_suffix(f".{os.getpid()}")
        own.write_bytes(_seal(tables.getvalue()) + b"\n" + tables.getvalue())
        os.replace(own, kept)
    return made


def _kept(grammar: str) -> Path:
    """Where the parser's tables of a grammar are kept between runs: they take a fifth of a second to work out."""
    import lark
    import platformdirs

    key = hashlib.sha256(f"{grammar}{lark.__version__}{sys.version}".encode()).hexdigest()[:24]
    return Path(platformdirs.user_cache_dir("kir")) / "grammar" / f"{key}.tables"


def _seal(data: bytes) -> bytes:
    """What shows that tables are whole."""
    return hashlib.sha256(data).hexdigest().encode()


def syntax_tree(text: str, file: str) -> Tree[Token]:
    """The tree of an IR text. Raises KirError KIR-T001."""
    try:
        return _lark().parse(text if text.endswith("\n") else text + "\n")
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
