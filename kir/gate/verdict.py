"""What the gate says of a program: one record for each of compile, correctness and profile, and the verdict over them."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from hashlib import sha256
from typing import Any, Literal

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic
from kir.interp.state.coverage import Place
from kir.surface import Artifact, Emitted

Stage = Literal["compile", "correctness", "profile"]


@dataclass(frozen=True)
class CompileRecord:
    """The first stage: `surface` and `targets` that were asked for, the artifact of each target, refusals of backend and compilers,
    and, for what this machine lacks, a sentence each in `absent`. `shape` names the sizes that the launcher's variant was taken at. Where another
    surface than the first that was asked for compiled it, `passed_over` is why the first refused."""

    surface: str
    ok: bool
    artifacts: tuple[Artifact, ...] = ()
    refusals: tuple[Diagnostic, ...] = ()
    absent: tuple[str, ...] = ()
    shape: str = ""
    passed_over: tuple[Diagnostic, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON object; texts of the compiled code stay out."""
        return {"surface": self.surface, "ok": self.ok, "shape": self.shape, "artifacts": [a.record() for a in self.artifacts],
                "refusals": [d.to_json() for d in self.refusals], "absent": list(self.absent)}


@dataclass(frozen=True)
class Run:
    """One run, of the interpreter or (mode `device`) of the device. `worst` is the largest error as a multiple of its bound, at `where`,
    with the absolute `bound` there."""

    shape: str
    sizes: Mapping[str, int]
    distribution: str
    seed: int
    mode: Literal["fast", "check", "device"]
    ok: bool
    worst: float
    where: str
    bound: float
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON object; an infinite error becomes the text `inf`, which JSON can hold."""
        row = asdict(self)
        return {**row, "worst": _number(self.worst), "bound": _number(self.bound)}


KIND_WORDS = {"grid": "grids", "loop": "loops", "branch": "branches", "read": "masked reads", "write": "masked writes"}


@dataclass(frozen=True)
class CoverageRecord:
    """What the runs reached of what the program's sizes can bring about. `kinds` counts goals by kind (reached, of all): a loop runs not at all,
    once, twice, three times or more, and often enough to use each stage of a ring again; a branch goes either way; a mask is full, partial, empty; a
    grid has one CTA or several. `missing` names what can be reached and was not; `single` are loops that never ran a second time, which refuses."""

    kinds: Mapping[str, tuple[int, int]]
    missing: tuple[str, ...] = ()
    single: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The record in one line."""
        done, total = (sum(pair[i] for pair in self.kinds.values()) for i in (0, 1))
        parts = ", ".join(f"{KIND_WORDS[kind]} {self.kinds[kind][0]}/{self.kinds[kind][1]}" for kind in KIND_WORDS if kind in self.kinds)
        rest = f"; not reached: {'; '.join(self.missing[:3])}{f' and {len(self.missing) - 3} more' if len(self.missing) > 3 else ''}" if self.missing else ""
        return f"coverage {done}/{total}" + (f" ({parts})" if parts else "") + rest

    def refusals(self) -> tuple[Diagnostic, ...]:
        """One for each loop that never ran a second time."""
        return tuple(Diagnostic("KIR-G112", f"the loop {anchor} never ran a second time, so what it carries was not tested", anchor=anchor,
                                needs="a problem with sizes or inputs at which it does") for anchor in self.single)

    def warnings(self) -> tuple[Diagnostic, ...]:
        """What can be reached and was not, as a warning each."""
        return tuple(Diagnostic("KIR-G113", f"not tested: {text}", severity="warning") for text in self.missing)

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"line": self.line, "kinds": {k: list(v) for k, v in sorted(self.kinds.items())}, "missing": list(self.missing), "single": list(self.single)}


@dataclass(frozen=True)
class AlgebraRecord:
    """Whether a program and what it is judged by are equal as functions of real inputs, for all inputs at `sizes`: `proved`, or not decided and `why`. It
    refuses nothing: rounding, and what approximates, is for the runs."""

    status: Literal["proved", "not decided"]
    sizes: Mapping[str, int]
    why: str = ""
    elements: int = 0

    @property
    def line(self) -> str:
        """The record in one line."""
        at = ", ".join(f"{k} = {v}" for k, v in self.sizes.items())
        return f"equal over the reals, for all inputs{f' at {at}' if at else ''}: {self.status}" + (f" ({self.why})" if self.why else "")

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"status": self.status, "sizes": dict(self.sizes), "why": self.why, "elements": self.elements, "line": self.line}


@dataclass(frozen=True)
class HazardRecord:
    """What `kir check` decides of a program for every size that its facts allow: the verdict (`proved`, `undecided`, `refuted`), that of each kind by its
    words, why of what is not proved, and what was taken for true because nothing says it."""

    status: Literal["proved", "undecided", "refuted"]
    kinds: Mapping[str, str] = field(default_factory=dict)
    why: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The record in one line."""
        said = {"proved": "none, proved for all sizes", "undecided": "not decided for all sizes", "refuted": "a counterexample"}[self.status]
        return f"hazards: {said}" + (f" ({self.why[0]}{f', and {len(self.why) - 1} more' if len(self.why) > 1 else ''})" if self.why else "")

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"status": self.status, "kinds": dict(self.kinds), "why": list(self.why), "unsaid": list(self.unsaid), "line": self.line}


@dataclass(frozen=True)
class CorrectnessRecord:
    """The second stage. `reference` names the oracle; `relative` says that it was no problem's but another program's. `findings` are the
    hazards of the checked run, `weak` those that refuse nothing; `left_out` names the cases that would have taken too long; `coverage` is what the
    runs reached, where the cases were solved from the program; `algebra` what is known for all inputs and
    `hazards` for all sizes, where they were asked for."""

    reference: str
    ok: bool
    runs: tuple[Run, ...] = ()
    findings: tuple[Diagnostic, ...] = ()
    weak: tuple[Diagnostic, ...] = ()
    relative: bool = False
    reason: str = ""
    left_out: tuple[str, ...] = ()
    coverage: CoverageRecord | None = None
    reached: Mapping[Place, int] = field(default_factory=dict, compare=False, repr=False)
    checked: Mapping[Place, int] = field(default_factory=dict, compare=False, repr=False)
    """What the fast runs and the checked ones reached of the program, by place; it is not written."""
    algebra: AlgebraRecord | None = None
    hazards: HazardRecord | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"reference": self.reference, "relative": self.relative, "ok": self.ok, "reason": self.reason,
                "runs": [r.to_json() for r in self.runs], "findings": [d.to_json() for d in self.findings],
                "weak": [d.to_json() for d in self.weak], "left_out": list(self.left_out),
                "coverage": None if self.coverage is None else self.coverage.to_json(),
                **({} if self.algebra is None else {"algebra": self.algebra.to_json()}),
                **({} if self.hazards is None else {"hazards": self.hazards.to_json()})}


@dataclass(frozen=True)
class ProfileRecord:
    """The third stage: seconds at each shape of a target. `modelled` comes from the cost model, with what bounds it; `measured` is a
    median on the device that `target` names, with its 95 % interval and number of samples."""

    target: str
    shape: str
    seconds: float
    bound_by: str
    parts: Mapping[str, float] = field(default_factory=dict)
    kind: Literal["modelled", "measured"] = "modelled"
    interval: tuple[float, float] | None = None
    samples: int = 0

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        row = asdict(self)
        if self.kind == "modelled":
            del row["interval"], row["samples"]
        return row


@dataclass(frozen=True)
class DeviceRecord:
    """What the GPU gate saw: the device, the driver and versions, what confined the candidate, clocks before and after, raw samples and
    comparisons by shape, floors, the panel, determinism and compute-sanitizer. `seconds` is wall time by stage; `device_seconds` what the
    device's streams took, `timed` between the events of samples and at most so much `beyond` them. All of it JSON."""

    device: Mapping[str, Any] = field(default_factory=dict)
    isolation: Mapping[str, Any] = field(default_factory=dict)
    clocks: tuple[Mapping[str, int], ...] = ()
    timings: tuple[Mapping[str, Any], ...] = ()
    panel: tuple[Mapping[str, Any], ...] = ()
    against: Mapping[str, Any] | None = None
    sanitizer: Mapping[str, Any] = field(default_factory=dict)
    secret: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    device_seconds: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; infinite errors become texts, which JSON can hold."""
        return {k: _plain(v) for k, v in asdict(self).items()}


@dataclass(frozen=True)
class Verdict:
    """The gate's word. `stage` is the last stage reached: the one that refused, or `profile`. `record` is what is kept of it."""

    accepted: bool
    stage: Stage
    reason: str
    program: str
    problem: str
    compile: CompileRecord
    correctness: CorrectnessRecord | None = None
    profile: tuple[ProfileRecord, ...] = ()
    emitted: Emitted | None = None
    isolation: str = "compilers in processes of their own; interpreter and oracle in this one"
    tools: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    device: DeviceRecord | None = None

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """What was compiled, one per target."""
        return self.compile.artifacts

    def modelled(self) -> dict[str, float]:
        """Modelled seconds by target, summed over the shapes."""
        out: dict[str, float] = {}
        for row in self.profile:
            if row.kind != "modelled":
                continue
            out[row.target] = out.get(row.target, 0.0) + row.seconds
        return out

    def measured(self) -> dict[str, float]:
        """Measured seconds by device, summed over the shapes; empty for the CPU gate."""
        out: dict[str, float] = {}
        for row in self.profile:
            if row.kind == "measured":
                out[row.target] = out.get(row.target, 0.0) + row.seconds
        return out

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Why it was refused, or what was found without refusing."""
        found = self.compile.refusals
        return (*found, *(() if self.correctness is None else (*self.correctness.findings, *self.correctness.weak)))

    @property
    def hashes(self) -> dict[str, Any]:
        """SHA-256 of the text that was compiled, and of the cubins by target and kernel. (`program` is the content hash of the IR.)"""
        cubins = {f"{a.target} {k.kernel}": sha256(k.image.cubin).hexdigest() for a in self.artifacts for k in a.kernels if k.image is not None}
        return {"text": sha256(self.emitted.text.encode()).hexdigest() if self.emitted is not None else "", "cubins": cubins}

    @property
    def record(self) -> dict[str, Any]:
        """The verdict as JSON. The CPU gate's has no wall times (`seconds`), so that the same program under the same tools gives the same
        bytes; the GPU gate's also holds what was measured."""
        measured = {} if self.device is None else {"device": self.device.to_json(), "hashes": self.hashes}
        return {"schema": "kir.verdict/1", "accepted": self.accepted, "stage": self.stage, "reason": self.reason, "program": self.program,
                "problem": self.problem, "compile": self.compile.to_json(),
                "correctness": None if self.correctness is None else self.correctness.to_json(),
                "profile": [row.to_json() for row in self.profile], "isolation": self.isolation, "tools": dict(sorted(self.tools.items())), **measured}


def _number(x: float) -> float | str:
    return x if abs(x) < float("inf") else str(x)


def _plain(x: Any) -> Any:
    match x:
        case float():
            return _number(x)
        case Mapping():
            return {k: _plain(v) for k, v in x.items()}
        case list() | tuple():
            return [_plain(v) for v in x]
        case _:
            return x
