"""Parsers of KIR's own grammars, whose tables are kept between runs: working them out takes up to a second.

They lie where `python -m kir.ir.grammar` has put them, which `make install` runs (beside the bytecode of this folder), else in the user's cache.
"""
from __future__ import annotations

import contextlib
import hashlib
import io
import os
import sys
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lark import Lark

if TYPE_CHECKING:
    from lark.lark import PostLex

BESIDE = Path(__file__).parent / "__pycache__"
"""Where an installation keeps tables for all who use it."""


@cache
def parser(name: str, postlex: type[PostLex] | None = None, positions: bool = False, starts: tuple[str, ...] = ("start",)) -> Lark:
    """The LALR parser of `grammars/<name>.lark`, with what its token stream goes through, and with positions in its trees where they are
    asked for; `starts` are the rules that a text may be of."""
    tables = io.BytesIO(_tables(name, starts, postlex))
    made: Lark = Lark.__new__(Lark)._load(tables, propagate_positions=positions)  # `Lark.load` takes no options; this one changes no table
    return made


def keep_beside(name: str, postlex: type[PostLex] | None = None, starts: tuple[str, ...] = ("start",)) -> Path:
    """Keep the tables of a grammar in `BESIDE`; gives the file. Raises OSError where nothing can be written there."""
    return _keep(BESIDE / _place(name, starts, postlex)[0], _tables(name, starts, postlex))


@cache
def _tables(name: str, starts: tuple[str, ...], postlex: type[PostLex] | None) -> bytes:
    """The tables of a grammar, with positions and without."""
    import platformdirs

    file, grammar, options = _place(name, starts, postlex)
    own = Path(platformdirs.user_cache_dir("kir")) / "grammar" / file
    for kept in (BESIDE / file, own):
        with contextlib.suppress(OSError):  # not there yet
            seal, _, data = kept.read_bytes().partition(b"\n")
            if seal == _seal(data):
                return data
    tables = io.BytesIO()
    Lark(grammar, postlex=postlex() if postlex is not None else None, **options).save(tables)
    with contextlib.suppress(OSError):  # where nothing can be kept, they are worked out again
        _keep(own, tables.getvalue())
    return tables.getvalue()


def _keep(file: Path, tables: bytes) -> Path:
    """Write tables to a file, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    own = file.with_suffix(f".{os.getpid()}")
    own.write_bytes(_seal(tables) + b"\n" + tables)
    os.replace(own, file)
    return file


def _place(name: str, starts: tuple[str, ...], postlex: type[PostLex] | None) -> tuple[str, str, dict[str, Any]]:
    """The name of the file that keeps the tables of a grammar; its text; and how its parser is made."""
    import lark

    grammar = resources.files("kir.grammars").joinpath(f"{name}.lark").read_text(encoding="utf-8")
    options: dict[str, Any] = {"parser": "lalr", "maybe_placeholders": True, "start": list(starts)}
    key = hashlib.sha256(f"{grammar}{options} {postlex}{lark.__version__}{sys.version}".encode()).hexdigest()[:24]
    return f"{key}.tables", grammar, options


def _seal(data: bytes) -> bytes:
    """What shows that tables are whole."""
    return hashlib.sha256(data).hexdigest().encode()
