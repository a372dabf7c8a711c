"""Whether what a card makes has hazards at any size that the program before has not: the verdict for every size beside a card's `when`.

`python -m benchmarks.checks.card_hazards [--workers N] [--within S] [--most N] [--kept FILE]` takes the programs and places of `python -m benchmarks.skills
when` at which a card of one step applies, carries the step out, and asks `kir check` of both programs. It writes docs/tables/card-hazards.md; exit code 1
where a counterexample was found behind a step and none before it. With `--kept` it goes on where it was stopped: what FILE has of a program, by the same KIR
and the same cards, is taken as it is.
"""
from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from functools import cache
from hashlib import sha256
from itertools import islice
from pathlib import Path

from benchmarks.skills.given import Given, Rows, added, side_by_side
from benchmarks.skills.when import _made, _places, programs
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.gate.proved.confirm import proved
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.learning.cards.library import library
from kir.learning.corpus.roundtrip.run import tool_digest
from kir.learning.evidence.answers import remember
from kir.learning.evidence.archive import read_archive, shipped
from kir.learning.induce.uses import distinct

PAGE = Path(__file__).parents[2] / "docs" / "tables" / "card-hazards.md"
EACH, RUNS = 4, 2
"""Places of one program, each of another card; and sizes that are run for what is not proved."""
VERDICTS = {"proved": "proved", "undecided": "not decided", "refuted": "a counterexample"}


def of_program(case: tuple[str, frozenset[str], frozenset[str]], given: Given) -> Rows:
    """The card, both verdicts, and the seconds of the second, for each place of one program; from what is kept, where it has them."""
    text, kernels, _ = case
    if given.kept is None:
        return asked_of(text, kernels, given)
    key = sha256(f"{text} {sorted(kernels)} {[card.name for card in given.admitted]} {tool_digest()}".encode()).hexdigest()
    known = _known(given.kept).get(key)
    if known is None:
        known = asked_of(text, kernels, given)
        added(given.kept, json.dumps({"of": key, "rows": known}) + "\n")
    return known


@cache
def _known(kept: Path) -> dict[str, Rows]:
    """What a file has, by program; a last line that was cut short is none."""
    whole = (kept.read_text(encoding="utf-8").rpartition("\n")[0] if kept.is_file() else "").splitlines()
    return {line["of"]: [tuple(row) for row in line["rows"]] for line in map(json.loads, whole)}


def asked_of(text: str, kernels: frozenset[str], given: Given) -> Rows:
    """As `of_program`, asked anew."""
    program = parse_program(text)
    found = [place for card in given.admitted if len(card.carrier.steps) == 1 and kernels.isdisjoint(use.kernel for use in card.evidence.uses)
             for place in _places(card, program) if not place.failing]
    first = {place.card: place for place in sorted(found, key=lambda place: place.turn)}
    out: Rows = []
    before = _verdict(program)[0] if first else ""
    for place in islice(sorted(first.values(), key=lambda place: place.turn), EACH):
        if (made := _made(program, place.site, False)) is not None:
            out.append((f"`{place.card}` on `{min(kernels)}`: `{place.site.params}`", before, *_verdict(made)))
    return out


def _verdict(program: Program) -> tuple[str, float]:
    begun = time.process_time()
    try:
        done = proved(program, RUNS)
        said = "refuted" if any(f.status == "refuted" and f.kind != "overflow" for f in done.findings) else done.verdict
    except KirError:
        said = "undecided"
    return said, time.process_time() - begun


def page(rows: Rows, seen: int) -> str:
    """The table."""
    counts = Counter((before, after) for _, before, after, _ in rows)
    seconds = sorted(s for *_, s in rows)
    new = [where for where, before, after, _ in rows if after == "refuted" != before]
    return "\n".join([
        "# Hazards behind the steps of cards", "",
        f"Made by `python -m benchmarks.checks.card_hazards`. {len(rows)} places at which an admitted card of one step applies, in programs of {seen} kernels "
        f"that the card was not made from: `kir check` of the program before the step, and of the one behind it, at every size, with {RUNS} runs for what is "
        "not proved.", "",
        f"A counterexample behind a step and none before it: {len(new)}. Proved before and not decided behind: {counts['proved', 'undecided']}. One verdict "
        f"takes {seconds[len(seconds) // 2]:.2f} s of processor time in the middle, {sum(seconds) / len(seconds):.2f} s on the average.", "",
        "| before | behind: proved | not decided | a counterexample |", "| --- | ---: | ---: | ---: |",
        *(f"| {said} | {' | '.join(str(counts[b, a]) for a in VERDICTS)} |" for b, said in VERDICTS.items()),
        "", *(f"- {where}" for where in new), ""])


def main() -> int:
    """Ask, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--within", type=float, default=0.0, help="seconds after which no further program is counted (0: no limit)")
    parser.add_argument("--most", type=int, default=3000, help="programs")
    parser.add_argument("--kept", type=Path, help="what was asked by now, and is added to")
    asked = parser.parse_args()
    walks = distinct(read_archive(shipped()))
    remember(walks)
    given = Given(library().cards, walks, asked.most, asked.workers, 1, None, asked.within, asked.kept)
    rows = side_by_side(of_program, list(programs(given))[:asked.most], given)
    write_atomic(PAGE, page(rows, len({where.partition(" on ")[2].partition(":")[0] for where, *_ in rows})))
    print(PAGE.read_text())
    return int(any(after == "refuted" != before for _, before, after, _ in rows))


if __name__ == "__main__":
    sys.exit(main())
