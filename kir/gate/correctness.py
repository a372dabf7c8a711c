"""Correctness: the interpreter's outputs against an oracle, on several shapes, seeds and distributions, and at few of them in checking mode."""
from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import field
from typing import Literal

import numpy as np

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError
from kir.base.instructions import instruction
from kir.gate.cases import Case, RelativeCase, Tests
from kir.gate.covered import covered
from kir.gate.goals import UNKNOWN_TRIPS
from kir.gate.verdict import CorrectnessRecord, Run
from kir.interp import run
from kir.interp.state.coverage import SKIPPED, TAKEN, Place, joined
from kir.interp.state.result import Finding
from kir.ir import nodes as n
from kir.ir.anchors import anchors
from kir.ir.build import const, int_value
from kir.ir.types import DType
from kir.ir.visit import substitute, walk
from kir.problem import Comparison

NO_SHAPE = "no shape of the reference satisfies the program's facts"
MORE_CHECKED, MOST_FURTHER = 2, 24
Mode = Literal["fast", "check"]
_FAST: Mode = "fast"
_CHECK: Mode = "check"


@dataclass(frozen=True)
class Outcome:
    """What came of one case: the row, hazards of a checked run that refuse, those that do not, and what the run reached."""

    run: Run
    errors: tuple[Diagnostic, ...] = ()
    weak: tuple[Diagnostic, ...] = ()
    reached: Mapping[Place, int] = field(default_factory=dict)


Runner = Callable[[n.Program, Sequence[tuple[Case, Mode]]], Generator[Outcome, None, None]]
"""Runs cases and gives their outcomes in their order; closed before its end when one of them refuses."""


def check(program: n.Program, tests: Tests | Sequence[Case], reference: str, relative: bool = False, runner: Runner | None = None,
          stopped: Callable[[], bool] = lambda: False) -> CorrectnessRecord:
    """Run every case fast and some of them checked. The first wrong one ends it. Fails when there is no case at all, when a loop that can run twice
    never did (KIR-G112; where the tests come with a plan), and, with what was run until then, once `stopped` says so between two cases."""
    given = tests if isinstance(tests, Tests) else Tests(tuple(tests), _smallest(tests))
    if not given.cases or not given.checked:
        return CorrectnessRecord(reference, False, reason=NO_SHAPE, relative=relative)
    plan: list[tuple[Case, Mode]] = [*((c, _FAST) for c in given.cases), *((c, _CHECK) for c in given.checked)]
    runs: list[Run] = []
    weak: list[Diagnostic] = []
    found_by: list[Mapping[Place, int]] = []
    out, done = given.left_out, len(plan)
    while plan:
        with contextlib.closing((runner or in_turn)(program, plan)) as outcomes:
            for one in outcomes:
                runs.append(one.run)
                weak += one.weak
                found_by.append(one.reached)
                if one.errors or not one.run.ok:
                    said = f"{one.errors[0].id}: {one.errors[0].message}" if one.errors else one.run.reason
                    return CorrectnessRecord(reference, False, tuple(runs), one.errors, tuple(weak), relative, said, out)
                if stopped():
                    return CorrectnessRecord(reference, False, tuple(runs), (), tuple(weak), relative, "not all cases were run", out)
        first = len(given.cases)
        plan = [(c, _CHECK) for c in _unchecked(program, given, found_by[:first], joined(*found_by[first:]))] if len(runs) == done else []
    reached, checked = joined(*found_by[:len(given.cases)]), joined(*found_by[len(given.cases):])
    found = covered(program, given.plan, reached) if given.plan is not None else None
    for case in itertools.islice(given.further(), MOST_FURTHER) if found is not None and found.single else ():
        with contextlib.closing((runner or in_turn)(program, [(case, _FAST)])) as outcomes:
            one = next(outcomes)
        runs.append(one.run)
        weak += one.weak
        if not one.run.ok:
            return CorrectnessRecord(reference, False, tuple(runs), relative=relative, reason=one.run.reason, left_out=out)
        reached = joined(reached, one.reached)
        assert given.plan is not None
        found = covered(program, given.plan, reached)
        if not found.single or stopped():
            break
    if found is not None and (refusals := found.refusals()):
        said = f"{refusals[0].id}: {refusals[0].message}"
        return CorrectnessRecord(reference, False, tuple(runs), refusals, tuple(weak), relative, said, out, found)
    noted = (*weak, *(found.warnings() if found is not None else ()))
    return CorrectnessRecord(reference, True, tuple(runs), (), noted, relative, left_out=out, coverage=found, reached=reached, checked=checked)


def _unchecked(program: n.Program, tests: Tests, found: Sequence[Mapping[Place, int]], checked: Mapping[Place, int]) -> list[Case]:
    """At most MORE_CHECKED cases, of sizes that have been checked, of which a fast run went a way of a branch around memory or barriers that no checked run
    went: as data say, so no size foretells it."""
    acts = {text: _acts(s.then) * TAKEN | _acts(s.orelse) * SKIPPED for text, _, s in anchors(program) if isinstance(s, n.If)}
    ways: dict[Place, int] = {("branch", text): bits for text, bits in acts.items() if bits}
    known = [dict(c.sizes) for c in tests.checked]
    out: list[Case] = []
    for case, reached in sorted(zip(tests.cases, found, strict=True), key=lambda one: known.index(dict(one[0].sizes)) if dict(one[0].sizes) in known else 0):
        if dict(case.sizes) in known and any(reached.get(way, 0) & ~checked.get(way, 0) & bits for way, bits in ways.items()) and len(out) < MORE_CHECKED:
            out.append(case)
            checked = joined(checked, reached)
    return out


def _acts(block: n.Block) -> bool:
    """Whether a block touches memory that others see, or does what others wait for."""
    return any((isinstance(x, n.Region) and x.buffer.space not in ("register", "fragment")) or (isinstance(x, n.Call) and x.of is None
               and instruction(x.fn).effect in ("sync", "memory", "async")) for s in block for x in walk(s))


def _smallest(cases: Sequence[Case]) -> tuple[Case, ...]:
    judged = [c for c in cases if math.prod(c.sizes.values()) > 1] or list(cases)
    return tuple(sorted(judged, key=lambda c: math.prod(c.sizes.values()))[:1])


def in_turn(program: n.Program, plan: Sequence[tuple[Case, Mode]]) -> Generator[Outcome, None, None]:
    """Every case in this process, one after another."""
    for case, mode in plan:
        yield outcome(program, case, mode)


def steps(program: n.Program, sizes: Mapping[str, int]) -> int:
    """Statements that the interpreter runs one after another at these sizes: CTAs and threads run side by side, loops do not."""
    values: dict[str, n.Expr] = {p.name: const(sizes[p.name], p.of) for p in program.params if p.name in sizes and isinstance(p.of, DType)}
    return sum(_steps(k.body, values) for k in program.kernels)


def _steps(block: n.Block, values: Mapping[str, n.Expr]) -> int:
    total = 0
    for s in block:
        match s:
            case n.For():
                lo, hi, step = (int_value(substitute(x, values)) for x in (s.lo, s.hi, s.step))
                trips = max(0, -(-(hi - lo) // step)) if lo is not None and hi is not None and step else UNKNOWN_TRIPS
                total += _steps(s.body, values) * (1 if s.kind in ("thread", "warp", "warpgroup") else trips)
            case n.If():
                total += 1 + _steps(s.then, values) + _steps(s.orelse, values)
            case n.While():
                total += UNKNOWN_TRIPS * _steps(s.body, values)
            case n.Roles():
                total += sum(_steps(r.body, values) for r in s.roles)
            case _:
                total += 1
    return total


def outcome(program: n.Program, case: Case, mode: Mode) -> Outcome:
    """Interpret one case and judge it. A program that cannot be run is wrong, with the reason."""
    def row(c: Comparison) -> Run:
        return Run(case.shape, dict(case.sizes), case.distribution, case.seed, mode, c.ok, c.worst, c.where, c.bound, c.reason)
    wanted = {p.name for p in program.params}
    scalars = {name: value for name, value in case.scalars.items() if name in wanted}
    try:
        with np.errstate(all="ignore"):
            result = run(program, case.arrays, scalars, mode=mode, cover=True)
    except KirError as refused:
        first = refused.diagnostics[0]
        said = f"it cannot be run at shape '{case.shape}': {first.id}: {first.message}"
        return Outcome(row(Comparison(False, math.inf, first.anchor, 0.0, said)))
    except MemoryError as most:
        return Outcome(row(Comparison(False, math.inf, "", 0.0, f"it cannot be run at shape '{case.shape}': there is too little memory for it ({most})")))
    found = row(case.compare(result.outputs))
    if mode != "check":
        return Outcome(found, reached=result.reached)
    weak = tuple(f.diagnostic() for f in result.findings if f.severity == "weak")
    errors = tuple(f.diagnostic() for f in result.errors if not (found.ok and isinstance(case, RelativeCase) and _nobodys(program, f)))
    return Outcome(found, errors, weak, result.reached)


NOBODY = "store of other elements"
"""What a run reports of an element that is not written; one that is written with what is not defined is wrong, whatever it compares with."""


def _nobodys(program: n.Program, f: Finding) -> bool:
    """Whether elements of an output are left that the reference leaves too, as it does where comparing has found them alike: what nobody has written holds
    a value that none is given by chance (of truth values it is one of both). So it is between rows at a stride."""
    left = f.id == "KIR-I012" and bool(f.accesses) and f.accesses[-1].verb == "read by the caller" and any(a.verb == NOBODY for a in f.accesses)
    return left and any(p.name == f.buffer and isinstance(p.of, n.Buffer) and not p.of.dtype.is_bool for p in program.params)
