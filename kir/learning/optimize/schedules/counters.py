"""Counters that many threads add to: each CTA has its own in shared memory, and adds them once for many items."""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.types import I32
from kir.ir.visit import substitute, walk
from kir.learning.optimize.plan import Plan, Setting
from kir.learning.tune.space import Value
from kir.rewrite import Step, pass_class

ITEMS = ((256, 64), (512, 32), (256, 32), (512, 64), (1024, 16), (256, 16))
"""Threads of a CTA and items of each, as they are tried where the kernel has none."""
LEAST_CTAS = 1
"""CTAs an SM that are left at least."""


@dataclass(frozen=True)
class CountersSource:
    """A kernel that updates an array of known length in global memory, by places that data say: private counters, and of a naive kernel first the tiles
    that make them pay."""

    name: str = "counters"

    def plans(self, program: n.Program, setting: Setting) -> Iterator[Plan]:
        """The kernel's own threads, or tiles of its items by how many a thread has; none where nothing is updated so, or several kernels are."""
        kernel, cls = program.kernels[0], pass_class("privatize-atomics")
        names = dict.fromkeys(x.args[0].buffer.name for x in walk(kernel) if isinstance(x, n.Call) and x.fn.startswith("atomic_") and x.args
                              and isinstance(x.args[0], n.Region) and x.args[0].buffer.space == "global" and len(x.args[0].buffer.shape) == 1)
        if len(program.kernels) != 1 or not names or setting.surface not in ("", "cuda"):
            return
        own = tuple(Step("privatize-atomics", {"buffer": name}) for name in names)
        if int_value(kernel.threads) != 1:
            yield Plan("counters", own, cls.claim, False, {}, "counters", setting.surface)
            return
        sizes: Mapping[str, n.Expr] = {k: const(v, I32) for k, v in setting.shape.sizes.items()}
        items = [int_value(substitute(a.extent, sizes)) or 1 for a in kernel.grid]
        for threads, each in ITEMS if len(items) == 1 else ():
            if math.prod(items) // (threads * each) < LEAST_CTAS * setting.target.device.sm_count:
                continue
            steps = (Step("coarsen-grid", {"extent": threads * each}, kernel.name), Step("update-rows"),
                     Step("multi-threaded-block", {"threads": threads}, kernel.name), Step("lower-tiles", {}, kernel.name), *own)
            point: Mapping[str, Value] = {"threads": threads, "each": each}
            yield Plan("counters", steps, cls.claim, False, point, "counters", setting.surface)


__all__ = ["CountersSource"]
