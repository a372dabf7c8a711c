"""Kernels that KIR read and wrote again, as functions of Triton that take the place of the originals."""
from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.learning.corpus.roundtrip.equal import same_program
from kir.surface import EditableFrontend, Frontend, backend, frontend


@dataclass(frozen=True)
class Again:
    """A kernel read: its program, its text written again with that text's hash and the program that it is read as, or why there is none."""

    program: n.Program | None
    text: str = ""
    digest: str = ""
    reason: str = ""
    reread: n.Program | None = None


@cache
def read_again(file: str, kernel: str, text: str | None = None) -> Again:
    """Read a kernel of a file, or of `text` in its place, and write it again; only a text that reads back as the same program counts."""
    reader: Frontend = frontend("triton")
    program = None
    assert isinstance(reader, EditableFrontend)
    try:
        program = reader.parse(Path(file), kernel) if text is None else reader.parse_text(Path(file), text, kernel)
        text = backend("triton").emit(program).text
        again = reader.parse_text(Path(file).with_name(f"{Path(file).stem}__again.py"), text, kernel)
        if not same_program(program, again):
            return Again(program, reason="it reads back differently")
    except KirError as bad:
        return Again(program, reason=f"{bad.diagnostics[0].id} {bad.diagnostics[0].message}")
    return Again(program, text, hashlib.sha256(text.encode()).hexdigest()[:16], reread=again)


@cache
def function_of(file: str, kernel: str, folder: str, text: str | None = None) -> Any:
    """The kernel written again, as a function that Triton compiles; its source is kept in `folder`."""
    again = read_again(file, kernel, text)
    name = f"kir_again_{again.digest}"
    path = Path(folder) / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(again.text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return getattr(module, kernel)


@cache
def completed(fn: Any) -> str | None:
    """The text of a kernel's file with imports for names that only the running module has, put there by whoever made it: a kernel made
    at run time uses names that its text does not define. None when nothing is lacking."""
    scope: dict[str, Any] = fn.__globals__
    path = Path(fn.__code__.co_filename)
    if not path.is_file():
        return None
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    bound = {x.name for x in ast.walk(tree) if isinstance(x, (ast.FunctionDef, ast.ClassDef))}
    bound |= {x.arg for x in ast.walk(tree) if isinstance(x, ast.arg)}
    bound |= {x.id for x in ast.walk(tree) if isinstance(x, ast.Name) and not isinstance(x.ctx, ast.Load)}
    bound |= {(a.asname or a.name).partition(".")[0] for x in ast.walk(tree) if isinstance(x, (ast.Import, ast.ImportFrom)) for a in x.names}
    lacking = sorted({x.id for x in ast.walk(tree) if isinstance(x, ast.Name) and x.id not in bound and x.id in scope})
    lines = []
    for name in lacking:
        home = next((m for m, module in list(sys.modules.items()) if module is not None and m != fn.__module__
                     and str(getattr(module, "__file__", "")).endswith(".py") and vars(module).get(name) is scope[name]
                     and Path(str(module.__file__)) != path), None)
        if home is not None:
            lines.append(f"from {home} import {name}; ")
    opens = bool(tree.body) and isinstance(tree.body[0], (ast.FunctionDef, ast.ClassDef, ast.If, ast.Try, ast.For, ast.With))
    return "".join(lines) + ("\n" if opens else "") + text if lines else None
