"""Passes by name: found through `kir.base.registry`, imported on first use."""
from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator
from types import ModuleType

from kir.base.diagnostic import Diagnostic, KirError, Origin, error
from kir.base.registry import registry
from kir.rewrite.base import Pass


def pass_names() -> tuple[str, ...]:
    """All registered passes, without importing them."""
    return tuple(registry("kir.passes").entries)


def pass_class(name: str) -> type[Pass]:
    """The class of a pass, imported now. Raises UsageError KIR-X002 (unknown), KirError KIR-X003 (broken), KIR-R008 (no one class)."""
    return class_in(registry("kir.passes").load(name))


def failed(cls: type[Pass], doing: str, fault: Exception) -> Diagnostic:
    """A pass whose own code raised what it must not, as a warning at the line of its file: whoever asks all passes goes on without it."""
    own = inspect.getfile(cls)
    frames = traceback.extract_tb(fault.__traceback__)
    frame = next((each for each in reversed(frames) if each.filename == own), frames[-1] if frames else None)
    line = (frame.lineno if frame else None) or 1
    column, end = ((frame.colno or 0) + 1, (frame.end_colno or 0) + 1) if frame else (1, 1)
    said = fault.diagnostics[0].message if isinstance(fault, KirError) else f"{type(fault).__name__}: {' '.join(str(fault).split())}"
    entry = next((each for each in registry("kir.passes") if each.name == cls.name), None)
    whose = f" of {entry.source.distribution}" if entry is not None else ""
    return Diagnostic("KIR-X006", f"'{cls.name}'{whose} failed {doing}: {said}", severity="warning",
                      origin=Origin(frame.filename, line, column, line, end) if frame else None,
                      needs="matches that only look, and rewrites that succeed wherever they match")


def class_in(module: ModuleType) -> type[Pass]:
    """The one public pass that a module defines. Raises KirError KIR-R008."""
    found = [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, Pass)
             and c is not Pass and c.__module__ == module.__name__ and not c.__name__.startswith("_")]
    if len(found) != 1:
        raise error("KIR-R008", f"{module.__name__} defines {len(found)} passes", needs="exactly one pass in a module, named as the module")
    return found[0]


def passes() -> Iterator[type[Pass]]:
    """Every pass that can be used, in order of name; broken ones (no import, or not one pass) are left out: `pass_class`
    says what is wrong with one."""
    known = registry("kir.passes")
    modules, _ = known.load_all()
    for name in sorted(modules):
        try:
            found = class_in(modules[name])
        except KirError:
            continue
        yield found
