"""A cost model: from counted work and compiled resources to modelled seconds on a device.

A kernel takes as long as the busiest of its resources: DRAM, L2, shared memory, matrix units, ordinary arithmetic, special functions,
instruction issue. Memory reaches its bandwidth only with enough bytes in flight (Little's law: resident CTAs times what each keeps under
way, over a latency); a kernel that neither overlaps copies with work nor has CTAs to hide behind adds the two up. It is a model, and
what comes of it is marked so: it ranks states of one kernel, and promises no figure.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import Any

from kir.base.dataclass import dataclass
from kir.gate.counts.work import SECTOR, Work, count, differs
from kir.gate.verdict import ProfileRecord
from kir.hardware.target import Architecture, Device, Target
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.rebuild.plans import launches, made
from kir.ir.types import DType
from kir.ir.visit import regions, substitute
from kir.surface import Artifact

LATENCY = 600e-9
"""Seconds from a request to DRAM until its data are there, under load (order of magnitude of published microbenchmarks)."""
L2_LATENCY = 250e-9
"""The same for data that are in L2."""
L2_FACTOR = 2.5
"""Bandwidth of L2 over that of DRAM (A100 and H100 whitepapers: 2.3 times and more)."""
LAUNCH = 3e-6
"""Seconds that a launch costs at least."""
OWN_REGISTERS = 24
"""Registers a thread besides what the program declares: addresses, counters, operands."""
IN_TURN = 4
"""Spilled registers that a thread has under way at once: it waits for each where it is read (order of magnitude)."""
ISSUE = 4
"""Warp instructions that an SM starts in a clock: one a partition."""
LAYING_OUT = frozenset({"triton", "tilelang"})
"""Surfaces whose compilers choose how shared memory is laid out."""
SAMPLED = 16
"""CTAs that are looked at where they differ in what they do."""
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
"""Multiples of it lie evenly between whole numbers, whatever the extents of a grid are."""
SPECIAL = 16
"""Special functions of an SM in a clock (CUDA C++ Programming Guide, arithmetic throughput)."""


@dataclass(frozen=True)
class Occupancy:
    """CTAs resident on an SM, and what limits them (`threads`, `registers`, `shared`, `ctas`)."""

    ctas: int
    limit: str


def occupancy(a: Architecture, threads: int, registers: int, shared: int) -> Occupancy:
    """How many CTAs fit an SM (the rules of `cuda_occupancy.h`): `registers` a thread, `shared` bytes a CTA."""
    warps = -(-max(threads, 1) // a.warp_size)
    per_warp = -(-max(registers, 1) * a.warp_size // a.register_unit) * a.register_unit
    counted = -(-warps // a.warp_unit) * a.warp_unit
    held = -(-(shared + a.shared_reserved) // a.shared_unit) * a.shared_unit
    limits = {"threads": a.max_warps_per_sm // warps, "registers": a.registers_per_sm // (per_warp * counted),
              "shared": a.shared_per_sm // held, "ctas": a.max_ctas_per_sm}
    if shared > a.shared_per_cta or registers > a.max_registers_per_thread:
        return Occupancy(0, "shared" if shared > a.shared_per_cta else "registers")
    name = min(limits, key=lambda k: (limits[k], k))
    return Occupancy(limits[name], name)


@dataclass(frozen=True)
class Cost:
    """Modelled seconds of one kernel, by resource in `parts`; the largest names `bound_by`. `compulsory` are the bytes of its tensors."""

    kernel: str
    seconds: float
    bound_by: str
    parts: Mapping[str, float] = field(default_factory=dict)
    occupancy: Occupancy = Occupancy(1, "ctas")
    compulsory: float = 0.0
    work: Work | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return asdict(self)


def kernel_cost(program: n.Program, kernel: n.Kernel, sizes: Mapping[str, int], target: Target, artifact: Artifact | None = None,
                surface: str = "cuda") -> Cost:
    """The cost of one kernel at these sizes; registers and shared memory as compiled, else as declared. Compilers of other surfaces than CUDA
    lay shared memory out themselves."""
    as_written = (artifact.surface if artifact is not None else surface) not in LAYING_OUT
    work = _at_work(program, kernel, sizes, as_written)
    device, arch = target.device, target.architecture
    uneven = work.uneven if work.ctas <= device.sm_count else 1.0
    made = next((k for k in artifact.kernels if k.kernel == kernel.name), None) if artifact is not None else None
    threads = max(32, made.threads if made else work.threads)
    wanted = OWN_REGISTERS + work.registers
    registers = made.registers if made and made.registers else min(arch.max_registers_per_thread, wanted)
    spilled = 0 if made else max(max(0, wanted + live - arch.max_registers_per_thread) * times for live, times in work.live)
    shared = made.shared_bytes if made else work.shared
    fit = occupancy(arch, threads, registers, shared)
    resident = max(1, min(fit.ctas, -(-work.ctas // device.sm_count)))
    busy = min(1.0, work.ctas / device.sm_count)
    waves = work.ctas / (device.sm_count * max(1, fit.ctas))
    tail = math.ceil(waves) / waves if waves > 1 else 1.0
    compulsory = _compulsory(program, kernel, sizes)
    parts = _parts(work, device, compulsory, busy)
    spills = 2.0 * spilled / IN_TURN * L2_LATENCY * math.ceil(max(1.0, waves))  # each is written once, and read again
    flight = resident * max(work.in_flight, SECTOR) * device.sm_count
    hidden = {"dram": flight / (device.bandwidth * LATENCY), "l2": flight / (device.bandwidth * L2_FACTOR * L2_LATENCY)}
    memory = max(parts[level] / min(1.0, hidden[level]) for level in ("dram", "l2"))
    compute = uneven * max(parts["tensor"], parts["scalar"], parts["special"], parts["issue"], parts["shared"])
    overlap = work.overlapped or resident * threads >= arch.max_threads_per_sm // 4
    seconds = LAUNCH + spills + tail * (max(memory, compute) + (0.0 if overlap else 0.5 * min(memory, compute)))
    parts = {**parts, "latency": memory - max(parts["dram"], parts["l2"]), **({"spills": spills} if spills else {})}
    bound = max(parts, key=lambda k: (parts[k], k)) if max(parts.values()) > LAUNCH else "launch"
    return Cost(kernel.name, seconds, bound, parts, fit, compulsory, work)


def _at_work(program: n.Program, kernel: n.Kernel, sizes: Mapping[str, int], as_written: bool) -> Work:
    """The work of a kernel as its middle CTA does it; where they differ, as `SAMPLED` of them do it in the mean, of as many CTAs as have some;
    where the middle one finds nothing to do (persistent CTAs, and little work), as the first does."""
    middle = count(program, kernel, sizes, 0.5, as_written)
    if not differs(kernel):
        return middle
    if not _busy(middle) and _busy(first := count(program, kernel, sizes, 0, as_written)):
        return _of_the_first(program, kernel, sizes, as_written, first)
    spread = range(middle.ctas) if middle.ctas <= SAMPLED else [int((i + 0.5) * GOLDEN % 1.0 * middle.ctas) for i in range(SAMPLED)]
    seen = [count(program, kernel, sizes, at, as_written) for at in dict.fromkeys(spread)]
    work = [w for w in seen if _busy(w)]
    if not work:
        return middle
    ctas = max(1, round(middle.ctas * len(work) / len(seen)))
    share = ctas / (middle.ctas * len(work))

    def mean(of: Callable[[Work], float]) -> float:
        return share * sum(map(of, work))

    def each(of: Callable[[Work], Mapping[str, float]]) -> dict[str, float]:
        return {k: share * sum(of(w).get(k, 0.0) for w in work) for k in dict.fromkeys(k for w in work for k in of(w))}
    heavy = max(work, key=lambda w: (sum(w.operations.values()), w.instructions))
    instructions = mean(lambda w: w.instructions)
    return replace(heavy, ctas=ctas, requested=each(lambda w: w.requested), operations=each(lambda w: w.operations), instructions=instructions,
                   sectors=mean(lambda w: w.sectors), in_flight=sum(w.in_flight for w in work) / len(work),
                   uneven=max(1.0, heavy.instructions * ctas / middle.ctas / instructions) if instructions else 1.0)


def _of_the_first(program: n.Program, kernel: n.Kernel, sizes: Mapping[str, int], as_written: bool, first: Work) -> Work:
    """The work of as many CTAs as have some, each as much as the first."""
    working, idle = 0, first.ctas // 2
    while idle - working > 1:
        probe = (working + idle) // 2
        if _busy(count(program, kernel, sizes, probe / first.ctas, as_written)):
            working = probe
        else:
            idle = probe
    share = idle / first.ctas
    return replace(first, ctas=idle, sectors=first.sectors * share, instructions=first.instructions * share,
                   requested={k: v * share for k, v in first.requested.items()}, operations={k: v * share for k, v in first.operations.items()})


def _busy(work: Work) -> bool:
    """Whether a CTA moves or computes anything."""
    return bool(work.sectors or any(work.operations.values()) or any(work.requested.values()))


def _parts(w: Work, d: Device, compulsory: float, busy: float) -> dict[str, float]:
    """Seconds that each resource needs for itself, `busy` being the part of the SMs that have a CTA."""
    reused = max(0.0, w.sectors - compulsory)
    missed = max(0.0, 1.0 - d.l2 / compulsory) if compulsory else 0.0
    dram = min(compulsory, w.sectors) + reused * missed * 0.25
    tensor = sum(flops / max(_rate(d.tensor, unit), 1.0) for unit, flops in w.operations.items() if unit.startswith("tensor "))
    scalar = sum(flops / max(_rate(d.scalar, unit), 1.0) for unit, flops in w.operations.items() if unit.startswith("scalar "))
    shared = sum(b for space, b in w.requested.items() if space.endswith("shared"))
    clock = d.clock * d.sm_count
    return {"dram": dram / d.bandwidth, "l2": w.sectors / (d.bandwidth * L2_FACTOR), "tensor": tensor / busy, "scalar": scalar / busy,
            "special": w.operations.get("special", 0.0) / (SPECIAL * clock) / busy, "issue": w.instructions / (ISSUE * clock) / busy,
            "shared": shared / d.shared_bandwidth / busy}


def _rate(rates: object, unit: str) -> float:
    name = unit.split(" ", 1)[1]
    return float(getattr(rates, name, 0.0)) or float(getattr(rates, "f32", 0.0)) or float(getattr(rates, "tf32", 0.0))


def _compulsory(program: n.Program, kernel: n.Kernel, sizes: Mapping[str, int]) -> float:
    """Bytes of the tensors that the kernel touches, each once."""
    values = {p.name: const(sizes[p.name], p.of) for p in program.params if isinstance(p.of, DType) and p.name in sizes}
    total = 0.0
    for b in {r.buffer for s in kernel.body for r in regions(s) if r.buffer.space == "global"}:
        extents = [int_value(substitute(d, values)) for d in b.shape]
        total += math.prod(x for x in extents if x is not None) * b.dtype.bytes if None not in extents else 0.0
    return total


def program_cost(program: n.Program, sizes: Mapping[str, int], target: Target, artifact: Artifact | None = None,
                 surface: str = "cuda") -> tuple[Cost, ...]:
    """The cost of each kernel that a call of these sizes launches."""
    known = {p.name: const(sizes[p.name], p.of) for p in program.params if isinstance(p.of, DType) and p.name in sizes}
    order = [step.kernel for step, taken in zip(launches(program), made(program, known), strict=True) if taken]
    kernels = {k.name: k for k in program.kernels}
    return tuple(kernel_cost(program, kernels[name], sizes, target, artifact, surface) for name in order)


def profile(program: n.Program, shapes: Sequence[tuple[str, Mapping[str, int]]], target: Target,
            artifact: Artifact | None, surface: str = "cuda") -> list[ProfileRecord]:
    """Modelled seconds of the whole program at each shape."""
    out = []
    for name, sizes in shapes:
        costs = program_cost(program, sizes, target, artifact, surface)
        slowest = max(costs, key=lambda c: c.seconds)
        parts = {key: round(sum(c.parts.get(key, 0.0) for c in costs), 12) for key in slowest.parts}
        out.append(ProfileRecord(target.name, name, float(f"{sum(c.seconds for c in costs):.6g}"), slowest.bound_by,
                                 {k: float(f"{v:.4g}") for k, v in parts.items()}))
    return out
