"""What a fuzzing run keeps: the next seed, counts, and each fault with its seed and its shrunk program. Outside of the repository by default."""
from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from platformdirs import user_state_path

from benchmarks.fuzz.checking import Fault
from kir.base.dataclass import dataclass
from kir.base.store import write_atomic

SHOWN = 5
"""Cases that are kept of one kind of fault."""


def default_folder() -> Path:
    """Where the state is kept when no folder is named."""
    return user_state_path("kir") / "fuzz"


@dataclass
class State:
    """Seeds from 0 to `seed` are done but for those that are `left`; `seconds` of processor time were spent on them. Faults by kind: how many, and the
    first cases; of each kind how many were there when it was `mended`; and programs by the day on which they were done."""

    seed: int = 0
    left: list[int] = field(default_factory=list)
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    forms: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    cases: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    mended: Counter[str] = field(default_factory=Counter)
    days: Counter[str] = field(default_factory=Counter)

    @property
    def open(self) -> Counter[str]:
        """Faults that are not mended, by kind."""
        return self.kinds - self.mended

    def mend(self, kinds: Iterable[str]) -> None:
        """What was found of some kinds by now is mended: their cases are let go but for the first, what is found from now on is new."""
        for kind in kinds:
            self.mended[kind] = self.kinds[kind]
            self.cases[kind] = [{**self.cases[kind][0], "before": "", "after": "", "done": "", "shrunk": ""}]

    def add(self, fault: Fault, seed: int, shrunk: str) -> None:
        """Count a fault, and keep it where few of its kind are kept."""
        self.kinds[fault.kind] += 1
        kept = self.cases.setdefault(fault.kind, [])
        if len(kept) < SHOWN + (1 if self.mended[fault.kind] else 0):
            kept.append({**asdict(fault), "seed": seed, "shrunk": shrunk})

    def take(self, seed: int, form: str, counts: Counter[str], seconds: float) -> None:
        """Count a seed that is done, in whatever order they end."""
        self.left = sorted({*self.left, *range(self.seed, seed)} - {seed})
        self.seed = max(self.seed, seed + 1)
        self.forms[form] += 1
        self.days[today()] += 1
        self.counts += counts
        self.seconds += seconds

    def write(self, folder: Path) -> None:
        """To `state.json`, at once or not at all."""
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / "state.json", json.dumps(vars(self), indent=1, sort_keys=True).encode())

    @classmethod
    def read(cls, folder: Path) -> State:
        """What `write` wrote, or a new one."""
        file = folder / "state.json"
        if not file.is_file():
            return cls()
        held = json.loads(file.read_text())
        return cls(held["seed"], held["left"], held["seconds"], Counter(held["counts"]), Counter(held["forms"]), Counter(held["kinds"]), held["cases"],
                   Counter(held.get("mended", {})), Counter(held.get("days", {})))


def today() -> str:
    """The day, of all the world."""
    return datetime.now(UTC).date().isoformat()


def of_the_last_day(days: Mapping[str, int]) -> str:
    """How many programs of a page are of its last day, by the code of that day; "" where none is counted by days."""
    return f"; {days[last]:,} of them by the code of {last}" if (last := max(days, default="")) else ""


def page(state: State, mended: str) -> str:
    """docs/tables/fuzz.md: counts, rates and faults by kind, and what was `mended` (text of a file)."""
    hours = max(state.seconds, 1e-9) / 3600
    checked = sum(v for k, v in state.counts.items() if not any(word in k for word in ("refused", "left out", "reason", "another form", "given up")))
    lines = ["# Random programs", "", "Made by `python -m benchmarks.fuzz --state benchmarks/results/fuzz --write` (`make fuzz` goes on in a folder of its "
             "own): programs of `benchmarks/fuzz/making.py`, "
             "through everything that reads, rewrites, runs and writes programs, each result checked against the others; beside each, one that "
             "is mostly wrong (threads that leave loops around barriers, what is waited for: `refuting.py`), of which nothing "
             "is called proved that a run refutes.", "",
             f"{state.seed - len(state.left):,} programs, {checked:,} checked applications, {state.seconds / 60:.0f} minutes of processor time "
             f"({checked / hours:,.0f} an hour){of_the_last_day(state.days)}.", "", "| what | times |", "| --- | ---: |"]
    lines += [f"| {k} | {v:,} |" for k, v in sorted(state.counts.items(), key=lambda kv: (-kv[1], kv[0]))]
    lines += ["", "| form of the program | programs |", "| --- | ---: |", *(f"| {k} | {v:,} |" for k, v in sorted(state.forms.items()))]
    lines += ["", "## Faults by kind", "", "| kind | times | first seed | in words | mended |", "| --- | ---: | ---: | --- | --- |"]
    for kind, times in sorted(state.kinds.items(), key=lambda kv: (-kv[1], kv[0])):
        first = state.cases[kind][0]
        lines.append(f"| {_cell(kind)} | {times:,} | {first['seed']} | {_cell(first['why'])[:160]} | {'no' if state.open[kind] else 'yes'} |")
    if not state.kinds:
        lines.append("| none | | | | |")
    return "\n".join(lines) + "\n" + (f"\n{mended}" if mended else "")


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


__all__ = ["State", "default_folder", "of_the_last_day", "page", "today"]
