"""Asking a device: compile, launch, read clocks or events."""
from __future__ import annotations

import ctypes
import struct
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.micro.source import source
from benchmarks.micro.suite import MIB, Question, questions
from kir.backends._process import run
from kir.base.diagnostic import error
from kir.hardware.device.clocks import clocks
from kir.hardware.device.driver import Driver
from kir.hardware.machine import toolkit

BUFFER = 1152 * MIB
"""Bytes that the questions about DRAM read and write."""
REPEATS = 5
WAIT = (400_000, 60_000)
"""Clocks that the device is kept busy before a launch is timed, and more for each launch: the host is ahead of it by then."""
SECONDS = 240.0
SCATTER = 2654435761
"""A step between the slots where walks of a chain begin."""


def compiled(capability: tuple[int, int]) -> bytes:
    """The cubin for a device. Raises KirError KIR-B011 where nvcc takes too long, KIR-B010 where it is not here or refuses."""
    found = toolkit()
    if found is None:
        raise error("KIR-B010", "nvcc is not here", needs="the CUDA toolkit")
    name = f"sm_{capability[0]}{capability[1]}" + ("a" if capability >= (9, 0) else "")
    with tempfile.TemporaryDirectory(prefix="kir-micro-") as at:
        folder = Path(at)
        (folder / "micro.cu").write_text(source(capability))
        done = run([found.nvcc.path, "-cubin", f"-arch={name}", "-std=c++17", "-O3", "micro.cu", "-o", "micro.cubin"], folder, SECONDS)
        if done.code:
            raise error("KIR-B010", f"nvcc refuses the micro-benchmarks: {done.err[-2000:]}", needs="a toolkit that knows this device")
        return (folder / "micro.cubin").read_bytes()


class Asking:
    """A device with the kernels loaded."""

    def __init__(self, image: bytes | None = None) -> None:
        self.driver = Driver()
        self.about = self.driver.about()
        self.capability = (int(self.about["major"]), int(self.about["minor"]))
        self.image = image or compiled(self.capability)
        self.kernels: dict[tuple[str, int], Any] = {}
        self.out, self.buffer = self.driver.allocate(8 << 16), self.driver.allocate(BUFFER)
        self.driver.fill(self.buffer, b"\0\0\0\0", BUFFER // 4)
        self.chained: tuple[int, int] | None = None

    def launch(self, kernel: str, ctas: int, threads: int, n: int, p: int, shared: int = 0) -> None:
        if (kernel, shared) not in self.kernels:
            self.kernels[kernel, shared] = self.driver.kernel(self.image, kernel, shared)
        values = [ctypes.c_longlong(v) for v in (self.out, self.buffer, n, p)]
        self.driver.launch(self.kernels[kernel, shared], (ctas,), threads, values)

    def timed(self, q: Question, ctas: int, p: int) -> float:
        """Seconds of the launches of a question, by events."""
        start, stop = self.driver.event(), self.driver.event()
        self.launch("waiting", 1, 32, 1, WAIT[0] + WAIT[1] * q.launches)
        self.driver.record(start)
        for _ in range(q.launches):
            self.launch(q.kernel, ctas, q.threads, q.n, p, q.shared)
        self.driver.record(stop)
        return self.driver.elapsed(start, stop)

    def ask(self, q: Question) -> dict[str, Any]:
        """The best of `REPEATS` answers (and the middle one)."""
        ctas = q.ctas if q.ctas > 0 else int(self.about["sms"]) * max(1, -q.ctas)
        if q.chain and q.chain != self.chained:
            self.launch("chain", 256, 256, *q.chain)
            self.chained = q.chain
        found = []
        for turn in range(REPEATS + 1):
            seconds = self.timed(q, ctas, turn * SCATTER % q.chain[0] * q.chain[1] if q.chain else q.p)
            if q.reading in ("cycles", "per clock"):
                took = max(struct.unpack(f"{ctas}q", self.driver.download(self.out, 8 * ctas)))
                found.append(took / q.each if q.reading == "cycles" else q.per_sm * q.each / took)
            else:
                found.append(seconds / q.launches if q.reading == "seconds" else q.each / seconds)
        found = sorted(found[1:], reverse=q.reading not in ("cycles", "seconds"))
        return {"name": q.name, "reading": q.reading, "best": found[0], "median": found[len(found) // 2]}


def measured() -> dict[str, Any]:
    """All answers of this machine's device, with what it is and its clocks before and after."""
    begun = time.perf_counter()
    asking = Asking()
    ready = time.perf_counter()
    before = clocks()
    rows, refused = [], []
    for q in questions(asking.capability, int(asking.about["sms"])):
        try:
            rows.append(asking.ask(q))
        except Exception as fault:  # a kernel that the device refuses leaves the others
            refused.append({"name": q.name, "reason": str(fault)})
    return {"schema": "kir.micro/1", "device": asking.about, "clocks": {"before": before, "after": clocks()}, "rows": rows, "refused": refused,
            "seconds": {"compile": round(ready - begun, 1), "measure": round(time.perf_counter() - ready, 1)}}
