"""Where passes apply, and what each is forecast to bring: both come a few at a time, so that the page can show what there is."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import field
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.faces.api.kernels import Kernel, Site, apply, sites_of
from kir.faces.explore.settings import Settings
from kir.ir.nodes import Program
from kir.learning.forecast import Pair
from kir.learning.forecast.choosing import Counted
from kir.learning.forecast.shown import SHARE, brief
from kir.rewrite.registry import pass_class

A_WHILE = 1.0
"""Seconds that one request may take, beyond the site or the forecast that it is at; half of them for sites as long as some are left."""


class Finding:
    """The forward sites of a program, looked for only while somebody asks: each with its conditions, their sentences and verdicts."""

    def __init__(self, program: Program) -> None:
        self.places: list[dict[str, Any]] = []
        self.ended = False
        self._more = sites_of(program)
        self._turn = threading.Lock()

    def until(self, when: float) -> None:
        """Some more of them, until `time.monotonic()` is `when`; at least one, if there is one."""
        with self._turn:
            while not self.ended and (time.monotonic() < when or not self.places):
                if (s := next(self._more, None)) is None:
                    self.ended = True
                else:
                    self.places.append({"step": s.step, "pass": s.pass_name, "anchor": s.anchor, "refused": list(s.refused), "verdicts": _conditions(s)})


def _conditions(site: Site) -> list[dict[str, str]]:
    """Each precondition of a site: what must hold, and the verdict."""
    declared = {p.id: p for p in pass_class(site.pass_name).preconditions}
    return [{"id": id_, "sentence": declared[id_].sentence if id_ in declared else "", "verdict": str(v["kind"]), "reason": str(v.get("reason") or ""),
             "advice": "yes" if id_ in declared and declared[id_].kind == "profit" else ""} for id_, v in site.verdicts.items()]


@dataclass
class Ranking:
    """The sites of one program at one setting, as far as they are found, and the forecasts that were made so far."""

    kernel: Kernel
    settings: Settings
    ask: Counted
    finding: Finding
    places: list[dict[str, Any]] = field(default_factory=list)
    asked: int = 0
    turn: threading.Lock = field(default_factory=threading.Lock)

    def more(self) -> dict[str, Any]:
        """Some more sites and forecasts, for about `A_WHILE` seconds: the places by what they bring as far as that is known, how many forecasts are left,
        and whether sites may be (`left` is then 1 more)."""
        with self.turn:
            ends = time.monotonic() + A_WHILE
            self.finding.until(ends - A_WHILE / 2)
            self.places += [dict(place) for place in self.finding.places[len(self.places):]]
            while self.asked < len(self.places) and time.monotonic() < ends:
                place = self.places[self.asked]
                self.asked += 1
                if not place["refused"] and "forecast" not in place:
                    place["forecast"] = self._forecast(str(place["step"]))
        more = not self.finding.ended
        return {"places": sorted(self.places, key=_order), "left": len(self.places) - self.asked + more, "finding": more, "model": self.ask.name,
                "note": self.ask.note}

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
