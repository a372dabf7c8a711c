"""Random kernels in CUDA C++'s own text, read and interpreted, against the same text compiled for the host. No GPU and no nvcc are needed: what one thread does
is C++, and g++ says what that means.

    python -m benchmarks.fuzz.texts [--minutes M] [--jobs N] [--state FILE] [--seed N] [--write] [--mended]

Goes on where the last run ended; `--seed N` does one and prints it; `--write` writes docs/tables/fuzz-texts.md, `--mended` says that what was found by now is
mended. Exit code 1 where a text is read as something else.
"""
from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fuzz.checking import TooLong, limited
from benchmarks.fuzz.seeds import ready
from benchmarks.fuzz.writing import Text
from kir.analysis.normal.regions import raised
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.bindings.specialize import specialize
from kir.ir.visit import walk
from kir.surface import frontend

ROOT = Path(__file__).parents[2]
STATE, PAGE = ROOT / "benchmarks" / "results" / "fuzz" / "texts.json", ROOT / "docs" / "tables" / "fuzz-texts.md"
COUNT, THREADS, BATCH, SECONDS, SHOWN = 11, 8, 40, 20.0, 140
"""Elements; threads of a CTA; texts that g++ compiles at once; how long one may be read and run; characters of a reason that are kept."""
HOST = """#include <cmath>
#include <cstdlib>
#define __global__
#define __device__
struct Dim { unsigned x, y, z; };
static Dim threadIdx, blockIdx, blockDim;
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
"""
RUN = """extern "C" void run_{0}(const int* x, int* y, int n) {{
  blockDim.x = {1};
  for (blockIdx.x = 0; blockIdx.x < (n + {1} - 1) / {1}; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < {1}; ++threadIdx.x) k{0}::k(x, y, n);
}}
"""
BINDING = f"""kernel = "k"
sizes = ["n"]
facts = ["n >= 1"]
grid = ["ceildiv(n, {THREADS})"]
[metas]
threads_x = {THREADS}
[tensors.x]
shape = ["n"]
dtype = "i32"
[tensors.y]
shape = ["n"]
dtype = "i32"
"""
WORDS = ("the same", "other values", "a hazard that is none", "a crash", "too long", "refused, with a reason")


def inputs() -> np.ndarray[Any, np.dtype[np.int32]]:
    """What `x` holds."""
    return np.random.default_rng(5).integers(-50, 50, COUNT).astype(np.int32)


def on_host(texts: Sequence[str]) -> list[np.ndarray[Any, np.dtype[np.int32]]]:
    """What each text makes of `y`, compiled by g++ (signed numbers wrap). Raises RuntimeError with its words where one is no C++."""
    parts = [HOST, *(f"namespace k{i} {{\n{text}}}\n{RUN.format(i, THREADS)}" for i, text in enumerate(texts))]
    with tempfile.TemporaryDirectory(prefix="kir-texts-") as folder:
        source, library = Path(folder) / "all.cpp", Path(folder) / "all.so"
        source.write_text("".join(parts))
        command: list[str | Path] = ["g++", "-std=c++17", "-O1", "-fwrapv", "-ffp-contract=off", "-w", "-shared", "-fPIC", source, "-o", library]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr[:2000])
        loaded, out = ctypes.CDLL(str(library)), []
        for i in range(len(texts)):
            x, y = inputs(), np.zeros(COUNT, np.int32)
            getattr(loaded, f"run_{i}")(*(a.ctypes.data_as(ctypes.c_void_p) for a in (x, y)), COUNT)
            out.append(y)
    return out


def read_and_run(text: str, want: np.ndarray[Any, np.dtype[np.int32]]) -> tuple[str, str]:
    """One of WORDS, and why: the text read by the frontend, as it stands and in normal form, interpreted on the same inputs."""
    bound = Binding.parse(BINDING)
    with tempfile.TemporaryDirectory(prefix="kir-text-") as folder:
        source = Path(folder) / "text.cu"
        source.write_text(text)
        try:
            read = specialize(frontend("cuda").instantiate(source, "k", bound), bound)  # type: ignore[attr-defined]  # beyond the protocol
        except KirError as refused:
            return WORDS[5], f"{refused.diagnostics[0].id}: {refused.diagnostics[0].message}"
    if stays := next((x for x in walk(read) if isinstance(x, n.Opaque)), None):
        return WORDS[5], f"stays text: {stays.reason}"
    for program in (read, raised(read)):
        with np.errstate(all="ignore"):
            done = run(program, {"x": inputs(), "y": np.zeros(COUNT, np.int32)}, {"n": COUNT}, mode="check")
        if done.errors:
            return WORDS[2], done.errors[0].diagnostic().message
        if not np.array_equal(done.outputs["y"], want):
            at = int(np.argmax(done.outputs["y"] != want))
            return WORDS[1], f"y[{at}] is {done.outputs['y'][at]}, compiled {want[at]}{' (raised)' if program is not read else ''}"
    return WORDS[0], ""


def judged(text: str, want: np.ndarray[Any, np.dtype[np.int32]]) -> tuple[str, str]:
    """`read_and_run`, with crashes and what takes too long as words."""
    try:
        with limited(SECONDS):
            return read_and_run(text, want)
    except TooLong:
        return WORDS[4], f"{SECONDS:.0f} s"
    except Exception as crash:  # a crash is what is looked for here
        where = traceback.extract_tb(crash.__traceback__)[-1]
        return WORDS[3], f"{type(crash).__name__} {str(crash)[:SHOWN]} ({Path(where.filename).name}:{where.lineno})"


def batch(first: int, count: int = BATCH) -> tuple[int, list[tuple[str, str]], float]:
    """What came of some seeds, and processor seconds."""
    warnings.simplefilter("ignore")
    begun = time.process_time()
    texts = [Text(seed).text for seed in range(first, first + count)]
    return first, [judged(text, want) for text, want in zip(texts, on_host(texts), strict=True)], time.process_time() - begun


def page(state: dict[str, Any]) -> str:
    """The generated page."""
    counts, why = Counter(state["counts"]), Counter(state["why"])
    lines = ["# Random texts", "",
             "Made by `python -m benchmarks.fuzz.texts --write`: kernels in CUDA C++'s own text (`benchmarks/fuzz/writing.py`: control flow,",
             "integers of all widths, functions, templates, structs, lambdas, arrays, pointers), read and interpreted, against the same text",
             "compiled by g++ for the host.", "",
             f"{state['seed']:,} texts, {state['seconds'] / 60:.0f} minutes of processor time.", "", "| what came of it | texts |", "| --- | ---: |"]
    lines += [f"| {word} | {counts[word]:,} |" for word in WORDS]
    lines += ["", "| seed | what | in words | mended |", "| ---: | --- | --- | --- |"]
    rows = [[*row, "yes" if i < state["mended"] else "no"] for i, row in enumerate(state["faults"])]
    lines += ["| " + " | ".join(" ".join(str(x).replace("|", "/").split()) for x in row) + " |" for row in rows[:40]] or ["| none | | | |"]
    lines += ["", "| refused: why | texts |", "| --- | ---: |", *(f"| {k.replace('|', '/')} | {v:,} |" for k, v in why.most_common(12))]
    return "\n".join(lines) + "\n"


def take(state: dict[str, Any], first: int, found: Sequence[tuple[str, str]], seconds: float) -> None:
    """Count a batch."""
    for seed, (word, why) in enumerate(found, first):
        state["counts"][word] = state["counts"].get(word, 0) + 1
        if word == WORDS[5]:
            state["why"][why[:SHOWN]] = state["why"].get(why[:SHOWN], 0) + 1
        elif word != WORDS[0]:
            state["faults"].append([seed, word, why[:SHOWN]])
            print(f"seed {seed}: {word}: {why}", flush=True)
    state["seed"], state["seconds"] = max(state["seed"], first + len(found)), state["seconds"] + seconds


def main() -> int:
    """Run for the minutes that are asked for."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--minutes", type=float, default=5.0)
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("--state", type=Path, default=STATE)
    arguments.add_argument("--seed", type=int)
    arguments.add_argument("--write", action="store_true")
    arguments.add_argument("--mended", action="store_true", help="what was found by now is mended")
    chosen = arguments.parse_args()
    if chosen.seed is not None:
        text = Text(chosen.seed).text
        print(text, *judged(text, on_host([text])[0]), sep="\n")
        return 0
    state: dict[str, Any] = {"seed": 0, "seconds": 0.0, "counts": {}, "why": {}, "faults": [], "mended": 0}
    if chosen.state.is_file():
        state = json.loads(chosen.state.read_text())
    if chosen.mended:
        state["mended"] = len(state["faults"])
    end = time.monotonic() + 60 * (0.0 if chosen.mended else chosen.minutes)
    with ProcessPoolExecutor(chosen.jobs, get_context("spawn"), initializer=ready) as pool:
        while time.monotonic() < end:  # whole rounds, so that no seed is left out
            for done in pool.map(batch, [state["seed"] + BATCH * i for i in range(chosen.jobs)]):
                take(state, *done)
            chosen.state.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(chosen.state, json.dumps(state, indent=1, sort_keys=True).encode())
    write_atomic(chosen.state, json.dumps(state, indent=1, sort_keys=True).encode())
    if chosen.write:
        PAGE.write_text(page(state))
    return 1 if len(state["faults"]) > state["mended"] else 0


if __name__ == "__main__":
    sys.exit(main())
