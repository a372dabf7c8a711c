"""How inputs of a program that is judged by another one are drawn beside normal ones, where the other program gives what it gives in float64."""
from __future__ import annotations

from kir.problem.ordering import Ordering
from kir.problem.schema import Draw

OTHER = {
    "positive": Draw(kind="uniform", low=0.25, high=2.0), "negative": Draw(kind="uniform", low=-2.0, high=-0.25), "tiny": Draw(kind="normal", scale=2.0**-10),
    "large": Draw(kind="normal", scale=16.0), "wide": Draw(kind="log_uniform", low=-6, high=6), "sparse": Draw(kind="sparse", scale=4.0, every=5)}
APART = {"apart": Draw(kind="log_uniform", low=-8, high=9)}
"""Where a size is large: what stands behind may be far above all that came before."""
NOTHING = {"zeros": Draw(kind="constant", low=0)}
"""Where there is nothing at all: what divides by a norm, a largest magnitude or a sum needs a floor."""
QUARTERS = {"quarters": Draw(kind="integers", low=-16, high=17)}
"""Quarters of whole numbers: sums, products and differences of few values, of which some are whatever a program looks for."""
TIES = {"ties": Draw(kind="integers", low=-256, high=257)}
"""Parts of 2^-6 of whole numbers: times a power of two many lie in the middle of two whole numbers, which one rounding takes up and another one down."""
PARTS = {"quarters": 2.0**-2, "ties": 2.0**-6}
"""What whole numbers of such kinds are multiplied by."""
ROUNDINGS = frozenset({"round", "round_even", "floor", "ceil", "trunc"})
BESIDE = {**QUARTERS, "low": Draw(kind="uniform", low=-300, high=-100), "high": Draw(kind="uniform", low=100, high=300)}
"""And far below and above nothing: what begins from zero, or takes an exponential before its largest is known, is wrong there."""
PEAKED = {f"{far!r} below a peak": Draw(kind="special", every=4096, values=("-0.0",), mean=-far, scale=0.25) for far in (12.0, 14.0, 16.5)}
"""Far below a largest one, all alike: exponentials of which each is little, and all together are not."""
FEW = {"few": Draw(kind="integers", low=-1, high=2)}
"""Three values: what is computed from several inputs is often the same twice, its largest too."""
BELOW = {"below": Draw(kind="log_uniform", low=-9, high=0)}
"""For what is too large with wide ones: of several magnitudes, little among them."""
KINDS = {**BELOW, **TIES, **OTHER, **APART, **NOTHING, **BESIDE, **FEW}
BLOCKS = Ordering((("*", 32),))
"""By blocks that are smaller than most tiles: what is left out of a tile stands there too."""
WHOLE = {"whole": Draw(kind="integers", low=-200, high=400), "counts": Draw(kind="integers", low=0, high=400), "alike": Draw(kind="constant", low=1),
         "most": Draw(kind="integers", low=112, high=128)}
"""Whole numbers, beside none."""
STRANGE_STEPS, PLACED_STEPS = 1 << 20, 1 << 22
"""Statements of a run with numbers that a reference may not be meant for: bounds of loops among them may be anything; and of one with places."""


__all__ = ["APART", "BELOW", "BESIDE", "BLOCKS", "FEW", "KINDS", "NOTHING", "OTHER", "PARTS", "PEAKED", "PLACED_STEPS", "QUARTERS", "ROUNDINGS",
           "STRANGE_STEPS", "TIES", "WHOLE"]
