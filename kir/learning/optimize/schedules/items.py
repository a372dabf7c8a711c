"""Items of a grid as the threads of a CTA have them."""
from __future__ import annotations

from collections.abc import Iterator, Mapping

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.learning.optimize.forms.apart import apart
from kir.learning.optimize.plan import Plan, Setting
from kir.learning.optimize.sources import axes_of_results
from kir.learning.tune.space import Value
from kir.rewrite import Step, pass_class

ITEMS = ((256, 1), (256, 4), (128, 1), (128, 4), (256, 2), (512, 1), (256, 8))
"""Threads of a CTA and items of each, as they are tried."""


@dataclass(frozen=True)
class ItemsSource:
    """In CUDA, where a kernel says what each of its threads does: items along the axis in which results lie, some for each thread. Branches stay, and what
    hangs over ends early; coordinates that were divided out of one number are axes of the grid."""

    name: str = "items"

    def plans(self, program: n.Program, setting: Setting) -> Iterator[Plan]:
        """None where there are several kernels, or threads already."""
        if setting.surface not in ("", "cuda") or len(program.kernels) != 1 or int_value(program.kernels[0].threads) != 1:
            return
        first, wide = apart(program, setting)
        kernel, column = wide.kernels[0], axes_of_results(wide.kernels[0])[1]
        if column is None:
            return
        for threads, each in ITEMS:
            steps = (*first, Step("coarsen-grid", {"axis": column, "extent": threads * each}, kernel.name),
                     Step("spread-threads", {"threads": threads, "spread": (0,)}, kernel.name), Step("early-exit"))
            point: Mapping[str, Value] = {"threads": threads, "each": each}
            yield Plan("items", steps, pass_class("coarsen-grid").claim, False, point, "items", setting.surface)


__all__ = ["ItemsSource"]
