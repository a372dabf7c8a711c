"""Many compiled programs launched by one process of the device, one after the other: a context costs more than a hundred small kernels."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.gate.gpu.images.executable import Executable, bound
from kir.gate.gpu.machine import Gpu
from kir.hardware.device.client import Child, ChildGone
from kir.ir import nodes as n
from kir.surface import Artifact, Emitted

Array = NDArray[Any]
SECONDS = 20.0
"""How long a launch may take."""


@dataclass(frozen=True)
class Ready:
    """A program with inputs and scalars, what was emitted of it, and what that was compiled to."""

    program: n.Program
    inputs: Mapping[str, Array]
    scalars: Mapping[str, int]
    emitted: Emitted
    artifact: Artifact


@dataclass
class _Opening:
    """What a process loads: rows of images and their cubins, each once, and by program the place of its first image."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    cubins: list[bytes] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, executables: Sequence[Executable]) -> _Opening:
        made, places = cls(), dict[bytes, int]()
        for executable in executables:
            made.bases.append(len(made.rows))
            for row, cubin in zip(*executable.opening(), strict=True):
                if cubin not in places:
                    places[cubin] = len(made.cubins)
                    made.cubins.append(cubin)
                made.rows.append({**row, "cubin": places[cubin]})
        return made


def launched(gpu: Gpu, ready: Sequence[Ready]) -> list[dict[str, Array] | str]:
    """What each makes of its outputs, or in words why there are none: it did not come back, or wrote where it may not. What ends the process ends one
    program: the next ones have another."""
    out: list[dict[str, Array] | str] = []
    executables = [Executable(r.program, r.emitted, {Executable.variant(r.emitted): r.artifact}) for r in ready]
    alone = False
    while len(out) < len(ready):
        first = len(out)
        last = first + 1 if alone else len(ready)
        opening = _Opening.of(executables[first:last])
        with gpu.child() as child, gpu.turns.beside():
            try:
                gpu.ask_open(child, opening.rows, opening.cubins, plain=True)
            except ChildGone as gone:  # one of them cannot be loaded: which, is seen where each is alone
                if alone:
                    out.append(gone.said)
                alone = True
                continue
            for number in range(first, last):
                try:
                    out.append(_call(child, ready[number], executables[number], opening.bases[number - first]))
                except ChildGone as gone:
                    out.append(gone.said)
                    break
                except KirError as refused:
                    out.append(refused.diagnostics[0].message)
    return out


def _call(child: Child, r: Ready, executable: Executable, base: int) -> dict[str, Array] | str:
    at = bound(r.program, r.scalars, {})
    roles = {p.name: p.role for p in r.program.params}
    buffers: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    for name, layout in at.layouts.items():
        buffers.append({"name": name, "bytes": layout.size, "elements": layout.span, "dtype": layout.dtype, "fill": {"byte": 0xFF},
                        "intact": roles.get(name) == "in"})
        if name in r.inputs:
            buffers[-1]["fill"] = {"blob": len(blobs)}
            blobs.append(layout.packed(r.inputs[name]))
    back = [name for name in at.layouts if roles.get(name) in ("out", "inout")]
    launches = [{**x, "image": x["image"] + base} for x in executable.launches(r.emitted, at)]
    answer, raw = child.ask({"op": "call", "buffers": buffers, "launches": launches, "memsets": executable.memsets(at), "return": back, "salt": 1,
                             "sizes": dict(at.values), "digest": [], "key": 0}, blobs, SECONDS)
    if answer["broken"] or answer["changed"]:
        return f"it writes beyond {answer['broken'] or 'no tensor'}, and into the inputs {answer['changed'] or 'none'}"
    return {name: np.array(at.layouts[name].unpacked(data)) for name, data in zip(back, raw, strict=True)}


__all__ = ["Ready", "launched"]
