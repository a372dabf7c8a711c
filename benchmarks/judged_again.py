"""What the gate of today says of every state of the shipped lineages, and of the experts: `benchmarks/results/judged-again.md`.

    python -m benchmarks.judged_again            # writes the page; exit 1 where a verdict changed
    python -m benchmarks.judged_again softmax    # only lineages and experts with this in their name

A state was accepted when its lineage was walked. It is judged again for correctness, at the sizes that are solved from it and from the lineage's
expert; what a row says was tested is the coverage of that run. Compilers are not called: they say what they said.
"""
from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kir.diagnostic import KirError
from kir.gate.cases import problem_tests, relative_tests
from kir.gate.correctness import check
from kir.gate.verdict import CorrectnessRecord
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.lineage.folder import opened
from kir.problem import load_problem, problem_names

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "benchmarks" / "results" / "judged-again.md"
HEAD = """# The shipped lineages and experts, judged again

Written by `python -m benchmarks.judged_again`. Each state of a lineage was accepted when it was walked; here the correctness stage of today's gate
judges it again, at sizes solved from the state and from the lineage's expert. Coverage counts what the runs reached of what the sizes can bring
about (`docs/gate.md`), over all states.

| lineage or expert | states | accepted | coverage | refused now |
| --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Judged:
    """One state: its name and the record."""

    name: str
    record: CorrectnessRecord


def judged(program: Program, problem: str, expert: Program | None) -> CorrectnessRecord:
    """The correctness stage of one program: under its problem, or relative to the expert."""
    if problem:
        known = load_problem(problem)
        return check(program, problem_tests(program, known, {}, () if expert is None else (expert,)), problem)
    assert expert is not None
    return check(program, relative_tests(program, expert), expert.name, relative=True)


def lineage(folder: Path) -> Iterator[Judged]:
    """Every state of a lineage, the expert first."""
    found = opened(folder)
    record = found.read()
    expert = found.program(record.states[0])
    for i, state in enumerate(record.states):
        program = found.program(state)
        yield Judged(f"state {i}", judged(program, record.header.problem, expert))


def main(wanted: list[str]) -> int:
    rows, fallen = [], 0
    groups: list[tuple[str, Iterator[Judged]]] = []
    groups += [(f"lineage {p.parent.name}", lineage(p.parent)) for p in sorted((ROOT / "skills" / "lineages").glob("*/lineage.json"))]
    groups += [(f"naive {name}", _one(name)) for name in problem_names() if (ROOT / "skills" / "problems" / name / "naive.kir").is_file()]
    groups += [(f"expert {file.stem}", _expert(file)) for file in sorted((ROOT / "skills" / "experts").glob("*/*.kir"))]
    for name, states in groups:
        if wanted and not any(w in name for w in wanted):
            continue
        begun, done, total, count, refused = time.perf_counter(), 0, 0, 0, []
        try:
            for each in states:
                count += 1
                if each.record.coverage is not None:
                    done += sum(pair[0] for pair in each.record.coverage.kinds.values())
                    total += sum(pair[1] for pair in each.record.coverage.kinds.values())
                if not each.record.ok:
                    refused.append(f"{each.name}: {each.record.reason}")
        except KirError as fault:
            refused.append(f"cannot be read: {fault.diagnostics[0].message}")
        fallen += len(refused)
        rows.append(f"| {name} | {count} | {count - len(refused)} | {done}/{total} | {'; '.join(refused) or '-'} |")
        print(rows[-1], f"{time.perf_counter() - begun:.1f} s", flush=True)
    if not wanted:
        PAGE.write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")
    return 1 if fallen else 0


def _one(name: str) -> Iterator[Judged]:
    yield Judged("naive", judged(load_problem(name).naive, name, None))


def _expert(file: Path) -> Iterator[Judged]:
    import tomllib
    known = tomllib.loads((ROOT / "skills" / "experts" / "experts.toml").read_text(encoding="utf-8"))
    for row in known.values():
        if Path(row["file"]).name == file.name:
            yield Judged(file.stem, judged(parse_program(file.read_text(encoding="utf-8"), str(file)), row["problem"], None))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
