"""What each registered pass says of itself, read from its text: the table of passes without an import."""
from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path

import kir
from kir.base.dataclass import dataclass
from kir.base.registry import Entry, registry


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
    family: str = ""


@dataclass(frozen=True)
class Condition:
    """A precondition as its pass declares it: `kind` is validity or profit, `line` that of its declaration."""

    id: str
    kind: str
    category: str
    sentence: str
    line: int


@dataclass(frozen=True)
class Page:
    """All that a pass says of itself: its summary, what its module and its class say at length (the box among it), and its preconditions."""

    summary: Summary
    about: str
    parameters: str
    conditions: tuple[Condition, ...]
    file: Path


def described(entry: Entry) -> Page:
    """The page of a registered pass."""
    tree = ast.parse(entry.file.read_bytes())
    own = sorted((c for c in tree.body if isinstance(c, ast.ClassDef) and not c.name.startswith("_")), key=_is_pass)
    said = " ".join((ast.get_docstring(own[-1]) or "").split()) if own else ""
    return Page(summary(entry), ast.get_docstring(tree) or "", said, conditions(tree), entry.file)


def _is_pass(c: ast.ClassDef) -> bool:
    """Whether a class says an intent; others are parts of how a pass works."""
    return any(isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name) and s.target.id == "intent" for s in c.body)


def provided(entry: Entry) -> frozenset[str]:
    """The state features that a registered pass says it brings, from its text."""
    found = _PROVIDES.search(entry.file.read_text(encoding="utf-8"))
    return frozenset(re.findall(r'"([^"]+)"', found[1])) if found is not None else frozenset()


_PROVIDES = re.compile(r"^    provides: ClassVar\[.*?\] = \(([^)]*)\)", re.MULTILINE)


def conditions(tree: ast.Module) -> tuple[Condition, ...]:
    """The preconditions that a module declares, by id."""
    found: dict[str, Condition] = {}
    for node in _declared(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Precondition"):
            continue
        texts = [str(a.value) if isinstance(a, ast.Constant) else "" for a in node.args[:4]]
        if texts and texts[0]:
            kind, category, sentence = [*texts[1:], "", "", ""][:3]
            found[texts[0]] = Condition(texts[0], kind, category, sentence, node.lineno)
    return tuple(found[each] for each in sorted(found))


def _declared(tree: ast.Module | ast.ClassDef) -> Iterator[ast.AST]:
    """What stands in a module and its classes outside of functions."""
    for part in tree.body:
        if isinstance(part, ast.ClassDef):
            yield from _declared(part)
        elif not isinstance(part, ast.FunctionDef):
            yield from ast.walk(part)


def summaries() -> tuple[Summary, ...]:
    """Every registered pass, in order of name."""
    return tuple(summary(e) for e in registry("kir.passes"))


def summary(entry: Entry) -> Summary:
    """The summary of a registered pass."""
    values: dict[str, object] = {}
    parameters: dict[str, str] = {}
    tree = ast.parse(entry.file.read_bytes())
    for c in tree.body:
        if isinstance(c, ast.ClassDef) and not c.name.startswith("_"):
            _collect(c, tree, entry.file, values, parameters)
    ids = {each.id for each in conditions(tree)}
    rows = values.get("catalogue")
    return Summary(entry.name, str(values.get("intent") or ""), str(values.get("claim") or ""),
                   tuple(r for r in rows if isinstance(r, int)) if isinstance(rows, tuple) else (),
                   tuple(f"{k}: {v}" + _from(values.get("least"), k) for k, v in parameters.items()), tuple(sorted(ids)),
                   entry.source.distribution, entry.family)


def _from(least: object, parameter: str) -> str:
    """What a pass says of the smallest value of a parameter."""
    return f" ({least[parameter]} or more)" if isinstance(least, dict) and parameter in least else ""


def families(rows: Iterable[Summary]) -> dict[str, tuple[Summary, ...]]:
    """The passes by family, in order of name; those of no family last, under ""."""
    names = sorted({r.family for r in rows}, key=lambda name: (not name, name))
    return {name: tuple(r for r in rows if r.family == name) for name in names}


def purpose(family: str) -> str:
    """What a family of the shipped passes is for, in a sentence ("" for one that is not shipped)."""
    init = resources.files("kir.passes").joinpath(*family.split("."), "__init__.py")
    return (ast.get_docstring(ast.parse(init.read_bytes())) or "").partition("\n\n")[0] if family and init.is_file() else ""


def table(rows: tuple[Summary, ...]) -> str:
    """The passes as a page of markdown: `docs/tables/passes.md`, which a test keeps current."""
    intro = "What each pass does, and what it asks for, by family. Generated: `kir passes --markdown > docs/tables/passes.md`. "
    intro += "Each pass goes both ways; `kir explain ID` says what an id means."
    lines = ["# The passes", "", intro, ""]
    for family, members in families(rows).items():
        lines += [f"## {family or 'Of no family'}", "", *([purpose(family), ""] if purpose(family) else []),
                  "| row | pass | claim | parameters | preconditions |", "| --- | --- | --- | --- | --- |"]
        for r in sorted(members, key=lambda r: (r.catalogue, r.name)):
            parameters = "<br>".join(f"`{p}`" for p in r.parameters).replace("|", "\\|")
            lines.append(f"| {', '.join(map(str, r.catalogue))} | {r.name} | {r.claim} | {parameters} | {', '.join(r.preconditions)} |")
        lines.append("")
    return "\n".join(lines)


def _collect(c: ast.ClassDef, tree: ast.Module, file: Path, values: dict[str, object], parameters: dict[str, str]) -> None:
    """Class variables and fields of a class, those of bases in the same package first."""
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
    """A class of the same module, or of one that the module imports it from: in its own package, or in KIR."""
    for s in tree.body:
        if isinstance(s, ast.ClassDef) and s.name == name:
            return s, tree, file
        if isinstance(s, ast.ImportFrom) and s.module and name != "Pass" and any(a.name == name for a in s.names):
            home = _file(s, file)
            if home is not None:
                return _class(name, ast.parse(home.read_bytes()), home)
    return None


def _file(s: ast.ImportFrom, file: Path) -> Path | None:
    """The file of the module that an import takes names from: a relative one, or one of KIR's own."""
    parts = (s.module or "").split(".")
    if s.level == 0 and parts[0] != "kir":
        return None
    root = file.parents[s.level - 1] if s.level else Path(kir.__file__).parents[1]
    found = root.joinpath(*parts).with_suffix(".py")
    return found if found.is_file() else None


def _literal(e: ast.expr | None) -> object:
    try:
        return None if e is None else ast.literal_eval(e)
    except ValueError:
        return None
