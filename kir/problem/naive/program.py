"""The naive program of a torch model, from its calls as they were recorded at several sizes."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kir.base.diagnostic import Origin
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.problem.naive.graph import Extent, graph
from kir.problem.naive.kernels import Kernels, program_name
from kir.problem.schema import Tensor


def naive_program(
    name: str,
    recordings: Sequence[Mapping[str, Any]],
    sizes: Iterable[str],
    tensors: Iterable[Tensor],
    scalars: Iterable[str],
    text: Callable[[Extent], str | None],
    where: Origin,
) -> Program:
    """What the recorded operators compute, one thread a work item: a program over `sizes` with the problem's tensors and numbers as parameters. `text`
    writes an extent over the sizes. Raises KirError KIR-G918, located at `where`, for what no such program says."""
    params = [f"scalar {x}: f32" for x in scalars]
    params += [f"{'in' if t.role == 'in' else 'out'} {t.name}: {t.dtype}[{', '.join(t.shape)}]" for t in tensors]
    made = Kernels(graph(recordings, text, where)).text(program_name(name), list(sizes), params)
    return parse_program(made, f"{name}, naive")
