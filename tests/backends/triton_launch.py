"""A script for a process of its own: runs emitted Triton modules in Triton's interpreter, each on the arrays of its folder.

`python triton_launch.py FOLDER..`, each of which holds emitted.py, launches.json (function, arguments in order, grid) and one .npy per
array, as raw bytes where NumPy has no such dtype. Arrays are written back where they were.
"""
from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"


def main(folder: Path) -> None:
    """Launch every kernel in order."""
    import numpy as np
    import torch

    spec = importlib.util.spec_from_file_location(f"emitted_{folder.name}", folder / "emitted.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    job: dict[str, Any] = json.loads((folder / "launches.json").read_text())
    tensors: dict[str, Any] = {}
    for name, dtype in job["tensors"].items():
        raw = np.load(folder / f"{name}.npy")
        tensors[name] = torch.from_numpy(raw).view(torch.bfloat16) if dtype == "bf16" else torch.from_numpy(raw)
    for launch in job["launches"]:
        arguments = [tensors[a] if isinstance(a, str) else a for a in launch["arguments"]]
        getattr(module, launch["function"])[tuple(launch["grid"])](*arguments)
    for name, dtype in job["tensors"].items():
        out = tensors[name].view(torch.int16) if dtype == "bf16" else tensors[name]
        np.save(folder / f"{name}.npy", out.numpy())


def _accept_sized_arrays(interpreter: Any) -> None:
    """Triton 3.6 converts one-element arrays to numbers, which NumPy 2.4 no longer does: give it the element."""
    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, *rest: Any) -> None:
        patch(tensor, *rest)
        tensor.__index__ = lambda self: int(self.handle.data.reshape(-1)[0])
        tensor.__bool__ = lambda self: bool(self.handle.data.reshape(-1)[0])
        tensor.__int__ = tensor.__index__
    interpreter._patch_lang_tensor = patched


if __name__ == "__main__":
    from triton.runtime import interpreter as of_triton

    _accept_sized_arrays(of_triton)
    for argument in sys.argv[1:]:
        main(Path(argument))
