"""Recognizing an algorithm by its contract: kernels are cut out, interpreted on the contract's inputs, and held to its oracle.

What is recognized is kept, by the hash of its text, in the user's library, so that the step that put it there can be taken again.
"""
from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Literal

import numpy as np

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.base.store import Store
from kir.gate.cases import ProblemCase
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.types import DType
from kir.lineage.carrier.checking import CASE_STEPS, cases, held_out
from kir.lineage.carrier.contract import Contract
from kir.lineage.carrier.operands import in_dtype
from kir.lineage.carrier.records import Recorded, find, folders, program_of, spelled

ENOUGH_STEPS = 150_000
"""Interpreted statements after which no more cases are run, once every distribution has been at the smallest shape of some size."""
DIGITS = 16
"""Of a hash, in the parameter of a pass."""


@dataclass(frozen=True)
class Known:
    """An answer that can be put into a hole: its program over the operands, its hash, and where it is from: `shipped` with KIR,
    `recorded` in the user's library, or `kept` when it was recognized in a program."""

    name: str
    hash: str
    program: n.Program
    source: str
    note: str = ""


@dataclass(frozen=True)
class Agreement:
    """Whether a program meets a contract on the inputs that were tried. `reason` and `witness` say why not."""

    runs: int
    reason: str = ""
    witness: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        return not self.reason


def known(contract: Contract, wanted: str, dtype: str = "") -> Known:
    """The answer called `wanted`: the name, hash or first digits of a recorded one, one of a recorded family (`rows(threads=256)`), or the
    hash of a kept one. One that is written for another storage dtype of the contract is carried over to `dtype`. Raises KirError as `find`,
    and KIR-H144 for a parameter that a family does not have."""
    name, settings = spelled(wanted)
    if settings:
        family = find(contract, name)
        chosen = family.chosen(settings)
        source = "shipped" if chosen == family.answer and family.shipped else "recorded"
        return Known(wanted, chosen.hash, in_dtype(contract, program_of(contract, family, chosen), dtype), source, family.record.note)
    try:
        found = find(contract, wanted)
    except KirError as missing:
        store = _store(contract)
        keys = [key for key in store if len(wanted) >= 8 and key.startswith(wanted)]
        if len(keys) != 1:
            raise missing
        program = parse_program(store.get(keys[0]), str(store.path(keys[0])))
        return Known(keys[0][:DIGITS], keys[0], in_dtype(contract, program, dtype), "kept")
    return known_by(contract, found, dtype)


def known_by(contract: Contract, found: Recorded, dtype: str = "") -> Known:
    """The answer of a record, carried over to `dtype` where it is written for another one. Raises KirError as `program_of`."""
    program = program_of(contract, found)
    made = in_dtype(contract, program, dtype)
    gated = made is program or dtype in found.record.gate.get("dtypes", ())
    source = "shipped" if found.shipped and gated else "recorded"
    return Known(found.name, found.record.answer, made, source, f"{found.record.who}, {found.record.when}")


@lru_cache(maxsize=32)
def naive(contract: Contract, dtype: str) -> n.Program:
    """The contract's own naive program, `naive.kir` beside it, in a storage dtype: what the simpler side of a step looks like."""
    path = contract.folder / "naive.kir"
    return in_dtype(contract, parse_program(path.read_text(encoding="utf-8"), str(path)), dtype)


def _store(contract: Contract) -> Store:
    return Store(folders(contract)[0][0] / "kept")


def keep(contract: Contract, program: n.Program) -> str:
    """Keep a recognized answer in the user's library; its hash."""
    return _store(contract).put(program_text(program))


@lru_cache(maxsize=256)
def agreement(contract: Contract, program: n.Program, dtype: str) -> Agreement:
    """Runs a program over the contract's operands on its inputs: every distribution at the smallest shape of some size, other shapes while
    `ENOUGH_STEPS` last, and the first case again in checking mode."""
    sized = next((s.name for s in sorted(contract.spec.shapes, key=lambda s: max(s.sizes.values())) if "one" not in s.tags), "")
    problem = contract.problem(dtype)
    every = sorted((*cases(contract, problem), *held_out(contract, problem, program)), key=lambda c: (c.shape != sized, "held-out" not in c.shape))
    spent, runs = 0, 0
    for case in every:
        if case.shape == sized or spent <= ENOUGH_STEPS:
            steps, wrong = _tried(program, case, "fast")
            if wrong is not None:
                return replace(wrong, runs=runs)
            spent, runs = spent + steps, runs + 1
    _, wrong = _tried(program, every[0], "check")
    return Agreement(runs + 1) if wrong is None else replace(wrong, runs=runs)


def _tried(program: n.Program, case: ProblemCase, mode: Literal["fast", "check"]) -> tuple[int, Agreement | None]:
    """The statements that one case took, and what is wrong with it."""
    where = f"at {', '.join(f'{k} = {v}' for k, v in case.sizes.items())}, inputs '{case.distribution}'"
    wanted = {p.name for p in program.params if isinstance(p.of, DType)}
    try:
        with np.errstate(all="ignore"):
            result = run(program, case.arrays, {k: v for k, v in case.scalars.items() if k in wanted}, mode=mode, most_steps=CASE_STEPS)
    except KirError as refused:
        first = refused.diagnostics[0]
        return 0, Agreement(0, f"it cannot be run {where}", (f"{first.id}: {first.message}",))
    outcome = case.compare(result.outputs)
    if result.errors:
        return 0, Agreement(0, f"it is not safe {where}", tuple(f"{f.id}: {f.message}" for f in result.errors[:2]))
    if not outcome.ok:
        return 0, Agreement(0, f"it is wrong {where}", (outcome.reason,))
    return result.counters.steps, None
