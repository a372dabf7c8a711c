"""Items as warps and CTAs have them, whose threads share what loops fold."""
from __future__ import annotations

from collections.abc import Iterator, Mapping

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.visit import walk
from kir.learning.optimize.plan import Plan, Setting
from kir.learning.optimize.sources import apart
from kir.learning.tune.space import Value
from kir.rewrite import Step, pass_class

TEAMS = ((32, 8), (32, 4), (128, 1), (256, 1), (32, 2), (64, 1), (512, 1))
"""Threads that share an item, and warps of a CTA that each have one, as they are tried."""


@dataclass(frozen=True)
class WarpsSource:
    """In CUDA, where a kernel says what each of its threads does: each thread folds its share of an item's loops, however long these are (a row of a sparse
    matrix, words of packed numbers), and shuffles put the shares together; loops that store are shared out as they are."""

    name: str = "warps"

    def plans(self, program: n.Program, setting: Setting) -> Iterator[Plan]:
        """None where there are several kernels, threads already, or no loops."""
        if setting.surface not in ("", "cuda") or len(program.kernels) != 1 or int_value(program.kernels[0].threads) != 1:
            return
        first, wide = apart(program, setting)
        kernel = wide.kernels[0]
        loops = [s for s in kernel.body if isinstance(s, n.For)]
        stored = tuple(k for k, s in enumerate(loops) if any(isinstance(x, n.Store) and x.at.buffer.space == "global" for x in walk(s)))
        for threads, warps in TEAMS if loops else ():
            shares = (Step("partition-reduction"), *((Step("two-level-reduction"),) * (threads > 32)), Step("shuffle-exchange"))
            folds = shares if len(stored) < len(loops) else ()
            steps = (*first, Step("spread-threads", {"threads": threads, "spread": stored or (-1,)}, kernel.name), *folds,
                     *((Step("warps-per-cta", {"warps": warps}, kernel.name),) if warps > 1 else ()))
            point: Mapping[str, Value] = {"threads": threads, "warps": warps}
            yield Plan("warps", steps, pass_class("partition-reduction").claim, True, point, "warps", setting.surface)


__all__ = ["WarpsSource"]
