"""Running sums of rows as scans of tiles."""
from __future__ import annotations

from collections.abc import Iterator

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.visit import statements
from kir.learning.optimize.plan import Plan, Setting
from kir.learning.optimize.sources import ALIGN, LONGEST_ROW, THREADS, loop_extents, narrowing, row_threads, up
from kir.rewrite import Step, pass_class, sites


@dataclass(frozen=True)
class ScanSource:
    """Running sums of rows as scans of tiles: a loop is lengthened to a power of two, becomes a scan, and its tile is spread over threads."""

    name: str = "scan"

    def plans(self, program: n.Program, setting: Setting) -> Iterator[Plan]:
        """Threads by how much each has to do; none where no loop folds what it stores as it goes."""
        loops = [s for k in program.kernels for s in statements(k.body) if isinstance(s, n.For) and any(isinstance(x, n.Store) for x in s.body)]
        if not loops:
            return
        again = (Step("running-sum"),) if sites(pass_class("running-sum").with_options({}), program) else ()  # of what walked back to a sum for each
        facts, claim = narrowing(program, setting), pass_class("tile-scan").claim
        for extent in (x for x in sorted({up(x) for x in loop_extents(program, setting)}) if x <= LONGEST_ROW):
            for threads in row_threads(program, setting) or THREADS:
                steps = (*again, Step("mask-tail", {"extent": extent}), Step("tile-scan"), Step("multi-threaded-block", {"threads": threads}))
                yield Plan("scan", steps, claim, True, {"extent": extent, "threads": threads}, "scan", setting.surface, facts, ALIGN)


__all__ = ["ScanSource"]
