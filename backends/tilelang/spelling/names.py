"""Names that Python and TileLang allow for what an IR program names."""
from __future__ import annotations

import builtins
import keyword
from collections.abc import Iterable

from ..._cpp_names import RESERVED

PYTHON = frozenset({*keyword.kwlist, *keyword.softkwlist, "T", "tilelang", "math", "range", *(x for x in dir(builtins) if x.islower())}) - {"input"}
"""Names that mean something else in an emitted module."""
TAKEN = PYTHON | (RESERVED - {"main"})
"""Names that no parameter or value of an emitted kernel may have: TileLang takes them over into the CUDA that it writes."""


def spelled(names: Iterable[str], taken: Iterable[str] = (), reserved: frozenset[str] = TAKEN) -> dict[str, str]:
    """A Python name for each IR name: itself where that is allowed, else with underscores until it is free."""
    out: dict[str, str] = {}
    used = {*reserved, *taken}
    for name in names:
        if name not in out:
            out[name] = fresh(name, used, reserved)
            used.add(out[name])
    return out


def fresh(name: str, used: Iterable[str], reserved: frozenset[str] = TAKEN) -> str:
    """An identifier like `name` that is not in `used`."""
    taken = {*reserved, *used}
    base = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    while base in taken or not base.isidentifier():
        base = base + "_" if base.isidentifier() else "_" + base
    return base
