"""Functions of `tl`, `tl.math` and libdevice that act on each element, by their rows of the instruction table."""

from __future__ import annotations

from collections.abc import Mapping

from kir.base.instructions import by_spelling, table

ALIASES: Mapping[str, str] = {
    "fast_expf": "exp",
    "fast_exp2f": "exp2",
    "fast_logf": "log",
    "fast_tanhf": "tanh_approx",
    "rsqrt_rn": "rsqrt",
    "fabs": "abs",
    "ceil": "ceil",
    "isfinited": "isfinite",
    "finitef": "isfinite",
    "rint": "round_even",
    "nearbyint": "round_even",
    "round": "round_away",
    "umulhi": "mulhi",
    "exp10": "exp10",
    "sqrt_rn": "sqrt",
    "fast_powf": "pow",
    "trunc": "trunc",
    "float2int_rz": "",
    "div_rn": "",
    "log10": "log10",
    "isnan": "isnan",
    "popcount": "popc",
}
"""Names of libdevice (approximations included) by the row of the instruction table that they are."""


def element_row(name: str, word: str) -> str | None:
    """The row of the instruction table for a function of `tl`, `tl.math` or libdevice."""
    spelled = by_spelling("triton")
    for prefix in ("libdevice",) if "libdevice" in name else ("tl", "libdevice"):
        if f"{prefix}.{word}" in spelled:
            row = spelled[f"{prefix}.{word}"]
            return row.name if row.level == "element" and not row.effect else None
    alias = ALIASES.get(word, word)
    row_ = table().get(alias)
    if (
        row_ is not None
        and row_.level == "element"
        and not row_.effect
        and ("libdevice" in name or ".math" in name or alias in ("exp", "log", "sin", "cos"))
    ):
        return alias
    return None
