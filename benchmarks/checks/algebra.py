"""How many applications of passes that reassociate, move rounding or approximate are proved equal over the reals: both sides of each step of each case.

`python -m benchmarks.checks.algebra [--only PASS ..] [--bitwise] [--jobs N] [--within SECONDS] [--write]`; with `--bitwise` the steps that change no bit,
too. Each step is decided at the sizes of its case (or at small ones that its facts allow), for all inputs; one that is not decided is tested as before, and
no more is said of it. A side of a step has a limit of operations, and a case one of processor time (`--within`): what that cuts is said to be cut. `--jobs`
processes take the cases (all cores that may be used, where it is left out), and results stand in the order of the cases. `--write` writes
docs/tables/algebra.md.
"""
from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import field
from functools import partial
from pathlib import Path

from benchmarks.fuzz.checking import TooLong, limited
from kir.analysis.algebra.equality import equal_over_reals
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import DType
from kir.ir.visit import substitute
from kir.rewrite.conformance.case import Case, read_cases
from kir.rewrite.pipelines.pipeline import run
from kir.rewrite.registry import pass_class

ROOT = Path(__file__).parents[2]
CASES, PAGE = ROOT / "tests" / "passes" / "cases", ROOT / "docs" / "tables" / "algebra.md"
SMALL = (8, 4, 16, 32, 64, 12, 7)
"""Sizes that are tried where a case names none."""
MOST = 2_000_000
"""Operations of one side."""
WITHIN = 300.0
"""Seconds of processor time that a case has: no case comes near it."""
REASONS = 14


@dataclass
class Row:
    """Applications of one kind of numerics."""

    proved: int = 0
    steps: int = 0
    why: Counter[str] = field(default_factory=Counter)


def sizes_of(program: n.Program, given: Mapping[str, int]) -> dict[str, int]:
    """Sizes at which a program is looked at: those given, and small ones that its facts allow."""
    own = [p for p in program.params if isinstance(p.of, DType) and p.of.is_integer and p.value is None]
    for small in SMALL:
        values = {p.name: given.get(p.name, small) for p in own}
        known = {p.name: n.Const(values[p.name], p.of) for p in own if isinstance(p.of, DType)}
        hold = all(not isinstance(f := substitute(fact, known), n.Const) or bool(f.value) for fact in program.facts)
        if hold and all((int_value(substitute(d, known)) or 1) > 0 for p in program.params if isinstance(p.of, n.Buffer) for d in p.of.shape):
            return values
    return dict(given)


def steps(case: Case) -> Iterator[tuple[str, str, n.Program, n.Program]]:
    """The steps of a case: pass, numerics, and both sides."""
    for step in run(case.before, case.pipeline, case.context).steps:
        yield step.record.step.name, step.record.numerics, step.before, step.after


def cases(names: list[str], bitwise: bool) -> list[tuple[str, int]]:
    """The cases of some passes (all, where there are none): file, and which it is there; those that change no bit only where asked for."""
    found = []
    for file in sorted(CASES.glob("*.toml")):
        if not names or file.stem.replace("_", "-") in names:
            for k, case in enumerate(read_cases(file)):
                if case.after is not None and (bitwise or any(pass_class(s.name).numerics != "bitwise" for s in case.pipeline.steps)):
                    found.append((file.stem, k))
    return found


def answers(one: tuple[str, int], bitwise: bool, within: float) -> list[tuple[str, str, str]]:
    """Of each step of a case that moves bits (or of each): its pass, its numerics, and why it is not proved ("" where it is)."""
    case = read_cases(CASES / f"{one[0]}.toml")[one[1]]
    try:
        listed = [x for x in steps(case) if bitwise or x[1] != "bitwise"]
    except KirError:
        return []
    out: list[tuple[str, str, str]] = []
    try:
        with limited(within):
            for name, numerics, before, after in listed:
                answer = equal_over_reals(before, after, sizes_of(before, dict(case.sizes)), MOST)
                out.append((name, numerics, "" if answer.status == "proved" else answer.why))
    except TooLong:
        out += [(name, numerics, f"cut after {within:.0f} seconds of processor time") for name, numerics, *_ in listed[len(out):]]
    return out


def told(listed: list[tuple[str, int]], bitwise: bool, within: float, jobs: int) -> Iterator[list[tuple[str, str, str]]]:
    """The answers to each case, in their order, by as many processes."""
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(partial(answers, bitwise=bitwise, within=within), listed)


def counted(found: Iterable[list[tuple[str, str, str]]]) -> dict[str, Row]:
    """All steps, by numerics."""
    rows: dict[str, Row] = {}
    for name, numerics, why in (step for case in found for step in case):
        row = rows.setdefault(numerics.partition("(")[0], Row())
        row.steps += 1
        row.proved += not why
        if why:
            row.why[_kind(why)] += 1
        print(f"{name:28} {numerics:28} {'not decided' if why else 'proved':12} {why}", flush=True)
    return rows


def _kind(why: str) -> str:
    """A reason without the element that it was seen at."""
    return "the two sides have two forms" if why.endswith("has two forms") else "an output is not written" if why.endswith("is not written") else why


def page(rows: Mapping[str, Row]) -> str:
    """The generated page."""
    lines = ["# Equal by algebra", "", "Made by `python -m benchmarks.checks.algebra --write`: both sides of each step of each pass case "
             "(`tests/passes/cases`) that reassociates, moves rounding or approximates, run with symbols for the inputs and brought to one "
             "normal form (`kir/analysis/algebra`). "
             "Proved means: equal over the reals, for all inputs, at the sizes of the case. What is not decided is tested as before.", "",
             "| numerics of the step | applications | proved | not decided |", "| --- | ---: | ---: | ---: |"]
    for name, row in sorted(rows.items()):
        lines.append(f"| {name} | {row.steps} | {row.proved} | {row.steps - row.proved} |")
    total, proved = sum(r.steps for r in rows.values()), sum(r.proved for r in rows.values())
    lines += [f"| all | {total} | {proved} | {total - proved} |", "", "| why not decided | applications |", "| --- | ---: |"]
    every: Counter[str] = sum((r.why for r in rows.values()), Counter())
    lines += [f"| {why} | {count} |" for why, count in sorted(every.items(), key=lambda x: (-x[1], x[0]))[:REASONS]]
    rest = sum(sorted(every.values(), reverse=True)[REASONS:])
    return "\n".join([*lines, *([f"| other reasons | {rest} |"] if rest else [])]) + "\n"


def main() -> int:
    """Decide all of them."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", nargs="+", default=[], metavar="PASS")
    arguments.add_argument("--bitwise", action="store_true", help="steps that change no bit, too")
    arguments.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes at once")
    arguments.add_argument("--within", type=float, default=WITHIN, help="seconds of processor time that a case has")
    arguments.add_argument("--write", action="store_true", help="write docs/tables/algebra.md")
    chosen = arguments.parse_args()
    listed = cases(chosen.only, chosen.bitwise)
    text = page(counted(told(listed, chosen.bitwise, chosen.within, chosen.jobs)))
    if chosen.write:
        PAGE.write_text(text)
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
