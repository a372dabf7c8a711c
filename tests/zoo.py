"""The kernels of zoo.toml, each read once a process."""
from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from kir.analysis.normal.regions import raised
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.bindings.specialize import specialize
from kir.surface.reading import read_generic
from tests.programs import ROOT

ROWS: Mapping[str, Mapping[str, Any]] = tomllib.loads((ROOT / "tests" / "zoo.toml").read_text(encoding="utf-8"))
CUDA = {name: row for name, row in ROWS.items() if row.get("surface") == "cuda"}
TRITON = {name: row for name, row in ROWS.items() if row.get("surface", "triton") == "triton"}


def of_each(rows: Mapping[str, Mapping[str, Any]], solving: bool = False) -> pytest.MarkDecorator:
    """A test for each kernel (`solving`: for each that has a problem), one kernel after another."""
    names = [pytest.param(name, marks=() if row["file"].startswith("skills/") else pytest.mark.zoo)
             for name, row in rows.items() if row["problem"] or not solving]
    return pytest.mark.parametrize("name", names, scope="module")


@cache
def generic(name: str) -> n.Program:
    """The kernel as it is read: CUDA under its binding, which templates need."""
    row = ROWS[name]
    file = str(ROOT / row["file"]) if row["file"].startswith("skills/") else row["file"]
    return read_generic(f"{file}::{row['kernel']}", *([ROOT / row["binding"]] if name in CUDA else []))[0]


@cache
def bound(name: str) -> n.Program:
    """The kernel under its binding; Triton without divisibility, which only a compiler needs: so that tails are run too."""
    binding = Binding.read(ROOT / ROWS[name]["binding"])
    return specialize(generic(name), binding if name in CUDA else replace(binding, facts=[f for f in binding.facts if "%" not in f]))


@cache
def normal(name: str) -> n.Program:
    """The kernel under its binding, in normal form."""
    return raised(bound(name))
