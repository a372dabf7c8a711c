"""Where passes apply, and what each is forecast to bring: forecasts come a few at a time, so that the page can show what there is."""

from __future__ import annotations

import math
import time
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.faces.api.kernels import Kernel, Site, apply, sites
from kir.faces.explore.settings import Settings
from kir.learning.forecast import Pair
from kir.learning.forecast.choosing import Counted
from kir.learning.forecast.shown import SHARE, brief
from kir.rewrite.registry import pass_class

A_WHILE = 1.0
"""Seconds that one request for forecasts may take, beyond the one that it is at."""


def found_sites(kernel: Kernel) -> list[dict[str, Any]]:
    """The forward sites of a kernel, those that nothing refuses first, each condition with its sentence and verdict."""
    rows = [{"step": s.step, "pass": s.pass_name, "anchor": s.anchor, "refused": list(s.refused), "verdicts": _conditions(s)} for s in sites(kernel)]
    return sorted(rows, key=lambda s: (bool(s["refused"]), str(s["step"])))


def _conditions(site: Site) -> list[dict[str, str]]:
    """Each precondition of a site: what must hold, and the verdict."""
    declared = {p.id: p for p in pass_class(site.pass_name).preconditions}
    return [{"id": id_, "sentence": declared[id_].sentence if id_ in declared else "", "verdict": str(v["kind"]), "reason": str(v.get("reason") or ""),
             "advice": "yes" if id_ in declared and declared[id_].kind == "profit" else ""} for id_, v in site.verdicts.items()]


@dataclass
class Ranking:
    """The sites of one program at one setting, and the forecasts that were made so far."""

    kernel: Kernel
    settings: Settings
    ask: Counted
    places: list[dict[str, Any]]
    asked: int = 0

    def more(self) -> dict[str, Any]:
        """Some more forecasts, for about `A_WHILE` seconds: the places by what they bring as far as that is known, and how many are left."""
        began = time.monotonic()
        while self.asked < len(self.places) and time.monotonic() - began < A_WHILE:
            place = self.places[self.asked]
            self.asked += 1
            if not place["refused"] and "forecast" not in place:
                place["forecast"] = self._forecast(str(place["step"]))
        return {"places": sorted(self.places, key=_order), "left": len(self.places) - self.asked, "model": self.ask.name, "note": self.ask.note}

    def _forecast(self, step: str) -> dict[str, Any]:
        try:
            after = apply(self.kernel, step).program
            found = self.ask(Pair(self.kernel.program, after, self.settings.sizes, self.settings.device, step))
        except KirError as refused:
            return {"refused": refused.diagnostics[0].message}
        low, high = found.interval(SHARE)
        return {"brief": brief(found), "median": found.median, "low": low, "high": high, "fails": found.fails, "defer": found.defer}


def _order(place: dict[str, Any]) -> tuple[int, float, str]:
    """What is forecast to bring most first, what is not known yet after it, then what turned out to be refused."""
    seen = place.get("forecast")
    if place["refused"] or (seen and "refused" in seen):
        return 2, 0.0, str(place["step"])
    return (0, -math.log(seen["median"]) * (1 - seen["fails"]), str(place["step"])) if seen else (1, 0.0, str(place["step"]))
