"""The timeline of a CTA as lanes to draw: what the cost model has it do when, with the rounds of loops that are not run one by one folded to a mark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kir.base.dataclass import dataclass
from kir.gate.counts.schedule import Span

FOLDED = "rounds"
ORDER = ("copy in flight", "store in flight", "memory", "fill", "shared", "product in flight", "tensor", "fma", "alu", "half", "convert", "special", "double",
         "issue", "unrolled", "wait", "barrier")
"""Lanes from above; others come after them."""
NAMES = {"unrolled": "more rounds, unrolled"}


@dataclass(frozen=True)
class Bar:
    """A piece of a lane, in cycles of the drawn axis, and what it is."""

    begin: float
    end: float
    what: str


@dataclass(frozen=True)
class Lane:
    """What a team's warps have a resource do."""

    name: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Timeline:
    """What one team does: lanes over drawn cycles; `folds` are places where rounds were left out, each with what they are and the cycles that they take."""

    name: str
    lanes: tuple[Lane, ...]
    folds: tuple[tuple[float, str], ...]
    drawn: float


def timelines(spans: Sequence[Span]) -> tuple[Timeline, ...]:
    """A timeline for each team of warps that does something: teams run beside one another, so that each folds rounds of its own."""
    teams = sorted({s.team for s in spans if s.lane != FOLDED})
    return tuple(_of_team([s for s in spans if s.team == team], f"team {team}" if team else "all warps") for team in teams)


def _of_team(spans: Sequence[Span], name: str) -> Timeline:
    outer: list[Span] = []
    for each in sorted((s for s in spans if s.lane == FOLDED), key=lambda s: (s.begin, -s.end)):
        if not outer or each.begin >= outer[-1].end:
            outer.append(each)

    def folded(at: float) -> float:
        return at - sum(min(at, f.end) - f.begin for f in outer if f.begin < at)
    first = min(s.begin for s in spans)
    held: dict[str, list[Bar]] = {}
    for s in spans:
        if s.lane != FOLDED and folded(s.end) > folded(s.begin):
            held.setdefault(s.lane, []).append(Bar(folded(s.begin) - first, folded(s.end) - first, f"{s.what}: cycles {s.begin:,.0f} to {s.end:,.0f}"))
    rank = {each: k for k, each in enumerate(ORDER)}
    lanes = tuple(Lane(NAMES.get(each, each), tuple(_merged(held[each]))) for each in sorted(held, key=lambda k: (rank.get(k, len(ORDER)), k)))
    drawn = max((bar.end for lane in lanes for bar in lane.bars), default=0.0)
    return Timeline(name, lanes, tuple((min(drawn, folded(f.begin) - first), f"{f.what}, {f.end - f.begin:,.0f} cycles") for f in outer), drawn)


def _merged(bars: Iterable[Bar]) -> Iterable[Bar]:
    """Bars of one thing that touch are one."""
    out: list[Bar] = []
    for bar in sorted(bars, key=lambda b: (b.begin, b.end)):
        last = out[-1] if out else None
        if last is not None and bar.begin <= last.end and bar.what.partition(":")[0] == last.what.partition(":")[0]:
            out[-1] = Bar(last.begin, max(last.end, bar.end), last.what)
        else:
            out.append(bar)
    return out
