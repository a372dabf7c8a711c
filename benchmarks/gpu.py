"""What only a GPU can show. ``python -m benchmarks.gpu PART ...`` measures the named parts and writes their tables.

Parts: ``probe`` (what this host has, and where time goes), ``smoke`` (kernels of each surface, end to end), ``conformance``, ``red-team``,
``ahead`` (compiles what ``honest`` will judge), ``honest``, ``panel``, ``lineage``, ``speed``, ``again`` (the same kernels ten minutes apart),
``gemm`` (tuned, beside cuBLAS), ``uneven`` (sizes that tiles do not divide), ``recovery``
(experts rebuilt from their lineages, with and without residues), ``tests`` (``pytest tests -m gpu``, file by file; ``tests:4`` in four processes).
``honest:WORD``, ``panel:WORD`` and ``lineage:WORD`` take what has WORD in its name (or one of ``A,B``), ``honest:zoo`` all kernels of sources. Tables go to
``benchmarks/results/gpu-PART.md``, or under the folder that ``--out`` names; raw records beside them as JSON lines. One part that fails
harms no other; ``--seconds N`` begins no part, and no row of a part, after N seconds; ``--gpus N`` deals the parts to so many GPUs, one at a
time on each, where ``honest/3`` is a part in three shares. ``benchmarks/README.md`` has the command lines.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from benchmarks.gpu_parts import again, gemm, judging, probe, recovery, suite, timing, uneven
from benchmarks.gpu_parts.dealing import dealt, shares
from benchmarks.gpu_parts.session import RESULTS, Session
from kir.base.diagnostic import KirError
from kir.gate.gpu import Gpu
from kir.hardware import machine

PARTS: dict[str, Callable[[Session], None]] = {
    "probe": probe.probe,
    "smoke": judging.smoke,
    "conformance": judging.conformance,
    "red-team": judging.red_team,
    "ahead": judging.ahead,
    "honest": judging.honest,
    "panel": timing.panel,
    "lineage": timing.lineage,
    "speed": timing.speed,
    "again": again.again,
    "gemm": gemm.gemm,
    "uneven": uneven.uneven,
    "recovery": recovery.recovery,
    "tests": suite.suite,
}


def main(words: list[str]) -> int:
    """Measure the parts named, in order; 1 when one of them broke, 2 for words that are none."""
    given = {"--out": str(RESULTS), "--seconds": "inf", "--gpus": "1", "--share": "0/1"}
    while len(words) > 1 and words[0] in given:
        option, value, *words = words
        given[option] = value
    out, seconds, gpus = Path(given["--out"]), float(given["--seconds"]), int(given["--gpus"])
    number, count = (int(x) for x in given["--share"].split("/"))
    broken = [word for word in words if shares(word)[0].partition(":")[0] not in PARTS]
    if broken or not words:
        print(f"parts: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    if gpus > 1:
        return dealt(words, gpus, out, seconds)
    code, until = 0, time.monotonic() + seconds
    try:
        opened = Gpu.open()
    except KirError as refused:
        print(refused, file=sys.stderr)
        return 1
    with opened as gpu:
        gpu.workers = max(2, int(machine.summary()["cores"]))
        session = Session(gpu, out, until)
        session.share = (number, count)
        for word in words:
            begun = time.perf_counter()
            print(f"== {word}", flush=True)
            try:
                part, _, session.only = shares(word)[0].partition(":")
                PARTS[part](session)
            except Exception:
                code = 1
                traceback.print_exc()
            print(f"== {word}: {time.perf_counter() - begun:.0f} s", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
