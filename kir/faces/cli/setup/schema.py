"""print the JSON Schema of what a command prints with --json, or list those that there are

The schema of a command's answer is kept through all versions in which its `schema` field says the same; fields may be added. A refusal is of `error`.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Annotated, Any

import typer

from kir.faces.cli._result import Result

SILENT = ("explore", "mcp")
"""Commands that serve, and print no object."""


def command(name: Annotated[str, typer.Argument(help="a command, or error, help, version; by default all are listed", show_default=False)] = "") -> Result:
    """Print the JSON Schema of what a command prints with --json."""
    from kir.base.diagnostic import did_you_mean, usage

    known = schemas()
    if not name:
        rows = {each: str(found["title"]) for each, found in known.items()}
        return Result({"schemas": rows}, "\n".join(f"{each:<14}{title}" for each, title in rows.items()))
    if name not in known:
        raise usage("KIR-C002", f"there is no schema of '{name}'", subject="kir schema",
                    attempt=did_you_mean(name, [*known]) or "kir schema, which lists those that there are", needs="a command that prints an object with --json")
    return Result({"of": name, "json_schema": known[name]}, json.dumps(known[name], indent=2, ensure_ascii=False))


def schemas() -> dict[str, Any]:
    """The published schemas by command."""
    folder = resources.files("kir.grammars") / "schemas"
    files = sorted((each for each in folder.iterdir() if each.name.endswith(".json")), key=lambda each: each.name)
    return {each.name.removesuffix(".json"): json.loads(each.read_text(encoding="utf-8")) for each in files}
