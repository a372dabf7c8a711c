"""A KIR program as a function of torch tensors: emitted, compiled for the GPU at hand, and launched beside torch in its context and on its stream."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from kir.analysis import accesses
from kir.gate.gpu.images.executable import Executable, bound
from kir.hardware.device.libcuda import Libcuda, Map
from kir.hardware.target import target
from kir.ir import nodes as n
from kir.ir.build import const
from kir.ir.nodes import Program
from kir.ir.rebuild.plans import launches, made
from kir.surface import Backend, Emitted, Image, backend

SCALARS = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "u32": ctypes.c_uint32, "f32": ctypes.c_float, "bool": ctypes.c_bool}


def launcher(program: Program, tensors: Mapping[str, Any], sizes: Mapping[str, int], executable: Executable | None = None) -> Callable[[], None]:
    """A call without arguments that runs a program on contiguous tensors by their names in the program; workspaces are its own. `executable` is what it was
    compiled to before, of whatever surface, otherwise that is CUDA. Raises KirError for what is not emitted or does not compile."""
    import torch

    executable = executable or compiled(program)
    emitted = executable.emitted
    at = bound(program, dict(sizes), {name: tuple(t.shape) for name, t in tensors.items()})
    driver = _driver()
    held = {w.buffer.name: torch.empty(at.layouts[w.buffer.name].size, device="cuda", dtype=torch.uint8) for w in program.workspaces}
    fills = [
        (held[m["name"]].view({1: torch.int8, 2: torch.int16, 4: torch.int32}[len(p)]), int.from_bytes(p, "little", signed=True))
        for m in executable.memsets(at)
        for p in (bytes.fromhex(m["pattern"]),)
    ]
    tensors = {**tensors, **held}
    work: list[tuple[Any, ...]] = []
    early = begins_early(program, {name: const(v) for name, v in at.values.items()})
    kept: list[Any] = [tensors]  # as long as the call: the addresses that it passes hold nothing
    for row in executable.launches(emitted, at):
        image = executable.images[row["image"]]
        values = [_value(driver, a, tensors) for a in row["arguments"]]
        scratch = [torch.empty(each * math.prod(row["grid"]), dtype=torch.uint8, device="cuda") if each else None for each in image.hidden]
        kept.append(scratch)
        work.append((kept, _function(image), row, image, [*values, *(ctypes.c_void_p(x.data_ptr() if x is not None else 0) for x in scratch)]))

    def call() -> None:
        driver.stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        for where, value in fills:
            where.fill_(value)
        for number, (_, function, row, image, values) in enumerate(work):
            driver.launch(function, row["grid"], row["threads"], image.dynamic_shared, values, cluster=image.cluster,
                          dependent=row["dependent"] or (early and not number))

    return call


def begins_early(program: Program, sizes: Mapping[str, n.Expr]) -> bool:
    """Whether the first kernel of a call with these sizes may begin before what is ahead of it in the stream has ended: it asks to, and touches no memory of
    others before it waits."""
    step = next(step for step, taken in zip(launches(program), made(program, sizes), strict=True) if taken)
    body = next(k.body for k in program.kernels if k.name == step.kernel)
    waits = [i for i, s in enumerate(body) if isinstance(s, n.Eval) and s.call.fn == "grid_dependency_wait"]
    outside = {p.of.name for p in program.params if isinstance(p.of, n.Buffer)} | {w.buffer.name for w in program.workspaces}
    return bool(dict(step.attrs).get("pdl")) and bool(waits) and not any(a.buffer in outside for s in body[:waits[0]] for a in accesses(s))


_KEPT: ContextVar[Executable | None] = ContextVar("kept", default=None)


@contextmanager
def compiled_already(executable: Executable | None) -> Iterator[None]:
    """Inside, what is emitted as that executable was is taken from it and not compiled again: whoever asks says that the compilers are the same."""
    token = _KEPT.set(executable)
    try:
        yield
    finally:
        _KEPT.reset(token)


@cache
def compiled(program: Program, surface: str = "cuda", architecture: str = "sm_90a") -> Executable:
    """A program, compiled once for a surface."""
    by = backend(surface)
    return _compiled(program, by, by.emit(program), architecture)


def compiled_for(program: Program, surface: str, sizes: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]], architecture: str = "sm_90a") -> Executable:
    """A program of any surface, compiled as its launcher takes it at these sizes, of the program and of its tensors by name. Raises KirError."""
    by = backend(surface)
    at = bound(program, dict(sizes), shapes)
    emitted = by.launched_with(by.emit(program), {name: int(value) for name, value in at.values.items() if not isinstance(value, float)})
    return _compiled(program, by, emitted, architecture)


def _compiled(program: Program, by: Backend, emitted: Emitted, architecture: str) -> Executable:
    before = _KEPT.get()
    if before is not None and (before.program, before.emitted) == (program, emitted):
        return before
    return Executable(program, emitted, {Executable.variant(emitted): by.compile(emitted, target(architecture))})


@cache
def _driver() -> Libcuda:
    return Libcuda()


_FUNCTIONS: dict[tuple[bytes, str], ctypes.c_void_p] = {}


def _function(image: Image) -> ctypes.c_void_p:
    """A kernel of an image, loaded once."""
    key = image.cubin, image.function
    if key not in _FUNCTIONS:
        _FUNCTIONS[key] = _driver().function(image.cubin, image.function, image.dynamic_shared, image.cluster)
    return _FUNCTIONS[key]


def _value(driver: Libcuda, argument: list[Any], tensors: Mapping[str, Any]) -> Any:
    """An argument of a launch as ctypes passes it."""
    kind, *of = argument
    if kind == "buffer":
        return ctypes.c_void_p(tensors[of[0]].data_ptr())
    if kind == "scalar":
        return SCALARS[of[0]](of[1])
    row = dict(of[0])
    address = tensors[row.pop("of")].data_ptr()
    if row.get("mode") == "im2col":
        places = [row.pop(key) for key in ("dtype", "extents", "strides", "lower", "upper", "channels", "pixels")]
        del row["mode"]
        made = driver.tensor_map_im2col(places[0], address, *places[1:], **row)
    else:
        places = [row.pop(key) for key in ("dtype", "extents", "strides", "box")]
        made = driver.tensor_map(places[0], address, *places[1:], **row)
    return Map.from_buffer_copy(made)
