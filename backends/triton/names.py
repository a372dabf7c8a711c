"""Names that Python and the jit compiler allow for what an IR program names."""
from __future__ import annotations

import builtins
import keyword
from collections.abc import Iterable

LAUNCH = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg", "grid", "warmup", "self"})
"""What a launch takes beside the parameters of a kernel: one of that name would be that option."""
TAKEN = frozenset({*LAUNCH, *keyword.kwlist, *keyword.softkwlist, "tl", "triton", "libdevice", "range", *(x for x in dir(builtins) if x.islower())})
"""Names that no parameter or value of an emitted kernel may have."""


def spelled(names: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """A Python name for each IR name: itself where that is allowed, else with underscores until it is free."""
    out: dict[str, str] = {}
    used = {*TAKEN, *taken}
    for name in names:
        if name in out:
            continue
        base = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
        while base in used or not base.isidentifier():
            base = base + "_" if base.isidentifier() else "_" + base
        used.add(base)
        out[name] = base
    return out
