"""The family of operators that a kernel belongs to, from the words with which its package names it (`grammars/families.toml`)."""
from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

OTHER = "other"


def family_of(place: str) -> str:
    """The family of `FILE::KERNEL`: the first row of the table of which a phrase stands, whole, in the file's name, else in the
    kernel's, else in a folder's, the nearest first; `other` when none does."""
    path, _, kernel = place.partition("::")
    parts = path.rpartition(":")[2].split("/")
    for name in (parts[-1].partition(".")[0], kernel, *reversed(parts[:-1])):
        words = f"_{'_'.join(re.findall('[a-z0-9]+', name.lower()))}_"
        for family, phrases in _table().items():
            if any(f"_{phrase}_" in words for phrase in phrases):
                return family
    return OTHER


@cache
def _table() -> Mapping[str, tuple[str, ...]]:
    text = files("kir").joinpath("grammars/families.toml").read_text(encoding="utf-8")
    return {family: tuple(phrases) for family, phrases in tomllib.loads(text)["words"].items()}
