"""What the checker finds when the experts' synchronization is dropped or weakened, and what the gate says of mutants that compute the wrong thing
(`benchmarks.checks.value_mutants`), as `docs/tables/mutants.md`.

    python -m benchmarks.checks.mutants [NAME ..]     # runs every mutant (some ten minutes, and half an hour for the values), writes docs/tables/mutants.md
    python -m benchmarks.checks.mutants --list NAME   # the mutants of one expert, not run

Each mutant of a CUDA expert is a changed text, run as `kir run --check FILE.cu --problem P` runs it. Those of the Hopper GEMM, whose last
state of `skills/lineages/gemm_sm90` is IR, are changed programs.
"""
from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.checks.mutants_page import PAGE, TITLE, share, with_values
from benchmarks.checks.weakened import Weakened, weakened
from kir.base.diagnostic import Diagnostic, KirError
from kir.base.store import write_atomic
from kir.faces.cli._program import read
from kir.gate.checked import cases, checked, named, one
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.lineage.records.folder import opened
from kir.problem import load_problem
from tests.kir.interp.findings.mutation import mutants

ROOT = Path(__file__).parents[2]
EXPERTS = ROOT / "skills" / "experts"
SOURCES = {"gemm_sm80": "gemm", "scan": "scan", "topk_radix": "topk", "transpose": "transpose", "rmsnorm": "rmsnorm", "softmax": "softmax"}
"""The experts written in CUDA, and their problems."""
HOPPER = "gemm_sm90"
FEW_CTAS = (", 132)", ", 2)")
"""The Hopper GEMM is persistent: with fewer CTAs than the device has, each takes several tiles of a small shape."""
HEAD = """# What the checker finds when synchronization is dropped or weakened

Written by `python -m benchmarks.checks.mutants`. Each row is one change to an expert: a barrier, fence, commit or wait dropped or weakened, a bit of a
mask of lanes left out, a condition dropped or made to let one more in. The changed text is run as `kir run --check FILE.cu --problem P`
runs it, case after case until one shows a fault; *case* is that one. Conditions that only choose between two values in registers guard
no access and are not in the table. A *weak* finding is a store of the same value by several threads: reported, but no reason to refuse.
`tests/laws/threads/test_cuda_mutants.py` runs a part of it and compares the list of places.
"""


@dataclass(frozen=True)
class Row:
    """One mutant as it came out: who found it ("" for nobody), in which case, and the two sides."""

    place: str
    how: str
    finding: str
    case: str
    sides: tuple[str, ...]


def source(name: str) -> Path:
    """The file of an expert written in CUDA."""
    return next(EXPERTS.glob(f"*/{name}.cu"))


def texts(name: str) -> tuple[Weakened, ...]:
    """Every mutant of an expert written in CUDA."""
    return tuple(weakened(source(name).read_text(encoding="utf-8")))


def outcome(name: str, mutant: Weakened) -> Row:
    """A changed text, read and checked as the command does it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / source(name).name
        file.write_text(mutant.text, encoding="utf-8")
        found = _found(lambda: read(str(file), None, SOURCES[name]), SOURCES[name], "")
        sides = tuple(side.replace(f"{folder}/", "") for side in found[2])
    return Row(f"{mutant.line}: `{mutant.place}`", mutant.how, found[0], found[1], sides)


def hopper() -> Iterator[tuple[str, Callable[[], Row]]]:
    """Every mutant of the last state of the Hopper GEMM's lineage, each run when it is called."""
    for m in mutants(_last_state()):
        how, _, place = m.name.rpartition(" ")
        yield m.name, partial(_of_program, m.program, place, how)


def _last_state() -> Program:
    folder = opened(ROOT / "skills" / "lineages" / HOPPER)
    return parse_program(program_text(folder.program(folder.read().start)).replace(*FEW_CTAS), f"{HOPPER}.kir")


def _of_program(program: Program, place: str, how: str) -> Row:
    finding, case, sides = _found(lambda: program, "gemm", "deep")
    return Row(f"`{place}`", how, finding, case, sides)


def _found(program: Callable[[], Program], problem: str, shape: str) -> tuple[str, str, tuple[str, ...]]:
    """The first fault: what is said of it, in which case, and its two sides."""
    known = load_problem(problem)
    try:
        p = program()
        chosen = [one(p, known, known.shape(shape), "normal", 0)] if shape else cases(p, known)[0]
        weak: tuple[str, str, tuple[str, ...]] = "", ", ".join(named(c) for c in chosen), ()
        for ran in checked(p, chosen):
            if not ran.ok:
                first = next(d for d in ran.diagnostics if d.severity == "error")
                return _said(first), named(ran.case), first.witness
            if ran.diagnostics and not weak[0]:
                weak = f"weak, {_said(ran.diagnostics[0])}", named(ran.case), ran.diagnostics[0].witness
        return weak
    except KirError as refused:
        return _said(refused.diagnostics[0]), "refused before it runs", refused.diagnostics[0].witness


def _said(d: Diagnostic) -> str:
    return f"{d.id}: {d.message}"


def original(name: str) -> Row:
    """The expert itself, through all of its cases."""
    if name == HOPPER:
        return _of_program(_last_state(), "the original", "unchanged")
    found = _found(lambda: read(str(source(name)), None, SOURCES[name]), SOURCES[name], "")
    return Row("the original", "unchanged", *found)


def rows(name: str, told: Callable[[str], None] = lambda text: None) -> Iterator[Row]:
    """The rows of one expert; bits of one mask that are found alike stand together."""
    made: list[Callable[[], Row]] = [f for _, f in hopper()] if name == HOPPER else [partial(outcome, name, m) for m in texts(name)]
    pending: list[Row] = []
    for number, each in enumerate(made, start=1):
        row = each()
        told(f"{name} {number}/{len(made)} {row.place} {row.how}: {row.finding or 'NOT FOUND'}")
        if pending and not (row.how.startswith("bit ") and row.place == pending[0].place):
            yield _together(pending)
            pending = []
        if row.how.startswith("bit "):
            pending.append(row)
        else:
            yield row
    if pending:
        yield _together(pending)


def _together(bits: list[Row]) -> Row:
    missed = [row.how.split()[1] for row in bits if not row.finding]
    if missed:
        return replace(bits[0], how=f"each of {len(bits)} bits left out", finding="", case=f"not found: {', '.join(missed)}")
    return replace(bits[0], how=f"each of {len(bits)} bits left out, one by one", finding=f"all {len(bits)} found; {bits[0].finding}")


def section(name: str, itself: Row, made: list[Row]) -> str:
    """The table of one expert."""
    hopper_place = f"`skills/lineages/{HOPPER}`, last state, with 2 CTAs"
    where = hopper_place if name == HOPPER else f"`skills/experts/{source(name).parent.name}/{name}.cu`"
    found = sum(bool(r.finding) for r in made)
    clean = f"no finding in {itself.case}" if not itself.finding else f"**{itself.finding}**"
    lines = [f"## {name}", "", f"{where}. The original: {clean}. {found} of {len(made)} rows are found.", "",
             "| place | mutation | finding | case | one side | the other |",
             "| --- | --- | --- | --- | --- | --- |"]
    for r in made:
        sides = [*r.sides, "", ""][:2]
        cells = [r.place, r.how, r.finding or "**not found**", r.case, *sides]
        lines.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    return "\n".join([*lines, ""])


def main(words: list[str]) -> int:
    """Run and write, or list; 1 when a mutant is not found."""
    if words[:1] == ["--list"]:
        for name in words[1:]:
            for what in [w for w, _ in hopper()] if name == HOPPER else [f"{m.line}: {m.place}: {m.how}" for m in texts(name)]:
                print(what)
        return 0
    names = words or [*SOURCES, HOPPER]
    kept = dict(_sections()) if PAGE.exists() else {}
    told_part = PAGE.read_text(encoding="utf-8").partition(TITLE)[2] if PAGE.exists() else ""
    missed = 0
    for name in names:
        made = list(rows(name, lambda text: print(text, flush=True)))
        itself = original(name)
        missed += sum(not r.finding for r in made) + bool(itself.finding)
        kept[name] = section(name, itself, made)
        write_atomic(PAGE, "\n".join([HEAD, *(kept[n] for n in [*SOURCES, HOPPER] if n in kept)]) + f"\n{TITLE}{told_part}")
    if not words:
        from benchmarks.checks import value_mutants
        found = list(value_mutants.rows(said=lambda text: print(text, flush=True)))
        write_atomic(PAGE, with_values(PAGE.read_text(encoding="utf-8"), found))
        missed += share(found, refusable=True) < value_mutants.LEAST
    return 1 if missed else 0


def _sections() -> Iterator[tuple[str, str]]:
    for part in PAGE.read_text(encoding="utf-8").partition(TITLE)[0].split("\n## ")[1:]:
        yield part.partition("\n")[0], "## " + part.rstrip("\n") + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
