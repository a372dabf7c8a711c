"""A candidate in its process: variants compiled for every shape, calls with fresh data, and what came back."""
from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.gate.gpu.images.cubin import require_closed, watched
from kir.gate.gpu.images.executable import Bound, Executable, bound, problem_shapes
from kir.gate.gpu.machine import OPEN_SECONDS, Gpu
from kir.hardware.device.client import Child
from kir.hardware.device.executor import MOST_SHIFT, hash_of
from kir.ir import nodes as n
from kir.problem import Problem, Shape, numpy_dtype
from kir.problem.schema import Draw
from kir.surface import Backend, Emitted

Array = NDArray[Any]
CALL_SECONDS = 30.0
"""How long one call may take, transfers included."""
AGAIN = 2
"""How often a call is made again after which the device seemed busy: a host that was kept from its clock says so too, but not every time."""
KEEPS = "KIR-G930"
"""The id of a fault of a call: something outlives it."""
MEMORY_SHARE = 0.6
"""The part of the device's memory that a candidate's buffers may take."""


@dataclass(frozen=True)
class Reply:
    """What one call said. Arrays are by the problem's names; `seconds` between the events, `wall` on the host around them, `late` from the
    second event until the device was idle; `changed` inputs and `broken` guard zones by the program's names, `altered` variables of its modules;
    `digest` a keyed sum over each output, where one was asked for."""

    seconds: float
    wall: float
    late: float
    changed: tuple[str, ...]
    broken: tuple[str, ...]
    threads: int
    outputs: Mapping[str, Array]
    inputs: Mapping[str, Array]
    digest: tuple[tuple[str, int], ...] = ()
    altered: tuple[str, ...] = ()

    @property
    def outlasted(self) -> bool:
        """Whether the device seemed busy after the timed work had ended. The host looks at its own clock for that, and may have been kept from it."""
        return self.late > max(1e-3, 0.5 * self.seconds)

    def fault(self) -> str:
        """What may not be, whatever the outputs are; else nothing."""
        if self.changed:
            return f"it changes its input {', '.join(self.changed)}"
        if self.broken:
            return f"it writes outside of {', '.join(self.broken)}"
        if self.altered:
            return f"{KEEPS}: it leaves something in {', '.join(self.altered)}, which outlives the call"
        if not self.seconds > 0:
            return "no time passed between the events"
        if self.outlasted:
            return f"the device was busy for {self.late * 1e3:.1f} ms after the timed work had ended"
        return ""


@dataclass
class Candidate:
    """A program with what is needed to run it at shapes of a problem. `names` gives the problem's tensor for each of the program's."""

    gpu: Gpu
    backend: Backend
    executable: Executable
    problem: Problem
    names: Mapping[str, str]
    at: dict[str, tuple[Bound, Emitted]] = field(default_factory=dict)

    @classmethod
    def prepared(cls, gpu: Gpu, by: Backend, emitted: Emitted, program: n.Program, problem: Problem, names: Mapping[str, str],
                 shapes: Sequence[Shape]) -> Candidate:
        """Compiles every variant that the shapes need. Raises KirError of the backend, KIR-G102, KIR-G103, KIR-G104."""
        known = {t.name: t for t in problem.spec.tensors}
        for p in program.params:
            if isinstance(p.of, n.Buffer) and p.role != "out" and names.get(p.name) not in known:
                raise error("KIR-G104", f"problem '{problem.name}' has no tensor for the input '{p.name}'", subject=program.name,
                            needs="the attribute `tensor` on the parameter, or `names` in the binding")
        at = {s.name: variant_at(by, emitted, program, problem, names, s) for s in shapes}
        for name, (where, _) in at.items():
            total = sum(layout.size for layout in where.layouts.values())
            if total > MEMORY_SHARE * float(gpu.about["memory"]):
                raise error("KIR-G107", f"at shape '{name}' its buffers take {total / 2**30:.0f} GiB, of {gpu.about['memory'] / 2**30:.0f} on the device")
        distinct = {Executable.variant(text): text for _, text in at.values()}
        made = gpu.compiled(by, list(distinct.values()))
        if lacking := next((a.absent for a in made if a.absent), ""):
            raise error("KIR-G102", f"nothing to launch: {lacking}")
        executable = Executable(program, emitted, dict(zip(distinct, made, strict=True)))
        images = executable.images  # refuses here, not in the middle of a run
        if gpu.launches:
            require_closed(images, [k.texts.get("ptx", "") for a in made for k in a.kernels])
        return cls(gpu, by, executable, problem, names, at)

    def opened(self, waiting: tuple[Child, dict[str, Any]] | None = None) -> Running:
        """A fresh process with the cubins loaded: `waiting`, which has made no call, or a new one. Raises ChildGone."""
        child, about = waiting or self.gpu.opened()
        try:
            rows, cubins = self.opening()
            with self.gpu.turns.beside():
                said = child.ask({"op": "load", "images": rows}, cubins, OPEN_SECONDS)[0]
                return Running(self, child, {**about, **said}, about)
        except BaseException:
            child.close()
            raise

    def opening(self) -> tuple[list[dict[str, Any]], list[bytes]]:
        """What an executor loads, with the variables that each image may not write."""
        rows, cubins = self.executable.opening()
        if self.gpu.launches:
            rows = [{**row, "watched": watched(image)} for row, image in zip(rows, self.executable.images, strict=True)]
        return rows, cubins

    def needs_host_inputs(self, s: Shape) -> bool:
        """Whether inputs must come from the oracle for each call: those that a call overwrites, strided ones that are
        drawn by rows, and all of a problem whose inputs no device draws."""
        layouts, draws = self.at[s.name][0].layouts, self.problem.spec.distributions["normal"]
        if self.problem.drawn_by_host:
            return True
        def by_rows(name: str) -> bool:
            how = draws.get(self.names.get(name, name)) or draws.get("*")
            return how is not None and how.kind in ("unit", "alternating") and not layouts[name].dense
        params = [p for p in self.executable.program.params if isinstance(p.of, n.Buffer)]
        return any(p.role == "inout" or (p.role == "in" and by_rows(p.name)) for p in params)

    def launches(self, s: Shape) -> list[dict[str, Any]]:
        """The launches of one call at a shape."""
        where, text = self.at[s.name]
        return self.executable.launches(text, where)

    # ----------------------------------------------------------------------------------------------------------------- messages
    def request(self, s: Shape, secret: random.Random, inputs: Mapping[str, Array] | int, with_inputs: bool = False,
                with_outputs: bool = True, key: int | None = None, shifted: bool = False) -> tuple[dict[str, Any], list[bytes]]:
        """A call at a shape: inputs as given by the problem's names, or drawn on the device from a seed; outputs poisoned. Outputs come
        back, or with a `key` their sums, made on the device. Where it is `shifted`, tensors are aligned to what the program declares and the
        text says that it relies on, and to no more."""
        where, _ = self.at[s.name]
        params = {p.name: p for p in self.executable.program.params if isinstance(p.of, n.Buffer)}
        roles = {t.name: t.role for t in self.problem.spec.tensors}
        buffers: list[dict[str, Any]] = []
        blobs: list[bytes] = []
        back: list[str] = []
        outputs: list[str] = []
        for name, layout in where.layouts.items():
            p = params.get(name)
            row: dict[str, Any] = {"name": name, "bytes": layout.size, "elements": layout.span, "dtype": layout.dtype}
            if p is None or p.role == "out":
                row["fill"] = _poison(secret, layout.dtype, max(layout.shape, default=1))
            elif isinstance(inputs, int):
                row["fill"] = self._drawn(name, layout.shape, inputs)
            else:
                row["fill"] = {"blob": len(blobs)}
                blobs.append(layout.packed(inputs[self.names[name]]))
            row["intact"] = p is not None and "in" in (p.role, roles.get(self.names.get(name, name)))
            if shifted and p is not None and (step := self.executable.alignment(name)) < MOST_SHIFT:
                row["shift"] = step * (2 * secret.randrange(MOST_SHIFT // (2 * step)) + 1)
            buffers.append(row)
            if p is not None and (with_inputs if p.role == "in" else with_outputs):
                back.append(name)
            if p is not None and p.role != "in" and key is not None:
                outputs.append(name)
        message = {"op": "call", "buffers": buffers, "launches": self.launches(s),
                   "memsets": self.executable.memsets(where), "return": back, "salt": secret.getrandbits(62), "digest": outputs, "key": key or 0,
                   "sizes": dict(where.values)}
        return message, blobs

    def _drawn(self, name: str, shape: tuple[int, ...], seed: int) -> dict[str, Any]:
        draws = self.problem.spec.distributions["normal"]
        how = draws.get(self.names[name]) or draws.get("*") or Draw(kind="normal")
        return {"draw": {**how.model_dump(), "inner": shape[-1] if shape else 1}, "seed": (seed ^ hash_of(self.names[name])) % 2**62}

    def arrays(self, s: Shape, names: Sequence[str], blobs: Sequence[bytearray]) -> dict[str, Array]:
        """What came back, by the problem's names."""
        layouts = self.at[s.name][0].layouts
        return {self.names.get(name, name): layouts[name].unpacked(raw) for name, raw in zip(names, blobs, strict=True)}


def variant_at(by: Backend, emitted: Emitted, program: n.Program, problem: Problem, names: Mapping[str, str], s: Shape) -> tuple[Bound, Emitted]:
    """What a program is at a shape, and the text that the surface's launcher takes there. Raises KirError KIR-G103."""
    where = bound(program, problem.scalars(s), problem_shapes(problem, s, names))
    return where, by.launched_with(emitted, {k: int(v) for k, v in where.values.items() if not isinstance(v, float)})


@dataclass
class Running:
    """A candidate's process, with the seconds of its stream that were not between events so far."""

    candidate: Candidate
    child: Child
    about: dict[str, Any]
    opening: dict[str, Any] = field(default_factory=dict)
    """What its process said of itself before it had a candidate."""
    spent: float = 0.0
    keeps: bool = False
    """Whether its process goes on to the next candidate when this one is done."""

    def call(self, s: Shape, secret: random.Random, inputs: Mapping[str, Array] | int, with_inputs: bool = False,
             seconds: float = CALL_SECONDS, with_outputs: bool = True, key: int | None = None, shifted: bool = False) -> Reply:
        """One logical call; one that seems to outlast its end is made again, `AGAIN` times at most, and nothing of it is kept. Raises ChildGone for a
        process that died, hung or was refused by the driver."""
        for _ in range(AGAIN):
            reply = self._called(s, secret, inputs, with_inputs, seconds, with_outputs, key, shifted)
            if not reply.outlasted:
                return reply
        return self._called(s, secret, inputs, with_inputs, seconds, with_outputs, key, shifted)

    def _called(self, s: Shape, secret: random.Random, inputs: Mapping[str, Array] | int, with_inputs: bool, seconds: float, with_outputs: bool,
                key: int | None, shifted: bool) -> Reply:
        message, blobs = self.candidate.request(s, secret, inputs, with_inputs, with_outputs, key, shifted)
        with self.candidate.gpu.turns.beside():
            answer, back = self.child.ask(message, blobs, seconds)
        self.spent += float(answer.get("beyond", 0.0))
        params = {p.name: p.role for p in self.candidate.executable.program.params}
        outs = [(name, raw) for name, raw in zip(message["return"], back, strict=True) if params[name] != "in"]
        ins = [(name, raw) for name, raw in zip(message["return"], back, strict=True) if params[name] == "in"]
        outputs = self.candidate.arrays(s, [x for x, _ in outs], [raw for _, raw in outs])
        given = dict(inputs) if not isinstance(inputs, int) else self.candidate.arrays(s, [x for x, _ in ins], [raw for _, raw in ins])
        return Reply(float(answer["seconds"]), float(answer["wall"]), float(answer.get("late", 0.0)), tuple(answer["changed"]),
                     tuple(answer["broken"]), int(answer["threads"]), outputs, given, tuple(sorted(answer.get("digests", {}).items())),
                     tuple(answer.get("altered", ())))

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: Any) -> None:
        if self.keeps and not self.child.ended:
            self.candidate.gpu.keep(self.child, self.opening)
            return
        with self.candidate.gpu.turns.beside():
            self.child.close()


def _poison(secret: random.Random, dtype: str, extent: int) -> dict[str, Any]:
    """What an output holds before: NaN (or -1), or values that could be an answer; which of them is not foreseeable."""
    if secret.random() < 0.4 or numpy_dtype(dtype).kind == "b":
        return {"byte": 0xFF if numpy_dtype(dtype).kind != "b" else secret.randrange(2)}
    whole = np.dtype(numpy_dtype(dtype)).kind in "iu" and "float" not in str(numpy_dtype(dtype))
    how: dict[str, Any] = {"kind": "integers", "low": 0, "high": min(max(extent, 2), 100)} if whole else {
        "kind": "normal", "mean": 0.0, "scale": secret.choice([0.25, 1.0, 8.0])}
    return {"draw": how, "seed": secret.getrandbits(62)}


__all__ = ["CALL_SECONDS", "Candidate", "Reply", "Running", "variant_at"]
