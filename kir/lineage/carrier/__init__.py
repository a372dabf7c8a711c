"""Carriers: what no pass can say structurally is left as a typed hole with a contract, filled by a recording, a person or a model, and
checked all the same.

    contract = Contract.shipped("topk-select")              # what a pass declares as `carrier`
    verdict = check(contract, Answer(text))                 # read, types and effects, budget, oracle
    filled = fill(contract, program, path, verdict.program_or_raise())
    filled = fill_recorded(contract, program, path, "radix")    # a recorded answer, by name or hash

Importing this package reads nothing; each part is loaded when it is used, so that passes may import it.

Order: schema, contract, answer, operands, checking, cutting, filling, gating, outlining, records, providers, recognition, sessions.
"""
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kir.lineage.carrier.contract import Contract, carriers, contract_named, declared

if TYPE_CHECKING:
    from kir.lineage.carrier.answer import Answer
    from kir.lineage.carrier.checking import Checked, check, conforms
    from kir.lineage.carrier.filling import bind, fill, holes, misfits, must_be_filled, unfilled
    from kir.lineage.carrier.outlining import outline, satisfies
    from kir.lineage.carrier.records import Recorded, fill_recorded, find, recorded

__all__ = ["Answer", "Checked", "Contract", "Recorded", "bind", "carriers", "check", "conforms", "contract_named", "declared", "fill",
           "fill_recorded", "find", "holes", "misfits", "must_be_filled", "outline", "recorded", "satisfies", "unfilled"]

_HOMES = {"answer": ("Answer",), "checking": ("Checked", "check", "conforms"), "filling": ("bind", "fill", "holes", "misfits", "must_be_filled", "unfilled"),
          "outlining": ("outline", "satisfies"),
          "records": ("Recorded", "fill_recorded", "find", "recorded")}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
