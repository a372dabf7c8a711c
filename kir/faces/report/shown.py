"""One transition as a page shows it, and the environment that pages are rendered in."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib import resources

import jinja2
from markupsafe import Markup

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.faces.report.chart import seconds, times
from kir.faces.report.verdict import Row, verdict_rows
from kir.hardware.target import target
from kir.ir.nodes import Program
from kir.learning.forecast import Forecast, Pair
from kir.learning.forecast.choosing import forecaster
from kir.learning.forecast.shown import SHARE, brief
from kir.lineage.records.folder import Folder
from kir.lineage.records.record import Lineage, State, Step
from kir.lineage.records.speedup import measured_speedups, speedups
from kir.problem import load_problem

DiffHtml = Callable[[Program, Program], str]


@dataclass(frozen=True)
class Line:
    """A line of a textual diff: ``mark`` is a space, ``+``, ``-`` or ``…`` for lines left out."""

    mark: str
    text: str


@dataclass(frozen=True)
class Shown:
    """One transition as the page shows it, in the forward direction."""

    number: int
    step: Step
    before: State
    after: State
    speedup: Mapping[str, float]
    measured: Mapping[str, tuple[float, float, float]]
    forecast: Mapping[str, Forecast]
    diff: Markup
    code: tuple[Line, ...]
    emitted: str
    gate: tuple[Row, ...]
    residue: float
    languages: tuple[str, ...] = ()
    """What the two sides are written in where that differs: a surface that has no words for a program leaves it to another."""

    @property
    def realized(self) -> bool:
        """Whether the compiled code differs between the two sides."""
        return bool(self.step.realization and self.step.realization.realized)

    @property
    def compiled(self) -> bool:
        """Whether both sides were compiled, so that it is known whether the step is realized."""
        return bool(self.step.realization and self.step.realization.compiled)


def shown(lineage: Lineage, folder: Folder, diff_html: DiffHtml) -> tuple[Shown, ...]:
    """The transitions of a lineage, from the naive end. ``diff_html`` renders the structural difference of two programs."""
    programs = {state.text: folder.shown(state) for state in lineage.states}
    seen = forecasts(lineage, programs)
    return tuple(_shown(lineage, number, step, programs, diff_html, seen.get(number, {})) for number, step in lineage.transitions())


def forecasts(lineage: Lineage, programs: Mapping[str, Program]) -> Mapping[int, Mapping[str, Forecast]]:
    """What each transition is forecast to bring on the targets that the record models, at the shape that it models, by number and target: what gives
    the label "modelled" an interval. Nothing for a lineage whose problem is not known, and so no sizes."""
    header = lineage.header
    try:
        problem = load_problem(header.problem)
    except KirError:
        return {}
    shape = next(iter(problem.tagged("timed")), problem.shapes[0])
    sizes = {k: int(v) for k, v in problem.scalars(shape).items() if not isinstance(v, float)}
    ask = forecaster()
    out: dict[int, dict[str, Forecast]] = {}
    for number, step in lineage.transitions():
        assert step.after is not None
        for name in speedups(step):
            with suppress(KirError):  # sizes that a state does not take: its modelled figure stands alone
                pair = Pair(programs[step.after.text], programs[step.before.text], sizes, target(name), step.forward, header.surface)
                out.setdefault(number, {})[name] = ask(pair)
    return out


def held(steps: Iterable[Shown]) -> tuple[int, int]:
    """How many measured effects lie inside the forecast's interval for that device, and how many measured effects were forecast."""
    pairs = [(each[0], found.interval(SHARE)) for s in steps for device, each in s.measured.items() for name, found in s.forecast.items()
             if name.partition("-")[0] in device.lower().split()]
    return sum(low <= value <= high for value, (low, high) in pairs), len(pairs)


def render(template: str, values: Mapping[str, object]) -> str:
    """A template of this package with the style and the script inside it."""
    files = resources.files("kir.faces.report")
    inside = {name: Markup((files / file).read_text(encoding="utf-8")) for name, file in (("style", "style.css"), ("script", "keys.js"))}
    return environment().get_template(template).render({**values, **inside})


def environment(package: str = "kir.faces.report") -> jinja2.Environment:
    """How pages are rendered: templates of a package, else of this one; text is escaped, an unknown name is an error."""
    def load(name: str) -> str:
        own = resources.files(package) / name
        return (own if own.is_file() else resources.files("kir.faces.report") / name).read_text(encoding="utf-8")
    made = jinja2.Environment(loader=jinja2.FunctionLoader(load), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    made.filters |= {"times": times, "brief": brief, "seconds": seconds}
    return made


def lines(before: Iterable[str], after: Iterable[str]) -> tuple[Line, ...]:
    """A unified diff with three lines around each change."""
    rows = list(difflib.unified_diff(list(before), list(after), lineterm="", n=3))
    return tuple(Line("…", "") if row.startswith("@@") else Line(row[:1], row[1:]) for row in rows[2:])


def _shown(lineage: Lineage, number: int, step: Step, programs: Mapping[str, Program], diff_html: DiffHtml,
           forecast: Mapping[str, Forecast]) -> Shown:
    assert step.after is not None
    optimized = _emitted_of(lineage, step.before)
    languages = () if (one := language(step.emitted)) == (other := language(optimized)) or not (one and other) else (one, other)
    return Shown(
        number=number,
        step=step,
        before=step.after,
        after=step.before,
        speedup=speedups(step),
        measured=measured_speedups(step),
        forecast=forecast,
        diff=Markup(diff_html(programs[step.after.text], programs[step.before.text])),
        code=lines(step.emitted.splitlines(), optimized.splitlines()) if not languages else (),
        emitted=optimized,
        gate=verdict_rows(step.gate),
        residue=step.residue_bytes,
        languages=languages,
    )


def language(text: str) -> str:
    """What emitted source is written in; "" where it does not show."""
    return next((name for mark, name in (("@triton.jit", "Triton"), ("@T.prim_func", "TileLang"), ("__global__", "CUDA C++")) if mark in text), "")


def _emitted_of(lineage: Lineage, state: State) -> str:
    """The source that was emitted for a state: its own step's, or the expert's."""
    for step in lineage.accepted:
        if step.after is not None and step.after.content == state.content:
            return step.emitted
    return lineage.start_emitted
