"""What is asked of a device: each question is a kernel, a launch, and how the answer is read off."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from benchmarks.micro.source import ARITHMETIC, CHAINS, FOLDED, MMA_SYNC, UNROLL, WGMMA_COLUMNS
from kir.base.dataclass import dataclass

Reading = Literal["cycles", "per clock", "bytes a second", "per second", "seconds"]
KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Question:
    """A launch of `kernel` on `ctas` CTAs (0: one for each SM) of `threads` threads, with `n` and `p` as its arguments. `each` is what a CTA (for
    `bytes a second` and `per second`: the whole launch) does: instructions in a row, operations, or bytes. `reading`: `cycles` an instruction of the
    slowest CTA, operations `per clock` of an SM, `bytes a second` or operations `per second` of the device, or `seconds` of a launch (of `launches` in a row).
    `chain`: slots and words between them of the chain that is made first, and walked from another slot each time. `per_sm` CTAs lie on an SM together."""

    name: str
    kernel: str
    reading: Reading
    each: float
    ctas: int = 0
    threads: int = 32
    n: int = 64
    p: int = 1
    shared: int = 0
    chain: tuple[int, int] | None = None
    launches: int = 1
    per_sm: int = 1


def questions(capability: tuple[int, int], sms: int) -> Iterator[Question]:
    """All questions for a device, about a second of its time in all."""
    yield from _latencies()
    yield from _pipes()
    yield from _shared()
    yield from _matrix(capability)
    yield from _memory(sms)
    yield from _copies(capability)
    yield from _atomics(sms)
    yield from _launches(sms)


def _latencies() -> Iterator[Question]:
    for name in (x for x in ARITHMETIC if x not in FOLDED):
        yield Question(f"latency {name}", f"latency_{name}", "cycles", 64 * UNROLL, ctas=1)
    yield Question("latency shared", "latency_shared", "cycles", 64 * 16, ctas=1)
    yield Question("latency l1", "latency_l1", "cycles", 1024 * 16, ctas=1, threads=1, n=1024, chain=(256, 8))
    for megabytes in (1, 4, 16, 32, 48, 64, 128, 512):
        slots = megabytes * MIB // 128
        yield Question(f"latency of {megabytes} MiB", "latency_far", "cycles", 256 * 16, ctas=1, threads=1, n=256, chain=(slots, 32))
    for threads in (32, 64, 128, 256, 512, 1024):
        yield Question(f"barrier of {threads} threads", "latency_barrier", "cycles", 256, ctas=1, threads=threads, n=256)
    yield Question("barrier of a warp", "latency_warp_barrier", "cycles", 256, ctas=1, n=256)
    yield Question("latency atomic", "latency_atomic", "cycles", 256, ctas=1, threads=1, n=256)
    yield Question("latency atomic shared", "latency_atomic_shared", "cycles", 256, ctas=1, threads=1, n=256)


def _pipes() -> Iterator[Question]:
    for name in ARITHMETIC:
        for threads in (32, 128, 256, 512, 1024) if name in ("ffma", "imad", "ex2") else (512,):
            yield Question(f"{name}, {threads} threads", f"rate_{name}", "per clock", 64.0 * UNROLL * CHAINS * threads, threads=threads)


def _shared() -> Iterator[Question]:
    for apart in (1, 2, 4, 8, 16, 32):
        for kernel, words, times in (("rate_shared", 1, 8), ("rate_shared_store", 1, 8), ("rate_shared_128", 4, 4)):
            yield Question(f"{kernel.removeprefix('rate_')}, {apart} apart", kernel, "per clock", 1048576.0 * times * words,
                           threads=1024, n=256, p=apart, shared=32768)
    for apart in (1, 2, 4, 8):
        yield Question(f"ldmatrix, {apart} apart", "rate_ldmatrix", "per clock", 256.0 * 4 * 512 * 16, threads=512, n=256, p=apart, shared=32768)
    for apart in (1, 2, 4, 8, 16, 32):
        yield Question(f"l1, {apart} apart", "rate_l1", "per clock", 256.0 * 8 * 1024, threads=1024, n=256, p=apart)
    for apart in (1, 2):
        yield Question(f"l1 of 16 bytes, {apart} apart", "rate_l1_128", "per clock", 256.0 * 4 * 1024, threads=1024, n=256, p=apart)


def _matrix(capability: tuple[int, int]) -> Iterator[Question]:
    for name in MMA_SYNC:
        m, rest = name.split("_")[0].removeprefix("m").split("n")
        columns, k = rest.split("k")
        flops = 2.0 * int(m) * int(columns) * int(k)
        yield Question(f"latency mma {name}", f"latency_mma_{name}", "cycles", 64 * 4, ctas=1)
        for threads in (32, 64, 128, 256, 512):
            yield Question(f"mma {name}, {threads} threads", f"rate_mma_{name}", "per clock", 64 * 4 * 4 * flops * threads / 32, threads=threads)
    for width in WGMMA_COLUMNS if capability == (9, 0) else ():
        flops = 2.0 * 64 * width * 16
        yield Question(f"latency wgmma n{width}", f"latency_wgmma_n{width}", "cycles", 64 * 4, ctas=1, threads=128, shared=49152)
        for groups in (1, 2):
            yield Question(f"wgmma n{width}, {groups} warpgroups", f"rate_wgmma_n{width}", "per clock", 256 * flops * groups,
                           threads=128 * groups, shared=49152)


def _memory(sms: int) -> Iterator[Question]:
    words = 512 * MIB // 16
    for ahead in (1, 2, 4, 8):
        for warps in (1, 2, 4, 8, 16, 32, 64):
            threads, per_sm = min(1024, warps * 32), max(1, warps // 32)
            yield Question(f"dram, {warps * 32 * 16 * ahead} bytes of an SM under way ({ahead} a thread)", f"stream_{ahead}", "bytes a second",
                           words * 16.0, ctas=sms * per_sm, threads=threads, n=words, per_sm=per_sm)
    yield Question("dram, write", "stream_write", "bytes a second", words * 16.0, ctas=sms * 8, threads=256, n=words)
    yield Question("dram, copy", "stream_copy", "bytes a second", words * 16.0, ctas=sms * 8, threads=256, n=words // 2)
    for apart in (1, 2, 4, 8, 16, 32):
        yield Question(f"dram, words {4 * apart} bytes apart", "stream_apart", "per second", 512.0 * MIB / 4 / apart, ctas=sms * 8, threads=256,
                       n=512 * MIB // 4 // apart, p=apart)
    for megabytes in (1, 4, 8, 16, 24, 32, 40, 48, 64, 96, 128, 256):
        size = megabytes * MIB
        times = max(2, 1024 // megabytes)
        yield Question(f"again over {megabytes} MiB", "again", "bytes a second", float(size * times), ctas=sms * 8, threads=256, n=size // 16, p=times)
    for warps in (1, 2, 4, 8, 16, 32):
        yield Question(f"l2, {warps * 32 * 64} bytes of an SM under way", "again", "bytes a second", 16.0 * MIB * 64, ctas=sms, threads=warps * 32, n=MIB, p=64)


def _copies(capability: tuple[int, int]) -> Iterator[Question]:
    kinds = ("synchronous", "async", "bulk") if capability >= (9, 0) else ("synchronous", "async")
    for kind in kinds:
        for size in (4 * KIB, 16 * KIB, 32 * KIB):
            for per_sm in (1, 4):
                yield Question(f"copy {kind} of {size // KIB} KiB, {per_sm} CTAs an SM", f"copy_{kind}", "cycles", 64, ctas=-per_sm, threads=256, n=64, p=size,
                               shared=size + 64, per_sm=per_sm)


def _atomics(sms: int) -> Iterator[Question]:
    for apart in (0, 1, 8):
        yield Question(f"add to global, {apart} apart", "add_global", "per second", 32.0 * sms * 2 * 256, ctas=sms * 2, threads=256, n=32, p=apart)
        yield Question(f"add to shared, {apart} apart", "rate_atomic_shared", "per clock", 64.0 * 1024, threads=1024, p=apart)


def _launches(sms: int) -> Iterator[Question]:
    for ctas in (1, sms, 8 * sms, 64 * sms, 1024 * sms):
        yield Question(f"launch of {ctas} empty CTAs of 32 threads", "empty", "seconds", 1, ctas=ctas, launches=100)
    for ctas in (sms, 64 * sms):
        yield Question(f"launch of {ctas} empty CTAs of 1024 threads", "empty", "seconds", 1, ctas=ctas, threads=1024, launches=100)
    yield Question("one launch, event to event", "empty", "seconds", 1, ctas=1)
