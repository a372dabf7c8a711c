"""What passes offer and refuse, tried.

`python -m benchmarks.checks.probes [--only WORD ..] [--passes NAME ..] [--states N] [--most N] [--jobs N] [--rows FILE] [--store DIR]`

Every registered pass with its defaults and with parameters drawn at random is asked on small programs of all problems and experts, and on programs that a
few random steps lead to. What is offered is applied; of what a precondition refuses some is forced and run against the problem's oracle; and one step of
each pass is tried on variations of its program (`kir.learning.probes`). Writes `docs/tables/probes.md`; exits with 1 when something offered was refused,
when what applies is wrong, or when a site that is called refuted came out right without an explanation. With `--rows` what was done is kept in a file, a
line a program and a line a pass, and a killed run goes on from there. With `--store` the counterexamples are written into a folder, a file each.
"""
from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.checks.probes_page import PAGE, page, unexplained
from kir.base.store import write_atomic
from kir.hardware.target import target
from kir.ir.parser import parse_program
from kir.learning.probes.around import defects, probe
from kir.learning.probes.record import Probe, read_probe, store
from kir.learning.probes.sampling import Tally, forced, probed, sampled, states
from kir.learning.probes.subjects import Subject, subjects
from kir.learning.probes.trials import Trials
from kir.problem import load_problem
from kir.rewrite.anchor import anchor_text
from kir.rewrite.driver import offered
from kir.rewrite.registry import pass_class
from kir.rewrite.step import Step
from kir.rewrite.verdict import Context

Row = dict[str, Any]
DEPTH = 3
"""Steps that a state is away from its program."""
SINGLES, PAIRS = 6, 3
"""Variations of a program that a step of each pass is tried on, alone and in pairs."""


@cache
def programs() -> tuple[Subject, ...]:
    """The small programs that ship."""
    return tuple(subjects())


def of_program(number: int, count: int, most: int) -> list[Row]:
    """What came of one program, and of those that steps drawn at random lead to."""
    out = []
    for subject in states(programs()[number], count, DEPTH):
        tally, refused = sampled(subject)
        probes = [json.loads(p.text()) for p in forced(subject, refused, most)]
        out.append({"of": programs()[number].name, "name": subject.name, "tally": _tally(tally), "probes": probes})
    return out


def of_pass(name: str) -> Row:
    """What came of a step of one pass on variations of the smallest program that it applies to."""
    cls = pass_class(name)
    for subject in sorted(programs(), key=lambda s: s.size):
        context = Context(subject.target)
        for site in offered(cls.with_options({}), subject.program, context, 2).sites:
            step = Step.of(site.params, anchor_text(subject.program, site.path))
            found = probe(subject.program, step, subject.problem, subject.target, PAIRS, most=SINGLES)
            return {"pass": cls.name, "name": subject.name, "probes": [json.loads(p.text()) for p in found]}
    return {"pass": cls.name, "name": "", "probes": []}


def _tally(t: Tally) -> Row:
    out = {f.name: dict(v) if isinstance(v := getattr(t, f.name), Counter) else v for f in fields(t)}
    return {**out, "reasons": [[*key, count] for key, count in t.reasons.items()]}


def tally_of(value: Row) -> Tally:
    """The inverse of what a row has of a tally."""
    counts: dict[str, Counter[str]] = {k: Counter(v) for k, v in value.items() if k not in ("reasons", "faults")}
    return Tally(**counts, reasons={(a, b): count for a, b, count in value["reasons"]}, faults=list(value["faults"]))


def probes_of(row: Row) -> list[Probe]:
    """The probes of a row."""
    return [read_probe(json.dumps(p)) for p in row["probes"]]


class Rows:
    """Rows by what they are of, kept in a file where one is given."""

    def __init__(self, file: Path | None) -> None:
        self.file, self.held = file, dict[str, Row]()
        if file is not None and file.exists():
            for row in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
                self.held[str(row.get("pass", row["name"]))] = row

    def add(self, row: Row) -> None:
        """Keep a row."""
        self.held[str(row.get("pass", row["name"]))] = row
        if self.file is not None:
            with self.file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")
        print(f"{row.get('pass', row['name'])}: {len(row['probes'])} probes", flush=True)


def main(words: list[str]) -> int:
    """The command."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--rows", type=Path, help="where rows are kept between runs")
    asked.add_argument("--only", nargs="*", default=(), help="programs whose names have one of these words; the page says so")
    asked.add_argument("--passes", nargs="*", default=(), help="passes of which a step is tried on variations; without, all")
    asked.add_argument("--states", type=int, default=1, help="programs that random steps lead to, of each")
    asked.add_argument("--most", type=int, default=1, help="forced sites of one program for each pass and set of refusing preconditions")
    asked.add_argument("--jobs", type=int, default=1, help="processes at once")
    asked.add_argument("--store", type=Path, help="a folder for counterexamples")
    given = asked.parse_args(words)
    rows = Rows(given.rows)
    wanted = [k for k, s in enumerate(programs()) if not given.only or any(word in s.name for word in given.only)]
    names = list(given.passes) or [cls.name for cls in probed()]
    done = {row.get("of") for row in rows.held.values()}
    with ProcessPoolExecutor(given.jobs) as pool:
        waiting = [pool.submit(of_program, k, given.states, given.most) for k in wanted if programs()[k].name not in done]
        waiting += [pool.submit(_alone, name) for name in names if name not in rows.held]
        for each in as_completed(waiting):
            for row in each.result():
                rows.add(row)
    order = {programs()[k].name: k for k in wanted}
    found = sorted((r for r in rows.held.values() if r.get("of") in order), key=lambda r: (order[r["of"]], r["name"]))
    command = " ".join(["python -m benchmarks.checks.probes", *(f"--only {' '.join(map(repr, given.only))}" for _ in given.only[:1]),
                        *(f"--passes {' '.join(given.passes)}" for _ in given.passes[:1])])
    return _told(found, [rows.held[name] for name in names], command, given.store)


def _alone(name: str) -> list[Row]:
    return [of_pass(name)]


def _beside(p: Probe) -> Probe:
    """A probe of what applies and is wrong, where the program before the step is wrong there itself: then that says nothing of the step."""
    if p.status != "applies" or p.outcome != "wrong" or not p.sizes:
        return p
    program = parse_program(p.program, "probe")
    before = Trials(program, load_problem(p.problem), target(p.target)).at(program, tuple(p.sizes.items()), p.distribution, p.seed)
    return p if before.outcome == "right" else p.model_copy(update={"outcome": "not run", "said": "the program before is not right there either"})


def _told(found: list[Row], around: list[Row], command: str, folder: Path | None) -> int:
    """Write the page and the counterexamples, and say what is wrong."""
    total = Tally()
    for row in found:
        total.add(tally_of(row["tally"]))
    every = [(row["name"], p) for row in found for p in probes_of(row)]
    nearby = [(row["pass"], row["name"], [*map(_beside, probes_of(row))]) for row in around]
    write_atomic(PAGE, page(total, every, nearby, len(found), command))
    for p in [*(p for _, p in every), *(p for _, _, held in nearby for p in held)]:
        if folder is not None and p.is_counterexample:
            store(p, folder)
    bad = [*total.faults, *(f"{name}: {p.step}: called refuted, and right" for name, p in unexplained(every)),
           *(f"{name}: {p.step}, {', '.join(p.varied)}: applies, and is wrong: {p.said}" for _, name, held in nearby for p in defects(held))]
    print(*bad, sep="\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
