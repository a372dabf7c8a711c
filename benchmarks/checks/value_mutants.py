"""Mutants that compute the wrong thing, over all experts, all naive programs, some with wider tiles, and kernels of installed packages: what a run in
float64 over large shapes tells apart, and what the gate refuses.

    python -m benchmarks.checks.value_mutants                   # everything that is not known yet; writes its part of docs/tables/mutants.md
    python -m benchmarks.checks.value_mutants --only softmax    # programs with this word in their names
    python -m benchmarks.checks.value_mutants --list            # the mutants, not run
    python -m benchmarks.checks.value_mutants --jobs 6 --limit 400  # in six processes, what comes to an end within 400 seconds
    python -m benchmarks.checks.value_mutants --allowed         # what is within its bound beside honest programs, at inputs made to tell them apart
    python -m benchmarks.checks.value_mutants --running         # the same beside a bound by running error; writes docs/tables/mutants-rounding.md

What came out is kept in build/value-mutants, so that a run that was cut short goes on: a truth by mutant and by `kir.gate.mutants.truth.VERSION`, a
verdict by mutant and by the text of the gate and of the problems.
"""
from __future__ import annotations

import argparse
import hashlib
import json
import re
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.checks.mutants_page import PAGE, Row, share, summary, with_values
from kir.base.diagnostic import KirError
from kir.faces.cli._program import read
from kir.gate.cases import ProblemCase, RelativeCase, problem_tests, relative_tests, tensor_names
from kir.gate.correctness import check
from kir.gate.inputs.sets import size_sets
from kir.gate.mutants import Mutant, spread
from kir.gate.mutants.truth import ARRANGED, VERSION, Trial, apart, problem_trials, relative_trials, told, trial
from kir.gate.verdict import CorrectnessRecord
from kir.interp import run
from kir.ir.base import Node
from kir.ir.build import const
from kir.ir.canonical import content_hash
from kir.ir.nodes import Load, Program
from kir.ir.types import dtype_of
from kir.ir.visit import transform
from kir.learning.corpus.rank import launched
from kir.problem import Shape, load_problem
from kir.surface.reading import load_expert

Inputs = dict[str, NDArray[Any]]
ROOT = Path(__file__).parents[2]
SKILLS = ROOT / "skills"
KEPT = ROOT / "build" / "value-mutants"
PACKAGES = 117
"""Kernels of installed packages, a third of them of each package: some are refused themselves, as they leave a part of their outputs unwritten."""
EACH = {"expert": 20, "beside": 20, "naive": 20, "package": 4}
"""Mutants of each program, by its kind."""
WIDER = (
    ("tilelang_fmha", "fmha/tilelang.py", "fmha", {"block_N": 256}), ("tilelang_gemm", "gemm/tilelang.py", "gemm", {"block_K": 256}),
    ("triton_gemm", "gemm/triton.py", "gemm", {"BLOCK_K": 256}),
)
"""Experts under a binding with wider tiles than the shipped one."""
STAGE = ("cases", "correctness", "covered", "goals", "operands", "shapes", "verdict")
"""Modules of the gate that its correctness stage is made of."""
LEAST = 0.99
"""The share of what is told apart that the gate must refuse."""
SLOW = 60
"""Seconds of processor time after which a verdict is given up."""
ROUNDS = 5
"""Into how many rounds the mutants of each program are dealt for several processes, so that a run that is cut short has some of each."""


@dataclass(frozen=True)
class Subject:
    """A right program: `kind` is expert, naive, beside (a program with wider tiles than the experts have) or package; `problem` is what it solves
    ("" for one that is its own reference)."""

    name: str
    kind: str
    problem: str
    load: Callable[[], Program]

    @cached_property
    def program(self) -> Program:
        """The program, loaded once."""
        return self.load()

    def mutants(self) -> list[Mutant]:
        """Its mutants: a fixed sample, spread over the rules."""
        return spread(self.program, EACH[self.kind])

    def trials(self) -> list[Trial]:
        """The runs that tell its mutants apart."""
        if self.problem:
            problem = load_problem(self.problem)
            return list(problem_trials(self.program, problem, tensor_names(self.program, problem, {})))
        return list(relative_trials(self.program, size_sets(self.program, (260, 130, 70))[:1] or [{}]))


def subjects() -> Iterator[Subject]:
    """All programs: experts on every surface, naive programs on every surface, kernels of packages."""
    for name, row in tomllib.loads((SKILLS / "experts" / "experts.toml").read_text()).items():
        yield Subject(f"{name}.kir", "expert", row["problem"], partial(_read, SKILLS / "experts" / row["file"], row["problem"]))
    for file in sorted([*(SKILLS / "experts").glob("*/*.cu"), *(SKILLS / "experts").glob("*/*.py")]):
        name = file.name if file.suffix == ".cu" else f"{file.parent.name}/{file.name}"
        yield Subject(name, "expert", file.parent.name, partial(_read, file, file.parent.name))
    for file in sorted((SKILLS / "problems").glob("*/naive*")):
        yield Subject(f"{file.parent.name}/{file.name}", "naive", file.parent.name, partial(_read, file, file.parent.name))
    for file in sorted((ROOT / "benchmarks" / "beside").glob("*.kir")):
        problem = file.stem.partition("_")[0]
        yield Subject(f"beside/{file.name}", "beside", problem, partial(_read, file, problem))
    for name, kernel, problem, metas in WIDER:
        yield Subject(f"{kernel}, {', '.join(f'{k} = {v}' for k, v in metas.items())}", "beside", problem, partial(_tuned, kernel, name, metas))
    rows = {path.stem: [json.loads(line) for line in path.read_text().splitlines()] for path in sorted((SKILLS / "packages").glob("*.jsonl"))}
    for package, found in rows.items():
        turns = sorted(found, key=lambda r: hashlib.sha256(r["kernel"].encode()).digest())
        for r in turns[: -(-PACKAGES // len(rows))]:
            yield Subject(f"{package}: {r['kernel'].rpartition('/')[2]}", "package", "", partial(_of_package, r["kernel"], launched(r["binding"])))


def _read(file: Path, problem: str) -> Program:
    surface = {"naive.cu": "cuda", "naive_tilelang.py": "tilelang", "naive_triton.py": "triton"}.get(file.name, "")
    return read(str(file), SKILLS / "bindings" / f"{problem}_naive_{surface}.toml" if surface else None, problem)


def _tuned(kernel: str, binding: str, metas: dict[str, int]) -> Program:
    told = (SKILLS / "bindings" / f"{binding}.toml").read_text(encoding="utf-8")
    for name, value in metas.items():
        told = re.sub(rf"(?m)^{name} = .*$", f"{name} = {value}", told)
    return _of_package(str(SKILLS / "experts" / kernel), told)


def _of_package(kernel: str, binding: str) -> Program:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "binding.toml"
        path.write_text(binding, encoding="utf-8")
        return load_expert(kernel, path).program


def _defined(load: Callable[[], Program]) -> Program:
    """A program that reads zeros where its masks leave loads out and it does not say what then, and whose outputs hold something before it."""
    def leave(old: Node, new: Node) -> Node:
        unsaid = isinstance(new, Load) and (new.mask is not None or new.clip) and new.other is None
        return replace(new, other=const(0, dtype_of(new.type))) if isinstance(new, Load) and unsaid else new
    program: Program = transform(load(), leave)
    return replace(program, params=tuple(replace(p, role="inout") if p.role == "out" else p for p in program.params))


def _own(s: Subject) -> str:
    """The key of the gate's verdict on a program itself."""
    return f"{content_hash(s.program)}-{gate_version()}-{s.problem}"


# ------------------------------------------------------------------------------------------------------------- the gate

def verdict(program: Program, original: Program, problem: str) -> CorrectnessRecord:
    """The gate's correctness stage, as `kir gate FILE --problem P` and `kir gate FILE --against ORIGINAL` run it."""
    tests = problem_tests(program, load_problem(problem), {}) if problem else relative_tests(program, original)
    return check(program, tests, problem or "the original", relative=not problem)


@cache
def gate_version() -> str:
    """What a verdict depends on beside the program: the correctness stage, its inputs and shapes, and the problems."""
    gate = ROOT / "kir" / "gate"
    code = [*(gate / f"{name}.py" for name in STAGE), *(file for folder in (gate / "inputs", ROOT / "kir" / "problem") for file in sorted(folder.glob("*.py")))]
    files = [*code, *sorted((SKILLS / "problems").glob("*/*.[tp]*"))]
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:12]


def truth_version() -> str:
    """What a truth depends on beside the program."""
    return f"v{VERSION}"


class Kept:
    """Results by key, one line each."""

    def __init__(self, name: str) -> None:
        self.file = KEPT / f"{name}.jsonl"
        lines = self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []
        self.rows: dict[str, dict[str, Any]] = {r["key"]: r for r in map(json.loads, lines)}

    def get(self, key: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The result of a key, found now where it is not known."""
        if key not in self.rows:
            self.rows[key] = {"key": key, **make()}
            KEPT.mkdir(parents=True, exist_ok=True)
            with self.file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(self.rows[key]) + "\n")
        return self.rows[key]


def _limited(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A result, or that it took too long, or what broke."""
    def stop(*_: object) -> None:
        raise TimeoutError(f"it took more than {SLOW} seconds")
    begun = time.perf_counter()
    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SLOW)
    try:
        out = work()
    except TimeoutError as late:
        out = {"broken": str(late)}
    except Exception as fault:  # what breaks on a mutant is a finding of its own, listed on the page
        out = {"broken": f"{type(fault).__name__}: {fault}"[:200]}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return {**out, "seconds": round(time.perf_counter() - begun, 2)}


def rows(only: str = "", limit: float = float("inf"), said: Callable[[str], None] = lambda text: None,
         part: tuple[int, int] = (0, 1), turn: tuple[int, int] = (0, 1), quick: bool = False) -> Iterator[Row]:
    """Every mutant with its verdict and truth, of every N-th program from the I-th on, and of each every so-manieth. After `limit` seconds only what is known
    is given. `quick`: the truth is not asked of what the gate refuses."""
    truths, verdicts, causes = Kept("truth"), Kept("gate"), Kept("cause")
    begun = time.perf_counter()
    for number, s in enumerate(subjects()):
        if (only and only not in s.name) or number % part[1] != part[0]:
            continue
        try:
            mutants = s.mutants()
        except KirError as refused:
            said(f"{s.name} is not read: {refused.diagnostics[0].message}")
            continue
        trials: list[Trial] = []
        own = _own(s)
        if time.perf_counter() - begun > limit and own not in verdicts.rows:
            continue
        itself = verdicts.get(own, partial(_limited, partial(_verdict, s.program, s)))
        if s.kind == "package" and not itself.get("ok") and "undefined" in str(itself.get("reason")):  # as its compiler makes it
            s = replace(s, load=partial(_defined, s.load))
            mutants, own = s.mutants(), _own(s)
            if time.perf_counter() - begun > limit and own not in verdicts.rows:
                continue
            itself = verdicts.get(own, partial(_limited, partial(_verdict, s.program, s)))
        first = content_hash(s.program)
        for m in mutants[turn[0]::turn[1]]:
            assert m.program is not None
            pair = f"{first[:16]}-{content_hash(m.program)[:16]}-{'problem' if s.problem else 'relative'}"
            keys = f"{pair}-{truth_version()}", f"{pair}-{gate_version()}"
            late = time.perf_counter() - begun > limit
            known = keys[1] in verdicts.rows or not itself.get("ok")
            if late and not (known and (keys[0] in truths.rows or (quick and not verdicts.rows.get(keys[1], {}).get("ok")))):
                continue
            gate = verdicts.get(keys[1], partial(_limited, partial(_verdict, m.program, s))) if itself.get("ok") else {
                "broken": f"the gate refuses the original: {itself.get('broken') or itself['reason']}", "seconds": 0}
            if quick and keys[0] not in truths.rows and (gate.get("ok") is False or "broken" in gate):
                truth = {"unasked": True, "seconds": 0}
            else:
                if keys[0] not in truths.rows and not trials:
                    trials = s.trials()
                truth = truths.get(keys[0], partial(_limited, partial(_truth, m, trials)))
            row = Row(s.name, s.kind, m.rule, m.anchor, m.how, truth, gate, {})
            if row.is_told and not row.is_refused and (not late or "-".join(keys) in causes.rows):
                if not trials and "-".join(keys) not in causes.rows:
                    trials = s.trials()
                row = replace(row, cause=causes.get("-".join(keys), partial(_limited, partial(_cause, m, s, trials, row.truth["trial"]))))
            said(f"{time.perf_counter() - begun:6.0f}s {s.name} {m.name}: {row.said}")
            yield row


def _truth(m: Mutant, trials: Sequence[Trial]) -> dict[str, Any]:
    if not trials:
        return {"broken": "there is no trial on which the original is right"}
    assert m.program is not None
    found = told(m.program, trials)
    return {"trial": found.trial, "why": found.why[:200], "factor": min(found.factor, 1e300)}


def _verdict(program: Program, s: Subject) -> dict[str, Any]:
    found = verdict(program, s.program, s.problem)
    return {"ok": found.ok, "reason": (found.reason or "")[:200], "runs": len(found.runs), "worst": max((min(r.worst, 1e300) for r in found.runs), default=0.0)}


# ------------------------------------------------------------------------------------------------------------ diagnosis

def _cause(m: Mutant, s: Subject, trials: Sequence[Trial], name: str) -> dict[str, Any]:
    """Why the gate let a mutant pass that a trial tells apart: its bound at the trial, or the inputs or shapes that it does not reach."""
    t = next(t for t in trials if t.name == name)
    assert m.program is not None
    outputs = run(m.program, {k: v.copy() for k, v in t.arrays.items()}, t.scalars).outputs
    if not s.problem:
        worst = RelativeCase("", {}, 0, t.arrays, t.scalars, t.made).compare(outputs).worst
        return {"cause": "within the bound" if worst <= 1 else "tame inputs", "bound": min(worst, 1e300)}
    assert t.at is not None and t.inputs is not None
    worst = _of_bound(s, t, outputs)
    return {"cause": "within the bound" if worst <= 1 else _unreached(s, m), "bound": min(worst, 1e300)}


def _of_bound(s: Subject, t: Trial, outputs: Mapping[str, Any]) -> float:
    """The worst error of some outputs of a trial as a multiple of the problem's bound."""
    problem = load_problem(s.problem)
    names = tensor_names(s.program, problem, {})
    assert t.at is not None
    return float(problem.compare({names[k]: v for k, v in outputs.items()}, t.inputs or {}, t.at).worst)


def _unreached(s: Subject, m: Mutant) -> str:
    """`tame inputs` where inputs of a trial tell the mutant apart at a shape of the gate, else `shape never reached`."""
    problem = load_problem(s.problem)
    names = tensor_names(s.program, problem, {})
    assert m.program is not None
    shapes = {r.shape: Shape(name=r.shape, tags=("asked",), sizes=dict(r.sizes)) for r in verdict(m.program, s.program, s.problem).runs}
    for at in shapes.values():
        for distribution in problem.distributions:
            for how in ARRANGED:
                for t in trial(s.program, problem, names, at, distribution, how):
                    made = run(m.program, {k: v.copy() for k, v in t.arrays.items()}, t.scalars).outputs
                    if apart(t, made)[0] > 1:
                        worst = _of_bound(s, t, made)
                        return f"tame inputs ({t.name} shows it)" if worst > 1 else f"within the bound at {t.name}"
    return "shape never reached"


# ------------------------------------------------------------------------------------------------------------- what is allowed

def _equal_scores(x: Inputs) -> None:
    x["Q"][...], x["V"][...] = 0, 1


def _cancelling(x: Inputs) -> None:
    x["V"][...] = 64 * np.where(np.arange(x["V"].shape[-2]) % 2, -1, 1)[:, None]


def _small_updates(x: Inputs) -> None:
    x["k"][...], x["g"][...], x["beta"][...], x["v"][...] = 0, 0, 2e-4, 3
    x["k"][..., 0], x["beta"][:, 0], x["v"][:, 0] = 1, 1, 1


def _offset_of_its_own(x: Inputs) -> None:
    row = x["X"][0].astype(np.float64)
    x["W"][...] = 8
    x["B"][...] = -8 * (row - row.mean()) / np.sqrt(row.var() + 1e-5)


MADE: tuple[tuple[str, frozenset[str], Callable[[Inputs], None]], ...] = (
    ("equal scores, values of 1", frozenset("QKV"), _equal_scores), ("values that cancel", frozenset("QKV"), _cancelling),
    ("a large state, updates below half its last place", frozenset({"k", "g", "beta", "v"}), _small_updates),
    ("an offset that cancels a row", frozenset("XWB"), _offset_of_its_own))
"""Inputs made to tell apart what is within its bound: what they are called, the tensors that they change, and how."""


def _allowed(row: Row) -> dict[str, Any]:
    """A mutant within its bound beside the honest programs of problems that allow the same: their worst errors at the gate's runs and at made inputs."""
    every = list(subjects())
    own = next(s for s in every if s.name == row.program)
    mutant = next(m.program for m in own.mutants() if (m.rule, m.anchor, m.how) == (row.rule, row.anchor, row.how))
    assert mutant is not None
    honest = [s for s in every if s.problem and _terms(s.problem) == _terms(own.problem)]
    verdicts = Kept("gate").rows
    held = {s.name: verdicts.get(_own(s), {}) for s in honest}
    worst = max(((float(v["worst"]), name) for name, v in held.items() if v.get("ok")), default=(0.0, ""))
    return {"gate": row.gate["worst"], "honest": list(worst), "made": [
        [name, _at_made(own, mutant, change), *max((_at_made(s, s.program, change), s.name) for s in honest if held[s.name].get("ok"))]
        for name, tensors, change in MADE if tensors <= {x.name for x in load_problem(own.problem).spec.tensors}]}


@cache
def _terms(problem: str) -> tuple[tuple[str, str, float], ...]:
    """What a problem's bound is made of: those that allow the same are one kind."""
    return tuple((e.eps, e.over, e.c) for e in load_problem(problem).spec.errors)


def _at_made(s: Subject, program: Program, change: Callable[[Inputs], None]) -> float:
    """The worst error in bounds at made inputs; 0 where the program is not for the shape."""
    problem = load_problem(s.problem)
    at = next(x for x in problem.shapes if x.name == ("odd" if "X" in {y.name for y in problem.spec.tensors} else "tail"))
    inputs = {k: v.copy() for k, v in problem.inputs(at, 0, "normal").items()}
    change(inputs)
    case = ProblemCase(problem, at, "normal", 0, inputs, tensor_names(s.program, problem, {}))
    wanted = {p.name for p in program.params}
    try:
        return float(case.compare(run(program, case.arrays, {k: v for k, v in case.scalars.items() if k in wanted}).outputs).worst)
    except KirError:
        return 0.0


# ------------------------------------------------------------------------------------------------------------- by running error

ROUNDED = ("fmha", "gdn", "layernorm")
"""Problems of which mutants that round are within the bound: attention, the delta rule, a norm."""
BEYOND = 1.001
"""Half units in the last place from which on an output is not the oracle's, rounded once."""


def running() -> str:
    """docs/tables/mutants-rounding.md: the naive programs, their mutants that round and the experts, element by element beside what the naive program's own
    roundings allow, which is little more than that of the output."""
    lines = [
        "# Mutants that round, beside a bound by running error", "",
        "Made by `python -m benchmarks.checks.value_mutants --running`. An output of a naive program errs by little more than its",
        "own rounding, half a unit in its last place (ulp). That is the least bound that an analysis of running error gives; what a",
        "program errs by beyond it, it has rounded elsewhere. *Bias*: the mean error of a row, with its sign, in standard deviations",
        "of a mean of rounded values.", "",
        "| problem | program | worst, in half ulps | outputs beyond one | worst, of the problem's bound | rms, of that | bias, mean |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |"]
    every = list(subjects())
    for name in ROUNDED:
        own = next(s for s in every if s.name == f"{name}/naive.kir")
        rounding = [m for m in own.mutants() if m.rule in ("value-narrowed", "cast-moved", "accumulate-narrowed")]
        programs = [("naive", own.program), *((m.how, m.program) for m in rounding),
                    *((f"{s.name} (expert)", s.program) for s in every if s.problem == name and s.kind == "expert")]
        for said, program in programs:
            if program is not None and (found := _beside_running(name, program)) is not None:
                lines.append(f"| {name} | {said} | {found[0]:.3g} | {100 * found[1]:.3g} % | {found[2]:.3g} | {found[3]:.2g} | {found[4]:.2g} |")
    return "\n".join(lines) + "\n"


def _beside_running(name: str, program: Program) -> tuple[float, float, float, float, float] | None:
    """The worst error in half units of the last place, the share of outputs beyond one, the worst and the rms in the problem's bounds, and the mean bias of a
    row; None where the program is for none of the shapes."""
    problem, names = load_problem(name), tensor_names(program, load_problem(name), {})
    errors, bounds, bias = list[NDArray[Any]](), list[NDArray[Any]](), list[NDArray[Any]]()
    wanted = {p.name for p in program.params}
    for at in [x for x in problem.shapes if x.name in ("odd", "tail")]:
        inputs = problem.inputs(at, 0, "normal")
        case = ProblemCase(problem, at, "normal", 0, {k: v.copy() for k, v in inputs.items()}, names)
        try:
            made = run(program, case.arrays, {k: v for k, v in case.scalars.items() if k in wanted}).outputs
        except KirError:
            continue
        exact, allowed = problem.expected(inputs, at)
        for own, v in made.items():
            x = exact[names[own]].astype(np.float64)
            digits = {"float16": 11, "bfloat16": 8}.get(str(v.dtype), 24)
            off = v.astype(np.float64) - x
            half = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(x), 2.0**-14))) - digits)
            errors.append((np.abs(off) / half).ravel())
            bounds.append((np.abs(off) / allowed[names[own]]).ravel())
            bias.append(np.abs((off / half * np.sign(x)).mean(-1)).ravel() * np.sqrt(3 * x.shape[-1]))
    if not errors:
        return None
    e, b, r = np.concatenate(errors), np.concatenate(bounds), np.concatenate(bias)
    return float(e.max()), float((e > BEYOND).mean()), float(b.max()), float(np.sqrt((b**2).mean())), float(r.mean())


def _program_rows(only: str, until: float, count: int, quick: bool, number: int) -> None:
    """Run what is not known of one program in one round; results are kept."""
    if time.monotonic() < until:
        list(rows(only, until - time.monotonic(), lambda text: print(text, flush=True), (number % count, count),
                  (number // count, ROUNDS), quick))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="programs with this word in their names")
    parser.add_argument("--list", action="store_true", help="name the mutants, run nothing")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which nothing new is run")
    parser.add_argument("--part", default="0/1", help="I/N: every N-th program from the I-th on, for several machines or processes")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--allowed", action="store_true", help="look at what is known to be within its bound beside honest programs, and write that")
    parser.add_argument("--quick", action="store_true", help="no truth of what the gate refuses: only what it accepts is looked at")
    parser.add_argument("--running", action="store_true", help="write mutants that round beside a bound by running error")
    given = parser.parse_args()
    if given.running:
        (PAGE.parent / "mutants-rounding.md").write_text(running(), encoding="utf-8")
        return 0
    if given.list:
        for s in subjects():
            if given.only in s.name:
                print(*(f"{s.name}: {m.name}" for m in s.mutants()), sep="\n")
        return 0
    which, of = map(int, given.part.split("/"))
    if given.jobs > 1:  # a program each, whoever is done takes the next; what they keep is put together below
        until, count = time.monotonic() + given.limit, sum(1 for _ in subjects())
        with ProcessPoolExecutor(given.jobs, get_context("fork")) as pool:
            list(pool.map(partial(_program_rows, given.only, until, count, given.quick), range(count * ROUNDS)))
    found = list(rows(given.only, 0 if given.jobs > 1 or given.allowed else given.limit, lambda text: print(text, flush=True), (which, of), quick=given.quick))
    kept = Kept("allowed")
    for r in found:
        if r.is_allowed and (given.allowed or r.key in kept.rows):
            r.cause["beside"] = kept.get(r.key, partial(_allowed, r))
    if not given.only and of == 1:
        PAGE.write_text(with_values(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
    print(summary(found))
    return 0 if share(found) >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
