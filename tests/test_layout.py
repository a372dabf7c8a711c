"""The shape of the repository: linked folders, one-way arrows, module order, file length, names."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kir.diagnostic import explanations

ROOT = Path(__file__).parents[1]
LINKED = ("passes", "frontends", "backends", "skills", "grammars")
CODE = ("passes", "frontends", "backends")

MODULE_ORDER = (
    *("dataclass", "diagnostic", "instructions", "target", "registry", "machine", "halves", "confine", "device", "ir", "ptx", "analysis", "interp", "rewrite"),
    *("lowering", "surface", "problem", "reading"),
    *("store", "edits", "gate", "carrier", "lineage", "library", "forecast", "tune", "optimize", "corpus", "report", "cli", "mcp"),
)
"""Modules of ``kir/``, bottom up: each imports only from those before it."""

MOST_LINES = 600


def python_files(*folders: str) -> list[Path]:
    """The Python files of top-level folders, each file once (links inside ``kir/`` not followed)."""
    found: list[Path] = []
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*.py")):
            inside = file.relative_to(ROOT).parts
            if not (inside[0] == "kir" and inside[1] in LINKED):
                found.append(file)
    return found


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of each import in a file, relative ones resolved."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    name = list(parts if parts[0] in ("kir", "tests") else ("kir", *parts))
    package = name[:-1]
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def tracked() -> list[str]:
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    return (
        listing.stdout.splitlines()
        if listing.returncode == 0
        else [str(p.relative_to(ROOT)) for p in python_files("kir", *LINKED, "tests")]
    )


@pytest.mark.parametrize("folder", LINKED)
def test_folder_is_a_relative_link_inside_the_package(folder: str) -> None:
    link = ROOT / "kir" / folder
    assert link.is_symlink()
    assert str(link.readlink()) == f"../{folder}"
    assert (link / "__init__.py").is_file()


def test_shipped_code_imports_only_kir_and_its_own_folder() -> None:
    wrong = []
    for folder in CODE:
        for file in python_files(folder):
            for line, name in imports(file):
                others = [f"kir.{other}" for other in CODE if other != folder]
                if (
                    any(name == other or name.startswith(f"{other}.") for other in others)
                    or name == "kir.cli"
                    or name.startswith("kir.cli.")
                ):
                    wrong.append(f"{file.relative_to(ROOT)}:{line} imports {name}")
    assert wrong == []


def test_kir_imports_no_plugin_folder() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for file in python_files("kir")
        for line, name in imports(file)
        if name.split(".")[:2] in [["kir", folder] for folder in CODE]
    ]
    assert wrong == []


def test_dataclasses_are_those_that_load_fast() -> None:
    """docs/decisions/0015-dataclasses.md"""
    own = re.compile(r"^from dataclasses import .*\bdataclass\b", re.MULTILINE)
    exempt = {"kir/dataclass.py", "kir/confine/sandbox.py"}  # the module itself, and a launcher that runs without KIR
    found = {str(file.relative_to(ROOT)) for file in python_files("kir", *CODE) if own.search(file.read_text("utf-8"))}
    assert found - exempt == set()


def test_nothing_imports_a_folder_by_its_top_level_name() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for file in python_files("kir", *LINKED, "tests")
        for line, name in imports(file)
        if name.split(".")[0] in LINKED
    ]
    assert wrong == []


def test_modules_of_kir_import_only_from_those_before_them() -> None:
    wrong = []
    for file in python_files("kir"):
        inside = file.relative_to(ROOT / "kir").with_suffix("").parts
        if inside == ("__init__",):
            continue
        assert inside[0] in MODULE_ORDER, f"kir/{inside[0]} has no place in MODULE_ORDER"
        for line, name in imports(file):
            parts = name.split(".")
            if parts[0] != "kir" or len(parts) < 2 or parts[1] not in MODULE_ORDER:
                continue
            if MODULE_ORDER.index(parts[1]) > MODULE_ORDER.index(inside[0]):
                wrong.append(f"{file.relative_to(ROOT)}:{line} imports {name}")
    assert wrong == []


def test_files_are_short() -> None:
    long = {
        str(file.relative_to(ROOT)): lines
        for file in python_files("kir", *CODE, "tests")
        if (lines := len(file.read_text(encoding="utf-8").splitlines())) > MOST_LINES
    }
    assert long == {}


def test_no_file_is_called_utils_or_helpers() -> None:
    words = re.compile(r"(^|[_-])(utils?|helpers?|misc|common)([_-]|$)")
    assert [name for name in tracked() if any(words.search(Path(part).stem) for part in Path(name).parts)] == []


def test_no_star_imports_and_no_unexplained_ignores() -> None:
    wrong = []
    for file in python_files("kir", *CODE):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            if re.search(r"\bimport \*", line) or re.search(r"#\s*type:\s*ignore(\[[\w-]+\])?\s*$", line):
                wrong.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()}")
    assert wrong == []


def test_every_id_that_the_code_raises_is_explained_and_every_row_is_used() -> None:
    pattern = re.compile(r"""["'](KIR-[A-Z]\d{3})["']""")
    raised: dict[str, str] = {}
    for file in python_files("kir", *CODE):
        for id_ in pattern.findall(file.read_text(encoding="utf-8")):
            raised.setdefault(id_, str(file.relative_to(ROOT)))
    raised = {id_: file for id_, file in raised.items() if id_[4] != "P"}
    rows = {id_ for id_ in explanations() if id_[4] != "P"}
    assert {id_: file for id_, file in raised.items() if id_ not in rows} == {}, "raised, but without a row in grammars/diagnostics/"
    assert sorted(rows - set(raised)) == [], "a row that no code raises"
