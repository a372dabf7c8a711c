"""Boosted trees as arrays: a forest that another library has grown is evaluated with NumPy alone, all trees of a row at once."""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kir.base.dataclass import dataclass

Array = np.ndarray[Any, np.dtype[Any]]
KINDS = {"feature": "<i2", "threshold": "<f8", "child": "<i4", "value": "<f4", "roots": "<i4"}
"""Arrays of a forest and how each is kept."""
CHUNK = 4096
"""Rows that are looked at together."""


@dataclass(frozen=True)
class Forest:
    """Nodes of all trees in a row: from a node, a row goes to `child` where its `feature` is at most `threshold`, else to the node after that. Features are
    counted twice: in the first half NaN lies below every threshold, in the second above. A leaf leads to itself. A row's value is the sum of `value` over
    the leaves that it comes to. `depth` is the most steps that takes; `width` how many features there are."""

    feature: Array
    threshold: Array
    child: Array
    value: Array
    roots: Array
    depth: int
    width: int

    def __call__(self, rows: Array) -> Array:
        """The values of rows (rows x features, of which those beyond `width` are not looked at), as f64."""
        return self.sums(rows, ())[:, 0]

    def sums(self, rows: Array, starts: Sequence[int]) -> Array:
        """The values of the trees before the first of `starts`, from it to the next, and so on: those of forests that were joined (rows x forests, f64)."""
        if len(rows) > CHUNK:
            return np.concatenate([self.sums(rows[i:i + CHUNK], starts) for i in range(0, len(rows), CHUNK)])
        if not len(self.roots):
            return np.zeros((len(rows), 1 + len(starts)))
        seen = rows[:, :self.width]
        twice, none = np.concatenate([seen, seen], axis=1), np.isnan(seen)
        twice[:, :self.width][none], twice[:, self.width:][none] = -np.inf, np.inf
        line = (np.arange(len(rows)) * (2 * self.width))[:, None]
        flat, at = twice.ravel(), np.tile(self.roots, (len(rows), 1))
        for _ in range(self.depth):
            above = flat.take(self.feature.take(at) + line) > self.threshold.take(at)
            at = self.child.take(at) + above
        parts = np.split(self.value.take(at), starts, axis=1) if starts else [self.value.take(at)]
        return np.array([part.sum(axis=1, dtype=np.float64) for part in parts]).T

    def scaled(self, by: float) -> Forest:
        """The forest whose values are so many times as large."""
        return replace(self, value=self.value * by)

    def joined(self, other: Forest) -> Forest:
        """The trees of both, over the same features: to be evaluated at once."""
        return Forest(np.concatenate([self.feature, other.feature]), np.concatenate([self.threshold, other.threshold]),
                      np.concatenate([self.child, other.child + len(self.child)]), np.concatenate([self.value, other.value]),
                      np.concatenate([self.roots, other.roots + len(self.child)]), max(self.depth, other.depth), self.width)

    @classmethod
    def of(cls, dumped: Mapping[str, Any], width: int) -> Forest:
        """A forest from LightGBM's `Booster.dump_model()` over so many features. Raises ValueError for a split of another kind than by a threshold."""
        nodes: list[tuple[int, float, int, float]] = []
        roots, deepest = [], 0
        for tree in dumped["tree_info"]:
            roots.append(len(nodes))
            nodes.append((0, math.inf, len(nodes), 0.0))
            deepest = max(deepest, _grow(tree["tree_structure"], nodes, len(nodes) - 1, width))
        columns = list(zip(*nodes, strict=True)) if nodes else [()] * 4
        names = ("feature", "threshold", "child", "value")
        arrays = {name: np.array(column, KINDS[name]) for name, column in zip(names, columns, strict=True)}
        return cls(**arrays, roots=np.array(roots, KINDS["roots"]), depth=deepest, width=width)

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """The arrays by name, in the order of `KINDS`."""
        return ((name, getattr(self, name)) for name in KINDS)

    def sizes(self) -> dict[str, int]:
        """How long each array is, and the depth: what `read` needs."""
        return {**{name: len(a) for name, a in self.arrays()}, "depth": self.depth, "width": self.width}

    def packed(self) -> bytes:
        """All arrays, one after another."""
        return b"".join(np.ascontiguousarray(a, KINDS[name]).tobytes() for name, a in self.arrays())

    @classmethod
    def read(cls, sizes: Mapping[str, int], content: bytes, start: int) -> tuple[Forest, int]:
        """A forest from `packed` ones that begin at `start`, and where they end. Raises ValueError where they are too short."""
        arrays = {}
        for name, kind in KINDS.items():
            arrays[name] = np.frombuffer(content, kind, sizes[name], start)
            start += arrays[name].nbytes
        return cls(**arrays, depth=sizes["depth"], width=sizes["width"]), start


def _grow(tree: Mapping[str, Any], nodes: list[tuple[int, float, int, float]], here: int, width: int) -> int:
    """Put a tree at a node and its branches behind all nodes; how deep it is."""
    if "split_feature" not in tree:
        nodes[here] = (0, math.inf, here, float(tree["leaf_value"]))
        return 0
    if tree["decision_type"] != "<=":
        raise ValueError(f"a split by {tree['decision_type']}")
    goes_left = tree["default_left"] if tree["missing_type"] == "NaN" else tree["threshold"] >= 0.0
    left = len(nodes)
    nodes += [(0, math.inf, left, 0.0), (0, math.inf, left + 1, 0.0)]
    nodes[here] = (int(tree["split_feature"]) + (0 if goes_left else width), float(tree["threshold"]), left, 0.0)
    return 1 + max(_grow(tree["left_child"], nodes, left, width), _grow(tree["right_child"], nodes, left + 1, width))


def nothing() -> Forest:
    """A forest of no trees: 0 for every row."""
    empty: Sequence[int] = ()
    return Forest(**{name: np.array(empty, kind) for name, kind in KINDS.items()}, depth=0, width=0)
