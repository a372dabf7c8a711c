"""Groups timed on a device: all programs of a group in turns, with L2 as the call before left it and cleared; what they leave is compared.

Each group is timed in a child of its own, which a fault ends: the program that it was at is a row with that fault, and the group goes on
behind it in a new child.
"""

from __future__ import annotations

import json
import multiprocessing as mp
import time
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.effects.pack import unpacked
from kir.gate.gpu import Gpu
from kir.hardware.device.clocks import clocks
from kir.hardware.device.driver import CudaError
from kir.hardware.device.executor import Sampled, State, filled, forgotten, loaded, opened, placed, ready, reserved, sample
from kir.problem import numpy_dtype

WARM, COLD = 13, 5
"""Rounds, each program once a round."""
SLOW, VERY_SLOW = 0.002, 0.03
"""Seconds a call from which it is timed in fewer rounds, and once."""
SILENT = 40.0
"""Seconds without a word after which a child is given up: a kernel hangs."""
WRONG = 0.03
"""Norm of the difference over the norm, beyond which a program does not compute what the others do."""
COMPARED_BYTES = 1 << 20
"""Bytes of the beginning and of the end of each output that are compared."""
AGAIN = "/again"
"""What is added to the name of a group that is timed a second time."""
Row = dict[str, Any]


def measured(packs: Iterable[Path], until: float) -> Iterator[Row]:
    """Rows of all groups: one a program and shape, and one a pair and shape, until the clock (`time.monotonic`) says `until`. A
    group that is named again is timed again, under another name."""
    context = mp.get_context("spawn")
    with Gpu.open() as gpu:
        code = gpu.harness
        asking: Connection | None = None
        child: Any = None
        seen: set[Path] = set()
        for path in packs:
            if time.monotonic() > until:
                break
            skip: dict[str, list[str]] = {}
            for _ in range(6):  # as many programs of a group may fault
                if child is None:
                    asking, other = context.Pipe()
                    child = context.Process(target=_serve, args=(other, code), daemon=True)
                    child.start()
                    other.close()
                assert asking is not None
                asking.send((str(path), skip))
                at, rows = _answers(asking, child)
                if rows is not None:
                    yield from ({**row, "group": row["group"] + AGAIN} for row in rows) if path in seen else rows
                    break
                child.kill()
                child.join()
                child = None
                skip.setdefault(at[0], []).append(at[1])
                if not at[0]:
                    break
            seen.add(path)
        if child is not None:
            child.kill()


def _answers(asking: Connection, child: Any) -> tuple[tuple[str, str], list[Row] | None]:
    """Rows of a group; None, and the program and fault it ended at, where the child went."""
    at = ("", "")
    while True:
        try:
            if not asking.poll(SILENT):
                return (at[0], "timeout"), None
            kind, what = asking.recv()
        except (EOFError, ConnectionError):
            return (at[0], "launch"), None
        if kind == "rows":
            return at, what
        if kind == "fault":
            return (at[0], what), None
        at = (what, "")


def _serve(asking: Connection, code: bytes) -> None:
    """Time groups as they are asked for, until the asker goes."""
    state, about = opened({"confine": False, "images": [], "limits": {"writable": ()}}, [bytearray(code)])
    while True:
        try:
            path, skip = asking.recv()
        except EOFError:
            return
        try:
            asking.send(("rows", _group(state, about["device"]["name"], Path(path), skip, asking)))
        except CudaError as fault:
            asking.send(("fault", "launch" if "LAUNCH" in fault.name or "ADDRESS" in fault.name else fault.name.lower()))
            return


def _group(s: State, device: str, path: Path, skip: dict[str, list[str]], asking: Connection) -> list[Row]:
    head, blobs, data = unpacked(path)
    about = {k: head[k] for k in ("group", "family", "surface", "problem")}
    out: list[Row] = [{"kind": "program", **about, "program": p["program"], "text": p["text"], "fault": p["fault"], "why": p["why"],
                       "compiled": p["compiled"], "modelled": p["modelled"]} for p in head["programs"]]
    s.images.clear()
    first: dict[str, int] = {}
    for p in head["programs"]:
        if not p["fault"] and p["calls"] and p["program"] not in skip:
            asking.send(("at", p["program"]))
            first[p["program"]] = len(s.images)
            loaded(s, p["images"], blobs[p["blobs"][0]: p["blobs"][1]])
    for shape in head["shapes"]:
        out += _at_shape(s, device, head, shape, first, data, asking)
    for program, faults in skip.items():
        out.append({"kind": "fault", **about, "device": device, "program": program, "fault": faults[-1]})
    return out


def _at_shape(s: State, device: str, head: Row, shape: Row, first: dict[str, int], data: list[bytearray], asking: Connection) -> list[Row]:
    """Every program that has a call at a shape, timed in turns."""
    name = shape["name"]
    programs = [p for p in head["programs"] if p["program"] in first and name in p["calls"]]
    if not programs:
        return []
    rows: dict[str, Row] = {}
    for p in programs:
        for b in p["calls"][name]["buffers"]:
            if b["name"] not in rows or b["bytes"] > rows[b["name"]]["bytes"]:
                rows[b["name"]] = b
    placed(s, list(rows.values()), data)
    numbered = {p["program"]: [{**x, "image": x["image"] + first[p["program"]]} for x in p["calls"][name]["launches"]] for p in programs}
    reserved(s, [x for launches in numbered.values() for x in launches])
    calls: dict[str, Sampled] = {}
    estimate: dict[str, float] = {}
    outputs: dict[str, list[NDArray[Any]]] = {}
    for p in programs:
        key = p["program"]
        asking.send(("at", key))
        call = p["calls"][name]
        try:
            calls[key] = ready(s, {**call, "launches": numbered[key]})
        except (ValueError, KeyError):
            continue
        filled(s, [b for b in rows.values() if b["role"] in ("out", "inout")], data)
        sample(s, calls[key], False)
        outputs[key] = [_left(s, b) for b in call["buffers"] if b["role"] in ("out", "inout")]
        estimate[key] = sample(s, calls[key], False)
    wrong = _differing(outputs)
    samples: dict[str, dict[str, list[float]]] = {key: {"warm": [], "cold": []} for key in calls}
    for round_ in range(WARM + COLD):
        kind = "warm" if round_ < WARM else "cold"
        for key, call in calls.items():
            if round_ not in _rounds(estimate[key]):
                continue
            if round_ == 0:
                asking.send(("at", key))
            samples[key][kind].append(sample(s, call, kind == "cold"))
    now, when = clocks(), time.strftime("%Y-%m-%d")
    for call in calls.values():
        forgotten(s, call)
    out = [{"kind": "time", "group": head["group"], "device": device, "program": key, "shape": name, "sizes": shape["sizes"], **each,
            "fault": "wrong" if key in wrong else "", "clock_mhz": now.get("sm_mhz", 0), "throttled": now.get("throttled_by", 0), "when": when}
           for key, each in samples.items()]
    return [*out, {"kind": "edges", "group": head["group"], "edges": head["edges"]}]


def _rounds(seconds: float) -> Sequence[int]:
    """The rounds in which a call that takes so long is timed."""
    if seconds > VERY_SLOW:
        return (0, WARM)
    return (0, 1, 2, WARM, WARM + 1) if seconds > SLOW else range(WARM + COLD)


def _left(s: State, b: Row) -> NDArray[Any]:
    """What a call left at both ends of a buffer, as float32."""
    begin, size = s.buffers[b["name"]].data, int(b["bytes"])
    raw = bytes(s.driver.download(begin, size if size <= 2 * COMPARED_BYTES else COMPARED_BYTES))
    if size > 2 * COMPARED_BYTES:
        raw += bytes(s.driver.download(begin + size // 16 * 16 - COMPARED_BYTES, COMPARED_BYTES))
    return np.frombuffer(raw, numpy_dtype(b["dtype"])).astype(np.float32)


def _differing(outputs: dict[str, list[NDArray[Any]]]) -> set[str]:
    """Programs whose outputs are not those of most: each is compared with the one that agrees with most others."""
    keys = list(outputs)
    agree = {a: {b for b in keys if len(outputs[a]) == len(outputs[b]) and all(map(_near, outputs[a], outputs[b]))} for a in keys[:4]}
    best = max(agree, key=lambda k: len(agree[k]), default="")
    return set(keys) - agree[best] if best else set()


def _near(a: NDArray[Any], b: NDArray[Any]) -> bool:
    if a.shape != b.shape:
        return False
    with np.errstate(all="ignore"):
        finite = np.isfinite(a) & np.isfinite(b)
        if (np.isfinite(a) != np.isfinite(b)).mean() > WRONG:
            return False
        size = float(np.linalg.norm(a[finite]))
        return float(np.linalg.norm(a[finite] - b[finite])) <= WRONG * max(size, 1e-30)


def write_rows(rows: Iterable[Row], path: Path) -> int:
    """Rows as JSON lines, written as they come; how many."""
    count = 0
    with path.open("a", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row) + "\n")
            count += 1
    return count
