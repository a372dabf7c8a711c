"""Macros that a project's build defines for its CUDA files, as its build scripts state them: `-DNAME=value` in Python, `define_macros`, CMake's definitions.

The scripts are read, never run. A definition counts where nothing decides about it, or a condition that names CUDA; one of another platform, or with two
values, does not. What an f-string works out from `major` and `minor` is that of the target.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

MOST_SCRIPTS = 4_000
"""Scripts of a project that are looked at."""
LONGEST = 400_000
"""Bytes of a script that is looked at."""
_SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages", "tests", "test", "docs"})
_ELSEWHERE = re.compile(r"ROCM|HIP|AMD|MUSA|SYCL|XPU|NPU|ASCEND|METAL|VULKAN|MACA|CPU|DEBUG|TEST|MSVC|WIN32|APPLE")
_NAME = re.compile(r"[A-Za-z]\w*")
_SAYS = re.compile(r"[\"']-D[A-Za-z]|define_macros")
_OPTION = re.compile(r"-D([A-Za-z]\w*)(?:=(.*))?", re.DOTALL)
_CMAKE = re.compile(r"(?P<if>\bif\s*\()|(?P<end>\bendif\s*\()|\b(?:add_compile_definitions|add_definitions|target_compile_definitions)\s*\((?P<what>[^()]*)\)",
                    re.IGNORECASE)
Stated = tuple[str, str]
"""A macro and its text."""


@lru_cache(maxsize=16)
def stated_macros(root: Path, capability: tuple[int, int]) -> tuple[Stated, ...]:
    """The macros that the build scripts below a folder define for a target of a compute capability."""
    found: dict[str, set[str]] = {}
    for script in _scripts(root):
        try:
            if script.stat().st_size > LONGEST:
                continue
            text = script.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for name, value in _of_python(text, capability) if script.suffix == ".py" else _of_cmake(text):
            if not _ELSEWHERE.search(name):
                found.setdefault(name, set()).add(value)
    return tuple((name, next(iter(values))) for name, values in sorted(found.items()) if len(values) == 1)


def _scripts(root: Path) -> Iterator[Path]:
    seen = 0
    for folder, inner, files in os.walk(root):
        inner[:] = sorted(x for x in inner if not x.startswith(".") and x not in _SKIPPED)
        for x in sorted(files):
            if x.endswith((".py", ".cmake")) or x == "CMakeLists.txt":
                seen += 1
                if seen > MOST_SCRIPTS:
                    return
                yield Path(folder) / x


def _of_cmake(text: str) -> Iterator[Stated]:
    """Definitions that stand in no condition."""
    depth = 0
    for m in _CMAKE.finditer(re.sub(r"#[^\n]*", "", text)):
        depth += 1 if m["if"] else -1 if m["end"] else 0
        if depth or m["what"] is None:
            continue
        for word in m["what"].split():
            name, _, value = word.strip('"').removeprefix("-D").partition("=")
            if name.isupper() and name not in ("PUBLIC", "PRIVATE", "INTERFACE") and _NAME.fullmatch(name) and "$" not in value:
                yield name, value.replace('\\"', '"') or "1"


def _of_python(text: str, capability: tuple[int, int]) -> Iterator[Stated]:
    if _SAYS.search(text) is None:
        return
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    yield from _of_node(tree, capability, False)


def _of_node(node: ast.AST, capability: tuple[int, int], listed: bool) -> Iterator[Stated]:
    """Definitions in a part of a script; `listed` in what is said of `define_macros`."""
    match node:
        case ast.If() | ast.IfExp():
            if "cuda" not in ast.unparse(node.test).lower() or "not " in ast.unparse(node.test):
                return
            for x in node.body if isinstance(node.body, list) else [node.body]:
                yield from _of_node(x, capability, listed)
            return
        case ast.Constant(value=str() as word) if (m := _OPTION.fullmatch(word)) is not None:
            yield m[1], m[2] or "1"
        case ast.JoinedStr(values=[ast.Constant(value=str() as head), ast.FormattedValue(value=number)]):
            m = _OPTION.fullmatch(head)
            if m is not None and m[2] == "" and (made := _number(number, capability)) is not None:
                yield m[1], str(made)
            return
        case ast.JoinedStr():
            return
        case ast.Tuple(elts=[ast.Constant(value=str() as name), ast.Constant(value=(None | str()) as value)]) if listed and _NAME.fullmatch(name):
            yield name, value or "1"
            return
        case ast.Assign() | ast.AugAssign() | ast.AnnAssign() | ast.Call() | ast.keyword():
            listed = listed or "define_macros" in ast.unparse(
                node.func if isinstance(node, ast.Call) else ast.Name(node.arg or "") if isinstance(node, ast.keyword)
                else node.targets[0] if isinstance(node, ast.Assign) else node.target)
        case _:
            pass
    for child in ast.iter_child_nodes(node):
        yield from _of_node(child, capability, listed)


def _number(e: ast.expr, capability: tuple[int, int]) -> int | None:
    """What an expression over a compute capability comes to."""
    match e:
        case ast.Constant(value=int() as value):
            return value
        case ast.Attribute(attr=name) | ast.Name(id=name) if name in ("major", "minor"):
            return capability[name == "minor"]
        case ast.BinOp(left=left, op=ast.Add() | ast.Mult() as op, right=right):
            a, b = _number(left, capability), _number(right, capability)
            return None if a is None or b is None else a + b if isinstance(op, ast.Add) else a * b
        case _:
            return None
