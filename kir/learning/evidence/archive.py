"""Walked kernels on disk, as they ship: one compressed file of JSON lines a package, the same content giving the same lines."""
from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path

from pydantic import ValidationError

from kir.base.diagnostic import Origin, error
from kir.base.store import write_atomic
from kir.learning.evidence.walked import SCHEMA, Walked
from kir.lineage.records.record import schema_fault

SUFFIX = ".jsonl.xz"


def shipped() -> Path:
    """The evidence that ships with KIR."""
    return Path(str(resources.files("kir.skills") / "evidence"))


def write_archive(folder: Path, found: Iterable[Walked]) -> tuple[Path, ...]:
    """Write walked kernels, `PACKAGE.jsonl.xz` each, in order of kernel, each kernel and binding once. Whole files or none."""
    by_package: dict[str, list[Walked]] = {}
    for each in furthest(found):
        by_package.setdefault(each.package, []).append(each)
    out = []
    for package, kept in sorted(by_package.items()):
        path = folder / f"{package}{SUFFIX}"
        text = "".join(f"{each.text()}\n" for each in kept)
        write_atomic(path, lzma.compress(text.encode(), preset=9))
        out.append(path)
    return tuple(out)


def furthest(found: Iterable[Walked]) -> tuple[Walked, ...]:
    """Of the walks of one kernel and binding the one that ended naive, else the longest, else the last; in order of kernel."""
    kept: dict[str, Walked] = {}
    for each in found:
        old = kept.get(each.key)
        if old is None or (each.ended == "naive", len(each.transitions)) >= (old.ended == "naive", len(old.transitions)):
            kept[each.key] = each
    return tuple(kept[key] for key in sorted(kept))


def read_archive(folder: Path) -> Iterator[Walked]:
    """The walked kernels of a folder, in order of package and kernel; none where there is no such folder. Raises KirError KIR-S051 for a file
    that is cut off, and at its line for one that was changed."""
    for path in sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []:
        try:
            lines = lzma.decompress(path.read_bytes()).decode().splitlines()
        except (lzma.LZMAError, OSError, UnicodeDecodeError) as fault:
            raise error("KIR-S051", f"{path} cannot be read: {fault}", attempt="git checkout, or `kir learn --anew`") from fault
        for number, line in enumerate(lines, start=1):
            yield _record(line, path, number)


def _record(line: str, path: Path, number: int) -> Walked:
    try:
        value = json.loads(line)
        schema = value.get("schema") if isinstance(value, dict) else None
    except ValueError as fault:
        raise error("KIR-S051", f"this is not JSON: {fault}", origin=Origin(str(path), number, 1, number, 2)) from fault
    if schema != SCHEMA:
        raise error("KIR-S051", f"these are no walked kernels that this KIR reads: the schema is {schema!r}", needs=f"schema {SCHEMA}",
                    origin=Origin(str(path), number, 1, number, 2))
    try:
        return Walked.model_validate(value)
    except ValidationError as fault:
        raise schema_fault("KIR-S051", fault, line, f"{path} (line {number})", Walked) from fault
