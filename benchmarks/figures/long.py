"""How long commands take on kernels of some 500 lines, from every surface."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import long_kernels as kernels
from benchmarks.measure import Figure
from kir.hardware import machine
from kir.surface.reading import load_expert

BAR = 1.0
RUNS = 5
SHORT = ("parse", "opt", "opt --emit cuda")
FMHA = kernels.SKILLS / "experts" / "fmha" / "fmha_sm90.kir"


def figures() -> Iterator[Figure]:
    """How long whole processes take on a quiet machine, interpreter start included, the best of a few runs; and their processor time, of which
    `sites` uses two cores'. Python keeps its bytecode between the runs, as it does where it is not told otherwise."""
    with tempfile.TemporaryDirectory() as name:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {"PYTHONPYCACHEPREFIX": str(Path(name) / "bytecode")}
        here = machine.package_folder("flash_qla") is not None
        text = Path(name) / "long.kir"
        text.write_text(kernels.ir_text(), encoding="utf-8")
        for command in (*SHORT, f"diff {text}", "sites", "sites --near", "opt --emit triton"):
            yield _row(command, "IR text, 496 lines", [str(text)], environment)
        cuda, binding = kernels.as_cuda(load_expert(str(FMHA)).program, Path(name), "fmha")
        for command in (*SHORT[:2], "sites", "opt --emit triton", "opt --emit tilelang"):
            lines = cuda.read_text(encoding="utf-8").count("\n")
            yield _row(command, f"CUDA, {lines} lines (fmha_sm90 as it is written)", [str(cuda), "--bind", str(binding)], environment)
        if here:
            _, cuda, binding = kernels.written(Path(name))
            lines = cuda.read_text(encoding="utf-8").count("\n")
            for command in (*SHORT, "sites", "opt --emit triton"):
                yield _row(command, f"CUDA, {lines} lines (kkt_solve as it is written)", [str(cuda), "--bind", str(binding)], environment)
            for command in (*SHORT, "opt --emit tilelang", "sites", "opt --emit triton"):
                yield _row(command, "TileLang, kkt_solve of `flash_qla`", [kernels.KKT, "--bind", str(kernels.KKT_BINDING)], environment)
        if machine.package_folder("flag_gems") is not None:
            yield _row("parse", "Triton, flash_fwd_kernel of `flag_gems`, 434 lines in a file of 1,633", [kernels.FLASH], environment)


def _row(command: str, what: str, words: list[str], environment: dict[str, str]) -> Figure:
    name, *options = command.split()
    call = [sys.executable, "-c", "from kir.faces.cli import main; main()", name, *options, *words]
    elapsed, spent, refused = map(min, zip(*(_spent(call, environment) for _ in range(RUNS)), strict=True))
    shown = " ".join([name, *(each for each in options if each.startswith("-") or each.isalpha())])
    note = f"elapsed; {spent:.2f} s of processor time{'; refused, with what is left (KIR-B308)' if refused else ''}"
    return Figure(f"`kir {shown}`: {what}", elapsed, "s", BAR, note=note)


def _spent(call: list[str], environment: dict[str, str]) -> tuple[float, float, bool]:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(call, capture_output=True, env=environment)
    elapsed, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    refused = b"KIR-B308" in done.stderr
    if done.returncode != refused:
        raise RuntimeError(f"{' '.join(call)} gave {done.returncode}: {done.stderr.decode()[-500:]}")
    return elapsed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, refused
