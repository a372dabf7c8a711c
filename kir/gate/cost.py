"""A cost model: from a trace of a kernel's warps and its compiled resources to modelled seconds on a device.

A kernel of CTAs that fill the SMs takes as long as the busiest resource of an SM is taken by all its CTAs, or as long as CTAs take alone, one wave
after the other
(their latencies, which other warps hide), or as L2 or DRAM need for what is moved; little is hidden perfectly, so that the sum is one of powers.
It is a model, and what comes of it is marked so.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field
from typing import Any

from kir.analysis.target.legalize import shared_bytes
from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.gate.counts.register_pressure import WORD
from kir.gate.counts.schedule import PARTITIONS, Clock, Span, run
from kir.gate.counts.tallies import tallies
from kir.gate.counts.trace import Access, operations
from kir.gate.counts.work import LAYING_OUT, Declared, Work, count, declared, differs, threaded
from kir.gate.verdict import ProfileRecord
from kir.hardware.target import Architecture, Device, Target
from kir.ir import nodes as n
from kir.ir.build import const
from kir.ir.rebuild.plans import launches, made
from kir.ir.types import DType
from kir.ir.visit import once, statements
from kir.surface import Artifact, CompiledKernel

L2_FACTOR = 2.5
"""Bandwidth of L2 over that of DRAM where it was not measured (A100 and H100 whitepapers: 2.3 times and more)."""
LAUNCH = 2.3e-6
"""Seconds that a launch costs at least, from event to event (*micro*: 2.8e-6 for one CTA of nothing, its own way included)."""
CTA_SECONDS = 6.1e-10
"""Seconds between the CTAs that a device begins (*micro*: 135168 of them in 82 us)."""
DEPENDENT = 2.0
"""How many times longer that is where the next launch may begin before the end of this one (measured pairs, H200: 16777216 CTAs in 10.08 and 20.16 ms)."""
DRAM_SHARE = 0.885
"""How much of its nominal bandwidth DRAM reaches (*micro*, H200: 4.25 of 4.8 TB/s)."""
OWN_REGISTERS = 16
"""Registers a thread besides what the program declares: addresses, counters, operands."""
IN_TURN = 4
"""Spilled registers that a thread has under way at once: it waits for each where it is read (order of magnitude)."""
PRODUCER, CONSUMER_REGISTERS = 128, 240
"""Threads that TileLang adds to a kernel whose pipelined loops have products (a warpgroup that copies), and the most registers of the others, for which it
asks ptxas (TileLang 0.1.15 for sm_90a: all 20 such programs of `benchmarks/data/effects`)."""
SAMPLED = 5
"""CTAs that are looked at where they differ in what they do."""
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
"""Multiples of it lie evenly between whole numbers, whatever the extents of a grid are."""
POWER = 4.0
"""What takes part at the same time adds up as a sum of so high powers: of two equal ones, neither hides the other wholly."""
L1_BYTES = 256 * 1024
"""L1 and shared memory of an SM together (H100 whitepaper; A100: 192 KiB)."""
L2_SHARE = 0.8
"""How much of L2 what is read again may take."""
CLUSTER_CYCLES = 4000.0
"""Cycles that the CTAs of a cluster lose together, beginning and ending as one, while no memory is read for them (fitted to 13 GEMMs with few rows on an H100,
tried on 13 others: `docs/decisions/0019-cost-model.md`)."""
PARTS = 8
"""Groups of SMs (GPCs) that no cluster goes beyond (H100 whitepaper), of each of which what is no whole cluster stays empty."""
CTA_CYCLES = 400.0
"""Cycles that a CTA takes beyond its instructions: begun, constants and instructions fetched, ended (*micro*: 1.3e-6 s an empty launch after another)."""


@dataclass(frozen=True)
class Occupancy:
    """CTAs resident on an SM, and what limits them (`threads`, `registers`, `shared`, `ctas`)."""

    ctas: int
    limit: str


def occupancy(a: Architecture, threads: int, registers: int, shared: int) -> Occupancy:
    """How many CTAs fit an SM (the rules of `cuda_occupancy.h`): `registers` a thread, `shared` bytes a CTA."""
    warps = -(-max(threads, 1) // a.warp_size)
    per_warp = -(-max(registers, 1) * a.warp_size // a.register_unit) * a.register_unit
    of_partition = a.registers_per_sm // a.warp_unit // per_warp
    held = -(-(shared + a.shared_reserved) // a.shared_unit) * a.shared_unit
    limits = {"threads": a.max_warps_per_sm // warps, "registers": of_partition * a.warp_unit // warps,
              "shared": a.shared_per_sm // held, "ctas": a.max_ctas_per_sm}
    if shared > a.shared_per_cta or registers > a.max_registers_per_thread:
        return Occupancy(0, "shared" if shared > a.shared_per_cta else "registers")
    name = min(limits, key=lambda k: (limits[k], k))
    return Occupancy(limits[name], name)


@dataclass(frozen=True)
class Totals:
    """What all CTAs of a kernel do: warp instructions, bytes between L2 and the SMs and of DRAM, floating-point operations of tensor cores, cycles that one CTA
    takes alone; and CTAs, threads of one, registers of a thread, bytes of shared memory of a CTA, and the CTAs that run at the same time."""

    ctas: float
    threads: int
    registers: int
    shared: int
    together: int
    instructions: float
    l2: float
    dram: float
    tensor: float
    cycles: float


@dataclass(frozen=True)
class Cost:
    """Modelled seconds of one kernel, by resource in `parts`; the largest names `bound_by`. `compulsory` are the bytes of its tensors; `unknown`
    is what was not counted."""

    kernel: str
    seconds: float
    bound_by: str
    parts: Mapping[str, float] = field(default_factory=dict)
    occupancy: Occupancy = Occupancy(1, "ctas")
    compulsory: float = 0.0
    work: Totals | None = None
    unknown: tuple[str, ...] = ()
    tallies: Mapping[str, float] = field(default_factory=dict)
    """What one CTA does, added up (`kir.gate.counts.tallies`)."""

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {k: v for k, v in asdict(self).items() if k != "tallies"}


def kernel_cost(program: n.Program, kernel: n.Kernel, sizes: Mapping[str, int], target: Target, artifact: Artifact | None = None,
                surface: str = "cuda", warm: bool = True) -> Cost:
    """The cost of one kernel at these sizes; registers and shared memory as compiled, else as declared. Compilers of other surfaces than CUDA
    distribute tiles themselves; `warm`: a run before has left in L2 what fits it. Raises KirError KIR-E007 for a size below 1."""
    surface = artifact.surface if artifact is not None else surface
    counted = threaded(program, surface)
    own = next((k for k in counted.kernels if k.name == kernel.name), kernel)
    if surface in LAYING_OUT:
        program, kernel = counted, own
    made_of = next((k for k in artifact.kernels if k.kernel == kernel.name), None) if artifact is not None else None
    return _modelled(counted if own is not kernel else program, kernel, own, sizes, target, made_of, surface, warm)


def _modelled(program: n.Program, kernel: n.Kernel, own: n.Kernel, sizes: Mapping[str, int], target: Target, made_of: CompiledKernel | None, surface: str,
              warm: bool) -> Cost:
    device = target.device
    placed = _placed(program, kernel, own, sizes, target, made_of, surface, warm)
    tiles, asked, samples, resident, fit = placed.tiles, placed.asked, placed.samples, placed.resident, placed.fit
    threads, registers, spilled = placed.threads, placed.registers, placed.spilled
    cluster = math.prod(kernel.cluster)
    together = max(cluster, resident * device.sm_count - PARTS * (cluster - 2) // 2) if cluster > 2 else resident * device.sm_count
    ctas = tiles.ctas * math.fsum(share for _, share in samples)
    runs = [(run([w.stream.team], w.stream.threads / 32, _clock(w, device)), w, share) for w, share in samples]
    weight = math.fsum(share for _, share in samples)

    def mean(of: Any) -> float:
        return float(math.fsum(of(r, w) * share for r, w, share in runs) / weight)
    a_sm = max(1.0, ctas / device.sm_count)
    most = math.ceil(a_sm) if a_sm < 3 * resident else a_sm + 0.5
    waves = math.ceil(ctas / together) if ctas < 3 * together else ctas / together + 0.5
    alone = mean(lambda r, w: r.cycles) if waves > 1 else max(r.cycles for r, _, _ in runs)
    clock = device.clock
    busy_of = {name: mean(lambda r, w, name=name: r.busy.get(name, 0.0)) for name in dict.fromkeys(k for r, _, _ in runs for k in r.busy)}
    parts = {name: each * most / clock for name, each in busy_of.items()}
    beyond = CTA_CYCLES + (CLUSTER_CYCLES if cluster > 1 else 0.0)
    parts["latency"] = (alone + beyond) * waves / clock
    shared_time = (alone + beyond) / clock
    held = max(busy_of.values(), default=0.0) / clock
    sm = most / throughput(min(resident, most), held, max(0.0, shared_time - held)) if most >= 1.0 else shared_time
    sm = max(sm, parts["latency"])
    factor = tiles.ctas / max(1, asked.ctas)
    parts["l2"] = weight * factor * mean(lambda r, w: w.l2) / (device.l2_bandwidth or device.bandwidth * L2_FACTOR)
    parts["dram"] = weight * factor * mean(lambda r, w: w.dram) / (device.bandwidth * DRAM_SHARE)
    parts["ctas"] = tiles.ctas * CTA_SECONDS * (DEPENDENT if _dependent(program, kernel) else 1.0)
    if atomics := mean(lambda r, w: w.atomics):
        parts["atomics"] = weight * atomics * device.pipes.contended / clock
    if spilled:
        parts["spills"] = 2.0 * spilled / IN_TURN * device.pipes.l2_latency / clock * max(1.0, waves)
    idle = (beyond - CTA_CYCLES) * max(1.0, ctas / device.sm_count) / clock
    beside = (parts.get(k, 0.0) + (idle if k in ("l2", "dram") else 0.0) for k in ("l2", "dram", "ctas", "atomics"))
    busy = math.fsum(v**POWER for v in (sm, *beside)) ** (1 / POWER)
    parts["launch"] = LAUNCH
    bound = max(parts, key=lambda k: (parts[k], k))
    unknown = tuple(dict.fromkeys(x for w, _ in samples for x in w.stream.unknown))
    scale = weight * factor
    totals = Totals(ctas, threads, registers, asked.shared, together, busy_of.get("issue", 0.0) * PARTITIONS * ctas, scale * mean(lambda r, w: w.l2),
                    scale * mean(lambda r, w: w.dram), ctas * mean(lambda r, w: _products(w)), alone)
    each = [(tallies([w.stream.team], w.stream.threads / 32), share / weight) for w, share in samples]
    seen = {name: math.fsum(found.get(name, 0.0) * share for found, share in each) for name in dict.fromkeys(k for found, _ in each for k in found)}
    seen |= {"alone": alone, "held": held * clock, "sm": sm * clock, "spilled": spilled, **_stored(program, samples, tiles.ctas)}
    return Cost(kernel.name, LAUNCH + busy + parts.get("spills", 0.0), bound, parts, fit, mean(lambda r, w: w.compulsory), totals, unknown, seen)


def _dependent(program: n.Program, kernel: n.Kernel) -> bool:
    """Whether a kernel is launched as one that others may begin beside (programmatic dependent launch)."""
    return any(step.kernel == kernel.name and bool(dict(step.attrs).get("pdl")) for step in launches(program))


def _stored(program: n.Program, samples: Sequence[tuple[Work, float]], ctas: int) -> dict[str, float]:
    """Bytes of the program's outputs that the grid writes, each once (`stored`) and as often as it does (`stored in all`), and those of its inputs that it
    reads, each once (`gathered`). Two programs that compute the same have the same of them, as far as they can be counted."""
    roles = {p.name: p.role for p in program.params}
    out = {"stored": 0.0, "stored in all": 0.0, "gathered": 0.0}
    for w, share in samples:
        read: dict[str, float] = {}
        for op, _, _ in operations([w.stream.team]):
            if (a := op.access) is None:
                continue
            if a.verb != "read" and roles.get(a.buffer) in ("out", "inout"):
                out["stored"] += a.unique * share
                out["stored in all"] += a.moved * ctas * share
            elif a.verb == "read" and roles.get(a.buffer) in ("in", "inout"):
                read[a.buffer] = max(read.get(a.buffer, 0.0), a.unique)
        out["gathered"] += math.fsum(read.values()) * share
    return out


@dataclass(frozen=True)
class _Placed:
    """A kernel on a device: what it declares (as tiles, and as threads), CTAs that an SM holds and why, registers of a thread and those that a CTA spills, and
    the work of CTAs with the share of them that each stands for."""

    tiles: Declared
    asked: Declared
    threads: int
    registers: int
    spilled: float
    fit: Occupancy
    resident: int
    samples: Sequence[tuple[Work, float]]


def _placed(program: n.Program, kernel: n.Kernel, own: n.Kernel, sizes: Mapping[str, int], target: Target, made_of: CompiledKernel | None, surface: str,
            warm: bool) -> _Placed:
    device, arch = target.device, target.architecture
    tiles = declared(program, kernel, sizes, surface)
    asked = declared(program, own, sizes, surface) if own is not kernel else tiles
    threads = max(32, made_of.threads if made_of else asked.threads)
    registers, spilled = _registers(asked, tiles, arch, made_of)
    if surface == "tilelang" and made_of is None and _pipelines_products(kernel) and arch.has("wgmma"):
        threads, registers = threads + PRODUCER, min(CONSUMER_REGISTERS, arch.registers_per_sm // (threads + PRODUCER) // 8 * 8)
    in_flight = (shared_bytes(kernel) or 0) if surface == "triton" and _pipelines_products(kernel) else 0
    fit = occupancy(arch, threads, registers, made_of.shared_bytes if made_of else max(asked.shared, tiles.shared, min(in_flight, arch.shared_per_cta)))
    resident = max(1, min(fit.ctas, -(-tiles.ctas // device.sm_count)))
    l1 = max(16384.0, L1_BYTES - resident * asked.shared) / resident
    samples = _samples(program, own, sizes, asked.ctas, resident * device.sm_count, l1, device, surface, warm)
    return _Placed(tiles, asked, threads, registers, spilled, fit, resident, samples)


def _pipelines_products(kernel: n.Kernel) -> bool:
    """Whether products of tiles are pipelined: Triton keeps the operands of their stages in shared memory, which no statement declares."""
    return any(s.kind == "pipelined" and any(isinstance(x, n.Mma) for x in s.body) for s in statements(kernel.body) if isinstance(s, n.For))


def timeline(program: n.Program, kernel: n.Kernel, sizes: Mapping[str, int], target: Target, surface: str = "cuda") -> tuple[Span, ...]:
    """What the model has a CTA of the middle of the grid do when, alone on an SM, in cycles: the times that its latency in `kernel_cost` is made of."""
    counted = threaded(program, surface)
    own = next((k for k in counted.kernels if k.name == kernel.name), kernel)
    placed = _placed(counted if own is not kernel else program, kernel, own, sizes, target, None, surface, True)
    work = placed.samples[len(placed.samples) // 2][0]
    log: list[Span] = []
    run([work.stream.team], work.stream.threads / 32, _clock(work, target.device), log)
    return tuple(log)


def _products(w: Work) -> float:
    """Floating-point operations of tensor cores of one CTA."""
    return math.fsum(op.count * op.units * times * warps for op, times, warps in operations([w.stream.team]) if op.pipe == "tensor")


def throughput(customers: float, busy: float, alone: float) -> float:
    """CTAs a second of an SM that holds `customers` of them, each of which takes `busy` seconds of the resource that is taken most, and `alone`
    seconds besides: mean value analysis of a closed network of one queue and a delay (Reiser and Lavenberg, J. ACM 27(2), 1980)."""
    waiting = rate = 0.0
    for i in range(1, max(1, round(customers)) + 1):
        there = busy * (1.0 + waiting)
        rate = i / max(there + alone, 1e-12)
        waiting = rate * there
    return rate


def _registers(asked: Declared, tiles: Declared, arch: Architecture, made_of: CompiledKernel | None) -> tuple[int, float]:
    """Registers of a thread, and how many of them a CTA spills, as often as it comes by. What tiles name (`live`) has arrays of its own where threads are
    written out, which hold it already."""
    if made_of is not None and made_of.registers:
        return made_of.registers, made_of.spills / WORD
    wanted = [(OWN_REGISTERS + max(asked.registers, live), times) for live, times in tiles.live]
    spilled = max(max(0, words - arch.max_registers_per_thread) * times for words, times in wanted)
    return min(arch.max_registers_per_thread, max(words for words, _ in wanted)), float(spilled)


def _samples(program: n.Program, kernel: n.Kernel, sizes: Mapping[str, int], ctas: int, together: int, l1: float, device: Device,
             surface: str, warm: bool) -> list[tuple[Work, float]]:
    """The work of the middle CTA; where they differ, of some that do anything, each with the share of CTAs that it stands for, and of the first one."""
    def at(place: float | int) -> Work:
        key = f"_work {kernel.name} {sorted(sizes.items())} {place} {together} {l1:.0f} {device.l2} {surface} {warm}"
        return once(program, key, lambda: count(program, kernel, sizes, place, together, l1, device.l2 * L2_SHARE, surface, warm))
    if not differs(kernel):
        return [(at(0.5), 1.0)]
    spread = _spread(ctas)
    seen = {place: at(place) for place in spread}
    some = [w for w in seen.values() if w.l2 > 0.0]
    idle = [place for place, w in seen.items() if not w.l2 > 0.0]
    if idle and all(place < idle[0] for place, w in seen.items() if w.l2 > 0.0) and at(0).l2 > 0.0:
        spread = _spread(many := _first_idle(lambda place: at(place).l2 > 0.0, max((p for p in spread if p < idle[0]), default=0), idle[0]))
        return [*((at(place), many / ctas / len(spread)) for place in spread), (at(0), 0.0)]
    if not some:
        return [(at(0), 1.0 / ctas)]
    first = [] if ctas <= SAMPLED or 0 in spread else [(at(0), 0.0)]  # it has no fewer tiles than others of a persistent kernel
    return [*((w, 1.0 / len(seen)) for w in some), *first]


def _spread(ctas: int) -> list[int]:
    """The CTAs that are looked at, in their order."""
    return sorted({int((i + 0.5) * GOLDEN % 1.0 * ctas) for i in range(SAMPLED)}) if ctas > SAMPLED else list(range(ctas))


def _first_idle(busy: Callable[[int], bool], low: int, high: int) -> int:
    """The first CTA that finds no work, where those before it find some: between a busy and an idle one, to a part in thirty."""
    while high - low > max(1, low // 30):
        middle = (low + high) // 2
        low, high = (middle, high) if busy(middle) else (low, middle)
    return high


def _clock(w: Work, d: Device) -> Clock:
    """The device as a trace's SM sees it."""
    def tensor(unit: str) -> float:
        name, _, via = unit.partition(" ")
        rate = float(getattr(d.tensor, name, 0.0)) or float(getattr(d.scalar, name, 0.0)) or d.scalar.f32
        return rate / (d.sm_count * d.clock) * (1.0 if via == "wgmma" else d.pipes.mma_sync)

    def latency(a: Access) -> float:
        p = d.pipes
        missed = min(1.0, a.moved / max(1.0, a.requests * a.executions * 32.0)) if a.executions else 1.0
        far = w.share.get(a.buffer, 0.0)
        return p.l1_latency + missed * (p.l2_latency - p.l1_latency + far * (p.dram_latency - p.l2_latency))
    return Clock(d.pipes, tensor, latency)


def program_cost(program: n.Program, sizes: Mapping[str, int], target: Target, artifact: Artifact | None = None,
                 surface: str = "cuda", warm: bool = True) -> tuple[Cost, ...]:
    """The cost of each kernel that a call of these sizes launches. Raises KirError KIR-E007 for a size below 1."""
    for name, size in sizes.items():
        if size < 1 and any(p.name == name and p.role == "size" for p in program.params):
            raise error("KIR-E007", f"size '{name}' is {size}: nothing is launched", needs="sizes of 1 and more")
    known = {p.name: const(sizes[p.name], p.of) for p in program.params if isinstance(p.of, DType) and p.name in sizes}
    order = [step.kernel for step, taken in zip(launches(program), made(program, known), strict=True) if taken]
    kernels = {k.name: k for k in program.kernels}
    return tuple(kernel_cost(program, kernels[name], sizes, target, artifact, surface, warm) for name in order)


def profile(program: n.Program, shapes: Sequence[tuple[str, Mapping[str, int]]], target: Target,
            artifact: Artifact | None, surface: str = "cuda") -> list[ProfileRecord]:
    """Modelled seconds of the whole program at each shape, L2 cleared before, as the gate measures."""
    out = []
    for name, sizes in shapes:
        costs = program_cost(program, sizes, target, artifact, surface, warm=False)
        slowest = max(costs, key=lambda c: c.seconds)
        parts = {key: round(math.fsum(c.parts.get(key, 0.0) for c in costs), 12) for key in slowest.parts}
        out.append(ProfileRecord(target.name, name, float(f"{math.fsum(c.seconds for c in costs):.6g}"), slowest.bound_by,
                                 {k: float(f"{v:.4g}") for k, v in parts.items()}))
    return out
