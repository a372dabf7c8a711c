"""A KIR program as a function of torch tensors: emitted, compiled for the GPU at hand, and launched beside torch in its context and on its stream."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from kir.gate.gpu.images.executable import Executable, bound
from kir.hardware.device.libcuda import Libcuda, Map
from kir.hardware.target import target
from kir.ir.nodes import Program
from kir.surface import backend

SCALARS = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "u32": ctypes.c_uint32, "f32": ctypes.c_float, "bool": ctypes.c_bool}


def launcher(program: Program, tensors: Mapping[str, Any], sizes: Mapping[str, int], surface: str = "cuda", architecture: str = "sm_90a") -> Callable[[], None]:
    """A call without arguments that runs a program by a surface, without workspaces, on contiguous tensors by their names in the program. Raises
    KirError for what is not emitted or does not compile."""
    import torch

    executable = compiled(program, surface, architecture)
    emitted = executable.emitted
    at = bound(program, dict(sizes), {name: tuple(t.shape) for name, t in tensors.items()})
    driver = Libcuda()
    work = []
    for row in executable.launches(emitted, at):
        image = executable.images[row["image"]]
        function = driver.function(image.cubin, image.function, image.dynamic_shared, image.cluster)
        spare = [torch.empty(max(1, size * math.prod(row["grid"])), device="cuda", dtype=torch.uint8) if size else None for size in image.hidden]
        hidden = [ctypes.c_void_p(t.data_ptr() if t is not None else 0) for t in spare]
        work.append((function, row, image, [*(_value(driver, a, tensors) for a in row["arguments"]), *hidden], spare))

    def call() -> None:
        driver.stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        for function, row, image, values, _ in work:
            driver.launch(function, row["grid"], row["threads"], image.dynamic_shared, values, cluster=image.cluster, dependent=row["dependent"])

    return call


@cache
def compiled(program: Program, surface: str = "cuda", architecture: str = "sm_90a") -> Executable:
    """A program, compiled once for a surface."""
    by = backend(surface)
    emitted = by.emit(program)
    return Executable(program, emitted, {Executable.variant(emitted): by.compile(emitted, target(architecture))})


def _value(driver: Libcuda, argument: list[Any], tensors: Mapping[str, Any]) -> Any:
    """An argument of a launch as ctypes passes it."""
    kind, *of = argument
    if kind == "buffer":
        return ctypes.c_void_p(tensors[of[0]].data_ptr())
    if kind == "scalar":
        return SCALARS[of[0]](of[1])
    row = dict(of[0])
    address = tensors[row.pop("of")].data_ptr()
    more = {name: row[name] for name in ("steps", "interleave", "promotion", "nan_fill") if name in row}
    made = driver.tensor_map(row["dtype"], address, row["extents"], row["strides"], row["box"], swizzle=row["swizzle"], **more)
    return Map.from_buffer_copy(made)
