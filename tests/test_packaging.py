"""What is shipped: one package with real files of all folders, found and usable elsewhere; and what mypy checks."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINKED = ("passes", "frontends", "backends", "skills", "grammars")
DATA = (".lark", ".toml", ".j2", ".kir", ".md", ".json", ".cuh", ".cu", ".scm", ".model")
SHIPPED = ("kir", *LINKED, "docs", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built, by way of a source distribution, from a copy of what is shipped."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in SHIPPED:
        source, copy = ROOT / name, folder / "source" / name
        copy.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, copy, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"), copy_function=_copied)
        else:
            shutil.copy(source, copy)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "out"), str(folder / "source")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next((folder / "out").glob("*.whl"))


def _copied(source: str, copy: str) -> None:
    """A file; of a record of a lineage or of the evidence for cards the name alone, as nobody asks what stands in it, and most of the time would go there."""
    if {"lineages", "evidence"} & set(Path(source).relative_to(ROOT).parts) and not source.endswith(".py"):
        Path(copy).touch()
    else:
        shutil.copy2(source, copy)


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's content, as an installer lays it out."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def relative(files: Iterable[Path], root: Path) -> set[str]:
    return {str(file.relative_to(root)) for file in files if "__pycache__" not in file.parts}


def test_the_wheel_holds_only_kir_with_every_file_of_every_folder(site: Path) -> None:
    top = {each.name for each in site.iterdir() if not each.name.endswith(".dist-info")}
    assert top == {"kir"}
    assert not any(each.is_symlink() for each in site.rglob("*"))
    expected = relative((ROOT / "kir").rglob("*.py"), ROOT)
    for folder in LINKED:
        files = [file for file in (ROOT / folder).rglob("*") if file.suffix in (".py", *DATA)]
        expected |= {f"kir/{name}" for name in relative(files, ROOT)}
    expected |= {f"kir/{name}" for name in relative((ROOT / "docs").rglob("*.md"), ROOT)}
    assert expected - relative((site / "kir").rglob("*"), site) == set()
    assert not [file for file in (site / "kir" / "docs").rglob("*") if file.is_file() and file.suffix != ".md"]


def test_the_wheel_carries_every_page_that_a_message_names(site: Path) -> None:
    known = {name for folder in ("using", "extending", "tables", "decisions") for file in (site / "kir" / "docs" / folder).glob("*.md")
             for name in (file.stem, f"docs/{folder}/{file.name}")}
    pages, asked = named_in_messages()
    assert {"docs/tables/passes.md"} <= pages <= known
    shown = {word for word in asked if re.fullmatch(r"[a-z]+(-[a-z]+)+", word)}
    assert {"your-own-kernel", "writing-a-problem", "writing-a-pass", "reading-cuda", "reading-triton", "reading-tilelang"} <= shown <= known
    assert not known & {"your-own-kernels", "docs/using/your-own-kernels.md"}, "a page that is not there is not found"


def named_in_messages() -> tuple[set[str], set[str]]:
    """What stands in the texts of the code (not in its docstrings) and of the tables: places of pages, and the words after ``kir explain``. A word that is
    filled in stands for each surface, or for each page of `kir new`."""
    from kir.faces.cli.setup.new import PAGES
    filled = {"reading-{s.surface}": [f"reading-{name}" for name in ("cuda", "triton", "tilelang")], "{PAGES[kind]}": [*PAGES.values()]}
    texts = [file.read_text(encoding="utf-8") for file in (ROOT / "grammars").rglob("*.toml")]
    for file in (file for folder in ("kir", "passes", "frontends", "backends") for file in (ROOT / folder).rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if "docs/" in text or "kir explain" in text:
            tree = ast.parse(text)
            silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            texts += [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, (ast.Constant, ast.JoinedStr)) and id(node) not in silent
                      and (isinstance(node, ast.JoinedStr) or isinstance(node.value, str))]
    pages = {found for text in texts for found in re.findall(r"docs/[\w/-]+\.md", text)}
    words = {found.rstrip(".") for text in texts for found in re.findall(r"kir explain ([\w{}\[\].-]+)", text)}
    return pages, {each for word in words for each in filled.get(word, [word])}


def test_the_wheel_works_where_no_checkout_is(site: Path, tmp_path: Path) -> None:
    script = (
        "import kir, kir.passes, kir.frontends, kir.backends, kir.skills, kir.grammars;"
        "from kir.base.diagnostic import explanations; from kir.base.registry import GROUPS, registry; from importlib import metadata;"
        "print(kir.__file__); print(len(explanations()) > 3);"
        "print([registry(group).load_all()[1] for group in GROUPS]);"
        "print(sorted(point.value for group in GROUPS for point in metadata.entry_points(group=group)));"
        "from kir.faces.cli import main; main(['--help'])"
    )
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == str(site / "kir" / "__init__.py")
    assert lines[1:3] == ["True", "[(), (), ()]"]
    assert {"kir.passes", "kir.frontends", "kir.backends"} <= set(lines[3].strip("[]").replace("'", "").split(", "))
    assert lines[4].startswith("usage: kir COMMAND")


def test_mypy_checks_every_file_strictly(monkeypatch: pytest.MonkeyPatch) -> None:
    import mypy.main  # a linter's, not there where only the tests that need a device run
    monkeypatch.chdir(ROOT)
    sources, options = mypy.main.process_options(["kir", "tests"])
    assert options.disallow_untyped_defs and options.disallow_any_generics and options.warn_unused_ignores
    checked = {str(Path(source.path).resolve()) for source in sources if source.path}
    files = [file for folder in ("kir", *LINKED, "tests") for file in (ROOT / folder).rglob("*.py")]
    kernels = [file for file in files if str(file.relative_to(ROOT)).startswith("skills/experts/") or file.name.startswith("naive_")]
    stubbed = [file for file in files if file.with_suffix(".pyi").is_file()]  # the stub is checked in its place
    missed = {str(file.resolve()) for file in files if file not in kernels and file not in stubbed} - checked
    assert missed == set()


def test_requirements_keep_the_core_light() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not any(word in " ".join(project["dependencies"]) for word in ("torch", "triton", "tilelang", "pycuda"))
    extras = project["optional-dependencies"]
    assert set(extras) == {"triton", "tilelang", "gpu", "llm", "forecast", "mcp", "explore", "zoo", "packages", "docs", "dev", "fast", "cluster"}
    assert "triton==3.6.0" in extras["triton"] and "tilelang==0.1.15" in extras["tilelang"]
    assert all("==" in pin for pin in extras["zoo"]), "kernels are read from pinned versions"
    assert (ROOT / "constraints.txt").read_text().split() == ["torch==2.13.0"]
