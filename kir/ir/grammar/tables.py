"""Parsers of KIR's own grammars, whose tables are kept between runs: working them out takes up to a fifth of a second."""
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


@cache
def parser(name: str, postlex: type[PostLex] | None = None, positions: bool = False, starts: tuple[str, ...] = ("start",)) -> Lark:
    """The LALR parser of `grammars/<name>.lark`, with what its token stream goes through, and with positions in its trees where they are
    asked for; `starts` are the rules that a text may be of."""
    grammar = resources.files("kir.grammars").joinpath(f"{name}.lark").read_text(encoding="utf-8")
    tables = io.BytesIO(_tables(grammar, starts, postlex))
    made: Lark = Lark.__new__(Lark)._load(tables, propagate_positions=positions)  # `Lark.load` takes no options; this one changes no table
    return made


@cache
def _tables(grammar: str, starts: tuple[str, ...], postlex: type[PostLex] | None) -> bytes:
    """The tables of a grammar, with positions and without."""
    options: dict[str, Any] = {"parser": "lalr", "maybe_placeholders": True, "start": list(starts)}
    kept = _kept(grammar, f"{options} {postlex}")
    try:
        seal, _, data = kept.read_bytes().partition(b"\n")
        if seal == _seal(data):
            return data
    except OSError:
        pass  # not there yet
    tables = io.BytesIO()
    Lark(grammar, postlex=postlex() if postlex is not None else None, **options).save(tables)
    with contextlib.suppress(OSError):  # where nothing can be kept, they are worked out again
        kept.parent.mkdir(parents=True, exist_ok=True)
        own = kept.with_suffix(f".{os.getpid()}")
        own.write_bytes(_seal(tables.getvalue()) + b"\n" + tables.getvalue())
        os.replace(own, kept)
    return tables.getvalue()


def _kept(grammar: str, options: str) -> Path:
    """Where the tables of a grammar are kept."""
    import lark
    import platformdirs

    key = hashlib.sha256(f"{grammar}{options}{lark.__version__}{sys.version}".encode()).hexdigest()[:24]
    return Path(platformdirs.user_cache_dir("kir")) / "grammar" / f"{key}.tables"


def _seal(data: bytes) -> bytes:
    """What shows that tables are whole."""
    return hashlib.sha256(data).hexdigest().encode()
