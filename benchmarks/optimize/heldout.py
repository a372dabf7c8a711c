"""Held-out instances: from the naive program of each to a kernel that the device's gate accepts, beside FlagGems' kernel in the same run."""

from __future__ import annotations

import json
import math
import os
import random
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from benchmarks.optimize.ahead import Proposed, artifacts_taken, kept, proposals, rivals_compiling, searching, told
from benchmarks.optimize.instances import INSTANCES, Instance
from benchmarks.optimize.running import opened, share, spending
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.gate.gpu import Gpu
from kir.gate.gpu.oracle import Oracle, Shared
from kir.gate.gpu.panel import Timed, timed_in
from kir.hardware.device.client import Child, ChildGone
from kir.hardware.target import target
from kir.ir.parser import parse_program
from kir.learning.optimize.judge import GpuJudge
from kir.learning.optimize.plan import Setting
from kir.learning.optimize.policy import ALIKE, Known, estimated, untried
from kir.learning.optimize.pool.engines import Devices, Lost
from kir.problem import Problem, Shape, numpy_dtype
from kir.problem.schema import evaluate

AHEAD_SHARE = 0.3
"""The part of the time that may go by before anything is measured."""
EACH_SECONDS = 180.0
"""What an instance may take: seconds of its search, its candidates and the compilers, waiting for the device included."""
TOGETHER = 5
"""Candidates of an instance that are timed in one go; the fastest goes through the whole gate then, which may take longer than they did."""
MOST = 20
"""Candidates that may be measured of an instance."""
GATING = 8.0
"""Seconds of an instance's part that are left for the gate."""
ENDING = 20.0
"""Seconds before the end of a run from which no further candidate is timed: what has not gone through the gate by then is lost."""
AT_LEAST = 5
"""Candidates that are tried of an instance, whatever time it has, as long as none is accepted: most that are refused never reached the device."""
UNSEEN = 0.85
"""What is made of the estimate of a family of which nothing was measured, on a surface."""
RIVALS = 6
"""Processes that compile the rivals' configurations."""
SLOW = 1.1
"""Times as fast as the rival below which the page says of a row how far it is from what the device allows."""
NEAR = 0.95
"""The part of the rate that a device allows at most from which nothing is left to be had."""
APART = 0.05
"""The part by which a rival's times of two runs differ from which on a row says both."""
ASKED, HEAD_SIZE = 1.25, 64
"""The geometric mean that is asked for; elements of a head of attention."""
HEAD = ("instance", "problem", "ours", "95 %", "FlagGems", "times as fast", "library", "at most", "surface", "plan", "steps taken, left out", "measured",
        "run, s", "on", "remark")


class Asked(Protocol):
    """What is to be made fast: its problem, which knows the shape, and that shape."""

    def posed(self) -> Problem: ...

    @property
    def shape(self) -> Shape: ...


class Rows:
    """Rows by instance, one JSON file that always holds all that is known, and a table beside it."""

    def __init__(self, out: Path) -> None:
        self.file, self.table = out / "optimize-heldout.json", out / "optimize-heldout.md"
        self.rows: dict[str, dict[str, Any]] = {}
        if self.file.is_file():
            held = json.loads(self.file.read_text(encoding="utf-8"))
            self.rows = {row["instance"]: {"when": held["about"]["when"], **row} for row in held["rows"]}

    def keep(self, row: dict[str, Any], about: Mapping[str, Any]) -> None:
        """A row in the place of an older one of the same instance."""
        self.rows[row["instance"]] = row
        ordered = [self.rows[one.name] for one in INSTANCES if one.name in self.rows]
        write_atomic(self.file, json.dumps({"about": dict(about), "rows": ordered}, indent=1) + "\n")
        write_atomic(self.table, "\n".join(_table(ordered, about)) + "\n")


def heldout(out: Path, seconds: float, only: str = "", workers: int = 0, ahead: Path | None = None) -> int:
    """Measure what is asked for, the instances side by side in processes that take turns on the device, some candidates at a time, until each has `MOST` or
    its seconds; 0 when every instance has a row."""
    until = time.monotonic() + seconds
    rows = Rows(out)
    wanted = [i for i, one in enumerate(INSTANCES) if any(word in one.name for word in only.split(","))]
    count = workers or max(1, len(os.sched_getaffinity(0)) - 1)
    with Gpu.open() as gpu:
        gpu.peaks  # noqa: B018  # measured once before anything else works here, which also makes the harness
        about = {"device": gpu.about["name"], "command": "python -m benchmarks.optimize heldout --on gpu --seconds N", "when": time.strftime("%Y-%m-%d"),
                 "run": seconds, "bandwidth": gpu.peaks["bandwidth"]}
        untimed = [i for i in wanted if not (rows.rows.get(INSTANCES[i].name) or {}).get("rival_seconds")]
        for row in (rows.rows[INSTANCES[i].name] for i in untimed if INSTANCES[i].name in rows.rows):
            rows.rows[row["instance"]] = _again(row)
        alone = [i for i in wanted if i not in untimed and not rows.rows[INSTANCES[i].name].get("library_seconds")]
        compiling = rivals_compiling(gpu.folder, min(RIVALS, max(1, count // 2)), [INSTANCES[i] for i in untimed]) if untimed else []
        artifacts_taken(ahead, gpu.folder / "artifacts")
        engine, panel, beside = Devices((0,), count), _Panel(gpu), ThreadPoolExecutor(1)
        begun, timing = dict[Any, tuple[int, Any]](), {beside.submit(panel.library, INSTANCES[i], random.Random(secrets.randbits(64))): i for i in alone}
        found: dict[int, list[Proposed]] = {i: known for i in wanted if (known := kept(ahead, i)) is not None}

        def begin(i: int) -> None:
            known, row = tuple(found[i]) if i in found else None, rows.rows.get(INSTANCES[i].name)
            if known is not None and not (row or {}).get("spent"):  # what was done ahead counts
                row = {**(row or _empty(INSTANCES[i])), "spent": {"search": searching(ahead, i)}, "took": searching(ahead, i)}
            task = engine.begin(some_candidates, Some(i, gpu.target.device.name, known, row, until))
            begun[task.said] = i, task

        def ended(i: int, task: Any) -> None:
            one = INSTANCES[i]
            before = rows.rows.get(one.name) or _empty(one)
            try:
                made = engine.result(task, 0.0)
                found[i] = [Proposed(**p) for p in made["proposed"]]
                row = {**made["row"], **{k: v for k, v in before.items() if k.startswith(("rival", "library"))}}
            except Lost:
                row = {**before, "remark": "it ended its process", "took": EACH_SECONDS}
            rows.keep(_beside({**row, "when": about["when"], "run": about["run"]}), about)
            print(json.dumps({k: row.get(k) for k in ("instance", "seconds", "plan", "remark", "took")}), flush=True)
            if len(row["tried"]) < min(MOST, len(found.get(i, ()))) and row.get("took", 0.0) < EACH_SECONDS and time.monotonic() < until - ENDING - GATING:
                begin(i)

        try:
            for i in sorted(wanted, key=lambda i: _worth(rows.rows.get(INSTANCES[i].name))):
                if (rows.rows.get(INSTANCES[i].name) or {}).get("took", 0.0) < EACH_SECONDS:
                    begin(i)
            while (begun or timing or untimed) and time.monotonic() < until:
                if untimed and (time.monotonic() > until - (1 - AHEAD_SHARE) * seconds or all(x.poll() is not None for x in compiling)):
                    timing |= {beside.submit(panel.timed, INSTANCES[i], random.Random(secrets.randbits(64))): i for i in untimed}
                    untimed = []
                for said in wait([*begun, *timing], timeout=min(1.0, max(0.0, until - time.monotonic())), return_when=FIRST_COMPLETED).done:
                    if said in begun:
                        ended(*begun.pop(said))
                    elif (one := INSTANCES[timing.pop(said)]) and said.exception() is None:
                        row = rows.rows.get(one.name) or {**_empty(one), "when": about["when"], "run": about["run"]}
                        rows.keep(_beside({**row, **said.result()}), about)
        finally:
            for each in compiling:
                each.kill()
            engine.close()
            beside.shutdown(wait=False, cancel_futures=True)
            panel.close()
    print("\n".join(_table([rows.rows[x.name] for x in INSTANCES if x.name in rows.rows], about)))
    return 0 if all(INSTANCES[i].name in rows.rows for i in wanted) else 1


def _empty(one: Instance) -> dict[str, Any]:
    return {"instance": one.name, "problem": one.problem, "sizes": dict(one.sizes), "tried": [], "seconds": None}


def _again(row: dict[str, Any]) -> dict[str, Any]:
    """A row of an earlier run that has no time of its rival: what seems fastest is judged again, since both sides of a row are of one run, and it has its
    seconds once more."""
    return {**row, "tried": [{**t, "gated": False} if t["accepted"] else t for t in row["tried"]], "took": 0.0}


def _beside(row: dict[str, Any]) -> dict[str, Any]:
    """The row, with how many times as fast as its rival it is."""
    return {**row, "times_faster": row["rival_seconds"] / row["seconds"]} if row["seconds"] and row.get("rival_seconds") else row


@dataclass(frozen=True)
class Some:
    """Some candidates of the instance of this number, as a worker is given them: of what was proposed (None: that is to be searched), beside the row so far."""

    number: int
    device: str
    proposed: tuple[Proposed, ...] | None
    row: dict[str, Any] | None
    until: float

    @property
    def key(self) -> str:
        return INSTANCES[self.number].name


def some_candidates(task: Some) -> dict[str, Any]:
    """What a worker does: proposals, where there are none yet, then some candidates. `spent` says where its seconds went."""
    one, begun = INSTANCES[task.number], time.monotonic()
    row = dict(task.row or _empty(one))
    spent, proposed = dict(row.get("spent", {})), list(task.proposed or ())
    try:
        with spending(spent, "search"):
            if task.proposed is None:
                proposed = proposals(task.number, task.device)
        with spending(spent, "candidates"):
            row = measured_more(opened(), one, proposed, row, min(task.until - ENDING, begun + EACH_SECONDS - row.get("took", 0.0)), TOGETHER)
    except KirError as refused:
        row["remark"] = f"{refused.diagnostics[0].id}: {refused.diagnostics[0].message}"
    except Exception as fault:  # one instance that breaks the harness harms no other
        row["remark"] = f"{type(fault).__name__}: {fault}"[:300]
    new = {t["candidate"] for t in row["tried"]} - {t["candidate"] for t in (task.row or _empty(one))["tried"]}
    compiling = sum(p.compiling for p in proposed if p.key in new)
    spent["candidates"] = round(spent.get("candidates", 0.0) + compiling, 1)
    took = round(row.get("took", 0.0) + compiling + time.monotonic() - begun, 1)
    return {"row": {**row, "spent": spent, "took": took}, "proposed": [asdict(p) for p in proposed]}


def joined(given: Path, out: Path) -> int:
    """Rows with a time that another folder has, beside those of `out`: of two of an instance the better one stays, with the candidates of both, as if the one
    run had gone on with the other's row, and the times of libraries; 1 where it has none."""
    theirs, mine = Rows(given), Rows(out)
    about = json.loads(theirs.file.read_text(encoding="utf-8"))["about"] if theirs.file.is_file() else {}
    timed = [row for row in theirs.rows.values() if row.get("seconds") and row.get("rival_seconds")]
    for row in (row for row in theirs.rows.values() if row.get("library_seconds") and row["instance"] in mine.rows):
        library = {"library_when": about["when"], **{k: v for k, v in row.items() if k.startswith("library")}}
        mine.keep({**mine.rows[row["instance"]], **library}, about)
    for row in timed:
        before = mine.rows.get(row["instance"], row)
        known = {t["candidate"] for t in row["tried"]}
        tried = [*(t for t in before["tried"] if t["candidate"] not in known), *row["tried"]]
        better, other = sorted((row, before), key=lambda r: r.get("times_faster") or 0.0, reverse=True)
        rival = better if other is better else other
        library = {k: v for k, v in before.items() if k.startswith("library")}
        mine.keep({**library, **better, "when": better.get("when", about["when"]), "tried": tried, "rival_other": rival.get("rival_seconds")}, about)
    return 0 if timed else 1


def _worth(row: Mapping[str, Any] | None) -> tuple[bool, float, int]:
    """What is measured first: what has no row, then what is slowest beside its rival, then what was measured least."""
    return row is not None, float((row or {}).get("times_faster") or 0.0), len((row or {}).get("tried", ()))


class _Panel:
    """One process for all rivals: FlagGems is imported once."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.child = gpu, None

    child: Child | None

    def timed(self, one: Instance, secret: random.Random) -> dict[str, Any]:
        """The rival's median seconds at the instance, or why there are none, and the library's. Whether its answers are right by the problem is not asked."""
        row = self._timed(one, one.rival, secret)
        said = ({"rival_seconds": row.estimate.median, "rival_interval": [row.estimate.low, row.estimate.high], "rival_remark": ""} if isinstance(row, Timed)
                else {"rival_seconds": None, "rival_remark": row})
        return {"rival": one.rival, **said, **self.library(one, secret)}

    def library(self, one: Instance, secret: random.Random) -> dict[str, Any]:
        """The fastest kernel of the maker's libraries and torch's at the instance; nothing where none is there."""
        found = [(row.estimate.median, name) for name in one.library if isinstance(row := self._timed(one, name, secret), Timed)]
        return {"library_seconds": min(found)[0], "library": min(found)[1], "library_when": time.strftime("%Y-%m-%d")} if found else {}

    def _timed(self, one: Instance, name: str, secret: random.Random) -> Timed | str:
        problem = one.posed()
        try:
            if self.child is None:
                self.child = self.gpu.panels.child()
                self.child.ask({"op": "open", "device": self.gpu.number}, [self.gpu.harness], 120.0)
            with self.gpu.oracles.child() as other:
                row = timed_in(self.gpu, self.child, name, problem, one.shape, Oracle.of(other, problem), secret)
            return row if isinstance(row, Timed) else row.reason
        except ChildGone as gone:
            self.close()
            return gone.said

    def close(self) -> None:
        """End the process."""
        if self.child is not None:
            self.child.close()
            self.child = None


def measured_more(gpu: Gpu, one: Asked, proposed: Sequence[Proposed], before: Mapping[str, Any], until: float, most: int = MOST,
                  shared: Shared | None = None, priors: Mapping[str, float] | None = None) -> dict[str, Any]:
    """A row after some more of its candidates, `most` at most: timed, then the fastest through the whole gate, the next where that refuses it. One alone
    goes through the whole gate at once. `shared` is what their gates have in common, `priors` what measured times were over forecasts elsewhere."""
    setting, row = Setting(one.posed(), one.shape, gpu.target, ""), dict(before)
    proposals, turns = {p.key: p for p in proposed}, 0
    while turns < most and len(row["tried"]) < MOST and (time.monotonic() < until - GATING or (turns < AT_LEAST and not _accepted(row))):
        next_ = next(_in_order([*proposals.values()], row["tried"], priors or {}), None)
        if next_ is None:
            break
        said = _judged(GpuJudge(gpu, setting, replays=most == 1, shared=shared), next_)
        row["tried"], turns = [*row["tried"], {**told(next_), "family": next_.family, "gated": most == 1, **said}], turns + (most > 1 or said["accepted"])
        if most == 1 and len(row["tried"]) >= AT_LEAST:
            break
    while (first := min(_accepted(row), key=lambda t: t["seconds"], default=None)) and not first.get("gated", True):
        if first["candidate"] not in proposals:  # of an earlier version
            row["tried"] = [t for t in row["tried"] if t is not first]
            continue
        said = _judged(GpuJudge(gpu, setting, replays=True, shared=shared), proposals[first["candidate"]])
        row["tried"] = [{**t, "gated": True, **said} if t is first else t for t in row["tried"]]
    right = [t for t in row["tried"] if t["accepted"] and t.get("gated", True)]
    if right:
        best = min(right, key=lambda t: t["seconds"])
        row.update({k: best[k] for k in ("seconds", "low", "high", "plan", "surface", "candidate", "taken", "left")})
    row["remark"] = "" if right else (row["tried"][-1]["reason"] if row["tried"] else "nothing proposed")
    return row


def _accepted(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The candidates of a row that the gate took."""
    return [t for t in row["tried"] if t["accepted"]]


def _judged(judge: GpuJudge, proposed: Proposed) -> dict[str, Any]:
    try:
        said = judge.judge(parse_program(proposed.text, proposed.key), proposed.surface).to_json()
        return {**said, "spent": {k: round(v, 1) for k, v in judge.spent.items()}}
    except KirError as refused:
        return {"accepted": False, "seconds": None, "low": 0.0, "high": 0.0, "reason": f"{refused.diagnostics[0].id}: {refused.diagnostics[0].message}"}


def _in_order(proposed: list[Proposed], tried: list[dict[str, Any]], priors: Mapping[str, float]) -> Iterator[Proposed]:
    """What was not tried yet, what seems fastest first: by the forecast and what those most like it were wrong by. A family of which nothing was measured
    gets its turn somewhat before, and so does a value of a parameter; one that was learned on the same operator is measured once before all others. Where
    nothing was measured of these, what forecasts of a family were wrong by elsewhere counts."""
    done = {t["candidate"] for t in tried}
    known = [Known(t["family"], t["surface"], t.get("point", {}), math.log(t["seconds"] / t["forecast"])) for t in tried if t["accepted"] and t["forecast"]]
    families = {(k.family, k.surface) for k in known}
    refused = {(t["family"], t["surface"]) for t in tried} - families

    def seems(p: Proposed) -> float:
        about = p.family, p.surface, p.point
        near = estimated(p.forecast, *about, known)
        if not known:
            near *= priors.get(f"{p.family} {p.surface}", priors.get("", 1.0))
        return near * (untried(*about, known) if about[:2] in families else UNSEEN)

    def first(p: Proposed) -> bool:
        return p.kin and not any((t["family"], t["surface"]) == (p.family, p.surface) for t in tried)

    order = {p.key: i for i, p in enumerate(proposed)}

    def rank(p: Proposed) -> tuple[bool, bool, int, int]:  # of forecasts that say the same the one that was proposed first
        return (p.family, p.surface) in refused, not first(p), round(math.log(seems(p)) / ALIKE), order[p.key]

    yield from sorted((p for p in proposed if p.key not in done), key=rank)


@dataclass(frozen=True)
class Limits:
    """Seconds that an instance takes at least on a device: moving each tensor once as fast as it copies, multiplying at its tabled rate, and of attention an
    exponential for each score."""

    moving: float
    multiplying: float

    @property
    def seconds(self) -> float:
        """The greater of both."""
        return max(self.moving, self.multiplying)

    @property
    def by_memory(self) -> bool:
        """Whether moving takes longer."""
        return self.moving >= self.multiplying


def _limits(row: Mapping[str, Any], about: Mapping[str, Any]) -> Limits | None:
    """The limits of a row that has its rival's time; None for others, and where the device's rate is not known."""
    one = next((x for x in INSTANCES if x.name == row["instance"]), None)
    if one is None or not row.get("rival_seconds") or not about.get("bandwidth"):
        return None
    problem, device = one.posed(), target("h200").device
    values = problem.values(one.shape)
    moved = evaluate(problem.spec.bytes, values) if problem.spec.bytes else sum(
        math.prod(problem.tensor_shape(t, one.shape)) * numpy_dtype(problem.tensor_dtype(t)).itemsize * (2 if t.role == "inout" else 1)
        for t in problem.spec.tensors)
    rate = max((getattr(device.tensor, problem.tensor_dtype(t), 0.0) for t in problem.spec.tensors), default=0.0) or device.scalar.f32
    scores = evaluate(one.scores, values) if one.scores else 0.0
    flops = 4.0 * HEAD_SIZE * scores if scores else evaluate(problem.spec.flops, values) if problem.spec.flops else 0.0
    return Limits(moved / float(about["bandwidth"]), max(flops / rate, scores / (device.pipes.special * device.sm_count * device.clock)))


def _mean(values: Iterable[float]) -> float:
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def _reach(known: Sequence[tuple[Mapping[str, Any], Limits]]) -> Iterator[str]:
    """What geometric mean the limits allow, and what it would take to come to `ASKED`."""
    if not known:
        return
    at = {r["instance"]: limit.seconds / r["seconds"] for r, limit in known}
    both = [[(r, limit) for r, limit in known if limit.by_memory is memory] for memory in (True, False)]
    best = [max((at[r["instance"]] for r, _ in some), default=1.0) for some in both]
    ideal, near = (_mean(r["rival_seconds"] / limit.seconds * (best[not limit.by_memory] if practical else 1.0) for r, limit in known)
                   for practical in (False, True))
    yield (f"- What the limits allow: {ideal:.2f} if every row were at its `at most`, {near:.2f} if each were as near to it as the nearest of its kind is "
           f"({best[0]:.0%} of rows bound by memory, {best[1]:.0%} of the others).")
    if both[0] and both[1]:
        most, now = (_mean(r["rival_seconds"] / limit.seconds if ideal_ else r["times_faster"] for r, limit in both[0]) for ideal_ in (True, False))
        needed = (ASKED ** len(known) / now ** len(both[0])) ** (1 / len(both[1]))
        yield (f"- The {len(both[0])} rows bound by memory are at {now:.3f} together, of {most:.3f} at most; as they are, the other {len(both[1])} would have "
               f"to be at {needed:.3f} for a mean of {ASKED}, and are at {_mean(r['times_faster'] for r, _ in both[1]):.3f}.")


def _libraries(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """How far the libraries of the device's maker come at the same instances, and ours beside them."""
    if rows:
        theirs, ours = (_mean(r["rival_seconds"] / r[k] for r in rows) for k in ("library_seconds", "seconds"))
        both = _mean(r["rival_seconds"] / min(r["library_seconds"], r["seconds"]) for r in rows)
        yield (f"- `library`: how many times as fast as FlagGems' the fastest of cuBLAS, cuDNN and torch's own kernels is: {theirs:.3f} together over "
               f"{len(rows)} rows, at which ours are at {ours:.3f}; the faster of both in each row is at {both:.3f}. They were timed in the same way, last on "
               f"{max(r.get('library_when', '') for r in rows)}, not always in a row's own run.")


def _table(rows: list[dict[str, Any]], about: Mapping[str, Any]) -> Iterator[str]:
    ratios = [r["times_faster"] for r in rows if r.get("times_faster")]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
    yield "# Held-out instances beside FlagGems' Triton kernels"
    yield ""
    yield (
        f"Made by `{about['command']}` on {about['device']}, last on {about['when']}; N is a row's `run, s`. Both sides of a row timed in one run, in the "
        "same way; medians; a row that later runs go on with keeps its rival's time. "
        f"Ours were right at secret shapes on the device. {len(ratios)} of {len(rows)} rows have both times: "
        f"{sum(r >= 1.0 for r in ratios)} at 1.0 or more, geometric mean {mean:.3f}."
    )
    yield ""
    yield (
        f"- At most {MOST} measured candidates an instance, of which none is begun after {EACH_SECONDS:g} s; what was under way then, and the whole gate of "
        "the best, went on. Of two runs of an instance the better row stays."
    )
    yield from share(rows, "instances", "the rivals'")
    if known := [(r, x) for r in rows if r.get("times_faster") and (x := _limits(r, about)) is not None]:
        at = {r["instance"]: x.seconds / r["seconds"] for r, x in known}
        yield (f"- `at most`: a kernel that moves each tensor once, as fast as this device copies ({float(about['bandwidth']) / 1e12:.2f} TB/s read and "
               f"written), multiplies at the rate that its maker states, and has the special units make an exponential for each score of attention. "
               f"{sum(part >= NEAR for part in at.values())} of {len(known)} rows are within {1 - NEAR:.0%} of it.")
        yield from _reach(known)
        yield from _libraries([r for r, _ in known if r.get("library_seconds")])
        if slow := [r for r, _ in known if r["times_faster"] < SLOW]:
            yield f"- Rows below {SLOW:g}, and the part of `at most` that they are at: " + ", ".join(
                f"{r['instance']} {at[r['instance']]:.0%}" for r in sorted(slow, key=lambda each: at[each["instance"]])) + "."
    yield ""
    yield "| " + " | ".join(HEAD) + " |"
    yield "| " + " | ".join("---" for _ in HEAD) + " |"
    for r in rows:
        ours = f"{r['seconds'] * 1e6:.1f} us" if r["seconds"] else ""
        spread = f"{r['low'] * 1e6:.1f} .. {r['high'] * 1e6:.1f}" if r["seconds"] else ""
        rival = f"{r['rival_seconds'] * 1e6:.1f} us" if r.get("rival_seconds") else ""
        theirs = f"FlagGems: {r['rival_remark']}" if r.get("rival_remark") and not rival else ""
        other = r.get("rival_other")
        twice = f"FlagGems took {other * 1e6:.1f} us in the other run" if other and rival and abs(other / r["rival_seconds"] - 1.0) > APART else ""
        remark = "; ".join(x for x in (r.get("remark", ""), theirs, twice) if x)
        cells = (
            r["instance"],
            r["problem"],
            ours,
            spread,
            rival,
            f"{r['times_faster']:.3f}" if r.get("times_faster") else "",
            f"{r['rival_seconds'] / r['library_seconds']:.3f}" if r.get("rival_seconds") and r.get("library_seconds") else "",
            f"{r['rival_seconds'] / limit.seconds:.2f}" if (limit := _limits(r, about)) is not None else "",
            r.get("surface", ""),
            r.get("plan", ""),
            f"{r.get('taken', '')}, {r.get('left', '')}",
            len(r["tried"]),
            f"{r['run']:g}" if r.get("run") else "",
            r.get("when", about["when"]),
            remark,
        )
        yield "| " + " | ".join(str(c).replace("|", "\\|").replace("\n", " ") for c in cells) + " |"
