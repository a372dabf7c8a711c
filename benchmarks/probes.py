"""What passes offer and refuse, tried: `python -m benchmarks.probes [--rows FILE] [--only WORD ..] [--states N] [--most N] [--limit N] [--store DIR]`.

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
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from benchmarks.probes_page import PAGE, page, unexplained
from kir.base.store import write_atomic
from kir.learning.probes.around import defects, probe
from kir.learning.probes.record import Probe, read_probe, store
from kir.learning.probes.sampling import Tally, forced, probed, sampled, states
from kir.learning.probes.subjects import Subject, subjects
from kir.rewrite.anchor import anchor_text
from kir.rewrite.base import Pass
from kir.rewrite.driver import offered
from kir.rewrite.step import Step
from kir.rewrite.verdict import Context

Row = dict[str, Any]
SINGLES, PAIRS = 8, 4
"""Variations of a program that a step of each pass is tried on, alone and in pairs."""


def looked(count: int, depth: int, only: tuple[str, ...]) -> Iterator[Subject]:
    """The programs, each with the states that steps drawn at random lead to."""
    for subject in subjects():
        if not only or any(word in subject.name for word in only):
            yield from states(subject, count, depth)


def of_program(subject: Subject, most: int, taken: Counter[str], limit: int) -> Row:
    """What came of one program."""
    tally, refused = sampled(subject)
    wanted = [(site, ids) for site, ids in refused if taken[" ".join((site.params.name, *ids))] < limit]
    probes = list(forced(subject, wanted, most))
    for each in probes:
        taken[_key(each)] += 1
    return {"name": subject.name, "tally": _tally(tally), "probes": [json.loads(p.text()) for p in probes]}


def of_pass(cls: type[Pass], programs: list[Subject]) -> Row:
    """What came of a step of one pass on variations of the smallest program that it applies to."""
    for subject in programs:
        context = Context(subject.target)
        for site in offered(cls.with_options({}), subject.program, context, 2).sites:
            step = Step.of(site.params, anchor_text(subject.program, site.path))
            found = probe(subject.program, step, subject.problem, subject.target, PAIRS, most=SINGLES)
            return {"pass": cls.name, "name": subject.name, "probes": [json.loads(p.text()) for p in found]}
    return {"pass": cls.name, "name": "", "probes": []}


def _key(p: Probe) -> str:
    return " ".join((p.step.partition("{")[0].partition("@")[0], *(r.id for r in p.refusals)))


def _tally(t: Tally) -> Row:
    out = {f.name: dict(v) if isinstance(v := getattr(t, f.name), Counter) else v for f in fields(t)}
    return {**out, "reasons": [[*key, count] for key, count in t.reasons.items()]}


def tally_of(value: Row) -> Tally:
    """The inverse of what a row has of a tally."""
    counts = {k: Counter(v) for k, v in value.items() if k not in ("reasons", "faults")}
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
                self.held[row.get("pass", row["name"])] = row

    def add(self, key: str, row: Row) -> Row:
        """Keep a row."""
        self.held[key] = row
        if self.file is not None:
            with self.file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")
        return row


def main(words: list[str]) -> int:
    """The command."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--rows", type=Path, help="where rows are kept between runs")
    asked.add_argument("--only", nargs="*", default=(), help="programs whose names have one of these words; no page is written")
    asked.add_argument("--states", type=int, default=1, help="programs that random steps lead to, of each")
    asked.add_argument("--most", type=int, default=2, help="forced sites of one program for each set of refusing preconditions")
    asked.add_argument("--limit", type=int, default=8, help="the same over all programs")
    asked.add_argument("--store", type=Path, help="a folder for counterexamples")
    given = asked.parse_args(words)
    rows = Rows(given.rows)
    taken = Counter(_key(p) for r in rows.held.values() if "tally" in r for p in probes_of(r))
    programs, around = list[Row](), list[Row]()
    for subject in looked(given.states, 3, tuple(given.only)):
        row = rows.held.get(subject.name) or rows.add(subject.name, of_program(subject, given.most, taken, given.limit))
        programs.append(row)
        print(f"{subject.name}: {sum(row['tally']['matched'].values())} sites, {len(row['probes'])} forced", flush=True)
    by_size = sorted((s for s in subjects() if not given.only or any(word in s.name for word in given.only)), key=lambda s: s.size)
    for cls in probed():
        around.append(rows.held.get(cls.name) or rows.add(cls.name, of_pass(cls, by_size)))
        print(f"{cls.name}: {len(around[-1]['probes'])} probes", flush=True)
    return _told(programs, around, None if given.only else PAGE, given.store)


def _told(programs: list[Row], around: list[Row], to: Path | None, folder: Path | None) -> int:
    """Write the page and the counterexamples, and say what is wrong."""
    total = Tally()
    for row in programs:
        total.add(tally_of(row["tally"]))
    every = [(row["name"], p) for row in programs for p in probes_of(row)]
    nearby = [(row["pass"], row["name"], probes_of(row)) for row in around]
    if to is not None:
        write_atomic(to, page(total, every, nearby, len(programs)))
    for p in [*(p for _, p in every), *(p for _, _, found in nearby for p in found)]:
        if folder is not None and p.is_counterexample:
            store(p, folder)
    bad = [*total.faults, *(f"{name}: {p.step}: called refuted, and right" for name, p in unexplained(every)),
           *(f"{name}: {p.step}, {', '.join(p.varied)}: applies, and is wrong: {p.said}" for _, name, found in nearby for p in defects(found))]
    print(*bad, sep="\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
