"""Random programs on the device: each compiled by all three backends, launched, and what it makes compared with the interpreter.

    python -m benchmarks.fuzz.device [--minutes M] [--state FILE] [--workers N] [--batch N] [--seed N] [--write]

Floats are whole numbers, so that sums and products are exact in f32 and f64 whatever their order: these, and integers, are the same bit for bit; f16 and bf16
may differ by what their roundings make of it. Goes on where the last run ended; `--write` writes docs/tables/fuzz-device.md. Exit code 1 where something
compiled is not the program.
"""
from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.fuzz.making import DTYPES, Made
from kir.analysis import normalize
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.gate.gpu.conformance import compiled, launched
from kir.gate.gpu.machine import Gpu
from kir.hardware.device.client import ChildGone
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.types import DType
from kir.surface import Artifact, Emitted, backend

ROOT = Path(__file__).parents[2]
STATE, PAGE = ROOT / "benchmarks" / "results" / "fuzz" / "device.json", ROOT / "docs" / "tables" / "fuzz-device.md"
SURFACES = ("cuda", "triton", "tilelang")
ROUNDED, SHOWN, KEPT = {"f16": 2.0 ** -7, "bf16": 2.0 ** -4}, 120, 40
"""How far a value of a narrow float may lie from the interpreter's, of the largest there is; characters of a reason that are kept, and rows shown."""
WORDS = ("the same", "within roundings", "other values", "did not come back", "refused by the compiler", "refused to write")


class Program:
    """A seed's program in its normal form, with inputs of whole numbers."""

    def __init__(self, seed: int) -> None:
        self.seed, made = seed, Made(seed)
        self.form, self.dtype = made.form.__name__, made.dtype
        self.program: n.Program = normalize(parse_program(made.text, "p.kir"))
        some, (rows, columns) = np.random.default_rng(seed), made.sizes
        own = {p.name for p in self.program.params}
        self.inputs = {name: some.integers(-3, 4, (rows, columns) if name != "W" else (columns,)).astype(DTYPES[made.dtype]) for name in "XWYZ" if name in own}
        sizes = {"M": rows, "N": columns}
        self.scalars = {p.name: sizes[p.name] for p in self.program.params if isinstance(p.of, DType) and p.name in sizes}


def same(got: NDArray[Any], want: NDArray[Any], dtype: str) -> tuple[str, str]:
    """One of WORDS, and where values differ."""
    x, y = got.astype(np.float64).reshape(-1), want.astype(np.float64).reshape(-1)
    if dtype.startswith("i"):
        x, y = got.reshape(-1), want.reshape(-1)
    apart = ~((x == y) | (np.isnan(x.astype(np.float64)) & np.isnan(y.astype(np.float64))))
    if not apart.any():
        return "the same", ""
    where = int(np.argmax(apart))
    said = f"[{where}] is {x[where]}, the interpreter says {y[where]}"
    largest = max(1.0, float(np.max(np.abs(y[np.isfinite(y.astype(np.float64))]), initial=0.0)))
    near = dtype in ROUNDED and bool(np.all(np.abs(x - y)[apart] <= ROUNDED[dtype] * largest))
    return ("within roundings" if near else "other values"), said


def one(gpu: Gpu, p: Program, text: Emitted, artifact: Artifact | str) -> tuple[str, str]:
    """What came of a program on one surface, and why."""
    if isinstance(artifact, str):
        return "refused by the compiler", artifact
    try:
        both = launched(gpu, p.program, p.inputs, p.scalars, text, artifact)
    except ChildGone as gone:
        return "did not come back", gone.said
    found = [(word, f"{name}{said}") for name, (got, want) in both.items() for word, said in (same(got, want, p.dtype),)]
    return max(found, key=lambda each: WORDS.index(each[0]), default=("the same", ""))


def batch(gpu: Gpu, seeds: range, state: dict[str, Any]) -> None:
    """The programs of some seeds on every surface that takes them; counted in `state`."""
    counts, programs = Counter(state["counts"]), [Program(seed) for seed in seeds]
    for surface in SURFACES:
        by, ready = backend(surface), list[tuple[Program, Emitted]]()
        for p in programs:
            try:
                if list(by.accepts(p.program)):
                    counts[f"{surface}: refused to write"] += 1
                    continue
                ready.append((p, by.emit(p.program)))
            except KirError:
                counts[f"{surface}: refused to write"] += 1
        artifacts = compiled(gpu, surface, [text for _, text in ready])
        with ThreadPoolExecutor(max_workers=gpu.workers) as pool:
            outcomes = list(pool.map(lambda each: one(gpu, each[0][0], each[0][1], each[1]), zip(ready, artifacts, strict=True)))
        for (p, _), (word, why) in zip(ready, outcomes, strict=True):
            counts[f"{surface}: {word}"] += 1
            if word in WORDS[2:5]:
                state["faults"].append([surface, p.seed, p.form, p.dtype, word, why[:SHOWN]])
                print(f"seed {p.seed}, {p.form}, {p.dtype}, {surface}: {word}: {why[:200]}", flush=True)
    state["counts"], state["seed"] = dict(counts), seeds.stop


def page(state: dict[str, Any]) -> str:
    """The generated page."""
    counts, ran = Counter(state["counts"]), sum(v for k, v in state["counts"].items() if "refused" not in k)
    lines = ["# Random programs on the device", "", "Made by `python -m benchmarks.fuzz.device --write`: programs of `benchmarks/fuzz/making.py`, compiled by "
             "each backend that", "takes them, launched, and compared with the interpreter, bit for bit but for the roundings of f16 and bf16.", "",
             f"{state['seed']:,} programs, {ran:,} compiled and run on {state['machine']}, in {state['seconds'] / 60:.0f} minutes "
             f"({60 * ran / max(state['seconds'], 1e-9):,.0f} a minute).", "", f"| surface | {' | '.join(WORDS)} |", f"| --- |{' ---: |' * len(WORDS)}"]
    lines += ["| " + " | ".join([s, *(f"{counts[s + ': ' + w]:,}" for w in WORDS)]) + " |" for s in SURFACES]
    lines += ["", "| surface | seed | form | dtype | what | in words |", "| --- | ---: | --- | --- | --- | --- |"]
    rows = ["| " + " | ".join(" ".join(str(x).replace("|", "/").split()) for x in row) + " |" for row in state["faults"][:KEPT]]
    lines += rows or ["| none | | | | | |"]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run for the minutes that are asked for."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--minutes", type=float, default=5.0)
    arguments.add_argument("--state", type=Path, default=STATE)
    arguments.add_argument("--workers", type=int, default=4, help="compilers and launches at once")
    arguments.add_argument("--batch", type=int, default=48, help="programs at once")
    arguments.add_argument("--seed", type=int)
    arguments.add_argument("--write", action="store_true")
    chosen = arguments.parse_args()
    warnings.simplefilter("ignore")
    state: dict[str, Any] = {"seed": 0, "seconds": 0.0, "counts": {}, "faults": [], "machine": ""}
    if chosen.state.is_file() and chosen.seed is None:
        state = json.loads(chosen.state.read_text())
    if chosen.minutes > 0:
        gpu = Gpu.open()
        gpu.workers, state["machine"] = chosen.workers, str(gpu.about["name"])
        if chosen.seed is not None:
            batch(gpu, range(chosen.seed, chosen.seed + 1), state)
            print(Made(chosen.seed).text, state["counts"], sep="\n")
            return 1 if state["faults"] else 0
        end = time.monotonic() + 60 * chosen.minutes
        while time.monotonic() < end:
            begun = time.monotonic()
            batch(gpu, range(state["seed"], state["seed"] + chosen.batch), state)
            state["seconds"] += time.monotonic() - begun
            chosen.state.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(chosen.state, json.dumps(state, indent=1, sort_keys=True).encode())
    if chosen.write:
        PAGE.write_text(page(state))
    print(f"{state['seed']} programs: {state['counts']}")
    return 1 if any(row[4] == "other values" for row in state["faults"]) else 0


if __name__ == "__main__":
    sys.exit(main())
