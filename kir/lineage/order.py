"""What to peel first: an order of passes computed from what they require, provide and exclude.

In the forward direction a pass that provides a state feature comes before one that requires it, and one that requires the
absence of a feature (a conflict) before one that provides it. Going back, the order turns round: what came last is peeled
first. The order is only a prior. A step out of order that passes the gate is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kir.base.dataclass import dataclass


@dataclass(frozen=True)
class Declared:
    """A pass as the order sees it: its name, and the kinds of features (``mma``, ``shared``) that it declares."""

    name: str
    requires: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()


def kind(feature: str) -> str:
    """The kind of a feature: ``mma@main/k_loop`` is an ``mma``, ``shared:As`` a ``shared``."""
    return feature.partition("@")[0].partition(":")[0].strip()


def peel_ranks(passes: Iterable[Declared]) -> Mapping[str, int]:
    """A rank for each pass name: what has a lower rank is undone first. Ties, and members of a cycle, share a rank. (To import a library of
    graphs takes ten times as long as this, and each command that walks waits for it.)"""
    declared = sorted(passes, key=lambda each: each.name)
    after: dict[str, set[str]] = {each.name: set() for each in declared}
    for before in declared:
        provided = {kind(feature) for feature in before.provides}
        refused = {kind(feature) for feature in before.conflicts}
        for each in declared:
            if provided & {kind(feature) for feature in each.requires} or refused & {kind(feature) for feature in each.provides}:
                after[before.name].add(each.name)
    for between in after:  # whatever comes after what comes after
        for reached in after.values():
            if between in reached:
                reached |= after[between]
    ranks: dict[str, int] = {}

    def rank(name: str) -> int:
        if name not in ranks:
            ranks[name] = max((rank(each) + 1 for each in after[name] if name not in after[each]), default=0)
        return ranks[name]
    return {each.name: rank(each.name) for each in declared}
