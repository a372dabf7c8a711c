"""The example notebook with what its cells show: `python -m benchmarks.users.notebook` runs `docs/using/example.ipynb` anew and writes it. Cells are run as a
notebook runs them, without one: the last expression of a cell shows itself by `_repr_mimebundle_`."""
from __future__ import annotations

import ast
import contextlib
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kir.base.store import write_atomic

FILE = Path(__file__).resolve().parents[2] / "docs" / "using" / "example.ipynb"


def executed(sources: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """The outputs of each code cell, as a notebook keeps them. What a cell raises is raised."""
    names: dict[str, Any] = {}
    for number, source in enumerate(sources, 1):
        tree = ast.parse(source)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec(compile(tree, f"cell {number}", "exec"), names)
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names) if isinstance(last, ast.Expr) else None
        out: list[dict[str, Any]] = [{"output_type": "stream", "name": "stdout", "text": _lines(said.getvalue())}] if said.getvalue() else []
        if value is not None:
            shown = getattr(value, "_repr_mimebundle_", lambda value=value: {"text/plain": repr(value)})()
            data = {kind: _lines(text) for kind, text in shown.items()}
            out.append({"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data})
        yield out


def again(text: str) -> str:
    """A notebook with the outputs that its cells have now."""
    book = json.loads(text)
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    for number, (cell, outputs) in enumerate(zip(code, executed(["".join(cell["source"]) for cell in code]), strict=True), 1):
        cell["execution_count"], cell["outputs"] = number, outputs
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    write_atomic(FILE, again(FILE.read_text(encoding="utf-8")))
    print(FILE)
