"""What host code chooses kernels by: dtypes that torch's dispatch macros offer, kernels and closures as values, configurations of launches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.surface.launches.values import Dtype, Unknown, Value

from ..source.source import Node, Unit
from ..source.syntax import text
from .host_values import SCALARS

CPP_TYPES = {"f32": "float", "f64": "double", "f16": "__half", "bf16": "__nv_bfloat16", "i32": "int", "u32": "unsigned", "i64": "int64_t", "u64": "uint64_t",
             "i8": "int8_t", "u8": "uint8_t", "i16": "int16_t", "u16": "uint16_t", "bool": "bool", "f8e4m3": "__nv_fp8_e4m3", "f8e5m2": "__nv_fp8_e5m2"}
"""A C++ type for each dtype of the IR."""
OPEN = Unknown("a template parameter that no caller gives")
KERNEL = re.compile(r"(?:\w+::)*(\w+)")
_FLOATING, _INTEGRAL = ("f32", "f64"), ("u8", "i8", "i16", "i32", "i64")
_MORE = {"HALF": ("f16",), "BFLOAT16": ("bf16",), "BOOL": ("bool",)}


@dataclass(frozen=True)
class Written(Unknown):
    """A template argument that is known by its C++ text alone: `reason` is the text."""


@dataclass(frozen=True)
class GuessedType(Dtype):
    """A type that nobody gives a host template."""


@dataclass(frozen=True)
class KernelOf:
    """A kernel as a value, with the template arguments that it is named with."""

    name: str
    templates: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Closure:
    """A lambda of the host's, and the scope that it sees."""

    node: Node
    scope: Mapping[str, Value]


@dataclass
class Config:
    """A `cudaLaunchConfig_t`."""

    members: dict[str, Value] = field(default_factory=dict)

    def launch(self) -> tuple[Value, Value, Value]:
        """Grid, block and bytes of dynamic shared memory."""
        one = build.const(1)
        return self.members.get("gridDim", one), self.members.get("blockDim", one), self.members.get("dynamicSmemBytes", build.const(0))


def host_instantiations(units: Sequence[Unit]) -> Iterator[tuple[str, Node]]:
    """Explicit instantiations in files: the name of the function or kernel, and its template arguments."""
    for name, given, _, _ in instantiations(units):
        yield name, given


def instantiations(units: Sequence[Unit]) -> Iterator[tuple[str, Node, Node, Unit]]:
    """Explicit instantiations in files: name, arguments, the whole, its file."""
    for unit in units:
        stack = [unit.root]
        while stack:
            top = stack.pop()
            if top.type == "template_instantiation":
                if (made := _template_function(top)) is not None:
                    yield (*made, top, unit)
            elif top.type in ("translation_unit", "namespace_definition", "declaration_list", "linkage_specification"):
                stack += reversed(top.named_children)


def _template_function(node: Node) -> tuple[str, Node] | None:
    stack = [node]
    while stack:
        top = stack.pop(0)
        if top.type == "template_function":
            name, given = top.child_by_field_name("name"), top.child_by_field_name("arguments")
            return (text(name), given) if name is not None and given is not None else None
        if top.type != "parameter_list":
            stack += top.named_children
    return None


def kernel_of(v: Value, words: str) -> KernelOf | None:
    """The kernel that an argument names."""
    if isinstance(v, KernelOf):
        return v
    found = KERNEL.fullmatch(words.rpartition(")")[2].strip("& "))
    return KernelOf(found[1]) if found else None


def offered(macro: str, listed: Node) -> tuple[str, ...]:
    """The dtypes that a dispatch macro of torch calls its lambda with; ("",) for one that says none."""
    word = macro.rpartition("::")[2].upper()
    if "DISPATCH" not in word:
        return ("",)
    words = [x for e in listed.named_children for x in re.findall(r"\bk[A-Z]\w+|\bScalarType::\w+", text(e).partition("[")[0])]
    named = [SCALARS[x] for x in (w.replace("ScalarType::", "k") if "::k" not in w else w.partition("::")[2] for w in words) if x in SCALARS]
    out = [*(_FLOATING if "FLOATING" in word or "ALL_TYPES" in word else ()),
           *(_INTEGRAL if "INTEGRAL" in word or "ALL_TYPES" in word or "INDEX" in word else ())]
    for key, dtypes in _MORE.items():
        if re.search(rf"(?<![A-Z0-9]){key}", word):
            out += dtypes
    if "FLOAT" in word and not out:
        out = ["f32", *(dtype for key, dtypes in _MORE.items() if key in word for dtype in dtypes)]
    return tuple(dict.fromkeys([*out, *named])) or ("",)
