"""The API pages, from docstrings: `make docs` writes docs/api/index.html. Rendered by pdoc; nothing is kept in git."""
from __future__ import annotations

import pkgutil
import sys
import warnings
from importlib import import_module
from pathlib import Path

import pdoc
import pdoc.doc
import pdoc.render

LEFT_OUT = ("kir.faces.cli", "kir.skills.experts", "kir.grammars")
"""The command line explains itself (`kir --help`); experts are data."""


def load() -> None:
    """Import every module that is shown, and load names that packages load on first use."""
    for found in pkgutil.walk_packages(import_module("kir").__path__, "kir."):
        if not found.name.startswith(LEFT_OUT):
            module = import_module(found.name)
            for name in getattr(module, "__all__", ()):
                module.__dict__.setdefault(name, getattr(module, name))


def main(folder: str) -> int:
    """Write the pages into a folder. Annotations that are imported for checking only are shown as they are written."""
    pdoc.render.configure(docformat="markdown", show_source=False, search=False, footer_text="KIR")
    warnings.filterwarnings("ignore", message="Error parsing type annotation")
    load()
    pdoc.pdoc("kir", *(f"!{name}" for name in LEFT_OUT), output_directory=Path(folder))
    print(f"{folder}/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
