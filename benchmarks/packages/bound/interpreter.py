"""Triton's own interpreter, mended where it is not as the compiler is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SAME = ("tanh", "erf", "erfc", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "exp", "exp2", "expm1", "log", "log2",
        "log10", "log1p", "sqrt", "rsqrt", "floor", "ceil", "trunc", "lgamma", "erfinv", "atan2", "fmod", "pow", "hypot", "copysign", "isnan", "isinf")
"""Functions of libdevice that torch calls the same."""
OTHER = {"rint": "round", "nearbyint": "round", "fabs": "abs", "abs": "abs", "fast_expf": "exp", "fast_exp2f": "exp2", "fast_logf": "log", "fast_log2f": "log2",
         "fast_sinf": "sin", "fast_cosf": "cos", "fast_powf": "pow", "fast_dividef": "div", "div_rn": "div", "fdiv_rn": "div", "sqrt_rn": "sqrt",
         "rsqrt_rn": "rsqrt", "finitef": "isfinite", "isfinited": "isfinite", "max": "fmax", "min": "fmin", "fmax": "fmax", "fmin": "fmin"}
"""Those that it calls otherwise."""


def mend_interpreter() -> None:
    """Triton's interpreter as the compiler is: a float that is passed is a tensor of float32, a tensor of one element an index, and conversions between
    floats round to the nearest even (its own carry nothing into the exponent, and cut what becomes bfloat16), to eight bits no further than the largest."""
    import ml_dtypes
    import numpy as np
    import triton.language as tl
    import triton.runtime.interpreter as its
    from triton.backends import backends
    from triton.language.extra import libdevice
    from triton.language.extra.cuda import libdevice as cuda_libdevice

    for backend in backends.values():
        backend.driver.is_active = staticmethod(lambda own=backend.driver: own.__module__.endswith("nvidia.driver"))  # packages ask before they use Triton
    plain, patched, convert = its._implicit_cvt, its._patch_lang_tensor, its._convert_float
    kept: dict[str, Any] = {"fp64": np.float64, "fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp8e4nv": ml_dtypes.float8_e4m3fn,
                            "fp8e5": ml_dtypes.float8_e5m2}

    def converted(arg: Any) -> Any:
        return tl.tensor(its.TensorHandle(np.array([arg], np.float32), tl.float32), tl.float32) if isinstance(arg, float) else plain(arg)

    def patch(tensor: Any, scope: Any) -> None:
        patched(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    def rounded(data: Any, before: Any, after: Any, mode: Any) -> Any:
        if str(before) not in kept or str(after) not in kept or "RTZ" in str(mode):
            return convert(data, before, after, mode)
        values = np.ascontiguousarray(data).view(kept[str(before)]).astype(np.float64)
        if str(after).startswith("fp8"):
            most = float(ml_dtypes.finfo(kept[str(after)]).max)
            values = np.clip(values, -most, most)
        return values.astype(kept[str(after)]).view(getattr(np, f"uint{after.primitive_bitwidth}"))
    its._implicit_cvt, its._patch_lang_tensor, its._convert_float = converted, patch, rounded
    tl.dtype.__call__ = lambda self, value, _semantic=None: (value if isinstance(value, tl.tensor) else its._implicit_cvt(value)).to(self)
    for module in (libdevice, cuda_libdevice):
        for name, made in _functions().items():
            if hasattr(module, name):
                setattr(module, name, made)


@contextmanager
def backwards() -> Iterator[None]:
    """Triton's interpreter takes the programs of a grid last first."""
    from triton.runtime.interpreter import interpreter_builder as of

    forth = of.set_grid_idx
    of.set_grid_idx = lambda *at: forth(*(most - 1 - i for most, i in zip(of.grid_dim, at, strict=True)))
    try:
        yield
    finally:
        of.set_grid_idx = forth


def _functions() -> dict[str, Callable[..., Any]]:
    """The functions of libdevice, which Triton's interpreter has not, by torch on the CPU."""
    import numpy as np
    import torch
    import triton.language as tl
    import triton.runtime.interpreter as its

    def made(word: str) -> Callable[..., Any]:
        def call(*given: Any, _semantic: Any = None) -> Any:
            tensors = [x if isinstance(x, tl.tensor) else its._implicit_cvt(float(getattr(x, "value", x))) for x in given]
            of = next(x for x in tensors if x.shape or all(not y.shape for y in tensors))
            if of.dtype.scalar not in (tl.float32, tl.float64):
                raise TypeError(f"{word} of {of.dtype}")
            out = getattr(torch, word)(*(torch.from_numpy(np.ascontiguousarray(x.handle.data)) for x in tensors)).numpy()
            scalar = tl.int1 if out.dtype == np.bool_ else of.dtype.scalar
            return tl.tensor(its.TensorHandle(out, scalar), tl.block_type(scalar, of.shape) if of.shape else scalar)
        return call
    return {**{name: made(name) for name in SAME}, **{name: made(word) for name, word in OTHER.items()}}
