"""What passes make of kernels as people write them: random passes, both ways and at random parameters, and all that random programs go through
(`benchmarks.fuzz`), over shipped kernels and those of `benchmarks/data/kernels`.

    python -m benchmarks.checks.kernels_passed [--minutes M] [--state FILE] [--only TEXT] [--seed N] [--write]

Kernels are taken in turn, each time with another seed and other small sizes; goes on where the last run ended. `--only` takes the kernels with this text in
their name, `--write` writes docs/tables/fuzz-kernels.md. Exit code 1 where a fault was found that is not in the page's list of mended ones.
"""
from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
import tomllib
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.fuzz.checking import Fault, TooLong, checks, limited, ran
from benchmarks.fuzz.state import of_the_last_day, today
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.gate.inputs.sets import size_sets
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.parser import parse_program
from kir.ir.types import DType
from kir.ir.visit import substitute
from kir.problem.draws import draw, generator
from kir.problem.schema import Draw
from kir.surface.reading import load_expert

ROOT = Path(__file__).parents[2]
STATE, PAGE = ROOT / "benchmarks" / "results" / "fuzz" / "kernels.json", ROOT / "docs" / "tables" / "fuzz-kernels.md"
OWN = ROOT / "benchmarks" / "data" / "kernels"
BASES = ((3,), (20,), (9,), (33,))
"""Where sizes begin, by turns."""
SECONDS, MOST_ELEMENTS = 120.0, 1 << 18
"""Processor time that one kernel may take in a turn, and elements of a tensor at most."""
MENDED = {
    "cuda: other values": "a flat index over rows of 5 or 22 was taken apart by a guess: only as it is proved, else it stays a place in memory. "
    "The axes of an array in another order in memory were told as rows and columns, some of them below zero (`plain.cu::parity`): it is told flat",
    "passes: AssertionError": "`multicast-cluster` expected that nothing stands behind the roles of a kernel: no site, with the reason",
    "passes: too long": "no fault: a kernel of hundreds of statements, which counts as left off now",
    "surfaces: too long": "no fault: the same",
    "values after compensated-sum": "lanes that add each other's sums came to different ones: refuted (KIR-P650)",
    "values after hold-tile": "threads wrote what a product reads through the async proxy, without a fence: no site, with the reason",
    "values after order-grid": "no fault: atomics of floats in another order; compared within their reassociation now",
    "values after run-on": "a loop that counts down read in front of its row: loads stop at both ends",
    "values after ~guard-prefetch": "backward, the last group of copies was left in flight at the end: no site without a wait for all",
    "values after ~split-sum": "elements of one update at one place became a store: no site, with the reason",
    "values after ~retain-tile": "backward, a read went behind a barrier to where other threads write: unknown (KIR-P030; in `reuse-operand` too)",
    "values after pad-shared": "rows that break the alignment of what a thread moves at once: refuted (KIR-P100), in asynchronous copies and vectors too",
    "values after stage-fragment": "the operand of a product in flight went through registers without a fence: no site, with the reason",
    "values after swizzle-shared": "an alignment smaller than an atom: no site, with the reason"}
"""What runs have found, and what was done."""


def kernels() -> Iterator[tuple[str, Callable[[], n.Program]]]:
    """Every kernel, by its name, to be read when its turn comes."""
    for path in sorted((*(ROOT / "skills" / "problems").glob("*/naive.kir"), *(ROOT / "skills" / "experts").glob("*/*.kir"))):
        yield str(path.relative_to(ROOT)), lambda path=path: parse_program(path.read_text(encoding="utf-8"), path.name)  # type: ignore[misc]  # bound at once
    for name, row in tomllib.loads((ROOT / "tests" / "zoo.toml").read_text(encoding="utf-8")).items():
        yield name, lambda row=row: load_expert(f"{row['file']}::{row['kernel']}", ROOT / row["binding"]).program  # type: ignore[misc]  # bound at once
    for path in sorted(OWN.iterdir()):
        for found in re.finditer(r"__global__ void (?:__launch_bounds__\(\w+\) )?(\w+)\(|@triton\.jit\s+def (\w+)\(", path.read_text(encoding="utf-8")):
            kernel = f"{path}::{found[1] or found[2]}"
            yield f"{path.name}::{found[1] or found[2]}", lambda kernel=kernel: load_expert(kernel, None).program  # type: ignore[misc]  # bound at once


def at_sizes(program: n.Program, turn: int) -> n.Program | None:
    """The program with small numbers for its sizes; None where there are none that its facts allow."""
    found = size_sets(program, BASES[turn % len(BASES)]) or size_sets(program)
    if not found and any(p.role == "size" for p in program.params):
        return None
    values = {p.name: const(found[0][p.name] if found and p.name in found[0] else 0.5 if p.of.is_float else 1, p.of)
              for p in program.params if isinstance(p.of, DType)}
    bare = replace(program, params=tuple(p for p in program.params if not isinstance(p.of, DType)), facts=())
    made: n.Program = substitute(bare, values)
    return made


def inputs(program: n.Program, name: str, turn: int) -> dict[str, NDArray[Any]] | None:
    """Inputs of a program of given sizes; None where one is too large."""
    out: dict[str, NDArray[Any]] = {}
    for p in program.params:
        if isinstance(p.of, n.Buffer) and p.role != "out":
            shape = tuple(int_value(d) or 0 for d in p.of.shape)
            if int(np.prod(shape)) > MOST_ELEMENTS:
                return None
            how = Draw(kind="normal") if p.of.dtype.is_float else Draw(kind="integers", low=0, high=2)
            out[p.name] = draw(how, shape, p.of.dtype.name, generator(name, turn, p.name))
    return out


def one(name: str, read: Callable[[], n.Program], turn: int, count: Counter[str]) -> list[Fault]:
    """The faults that a turn of a kernel shows."""
    program = at_sizes(read(), turn)
    arrays = inputs(program, name, turn) if program is not None else None
    if program is None or arrays is None or ran(program, lambda: {k: v.copy() for k, v in arrays.items()}, mode="check").errors:
        count["left out: too large, or not right at these sizes"] += 1
        return []
    faults: list[Fault] = []
    try:
        with limited(SECONDS):
            for fault in checks(program, lambda: {k: v.copy() for k, v in arrays.items()}, random.Random(f"{name} {turn}"), count):
                if fault.kind.endswith(": too long"):
                    count["left off: it took too long"] += 1
                else:
                    faults.append(fault)
    except TooLong:
        count["left off: it took too long"] += 1
    return faults


def page(state: dict[str, Any]) -> str:
    """The page."""
    counts = Counter(state["counts"])
    applied = counts["forward applications"] + counts["backward applications"]
    today_s = of_the_last_day(state.get("days", {})).replace("them", "the turns")
    lines = ["# Passes over kernels as people write them", "",
             "Made by `python -m benchmarks.checks.kernels_passed --write`: shipped kernels (naive, experts, the zoo) and those of `benchmarks/data/kernels`,",
             "each at small sizes through random passes, both ways and at random parameters, and all else that [random programs](fuzz.md) go through.", "",
             f"{len(state['kernels'])} kernels, {state['turns']} turns, {applied:,} applications of passes, {sum(counts.values()):,} checks in all, "
             f"{state['seconds'] / 60:.0f} minutes of processor time{today_s}.", "", "| what | times |", "| --- | ---: |",
             *(f"| {what} | {times:,} |" for what, times in counts.most_common()), "", "## Faults by kind", "",
             "| kind | times | first at | now |", "| --- | ---: | --- | --- |",
             *(f"| {kind} | {row['times']} | `{row['first']}` | {MENDED.get(kind, '**open**')} |" for kind, row in sorted(state["faults"].items()))]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run for the minutes that are asked for."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--minutes", type=float, default=10.0)
    arguments.add_argument("--state", type=Path, default=STATE)
    arguments.add_argument("--only", default="")
    arguments.add_argument("--seed", type=int, help="the turn that is done, and nothing is kept")
    arguments.add_argument("--write", action="store_true")
    chosen = arguments.parse_args()
    warnings.simplefilter("ignore")
    state: dict[str, Any] = {"turns": 0, "seconds": 0.0, "counts": {}, "kernels": [], "faults": {}}
    if chosen.state.is_file():
        state = json.loads(chosen.state.read_text(encoding="utf-8"))
    every = [(name, read) for name, read in kernels() if chosen.only in name]
    end, turn = time.monotonic() + 60 * chosen.minutes, state["turns"] if chosen.seed is None else chosen.seed * len(every)
    while time.monotonic() < end and (chosen.seed is None or turn < (chosen.seed + 1) * len(every)):
        (name, read), begun, count = every[turn * 37 % len(every)], time.process_time(), Counter[str]()
        try:
            faults = one(name, read, turn // len(every), count)
        except KirError as unread:
            faults, count = [], Counter({f"left out: {unread.diagnostics[0].id}": 1})
        turn += 1
        state["days"] = dict(Counter(state.get("days", {})) + Counter({today(): 1}))
        state["counts"] = dict(Counter(state["counts"]) + count)
        state["seconds"] += time.process_time() - begun
        state["kernels"] = sorted({*state["kernels"], name})
        for f in faults:
            row = state["faults"].setdefault(f.kind, {"times": 0, "first": name})
            row["times"] += 1
            shown = [f.before, f.after] if chosen.seed is not None else []
            print(f"{name}, turn {turn - 1}: {f.kind}: {f.why[:200]} ({f.done})", *shown, sep="\n", flush=True)
        if chosen.seed is None:
            state["turns"] = turn
            write_atomic(chosen.state, json.dumps(state, indent=1) + "\n")
    if chosen.write:
        PAGE.write_text(page(state), encoding="utf-8")
    return 1 if any("**open**" in MENDED.get(kind, "**open**").lower() for kind in state["faults"]) else 0


if __name__ == "__main__":
    sys.exit(main())
