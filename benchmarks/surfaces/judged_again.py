"""What the gate of today says of every state of the shipped lineages, and of the experts: `benchmarks/results/judged-again.md`.

    python -m benchmarks.surfaces.judged_again            # writes the page; exit 1 where a verdict changed
    python -m benchmarks.surfaces.judged_again softmax    # only lineages and experts with this in their name

A state was accepted when its lineage was walked. It is judged again for correctness, at the sizes that are solved from it and from the lineage's
expert; what a row says was tested is the coverage of that run. Compilers are not called: they say what they said.
"""
from __future__ import annotations

import argparse
import os
import sys
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kir.base.diagnostic import KirError
from kir.gate.cases import problem_tests, relative_tests
from kir.gate.correctness import check
from kir.gate.verdict import CorrectnessRecord
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.lineage.records.folder import opened
from kir.problem import load_problem, problem_names

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "benchmarks" / "results" / "judged-again.md"
HEAD = """# The shipped lineages and experts, judged again

Written by `python -m benchmarks.surfaces.judged_again`. Each state of a lineage was accepted when it was walked; here the correctness stage of today's gate
judges it again, at sizes solved from the state and from the lineage's expert. Coverage counts what the runs reached of what the sizes can bring
about (`docs/using/gate.md`), over all states.

| lineage or expert | states | accepted | coverage | refused now |
| --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class State:
    """What is judged: a row of the page, the state's name in it, and its file with a number (of a lineage's state) or a problem's name."""

    row: str
    name: str
    at: Path
    index: int = 0
    problem: str = ""


def judged(program: Program, problem: str, expert: Program | None) -> CorrectnessRecord:
    """The correctness stage of one program: under its problem, or relative to the expert."""
    if problem:
        known = load_problem(problem)
        return check(program, problem_tests(program, known, {}, () if expert is None else (expert,)), problem)
    assert expert is not None
    return check(program, relative_tests(program, expert), expert.name, relative=True)


def states() -> Iterator[State]:
    """Every state of the shipped lineages (the expert first), every problem's naive program, every expert."""
    skills = ROOT / "skills"
    for folder in sorted(p.parent for p in (skills / "lineages").glob("*/lineage.json")):
        yield from (State(f"lineage {folder.name}", f"state {i}", folder, i) for i in range(len(opened(folder).read().states)))
    for name in problem_names():
        if (skills / "problems" / name / "naive.kir").is_file():
            yield State(f"naive {name}", "naive", skills / "problems" / name, problem=name)
    for row in tomllib.loads((skills / "experts" / "experts.toml").read_text(encoding="utf-8")).values():
        for file in (skills / "experts").glob(f"*/{Path(row['file']).name}"):
            if file.suffix == ".kir":
                yield State(f"expert {file.stem}", file.stem, file, problem=row["problem"])


def judge(state: State) -> tuple[int, int, str, float]:
    """What its runs reached, what they could reach, why it is refused ("" accepted), and the seconds that it took."""
    begun = time.perf_counter()
    try:
        record = _record(state)
    except KirError as fault:
        return 0, 0, f"{state.name}: cannot be read: {fault.diagnostics[0].message}", time.perf_counter() - begun
    kinds = record.coverage.kinds.values() if record.coverage is not None else ()
    reason = "" if record.ok else f"{state.name}: {record.reason}"
    return sum(pair[0] for pair in kinds), sum(pair[1] for pair in kinds), reason, time.perf_counter() - begun


def _record(state: State) -> CorrectnessRecord:
    if state.row.startswith("naive"):
        return judged(load_problem(state.problem).naive, state.problem, None)
    if state.problem:
        return judged(parse_program(state.at.read_text(encoding="utf-8"), str(state.at)), state.problem, None)
    found = opened(state.at)
    record = found.read()
    expert = found.program(record.states[0])
    return judged(found.program(record.states[state.index]), record.header.problem, expert)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only lineages and experts with this in their name")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    work = [s for s in states() if not given.names or any(w in s.row for w in given.names)]
    with ProcessPoolExecutor(given.workers) as pool:
        found = []
        for state, answer in zip(work, pool.map(judge, work)):
            found.append((state, answer))
            print(f"{state.row}, {state.name}: {answer[0]}/{answer[1]} {answer[2] or 'accepted'} {answer[3]:.1f} s", file=sys.stderr, flush=True)
    rows, fallen = [], 0
    for name in dict.fromkeys(s.row for s in work):
        mine = [answer for s, answer in found if s.row == name]
        refused = [reason for _, _, reason, _ in mine if reason]
        fallen += len(refused)
        done, total, seconds = (sum(answer[i] for answer in mine) for i in (0, 1, 3))
        rows.append(f"| {name} | {len(mine)} | {len(mine) - len(refused)} | {done}/{total} | {'; '.join(refused) or '-'} |")
        print(rows[-1], f"{seconds:.1f} s", flush=True)
    if not given.names:
        PAGE.write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")
    return 1 if fallen else 0


if __name__ == "__main__":
    sys.exit(main())
