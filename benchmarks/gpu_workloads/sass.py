"""What the machine code of the workloads' CUDA kernels holds: ``python -m benchmarks.gpu_workloads.sass [--write]`` prints or writes
`docs/tables/workloads-sass.md`, of the candidates that were the fastest of a row that is kept, as far as the workloads' own commands have compiled them here
(``python -m benchmarks.gpu_workloads.conv2d --known row`` and the like); what the
page says of workloads of which nothing is compiled here stays. No GPU is needed.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.gpu_workloads import gemm
from benchmarks.gpu_workloads.running.asking import fastest_titles
from benchmarks.gpu_workloads.running.replaying import Made, compiled_before
from benchmarks.gpu_workloads.table import WORKLOADS
from kir.backends import _cubin
from kir.base.store import write_atomic
from kir.gate.gpu.images.executable import Executable

PAGE = Path(__file__).parents[2] / "docs" / "tables" / "workloads-sass.md"
COUNTED: Mapping[str, tuple[str, ...]] = {
    "products of warpgroups": ("HGMMA", "QGMMA"), "products of warps": ("HMMA", "QMMA"), "copies by tensor maps": ("UTMALDG", "UTMASTG"),
    "other bulk copies": ("UBLKCP",), "special functions": ("MUFU",), "waits at barriers": ("SYNCS", "BAR"), "loads and stores of spills": ("LDL", "STL"),
}
"""Columns of the page, and the opcodes whose instructions they count, of whatever width."""


class Row(NamedTuple):
    """One kernel of a candidate."""

    workload: str
    title: str
    kernel: str
    registers: int
    stack: int
    mix: Mapping[str, int]


def rows() -> Iterator[Row]:
    """The kernels of all workloads, the page's order."""
    for name in WORKLOADS:
        fastest = fastest_titles(name)
        found: Mapping[Any, Made] = _gemm() if name == "gemm" else compiled_before(name)
        seen = dict[str, Executable]()
        for key, made in found.items():
            title = next((x for x in titles(key) if x in fastest), "")
            if title and not isinstance(made, str) and made[1].emitted.surface == "cuda":
                seen.setdefault(title, made[1])
        for title, executable in sorted(seen.items()):
            yield from of(name, title, executable)


def titles(key: Any) -> Iterable[str]:
    """What rows may call a candidate that is kept by a key."""
    if hasattr(key, "title"):
        return (key.title,)
    words = [x for x in key if isinstance(x, str)]
    return (*words, ", ".join(words))


def _gemm() -> dict[tuple[str, ...], Made]:
    """Those of GEMM, which are kept by rows."""
    kept = gemm.prepared(gemm.KEPT, of_any_code=True) if (gemm.KEPT / "candidates.pickle").exists() else {}
    return {(name,): executable if isinstance(executable, str) else (program, executable)
            for row in kept.values() for surface, name, program, executable in row if surface == "cuda"}


def of(workload: str, title: str, executable: Executable) -> Iterator[Row]:
    """What the images of a candidate hold."""
    with tempfile.TemporaryDirectory() as folder:
        for number, image in enumerate(executable.images):
            cubin = Path(folder) / f"{number}.cubin"
            cubin.write_bytes(image.cubin)
            usage, mixes = _cubin.usage(cubin).get(image.function), _cubin.mixes(_cubin.sass(cubin)).get(image.function, {})
            if usage is not None:
                yield Row(workload, title, image.function, usage.registers, usage.stack, mixes)


def page(found: Iterable[Row], before: str = "") -> str:
    """The table, with what another said of candidates that are not found and are still the fastest of a row."""
    lines = ["# The machine code of the workloads' kernels", "",
             "Made by `python -m benchmarks.gpu_workloads.sass --write`: of the CUDA candidates that were the fastest of a row of "
             "[gpu-workloads](../../benchmarks/results/gpu-workloads.md), each kernel's registers a thread, bytes of stack, and instructions in the text of "
             "sm_90a, whatever their width. Without stack and without `LDL` and `STL` nothing is spilled.", "",
             "| workload | candidate | kernel | registers | stack | instructions | " + " | ".join(
                 f"{what} ({', '.join(f'`{x}`' for x in opcodes)})" for what, opcodes in COUNTED.items()) + " |",
             "| " + " | ".join("---" for _ in range(6 + len(COUNTED))) + " |"]
    told: dict[str, dict[str, list[str]]] = {name: {} for name in WORKLOADS}
    for r in found:
        counts = [sum(by for opcode, by in r.mix.items() if opcode.partition(".")[0] in opcodes) for opcodes in COUNTED.values()]
        cells = [r.workload, r.title, f"`{r.kernel}`", r.registers, r.stack, sum(r.mix.values()), *(c or "" for c in counts)]
        told[r.workload].setdefault(r.title, []).append("| " + " | ".join(map(str, cells)) + " |")
    for name, own in told.items():
        said: dict[str, list[str]] = {}
        for line in before.splitlines():
            if line.startswith(f"| {name} |") and (title := line.split(" | ")[1]) in fastest_titles(name):
                said.setdefault(title, []).append(line)
        lines += [line for _, each in sorted({**said, **own}.items()) for line in each]
    return "\n".join([*lines, ""])


def main(words: list[str]) -> int:
    """0, or 2 for words that are none."""
    if words not in ([], ["--write"]):
        print("python -m benchmarks.gpu_workloads.sass [--write]", file=sys.stderr)
        return 2
    text = page(rows(), PAGE.read_text(encoding="utf-8") if PAGE.exists() else "")
    if words:
        write_atomic(PAGE, text)
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
