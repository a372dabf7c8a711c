"""The oracle's process: draws inputs, computes in float64, compares. It sees outputs, never the candidate; the candidate never sees it.

The problem's reference is Python that may come from anywhere (a KernelBench file), so this process is confined too.
"""
from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.gate.gpu.relative import ProgramProblem, from_texts
from kir.hardware import machine
from kir.hardware.confine import Limits, confine
from kir.hardware.device import wire
from kir.hardware.device.client import Child, ChildGone
from kir.problem import Comparison, Problem, Shape, load_problem, numpy_dtype
from kir.problem.model import ModelProblem

Array = NDArray[Any]
T = TypeVar("T")
SECONDS = 600.0
"""How long the oracle may take over one comparison."""


def serve(channel: socket.socket) -> None:
    """Answer until the channel closes: `load` first, then `inputs` and `compare`."""
    level = confine(Limits(programs=False, seconds=4 * int(SECONDS), own_bytes=machine.memory_bytes() // 2))
    problem: Problem | None = None
    while True:
        message, blobs = wire.receive(channel)
        try:
            if message["op"] == "load":
                problem = from_texts(message["programs"]) if "programs" in message else load_problem(message["problem"])
                wire.send(channel, {"level": level.to_json()})
                continue
            assert problem is not None
            at = Shape(**message["shape"])
            if message["op"] == "inputs":
                arrays = problem.inputs(at, message["seed"], message["distribution"])
                wire.send(channel, {"arrays": _about(arrays)}, [np.ascontiguousarray(a).tobytes() for a in arrays.values()])
            else:
                inputs, outputs = _arrays(message["inputs"], blobs), _arrays(message["outputs"], blobs[len(message["inputs"]):])
                found = problem.compare(outputs, inputs, at)
                wire.send(channel, {"comparison": {**asdict(found), "worst": repr(found.worst), "bound": repr(found.bound)}})
        except KirError as refused:
            first = refused.diagnostics[0]
            wire.send(channel, {"error": f"{first.id}: {first.message}"})
        except Exception as fault:  # the reference is foreign code: whatever it raises is an answer, and ends this process
            wire.send(channel, {"error": f"the reference failed: {type(fault).__name__}: {fault}"})
            return


def _about(arrays: Mapping[str, Array]) -> list[list[Any]]:
    names = {numpy_dtype(x): x for x in ("bool", "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2", "e8m0", "i8", "i16", "i32", "i64",
                                         "u8", "u16", "u32", "u64")}
    return [[name, names[a.dtype], list(a.shape)] for name, a in arrays.items()]


def _arrays(rows: Sequence[Sequence[Any]], blobs: Sequence[bytes | bytearray]) -> dict[str, Array]:
    return {name: np.frombuffer(blob, numpy_dtype(dtype)).reshape(shape) for (name, dtype, shape), blob in zip(rows, blobs, strict=False)}


@dataclass
class Oracle:
    """The asking side for one problem."""

    child: Child
    problem: Problem

    @classmethod
    def of(cls, child: Child, problem: Problem) -> Oracle:
        """Loads the problem in the child. Raises ChildGone."""
        if isinstance(problem, ModelProblem):
            return OwnOracle(child, problem)
        if isinstance(problem, ProgramProblem):
            child.ask({"op": "load", "programs": problem.texts()}, seconds=120)
        else:
            where = str(problem.folder) if not problem.dtype else f"{problem.folder}:{problem.dtype}"
            child.ask({"op": "load", "problem": where}, seconds=120)
        return cls(child, problem)

    def inputs(self, at: Shape, seed: int, distribution: str) -> dict[str, Array]:
        """Inputs of the problem, drawn there. Raises ChildGone."""
        answer, blobs = self.child.ask({"op": "inputs", "shape": _shape(at), "seed": seed, "distribution": distribution}, seconds=SECONDS)
        return _arrays(answer["arrays"], blobs)

    def compare(self, at: Shape, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Comparison:
        """The problem's comparison of outputs, by the problem's names. Raises ChildGone."""
        message = {"op": "compare", "shape": _shape(at), "inputs": _about(inputs), "outputs": _about(outputs)}
        blobs = [np.ascontiguousarray(a).tobytes() for a in (*inputs.values(), *outputs.values())]
        found = self.child.ask(message, blobs, SECONDS)[0]["comparison"]
        return Comparison(found["ok"], float(found["worst"]), found["where"], float(found["bound"]), found["reason"])


class OwnOracle(Oracle):
    """A problem that has a confined process of its own, and answers by it."""

    def inputs(self, at: Shape, seed: int, distribution: str) -> dict[str, Array]:
        return self._answered(lambda: self.problem.inputs(at, seed, distribution))

    def compare(self, at: Shape, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Comparison:
        return self._answered(lambda: self.problem.compare(outputs, inputs, at))

    @staticmethod
    def _answered(question: Callable[[], T]) -> T:
        try:
            return question()
        except KirError as refused:
            first = refused.diagnostics[0]
            raise ChildGone("refused", f"{first.id}: {first.message}") from None


def _shape(at: Shape) -> dict[str, Any]:
    return {"name": at.name, "tags": list(at.tags), "sizes": dict(at.sizes)}
