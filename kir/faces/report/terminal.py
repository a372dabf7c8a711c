"""A lineage in the terminal: the chain as a table, and what a replay found."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kir.faces.report.chart import times
from kir.lineage.records.record import Lineage, Step
from kir.lineage.records.speedup import measured_speedups, speedups

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    from kir.lineage.crossing import Crossed
    from kir.lineage.replay import Replayed


MOST_LIST = 48
"""Characters of a list of which all is shown."""
WIDE = 100
"""Characters of a terminal in which what passes intend has a column."""
MOST_WORD = 24
"""The least width that a column of steps asks for, in characters."""


def summary(lineage: Lineage) -> dict[str, Any]:
    """The figures of a lineage, as JSON."""
    outcome = lineage.outcome
    realized = {step.intent for step in lineage.accepted if step.realization and step.realization.realized}
    return {
        "expert": lineage.header.expert,
        "problem": lineage.header.problem,
        "surface": lineage.header.surface,
        "targets": list(lineage.header.targets),
        "ended": outcome.ended,
        "reason": outcome.reason,
        "violations": [each.model_dump() for each in outcome.violations],
        "steps": len(lineage.accepted),
        "realized": outcome.realized,
        "intents": sorted(realized),
        "rejected": len(lineage.rejected),
        "residue_bytes": outcome.residue_bytes,
        "residue_share": outcome.residue_bytes / outcome.expert_bytes if outcome.expert_bytes else 0.0,
        "expert_hash": lineage.start.content,
        "naive_hash": lineage.states[-1].content,
        "seal": lineage.seal,
        "transitions": [_transition(number, step) for number, step in lineage.transitions()],
    }


def _transition(number: int, step: Step) -> dict[str, Any]:
    assert step.after is not None
    return {
        "number": number,
        "intent": step.intent,
        "forward": step.forward,
        "before": step.after.content,
        "after": step.before.content,
        "realized": bool(step.realization and step.realization.realized),
        "speedup_modelled": speedups(step),
        "speedup_measured": {name: {"median": each[0], "interval": list(each[1:])} for name, each in measured_speedups(step).items()},
        "residue_bytes": step.residue_bytes,
        "verdicts": {each.id: each.verdict for each in step.conditions},
    }


class Chain:
    """The forward transitions as a table: where a terminal is narrow without what their passes intend, so that a step has room."""

    def __init__(self, lineage: Lineage) -> None:
        self.lineage = lineage

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        yield table(self.lineage, options.max_width >= WIDE)


def table(lineage: Lineage, intents: bool = True) -> Table:
    """The forward transitions, one a row, under a line that says how the walk ended."""
    from rich.table import Table
    from rich.text import Text

    outcome = lineage.outcome
    share = 100 * outcome.residue_bytes / outcome.expert_bytes if outcome.expert_bytes else 0.0
    ended = {"naive": "walked back to naive", "stuck": "not naive yet", "budget": "the budget ended"}[outcome.ended]
    title = f"{lineage.header.expert}: {ended}; {realized_text(lineage)}; residue {share:.1f} %"
    shown = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim", caption_justify="left")
    shown.caption = _uncompiled(lineage) or None
    shown.add_column("#", justify="right")
    if intents:
        shown.add_column("intent", no_wrap=True)
    shown.add_column("forward step")
    kernels = {step.forward.rpartition("@")[2].partition("/")[0] for _, step in lineage.transitions()}
    shown.add_column("realized", no_wrap=True)
    measured = any(state.measured for state in lineage.states)
    shown.add_column("measured" if measured else "modelled", justify="right", no_wrap=True)
    shown.add_column("residue", justify="right", no_wrap=True)
    for number, step in lineage.transitions():
        realized, known = bool(step.realization and step.realization.realized), bool(step.realization and step.realization.compiled)
        mark = Text("yes", style="green") if realized else Text("no", style="yellow") if known else Text("-", style="dim")
        ratio = next(iter(speedups(step).values()), None)
        faster = times(ratio) if ratio else ""
        if measured:
            found = next(iter(measured_speedups(step).values()), None)
            faster = f"{times(found[0])} ({found[1]:.3g} .. {found[2]:.3g})" if found else ""
        named = [str(number), step.intent] if intents else [str(number)]
        shown.add_row(*named, Stepped(_brief(step.forward, len(kernels) == 1)), mark, faster, f"{step.residue_bytes} B")
    return shown


class Stepped:
    """A step in a narrow column: lines end between its parameters or before its place, never inside a word; a word that no line holds is shortened."""

    def __init__(self, step: str) -> None:
        self.words = [w for w in re.split(r"(?<= )|(?=@)|(?<=\{)", step) if w]

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        from rich.measure import Measurement

        return Measurement(min(MOST_WORD, max(map(len, self.words), default=1)), max(1, sum(map(len, self.words))))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        yield Text("\n".join(self.lines(options.max_width)))

    def lines(self, width: int) -> list[str]:
        """The step in lines of a width; what follows the first is indented."""
        out = [""]
        for word in self.words:
            indent = "  " if len(out) > 1 else ""
            if len(out[-1]) + len(word.rstrip()) > width and out[-1].strip():
                out.append("  ")
                indent = "  "
            room = max(4, width - len(indent))
            out[-1] += word if len(word.rstrip()) <= room else f"{word[: room - 2]}.."
        return [line.rstrip() for line in out]


def realized_text(lineage: Lineage) -> str:
    """How many steps arrived in the compiled code; where nothing was compiled, that this is not known."""
    count = len(lineage.accepted)
    if count and not any(step.realization and step.realization.compiled for step in lineage.accepted):
        return f"{count} step{'' if count == 1 else 's'}, not compiled"
    return f"{lineage.outcome.realized} of {count} steps realized"


def _uncompiled(lineage: Lineage) -> str:
    """Why steps were not compared in compiled form ("" where all were)."""
    return next((step.realization.reason for _, step in lineage.transitions() if step.realization and not step.realization.compiled), "")


def _brief(forward: str, alone: bool) -> str:
    """A step for a narrow column: long quoted texts and long lists shortened, and no kernel's name where the program has one kernel."""
    step, at, anchor = forward.rpartition("@")
    if not at:
        return forward
    step = re.sub(r'"[^"]{24,}"', lambda quoted: f"{quoted[0][:20]}..\"", step)
    step = re.sub(r'=\[((?:[^\]"]|"[^"]*")*)\]', _fewer, step)
    place = anchor.partition("/")[2] if alone else anchor
    return f"{step}@{place}" if place else step


def _fewer(listed: re.Match[str]) -> str:
    """A list, or the first two of a long one and how many more there are."""
    items = re.findall(r'"[^"]*"|[^,\s"][^,"]*', listed[1])
    return listed[0] if len(listed[1]) <= MOST_LIST or len(items) < 4 else f"=[{', '.join(items[:2])}, .. {len(items) - 2} more]"


def replay_json(replayed: Replayed) -> dict[str, Any]:
    """A replay as JSON: each transition with the hash expected and found."""
    return {
        "ok": replayed.ok,
        "transitions": [
            {"number": each.number, "forward": each.step.forward, "expected": each.expected, "found": each.found, "exact": each.exact}
            for each in replayed.transitions
        ],
    }


def replay_text(lineage: Lineage, replayed: Replayed) -> str:
    """A replay in two lines."""
    count, total = sum(1 for each in replayed.transitions if each.ok), len(lineage.accepted)
    if not replayed.ok:
        return f"{count} of {total} transitions replayed, then it differs"
    letters = " to the letter" if all(each.exact for each in replayed.transitions) else ""
    return f"{total} of {total} transitions replayed{letters}; the expert {lineage.start.content[:16]} is restored"


def crossed_json(done: Crossed) -> dict[str, Any]:
    """What became of each step on another kernel, as JSON."""
    return {
        "meets": done.meets,
        "undone": done.undone,
        "carried": sum(each.carried for each in done.steps),
        "steps": [
            {"number": each.number, "intent": each.step.intent, "stored": each.step.forward, "outcome": each.outcome, "step": each.text, "reason": each.reason,
             **({"diagnostic": each.diagnostic.to_json()} if each.diagnostic is not None else {})}
            for each in done.steps
        ],
    }


def crossed_text(lineage: Lineage, done: Crossed, on: str, surface: str, accepted: bool | None) -> str:
    """A line for each step, and one that sums up."""
    width = max((len(each.step.intent) for each in done.steps), default=0)
    rows = []
    for each in done.steps:
        rows.append(f"{each.number:>3}  {each.step.intent:<{width}}  {each.outcome}")
        rows += [f"{'':>5}{each.reason}"] if each.reason else []
    after = f" after {done.undone}" if done.undone else ""
    where = ("its naive program in other words" if done.meets else "another program than the one it was learned on") + after
    carried = sum(each.carried for each in done.steps)
    judged = {None: "", True: "; the gate accepts the result", False: "; the gate refuses the result"}[accepted]
    rows.append(f"{carried} of {len(done.steps)} steps of {lineage.header.expert} ({lineage.header.surface}) carried to {on}, {where}, as {surface}{judged}")
    return "\n".join(rows)
