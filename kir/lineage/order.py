"""What to peel first: an order of passes computed from what they require, provide and exclude.

In the forward direction a pass that provides a state feature comes before one that requires it, and one that requires the
absence of a feature (a conflict) before one that provides it. Going back, the order turns round: what came last is peeled
first. The order is only a prior. A step out of order that passes the gate is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


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
    """A rank for each pass name: what has a lower rank is taken back first. Ties, and members of a cycle, share a rank."""
    import networkx

    declared = sorted(passes, key=lambda each: each.name)
    graph = networkx.DiGraph()
    graph.add_nodes_from(each.name for each in declared)
    for before in declared:
        provided = {kind(feature) for feature in before.provides}
        refused = {kind(feature) for feature in before.conflicts}
        for after in declared:
            if after.name == before.name:
                continue
            if provided & {kind(feature) for feature in after.requires}:
                graph.add_edge(before.name, after.name)
            if refused & {kind(feature) for feature in after.provides}:
                graph.add_edge(before.name, after.name)
    folded = networkx.condensation(graph)
    depth: dict[int, int] = {}
    for component in reversed(list(networkx.topological_sort(folded))):
        depth[component] = max((depth[after] + 1 for after in folded.successors(component)), default=0)
    members = folded.graph["mapping"]
    return {name: depth[members[name]] for name in sorted(members)}
