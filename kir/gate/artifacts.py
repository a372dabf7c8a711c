"""Compiled artifacts kept by the hash of all that went in: emitted text, launch, target and the versions of the tools."""
from __future__ import annotations

import base64
import gzip
import hashlib
import json
from concurrent.futures import Future
from dataclasses import asdict, field
from functools import cache
from pathlib import Path
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.store import write_atomic
from kir.hardware import machine
from kir.hardware.target import Target
from kir.ir.printer import expr_text
from kir.surface import Artifact, Backend, CompiledKernel, Emitted, Entry, Image, Passed


@cache
def tool_versions() -> tuple[tuple[str, str], ...]:
    """Everything whose version changes what a compiler makes."""
    toolkit = machine.toolkit()
    nvcc = toolkit.nvcc.version if toolkit else ""
    return (("nvcc", nvcc), *((name, machine.package_version(name) or "") for name in ("triton", "tilelang")))


@dataclass(frozen=True)
class ArtifactCache:
    """A folder of artifacts. Files that cannot be read are as good as absent: they are made again. Who asks for what another thread is
    making waits for it, and gets its error too."""

    root: Path
    _making: dict[str, Future[Artifact]] = field(default_factory=dict, compare=False)

    def compiled(self, by: Backend, emitted: Emitted, target: Target) -> Artifact:
        """What `by` makes of `emitted`, made now if it is not kept. What was not compiled for want of a tool is never kept."""
        key = self.key(emitted, target)
        made: Future[Artifact] = Future()
        being = self._making.setdefault(key, made)
        if being is not made:
            return being.result()
        try:
            made.set_result(self._kept_or_made(by, emitted, target, self.root / f"{key}.json.gz"))
        except BaseException as fault:
            made.set_exception(fault)
        finally:
            del self._making[key]
        return made.result()

    def _kept_or_made(self, by: Backend, emitted: Emitted, target: Target, path: Path) -> Artifact:
        kept = self._read(path)
        if kept is not None:
            return kept
        made = by.compile(emitted, target)
        if made.compiled:
            write_atomic(path, gzip.compress(json.dumps(_to_json(made)).encode(), compresslevel=1, mtime=0))
        return made

    def key(self, emitted: Emitted, target: Target) -> str:
        """64 hexadecimal digits."""
        entries = [_entry(e) for e in emitted.entries]
        parts: list[Any] = [emitted.surface, emitted.text, entries, target.architecture.name, tool_versions()]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def _read(self, path: Path) -> Artifact | None:
        try:
            row = json.loads(gzip.decompress(path.read_bytes()))
            kernels = tuple(_kernel(k) for k in row["kernels"])
            return Artifact(row["surface"], row["target"], kernels, tuple((a, b) for a, b in row["tools"]))
        except (OSError, ValueError, KeyError, TypeError, EOFError):
            return None


def _entry(e: Entry) -> list[Any]:
    return [e.kernel, e.function, [[a.name, a.kind, a.dtype, a.divisor, *a.box] for a in e.arguments], [expr_text(x) for x in e.grid], e.threads,
            [list(o) for o in e.options]]


def _to_json(a: Artifact) -> dict[str, Any]:
    def image(i: Image | None) -> dict[str, Any] | None:
        return None if i is None else {**asdict(i), "cubin": base64.b85encode(i.cubin).decode()}
    return {"surface": a.surface, "target": a.target, "tools": [list(t) for t in a.tools],
            "kernels": [{**k.record(), "texts": dict(k.texts), "options": [list(o) for o in k.options], "image": image(k.image)}
                        for k in a.kernels]}


def _kernel(row: dict[str, Any]) -> CompiledKernel:
    i = row["image"]
    image = None if i is None else Image(base64.b85decode(i["cubin"]), i["function"], i["dynamic_shared"], tuple(i["cluster"]),
                                         i["cooperative"], tuple(i["hidden"]), _passed(i["arguments"]), i["threads"],
                                         tuple((tuple(box), int(swizzle)) for box, swizzle in i.get("boxes", ())))
    return CompiledKernel(**{**row, "options": tuple((a, b) for a, b in row["options"]), "image": image})


def _passed(rows: list[dict[str, Any]] | None) -> tuple[Passed, ...] | None:
    def of(row: dict[str, Any]) -> Passed:
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
        return Passed(**fields)
    return None if rows is None else tuple(map(of, rows))
