"""How long commands take on kernels of some 500 lines, from every surface."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import long_kernels as kernels
from benchmarks.measure import Figure
from kir import machine

BAR = 1.0
RUNS = 3
SHORT = ("parse", "opt", "opt --emit cuda")


def figures() -> Iterator[Figure]:
    """Processor time of whole processes, interpreter start included: of one thread, so that a quiet machine takes no longer than that. Python keeps
    its bytecode between the runs, as it does where it is not told otherwise."""
    with tempfile.TemporaryDirectory() as name:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {"PYTHONPYCACHEPREFIX": str(Path(name) / "bytecode")}
        here = machine.package_folder("flash_qla") is not None
        text = Path(name) / "long.kir"
        text.write_text(kernels.ir_text(), encoding="utf-8")
        for command in (*SHORT, f"diff {text}", "sites"):
            yield _row(command, "IR text, 496 lines", [str(text)], environment)
        if here:
            _, cuda, binding = kernels.written(Path(name))
            lines = cuda.read_text(encoding="utf-8").count("\n")
            for command in (*SHORT[:2], "sites"):
                yield _row(command, f"CUDA, {lines} lines (kkt_solve as it is written)", [str(cuda), "--bind", str(binding)], environment)
            for command in (*SHORT, "opt --emit tilelang", "sites"):
                yield _row(command, "TileLang, kkt_solve of `flash_qla`", [kernels.KKT, "--bind", str(kernels.KKT_BINDING)], environment)
        if machine.package_folder("flag_gems") is not None:
            yield _row("parse", "Triton, flash_fwd_kernel of `flag_gems`, 434 lines in a file of 1,633", [kernels.FLASH], environment)


def _row(command: str, what: str, words: list[str], environment: dict[str, str]) -> Figure:
    name, *options = command.split()
    call = [sys.executable, "-c", "from kir.cli import main; main()", name, *options, *words]
    seconds = min(_spent(call, environment) for _ in range(RUNS))
    shown = " ".join([name, *(each for each in options if each.startswith("-") or each.isalpha())])
    return Figure(f"`kir {shown}`: {what}", seconds, "s", BAR, note="processor time of the process")


def _spent(call: list[str], environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(call, check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
