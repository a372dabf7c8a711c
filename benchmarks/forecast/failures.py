"""Failures by what the analytic model sees in them: the rates that it forecasts are the ones found here (`python -m benchmarks.forecast failures`)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from kir.learning.forecast import analytic
from kir.learning.forecast.data import PairRow
from kir.learning.forecast.matrices import States, sizes_text

CLASSES = {analytic.REFUSED: "refused", analytic.SPOILT: "leaves a part of its outputs unwritten",
           analytic.UNLIKE: "writes more than once what was written once", analytic.SELDOM: "anything else"}


def classes(states: States, pairs: Sequence[PairRow]) -> dict[str, tuple[int, int]]:
    """Of the pairs of each class: how many failed, and of how many."""
    out = dict.fromkeys(CLASSES.values(), (0, 0))
    for p in pairs:
        before, after = (states.plain[(q, p.device, sizes_text(p.sizes))] for q in (p.before, p.after))
        name = CLASSES[of_states(before, after)]
        out[name] = out[name][0] + bool(p.fault), out[name][1] + 1
    return out


def of_states(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """`analytic.failing` from features."""
    stored = [analytic.Stored(side.get("c.stored", 0.0), side.get("c.stored in all", 0.0), side.get("o.threads", 0.0)) for side in (before, after)]
    return analytic.failing(after.get("l.illegal", 0.0) + after.get("l.refused", 0.0) > 0, *stored)


def lines(found: Mapping[str, tuple[int, int]]) -> list[str]:
    """The rows of a table."""
    return ["| the later program | failed | of | share |", "| --- | ---: | ---: | ---: |",
            *(f"| {name} | {failed} | {of} | {f'{100 * failed / of:.1f} %' if of else '-'} |" for name, (failed, of) in found.items())]
