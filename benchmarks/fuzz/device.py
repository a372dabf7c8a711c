"""Random programs on the device: each compiled by the backends that take it, launched, and what it makes compared with the interpreter.

    python -m benchmarks.fuzz.device [--minutes M] [--state FILE] [--jobs N] [--gpu-from SECONDS] [--seed N] [--write] [--mended]

CUDA takes every program, many of them in one translation unit; Triton and TileLang, which compile each by itself, every few. Of some seeds it is what passes
made of the program. Processes prepare them all the time (made, written, compiled, interpreted), and launch them from `--gpu-from` on. Floats are whole
numbers, so that sums and products are exact in f32 and f64 whatever their order, as far as whole numbers go: these, and integers, are the same bit for bit;
f16 and bf16 may differ by what their roundings make of it, and what functions make (`exp2`, `tanh`, ..) by last bits. Nothing may be written beyond a tensor,
or into an input.
Goes on where the last run ended; `--write` writes docs/tables/fuzz-device.md, `--mended` says that what was found by now is mended. Exit code 1 where
something compiled is not the program that it is of.
"""
from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import random
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.fuzz import units
from benchmarks.fuzz.checking import PASSES
from benchmarks.fuzz.launching import Ready, launched
from benchmarks.fuzz.making import DTYPES, Made
from benchmarks.fuzz.seeds import ready as no_collector
from benchmarks.fuzz.state import of_the_last_day, today
from kir.analysis import normalize
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.gate.gpu.machine import Gpu
from kir.hardware.device import client
from kir.hardware.machine import toolkit
from kir.hardware.target import Target
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.types import DType
from kir.ir.visit import walk
from kir.rewrite import apply, sites
from kir.surface import Artifact, Emitted, backend

ROOT = Path(__file__).parents[2]
STATE, PAGE = ROOT / "benchmarks" / "results" / "fuzz" / "device.json", ROOT / "docs" / "tables" / "fuzz-device.md"
SHARES = {"cuda": 1, "triton": 8, "tilelang": 64}
"""One of how many programs a surface takes: as its compiler's cost is."""
BATCH, LATER, TRIED, STEPS = 128, 0.25, 8, 3
"""Programs at once; how often it is what passes made of one; passes that are tried for that, and steps at most."""
SAVED, LAST, TOGETHER = 15.0, 25.0, 4
"""Seconds between two writes of the state; and before the end of a run, from which no batch is begun; and batches that are launched together."""
ROUNDED, SHOWN, KEPT = {"f16": 2.0 ** -7, "bf16": 2.0 ** -4}, 120, 40
"""How far a value of a narrow float may lie from the interpreter's, of the largest there is; characters of a reason that are kept, and rows shown."""
WHOLE = {"f32": 2.0 ** 24, "f64": 2.0 ** 53, "i32": np.inf, "i64": np.inf}
FUNCTIONS = frozenset({"exp2", "exp", "log", "log2", "tanh", "sigmoid", "erf", "sin", "cos", "rsqrt", "rcp"})
"""Functions whose last bits a compiler and NumPy may see otherwise, as they may those of what is worked out from them."""
BEYOND = {"f32": 2.0 ** -22, "f64": 2.0 ** -51}
"""Where whole numbers end of a float, and how far beyond it, or behind a function, a value may lie: nvcc makes one rounding of a product and a sum, the
interpreter two."""
WORDS = ("the same", "within roundings", "other values", "did not come back", "refused by the compiler", "refused to write")
COMPILERS = {("cuda", "other values", "threads"): "no: a [fault of ptxas](compilers-faults.md#by-the-assembler)"}
"""Kinds of faults that are a compiler's."""
Outcome = tuple[str, str, str, str, str]
"""Surface, form, dtype, one of WORDS, and why."""


class Program:
    """A seed's program in its normal form, or what passes make of that, with inputs of whole numbers."""

    def __init__(self, seed: int) -> None:
        self.seed, made, r = seed, Made(seed), random.Random(seed)
        self.form, self.dtype = made.form.__name__, made.dtype
        self.program: n.Program = normalize(parse_program(made.text, "p.kir"))
        if r.random() < LATER:
            self.program = later(self.program, r)
        some, (rows, columns) = np.random.default_rng(seed), made.sizes
        own = {p.name for p in self.program.params}
        self.inputs = {name: some.integers(-3, 4, (rows, columns) if name != "W" else (columns,)).astype(DTYPES[made.dtype]) for name in "XWYZ" if name in own}
        sizes = {"M": rows, "N": columns}
        self.functions = any(isinstance(x, n.Call) and x.fn in FUNCTIONS for x in walk(self.program))
        self.scalars = {p.name: sizes[p.name] for p in self.program.params if isinstance(p.of, DType) and p.name in sizes}

    @cached_property
    def expected(self) -> Mapping[str, NDArray[Any]]:
        """What the interpreter makes of it."""
        with np.errstate(all="ignore"):
            return run(self.program, {k: v.copy() for k, v in self.inputs.items()}, dict(self.scalars)).outputs


def later(p: n.Program, r: random.Random) -> n.Program:
    """What a few passes make of a program."""
    steps = 0
    for cls in r.sample(PASSES, TRIED):
        try:
            if steps < STEPS and (found := sites(cls.with_options({}), p)):
                site = r.choice(found)
                p, steps = apply(p, site.params, site).program, steps + 1
        except KirError:  # offered and not taken: what `python -m benchmarks.fuzz` looks at
            continue
    return p


def same(got: NDArray[Any], want: NDArray[Any], dtype: str, functions: bool = False) -> tuple[str, str]:
    """One of WORDS, and where values differ; `functions` may have made them."""
    x, y = got.astype(np.float64).reshape(-1), want.astype(np.float64).reshape(-1)
    if dtype.startswith("i"):
        x, y = got.reshape(-1), want.reshape(-1)
    apart = ~((x == y) | (np.isnan(x.astype(np.float64)) & np.isnan(y.astype(np.float64))))
    if not apart.any():
        return "the same", ""
    where = int(np.argmax(apart))
    said = f"[{where}] is {x[where]}, the interpreter says {y[where]}"
    largest = max(1.0, float(np.max(np.abs(y[np.isfinite(y.astype(np.float64))]), initial=0.0)))
    rounded = ROUNDED[dtype] if dtype in ROUNDED else BEYOND[dtype] if dtype in BEYOND and (functions or largest >= WHOLE[dtype]) else 0.0
    near = bool(np.all(np.abs(x - y)[apart] <= rounded * largest))
    return ("within roundings" if near else "other values"), said


def judged(p: Program, made: dict[str, NDArray[Any]] | str) -> tuple[str, str]:
    """What came of a program that was launched, and why."""
    if isinstance(made, str):
        return ("other values" if made.startswith("it writes") else "did not come back"), made
    found = [(word, said and f"{name}{said}") for name, got in made.items() for word, said in (same(got, p.expected[name], p.dtype, p.functions),)]
    return max(found, key=lambda each: WORDS.index(each[0]), default=("the same", ""))


def compiled(target: Target, surface: str, texts: Sequence[Emitted]) -> list[Artifact | str]:
    """Each text compiled for a device, or why it is not."""
    tools, by, out = toolkit(), backend(surface), list[Artifact | str]()
    if surface == "cuda":
        assert tools is not None, "the harness has been compiled"
        return units.compiled(texts, tools, target.architecture.name)
    for text in texts:
        try:
            made = by.compile(text, target)
            out.append(made.absent or made)
        except KirError as refused:
            out.append(f"{refused.diagnostics[0].id}: {refused.diagnostics[0].message}")
    return out


class Clock(dict[str, float]):
    """Seconds by what they went to, each since the last time that it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.last = time.monotonic()

    def since(self, what: str) -> None:
        """The time since is of that."""
        self[what] = self.get(what, 0.0) + (now := time.monotonic()) - self.last
        self.last = now


@dataclass
class Prepared:
    """The programs of some seeds on the surfaces that take them: what is said of them already, and those that only wait for the device."""

    seeds: list[int]
    found: list[tuple[int, Outcome]]
    waiting: list[tuple[str, Program, Ready]]
    spent: dict[str, float]


def prepared(target: Target, seeds: Sequence[int]) -> Prepared:
    """The programs of some seeds made, written, compiled and interpreted: all that needs no device."""
    clock, out, waiting = Clock(), list[tuple[int, Outcome]](), list[tuple[str, Program, Ready]]()
    programs = [Program(seed) for seed in seeds]
    clock.since("making")
    for surface, share in SHARES.items():
        by, written = backend(surface), list[tuple[Program, Emitted]]()
        for p in programs:
            if len(seeds) > 1 and p.seed % share:
                continue
            if list(by.accepts(p.program)):
                out.append((p.seed, (surface, p.form, p.dtype, "refused to write", "")))
            else:
                written.append((p, by.launched_with(by.emit(p.program), p.scalars)))
        clock.since(f"{surface}: writing")
        for (p, text), made in zip(written, compiled(target, surface, [text for _, text in written]), strict=True):
            if isinstance(made, str):
                out.append((p.seed, (surface, p.form, p.dtype, "refused by the compiler", made[:SHOWN])))
            else:
                waiting.append((surface, p, Ready(p.program, p.inputs, p.scalars, text, made)))
        clock.since(f"{surface}: compiling")
    for _, p, _ in waiting:
        p.expected  # noqa: B018  # worked out here, where there are many processes
    clock.since("interpreting")
    return Prepared(list(seeds), out, waiting, dict(clock))


def finished(gpu: Gpu, several: Sequence[Prepared]) -> tuple[list[tuple[int, Outcome]], dict[str, float]]:
    """What comes of what is prepared, launched by one process of the device; and the seconds of that."""
    clock, waiting = Clock(), [each for one in several for each in one.waiting]
    came_back = launched(gpu, [ready for *_, ready in waiting])
    clock.since("launching")
    out = [(p.seed, (surface, p.form, p.dtype, word, why[:SHOWN])) for (surface, p, _), came in zip(waiting, came_back, strict=True)
           for word, why in (judged(p, came),)]
    clock.since("judging")
    return [*(x for one in several for x in one.found), *out], dict(clock)


def take(state: dict[str, Any], seeds: Sequence[int], found: Sequence[tuple[int, Outcome]], spent: Mapping[str, float]) -> None:
    """Count a batch that is done."""
    counts, seconds, so_far = Counter(state["counts"]), sum(spent.values()), state.get("spent", {})
    state["spent"] = {what: so_far.get(what, 0.0) + spent.get(what, 0.0) for what in {**so_far, **spent}}
    for seed, (surface, form, dtype, word, why) in found:
        counts[f"{surface}: {word}"] += 1
        if word in WORDS[2:5]:
            state["faults"].append([surface, seed, form, dtype, word, why])
            print(f"seed {seed}, {form}, {dtype}, {surface}: {word}: {why}", flush=True)
    state["left"] = sorted({*state["left"], *range(state["seed"], max(seeds) + 1)} - set(seeds))
    state["days"] = dict(Counter(state.get("days", {})) + Counter({today(): sum(word not in WORDS[4:] for _, (*_, word, _) in found)}))
    state["counts"], state["seed"], state["seconds"] = dict(counts), max(state["seed"], max(seeds) + 1), state["seconds"] + seconds


@lru_cache(maxsize=1)
def _gpu() -> Gpu:
    """The device, for all that a process launches."""
    return Gpu.open()


def closed(several: list[Prepared]) -> tuple[list[int], list[tuple[int, Outcome]], dict[str, float]]:
    """What is prepared, launched in a process of its own: its seeds, what came of them, and all the seconds that it took by what they went to."""
    found, spent = finished(_gpu(), several)
    for one in several:
        spent |= {what: spent.get(what, 0.0) + seconds for what, seconds in one.spent.items()}
    return [seed for one in several for seed in one.seeds], found, spent


def running(state: dict[str, Any], chosen: argparse.Namespace, target: Target) -> None:
    """Batches for the minutes that are asked for, in as many processes."""
    start = time.monotonic()
    end, saved = start + 60 * chosen.minutes, start
    following = itertools.chain(list(state["left"]), itertools.count(state["seed"]))
    waiting: list[Prepared] = []
    with client.common() as folder:
        os.environ[client.COMMON] = folder
        with ProcessPoolExecutor(chosen.jobs, multiprocessing.get_context("spawn"), initializer=no_collector, max_tasks_per_child=40) as pool:
            opening: set[Future[Prepared]] = set()
            closing: set[Future[Any]] = set()
            while time.monotonic() < end and (opening or closing or waiting or time.monotonic() < end - LAST):
                while waiting and time.monotonic() - start >= chosen.gpu_from:
                    closing.add(pool.submit(closed, waiting[:TOGETHER]))
                    waiting = waiting[TOGETHER:]
                while len(opening) + len(closing) < 2 * chosen.jobs and time.monotonic() < end - LAST:
                    opening.add(pool.submit(prepared, target, list(itertools.islice(following, BATCH))))
                ended, _ = wait({*opening, *closing}, min(1.0, max(end - time.monotonic(), 0.0)), FIRST_COMPLETED)
                waiting += [each.result() for each in opening & ended]
                for each in closing & ended:
                    take(state, *each.result())
                opening, closing = opening - ended, closing - ended
                if time.monotonic() - saved > SAVED:
                    _write(chosen.state, state)
                    saved = time.monotonic()
            for process in list(pool._processes.values()):  # what is not done by now is left to the next run
                process.terminate()
            pool.shutdown(wait=False, cancel_futures=True)
    _write(chosen.state, state)


def _write(file: Path, state: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, json.dumps(state, indent=1, sort_keys=True).encode())


def page(state: dict[str, Any]) -> str:
    """The generated page."""
    counts, ran = Counter(state["counts"]), sum(v for k, v in state["counts"].items() if "refused" not in k)
    lines = ["# Random programs on the device", "", "Made by `python -m benchmarks.fuzz.device --write`: programs of `benchmarks/fuzz/making.py`, compiled by "
             "each backend that", "takes them, launched, and compared with the interpreter, bit for bit but for roundings (f16, bf16, functions).", "",
             f"{state['seed'] - len(state['left']):,} programs, {ran:,} compiled and run on {state['machine']}, in {state['seconds'] / 60:.0f} minutes of "
             f"processes ({60 * ran / max(state['seconds'], 1e-9):,.0f} a minute){of_the_last_day(state.get('days', {}))}.", "",
             f"| surface | {' | '.join(WORDS)} |", f"| --- |{' ---: |' * len(WORDS)}"]
    lines += ["| " + " | ".join([s, *(f"{counts[s + ': ' + w]:,}" for w in WORDS)]) + " |" for s in SHARES]
    lines += ["", "| surface | what | in words, of the first | programs | first seed | forms | mended |", "| --- | --- | --- | ---: | ---: | --- | --- |"]
    kinds: dict[tuple[str, ...], list[tuple[int, Any]]] = {}
    for i, row in enumerate(state["faults"]):
        surface, _, form, _, what, why = row
        alike = form if what == "other values" else re.sub(r"[-+]?[0-9][0-9.e+-]*", "0", why)
        kinds.setdefault((surface, what, alike), []).append((i, row))
    for (surface, what, alike), found in list(kinds.items())[:KEPT]:
        said = " ".join(str(found[0][1][5]).replace("|", "/").split())
        forms, mended = ", ".join(sorted({row[2] for _, row in found})), "yes" if all(i < state["mended"] for i, _ in found) else "no"
        mended = COMPILERS.get((surface, what, alike), mended)
        lines.append(f"| {surface} | {what} | {said} | {len(found):,} | {min(row[1] for _, row in found)} | {forms} | {mended} |")
    lines += [] if kinds else ["| none | | | | | | |"]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run for the minutes that are asked for."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--minutes", type=float, default=5.0)
    arguments.add_argument("--state", type=Path, default=STATE)
    arguments.add_argument("--jobs", type=int, default=4, help="processes at once")
    arguments.add_argument("--gpu-from", type=float, default=0.0, help="seconds after which the device is used")
    arguments.add_argument("--seed", type=int)
    arguments.add_argument("--write", action="store_true")
    arguments.add_argument("--mended", action="store_true", help="what was found by now is mended")
    chosen = arguments.parse_args()
    warnings.simplefilter("ignore")
    state: dict[str, Any] = {"seed": 0, "left": [], "seconds": 0.0, "counts": {}, "faults": [], "mended": 0, "machine": ""}
    if chosen.state.is_file():
        state = json.loads(chosen.state.read_text())
    if chosen.mended:
        state["mended"] = len(state["faults"])
        _write(chosen.state, state)
        return 0
    if chosen.seed is not None:
        with Gpu.open() as gpu:
            found, _ = finished(gpu, [prepared(gpu.target, [chosen.seed])])
        print(Made(chosen.seed).text, *(outcome for _, outcome in found), sep="\n")
        return int(any(outcome[3] == "other values" for _, outcome in found))
    if chosen.minutes > 0:
        with Gpu.open() as gpu:
            state["machine"] = str(gpu.about["name"])
            running(state, chosen, gpu.target)
    if chosen.write:
        PAGE.write_text(page(state))
    print(f"{state['seed'] - len(state['left'])} programs: {state['counts']}")
    return 1 if any(row[4] == "other values" and (row[0], row[4], row[2]) not in COMPILERS for row in state["faults"][state["mended"]:]) else 0


if __name__ == "__main__":
    sys.exit(main())
