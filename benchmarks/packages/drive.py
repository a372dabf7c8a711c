"""The command that runs under the hook: ``python -m benchmarks.packages.drive PACKAGE --device cpu --results FILE``.

Runs the package's cases one after another; for each three lines of JSON go to FILE: that it is waiting, when it begins and what came of it.
Cases whose end is there are not run again, nor is one that began and took the process down.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from benchmarks.packages.case import At, Case, compare
from benchmarks.packages.host import OnCpu, stand_in
from benchmarks.packages.states import BEGUN, WAITING, known
from kir.learning.corpus.hook import section


def outcome(case: Case, at: At) -> dict[str, Any]:
    """What came of a case: `state` is `equal`, `differs` or `failed`; `errors` of all that was compared, in order. Launches before the
    i-th comparison and after the one before it belong to the part `CASE #i`."""
    torch.manual_seed(at.seed)
    errors: list[float] = []
    names: list[str] = []
    reason = ""
    begun = time.perf_counter()
    section(f"{case.name} #0")
    try:
        for name, got, want in case.run(at):
            errors.append(compare(got, want))
            names.append(name)
            section(f"{case.name} #{len(errors)}")
    except Exception as bad:
        said = [line.strip() for line in str(bad).splitlines() if line.strip(" ^")]
        reason = f"{type(bad).__name__}: {' .. '.join(dict.fromkeys([*said[:1], *said[-1:]]))}"[:300]
    wrong = [i for i, e in enumerate(errors) if not e <= case.within]
    state = "failed" if reason or not names else "differs" if wrong else "equal"
    if not reason and wrong:
        reason = f"{names[wrong[0]]}: {errors[wrong[0]]:.3g}"
    return {
        "state": state,
        "errors": [None if not math.isfinite(e) else float(f"{e:.3g}") for e in errors],
        "within": case.within,
        "reason": reason or ("" if names else "nothing was compared"),
        "seconds": round(time.perf_counter() - begun, 2),
    }


def drive(cases: Iterable[Case], at: At, results: Path, only: str, chosen: frozenset[str] | None, shard: tuple[int, int], limit: float) -> None:
    """Run the cases of a shard that are not known, until `limit` seconds have passed; of those that are `chosen`, where some are."""
    before = known(results)
    done = {name for name, row in before.items() if row["state"] != WAITING}
    mine = [c for i, c in enumerate(c for c in cases if chosen is None or c.name in chosen) if only in c.name and i % shard[1] == shard[0]]
    began = time.monotonic()
    with results.open("a", encoding="utf-8") as out:

        def say(**row: Any) -> None:
            out.write(json.dumps(row) + "\n")
            out.flush()

        for case in mine:
            if case.name not in before:
                say(case=case.name, state=WAITING)
        for case in mine:
            if case.name in done or time.monotonic() - began > limit:
                continue
            say(case=case.name, state=BEGUN)
            row = outcome(case, at)
            say(case=case.name, **row)
            print(f"{case.name}: {row['state']} {row['reason']}", flush=True)
    section("")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("package", choices=["liger_kernel", "fla", "flag_gems"])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--only", default="", help="cases with this word in their names")
    parser.add_argument("--cases", type=Path, default=None, help="a file with the names of cases, one a line: no others")
    parser.add_argument("--shard", default="0/1", help="every n-th case")
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds after which no case begins")
    given = parser.parse_args()
    os.environ.setdefault("FLA_DISABLE_BACKEND_DISPATCH", "1")  # its Triton kernels, not those of other languages
    first, _, count = given.shard.partition("/")
    mode = OnCpu() if given.device == "cpu" else None
    if mode is not None:
        stand_in()
        torch.set_num_threads(1)
    cases = importlib.import_module(f"benchmarks.packages.cases.{given.package}").cases(given.device)
    if mode is not None:
        mode.__enter__()
    chosen = None if given.cases is None else frozenset(given.cases.read_text(encoding="utf-8").splitlines())
    drive(cases, At(given.device), given.results, given.only, chosen, (int(first), int(count)), given.limit)


if __name__ == "__main__":
    main()
