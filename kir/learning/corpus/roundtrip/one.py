"""One file of a corpus: each of its kernels through parse, verify, print, parse, emit and parse again."""
from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from kir.base.diagnostic import Diagnostic, KirError
from kir.base.registry import registry
from kir.ir import nodes as n
from kir.ir.printer import program_text
from kir.ir.visit import statements
from kir.learning.corpus.roundtrip.equal import same_program, settled
from kir.learning.corpus.roundtrip.specialized import as_read, through
from kir.surface import EditableFrontend, Frontend, KernelRef, backend, frontend, reads

Record = dict[str, Any]
Part = tuple[int, int]


def digest(path: Path) -> str:
    """What a file holds, in short; "" for one that cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:24]
    except OSError:
        return ""


def kernels_in(path: Path) -> Iterator[tuple[Frontend, KernelRef, str]]:
    """Every kernel of a file with its frontend and role: `kernel`, or `helper` for a function that returns a value. Raises KirError for a
    file that cannot be read."""
    suffix = path.suffix
    for entry in registry("kir.frontends"):
        if not reads(entry.name, suffix):
            continue
        reader = frontend(entry.name)
        if not _mentions(path, getattr(reader, "marks", ())):
            continue
        for ref in reader.kernels(path):
            yield reader, ref, "kernel"
        for ref in getattr(reader, "helpers", lambda path: ())(path):
            yield reader, ref, "helper"


def mentions(surface: str, path: Path) -> bool:
    """Whether a file may hold kernels of a surface. Raises KirError for a surface that there is not."""
    return reads(surface, path.suffix) and _mentions(path, getattr(frontend(surface), "marks", ()))


def _mentions(path: Path, marks: tuple[str, ...]) -> bool:
    """Whether a file holds one of the words without which a frontend finds nothing in it."""
    if not marks:
        return True
    data = path.read_bytes()
    return any(mark.encode() in data for mark in marks)


def examine(path: Path, skip: frozenset[str], started: Callable[[str], None], part: Part = (0, 1)) -> Iterator[Record]:
    """The records of a file's kernels, and of the file itself when it cannot be read. `skip` are kernels that are known already; of part k of m those
    of every m-th kernel from the k-th on, whose specializations alone are looked for."""
    before = digest(path)
    try:
        found = list(kernels_in(path))
    except KirError as bad:
        if part[0] == 0:
            yield {"file": str(path), "kernel": "", "state": "unreadable", **_words(bad.diagnostics[0])}
        return
    special = {id(reader): reader for reader, _, _ in found if hasattr(reader, "specializations")}
    for reader in special.values():
        yield from _specializations(reader, path, skip, started, part)
    for reader, ref, role in found[part[0]::part[1]]:
        if ref.name in skip or id(reader) in special:
            continue
        started(ref.name)
        record: Record = {"file": str(path), "kernel": ref.name, "line": ref.line, "surface": ref.surface, "role": role}
        for side, each in _sides(reader, ref, path):
            label = f"{ref.name} where {side}" if side else ref.name
            if label not in skip:
                yield _guarded(record | {"kernel": label}, partial(_through, reader, ref, path, each, side))
    if digest(path) != before:
        yield {"file": str(path), "kernel": "", "state": "changed", "id": "KIR-C112", "message": "the file changed while it was read"}


def _sides(reader: Frontend, ref: KernelRef, path: Path) -> list[tuple[str, n.Program | None]]:
    """A kernel that is several, by conditions that a binding decides, as each of them with its label; else itself, not read yet."""
    try:
        found: list[tuple[str, n.Program]] = reader.sides(path, ref.name) if hasattr(reader, "sides") else []
    except Exception:  # said of the kernel when it is read
        found = []
    return [*found] if len(found) > 1 else [("", found[0][1] if found else None)]


def _guarded(record: Record, made: Callable[[], Record]) -> Record:
    """The record with what comes of one kernel, whatever that raises."""
    begun, spent = time.perf_counter(), time.process_time()
    try:
        record |= made()
    except KirError as bad:
        record |= {"state": "refused", **_words(bad.diagnostics[0])}
    except RecursionError:
        record |= {"state": "refused", "id": "KIR-C111", "message": "it is nested too deeply"}
    except MemoryError:
        record |= {"state": "refused", "id": "KIR-C111", "message": "it needs too much memory"}
    except Exception as fault:
        record |= {"state": "crashed", "id": "KIR-C003", "message": f"{type(fault).__name__}: {fault}"[:300]}
    return record | {"seconds": round(time.perf_counter() - begun, 3), "processor_seconds": round(time.process_time() - spent, 3)}


def _specializations(reader: Any, path: Path, skip: frozenset[str], started: Callable[[str], None], part: Part) -> Iterator[Record]:
    """The records of a file's kernels under each of the values that its package gives them."""
    try:
        found = reader.specializations(path, part)
    except KirError as bad:
        if part[0] == 0:
            yield {"file": str(path), "kernel": "", "state": "unreadable", **_words(bad.diagnostics[0])}
        return
    for each in found:
        if each.label in skip:
            continue
        started(each.label)
        record: Record = {"file": str(path), "kernel": each.label, "line": 0, "surface": reader.surface, "role": "kernel", "function": each.kernel,
                          "guessed": list(each.guessed), "more": each.more}
        yield _guarded(record, partial(through, reader, each, path))


def _through(reader: Frontend, ref: KernelRef, path: Path, program: n.Program | None = None, side: str = "") -> Record:
    """What becomes of one kernel, as `program` where that is read already, of one of its sides. `state` is how far it came: `parsed`, `clean` (nothing opaque),
    `equal` (written and read back). What is opaque until its compile-time values are known is read under those of the first launch that its package shows,
    and where none can be followed under values that are `guessed`."""
    program = program or reader.parse(path, ref.name)
    out = as_read(program, ref.line)
    if out["state"] == "parsed" and (given := _launched(reader, ref, path)) is not None and (other := as_read(given, ref.line))["state"] == "clean":
        program, out = given, other
    if out["state"] == "clean":
        return _back(reader, ref, path, program, out)
    if out["state"] == "parsed" and hasattr(reader, "guessed"):
        for given, names in reader.guessed(path, ref.name, side):
            if (other := as_read(given, ref.line))["state"] == "clean":
                other = _back(reader, ref, path, given, other | {"guessed": list(names)})
                out = out if out["state"] == "clean" and other["state"] != "equal" else other
            if out["state"] == "equal":
                break
    return out


def _back(reader: Frontend, ref: KernelRef, path: Path, program: n.Program, out: Record) -> Record:
    """The record of a program that is read whole, with what comes of writing it and reading that."""
    try:
        emitted = backend(ref.surface).emit(program)
    except KirError as bad:
        return out | {"emit": "refused", **_words(bad.diagnostics[0])}
    if not isinstance(reader, EditableFrontend):
        return out | {"emit": "unread", "message": "this frontend reads no text"}
    again = reader.parse_text(path.with_name(f"{path.stem}__again{path.suffix}"), emitted.text, ref.name)
    if same_program(program, again):
        return out | {"state": "equal", "emit": "equal", "emitted": hashlib.sha256(emitted.text.encode()).hexdigest()[:24]}
    return out | {"emit": "differs", "message": _difference(program, again)}


def _launched(reader: Any, ref: KernelRef, path: Path) -> n.Program | None:
    """A kernel under the values of the first launch that its package shows, a helper as a kernel calls it; None where the reader finds
    none, or cannot read it so."""
    if not hasattr(reader, "instantiate") or not hasattr(reader, "launches"):
        return None
    try:
        found = reader.launches(path, ref.name)
        made: n.Program | None = reader.instantiate(path, ref.name, found[0].binding) if found else None
        if not found and hasattr(reader, "as_called"):
            made = reader.as_called(path, ref.name)
    except (KirError, RecursionError):
        return None
    return made


def _difference(a: n.Program, b: n.Program) -> str:
    """The first line in which two programs differ."""
    for p in (b.kernels[:1], a.kernels[:1]):
        for k in p:
            for s in statements(k.body):
                if isinstance(s, n.Opaque):
                    return f"read back as opaque: {s.reason}"
    one, other = (program_text(settled(p)).splitlines() for p in (a, b))
    return next((f"{x.strip()[:150]} | {y.strip()[:150]}" for x, y in zip(one, other) if x != y), "the number of statements")


def untouched(path: Path) -> bool | None:
    """Whether the file, read and written with no change, is what it was; None for a surface that does not write files."""
    for entry in registry("kir.frontends"):
        write_back = getattr(frontend(entry.name), "write_back", None) if reads(entry.name, path.suffix) else None
        if write_back is not None:
            return bool(write_back(path) == path.read_bytes())
    return None


def sources(path: Path) -> dict[str, str]:
    """The files that were consulted for the last file examined, with what they hold."""
    out = {str(path): digest(path)}
    for entry in registry("kir.frontends"):
        for other in getattr(frontend(entry.name), "consulted", lambda: ())():
            out[str(other)] = digest(other)
    return out


def _words(d: Diagnostic) -> Record:
    return {"id": d.id, "message": d.message}
