"""What a step will bring before it is measured: a distribution over its speedup, how likely it fails, and why.

    seen = Analytic()(Pair(before, after, {"M": 4096, "N": 4096, "K": 4096}, target("h200")))
    seen.median, seen.interval(0.8), seen.fails, seen.reasons

Order: distribution, scores, terms, analytic, data, features, comparison, trees, model, learned, training, matrices, language, choosing, shown.
"""
from __future__ import annotations

from kir.learning.forecast.analytic import Analytic
from kir.learning.forecast.distribution import BINS, Forecast, Forecaster, Pair, Reason

__all__ = ["BINS", "Analytic", "Forecast", "Forecaster", "Pair", "Reason"]
