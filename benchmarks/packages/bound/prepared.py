"""What a launch of a kernel needs, found without a device: the text that KIR writes of it, and arguments and grid as its host code says."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from kir.analysis.facts import Facts
from kir.analysis.heuristics import settled
from kir.analysis.simplify import simplify
from kir.base.diagnostic import KirError
from kir.gate.inputs.sets import size_sets
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.binding import Binding, expressions
from kir.ir.types import BOOL, F32, I32, DType
from kir.learning.corpus.patched_kernels import read_again
from kir.surface.finding import proposed, under
from kir.surface.launches.assembled import Found
from kir.surface.launches.questions import Question, all_answered
from kir.surface.reading import kernel_of, read_source

SIZES: tuple[int, ...] = (1024, 512, 256, 128, 64, 20, 3)
"""Where sizes begin; the first at which the largest tensor fits is taken."""
MOST = 1 << 24
"""Elements of the largest tensor."""
RETAKEN = 8
"""How many values that nobody could know are undone at most."""
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Those of a launch."""
Row = dict[str, Any]


def prepared(place: str) -> Row:
    """`state` is `ready`, with `hash` and `text` (what KIR writes), `source` (a hash of the kernel's file), `sizes`, `binding`, `grid`, `options` and
    `arguments` by parameter; or `unwritten` or `unbound`, with `reason`. A tensor is {"tensor": dtype, "elements": so many}, a dtype {"dtype": its
    name}, anything else {"value": it}, and one that the host leaves out {"value": None}."""
    path, kernel = Path(place.partition("::")[0]), place.partition("::")[2]
    again = read_again(str(path), kernel)
    if not again.text:
        return {"state": "unwritten", "reason": again.reason}
    try:
        return {"state": "ready", "reason": "", "hash": again.digest, "text": again.text, "source": source_hash(path), **launch(place)}
    except (KirError, LookupError, ValueError) as bad:
        return {"state": "unbound", "reason": why(bad)}


def launch(place: str) -> Row:
    """`sizes`, `binding`, `grid`, `options` and `arguments` of a launch as its host code says. Raises as `bound` does."""
    binding, sizes, left = bound(place)
    grid, given = arguments(binding, sizes, left)
    return {"sizes": sizes, "binding": binding.text(), "grid": grid, "options": {k: v for k, v in binding.options.items() if k in OPTIONS}, "arguments": given}


def why(bad: Exception) -> str:
    """A reason in a few words."""
    return str(getattr(bad, "diagnostics", [bad])[0])[:200]


def source_hash(path: Path) -> str:
    """Of a kernel's file: what is prepared from one is not launched beside another."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def bound(place: str) -> tuple[Binding, dict[str, int], dict[str, int | float]]:
    """The binding that a kernel's host code gives, sizes for it, and values of numbers that nothing says anything of: one, or a half. Raises
    LookupError where no host code launches it, ValueError where no sizes are found, KirError as the reader does."""
    instead: dict[str, str] = {}
    for small in (False, True):
        for _ in range(RETAKEN):
            try:
                binding, program = _read(place, instead, small)
                break
            except KirError as bad:  # one of the values that nobody could know does not suit the kernel
                name, value = _suited(bad)
                if not name or name in instead:
                    raise
                instead[name] = value
        else:
            raise ValueError("too many values that nobody could know do not suit it")
        for base in SIZES:
            for sizes in size_sets(program, (base,)) if binding.sizes else [{}]:
                if max((_elements(t.shape, binding, sizes) for t in binding.tensors.values()), default=0) <= MOST:
                    left = {p.name: 0.5 if p.of.is_float else 1 for p in program.params
                            if p.role == "scalar" and p.value is None and isinstance(p.of, DType)}
                    return binding, sizes, left
    raise ValueError("no sizes at which it may be called, within the limit")


def _read(place: str, instead: Mapping[str, str], small: bool) -> tuple[Binding, n.Program]:
    """A kernel under the binding of its host code, with the answers in `instead` to the questions about those names; with `small`, extents that were
    assumed and are fixed when it is compiled are small."""
    found, made = _found(place)

    def answer(question: Question, wrong: str) -> str:
        """What `kir bind --ask --yes` answers; where nothing is proposed, a compile-time value is false, or 16 where it may not be, a grid has 16 CTAs
        along each axis, and a tensor is as long as a fourth of the longest. Raises ValueError for other questions."""
        kind, name = question.field[0], question.field[-1]
        if kind == "metas" and name in instead:
            return instead[name]
        if kind == "metas" and small and not re.search(r"(?i)block|tile|^B[A-Z]", name) and question.proposal.isdigit():
            return str(min(int(question.proposal), 4))
        known = {"metas": "16" if wrong else "false", "tensors": str(MOST // 4) if name == "shape" else "", "grid": ", ".join("16" for _ in found.binding.grid)}
        said = ("" if wrong else question.proposal) or known.get(kind, "")
        if not said:
            raise ValueError(f"nothing proposes {kind} {name}: {wrong}"[:120])
        return said
    answered = all_answered(found.binding, found.assumed, made, answer)
    binding = settled(answered.changed(metas={**answered.metas, **{k: v == "16" and 16 for k, v in instead.items()}}))
    return binding, read_source(place, binding).specialized()


@lru_cache(maxsize=1)
def _found(place: str) -> tuple[Found, Callable[[Binding], n.Program]]:
    """What host code says of a kernel, and the kernel as a function of its binding. Raises LookupError where none launches it."""
    path, kernel = Path(place.partition("::")[0]), place.partition("::")[2]
    reader, _ = kernel_of(path, kernel)
    found = proposed(reader, path, kernel)
    if not found.place:
        raise LookupError("no host code that is read launches it")
    return found, under(reader, path, kernel)


def _suited(bad: KirError) -> tuple[str, str]:
    """The compile-time value that a refusal says is not what the kernel takes, and one that is."""
    first = bad.diagnostics[0]
    said = re.match(r"'(\w+)' = \S+: the kernel takes (true or false)?", first.message) if first.id == "KIR-F011" else None
    return (said[1], "false" if said[2] else "16") if said else ("", "")


def numbers(texts: Mapping[str, str | int], binding: Binding, sizes: Mapping[str, int]) -> dict[str, int]:
    """The values of expressions over sizes and compile-time values. Raises ValueError for what has none."""
    names: dict[str, n.Expr] = {k: build.const(v, BOOL if isinstance(v, bool) else I32 if isinstance(v, int) else F32)
                                for k, v in {**binding.options, **binding.metas}.items() if isinstance(v, (bool, int, float))}
    names |= {k: build.const(v, I32) for k, v in sizes.items()}
    out = {}
    for key, e in expressions(texts, names, "argument").items():
        value = simplify(e, Facts.from_program(n.Program("p")))
        if not isinstance(value, n.Const):
            raise ValueError(f"{key} = {texts[key]} has no value")
        out[key] = int(value.value)
    return out


def _elements(shape: Sequence[str | int], binding: Binding, sizes: Mapping[str, int]) -> int:
    out = 1
    for d in numbers({str(i): d for i, d in enumerate(shape)}, binding, sizes).values():
        out *= d
    return out


def arguments(binding: Binding, sizes: Mapping[str, int], left: Mapping[str, int | float]) -> tuple[list[int], Row]:
    """The grid of a launch, and its arguments by the parameters' names as `prepared` says."""
    out: Row = {name: {"value": value} for name, value in {**left, **sizes}.items()}
    for name, scalar in binding.scalars.items():
        dtype = binding.dtypes.get(name, "")
        made: Any = scalar if isinstance(scalar, float) else numbers({name: scalar}, binding, sizes)[name]
        out[name] = {"value": bool(made) if dtype == "bool" else float(made) if dtype.startswith(("f", "bf")) else made}
    for name, t in binding.tensors.items():
        out[name] = {"tensor": t.dtype, "elements": _reach(t, binding, sizes)}
    for name, value in binding.metas.items():
        out[name] = {"dtype" if isinstance(value, str) else "value": value}
    out |= {name: {"value": None} for name in binding.absent}
    return list(numbers({str(i): g for i, g in enumerate(binding.grid)}, binding, sizes).values()) or [1], out


def _reach(t: Any, binding: Binding, sizes: Mapping[str, int]) -> int:
    """Elements from the first of a tensor to the last."""
    shape = list(numbers({str(i): d for i, d in enumerate(t.shape)}, binding, sizes).values())
    if t.strides is None:
        return _elements(t.shape, binding, sizes)
    steps = numbers({str(i): d for i, d in enumerate(t.strides)}, binding, sizes).values()
    return 1 + sum((d - 1) * s for d, s in zip(shape, steps, strict=True))
