"""A forecast as JSON and as lines of text."""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from kir.learning.forecast.distribution import BINS, Forecast

SHARE = 0.8
"""The part of a distribution that intervals hold."""
MOST = 5
"""Reasons that are shown."""
RESOURCES: Mapping[str, str] = {
    "issue": "issuing instructions", "alu": "integer arithmetic", "fma": "float32 arithmetic", "half": "float16 arithmetic", "double": "float64 arithmetic",
    "special": "special functions", "convert": "conversions", "memory": "the load-store units", "shared": "shared memory",
    "tensor": "the tensor cores", "latency": "the latency of the waves of CTAs", "l2": "L2", "dram": "DRAM", "ctas": "starting CTAs",
    "fill": "filling L1", "atomics": "atomic operations", "spills": "spilled registers", "launch": "launching kernels"}
"""Resources of the cost model in words; what is added for all of them together has none."""
UNHIDDEN = ("not hidden", "unhidden")
"""What models call what is added for all of them."""


def to_json(found: Forecast) -> dict[str, Any]:
    """A JSON object: the speedup's median, 80 % interval, quantiles and bins; probability of failure; whether it pays; reasons in seconds; why it defers."""
    low, high = found.interval(SHARE)
    seconds = [None if math.isnan(s) else float(f"{s:.4g}") for s in found.seconds]
    return {"model": found.model, "speedup": _short(found.median), "interval": [_short(low), _short(high)], "fails": _short(found.fails), "pays": found.pays,
            "defer": found.defer,
            "bins": [_short(p) for p in found.bins], "quantiles": {f"{level:g}": _short(math.exp(log)) for level,
                                                                   log in zip(found.levels, found.logs, strict=True)},
            "seconds": seconds, "reasons": [{"resource": r.resource, "before": _short(r.before), "after": _short(r.after)} for r in found.reasons]}


def brief(found: Forecast) -> str:
    """Median and interval in a few characters."""
    low, high = found.interval(SHARE)
    return f"{_times(found.median)} ({_times(low)} to {_times(high)})"


def lines(found: Forecast) -> Iterator[str]:
    """The forecast for a terminal."""
    yield f"{brief(found)}  80 % of what the {found.model} model holds possible; fails with {found.fails:.0%}"
    if found.defer:
        yield f"  defers: {found.defer}"
    ends = ["0", *(f"{b:g}" for b in BINS), "more"]
    yield "  " + "  ".join(f"{a}..{b}: {p:.0%}" for a, b, p in zip(ends, ends[1:], found.bins, strict=False) if p >= 0.005)
    for r in found.reasons[:MOST]:
        yield f"  {in_words(r.resource):<35} {r.before * 1e6:10.2f} us to {r.after * 1e6:10.2f} us"


def in_words(resource: str) -> str:
    """A reason's resource in words."""
    return "what does not hide behind the bound" if resource in UNHIDDEN else RESOURCES.get(resource, resource)


def _times(value: float) -> str:
    return f"{value:.3g}x" if value < 1000 else f"{value:.0f}x"


def _short(value: float) -> float:
    return float(f"{value:.4g}")
