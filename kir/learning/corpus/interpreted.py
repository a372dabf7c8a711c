"""A launch carried out by KIR's interpreter, on the caller's own tensors."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kir.base.diagnostic import error
from kir.interp import run
from kir.interp.numerics.number import storage
from kir.ir import nodes as n
from kir.ir.bindings.specialize import specialize, zero_elsewhere
from kir.ir.rules.generic import is_generic
from kir.ir.rules.verify import verify
from kir.ir.types import DTYPES
from kir.ir.visit import transform
from kir.learning.corpus.launch import Launch, binding_of, extent
from kir.learning.corpus.launch import dtype_of as dtype_of_tensor


def carry_out(program: n.Program, launch: Launch) -> None:
    """Run a generic program as the launch would have run its kernel. Raises KirError for what the binding or interpreter refuses."""
    binding = binding_of(launch, flat=True)
    # A number where the kernel has a pointer: the caller says that this way of using the kernel has none.
    none = [q.name for q in program.params if isinstance(q.of, n.Buffer) and q.name in binding.scalars]
    binding = replace(binding, absent=[*binding.absent, *none], scalars={k: v for k, v in binding.scalars.items() if k not in none})
    open_ = {q.name for q in program.params if not isinstance(q.of, n.Buffer) and q.of.is_symbolic}
    binding = replace(binding, dtypes={k: v for k, v in binding.dtypes.items() if k in open_})
    made = specialize(program, binding)
    wrong = [d for d in verify(made) if d.severity == "error"]
    if is_generic(made) or wrong:
        raise error("KIR-C116", f"'{launch.kernel}' cannot be run under this launch: {wrong[0].message if wrong else 'it is still generic'}")
    made = transform(made, zero_elsewhere)
    made = replace(made, params=tuple(replace(q, role="inout") if q.role == "out" else q for q in made.params))
    arrays = {name: memory(t) for name, t in launch.tensors.items()}
    outputs = run(made, {q.name: arrays[q.name] for q in made.params if q.name in arrays}).outputs
    for name, value in outputs.items():
        if name in arrays:
            kept, left = (np.ascontiguousarray(x).view(np.uint8).reshape(-1) for x in (arrays[name], value))
            changed = np.flatnonzero(kept != left)  # only these: another tensor may lie in the same memory
            arrays[name].view(np.uint8).reshape(-1)[changed] = left[changed]


def memory(t: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """The memory that a CPU tensor lies in, from its first element on, shared with it, in the dtype in which the interpreter keeps it."""
    import torch

    flat = torch.as_strided(t.detach(), (extent(t),), (1,))
    dtype = dtype_of_tensor(t)
    kept = storage(DTYPES[dtype])
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()]
    made: np.ndarray[Any, np.dtype[Any]] = flat.view(bits).numpy().view(kept)
    return made
