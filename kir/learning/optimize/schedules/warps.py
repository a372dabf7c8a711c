"""Items as warps and CTAs have them, whose threads share what loops fold."""
from __future__ import annotations

from collections.abc import Iterator, Mapping

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import I32
from kir.ir.visit import statements, substitute, walk
from kir.learning.optimize.forms.apart import apart
from kir.learning.optimize.plan import Plan, Setting
from kir.learning.tune.space import Value
from kir.rewrite import Step, pass_class

TEAMS = ((32, 8), (32, 4), (128, 1), (256, 1), (32, 2), (64, 1), (512, 1))
"""Threads that share an item, and warps of a CTA that each have one, as they are tried."""
WARP = 32
SHORT = 256
"""A loop of fewer turns that only stores is left to the threads that the kernel gave it: a rotary embedding of 64 pairs a row took 461 us with a warp for each
row, and 163 with one thread for each pair (H200, 2026-11-30): nvcc writes rounds of the loop out, and with none
written out it takes 60, as the cost model says."""


@dataclass(frozen=True)
class WarpsSource:
    """In CUDA, where a kernel says what each of its threads does: each thread folds its share of an item's loops, however long these are (a row of a sparse
    matrix, words of packed numbers), and shuffles put the shares together; loops that store are shared out as they are."""

    name: str = "warps"

    def plans(self, program: n.Program, setting: Setting) -> Iterator[Plan]:
        """None where there are several kernels, threads already, or no loops; nor where nothing is folded and all loops are short."""
        if setting.surface not in ("", "cuda") or len(program.kernels) != 1 or int_value(program.kernels[0].threads) != 1:
            return
        first, wide = apart(program, setting)
        kernel = wide.kernels[0]
        every, nests = [s for s in statements(kernel.body) if isinstance(s, n.For)], [s for s in kernel.body if isinstance(s, n.For)]
        storing = [any(isinstance(x, n.Store) and x.at.buffer.space == "global" for x in walk(s)) for s in nests]
        shared = [_shared(s, setting) for s in nests]
        if all(storing) and not any((turns := _turns(s, setting)) is None or turns >= SHORT for _, s in shared):
            return
        stored = tuple(next(k for k, x in enumerate(every) if x is s) for (_, s), stores in zip(shared, storing, strict=True) if stores)
        inner = sorted({depth for (depth, _), stores in zip(shared, storing, strict=True) if not stores}, reverse=True)
        for threads, warps in TEAMS:
            parts = (Step("partition-reduction", {"inner": depth} if depth else {}) for depth in inner)
            folds = (*parts, *((Step("two-level-reduction"),) * (threads > 32)), Step("shuffle-exchange")) if inner else ()
            steps = (*first, Step("spread-threads", {"threads": threads, "spread": stored or (-1,)}, kernel.name), *folds,
                     *((Step("warps-per-cta", {"warps": warps}, kernel.name),) if warps > 1 else ()))
            point: Mapping[str, Value] = {"threads": threads, "warps": warps}
            yield Plan("warps", steps, pass_class("partition-reduction").claim, True, point, "warps", setting.surface)


def _shared(nest: n.For, setting: Setting) -> tuple[int, n.For]:
    """The loop of a nest that threads share, and how many are around it: the innermost that goes round often enough for a warp, else the outermost."""
    found, depth, loop = (0, nest), 0, nest
    while len(loop.body) == 1 and isinstance(inner := loop.body[0], n.For):
        depth, loop = depth + 1, inner
        if (turns := _turns(loop, setting)) is None or turns >= WARP:
            found = depth, loop
    return found


def _turns(loop: n.For, setting: Setting) -> int | None:
    """How often a loop goes round at the sizes that are optimized for; None where they do not tell."""
    return int_value(substitute(build.sub(loop.hi, loop.lo), {name: build.const(value, I32) for name, value in setting.shape.sizes.items()}))


__all__ = ["WarpsSource"]
