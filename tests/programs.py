"""Programs that ship, each read once a process."""
from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from kir.analysis import normalize
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.surface.reading import load_expert

ROOT = Path(__file__).parents[1]
SKILLS = ROOT / "skills"
EXPERTS = SKILLS / "experts"
BINDINGS = SKILLS / "bindings"
SHIPPED = tomllib.loads((EXPERTS / "experts.toml").read_text(encoding="utf-8"))
"""Each expert of IR text by its name: its file, its problem, and the shape to check it at."""


@cache
def parsed(file: Path) -> n.Program:
    """A program of a file of IR text, as it stands there."""
    return parse_program(file.read_text(encoding="utf-8"), str(file))


@cache
def normal(file: Path) -> n.Program:
    """The program of a file of IR text in normal form."""
    return normalize(parsed(file))


def shipped(name: str) -> n.Program:
    """An expert of IR text by its name in `experts.toml`."""
    return parsed(EXPERTS / SHIPPED[name]["file"])


@cache
def bound(source: str, binding: str) -> n.Program:
    """A kernel (`file::name` of the folder of experts, or `package:path::name`) under a shipped binding, in normal form."""
    path, _, kernel = source.partition("::")
    place = str(EXPERTS / path) if (EXPERTS / path).exists() else path
    return load_expert(f"{place}::{kernel}" if kernel else place, BINDINGS / f"{binding}.toml").program


def from_source(folder: Path, file: str, source: str, kernel: str, binding: str) -> n.Program:
    """A kernel of a source text under the text of a binding, both written into a folder; in normal form."""
    (folder / file).write_text(source, encoding="utf-8")
    (folder / "binding.toml").write_text(binding, encoding="utf-8")
    return load_expert(f"{folder / file}::{kernel}", folder / "binding.toml").program
