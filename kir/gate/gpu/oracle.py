"""The oracle's process: draws inputs, computes in float64, compares. It sees outputs, never the candidate; the candidate never sees it.

The problem's reference is Python that may come from anywhere (a KernelBench file), so this process is confined too. Where the gates of one search share
what it says (`Shared`), it is asked once for each inputs, and who asked compares.
"""
from __future__ import annotations

import fcntl
import hashlib
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
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
from kir.problem.answers import Answers, digest, key_of
from kir.problem.model import ModelProblem

Array = NDArray[Any]
T = TypeVar("T")
SECONDS = 600.0
"""How long the oracle may take over one comparison."""
FOLDER = "kir-answers-"
SHARED_BYTES = 1 << 20
"""Bytes of inputs from which on what the oracle says of them is kept: below, asking is as fast."""


@dataclass(frozen=True)
class Shared:
    """What the gates of one search have in common, so that they ask the oracle once and not for each candidate: what it said, and the seeds of calls that
    are compared at timed shapes. `secret` is drawn anew for each search and told to no candidate, whose processes see neither files nor one another; which
    of its calls are drawn from those seeds is secret too, and differs from verdict to verdict. With `every`, what is said at shapes that are not timed is kept
    too: for verdicts that all have one secret (`Options`)."""

    secret: int
    answers: Answers
    every: bool = False

    def seed(self, at: Shape, place: int) -> int:
        """The seed of a call at a shape."""
        said = hashlib.sha256(f"{self.secret} {sorted(at.sizes.items())} {place}".encode()).digest()
        return int.from_bytes(said[:6], "little")


@contextmanager
def sharing(every: bool = False) -> Iterator[Shared]:
    """A secret and a folder for one search, which goes with it; what a killed one has left goes first. `every`: see :class:`Shared`."""
    place = Path(tempfile.gettempdir())
    for left in place.glob(f"{FOLDER}*"):
        with suppress(OSError), open(left / "owner", "rb") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of another user, or of one that goes on: it stays
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=FOLDER, ignore_cleanup_errors=True) as folder, open(Path(folder) / "owner", "wb") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        yield Shared(secrets.randbits(64), Answers(Path(folder) / "arrays"), every)


def serve(channel: socket.socket) -> None:
    """Answer until the channel closes: `load` first, then `inputs`, `expected` and `compare`."""
    level = confine(Limits(programs=False, seconds=4 * int(SECONDS), own_bytes=machine.memory_bytes() // 2))
    problem: Problem | None = None
    while True:
        message, blobs = wire.receive(channel)
        try:
            if message["op"] == "load":
                problem = from_texts(message["programs"]) if "programs" in message else load_problem(message["problem"]).on_device()
                wire.send(channel, {"level": level.to_json()})
                continue
            assert problem is not None
            at = Shape(**message["shape"])
            if message["op"] == "inputs":
                arrays = problem.inputs(at, message["seed"], message["distribution"])
                wire.send(channel, {"arrays": _about(arrays)}, [_bytes(a) for a in arrays.values()])
            elif message["op"] == "expected":
                exact, bounds = problem.expected(_arrays(message["inputs"], blobs), at)
                wire.send(channel, {"exact": _about(exact), "bounds": _about(bounds)}, [_bytes(a) for a in (*exact.values(), *bounds.values())])
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


def _bytes(a: Array) -> memoryview | bytes:
    """An array's elements in order, not copied where they lie so."""
    return np.ascontiguousarray(a).reshape(-1).view(np.uint8).data if a.size else b""


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
    shared: Shared | None = None

    @classmethod
    def of(cls, child: Child, problem: Problem, shared: Shared | None = None) -> Oracle:
        """Loads the problem in the child. Raises ChildGone."""
        if isinstance(problem, ModelProblem):
            return OwnOracle(child, problem, shared)
        if isinstance(problem, ProgramProblem):
            child.ask({"op": "load", "programs": problem.texts()}, seconds=120)
        else:
            where = str(problem.folder) if not problem.dtype else f"{problem.folder}:{problem.dtype}"
            child.ask({"op": "load", "problem": where}, seconds=120)
        return cls(child, problem, None if isinstance(problem, ProgramProblem) else shared)

    def inputs(self, at: Shape, seed: int, distribution: str, keep: bool = False) -> dict[str, Array]:
        """Inputs of the problem, drawn there; with `keep`, of a seed that gates share, drawn once for all of them. Raises ChildGone."""
        if self.shared is not None and keep:
            return self.shared.answers.kept(key_of(self.problem, at, "inputs", distribution, seed), lambda: (self._inputs(at, seed, distribution),))[0]
        return self._inputs(at, seed, distribution)

    def _inputs(self, at: Shape, seed: int, distribution: str) -> dict[str, Array]:
        answer, blobs = self.child.ask({"op": "inputs", "shape": _shape(at), "seed": seed, "distribution": distribution}, seconds=SECONDS)
        return _arrays(answer["arrays"], blobs)

    def compare(self, at: Shape, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Comparison:
        """The problem's comparison of outputs, by the problem's names. Raises ChildGone."""
        if self.shared is not None and _keeps(self.shared, at, inputs):
            key, kept = key_of(self.problem, at, "expected", digest(inputs)), self.shared.answers.kept
            return self.problem.compare_with(outputs, inputs, at, lambda: _pair(kept(key, lambda: self._expected(at, inputs))))
        message = {"op": "compare", "shape": _shape(at), "inputs": _about(inputs), "outputs": _about(outputs)}
        blobs = [_bytes(a) for a in (*inputs.values(), *outputs.values())]
        found = self.child.ask(message, blobs, SECONDS)[0]["comparison"]
        return Comparison(found["ok"], float(found["worst"]), found["where"], float(found["bound"]), found["reason"])

    def _expected(self, at: Shape, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
        answer, blobs = self.child.ask({"op": "expected", "shape": _shape(at), "inputs": _about(inputs)}, [_bytes(a) for a in inputs.values()], SECONDS)
        return _arrays(answer["exact"], blobs), _arrays(answer["bounds"], blobs[len(answer["exact"]):])


def _keeps(shared: Shared, at: Shape, inputs: Mapping[str, Array]) -> bool:
    """Whether what is right for inputs is kept."""
    return (shared.every or "timed" in at.tags) and sum(a.nbytes for a in inputs.values()) >= SHARED_BYTES


def _pair(parts: tuple[dict[str, Array], ...]) -> tuple[dict[str, Array], dict[str, Array]]:
    exact, bounds = parts
    return exact, bounds


class OwnOracle(Oracle):
    """A problem that has a confined process of its own, and answers by it."""

    problem: ModelProblem

    def _inputs(self, at: Shape, seed: int, distribution: str) -> dict[str, Array]:
        return self._answered(lambda: self.problem.inputs(at, seed, distribution))

    def compare(self, at: Shape, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Comparison:
        if self.shared is not None and _keeps(self.shared, at, inputs):
            return super().compare(at, inputs, outputs)
        return self._answered(lambda: self.problem.compare(outputs, inputs, at))

    def _expected(self, at: Shape, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
        return self._answered(lambda: self.problem.expected(inputs, at))

    @staticmethod
    def _answered(question: Callable[[], T]) -> T:
        try:
            return question()
        except KirError as refused:
            first = refused.diagnostics[0]
            raise ChildGone("refused", f"{first.id}: {first.message}") from None


def _shape(at: Shape) -> dict[str, Any]:
    return {"name": at.name, "tags": list(at.tags), "sizes": dict(at.sizes)}
