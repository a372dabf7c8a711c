"""Calls replayed from a graph, so that no launch waits for the host: again and again on the same tensors, or in turn on copies that L2 does not hold.

Also what the workloads compile beforehand, on as many processors as there are.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, wraps
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.gpu_parts.session import ROOT
from benchmarks.gpu_workloads.running.asking import EARLY, SIZED
from benchmarks.gpu_workloads.running.launching import compiled, compiled_already
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.gate.artifacts import tool_versions
from kir.gate.gpu.images.executable import Executable
from kir.hardware.target import target
from kir.ir import nodes as n
from kir.ir.nodes import Program
from kir.ir.rebuild.plans import launches
from kir.learning.corpus.roundtrip.run import tool_digest
from kir.learning.tune.space import find_space
from kir.rewrite import Context, run

COLD = 160e6
"""Bytes that the copies of a row's tensors have together at least: three times the L2 of an H200."""
MOST_COPIES, HOT_CALLS = 100, 20
AT_ONCE = 40
"""Compiled programs between two writes of what is kept, so that a run that is ended loses few."""

Made = tuple[Program, Executable] | str
"""A program and what it was compiled to, or why it was not."""


def copies(size: float) -> int:
    """How many sets of tensors of so many bytes are to take turns."""
    return min(MOST_COPIES, max(2, int(COLD / size) + 1))


@dataclass(frozen=True)
class Replay:
    """A graph of calls, which runs all of them and gives what the first returned. It holds the calls and what they returned: the graph knows addresses
    alone, and a call's workspaces are freed with it."""

    graph: Any
    calls: tuple[Callable[[], Any], ...]
    returned: tuple[Any, ...]

    def __call__(self) -> Any:
        self.graph.replay()
        return self.returned[0]


def replayed(calls: Sequence[Callable[[], Any]]) -> Replay:
    """All calls, one after the other, as one."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls[:2]:
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = [call() for call in calls]
    return Replay(graph, tuple(calls), tuple(made))


def graphed(ways: Mapping[str, Callable[[], Any]]) -> dict[str, Callable[[], Any]]:
    """Ways, by their names, as graphs; those that no graph takes as they are, with `(calls)` after their names."""
    import torch

    out: dict[str, Callable[[], Any]] = {}
    for name, call in ways.items():
        try:
            out[name] = replayed([call])
        except Exception:  # it waits for the host in between
            torch.cuda.synchronize()
            out[f"{name} (calls)"] = call
    return out


def _for_cuda(_: Any, program: Program) -> Executable:
    return compiled(program)


class Kept(NamedTuple):
    """What is kept under a key, with digests of the code and the versions of the compilers that made it."""

    code: str
    tools: str
    made: Made


@cache
def stamp() -> tuple[str, str]:
    """Digests of all that makes a candidate today: KIR with its pipelines and answers, and these benchmarks; and its compilers' versions."""
    total = hashlib.sha256(tool_digest().encode())
    skills, here = ("pipelines/*", "carriers/*/*", "experts/*/*", "problems/*/*"), ("*.py", "running/*.py")
    for folder, what in ((ROOT / "skills", skills), (Path(__file__).parents[1], here)):
        for path in sorted(p for pattern in what for p in folder.glob(pattern) if p.is_file()):
            total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()[:24], repr(tool_versions())


def kept(name: str, keys: Iterable[Any], make: Callable[[Any], Program], build: Callable[[Any, Program], Executable] = _for_cuda) -> dict[Any, Made]:
    """Programs by their keys, made and compiled side by side, and kept in `build/NAME.pickle` for another process. What other code made, or refused, is
    made again; it is compiled again where that comes to another text."""
    file, found = ROOT / "build" / f"{name}.pickle", _before(name)
    missing = [k for k in keys if k not in found or found[k][:2] != stamp()]
    if missing:
        with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=get_context("spawn")) as pool:
            jobs = [(make, build, k, found.get(k)) for k in missing]
            for number, (key, one) in enumerate(zip(missing, pool.map(_made, jobs), strict=True), 1):
                found[key] = Kept(*stamp(), one)
                if number % AT_ONCE == 0 or number == len(missing):
                    write_atomic(file, pickle.dumps(found))
    return {key: each.made for key, each in found.items() if each[:2] == stamp()}


def compiled_before(name: str) -> dict[Any, Made]:
    """What `kept` has kept under a name, of whatever code."""
    return {key: each.made for key, each in _before(name).items()}


def _before(name: str) -> dict[Any, Kept]:
    file = ROOT / "build" / f"{name}.pickle"
    found: dict[Any, Any] = pickle.loads(file.read_bytes()) if file.exists() else {}
    return {key: each for key, each in found.items() if isinstance(each, Kept)}


def begun_early(program: Program) -> Program:
    """A program whose kernels are launched so: each waits before its roles, or before all that it does, and then lets the next one begin."""
    first = launches(program)[0].kernel
    body = next(k.body for k in program.kernels if k.name == first)
    wait = len(body) - 1 if isinstance(body[-1], n.Roles) else 0
    return run(program, f"programmatic-dependent-launch{{wait={wait} trigger=start}}@{first}", Context(target("sm_90a"))).program


def early(make: Callable[[Any], Program]) -> Callable[[Any], Program]:
    """`make`, which also takes keys whose point ends in `EARLY`."""

    @wraps(make)
    def either(of: Any) -> Program:
        plain = tuple(x.removesuffix(EARLY) if isinstance(x, str) else x for x in of)
        return make(plain) if plain == of else begun_early(make(plain))

    return either


def surface(point: str) -> str:
    """Of the pipeline of a point, which its first word names."""
    return find_space(point.split()[0]).surface


def key(point: str, row: Any) -> tuple[str, Any]:
    """What a candidate at a row is kept by: TileLang's launchers take the row's sizes, and what others compile holds for all rows, unless it knows one's."""
    return point, row if surface(point) == "tilelang" or SIZED in point else None


def of_rows(name: str, rows: Iterable[Any], points: Iterable[str], suits: Callable[[str, Any], bool], make: Callable[[Any], Program],
            build: Callable[[Any, Program], Executable]) -> dict[Any, Made]:
    """The points that suit a row, of all rows, as `kept`, those of TileLang last: its compiler is the slowest."""
    some = tuple(points)
    return kept(name, sorted(dict.fromkeys(key(p, r) for r in rows for p in some if suits(p, r)), key=lambda k: surface(k[0]) == "tilelang"), make, build)


def _made(what: tuple[Callable[[Any], Program], Callable[[Any, Program], Executable], Any, Kept | None]) -> Made:
    make, build, key, before = what
    known = before.made[1] if before is not None and before.tools == stamp()[1] and not isinstance(before.made, str) else None
    try:
        program = make(key)
        with compiled_already(known):
            return program, build(key, program)
    except (KirError, OSError) as refused:
        return str(refused).splitlines()[0]


def at_sizes(program: Program, sizes: Mapping[str, int]) -> Program:
    """A program with a version of each of its kernels that has a row's sizes as numbers in it."""
    every = launches(program)
    alone = replace(program, plan=()) if program.plan == every and not any(each.attrs for each in every) else program
    word = f"know-sizes{{sizes=[{', '.join(sizes)}] values=[{', '.join(map(str, sizes.values()))}]}}"
    return run(alone, "; ".join(f"{word}@{each.kernel}" for each in (every[:1] if alone.plan else every)), Context(target("sm_90a"))).program
