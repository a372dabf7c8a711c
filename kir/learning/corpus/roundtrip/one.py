"""One file of a corpus: each of its kernels through parse, verify, print, parse, emit and parse again."""
from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kir.base.diagnostic import Diagnostic, KirError
from kir.base.registry import registry
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rules.verify import verify
from kir.ir.visit import statements
from kir.learning.corpus.roundtrip.equal import same_program, settled
from kir.surface import EditableFrontend, Frontend, KernelRef, backend, frontend, reads

Record = dict[str, Any]


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


def examine(path: Path, skip: frozenset[str], started: Callable[[str], None]) -> Iterator[Record]:
    """The records of a file's kernels, and of the file itself when it cannot be read. `skip` are kernels that are known already."""
    before = digest(path)
    try:
        found = list(kernels_in(path))
    except KirError as bad:
        yield {"file": str(path), "kernel": "", "state": "unreadable", **_words(bad.diagnostics[0])}
        return
    readers: dict[str, Frontend] = {}
    for reader, ref, role in found:
        readers[reader.surface] = reader
        if ref.name in skip:
            continue
        started(ref.name)
        begun = time.perf_counter()
        record: Record = {"file": str(path), "kernel": ref.name, "line": ref.line, "surface": ref.surface, "role": role}
        try:
            record |= _through(reader, ref, path)
        except KirError as bad:
            record |= {"state": "refused", **_words(bad.diagnostics[0])}
        except RecursionError:
            record |= {"state": "refused", "id": "KIR-C111", "message": "it is nested too deeply"}
        except MemoryError:
            record |= {"state": "refused", "id": "KIR-C111", "message": "it needs too much memory"}
        except Exception as fault:
            record |= {"state": "crashed", "id": "KIR-C003", "message": f"{type(fault).__name__}: {fault}"[:300]}
        record["seconds"] = round(time.perf_counter() - begun, 3)
        yield record
    if digest(path) != before:
        yield {"file": str(path), "kernel": "", "state": "changed", "id": "KIR-C112", "message": "the file changed while it was read"}


def _through(reader: Frontend, ref: KernelRef, path: Path) -> Record:
    """What becomes of one kernel. `state` is how far it came: `parsed`, `clean` (nothing opaque), `equal` (written and read back)."""
    program = reader.parse(path, ref.name)
    out: Record = {"state": "parsed", "statements": sum(1 for k in program.kernels for _ in statements(k.body))}
    found = verify(program)
    if found:
        return out | {"state": "crashed", **_words(found[0])}
    text = program_text(program)
    if parse_program(text) != program:
        return out | {"state": "crashed", "id": "KIR-C113", "message": "its text does not parse back to the program"}
    out["hash"] = hashlib.sha256(text.encode()).hexdigest()[:24]
    blocks = [*(k.body for k in program.kernels), *(f.body for f in program.functions)]
    opaque = [s for b in blocks for s in statements(b) if isinstance(s, n.Opaque)]
    if opaque:
        out["opaque"] = [{"reason": s.reason, "line": s.origin.line if s.origin is not None else ref.line} for s in opaque]
        return out
    out["state"] = "clean"
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
