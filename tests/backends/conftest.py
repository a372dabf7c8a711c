"""Programs for the backends, and running emitted Triton in Triton's own interpreter."""
from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.parser import parse_program
from kir.ir.types import DType
from kir.ir.visit import substitute
from kir.surface import backend

Arrays = dict[str, NDArray[Any]]
PROGRAMS = Path(__file__).parent / "programs"
Scalars = Mapping[str, int | float]
Job = tuple[n.Program, Arrays, Scalars]
Launch = Callable[[Sequence[Job]], list[Arrays]]


def program(name: str) -> n.Program:
    """A program of the folder `programs`."""
    path = PROGRAMS / f"{name}.kir"
    return parse_program(path.read_text(), str(path))


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """Runs programs as emitted Triton on arrays (every tensor by name, outputs included), all in one process; returns the arrays."""
    def run(jobs: Sequence[Job]) -> list[Arrays]:
        for number, (p, arrays, scalars) in enumerate(jobs):
            _write(tmp_path / str(number), p, arrays, scalars)
        script, folders = Path(__file__).with_name("triton_launch.py"), [str(tmp_path / str(i)) for i in range(len(jobs))]
        done = subprocess.run([sys.executable, str(script), *folders], capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return [{name: np.load(tmp_path / str(i) / f"{name}.npy").view(value.dtype) for name, value in arrays.items()}
                for i, (_, arrays, _) in enumerate(jobs)]
    return run


def _write(folder: Path, p: n.Program, arrays: Arrays, scalars: Scalars) -> None:
    """One folder of `triton_launch.py`."""
    folder.mkdir()
    emitted = backend("triton").emit(p)
    (folder / "emitted.py").write_text(emitted.text)
    sizes = {q.name: const(scalars[q.name], q.of) for q in p.params if isinstance(q.of, DType) and q.name in scalars}
    launches = [{"function": e.function, "arguments": [a.name if a.kind == "pointer" else scalars[a.name] for a in e.arguments],
                 "grid": [int_value(substitute(x, sizes)) for x in e.grid]} for e in emitted.entries]
    dtypes = {a.name: a.dtype for e in emitted.entries for a in e.arguments if a.kind == "pointer"}
    for name, value in arrays.items():
        np.save(folder / f"{name}.npy", value.view(np.int16) if dtypes[name] == "bf16" else value)
    (folder / "launches.json").write_text(json.dumps({"tensors": dtypes, "launches": launches}))
