"""Lowers one emitted TileLang module to CUDA: a job and its result are JSON files. It runs in a process of its own (`_served`).

The job: `module` (path of the source), `architecture` (`sm_90a`), `kernels` (function, sizes by name: those that are missing stay open). The
result: `version`, folders of headers that its CUDA includes, and for each kernel the CUDA text, the device function with its launch and its
arguments in order, and flags for nvcc, or the compiler's words.
"""
from __future__ import annotations

import importlib.util
import inspect
import json
import sys
import traceback
from pathlib import Path
from typing import Any

SWIZZLES = (0, 32, 64, 128)
"""Bytes by the driver's number of a swizzle."""
TILED, IM2COL = "__tvm_tensormap_create_tiled", "__tvm_tensormap_create_im2col"


def main(job_path: str, result_path: str) -> None:
    """Lower every kernel of the job and write the result."""
    import tilelang
    from tilelang.env import CUTLASS_INCLUDE_DIR, TILELANG_TEMPLATE_PATH

    job: dict[str, Any] = json.loads(Path(job_path).read_text())
    answer: dict[str, Any] = {"version": tilelang.__version__, "include": [TILELANG_TEMPLATE_PATH, CUTLASS_INCLUDE_DIR]}
    spec = importlib.util.spec_from_file_location("emitted", job["module"])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["emitted"] = module
    kernels: list[dict[str, Any]] = []
    try:
        spec.loader.exec_module(module)
    except Exception as fault:
        kernels.append(_fault(fault, job["module"]))
    else:
        for kernel in job["kernels"]:
            try:
                kernels.append(_lowered(getattr(module, kernel["function"]), kernel["sizes"], job["architecture"]))
            except Exception as fault:
                kernels.append(_fault(fault, job["module"]))
    Path(result_path).write_text(json.dumps({**answer, "kernels": kernels}))


def _lowered(factory: Any, sizes: dict[str, int], architecture: str) -> dict[str, Any]:
    """One kernel: its factory called with the sizes (open ones as dynamic shapes), lowered under an explicit target."""
    import tilelang
    import tilelang.language as T
    from tilelang import tvm

    plain = getattr(factory, "func", factory)
    plain = getattr(plain, "orig_func", plain)
    parameters = inspect.signature(plain).parameters
    values = {x: sizes[x] if x in sizes else T.dynamic(x) for x, p in parameters.items() if x in sizes or p.default is p.empty}
    target = tvm.target.Target({"kind": "cuda", "arch": architecture})
    configs = {str(getattr(k, "value", k)): v for k, v in (getattr(factory, "pass_configs", None) or {}).items()}
    with target:
        func = factory.get_tir(**values) if hasattr(factory, "get_tir") else factory(**values)
    configs = {**_attr(func, "tilelang_pass_configs"), **configs}
    with tvm.transform.PassContext(opt_level=3, config=configs), target:
        made = tilelang.lower(func, target=target)
    devices = list(made.device_mod.functions.items())
    if len(devices) != 1:
        raise ValueError(f"the function holds {len(devices)} kernels")
    (symbol, device), = devices
    hosts = [f for _, f in made.host_mod.functions.items()]
    maps = {str(k.name): list(v) for h in hosts for k, v in _attr(h, "tma_descriptor_args").items()}
    extents = {str(k): v for k, v in _attr(device, "thread_extent").items()}
    threads = 1
    for axis in "xyz":
        threads *= int(extents.get(f"threadIdx.{axis}", 1))
    flags = ["--use_fast_math"] if configs.get("tl.enable_fast_math") else []
    if configs.get("tl.ptxas_register_usage_level") is not None:
        flags.append(f"--ptxas-options=--register-usage-level={int(configs['tl.ptxas_register_usage_level'])}")
    attrs = device.attrs or {}
    cluster = [int(x) for x in attrs["cluster_dims"]] if "cluster_dims" in attrs else []
    return {"source": made.kernel_source, "function": str(symbol.name_hint), "threads": threads, "flags": flags, "cluster": cluster,
            "dynamic_shared": int(attrs.get("dyn_shared_memory_buf", 0)), "cooperative": bool(attrs.get("use_cooperative_groups", False)),
            "arguments": [_argument(p, maps) for p in device.params]}


def _attr(func: Any, name: str) -> Any:
    return func.attrs[name] if func.attrs is not None and name in func.attrs else {}


def _argument(p: Any, maps: dict[str, list[Any]]) -> dict[str, Any]:
    """A parameter of the device function; `open` says why it cannot be passed without more sizes."""
    name = str(p.name)
    if name not in maps:
        pointer = getattr(p.type_annotation, "element_type", None) is not None
        return {"kind": "pointer" if pointer else "scalar", "of": name, "dtype": "" if pointer else str(p.dtype)}
    create, _, dtype, rank, tensor, *rest = maps[name]
    made = str(getattr(create, "value", create))
    if made not in (TILED, IM2COL):
        return {"kind": "map", "of": name, "open": f"its tensor map is made by {create}"}
    try:
        numbers = [int(x) for x in rest]
    except TypeError:
        return {"kind": "map", "of": str(tensor.name), "open": "its tensor map depends on sizes that are not known"}
    count = int(rank)
    *sides, interleave, swizzle, promotion, fill = numbers
    extents, strides, *more = (sides[count * i: count * (i + 1)] for i in range(4 if made == TILED else 3))
    box, steps = more if made == TILED else (sides[-2:], more[0])
    corners = [] if made == TILED else sides[3 * count:-2]
    return {"kind": "map", "of": str(tensor.name), "number": int(dtype), "extents": extents, "strides": strides[1:], "box": box, "steps": steps,
            "interleave": interleave, "swizzle": SWIZZLES[swizzle], "promotion": promotion, "nan_fill": bool(fill),
            "lower": corners[:count - 2], "upper": corners[count - 2:]}


def _fault(fault: BaseException, module: str) -> dict[str, Any]:
    """What the compiler said, and the line of the emitted module that it was read from, or 0."""
    frames = [f for f in traceback.extract_tb(fault.__traceback__) if f.filename == module]
    words = str(fault).strip() or type(fault).__name__
    return {"error": f"{type(fault).__name__}: {words}", "line": int(frames[-1].lineno or 0) if frames else 0}
