"""A package's own kernel, as Triton's function, from the kernel's file and name."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from kir.hardware import machine


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
    package = next((p for p in ("liger_kernel", "fla", "flag_gems") if (home := machine.package_folder(p)) and path.is_relative_to(home)), None)
    if package is not None:
        home = machine.package_folder(package)
        assert home is not None
        parts = [package, *path.relative_to(home).with_suffix("").parts]
        return importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    spec = importlib.util.spec_from_file_location(f"kir_original_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
