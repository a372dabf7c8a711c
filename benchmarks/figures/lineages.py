"""How long a whole lineage takes, with the CPU gate, and in how much memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Figure
from kir.hardware import machine

ROOT = Path(__file__).parents[2]
SOURCES = ("kir", "passes", "frontends", "backends")
SKILLS = ROOT / "skills"
BINDINGS = SKILLS / "bindings"
BESIDE = Path(__file__).parents[1] / "beside"
CASES: tuple[tuple[str, str, tuple[str, ...], float], ...] = (
    (
        "GEMM, Triton (`flag_gems`)",
        "flag_gems",
        ("flag_gems:ops/mm.py::mm_kernel_general", "--bind", str(BINDINGS / "flag_gems_mm.toml"), "--problem", "gemm"),
        14.2,
    ),
    (
        "softmax, Triton (`liger_kernel`)",
        "liger_kernel",
        ("liger_kernel:ops/softmax.py::_softmax_single_block_forward_kernel", "--bind", str(BINDINGS / "liger_softmax.toml"), "--problem", "softmax"),
        20.0,
    ),
    ("softmax with a running maximum, IR text", "", (str(BESIDE / "softmax_online.kir"), "--problem", "softmax", "--surface", "cuda"), 7.7),
    (
        "GEMM, Triton (our own)",
        "",
        (str(SKILLS / "experts/gemm/triton.py"), "--bind", str(BINDINGS / "triton_gemm.toml"), "--problem", "gemm", "--target", "sm_90a"),
        180.0,
    ),
    ("GEMM, IR text (sm_80)", "", (str(SKILLS / "experts/gemm/gemm_sm80.kir"), "--problem", "gemm", "--target", "sm_80"), 180.0),
)
"""What is walked back: a name, the package that it is read from (none: ours), the arguments of `kir lineage`, and the seconds that are asked for: a tenth
of what the first three took when they were first measured (142 s, 200 s and 77 s)."""


CHILD = """
import re, resource, sys
from pathlib import Path
from kir.faces.cli._main import run
code = run(sys.argv[1:])
own = re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]
print(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""
"""`kir`, which at its end tells the most memory (KiB) that it, and the largest process that it started, took."""


def figures() -> Iterator[Figure]:
    """`kir lineage` in a process of its own, into an empty folder and with an empty cache, with the memory that it and its compilers take.
    KIR's own modules are compiled first, and the tables of its grammars worked out, as `make install` does both, so that no row pays for what the first
    command after an edit pays for."""
    subprocess.run([sys.executable, "-m", "compileall", "-q", "-j", "0", *(str(ROOT / each) for each in SOURCES)], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([sys.executable, "-m", "kir.ir.grammar"], check=True)
    for name, package, words, most in CASES:
        if package and machine.package_folder(package) is None:
            yield Figure(f"lineage of {name}", None, "s", most, note=f"`{package}` is not installed")
            continue
        with tempfile.TemporaryDirectory() as folder:
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            command = [sys.executable, "-c", CHILD, "lineage", *words, "-o", f"{folder}/walk", "--json"]
            done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "XDG_CACHE_HOME": f"{folder}/cache"})
            seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        value = json.loads(done.stdout)
        what = f"lineage of {name}"
        if done.returncode:
            yield Figure(what, None, "s", most, note=value["diagnostics"][0]["message"])
            continue
        own, workers = (int(each) / 2**10 for each in done.stderr.split()[-2:])
        told = f"{value['steps']} steps, {value['realized']} realized, {value['rejected']} rejected, ended {value['ended']}"
        yield Figure(what, seconds, "s", most, note=f"{told}; {spent:.1f} s of processor time; {own:.0f} MiB, and {workers:.0f} MiB a compiler")
