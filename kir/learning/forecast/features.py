"""What the learned model knows of a pair: the analytic model's terms of both programs, the structure of both and their difference, the step between them,
what was compiled, and the device. Numbers by name; no name of a kernel or family, and no hash, is among them.

A feature of one program is `kind.name`: `t` seconds, `w` work, `o` how it sits on the device, `n` counts of nodes, `k` counts of state features, `s` machine
code, `l` what stands against its running. Those of a pair add what is compared: `log t.dram` is log2 of before over after, so that more is better wherever
less of it is; `share t.dram` its part of the time, `at o.warps` the value after; `mix n.For` its part of the later program, by which programs are
told to be alike.
"""
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from kir.analysis.target.legalize import legalize
from kir.base.diagnostic import KirError, error
from kir.base.registry import registry
from kir.gate.cost import Cost, program_cost
from kir.hardware.target import Target
from kir.hardware.target import target as target_of
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.measures.features import features
from kir.ir.types import DType
from kir.ir.visit import statements
from kir.learning.forecast.distribution import Pair
from kir.surface import Artifact

State = Mapping[str, float]
"""Features of one program at some sizes."""
LEAST = {"t": 1e-8, "w": 1.0, "o": 0.05, "n": 1.0, "k": 1.0, "s": 1.0, "l": 1.0}
"""What is added to both sides of a quotient, by kind: less than that is as good as nothing."""
OPCODES = {"load": ("LDG", "LD"), "store": ("STG", "ST"), "shared load": ("LDS", "LDSM"), "shared store": ("STS", "STSM"),
           "asynchronous": ("LDGSTS", "UTMA", "UBLKCP"),
           "spill": ("LDL", "STL"), "tensor": ("HMMA", "HGMMA", "IMMA", "DMMA", "QGMMA", "IGMMA"), "float": ("FFMA", "FADD", "FMUL", "HFMA2", "HADD2", "HMUL2"),
           "special": ("MUFU",), "whole": ("IMAD", "IADD3", "LEA", "SHF", "LOP3", "VIADD", "ISETP"), "barrier": ("BAR", "SYNCS", "WARPSYNC", "DEPBAR"),
           "branch": ("BRA", "BSSY", "BSYNC"), "exchange": ("SHFL", "REDUX"), "convert": ("F2F", "F2FP", "F2I", "I2F", "PRMT")}
"""SASS opcodes by what they do; the longest name that an opcode begins with decides."""
SURFACES = ("cuda", "triton", "tilelang")
LEVELS = ("t.total", "o.warps", "o.ctas", "o.waves", "o.resident", "o.threads", "o.registers", "o.shared", "w.intensity", "n.kernels", "s.registers",
          "s.spills")
"""What matters by itself, and not only by how it changes."""


def sized(program: n.Program, sizes: Mapping[str, int]) -> None:
    """Raises KirError KIR-E007 where sizes that a program takes are missing or below 1."""
    for p in program.params:
        if p.role == "size" and isinstance(p.of, DType) and p.value is None:
            size = sizes.get(p.name)
            if size is None or size < 1:
                raise error("KIR-E007", f"'{p.name}' is {'not given' if size is None else size}", subject=program.name,
                            needs="every size of the program, each at least 1")


def state(program: n.Program, sizes: Mapping[str, int], target: Target, surface: str = "cuda", artifact: Artifact | None = None) -> dict[str, float]:
    """The features of one program. Raises KirError KIR-E007 for sizes that are no launch."""
    sized(program, sizes)
    costs = program_cost(program, sizes, target, artifact, surface)
    return {**_terms(costs, target), **_compiled(artifact), **structure(program, target)}


def _terms(costs: Sequence[Cost], target: Target) -> dict[str, float]:
    """What the analytic model has of the kernels of a program: added up, and for how it sits on the device, of the slowest."""
    out: dict[str, float] = {"t.total": sum(c.seconds for c in costs), "n.kernels": float(len(costs))}
    for c in costs:
        for part, seconds in c.parts.items():
            out[f"t.{part}"] = out.get(f"t.{part}", 0.0) + seconds
    works = [c.work for c in costs if c.work is not None]
    for name in ("instructions", "l2", "dram", "tensor"):
        out[f"w.{name}"] = sum(getattr(w, name) for w in works)
    out["w.compulsory"] = sum(c.compulsory for c in costs)
    out["w.intensity"] = sum(w.tensor + w.instructions for w in works) / max(out["w.l2"], 1.0)
    slow = max(costs, key=lambda c: c.seconds, default=None)
    if slow is not None and slow.work is not None:
        w, sms = slow.work, target.device.sm_count
        out |= {"o.ctas": float(w.ctas), "o.threads": float(w.threads), "o.registers": float(w.registers), "o.shared": float(w.shared), "o.cycles": w.cycles,
                "o.resident": float(slow.occupancy.ctas), "o.warps": slow.occupancy.ctas * w.threads / 32,
                "o.waves": w.ctas / (sms * max(1, slow.occupancy.ctas)), "o.busy SMs": min(1.0, w.ctas / sms)}
    return out


def _compiled(artifact: Artifact | None) -> dict[str, float]:
    """What the machine code says; nothing where there is none."""
    if artifact is None or not artifact.kernels:
        return {}
    out = {"s.registers": float(artifact.registers), "s.spills": float(artifact.spills), "s.shared": float(artifact.shared_bytes)}
    mix = artifact.mix
    if mix:
        found: Counter[str] = Counter()
        for opcode, times in mix.items():
            found[_group(opcode)] += times
        out |= {"s.all": float(sum(mix.values())), **{f"s.{group}": float(found[group]) for group in OPCODES}}
    return out


@lru_cache(4096)
def _group(opcode: str) -> str:
    fits = [(len(start), group) for group, starts in OPCODES.items() for start in starts if opcode.startswith(start)]
    return max(fits)[1] if fits else ""


def structure(program: n.Program, target: Target) -> Mapping[str, float]:
    """Counts of nodes and of state features, and what the architecture refuses: of the program alone, at any sizes."""
    out: Counter[str] = Counter()
    for k in program.kernels:
        _count(k.body, out, 0)
    for found in features(program):
        out[f"k.{found.partition('@')[0].partition(':')[0]}"] += 1
    try:
        out["l.illegal"] = len(legalize(program, target.architecture))
    except KirError:
        out["l.illegal"] = 1
    return {name: float(value) for name, value in out.items()}


def _count(body: n.Block, out: Counter[str], depth: int) -> None:
    for s in statements(body):
        out[f"n.{type(s).__name__}"] += 1
        if isinstance(s, n.For) and (trips := _trips(s)):
            out["n.trips"] = max(out["n.trips"], trips)
        if isinstance(s, n.Alloc) and s.buffer.space == "shared":
            extents = [int_value(d) or 1 for d in s.buffer.shape]
            out["n.shared bytes"] += math.prod(extents) * s.buffer.dtype.bytes
            out["n.slots"] = max(out["n.slots"], extents[0] if len(extents) > 2 else 1)


def _trips(s: n.For) -> int:
    lo, hi = int_value(s.lo), int_value(s.hi)
    return hi - lo if lo is not None and hi is not None and hi > lo else 0


def of_pair(before: State, after: State, step: str, surface: str, target: Target) -> dict[str, float]:
    """The features of a pair from those of its programs. What only one of both has counts as 0 in the other; of machine code, both must be there."""
    out: dict[str, float] = {}
    for name in before.keys() | after.keys():
        kind = name[0]
        if kind == "s" and not (name in before and name in after):
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
    out["at l.illegal"] = after.get("l.illegal", 0.0)
    counted = {name: value for name, value in after.items() if name[0] in "nk"}
    counted = {name: value for name, value in counted.items() if name not in ("n.shared bytes", "n.trips")}
    whole = sum(counted.values()) or 1.0
    out |= {f"mix {name}": math.sqrt(value / whole) for name, value in counted.items()}
    out |= {**of_limits(after, target), **of_step(step), **of_device(target.name)}
    out |= {f"surface {s}": float(surface == s) for s in SURFACES}
    return out


def of_limits(after: State, target: Target) -> dict[str, float]:
    """How near the later program comes to what a CTA may take: 1 is all of it."""
    a = target.architecture
    return {"limit registers": after.get("o.registers", 0.0) / a.max_registers_per_thread, "limit shared": after.get("o.shared", 0.0) / a.shared_per_cta,
            "limit threads": after.get("o.threads", 0.0) / a.max_threads_per_cta,
            "limit file": after.get("o.registers", 0.0) * after.get("o.threads", 0.0) / a.registers_per_cta}


@lru_cache(8192)
def of_step(step: str) -> Mapping[str, float]:
    """The family of a step's pass, which way it goes, and how many steps the text holds; nothing is set for a pair without a step."""
    text = step.strip()
    if not text:
        return {"step none": 1.0}
    family = family_of(text.lstrip("~").partition("@")[0].partition("{")[0].strip())
    return {f"step {family or 'other'}": 1.0, "step backward": float(text.startswith("~"))}


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
