"""A group compiled: cubins, launches and buffers at each shape, in one file that a device needs nothing else for."""

from __future__ import annotations

import lzma
import math
import time
from pathlib import Path
from typing import Any

from benchmarks.effects.group import SLOWEST, Group
from benchmarks.effects.sources import TARGET
from kir.analysis.target.legalize import legalize
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.gate.gpu.images.executable import Bound, Executable, Layout
from kir.hardware.device.replay import pack, unpack
from kir.ir import nodes as n
from kir.ir.printer import program_text
from kir.problem import Shape
from kir.problem.draws import draw, generator
from kir.problem.schema import Draw
from kir.surface import Artifact, Emitted, backend

Row = dict[str, Any]
MOST_BYTES = 12 << 30
"""Device memory that the buffers of one group may take."""


def packed(group: Group, until: float = math.inf) -> bytes:
    """The file of a group; without the programs that are not compiled when the clock (`time.monotonic`) says `until`. Raises nothing for a program that
    does not compile: its row says why."""
    rows: list[Row] = []
    blobs: list[bytes] = []
    data: list[bytes] = []
    for key, program in group.programs.items():
        if time.monotonic() > until:
            break
        row, images = _program(group, program, data)
        row["program"] = key
        row["blobs"] = [len(blobs), len(blobs) + len(images)]
        blobs += images
        rows.append(row)
    there = {row["program"] for row in rows}
    head: Row = {"group": group.name, "family": group.family, "surface": group.surface, "problem": group.problem.spec.name if group.problem else "",
                 "programs": rows, "edges": [[e.before, e.after, e.step, e.source] for e in group.edges if {e.before, e.after} <= there],
                 "shapes": [{"name": s.name, "sizes": dict(s.sizes)} for s in group.shapes]}
    return lzma.compress(pack((head, blobs), ({}, data)), preset=1)


def unpacked(path: Path) -> tuple[Row, list[bytearray], list[bytearray]]:
    """What `packed` made: the head, the cubins, and the inputs that no device draws. Raises OSError, LZMAError."""
    (head, cubins), (_, data) = unpack(lzma.decompress(path.read_bytes()))
    return head, cubins, data


def write(group: Group, path: Path, until: float = math.inf) -> None:
    """Compile a group into a file, as `packed` does."""
    write_atomic(path, packed(group, until))


def _program(group: Group, program: n.Program, data: list[bytes]) -> tuple[Row, list[bytes]]:
    """The row of a program: its text, what its compiler said, its calls by shape; and its cubins."""
    row: Row = {"text": program_text(program), "fault": "", "why": "", "compiled": [], "images": [], "calls": {}, "modelled": {}}
    if refused := legalize(program, TARGET.architecture):
        return {**row, "fault": "resources", "why": f"{refused[0].id}: {refused[0].message}"}, []
    by = backend(group.surface)
    texts: dict[str, tuple[Bound, Emitted]] = {}
    try:
        emitted = by.emit(program)
        for shape in group.shapes:
            row["modelled"][shape.name] = seconds = group.modelled(program, shape, TARGET)
            if seconds <= SLOWEST:
                where = group.at(program, shape)
                texts[shape.name] = (where, by.launched_with(emitted, {k: int(v) for k, v in where.values.items() if not isinstance(v, float)}))
        artifacts: dict[tuple[Any, ...], Artifact] = {}
        for _, text in texts.values():
            if (variant := Executable.variant(text)) not in artifacts:
                artifacts[variant] = by.compile(text, TARGET)
        executable = Executable(program, emitted, artifacts)
        images, cubins = executable.opening()
        row["compiled"] = [{**k.record(), "variant": i} for i, a in enumerate(artifacts.values()) for k in a.kernels]
    except KirError as bad:
        return {**row, "fault": "compile", "why": f"{bad.diagnostics[0].id}: {bad.diagnostics[0].message}"[:300]}, []
    except Exception as bad:  # a backend's own fault is a row as well: somebody has to see it
        return {**row, "fault": "internal", "why": f"{type(bad).__name__}: {bad}"[:300]}, []
    row["images"] = images
    for shape in group.shapes:
        if shape.name in texts and (call := _call(group, executable, shape, *texts[shape.name], data)):
            row["calls"][shape.name] = call
    return row, cubins


def _call(group: Group, executable: Executable, shape: Shape, where: Bound, text: Emitted, data: list[bytes]) -> Row | None:
    """A call at a shape: its buffers and launches. None where it cannot be launched at these sizes."""
    if sum(x.size for x in where.layouts.values()) > MOST_BYTES:
        return None
    params = {p.name: p for p in executable.program.params if isinstance(p.of, n.Buffer)}
    buffers = []
    for name, layout in where.layouts.items():
        role = params[name].role if name in params else "workspace"
        buffers.append({"name": name, "bytes": layout.size, "elements": layout.span, "dtype": layout.dtype, "role": role,
                        "fill": {"byte": 0} if role in ("out", "workspace") else _drawn(group, shape, name, layout, data)})
    try:
        return {"buffers": buffers, "launches": executable.launches(text, where), "memsets": executable.memsets(where)}
    except KirError:
        return None


def _drawn(group: Group, shape: Shape, name: str, layout: Layout, data: list[bytes]) -> Row:
    """How an input is drawn: as its problem says; else normal, or whole numbers that are places of any tensor. What no device draws is drawn here."""
    dtype = layout.dtype
    draws = group.problem.spec.distributions["normal"] if group.problem else {}
    how = draws.get(name) or draws.get("*") or Draw(kind="integers" if dtype[0] in "iu" or dtype == "bool" else "normal", high=2.0)
    seed = 7 + sum(map(ord, name))
    if how.kind == "partition":
        data.append(layout.packed(draw(how.at(shape.sizes), layout.shape, dtype, generator(seed))))
        return {"blob": len(data) - 1}
    return {"draw": {**how.model_dump(), "inner": layout.shape[-1] if layout.shape else 1}, "seed": seed}
