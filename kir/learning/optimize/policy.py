"""Which plan to try next: a linear policy over features of the state and the plan, trained on what came of plans in earlier searches.

A contextual bandit in its plainest form: ridge regression of the reward on features (the mean of LinUCB, Li et al. 2010), explored by the search itself,
which gates the best of each family before the second of any. The reward of a gated plan is the logarithm of its speed over the best of its search:
0 for the best, less for others, `REFUSED` for one that the gate refuses.

Beside it stands what forecasts of measured candidates were wrong by, carried to those that were not measured: the more two have in common, the more. What
they were wrong by elsewhere, on a device that was measured, is kept with the policy (`off`): of each family of plans, and of all of a kind of operator.
"""
from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from importlib import resources
from pathlib import Path
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.base.store import write_atomic

SCHEMA = "kir.policy/1"
REFUSED = -3.0
"""The reward of a plan that the gate refuses, and the least of any."""
RIDGE = 1.0
"""Weight of the penalty on squared weights: an effect seen once counts half."""

NEARER = 4.0
"""How many times as much a measured candidate counts for each parameter in which it is like the one that is estimated."""
UNTRIED = 0.99
"""What is made of the estimate for each value of a parameter that none of its family had on its surface: a forecast often sees no difference between values
that a device tells apart, and then each gets its turn."""

LEFT_OUT = 1.0
"""How many times worse a candidate is thought of whose plan was left out whole: a plan that is cut short is seldom what was meant."""
ALIKE = 0.02
"""Forecasts whose logarithms differ by less say the same."""

Features = Mapping[str, float]


ALL, FEW_KNOWN = "all", 4
"""Under which name stands what is known of all families together; kernels of a family that must have been measured to say something of it."""


@dataclass(frozen=True)
class Trust:
    """How long kernels took on a device that plans like these gave, over what was modelled: quartiles of so many (`count`) by `whose` plans."""

    count: int
    low: float
    middle: float
    high: float
    whose: str = ""


@dataclass(frozen=True)
class Policy:
    """Weights by feature; `searches` is how many it was trained on. `off` is by device and by family or kind of operator with its surface: the logarithm of
    measured times over forecasts, from other kernels and sizes. `known` is by device and by family with its surface how far they were apart in all: how many
    kernels, and the quartiles of these logarithms."""

    weights: Mapping[str, float]
    searches: int = 0
    off: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    known: Mapping[str, Mapping[str, tuple[int, float, float, float]]] = field(default_factory=dict)
    """By device and by family with its surface (`all`: of all together) how far measured times were from modelled ones: of how many kernels, and the quartiles
    of those logarithms."""

    def trust(self, device: str, family: str, surface: str) -> Trust | None:
        """What is known of kernels by plans of a family; else of all that were measured; None where none was."""
        there = self.known.get(device, {})
        for name, whose in ((f"{family} {surface}", family), (ALL, "")):
            if name in there and there[name][0] >= FEW_KNOWN:
                count, *quartiles = there[name]
                low, middle, high = map(math.exp, quartiles)
                return Trust(count, low, middle, high, whose)
        return None

    def known_off(self, device: str, operator: str, family: str, surface: str) -> float | None:
        """What forecasts of a family are wrong by on a device, as a logarithm; else what those of plans for the operator are; None where neither is known."""
        there = self.off.get(device, {})
        return there.get(f"{family} {surface}", there.get(f"operator={operator} {surface}"))

    def score(self, features: Features) -> float:
        """The reward that is expected of a plan with these features, 0 for the best there could be."""
        return sum(self.weights.get(k, 0.0) * v for k, v in features.items())


NO_POLICY = Policy({})
"""Every plan alike."""


def features_of(operator: str, start: str, source: str, family: str, surface: str, share: float) -> dict[str, float]:
    """What the policy sees of a plan on a state: the kind of operator, where the state comes from, the plan's family, and the part of its steps that
    could be taken (0 to 1)."""
    kind = "naive" if "naive" in start or "back" in start else "as it is"
    return {"bias": 1.0, f"family={family}": 1.0, f"family={family} operator={operator}": 1.0, f"source={source} start={kind}": 1.0,
            f"surface={surface} operator={operator}": 1.0, "share": share, "left": 1.0 - share}


def trained(logs: Iterable[Iterable[Mapping[str, Any]]]) -> Policy:
    """The policy that best foretells the rewards in the events of searches."""
    import numpy as np

    rows: list[tuple[Features, float]] = []
    count = 0
    for events in logs:
        found = list(_rewards(events))
        rows += found
        count += bool(found)
    names = sorted({k for features, _ in rows for k in features})
    if not rows:
        return NO_POLICY
    at = {name: i for i, name in enumerate(names)}
    x, y = np.zeros((len(rows), len(names))), np.array([reward for _, reward in rows])
    for i, (features, _) in enumerate(rows):
        for k, v in features.items():
            x[i, at[k]] = v
    weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(len(names)), x.T @ y)
    return Policy({name: round(float(w), 6) for name, w in zip(names, weights, strict=True)}, count)


def apart(logs: Iterable[Iterable[Mapping[str, Any]]]) -> Iterator[tuple[str, str, float]]:
    """Of each candidate that a device measured and took, its family, its surface, and the logarithm of its time over the modelled one."""
    for events in logs:
        built: dict[str, tuple[str, str, float]] = {}
        for row in events:
            if row["event"] == "modelled":
                built[row["candidate"]] = row["family"], row["surface"], row["seconds"]
            elif row["event"] == "gate" and row["accepted"] and row["candidate"] in built:
                family, surface, seconds = built[row["candidate"]]
                yield family, surface, math.log(row["seconds"] / seconds)


def quartiles(found: Iterable[tuple[str, str, float]]) -> dict[str, tuple[int, float, float, float]]:
    """By family with its surface, and of all, how many there are and their quartiles."""
    groups: dict[str, list[float]] = {}
    for family, surface, off in found:
        for name in (f"{family} {surface}", ALL):
            groups.setdefault(name, []).append(off)
    out = dict[str, tuple[int, float, float, float]]()
    for name, each in sorted(groups.items()):
        low, middle, high = statistics.quantiles(each, n=4, method="inclusive") if len(each) > 1 else each * 3
        out[name] = len(each), round(low, 3), round(middle, 3), round(high, 3)
    return out


def _rewards(events: Iterable[Mapping[str, Any]]) -> Iterable[tuple[Features, float]]:
    built: dict[str, Features] = {}
    gated: dict[str, float | None] = {}
    for row in events:
        if row["event"] == "plan" and "features" in row:
            built.setdefault(row["candidate"], row["features"])
        elif row["event"] == "gate":
            gated[row["candidate"]] = row["seconds"] if row["accepted"] else None
    times = [s for s in gated.values() if s]
    for key, seconds in gated.items():
        if key in built and times:
            yield built[key], max(REFUSED, math.log(min(times) / seconds)) if seconds else REFUSED


def save(policy: Policy, path: Path) -> None:
    """Write a policy."""
    said = {"schema": SCHEMA, "searches": policy.searches, "weights": dict(policy.weights), "off": {k: dict(v) for k, v in policy.off.items()},
            "known": {k: {f: list(x) for f, x in v.items()} for k, v in policy.known.items()}}
    write_atomic(path, json.dumps(said, indent=1, sort_keys=True) + "\n")


def load(path: Path | None = None) -> Policy:
    """A policy from its file, or the one that comes with KIR (none: every plan alike). Raises KirError KIR-U023 for a file of another version, or one
    that is no policy."""
    file = path or Path(str(resources.files("kir.skills"))) / "policy.json"
    if path is None and not file.is_file():
        return NO_POLICY
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(held, dict):
            raise ValueError("it holds no object")
        if held.get("schema") != SCHEMA:
            raise error("KIR-U023", f"{file} is a policy of the form '{held.get('schema', 'unknown')}'", needs=f"one of the form '{SCHEMA}': train it again",
                        attempt=f"kir optimize --learn LOG -o {file}")
        weights = {str(k): float(v) for k, v in dict(held.get("weights", {})).items()}
        off = {str(k): {str(f): float(x) for f, x in dict(v).items()} for k, v in dict(held.get("off", {})).items()}
        known = {str(k): {str(f): (int(n), float(a), float(b), float(c)) for f, (n, a, b, c) in dict(v).items()}
                 for k, v in dict(held.get("known", {})).items()}
        numbers = (*weights.values(), *(x for v in off.values() for x in v.values()), *(x for v in known.values() for four in v.values() for x in four))
        if not all(map(math.isfinite, numbers)):
            raise ValueError("a weight is no number")
        return Policy(weights, int(held["searches"]), off, known)
    except (OSError, ValueError, KeyError, TypeError) as bad:
        raise error("KIR-U023", f"{file} is no policy: {bad}", attempt=f"kir optimize --learn LOG -o {file}") from bad


@dataclass(frozen=True)
class Known:
    """A measured candidate: what its plan's family, surface and parameters were, and the logarithm of its time over its forecast."""

    family: str
    surface: str
    point: Mapping[str, Any]
    off: float


def estimated(forecast: float, family: str, surface: str, point: Mapping[str, Any], known: Iterable[Known]) -> float:
    """Forecast seconds, times what forecasts of the same family and surface (else the same surface) were wrong by: the mean of their logarithms, in which
    those count most that differ in the fewest parameters."""
    there = [k for k in known if k.surface == surface]
    kin = [k for k in there if k.family == family]
    if not there:
        return forecast
    weights = [NEARER ** sum(k.point.get(name) == value for name, value in point.items()) for k in kin or there]
    off = sum(w * k.off for w, k in zip(weights, kin or there, strict=True)) / sum(weights)
    return forecast * math.exp(off)


def untried(family: str, surface: str, point: Mapping[str, Any], known: Iterable[Known]) -> float:
    """The factor for values of parameters that no measured candidate of the family had; 1 where nothing of the family was measured."""
    kin = [k for k in known if (k.family, k.surface) == (family, surface)]
    fresh = sum(all(k.point.get(name) != value for k in kin) for name, value in point.items()) if kin else 0
    return UNTRIED**fresh


def promise(seconds: float, share: float, number: int) -> tuple[int, int]:
    """What candidates are ordered by before any is gated: the forecast in steps of `ALIKE`, worse the more of the plan had to be left out (`share`: what was
    taken); then who came first, by `number`: the sources give what they think best first, and a forecast that is a hair shorter is no better word than
    theirs."""
    return round(math.log(seconds * (1 + LEFT_OUT * (1 - share))) / ALIKE), number
