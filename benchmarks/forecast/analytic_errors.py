"""``python -m benchmarks.forecast.analytic_errors``: the cost model against measured effects, by family.

For each family and surface: right signs of steps beyond 3 %, and of those between 0.5x and 2x; pairs of programs of one group and shape ordered
rightly; and of single programs the median and the spread of log(modelled / measured). `WORD`: only groups with it in their name; `--every N`: every
N-th group; `--compiled`: with machine code; `--then`: what the cost model said when the data were made; `--worst N`: the wrong signs of the N largest effects.
"""
from __future__ import annotations

import argparse
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.gate.cost import Cost, program_cost
from kir.hardware.target import target
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.learning.forecast.analytic import spread
from kir.learning.forecast.data import Data, MeasuredRow, read
from kir.learning.forecast.matrices import sizes_text

DATA = Path(__file__).parents[1] / "data" / "effects"
NOTED, WELL = math.log(1.03), math.log(2.0)
"""Effects that count: beyond 3 %; those within a factor of 2 are counted again for themselves."""
Q90 = 1.2816
"""The quantile of 0.9 of the standard normal distribution."""
LEAST = 0.002
"""A modelled effect smaller than this has no sign."""


@dataclass
class Family:
    """Right and all of: steps beyond 3 %, those between 0.5x and 2x, pairs of a group; logarithms of modelled over measured seconds;
    steps whose central 80 % interval (of `Analytic`) holds the measurement."""

    noted: list[bool]
    well: list[bool]
    pairs: list[bool]
    states: list[float]
    held: list[bool]


@dataclass(frozen=True)
class Seen:
    """A program at a shape: measured and modelled seconds."""

    measured: float
    modelled: float
    slowest: Cost


def seen(data: Data, rows: list[MeasuredRow], compiled: bool) -> dict[tuple[str, str, str, str], Seen]:
    """Every measured program by group, shape, device and content; those that the model refuses are left out."""
    programs: dict[str, Program] = {}
    out: dict[tuple[str, str, str, str], Seen] = {}
    for m in rows:
        row, at = data.programs[m.program], target(m.device)
        program = programs.setdefault(m.program, parse_program(row.text, m.program))
        sizes = {k: int(v) for k, v in m.sizes.items() if not isinstance(v, float)}
        artifact = data.artifact(m.program, at.architecture.name) if compiled else None
        try:
            costs = program_cost(program, sizes, at, artifact, row.surface)
        except (KirError, ArithmeticError, ValueError, KeyError):
            continue
        out[m.group, m.shape, m.device, m.program] = Seen(m.warm, sum(c.seconds for c in costs), max(costs, key=lambda c: c.seconds))
    return out


def then(data: Data, rows: list[MeasuredRow]) -> dict[tuple[str, str, str, str], Seen]:
    """The same with what the cost model said when the data were made."""
    said = {(m.device, m.program, sizes_text(m.sizes)): m.seconds for m in data.modelled if math.isfinite(m.seconds) and m.seconds > 0}
    nothing = Cost("", 0.0, "")
    return {(m.group, m.shape, m.device, m.program): Seen(m.warm, said[key], nothing)
            for m in rows if (key := (m.device, m.program, sizes_text(m.sizes))) in said}


def families(data: Data, known: Mapping[tuple[str, str, str, str], Seen], compiled: bool) -> tuple[dict[str, Family], list[tuple[float, str]]]:
    """The figures of each family, and a line for each step whose sign is wrong, with its size."""
    out: dict[str, Family] = defaultdict(lambda: Family([], [], [], [], []))
    wrong: list[tuple[float, str]] = []
    together: dict[tuple[str, str, str], list[tuple[str, Seen]]] = defaultdict(list)

    def family(program: str) -> Family:
        row = data.programs[program]
        return out[f"{row.family} ({row.surface})"]
    for (group, shape, device, program), s in known.items():
        together[group, shape, device].append((program, s))
        family(program).states.append(math.log(s.modelled / s.measured))
    for p in data.pairs:
        keys = [(p.group, p.shape, p.device, program) for program in (p.before, p.after)]
        if not p.step or p.fault or not all(k in known for k in keys):
            continue
        before, after = (known[k] for k in keys)
        modelled = math.log(before.modelled / after.modelled)
        wide = spread(modelled, before.slowest.bound_by != after.slowest.bound_by, compiled)
        family(p.before).held.append(abs(math.log(p.speedup) - modelled) <= Q90 * wide)
        if (measured := abs(math.log(p.speedup))) <= NOTED:
            continue
        right = modelled * math.log(p.speedup) > 0 and abs(modelled) > LEAST
        family(p.before).noted.append(right)
        if measured < WELL:
            family(p.before).well.append(right)
        if not right:
            wrong.append((measured, f"{p.speedup:.2f} {math.exp(modelled):.2f} {p.group} {p.shape} {p.step[:60]} | {before.measured * 1e6:.0f}->"
                          f"{after.measured * 1e6:.0f} us; modelled {before.modelled * 1e6:.0f} {before.slowest.bound_by}->{after.modelled * 1e6:.0f} "
                          f"{after.slowest.bound_by} {p.after[:6]}"))
    for programs in together.values():
        for i, (program, a) in enumerate(programs):
            for _, b in programs[:i]:
                if abs(math.log(a.measured / b.measured)) > NOTED:
                    family(program).pairs.append((a.measured - b.measured) * (a.modelled - b.modelled) > 0)
    return out, sorted(wrong, reverse=True)


def _of(found: list[bool]) -> str:
    return f"{sum(found)}/{len(found)}" + (f" {sum(found) / len(found):.1%}" if found else "")


def main() -> None:
    """The command."""
    asked = argparse.ArgumentParser(prog="python -m benchmarks.forecast.analytic_errors", description=__doc__)
    asked.add_argument("word", nargs="?", default="")
    asked.add_argument("--data", type=Path, default=DATA)
    asked.add_argument("--compiled", action="store_true")
    asked.add_argument("--then", action="store_true")
    asked.add_argument("--worst", type=int, default=0)
    asked.add_argument("--every", type=int, default=1)
    given = asked.parse_args()
    data = read(given.data)
    groups = sorted({m.group for m in data.measured if given.word in m.group})[::given.every]
    rows = [m for m in data.measured if m.group in set(groups) and not m.fault and m.warm > 0]
    known = then(data, rows) if given.then else seen(data, rows, given.compiled)
    found, wrong = families(data, known, given.compiled)
    for name, f in sorted(found.items()):
        middle = statistics.median(f.states)
        spread = statistics.median([abs(x - middle) for x in f.states])
        print(f"{name:28} sign {_of(f.noted):18} within 2x {_of(f.well):18} pairs {_of(f.pairs):18} programs {len(f.states)}: {middle:+.2f} ({spread:.2f})")
    every = [[x for f in found.values() for x in getattr(f, kind)] for kind in ("noted", "well", "pairs", "held")]
    print(f"right sign beyond 3 %: {_of(every[0])}; of those between 0.5x and 2x: {_of(every[1])}; pairs ordered rightly: {_of(every[2])}; "
          f"80 % intervals hold {_of(every[3])}; "
          f"{len(rows) - len(known)} of {len(rows)} not modelled")
    for _, line in wrong[:given.worst]:
        print(line)


if __name__ == "__main__":
    main()
