"""One suggestion tried: ``python -m benchmarks.packages.suggestion`` with one line of JSON on standard input.

Prepares the package's own kernel under its recorded launch, and the kernel that KIR writes of it with the suggested pass; runs both on the
same random arguments and compares what they leave; says ``{"ready": true}``; waits for a line; then times both in turns, and says what came
of it in one line of JSON. A process of its own, since a kernel that goes wrong takes the device's context down with it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kir.gate.gpu.images.executable import bound
from kir.gate.gpu.statistics import ratio
from kir.hardware.target import target
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.build import const, int_value
from kir.ir.rebuild.plans import made
from kir.ir.types import DType
from kir.ir.visit import substitute
from kir.learning.corpus.measured import Run, copied, difference, samples
from kir.learning.packages.trial import loaded, original, tensors_of, torch_dtype
from kir.rewrite import Context
from kir.rewrite import run as run_pipeline
from kir.surface import backend
from kir.surface.reading import load_expert

WITHIN = 2e-3
"""The largest difference of a right result, as a share of the largest value: a pass may move roundings."""
Sampler = Callable[[Mapping[str, Any], dict[str, Any], Run, Run], tuple[list[float], list[float]]]


def written(program: n.Program, folder: Path) -> tuple[Run, dict[str, tuple[int, str]]]:
    """What Triton's backend makes of a specialized program, as a function of its tensors: its launches in their order, after the initial
    values of its workspaces; and those workspaces, as elements and dtype. Raises KirError where the backend or the launch cannot say it."""
    emitted = backend("triton").emit(program)
    at = bound(program, {}, {})
    path = folder / f"suggested_{emitted.program[:16]}.py"
    path.write_text(emitted.text, encoding="utf-8")
    module = loaded(path)
    known = {p.name: const(at.values[p.name], p.of) for p in program.params if isinstance(p.of, DType) and p.name in at.values}
    entries = [e for e, wanted in zip(emitted.entries, made(program, known), strict=True) if wanted]
    grids = [tuple(int_value(substitute(extent, known)) for extent in e.grid) for e in entries]
    if any(None in grid for grid in grids) or any(a.kind == "map" for e in entries for a in e.arguments):
        raise ValueError("its launch needs more than tensors and numbers")
    first = {w.buffer.name: w.init.value for w in program.workspaces if isinstance(w.init, n.Const)}

    def run(tensors: dict[str, Any]) -> None:
        for name, value in first.items():
            tensors[name].fill_(value)
        for e, grid in zip(entries, grids, strict=True):
            given = (tensors[a.source] if a.kind == "pointer" else at.values[a.source] for a in e.arguments)
            getattr(module, e.function)[grid](*given, **dict(e.options))

    return run, {w.buffer.name: (at.layouts[w.buffer.name].span, at.layouts[w.buffer.name].dtype) for w in program.workspaces}


def prepared(row: Mapping[str, Any], device: str, folder: Path) -> tuple[dict[str, Any], frozenset[str], Run, Run]:
    """The arguments, the names of workspaces among them, the package's kernel and the suggested one. Raises KirError, and what importing the package raises."""
    path = folder / "binding.toml"
    path.write_text(row["text"], encoding="utf-8")
    binding = Binding.read(path)
    program = load_expert(row["kernel"], path).program
    done = run_pipeline(program, row["step"], Context(target=target(row["target"])))
    arguments = tensors_of(binding, device)
    fast, spaces = written(done.program, folder)
    import torch

    if device == "cuda":  # what kernels that make descriptors by themselves need
        import triton

        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=device))
    arguments |= {name: torch.zeros(span, dtype=torch_dtype(dtype), device=device) for name, (span, dtype) in spaces.items()}
    return arguments, frozenset(spaces), original(row["kernel"], binding), fast


def tried(row: Mapping[str, Any], device: str, folder: Path, go: Callable[[], None], sampler: Sampler = samples) -> dict[str, Any]:
    """What came of a suggestion: ``right``, the largest ``difference`` as a share of the largest value, ``equal`` bit for bit, and
    ``ratio`` (how many times faster, median and interval) with the ``seconds`` of each; or ``failed`` with the reason."""
    arguments, spaces, slow, fast = prepared(row, device, folder)
    one, other = copied(arguments), copied(arguments)
    slow(one)
    fast(other)
    found = difference({k: v for k, v in one.items() if k not in spaces}, other)
    share = found["difference"] / found["scale"] if found["scale"] else found["difference"]
    out: dict[str, Any] = {"equal": found["equal"], "difference": share, "right": share <= WITHIN}
    go()
    if out["right"]:
        before, after = sampler(arguments, one, slow, fast)
        faster = ratio(before, after)
        out |= {"ratio": faster.to_json(), "seconds": [sorted(x)[len(x) // 2] for x in (before, after)]}
    return out


def main() -> None:
    """The command line."""

    def say(**fields: Any) -> None:
        print(json.dumps(fields), flush=True)

    def go() -> None:
        say(ready=True)
        sys.stdin.readline()

    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory(prefix="kir-suggestion-") as name:
        try:
            say(**tried(json.loads(sys.stdin.readline()), device, Path(name), go))
        except Exception as fault:  # whatever it is, it is what came of this suggestion
            say(failed=f"{type(fault).__name__}: {str(fault).strip().partition(chr(10))[0]}"[:300])


if __name__ == "__main__":
    main()
