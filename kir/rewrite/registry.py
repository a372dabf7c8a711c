"""Passes by name: found through `kir.registry`, imported on first use; summaries without importing anything."""
from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType

from kir.diagnostic import error
from kir.registry import Entry, registry
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
    """Every pass that can be used, in order of name; broken ones are left to `kir plugins` to report."""
    known = registry("kir.passes")
    modules, _ = known.load_all()
    return (class_in(modules[name]) for name in sorted(modules))


@dataclass(frozen=True)
class Summary:
    """What a pass says of itself, read from its text: the registry's table without an import."""

    name: str
    intent: str
    claim: str
    catalogue: tuple[int, ...]
    parameters: tuple[str, ...]
    preconditions: tuple[str, ...]
    distribution: str


@cache
def summary(entry: Entry) -> Summary:
    """The summary of a registered pass. A module that is not understood has an empty claim."""
    tree = ast.parse(entry.file.read_bytes())
    values: dict[str, object] = {}
    parameters: list[str] = []
    ids = sorted({node.args[0].value for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
                  and node.func.id == "Precondition" and node.args and isinstance(node.args[0], ast.Constant)
                  and isinstance(node.args[0].value, str)})
    for c in tree.body:
        if not (isinstance(c, ast.ClassDef) and any(isinstance(b, ast.Name) and b.id == "Pass" for b in c.bases)):
            continue
        for s in c.body:
            if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name):
                values[s.targets[0].id] = _literal(s.value)
            elif isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name):
                if "ClassVar" in ast.dump(s.annotation):
                    values[s.target.id] = _literal(s.value)
                else:
                    default = "" if s.value is None else f"={ast.unparse(s.value)}"
                    parameters.append(f"{s.target.id}: {ast.unparse(s.annotation)}{default}")
    rows = values.get("catalogue")
    return Summary(entry.name, str(values.get("intent") or ""), str(values.get("claim") or ""),
                   tuple(r for r in rows if isinstance(r, int)) if isinstance(rows, tuple) else (), tuple(parameters), tuple(ids),
                   entry.source.distribution)


def _literal(e: ast.expr | None) -> object:
    try:
        return None if e is None else ast.literal_eval(e)
    except ValueError:
        return None


def summaries() -> tuple[Summary, ...]:
    """Every registered pass, without importing one."""
    return tuple(summary(e) for e in registry("kir.passes"))
