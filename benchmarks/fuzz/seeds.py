"""One seed after another: its program, its checks, and what its faults are shrunk to."""
from __future__ import annotations

import ast
import gc
import random
import time
import warnings
from collections import Counter

from benchmarks.fuzz.checking import Fault, TooLong, attempt, checks, limited, surfaces
from benchmarks.fuzz.making import Made
from benchmarks.fuzz.refuting import FORMS, unsound
from benchmarks.fuzz.shrinking import shrunk
from kir.base.dataclass import dataclass
from kir.ir.parser import parse_program
from kir.rewrite.pipelines.text import Direction
from tests.round_trips import ROUND_TRIPS

SHRINKING, COLLECTED = 60.0, 8
"""Processor seconds for the shrinking of one fault; and after how many programs garbage is collected."""

@dataclass(frozen=True)
class Done:
    """What came of a seed: the form of its program, counts of applications, its faults each with what it was shrunk to, and processor seconds."""

    seed: int
    form: str
    counts: Counter[str]
    faults: list[tuple[Fault, str]]
    seconds: float


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

    def written(text: str) -> bool:
        return any(f.kind == fault.kind for f in surfaces(parse_program(text, "p.kir"), made.arrays, random.Random(seed), Counter()))
    form, _, number = fault.done.partition(" ")
    if form in FORMS:
        return shrunk(fault.before, lambda text: any(kind in fault.kind for kind, _ in unsound(text, int(number), Counter(), form)))
    if fault.done in ROUND_TRIPS:
        return shrunk(fault.before, written)
    if fault.kind.startswith(("values", "inverse", "text after", "offered")):
        return shrunk(fault.before, lambda text: _again(made, fault, text))
    return shrunk(made.text, faulty)


def _again(made: Made, fault: Fault, text: str) -> bool:
    name, _, rest = fault.done.lstrip("~").partition("{")
    given, _, seed = ("{" + rest).rpartition(" seed ")
    direction: Direction = "backward" if fault.done.startswith("~") else "forward"
    return any(f.kind == fault.kind for f in attempt(parse_program(text, "p.kir"), name, ast.literal_eval(given), direction, int(seed),
                                                     made.arrays, Counter(), []))


def ready() -> None:
    """A process that is to do seeds: what is loaded by now is never looked through for garbage, and the rest only between programs."""
    gc.freeze()
    gc.disable()


def done(seed: int) -> Done:
    """The program of a seed, in a process of its own: what came of it."""
    begun, count = time.process_time(), Counter[str]()
    made, faults = one(seed, count)
    cases: list[tuple[Fault, str]] = []
    for fault in faults:
        try:
            with limited(SHRINKING):
                small = smaller(made, fault, seed) if all(f.kind != fault.kind for f, _ in cases) else ""
        except TooLong:
            small = f"# not shrunk in {SHRINKING:.0f} s\n"
        except Exception as crash:  # what is shrunk to may crash elsewhere: the fault itself is kept
            small = f"# not shrunk: {type(crash).__name__}: {crash}\n"
        cases.append((fault, small))
    if seed % COLLECTED == 0:
        gc.collect()
    return Done(seed, made.form.__name__, count, cases, time.process_time() - begun)


__all__ = ["Done", "done", "one", "ready"]
