"""A faster kernel beside the package's own: launches that are as a recorded one go to it, all others to the kernel that is there.

A kernel that was read as it was launched knows its sizes and compile-time values, and may have been made faster by them. So the package's kernel stays,
with one decorator more, which looks at each launch; what was found lies in a file of its own beside the package's.
"""
from __future__ import annotations

import ast
import math
import pprint
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.gate.gpu.images.executable import bound
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.build import const, int_value
from kir.ir.rebuild.plans import made
from kir.ir.types import DType
from kir.ir.visit import substitute
from kir.learning.corpus.launch import DTYPES, TRITON
from kir.learning.packages.calls import Call
from kir.surface import backend
from kir.surface.edits.splice import Splice

HEAD = '''"""Made by `kir optimize --package`: {what}.

{story}
"""
'''
TAIL = '''

_NAMES = {names}
"""What dtypes are called by those who launch."""
_CALL = {call}
"""The launch that the kernels above were made for."""
_STEPS = {steps}
"""What is launched in its place: function, grid, arguments, options."""
_SPACES = {spaces}
"""Memory of its own: elements, dtype, what it holds first."""


def _word(value):
    return value if value is None or isinstance(value, (bool, int, float, str)) else _NAMES.get(str(value).rpartition(".")[2], str(value))


def _is_tensor(value, of):
    return (hasattr(value, "data_ptr") and str(value.dtype) == of["dtype"] and (list(value.shape) or [1]) == of["shape"]
            and all(a == b or d == 1 for a, b, d in zip(value.stride(), of["strides"], of["shape"])) and value.data_ptr() % of["align"] == 0)


def _as_recorded(given):
    """Whether a launch is the one that was recorded: its numbers, its tensors' dtypes and layouts, nothing written that another tensor shares."""
    for name, value in _CALL["values"].items():
        if name not in given or _word(given[name]) != value or isinstance(given[name], bool) != isinstance(value, bool):
            return False
    if any(given.get(name) is not None for name in _CALL["absent"]) or any(given.get(k, v) != v for k, v in _CALL["options"].items()):
        return False
    if not all(_is_tensor(given.get(name), of) for name, of in _CALL["tensors"].items()):
        return False
    memory = {{name: given[name].untyped_storage().data_ptr() for name in _CALL["tensors"]}}
    return not any(memory[name] == at for name in _CALL["written"] for other, at in memory.items() if other != name)


def _launch(given):
    import torch

    spaces = {{name: torch.full((size,), first, dtype=getattr(torch, dtype), device=given[next(iter(_CALL["tensors"]))].device)
              for name, (size, dtype, first) in _SPACES.items()}}
    for name, grid, arguments, options in _STEPS:
        done = globals()[name][grid](*(spaces.get(a, given.get(a)) if kind == "pointer" else a for kind, a in arguments), **options)
    return done


def recorded(fn):
    """A Triton kernel whose launches, where they are as the recorded one, launch what is above instead."""
    if not hasattr(fn, "run") or not hasattr(fn, "params"):
        return fn
    plain, names = fn.run, [p.name for p in fn.params]
    defaults = {{p.name: p.default for p in fn.params if p.has_default}}

    def run(*args, grid, warmup, **kwargs):
        given = {{**defaults, **dict(zip(names, args)), **kwargs}}
        at = grid(given) if callable(grid) else grid
        at = list(at) if isinstance(at, (tuple, list)) else [at]
        if not warmup and [*at, 1, 1][:3] == _CALL["grid"] and _as_recorded(given):
            return _launch(given)
        return plain(*args, grid=grid, warmup=warmup, **kwargs)

    fn.run = run
    return fn
'''


@dataclass(frozen=True)
class Twin:
    """A faster kernel as text: the `module` that holds it, beside the `file` of the package's, and the splices that the package's file needs."""

    file: str
    kernel: str
    module: str
    text: str
    before: str
    splices: tuple[Splice, ...]


def twin(call: Call, program: n.Program, story: str) -> Twin:
    """What is found for a call as text. Raises KirError KIR-U033 for a kernel whose decorators are not found, and for a program that no launch from Python
    says; and what Triton's backend refuses."""
    emitted = backend("triton").emit(program)
    module = f"_kir_{call.kernel.strip('_')}_{emitted.program[:8]}"
    told = story.replace('"""', "'''").replace("\\", "/")
    text = HEAD.format(what=f"{call.kernel} of {call.file.name}, as it was launched where it was recorded", story=told)
    tail = TAIL.format(names=_shown({**TRITON, **DTYPES}), call=_shown(_recorded(call.bound(), program)), steps=_shown(_steps(program, emitted)),
                       spaces=_shown(_spaces(program)))
    before = call.file.read_text(encoding="utf-8")
    return Twin(str(call.file), call.kernel, module, text + emitted.text.rstrip() + "\n" + tail, before, _decorated(call, before, module))


def _shown(value: object) -> str:
    return pprint.pformat(value, width=140, sort_dicts=False)


def _recorded(binding: Binding, program: n.Program) -> dict[str, Any]:
    """What a launch must be like: numbers, tensors with their layouts, the grid."""
    torch_names = {ours: theirs for theirs, ours in DTYPES.items()}
    tensors = {}
    for name, t in binding.tensors.items():
        shape = [int(d) for d in t.shape]
        strides = [int(s) for s in t.strides] if t.strides is not None else [math.prod(shape[i + 1:]) for i in range(len(shape))]
        tensors[name] = {"shape": shape, "strides": strides, "dtype": f"torch.{torch_names[str(t.dtype)]}", "align": t.align}
    written = [p.name for p in program.params if isinstance(p.of, n.Buffer) and p.role in ("out", "inout") and p.name in tensors]
    grid = ([int(g) for g in binding.grid] + [1, 1])[:3]
    scalars = {k: bool(v) if binding.dtypes.get(k) == "bool" else v for k, v in binding.scalars.items()}
    return {"values": {**binding.metas, **scalars}, "absent": [*binding.absent], "options": dict(binding.options), "tensors": tensors,
            "written": written, "grid": grid}


def _steps(program: n.Program, emitted: Any) -> list[tuple[str, tuple[int, ...], list[tuple[str, Any]], dict[str, Any]]]:
    """The launches in their order, with everything known. Raises KirError KIR-U033."""
    at = bound(program, {}, {})
    known = {p.name: const(at.values[p.name], p.of) for p in program.params if isinstance(p.of, DType) and p.name in at.values}
    entries = [e for e, wanted in zip(emitted.entries, made(program, known), strict=True) if wanted]
    out = []
    for e in entries:
        grid = [int_value(substitute(extent, known)) for extent in e.grid]
        if None in grid or any(a.kind == "map" for a in e.arguments):
            raise error("KIR-U033", f"a launch of '{e.function}' needs more than tensors and numbers", needs="a result that Python can launch")
        arguments = [("pointer", a.source) if a.kind == "pointer" else ("number", at.values[a.source]) for a in e.arguments]
        out.append((e.function, tuple(g for g in grid if g is not None), arguments, dict(e.options)))
    return out


def _spaces(program: n.Program) -> dict[str, tuple[int, str, int | float]]:
    """Workspaces of a program: elements, torch's dtype, the first value."""
    if not program.workspaces:
        return {}
    torch_names, at = {ours: theirs for theirs, ours in DTYPES.items()}, bound(program, {}, {})
    return {w.buffer.name: (at.layouts[w.buffer.name].span, torch_names[at.layouts[w.buffer.name].dtype], w.init.value if isinstance(w.init, n.Const) else 0)
            for w in program.workspaces}


def _decorated(call: Call, text: str, module: str) -> tuple[Splice, ...]:
    """The kernel with one decorator more, right above the one that makes it a kernel, and the import of that. Raises KirError KIR-U033."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == call.kernel and node.decorator_list:
            first, last = (starts[d.lineno - 1] for d in (node.decorator_list[0], node.decorator_list[-1]))
            package = "." if (call.file.parent / "__init__.py").is_file() else ""
            imported, decorator = f"from {package}{module} import recorded as {module}\n\n\n", f"@{module}\n"
            return (Splice(first, first, imported + decorator),) if first == last else (Splice(first, first, imported), Splice(last, last, decorator))
    raise error("KIR-U033", f"{call.file.name} does not define '{call.kernel}' where a decorator can be put above it",
                needs="a function of the module with the decorator that makes it a kernel")


__all__ = ["Twin", "twin"]
