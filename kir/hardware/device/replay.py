"""Make the calls of a job file in this process, with nothing around it: compute-sanitizer runs this, and every import costs it time.

A job is an `open` message and `call` messages, as an executor gets them; `pack` writes one.
"""
from __future__ import annotations

import json
import os
import struct
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kir.hardware.device.driver import Driver
from kir.hardware.device.executor import called, opened

READY = "kir: ready for a job"


def pack(*messages: tuple[Mapping[str, Any], Sequence[bytes]]) -> bytes:
    """Messages with their byte strings, one after another."""
    out = bytearray()
    for message, blobs in messages:
        head = json.dumps({"message": message, "blobs": [len(b) for b in blobs]}).encode()
        out += struct.pack("<I", len(head)) + head + b"".join(blobs)
    return bytes(out)


def unpack(raw: bytes) -> list[tuple[dict[str, Any], list[bytearray]]]:
    """What `pack` wrote."""
    at, parts = 0, []
    while at < len(raw):
        (length,) = struct.unpack_from("<I", raw, at)
        head = json.loads(raw[at + 4: at + 4 + length])
        at += 4 + length
        blobs = []
        for size in head["blobs"]:
            blobs.append(bytearray(raw[at: at + size]))
            at += size
        parts.append((head["message"], blobs))
    return parts


def wait_and_replay(device: int) -> None:
    """Open the device, say so, then replay the job file that one line of the standard input names; without one, do nothing. Never returns:
    pycuda's own end calls the driver once more, which after a fault aborts."""
    code = 0
    try:
        Driver(device).synchronize()
        print(READY, flush=True)
        if job := sys.stdin.readline().strip():
            replay(job)
    except Exception:  # whatever it is, the tool above says what it saw
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def replay(job: str) -> None:
    """Make the calls of a job file. Raises CudaError."""
    opening, *calls = unpack(Path(job).read_bytes())
    state, _ = opened(*opening)
    for call in calls:
        called(state, *call)
