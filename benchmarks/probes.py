"""What passes offer and refuse, tried: `python -m benchmarks.probes [--rows FILE] [--only WORD ..] [--states N] [--most N]`.

Every registered pass with its defaults and with parameters drawn at random is asked on small programs of all problems and experts, and on programs that a
few random steps lead to. What is offered is applied; of what a precondition refuses some is forced and run against the problem's oracle
(`kir.learning.probes`). Writes `docs/tables/probes.md`; exits with 1 when something offered was refused, or a refuted site without an explanation was
right. With `--rows` what was done is kept in a file a line a program, and a killed run goes on from there.
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
from kir.learning.probes.record import Probe, read_probe
from kir.learning.probes.sampling import Tally, forced, sampled, states
from kir.learning.probes.subjects import Subject, subjects


def looked(count: int, depth: int, only: tuple[str, ...]) -> Iterator[Subject]:
    """The programs, each with the states that steps drawn at random lead to."""
    for subject in subjects():
        if not only or any(word in subject.name for word in only):
            yield from states(subject, count, depth)


def row(subject: Subject, most: int, taken: Counter[str], limit: int) -> dict[str, Any]:
    """What came of one program."""
    tally, refused = sampled(subject)
    wanted = [(site, ids) for site, ids in refused if taken[" ".join((site.params.name, *ids))] < limit]
    probes = list(forced(subject, wanted, most))
    for probe in probes:
        taken[_key(probe)] += 1
    return {"name": subject.name, "tally": _tally(tally), "probes": [json.loads(p.text()) for p in probes]}


def _key(probe: Probe) -> str:
    return " ".join((probe.step.partition("{")[0].partition("@")[0], *(r.id for r in probe.refusals)))


def _tally(t: Tally) -> dict[str, Any]:
    out = {f.name: dict(v) if isinstance(v := getattr(t, f.name), Counter) else v for f in fields(t)}
    return {**out, "reasons": [[*key, count] for key, count in t.reasons.items()]}


def _probes(row: dict[str, Any]) -> list[Probe]:
    return [read_probe(json.dumps(p)) for p in row["probes"]]


def tally_of(value: dict[str, Any]) -> Tally:
    """The inverse of what a row has of a tally."""
    counts = {k: Counter(v) for k, v in value.items() if k not in ("reasons", "faults")}
    return Tally(**counts, reasons={(a, b): count for a, b, count in value["reasons"]}, faults=list(value["faults"]))


def main(words: list[str]) -> int:
    """The command."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--rows", type=Path, help="where rows are kept between runs")
    asked.add_argument("--only", nargs="*", default=(), help="programs whose names have one of these words")
    asked.add_argument("--states", type=int, default=2, help="programs that random steps lead to, of each")
    asked.add_argument("--most", type=int, default=2, help="forced sites of one program for each set of refusing preconditions")
    asked.add_argument("--limit", type=int, default=15, help="the same over all programs")
    given = asked.parse_args(words)
    rows: dict[str, dict[str, Any]] = {}
    if given.rows and given.rows.exists():
        rows = {r["name"]: r for r in map(json.loads, given.rows.read_text(encoding="utf-8").splitlines())}
    taken = Counter(_key(probe) for r in rows.values() for probe in _probes(r))
    for subject in looked(given.states, 3, tuple(given.only)):
        if subject.name not in rows:
            rows[subject.name] = row(subject, given.most, taken, given.limit)
            if given.rows:
                with given.rows.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[subject.name]) + "\n")
        print(f"{subject.name}: {sum(rows[subject.name]['tally']['matched'].values())} sites, {len(rows[subject.name]['probes'])} forced", flush=True)
    total, every = Tally(), list[tuple[str, Probe]]()
    for name, held in rows.items():
        total.add(tally_of(held["tally"]))
        every += [(name, probe) for probe in _probes(held)]
    if not given.only:
        write_atomic(PAGE, page(total, every, len(rows)))
    bad = [*total.faults, *(p.step for _, p in unexplained(every))]
    print(*bad[:20], sep="\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
