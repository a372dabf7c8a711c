"""Clusters: which CTAs belong together. A CTA's rank counts along x first, as `%cluster_ctarank` does."""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from functools import cached_property

from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.interp.numerics.number import Array
from kir.interp.state.frame import Frame
from kir.ir.nodes import Stmt


@dataclass(eq=False)
class Use:
    """An access of one CTA to the shared memory of another: by which agents, at which clocks, at which statement."""

    cta: int
    agents: Array
    clocks: Array
    site: Stmt | None


@dataclass(eq=False)
class Clusters:
    """The clusters of the launch that runs now. `roots` are the frames of CTAs by cluster and rank, `gone` those that have ended."""

    extents: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    roots: dict[tuple[int, int], Frame] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    uses: dict[int, list[Use]] = field(default_factory=dict)
    counts: dict[int, list[int]] = field(default_factory=dict)
    """By CTA, how many threads have arrived on the cluster's barrier so far, and how many have come to wait for it."""

    @cached_property
    def size(self) -> int:
        """CTAs of a cluster."""
        return math.prod(self.shape)

    def place(self, root: Frame) -> tuple[int, int]:
        """The number of a CTA's cluster, and its rank there."""
        return self.of(int(root.cta[0]) if root.cta is not None else 0)

    def of(self, cta: int) -> tuple[int, int]:
        """The same of a CTA's number."""
        number, rank, across, within = 0, 0, 1, 1
        for i, extent in enumerate(self.extents):
            wide = self.shape[i] if i < len(self.shape) else 1
            at = cta % max(1, extent)
            cta //= max(1, extent)
            number, across = number + at // wide * across, across * -(-extent // wide)
            rank, within = rank + at % wide * within, within * wide
        return number, rank

    def order(self, total: int) -> Sequence[int]:
        """CTAs in the order in which they start: clusters one after another."""
        return range(total) if self.size == 1 else sorted(range(total), key=self.of)


def begun(extents: Sequence[int], shape: tuple[int, ...], name: str) -> Clusters:
    """The clusters of a launch. Raises KirError KIR-I029 when they do not divide the grid."""
    wide = (*shape, *(1 for _ in extents[len(shape):]))
    for axis, (extent, each) in enumerate(zip(extents, wide, strict=False)):
        if extent % each:
            raise error("KIR-I029", f"kernel '{name}' is launched with {extent} CTAs along axis {axis}, in clusters of {each}",
                        witness=(f"CTA {extent - 1} has no cluster of its own to be in",), needs="a grid that its clusters divide")
    if len(wide) > len(extents) and any(each != 1 for each in wide[len(extents):]):
        raise error("KIR-I029", f"kernel '{name}' has a grid of {len(extents)} axes and clusters of {list(shape)}", needs="a cluster along the grid's axes")
    return Clusters(tuple(extents), wide[:len(extents)])


def root_of(f: Frame) -> Frame:
    """The frame of the CTA that a frame belongs to."""
    while f.parent is not None or f.acts_for is not None:
        f = f.parent if f.parent is not None else f.acts_for  # type: ignore[assignment]  # one of them is there
    return f
