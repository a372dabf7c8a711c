"""Figures of the library of skills, each by one command on a machine without a GPU.

    python -m benchmarks.skills coverage      # docs/tables/skills-coverage.md: cards by row of the catalogue of intents
    python -m benchmarks.skills why           # docs/tables/skills-why.md: why cards are not admitted
    python -m benchmarks.skills ablation      # docs/tables/skills-ablation.md: what is lost without each card
    python -m benchmarks.skills when          # docs/tables/skills-when.md: is a card right where it says so, and where it refuses?
    python -m benchmarks.skills round-trips   # docs/tables/skills-round-trips.md: from naive by admitted skills alone
    python -m benchmarks.skills retrieval     # docs/tables/skills-retrieval.md: planted states, 100,000 cards, loading
    python -m benchmarks.skills both          # the last two pages, with orders of cards that are learned once for both
    python -m benchmarks.skills speed         # only how long a search and loading take
    python -m benchmarks.skills stale         # only which walks of the evidence today's code would not take so
    python -m benchmarks.skills look          # only looks at the states that the last two are made of, into --kept FILE

Each takes --library DIR, --evidence DIR (default: what ships), --most N (cases), --workers N, --within S and --seed; the last three
also --kept FILE, in which outcomes are kept: a run that was ended goes on from there. Round trips and retrieval look at the same states: one file serves both.
"""
from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.skills.ablation import ablation
from benchmarks.skills.coverage import coverage, why
from benchmarks.skills.given import RAISED, Given
from benchmarks.skills.retrieval import ranked, retrieval, speed
from benchmarks.skills.round_trips import round_trips
from benchmarks.skills.stale import stale
from benchmarks.skills.states import look, states
from benchmarks.skills.when import when
from kir.base.store import write_atomic
from kir.learning.cards.library import CardStore, Library, library
from kir.learning.evidence.answers import remember
from kir.learning.evidence.archive import read_archive, shipped
from kir.learning.induce.uses import distinct

TABLES = Path(__file__).parents[2] / "docs" / "tables"
LOOK, SPEED, STALE, BOTH = "look", "speed", "stale", "both"
PARTS = {LOOK: look, SPEED: speed, STALE: stale,
         "coverage": coverage, "why": why, "ablation": ablation, "when": when, "round-trips": round_trips, "retrieval": retrieval}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=sorted((*PARTS, BOTH)))
    parser.add_argument("--library", type=Path)
    parser.add_argument("--evidence", type=Path, default=shipped())
    parser.add_argument("--most", type=int, default=3000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--within", type=float, default=0.0, help="seconds from the start after which no further case is counted (0: no limit)")
    parser.add_argument("--kept", type=Path, help="a file of outcomes, read and added to")
    parser.add_argument("--print", action="store_true", help="print the table and write no page")
    asked = parser.parse_args()
    found = Library((CardStore(asked.library),)) if asked.library else library()
    walks = distinct(read_archive(asked.evidence))
    remember(walks)
    given = Given(found.cards, walks, asked.most, asked.workers, asked.seed, asked.library, asked.within, asked.kept)
    more = f" --most {asked.most}" if asked.most != parser.get_default("most") else ""
    for part, text in both(given) if asked.part == BOTH else ((asked.part, PARTS[asked.part](given)),):
        if asked.print or RAISED or part in (LOOK, SPEED, STALE):
            print(text, flush=True)
        else:
            write_atomic(TABLES / f"skills-{part}.md", f"{text}\nWritten by `python -m benchmarks.skills {asked.part}{more}`.\n")
    for fault in RAISED:
        print(fault, file=sys.stderr)
    if RAISED:
        sys.exit(f"{len(RAISED)} cases raised what is a defect (above): no page is written from there on")


def both(given: Given) -> Iterator[tuple[str, str]]:
    """The pages of round trips and retrieval."""
    cases = [(w.key, k) for w in given.walks for k in range(len(w.transitions))]
    random.Random(given.seed).shuffle(cases)  # so that what there is time for is of all packages
    found = states(cases, given)
    given = replace(ranked(given, found.values()), within=0.0)
    yield "round-trips", round_trips(given)
    yield "retrieval", retrieval(given)


if __name__ == "__main__":
    main()
