"""Recognizing an algorithm by its contract: kernels are cut out, interpreted on the contract's inputs, and held to its oracle.

What is recognized is kept, by the hash of its text, in the user's library, so that the step that put it there can be taken again.
"""
from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from kir.carrier.checking import CASE_STEPS, cases
from kir.carrier.contract import Contract
from kir.carrier.records import find, folders, program_of
from kir.diagnostic import KirError
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.types import DTYPES, DType
from kir.problem.load import with_storage
from kir.store import Store, content_hash

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
    """The answer called `wanted`: the name, hash or first digits of a recorded one, or the hash of a kept one. One that is written for
    another storage dtype of the contract is carried over to `dtype`. Raises KirError as `find`."""
    try:
        found = find(contract, wanted)
    except KirError as missing:
        store = _store(contract)
        keys = [key for key in store if len(wanted) >= 8 and key.startswith(wanted)]
        if len(keys) != 1:
            raise missing
        program = parse_program(store.get(keys[0]), str(store.path(keys[0])))
        return Known(keys[0][:DIGITS], keys[0], in_dtype(contract, program, dtype), "kept")
    program = program_of(contract, found)
    made = in_dtype(contract, program, dtype)
    source = "shipped" if found.shipped and made is program else "recorded"
    return Known(found.name, found.record.answer, made, source, f"{found.record.who}, {found.record.when}")


def in_dtype(contract: Contract, program: n.Program, dtype: str) -> n.Program:
    """`program` with its storage of the contract's dtype `T` made `dtype`."""
    has = {p.name: p.of.dtype for p in program.params if isinstance(p.of, n.Buffer)}
    own = next((has[t.name] for t in contract.spec.tensors if t.dtype == "T"), None)
    return program if own is None or not dtype or own.name == dtype else with_storage(program, own, DTYPES[dtype])


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


def text_hash(program: n.Program) -> str:
    """The hash under which `keep` keeps a program."""
    return content_hash(program_text(program))


@lru_cache(maxsize=256)
def agreement(contract: Contract, program: n.Program, dtype: str) -> Agreement:
    """Runs a program over the contract's operands on its inputs: every distribution at the smallest shape of some size, in checking mode
    once, and at other shapes while `ENOUGH_STEPS` last."""
    wanted = {p.name for p in program.params if isinstance(p.of, DType)}
    spent, runs, checked = 0, 0, False
    sized = next((s.name for s in sorted(contract.spec.shapes, key=lambda s: max(s.sizes.values())) if "one" not in s.tags), "")
    every = sorted(cases(contract, contract.problem(dtype)), key=lambda c: c.shape != sized)
    for case in every:
        if case.shape != sized and spent > ENOUGH_STEPS:
            continue
        where = f"at {', '.join(f'{k} = {v}' for k, v in case.sizes.items())}, inputs '{case.distribution}'"
        scalars = {k: v for k, v in case.scalars.items() if k in wanted}
        try:
            with np.errstate(all="ignore"):
                result = run(program, case.arrays, scalars, mode="fast" if checked else "check", most_steps=CASE_STEPS)
        except KirError as refused:
            return Agreement(runs, f"it cannot be run {where}", (f"{refused.diagnostics[0].id}: {refused.diagnostics[0].message}",))
        checked, runs, spent = True, runs + 1, spent + result.counters.steps
        if result.errors:
            return Agreement(runs, f"it is not safe {where}", tuple(f"{f.id}: {f.message}" for f in result.errors[:2]))
        outcome = case.compare(result.outputs)
        if not outcome.ok:
            return Agreement(runs, f"it is wrong {where}", (outcome.reason,))
    return Agreement(runs)


def library(contract: Contract) -> Path:
    """The folder of the user's own answers to a contract."""
    return folders(contract)[0][0]
