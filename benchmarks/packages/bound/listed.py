"""The kernels of packages that their own host code launches, and what stands in for the packages that are not here."""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import json
import re
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

from kir.hardware import machine

ROOT = Path(__file__).parents[3]
ABOUT = 30
"""Lines by which kernels are of other lengths."""
RESULTS = ROOT / "benchmarks" / "results" / "gpu-bound"


def kernels_of(folder: Path) -> Iterator[tuple[str, str, int]]:
    """File, name and lines of the functions under a decorator that has `jit` in its name which some file of the package launches (`NAME[..](..)`)."""
    files = {path: path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.rglob("*.py"))}
    launched = {word for text in files.values() for word in re.findall(r"\b(\w+)\s*\[", text)}
    for path, text in files.items():
        if "jit" not in text or "triton" not in text:
            continue
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        names = {f.name: (f.end_lineno or f.lineno) - f.lineno for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and f.name in launched
                 and any("jit" in ast.unparse(d).partition("(")[0] for d in f.decorator_list)}
        for name, lines in names.items():
            yield path.relative_to(folder).as_posix(), name, lines


def folder_of(word: str) -> Path:
    """The folder of PACKAGE or NAME=FOLDER. Raises SystemExit where there is none."""
    name, _, source = word.partition("=")
    folder = Path(source) / name if source else machine.package_folder(name)
    if folder is None or not folder.is_dir():
        raise SystemExit(f"there is no package {word}")
    return folder


def listing(words: Sequence[str], only: str, without: Sequence[str], skip: frozenset[str]) -> list[dict[str, Any]]:
    """`case` (PACKAGE:FILE::KERNEL), `place` (FILE::KERNEL here) and `home` (the folder of a package that is not installed) of all kernels, short ones first:
    where the time is short, more are measured. Those of about one length are together by their package (`group`), which takes its time to import."""
    out: dict[str, dict[str, Any]] = {}
    for word in words:
        name, _, source = word.partition("=")
        folder = folder_of(word)
        for file, kernel, lines in kernels_of(folder):
            inside = f"{name}:{file}::{kernel}"
            if inside not in skip and only in inside and not any(fnmatch(f"{file}::{kernel}", w) for w in without):
                out[inside] = {"case": inside, "place": f"{folder / file}::{kernel}", "home": source, "group": lines // ABOUT}
    return sorted(out.values(), key=lambda x: (x["group"], x["case"]))


def already() -> frozenset[str]:
    """Kernels that are right on the page of packages, or on this one."""
    out = set()
    for line in (ROOT / "benchmarks" / "results" / "gpu-packages.jsonl").read_text(encoding="utf-8").splitlines():
        r = json.loads(line)
        out |= {f"{r['package']}:{r['file']}::{r['kernel']}"} if r["equal_in"] else set()
    kept = RESULTS.with_suffix(".jsonl")
    rows = [json.loads(x) for x in kept.read_text(encoding="utf-8").splitlines()] if kept.exists() else []
    return frozenset(out | {r["case"] for r in rows if r["state"] == "equal"})


class StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds, after all others, modules that are not here and that a file of some folder imports: what is taken from one is a mock."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = tuple(folders)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        frame: Any = sys._getframe(1)
        while frame is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        if name.partition(".")[0] in sys.stdlib_module_names or frame is None or not frame.f_code.co_filename.startswith(self.folders):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> ModuleType:
        module = MagicMock(name=spec.name)
        module.__path__, module.__spec__, module.__name__ = [], spec, spec.name
        return module

    def exec_module(self, module: ModuleType) -> None:
        return None
