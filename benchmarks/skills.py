"""Figures of the library of skills, each by one command on a machine without a GPU.

    python -m benchmarks.skills coverage      # docs/tables/skills-coverage.md: cards by row of the catalogue of intents
    python -m benchmarks.skills why           # docs/tables/skills-why.md: why cards are not admitted
    python -m benchmarks.skills when          # docs/tables/skills-when.md: is a card right where it says so, and where it refuses?
    python -m benchmarks.skills round-trips   # docs/tables/skills-round-trips.md: from naive by admitted skills alone
    python -m benchmarks.skills retrieval     # docs/tables/skills-retrieval.md: planted states, 100,000 cards, loading

Each takes --library DIR, --evidence DIR (default: what ships), --most N (cases), --workers N, --within S and --seed.
"""
from __future__ import annotations

import argparse
import multiprocessing
import random
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from statistics import median

from kir.analysis.target.legalize import legalize
from kir.base.diagnostic import KirError
from kir.base.registry import registry
from kir.base.store import write_atomic
from kir.gate.cases import relative_tests
from kir.gate.correctness import check
from kir.gate.cpu import profiled
from kir.hardware.target import target
from kir.ir.canonical import content_hash
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.learning.cards.card import Card, Entry
from kir.learning.cards.library import CardStore, Library, library
from kir.learning.cards.search import MOST_LOOKED, Index, Query, Rank
from kir.learning.cards.use import Application, applicable, judged
from kir.learning.evidence.archive import read_archive, shipped
from kir.learning.evidence.walked import Transition, Walked, parsed_ahead
from kir.learning.forecast import Analytic, Pair
from kir.learning.induce.rank import Seen, learned, seen
from kir.learning.induce.transfers import FASTER, said_by
from kir.learning.induce.trials import LEAST_SHARE, LEAST_TRIALS, fault, told
from kir.learning.induce.uses import distinct
from kir.rewrite import Context, Pipeline, Site, Step, pass_class, run, sites
from kir.rewrite.catalog import summary
from kir.rewrite.driver import apply
from kir.surface import backend

BEGAN = time.monotonic()
TABLES = Path(__file__).parents[1] / "docs" / "tables"
PUBLIC = Path(__file__).parent / "data" / "klineage.toml"
SYNTHETIC = 100_000
TOP = 5
PLACES, MOST_JUDGED = 3, 40
"""Places of one card in one program that are tried: so many where it applies, and so many where it does not, of the first few that are judged."""
SECONDS = 20.0
"""How long the cases of one place may take."""
LONGEST = 4000
"""Characters of a program that is interpreted: what is naive and large runs for minutes."""


@dataclass(frozen=True)
class Given:
    """What a table is made of."""

    cards: tuple[Card, ...]
    walks: tuple[Walked, ...]
    most: int
    workers: int
    seed: int
    folder: Path | None
    within: float = 0.0
    ranks: Mapping[str, Rank] = field(default_factory=dict)
    """Orders that were learned without a family, by it."""
    states: tuple[Seen, ...] = ()

    @property
    def admitted(self) -> tuple[Card, ...]:
        return tuple(card for card in self.cards if card.state == "admitted")


# ------------------------------------------------------------------------------------------------------------------------- coverage

SURFACES = ("cuda", "tilelang", "triton")
USES_SAID = 12
"""Uses of a card, the smallest programs first, that are written on each surface."""


def coverage(given: Given) -> str:
    """Cards by row of the catalogue."""
    said: dict[str, set[str]] = defaultdict(set)
    for name, surface in _side_by_side(_said_on, [card.name for card in given.admitted], given):
        said[name].add(surface)
    rows: dict[int, list[str]] = defaultdict(list)
    for entry in registry("kir.passes"):
        for row in summary(entry).catalogue:
            rows[row].append(entry.name)
    by_pass: dict[str, list[Card]] = defaultdict(list)
    for card in given.cards:
        for name in card.passes:
            by_pass[name].append(card)
    public = {int(row): names for row, names in tomllib.loads(PUBLIC.read_text(encoding="utf-8"))["rows"].items()}
    lines = ["| row | intents | passes | cards | admitted | most kernels | written on | KLineage's cards |",
             "| ---: | --- | --- | ---: | ---: | ---: | --- | --- |"]
    covered = 0
    for row, names in sorted(rows.items()):
        cards = {card.name: card for name in names for card in by_pass[name]}
        good = [card for card in cards.values() if card.state == "admitted"]
        covered += bool(good)
        intents = sorted({pass_class(name).intent for name in names if pass_class(name).intent})
        surfaces = sorted({s for card in good for s in said[card.name]})
        lines.append(f"| {row} | {', '.join(intents)} | {', '.join(sorted(names))} | {len(cards)} | {len(good)} | "
                     f"{max((card.evidence.kernels for card in cards.values()), default=0)} | {', '.join(surfaces)} | {', '.join(public.get(row, ()))} |")
    lines += [f"| {row} | (no pass) | | 0 | 0 | 0 | | {', '.join(names)} |" for row, names in sorted(public.items()) if row not in rows]
    kinds = len({each for card in given.admitted for each in card.intent.split(" + ")})
    admitted, states = given.admitted, Counter(card.state for card in given.cards)
    of = [f"{len(given.cards)} cards: {', '.join(f'{n} {s}' for s, n in states.most_common())}.",
          f"The admitted ones are of {kinds} intents and {covered} of the {len(rows)} rows that have passes.",
          f"{sum(card.evidence.kernels >= 3 for card in admitted)} of them are lifted from three kernels or more, "
          f"{sum({*SURFACES} <= {*card.scope.surfaces} for card in admitted)} from kernels of all three surfaces; of {sum(len(x) == 3 for x in said.values())} "
          "a use can be written on all three, the program before it and the one after; "
          f"{sum(card.carrier.kind == 'composite' for card in admitted)} are composites."]
    named = sum(map(len, public.values()))
    with_card = sum(len(names) for row, names in public.items() if any(by_pass[name] for name in rows.get(row, ())))
    of.append(f"Of the public cards of KLineage {named} are named here, beside the row whose mechanism their name says; {with_card} are in a row with a card "
              f"of ours, {sum(len(names) for row, names in public.items() if row in rows)} in a row with a pass.")
    return "\n".join(["# Skills by intent", "", "A row is one of the catalogue of intents; `kir passes` names the rows of each pass.", "", *of, "", *lines, ""])


def _said_on(name: str, given: Given) -> list[tuple[str, str]]:
    """The surfaces on which the programs before and after some use of a card can be written."""
    card = next(c for c in given.cards if c.name == name)
    by_kernel: dict[str, list[Transition]] = defaultdict(list)
    walks = {walk.kernel: walk for walk in given.walks}
    for use in card.evidence.uses:
        by_kernel[use.kernel] += [t for t in walks[use.kernel].transitions if t.number == use.transition] if use.kernel in walks else []
    pairs = [(walks[kernel].programs[some[0].before_text], walks[kernel].programs[some[-1].after_text]) for kernel, some in by_kernel.items() if some]
    found: dict[str, None] = {}
    for before, after in sorted(pairs, key=lambda pair: (len(pair[0]), pair))[:USES_SAID]:
        for surface in SURFACES:
            with suppress(KirError):
                if surface not in found and not any(list(backend(surface).accepts(parse_program(text))) for text in (before, after)):
                    found[surface] = None
    return [(name, surface) for surface in found]


# ------------------------------------------------------------------------------------------------------------------------------ why

def why(given: Given) -> str:
    """For each card that is not admitted what its trials lack, and how often each cause is met."""
    rows, causes = [], Counter[str]()
    for card in given.cards:
        if card.state == "admitted":
            continue
        trials = [entry for entry in card.log if entry.what == "trial"]
        won, lost = sum(bool(t.skill) for t in trials), sum(bool(t.without) for t in trials)
        cause = _cause(card, trials, won, lost)
        causes[cause] += 1
        rows.append((cause, f"| `{card.name}` | {card.evidence.kernels} | {', '.join(card.scope.packages)} | {', '.join(card.scope.families)} | "
                     f"{won} of {len(trials)} | {lost} | {cause} |"))
    return "\n".join(["# Why cards are not admitted", "", f"{len(rows)} of {len(given.cards)} cards. A card needs {LEAST_TRIALS} trials on kernels of another "
                      "package or family, two thirds of which succeed, and more than without it.", "", "| cause | cards |", "| --- | ---: |",
                      *(f"| {cause} | {count} |" for cause, count in causes.most_common()), "",
                      "| card | kernels | packages | families | succeeded | without it | cause |", "| --- | ---: | --- | --- | ---: | ---: | --- |",
                      *(row for _, row in sorted(rows)), ""])


def _cause(card: Card, trials: Sequence[Entry], won: int, lost: int) -> str:
    if card.state == "negative":
        return "known not to help"
    if len(trials) < LEAST_TRIALS:
        return "too few kernels elsewhere at which it applies"
    if won >= LEAST_SHARE * len(trials):
        return "as much is found without it"
    failed = Counter(fault(t) for t in trials if not t.skill)
    return failed.most_common(1)[0][0]


# ----------------------------------------------------------------------------------------------------------------------------- when

Case = tuple[str, str, str]
"""A card by name, a program by its text, the kernel that it is of."""


def when(given: Given) -> str:
    """Where a card says it applies, the result must be right; where it refuses, forcing it must fail or not help."""
    singles = [card for card in given.admitted if len(card.carrier.steps) == 1]
    made_from = {card.name: {use.kernel for use in card.evidence.uses} for card in singles}
    cases = [(card.name, text, w.kernel) for card in singles for w in given.walks if w.transitions and w.kernel not in made_from[card.name]
             for text in {w.programs[w.transitions[k].before_text]: 0 for k in (0, len(w.transitions) // 2, -1)} if len(text) <= LONGEST]
    random.Random(given.seed).shuffle(cases)
    counts: Counter[tuple[str, str]] = Counter()
    refusals: dict[str, Counter[str]] = defaultdict(Counter)
    wrong: list[str] = []
    for said, came, where, ids in _side_by_side(_judged, cases, given):
        counts[said, came] += 1
        if said == "refuses":
            for id_ in ids.split():
                refusals[id_][came] += 1
        if (said, came) == ("applies", "wrong"):
            wrong.append(where)
        if sum(counts.values()) >= given.most:
            break
    total = sum(counts.values())
    rows = [f"| {said} | {sum(n for (s, _), n in counts.items() if s == said)} | {counts[said, 'right']} | {counts[said, 'no faster']} | "
            f"{counts[said, 'wrong']} | {counts[said, 'refused']} | {counts[said, 'not run']} |"
            for said in ("applies", "not carried out", "refuses", "unknown")]
    run = {said: sum(n for (s, came), n in counts.items() if s == said and came != "not run") for said in ("applies", "refuses", "unknown")}
    good, failed = counts["applies", "right"] + counts["applies", "no faster"], run["refuses"] - counts["refuses", "right"]
    shares = [f"Where a card says that it applies, {_share(good, run['applies'])} of the programs are right; where it refuses, "
              f"{_share(failed, run['refuses'])} of the forced steps fail or do not help; it does not know in "
              f"{_share(sum(n for (s, _), n in counts.items() if s == 'unknown'), total)} of the places."]
    most = sorted(refusals.items(), key=lambda row: (-row[1]["right"], row[0]))[:12]
    return "\n".join(["# When a card is right", "", f"{total} places in kernels that the card was not made from, by the {len(singles)} admitted cards of one "
                      "step. Where a card applies (its conditions hold, and the framework carries the step out), the program is interpreted and compared "
                      "with the one before; where a condition is refuted, or unknown, the step is forced. *not carried out*: the conditions hold, and the step "
                      "cannot be undone exactly there, so that it is not offered; *no faster*: right, and not forecast to be faster by 2 % or more; *refused*: "
                      "the framework, the verifier or a rule of the architecture finds the fault; *not run*: no sizes at which both run, or too long.",
                      "", *shares, "",
                      "| the card says | places | right | no faster | wrong | refused | not run |",
                      "| --- | ---: | ---: | ---: | ---: | ---: | ---: |", *rows, "", *(f"- wrong: {each}" for each in wrong), "",
                      "Conditions that refused where the forced program was right and forecast to be faster:", "",
                      "| condition | right | no faster | wrong | refused | not run |", "| --- | ---: | ---: | ---: | ---: | ---: |",
                      *(f"| {id_} | {n['right']} | {n['no faster']} | {n['wrong']} | {n['refused']} | {n['not run']} |" for id_, n in most if n["right"]), ""])


def _share(part: int, of: int) -> str:
    return f"{100 * part / of:.1f} % ({part} of {of})" if of else "none"


def _judged(case: Case, given: Given) -> list[tuple[str, str, str, str]]:
    name, text, kernel = case
    card, program = next(c for c in given.cards if c.name == name), parse_program(text)
    out = []
    context = Context(target("sm_90a"))
    with suppress(KirError):
        taken = Counter[bool]()
        for site, failing in islice(judged(card, program, context), MOST_JUDGED):
            taken[bool(failing)] += 1
            if taken[bool(failing)] > PLACES:
                continue
            said = "applies" if not failing else "refuses" if any(v.kind == "refuted" for _, v in failing) else "unknown"
            came = _came(program, site, bool(failing))
            if said == "applies" and came == "refused":
                said = "not carried out"
            out.append((said, came, f"`{name}` on `{kernel}`: `{site.params}`", " ".join(id_ for id_, _ in failing)))
    return out


def _came(program: Program, site: Site, force: bool) -> str:
    try:
        made = apply(program, site.params, site, force=force, context=Context(target("sm_90a"))).program
    except Exception:  # what a forced step meets may be anything: it is found out either way
        return "refused"
    if force and legalize(made, target("sm_90a").architecture):
        return "refused"
    begun = time.monotonic()
    try:
        tests = relative_tests(made, program, ())
        found = check(made, tests, "the program before", relative=True, stopped=lambda: time.monotonic() - begun > SECONDS)
        if found.reason == "not all cases were run" or not tests.cases:
            return "not run"
        return "wrong" if not found.ok else "right" if not force or _faster(program, made) else "no faster"
    except Exception:  # the same
        return "not run" if not force else "refused"


def _faster(before: Program, after: Program) -> bool:
    """Whether a program is forecast to be faster, at the first sizes that it is profiled at."""
    with suppress(KirError, ValueError, ZeroDivisionError):
        sizes = profiled(after, None)
        surface = said_by(after, "cuda")
        return bool(sizes and surface) and Analytic()(Pair(before, after, sizes[0][1], target("sm_90a"), surface=surface)).median >= FASTER
    return False


# ---------------------------------------------------------------------------------------------------------------------- round trips

def round_trips(given: Given) -> str:
    """Which transitions of each lineage that ends naive an admitted card makes, from the naive end on."""
    rows = []
    whole = Counter[str]()
    walks = [w for w in given.walks if w.ended == "naive"][:given.most]
    for kernel, family, steps, ours, free in _side_by_side(_tripped, [w.key for w in walks], given):
        rows.append(f"| `{kernel}` | {family} | {steps} | {ours} | {free} |")
        whole["whole"] += ours == steps
        whole["steps"] += steps
        whole["ours"] += ours
        whole["free"] += free
    head = [f"{len(rows)} lineages that end naive. An admitted card makes {whole['ours']} of their {whole['steps']} steps (pass, parameters and place of the "
            f"expert's, or its program); {whole['whole']} lineages are made whole. Without lineage fields (each pass with its own defaults, as a search that "
            f"knows no cards would offer it) {whole['free']} steps are made."]
    return "\n".join(["# Round trips by admitted skills alone", "", *head, "", "| kernel | family | steps | by admitted cards | without cards |",
                      "| --- | --- | ---: | ---: | ---: |", *rows, ""])


def _tripped(key: str, given: Given) -> list[tuple[str, str, int, int, int]]:
    walk = next(w for w in given.walks if w.key == key)
    ours = free = 0
    for transition, before, _ in walk.chain():
        cards = [c for c in given.admitted if transition.name in c.passes]
        ours += any(_makes(card, before, transition) for card in cards)
        step = Step.from_json(transition.step)
        plain = {f"{site.params}@{step.at}" for site in sites(pass_class(step.name).with_options({}), before) if site.path == step.path}
        free += told(step) in plain
    return [(walk.kernel, walk.family, len(walk.transitions), ours, free)]


def _makes(card: Card, before: Program, transition: Transition, applications: Iterable[Application] | None = None) -> bool:
    wanted, others = told(Step.from_json(transition.step)), list[Application]()
    for each in applicable(card, before, Context(target("sm_90a"))) if applications is None else applications:
        if any(told(step) == wanted for step in each.steps):
            return True
        others.append(each)
    for each in others:
        with suppress(KirError):
            if content_hash(run(before, Pipeline(each.steps)).program) == transition.after:
                return True
    return False


# ------------------------------------------------------------------------------------------------------------------------ retrieval

def retrieval(given: Given) -> str:
    """Precision and recall at five on planted states; the time to search many cards, and to load the library."""
    load = _loaded(given)
    (seconds, *_), = _side_by_side(_timed, (0,), replace(given, workers=2, within=0.0))  # a process of its own: what searches words may bring threads
    parsed_ahead((w.programs[t.before_text] for w in given.walks for t in w.transitions), given.workers)
    states = seen(given.admitted, given.walks)
    families = sorted({each.family for each in states})
    given = replace(given, states=states)
    given = replace(given, ranks=dict(zip(families, (rank for rank, in _side_by_side(_ranked, families, given)), strict=False)))
    scores: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    cases = [(w.key, k) for w in given.walks if w.family in given.ranks for k in range(len(w.transitions))]
    random.Random(given.seed).shuffle(cases)
    for arm, *row in _side_by_side(_retrieved, cases[:given.most], given):
        scores[arm].append(tuple(row))
    rows = [f"| {arm} | {len(s)} | {' | '.join(f'{sum(column) / len(s):.2f}' for column in zip(*s, strict=True))} |" for arm, s in scores.items() if s]
    return "\n".join(["# Retrieval", "", "A planted state is a program of a lineage with the steps after it undone; relevant are the admitted cards that make "
                      f"a step which the expert has from there on. Precision at {TOP} is of the first {TOP} that apply (few are relevant: the most that it can "
                      "be stands beside it), precision at R of as many as are relevant. The order of cards is learned without the family of the state's "
                      "kernel; *usual order*: "
                      "without anything learned. States are taken in an order that the seed decides, those without a relevant card left out.", "",
                      "| arm | states | precision at 5 | at most | precision at R, at most 5 | recall at 5 |",
                      "| --- | ---: | ---: | ---: | ---: | ---: |", *rows, "",
                      f"{SYNTHETIC:,} synthetic cards are searched by facets, state and words in {1000 * seconds:.1f} ms (median of 9); the library of "
                      f"{len(given.cards)} cards is loaded in {1000 * load:.0f} ms.", ""])


def _ranked(family: str, given: Given) -> list[tuple[Rank]]:
    return [(learned(given.admitted, [each for each in given.states if each.family != family]),)]


def _retrieved(case: tuple[str, int], given: Given) -> list[tuple[str, float, float, float, float]]:
    """For each arm its precision at five, the most that it can be there, its precision at R, and recall, at one state; nothing where no card is relevant."""
    walk, before, offers, relevant = offered(case, given)
    if not relevant:
        return []
    rank, query = given.ranks[walk.family], Query.of(before, target(walk.targets[-1]), walk.surface)
    facets = ("case", "surface", "platform", "prior")
    scope = replace(query, features=frozenset(), places=frozenset())
    arms = {"all facets": _first(given, query, rank, offers), "no scope": _first(given, query, _without(rank, facets), offers),
            "usual order": _first(given, query, Rank(), offers), "no state": _first(given, scope, Rank(rank.weights), {c.name for c in given.admitted})}
    out, many = [], min(TOP, len(relevant))
    for arm, top in arms.items():
        hits = len(relevant & set(top))
        out.append((arm, hits / max(1, len(top)), many / max(1, len(top)), len(relevant & set(top[:many])) / many, hits / many))
    return out


def offered(case: tuple[str, int], given: Given) -> tuple[Walked, Program, set[str], set[str]]:
    """A state of a walk (by its key, and the number of the step after it): the walk, the program, the names of the admitted cards that apply, and of those
    that make a step which the expert has from there on, or its next program."""
    walk = next(w for w in given.walks if w.key == case[0])
    later = walk.transitions[case[1]:]
    before, context = walk.program(later[0].before_text), Context(target(walk.targets[-1]))
    wanted = {told(Step.from_json(t.step)) for t in later}
    offers, relevant = set[str](), set[str]()
    for card in given.admitted:
        applications = list(applicable(card, before, context))
        if applications:
            offers.add(card.name)
        if any(told(step) in wanted for each in applications for step in each.steps) or (
                later[0].name in card.passes and _makes(card, before, later[0], applications)):
            relevant.add(card.name)
    return walk, before, offers, relevant


def _without(rank: Rank, facets: Sequence[str]) -> Rank:
    return Rank({name: 0.0 if name in facets else value for name, value in rank.weights.items()}, rank.states)


def _first(given: Given, query: Query, rank: Rank, offers: Collection[str]) -> list[str]:
    """The first cards in the order of `search`, of those that apply."""
    order = Index.of(given.admitted, rank).best(query, max(TOP, MOST_LOOKED))
    return [name for name in (given.admitted[k].name for k, _ in order) if name in offers][:TOP]


def _timed(_: int, given: Given) -> list[tuple[float]]:
    return [(_searched(given),)]


def _searched(given: Given) -> float:
    pick = random.Random(given.seed)
    some = list(given.cards)
    drawn = [some[pick.randrange(len(some))] for _ in range(SYNTHETIC)]
    cards = [card.model_copy(update={"name": f"c{n}"}) for n, card in enumerate(drawn)]
    known = Library((CardStore(given.folder),)).rank if given.folder else library().rank
    states = {card.name: known.states[old.name] for card, old in zip(cards, drawn, strict=True) if old.name in known.states}
    index = Index.of(cards, Rank(known.weights, states))
    query = Query(frozenset({"shared", "mma", "threads"}), frozenset({"for", "mma", "kernel"}), "matmul", "cuda", "sm_90a", "stage a tile in shared memory")
    index.best(query)
    times = []
    for _ in range(9):
        begun = time.perf_counter()
        index.best(query)
        times.append(time.perf_counter() - begun)
    return median(times)


def _loaded(given: Given) -> float:
    begun = time.perf_counter()
    found = Library((CardStore(given.folder),)) if given.folder else library()
    assert len(found.cards) == len(given.cards)
    return time.perf_counter() - begun


# -------------------------------------------------------------------------------------------------------------------------- running

_GIVEN: list[Given] = []


def _side_by_side(work: Callable[..., list[tuple]], cases: Sequence[object], given: Given) -> Iterator[tuple]:  # type: ignore[type-arg]  # rows of any width
    """The rows of all cases, in their order; those of no case that is not done after the seconds that are given."""
    until = BEGAN + given.within if given.within else float("inf")
    if given.workers < 2:
        for case in cases:
            if time.monotonic() > until:
                return
            yield from work(case, given)
        return
    _GIVEN[:] = [given]
    pool = ProcessPoolExecutor(given.workers, mp_context=multiprocessing.get_context("fork"))
    try:
        with suppress(TimeoutError):
            for rows in pool.map(_one, [(work, case) for case in cases], timeout=max(1.0, until - time.monotonic()) if given.within else None):
                yield from rows
    finally:
        running = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in running if time.monotonic() > until else ():
            process.kill()


def _one(job: tuple[Callable[..., list[tuple]], object]) -> list[tuple]:  # type: ignore[type-arg]  # rows of any width
    return job[0](job[1], _GIVEN[0])


PARTS = {"coverage": coverage, "why": why, "when": when, "round-trips": round_trips, "retrieval": retrieval}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=sorted(PARTS))
    parser.add_argument("--library", type=Path)
    parser.add_argument("--evidence", type=Path, default=shipped())
    parser.add_argument("--most", type=int, default=3000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--within", type=float, default=0.0, help="seconds from the start after which no further case is counted (0: no limit)")
    parser.add_argument("--print", action="store_true", help="print the table and write no page")
    asked = parser.parse_args()
    found = Library((CardStore(asked.library),)) if asked.library else library()
    given = Given(found.cards, distinct(read_archive(asked.evidence)), asked.most, asked.workers, asked.seed, asked.library, asked.within)
    text = PARTS[asked.part](given)
    if asked.print:
        print(text)
    else:
        write_atomic(TABLES / f"skills-{asked.part}.md", f"{text}\nWritten by `python -m benchmarks.skills {asked.part}`.\n")


if __name__ == "__main__":
    main()
