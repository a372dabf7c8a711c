"""Random programs compiled, and what the compiler made of them read back, checked for every size and run beside them (`kir gate --validate`): the CUDA text of
TileLang, and the PTX of Triton and of nvcc. No GPU is needed.

    python -m benchmarks.fuzz.compiled [--surface NAME ..] [--minutes M] [--jobs N] [--state FILE] [--seed N] [--shipped] [--mended TEXT]
        [--write]

Goes on where the last run ended, each surface with seeds of its own. `--shipped` takes the naive programs of all shipped problems instead, as TileLang;
`--seed N` does one program and prints what came of it; `--mended TEXT` says that what was found by now, with such a reason, is mended; `--write` writes
docs/tables/fuzz-compiled.md. Exit code 1 where something compiled is not the program that it is of, and that is no known fault of a compiler.
"""
from __future__ import annotations

import argparse
import copy
import itertools
import json
import multiprocessing
import sys
import time
import warnings
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from benchmarks.fuzz.checking import TooLong, limited
from benchmarks.fuzz.making import Made
from benchmarks.fuzz.seeds import ready
from benchmarks.fuzz.state import of_the_last_day, today
from kir.analysis import normalize
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.gate.proved.compiled import validated
from kir.hardware.target import target
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.problem import load_problem
from kir.problem.load import problem_names
from kir.surface import backend

ROOT = Path(__file__).parents[2]
STATE, PAGE = ROOT / "benchmarks" / "results" / "fuzz" / "compiled.json", ROOT / "docs" / "tables" / "fuzz-compiled.md"
WORDS = {"proved": "every hazard decided for all sizes, and the same values", "holds": "no hazard in its runs, and the same values",
         "refuted": "not the program", "unread": "not read, or refused by the compiler", "several": "several kernels: left out",
         "not accepted": "not written: the backend refuses it"}
SHOWN, SECONDS = 90, 60.0
"""Characters of a reason that are kept; and how long one program may take, in processor time of the process itself."""
SURFACES = ("tilelang", "triton", "cuda")
TWICE, KNOWN = "one store writes the same element", " (lanes of a warp end a sum of rounded products with other last bits: [7264](compilers-faults.md))"
"""What a known fault of Triton looks like, and what is said of it."""
EMPTY: dict[str, Any] = {"seed": 0, "left": [], "seconds": 0.0, "counts": {}, "why": {}, "first": {}}
"""What is kept of a surface."""


def of(seed: int, surface: str = "tilelang") -> tuple[str, str, str]:
    """The form of a seed's program, what came of it, and why."""
    made = Made(seed)
    status, why = judged(normalize(parse_program(made.text, "p.kir")), surface)
    return made.form.__name__, status, why


def judged(program: n.Program, surface: str = "tilelang") -> tuple[str, str]:
    """What comes of a program, and why."""
    if len(program.kernels) > 1:
        return "several", ""
    if refusals := list(backend(surface).accepts(program)):
        return "not accepted", refusals[0].message
    try:
        with limited(SECONDS):
            done = validated(program, surface, target("sm_80"))
    except TooLong:
        return "unread", f"no answer in {SECONDS:.0f} s"
    if done.status != "holds":
        return done.status, done.why
    return "proved" if done.checked is not None and done.checked.decided else "holds", ""


def done(seed: int, surface: str) -> tuple[str, int, str, str, str, float]:
    """A seed in a process of its own: surface, seed, form, what came of it, why, and processor seconds."""
    warnings.simplefilter("ignore")
    begun = time.process_time()
    return surface, seed, *of(seed, surface), time.process_time() - begun


def said_of(surface: str, own: dict[str, Any], why: str) -> str:
    """What is said beside a reason: a known fault of a compiler, or mended; "" of any other."""
    return KNOWN if surface == "triton" and TWICE in why else " (mended)" if why in own.get("mended", ()) else ""


def page(state: dict[str, Any]) -> str:
    """The generated page."""
    lines = ["# Random programs, compiled", "", "Made by `python -m benchmarks.fuzz.compiled --write`: programs of `benchmarks/fuzz/making.py`,",
             "compiled for sm_80, and what the compiler made of each read back, checked for every size and run beside the program: the CUDA text of TileLang,",
             "the PTX of Triton and of nvcc.", "",
             f"| surface | programs | read back | {' | '.join(WORDS.values())} | minutes |",
             f"| --- |{' ---: |' * (len(WORDS) + 3)}"]
    for surface in SURFACES:
        own = state.get(surface, EMPTY)
        counts, read = Counter(own["counts"]), sum(own["counts"].get(k, 0) for k in ("proved", "holds", "refuted"))
        row = (surface, own["seed"] - len(own["left"]), read, *(counts[key] for key in WORDS), round(own["seconds"] / 60))
        lines.append(f"| {' | '.join(str(x) for x in row)} |")
    days = sum((Counter(state.get(surface, EMPTY).get("days", {})) for surface in SURFACES), Counter[str]())
    lines += ["", f"{sum(state.get(s, EMPTY)['seed'] - len(state.get(s, EMPTY)['left']) for s in SURFACES):,} in all{of_the_last_day(days)}."] if days else []
    lines += ["", "| surface | not the program, not read or refused, by reason | programs | first seed |", "| --- | --- | ---: | ---: |"]
    for surface in SURFACES:
        own = state.get(surface, EMPTY)
        often = sorted(own["why"].items(), key=lambda kv: (-kv[1], kv[0]))
        lines += [f"| {surface} | {why.replace('|', '/')}{said_of(surface, own, why)} | {count:,} | {own['first'][why]} |" for why, count in often]
    if shipped := state.get("shipped"):
        good = sum(status in ("proved", "holds") for status, _ in shipped.values())
        lines += ["", f"Of the naive programs of {len(shipped)} shipped problems, what TileLang compiled is the program for {good} (`--shipped`).", "",
                  "| problem | what came of it |", "| --- | --- |"]
        lines += [f"| `{name}` | {WORDS[status]}{why and ': ' + why[:SHOWN]} |" for name, (status, why) in shipped.items()]
    return "\n".join(lines) + "\n"


def take(own: dict[str, Any], seed: int, form: str, status: str, why: str, seconds: float) -> None:
    """Count a seed of a surface that is done, in whatever order they end."""
    own["left"] = sorted({*own["left"], *range(own["seed"], seed)} - {seed})
    own["seed"], own["seconds"] = max(own["seed"], seed + 1), own["seconds"] + seconds
    own.setdefault("days", {})[today()] = own.get("days", {}).get(today(), 0) + 1
    own["counts"][status] = own["counts"].get(status, 0) + 1
    if status in ("refuted", "unread"):
        said = f"{status}: {why}"[:SHOWN]
        own["why"][said] = own["why"].get(said, 0) + 1
        own["first"].setdefault(said, seed)
        print(f"seed {seed}, {form}: {status}: {why[:200]}", flush=True)


def running(state: dict[str, Any], chosen: argparse.Namespace) -> None:
    """Seeds of each surface for the minutes that are asked for."""
    end = time.monotonic() + 60 * chosen.minutes
    following = {s: itertools.chain(list(state[s]["left"]), itertools.count(state[s]["seed"])) for s in chosen.surface}
    turns = itertools.cycle(chosen.surface)
    with ProcessPoolExecutor(chosen.jobs, multiprocessing.get_context("spawn"), initializer=ready, max_tasks_per_child=100) as pool:
        open_ones: set[Future[Any]] = set()
        while time.monotonic() < end:
            while len(open_ones) < chosen.jobs + 1:
                surface = next(turns)
                open_ones.add(pool.submit(done, next(following[surface]), surface))
            ended, open_ones = wait(open_ones, max(0.1, end - time.monotonic()), FIRST_COMPLETED)
            for each in ended:
                surface, *came = each.result()
                take(state[surface], *came)
            _write(chosen.state, state)
        for process in list(pool._processes.values()):  # what is not done by now is left to the next run
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)


def _write(file: Path, state: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, json.dumps(state, indent=1, sort_keys=True).encode())


def main() -> int:
    """Run for the minutes that are asked for."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--surface", nargs="+", choices=SURFACES, default=list(SURFACES))
    arguments.add_argument("--minutes", type=float, default=5.0)
    arguments.add_argument("--jobs", type=int, default=1, help="processes at once")
    arguments.add_argument("--state", type=Path, default=STATE)
    arguments.add_argument("--seed", type=int)
    arguments.add_argument("--shipped", action="store_true")
    arguments.add_argument("--mended", metavar="TEXT")
    arguments.add_argument("--write", action="store_true")
    chosen = arguments.parse_args()
    warnings.simplefilter("ignore")
    if chosen.seed is not None:
        print(Made(chosen.seed).text, *(f"{surface}: {of(chosen.seed, surface)}" for surface in chosen.surface), sep="\n")
        return 0
    state: dict[str, Any] = json.loads(chosen.state.read_text()) if chosen.state.is_file() else {}
    for surface in SURFACES:
        state.setdefault(surface, copy.deepcopy(EMPTY))
    for name in problem_names() if chosen.shipped else ():
        try:
            state.setdefault("shipped", {})[name] = judged(load_problem(name).naive)
        except (KirError, FileNotFoundError) as missing:  # a problem without a program of its own
            print(f"{name}: {missing}")
            continue
        print(f"{name}: {state['shipped'][name]}", flush=True)
        _write(chosen.state, state)
    if chosen.mended is not None:
        for surface in SURFACES:
            state[surface]["mended"] = sorted({*state[surface].get("mended", ()), *(why for why in state[surface]["why"] if chosen.mended in why)})
        _write(chosen.state, state)
    elif chosen.minutes > 0 and not chosen.shipped:
        running(state, chosen)
    if chosen.write:
        PAGE.write_text(page(state))
    for surface in SURFACES:
        print(f"{surface}: {state[surface]['seed'] - len(state[surface]['left'])} programs: {state[surface]['counts']}")
    return 1 if any(why.startswith("refuted") and not said_of(s, state[s], why) for s in SURFACES for why in state[s]["why"]) else 0


if __name__ == "__main__":
    sys.exit(main())
