"""Where a card says that it applies, what it makes must be right; where it refuses, forcing it must fail or not help."""
from __future__ import annotations

import hashlib
import json
import os
import random
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from pathlib import Path

from benchmarks.skills.coverage import SURFACES
from benchmarks.skills.given import Given, Rows, added, share, side_by_side
from kir.analysis.target.legalize import legalize
from kir.base.diagnostic import KirError
from kir.gate.cases import relative_tests
from kir.gate.correctness import check
from kir.gate.cpu import profiled
from kir.hardware.target import target
from kir.ir.canonical import content_hash
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.rules.verify import verify
from kir.learning.cards.card import Card
from kir.learning.cards.use import judged
from kir.learning.forecast import Analytic, Pair
from kir.learning.induce.build import NO_CODE, code
from kir.learning.induce.transfers import FASTER, said_by
from kir.rewrite import Context, Site
from kir.rewrite.driver import apply
from kir.rewrite.verdict import Verdict
from kir.surface import backend

PLACES, MOST_JUDGED = 3, 40
"""Places of one card in one program that are looked at: so many where it applies, and so many where it does not, of the first few that are judged."""
APPLIED = 4
"""Places of one program at which a card applies that are carried out and run, each of another card; where one refuses, all are forced."""
SECONDS, LATEST = 10.0, 30
"""How long the cases of one place may take, and when one that does not end is given up."""
LONGEST = 4000
"""Characters of a program that is interpreted: what is naive and large runs for minutes."""
TARGET = "sm_90a"
SAYS = ("applies", "not carried out", "refuses", "unknown")
LOOKED = "looked at"
"""The row that each program has, whatever is found in it: those that there was no time for have none."""
NOT_RUN = (*NO_CODE, "frontends", "lineage", "passes", "skills", *(f"learning/{each}" for each in (
    "cards", "corpus", "evidence", "induce", "optimize", "packages", "probes", "tune")))
"""What no outcome of two given programs depends on."""
CAME = ("right", "no faster", "wrong", "refused", "not run")


@dataclass(frozen=True)
class Place:
    """A place of a card in a program of a kernel that it was not made from, with the verdicts on conditions that do not hold."""

    card: str
    site: Site
    failing: tuple[tuple[str, Verdict], ...]

    @property
    def said(self) -> str:
        return "applies" if not self.failing else "refuses" if any(v.kind == "refuted" for _, v in self.failing) else "unknown"

    @property
    def turn(self) -> str:
        """In which order places are run: their hash says it."""
        return hashlib.sha256(f"{self.card} {self.site.params} {self.site.path}".encode()).hexdigest()


def when(given: Given) -> str:
    """The table."""
    singles = [card for card in given.admitted if len(card.carrier.steps) == 1]
    cases = list(programs(given))[:given.most]
    rows = side_by_side(_looked, cases, given)
    seen = sum(said == LOOKED for said, *_ in rows)
    rows = [row for row in rows if row[0] != LOOKED]
    looked = Counter(said for said, *_ in rows)
    counts = Counter((said, came) for said, came, *_ in rows if came)
    refusals: dict[str, Counter[str]] = defaultdict(Counter)
    for said, came, _, ids, *_ in rows:
        for id_ in ids.split() if said == "refuses" else ():
            refusals[id_][came] += 1
    tried = Counter(said for said, came, *_ in rows if came)
    run = {said: tried[said] - counts[said, "not run"] for said in SAYS}
    good, failed = counts["applies", "right"] + counts["applies", "no faster"], run["refuses"] - counts["refuses", "right"]
    table = [f"| {said} | {looked[said]} | {tried[said]} | {' | '.join(str(counts[said, came]) for came in CAME)} |" for said in SAYS]
    most = sorted(refusals.items(), key=lambda row: (-row[1]["right"], row[0]))
    return "\n".join([
        "# When a card is right", "", "Whether what a card says of a place holds there.", "",
        f"{sum(looked.values())} places in {seen} programs of kernels that the card was not made from, by the {len(singles)} admitted cards of one step; "
        f"{sum(tried.values())} of them were tried, {tried['refuses'] + tried['unknown']} by force. Where a card applies (its conditions hold, and the "
        f"framework carries the step out), the program is interpreted and compared with the one before, at up to {APPLIED} places of each program; where a "
        "condition is refuted, or unknown, the step is forced, at every place. *not carried out*: the conditions hold, and the step cannot be undone exactly "
        "there, so that it is not offered; *no faster*: right, and not forecast to be faster by 2 % or more; *refused*: the framework, the verifier or a rule "
        "of the architecture finds the fault; *not run*: no sizes at which both run, or too long.", "",
        f"Where a card says that it applies, {share(good, run['applies'])} of the programs are right; where it refuses, {share(failed, run['refuses'])} of the "
        f"forced steps fail or do not help; it does not know in {share(looked['unknown'], sum(looked.values()))} of the places.", "",
        f"| the card says | places | tried | {' | '.join(CAME)} |", f"| --- |{' ---: |' * (2 + len(CAME))}", *table, "",
        *(f"- wrong: {where}" for said, came, where, *_ in rows if (said, came) == ("applies", "wrong")), "",
        "Conditions that refused where the forced program was right and forecast to be faster:", "",
        f"| condition | {' | '.join(CAME)} |", f"| --- |{' ---: |' * len(CAME)}",
        *(f"| {id_} | {' | '.join(str(n[came]) for came in CAME)} |" for id_, n in most if n["right"]), "", *_surfaces(singles, rows)])


def _surfaces(singles: Sequence[Card], rows: Rows) -> list[str]:
    """On which surfaces a card works: those of the kernels that it was lifted from, and those of the kernels above on which it was right."""
    right: dict[str, set[str]] = {card.name: set() for card in singles}
    for said, came, _, _, name, on in rows:
        right[name] |= set(on) if (said, came) == ("applies", "right") else set()
    works = {card.name: (set(card.scope.surfaces) | right[card.name]) & {*SURFACES} for card in singles}
    every = sorted(name for name, found in works.items() if len(found) == len(SURFACES))
    return ["A card works on a surface if a kernel of it uses the step, or if one that it was not made from takes it above: it applies, the program is right, "
            f"and can be written there before and after. {len(every)} cards work on all {len(SURFACES)} surfaces:", "",
            "| card | lifted from kernels of | right on kernels of |", "| --- | --- | --- |",
            *(f"| `{card.name}` | {', '.join(s for s in SURFACES if s in card.scope.surfaces)} | {', '.join(sorted(right[card.name]))} |"
              for card in singles if card.name in every), ""]


def programs(given: Given) -> Iterator[tuple[str, frozenset[str], frozenset[str]]]:
    """Programs of the walks, the first, one in the middle and the last before an expert, with the kernels that they are of and the surfaces of those; in
    an order that the seed decides."""
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for w in given.walks:
        for k in (0, len(w.transitions) // 2, -1) if w.transitions else ():
            text = w.programs[w.transitions[k].before_text]
            if len(text) <= LONGEST:
                found[text].add((w.kernel, w.surface))
    order = sorted(found)
    random.Random(given.seed).shuffle(order)
    yield from ((text, *map(frozenset, zip(*found[text], strict=True))) for text in order)  # type: ignore[misc]  # two columns


def _looked(case: tuple[str, frozenset[str], frozenset[str]], given: Given) -> Rows:
    """The places of all cards in one program: what the card says, what came of it ("" where it was not tried), where, the conditions, the card, and the
    surfaces of the program's kernels that can write it before and after."""
    text, kernels, surfaces = case
    program, known = parse_program(text), _known(given.kept)
    found = [each for card in given.admitted if len(card.carrier.steps) == 1 and kernels.isdisjoint(use.kernel for use in card.evidence.uses)
             for each in _places(card, program)]
    first = {each.card: each for each in sorted(found, key=lambda each: each.turn) if not each.failing}
    chosen = [*islice(sorted(first.values(), key=lambda each: each.turn), APPLIED), *(each for each in found if each.failing)]
    tried = {id(each) for each in chosen}
    out: Rows = [(LOOKED, "", "", "", "", ())]
    for each in found:
        came, on = "", tuple[str, ...]()
        if id(each) in tried:
            made = _made(program, each.site, bool(each.failing))
            came = "refused" if made is None else came_of(program, made, bool(each.failing), known, given.kept)
            if made is not None and came == "right":
                on = tuple(s for s in sorted(surfaces & {*SURFACES}) if not any(list(backend(s).accepts(p)) for p in (program, made)))
        said = "not carried out" if (each.said, came) == ("applies", "refused") else each.said
        out.append((said, came, f"`{each.card}` on `{min(kernels)}`: `{each.site.params}`", " ".join(id_ for id_, _ in each.failing), each.card, on))
    return out


def _places(card: Card, program: Program) -> Iterator[Place]:
    taken = Counter[bool]()
    with suppress(KirError):
        for site, failing in islice(judged(card, program, Context(target(TARGET))), MOST_JUDGED):
            taken[bool(failing)] += 1
            if taken[bool(failing)] <= PLACES:
                yield Place(card.name, site, failing)


@cache
def _of_code() -> str:
    return code(NOT_RUN)[:12]


@cache
def _known(kept: Path | None) -> dict[str, str]:
    """Outcomes that were found out before, by what was run; a line that was cut off is left out."""
    out: dict[str, str] = {}
    for line in kept.read_text(encoding="utf-8").splitlines() if kept is not None and kept.exists() else ():
        with suppress(ValueError):
            key, came = json.loads(line)
            out[key] = came
    return out


def _made(program: Program, site: Site, force: bool) -> Program | None:
    """What a step makes; nothing where the framework, the verifier or a rule of the architecture finds the fault."""
    try:
        made = apply(program, site.params, site, force=force, context=Context(target(TARGET))).program
        found = [d for d in verify(made) if d.severity == "error"] if force else []
    except Exception:  # what a forced step meets may be anything: it is found out either way
        return None
    return None if found or (force and legalize(made, target(TARGET).architecture)) else made


def came_of(program: Program, made: Program, force: bool, known: dict[str, str], kept: Path | None = None) -> str:
    """What comes of a program that a step made: the word of the table. What the same code found of the same two programs is not run again."""
    key = f"{_of_code()} {content_hash(program)[:24]} {content_hash(made)[:24]} {force:d}"
    if key not in known:
        known[key] = _at_most(LATEST, partial(_run, program, made, force)) or "not run"
        if kept is not None:
            added(kept, json.dumps([key, known[key]]) + "\n")
    return known[key]


def _run(program: Program, made: Program, force: bool) -> str:
    begun = os.times()
    try:
        tests = relative_tests(made, program, ())
        found = check(made, tests, "the program before", relative=True, stopped=lambda: sum(os.times()[:2]) - sum(begun[:2]) > SECONDS)
        if found.reason == "not all cases were run" or not tests.cases:
            return "not run"
        if not found.ok:  # where the program before it is not right either, as one that reads what nobody wrote, nothing is said of the step
            return "wrong" if check(program, tests, "itself", relative=True).ok else "not run"
        return "right" if not force or _faster(program, made) else "no faster"
    except Exception:  # the same
        return "not run" if not force else "refused"


def _faster(before: Program, after: Program) -> bool:
    """Whether a program is forecast to be faster, at the first sizes that it is profiled at."""
    with suppress(KirError, ValueError, ZeroDivisionError):
        sizes = profiled(after, None)
        surface = said_by(after, "cuda")
        return bool(sizes and surface) and Analytic()(Pair(before, after, sizes[0][1], target(TARGET), surface=surface)).median >= FASTER
    return False


def _at_most(seconds: int, work: Callable[[], str]) -> str:
    """What work in a process of its own comes to; nothing where that takes longer than so much time of the processor, which is the same on a machine that
    others share. The system ends it: an exception would be lost in compiled code, or never be raised there."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        with suppress(BaseException):
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_PROF, seconds)
            os.write(write, work().encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        came = file.read().decode()
    os.waitpid(pid, 0)
    return came
