"""Patches of a package's files, one a kernel, and a folder that puts the edited files in the place of the package's own.

The folder goes to the front of PYTHONPATH. What is in it needs no KIR: Python runs its `sitecustomize`, which lets the ordinary finders find a module and
then loads the edited text, as long as the package's own file is the one that was edited.
"""
from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.base.store import write_atomic
from kir.learning.packages.twin import Twin
from kir.surface.edits.splice import coalesced, spliced, unified

STARTUP = '''"""Puts edited files in the place of a package's own; written by `kir optimize --package`."""
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import sys
import warnings

_here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(_here, "modules.json"), encoding="utf-8") as _file:
    _modules = json.load(_file)


class _Edited:
    @staticmethod
    def find_spec(name, path=None, target=None):
        row = _modules.get(name)
        if row and not row["sha256"]:
            return importlib.util.spec_from_file_location(name, os.path.join(_here, row["file"]))
        spec = importlib.machinery.PathFinder.find_spec(name, path) if row else None
        if spec is None or spec.origin is None:
            return spec
        with open(spec.origin, "rb") as own:
            if hashlib.sha256(own.read()).hexdigest() != row["sha256"]:
                warnings.warn(f"{spec.origin} is not the file that was optimized: it is left as it is", stacklevel=2)
                return spec
        edited = os.path.join(_here, row["file"])
        spec.loader, spec.origin = importlib.machinery.SourceFileLoader(name, edited), edited
        return spec


sys.meta_path.insert(0, _Edited)
_next = importlib.machinery.PathFinder.find_spec("sitecustomize", [p for p in sys.path if os.path.abspath(p or ".") != _here])
if _next is not None and _next.loader is not None:
    _module = importlib.util.module_from_spec(_next)
    _next.loader.exec_module(_module)
'''


@dataclass(frozen=True)
class Patch:
    """One kernel's part of the series: it applies after those before it. `name` is the file's, relative to the folder that holds the package."""

    number: int
    kernel: str
    name: str
    text: str


def series(twins: Sequence[Twin]) -> list[Patch]:
    """A patch for each, in order: a new file, and the lines that the package's own needs. Of a file with several kernels each patch applies to what the one
    before it made."""
    out: list[Patch] = []
    for number, one in enumerate(twins, 1):
        path = Path(one.file)
        name = path.relative_to(root_of(path)).as_posix()
        new = path.with_name(f"{one.module}.py").relative_to(root_of(path)).as_posix()
        made = unified("", one.text, new).replace(f"--- a/{new}", "--- /dev/null", 1)
        out.append(Patch(number, one.kernel, name, unified(_with(one, twins[:number - 1]), _with(one, twins[:number]), name) + made))
    return out


def _with(one: Twin, made: Sequence[Twin]) -> str:
    """The text of a package's file with what some of the series do to it."""
    return spliced(one.before, coalesced(s for x in made if x.file == one.file for s in x.splices))


def write_overlay(twins: Sequence[Twin], folder: Path) -> list[str]:
    """Write the edited files, the new ones and what puts them in place; the names of the modules. A file that is no module of a package is left out: a
    script is edited by its patch."""
    modules = {}
    for one in twins:
        path = Path(one.file)
        home = root_of(path)
        if home == path.parent:
            continue
        inside, beside = path.relative_to(home), path.with_name(f"{one.module}.py").relative_to(home)
        write_atomic(folder / "files" / inside, _with(one, twins))
        write_atomic(folder / "files" / beside, one.text)
        modules[_module(inside)] = {"file": f"files/{inside.as_posix()}", "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        modules[_module(beside)] = {"file": f"files/{beside.as_posix()}", "sha256": ""}
    write_atomic(folder / "modules.json", json.dumps(modules, indent=1) + "\n")
    write_atomic(folder / "sitecustomize.py", STARTUP)
    return [name for name, row in modules.items() if row["sha256"]]


def _module(inside: Path) -> str:
    parts = [*inside.parts[:-1], *([] if inside.stem == "__init__" else [inside.stem])]
    return ".".join(parts)


def root_of(file: Path) -> Path:
    """The folder that holds the outermost package of a file; its own folder for a file of no package."""
    folder = file.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder
