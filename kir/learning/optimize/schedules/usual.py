"""The sources of plans that a search has by default."""
from __future__ import annotations

from kir.learning.optimize.plan import PlanSource
from kir.learning.optimize.schedules.counters import CountersSource
from kir.learning.optimize.schedules.items import ItemsSource
from kir.learning.optimize.schedules.scans import ScanSource
from kir.learning.optimize.schedules.warps import WarpsSource
from kir.learning.optimize.sources import CardSource, LineageSource, PassSource, PipelineSource, TileSource


def sources() -> tuple[PlanSource, ...]:
    """One of each, in the order in which their families are built first."""
    return PipelineSource(), LineageSource(), TileSource(), ItemsSource(), WarpsSource(), CardSource(), ScanSource(), CountersSource(), PassSource()


__all__ = ["sources"]
