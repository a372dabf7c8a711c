"""What only a GPU can show. ``python -m benchmarks.gpu PART ...`` measures the named parts and writes their tables.

Parts: ``smoke`` (kernels of each surface, end to end), ``conformance``, ``red-team``, ``honest``, ``panel``, ``lineage``, ``speed``,
``again`` (the same kernels ten minutes apart), ``gemm`` (tuned, beside cuBLAS; `benchmarks/gpu_gemm.py`); ``honest:WORD`` takes the kernels
with WORD in their names alone. Tables go to
``benchmarks/results/gpu-PART.md``, or under the folder that ``--out`` names; raw records beside them as JSON lines. One part that fails
harms no other.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from kir import machine
from kir.confine import probed
from kir.gate import Verdict
from kir.gate.gpu import Gpu, Options, gate_gpu
from kir.gate.records import append
from kir.problem import load_problem
from kir.store import write_atomic

Row = tuple[object, ...]
ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
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
LINEAGE_SECONDS = 170
EXPERTS = {
    "gemm-flag-gems": ("gemm", ["flag_gems:ops/mm.py::mm_kernel_general", "--bind", "skills/bindings/flag_gems_mm.toml"]),
    "rmsnorm-liger": ("rmsnorm", ["liger_kernel:ops/rms_norm.py::_rms_norm_forward_kernel", "--bind", "skills/bindings/liger_rms_norm.toml"]),
    "gemm-triton": ("gemm", ["skills/experts/gemm/triton.py::gemm_persistent", "--bind", "skills/bindings/triton_gemm.toml"]),
}
WORKLOADS = ("gemm", "rmsnorm", "softmax", "conv2d", "gdn", "topk", "fmha", "fmha_causal")


class Session:
    """A device, the folder for results, and the rows written so far."""

    def __init__(self, gpu: Gpu, out: Path) -> None:
        self.gpu, self.out = gpu, out
        self.only = ""

    def table(self, part: str, title: str, head: Iterable[str], rows: Iterable[Iterable[object]], note: str = "") -> None:
        """Write a table with the command that made it, again after each row: what was measured is kept if a later row is never reached."""
        names = list(head)
        about, clocks = self.gpu.about, self.gpu.clocks()
        lines = [
            f"# {title}",
            "",
            f"Made by `python -m benchmarks.gpu {part}` on {about['name']}, clocks {clocks}, candidates confined by: {probed().text}.",
            *(["", note] if note else []),
            "",
            "| " + " | ".join(names) + " |",
            "| " + " | ".join("---" for _ in names) + " |",
        ]
        for row in rows:
            lines.append("| " + " | ".join(str(x).replace("|", "\\|").replace("\n", " ") for x in row) + " |")
            print(lines[-1], flush=True)
            write_atomic(self.out / f"gpu-{part}.md", "\n".join([*lines, ""]))

    def record(self, part: str, verdict: Verdict) -> None:
        """Keep a verdict's record."""
        append(self.out / f"gpu-{part}.jsonl", verdict)


def smoke(s: Session) -> None:
    """Kernels of each surface, end to end, with all that is done to them."""
    from tests.red_team.honest import HONEST

    def rows() -> Iterator[Row]:
        for honest in [h for h in HONEST if h.name in SMOKE]:
            begun = time.perf_counter()
            program, problem, surface = honest.loaded()
            shape = min(problem.timed_for(program), key=lambda x: sum(x.sizes.values()))
            options = Options(shapes=(shape.name,), panel=False)
            verdict = _tried(s, "smoke", functools.partial(gate_gpu, s.gpu, program, problem, surface, options=options))
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


def _tried(s: Session, part: str, work: Callable[[], Verdict]) -> Verdict | str:
    """The verdict, which is recorded, or what went wrong: one kernel that fails the harness harms no other."""
    try:
        verdict = work()
    except Exception as fault:
        traceback.print_exc()
        return f"{type(fault).__name__}: {fault}"
    s.record(part, verdict)
    return verdict


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
        yield "", "the honest kernel", _said(honest), "", "yes" if honest.accepted else "NO"
        for exploit in KERNELS:
            begun = time.perf_counter()
            verdict = _tried(s, "red-team", functools.partial(judged, s.gpu, exploit))
            right = isinstance(verdict, Verdict) and refused_for_the_right_reason(exploit, verdict, honest)
            wall = f"{time.perf_counter() - begun:.1f} s"
            yield ", ".join(map(str, exploit.rows)), f"{exploit.name}: {exploit.does}", _said(verdict), wall, "yes" if right else "NO"
        after = judged(s.gpu, None)
        yield "", "the honest kernel, after all of them", _said(after), "", "yes" if after.accepted else "NO"

    s.table("red-team", "Red team", ("rows", "exploit", "verdict", "time", "as it should be"), rows())


def _said(verdict: Verdict | str) -> str:
    if isinstance(verdict, str):
        return f"ERROR {verdict}"
    return "accepted" if verdict.accepted else f"refused at {verdict.stage}: {verdict.reason}"


def honest(s: Session) -> None:
    """Honest kernels."""
    from tests.red_team.honest import HONEST

    def rows() -> Iterator[Row]:
        for each in [h for h in HONEST if s.only in h.name]:
            if each.zoo and not machine.package_version(each.source.partition(":")[0].replace("_", "-")):
                yield each.name, each.note, "not here: the package is not installed", "", ""
                continue
            begun = time.perf_counter()
            program, problem, surface = each.loaded()
            shapes = problem.timed_for(program)
            smallest = min(shapes, key=lambda x: sum(x.sizes.values()))
            options = Options(shapes=(smallest.name,), panel=False, interpret=False, budget=0.4)
            verdict = _tried(s, "honest", functools.partial(gate_gpu, s.gpu, program, problem, surface, options=options))
            shown = _shown(verdict) if isinstance(verdict, Verdict) else ""
            yield each.name, each.note, _said(verdict), shown, f"{time.perf_counter() - begun:.1f} s"

    s.table("honest", "Honest kernels", ("kernel", "what", "verdict", "measured", "time"), rows())


def _shown(verdict: Verdict) -> str:
    return "; ".join(
        f"{r.shape} {r.seconds * 1e6:.1f} us ({r.interval[0] * 1e6:.1f} .. {r.interval[1] * 1e6:.1f})"
        for r in verdict.profile
        if r.kind == "measured" and r.interval
    )


def panel(s: Session) -> None:
    """The references of every workload, at its timed shapes, as the gate times them."""
    import random
    import secrets

    from kir.gate.gpu.oracle import Oracle
    from kir.gate.gpu.panel import Timed
    from kir.gate.gpu.panel import panel as timed

    def rows() -> Iterator[Row]:
        for name in WORKLOADS:
            problem = load_problem(name)
            with s.gpu.oracles.child() as child:
                shapes = [x for x in problem.tagged("timed") if "asked" not in x.tags]
                for row in timed(s.gpu, problem, Oracle.of(child, problem), shapes, random.Random(secrets.randbits(64))):
                    if isinstance(row, Timed):
                        e = row.estimate
                        took = (f"{e.median * 1e6:.1f} us", f"{e.low * 1e6:.1f} .. {e.high * 1e6:.1f}", e.samples)
                        yield name, row.shape, row.reference, row.version, *took
                    else:
                        yield name, row.shape, row.reference, "", f"missing: {row.reason}", "", ""

    s.table("panel", "Panel of references", ("problem", "shape", "reference", "version", "median", "95 %", "samples"), rows())


def lineage(s: Session) -> None:
    """`kir lineage --on gpu` for GEMM and RMSNorm."""

    def rows() -> Iterator[Row]:
        for name, (problem, words) in EXPERTS.items():
            begun = time.perf_counter()
            folder = s.out / f"lineage-{name}"
            command = ["lineage", *words, "--problem", problem, "--on", "gpu", "--target", "sm_90a", "-o", str(folder), "--json", "--fresh"]
            try:
                done = subprocess.run(
                    [sys.executable, "-c", "from kir.cli import main; main()", *command],
                    capture_output=True,
                    text=True,
                    cwd=ROOT,
                    check=False,
                    timeout=LINEAGE_SECONDS,
                )
                found = json.loads(done.stdout)
                for t in found["transitions"]:
                    m = next(iter(t["speedup_measured"].values()), None)
                    faster = f"{m['median']:.3g}x ({m['interval'][0]:.3g} .. {m['interval'][1]:.3g})" if m else "-"
                    yield name, t["number"], t["intent"], t["forward"], "yes" if t["realized"] else "no", faster
                took = f"{found['steps']} steps, {found['realized']} realized, {time.perf_counter() - begun:.0f} s"
                yield name, "", f"ended: {found['ended']}", took, "", ""
                write_atomic(s.out / f"gpu-lineage-{name}.json", done.stdout)
            except subprocess.TimeoutExpired:
                yield name, "", "ERROR", f"not done after {LINEAGE_SECONDS} s", "", ""
            except (ValueError, KeyError):
                yield name, "", "ERROR", done.stdout[-300:] + done.stderr[-600:], "", ""

    s.table("lineage", "Lineages on the GPU", ("expert", "#", "intent", "forward step", "realized", "measured"), rows())


def speed(s: Session) -> None:
    """Time per candidate after warm-up, cache hits, parallel compilation."""
    from kir.ir.parser import parse_program
    from kir.surface import backend

    problem = load_problem("gemm")
    rows: list[tuple[object, ...]] = []
    programs = {}
    for name in ("gemm_sm80_lanes", "gemm_sm90_persistent"):
        path = ROOT / "skills" / "experts" / "gemm" / f"{name}.kir"
        programs[name] = program = parse_program(path.read_text(), str(path))
        for interpret in (True, False):
            with tempfile.TemporaryDirectory() as fresh, Gpu(Path(fresh), workers=s.gpu.workers) as gpu:
                gpu.harness, gpu.peaks, gpu.oracles, gpu.executors  # noqa: B018  # warm-up: what a session pays once
                for which in ("new", "again, from the cache"):
                    begun = time.perf_counter()
                    verdict = gate_gpu(gpu, program, problem, "cuda", options=Options(shapes=("cube",), panel=False, interpret=interpret))
                    wall = time.perf_counter() - begun
                    spent = {k: round(v, 3) for k, v in verdict.device.seconds.items()} if verdict.device else {}
                    sampled = sum(t["samples"] * t["median"] for t in verdict.device.timings) if verdict.device else 0.0
                    what = f"{name}, GEMM 1024^3, {'interpreted first' if interpret else 'interpreter off'}, {which}"
                    rows.append((what, f"{wall:.2f} s", "3 s", f"{_said(verdict)}; {spent}; timed samples {sampled * 1e3:.2f} ms on the GPU"))
    program = programs["gemm_sm80_lanes"]
    by = backend("cuda")
    text = by.launched_with(by.emit(program), {})
    s.gpu.cache.compiled(by, text, s.gpu.target)
    begun = time.perf_counter()
    s.gpu.cache.compiled(by, text, s.gpu.target)
    rows.append(("cache hit", f"{(time.perf_counter() - begun) * 1e3:.1f} ms", "50 ms", ""))
    import dataclasses

    texts = [dataclasses.replace(text, text=text.text + f"\n// {i} {time.time_ns()}\n") for i in range(16)]
    took = {}
    for workers in (1, 2):
        s.gpu.workers = workers
        begun = time.perf_counter()
        s.gpu.compiled(by, [dataclasses.replace(x, text=x.text + f"// {workers}\n") for x in texts])
        took[workers] = time.perf_counter() - begun
    rows.append(("16 candidates compiled", f"{took[1]:.1f} s on 1, {took[2]:.1f} s on 2: {took[1] / took[2]:.2f} times", "1.7 times", ""))
    s.table("speed", "Speed of the GPU gate", ("what", "measured", "asked for", "how"), rows)


def again(s: Session) -> None:
    """Two measurements of one kernel; the second later, in another process."""
    from tests.red_team.honest import HONEST

    rows = []
    for each in [h for h in HONEST if h.name in ("gemm gemm_sm80_lanes.kir", "narrowed naive")]:
        program, problem, surface = each.loaded()
        verdict = gate_gpu(s.gpu, program, problem, surface, options=Options(panel=False, interpret=False, sanitize=False))
        s.record("again", verdict)
        rows += [
            (time.strftime("%H:%M:%S"), each.name, r.shape, f"{r.seconds * 1e6:.3f}", f"{r.interval[0] * 1e6:.3f} .. {r.interval[1] * 1e6:.3f}")
            for r in verdict.profile
            if r.kind == "measured" and r.interval
        ]
    s.table(f"again-{int(time.time())}", "The same kernels again", ("at", "kernel", "shape", "median (us)", "95 %"), rows)


def gemm(s: Session) -> None:
    """GEMM on each surface, tuned, beside cuBLAS."""
    from benchmarks.gpu_gemm import HEAD, rows

    found = rows(s.gpu, s.out, s.only, functools.partial(s.record, "gemm"))
    s.table(f"gemm{'-' if s.only else ''}{s.only}", "GEMM against cuBLAS", HEAD, found, "Tuned by `kir.tune`; both sides timed in one run of the gate.")


PARTS: dict[str, Callable[[Session], None]] = {
    "smoke": smoke,
    "conformance": conformance,
    "red-team": red_team,
    "honest": honest,
    "panel": panel,
    "lineage": lineage,
    "speed": speed,
    "again": again,
    "gemm": gemm,
}


def main(words: list[str]) -> int:
    """Measure the parts named, in order; 1 when one of them broke."""
    out = RESULTS
    if "--out" in words:
        at = words.index("--out")
        out = Path(words[at + 1])
        words = words[:at] + words[at + 2 :]
    broken = [word for word in words if word.partition(":")[0] not in PARTS]
    if broken or not words:
        print(f"parts: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    code = 0
    with Gpu.open() as gpu:
        gpu.workers = max(2, int(machine.summary()["cores"]))
        session = Session(gpu, out)
        for word in words:
            begun = time.perf_counter()
            print(f"== {word}", flush=True)
            try:
                part, _, session.only = word.partition(":")
                PARTS[part](session)
            except Exception:
                code = 1
                traceback.print_exc()
            print(f"== {word}: {time.perf_counter() - begun:.0f} s", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
