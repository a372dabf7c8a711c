"""Contracts: what must be put into a hole, as data and an executable oracle, in a folder of its own.

A contract is the folder `skills/carriers/<name>`: `contract.toml`, whose fields are those of a problem and the ones of `ContractFile`, and
`reference.py`, the oracle over the hole alone (as a problem's: `oracle(inputs, sizes)`, `magnitudes(inputs, sizes)`; trusted code of the
package). Recorded answers lie beside it. A pass that leaves holes declares its contract, or a tuple of them:

    class RadixSelect(Pass):
        carrier: ClassVar[Contract] = Contract.shipped("topk-select")

`docs/extending/writing-a-contract.md` shows a whole one.
"""
from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kir.skills
from kir.base.dataclass import dataclass
from kir.base.diagnostic import did_you_mean, error, usage

if TYPE_CHECKING:
    from kir.ir.nodes import Hole, Region
    from kir.lineage.carrier.schema import ContractFile
    from kir.problem import Problem
    from kir.problem.schema import Tensor
    from kir.rewrite import Pass


@dataclass(frozen=True)
class Contract:
    """A contract by its folder; read on first use. Raises KirError KIR-H101, located, when its file is wrong."""

    folder: Path

    @classmethod
    def shipped(cls, name: str) -> Contract:
        """One that comes with KIR, by the name of its folder."""
        return cls(Path(next(iter(kir.skills.__path__))) / "carriers" / name)

    @cached_property
    def spec(self) -> ContractFile:
        """The contents of `contract.toml`. Raises KirError KIR-H101."""
        from kir.lineage.carrier.schema import read_contract
        return read_contract(self.folder / "contract.toml")

    @cached_property
    def operands(self) -> tuple[tuple[str, bool, int], ...]:
        """Of each operand its dtype, `T` where it is the contract's variable, whether it is written, and its number of dimensions: what rules a hole out
        before the whole file is checked. Raises KirError KIR-H101."""
        import tomllib

        try:
            told = tomllib.loads((self.folder / "contract.toml").read_text(encoding="utf-8"))
            return tuple((str(t["dtype"]), t["role"] != "in", len(t["shape"])) for t in told["tensors"])
        except (OSError, ValueError, KeyError, TypeError):
            return tuple((t.dtype, t.role != "in", len(t.shape)) for t in self.spec.tensors)  # says what is wrong with the file

    @property
    def operand_dtypes(self) -> tuple[str, ...]:
        """The dtype of each operand, `T` where it is the contract's variable. Raises KirError KIR-H101."""
        return tuple(dtype for dtype, _, _ in self.operands)

    @cached_property
    def id(self) -> str:
        """`name/version`: what a hole names."""
        return f"{self.spec.name}/{self.spec.version}"

    @cached_property
    def hash(self) -> str:
        """sha256, in hex, of the two files that make the contract: an answer is recorded for one hash."""
        digest = hashlib.sha256()
        for name in ("contract.toml", "reference.py"):
            data = (self.folder / name).read_bytes()
            digest.update(f"{name} {len(data)}\n".encode() + data)
        return digest.hexdigest()

    def problem(self, dtype: str = "") -> Problem:
        """The contract as a problem at a dtype `T` (by default the first): inputs, oracle, comparison."""
        from kir.problem import Problem
        spec = self.spec
        if dtype and dtype not in spec.dtypes:
            raise error("KIR-H102", f"contract {self.id} is not defined for '{dtype}'", needs=f"one of {', '.join(spec.dtypes) or 'none'}")
        chosen = dtype or (spec.dtypes[0] if spec.dtypes else "")
        if chosen not in self._problems:
            self._problems[chosen] = Problem(spec, chosen, self.folder, self.folder)
        return self._problems[chosen]

    @cached_property
    def _problems(self) -> dict[str, Problem]:
        """The problem at each dtype that was asked for: it keeps what its oracle said."""
        return {}

    @property
    def reads(self) -> tuple[Tensor, ...]:
        """The operands that a hole lists under `reads`, in order."""
        return tuple(t for t in self.spec.tensors if t.role != "out")

    @property
    def writes(self) -> tuple[Tensor, ...]:
        """The operands that a hole lists under `writes`, in order."""
        return tuple(t for t in self.spec.tensors if t.role != "in")

    @cached_property
    def sizes(self) -> tuple[str, ...]:
        """Its size symbols, in the order of the first shape."""
        return tuple(self.spec.shapes[0].sizes)

    def hole(self, name: str, reads: Sequence[Region], writes: Sequence[Region], label: str | None = None) -> Hole:
        """A hole for this contract; the regions follow the order of `reads` and `writes`."""
        from kir.ir.nodes import Hole
        return Hole(name, self.id, tuple(reads), tuple(writes), label=label)

    def to_json(self) -> dict[str, Any]:
        """A JSON object: id, hash, and everything that `contract.toml` says."""
        return {"id": self.id, "hash": self.hash, **self.spec.model_dump(mode="json", exclude={"name", "version", "work_item", "state"})}


def declared(cls: type[Pass]) -> tuple[Contract, ...]:
    """The contracts that a pass declares; none for a pass that is no carrier."""
    found = getattr(cls, "carrier", ())
    return tuple(c for c in (found if isinstance(found, tuple) else (found,)) if isinstance(c, Contract))


@cache
def carriers() -> tuple[tuple[type[Pass], Contract], ...]:
    """Every registered pass that leaves holes, with each of its contracts, in order of name."""
    from kir.rewrite.registry import passes
    return tuple((cls, contract) for cls in passes() for contract in declared(cls))


def contract_named(id: str, more: Sequence[Contract] = ()) -> Contract:
    """The contract that a hole names: one of `more`, else of a registered pass. `id` is `name/version`, or a name alone when it is clear.

    Raises UsageError KIR-H103, with near names."""
    known = [*more, *(c for _, c in carriers())]
    for c in known:
        if id in (c.id, c.spec.name):
            return c
    ids = [c.id for c in known]
    raise usage("KIR-H103", f"there is no contract '{id}'", attempt=did_you_mean(id, ids) or "kir carrier list",
                needs=f"one of {', '.join(ids)}" if ids else "a registered pass that declares it, or --contract FOLDER")
