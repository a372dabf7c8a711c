"""Rewriting: passes with two directions, preconditions with five verdicts, pipelines, and traces that undo, replay and explain."""
from __future__ import annotations

from kir.rewrite.base import Effect, Found, Miss, Pass, Rewritten, Site, Witness
from kir.rewrite.driver import Applied, Record, apply, forward_site, judge, misses, sites
from kir.rewrite.edit import Path, Place
from kir.rewrite.pipeline import Trace, TraceStep, find_site, run
from kir.rewrite.precondition import Context, Precondition, Verdict, guarded, proved, refuted, unknown
from kir.rewrite.registry import pass_class, pass_names, passes, summaries
from kir.rewrite.residue import Residue
from kir.rewrite.text import Direction, Pipeline, Step

__all__ = [
    "Applied", "Context", "Direction", "Effect", "Found", "Miss", "Pass", "Path", "Pipeline", "Place", "Precondition", "Record", "Residue",
    "Rewritten", "Site", "Step", "Trace", "TraceStep", "Verdict", "Witness", "apply", "find_site", "forward_site", "guarded", "judge",
    "misses", "pass_class", "pass_names", "passes", "proved", "refuted", "run", "sites", "summaries", "unknown",
]
