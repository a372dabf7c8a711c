"""How many applications of passes that reassociate, move rounding or approximate are proved equal over the reals: both sides of each step of each case.

`python -m benchmarks.checks.algebra [--only PASS ..] [--bitwise] [--write]`; with `--bitwise` the steps that change no bit, too. Each step is decided at the
sizes of its case (or at small ones that its facts allow), for all inputs; one that is not decided is tested as before, and no more is said of it. `--write`
writes docs/tables/algebra.md.
"""
from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path

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
MOST = 200_000
"""Operations of one side."""
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


def decided(names: list[str], bitwise: bool) -> dict[str, Row]:
    """All steps of the cases of some passes (all, where there are none), by numerics; those that change no bit only where asked for."""
    rows: dict[str, Row] = {}
    for file in sorted(CASES.glob("*.toml")):
        if names and file.stem.replace("_", "-") not in names:
            continue
        for case in read_cases(file):
            moves = any(pass_class(s.name).numerics != "bitwise" for s in case.pipeline.steps)
            if case.after is None or not (bitwise or moves):
                continue
            try:
                found = list(steps(case))
            except KirError:
                continue
            for name, numerics, before, after in found:
                if numerics == "bitwise" and not bitwise:
                    continue
                row = rows.setdefault(numerics.partition("(")[0], Row())
                answer = equal_over_reals(before, after, sizes_of(before, dict(case.sizes)), MOST)
                row.steps += 1
                row.proved += answer.status == "proved"
                if answer.status != "proved":
                    row.why[_kind(answer.why)] += 1
                print(f"{name:28} {numerics:28} {answer.status:12} {answer.why}", flush=True)
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
    arguments.add_argument("--write", action="store_true", help="write docs/tables/algebra.md")
    chosen = arguments.parse_args()
    text = page(decided(chosen.only, chosen.bitwise))
    if chosen.write:
        PAGE.write_text(text)
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
