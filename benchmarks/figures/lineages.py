"""How long a whole lineage takes, with the CPU gate, and in how much memory."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Figure

EXPERTS = Path(__file__).parents[2] / "skills" / "experts"
CASES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("GEMM, IR text (sm_80)", (str(EXPERTS / "gemm" / "gemm_sm80.kir"), "--problem", "gemm")),
    ("softmax, IR text", (str(EXPERTS / "softmax" / "softmax.kir"), "--problem", "softmax")),
)


def figures() -> Iterator[Figure]:
    """`kir lineage` in a process of its own, into an empty folder; memory is the largest of any process it started."""
    for name, words in CASES:
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            command = [sys.executable, "-c", "from kir.cli import main; main()", "lineage", *words, "-o", folder, "--json"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            seconds = time.perf_counter() - start
        value = json.loads(done.stdout)
        what = f"lineage of {name}"
        if done.returncode:
            yield Figure(what, None, "s", 180, note=value["diagnostics"][0]["message"])
            continue
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        told = f"{value['steps']} steps, {value['realized']} realized, {value['rejected']} rejected, ended {value['ended']}"
        yield Figure(what, seconds, "s", 180, note=f"{told}; at most {memory:.2f} GiB a process")
