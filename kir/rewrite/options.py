"""Options of a pass as a pipeline's text has them."""
from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType

Option = int | float | bool | str | tuple[int, ...] | tuple[str, ...]
_WORD = re.compile(r"[A-Za-z_][\w/.-]*")
RENAMED: Mapping[str, Mapping[str, str]] = MappingProxyType({"partition-reduction": {"dealt": "distribution"}})
"""Parameters that were called otherwise, by pass: old name -> name. Pipelines, lineages and cards of before are read."""


def current_name(of: str, parameter: str) -> str:
    """What a parameter of the pass `of` is called now."""
    return RENAMED.get(of, {}).get(parameter, parameter)


def option_text(v: Option) -> str:
    """A value as the text has it."""
    match v:
        case bool():
            return "true" if v else "false"
        case tuple():
            return "[" + ", ".join(map(option_text, v)) + "]"
        case str():
            return v if _WORD.fullmatch(v) and v not in ("true", "false") else json.dumps(v)
        case _:
            return repr(v)


def options_text(options: Mapping[str, Option]) -> str:
    """`{m=64 n=64}`, or nothing."""
    return "{" + " ".join(f"{k}={option_text(v)}" for k, v in options.items()) + "}" if options else ""
