"""The process in which a file in the form of KernelBench is run: confined before it reads one line of it."""
from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.base.diagnostic import KirError
from kir.hardware.confine import Limits, confine
from kir.hardware.device import wire
from kir.problem.draws import numpy_dtype

Array = NDArray[Any]
TASK = "kir.problem.model_child:serve"
MODULES = ("torch", "kir.problem.model_run")
LATER = ("torch._dynamo", "kir.problem.naive.recording")
"""What recording imports beside them, and any child in which torch infers shapes of all but the plainest operators: it takes as long as the rest."""
CPU_SECONDS = 3600
MEMORY_SHARE = 0.75
"""The part of the machine's memory that the process may address."""
NAMES = ("bool", "f16", "f32", "f64", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")


def serve(channel: socket.socket) -> None:
    """Answer until the channel closes: `load` first. A refusal is an answer with its diagnostics; then the process goes on."""
    memory = int(MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    level = confine(Limits(programs=False, seconds=CPU_SECONDS, file_bytes=1 << 20, memory_bytes=memory))
    from kir.problem.model_run import ModelFile
    from kir.problem.model_source import ModelSource
    file: ModelFile | None = None
    while True:
        message, blobs = wire.receive(channel)
        try:
            if message["op"] == "load":
                file = ModelFile(ModelSource(message["path"], message["text"]))
                wire.send(channel, {"level": level.to_json()})
                continue
            assert file is not None
            answer, arrays = _answered(file, message, unpacked(message.get("arrays", ()), blobs))
            wire.send(channel, {**answer, "arrays": about(arrays)}, [np.ascontiguousarray(a).tobytes() for a in arrays.values()])
        except KirError as refused:
            wire.send(channel, {"refused": [d.to_json() for d in refused.diagnostics]})
        except MemoryError:
            wire.send(channel, {"error": "it takes more memory than it may have"})


def _answered(file: Any, message: Mapping[str, Any], arrays: dict[str, Array]) -> tuple[dict[str, Any], dict[str, Array]]:
    sizes = message["sizes"]
    match message["op"]:
        case "describe":
            return file.described(sizes), {}
        case "examine":
            file.examined(sizes)
            return {}, {}
        case "dense":
            return {"dense": file.dense(sizes)}, {}
        case "record":
            return file.recorded(sizes), {}
        case "inputs":
            return {}, file.inputs(sizes, message["seed"], message["distribution"])
        case "own":
            return {}, {"out": file.own(sizes, arrays)}
        case "oracle":
            return {}, {"out": file.oracle(sizes, arrays)}
        case other:
            assert other == "bounded", other
            exact = file.oracle(sizes, arrays)
            return {}, {"out": exact, "bound": file.bound(sizes, arrays, exact, message["unit"])}


def about(arrays: Mapping[str, Array]) -> list[list[Any]]:
    """Names, dtypes and extents of arrays, as they go over the wire."""
    known = {numpy_dtype(x): x for x in NAMES}
    return [[name, known[a.dtype], list(a.shape)] for name, a in arrays.items()]


def unpacked(rows: Sequence[Sequence[Any]], blobs: Sequence[bytes | bytearray]) -> dict[str, Array]:
    """The inverse, from the bytes that came with them."""
    return {name: np.frombuffer(blob, numpy_dtype(dtype)).reshape(shape) for (name, dtype, shape), blob in zip(rows, blobs, strict=True)}
