"""One specialization of a kernel: read, printed, parsed, written in its own language and read back."""
from __future__ import annotations

import hashlib
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from kir.analysis.normal.regions import raised
from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.binding import Binding, Tensor
from kir.ir.bindings.binding_made import check_made
from kir.ir.bindings.specialize import specialize
from kir.ir.canonical import canonical, rename
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rules.verify import verify
from kir.ir.visit import statements
from kir.learning.corpus.roundtrip.equal import settled
from kir.learning.corpus.roundtrip.same.threads import filled, plain_form, same_thread
from kir.surface import backend
from kir.surface.launches.record import Specialization

Record = dict[str, Any]
MOST_SETTLED = 1_000
"""Statements of a program of which the form that shows a difference best is worked out: of longer ones that takes seconds."""


def as_read(program: n.Program, line: int = 0) -> Record:
    """How far a program as it is read comes: `clean`, `parsed` with what is `opaque` in it, or `crashed`."""
    out: Record = {"state": "parsed", "statements": sum(1 for k in program.kernels for _ in statements(k.body))}
    found = verify(program)
    if found:
        return out | {"state": "crashed", "id": found[0].id, "message": found[0].message}
    text = program_text(program)
    if parse_program(text) != program:
        return out | {"state": "crashed", "id": "KIR-C113", "message": "its text does not parse back to the program"}
    out["hash"] = hashlib.sha256(text.encode()).hexdigest()[:24]
    blocks = [*(k.body for k in program.kernels), *(f.body for f in program.functions)]
    opaque = [s for b in blocks for s in statements(b) if isinstance(s, n.Opaque)]
    if opaque:
        return out | {"opaque": [{"reason": s.reason, "line": s.origin.line if s.origin is not None else line} for s in opaque]}
    return out | {"state": "clean"}


def through(reader: Any, each: Specialization, path: Path) -> Record:
    """What becomes of one specialization. `state` is how far it came: `parsed`, `clean` (nothing opaque), `equal` (written and read back)."""
    given: Record = {}
    try:
        program = reader.instantiate(path, each.name, each.binding)
    except KirError as bad:
        more = reader.enough(each) if bad.diagnostics[0].id == "KIR-F011" and hasattr(reader, "enough") else None
        if more is None:
            raise
        each, given = more, {"guessed": list(more.guessed)}
        program = reader.instantiate(path, each.name, each.binding)
    out = as_read(program) | given
    if out["state"] == "crashed":  # under arguments that give an array no elements it is refused, as any binding is
        check_made(program, each.binding, tiles=False)
    if out["state"] != "clean":
        return out
    try:
        made = raised(specialize(program, neutral(program, each.binding)))
        emitted = backend(reader.surface).emit(made)
    except KirError as bad:
        return out | {"emit": "refused", "id": bad.diagnostics[0].id, "message": bad.diagnostics[0].message}
    (_, binding), = emitted.bindings
    again = _read_again(reader, emitted.text, Binding.parse(binding), path.suffix)
    again = _named_as(replace(again, name=made.name), made)
    if canonical(made) == canonical(again) or same_thread(made, again):
        return out | {"state": "equal", "emit": "equal", "emitted": hashlib.sha256(emitted.text.encode()).hexdigest()[:24]}
    if out["statements"] > MOST_SETTLED:
        return out | {"emit": "differs", "message": difference(canonical(made), canonical(again))}
    return out | {"emit": "differs", "message": difference(settled(plain_form(filled(made))), settled(plain_form(again)))}


def _read_again(reader: Any, text: str, binding: Binding, suffix: str) -> n.Program:
    with tempfile.TemporaryDirectory(prefix="kir-corpus-") as folder:
        file = Path(folder) / f"again{suffix}"
        file.write_text(text, encoding="utf-8")
        return raised(specialize(reader.instantiate(file, binding.kernel, binding), binding))


def _named_as(again: n.Program, made: n.Program) -> n.Program:
    """A program with the parameters of another, where it has as many of the same types in the same order: a language renames those whose names it keeps
    for itself."""
    pairs = [(a.name, b.name) for a, b in zip(again.params, made.params, strict=False) if a.name != b.name]
    if not pairs or len(again.params) != len(made.params) or {a for a, _ in pairs} & {b for _, b in pairs}:
        return again
    names = dict(pairs)
    named = rename(again, names)
    return replace(named, params=tuple(replace(q, name=names.get(q.name, q.name)) for q in named.params))


def neutral(program: n.Program, binding: Binding) -> Binding:
    """A binding that says no more of a program than these metas: each tensor is flat memory of a size of its own, and so is each extent of the grid."""
    sizes: list[str] = []
    taken = {*(p.name for p in program.params), *(m.name for m in program.metas), *(a.name for k in program.kernels for a in k.grid)}

    def size(hint: str) -> str:
        name = hint
        while name in taken:
            name += "_"
        taken.add(name)
        sizes.append(name)
        return name

    tensors = {p.name: Tensor(shape=[size(f"{p.name}_elements")], dtype=p.of.dtype.name, role=p.role) for p in program.params if isinstance(p.of, n.Buffer)}
    grid: list[str | int] = [size(f"ctas_{k}") for k, _ in enumerate(program.kernels[0].grid)]
    return replace(binding, sizes=sizes, facts=[f"{x} >= 1" for x in sizes], grid=grid, tensors=tensors, metas={})  # what it was read with are defaults


def difference(a: n.Program, b: n.Program) -> str:
    """The first line in which two programs differ."""
    for k in b.kernels[:1]:
        for s in statements(k.body):
            if isinstance(s, n.Opaque):
                return f"read back as opaque: {s.reason}"
    one, other = (program_text(p).splitlines() for p in (a, b))
    return next((f"{x.strip()[:150]} | {y.strip()[:150]}" for x, y in zip(one, other, strict=False) if x != y), "the number of statements")
