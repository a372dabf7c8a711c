"""A package's own kernel, as Triton's function, from the kernel's file and name."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any


def original(path: Path, kernel: str) -> Any:
    """The `JITFunction` named `kernel` of the module in `path`, out of all that decorators put around it. Raises LookupError."""
    module = _module(path)
    for value in [vars(module).get(kernel), *vars(module).values()]:
        found = _jit(value)
        if found is not None and found.fn.__name__ == kernel and Path(found.fn.__code__.co_filename) == path:
            return found
    raise LookupError(f"{path.name} makes '{kernel}' when it is called")


def _jit(value: Any) -> Any:
    """What a chain of wrappers (autotuners, heuristics, a package's own) ends with, when that is a `JITFunction`."""
    from triton.runtime.jit import JITFunction

    for _ in range(8):
        if isinstance(value, JITFunction):
            return value
        value = getattr(value, "fn", None)
    return None


@cache
def _module(path: Path) -> ModuleType:
    """The module of a file: by its name in the package that it is part of, so that what it imports is the package."""
    home = max((e for e in map(Path, sys.path) if e.is_absolute() and path.is_relative_to(e)), key=lambda e: len(e.parts), default=None)
    if home is not None and len(parts := path.relative_to(home).with_suffix("").parts) > 1 and all(p.isidentifier() for p in parts):
        return importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    spec = importlib.util.spec_from_file_location(f"kir_original_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
