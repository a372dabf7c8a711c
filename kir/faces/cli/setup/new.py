"""write the files of a new pass, problem, frontend or backend, which conform as they stand

The folder is a plugin of its own (a problem: a folder that --problem takes), with a test beside it: pip install -e FOLDER, then
pytest FOLDER. Change one thing at a time, and the test says which law it breaks.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from kir.faces.cli._options import can_be_written
from kir.faces.cli._result import Result

GROUPS = {"pass": "passes", "frontend": "frontends", "backend": "backends"}
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
PAGES = {"pass": "writing-a-pass", "problem": "writing-a-problem", "frontend": "writing-a-frontend", "backend": "writing-a-frontend"}


def command(
    kind: Annotated[Literal["pass", "problem", "frontend", "backend"], typer.Argument(help="what to write")],
    name: Annotated[str, typer.Argument(help="its name: words of small letters with hyphens, a verb first for a pass (`reverse-loop`)")],
    output: Annotated[Path | None, typer.Option("--output", "-o", callback=can_be_written, help="the folder; by default kir-NAME here")] = None,
) -> Result:
    """Write the files of a new pass, problem, frontend or backend."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from kir.base.diagnostic import usage
    from kir.base.registry import registry
    from kir.base.store import write_atomic

    if not NAME.fullmatch(name):
        raise usage("KIR-C002", f"'{name}' is no name", subject="kir new", needs="words of small letters and digits, with hyphens between them",
                    attempt=f"kir new {kind} {near}" if NAME.fullmatch(near := "-".join(re.findall("[a-z0-9]+", name.lower()))) else "")
    if kind != "problem" and name in {entry.name for entry in registry(f"kir.{GROUPS[kind]}")}:
        raise usage("KIR-C002", f"there is a {kind} '{name}' already", subject="kir new", needs="another name")
    folder = output or Path(f"kir-{name}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise usage("KIR-C002", f"{folder} is there already", subject="kir new", attempt="-o FOLDER names another")
    module = name.replace("-", "_")
    row = _free_row() if kind == "pass" else 0
    values = {"name": name, "module": module, "cls": name.title().replace("-", ""), "what": f"A {kind}", "group": GROUPS.get(kind, ""), "row": row,
              "id": f"KIR-P{row}0"}
    files = {"problem": {"problem.toml": "problem/problem.toml", "reference.py": "problem/reference.py", "naive.kir": "problem/naive.kir"},
             "pass": {f"kir_{module}/{module}.py": "pass/pass.py", f"kir_{module}/cases/{module}.toml": "pass/cases.toml"},
             "frontend": {f"kir_{module}/{module}.py": "frontend/frontend.py"}, "backend": {f"kir_{module}/{module}.py": "backend/backend.py"}}[kind]
    files = {**files, f"test_{module}.py": f"{kind}/test.py"}
    if kind != "problem":
        files = {"pyproject.toml": "pyproject.toml", **files}
    templates = Environment(loader=PackageLoader("kir.grammars", "new"), undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
    made = {place: templates.get_template(f"{template}.j2").render(values) for place, template in files.items()}
    if kind != "problem":
        made[f"kir_{module}/__init__.py"] = ""
    for place, text in made.items():
        write_atomic(folder / place, text)
    steps = f"pip install -e {folder} && pytest {folder}" if kind != "problem" else f"pytest {folder}; kir run {folder}/naive.kir --problem {folder}"
    said = [*(f"  {folder / place}" for place in sorted(made)), f"next: {steps}", f"how it is made: kir explain {PAGES[kind]}"]
    return Result({"kind": kind, "name": name, "folder": str(folder), "files": sorted(made)}, "\n".join([f"{kind} {name}:", *said]))


def _free_row() -> int:
    """A row for the ids of a pass's preconditions that no pass here has."""
    from kir.base.registry import registry

    used = {id_ for entry in registry("kir.passes") for id_ in re.findall(r"\bKIR-P(\d\d)\d\b", entry.file.read_text(encoding="utf-8"))}
    return next(row for row in range(99, 9, -1) if str(row) not in used)
