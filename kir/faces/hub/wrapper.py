"""Host code of a Triton kernel for people who have tensors: a function that checks them, allocates what comes out, and launches."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kir.base.diagnostic import error
from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.ir.rebuild.plans import has_dispatch, launches
from kir.ir.types import DType
from kir.surface import Argument, Emitted, Entry

TORCH = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8",
         "bool": "bool", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}
"""Names of dtypes in torch."""
WORDS = frozenset({"ceildiv", "min", "max"})


def wrapper(program: n.Program, emitted: Emitted) -> str:
    """The module that calls the kernels of `emitted`, which stand in `kernels.py` beside it. Raises KirError KIR-C011 for a program whose launches it cannot
    write: guarded versions, tensors that are not dense, an extent that no input gives."""
    if has_dispatch(program) or program.tensor_maps:
        raise error("KIR-C011", f"'{program.name}' is launched in a way that the hub's wrapper does not write", needs="one version, without tensor maps")
    tensors = [(p, p.of) for p in program.params if isinstance(p.of, n.Buffer)]
    given = [(p.name, b) for p, b in tensors if p.role != "out"]
    made = [(p.name, b) for p, b in tensors if p.role == "out"]
    scalars = [p for p in program.params if isinstance(p.of, DType) and p.role == "scalar" and p.value is None]
    sizes = [p.name for p in program.params if p.role == "size" and p.value is None]
    found = _extents(given, sizes)
    open_ = [name for name in sizes if name not in found]
    arguments = [*(name for name, _ in given), *(p.name for p in scalars), *open_]
    body = [*_checked(given, found), *(f"{name} = {place}" for name, place in found.items()), *_shapes(given), *_facts(program)]
    body += [f"{p.name} = {_python(p.value)}" for p in program.params if p.value is not None]
    body += [f"{name} = torch.empty({_shape(b)}, dtype=torch.{_dtype(b)}, device={given[0][0]}.device)" for name, b in made]
    body += [_workspace(w, given[0][0]) for w in program.workspaces]
    entries = {entry.kernel: entry for entry in emitted.entries}
    body += [_launched(entries[step.kernel]) for step in launches(program)]
    if made:
        body.append(f"return {', '.join(name for name, _ in made)}")
    named = public(program)
    names = {*arguments, *sizes, *(name for name, _ in made), *(w.buffer.name for w in program.workspaces)}
    if taken := {"torch", "triton", "kernels", "TensorDescriptor", "ceildiv", named} & names:
        raise error("KIR-C011", f"'{min(taken)}' is a name that the host code needs itself", needs="another name of that parameter")
    head = ['"""Written by KIR. `record/` says where it comes from and how it was judged."""', "import torch", "import triton", "",
            "from . import kernels", "", f'__all__ = ["{named}"]', "", "", "def ceildiv(a, b):", "    return -(-a // b)", "", ""]
    if "make_tensor_descriptor" in emitted.text:
        head += ["def _memory(size, alignment, stream):", '    return torch.empty(size, dtype=torch.int8, device="cuda")', "", ""]
        body.insert(0, "triton.set_allocator(_memory)")
    if any(a.shown for entry in emitted.entries for a in entry.arguments):
        head.insert(head.index("import triton") + 1, "from triton.tools.tensor_descriptor import TensorDescriptor")
    told = [f"{name}: {b.dtype}[{_shape(b)[1:-2]}]" for name, b in [*given, *made]]
    says = f'"""{", ".join(told)}."""'
    return "\n".join([*head, f"def {named}({', '.join(arguments)}):", f"    {says}", *(f"    {row}" for row in body), ""])


def public(program: n.Program) -> str:
    """The name of the function that calls a program."""
    return program.name.strip("_") if program.name.strip("_").isidentifier() else "kernel"


def _extents(given: list[tuple[str, n.Buffer]], sizes: list[str]) -> dict[str, str]:
    """Each size that is an extent of an input, and where."""
    out: dict[str, str] = {}
    for name, b in given:
        for axis, extent in enumerate(b.shape):
            if isinstance(extent, n.Var) and extent.name in sizes:
                out.setdefault(extent.name, f"{name}.shape[{axis}]")
    return out


def _checked(given: list[tuple[str, n.Buffer]], found: dict[str, str]) -> Iterator[str]:
    if not given:
        raise error("KIR-C011", "the kernel has no input, so there is no device to run it on")
    for name, b in given:
        if b.strides is not None or b.layout is not None:
            raise error("KIR-C011", f"'{name}' is not dense and row-major", needs="tensors that are")
        yield f"if {name}.dtype != torch.{_dtype(b)} or {name}.dim() != {len(b.shape)} or not {name}.is_contiguous():"
        yield f'    raise ValueError("{name} is to be a contiguous tensor of {len(b.shape)} axes, of torch.{_dtype(b)}")'


def _shapes(given: list[tuple[str, n.Buffer]]) -> Iterator[str]:
    for name, b in given:
        yield f"if tuple({name}.shape) != {_shape(b)}:"
        yield f'    raise ValueError(f"{name} has the shape {{tuple({name}.shape)}}, and {{{_shape(b)}}} is wanted")'


def _facts(program: n.Program) -> Iterator[str]:
    for fact in program.facts:
        yield f"if not ({_python(fact)}):"
        yield f'    raise ValueError("{expr_text(fact)} does not hold")'


def _workspace(w: n.Workspace, like: str) -> str:
    shape, dtype = _shape(w.buffer), _dtype(w.buffer)
    if w.init is None:
        return f"{w.buffer.name} = torch.empty({shape}, dtype=torch.{dtype}, device={like}.device)"
    return f"{w.buffer.name} = torch.full({shape}, {_python(w.init)}, dtype=torch.{dtype}, device={like}.device)"


def _launched(e: Entry) -> str:
    options = "".join(f", {name}={value!r}" for name, value in e.options if name in ("num_warps", "num_stages", "maxnreg"))
    grid = ", ".join(_python(extent) for extent in e.grid)
    return f"kernels.{e.function}[({grid},)]({', '.join(map(_passed, e.arguments))}{options})"


def _passed(a: Argument) -> str:
    return a.source if a.shown is None else f"TensorDescriptor.from_tensor({a.source}.view{_shape(a.shown)}, {list(a.box)})"


def _shape(b: n.Buffer) -> str:
    return f"({', '.join(_python(d) for d in b.shape)},)"


def _dtype(b: n.Buffer) -> str:
    if str(b.dtype) not in TORCH:
        raise error("KIR-C011", f"'{b.name}' is of {b.dtype}, which torch has not")
    return TORCH[str(b.dtype)]


def _python(e: n.Expr) -> str:
    """An expression over sizes in Python, which spells them as the IR does; what it spells otherwise is refused."""
    text = expr_text(e)
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        tree = None
    calls = {x.func.id if isinstance(x.func, ast.Name) else "" for x in ast.walk(tree) if isinstance(x, ast.Call)} if tree is not None else {""}
    if tree is None or not calls <= WORDS:
        raise error("KIR-C011", f"'{text}' cannot be said in host code")
    return text
