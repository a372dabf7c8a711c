"""A PyTorch function as what a kernel must compute: the problem that it makes, in the form of KernelBench, and the binding under which the kernel's tensors
have its names.

The oracle is the function in float64 (`kir.problem.model`); sizes are those of the call that was seen, tensors normally distributed.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import platformdirs

from kir.base.dataclass import dataclass
from kir.base.diagnostic import did_you_mean, error, usage
from kir.base.store import write_atomic
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.types import DTYPES, DType
from kir.problem import load_problem
from kir.surface.reading import as_found, binding_of, load_expert

TORCH = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8",
         "bool": "bool"}
LARGEST = 256
"""What a size is in the problem at most: its oracle runs on the CPU."""


@dataclass(frozen=True)
class Oracle:
    """A function of a file: the folder that it is imported from, its module and name, and its parameters (None where its text is not there)."""

    folder: Path
    module: str
    name: str
    parameters: tuple[str, ...] | None


def is_function(text: str) -> bool:
    """Whether a text names a function as ``module:function`` or ``FILE.py:function``."""
    return re.fullmatch(r"(?:[^:]+\.py|[A-Za-z_][\w.]*):[A-Za-z_]\w*", text) is not None and not Path(text).exists()


def oracle(text: str, beside: Path) -> Oracle:
    """The function of ``module:function``, whose module lies beside a kernel, here, or is installed. Raises :class:`UsageError` KIR-S063."""
    place, _, name = text.rpartition(":")
    files = [Path(place)] if place.endswith(".py") else [folder / f"{place.replace('.', '/')}.py" for folder in (beside, Path())]
    file = next((f.resolve() for f in files if f.is_file()), None)
    if file is None:
        if not place.endswith(".py") and _installed(place):
            return Oracle(Path(), place, name, None)
        raise usage("KIR-S063", f"there is no module {place}", needs="a file beside the kernel or here, or an installed package: module:function")
    try:
        functions = {f.name: f for f in ast.parse(file.read_bytes()).body if isinstance(f, ast.FunctionDef)}
    except SyntaxError as bad:
        raise usage("KIR-S063", f"{file.name} is no Python: {bad.msg}, line {bad.lineno}") from bad
    if name not in functions:
        raise usage("KIR-S063", f"{file.name} has no function '{name}'", attempt=did_you_mean(name, functions))
    f = functions[name]
    root = file.parent if place.endswith(".py") else file.parents[place.count(".")]
    return Oracle(root, file.stem if place.endswith(".py") else place, name, tuple(p.arg for p in (*f.args.posonlyargs, *f.args.args)))


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def problem_of(function: Oracle, program: n.Program, binding: Binding, examples: Mapping[str, int], numbers: Mapping[str, float]) -> tuple[Path, Binding]:
    """The problem's file, and the binding with the problem's names. `examples` are sizes of a call, `numbers` its scalars.

    Raises KirError KIR-S063 for a kernel with several outputs, and for a function whose arguments are not those of the kernel.
    """
    outputs = [p for p in program.params if isinstance(p.of, n.Buffer) and p.role == "out"]
    if len(outputs) != 1:
        raise error("KIR-S063", f"'{program.name}' writes {', '.join(p.name for p in outputs) or 'nothing anew'}", needs="a kernel with one output")
    tensors = [p for p in program.params if isinstance(p.of, n.Buffer) and p.role in ("in", "inout")]
    scalars = [p for p in program.params if isinstance(p.of, DType) and p.role == "scalar" and p.value is None]
    taken = [*tensors, *scalars]
    if function.parameters is not None:
        taken = _matched(function, tensors, scalars)
    own = {t.name or k: k for k, t in binding.tensors.items()}
    sizes = {x: min(examples.get(x, 64), LARGEST) for x in binding.sizes}
    text = _text(function, taken, sizes, numbers)
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    file = Path(platformdirs.user_state_dir("kir")) / "problems" / f"{function.name}-{key}.py"
    write_atomic(file, text)
    renamed = {k: replace(t, name="out") if own.get(outputs[0].name, "") == k and outputs[0].name != "out" else t for k, t in binding.tensors.items()}
    return file, binding.changed(tensors=renamed)


def _matched(function: Oracle, tensors: Sequence[n.Param], scalars: Sequence[n.Param]) -> list[n.Param]:
    """The kernel's parameters in the order of the function's: by name, else tensors and then scalars in turn. Raises KirError KIR-S063."""
    asked = function.parameters or ()
    by_name = {p.name: p for p in (*tensors, *scalars)}
    if all(name in by_name for name in asked):
        return [by_name[name] for name in asked]
    if len(asked) < len(tensors) or len(asked) > len(tensors) + len(scalars):
        raise error("KIR-S063", f"{function.name}({', '.join(asked)}) does not take what the kernel takes: {', '.join(by_name)}",
                    needs="a function of the kernel's inputs, and then of its scalars")
    return [*tensors, *scalars][: len(asked)]


def _text(function: Oracle, taken: Sequence[n.Param], sizes: Mapping[str, int], numbers: Mapping[str, float]) -> str:
    from kir.ir.printer import expr_text

    given, drawn = [], []
    for p in taken:
        given.append(p.name)
        if isinstance(p.of, n.Buffer):
            shape = ", ".join(f"-(-({e[8:-1].rpartition(',')[0]}) // ({e[8:-1].rpartition(',')[2]}))" if e.startswith("ceildiv(") else e
                              for e in (expr_text(d) for d in p.of.shape))
            dtype = TORCH.get(p.of.dtype.name)
            if dtype is None:
                raise error("KIR-S063", f"'{p.name}' is {p.of.dtype.name}, which PyTorch does not draw", needs=f"one of {', '.join(TORCH)}")
            made = f"torch.randn({shape}).to(torch.{dtype})" if DTYPES[p.of.dtype.name].is_float else f"torch.randint(0, 2, ({shape},)).to(torch.{dtype})"
            drawn.append(made)
        else:
            drawn.append(repr(numbers.get(p.name, 1.0 if isinstance(p.of, DType) and p.of.is_float else 1)))
    lines = ["import sys", f"sys.path.insert(0, {str(function.folder.resolve())!r})", "import torch", f"from {function.module} import {function.name}", "",
             *(f"{name} = {value}" for name, value in sizes.items()), "", "",
             "class Model(torch.nn.Module):", f"    def forward(self, {', '.join(given)}):", f"        return {function.name}({', '.join(given)})", "", "",
             "def get_inputs():", f"    return [{', '.join(drawn)}]", "", "", "def get_init_inputs():", "    return []", ""]
    return "\n".join(lines)


def named_for(file: str, problem: str) -> tuple[str, Path | Binding | None]:
    """The problem at the kernel's dtype, and the binding that the kernel is read under for it where nobody names one; None where it needs none, or has
    none."""
    shipped = binding_of(file, None, problem)
    if file.endswith(".kir") or shipped is not None:
        return problem, shipped
    found = as_found(file)[0]
    return in_names_of(found.binding, load_expert(file, found.binding).program, problem) if found is not None else (problem, None)


def in_names_of(binding: Binding, program: n.Program, problem: str) -> tuple[str, Binding]:
    """The problem, at the dtype of the kernel's first input where it offers that, and the binding with the problem's names for tensors, where there are as
    many inputs and outputs of the same numbers of axes, those left out that the problem does not need: names that are equal but for capitals first, others
    in the order of both."""
    known = load_problem(problem)
    spec = known.spec
    first = next((p.of.dtype.name for p in program.params if isinstance(p.of, n.Buffer) and p.role in ("in", "inout")), "")
    if ":" not in problem and first in spec.dtypes and first != spec.dtypes[0]:
        problem = f"{problem}:{first}"
    names: dict[str, str] = {}
    sizes: dict[str, set[str]] = {}
    for roles in (("in", "inout"), ("out",)):
        own = [p for p in program.params if isinstance(p.of, n.Buffer) and p.role in roles]
        theirs = [t for t in spec.tensors if t.role in roles]
        theirs = theirs if len(own) == len(theirs) else [t for t in theirs if not t.optional]
        alike = {p.name: t for p in own for t in theirs if p.name.lower() == t.name.lower()}
        rest = iter([t for t in theirs if t not in alike.values()])
        pairs = [(p, alike[p.name] if p.name in alike else next(rest, None)) for p in own]
        if len(own) != len(theirs) or any(t is None or (isinstance(p.of, n.Buffer) and len(p.of.shape) != len(t.shape)) for p, t in pairs):
            return problem, binding
        names |= {p.name: t.name for p, t in pairs if t is not None}
        for d, text in ((d, text) for p, t in pairs if t is not None and isinstance(p.of, n.Buffer) for d, text in zip(p.of.shape, t.shape, strict=True)):
            if isinstance(d, n.Var) and re.fullmatch(r"[A-Za-z]\w*", text):
                sizes.setdefault(d.name, set()).add(text)
    named = binding.changed(tensors={k: replace(t, name=names.get(t.name or k, t.name)) for k, t in binding.tensors.items()})
    return problem, _with_sizes(named, {x: next(iter(texts)) for x, texts in sizes.items() if len(texts) == 1})


def _with_sizes(binding: Binding, to: Mapping[str, str]) -> Binding:
    """The binding with other names for its sizes, where these are its own to choose: each says all that it says of tensors, and nothing else has one."""
    used = {*binding.sizes, *binding.metas, *binding.tensors, *binding.arrays, *binding.maps}
    used |= {k for k, v in binding.scalars.items() if v != to.get(str(v)) and to.get(str(v)) != k}
    to = {x: name for x, name in to.items() if x in binding.sizes and x != name}
    if not binding.tensors or binding.heuristics or not to or len({*to.values()}) < len(to) or {*to.values()} & (used - to.keys()):
        return binding

    def renamed(text: object) -> Any:
        return re.sub(r"\b[A-Za-z_]\w*", lambda word: to.get(word[0], word[0]), text) if isinstance(text, str) else text
    tensors = {k: replace(t, shape=[*map(renamed, t.shape)], strides=None if t.strides is None else [*map(renamed, t.strides)])
               for k, t in binding.tensors.items()}
    unsaid = frozenset(renamed(fact) for fact in binding.unsaid)
    return binding.changed(
        sizes=[*map(renamed, binding.sizes)], facts=[*map(renamed, binding.facts)], grid=[*map(renamed, binding.grid)], tensors=tensors,
        scalars={k: renamed(v) for k, v in binding.scalars.items()}).assuming(unsaid).joining(
            frozenset((*pair[:2], *map(renamed, pair[2:])) for pair in binding.joined))
