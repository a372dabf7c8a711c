"""Lineages of kernels that nobody here named, as a reader sees them: `docs/tables/lineages-read.md`.

    python -m benchmarks.users.looked_at walk OUT [--sources DIR] [--only WORD ..] [--seconds 600]
    python -m benchmarks.users.looked_at page [OUT]      # the page; with OUT the rows are taken from the walks in it first

`walk` gives each kernel to `kir lineage FILE::KERNEL` as a user would; one that has ended is not walked again. Kernels stand in installed packages (the
extra `zoo`); those of `NAME==VERSION` in source distributions, fetched by ``pip download --no-deps --no-binary :all: NAME==VERSION`` and unpacked into
DIR/NAME. What a row says of a kernel is read from its record; what a reader noticed is written in `KERNELS`, by hand.
Rows are kept in ``benchmarks/data/lineages_read.json``, from which the page is made.
"""
from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.measure import cores
from kir.faces.plain.form import plain
from kir.ir.printer import program_text
from kir.lineage.records.folder import opened

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tables" / "lineages-read.md"
ROWS = ROOT / "benchmarks" / "data" / "lineages_read.json"
SHOWN = "rms_norm_kernel"
"""The kernel whose steps the page shows."""
NEAR = 1
"""Lines around what a step changes."""
KERNELS: dict[str, str] = {
    "liger_kernel:ops/rms_norm.py::_rms_norm_forward_kernel":
        "threads come first (4 times slower until rows are shared out); each `reuse-operand` is a name of the source come back",
    "liger_kernel:ops/rope.py::_triton_rope":
        "Q and K are told apart in two nests; both are read through flat views, since they are written in place",
    "fla:ops/hgrn/fused_recurrent.py::fused_recurrent_hgrn_fwd_kernel":
        "the recurrence in four lines; its `for _ in range(T)` is a counter of time, `t`",
    "flag_gems:ops/addmv.py::addmv_kernel":
        "`defer-reduction` is the heart: a tile of partial sums, added up once after the loop",
    "tile_kernels:moe/normalize_weight_kernel.py::normalize_weight_kernel":
        "two unrolled loops and an array in registers; one token a thread",
    "tile_kernels:moe/group_count_kernel.py::group_count_kernel":
        "a histogram: counts in shared memory first (`privatize-atomics`); its loop over threads strides, and stays two loops",
    "flash_qla:ops/utils/group_reduce.py::tilelang_group_reduce_vector_kernel":
        "sums of a group of heads; one mask stays, for which `H // 64 * 64 <= H` would have to be used",
    "flashinfer:data/include/flashinfer/norm.cuh::RMSNormKernel":
        "two levels of shuffles taken apart; the sum keeps the order of its threads, for the order is its value",
    "vllm==0.6.3:csrc/layernorm_kernels.cu::rms_norm_kernel":
        "the tree is CUB's `BlockReduce`, read as what it does; below, step by step",
    "llama_cpp_python==0.3.36:vendor/llama.cpp/ggml/src/ggml-cuda/diagmask.cu::diag_mask_inf_f32":
        "threads and an early return, no more; shapes as `kir bind --ask --yes` proposes them",
}
"""The kernels, and what a reader notices."""
INTRO = """\
For users: ten kernels of other people's packages, each walked back with nothing but `kir lineage FILE::KERNEL`, and read from the naive program to the
expert: whether each title and text is true of its step, the difference readable, the names those of the source, and the end what a person would write.
"""
FOUND = """\
## Found, and mended

| what a reader met | now |
| --- | --- |
| N kept the cuts of its tiles (`grid (i_d: 2)`, `for i in 0..32`, `x[i_n, _, i + i_d * 32]`), masks, loops of one round, casts to 64 bits, names as `acc_1` \
| `kir explain` and the report tell it in plain words; N itself is as it was |
| texts that were not true of every step: of "several places" for a value that one needs, of tiles where there were none yet | say what is true of each |
| `group_count`: a first step of a thousand times and more, for N was modelled with many rounds of a loop and the rest with eight \
| all states at the same sizes |
| steps that looked alike (`mask-tail`, twice), `_triton_rope` without its first letter, a budget of 31.4871 s \
| each step with its place; as in the source; 31.5 s |
| facts that others imply (`min(n, 64) <= 64`) | left out in plain words |
| errors without a way on: shapes left open, an assumed window of 1,024 | `--yes` takes what is proposed; `kir bind --ask` is named |

## Left

- A sum over threads that stride keeps its order, and so its three loops: the order of a sum of floats is its value.
- Tensors that are read and written in place are read through flat views where a row is a product of sizes.
- Kernels tried that are not in the table. Without a launch that says all: FlagGems' `bmm` and `softmax`, LigerKernel's backward layer norm. Not to N:
  fusedtok 2.5.0's `rope`, `rmsnorm` and `softmax_reg`, vLLM's `fused_add_rms_norm`. Refused: tile_kernels' `mask_indices_by_tp`, whose indices are taken
  for `f32`; fusedtok's `layernorm`, rightly: `block_reduce_sum` reads `shared[0]` behind its last barrier, and its next call writes there (KIR-I014).
"""


@dataclass(frozen=True)
class Step:
    """One step forward: how it is written, what it is for, how many of its conditions were proved, and what it changed, as lines of a difference."""

    step: str
    claim: str
    conditions: tuple[str, ...]
    realized: bool
    changed: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """A lineage as read: seconds of the clock and of processors that the walk took, and its two ends; `naive` and `plain` are IR text from `kernel` on."""

    kernel: str
    surface: str
    ended: str
    realized: int
    wall: float
    own: float
    naive: str
    plain: str
    steps: tuple[Step, ...]


def path_of(kernel: str, sources: Path) -> str:
    """FILE::KERNEL of ``package:file::kernel``, in the installed package or, for ``NAME==VERSION:..``, in the unpacked source distribution."""
    package, _, rest = kernel.partition(":")
    name, version = package.partition("==")[::2]
    if version:
        return str(sources / name / rest)
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{name} is not installed: make .venv/.zoo")
    return str(Path(next(iter(spec.submodule_search_locations))) / rest)


def name_of(kernel: str) -> str:
    """The folder of a kernel's walk."""
    return re.sub(r"\W+", "_", kernel.rpartition("/")[2].replace("::", "-")).strip("_")


def walk(kernel: str, out: Path, sources: Path, seconds: float) -> None:
    """The walk of a kernel in its folder, with the time that it took beside it; one that was ended goes on, and its times add up."""
    folder, took = out / name_of(kernel), out / f"{name_of(kernel)}.json"
    known: dict[str, Any] = json.loads(took.read_text(encoding="utf-8")) if took.exists() else {"wall": 0.0, "own": 0.0, "ended": ""}
    if known["ended"] in ("naive", "stuck"):
        return
    start = [sys.executable, "-c", "from kir.faces.cli import main; main()"]
    begun = time.monotonic()
    with (out / f"{folder.name}.log").open("w", encoding="utf-8") as log:
        child = subprocess.Popen([*start, "lineage", path_of(kernel, sources), "-o", str(folder), "--seconds", f"{seconds:g}"], stdout=log, stderr=log,
                                 env={**os.environ, "XDG_CACHE_HOME": str(out / "cache" / folder.name)})
        _, _, used = os.wait4(child.pid, 0)
    ended = opened(folder).read().outcome.ended if (folder / "lineage.json").exists() else "refused"
    made = {"wall": known["wall"] + time.monotonic() - begun, "own": known["own"] + used.ru_utime + used.ru_stime, "ended": ended}
    took.write_text(json.dumps(made), encoding="utf-8")
    print(f"{kernel}: {ended}, {made['wall']:.0f} s", flush=True)


def row(kernel: str, out: Path) -> Row | None:
    """What the walk of a kernel in OUT says; None where there is none."""
    folder, took = out / name_of(kernel), out / f"{name_of(kernel)}.json"
    if not (folder / "lineage.json").exists() or not took.exists():
        return None
    place, times = opened(folder), json.loads(took.read_text(encoding="utf-8"))
    lineage = place.read()
    steps = []
    for _, step in lineage.transitions():
        assert step.after is not None
        before, after = (_body(place.store.get(state.text)) for state in (step.after, step.before))
        changed = [line.rstrip() for line in difflib.unified_diff(before, after, n=NEAR, lineterm="") if not line.startswith(("---", "+++", "@@"))]
        steps.append(Step(_placed(step.forward), step.claim, tuple(f"{c.sentence} ({c.verdict})" for c in step.conditions),
                          bool(step.realization and step.realization.realized), tuple(changed)))
    last = place.program(lineage.states[-1])
    return Row(kernel, lineage.header.surface, lineage.outcome.ended, lineage.outcome.realized, times["wall"], times["own"],
               "\n".join(_body(program_text(last))), "\n".join(_body(program_text(plain(last)))), tuple(steps))


def _placed(forward: str) -> str:
    """A step with its place in the kernel."""
    step, _, anchor = forward.rpartition("@")
    place = anchor.partition("/")[2]
    return f"{step}@{place}" if place else step


def _body(text: str) -> list[str]:
    """The kernel of a program's text."""
    return text[text.index("\nkernel ") + 1:].rstrip().splitlines()


def page(rows: Sequence[Row], on: str) -> str:
    """The page of rows that were walked on a machine."""
    whole = sum(r.ended == "naive" for r in rows)
    lines = ["# Lineages, read", "", INTRO.rstrip(), "",
             f"Made by `python -m benchmarks.users.looked_at page` from walks of `.. walk OUT` on {on}, beside other work:",
             f"{whole} of {len(rows)} end in N.",
             "Seconds are the processors' own (of the clock), compilers included and nothing kept from before. The last column is what a reader notices.", "",
             "| surface | kernel | steps | change the code | seconds | lines of N, in plain words | noticed |",
             "| --- | --- | ---: | ---: | ---: | ---: | --- |"]
    for r in rows:
        count = f"{len(r.naive.splitlines())}, {len(r.plain.splitlines())}" if r.ended == "naive" else f"not naive ({r.ended})"
        lines.append(f"| {r.surface} | `{r.kernel}` | {len(r.steps)} | {r.realized} | {r.own:.0f} ({r.wall:.0f}) | {count} | {KERNELS.get(r.kernel, '')} |")
    lines += ["", FOUND.rstrip(), ""]
    shown = next((r for r in rows if r.kernel.endswith(SHOWN)), None)
    if shown is not None:
        lines += [f"## One of them: `{shown.kernel}`", "", "What it computes, in plain words (`kir explain FILE::KERNEL`):", "",
                  "```text", shown.plain, "```", "", "From there to the package's kernel (`kir lineage FILE::KERNEL -o DIR`, `kir diff DIR --step N`):", ""]
        for number, step in enumerate(shown.steps, 1):
            lines += [f"{number}. `{step.step}`: {step.claim} Right because {'; '.join(step.conditions) or 'nothing is asked'}.", "",
                      "```diff", *step.changed, "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def kept() -> tuple[list[Row], str]:
    """The rows that are kept, and where they were walked."""
    said = json.loads(ROWS.read_text(encoding="utf-8"))
    rows = [Row(**{**r, "steps": tuple(Step(**{**s, "conditions": tuple(s["conditions"]), "changed": tuple(s["changed"])}) for s in r["steps"])})
            for r in said["rows"]]
    return rows, said["on"]


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("walk", "page"))
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--sources", type=Path, default=Path("sources"))
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--seconds", type=float, default=600.0)
    given = parser.parse_args(argv)
    if given.what == "walk":
        given.out.mkdir(parents=True, exist_ok=True)
        for kernel in KERNELS:
            if not given.only or any(word in kernel for word in given.only):
                walk(kernel, given.out, given.sources, given.seconds)
        return 0
    if given.out is not None:
        rows = [made for kernel in KERNELS if (made := row(kernel, given.out)) is not None]
        ROWS.write_text(json.dumps({"on": cores(), "rows": [asdict(r) for r in rows]}, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(*kept()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
