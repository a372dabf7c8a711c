"""What the learned model knows of a pair: the analytic model's terms of both programs, the structure of both and their difference, the step between them,
what was compiled, and the device. Numbers by name; no name of a kernel or family, and no hash, is among them.

A feature of one program is `kind.name`: `t` seconds, `w` work, `o` how it sits on the device, `n` counts of nodes, `k` counts of state features, `s` machine
code, `l` what stands against its running. Those of a pair add what is compared: `log t.dram` is log2 of before over after, so that more is better wherever
less of it is; `share t.dram` its part of the time, `at o.warps` the value after; `mix n.For` its part of the later program, by which programs are
told to be alike.
"""
from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from kir.base.diagnostic import KirError, error
from kir.gate.cost import Cost, program_cost
from kir.hardware.target import Target
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.measures.features import features
from kir.ir.types import DType, shape_of
from kir.ir.visit import once, statements, walk
from kir.learning.forecast.terms import illegal, numbered, refused, unhidden
from kir.surface import Artifact

State = Mapping[str, float]
"""Features of one program at some sizes."""
OPCODES = {"load": ("LDG", "LD"), "store": ("STG", "ST"), "shared load": ("LDS", "LDSM"), "shared store": ("STS", "STSM"),
           "asynchronous": ("LDGSTS", "UTMA", "UBLKCP"),
           "spill": ("LDL", "STL"), "tensor": ("HMMA", "HGMMA", "IMMA", "DMMA", "QGMMA", "IGMMA"), "float": ("FFMA", "FADD", "FMUL", "HFMA2", "HADD2", "HMUL2"),
           "special": ("MUFU",), "whole": ("IMAD", "IADD3", "LEA", "SHF", "LOP3", "VIADD", "ISETP"), "barrier": ("BAR", "SYNCS", "WARPSYNC", "DEPBAR"),
           "branch": ("BRA", "BSSY", "BSYNC"), "exchange": ("SHFL", "REDUX"), "convert": ("F2F", "F2FP", "F2I", "I2F", "PRMT")}
"""SASS opcodes by what they do; the longest name that an opcode begins with decides."""
OF_ALL = frozenset({"stored", "stored in all", "gathered"})
OF_ONE = frozenset({"alone", "held", "sm", "contended", "unrolled", "deepest", "teams", "loops", "code"})
"""Tallies that are the whole grid's already, and those that mean nothing added up over it."""


def sized(program: n.Program, sizes: Mapping[str, int]) -> None:
    """Raises KirError KIR-E007 where sizes that a program takes are missing or below 1."""
    for p in program.params:
        if p.role == "size" and isinstance(p.of, DType) and p.value is None:
            size = sizes.get(p.name)
            if size is None or size < 1:
                raise error("KIR-E007", f"'{p.name}' is {'not given' if size is None else size}", subject=program.name,
                            needs="every size of the program, each at least 1")


def state(program: n.Program, sizes: Mapping[str, int], target: Target, surface: str = "cuda", artifact: Artifact | None = None) -> dict[str, float]:
    """The features of one program. Raises KirError KIR-E007 for sizes that are no launch. TileLang's compiler knows the sizes of a program without parameters
    of its own; of a generic one they stay open."""
    sized(program, sizes)
    open_sizes = sum(p.role == "size" and p.value is None for p in program.params) if surface == "tilelang" and program.metas else 0
    program = numbered(program)
    costs = program_cost(program, sizes, target, artifact, surface)
    out = {**_terms(costs, target), **_compiled(artifact), **once(program, f"_structure {target.architecture.name}", lambda: structure(program, target)),
           "l.refused": float(refused(program, target.architecture, surface, sizes))}
    out["x.open sizes"] = float(open_sizes)
    out["t.unhidden"] = unhidden(costs, artifact)
    out["t.total"] += out["t.unhidden"]
    if out.get("s.all") and out.get("p.code"):
        out["w.executed"] = out["w.instructions"] * out["s.all"] / out["p.code"]
    return out


def _terms(costs: Sequence[Cost], target: Target) -> dict[str, float]:
    """What the analytic model has of the kernels of a program: added up, and for how it sits on the device, of the slowest."""
    out: dict[str, float] = {"t.total": math.fsum(c.seconds for c in costs), "n.kernels": float(len(costs)),
                             "l.unknown": float(len({x for c in costs for x in c.unknown}))}
    for c in costs:
        for part, seconds in c.parts.items():
            out[f"t.{part}"] = out.get(f"t.{part}", 0.0) + seconds
    works = [c.work for c in costs if c.work is not None]
    for name in ("instructions", "l2", "dram", "tensor"):
        out[f"w.{name}"] = math.fsum(getattr(w, name) for w in works)
    out["w.compulsory"] = math.fsum(c.compulsory for c in costs)
    out["w.intensity"] = math.fsum(w.tensor + w.instructions for w in works) / max(out["w.l2"], 1.0)
    slow = max(costs, key=lambda c: c.seconds, default=None)
    if slow is not None and slow.work is not None:
        w, sms = slow.work, target.device.sm_count
        out |= {"o.ctas": float(w.ctas), "o.threads": float(w.threads), "o.registers": float(w.registers), "o.shared": float(w.shared), "o.cycles": w.cycles,
                "o.resident": float(slow.occupancy.ctas), "o.warps": slow.occupancy.ctas * w.threads / 32,
                "o.waves": w.ctas / (sms * max(1, slow.occupancy.ctas)), "o.busy SMs": min(1.0, w.ctas / sms)}
        out |= {f"o.limit {name}": float(slow.occupancy.limit == name) for name in ("threads", "registers", "shared", "ctas")}
        out |= {f"p.{name}": value for name, value in slow.tallies.items() if name not in OF_ALL}
    for c in costs:
        for name, value in c.tallies.items():
            if name not in OF_ONE:
                grid = 1.0 if name in OF_ALL or c.work is None else c.work.ctas
                out[f"c.{name}"] = out.get(f"c.{name}", 0.0) + value * grid
    return out


def _compiled(artifact: Artifact | None) -> dict[str, float]:
    """What the machine code says; nothing where there is none."""
    if artifact is None or not artifact.kernels:
        return {}
    out = {"s.registers": float(artifact.registers), "s.spills": float(artifact.spills), "s.shared": float(artifact.shared_bytes)}
    mix = artifact.mix
    out["s.print"] = float(zlib.crc32(repr(sorted(mix.items())).encode()) % (1 << 24)) if mix else 0.0
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
        _count(k.body, out)
        _written(k.body, out)
    for found in features(program):
        out[f"k.{found.partition('@')[0].partition(':')[0]}"] += 1
    try:
        out["l.illegal"] = illegal(program, target.architecture)
    except KirError:
        out["l.illegal"] = 1
    return {name: float(value) for name, value in out.items()}


def _count(body: n.Block, out: Counter[str]) -> None:
    for s in statements(body):
        out[f"n.{type(s).__name__}"] += 1
        if isinstance(s, n.For) and (trips := _trips(s)):
            out["n.trips"] = max(out["n.trips"], trips)
        if isinstance(s, n.Mma):
            shape = [int_value(d) or 1 for d in shape_of(s.acc.type)]
            out["n.mma tile"] = max(out["n.mma tile"], math.prod(shape))
        if isinstance(s, n.Alloc) and s.buffer.space in ("fragment", "register"):
            out["n.fragment"] += math.prod(int_value(d) or 1 for d in s.buffer.shape)
        if isinstance(s, n.Alloc) and s.buffer.space == "shared":
            extents = [int_value(d) or 1 for d in s.buffer.shape]
            out["n.shared bytes"] += math.prod(extents) * s.buffer.dtype.bytes
            out["n.slots"] = max(out["n.slots"], extents[0] if len(extents) > 2 else 1)


def _written(body: n.Block, out: Counter[str]) -> None:
    """Counts of what expressions and statements are made with."""
    for s in body:
        for x in walk(s):
            match x:
                case n.For():
                    out[f"x.for {x.kind}"] += 1
                    for name, value in x.attrs:
                        out[f"x.attr {name}"] = max(out[f"x.attr {name}"], value) if isinstance(value, int) and not isinstance(value, bool) else 1
                case n.Copy():
                    out[f"x.copy {x.via.partition('(')[0]}"] += 1
                    out["x.clip"] += bool(x.clip or x.src.clip)
                    out["x.mask"] += x.mask is not None
                case n.Mma():
                    out[f"x.mma {x.via}"] += 1
                    out[f"x.mma {x.precision}"] += 1
                case n.Call():
                    out[f"x.call {x.fn}"] += 1
                case n.Binary():
                    out[f"x.op {x.op}"] += 1
                    out[f"x.{'tile' if shape_of(x.type) else 'scalar'} operations"] += 1
                case n.Cast():
                    out[f"x.cast {x.dtype.name}"] += 1
                case n.Load():
                    out[f"x.load {x.at.buffer.space}"] += 1
                    out[f"x.load of {x.at.buffer.dtype.name}"] += 1
                    out[f"x.load {x.cache or 'plain'}"] += 1
                    out["x.counted place"] += _counted(x.at)
                    out["x.clip"] += x.clip
                    out["x.mask"] += x.mask is not None
                case n.Store():
                    out[f"x.store {x.at.buffer.space}"] += 1
                    out[f"x.store of {x.at.buffer.dtype.name}"] += 1
                    out["x.counted place"] += _counted(x.at)
                    out["x.clip"] += x.clip
                    out["x.mask"] += x.mask is not None
                case n.Alloc():
                    out[f"x.alloc {x.buffer.space}"] += 1
                    if x.buffer.layout is not None:
                        out[f"x.layout {x.buffer.layout.name}"] += 1
                case n.Expr():
                    out[f"x.{type(x).__name__}"] += 1
                case _:
                    pass


def _counted(at: n.Region) -> bool:
    """Whether a place is read from a register, which is counted up."""
    return any(isinstance(x, n.Load) and x.at.buffer.space == "register" for i in at.index for x in walk(i))


def _trips(s: n.For) -> int:
    lo, hi = int_value(s.lo), int_value(s.hi)
    return hi - lo if lo is not None and hi is not None and hi > lo else 0
