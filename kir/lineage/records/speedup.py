"""What the forward direction of a recorded step brought: modelled and measured."""
from __future__ import annotations

from kir.lineage.records.record import Step


def speedups(step: Step) -> dict[str, float]:
    """Modelled speedup of the forward step by target: above 1 when the optimized side is faster."""
    assert step.after is not None
    slow, fast = step.after.modelled, step.before.modelled
    return {target: round(slow[target] / fast[target], 4) for target in sorted(slow) if fast.get(target)}


def measured_speedups(step: Step) -> dict[str, tuple[float, float, float]]:
    """Measured speedup of the forward step by device, with the interval that the two medians' intervals allow."""
    assert step.after is not None
    slow, fast = step.after.measured, step.before.measured
    return {name: (a[0] / b[0], a[1] / b[2], a[2] / b[1]) for name in sorted(slow) if name in fast for a, b in ((slow[name], fast[name]),)}
