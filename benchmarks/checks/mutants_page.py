"""The part of docs/tables/mutants.md about mutants that compute the wrong thing."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kir.gate.mutants import RULES

PAGE = Path(__file__).parents[2] / "docs" / "tables" / "mutants.md"
TITLE = "# What the gate says of mutants that compute the wrong thing"


@dataclass(frozen=True)
class Row:
    """One mutant as it came out. `truth` has `trial` ("" where nothing tells it apart), `why`, `factor`, or is `unasked`;
    `gate` has `ok`, `reason`, `worst`; either may be
    `broken` instead. `cause` says why a mutant that is told apart was not refused: `cause`, and `bound`, its error as a multiple of the gate's bound."""

    program: str
    kind: str
    rule: str
    anchor: str
    how: str
    truth: dict[str, Any]
    gate: dict[str, Any]
    cause: dict[str, Any]

    @property
    def is_told(self) -> bool:
        """Whether the run over large shapes tells it apart."""
        return bool(self.truth.get("trial")) and not self.is_broken

    @property
    def is_unasked(self) -> bool:
        """Whether nothing was run to tell it apart, as the gate refuses it."""
        return bool(self.truth.get("unasked"))

    @property
    def is_refused(self) -> bool:
        """Whether the gate refuses it."""
        return self.gate.get("ok") is False

    @property
    def is_broken(self) -> bool:
        """Whether its truth or its verdict was not found: it took too long, or something broke."""
        return "broken" in self.truth or "broken" in self.gate

    @property
    def is_allowed(self) -> bool:
        """Whether it is told apart by less than the problem, or the bound beside another program, allows: then it is accepted by right."""
        return self.is_told and not self.is_refused and str(self.cause.get("cause", "")).startswith("within the bound")

    @property
    def is_honest(self) -> bool:
        """Whether, at all inputs that were tried, it errs by no more than an honest program for which the same bound is stated: none refuses it alone."""
        found = self.cause.get("beside")
        return self.is_allowed and found is not None and max(found["gate"], *(mine for _, mine, *_ in found["made"])) <= max(
            found["honest"][0], *(other for _, _, other, _ in found["made"]))

    @property
    def key(self) -> str:
        """Which mutant it is."""
        return f"{self.program} {self.rule} {self.anchor} {self.how}"

    @property
    def said(self) -> str:
        """The outcome in a few words."""
        truth = self.truth.get("broken") or ("not asked" if self.is_unasked else "equivalent")
        if self.is_told:
            truth = f"told apart at {self.truth['trial']}, {self.truth['factor']:.3g}"
        gate = self.gate.get("broken") or ("refused" if self.is_refused else f"ACCEPTED, {self.gate['worst']:.2g} of its bound")
        return f"{truth}; {gate} ({self.truth['seconds']} + {self.gate['seconds']} s)"


def share(rows: Sequence[Row], wrong: bool = False, refusable: bool = False) -> float:
    """The part of the mutants that are told apart which the gate refuses; `wrong`: of those by more than is allowed; `refusable`: of those that a bound could
    refuse."""
    told = [r for r in rows if r.is_told and not (wrong and r.is_allowed) and not (refusable and r.is_honest)]
    return sum(r.is_refused for r in told) / len(told) if told else 1.0


def _equivalent(r: Row) -> bool:
    return not r.is_told and not r.is_broken and not r.is_unasked


def _unasked(r: Row) -> bool:
    return r.is_unasked and r.is_refused


def summary(rows: Sequence[Row]) -> str:
    """The counts in a sentence."""
    told = [r for r in rows if r.is_told]
    return (f"{len(rows)} mutants of {len({r.program for r in rows})} programs by {len({r.rule for r in rows})} rules: {len(told)} are told apart by a run in "
            f"float64 over large shapes, {sum(r.is_refused for r in told)} of them ({100 * share(rows):.1f} %) are refused by the gate's correctness stage, "
            f"{sum(r.is_allowed for r in told)} are within the bound that is stated for them, and {sum(not (r.is_refused or r.is_allowed) for r in told)} are "
            f"wrong and accepted ({100 * share(rows, True):.1f} % of what is wrong is refused); {sum(r.is_honest for r in told)} err by no more than an honest "
            f"program for which the same bound is stated, so that no bound refuses them alone ({100 * share(rows, refusable=True):.1f} % of the others are "
            f"refused); "
            f"{sum(_equivalent(r) for r in rows)} are equivalent as far as those runs show "
            f"({sum(_equivalent(r) and r.is_refused for r in rows)} of these are refused all the same); "
            f"{sum(_unasked(r) for r in rows)} are refused, and were not run beyond that; of {sum(r.is_broken for r in rows)} "
            "one of the two is not known.")


def values(rows: Sequence[Row]) -> str:
    """The whole part: counts by program and by rule, what was not refused and why, and what the rules do."""
    lines = [TITLE, "", "Written by `python -m benchmarks.checks.value_mutants` (with `--quick`, what the gate refuses is run no further; a run that was cut",
             "short has some of each program). Each mutant is one change of a program's IR by a rule of `kir.gate.mutants`;",
             "`kir/gate/mutants/truth.py` says when a mutant is told apart. The kernels of packages have the sizes of their recordings; those of",
             "`benchmarks/beside` and those with a changed meta have wider tiles than the experts.", "", summary(rows), "", "## By program", ""]
    lines += _table("program", rows, lambda r: r.program if r.kind != "package" else f"{r.program.partition(':')[0]} (kernels of the package)")
    lines += ["", "## By rule", ""]
    lines += _table("rule", rows, lambda r: r.rule)
    kept = [r for r in rows if r.is_told and not r.is_refused]
    lines += ["", "## Told apart, and not refused", ""]
    if kept:
        lines += ["*Bound*: the error of the mutant at the trial as a multiple of the gate's bound there. *Within the bound*: the problem allows as",
                  "much, or the bound beside another program does; *tame inputs*: a shape of the gate with inputs of the trials shows it; *shape never",
                  "reached*: none does.", "",
                  "| program | rule | place | change | told apart at | factor | bound | reason |", "| --- | --- | --- | --- | --- | ---: | ---: | --- |"]
        lines += [_row(r.program, r.rule, f"`{r.anchor}`", r.how, r.truth["trial"], _figure(r.truth["factor"]), _figure(r.cause.get("bound")),
                       r.cause.get("cause") or r.cause.get("broken") or r.gate.get("broken") or "") for r in kept]
    else:
        lines += ["None."]
    if beside := [(r, r.cause["beside"]) for r in kept if "beside" in r.cause]:
        lines += ["", "## Within the bound, beside honest programs", "",
                  "Written by `--allowed`: the worst error of each in bounds, at the gate's runs and at inputs made to tell them apart. Where an honest",
                  "program of a problem that allows the same errs by more than the mutant, a bound that refuses the mutant refuses that program too.", "",
                  "| program | change | inputs | mutant | honest program that errs most | its error | what would refuse the mutant |",
                  "| --- | --- | --- | ---: | --- | ---: | --- |"]
        for r, found in beside:
            cases = [["those of the gate", found["gate"], *found["honest"]], *found["made"]]
            lines += [_row(r.program, r.how, name, _figure(mine), who, _figure(other), "these inputs" if mine > 1 >= other else
                           "no bound that keeps that program" if mine <= other else "a tighter bound") for name, mine, other, who in cases]
    broken = Counter(f"{r.program}: {r.truth.get('broken') or r.gate.get('broken')}" for r in rows if r.is_broken)
    lines += ["", "## Not known", "", *(f"- {said} ({count} mutant{'s' * (count > 1)})" for said, count in broken.items())]
    lines += [] if broken else ["None."]
    lines += ["", "## The rules", "", *(f"- `{r.name}`: {r.doc}" for r in RULES), ""]
    return "\n".join(lines)


def _table(what: str, rows: Iterable[Row], key: Callable[[Row], str]) -> Iterator[str]:
    groups: dict[str, list[Row]] = {}
    for r in rows:
        groups.setdefault(key(r), []).append(r)
    yield from (f"| {what} | mutants | told apart | refused of these | equivalent | refused, no more run |",
                "| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, some in groups.items():
        told = [r for r in some if r.is_told]
        yield _row(name, str(len(some)), str(len(told)), str(sum(r.is_refused for r in told)), str(sum(_equivalent(r) for r in some)),
                   str(sum(_unasked(r) for r in some)))


def _row(*cells: str) -> str:
    return "| " + " | ".join(" ".join(c.replace("|", "\\|").split()) for c in cells) + " |"


def _figure(x: float | None) -> str:
    return "" if x is None else "inf" if x >= 1e299 else f"{x:.3g}"


def with_values(page: str, rows: Sequence[Row]) -> str:
    """A page whose part about values is this; what stands before it stays."""
    return page.partition(TITLE)[0].rstrip("\n") + "\n\n" + values(rows)
