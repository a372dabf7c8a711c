"""Host code in the user's own file that launches an edited Triton kernel: grid and options follow the edit, and what is written reads back as the result."""
from __future__ import annotations

import ast
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kir.analysis import normalize
from kir.base.diagnostic import KirError
from kir.ir.binding import Binding
from kir.ir.canonical import alpha_equal
from kir.ir.nodes import Program
from kir.learning.optimize.python import python_expression
from kir.surface import backend
from kir.surface.edits import SourceEdit
from kir.surface.edits.splice import between
from kir.surface.reading import load_expert

CEILDIV = "triton.cdiv"
"""What divides and rounds up in host code."""


def followed(edit: SourceEdit, program: Program, changed: str) -> SourceEdit | None:
    """The edit with the one call in its file that launches its kernel as `program` is launched (`changed` says how that differs); None where there are
    several, where it does not say the sizes that the new grid needs, or where the whole does not read back as the program."""
    text = _relaunched(edit, program)
    if text is None:
        return None
    with tempfile.TemporaryDirectory(prefix="kir-edit-") as folder:
        path = Path(folder) / Path(edit.file).name
        path.write_text(text, encoding="utf-8")
        try:
            read = load_expert(f"{path}::{edit.kernel}", None).program
        except KirError:
            return None
    if not alpha_equal(normalize(read), normalize(program)):
        return None
    told = f"the launch in this file is edited too ({changed}): one in another file must follow"
    return replace(edit, passed_over=(*edit.passed_over, told), after=text, splices=tuple(between(edit.before, text)), new_binding=edit.binding)


def _relaunched(edit: SourceEdit, program: Program) -> str | None:
    text, launch = edit.after, backend("triton").launch(program)
    tree = ast.parse(text)
    calls = [x for x in ast.walk(tree) if isinstance(x, ast.Call) and isinstance(x.func, ast.Subscript)
             and isinstance(x.func.value, ast.Name) and x.func.value.id == edit.kernel]
    made = next((x for x in ast.walk(tree) if isinstance(x, ast.FunctionDef) and x.name == edit.kernel), None)
    if not any(isinstance(x, ast.Import) and any(a.name == "triton" and not a.asname for a in x.names) for x in tree.body):
        return None  # CEILDIV is not there
    options = {k: v for k, v in edit.new_binding.options.items() if edit.binding.options.get(k) != v}
    if len(calls) != 1 or made is None or any(k not in edit.new_binding.options for k in edit.binding.options):
        return None
    (call,) = calls
    assert isinstance(call.func, ast.Subscript)
    changes: list[tuple[int, int, str]] = []
    if edit.new_binding.grid != edit.binding.grid:
        names = _sizes(text, call, made, edit.binding)
        try:
            grid = [python_expression(e, names, CEILDIV) for e in launch.grid]
        except KeyError:
            return None
        changes.append((*_span(text, call.func.slice), f"({', '.join(grid)},)"))
    given = {k.arg: k.value for k in call.keywords}
    for name, value in options.items():
        end = _span(text, call)[1] - 1
        changes.append((*_span(text, given[name]), repr(value)) if name in given else (end, end, f", {name}={value!r}"))
    for begin, end, new in sorted(changes, reverse=True):
        text = text[:begin] + new + text[end:]
    return text


def _sizes(text: str, call: ast.Call, made: ast.FunctionDef, binding: Binding) -> Mapping[str, str]:
    """How the call says each size that is a parameter of the kernel."""
    given = {a.arg: x for a, x in zip(made.args.args, call.args, strict=False)} | {k.arg: k.value for k in call.keywords if k.arg}
    out: dict[str, str] = {}
    for name, size in binding.scalars.items():
        if isinstance(size, str) and name in given and not isinstance(given[name], ast.Starred):
            said = ast.get_source_segment(text, given[name]) or ""
            out[size] = said if isinstance(given[name], ast.Name | ast.Attribute | ast.Constant) else f"({said})"
    return out


def _span(text: str, node: ast.expr) -> tuple[int, int]:
    """Where a node begins and ends in the text, in characters."""
    lines = text.splitlines(keepends=True)

    def at(line: int, column: int) -> int:
        return sum(map(len, lines[:line - 1])) + len(lines[line - 1].encode()[:column].decode())
    assert node.end_lineno is not None and node.end_col_offset is not None
    return at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)


__all__ = ["followed"]
