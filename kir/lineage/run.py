"""A whole walk: an expert that the gate accepts, walked back in its folder as far as it goes, and its states as files."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import kir
from kir.analysis.target.legalize import unlaunchable
from kir.base.diagnostic import Diagnostic, KirError
from kir.base.store import claimed, write_atomic
from kir.hardware import machine
from kir.hardware.target import target
from kir.ir.nodes import Program
from kir.lineage.along import AlongEngine
from kir.lineage.engine import PassEngine
from kir.lineage.plan import MOST_PROGRAMS, plan
from kir.lineage.records.folder import Folder
from kir.lineage.records.record import Header, Lineage, chained
from kir.lineage.walk import Budget, Judge, Judgement, Walk

USUAL_TARGETS = ("sm_80", "sm_90a")
"""What a lineage is compiled for when nobody says."""
WALKING = 0.95
"""The share of a budget of seconds in which steps are taken; the rest is for the last of them to end in, and for the report."""
FIRST_STORY = 40.0
"""Seconds after which a walk that has no end says what it has found so far."""
STILL = "the walk still goes on"
MOST_FINDINGS = 12
"""Findings told of an expert that the gate refuses."""


def walk_back(program: Program, header: Header, engine: PassEngine, judge: Judge, folder: Folder, budget: Budget, *, workers: int = 2,
              fresh: bool = False, look: int = MOST_PROGRAMS, progress: Callable[[str], None] = lambda text: None, begun: float | None = None,
              so_far: Callable[[Lineage], None] | None = None) -> Lineage:
    """Walk an expert back and write ``lineage.json``; an earlier run of the same walk is taken up, unless ``fresh``. An engine that knows the way is
    followed to its end; with any other, an order is looked for first. Nothing is written of an expert that the gate refuses: raises :class:`KirError`
    KIR-S015, with what its compilers and the checker say, and KIR-C010 where another process walks in this folder. The budget's seconds count from
    `begun` (of `time.monotonic`; None: now), and what is left of them at the end is for the report: a third of them may pass before the last order is
    looked for. Without such a budget `so_far` is given what is known once `FIRST_STORY` seconds have passed, and again each time that twice as many have."""
    begun = time.monotonic() if begun is None else begun
    until = engine.end if isinstance(engine, AlongEngine) else ""
    with ThreadPoolExecutor(1, thread_name_prefix="gate") as beside:  # an order is looked for while the compilers load
        gating = beside.submit(copy_context().run, judge.gate, program)

        def late() -> bool:
            refused = gating.done() and (gating.exception() is not None or not gating.result().accepted)
            return refused or 0 < budget.seconds < 3 * (time.monotonic() - begun)
        delayed = () if until else plan(program, engine, look, late=late, first=engine.put_off_first).delayed
        judgement = gating.result()
    if not judgement.accepted:
        raise _refused(header, judgement)
    with claimed(folder.root):
        folder.begin(header, fresh=fresh)
        due = FIRST_STORY

        def told(text: str, kept: int, tried: int) -> None:
            nonlocal due
            if so_far is not None and not budget.seconds and kept and time.monotonic() - begun > due:
                known = walk.walked(walk.state(program, judgement), judgement, "budget", STILL)
                so_far(chained(header, known.start, judgement.record, judgement.emitted, known.steps, known.outcome))
                due = 2 * (time.monotonic() - begun)
            progress(text)
        walk = Walk(program, engine, judge, folder, budget, delayed=delayed, until=until, workers=workers, progress=told)
        if budget.seconds:
            walk.deadline = begun + budget.seconds * WALKING
        done = walk.run(judgement)
        lineage = chained(header, done.start, judgement.record, judgement.emitted, done.steps, done.outcome)
        folder.finish(lineage)
    return lineage


def _refused(header: Header, judgement: Judgement) -> KirError:
    """The expert itself does not pass: the gate's word, then what its compilers and the checker say, each at its place."""
    record = judgement.record
    told = [*record.get("compile", {}).get("refusals", ()), *(record.get("correctness") or {}).get("findings", ())]
    reason = Diagnostic("KIR-S015", f"{header.expert} does not pass the gate: {judgement.reason}", subject=judgement.stage)
    found = {(each.id, each.message, str(each.origin)): each for each in map(Diagnostic.from_json, told)}  # for several targets they are the same
    return KirError(reason, *sorted(found.values(), key=lambda each: each.origin is None)[:MOST_FINDINGS])


def write_states(lineage: Lineage, folder: Folder) -> None:
    """Write the program of each state, ``states/K00.kir`` the naive one, and beside it what its surface says."""
    suffix = {"triton": "py", "tilelang": "py", "cuda": "cu"}.get(lineage.header.surface, "txt")
    sources = (lineage.start_emitted, *(step.emitted for step in lineage.accepted))
    for back, (state, emitted) in enumerate(zip(lineage.states, sources, strict=True)):
        number = len(lineage.accepted) - back
        write_atomic(folder.root / "states" / f"K{number:02}.kir", folder.store.get(state.text))
        if emitted:
            write_atomic(folder.root / "states" / f"K{number:02}.{suffix}", emitted)


def usual_targets(program: Program, surface: str = "") -> tuple[str, ...]:
    """Those of the usual targets that have the instructions of a program; all of them when none has, so that the gate says what each lacks. On TileLang, whose
    compiler takes five seconds of a processor for a target, the last."""
    found = tuple(each for each in USUAL_TARGETS if not unlaunchable(program, target(each).architecture)) or USUAL_TARGETS
    return found[-1:] if surface == "tilelang" else found


def tools() -> dict[str, str]:
    """Versions of everything that has a say in the outcome."""
    found = {"kir": kir.__version__, "python": machine.summary()["python"]}
    for name in ("triton", "tilelang", "numpy"):
        if version := machine.package_version(name):
            found[name] = version
    if (toolkit := machine.toolkit()) is not None:
        found["nvcc"] = toolkit.nvcc.version
    if (ptxas := machine.ptxas()) is not None:
        found["ptxas"] = ptxas.version
    return found
