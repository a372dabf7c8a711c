"""The features of a pair: those of its two programs compared, the step between them, and the device. See `kir.learning.forecast.features`."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from kir.base.dataclass import dataclass
from kir.base.registry import registry
from kir.hardware.target import Target
from kir.hardware.target import target as target_of
from kir.learning.forecast.distribution import Pair
from kir.learning.forecast.features import State, state
from kir.learning.forecast.trees import Array

LEAST = {"t": 1e-8, "w": 1.0, "o": 0.05, "n": 1.0, "k": 1.0, "s": 1.0, "l": 1.0, "p": 1.0, "c": 1.0, "x": 1.0}
"""What is added to both sides of a quotient, by kind: less than that is as good as nothing."""
SURFACES = ("cuda", "triton", "tilelang")
LEVELS = ("t.total", "o.warps", "o.ctas", "o.waves", "o.resident", "o.threads", "o.registers", "o.shared", "w.intensity", "n.kernels", "s.registers",
          "s.spills", "n.View")
"""What matters by itself, and not only by how it changes."""
RAW = ("l.illegal", "l.unknown", "l.refused")
"""What counts against the later program, as it is."""
MOVED = ("c.stored", "c.stored in all", "c.gathered")
"""What two programs that compute the same have alike: a step that changes it, whichever way, may be wrong."""
APART = ("n.shared bytes", "n.trips", "n.mma tile", "n.fragment")
"""Features of the kind `n` that count no nodes."""
PRINT = "s.print"
"""A number that two programs share when their machine code has the same mix of instructions; it is never a feature itself."""


def of_pair(before: State, after: State, step: str, surface: str, target: Target) -> dict[str, float]:
    """The features of a pair from those of its programs. What only one of both has counts as 0 in the other; of machine code, both must be there."""
    out: dict[str, float] = {}
    for name in before.keys() | after.keys():
        kind = name[0]
        if name == PRINT or (kind == "s" and not (name in before and name in after)):
            continue
        a, b = before.get(name, 0.0), after.get(name, 0.0)
        out[f"log {name}"] = math.log2((a + LEAST[kind]) / (b + LEAST[kind]))
    for side, found in (("was", before), ("share", after)):
        total = max(found.get("t.total", 0.0), LEAST["t"])
        for name, value in found.items():
            if name.startswith("t.") and name != "t.total":
                out[f"{side} {name}"] = value / total
    for name in LEVELS:
        if name in after:
            out[f"at {name}"] = math.log2(after[name] + LEAST[name[0]])
    out |= {f"at {name}": after.get(name, 0.0) for name in RAW}
    counted = {name: value for name, value in after.items() if name[0] in "nk"}
    counted = {name: value for name, value in counted.items() if name not in APART}
    out["at changed"] = math.log2(1.0 + sum(abs(value - before.get(name, 0.0)) for name, value in counted.items())
                                  + sum(value for name, value in before.items() if name[0] in "nk" and name not in after and name not in APART))
    out |= {f"moved {name}": abs(out.get(f"log {name}", 0.0)) for name in MOVED}
    if PRINT in before and PRINT in after:
        out["same s.code"] = float(_same_code(before, after))
    whole = sum(counted.values()) or 1.0
    out |= {f"mix {name}": math.sqrt(value / whole) for name, value in counted.items()}
    out |= {**of_limits(after, target), **of_step(step), **of_device(target.name)}
    out |= {f"surface {s}": float(surface == s) for s in SURFACES}
    return out


@dataclass(frozen=True)
class Side:
    """What `Compared` keeps of one program: the features in the order of its columns, and all of them."""

    logs: Array
    parts: Array
    levels: Array
    mix: Array
    counts: Mapping[str, float]
    state: State


class Compared:
    """The features of pairs in the order of `names`, as `vector(of_pair(..), names)` gives them: what is of one program alone is worked out once for it."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.place = {name: i for i, name in enumerate(self.names)}
        self.logs, self._log_names = self._columns("log ")
        self.was, self._was_names = self._columns("was ")
        self.share, share_names = self._columns("share ")
        self._part_names = tuple(dict.fromkeys((*self._was_names, *share_names)))
        at = {name: i for i, name in enumerate(self._part_names)}
        self._was_from, self._share_from = (np.array([at[name] for name in names], dtype=np.intp) for names in (self._was_names, share_names))
        self.levels, self._level_names = self._columns("at ", ("at changed",))
        self.mix, self._mix_names = self._columns("mix ")
        self._least = np.array([LEAST[name[0]] for name in self._log_names])
        self._blank = np.array([math.nan if " s." in name else 0.0 for name in self.names])

    def _columns(self, kind: str, without: Sequence[str] = ()) -> tuple[Array, tuple[str, ...]]:
        found = [(i, name[len(kind):]) for i, name in enumerate(self.names) if name.startswith(kind) and name not in without]
        return np.array([i for i, _ in found], dtype=np.intp), tuple(name for _, name in found)

    def side(self, state: State) -> Side:
        """A program's part."""
        values = np.array([state.get(name, math.nan if name[0] == "s" else 0.0) for name in self._log_names])
        total = max(state.get("t.total", 0.0), LEAST["t"])
        counts = {name: value for name, value in state.items() if name[0] in "nk" and name not in APART}
        whole = sum(counts.values()) or 1.0
        levels = [state.get(name, 0.0) if name[0] == "l" else math.log2(state[name] + LEAST[name[0]]) if name in state else math.nan if name[0] == "s" else 0.0
                  for name in self._level_names]
        return Side(np.log2(values + self._least), np.array([state.get(name, 0.0) / total for name in self._part_names]), np.array(levels),
                    np.array([math.sqrt(counts.get(name, 0.0) / whole) for name in self._mix_names]), counts, state)

    def pair(self, before: Side, after: Side, step: str, surface: str, target: Target) -> Array:
        """The row of a pair."""
        out = self._blank.copy()
        out[self.logs] = before.logs - after.logs
        out[self.was] = before.parts[self._was_from]
        out[self.share] = after.parts[self._share_from]
        out[self.levels] = after.levels
        out[self.mix] = after.mix
        a, b = before.state, after.state
        changed = sum(abs(value - before.counts.get(name, 0.0)) for name, value in after.counts.items())
        changed += sum(value for name, value in before.counts.items() if name not in after.counts)
        found = {"at changed": math.log2(1.0 + changed), **{f"moved {name}": _apart(name, a, b) for name in MOVED},
                 **of_limits(b, target), **of_step(step), **of_device(target.name), f"surface {surface}": 1.0}
        if PRINT in a and PRINT in b:
            found["same s.code"] = float(_same_code(a, b))
        for name, value in found.items():
            if (i := self.place.get(name)) is not None:
                out[i] = value
        return out


def _apart(name: str, before: State, after: State) -> float:
    least = LEAST[name[0]]
    return abs(math.log2((before.get(name, 0.0) + least) / (after.get(name, 0.0) + least)))


def _same_code(before: State, after: State) -> bool:
    return all(before.get(name) == after.get(name) for name in (PRINT, "s.registers", "s.spills", "s.shared"))


def of_limits(after: State, target: Target) -> dict[str, float]:
    """How near the later program comes to what a CTA may take: 1 is all of it."""
    a = target.architecture
    return {"limit registers": after.get("o.registers", 0.0) / a.max_registers_per_thread, "limit shared": after.get("o.shared", 0.0) / a.shared_per_cta,
            "limit threads": after.get("o.threads", 0.0) / a.max_threads_per_cta,
            "limit file": after.get("o.registers", 0.0) * after.get("o.threads", 0.0) / a.registers_per_cta}


@lru_cache(8192)
def of_step(step: str) -> Mapping[str, float]:
    """A step's pass, the pass's family, and which way the step goes; for a pair without a step, that there is none."""
    text = step.strip()
    if not text:
        return {"step none": 1.0}
    name = text.lstrip("~").partition("@")[0].partition("{")[0].strip()
    return {f"step {family_of(name) or 'other'}": 1.0, f"pass {name}": 1.0, "step backward": float(text.startswith("~"))}


@lru_cache(1024)
def family_of(name: str) -> str:
    """The family of a pass by its name ("" for one that is not there)."""
    entry = next((e for e in registry("kir.passes") if e.name == name), None)
    return entry.file.parent.name if entry is not None else ""


@lru_cache(64)
def of_device(name: str) -> Mapping[str, float]:
    """A device's constants: SMs, clock, bytes a clock from DRAM and of L2 an SM, operations a clock of matrix units and ordinary arithmetic."""
    d = target_of(name).device
    return {"device sms": float(d.sm_count), "device clock": d.clock, "device dram": d.bandwidth / d.clock / d.sm_count, "device l2": d.l2 / d.sm_count,
            "device tensor": d.tensor.f16 / d.clock / d.sm_count, "device scalar": d.scalar.f32 / d.clock / d.sm_count}


def pair_features(pair: Pair, compiled: bool = True) -> dict[str, float]:
    """The features of a pair, everything worked out anew; without `compiled`, as if nothing had been."""
    sides = [state(p, pair.sizes, pair.target, pair.surface, made if compiled else None)
             for p, made in zip((pair.before, pair.after), pair.compiled, strict=True)]
    return of_pair(sides[0], sides[1], pair.step, pair.surface, pair.target)


def vector(found: Mapping[str, float], names: Sequence[str]) -> list[float]:
    """Values in the order of `names`; NaN for what is not there of machine code, 0 for anything else."""
    return [found.get(name, math.nan if " s." in name else 0.0) for name in names]


def opposite(step: str) -> str:
    """The text of a step the other way round."""
    text = step.strip()
    return text[1:] if text.startswith("~") else f"~{text}" if text else ""
