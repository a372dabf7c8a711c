"""What an edit of a user's file must show before it is offered: the new kernel is read in it as it is by itself."""
from __future__ import annotations

import re
import tempfile
from dataclasses import replace
from pathlib import Path

from kir.analysis import normalize
from kir.base.diagnostic import KirError
from kir.ir.binding import Binding
from kir.ir.canonical import alpha_equal
from kir.ir.nodes import Program
from kir.surface import Backend, Emitted, ShowingBackend
from kir.surface.reading import load_expert


class NotSaid(Exception):
    """The file cannot be edited so that it launches the new kernel; its argument says why."""


def source_of(path: Path) -> str:
    """The characters of a user's file, line ends as they are. Raises :class:`NotSaid` for one that is written otherwise than edits are."""
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as bad:
        raise NotSaid(f"it is no text in UTF-8: its byte {bad.start} is not") from None


def for_readers(by: Backend, program: Program) -> Emitted:
    """The text of a program that a person is given: with names for what is said more than once, where that is read as the text that was gated is. Raises
    KirError with what the surface cannot say."""
    gated, shown = by.emit(program), by.shown(program) if isinstance(by, ShowingBackend) else None
    if shown is None or shown.text == gated.text:
        return gated
    with tempfile.TemporaryDirectory(prefix="kir-shown-") as folder:
        try:
            for function, binding in gated.bindings:
                read = list[Program]()
                for stem, text in (("gated", gated.text), ("shown", shown.text)):
                    (place := Path(folder) / f"{stem}.py").write_text(text, encoding="utf-8")
                    read.append(normalize(load_expert(f"{place}::{function}", Binding.parse(binding)).program))
                if not alpha_equal(*read):
                    return gated
        except KirError:
            return gated
    return shown


def reads_back(path: Path, after: str, name: str, emitted: Emitted, architecture: str = "") -> None:
    """Raises :class:`NotSaid` where the new kernel is not read in the file as it is by itself, compiled for an `architecture` that it needs."""
    with tempfile.TemporaryDirectory(prefix="kir-edit-") as folder:
        read = list[Program]()
        for stem, held in (("edited", after), ("alone", emitted.text)):
            (place := Path(folder) / f"{stem}{path.suffix}").write_text(held, encoding="utf-8")
            try:
                read.append(load_expert(f"{place}::{name}", _of_one(Binding.parse(dict(emitted.bindings)[name]), emitted, architecture)).program)
            except (KirError, KeyError) as bad:
                raise NotSaid(f"the new kernel is not read in it ({bad.diagnostics[0].message if isinstance(bad, KirError) else bad})") from None
    if not alpha_equal(*map(normalize, read)):
        raise NotSaid("the new kernel is not read in it as it is by itself")


def _of_one(binding: Binding, emitted: Emitted, architecture: str = "") -> Binding:
    """The binding of one kernel of several: another one may be what writes a result, and what is over a size."""
    binding = binding.changed(options={**binding.options, "target": architecture}) if architecture else binding
    if len(emitted.entries) == 1:
        return binding
    tensors = {k: replace(t, role="inout") if t.role == "out" else t for k, t in binding.tensors.items()}
    told = {*re.findall(r"\w+", " ".join(map(str, (*binding.grid, *binding.scalars.values(), *(d for t in tensors.values() for d in t.shape)))))}
    facts = [fact for fact in binding.facts if {*re.findall(r"[A-Za-z_]\w*", fact)}.isdisjoint({*binding.sizes} - told)]
    return binding.changed(tensors=tensors, sizes=[x for x in binding.sizes if x in told], facts=facts)


__all__ = ["NotSaid", "for_readers", "reads_back", "source_of"]
