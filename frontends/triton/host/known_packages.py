"""What host code is taken to see without running it: modules from outside, the machine."""
from __future__ import annotations

import math
import re
from collections.abc import Mapping

import libcst as cst

from kir.ir.types import BF16, BOOL, F8E4M3, F8E4M3FNUZ, F8E5M2, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType

from ..values.values import Builtin, Items, Value

EXTERNAL = frozenset(
    {
        "triton",
        "torch",
        "math",
        "os",
        "sys",
        "functools",
        "typing",
        "numpy",
        "packaging",
        "operator",
        "builtins",
        "warnings",
        "logging",
        "contextlib",
        "inspect",
        "enum",
        "dataclasses",
        "collections",
        "itertools",
        "importlib",
        "platform",
    }
)
"""Packages that are known by name and never read."""


MODULES = frozenset({"triton", "triton.language", *(f"triton.language.{x}" for x in (
    "core", "math", "standard", "extra", "extra.libdevice", "extra.cuda", "extra.cuda.libdevice"))})
"""Modules of Triton that host code may look for by name."""

DTYPES: Mapping[str, DType] = {
    "int1": BOOL,
    "int8": I8,
    "int16": I16,
    "int32": I32,
    "int64": I64,
    "uint8": U8,
    "uint16": U16,
    "uint32": U32,
    "uint64": U64,
    "float16": F16,
    "bfloat16": BF16,
    "float32": F32,
    "float64": F64,
    "float8e4nv": F8E4M3,
    "float8e5": F8E5M2,
    "float8e4b8": F8E4M3FNUZ,
    "bool": BOOL,
    "half": F16,
    "float8_e4m3fn": F8E4M3,
    "float8_e5m2": F8E5M2,
    "float8_e4m3fnuz": F8E4M3FNUZ,
}
"""Triton's (and torch's) names of dtypes."""
TORCH_DTYPES: Mapping[str, DType] = {"torch.short": I16, "torch.int": I32, "torch.long": I64, "torch.float": F32, "torch.double": F64}
"""Torch's other names of dtypes."""


MACHINE: Mapping[str, Value] = {
    "triton.__version__": "3.6.0",
    "machine.target.backend": "cuda",
    "machine.target.arch": 90,
    "machine.assembler.version": "12.8",
    "torch.version.hip": None,
    "torch.version.cuda": "12.9",
    "torch.version.xpu": None,
    "math.pi": math.pi,
    "math.inf": math.inf,
    "math.e": math.e,
    "math.nan": math.nan,
    "torch.inf": math.inf,
    "sys.platform": "linux",
    "torch.__version__": "2.13.0",
}


CAPABILITY = (9, 0)
"""Of the modelled machine."""

CALLS: Mapping[str, Value] = {
    "triton.runtime.driver.active.get_current_target": Builtin("machine.target"),
    "triton.backends.nvidia.compiler.get_ptxas": Builtin("machine.assembler"),
    "torch.cuda.is_available": True,
    "torch.cuda.get_device_capability": Items(CAPABILITY),
    "torch.cuda.current_device": 0,
    "torch.cuda.get_device_name": "NVIDIA H100",
    "torch.cuda.device_count": 1,
    **{f"torch.{other}.is_available": False for other in ("npu", "xpu", "mlu", "musa", "hpu", "mtia", "backends.mps", "mps")},
}
"""What a call gives on the modelled machine, whatever its arguments."""

_MAKER = re.compile(r"vendor|platform|backend", re.IGNORECASE)
_OWN = ("nvidia", "cuda")
_ASKED = re.compile(r"_?is_(?:(nvidia|cuda|cuda_alike)|amd|hip|rocm|xpu|npu|ascend|musa|maca|muxi|mlu|hpu|tpu|mps|cpu|fp8_fnuz)"
                    r"(?:_platform|_backend|_available)?", re.IGNORECASE)


def of_the_machine(test: cst.BaseExpression) -> bool | None:
    """What a comparison of a vendor's or a platform's name with a text gives, or a call without arguments whose name asks for one: KIR reads
    kernels as an NVIDIA GPU runs them. None for other conditions."""
    match test:
        case cst.Comparison(left=left, comparisons=[cst.ComparisonTarget(operator=cst.Equal() | cst.NotEqual() as op, comparator=cst.SimpleString() as text)]):
            name = left.attr.value if isinstance(left, cst.Attribute) else left.value if isinstance(left, cst.Name) else ""
            if _MAKER.search(name) is not None:
                return (str(text.evaluated_value).lower() in _OWN) == isinstance(op, cst.Equal)
        case cst.Call(func=cst.Name(value=name) | cst.Attribute(attr=cst.Name(value=name)), args=[]):
            said = _ASKED.fullmatch(name)
            return None if said is None else said[1] is not None
    return None
