"""The form of `contract.toml`: that of a problem, and what concerns a hole."""
from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, model_validator

from kir.base.diagnostic import KirError, Origin, error
from kir.base.toml_text import loads
from kir.ir.types import DTYPES
from kir.problem.schema import ProblemFile, WorkItem, _Form, names_in

SURFACES = ("kir", "cuda", "triton", "tilelang")
Surface = Literal["kir", "cuda", "triton", "tilelang"]


class Allowance(_Form):
    """What an answer may use: registers of a thread, bytes of shared memory of a CTA, and modelled seconds at the shape `at` on `target`."""

    registers: int = Field(gt=0, le=255)
    shared_bytes: int = Field(ge=0)
    seconds: float = Field(gt=0)
    at: str
    target: str = "sm_90a"


class ContractFile(ProblemFile):
    """All of `contract.toml`. `level` says where the hole stands: `program`, alone in a kernel with no grid (an answer may have any
    kernels and workspaces), or `cta`, a statement of a CTA of `threads` threads. `title` is the invariant on exit in words."""

    version: int = Field(ge=1)
    level: Literal["program", "cta"]
    threads: int = Field(ge=1, le=1024)
    surfaces: tuple[Surface, ...] = ("kir",)
    budget: Allowance
    operator: str = "hole"
    work_item: WorkItem = WorkItem(kind="element", axes=())

    @model_validator(mode="after")
    def _of_a_hole(self) -> ContractFile:
        sizes = set(self.shapes[0].sizes)
        if any(set(s.sizes) != sizes for s in self.shapes):
            raise ValueError("every shape gives the same sizes")
        plain = {d for t in self.tensors for d in t.shape}
        if missing := sorted(sizes - plain):
            raise ValueError(f"no operand has the size '{missing[0]}' as a dimension of its own, so that no hole would tell it")
        for t in self.tensors:
            if t.dtype != "T" and t.dtype not in DTYPES:
                raise ValueError(f"operand '{t.name}': there is no dtype '{t.dtype}'")
            if t.dtype == "T" and not self.dtypes:
                raise ValueError(f"operand '{t.name}' has the dtype T, and no dtypes are given")
            if strange := sorted({x for d in t.shape for x in names_in(d)} - sizes):
                raise ValueError(f"operand '{t.name}' has a dimension over '{strange[0]}', which is no size")
            if t.optional:
                raise ValueError(f"operand '{t.name}' is optional; every operand of a hole is given")
        if not any(t.role != "in" for t in self.tensors):
            raise ValueError("there is nothing to write: one operand is 'out' or 'inout'")
        if self.budget.at not in {s.name for s in self.shapes}:
            raise ValueError(f"budget.at is '{self.budget.at}', which is no shape")
        if not any({"tail", "odd"} & set(s.tags) for s in self.shapes):
            raise ValueError("one shape is tagged 'tail' or 'odd': an answer is checked where tiles do not divide")
        return self


def read_contract(file: Path) -> ContractFile:
    """The contract of a file. Raises KirError KIR-H101, located at the field that is wrong."""
    try:
        text = file.read_text(encoding="utf-8")
        raw = loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as bad:
        raise error("KIR-H101", f"{file}: {bad}") from bad
    if not (file.parent / "reference.py").is_file():
        raise error("KIR-H101", f"{file.parent} has no reference.py: a contract without an oracle checks nothing")
    try:
        return ContractFile.model_validate(raw)
    except (ValidationError, SyntaxError) as bad:
        raise _located(file, text, bad) from None


def _located(file: Path, text: str, bad: ValidationError | SyntaxError) -> KirError:
    if isinstance(bad, SyntaxError):
        return error("KIR-H101", f"{file}: '{bad.text}' is no expression over sizes")
    first = bad.errors()[0]
    where = ".".join(str(p) for p in first["loc"])
    name = next((p for p in reversed(first["loc"]) if isinstance(p, str)), "")
    at = text.find(name) if name else -1
    origin = Origin.of(str(file), text, at, at + len(name)) if at >= 0 else Origin(str(file), 1, 1, 1, 1)
    return error("KIR-H101", f"{where + ': ' if where else ''}{first['msg'].removeprefix('Value error, ')}", origin=origin)
