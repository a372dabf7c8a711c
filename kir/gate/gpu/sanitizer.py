"""compute-sanitizer on one call of a candidate: memory errors that no output shows. Once for each set of cubins."""
from __future__ import annotations

import hashlib
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import kir
from kir import machine
from kir.gate.gpu.candidate import Candidate
from kir.gate.gpu.checks import Planned
from kir.gate.gpu.machine import Gpu
from kir.gate.gpu.oracle import Oracle
from kir.store import write_atomic

SECONDS = 180
TOOLS = ("memcheck", "racecheck")
_SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard")
_FAULT = re.compile(r"^=+ +((?:Invalid|Misaligned|Out-of-range|Warp|Uninitialized|Program hit|Error: |Race reported|Stack|Barrier).*)$", re.MULTILINE)


def sanitizer() -> Path | None:
    """compute-sanitizer of the path or of the toolkit."""
    found = shutil.which("compute-sanitizer")
    if found:
        return Path(found)
    kit = machine.toolkit()
    beside = kit.root / "bin" / "compute-sanitizer" if kit else None
    return beside if beside is not None and beside.is_file() else None


def sanitized(gpu: Gpu, c: Candidate, oracle: Oracle, plan: Sequence[Planned], secret: random.Random) -> dict[str, Any]:
    """`tools` that ran, `errors` as they said them; `absent` where the tool is not here. The smallest planned shape of several elements
    is used. An answer is kept by the hash of the cubins."""
    tool = sanitizer()
    if tool is None or not plan:
        return {"tools": [], "absent": "compute-sanitizer is not here: it comes with a CUDA toolkit" if tool is None else "no shape to run"}
    key = hashlib.sha256(b"".join(i.cubin for i in c.executable.images) + str(TOOLS).encode()).hexdigest()
    kept = gpu.folder / "sanitized" / f"{key}.json"
    if kept.is_file():
        row: dict[str, Any] = json.loads(kept.read_text())
        return {**row, "kept": True}
    uneven = [p for p in plan if math.prod(p.shape.sizes.values()) > 1] or list(plan)
    at = min(uneven, key=lambda p: math.prod(p.shape.sizes.values())).shape
    message, blobs = c.request(at, secret, oracle.inputs(at, secret.getrandbits(48), "normal"))
    rows, cubins = c.executable.opening()
    opening = {"op": "open", "device": gpu.number, "confine": False, "guard": 0, "limits": {"writable": []}, "images": rows}
    with tempfile.TemporaryDirectory(prefix="kir-sanitizer-") as folder:
        job = Path(folder) / "job"
        job.write_bytes(_packed((opening, [gpu.harness, *cubins]), (message, blobs)))
        out: dict[str, Any] = {"tools": [], "errors": [], "shape": at.name}
        for name in TOOLS:
            said = _run(tool, name, job, folder)
            found = _SUMMARY.search(said)
            if found is None:
                return {"tools": out["tools"], "errors": [], "absent": f"{name} did not finish: {said.strip()[-200:]}"}
            out["tools"].append(name)
            if int(found[1] or found[2] or 0):
                first = _FAULT.search(said)
                out["errors"].append(f"{name}: {first[1].strip() if first else found[0]}")
    write_atomic(kept, json.dumps(out))
    return out


def _run(tool: Path, name: str, job: Path, folder: str) -> str:
    roots = list(dict.fromkeys([str(Path(kir.__file__).parents[1]), *(p for p in sys.path if p)]))
    code = f"import sys; sys.path[:] = {roots!r}; from kir.gate.gpu.sanitizer import replay; replay({str(job)!r})"
    environment = {k: v for k, v in os.environ.items() if k in ("PATH", "LD_LIBRARY_PATH", "HOME", "CUDA_VISIBLE_DEVICES")}
    command = [str(tool), "--tool", name, "--print-limit", "5", sys.executable, "-I", "-S", "-B", "-c", code]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=folder,
                              env={**environment, "TMPDIR": folder, "CUDA_CACHE_DISABLE": "1"})
    except subprocess.TimeoutExpired:
        return f"it took more than {SECONDS} s"
    return done.stdout + done.stderr


def _packed(*messages: tuple[Mapping[str, Any], Sequence[bytes]]) -> bytes:
    out = bytearray()
    for message, blobs in messages:
        head = json.dumps({"message": message, "blobs": [len(b) for b in blobs]}).encode()
        out += struct.pack("<I", len(head)) + head + b"".join(blobs)
    return bytes(out)


def replay(job: str) -> None:
    """Make the call of a job file in this process (compute-sanitizer runs it)."""
    from kir.device.executor import called, opened
    raw = Path(job).read_bytes()
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
    state, _ = opened(*parts[0])
    called(state, *parts[1])
