"""Random programs for so many minutes.

`make fuzz MINUTES=30`, or `python -m benchmarks.fuzz [--minutes M] [--state FOLDER] [--seed N] [--write] [--kind TEXT]`. Goes on where the last run
ended; `--restart` begins anew, `--seed N` does one program and prints its faults, `--kind TEXT` prints the cases that are kept of a kind of fault. Exit code 1
where there are faults.
"""
from __future__ import annotations

import argparse
import ast
import random
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

from benchmarks.fuzz.checking import Fault, attempt, checks
from benchmarks.fuzz.making import Made
from benchmarks.fuzz.shrinking import shrunk
from benchmarks.fuzz.state import State, default_folder, page
from kir.ir.parser import parse_program
from kir.rewrite.pipelines.text import Direction

PAGE = Path(__file__).parents[2] / "docs" / "tables" / "fuzz.md"
MENDED = Path(__file__).parent / "mended.md"
SAVED = 20.0
"""Seconds between two writes of the state."""


def one(seed: int, count: Counter[str]) -> tuple[Made, list[Fault]]:
    """The program of a seed, and its faults."""
    made = Made(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return made, list(checks(parse_program(made.text, "p.kir"), made.arrays, random.Random(seed), count))


def smaller(made: Made, fault: Fault, seed: int) -> str:
    """The program of a fault, as small as it can be made while a fault of this kind is found in it."""
    def faulty(text: str) -> bool:
        return any(f.kind == fault.kind for f in checks(parse_program(text, "p.kir"), made.arrays, random.Random(seed), Counter()))
    return shrunk(made.text, faulty) if not fault.kind.startswith(("values", "inverse", "text after", "offered")) else shrunk(fault.before, lambda text: _again(
        made, fault, text))


def _again(made: Made, fault: Fault, text: str) -> bool:
    name, _, rest = fault.done.lstrip("~").partition("{")
    given, _, seed = ("{" + rest).rpartition(" seed ")
    direction: Direction = "backward" if fault.done.startswith("~") else "forward"
    return any(f.kind == fault.kind for f in attempt(parse_program(text, "p.kir"), name, ast.literal_eval(given), direction, int(seed),
                                                     made.arrays, Counter(), []))


def main() -> int:
    """Run for the minutes that are asked for."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--minutes", type=float, default=30.0)
    arguments.add_argument("--state", type=Path, default=default_folder(), help="the folder that is gone on from")
    arguments.add_argument("--seed", type=int, help="only the program of this seed")
    arguments.add_argument("--restart", action="store_true", help="begin anew")
    arguments.add_argument("--write", action="store_true", help="write docs/tables/fuzz.md")
    arguments.add_argument("--kind", help="print the cases that are kept of kinds with this text")
    chosen = arguments.parse_args()
    if chosen.seed is not None:
        made, faults = one(chosen.seed, Counter())
        print(made.text, *(f"{f.kind}: {f.why}\n{f.done}\n{f.before}\n{f.after}" for f in faults), sep="\n")
        return 1 if faults else 0
    state = State() if chosen.restart else State.read(chosen.state)
    if chosen.kind is not None:
        for kind, cases in state.cases.items():
            for c in cases if chosen.kind in kind else ():
                print(f"=== {kind}, seed {c['seed']}: {c['why']}\n{c['done']}\n{c['shrunk'] or c['before']}")
        return 0
    end = time.monotonic() + 60 * chosen.minutes
    saved = time.monotonic()
    while (begun := time.monotonic()) < end:
        made, faults = one(state.seed, state.counts)
        state.forms[made.form.__name__] += 1
        for fault in faults:
            try:
                small = smaller(made, fault, state.seed) if state.wants(fault) and state.kinds[fault.kind] < 1 else ""
            except Exception as crash:  # what is shrunk to may crash elsewhere: the fault itself is kept
                small = f"# not shrunk: {type(crash).__name__}: {crash}\n"
            state.add(fault, state.seed, small)
            print(f"seed {state.seed}: {fault.kind}: {fault.why[:200]}", flush=True)
        state.seed += 1
        state.seconds += time.monotonic() - begun
        if time.monotonic() - saved > SAVED:
            state.write(chosen.state)
            saved = time.monotonic()
    state.write(chosen.state)
    print(f"{state.seed} programs; faults: {dict(state.kinds) or 'none'}")
    if chosen.write:
        PAGE.write_text(page(state, MENDED.read_text() if MENDED.is_file() else ""))
    return 1 if state.kinds else 0


if __name__ == "__main__":
    sys.exit(main())
