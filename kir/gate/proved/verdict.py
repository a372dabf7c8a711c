"""What came of checking a program for every size."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any, Literal

from kir.analysis.proof.sites import KINDS, Kind
from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, Origin

Status = Literal["proved", "refuted", "undecided"]
WORDS: Mapping[Kind, str] = {
    "bounds": "accesses within bounds", "race": "races", "barrier": "barriers that all threads reach", "undefined": "undefined values",
    "alignment": "alignment of wide accesses", "wait": "waits for what is asynchronous", "ring": "phases of rings", "overflow": "indices within 32 bits"}
"""Each kind of obligation for people."""


@dataclass(frozen=True)
class Finding:
    """What is not proved of a kernel. `refuted`: at `sizes` a run showed it (or, of an index beyond 32 bits, its value was worked out); `undecided`: `why`,
    and at which sizes a run showed nothing instead."""

    kernel: str
    kind: Kind
    status: Status
    what: str
    anchor: str
    other: str = ""
    why: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    shown: str = ""
    """What the run reported."""
    origin: Origin | None = None
    count: int = 1
    """How many obligations say the same."""

    def diagnostic(self) -> Diagnostic:
        """An error KIR-Y002 for a counterexample, a warning KIR-Y003 for what is not decided."""
        at = ", ".join(f"{k} = {v}" for k, v in self.sizes.items())
        if self.status == "refuted":
            claim = f"not at all sizes: {self.what}" if self.kind == "overflow" else self.what
            message = f"{claim}: {self.shown}" if self.shown else claim
            return Diagnostic("KIR-Y002", message, self.origin, self.anchor, self.kernel, tuple(x for x in (at, self.other) if x),
                              severity="warning" if self.kind == "overflow" else "error")
        return Diagnostic("KIR-Y003", f"{self.what}: not decided", self.origin, self.anchor, self.kernel, tuple(x for x in (self.why, self.other) if x),
                          severity="warning")


@dataclass(frozen=True)
class Proved:
    """The outcome of a program: how many obligations of each kind were there and how many are proved, by kernel; what is not; the sizes that were run
    beside; and what could not be run, with why."""

    program: str
    kernels: Mapping[str, Mapping[Kind, tuple[int, int]]]
    findings: tuple[Finding, ...]
    tried: tuple[Mapping[str, int], ...] = ()
    not_run: str = ""
    unsaid: tuple[str, ...] = ()
    """Facts that were taken for true because nothing says them: it is decided for sizes at which they hold, and for tensors that hold such indices."""

    def status(self, kind: Kind) -> Status:
        """The worst of a kind over all kernels."""
        found = {f.status for f in self.findings if f.kind == kind}
        return "refuted" if "refuted" in found else "undecided" if "undecided" in found else "proved"

    @property
    def ok(self) -> bool:
        """Whether there is no counterexample but for indices beyond 32 bits, which no memory of today's kernels need reach."""
        return not any(f.status == "refuted" and f.kind != "overflow" for f in self.findings)

    @property
    def decided(self) -> bool:
        """Whether everything is proved, or refuted by a run."""
        return not any(f.status == "undecided" for f in self.findings)

    @property
    def verdict(self) -> Status:
        """`refuted` where a run showed a hazard, `undecided` where something is, else `proved`: for all sizes at which indices fit their 32 bits, where
        those that do not are among the findings."""
        return "refuted" if not self.ok else "proved" if self.decided else "undecided"

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        rows = {k: {kind: {"obligations": total, "proved": done} for kind, (total, done) in row.items()} for k, row in self.kernels.items()}
        findings = [{k: v for k, v in asdict(f).items() if k != "origin"} | {"origin": f.origin.to_json() if f.origin is not None else None}
                    for f in self.findings]
        return {"program": self.program, "verdict": self.verdict, "kinds": {k: self.status(k) for k in KINDS}, "kernels": rows, "findings": findings,
                "tried": [dict(t) for t in self.tried], "not_run": self.not_run, "unsaid": list(self.unsaid)}
