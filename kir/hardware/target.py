"""Hardware facts: what an architecture allows, and what a device delivers.

An :class:`Architecture` is what code is compiled for (``sm_90a``): limits, allocation units and the instruction families
it has. A :class:`Device` is a product: how many SMs, how fast, how much memory. A :class:`Target` is one of each.

Sources, named in the docstrings below:

- *guide*: CUDA C++ Programming Guide 13.0, "Compute Capabilities", table of technical specifications;
- *occupancy*: ``cuda_occupancy.h`` of the CUDA 13.0 toolkit;
- *ISA*: PTX ISA 9.0, the "Target ISA notes" of each instruction; ``tests/kir/hardware/test_target.py`` asks ptxas as well;
- *A100*: NVIDIA A100 Tensor Core GPU Architecture whitepaper; *H100*: NVIDIA H100 Tensor Core GPU Architecture
  whitepaper; *H200*: NVIDIA H200 datasheet; *RTX*: NVIDIA RTX Blackwell GPU Architecture whitepaper;
  *B200*: NVIDIA Blackwell datasheet, HGX B200;
- *micro*: measured on an H100 and an H200 by ``python -m benchmarks.micro``, see ``docs/tables/micro-benchmarks.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Literal, get_args

from kir.base.dataclass import dataclass
from kir.base.diagnostic import did_you_mean, usage

Family = Literal[
    "cp_async",
    "cp_async_bulk",
    "tma",
    "tma_multicast",
    "tensormap_replace",
    "ldmatrix",
    "stmatrix",
    "movmatrix",
    "mma_sync",
    "mma_sync_fp8",
    "wgmma",
    "tcgen05",
    "mbarrier",
    "mbarrier_transaction",
    "fence_proxy_async",
    "cluster",
    "st_async",
    "redux_sync",
    "elect_sync",
    "setmaxnreg",
    "griddepcontrol",
]
"""Groups of PTX instructions that an architecture has or lacks as one. ``mma_sync`` is mma.sync on f16, bf16, tf32, f64
and i8; ``mbarrier_transaction`` is expect_tx and try_wait; ``cluster`` is launch, barrier and mapped shared addresses."""

FAMILIES: tuple[Family, ...] = get_args(Family)


@dataclass(frozen=True)
class Architecture:
    """What code compiled for an architecture may use. Sizes are in bytes unless a name says otherwise.

    Limits (*guide*): threads and warps per CTA and SM, CTAs per SM, 32-bit registers per thread, CTA and SM, shared
    memory per SM, per CTA when asked for by attribute (``shared_per_cta``) and when not (``shared_per_cta_static``).

    Allocation units (*occupancy*): registers are given to a warp in multiples of ``register_unit`` registers; warps of a
    CTA count in multiples of ``warp_unit`` (one per SM partition); shared memory of a CTA is rounded up to
    ``shared_unit`` after adding ``shared_reserved``, which the driver takes from every CTA.
    """

    name: str
    capability: tuple[int, int]
    families: frozenset[Family]
    max_threads_per_sm: int
    max_ctas_per_sm: int
    shared_per_sm: int
    shared_per_cta: int
    max_cluster: int = 1
    max_threads_per_cta: int = 1024
    max_block: tuple[int, int, int] = (1024, 1024, 64)
    max_grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    max_registers_per_thread: int = 255
    registers_per_cta: int = 65536
    registers_per_sm: int = 65536
    shared_per_cta_static: int = 48 * 1024
    shared_reserved: int = 1024
    shared_unit: int = 128
    register_unit: int = 256
    warp_unit: int = 4
    warp_size: int = 32
    named_barriers: int = 16
    shared_banks: int = 32
    shared_bank_bytes: int = 4
    sector_bytes: int = 32
    line_bytes: int = 128
    max_parameter_bytes: int = 32764

    @property
    def max_warps_per_sm(self) -> int:
        return self.max_threads_per_sm // self.warp_size

    @property
    def tensor_columns(self) -> int:
        """Columns of 128 words of 32 bits that a CTA has of tensor memory (*ISA*, "Tensor Memory")."""
        return 512 if self.has("tcgen05") else 0

    def has(self, family: Family) -> bool:
        """Whether the architecture has this family of instructions."""
        return family in self.families


@dataclass(frozen=True)
class Rates:
    """Dense peak rates in operations a second (a multiply-add is two), by operand type; 0.0 is "not supported".

    Products of 16-bit and 8-bit floats accumulate in f32, those of ``i8`` in i32.
    """

    f64: float
    f32: float
    tf32: float
    f16: float
    bf16: float
    fp8: float
    i8: float


@dataclass(frozen=True)
class Pipes:
    """How an SM executes: instructions of a lane that each pipe takes in a clock (*guide*, arithmetic throughput; *micro*), and cycles until results are there.

    ``half`` are packed 16-bit operations, ``special`` transcendental functions, ``convert`` conversions between widths; ``fill`` bytes that an SM takes
    from L2 in a clock. Latencies: of shared memory, of L1, of L2, of DRAM (without load), of a product of a warp (``tensor_latency``, beyond its pipe's time)
    and of a warpgroup (``product``), of a bulk copy beyond its data's (``bulk``), of a bulk store (``store``); a barrier and what each warp adds; an
    update of one place after another (``contended``); a barrier of a cluster beyond that of a CTA (``cluster``, order of magnitude).
    ``mma_sync``: the share of the tensor cores' rate that mma.sync reaches.
    """

    fma: float = 128.0
    alu: float = 64.0
    half: float = 100.0
    special: float = 16.0
    convert: float = 16.0
    double: float = 64.0
    fill: float = 64.0
    shared_latency: float = 23.4
    l1_latency: float = 42.9
    l2_latency: float = 300.0
    dram_latency: float = 646.0
    tensor_latency: float = 19.0
    product: float = 66.0
    bulk: float = 0.0
    store: float = 700.0
    barrier: float = 14.5
    barrier_warp: float = 2.0
    contended: float = 1.46
    cluster: float = 190.0
    mma_sync: float = 0.644

    def rate(self, pipe: str) -> float:
        """Lanes of a pipe by its name."""
        return float(getattr(self, pipe))


@dataclass(frozen=True)
class Device:
    """What a product delivers: SMs, highest clock in Hz, nominal memory and L2 in bytes, bandwidth in bytes a second.

    ``tensor`` are the rates of its matrix units, ``scalar`` those of its ordinary arithmetic (never sparse ones).
    """

    name: str
    architecture: str
    sm_count: int
    clock: float
    memory: int
    bandwidth: float
    l2: int
    tensor: Rates
    scalar: Rates
    source: str
    l2_bandwidth: float = 0.0
    """Bytes a second between L2 and the SMs (*micro*); 0.0 where it was not measured: `L2_FACTOR` times that of DRAM is taken."""
    pipes: Pipes = Pipes()

    @property
    def shared_bandwidth(self) -> float:
        """Bytes a second that all SMs together read from shared memory: 32 banks of 4 bytes a clock (*guide*)."""
        return self.sm_count * self.clock * 128


@dataclass(frozen=True)
class Target:
    """An architecture to compile for and the device to model; ``name`` is as it was asked for."""

    name: str
    architecture: Architecture
    device: Device


def target(name: str) -> Target:
    """The target for an architecture (``sm_90a``: with the device it is best known by) or a device (``h200``).

    Raises :class:`kir.base.diagnostic.UsageError` (KIR-C005) for an unknown name, with the nearest ones.
    """
    wanted = name.strip().lower().replace(" ", "-")
    if wanted in ARCHITECTURES:
        return Target(name, ARCHITECTURES[wanted], DEVICES[_BEST_KNOWN[wanted]])
    device = DEVICES.get(_ALIASES.get(wanted, wanted))
    if device is None:
        hint = did_you_mean(wanted, target_names())
        raise usage("KIR-C005", f"there is no target '{name}'{f'; {hint}' if hint else ''}", needs=f"one of {', '.join(target_names())}")
    return Target(name, ARCHITECTURES[device.architecture], device)


def target_names() -> tuple[str, ...]:
    """Every name that :func:`target` knows, architectures first."""
    return (*ARCHITECTURES, *DEVICES, *_ALIASES)


_SM_80: frozenset[Family] = frozenset({"cp_async", "ldmatrix", "movmatrix", "mma_sync", "mbarrier", "redux_sync"})
_SM_90: frozenset[Family] = _SM_80 | {
    *("cp_async_bulk", "tma", "tma_multicast", "stmatrix", "mma_sync_fp8", "mbarrier_transaction", "fence_proxy_async"),
    *("cluster", "st_async", "elect_sync", "griddepcontrol"),
}
_KIB = 1024
_GIB = 2**30

sm_80 = Architecture(
    name="sm_80",
    capability=(8, 0),
    families=_SM_80,
    max_threads_per_sm=2048,
    max_ctas_per_sm=32,
    shared_per_sm=164 * _KIB,
    shared_per_cta=163 * _KIB,
)
"""Ampere, A100 (*guide*, column 8.0; *ISA*). Largest parameter block as of CUDA 12.1 (*guide*)."""

sm_90 = Architecture(
    name="sm_90",
    capability=(9, 0),
    families=_SM_90,
    max_threads_per_sm=2048,
    max_ctas_per_sm=32,
    shared_per_sm=228 * _KIB,
    shared_per_cta=227 * _KIB,
    max_cluster=8,
)
"""Hopper without the instructions of its own (*guide*, column 9.0). Clusters of 8 CTAs are portable; 16 need an opt-in."""

sm_90a = replace(sm_90, name="sm_90a", families=_SM_90 | {"wgmma", "setmaxnreg", "tensormap_replace"})
"""Hopper with wgmma, setmaxnreg and tensormap.replace (*ISA*)."""

sm_100a = replace(
    sm_90,
    name="sm_100a",
    capability=(10, 0),
    families=_SM_90 | {"tcgen05", "setmaxnreg", "tensormap_replace"},
)
"""Blackwell of data centers (*guide*, column 10.0; *ISA*): no wgmma, but products into tensor memory (tcgen05), which no GPU here has run."""

sm_120 = Architecture(
    name="sm_120",
    capability=(12, 0),
    families=_SM_90,
    max_threads_per_sm=1536,
    max_ctas_per_sm=24,
    shared_per_sm=100 * _KIB,
    shared_per_cta=99 * _KIB,
    max_cluster=8,
)
"""Blackwell of workstations and games (*guide*, column 12.0; *occupancy*): no wgmma, no tcgen05. Multicast assembles,
and is slow there (*ISA*, cp.async.bulk.tensor)."""

sm_120a = replace(sm_120, name="sm_120a", families=_SM_90 | {"setmaxnreg", "tensormap_replace"})
"""The same with what only its own target has: setmaxnreg, tensormap.replace (*ISA*)."""

ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType({each.name: each for each in (sm_80, sm_90, sm_90a, sm_100a, sm_120, sm_120a)})

_A100_TENSOR = Rates(f64=19.5e12, f32=0.0, tf32=156e12, f16=312e12, bf16=312e12, fp8=0.0, i8=624e12)
_A100_SCALAR = Rates(f64=9.7e12, f32=19.5e12, tf32=0.0, f16=78e12, bf16=39e12, fp8=0.0, i8=0.0)
_H100_TENSOR = Rates(f64=66.9e12, f32=0.0, tf32=494.7e12, f16=989.4e12, bf16=989.4e12, fp8=1978.9e12, i8=1978.9e12)
_H100_SCALAR = Rates(f64=33.5e12, f32=66.9e12, tf32=0.0, f16=133.8e12, bf16=133.8e12, fp8=0.0, i8=0.0)

DEVICES: Mapping[str, Device] = MappingProxyType(
    {
        each.name: each
        for each in (
            Device(
                name="a100-sxm-40gb",
                architecture="sm_80",
                sm_count=108,
                clock=1.41e9,
                memory=40 * _GIB,
                bandwidth=1.555e12,
                l2=40 * 2**20,
                tensor=_A100_TENSOR,
                scalar=_A100_SCALAR,
                source="A100",
            ),
            Device(
                name="a100-sxm-80gb",
                architecture="sm_80",
                sm_count=108,
                clock=1.41e9,
                memory=80 * _GIB,
                bandwidth=2.039e12,
                l2=40 * 2**20,
                tensor=_A100_TENSOR,
                scalar=_A100_SCALAR,
                source="A100",
            ),
            Device(
                name="h100-pcie",
                architecture="sm_90a",
                sm_count=114,
                clock=1.755e9,
                memory=80 * _GIB,
                bandwidth=2.0e12,
                l2=50 * 2**20,
                tensor=Rates(f64=51.2e12, f32=0.0, tf32=378e12, f16=756e12, bf16=756e12, fp8=1513e12, i8=1513e12),
                scalar=Rates(f64=25.6e12, f32=51.2e12, tf32=0.0, f16=102.4e12, bf16=102.4e12, fp8=0.0, i8=0.0),
                source="H100",
            ),
            Device(
                name="h100-sxm",
                architecture="sm_90a",
                sm_count=132,
                clock=1.98e9,
                memory=80 * _GIB,
                bandwidth=3.35e12,
                l2=50 * 2**20,
                tensor=_H100_TENSOR,
                scalar=_H100_SCALAR,
                source="H100; tensor rates at the 1.83 GHz that it names for them",
                l2_bandwidth=7.0e12,
            ),
            Device(
                name="h200",
                architecture="sm_90a",
                sm_count=132,
                clock=1.98e9,
                memory=141 * _GIB,
                bandwidth=4.8e12,
                l2=60 * 2**20,
                tensor=_H100_TENSOR,
                scalar=_H100_SCALAR,
                source="H200; rates as in H100, whose GPU it shares; L2 as the driver reports it (cuDeviceGetAttribute)",
                l2_bandwidth=8.4e12,
            ),
            Device(
                name="b200",
                architecture="sm_100a",
                sm_count=148,
                clock=1.98e9,
                memory=180 * _GIB,
                bandwidth=7.7e12,
                l2=126 * 2**20,
                tensor=Rates(f64=37e12, f32=0.0, tf32=1.125e15, f16=2.25e15, bf16=2.25e15, fp8=4.5e15, i8=4.5e15),
                scalar=Rates(f64=37e12, f32=75e12, tf32=0.0, f16=150e12, bf16=150e12, fp8=0.0, i8=0.0),
                source="B200; half of the tensor rates that it gives with sparsity; clock and L2 as others report them, nothing measured here",
            ),
            Device(
                name="rtx-5090",
                architecture="sm_120a",
                sm_count=170,
                clock=2.407e9,
                memory=32 * _GIB,
                bandwidth=1.792e12,
                l2=96 * 2**20,
                tensor=Rates(f64=0.0, f32=0.0, tf32=104.8e12, f16=209.5e12, bf16=209.5e12, fp8=419e12, i8=838e12),
                scalar=Rates(f64=1.64e12, f32=104.8e12, tf32=0.0, f16=104.8e12, bf16=104.8e12, fp8=0.0, i8=0.0),
                source="RTX",
            ),
        )
    }
)

_BEST_KNOWN: Mapping[str, str] = MappingProxyType(
    {"sm_80": "a100-sxm-80gb", "sm_90": "h100-sxm", "sm_90a": "h100-sxm", "sm_100a": "b200", "sm_120": "rtx-5090", "sm_120a": "rtx-5090"}
)
_ALIASES: Mapping[str, str] = MappingProxyType({"a100": "a100-sxm-80gb", "h100": "h100-sxm", "rtx5090": "rtx-5090"})
