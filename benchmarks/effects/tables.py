"""Rows of a device made into the tables of a data set: programs, what compilers said, times, and pairs with the ratio of each round."""

from __future__ import annotations

import gzip
import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kir.gate.gpu.statistics import estimate, ratio
from kir.hardware.target import target, target_names
from kir.learning.forecast.data import FAULTS

Row = dict[str, Any]
ARCH = "sm_90a"
AT_MAKING = "when the data were made"
LEAST = 2
"""Rounds in which both programs of a pair were timed, at least."""
TOLD = {"internal": "compile", "cuda_error_invalid_value": "launch", "cuda_error_out_of_memory": "resources", "error_out_of_memory": "resources"}
"""Faults by the words of the data."""


def read_rows(paths: Iterable[Path]) -> Iterator[Row]:
    """The rows of files of JSON lines, as they are or compressed (`.gz`); a last line that was cut short is left out."""
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            yield from (json.loads(line) for line in lines if line.endswith("\n"))


def device_name(said: str) -> str:
    """Our name of a device (`h200`) for the driver's (`NVIDIA H200`)."""
    known = [word for word in said.lower().split() if word in target_names()]
    return target(known[0]).device.name if known else said


def tables(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Tables by name, as `kir.learning.forecast.data.write` takes them. A program is named by its content hash and its surface: on another surface it is
    other code."""
    programs: dict[str, Row] = {}
    compiled: dict[str, Row] = {}
    steps: dict[tuple[str, str, str], Row] = {}
    measured: list[Row] = []
    modelled: list[Row] = []
    times: dict[tuple[str, str, str], dict[str, Row]] = {}
    faults: dict[str, str] = {}
    edges: dict[str, list[list[str]]] = {}
    about: dict[str, Row] = {}
    said: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        match row["kind"]:
            case "program":
                name = _name(row["program"], row["surface"])
                about[row["group"]] = row
                said[row["group"], row["program"]] = row["modelled"]
                programs.setdefault(name, {"program": name, "text": row["text"], "surface": row["surface"], "family": row["family"],
                                           "problem": row["problem"], "origin": row["group"]})
                compiled[name] = {"program": name, "arch": ARCH, "ok": not row["fault"], "fault": row["why"],
                                  "kernels": [k for k in row["compiled"] if k["variant"] == 0]}
                if row["fault"]:
                    faults[name] = _fault(row["fault"])
            case "fault":
                faults[_name(row["program"], row["surface"])] = _fault(row["fault"])
            case "time":
                times.setdefault((row["group"], row["shape"], device_name(row["device"])), {})[row["program"]] = row
            case "edges":
                edges[row["group"]] = row["edges"]
    pairs: list[Row] = []
    apart: dict[str, list[list[str]]] = {group: two_apart(each) for group, each in edges.items()}
    for (group, shape, device), timed in times.items():
        surface, family = about[group]["surface"], about[group]["family"]
        for program, row in timed.items():
            measured.append(_measured(row, device, _name(program, surface)))
            if math.isfinite(seconds := said.get((group, program), {}).get(shape, math.inf)):
                modelled.append({"device": device, "program": _name(program, surface), "sizes": row["sizes"], "seconds": seconds, "model": AT_MAKING})
        for before, after, step, source in [*edges[group], *apart[group]]:
            names = _name(before, surface), _name(after, surface)
            if step:
                steps[(*names, step)] = {"before": names[0], "after": names[1], "step": step, "forward": True, "source": source}
            if (first := timed.get(before)) is None or first["fault"]:
                continue
            pair = _pair(first, timed.get(after), faults.get(names[1], ""))
            if pair is not None:
                pairs.append({"device": device, "group": group, "shape": shape, "sizes": first["sizes"], "before": names[0], "after": names[1],
                              "step": step, "source": source, "family": family, **pair})
    return {"programs": list(programs.values()), "compiled": list(compiled.values()), "steps": list(steps.values()), "measured": measured,
            "pairs": pairs, "modelled": modelled}


def two_apart(edges: Sequence[Sequence[str]]) -> list[list[str]]:
    """Programs that two steps lie between, as edges without a step: at most as many as there are steps, evenly among them."""
    joined = {frozenset(each[:2]) for each in edges}
    following: dict[str, list[str]] = {}
    for before, after, *_ in edges:
        following.setdefault(before, []).append(after)
    found: dict[frozenset[str], list[str]] = {}
    for before, middle, _, source in edges:
        for after in following.get(middle, []):
            if after != before and frozenset((before, after)) not in joined:
                found.setdefault(frozenset((before, after)), [before, after, "", source])
    every = list(found.values())
    return [every[i * len(every) // len(edges)] for i in range(min(len(every), len(edges)))] if len(every) > len(edges) else every


def _name(program: str, surface: str) -> str:
    return f"{program}.{surface}"


def _fault(said: str) -> str:
    word = TOLD.get(said, said)
    return word if word in FAULTS else "launch"


def _measured(row: Row, device: str, program: str) -> Row:
    warm = estimate(row["warm"]) if len(row["warm"]) >= LEAST else None
    out: Row = {"device": device, "group": row["group"], "program": program, "shape": row["shape"], "sizes": row["sizes"], "fault": row["fault"],
                "clock_mhz": float(row["clock_mhz"]), "when": row["when"], "warm": statistics.median(row["warm"]) if row["warm"] else math.nan,
                "cold": statistics.median(row["cold"]) if row["cold"] else math.nan}
    return {**out, "warm_low": warm.low, "warm_high": warm.high} if warm else out


def _pair(before: Mapping[str, Any], after: Mapping[str, Any] | None, fault: str) -> Row | None:
    """A pair's figures, or why it has none; None where nothing can be said (the later program was not timed here, and no fault of it is known)."""
    if after is None:
        return {"fault": fault} if fault else None
    if after["fault"]:
        return {"fault": after["fault"]}
    rounds = min(len(before["warm"]), len(after["warm"]))
    if rounds < 1:
        return None
    told = ratio(before["warm"][:rounds], after["warm"][:rounds])
    colds = min(len(before["cold"]), len(after["cold"]))
    cold = ratio(before["cold"][:colds], after["cold"][:colds]).median if colds else math.nan
    return {"speedup": told.median, "low": told.low, "high": told.high, "speedup_cold": cold}
