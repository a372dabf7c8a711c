"""The documents: everything public says what it is, links lead somewhere, every page is on the site."""
from __future__ import annotations

import re

from tests.test_layout import ROOT, python_files, source

FOLDERS = ("kir", "passes", "frontends", "backends")


def test_everything_public_has_a_docstring() -> None:
    bare = [f"{file.relative_to(ROOT)}{what}" for file in python_files(*FOLDERS) for what in source(file).bare]
    assert bare == []


def test_every_page_has_its_place_on_the_site() -> None:
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    missing = [name for file in sorted((ROOT / "docs").rglob("*.md")) if (name := str(file.relative_to(ROOT / "docs"))) not in listed
               and not name.startswith(("decisions/", "tables/"))]
    assert missing == []


def test_links_between_documents_lead_somewhere() -> None:
    broken = []
    for file in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", file.read_text(encoding="utf-8")):
            if "://" not in link and not (file.parent / link).exists():
                broken.append(f"{file.relative_to(ROOT)}: {link}")
    assert broken == []


def test_what_the_architecture_points_at_is_there() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.search(r"## Where to look\n(.*?)\n## ", page, re.S)
    assert rows is not None
    filled = [each.replace("SURFACE", surface).replace("some_pass", "tile").replace("some_command", "opt")
              for each in re.findall(r"`([\w/.\-]+/[\w/.\-]*)`", rows[1]) for surface in ("cuda", "triton", "tilelang")]
    assert len(filled) > 60 and [each for each in filled if not (ROOT / each).exists()] == []
