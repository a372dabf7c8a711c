"""Random programs compiled by TileLang, and what it made of them read back, checked for every size and run beside them (`kir gate --validate`). No GPU is
needed.

    python -m benchmarks.fuzz.compiled [--minutes M] [--state FILE] [--seed N] [--shipped] [--write]

Goes on where the last run ended. `--shipped` takes the naive programs of all shipped problems instead; `--seed N` does one program and prints what came of it;
`--write` writes docs/tables/fuzz-compiled.md. Exit code 1 where something compiled is not the program that it is of.
"""
from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.fuzz.making import Made
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
SHOWN = 90


def of(seed: int) -> tuple[str, str, str]:
    """The form of a seed's program, what came of it, and why."""
    made = Made(seed)
    status, why = judged(normalize(parse_program(made.text, "p.kir")))
    return made.form.__name__, status, why


def judged(program: n.Program) -> tuple[str, str]:
    """What comes of a program, and why."""
    if len(program.kernels) > 1:
        return "several", ""
    if refusals := list(backend("tilelang").accepts(program)):
        return "not accepted", refusals[0].message
    done = validated(program, "tilelang", target("sm_80"))
    if done.status != "holds":
        return done.status, done.why
    return "proved" if done.checked is not None and done.checked.decided else "holds", ""


def page(state: dict[str, Any]) -> str:
    """The generated page."""
    counts, read = Counter(state["counts"]), sum(state["counts"].get(k, 0) for k in ("proved", "holds", "refuted"))
    lines = ["# Random programs, compiled", "", "Made by `python -m benchmarks.fuzz.compiled --write`: programs of `benchmarks/fuzz/making.py` written",
             "as TileLang, compiled by it for sm_80, and the CUDA text that it made read back, checked for every size and run beside the program.", "",
             f"{state['seed']:,} programs, {read:,} read back, {state['seconds'] / 60:.0f} minutes.", "", "| what came of it | programs |", "| --- | ---: |"]
    lines += [f"| {words} | {counts[key]:,} |" for key, words in WORDS.items()]
    lines += ["", "| not the program, not read or refused, by reason | programs | first seed |", "| --- | ---: | ---: |"]
    often = sorted(state["why"].items(), key=lambda kv: (-kv[1], kv[0]))
    lines += [f"| {why.replace('|', '/')} | {count:,} | {state['first'][why]} |" for why, count in often]
    if shipped := state.get("shipped"):
        good = sum(status in ("proved", "holds") for status, _ in shipped.values())
        lines += ["", f"Of the naive programs of {len(shipped)} shipped problems, what was compiled is the program for {good} (`--shipped`).", "",
                  "| problem | what came of it |", "| --- | --- |"]
        lines += [f"| `{name}` | {WORDS[status]}{why and ': ' + why[:SHOWN]} |" for name, (status, why) in shipped.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run for the minutes that are asked for."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--minutes", type=float, default=5.0)
    arguments.add_argument("--state", type=Path, default=STATE)
    arguments.add_argument("--seed", type=int)
    arguments.add_argument("--shipped", action="store_true")
    arguments.add_argument("--write", action="store_true")
    chosen = arguments.parse_args()
    warnings.simplefilter("ignore")
    if chosen.seed is not None:
        print(Made(chosen.seed).text, *of(chosen.seed), sep="\n")
        return 0
    state: dict[str, Any] = {"seed": 0, "seconds": 0.0, "counts": {}, "why": {}, "first": {}}
    if chosen.state.is_file():
        state = json.loads(chosen.state.read_text())
    for name in problem_names() if chosen.shipped else ():
        try:
            state.setdefault("shipped", {})[name] = judged(load_problem(name).naive)
        except (KirError, FileNotFoundError) as missing:  # a problem without a program of its own
            print(f"{name}: {missing}")
            continue
        print(f"{name}: {state['shipped'][name]}", flush=True)
        write_atomic(chosen.state, json.dumps(state, indent=1, sort_keys=True).encode())
    end = time.monotonic() + 60 * (0.0 if chosen.shipped else chosen.minutes)
    while time.monotonic() < end:
        begun, seed = time.monotonic(), state["seed"]
        form, status, why = of(seed)
        state["counts"][status] = state["counts"].get(status, 0) + 1
        if status in ("refuted", "unread"):
            said = f"{status}: {why}"[:SHOWN]
            state["why"][said] = state["why"].get(said, 0) + 1
            state["first"].setdefault(said, seed)
            print(f"seed {seed}, {form}: {status}: {why[:200]}", flush=True)
        state["seconds"] += time.monotonic() - begun
        state["seed"] = seed + 1
        chosen.state.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(chosen.state, json.dumps(state, indent=1, sort_keys=True).encode())
    if chosen.write:
        PAGE.write_text(page(state))
    print(f"{state['seed']} programs: {state['counts']}")
    return 1 if state["counts"].get("refuted") else 0


if __name__ == "__main__":
    sys.exit(main())
