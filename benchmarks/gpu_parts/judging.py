"""What the gate says of kernels: smoke, instruction conformance, exploits, honest kernels."""

from __future__ import annotations

import functools
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.gpu_parts.session import Row, Session, said, shown, tried
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.gate import Verdict
from kir.gate.cases import tensor_names
from kir.gate.cpu import PREFERRED
from kir.gate.gpu import Options, gate_gpu
from kir.gate.gpu.candidate import Candidate
from kir.ir.nodes import Program
from kir.problem import Problem, Shape
from kir.surface import Backend, backend

if TYPE_CHECKING:
    from tests.red_team.honest import Honest

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
    """Exploits: host programs, IR, raw CUDA; and what is no cheat but must show in the time."""
    s.table("red-team", "Red team", ("rows", "kind", "exploit", "verdict", "time", "as it should be"), _exploits(s),
            "Programs in IR and raw CUDA are judged by the device alone, without the interpreter, which refuses those in IR by itself "
            "(tests/red_team/test_programs.py). Files of host programs are parsed, and nothing of them is run.")


def _exploits(s: Session) -> Iterator[Row]:
    from tests.red_team import device
    from tests.red_team.exploits import PROGRAMS
    from tests.red_team.hosts import HOSTS
    from tests.red_team.kernels import KERNELS, TIMED

    honest = device.judged(s.gpu)
    yield "", "CUDA", "none: the honest kernel", said(honest), "", "yes" if honest.accepted else "NO"
    for host in s.mine(x for x in HOSTS if s.wanted(x.name)):
        with tempfile.TemporaryDirectory() as folder:
            begun = time.perf_counter()
            try:
                found, right = device.refused(host, Path(folder)), "yes"
            except AssertionError as wrong:
                found, right = str(wrong), "NO"
        yield _rows(host.rows), "host", host.name, f"no candidate: {found}", f"{time.perf_counter() - begun:.1f} s", right
    for exploit in s.mine(x for x in PROGRAMS if s.wanted(x.name)):
        begun = time.perf_counter()
        found = device.program_judged(s.gpu, exploit)
        right = "yes" if any(w in found for w in exploit.words) else "NO"
        shown = f"refused at {found}" if found else "accepted"
        yield _rows(exploit.rows), "IR", f"{exploit.name}: {exploit.does}", shown, f"{time.perf_counter() - begun:.1f} s", right
    for exploit in s.mine(x for x in KERNELS if s.wanted(x.name)):
        for unseen in ((False, True) if exploit.image and exploit.words else (False,)):
            begun = time.perf_counter()
            verdict = tried(s, "red-team", functools.partial(device.judged, s.gpu, exploit.text, unseen=unseen))
            right = "yes" if isinstance(verdict, Verdict) and device.refused_for_the_right_reason(exploit, verdict, unseen) else "NO"
            what = f"{exploit.name}: {exploit.does}{'; no look into the cubin' if unseen else ''}"
            yield _rows(exploit.rows), "CUDA", what, said(verdict), f"{time.perf_counter() - begun:.1f} s", right
    plain = device.timed(honest)
    for rows, what, text, times in (x for x in TIMED if s.wanted(x[1])):
        verdict = device.judged(s.gpu, text)
        took = device.timed(verdict)
        shown = f"{said(verdict)}; {took * 1e6:.1f} us, the honest kernel {plain * 1e6:.1f} us"
        yield _rows(rows), "time", what, shown, "", "yes" if took > times * plain else "NO"
    after = device.judged(s.gpu, against=True)
    ratio = after.device.against["long"]["times_faster"] if after.device and after.device.against else {"median": 0.0, "interval": [0.0, 0.0]}
    low, high = ratio["interval"]  # type: ignore[misc]  # two numbers
    shown = f"{said(after)}; {ratio['median']:.4f} times as fast as itself ({low:.4f} .. {high:.4f})"
    yield "41", "time", "after all of them, the honest kernel in turns with itself: no drift", shown, "", "yes" if low < 1.02 and high > 0.98 else "NO"


def _rows(rows: Sequence[int]) -> str:
    return ", ".join(map(str, rows))


def timed_at(each: Honest, program: Program, problem: Problem) -> Sequence[Shape]:
    """Where an honest kernel is timed: at the problem's timed shapes; at the largest of the others where it is naive, and takes seconds, or where
    the oracle does."""
    others = [x for x in problem.shapes_for(program) if "timed" not in x.tags]
    if others and (each.source == "naive" or each.quick):
        return [max(others, key=lambda x: sum(x.sizes.values()))]
    return list(problem.timed_for(program))


def ahead(s: Session) -> None:
    """Compile the honest kernels into the cache, beside parts that measure something else."""
    from tests.red_team.honest import HONEST

    with ThreadPoolExecutor(max_workers=s.gpu.workers) as pool:
        for each in [h for h in HONEST if h.here() and s.wanted(h.name)]:
            try:
                program, problem, surface = each.loaded()
                by = chosen(program, surface)
                shapes = [*timed_at(each, program, problem), *(x for x in problem.shapes_for(program) if "timed" not in x.tags)]
                text, names = by.emit(program), tensor_names(program, problem, {})
            except (KirError, ValueError) as told:
                print(f"{each.name}: {told}", flush=True)
                continue
            pool.submit(Candidate.prepared, s.gpu, by, text, program, problem, names, shapes).add_done_callback(functools.partial(_told, each.name))


def _told(name: str, done: Future[Candidate]) -> None:
    print(f"{name}: {done.exception() or 'compiled'}", flush=True)


def chosen(program: Program, surface: str) -> Backend:
    """The backend that the gate would take."""
    wanted = (surface,) if surface != "kir" else PREFERRED
    return next(by for by in map(backend, wanted) if not by.accepts(program))


def honest(s: Session) -> None:
    """Honest kernels."""
    from tests.red_team.honest import HONEST

    def rows() -> Iterator[Row]:
        for each in s.mine(h for h in HONEST if s.wanted(h.name) or (s.only == "zoo" and "::" in h.name)):
            if not each.here():
                yield each.name, each.note, "not here: the package is not installed", "", ""
                continue
            begun = time.perf_counter()

            def judged(each: Honest = each) -> Verdict:
                program, problem, surface = each.loaded()
                smallest = min(timed_at(each, program, problem), key=lambda x: sum(x.sizes.values()))
                return gate_gpu(s.gpu, program, problem, surface, options=Options(shapes=(smallest.name,), panel=False, interpret=False, budget=0.4))
            verdict = tried(s, "honest", judged)
            times = shown(verdict) if isinstance(verdict, Verdict) else ""
            yield each.name, each.note, said(verdict), times, f"{time.perf_counter() - begun:.1f} s"

    s.table("honest", "Honest kernels", ("kernel", "what", "verdict", "measured", "time"), rows())
