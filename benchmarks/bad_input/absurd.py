"""Absurd parameters: every step of every case of a pass with one parameter at a time set to what nobody means.

`python -m benchmarks.bad_input.absurd [--every N] [--only PASS ..]` runs the pipelines of `tests/passes/cases` with 0, negative, huge and mistyped values,
plainly and forced, and says what came out: a program that verifies, prints and parses back, or a KirError. Anything else, more than `SECONDS` or
more than `MEGABYTES` is a fault, and the exit code is 1.
"""
from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.bad_input.running import faults
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rules.verify import verify
from kir.rewrite.base import parameter_types
from kir.rewrite.conformance.case import Case, read_cases
from kir.rewrite.pipelines.pipeline import run
from kir.rewrite.registry import pass_class

CASES = Path(__file__).parents[2] / "tests/passes/cases"
SECONDS, MEGABYTES = 20, 6_000
NUMBERS = (0, -1, 1, 3, 7, 31, 33, 200, 1000, 65_537, 2**31 - 1, 2**31, -(2**31), 2**63, 10**30)
WORDS = ("", " ", "nowhere", "main", "0", "-1", "A[", "a b", "x" * 300, "ä", "i,,j", "i, i")
VALUES: tuple[Any, ...] = (*NUMBERS, *WORDS, True, False, 0.5, float("inf"), (), (0,), (-1, 2), (2**31,), ("",), ("nowhere", "nowhere"))


@dataclass(frozen=True)
class Attempt:
    """One step of a case's pipeline with one parameter changed."""

    case: Case
    step: int
    option: str
    value: Any
    force: bool

    def __str__(self) -> str:
        return str(replace(self.case.pipeline, steps=self.steps))

    @property
    def steps(self) -> tuple[Any, ...]:
        """The steps of the pipeline, changed."""
        steps = list(self.case.pipeline.steps)
        old = steps[self.step]
        steps[self.step] = replace(old, options={**old.options, self.option: self.value}, force=self.force)
        return tuple(steps)


def attempts(only: tuple[str, ...] = ()) -> Iterator[Attempt]:
    """All of them, in the order of the files. Values of a kind that the parameter cannot have are tried once a pass."""
    for file in sorted(CASES.glob("*.toml")):
        name, mistyped = file.stem.replace("_", "-"), set()
        if only and name not in only:
            continue
        for case in read_cases(file):
            for k, step in enumerate(case.pipeline.steps):
                if step.name != name:
                    continue
                for option, hint in parameter_types(pass_class(step.name)).items():
                    for value in VALUES:
                        fits = type(value) is hint if isinstance(hint, type) else isinstance(value, tuple)
                        if not fits and (option, repr(value)) in mistyped:
                            continue
                        mistyped.add((option, repr(value)))
                        yield from (Attempt(case, k, option, value, force) for force in ((False, True) if fits else (False,)))


def fault(attempt: Attempt) -> str:
    """What is wrong with what came out; nothing where it is a program or a located refusal."""
    try:
        trace = run(attempt.case.before, replace(attempt.case.pipeline, steps=attempt.steps), attempt.case.context)
        if not any(d.severity == "error" for d in verify(trace.program)):
            text = program_text(trace.program)
            if program_text(parse_program(text)) != text:
                return "what it made does not parse back"
    except KirError as refused:
        return "" if all(d.render() and d.to_json() for d in refused.diagnostics) else "a refusal that cannot be shown"
    except Exception as bad:  # whatever it is: it is the fault that is looked for
        last = traceback.extract_tb(bad.__traceback__)[-1]
        return f"{type(bad).__name__}: {str(bad)[:160]} ({'/'.join(Path(last.filename).parts[-2:])}:{last.lineno})"
    return ""


def main() -> int:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--every", type=int, default=1, help="only one attempt of so many")
    arguments.add_argument("--only", nargs="*", default=())
    given = arguments.parse_args()

    def shown(attempt: Attempt, wrong: str) -> None:
        print(f"{str(attempt)[:200]}\n  of '{attempt.case.name}': {wrong}", flush=True)
    count, found = faults(islice(attempts(tuple(given.only)), 0, None, given.every), fault, shown, SECONDS, MEGABYTES)
    print(f"{count} attempts, {sum(found.values())} faults, {len(found)} kinds")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
