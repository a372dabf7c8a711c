"""What the gate says of kernels: smoke, instruction conformance, exploits, honest kernels."""

from __future__ import annotations

import functools
import importlib.util
import json
import time
from collections.abc import Iterator

from benchmarks.gpu_parts.session import Row, Session, said, shown, tried
from kir.gate import Verdict
from kir.gate.gpu import Options, gate_gpu
from kir.store import write_atomic

SMOKE = (
    "gemm:f16 naive",
    "softmax:f32 naive",
    "gemm mm.py::mm_kernel_general",
    "rmsnorm rms_norm.py::_rms_norm_forward_kernel",
    "gemm gemm_sm90_persistent.kir",
    "gemm gemm_sm80_lanes.kir",
    "gemm triton.py::gemm_persistent",
    "rmsnorm rmsnorm.kir",
)


def smoke(s: Session) -> None:
    """Kernels of each surface, end to end, with all that is done to them."""
    from tests.red_team.honest import HONEST

    def rows() -> Iterator[Row]:
        for honest in [h for h in HONEST if h.name in SMOKE]:
            begun = time.perf_counter()
            program, problem, surface = honest.loaded()
            shape = min(problem.timed_for(program), key=lambda x: sum(x.sizes.values()))
            options = Options(shapes=(shape.name,), panel=False)
            verdict = tried(s, "smoke", functools.partial(gate_gpu, s.gpu, program, problem, surface, options=options))
            wall = f"{time.perf_counter() - begun:.1f} s"
            if isinstance(verdict, str):
                yield honest.name, "ERROR", verdict, "", wall, "", "", ""
                continue
            device = verdict.device
            spent = {k: round(v, 2) for k, v in device.seconds.items()} if device else {}
            took = [(t["shape"], t["median"], t["interval"], t["samples"], t["identical"], t["floor"]) for t in (device.timings if device else ())]
            yield honest.name, verdict.accepted, verdict.reason, verdict.compile.surface, wall, spent, took, device.sanitizer if device else ""

    head = ("kernel", "accepted", "reason", "surface", "wall", "spent", "timings", "sanitizer")
    s.table("smoke", "Smoke", head, rows(), f"peaks {s.gpu.peaks}")


def conformance(s: Session) -> None:
    """The instruction table on the device."""
    from kir.gate.gpu.conformance import conform

    begun = time.perf_counter()
    found = conform(s.gpu)
    rows = [(", ".join(o.rows), o.surface, "yes" if o.ok else "NO", f"{o.worst:.3g}", f"{o.allowed:g}", o.said) for o in found.outcomes]
    rows += [(name, "", "not run", "", "", reason) for name, reason in found.left_out.items()]
    write_atomic(s.out / "gpu-conformance.json", json.dumps([o.to_json() for o in found.outcomes]))
    good = sum(o.ok for o in found.outcomes)
    s.table(
        "conformance",
        "Instruction conformance",
        ("rows", "surface", "agrees", "worst (ulp)", "allowed", "what"),
        rows,
        f"{good} of {len(found.outcomes)} cases agree; {time.perf_counter() - begun:.0f} s with compilation.",
    )


def red_team(s: Session) -> None:
    """Raw exploits on the device."""
    from tests.red_team.device import judged, refused_for_the_right_reason
    from tests.red_team.exploits import KERNELS

    def rows() -> Iterator[Row]:
        honest = judged(s.gpu, None)
        yield "", "the honest kernel", said(honest), "", "yes" if honest.accepted else "NO"
        for exploit in KERNELS:
            begun = time.perf_counter()
            verdict = tried(s, "red-team", functools.partial(judged, s.gpu, exploit))
            right = isinstance(verdict, Verdict) and refused_for_the_right_reason(exploit, verdict, honest)
            wall = f"{time.perf_counter() - begun:.1f} s"
            yield ", ".join(map(str, exploit.rows)), f"{exploit.name}: {exploit.does}", said(verdict), wall, "yes" if right else "NO"
        after = judged(s.gpu, None)
        yield "", "the honest kernel, after all of them", said(after), "", "yes" if after.accepted else "NO"

    s.table("red-team", "Red team", ("rows", "exploit", "verdict", "time", "as it should be"), rows())


def honest(s: Session) -> None:
    """Honest kernels."""
    from tests.red_team.honest import HONEST

    def rows() -> Iterator[Row]:
        for each in [h for h in HONEST if s.only in h.name or (s.only == "zoo" and "::" in h.name)]:
            if each.zoo and importlib.util.find_spec(each.source.partition(":")[0]) is None:
                yield each.name, each.note, "not here: the package is not installed", "", ""
                continue
            begun = time.perf_counter()
            program, problem, surface = each.loaded()
            shapes = problem.timed_for(program)
            smallest = min(shapes, key=lambda x: sum(x.sizes.values()))
            options = Options(shapes=(smallest.name,), panel=False, interpret=False, budget=0.4)
            verdict = tried(s, "honest", functools.partial(gate_gpu, s.gpu, program, problem, surface, options=options))
            times = shown(verdict) if isinstance(verdict, Verdict) else ""
            yield each.name, each.note, said(verdict), times, f"{time.perf_counter() - begun:.1f} s"

    s.table("honest", "Honest kernels", ("kernel", "what", "verdict", "measured", "time"), rows())
