"""Kernels that do not do what their problem says, and honest look-alikes: which of them the gate refuses, and by which node.

`python -m benchmarks.checks.claims [--write]` judges those of `tests/red_team/claims.py`, and writes docs/tables/claims.md. Exit code 1 where one is judged
wrongly.
"""
from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic
from kir.gate.cases import problem_tests
from kir.gate.claims import refusals
from kir.gate.correctness import check
from tests.red_team.claims import FALSE, HONEST, Claimed

PAGE = Path(__file__).parents[2] / "docs" / "tables" / "claims.md"
HEAD = """# Claims

Made by `python -m benchmarks.checks.claims --write` from `tests/red_team/claims.py`. The gate compares what a kernel *does* with what its problem *says*
([writing a problem](../extending/writing-a-problem.md)). Every kernel here gives right values on every test, so values do not tell these two tables apart.
"""


@dataclass(frozen=True)
class Said:
    """Whether all values of a kernel are right on the gate's cases, and what is refused beyond that."""

    values: bool
    refusals: tuple[Diagnostic, ...]


def said(case: Claimed) -> Said:
    """What the gate's two halves say of a kernel: its values, and its claims."""
    tests = problem_tests(case.program, case.of, {})
    right = check(case.program, tests, case.of.name)
    return Said(right.ok, refusals(case.program, case.of, {}, tests.cases, right.reached))


def page(rows: Sequence[tuple[Claimed, Said]]) -> str:
    """The generated page."""
    false, honest = ([(c, s) for c, s in rows if bool(c.lacks) == which] for which in (True, False))
    refused, wronged = sum(bool(s.refusals) for _, s in false), sum(bool(s.refusals) for _, s in honest)
    lines = [HEAD, f"**{refused} of {len(false)} refused** that lack what is named; {wronged} of {len(honest)} honest look-alikes refused.", "",
             "## Refused", "", "| problem | kernel | lacks | values | refused by | at |", "| --- | --- | --- | --- | --- | --- |"]
    for c, s in false:
        first = s.refusals[0] if s.refusals else None
        lines.append(f"| `{c.problem}` | {c.name} | {c.lacks} | {'right' if s.values else 'wrong'} | {first.id if first else 'nothing'} | "
                     f"{f'`{first.anchor}`' if first else ''} |")
    lines += ["", "## Accepted", "", "| problem | kernel | values | refused by |", "| --- | --- | --- | --- |"]
    lines += [f"| `{c.problem}` | {c.name} | {'right' if s.values else 'wrong'} | {s.refusals[0].id if s.refusals else 'nothing'} |" for c, s in honest]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Judge all, print what is judged wrongly, and write the page where that is asked for."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--write", action="store_true", help="write docs/tables/claims.md")
    chosen = arguments.parse_args()
    rows = [(c, said(c)) for c in (*FALSE, *HONEST)]
    wrong = [c for c, s in rows if not s.values or bool(s.refusals) != bool(c.lacks)]
    for c in wrong:
        print(f"judged wrongly: {c.problem}, {c.name}")
    text = page(rows)
    print(text.split("\n\n")[2])
    if chosen.write:
        PAGE.write_text(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
