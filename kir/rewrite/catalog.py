"""What each registered pass says of itself, read from its text: the table of passes without an import."""
from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from kir.registry import Entry, registry


@dataclass(frozen=True)
class Summary:
    """A pass's declarations. A module that is not understood has an empty claim."""

    name: str
    intent: str
    claim: str
    catalogue: tuple[int, ...]
    parameters: tuple[str, ...]
    preconditions: tuple[str, ...]
    distribution: str


def summaries() -> tuple[Summary, ...]:
    """Every registered pass, in order of name."""
    return tuple(summary(e) for e in registry("kir.passes"))


def summary(entry: Entry) -> Summary:
    """The summary of a registered pass."""
    values: dict[str, object] = {}
    parameters: dict[str, str] = {}
    ids: set[str] = set()
    tree = ast.parse(entry.file.read_bytes())
    for c in tree.body:
        if isinstance(c, ast.ClassDef) and not c.name.startswith("_"):
            _collect(c, tree, entry.file, values, parameters)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Precondition" and node.args and \
                isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
            ids.add(node.args[0].value)
    rows = values.get("catalogue")
    return Summary(entry.name, str(values.get("intent") or ""), str(values.get("claim") or ""),
                   tuple(r for r in rows if isinstance(r, int)) if isinstance(rows, tuple) else (),
                   tuple(f"{k}: {v}" for k, v in parameters.items()), tuple(sorted(ids)), entry.source.distribution)


def table(rows: tuple[Summary, ...]) -> str:
    """The passes as a page of markdown: `docs/passes.md`, which a test keeps current."""
    intro = "Generated: `kir passes --markdown > docs/passes.md`. Each pass goes both ways; `kir explain ID` says what an id means."
    lines = ["# The passes", "", intro, "", "| row | pass | claim | parameters | preconditions |", "| --- | --- | --- | --- | --- |"]
    for r in sorted(rows, key=lambda r: (r.catalogue, r.name)):
        parameters = "<br>".join(f"`{p}`" for p in r.parameters).replace("|", "\\|")
        lines.append(f"| {', '.join(map(str, r.catalogue))} | {r.name} | {r.claim} | {parameters} | {', '.join(r.preconditions)} |")
    return "\n".join(lines) + "\n"


def _collect(c: ast.ClassDef, tree: ast.Module, file: Path, values: dict[str, object], parameters: dict[str, str]) -> None:
    """Class variables and fields of a class, those of bases in the same folder first."""
    for b in c.bases:
        if isinstance(b, ast.Name):
            found = _class(b.id, tree, file)
            if found is not None:
                _collect(*found, values, parameters)
    for s in c.body:
        if not (isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)):
            continue
        if "ClassVar" in ast.unparse(s.annotation):
            values[s.target.id] = _literal(s.value)
        else:
            parameters[s.target.id] = ast.unparse(s.annotation) + ("" if s.value is None else f" = {ast.unparse(s.value)}")


def _class(name: str, tree: ast.Module, file: Path) -> tuple[ast.ClassDef, ast.Module, Path] | None:
    """A class of the same module, or of a sibling that the module imports it from."""
    for s in tree.body:
        if isinstance(s, ast.ClassDef) and s.name == name:
            return s, tree, file
        if isinstance(s, ast.ImportFrom) and s.level == 1 and s.module and any(a.name == name for a in s.names):
            sibling = file.parent / f"{s.module}.py"
            if sibling.is_file():
                return _class(name, ast.parse(sibling.read_bytes()), sibling)
    return None


def _literal(e: ast.expr | None) -> object:
    try:
        return None if e is None else ast.literal_eval(e)
    except ValueError:
        return None
