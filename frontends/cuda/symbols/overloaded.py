"""Kernels of one name that are no templates: each is named with the types of its parameters (`k(const half*, int)`), but the first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..source.syntax import declared_name, text
from .symbols import Function


def signature(fn: Function) -> str:
    """The types of a function's parameters, as they are written, in parentheses."""
    out = []
    for p in fn.parameters():
        d = p.child_by_field_name("declarator")
        name = declared_name(d) if d is not None else None
        words = text(p).split("=")[0]
        if name is not None:
            at = name.start_byte - p.start_byte
            words = words[:at] + words[at + len(text(name)):]
        out.append(re.sub(r"\s*([*&])\s*", r"\1", " ".join(w for w in words.split() if w not in ("__restrict__", "__restrict", "register"))).strip())
    return f"({', '.join(out)})"


def named(kernels: Sequence[Function]) -> Iterator[tuple[str, Function]]:
    """Kernels with the names by which each is asked for. Declarations of one name and one signature are one."""
    seen: dict[str, list[str]] = {}
    for fn in kernels:
        plain = not fn.params and fn.arguments is None
        known = seen.setdefault(fn.name, [])
        own = signature(fn) if plain else ""
        yield (f"{fn.name}{own}" if plain and known and own not in known else fn.name), fn
        known.append(own)


def of_signature(found: Sequence[Function], words: str) -> Function | None:
    """The one of several functions whose parameters have these types."""
    wanted = re.sub(r"\s+", "", words)
    return next((f for f in found if re.sub(r"\s+", "", signature(f)) == wanted), None)
