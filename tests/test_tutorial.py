"""The pages that lead by the hand are run as they stand: files are written, edits made, commands run and their output compared."""
from __future__ import annotations

import ast
import doctest
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```(\w+)(.*)\n((?:.*\n)*?)^```$", re.M)


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    package = tmp_path / "kir_mine" / "__init__.py"
    package.parent.mkdir()
    package.touch()
    assert followed("extending/tutorial.md", tmp_path) == 6


def test_a_binding_is_written_as_the_page_says(tmp_path: Path) -> None:
    assert followed("using/your-own-kernel.md", tmp_path) == 9


def test_a_frontend_is_added_as_the_page_says(tmp_path: Path) -> None:
    assert followed("extending/writing-a-frontend.md", tmp_path) == 4


def test_python_does_what_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    failed, tried = doctest.testfile(str(DOCS / "using" / "from-python.md"), module_relative=False, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert failed == 0 and tried == 34


def followed(page: str, tmp_path: Path) -> int:
    """Do what a page of the documents says in a folder; the number of commands that were run."""
    blocks = BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
    commands = 0
    for language, info, text in blocks:
        options = dict(word.partition("=")[::2] for word in info.split())
        if "file" not in options:
            commands += session(text, tmp_path) if language == "console" else 0
            continue
        file = tmp_path / options["file"]
        file.parent.mkdir(parents=True, exist_ok=True)
        if "replace" in options:
            replaced(file, options["replace"], text)
        elif "edit" in options:
            edited(file, text)
        else:
            file.write_text(text.replace("~~~", "```"), encoding="utf-8")
    return commands


def replaced(file: Path, place: str, text: str) -> None:
    """Put `text` in place of the method `Class.name`."""
    source = file.read_text(encoding="utf-8")
    owner, _, name = place.partition(".")
    (cls,) = (x for x in ast.parse(source).body if isinstance(x, ast.ClassDef) and x.name == owner)
    (old,) = (x for x in cls.body if isinstance(x, ast.FunctionDef) and x.name == name)
    lines = source.splitlines(keepends=True)
    file.write_text("".join([*lines[:old.lineno - 1], text, *lines[old.end_lineno:]]), encoding="utf-8")


def edited(file: Path, text: str) -> None:
    """Lines after `-`, each of which occurs once, give way to the lines after `+` that follow them."""
    source = file.read_text(encoding="utf-8")
    for old, new in re.findall(r"^-(.*\n)\+(.*\n)", text, re.M):
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    file.write_text(source, encoding="utf-8")


def session(text: str, folder: Path) -> int:
    """Run each command after `$`, and compare what it prints with what follows; `...` stands for anything."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.M)[1:]
    for command, wanted in zip(parts[::2], parts[1::2], strict=True):
        if command.startswith("pip install"):
            install(folder)
            continue
        words = shlex.split(command)
        assert words[0] == "kir"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)]), "NO_COLOR": "1", "COLUMNS": "160"}
        done = subprocess.run([sys.executable, "-c", "from kir.faces.cli import main; main()", *words[1:]], cwd=folder, env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        match = doctest.OutputChecker().check_output(wanted, done.stdout, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        assert match, f"$ {command}\n{done.stdout}\nwas to be\n{wanted}"
    return len(parts) // 2


def install(folder: Path) -> None:
    """What an installer writes of the package's metadata, without building anything."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = "".join(f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()) for group, names in project["entry-points"].items())
    (info / "entry_points.txt").write_text(groups)
