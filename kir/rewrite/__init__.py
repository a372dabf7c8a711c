"""Rewriting: passes with two directions, preconditions with five verdicts, pipelines, and traces that undo, replay and explain.

Names are imported from their modules on first use, so that the table of passes costs no more than reading it.

Order: catalog, declarations, edit, anchor, guard, meaning, options, residue, verdict, base, precondition, match, registry, step, driver,
pipelines, conformance, view.
"""
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kir.rewrite.base import Effect, Found, Miss, Pass, Precondition, Rewritten, Site, Witness, forward_site
    from kir.rewrite.catalog import summaries
    from kir.rewrite.driver import Applied, Record, apply, each_site, judge, misses, sites
    from kir.rewrite.edit import Path, Place
    from kir.rewrite.pipelines.pipeline import Trace, TraceStep, find_site, run
    from kir.rewrite.pipelines.text import Pipeline
    from kir.rewrite.registry import pass_class, pass_names, passes
    from kir.rewrite.residue import Residue
    from kir.rewrite.step import Direction, Step
    from kir.rewrite.verdict import Context, Verdict, decided, guarded, proved, refuted, unknown, unless

_HOMES = {
    "base": ("Effect", "Found", "Miss", "Pass", "Precondition", "Rewritten", "Site", "Witness", "forward_site",),
    "catalog": ("summaries",),
    "driver": ("Applied", "Record", "apply", "each_site", "judge", "misses", "sites",),
    "edit": ("Path", "Place",),
    "pipelines.pipeline": ("Trace", "TraceStep", "find_site", "run",),
    "registry": ("pass_class", "pass_names", "passes",),
    "residue": ("Residue",),
    "step": ("Direction", "Step",),
    "pipelines.text": ("Pipeline",),
    "verdict": ("Context", "Verdict", "decided", "guarded", "proved", "refuted", "unknown", "unless",),
}
"""The module that each public name lives in."""


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Applied", "Context", "Direction", "Effect", "Found", "Miss", "Pass", "Path", "Pipeline", "Place", "Precondition", "Record",
    "Residue", "Rewritten", "Site", "Step", "Trace", "TraceStep", "Verdict", "Witness", "apply", "decided", "each_site", "find_site",
    "forward_site", "guarded", "judge", "misses", "pass_class", "pass_names", "passes", "proved", "refuted", "run", "sites",
    "summaries", "unknown", "unless",
]
