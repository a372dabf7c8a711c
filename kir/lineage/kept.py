"""What came of cases that were interpreted before, kept by the content of all that decides it.

A walk that is taken again, or another one that comes by the same program, meets the same cases. Their outcomes are kept in a file for each program
and plan: the key holds the program, every input, what judges the outputs, and the source of the interpreter, the gate and all that they stand on.
So a change of any of them finds nothing kept. Files that cannot be read are as good as absent.
"""
from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import kir
from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic
from kir.base.store import write_atomic
from kir.gate.cases import Case, ProblemCase, RelativeCase
from kir.gate.correctness import Mode, Outcome, Runner, in_turn
from kir.gate.verdict import Run
from kir.interp.state.coverage import from_json, to_json
from kir.ir.anchors import anchors
from kir.ir.nodes import Program
from kir.ir.printer import program_text
from kir.problem import Problem

JUDGES = ("base", "hardware", "ir", "analysis", "interp", "problem", "rewrite", "surface", "gate", "lineage")
"""Packages whose source has a say in the outcome of a case."""


@dataclass(frozen=True)
class KeptOutcomes:
    """A folder of outcomes. `runner` is what the gate asks; `by` interprets what is not kept."""

    root: Path
    by: Runner = in_turn

    def runner(self, program: Program, plan: Sequence[tuple[Case, Mode]]) -> Generator[Outcome, None, None]:
        """The outcomes of a plan in their order: kept ones, or those of `by`, which are kept once the plan has been gone through."""
        key = self.key(program, plan)
        if key is None:
            yield from self.by(program, plan)
            return
        path = self.root / key[:2] / f"{key[2:]}.json"
        known = _read(path, len(plan))
        if known is not None:
            yield from known
            return
        made: list[Outcome] = []
        for one in self.by(program, plan):
            made.append(one)
            if len(made) == len(plan):
                write_atomic(path, json.dumps([_to_json(each) for each in made]))
            yield one

    def key(self, program: Program, plan: Sequence[tuple[Case, Mode]]) -> str | None:
        """64 hexadecimal digits; None for cases that a judge decides whose content is not known (a model that runs in a process of its own)."""
        seen = hashlib.sha256(f"{_source()}\n{program_text(program)}".encode())
        seen.update(repr([s.origin for _, _, s in anchors(program)]).encode())
        judges: dict[int, str] = {}
        for case, mode in plan:
            match case:
                case ProblemCase():
                    if type(case.problem) is not Problem:
                        return None
                    if id(case.problem) not in judges:
                        judges[id(case.problem)] = _judge(case.problem)
                    told: list[Any] = [judges[id(case.problem)], case.at.model_dump(mode="json"), dict(case.names)]
                    arrays = dict(case.inputs)
                case RelativeCase():
                    told = [case.shape, dict(case.sizes), dict(case.scalars)]
                    arrays = {**{f"in {k}": v for k, v in case.inputs.items()}, **{f"out {k}": v for k, v in case.expected.items()},
                              **{f"also {k}": v for k, v in (case.also or {}).items()}}
                case _:
                    return None
            seen.update(json.dumps([mode, case.distribution, case.seed, *told], sort_keys=True).encode())
            for name, array in sorted(arrays.items()):
                seen.update(f"{name} {array.dtype.name} {array.shape}".encode())
                seen.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
        return seen.hexdigest()


@cache
def _source() -> str:
    """What interprets and judges here, by content."""
    root = Path(kir.__file__).parent
    seen = hashlib.sha256(f"{kir.__version__} {np.__version__} {ml_dtypes.__version__}".encode())
    for package in JUDGES:
        for file in sorted((root / package).rglob("*.py")):
            seen.update(file.relative_to(root).as_posix().encode() + file.read_bytes())
    for file in sorted((root / "grammars").glob("*.toml")):
        seen.update(file.read_bytes())
    return seen.hexdigest()


def _judge(problem: Problem) -> str:
    """What judges by a problem: its specification, and the code beside it."""
    seen = hashlib.sha256(f"{problem.dtype} {problem.spec.model_dump_json()}".encode())
    for folder in dict.fromkeys((problem.folder, problem.reference_folder)):
        for file in sorted(folder.glob("*.py")):
            seen.update(file.name.encode() + file.read_bytes())
    return seen.hexdigest()


def _to_json(one: Outcome) -> dict[str, Any]:
    return {"run": one.run.to_json(), "errors": [d.to_json() for d in one.errors], "weak": [d.to_json() for d in one.weak], "reached": to_json(one.reached)}


def _read(path: Path, count: int) -> list[Outcome] | None:
    """So many outcomes of a file, or None."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        made = [Outcome(Run(**{**row["run"], "worst": float(row["run"]["worst"]), "bound": float(row["run"]["bound"])}),
                        tuple(map(Diagnostic.from_json, row["errors"])), tuple(map(Diagnostic.from_json, row["weak"])), from_json(row["reached"]))
                for row in rows]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return made if len(made) == count else None


__all__ = ["KeptOutcomes"]
