"""An executor without a device: its "cubins" are IR text, which the interpreter runs. For the protocol of the GPU gate; the times are made up.

What a program's name says is what it does wrong: `crash`, `hang`, `late`, `spoil` (changes an input), `spill` (writes a guard zone), `keeps`
(leaves something in a variable of its module), `lucky` (right only in the first calls of a process), `hidden` (the host waits for what the events do
not show), `stalled` (every fourth call seems `late`), `memo` (gives the outputs of its first call again), `vectors` (takes four elements at once,
whatever is declared).
"""
from __future__ import annotations

import os
import signal
import socket
import time
import zlib
from typing import Any

import numpy as np

from kir.hardware.confine import Limits, confine
from kir.hardware.device import wire
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.problem.draws import draw, generator, numpy_dtype
from kir.problem.schema import Draw

SLOW = 1e-4
parse_program("kir 1\nprogram p\n")
"""The grammar's tables are there before processes are forked: each would read them anew."""


def serve(channel: socket.socket) -> None:
    """Answer until the channel closes."""
    calls = 0
    first: dict[str, Any] = {}
    program = None
    while True:
        message, blobs = wire.receive(channel)
        if message["op"] == "load":
            program = parse_program(bytes(blobs[0]).decode(), "image")
            wire.send(channel, {"functions": []})
        elif message["op"] == "open":
            limits = dict(message["limits"])
            limits["writable"] = tuple(limits["writable"])
            level = confine(Limits(**limits))
            program = parse_program(bytes(blobs[1]).decode(), "image") if len(blobs) > 1 else None
            wire.send(channel, {"level": level.to_json(), "device": {}, "functions": []})
        elif message["op"] == "clear":
            program = None
            wire.send(channel, {})
        elif message["op"] == "peaks":
            wire.send(channel, {"bandwidth": 1e12, "launch": 2e-6})
        else:
            assert program is not None
            calls += 1
            if "vectors" in program.name and any(row.get("shift", 0) % 16 for row in message["buffers"]):
                wire.send(channel, {"error": "cuEventSynchronize: CUDA_ERROR_MISALIGNED_ADDRESS (716)", "name": "CUDA_ERROR_MISALIGNED_ADDRESS"})
                continue
            wire.send(channel, *_called(program, message, blobs, calls, first))


def _called(program: n.Program, message: dict[str, Any], blobs: list[bytearray], calls: int, first: dict[str, Any]
            ) -> tuple[dict[str, Any], list[bytes]]:
    name = program.name
    if "crash" in name:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "hang" in name:
        time.sleep(600)
    arrays = {}
    sizes = message["sizes"]
    params = {p.name: p for p in program.params if isinstance(p.of, n.Buffer)}
    shapes = {}
    for row in message["buffers"]:
        p = params.get(row["name"])
        if p is None:
            continue
        dtype, how = numpy_dtype(row["dtype"]), row["fill"]
        shapes[row["name"]] = row["elements"]
        if p.role == "out":
            continue
        if "blob" in how:
            flat = np.frombuffer(blobs[how["blob"]], dtype)
        else:
            spec = {k: v for k, v in how["draw"].items() if k != "inner"}
            flat = draw(Draw(**spec), (row["elements"] // how["draw"]["inner"], how["draw"]["inner"]), row["dtype"], generator(how["seed"])).reshape(-1)
        arrays[row["name"]] = flat
    shaped = {k: v.reshape(_shape(params[k], sizes)) for k, v in arrays.items()}
    outputs = run(program, {k: v.copy() for k, v in shaped.items()}, sizes).outputs
    if "memo" in name:
        if calls > 3:
            outputs = {k: v for k, v in first.items() if v.shape == outputs[k].shape} or outputs
        first.update(outputs)
    if "lucky" in name and calls > 12:
        outputs = {k: np.zeros_like(v) for k, v in outputs.items()}
    back = [np.ascontiguousarray(outputs.get(x, shaped.get(x))).tobytes() for x in message["return"]]
    digests = {x: zlib.crc32(np.ascontiguousarray(outputs[x]).tobytes(), message["key"] % 2**32) for x in message["digest"]}
    wall, late = 0.3 if "hidden" in name else 2 * SLOW, 0.5 if "late" in name or ("stalled" in name and calls % 4 == 0) else 0.0
    answer = {"digests": digests, "seconds": 1e-9 if "free" in name else SLOW, "wall": wall, "late": late,
              "changed": ["X"] if "spoil" in name else [],
              "altered": ["calls of k"] if "keeps" in name else [], "broken": ["Y"] if "spill" in name else [], "threads": 1}
    return answer, back


def _shape(p: n.Param, sizes: dict[str, Any]) -> tuple[int, ...]:
    from kir.ir.build import const, int_value
    from kir.ir.types import I32
    from kir.ir.visit import substitute
    assert isinstance(p.of, n.Buffer)
    return tuple(int_value(substitute(d, {k: const(int(v), I32) for k, v in sizes.items() if not isinstance(v, float)})) or 0 for d in p.of.shape)
