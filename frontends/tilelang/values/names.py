"""What TileLang's, torch's and Python's names stand for."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kir.ir.types import (
    BF16,
    BOOL,
    E8M0,
    F4E2M1,
    F8E4M3,
    F8E4M3FNUZ,
    F8E5M2,
    F16,
    F32,
    F64,
    I4,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    DType,
)

DTYPES: Mapping[str, DType] = {
    "bool": BOOL, "int4": I4, "int8": I8, "int16": I16, "int32": I32, "int64": I64, "int": I32, "long": I64, "short": I16,
    "uint8": U8, "uint16": U16, "uint32": U32, "uint64": U64, "uint": U32,
    "float16": F16, "half": F16, "bfloat16": BF16, "float32": F32, "float": F32, "float64": F64, "double": F64,
    "float8_e4m3fn": F8E4M3, "float8_e4m3": F8E4M3, "e4m3_float8": F8E4M3, "float8_e5m2": F8E5M2, "e5m2_float8": F8E5M2,
    "float4_e2m1fn": F4E2M1, "float8_e8m0fnu": E8M0, "float8_e4m3fnuz": F8E4M3FNUZ, "e4m3fnuz_float8": F8E4M3FNUZ,
    "f16": F16, "bf16": BF16, "f32": F32, "f64": F64, "i8": I8, "i16": I16, "i32": I32, "i64": I64, "u8": U8, "u16": U16, "u32": U32, "u64": U64,
    "f8e4m3": F8E4M3, "f8e5m2": F8E5M2, "f4e2m1": F4E2M1, "e8m0": E8M0, "f8e4m3fnuz": F8E4M3FNUZ,
}  # fmt: skip
"""Names of dtypes, in TileLang, torch, texts and bindings."""

def said_dtype(dtype: DType) -> str:
    """A dtype as TileLang writes it."""
    return next(k for k, v in DTYPES.items() if v == dtype)


LARGEST: Mapping[str, float] = {
    "f8e4m3": 448.0, "f8e5m2": 57344.0, "f4e2m1": 6.0, "f16": 65504.0, "bf16": 3.3895313892515355e38, "f32": 3.4028234663852886e38,
    "f64": 1.7976931348623157e308,
}  # fmt: skip
"""The largest finite number of each float dtype."""

PACKAGES = ("tilelang", "torch", "math", "os", "sys", "functools", "typing", "operator", "builtins", "itertools", "dataclasses", "enum",
            "collections", "numpy", "triton", "tvm", "einops", "pytest", "argparse", "time", "logging", "warnings", "re", "random", "abc",
            "packaging", "importlib", "contextlib", "inspect")
"""Packages that are known by name and never read."""

CONSTANTS: Mapping[str, float | int | str | None] = {"math.pi": math.pi, "math.inf": math.inf, "math.e": math.e, "math.nan": math.nan}

LANGUAGE = "tilelang.language"
"""What `T` is an alias of."""

LANES = "lanes"
"""The kind of loop that `T.Parallel` is until it becomes tile statements or a loop over threads."""

GRID_BARRIER = "grid_barrier"
"""What stands for `T.sync_grid()` where the kernel is not divided there."""

_PYTHON = """
    len min max abs int float bool range tuple list str sum round isinstance enumerate zip sorted any all reversed print dict divmod getattr hasattr
    ValueError AssertionError RuntimeError NotImplementedError TypeError KeyError map slice next filter frozenset
    pow set type property Exception ImportError AttributeError super
"""
PYTHON = frozenset(_PYTHON.split())
"""Functions and errors of Python that are known by name."""


def absolute(name: str) -> str:
    """A dotted name with aliases of TileLang's language module undone."""
    name = name.removeprefix("tilelang.") if name.startswith("tilelang.tvm.") else name
    for prefix in ("tilelang.language.common", "tilelang.cuda.language", "tilelang.language.eager", "tvm.script.tir", "tvm.tir", "tvm.script.tirx", "tvm.tirx",
                   "tilelang.tir", "tilelang.tirx"):
        if name == prefix or name.startswith(prefix + "."):
            return LANGUAGE + name[len(prefix):]
    return name
