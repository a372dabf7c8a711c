"""Passes by name: found through `kir.registry`, imported on first use."""
from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType

from kir.diagnostic import KirError, error
from kir.registry import registry
from kir.rewrite.base import Pass


def pass_names() -> tuple[str, ...]:
    """All registered passes, without importing them."""
    return tuple(registry("kir.passes").entries)


def pass_class(name: str) -> type[Pass]:
    """The class of a pass, imported now. Raises UsageError KIR-X002 (unknown), KirError KIR-X003 (broken), KIR-R008 (no one class)."""
    return class_in(registry("kir.passes").load(name))


def class_in(module: ModuleType) -> type[Pass]:
    """The one public pass that a module defines. Raises KirError KIR-R008."""
    found = [c for _, c in inspect.getmembers(module, inspect.isclass)
             if issubclass(c, Pass) and c is not Pass and c.__module__ == module.__name__ and not c.__name__.startswith("_")]
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
