"""Random programs for so many minutes.

`make fuzz MINUTES=30`, or `python -m benchmarks.fuzz [--minutes M] [--jobs N] [--state FOLDER] [--seed N] [--write] [--kind TEXT]
[--mended]`. Goes on where the last run ended; `--restart` begins anew, `--seed N` does one program and prints its faults, `--kind TEXT` prints the cases that
are kept of a kind of fault, `--mended` says that what was found by now is mended (with `--kind`: of these kinds). Exit code 1 where there are faults that are
not.
"""
from __future__ import annotations

import argparse
import itertools
import multiprocessing
import sys
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from benchmarks.fuzz.seeds import Done, done, one, ready
from benchmarks.fuzz.state import State, default_folder, page

PAGE = Path(__file__).parents[2] / "docs" / "tables" / "fuzz.md"
MENDED = Path(__file__).parent / "mended.md"
SAVED = 20.0
"""Seconds between two writes of the state."""


def main() -> int:
    """Run for the minutes that are asked for."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--minutes", type=float, default=30.0)
    arguments.add_argument("--jobs", type=int, default=1, help="processes at once")
    arguments.add_argument("--state", type=Path, default=default_folder(), help="the folder that is gone on from")
    arguments.add_argument("--seed", type=int, help="only the program of this seed")
    arguments.add_argument("--restart", action="store_true", help="begin anew")
    arguments.add_argument("--write", action="store_true", help="write docs/tables/fuzz.md")
    arguments.add_argument("--mended", action="store_true", help="what was found by now is mended")
    arguments.add_argument("--kind", help="print the cases that are kept of kinds with this text")
    chosen = arguments.parse_args()
    if chosen.seed is not None:
        made, faults = one(chosen.seed, Counter())
        print(made.text, *(f"{f.kind}: {f.why}\n{f.done}\n{f.before}\n{f.after}" for f in faults), sep="\n")
        return 1 if faults else 0
    state = State() if chosen.restart else State.read(chosen.state)
    if chosen.mended:
        state.mend(kind for kind in list(state.kinds) if (chosen.kind or "") in kind)
        state.write(chosen.state)
        return 0
    if chosen.kind is not None:
        for kind, cases in state.cases.items():
            for c in cases if chosen.kind in kind else ():
                print(f"=== {kind}, seed {c['seed']}: {c['why']}\n{c['done']}\n{c['shrunk'] or c['before']}")
        return 0
    end = time.monotonic() + 60 * chosen.minutes
    saved = time.monotonic()
    following = itertools.chain(state.left, itertools.count(state.seed))
    with ProcessPoolExecutor(chosen.jobs, multiprocessing.get_context("spawn"), initializer=ready, max_tasks_per_child=2000) as pool:
        running: dict[Future[Done], int] = {}
        while (left := end - time.monotonic()) > 0:
            while len(running) < 2 * chosen.jobs:
                seed = next(following)
                running[pool.submit(done, seed)] = seed
            for future in wait(running, min(left, SAVED), FIRST_COMPLETED).done:
                each = future.result()
                state.take(each.seed, each.form, each.counts, each.seconds)
                del running[future]
                for fault, small in each.faults:
                    state.add(fault, each.seed, small)
                    print(f"seed {each.seed}: {fault.kind}: {fault.why[:200]}", flush=True)
            if time.monotonic() - saved > SAVED:
                state.write(chosen.state)
                saved = time.monotonic()
        for process in list(pool._processes.values()):  # what is not done by now is left to the next run
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
    state.write(chosen.state)
    print(f"{state.seed} programs; faults: {dict(state.open) or 'none'}")
    if chosen.write:
        PAGE.write_text(page(state, MENDED.read_text() if MENDED.is_file() else ""))
    return 1 if state.open else 0


if __name__ == "__main__":
    sys.exit(main())
