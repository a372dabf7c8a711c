"""What is drawn of a program: where its states stand under the roofline, what a CTA does when, and its layouts, as fragments of HTML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kir.base.diagnostic import KirError
from kir.faces.explore.layouts import layouts
from kir.faces.explore.settings import Settings
from kir.faces.explore.timeline import Timeline, timelines
from kir.faces.report.chart import seconds, times
from kir.faces.report.roofline import roof_of
from kir.faces.report.shown import environment
from kir.gate.cost import Cost, program_cost, timeline
from kir.ir.nodes import Program
from kir.ir.visit import once


def pictures(states: Sequence[Program], at: int, settings: Settings, ends: tuple[str, str]) -> dict[str, Any]:
    """Fragments by name (`roofline`, `timeline`, `layouts`), and `figures`: modelled seconds, as text, of the state at `at` and beside the one before it.
    `states` are shown under the roofline, from the first to the last."""
    rows = [found for state in states if (found := modelled(state, settings)) is not None]
    now, before = modelled(states[at], settings), modelled(states[at - 1], settings) if at else None
    roof = roof_of(settings.device.name, rows, ends) if rows else None
    lanes = _timelines(states[at], settings)
    shown = {"roof": roof, "lanes": lanes, "grids": layouts(states[at]), "now": now, "before": before, "sizes": settings.text, "device": settings.device.name}
    return {"roofline": _rendered("roofline", shown), "timeline": _rendered("timeline", shown), "layouts": _rendered("layouts", shown),
            "figures": _figures(now, before, settings)}


def modelled(program: Program, settings: Settings) -> dict[str, Any] | None:
    """The modelled seconds of a program, its `parts` and what it is `bound_by`; None where the model has nothing to say at these sizes."""
    def ask() -> dict[str, Any] | None:
        try:
            costs = program_cost(program, settings.sizes, settings.device, warm=False)
        except KirError:
            return None
        return _summed(costs) if costs else None
    found: dict[str, Any] | None = once(program, f"_explored {settings.text} {settings.device.name}", ask)
    return found


def _summed(costs: Sequence[Cost]) -> dict[str, Any]:
    slowest = max(costs, key=lambda c: c.seconds)
    names = dict.fromkeys(name for c in costs for name in c.parts)
    work = slowest.work
    facts = (f"{work.ctas:,.0f} CTAs of {work.threads} threads, {work.registers} registers a thread and {work.shared:,} bytes of shared memory a CTA; "
             f"{slowest.occupancy.ctas} CTAs fit an SM, limited by {slowest.occupancy.limit}") if work else ""
    return {"seconds": sum(c.seconds for c in costs), "bound_by": slowest.bound_by, "parts": {k: sum(c.parts.get(k, 0.0) for c in costs) for k in names},
            "facts": facts, "unknown": sorted({x for c in costs for x in c.unknown})}


def _figures(now: dict[str, Any] | None, before: dict[str, Any] | None, settings: Settings) -> str:
    where = f"at {settings.text or 'its one size'} on {settings.device.name}"
    if now is None:
        return f"the cost model has nothing to say {where}"
    change = f", {times(before['seconds'] / now['seconds'])} of the step before" if before else ""
    return f"{seconds(now['seconds'])} modelled {where}, bound by {now['bound_by']}{change}"


def _timelines(program: Program, settings: Settings) -> list[tuple[str, float, tuple[Timeline, ...]]]:
    """Each kernel, the cycles that a CTA of it takes, and what its teams do."""
    out = []
    for kernel in program.kernels:
        try:
            spans = timeline(program, kernel, settings.sizes, settings.device)
        except KirError:
            continue
        out.append((kernel.name, max((s.end for s in spans), default=0.0), timelines(spans)))
    return out


def _rendered(name: str, values: dict[str, Any]) -> str:
    return environment("kir.faces.explore").get_template("pictures.html.j2").render({**values, "part": name}).strip()
