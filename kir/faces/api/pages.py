"""The pages of the documentation, which the distribution carries: by name, for `kir explain`."""
from __future__ import annotations

from pathlib import Path

import kir

FOLDERS = ("using", "extending", "tables", "decisions")
"""Of two pages of one name the one in the earlier folder is meant; the other has its folder's name in front."""


def folder() -> Path:
    """Where the pages are."""
    return Path(kir.__file__).parent / "docs"


def pages() -> dict[str, Path]:
    """Every page by its name."""
    out: dict[str, Path] = {}
    for of in FOLDERS:
        for file in sorted((folder() / of).glob("*.md")):
            out[file.stem if file.stem not in out else f"{of}/{file.stem}"] = file
    return out


def page(name: str) -> Path | None:
    """The page that a name means: its own, or its place with or without `docs/` and `.md`."""
    known, plain = pages(), name.removeprefix("docs/").removesuffix(".md")
    places = {f"{file.parent.name}/{file.stem}": file for file in known.values()}
    return known.get(plain) or places.get(plain)


def title(file: Path) -> str:
    """Its first heading."""
    with file.open(encoding="utf-8") as lines:
        return next((line.lstrip("# ").strip() for line in lines if line.startswith("# ")), file.stem)
