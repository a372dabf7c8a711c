"""Kernels that KIR read and wrote again, as functions of Triton that take the place of the originals."""
from __future__ import annotations

import hashlib
import importlib.util
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kir.corpus.equal import same_program
from kir.diagnostic import KirError
from kir.ir import nodes as n
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
def read_again(file: str, kernel: str) -> Again:
    """Read a kernel and write it again; only a text that reads back as the same program counts."""
    reader: Frontend = frontend("triton")
    program = None
    try:
        program = reader.parse(Path(file), kernel)
        text = backend("triton").emit(program).text
        assert isinstance(reader, EditableFrontend)
        again = reader.parse_text(Path(file).with_name(f"{Path(file).stem}__again.py"), text, kernel)
        if not same_program(program, again):
            return Again(program, reason="it reads back differently")
    except KirError as bad:
        return Again(program, reason=f"{bad.diagnostics[0].id} {bad.diagnostics[0].message}")
    return Again(program, text, hashlib.sha256(text.encode()).hexdigest()[:16], reread=again)


@cache
def function_of(file: str, kernel: str, folder: str) -> Any:
    """The kernel written again, as a function that Triton compiles; its source is kept in `folder`."""
    again = read_again(file, kernel)
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
