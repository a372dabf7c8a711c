"""What the device measures: the panel of references, lineages, the speed of the gate itself, repeatability."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.gpu_parts.session import ROOT, Row, Session, said
from kir.base.store import write_atomic
from kir.gate.gpu import Gpu, Options, gate_gpu
from kir.ir.nodes import Program
from kir.problem import load_problem
from kir.surface import Backend

LINEAGE_SECONDS = 240
"""After which a walk ends with the steps that it has."""
LEAST_SECONDS, AFTER_SECONDS = 30, 25
"""What a walk gets at least, however late it is; what replaying and writing take after it."""
EXPERTS = {
    "gemm-cuda": ("gemm", ["skills/experts/gemm/gemm_sm80.cu::gemm_sm80", "--bind", "skills/bindings/gemm_sm80.toml"]),
    "gemm-sm90": ("gemm", ["skills/experts/gemm/gemm_sm90_persistent.kir", "--surface", "cuda", "--workers", "4"]),
    "rmsnorm-cuda": ("rmsnorm", ["skills/experts/rmsnorm/rmsnorm.cu::rmsnorm", "--bind", "skills/bindings/cuda_rmsnorm.toml"]),
    "gemm-flag-gems": ("gemm", ["flag_gems:ops/mm.py::mm_kernel_general", "--bind", "skills/bindings/flag_gems_mm.toml"]),
    "rmsnorm-liger": ("rmsnorm", ["liger_kernel:ops/rms_norm.py::_rms_norm_forward_kernel", "--bind", "skills/bindings/liger_rms_norm.toml"]),
    "gemm-triton": ("gemm", ["skills/experts/gemm/triton.py::gemm_persistent", "--bind", "skills/bindings/triton_gemm.toml"]),
    "gemm-tilelang": ("gemm", ["skills/experts/gemm/tilelang.py::gemm_pipelined", "--bind", "skills/bindings/tilelang_gemm.toml"]),
    "rmsnorm-tilelang": ("rmsnorm", ["skills/experts/rmsnorm/tilelang.py::rmsnorm_row", "--bind", "skills/bindings/tilelang_rmsnorm.toml"]),
    "conv2d-triton": ("conv2d", ["conv2d_triton"]),
    "conv2d-tilelang": ("conv2d", ["conv2d_tilelang"]),
    "conv2d-sm90": ("conv2d", ["conv2d_sm90"]),
    "grouped-triton": ("gemm_grouped", ["gemm_grouped_triton"]),
    "grouped-tilelang": ("gemm_grouped", ["gemm_grouped_tilelang"]),
    "gdn-tilelang": ("gdn_d128", ["gdn_d128_tilelang"]),
}
WORKLOADS = ("gemm", "rmsnorm", "softmax", "conv2d", "gdn", "topk", "fmha", "fmha_causal")


def panel(s: Session) -> None:
    """The references of every workload, at its timed shapes, as the gate times them."""
    import random
    import secrets

    from kir.gate.gpu.oracle import Oracle
    from kir.gate.gpu.panel import Timed
    from kir.gate.gpu.panel import panel as timed

    def rows() -> Iterator[Row]:
        for name in s.mine(x for x in WORKLOADS if s.wanted(x)):
            problem = load_problem(name)
            shapes = [x for x in problem.tagged("timed") if "asked" not in x.tags]
            with s.gpu.oracles.child() as child:
                for row in timed(s.gpu, problem, Oracle.of(child, problem), shapes, random.Random(secrets.randbits(64))):
                    if isinstance(row, Timed):
                        e = row.estimate
                        took = (f"{e.median * 1e6:.1f} us", f"{e.low * 1e6:.1f} .. {e.high * 1e6:.1f}", e.samples)
                        yield name, row.shape, row.reference, row.version, *took
                    else:
                        yield name, row.shape, row.reference, "", f"missing: {row.reason}", "", ""

    s.table("panel", "Panel of references", ("problem", "shape", "reference", "version", "median", "95 %", "samples"), rows())


def lineage(s: Session) -> None:
    """`kir lineage --on gpu` for experts and stored pipelines."""

    def rows() -> Iterator[Row]:
        for name, (problem, words) in s.mine(x for x in EXPERTS.items() if s.wanted(x[0])):
            begun = time.perf_counter()
            folder = s.out / f"lineage-{name}"
            seconds = min(LINEAGE_SECONDS, max(LEAST_SECONDS, s.until - time.monotonic() - AFTER_SECONDS))
            command = ["lineage", *words, "--problem", problem, "--on", "gpu", "--target", "sm_90a", "-o", str(folder), "--json", "--restart",
                       "--seconds", f"{seconds:.0f}", *(["--workers", str(max(4, s.gpu.workers // 2))] if "--workers" not in words else [])]
            try:
                done = subprocess.run(
                    [sys.executable, "-c", "from kir.faces.cli import main; main()", *command],
                    capture_output=True,
                    text=True,
                    cwd=ROOT,
                    check=False,
                    timeout=seconds + LINEAGE_SECONDS,
                )
                found = json.loads(done.stdout)
                for t in found["transitions"]:
                    m = next(iter(t["speedup_measured"].values()), None)
                    faster = f"{m['median']:.3g}x ({m['interval'][0]:.3g} .. {m['interval'][1]:.3g})" if m else "-"
                    yield name, t["number"], t["intent"], t["forward"], "yes" if t["realized"] else "no", faster
                took = f"{found['steps']} steps, {found['realized']} realized, {time.perf_counter() - begun:.0f} s"
                yield name, "", f"ended: {found['ended']}", took, "", ""
                write_atomic(s.out / f"gpu-lineage-{name}.json", done.stdout.replace(f"{s.out}/", ""))
            except subprocess.TimeoutExpired:
                yield name, "", "ERROR", f"not done after {seconds + LINEAGE_SECONDS:.0f} s", "", ""
            except (ValueError, KeyError):
                yield name, "", "ERROR", done.stdout[-300:] + done.stderr[-600:], "", ""

    s.table("lineage", "Lineages on the GPU", ("expert", "#", "intent", "forward step", "realized", "measured"), rows())


SPEED = {
    "gemm_sm80_lanes": ("cuda", "gemm/gemm_sm80_lanes.kir"),
    "gemm_sm90_persistent": ("cuda", "gemm/gemm_sm90_persistent.kir"),
    "gemm_persistent in Triton": ("triton", "gemm triton.py::gemm_persistent"),
}
WALL_SECONDS, BEYOND_SECONDS, HIT_MILLISECONDS, SIDE_BY_SIDE = 3.0, 0.5, 50.0, 1.7
"""What is asked of the gate: seconds a candidate, seconds of the GPU beyond timed samples, a cache hit, and how many times faster two compile
than one."""


def speed(s: Session) -> None:
    """Time per candidate after warm-up, GPU time beyond the samples, cache hits, parallel compilation."""
    s.table("speed", "Speed of the GPU gate", ("what", "measured", "asked for", "met", "how"), _speed(s),
            "Seconds of the GPU are those of the streams, from the first fill of a call to its last download, less the time between the events of "
            "samples: idle time counts, so that they are an upper bound. Waiting compute-sanitizers and fork servers are the warm-up.")


def _met(yes: bool) -> str:
    return "yes" if yes else "NO"


def _speed(s: Session) -> Iterator[Row]:
    from kir.ir.parser import parse_program
    from kir.surface import backend
    from tests.red_team.honest import HONEST

    problem, programs = load_problem("gemm"), {}
    for name, (surface, source) in SPEED.items():
        path = ROOT / "skills" / "experts" / source
        programs[name] = (parse_program(path.read_text(), str(path)) if path.is_file() else next(h for h in HONEST if h.name == source).loaded()[0], surface)
    for name, (program, surface) in programs.items():
        with tempfile.TemporaryDirectory() as fresh, Gpu(Path(fresh), workers=s.gpu.workers) as gpu:
            begun = time.perf_counter()
            gpu.warm()
            by = backend(surface)
            by.compile(by.launched_with(by.emit(problem.naive), dict(problem.shape("cube").sizes)), gpu.target)
            once = "once a session: the harness is compiled, servers and compilers import, peaks are measured"
            yield "warm-up", f"{time.perf_counter() - begun:.2f} s", "", "", once
            for which in ("new", "again, from the cache"):
                begun = time.perf_counter()
                verdict = gate_gpu(gpu, program, problem, surface, options=Options(shapes=("cube",), panel=False))
                wall = time.perf_counter() - begun
                device = verdict.device
                spent = {k: round(v, 3) for k, v in device.seconds.items()} if device else {}
                what = f"{name}, GEMM 1024^3, {which}"
                how = f"{said(verdict)}; {spent}; CPU gate {({k: round(v, 2) for k, v in verdict.seconds.items()})}"
                yield what, f"{wall:.2f} s", f"{WALL_SECONDS:g} s", _met(verdict.accepted and wall <= WALL_SECONDS), how
                if device:
                    on = device.device_seconds
                    beyond = on.get("beyond", float("inf"))
                    yield (f"{what}: GPU", f"{beyond:.3f} s", f"{BEYOND_SECONDS:g} s", _met(beyond <= BEYOND_SECONDS),
                           f"beyond {on.get('timed', -1) * 1e3:.2f} ms of timed samples")
    yield from _caching(s, programs["gemm_sm80_lanes"][0], backend("cuda"))


def _caching(s: Session, program: Program, by: Backend) -> Iterator[Row]:
    text = by.launched_with(by.emit(program), {})
    s.gpu.cache.compiled(by, text, s.gpu.target)
    begun = time.perf_counter()
    s.gpu.cache.compiled(by, text, s.gpu.target)
    took = (time.perf_counter() - begun) * 1e3
    yield "cache hit", f"{took:.1f} ms", f"{HIT_MILLISECONDS:g} ms", _met(took < HIT_MILLISECONDS), "an artifact of GEMM by its hash"
    texts = [dataclasses.replace(text, text=text.text + f"\n// {i} {time.time_ns()}\n") for i in range(16)]
    each = {}
    for workers in (1, 2):
        s.gpu.workers = workers
        begun = time.perf_counter()
        s.gpu.compiled(by, [dataclasses.replace(x, text=x.text + f"// {workers}\n") for x in texts])
        each[workers] = time.perf_counter() - begun
    faster = each[1] / each[2]
    yield ("16 candidates compiled", f"{each[1]:.1f} s on 1, {each[2]:.1f} s on 2: {faster:.2f} times", f"{SIDE_BY_SIDE:g} times",
           _met(faster >= SIDE_BY_SIDE), "one compiler at a time, and two")
