"""What can be done before anything is measured, on all cores: the search's own proposals for an instance, compiled into the gate's cache; and the
rivals' autotuned kernels compiled into Triton's."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import kir
from benchmarks.optimize.instances import INSTANCES, Instance
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.hardware.target import target as named
from kir.ir.canonical import content_hash
from kir.learning.optimize.search import Candidate

PLANS, PROPOSALS = 160, 96
"""Plans that the search builds for an instance, and candidates that are kept: a few times as many as may be measured."""
FRESH = 0.93
"""What the forecast of one is multiplied with, when those are chosen, for each value of a parameter that none has yet of its family."""


@dataclass(frozen=True)
class Proposed:
    """A candidate by its program's text: what crosses from one process to another."""

    key: str
    plan: str
    family: str
    surface: str
    text: str
    forecast: float
    taken: int
    left: int
    kin: bool = False
    """Whether it is of a family that was learned on the same operator, and was taken nearly whole."""
    point: Mapping[str, Any] = field(default_factory=dict)
    """The parameters of its plan."""
    compiling: float = 0.0
    """Processor seconds that it took to compile it ahead."""


def proposals(number: int, device: str) -> list[Proposed]:
    """What the search would gate first of an instance, from its problem's naive program."""
    from kir.ir.printer import program_text
    from kir.learning.optimize.judge import CpuJudge
    from kir.learning.optimize.plan import Setting
    from kir.learning.optimize.policy import load
    from kir.learning.optimize.search import Budget, Search

    one = INSTANCES[number]
    problem = one.posed()
    setting = Setting(problem, one.shape, named(device), "")
    search = Search(problem.naive, setting, CpuJudge(setting, measures=True), budget=Budget(seconds=1e4, plans=PLANS), policy=load())
    found = spread(search.proposals(PLANS), PROPOSALS)
    kin = [search.meant(c) for c in found]
    return [
        Proposed(c.key, c.plan.key, c.plan.family, c.surface, program_text(c.program), c.seconds, len(c.steps), len(c.left), near, dict(c.plan.point))
        for c, near in zip(found, kin, strict=True)
    ]


def spread(found: Sequence[Candidate], count: int) -> list[Candidate]:
    """So many of what was found, of each family in turn: what seems fastest first, sooner where it has values of parameters that none has before it."""
    families: dict[tuple[str, str], list[Candidate]] = {}
    for c in found:
        families.setdefault((c.plan.family, c.surface), []).append(c)
    for key, rest in families.items():
        seen, chosen, left = set[tuple[str, Any]](), list[Candidate](), rest
        while left and len(chosen) < count:
            best = min(left, key=lambda c: c.seconds * FRESH ** len({*c.plan.point.items()} - seen))
            seen |= {*best.plan.point.items()}
            chosen, left = [*chosen, best], [c for c in left if c is not best]
        families[key] = chosen
    return [c for row in itertools.zip_longest(*families.values()) for c in row if c is not None][:count]


def keep(folder: Path, wanted: list[int], device: str) -> None:
    """Write the proposals of instances to a folder, a file each: `heldout` takes them from there instead of searching again. They hold for the program
    and the version that they were made with, which the file says."""
    for i in wanted:
        begun = time.process_time()
        made = proposals(i, device)
        _write(folder, i, made, time.process_time() - begun)


def _write(folder: Path, number: int, made: Sequence[Proposed], searching: float) -> None:
    held = {"made_with": made_with(number), "searching": round(searching, 1), "proposals": [asdict(p) for p in made]}
    write_atomic(folder / f"{_stem(number)}.json", json.dumps(held, indent=1) + "\n")


def searching(folder: Path | None, number: int) -> float:
    """Processor seconds of the search that `keep` did for an instance."""
    file = folder / f"{_stem(number)}.json" if folder is not None else None
    return float(json.loads(file.read_text(encoding="utf-8")).get("searching", 0.0)) if file is not None and file.is_file() else 0.0


def kept(folder: Path | None, number: int) -> list[Proposed] | None:
    """What `keep` wrote of an instance; None where there is nothing, or it was made with another version."""
    file = folder / f"{_stem(number)}.json" if folder is not None else None
    if file is None or not file.is_file():
        return None
    held = json.loads(file.read_text(encoding="utf-8"))
    return [Proposed(**row) for row in held["proposals"]] if held["made_with"] == made_with(number) else None


def made_with(number: int) -> str:
    """The content hash of an instance's naive program and the version of KIR."""
    return f"{content_hash(INSTANCES[number].posed().naive)[:16]} {kir.__version__}"


def _stem(number: int) -> str:
    return INSTANCES[number].name.replace(" ", "-")


def compiled(sizes: Mapping[str, int], one: Proposed, device: str, folder: str) -> tuple[str, float]:
    """A candidate for a call at these sizes, compiled into the gate's cache: the compiler's words where it refuses, and processor seconds."""
    from kir.gate.artifacts import ArtifactCache
    from kir.ir.parser import parse_program
    from kir.surface import backend

    by, said, begun = backend(one.surface), "", _processor()
    try:
        text = by.emit(parse_program(one.text, one.key))
        ArtifactCache(Path(folder)).compiled(by, by.launched_with(text, sizes), named(device))
    except KirError as refused:
        said = f"{refused.diagnostics[0].id}: {refused.diagnostics[0].message}"
    return said, round(_processor() - begun, 1)


def _processor() -> float:
    """Processor seconds of this process and those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def compile_kept(folder: Path, wanted: list[int], device: str, workers: int, seconds: float) -> int:
    """Compile what was kept of instances into `FOLDER/artifacts`, the first proposal of each, then the second of each, for so many seconds; how many were
    compiled. `heldout` takes them from there."""
    lists, took = [kept(folder, i) or [] for i in wanted], dict[tuple[int, str], float]()
    until, done = time.monotonic() + seconds, 0
    with _pool(workers) as pool:
        making = [
            (i, row[k].key, pool.submit(compiled, INSTANCES[i].sizes, row[k], device, str(folder / "artifacts")))
            for k in range(PROPOSALS)
            for i, row in zip(wanted, lists, strict=True)
            if k < len(row)
        ]
        for i, key, future in making:
            try:
                said, took[i, key] = future.result(timeout=max(0.0, until - time.monotonic()))
                if said:
                    print(said, file=sys.stderr)
                done += not said
            except TimeoutError:
                break
        for i, row in zip(wanted, lists, strict=True):
            _write(folder, i, [replace(p, compiling=took.get((i, p.key), p.compiling)) for p in row], searching(folder, i))
    return done


@contextlib.contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end with what they are at: what waits for one is dropped. (To leave an executor's own block waits for everything, whatever was said
    before.)"""
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def artifacts_taken(folder: Path | None, into: Path) -> None:
    """What `compile_kept` made, put among a gate's artifacts. Their names are hashes of what they were made of, so that none is taken for another."""
    for each in (folder / "artifacts").glob("*.json.gz") if folder is not None else ():
        if not (into / each.name).exists():
            into.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(each, into / each.name)


def rivals_compiling(folder: Path, share: int, wanted: list[Instance]) -> list[subprocess.Popen[bytes]]:
    """Processes that call each rival once with a share of its autotuner's configurations, so that they lie compiled in Triton's cache. What they
    choose is thrown away: the real tuning is done later, with nothing beside it."""
    out = []
    for k in range(share):
        env = {**os.environ, "TRITON_CACHE_DIR": str(folder / "panel" / "triton"), "FLAGGEMS_DB_URL": f"sqlite:///{folder}/rivals-{k}.db"}
        words = [sys.executable, "-m", "benchmarks.optimize.rivals", str(k), str(share), *(one.name for one in wanted)]
        out.append(subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    return out


def told(one: Proposed) -> dict[str, Any]:
    """A proposal without its text."""
    return {"candidate": one.key, "plan": one.plan, "surface": one.surface, "forecast": one.forecast, "taken": one.taken, "left": one.left,
            "point": dict(one.point)}
