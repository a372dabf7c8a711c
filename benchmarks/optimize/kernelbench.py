"""Models in the form of KernelBench: from a model alone to a kernel, beside torch's eager mode and torch.compile, under one budget.

KernelBench's own files are read from a folder with `level1` and `level2` (`--from`); without one, models of the same operator kinds that are written in
`benchmarks.optimize.models`. A model that the importer or the writer of naive programs refuses is a row with the reason.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import random
import secrets
import statistics
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import asdict, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from benchmarks.optimize.ahead import Proposed
from benchmarks.optimize.running import SEARCH, code, each, opened, search, share, spending
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.gate.gpu.references import COMPILED_REFERENCE
from kir.hardware.device.client import ChildGone
from kir.learning.optimize.plan import PlanSource
from kir.learning.optimize.pool.engines import Devices, Lost
from kir.learning.optimize.schedules.scans import ScanSource
from kir.learning.optimize.search import Budget
from kir.learning.optimize.sources import LineageSource, PassSource, PipelineSource, TileSource
from kir.problem import Problem, Shape, load_problem
from kir.problem.model import ModelProblem

LEVELS = ("level1", "level2")
BUDGET = Budget(candidates=20, seconds=180.0)
"""What one model may take: candidates that are gated, and seconds of a wall clock for the search, the gate and the compilers."""
MODELLED = Budget(candidates=4, seconds=180.0, plans=160)
"""The same where times are modelled: fewer, since a second measurement of one time tells nothing."""
OWN = "written here, of the same operator kinds (KernelBench's own files are not copied; `--from FOLDER` reads them)"
MEASURED = 4
"""Further candidates of a model that are timed in one go, where its first is slower than torch; the fastest that the whole gate takes counts."""
HEAD = ("model", "kernels", "ours", "eager", "torch.compile", "over eager", "over torch.compile", "surface", "plan", "measured", "remark")


@dataclass(frozen=True)
class Asked:
    """A model's file, as an instance that the device's runs know."""

    path: str

    @property
    def name(self) -> str:
        """Its level and name."""
        return "/".join(Path(self.path).with_suffix("").parts[-2:])

    def posed(self) -> Problem:
        """Its problem."""
        return load_problem(self.path)

    @property
    def shape(self) -> Shape:
        """The shape of the file."""
        return self.posed().tagged("timed")[0]

    def closed(self) -> None:
        """The problem's own process ended; the next question starts another."""
        problem = self.posed()
        if isinstance(problem, ModelProblem):
            problem.runner.close()


def models(given: str, only: str) -> tuple[list[Asked], contextlib.AbstractContextManager[Any]]:
    """The files whose names have one of the words, in the order of the words, and what holds them as long as they are needed."""
    from benchmarks.optimize.models import written

    held: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if given:
        files = [p for level in LEVELS for p in sorted((Path(given) / level).glob("*.py"))]
    else:
        folder = tempfile.TemporaryDirectory(prefix="kir-models-")
        held, files = folder, written(Path(folder.name))
    words = only.split(",")
    found = [a for p in files if any(word in (a := Asked(str(p))).name for word in words)]
    random.Random(0).shuffle(found)  # a run that is cut short has met all kinds; what is named first comes first
    return sorted(found, key=lambda a: next(i for i, word in enumerate(words) if word in a.name)), held


def kernelbench(out: Path, on: str, given: str, only: str, seconds: float, workers: int, surface: str = "", ahead: str = "") -> int:
    """Every model; rows are kept as they come, and those that are there are not made again. 0 when each has one."""
    asked, held = models(given, only)
    with held:
        words = f"--on {on}{f' --surface {surface}' if surface else ''}{' --from ' + Path(given).name if given else ''} --seconds {seconds:g}"
        rows = Rows(out / f"optimize-kernelbench{'' if on == 'gpu' else '-modelled'}.json", given, on, words)
        left = [a for a in asked if not rows.now(a.name)]
        if not seconds:  # the page of the rows that are there, as their run told
            rows.told_again()
        elif on == "gpu":
            measured(asked, rows, seconds, workers, surface, ahead)
        else:
            for (path,), row in each(modelled, [(a.path,) for a in left], workers or 1, seconds):
                rows.keep(Asked(path).name, row)
                print(json.dumps({"model": Asked(path).name, **{k: row.get(k) for k in ("given", "seconds", "remark")}}), flush=True)
    print("\n".join(rows.table()))
    return 0 if all(rows.now(a.name) for a in asked) else 1


class Rows:
    """Rows by model, one JSON file that always holds all that is known, and a table beside it."""

    def __init__(self, file: Path, given: str, on: str, words: str = "") -> None:
        self.file, self.rows = file, dict[str, dict[str, Any]]()
        self.about = {
            "command": f"python -m benchmarks.optimize kernelbench {words}".strip(),
            "models": "KernelBench's own" if given else OWN,
            "device": "a modelled H200", "when": time.strftime("%Y-%m-%d"), "measured": on == "gpu",
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        self._known()

    def told_again(self) -> None:
        """The page anew, of the rows and the run that the file tells of."""
        self.about = json.loads(self.file.read_text(encoding="utf-8"))["about"]
        self._write()

    def now(self, name: str) -> dict[str, Any] | None:
        """A model's row, where this code made it on a device of this name: one of other code is no beginning for it."""
        row = self.rows.get(name)
        return row if row and (row.get("code"), row.get("device")) == (code(), self.about["device"]) else None

    def priors(self, name: str) -> dict[str, float]:
        """What measured times were over forecasts, by family and surface, in the median of all other models' candidates; under "" that of all."""
        found: dict[str, list[float]] = {}
        for t in (t for key, row in self.rows.items() if key != name for t in row.get("tried", ()) if t.get("accepted") and t.get("forecast")):
            for key in ("", f"{t.get('family')} {t.get('surface')}"):
                found.setdefault(key, []).append(t["seconds"] / t["forecast"])
        return {key: statistics.median(x) for key, x in found.items()}

    def keep(self, name: str, row: Mapping[str, Any]) -> None:
        """A model's row in the place of an older one, beside those that another run over the same folder has kept meanwhile."""
        with self.file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._known()
            self.rows[name] = {**row, "model": name, "code": code(), "device": self.about["device"], "when": time.strftime("%Y-%m-%d")}
            self._write()

    def _known(self) -> None:
        if self.file.is_file():
            self.rows |= {row["model"]: row for row in json.loads(self.file.read_text(encoding="utf-8"))["rows"]}

    def _write(self) -> None:
        write_atomic(self.file, json.dumps({"about": self.about, "rows": [self.rows[k] for k in sorted(self.rows)]}, indent=1) + "\n")
        write_atomic(self.file.with_suffix(".md"), "\n".join(self.table()) + "\n")

    def table(self) -> Iterator[str]:
        """The page."""
        rows = [self.rows[k] for k in sorted(self.rows)]
        yield "# Models, from what they compute alone"
        yield ""
        yield (
            f"Made by `{self.about['command']}` on {self.about['device']}, {self.about['when']}. The models are {self.about['models']}. Nothing but the model "
            "is given: its operators become a naive program (decision 10), which is where the search begins. "
            + (f"At most {BUDGET.candidates} measured candidates and {BUDGET.seconds:g} s a model; torch in the same run, in float32 without tf32, as a right "
               "answer needs; medians with a cold L2. Of each model one candidate is measured first, then torch, then more where torch is faster, "
               "when all have a row; a run that ends sooner has no more of it. A search that was done ahead (`models --ahead`) counts with its seconds."
               if self.about["measured"] else
               f"Times are modelled, {MODELLED.candidates} candidates and {MODELLED.plans} plans a model; what is found is gated by the interpreter on every "
               "shape. Beside torch it has to be measured (`--on gpu`).")
        )
        yield ""
        yield from self._counts(rows)
        yield from share(rows, "models", "torch's")
        yield ""
        yield "| " + " | ".join(HEAD if self.about["measured"] else MODELLED_HEAD) + " |"
        yield "| " + " | ".join("---" for _ in (HEAD if self.about["measured"] else MODELLED_HEAD)) + " |"
        for r in rows:
            cells = _cells(r) if self.about["measured"] else _modelled_cells(r)
            yield "| " + " | ".join(str(c).replace("|", "\\|").replace("\n", " ") for c in cells) + " |"

    def _counts(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        from benchmarks.optimize.models import LEVEL_1, LEVEL_2

        if self.about["models"] == OWN:
            yield f"- {len(rows)} of {len(LEVEL_1) + len(LEVEL_2)} models were run."
        codes = Counter(str(r.get("code") or "an older one") for r in rows)
        if len(codes) > 1:
            yield f"- Rows of several codes: {', '.join(f'{count} of {each}' for each, count in codes.most_common())}."
        for level in LEVELS:
            mine = [r for r in rows if r["model"].startswith(f"{level}/")]
            if not mine:
                yield f"- {level}: not run."
                continue
            taken = [r for r in mine if r.get("kernels")]
            right = [r for r in taken if r.get("seconds")]
            if not self.about["measured"]:
                gains = [r["given"] / r["seconds"] for r in right]
                yield (f"- {level}: {len(taken)} of {len(mine)} models have a naive program; of these {len(right)} end right and faster by the model, "
                       f"{_mean(gains):.1f} times in the geometric mean.")
                continue
            eager = [r["eager"] / r["seconds"] for r in right if r.get("eager")]
            other = [r["compiled"] / r["seconds"] for r in right if r.get("compiled")]
            yield (
                f"- {level}: {len(taken)} of {len(mine)} models have a naive program; of these {len(right)} end right, {sum(x > 1 for x in eager)} of "
                f"{len(eager)} faster than eager (geometric mean {_mean(eager):.2f}, median {statistics.median(eager) if eager else math.nan:.2f}), "
                + (f"{sum(x > 1 for x in other)} of {len(other)} faster than torch.compile (geometric mean {_mean(other):.2f})." if other else
                   "none was timed beside torch.compile.")
            )


MODELLED_HEAD = ("model", "kernels", "naive, modelled", "best, modelled", "times", "surface and plan", "gated", "remark")


def _mean(xs: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, xs)) / len(xs)) if xs else math.nan


def _us(x: float | None) -> str:
    return f"{x * 1e6:.1f} us" if x else ""


def _cells(r: Mapping[str, Any]) -> tuple[Any, ...]:
    ours = r.get("seconds")
    ratios = [f"{r[k] / ours:.2f}" if ours and r.get(k) else "" for k in ("eager", "compiled")]
    return (r["model"], r.get("kernels", ""), _us(ours), _us(r.get("eager")), _us(r.get("compiled")), *ratios, r.get("surface", ""), r.get("plan", ""),
            len(r.get("tried", ())), r.get("remark", ""))


def _modelled_cells(r: Mapping[str, Any]) -> tuple[Any, ...]:
    ours = r.get("seconds")
    return (r["model"], r.get("kernels", ""), _us(r.get("given")), _us(ours), f"{r['given'] / ours:.1f}" if ours else "", r.get("plan", ""), r.get("gated", ""),
            r.get("remark", ""))


def sources() -> tuple[PlanSource, ...]:
    """Where plans come from: what is stored, and single passes."""
    return TileSource(), PipelineSource(), LineageSource(), ScanSource(), PassSource()


def modelled(path: str) -> dict[str, Any]:
    """The row of one search where times are modelled."""
    from kir.learning.optimize.policy import load

    try:
        problem = load_problem(path)
        kernels = len(problem.naive.kernels)
    except KirError as refused:
        return _refused(refused)
    Asked(path).closed()
    found, row = search(path, "", sources(), MODELLED, policy=load())
    return {**row, "kernels": kernels, "surface": found.best.surface if found is not None and found.best is not None else ""}


def _refused(said: KirError) -> dict[str, Any]:
    first = said.diagnostics[0]
    return {"seconds": None, "remark": f"{first.id}: {first.message}"}


# ------------------------------------------------------------------------------------------------------------------- on a device

PLANS = 64
"""Plans that a search builds before its proposals are taken."""
PROPOSALS = BUDGET.candidates


def proposals(path: str, device: str, surface: str = "") -> tuple[int, list[Proposed]]:
    """Kernels of a model's naive program, and what the search would gate first. Raises KirError."""
    from kir.hardware.target import target
    from kir.ir.printer import program_text
    from kir.learning.optimize.judge import CpuJudge
    from kir.learning.optimize.plan import Setting
    from kir.learning.optimize.policy import load
    from kir.learning.optimize.search import Search

    one = Asked(path)
    setting = Setting(one.posed(), one.shape, target(device), surface)
    made = Search(setting.problem.naive, setting, CpuJudge(setting, measures=True), sources(), policy=load(), budget=Budget(seconds=1e4, plans=PLANS))
    found = made.proposals(PROPOSALS)
    told = [Proposed(c.key, c.plan.key, c.plan.family, c.surface, program_text(c.program), c.seconds, len(c.steps), len(c.left),
                     point=dict(c.plan.point)) for c in found]
    return len(setting.problem.naive.kernels), told


def searched(path: str, folder: str, surface: str) -> dict[str, Any]:
    """The search of one model without a device, its proposals kept in a folder; what it came to."""
    begun, row = time.monotonic(), dict[str, Any]()
    try:
        kernels, told = proposals(path, "h200", surface)
        row = {"kernels": kernels, "proposals": [asdict(p) for p in told]}
    except KirError as refused:
        row = _refused(refused)
    Asked(path).closed()
    row["search"] = round(time.monotonic() - begun, 1)
    write_atomic(_kept_at(folder, path), json.dumps({"made_with": _made_with(path, surface), **row}, indent=1) + "\n")
    return {"kernels": row.get("kernels"), "proposals": len(row.get("proposals", ())), "search": row["search"], "remark": row.get("remark", "")}


def search_ahead(folder: Path, given: str, only: str, seconds: float, workers: int, surface: str = "") -> int:
    """Search every model that the folder has nothing of, in so many processes; 0 when each was. A device's run takes the proposals from there, and counts the
    seconds of the search as it counts its own."""
    asked, held = models(given, only)
    folder.mkdir(parents=True, exist_ok=True)
    with held:
        left = [a for a in asked if _kept(str(folder), a.path, surface) is None]
        for (path, *_), row in each(searched, [(a.path, str(folder), surface) for a in left], workers or 1, seconds):
            print(json.dumps({"model": Asked(path).name, **row}), flush=True)
        return 0 if all(_kept(str(folder), a.path, surface) is not None for a in asked) else 1


def _kept_at(folder: str, path: str) -> Path:
    return Path(folder) / f"{Asked(path).name.replace('/', '-')}.json"


def _made_with(path: str, surface: str) -> str:
    """The hash of a model's text, that of the search, and the surface that was asked for."""
    text = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return f"{text[:16]} {code(SEARCH)} {surface}"


def _kept(folder: str, path: str, surface: str) -> dict[str, Any] | None:
    """What was kept of a model; None where there is nothing, or it was made of another text or with another version."""
    file = _kept_at(folder, path)
    if not folder or not file.is_file():
        return None
    held: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return held if held["made_with"] == _made_with(path, surface) else None


@dataclass(frozen=True)
class Model:
    """A model's row, as what a pool is given; `ahead` is where proposals were kept, `row` what is known of it, `priors` what forecasts of a family of plans
    on a surface were wrong by on other models."""

    path: str
    surface: str
    ahead: str = ""
    row: dict[str, Any] | None = None
    priors: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.path


def measured(asked: Sequence[Asked], rows: Rows, seconds: float, workers: int, surface: str = "", ahead: str = "") -> None:
    """The models side by side, each in a process that searches, gates and times torch; on the device they take turns. Raises what opening that does."""
    from kir.gate.gpu import Gpu

    until = time.monotonic() + seconds
    with Gpu.open() as gpu:
        rows.about["device"] = str(gpu.about["name"])
        gpu.peaks  # noqa: B018  # measured once before anything else works here, which also makes the harness
    count = workers or max(1, len(os.sched_getaffinity(0)) - 1)
    engine, begun = Devices((0,), count), dict[Any, tuple[Asked, Any]]()
    left = deque((step, one) for step in STEPS for one in asked if _wanted(step, rows.now(one.name)))
    try:
        while (left or begun) and time.monotonic() < until:
            while left and len(begun) < count:
                _, one = left.popleft()
                model = Model(one.path, surface, ahead, rows.now(one.name), rows.priors(one.name))
                task = engine.begin(device_row, model)
                begun[task.said] = one, task
            for said in wait(begun, timeout=max(0.0, until - time.monotonic()), return_when=FIRST_COMPLETED).done:
                one, task = begun.pop(said)
                before = rows.now(one.name) or {}
                try:
                    row = {**before, **engine.result(task, 0.0)}
                except Lost:
                    row = {**before, "remark": "it ended its process", "took": BUDGET.seconds}
                rows.keep(one.name, row)
                print(json.dumps({"model": one.name, **{k: row.get(k) for k in ("seconds", "eager", "compiled", "surface", "remark", "took")}}), flush=True)
                if _wanted("more", row) and ("more", one) not in left:
                    left.append(("more", one))
    finally:
        engine.close()


Step = Literal["first", "more"]
STEPS: tuple[Step, ...] = ("first", "more")
"""What is done of a model: one candidate that the whole gate takes, and torch; further candidates, where torch is faster, when all models have a row."""


def _wanted(step: Step, row: Mapping[str, Any] | None) -> bool:
    """Whether a step is to be done of a model with such a row."""
    if step == "first" or not row or not row.get("seconds"):
        return step == "first" and not row
    best = min((row[k] for k in ("eager", "compiled") if row.get(k)), default=0.0)
    left = len(row["tried"]) < min(BUDGET.candidates, row.get("proposed", 0)) and row.get("took", 0.0) < BUDGET.seconds
    return left and float(row["seconds"]) > best


def device_row(task: Model) -> dict[str, Any]:
    """What a worker does: proposals and candidates, within the budget of a model, then torch, eager and compiled. `spent` says where its seconds went."""
    from benchmarks.optimize.heldout import measured_more
    from kir.gate.gpu.oracle import sharing

    one, begun = Asked(task.path), time.monotonic()
    row: dict[str, Any] = dict(task.row or {"seconds": None, "tried": []})
    spent, took = dict[str, float](row.get("spent", {})), float(row.get("took", 0.0))
    kernels: int | None = None
    try:
        with spending(spent, "device"):
            gpu = opened()
        with spending(spent, "search"):
            kept = _kept(task.ahead, task.path, task.surface)
            if kept is None:
                kernels, told = proposals(task.path, gpu.target.device.name, task.surface)
        if kept is not None:
            kernels, told = kept.get("kernels"), [Proposed(**p) for p in kept.get("proposals", ())]
            if task.row is None:  # its seconds count as those of a search here
                spent["search"], took = kept["search"], took + kept["search"]
        row |= {"kernels": kernels, "proposed": len(told)}
        until = min(begun + BUDGET.seconds - took, time.monotonic() + GATING_SECONDS)
        with spending(spent, "candidates"), sharing() as shared:
            row = measured_more(gpu, one, told, row, until, 1 if task.row is None else MEASURED, shared, task.priors)
        took += time.monotonic() - begun
        if kept is not None and not told:
            row["remark"] = kept.get("remark", "")
        elif not any(row.get(x) for x in ("eager", "eager_remark")):
            with spending(spent, "torch"):
                row |= beside(gpu, one)
    except KirError as refused:
        row |= _refused(refused)
    except Exception as fault:  # one model that breaks the harness harms no other
        row["remark"] = f"{type(fault).__name__}: {fault}"[:300]
    one.closed()
    return {**row, "spent": spent, "took": round(took, 1)}


GATING_SECONDS = 30.0
"""What gating may take of a model's budget, where candidates are accepted sooner."""


class Drawn:
    """An oracle whose inputs at a shape are drawn once: both rivals get the same."""

    def __init__(self, oracle: Any) -> None:
        self.oracle, self.held = oracle, dict[str, Any]()

    def inputs(self, at: Shape, seed: int, distribution: str) -> dict[str, Any]:
        """Those of the first call at the shape."""
        if at.name not in self.held:
            self.held[at.name] = self.oracle.inputs(at, seed, distribution)
        found: dict[str, Any] = self.held[at.name]
        return found


@dataclass
class Torch:
    """The process of a worker in which torch is."""

    child: Any = None

    def child_of(self, gpu: Any) -> Any:
        """That process, begun where there is none."""
        self.child = self.child or gpu.panels.child(120.0)
        return self.child

    def close(self) -> None:
        """End it; the next model has another."""
        if self.child is not None:
            self.child.close()
        self.child = None


@cache
def torches() -> Torch:
    """The one of this worker."""
    return Torch()


def beside(gpu: Any, one: Asked) -> dict[str, Any]:
    """Median seconds of the model in torch's `eager` mode and as torch compiles it (`compiled`), at the shape of the file; or why there are none. All models of
    a worker are asked about in one process, which imports torch's compiler once."""
    from kir.gate.gpu.oracle import Oracle
    from kir.gate.gpu.panel import Timed, called_once, timed_in
    from kir.problem.model import MODEL_REFERENCE

    problem, found = one.posed(), dict[str, Any]()
    file, secret = {"path": one.path, "text": Path(one.path).read_text(encoding="utf-8")}, random.Random(secrets.randbits(64))
    try:
        child = torches().child_of(gpu)
        with gpu.oracles.child() as other:
            with gpu.turns.beside():
                answer, _ = child.ask({"op": "open", "device": gpu.number, "file": file}, [gpu.harness], 120.0)
            oracle: Any = Drawn(Oracle.of(other, problem))
            for how, name in (("eager", MODEL_REFERENCE), ("compiled", COMPILED_REFERENCE)):
                said = str(answer.get("missing", "")) or called_once(gpu, child, name, problem, one.shape, oracle, secret)
                told = said or timed_in(gpu, child, name, problem, one.shape, oracle, secret)
                found |= {how: told.estimate.median} if isinstance(told, Timed) else {f"{how}_remark": told if isinstance(told, str) else told.reason}
    except ChildGone as gone:  # ours is measured all the same
        torches().close()
        found |= {f"{how}_remark": gone.said for how in ("eager", "compiled") if how not in found and f"{how}_remark" not in found}
    return found
