"""Names that Python and the jit compiler allow for what an IR program names."""
from __future__ import annotations

import keyword
from collections.abc import Iterable

LAUNCH = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg", "grid", "warmup", "self"})
"""What a launch takes beside the parameters of a kernel: one of that name would be that option."""
KEPT = frozenset({"num_warps", "num_stages", "num_ctas", "self"})
"""Such names that parameters and metas of a kernel that came from Triton may have: they keep them, as callers say them."""
COMBINING = ("product_of_two", "and_of_two", "sum_of_two", "or_of_two", "xor_of_two", "larger_of_two", "smaller_of_two")
"""Functions that an emitted module brings along."""
TAKEN = frozenset({*LAUNCH, *COMBINING, *keyword.kwlist, *keyword.softkwlist, "tl", "triton", "libdevice", "math", "range", "float", "int", "min", "max"})
"""Names that no parameter or value of an emitted kernel may have: what Python forbids, and what the text of a kernel says itself."""


def spelled(names: Iterable[str], taken: Iterable[str] = (), allowed: frozenset[str] = frozenset()) -> dict[str, str]:
    """A Python name for each IR name: itself where that is allowed, else with underscores until it is free. `allowed` are taken words that
    are to stay."""
    out: dict[str, str] = {}
    used = {*TAKEN - allowed, *taken}
    for name in names:
        if name in out:
            continue
        base = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
        while base in used or not base.isidentifier():
            base = base + "_" if base.isidentifier() else "_" + base
        used.add(base)
        out[name] = base
    return out
