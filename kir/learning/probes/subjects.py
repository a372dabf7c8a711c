"""The programs that passes are probed on: naive ones of all problems, and experts as they are read from the IR and from three surfaces."""
from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import kir.skills
from kir.analysis import normalize
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.base.registry import registry
from kir.hardware.target import Target, target
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.visit import statements
from kir.problem import Problem, load_problem, problem_names
from kir.surface import frontend, reads
from kir.surface.reading import load_expert, manifest

SMALL = 60
"""Statements of a program that counts as small."""
DEFAULT = "sm_80"
SKILLS = Path(next(iter(kir.skills.__path__)))


@dataclass(frozen=True)
class Subject:
    """A program with the problem that says what it computes, and the hardware that it is for."""

    name: str
    program: n.Program
    problem: Problem
    target: Target

    @property
    def size(self) -> int:
        """Its statements."""
        return sum(1 for k in self.program.kernels for _ in statements(k.body))


def subjects(most: int = SMALL) -> Iterator[Subject]:
    """The shipped programs of at most so many statements, in a fixed order."""
    yield from (s for s in (*_naive(), *_of_ir(), *_of_surfaces()) if s.size <= most)


def _naive() -> Iterator[Subject]:
    for name in problem_names():
        problem = load_problem(name)
        try:
            yield Subject(f"naive {name}", normalize(problem.naive), problem, target(DEFAULT))
        except (KirError, OSError):
            continue


def _of_ir() -> Iterator[Subject]:
    folder = SKILLS / "experts"
    for name, row in tomllib.loads((folder / "experts.toml").read_text(encoding="utf-8")).items():
        text = (folder / row["file"]).read_text(encoding="utf-8")
        yield Subject(f"kir {name}", normalize(parse_program(text, row["file"])), load_problem(row["problem"]), target(row["target"]))


def _of_surfaces() -> Iterator[Subject]:
    """Every shipped source file of a surface under each of its bindings that names a problem."""
    for file in sorted([*SKILLS.glob("experts/*/*"), *SKILLS.glob("problems/*/naive*")]):
        if file.suffix in (".cu", ".py"):
            for entry in registry("kir.frontends"):
                if reads(entry.name, file.suffix):
                    yield from _of_file(file, entry.name)


def _of_file(file: Path, surface: str) -> Iterator[Subject]:
    for ref in frontend(surface).kernels(file):
        for binding in manifest(f"{file}::{ref.name}"):
            problem = tomllib.loads(binding.read_text(encoding="utf-8")).get("problem", "")
            if problem and surface in (binding.stem.split("_")[0], binding.stem.rpartition("_")[2]):
                try:
                    expert = load_expert(f"{file}::{ref.name}", binding)
                except KirError:
                    continue
                yield Subject(f"{surface} {binding.stem}", expert.program, load_problem(problem), target(DEFAULT))
