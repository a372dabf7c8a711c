"""References timed beside a candidate: the same draws, the same clearing of L2, the same events, in a process that has torch.

A reference that is not installed, or that does not run here, is a row that says so. One that is not right by the problem's own oracle is
not timed.
"""
from __future__ import annotations

import ctypes
import random
import socket
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kir.base.dataclass import dataclass
from kir.base.diagnostic import did_you_mean, error
from kir.gate.gpu.machine import Gpu
from kir.gate.gpu.oracle import Oracle
from kir.gate.gpu.references import COMPILED_REFERENCE, REFERENCES, Reference, of_file
from kir.gate.gpu.statistics import Estimate, estimate
from kir.hardware.confine import Limits, confine
from kir.hardware.device import executor, wire
from kir.hardware.device.client import Child, ChildGone
from kir.hardware.device.driver import CudaError, Driver
from kir.hardware.device.executor import DELAY_BASE, draw, own
from kir.problem import Problem, Shape, numpy_dtype
from kir.problem.model import MODEL_REFERENCE, ModelProblem
from kir.problem.schema import Draw

SECONDS = 240.0
"""How long a reference may take to compile itself and run once."""
SAMPLES = 25


@dataclass(frozen=True)
class Timed:
    """A reference that ran: its samples at a shape."""

    reference: str
    shape: str
    seconds: tuple[float, ...]
    version: str

    @property
    def estimate(self) -> Estimate:
        return estimate(self.seconds)

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"reference": self.reference, "shape": self.shape, "version": self.version, **self.estimate.to_json(), "seconds": list(self.seconds)}


@dataclass(frozen=True)
class Missing:
    """A reference that is not here, or is not right here, with the reason."""

    reference: str
    shape: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"reference": self.reference, "shape": self.shape, "missing": self.reason}


def require_known(problem: Problem) -> None:
    """Refuse a problem that names a reference nobody knows. Raises KirError KIR-G106."""
    for name in problem.spec.references:
        if name not in REFERENCES and not (name == MODEL_REFERENCE and isinstance(problem, ModelProblem)):
            raise error("KIR-G106", f"problem '{problem.name}' names the reference '{name}', which the panel does not know",
                        attempt=did_you_mean(name, list(REFERENCES)), needs=f"one of {', '.join(REFERENCES)}")


def panel(gpu: Gpu, problem: Problem, oracle: Oracle, shapes: Sequence[Shape], secret: random.Random) -> Iterator[Timed | Missing]:
    """Every reference of the problem at every shape, each in a process of its own. Raises KirError KIR-G106."""
    require_known(problem)
    if not problem.spec.references:
        return
    server = gpu.panels
    judged_at = next((s for s in problem.shapes if "tail" in s.tags and "one" not in s.tags and "timed" not in s.tags), problem.shapes[0])
    for name in problem.spec.references:
        try:
            with server.child(120.0) as child:
                with gpu.turns.beside():
                    child.ask({"op": "open", "device": gpu.number, **_file(problem, name)}, [gpu.harness], SECONDS)
                wrong = _judge(gpu, child, name, problem, oracle, judged_at, secret)
                for s in shapes:
                    yield Missing(name, s.name, wrong) if wrong else timed_in(gpu, child, name, problem, s, oracle, secret)
        except ChildGone as gone:
            for s in shapes:
                yield Missing(name, s.name, gone.said)


def _file(problem: Problem, name: str) -> dict[str, Any]:
    """For a reference that is the problem's own file: its text, which is anyone's, so that its process is confined."""
    if name != MODEL_REFERENCE or not isinstance(problem, ModelProblem):
        return {}
    limits = Limits(programs=False, seconds=600, file_bytes=1 << 20, gpu=True)
    return {"file": {"path": problem.runner.source.path, "text": problem.runner.source.text}, "limits": limits.to_json()}


def _request(problem: Problem, name: str, s: Shape) -> dict[str, Any]:
    tensors = [{"name": t.name, "dtype": problem.tensor_dtype(t), "shape": list(problem.tensor_shape(t, s)), "role": t.role}
               for t in problem.spec.tensors]
    return {"reference": name, "tensors": tensors, "values": dict(problem.values(s)), "sizes": dict(s.sizes), "draws": _draws(problem)}


def _draws(problem: Problem) -> dict[str, Any]:
    usual = problem.spec.distributions["normal"]
    return {t.name: (usual.get(t.name) or usual.get("*") or Draw(kind="normal")).model_dump() for t in problem.spec.tensors}


def _judge(gpu: Gpu, child: Child, name: str, problem: Problem, oracle: Oracle, s: Shape, secret: random.Random) -> str:
    """Why the reference may not stand in the panel, or nothing."""
    inputs = oracle.inputs(s, secret.getrandbits(48), "normal")
    message = {"op": "outputs", **_request(problem, name, s), "given": list(inputs)}
    with gpu.turns.beside():
        answer, blobs = child.ask(message, [np.ascontiguousarray(a).tobytes() for a in inputs.values()], SECONDS)
    if "missing" in answer:
        return str(answer["missing"])
    outputs = {n: np.frombuffer(b, numpy_dtype(d)).reshape(shape) for (n, d, shape), b in zip(answer["arrays"], blobs, strict=True)}
    found = oracle.compare(s, inputs, outputs)
    return "" if found.ok else f"it is not right at shape '{s.name}': {found.reason}"


def timed_in(gpu: Gpu, child: Child, name: str, problem: Problem, s: Shape, oracle: Oracle, secret: random.Random) -> Timed | Missing:
    """The samples of one reference in a panel's process that is open already, whether or not it is right by the problem; alone on the device."""
    given = oracle.inputs(s, secret.getrandbits(48), "normal") if problem.drawn_by_host else {}
    message = {"op": "time", **_request(problem, name, s), "seeds": [secret.getrandbits(60) for _ in range(SAMPLES)], "given": list(given)}
    with gpu.turns.alone():
        answer, _ = child.ask(message, [np.ascontiguousarray(a).tobytes() for a in given.values()], SECONDS)
    if "missing" in answer:
        return Missing(name, s.name, str(answer["missing"]))
    return Timed(name, s.name, tuple(answer["seconds"]), str(answer["version"]))


def called_once(gpu: Gpu, child: Child, name: str, problem: Problem, s: Shape, oracle: Oracle, secret: random.Random) -> str:
    """Call a reference once, beside others: what compiles itself when it is called first need not do that while it has the device alone. What it said where
    it failed."""
    inputs = oracle.inputs(s, secret.getrandbits(48), "normal")
    with gpu.turns.beside():
        message = {"op": "outputs", **_request(problem, name, s), "given": list(inputs)}
        answer, _ = child.ask(message, [np.ascontiguousarray(a).tobytes() for a in inputs.values()], SECONDS)
    return str(answer.get("missing", ""))


# --------------------------------------------------------------------------------------------------------------- the panel's process

def serve(channel: socket.socket) -> None:
    """Answer until the channel closes."""
    state: executor.State | None = None
    references = REFERENCES
    while True:
        message, blobs = wire.receive(channel)
        try:
            if message["op"] == "open":
                if "file" in message:
                    if "limits" in message:
                        confine(Limits(**{**message["limits"], "writable": ()}))
                    references = {MODEL_REFERENCE: of_file(**message["file"]), COMPILED_REFERENCE: of_file(**message["file"], compiled=True)}
                if state is not None:  # another file, in a process that is not confined
                    _forget()
                    wire.send(channel, {})
                    continue
                state, _ = executor.opened({"op": "open", "device": message["device"], "confine": False, "limits": {"writable": []}, "images": []}, blobs[:1])
                wire.send(channel, {})
            else:
                assert state is not None
                answer, back = _answered(state, references, message, blobs)
                wire.send(channel, answer, back)
        except Exception as fault:  # a library's code: whatever it raises is the reason why it is missing
            wire.send(channel, {"missing": _said(fault)})
            if isinstance(fault, CudaError):
                return


def _forget() -> None:
    """What torch keeps of a model that is no longer asked about: what it compiled, and memory."""
    import torch
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    torch.cuda.empty_cache()


def _said(fault: Exception) -> str:
    """The first line of what was raised; where it says nothing, the line of code that raised it."""
    words = str(fault).strip().splitlines()
    if not words and (frames := traceback.extract_tb(fault.__traceback__)):
        words = [f"{frames[-1].line} ({Path(frames[-1].filename).name}:{frames[-1].lineno})"]
    return f"{type(fault).__name__}: {words[0] if words else ''}"


def _answered(state: Any, references: Mapping[str, Reference], message: Mapping[str, Any], blobs: list[bytearray]) -> tuple[dict[str, Any], list[bytes]]:
    import torch
    name = message["reference"]
    library = name.partition(".")[0] if name in REFERENCES else "torch"
    version = getattr(__import__(library), "__version__", "")
    values = {**message["values"], "sizes": message["sizes"]}
    d: Driver = state.driver
    stream = torch.cuda.ExternalStream(int(d.stream.handle))
    with torch.cuda.stream(stream):
        tensors = _tensors(message, torch)
        for which, blob in zip(message["given"], blobs, strict=True):
            d.upload(tensors[which].data_ptr(), bytes(blob))
        if message["op"] == "outputs":
            outputs = references[name](tensors, values)()
            torch.cuda.synchronize()
            wanted = {t["name"]: t["dtype"] for t in message["tensors"] if t["role"] != "in"}
            arrays = [(n, wanted[n], o.contiguous()) for n, o in outputs.items() if n in wanted]
            raw = [bytes(o.view(torch.uint8).cpu().numpy().tobytes()) if o.dim() else b"" for _, _, o in arrays]
            return {"arrays": [[n, dt, list(o.shape)] for n, dt, o in arrays]}, raw
        return {"seconds": _seconds(state, references[name], values, message, tensors, torch), "version": version}, []


def _tensors(message: Mapping[str, Any], torch: Any) -> dict[str, Any]:
    kinds = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "i32": torch.int32, "i64": torch.int64,
             "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool, "f8e4m3": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2}
    return {t["name"]: torch.empty(t["shape"], dtype=kinds[t["dtype"]], device="cuda") for t in message["tensors"] if t["role"] != "out"}


def _seconds(state: Any, reference: Reference, values: Mapping[str, Any], message: Mapping[str, Any], tensors: Mapping[str, Any], torch: Any
             ) -> list[float]:
    d: Driver = state.driver
    dtypes = {t["name"]: t["dtype"] for t in message["tensors"]}
    start, stop = d.event(), d.event()
    out: list[float] = []
    warm = 3
    for number, seed in enumerate([*message["seeds"][:warm], *message["seeds"]]):
        for i, (name, x) in enumerate(tensors.items() if not message["given"] else ()):
            how = {**message["draws"][name], "inner": x.shape[-1] if x.dim() else 1}
            draw(state, x.data_ptr(), x.numel(), dtypes[name], how, seed + i)
        call = reference(tensors, values)
        if number == 0:
            call()
        torch.cuda.synchronize()
        d.more.forget_persisting()
        pointer, size = state.cleared
        own(state, "clear", size // 16, ctypes.c_uint64(pointer), ctypes.c_uint64(size // 16), ctypes.c_uint32(seed & 0xFFFF))
        d.launch(state.harness["delay"], (1,), 1, (ctypes.c_uint64(10 * DELAY_BASE),))
        d.record(start)
        kept = call()
        d.record(stop)
        seconds = d.elapsed(start, stop)
        torch.cuda.synchronize()
        del kept
        if number >= warm:
            out.append(seconds)
    return out
