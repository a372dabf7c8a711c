"""compute-sanitizer on calls of a candidate: memory errors that no output shows. Once for each set of cubins.

Both tools look at a small shape; memcheck also at a timed one, where a kernel may do what it does nowhere else, unless that would take long.
"""
from __future__ import annotations

import hashlib
import json
import math
import random
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kir.base.store import write_atomic
from kir.gate.gpu.candidate import Candidate
from kir.gate.gpu.checks import Planned
from kir.gate.gpu.machine import Gpu, lead
from kir.gate.gpu.oracle import Oracle
from kir.gate.gpu.standby import SECONDS, TOOLS, Standbys, sanitizer
from kir.hardware.device.replay import pack
from kir.problem import Shape

UNSUPPORTED = ("Device not supported", "not supported on this", "LibraryNotLoaded")
"""What the tool says where it can judge no kernel at all. Any other end without a summary is the kernel's fault, and refuses it."""
QUICK, LARGEST = 1e-3, 1 << 29
"""A timed shape that memcheck sees: a call takes at most so many seconds without it, and its buffers so many bytes."""
SLOWER = 100.0
"""How many times longer than all correctness calls together a tool may take over one call, beyond its least time."""
_SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard")
_FAULT = re.compile(r"^=+ +((?:Invalid|Misaligned|Out-of-range|Warp|Uninitialized|Program hit|Error: |Race reported|Stack|Barrier).*)$", re.MULTILINE)


def sanitizing(pool: ThreadPoolExecutor, gpu: Gpu, c: Candidate, oracle: Oracle, plan: Sequence[Planned], secret: random.Random,
               plain: float = 0.0, timed: Sequence[tuple[Shape, float]] = ()) -> Callable[[], dict[str, Any]]:
    """Start the tools; calling the result waits for `tools` that ran, `errors` as they said them (one that does not finish is an error),
    `again`, tools that did not finish at first and were asked once more, and `absent` where the tool is not here. The smallest planned shape
    of several elements is used, if it can be one that the problem lists: it is the same in every verdict. `plain` are the seconds that
    correctness took, for the time limit; `timed` the shapes that were timed, with the seconds of a call: memcheck sees the quickest of them
    too (`timed` of the answer, empty where none is quick and small enough). An answer is kept by the hash of the cubins that the calls take.
    Raises ChildGone where the oracle fails."""
    tool = sanitizer()
    if tool is None or not plan:
        absent: dict[str, Any] = {"tools": [], "absent": "compute-sanitizer is not here: it comes with a CUDA toolkit" if tool is None else "no shape to run"}
        return lambda: absent
    uneven = [p for p in plan if math.prod(p.shape.sizes.values()) > 1] or list(plan)
    listed = {s.name for s in c.problem.shapes}
    at = min(uneven, key=lambda p: (p.shape.name not in listed, math.prod(p.shape.sizes.values()))).shape
    quick = min((x for x in timed if x[1] <= QUICK and _bytes(c, x[0]) <= LARGEST), key=lambda x: x[1], default=None)
    large = quick[0] if quick is not None else None
    called = sorted({int(x["image"]) for s in (at, large) if s is not None for x in c.launches(s)})
    shown = str((TOOLS, large.name if large is not None else ""))
    key = hashlib.sha256(b"".join(c.executable.images[i].cubin for i in called) + shown.encode()).hexdigest()
    kept = gpu.folder / "sanitized" / f"{key}.json"
    if kept.is_file():
        row: dict[str, Any] = json.loads(kept.read_text())
        return lambda: {**row, "kept": True}
    message, blobs = c.request(at, secret, oracle.inputs(at, secret.getrandbits(48), "normal"))
    rows, cubins = c.opening()
    opening = {"op": "open", "device": gpu.number, "confine": False, "guard": 0, "plain": True, "lead": lead(secret.randrange),
               "limits": {"writable": []}, "images": rows}
    calls = [(message, blobs)]
    if large is not None:
        seed = secret.getrandbits(48)
        calls.append(c.request(large, secret, oracle.inputs(large, seed, "normal") if c.needs_host_inputs(large) else seed, with_outputs=False))
    jobs = {name: pack((opening, [gpu.harness, *cubins]), *(calls if name == "memcheck" else calls[:1])) for name in TOOLS}
    running = [(name, pool.submit(_in_turn, gpu, name, jobs[name], SECONDS + SLOWER * plain)) for name in TOOLS]
    where = {"shape": at.name, "timed": large.name if large is not None else ""}

    def finished() -> dict[str, Any]:
        out, final = _read([(name, each.result()) for name, each in running])
        if final:
            write_atomic(kept, json.dumps({**out, **where}))
        return {**out, **where}
    return finished


def _bytes(c: Candidate, s: Shape) -> int:
    """Bytes of a candidate's buffers at a shape."""
    return sum(layout.size for layout in c.at[s.name][0].layouts.values())


Answer = tuple[str, tuple[str, ...]]
"""What a tool said at last, and what it said when it did not finish at first."""


def _in_turn(gpu: Gpu, name: str, job: bytes, seconds: float) -> Answer:
    """A tool's answer, while nothing is timed on the device."""
    with gpu.turns.beside():
        return _asked(gpu.sanitizers, name, job, seconds)


def _asked(tools: Standbys, name: str, job: bytes, seconds: float) -> Answer:
    """A tool's answer. One that ends without a summary is asked once more: the tool itself fails now and then, a kernel's fault stays."""
    said = tools.run(name, job, seconds)
    if _SUMMARY.search(said) or any(word in said for word in UNSUPPORTED):
        return said, ()
    return tools.run(name, job, seconds), (said,)


def _read(answers: Sequence[tuple[str, Answer]]) -> tuple[dict[str, Any], bool]:
    """What the tools said, and whether it is worth keeping."""
    out: dict[str, Any] = {"tools": [], "errors": []}
    for name, (said, before) in answers:
        if before:
            out.setdefault("again", {})[name] = before[0].strip()[-200:]
        found = _SUMMARY.search(said)
        if found is None and any(word in said for word in UNSUPPORTED):
            return {"tools": [], "errors": [], "absent": f"{name} cannot run here: {said.strip()[-200:]}"}, False
        out["tools"].append(name)
        if found is None:
            out["errors"].append(f"{name} did not finish, twice: {said.strip()[-200:]}")
        elif int(found[1] or found[2] or 0):
            first = _FAULT.search(said)
            out["errors"].append(f"{name}: {first[1].strip() if first else found[0]}")
    return out, all("did not finish" not in e for e in out["errors"])
