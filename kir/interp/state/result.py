"""What a run returns: outputs, findings and counts."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, field
from typing import Any, Literal

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, Origin
from kir.interp.numerics.number import Array
from kir.interp.state.coverage import Place


@dataclass(frozen=True)
class Access:
    """One side of a finding: what was done (`read`, `write`, `update`, `wait`, ..), where in the program, and by which thread ("" for
    what no thread does: the declaration of memory, the end of a kernel)."""

    verb: str
    anchor: str
    thread: str
    origin: Origin | None = None
    called: Origin | None = None
    """The statement whose call brought the access in, where it stands in a function elsewhere."""

    @classmethod
    def at(cls, verb: str, anchor: str, thread: str, origin: Origin | None) -> Access:
        """An access of a statement with an origin, in its own place."""
        return cls(verb, anchor, thread) if origin is None else cls(verb, anchor, thread, origin.own, origin.call)

    def __str__(self) -> str:
        return f"{self.verb} at {self.anchor}" + (f" by {self.thread}" if self.thread else "")

    @property
    def placed(self) -> str:
        """The access with its line of the source, where that is known."""
        called = f", called at {self.called.file}:{self.called.line}" if self.called is not None else ""
        return f"{self} ({self.origin.file}:{self.origin.line}{called})" if self.origin is not None else str(self)


@dataclass(frozen=True)
class Finding:
    """A hazard. `error`: another value or a hang is possible. `weak`: concurrent stores of the same value, or an order that only
    a shuffle gives; reported, never refused. `kind` is one word (`race`, `poison`, `bounds`, `deadlock`, ..), `id` its diagnostic."""

    id: str
    kind: str
    severity: Literal["error", "weak"]
    message: str
    kernel: str = ""
    buffer: str = ""
    accesses: tuple[Access, ...] = ()

    def diagnostic(self) -> Diagnostic:
        """The finding as a located diagnostic; a weak one is a warning."""
        first = self.accesses[0] if self.accesses else None
        return Diagnostic(self.id, self.message, first.origin if first else None, first.anchor if first else self.kernel, self.kind,
                          tuple(a.placed for a in self.accesses), severity="error" if self.severity == "error" else "warning")

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        found = asdict(self)
        for side, a in zip(found["accesses"], self.accesses, strict=True):
            side["origin"] = None if a.origin is None else a.origin.to_json()
            if a.called is None:
                del side["called"]
            else:
                side["called"] = a.called.to_json()
        return found


@dataclass
class Counters:
    """Counts over the whole run. Bytes by `read global`, `write shared`, ..; a uniform access counts once. FLOPs by unit: `tensor`
    and the `via` of a tile product, `fp32`, `sfu`, ..; elementwise work is counted in checking mode only, and there, where `traffic` asks for
    them, sectors (32 bytes of global memory per warp access) and bank conflicts (extra passes of a warp through shared memory). `steps` are
    statements and loop iterations that the interpreter ran one after another."""

    bytes: dict[str, int] = field(default_factory=dict)
    flops: dict[str, int] = field(default_factory=dict)
    sectors: int = 0
    bank_conflicts: int = 0
    barriers: int = 0
    steps: int = 0

    def count_bytes(self, verb: str, space: str, count: int) -> None:
        """Adds to the bytes of one direction in one space."""
        key = f"{verb} {space}"
        self.bytes[key] = self.bytes.get(key, 0) + count

    def count_flops(self, unit: str, count: int) -> None:
        """Adds floating-point operations of one unit."""
        self.flops[unit] = self.flops.get(unit, 0) + count

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return asdict(self)


def _nobody(name: str, index: tuple[int, ...]) -> Access | None:
    return None


@dataclass(frozen=True)
class Result:
    """`outputs` holds every `out` and `inout` tensor by name, in its own dtype (bf16 and fp8 as ml_dtypes)."""

    outputs: dict[str, Array]
    findings: tuple[Finding, ...]
    counters: Counters
    writer: Callable[[str, tuple[int, ...]], Access | None] = field(default=_nobody, compare=False, repr=False)
    """After a checked run: who wrote an element of an output last; None for what nobody wrote."""
    reached: Mapping[Place, int] = field(default_factory=dict, compare=False, repr=False)
    """Where it was asked for: what the run reached (`kir.interp.state.coverage`)."""
    ends: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    """Where it was asked for: for each tensor one past the last element, as it lies in memory, that an access touched."""

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that refuse a program."""
        return tuple(f for f in self.findings if f.severity == "error")
