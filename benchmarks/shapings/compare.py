"""One kernel under two declarations of its memory: what differs in what they compute, and in what checking finds."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.analysis.normal.regions import raised
from kir.interp import Result, run
from kir.interp.numerics.number import storage
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.bindings.specialize import specialize
from kir.ir.rules.verify import check
from kir.ir.types import DTYPES, DType
from kir.surface import frontend

from .kernel import Kernel, value

SUFFIX = {"triton": "py", "tilelang": "py", "cuda": "cu"}
Arrays = Mapping[str, NDArray[Any]]


def written(kernel: Kernel, folder: Path) -> Path:
    """The kernel's file."""
    path = folder / f"{kernel.name}.{SUFFIX[kernel.surface]}"
    path.write_text(kernel.source, encoding="utf-8")
    return path


def read(kernel: Kernel, path: Path, binding: Binding) -> n.Program:
    """The kernel under a binding: specialized, and raised to normal form."""
    reader = frontend(kernel.surface)
    instantiate = getattr(reader, "instantiate", None)
    generic = instantiate(path, kernel.name, binding) if instantiate is not None else reader.parse(path, kernel.name)
    made = specialize(generic, binding)
    check(made)
    return raised(made)


def memories(kernel: Kernel, sizes: Mapping[str, int], seed: int) -> dict[str, NDArray[Any]]:
    """What every memory of a kernel holds, as one row of numbers."""
    rng = np.random.default_rng(seed)
    out = {}
    for name, m in kernel.memories.items():
        count, dtype = value(m.factors, sizes), DTYPES[m.dtype]
        if m.below:
            out[name] = rng.integers(0, max(value(m.below, sizes), 1), count).astype(storage(dtype))
        elif dtype.is_integer:
            out[name] = rng.integers(0, 100, count).astype(storage(dtype))
        else:
            out[name] = rng.integers(-64, 64, count).astype(np.float32).astype(storage(dtype))
    return out


def ran(program: n.Program, arrays: Arrays, sizes: Mapping[str, int], checked: bool = False) -> Result:
    """A program run on memories, each in the shape that the program declares."""
    known = {p.name: sizes[p.name] for p in program.params if isinstance(p.of, DType) and p.name in sizes}
    shapes = {p.name: extents(p.of, sizes) for p in program.params if isinstance(p.of, n.Buffer)}
    return run(program, {name: arrays[name].reshape(shapes[name]).copy() for name in shapes}, known, mode="check" if checked else "fast")


def extents(buffer: n.Buffer, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The extents of a tensor at given sizes."""
    from kir.ir.build import int_value
    from kir.ir.visit import substitute

    values = {name: n.Const(v, DTYPES["i32"]) for name, v in sizes.items()}
    out = [int_value(substitute(d, values)) for d in buffer.shape]
    assert all(d is not None for d in out), buffer
    return tuple(d for d in out if d is not None)


def difference(plain: n.Program, other: n.Program, kernel: Kernel, checked: int = 1) -> str:
    """Where two readings of a kernel differ over its sizes ("" nowhere): values bit for bit, and, at the first so many sizes, errors that checking
    finds in one of them alone."""
    for k, sizes in enumerate(kernel.sizes):
        arrays = memories(kernel, sizes, k)
        first, second = ran(plain, arrays, sizes), ran(other, arrays, sizes)
        for name, a in first.outputs.items():
            b = second.outputs[name]
            if a.tobytes() != b.tobytes():
                at = int(np.flatnonzero(a.reshape(-1) != b.reshape(-1))[0])
                return f"at {dict(sizes)}: element {at} of {name} is {b.reshape(-1)[at]}, not {a.reshape(-1)[at]}"
        if k < checked:
            right, found = ran(plain, arrays, sizes, True), ran(other, arrays, sizes, True)
            if len(found.errors) > len(right.errors) or (right.errors and not found.errors):
                told = (found.errors or right.errors)[0]
                return f"at {dict(sizes)}: {'a false finding' if found.errors else 'a finding is lost'}: {told.id} {told.message}"
    return ""


def flat_accesses(program: n.Program) -> int:
    """How many flat views a program still has."""
    return sum(isinstance(s, n.View) and len(s.at.buffer.shape) > 1 and len(s.buffer.shape) == 1 and not s.at.index for k in program.kernels for s in k.body)
