"""The page docs/tables/probes.md."""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kir.learning.probes.around import boundary
from kir.learning.probes.record import Probe, Refusal, Standing
from kir.learning.probes.sampling import Tally
from kir.rewrite.registry import pass_class

PAGE = Path(__file__).parents[2] / "docs" / "tables" / "probes.md"
Rows = Sequence[tuple[str, Probe]]
Around = Sequence[tuple[str, str, Sequence[Probe]]]
"""Of each pass its name, the program, and the probes, the first of the program itself."""
STANDINGS: tuple[Standing, ...] = ("refuted", "hardware", "by size", "unknown")
EXPLAINED: Mapping[str, str] = {
    "KIR-P041": "lifetimes are compared by statements of the loop over threads: two arrays in one of them may be in use in turn",
    "KIR-P042": "as KIR-P041: without a barrier the order that the interpreter takes may be a right one"}
"""Preconditions of which a refuted site may be right at the sizes that are tried, and why."""


def first(probe: Probe) -> Refusal:
    """The refusal under which a forced site is counted: the first of the strongest claim."""
    return next(r for r in probe.refusals if r.standing == probe.standing)


def unexplained(rows: Rows) -> list[tuple[str, Probe]]:
    """Sites that are called refuted, came out right, and have no explanation."""
    return [(name, p) for name, p in rows if p.standing == "refuted" and p.outcome == "right" and first(p).id not in EXPLAINED]


def page(tally: Tally, rows: Rows, around: Around, programs: int, command: str) -> str:
    """The whole page, which a command has written."""
    return "\n".join([*_head(tally, rows, programs, command), *_offered(tally), *_forced(rows), *_right(rows), *_around(around)])


def _head(tally: Tally, rows: Rows, programs: int, command: str) -> Iterator[str]:
    count = Counter((p.standing, p.outcome) for _, p in rows)
    by = {s: sum(c for (t, _), c in count.items() if t == s) for s in STANDINGS}
    total, refuted, unknown = len(rows), by["refuted"], by["unknown"]
    yield from ("# What passes offer and refuse, tried", "", f"Written by `{command}`; `kir/learning/probes/` has what it does.", "")
    yield (f"{programs} programs: small ones of all problems and experts as read from the IR and three surfaces, and those that three random steps lead to. "
           "Each registered pass was asked with its defaults and with parameters drawn at random.")
    yield ""
    found, refused, near, shown, applied = (sum(c.values()) for c in (tally.matched, tally.refused, tally.near, tally.offered, tally.applied))
    yield (f"- **Offered**: patterns found {found:,} sites. A precondition refused {refused:,}; of the others {near:,} did not lead back when they were tried, "
           f"and are near misses with a reason; {shown:,} were offered, and {applied:,} of these applied ({_share(applied, shown)}).")
    right = count["refuted", "right"]
    yield (f"- **Refused and forced**: {total:,} sites. {refuted:,} were called refuted, of which {right:,} were right at all tried sizes "
           f"({_share(right, refuted)}). Of {by['hardware']:,} a rule of the hardware or of a compiler was named.")
    yield (f"- {by['by size']:,} were called wrong at some sizes and right at others, which the verdict names: {count['by size', 'wrong']:,} were wrong when "
           f"they were run, {count['by size', 'right']:,} right at all tried sizes.")
    open_ = count["unknown", "right"]
    yield (f"- {unknown:,} ({_share(unknown, total)}) were called unknown: {unknown - open_ - count['unknown', 'not run']:,} were wrong when they were run, "
           f"which refutes them with a witness; {open_:,} ({_share(open_, total)}) were right at all tried sizes, and stay unknown; "
           f"{count['unknown', 'not run']:,} took too long to run.")
    yield ""


def _share(part: int, of: int) -> str:
    return f"{100 * part / of:.1f} %" if of else "none"


def _offered(tally: Tally) -> Iterator[str]:
    yield from ("## Offered", "", "| pass | sites found | refused by a precondition | near miss when tried | offered | applied |",
                "| --- | ---: | ---: | ---: | ---: | ---: |")
    for name in sorted(tally.matched):
        yield _row(name, *(getattr(tally, k)[name] for k in ("matched", "refused", "near", "offered", "applied")))
    yield from ("", "Why sites are near misses, by what was said most often:", "", "| pass | reason | sites |", "| --- | --- | ---: |")
    kinds: Counter[tuple[str, str]] = Counter()
    for (name, why), count in tally.reasons.items():
        kinds[name, _plain(why)] += count
    for (name, why), count in sorted(kinds.items(), key=lambda x: (-x[1], x[0]))[:25]:
        yield _row(name, why, count)
    yield ""


def _plain(text: str) -> str:
    return re.sub(r"it reads .* there", "it reads another spelling there", re.sub(r"'[^']*'", "..", text))[:140]


def _forced(rows: Rows) -> Iterator[str]:
    yield from ("## Refused and forced", "", "A site counts once, under the strongest claim of its refusals. *By size*: the verdict",
                "names sizes at which it fails, and the condition under which it holds. *Rule*: what the target has not, or forbids.", "",
                "| pass | precondition | category | refuted: wrong | refuted: rule | refuted: right | hardware | by size: wrong | by size: right | "
                "unknown: wrong | unknown: right | not run |", "| --- | --- | --- | " + "---: | " * 8 + "---: |")
    groups: dict[tuple[str, str], Counter[tuple[str | None, str]]] = {}
    for _, p in rows:
        name = re.split(r"[{@ ]", p.step, maxsplit=1)[0]
        groups.setdefault((name, first(p).id), Counter())[p.standing, p.outcome] += 1
    for (name, id_), c in sorted(groups.items()):
        category = next((x.category for x in pass_class(name).preconditions if x.id == id_), "")
        hardware = sum(v for (s, _), v in c.items() if s == "hardware")
        idle = sum(v for (s, o), v in c.items() if o == "not run" and s != "hardware")
        wrong = {s: c[s, "wrong"] + (c[s, "hardware"] if s != "refuted" else 0) for s in STANDINGS}
        yield _row(name, id_, category, wrong["refuted"], c["refuted", "hardware"], c["refuted", "right"], hardware, wrong["by size"], c["by size", "right"],
                   wrong["unknown"], c["unknown", "right"], idle)
    yield ""


def _right(rows: Rows) -> Iterator[str]:
    yield from ("## Refuted, and right at all tried sizes", "")
    found = [(name, p) for name, p in rows if p.standing == "refuted" and p.outcome == "right"]
    if not found:
        yield "None."
        return
    yield from ("| program | step | precondition | it says | why it was right |", "| --- | --- | --- | --- | --- |")
    for name, p in found:
        yield _row(name, f"`{p.step.partition(' on ')[0]}`", first(p).id, first(p).reason, EXPLAINED.get(first(p).id, "**not explained**"))


def _around(around: Around) -> Iterator[str]:
    yield from ("", "## Around a step", "", "A step of each pass on the smallest program that offers it, and on variations of that program: facts on sizes,",
                "dtype, alignment, stride, target, a step before it; alone and in pairs. A step that applies and is wrong would be a defect of its pass.", "",
                "| pass | program | probes | applies: right | applies: wrong | refused: wrong | refused: right | does not match | not run | what ends it |",
                "| --- | --- | " + "---: | " * 7 + "--- |")
    for name, program, probes in around:
        if probes:
            c = Counter((p.status, "wrong" if p.is_counterexample else p.outcome) for p in probes)
            idle = sum(v for (status, outcome), v in c.items() if outcome == "not run" and status != "miss")
            ends = dict.fromkeys(f"{p.varied[0]} ({p.refusals[0].id if p.refusals else p.status})" for _, p in boundary(probes) if p.status != "applies")
            misses = sum(v for (status, _), v in c.items() if status == "miss")
            yield _row(name, program, len(probes), c["applies", "right"], c["applies", "wrong"], c["refused", "wrong"], c["refused", "right"], misses, idle,
                       "; ".join(list(ends)[:3]))
    yield ""


def _row(*cells: object) -> str:
    return "| " + " | ".join(" ".join(str(c).replace("|", "\\|").split()) for c in cells) + " |"
