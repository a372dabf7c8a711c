"""The data set as matrices: features of every pair, worked out on the CPU in several processes and kept by content."""
from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import sqlite3
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.hardware.target import target as target_of
from kir.ir.parser import parse_program
from kir.learning.forecast.comparison import APART, LEVELS, MOVED, PRINT, RAW, SURFACES, Compared, Side, of_device, of_limits, of_step, opposite
from kir.learning.forecast.data import Data, PairRow, ProgramRow
from kir.learning.forecast.features import State, state
from kir.learning.forecast.terms import excluded
from kir.learning.forecast.training import Rows
from kir.surface import Artifact

SOURCES = ("gate/cost.py", "gate/counts/*.py", "hardware/target.py", "ir/measures/features.py", "learning/forecast/terms.py",
           "learning/forecast/features.py")
"""Files of KIR that features depend on: what is kept was worked out by the same."""
DRAWN = 20
"""Pairs of programs of one kernel at one shape that are drawn, at most, beside those that a step joins."""
LEFT_OUT = 0.002
"""Features that fewer of the rows have than this are dropped."""
ONE_FAMILY = {"matmul": "gemm"}
"""Families that a part of the data still names otherwise: what is left out of training must be the whole family."""
NOT_MADE = "TimeoutError"
"""How the fault of a program begins that `benchmarks.effects` stopped preparing."""
Wanted = tuple[str, str, str]
"""A program, a device, sizes as JSON."""


@dataclass(frozen=True)
class Task:
    """One program at several places: device and sizes (JSON), and the artifact where it was compiled for the device's architecture."""

    row: ProgramRow
    places: tuple[tuple[str, str, Artifact | None], ...]


@dataclass(frozen=True)
class States:
    """Features of programs by program, device and sizes: as they are, and with machine code where there is some. `why` says why others have none."""

    plain: Mapping[Wanted, State]
    code: Mapping[Wanted, State]
    why: Mapping[Wanted, str]


def sizes_text(sizes: Any) -> str:
    """Sizes as one text."""
    return json.dumps(sizes, sort_keys=True, separators=(",", ":"))


def states(data: Data, folder: Path | None = None, jobs: int = 1, told: Callable[[int, int], None] = lambda done, all_: None) -> States:
    """The features of every program at every place where a pair wants it; with a `folder`, kept there. `told` hears of progress."""
    places: dict[str, dict[tuple[str, str], None]] = {}
    for p in data.pairs:
        for program in (p.before, p.after):
            places.setdefault(program, {})[(p.device, sizes_text(p.sizes))] = None
    tasks = [Task(data.programs[program], tuple((d, s, data.artifact(program, target_of(d).architecture.name)) for d, s in wanted))
             for program, wanted in places.items()]
    plain: dict[Wanted, State] = {}
    code: dict[Wanted, State] = {}
    why: dict[Wanted, str] = {}
    for done, (task, found) in enumerate(kept(tasks, _states_of, _key, folder, jobs), 1):
        for (device, sizes, _), (bare, made, refused) in zip(task.places, found, strict=True):
            key = (task.row.program, device, sizes)
            if refused:
                why[key] = refused
            else:
                plain[key] = bare
                if made:
                    code[key] = made
        told(done, len(tasks))
    return States(plain, code, why)


def _states_of(task: Task) -> list[tuple[State, State, str]]:
    out: list[tuple[State, State, str]] = []
    try:
        program = parse_program(task.row.text, task.row.program)
    except KirError as bad:
        return [({}, {}, f"{bad.diagnostics[0].id} {bad.diagnostics[0].message}") for _ in task.places]
    for device, sizes, artifact in task.places:
        try:
            at, target = json.loads(sizes), target_of(device)
            bare = _short(state(program, at, target, task.row.surface))
            made = _short(state(program, at, target, task.row.surface, artifact)) if artifact is not None else {}
            out.append((bare, made, ""))
        except KirError as bad:
            out.append(({}, {}, f"{bad.diagnostics[0].id} {bad.diagnostics[0].message}"))
        except (ArithmeticError, ValueError, TypeError) as bad:  # what the model cannot count: the row is left out, and that is said
            out.append(({}, {}, f"{type(bad).__name__} {bad}"))
    return out


def _short(found: State) -> State:
    """Features in seven digits: what is kept of so many programs stays small."""
    return {name: float(f"{value:.7g}") for name, value in found.items()}


def _key(task: Task) -> str:
    made = [(d, s, artifact.record() if artifact is not None else None) for d, s, artifact in task.places]
    return json.dumps([task.row.program, task.row.surface, made], sort_keys=True)


def kept(tasks: Sequence[Any], work: Callable[[Any], Any], key: Callable[[Any], str], folder: Path | None, jobs: int) -> Iterator[tuple[Any, Any]]:
    """Each task with what `work` makes of it (JSON), in no order: taken from `folder` where that was worked out before by the same code."""
    keys = [hashlib.sha256(f"{code_version()} {work.__qualname__} {key(t)}".encode()).hexdigest() for t in tasks]
    store = _Store(folder) if folder is not None else None
    try:
        left = []
        for task, name in zip(tasks, keys, strict=True):
            held = store.get(name) if store is not None else None
            if held is None:
                left.append((task, name))
            else:
                yield task, held
        for (task, name), found in zip(left, _done([t for t, _ in left], work, jobs), strict=True):
            if store is not None:
                store.put(name, found)
            yield task, found
    finally:
        if store is not None:
            store.close()


def _done(tasks: Sequence[Any], work: Callable[[Any], Any], jobs: int) -> Iterable[Any]:
    if jobs <= 1 or len(tasks) < 8:
        yield from map(work, tasks)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(work, tasks, chunksize=max(1, min(16, len(tasks) // (4 * jobs))))


class _Store:
    """Results by key, in one SQLite file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._held = sqlite3.connect(folder / "forecast-features.sqlite", timeout=60.0)
        self._held.execute("CREATE TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY, content BLOB)")
        self._open = 0

    def get(self, name: str) -> Any:
        row = self._held.execute("SELECT content FROM kept WHERE name = ?", (name,)).fetchone()
        return json.loads(zlib.decompress(row[0])) if row is not None else None

    def put(self, name: str, content: Any) -> None:
        self._held.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (name, zlib.compress(json.dumps(content).encode(), 1)))
        self._open += 1
        if self._open % 64 == 0:
            self._held.commit()

    def close(self) -> None:
        self._held.commit()
        self._held.close()


@cache
def code_version() -> str:
    """The SHA-256 of the code that features depend on."""
    root = Path(__file__).parents[2]
    files = sorted(f for pattern in SOURCES for f in root.glob(pattern))
    return hashlib.sha256(b"\0".join(f.read_bytes() for f in files)).hexdigest()


def rows_of(data: Data, found: States, like: tuple[Sequence[str], int] | None = None) -> tuple[Rows, list[PairRow]]:
    """The matrices of all pairs whose programs have features, and those pairs in the same order; with `like` the features of these names, of which forests
    see so many, and else those that enough of the pairs have."""
    pairs = settled(data, found)
    asked = [Asked((p.before, p.device, at), (p.after, p.device, at), p.step, data.programs[p.after].surface) for p in pairs
             for at in (sizes_text(p.sizes),)]
    names, used = like or names_of(asked, found)
    about = {"data": data.hash, "pairs": len(pairs), "families": sorted({p.family for p in pairs}), "devices": sorted({p.device for p in pairs})}
    return _rows(pairs, asked, found, names, used, about), pairs


def _rows(pairs: Sequence[PairRow], asked: Sequence[Asked], found: States, names: Sequence[str], used: int, about: Mapping[str, Any]) -> Rows:
    compared = Compared(names)
    matrices = [np.full((len(pairs), len(names)), np.nan) for _ in range(4)]
    for first, held in ((0, found.plain), (2, found.code)):
        sides: dict[Wanted, Side] = {}
        for i, each in enumerate(asked):
            if each.before not in held or each.after not in held:
                continue
            target = target_of(each.before[1])
            a, b = (sides.get(key) or sides.setdefault(key, compared.side(held[key])) for key in (each.before, each.after))
            matrices[first][i] = compared.pair(a, b, each.step, each.surface, target)
            matrices[first + 1][i] = compared.pair(b, a, opposite(each.step), each.surface, target)
    measured = np.array([np.log(p.speedup) if not p.fault else np.nan for p in pairs])
    seen, turned, seen_code, turned_code = matrices
    return Rows(tuple(names), used, seen, turned, seen_code, turned_code, measured, np.array([bool(p.fault) for p in pairs], bool),
                np.array([ONE_FAMILY.get(p.family, p.family) for p in pairs], dtype=object), about)


def drawn_of(data: Data, found: States, like: Rows, most: int = DRAWN, seed: int = 0) -> tuple[Rows, list[PairRow]]:
    """Pairs of programs that were measured beside one another, whatever lies between them, with the features of `like`: of each kernel at one shape on one
    device and surface up to `most`, drawn by the seed, and no more than two for each program."""
    pools: dict[tuple[str, str, str, str, str], dict[str, float]] = {}
    sizes: dict[str, Any] = {}
    for m in data.measured:
        row, at = data.programs[m.program], sizes_text(m.sizes)
        if (m.program, m.device, at) in found.plain and not m.fault and math.isfinite(m.warm):
            pools.setdefault((row.family, row.problem or m.group, m.device, at, row.surface), {}).setdefault(m.program, m.warm)
            sizes[at] = m.sizes
    random, pairs, asked = np.random.default_rng(seed), [], []
    for (family, _, device, at, surface), held in sorted(pools.items()):
        names = sorted(held)
        chosen = {tuple(random.choice(len(names), 2, replace=False).tolist()) for _ in range(min(most, 2 * len(names)) if len(names) > 2 else 0)}
        for i, j in sorted(chosen):
            before, after = names[i], names[j]
            pairs.append(PairRow(device, "", "", sizes[at], before, after, "", "tune", family, held[before] / held[after]))
            asked.append(Asked((before, device, at), (after, device, at), "", surface))
    return _rows(pairs, asked, found, like.names, like.used, {}), pairs


def settled(data: Data, found: States) -> list[PairRow]:
    """The pairs whose programs have features, and of which something is known."""
    return [p for p in data.pairs if all((q, p.device, sizes_text(p.sizes)) in found.plain for q in (p.before, p.after)) and not unsettled(data, p)]


def unsettled(data: Data, p: PairRow) -> bool:
    """Whether nothing is known of a pair whose later program counts as failed: one that does not compile, and yet compiled in another part of the data, or was
    not made in the time that the host gave it; and one that is wrong at sizes that the facts of both programs exclude."""
    row = data.compiled.get((p.after, target_of(p.device).architecture.name))
    if p.fault == "compile":
        return row is not None and (row.ok or row.fault.startswith(NOT_MADE))
    return p.fault == "wrong" and all(excluded(parse_program(data.programs[q].text, q), p.sizes) for q in (p.before, p.after))


@dataclass(frozen=True)
class Asked:
    """A pair whose features are wanted: both programs at their place, the step, and the surface."""

    before: Wanted
    after: Wanted
    step: str
    surface: str


def names_of(asked: Sequence[Asked], found: States) -> tuple[tuple[str, ...], int]:
    """Names of features that enough pairs have, those that only the distance sees last; and how many the forests see."""
    counts: Counter[str] = Counter()
    for each in asked:
        plain = found.plain[each.before].keys() | found.plain[each.after].keys()
        both = found.code[each.before].keys() & found.code[each.after].keys() if each.before in found.code and each.after in found.code else set()
        counts.update(name for name in plain if name[0] != "s")
        counts.update(name for name in both if name[0] == "s" or name not in plain)
        counts.update(of_step(each.step))
    enough = {name for name, count in counts.items() if count >= LEFT_OUT * len(asked)} - {PRINT}
    features = {name for name in enough if name.partition(" ")[0] in ("step", "pass")}
    states = enough - features
    features |= {f"log {name}" for name in states}
    features |= {f"{side} {name}" for name in states if name.startswith("t.") and name != "t.total" for side in ("was", "share")}
    features |= {f"at {name}" for name in states if name in LEVELS} | {f"at {name}" for name in RAW} | {"at changed"}
    features |= {f"moved {name}" for name in MOVED if name in states}
    features |= {"same s.code"} if any(name.startswith("s.") for name in states) else set()
    features |= {*of_limits({}, target_of("h200")), *of_device("h200"), *(f"surface {s}" for s in SURFACES)}
    mix = sorted(f"mix {name}" for name in states if name[0] in "nk" and name not in APART)
    return (*sorted(features), *mix), len(features)
