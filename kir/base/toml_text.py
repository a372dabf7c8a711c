"""TOML of files that people write: `tomllib`, less what it takes forever for, and what Python cannot show afterwards."""
from __future__ import annotations

import re
import tomllib
from typing import Any

_BEYOND = re.compile(r"\b0x[0-9a-fA-F_]{300,}|\b0b[01_]{1000,}|\b0o[0-7_]{400,}|\b[\d_]{300,}\b", re.ASCII)
_DEEP = re.compile(r"(?<![\w-])(?:[\w-]{0,40} ?\. ?){200,}|(?:\{[^{}\"'\n]*=\s*){200,}|(?:\[\s*){200,}", re.ASCII)


def loads(text: str) -> dict[str, Any]:
    """The tables of a text. Raises tomllib.TOMLDecodeError where it is no TOML, and for numbers of hundreds of digits and tables or lists that are hundreds of
    levels deep, of which `tomllib` takes minutes or recurses without end."""
    for pattern, what in ((_BEYOND, "a number of hundreds of digits"), (_DEEP, "tables or lists hundreds of levels deep")):
        if len(text) > 300 and (found := pattern.search(text)):
            raise tomllib.TOMLDecodeError(f"{what} (at line {text.count(chr(10), 0, found.start()) + 1}, column "
                                          f"{found.start() - text.rfind(chr(10), 0, found.start())})")
    return tomllib.loads(text)


__all__ = ["loads"]
