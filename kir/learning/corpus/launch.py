"""One launch of a Triton kernel, as a binding: what its parameters were, and the grid."""
from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from kir.base.dataclass import dataclass
from kir.ir.binding import Binding, Setting, Tensor

DTYPES = {
    "bool": "bool", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32",
    "uint64": "u64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2", "float8_e4m3fnuz": "f8e4m3fnuz",
}
"""IR dtypes by torch's names."""
TRITON = {
    "int1": "bool", "fp16": "f16", "bf16": "bf16", "fp32": "f32", "fp64": "f64", "fp8e4nv": "f8e4m3", "fp8e5": "f8e5m2", "fp8e4b8": "f8e4m3fnuz",
    **{f"{k}int{b}" if k else f"int{b}": f"{k or 'i'}{b}" for k in ("", "u") for b in (8, 16, 32, 64)},
}
"""IR dtypes by the names of triton.language."""


class Unbound(Exception):
    """An argument that no binding can hold; the text says which and why."""


@dataclass(frozen=True)
class Launch:
    """`tensors` and other `values` by parameter; `metas` are the constexpr ones. `grid` has one to three extents."""

    file: str
    kernel: str
    grid: tuple[int, ...]
    tensors: Mapping[str, Any]
    values: Mapping[str, Any]
    metas: Mapping[str, Any]
    options: Mapping[str, Setting] = field(default_factory=dict)


def launch_of(fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], grid: Any) -> Launch:
    """What `JITFunction.run` was called with. Raises Unbound for arguments that are no numbers, tensors, texts or dtypes."""
    names = [p.name for p in fn.params]
    given: dict[str, Any] = dict(zip(names, args))
    given.update({k: v for k, v in kwargs.items() if k in names})
    for p in fn.params:
        if p.name not in given and p.has_default:
            given[p.name] = p.default
    missing = [x for x in names if x not in given]
    if missing:
        raise Unbound(f"no argument for '{missing[0]}'")
    tensors, values, metas = {}, {}, {}
    for p in fn.params:
        v = _unwrapped(given[p.name])
        if p.is_constexpr:
            metas[p.name] = _meta(p.name, v)
        elif is_tensor(v):
            tensors[p.name] = tensor_of(p.name, v)
        elif v is None or isinstance(v, (int, float, bool)):
            values[p.name] = v
        else:
            raise Unbound(f"'{p.name}' is a {type(v).__name__}")
    extents = grid(dict(given)) if callable(grid) else grid
    extents = tuple(int(x) for x in (extents if isinstance(extents, (tuple, list)) else (extents,)))
    options = {k: v for k, v in kwargs.items() if k not in names and isinstance(v, (int, float, bool, str))}
    return Launch(inspect.getsourcefile(fn.fn) or "", fn.fn.__name__, extents, tensors, values, metas, options)


def _unwrapped(v: Any) -> Any:
    return v.value if type(v).__name__ == "constexpr" else v


def is_tensor(v: Any) -> bool:
    """Whether a launch takes a value for a tensor: one, or what stands for one."""
    return hasattr(v, "data_ptr") and hasattr(v, "stride")


def tensor_of(name: str, v: Any) -> Any:
    """A tensor; of what only stands for one (a shape, strides and dtype over another's memory) the tensor that it is. Raises Unbound."""
    import torch

    if isinstance(v, torch.Tensor):
        return v
    base = getattr(v, "_base", getattr(v, "base", None))
    if not isinstance(base, torch.Tensor) or not isinstance(getattr(v, "dtype", None), torch.dtype):
        raise Unbound(f"'{name}' is a {type(v).__name__}")
    if any(step < 0 for step in v.stride()):
        raise Unbound(f"'{name}' has negative strides")
    storage = base.untyped_storage()
    made = torch.empty(0, dtype=v.dtype, device=base.device)
    return made.set_(storage, (v.data_ptr() - storage.data_ptr()) // v.dtype.itemsize, tuple(v.shape), tuple(v.stride()))


def _meta(name: str, v: Any) -> Setting | None:
    if v is None or isinstance(v, (int, float, bool, str)):
        return v
    if type(v).__name__ == "dtype" and str(v) in TRITON:
        return TRITON[str(v)]
    raise Unbound(f"the constexpr '{name}' is a {type(v).__name__}")


def extent(t: Any) -> int:
    """Elements from the first of a tensor to the end of its memory, which is what a pointer to it may reach."""
    return int(t.untyped_storage().nbytes()) // int(t.element_size()) - int(t.storage_offset())


def dtype_of(t: Any) -> str:
    """The IR dtype of a tensor. Raises Unbound."""
    name = str(t.dtype).rpartition(".")[2]
    if name not in DTYPES:
        raise Unbound(f"a tensor of {name}")
    return DTYPES[name]


def passed(v: Any) -> tuple[str, tuple[int, ...], tuple[int, ...]] | int | float | bool | None:
    """An argument of a call as a reader of host code takes it: a tensor as its dtype, shape and strides."""
    if is_tensor(v):
        return (DTYPES.get(str(v.dtype).rpartition(".")[2], ""), tuple(int(d) for d in v.shape), tuple(int(s) for s in v.stride()))
    return v if isinstance(v, (bool, int, float)) or v is None else None


def binding_of(launch: Launch, flat: bool = False) -> Binding:
    """The binding that the launch was; `flat`: tensors as the memory that they span, which is how a kernel addresses them."""
    tensors = {}
    for name, t in launch.tensors.items():
        dense = bool(t.is_contiguous())
        shape: list[str | int] = [extent(t)] if flat else [int(d) for d in t.shape] or [1]
        strides: list[str | int] | None = None if flat or dense else [int(d) for d in t.stride()]
        align = 16 if t.data_ptr() % 16 == 0 else int(t.element_size())
        tensors[name] = Tensor(shape=shape, dtype=dtype_of(t), strides=strides, align=align)
    absent = [k for k, v in {**launch.values, **launch.metas}.items() if v is None]
    dtypes = {k: _scalar_dtype(v) for k, v in launch.values.items() if v is not None}
    return Binding(
        kernel=launch.kernel, recorded=True, grid=list(launch.grid), absent=absent,
        metas={k: v for k, v in launch.metas.items() if v is not None},
        scalars={k: int(v) if isinstance(v, bool) else v for k, v in launch.values.items() if v is not None},
        dtypes=dtypes, tensors=tensors, options={k: v for k, v in launch.options.items() if k in ("num_warps", "num_stages", "num_ctas", "maxnreg")})


def _scalar_dtype(v: Any) -> str:
    if isinstance(v, bool):
        return "bool"
    if isinstance(v, float):
        return "f32"
    return "i32" if -(2**31) <= v < 2**31 else "i64"
