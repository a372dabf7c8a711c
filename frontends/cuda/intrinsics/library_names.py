"""Names of the C++ library and of CUDA's headers that need no declaration: types, traits, limits, and functions such as `std::min`."""

from __future__ import annotations

from kir.ir import build
from kir.ir.types import BOOL, DTYPES, F32, F64, I64

from ..source.source import Node
from ..source.syntax import text
from ..symbols.classes import Rec
from ..symbols.symbols import Scope, Value
from ..types.c_types import Arr, CType, Named, Prim, Ptr, Vec, named_type
from ..types.errors import NotUnderstood
from ..values.reading import Reading
from ..values.values import Builtin, Dims, Null, Scalar, TypeName, constant
from . import cuda_calls
from .standard_functions import FUNCTIONS, FUNCTORS

DIMS = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"})
LIBRARIES = frozenset({"std", "cuda", "cg", "cooperative_groups", "thrust", "nvcuda", "nv", "cub", "experimental"})
_GROUPS = {"thread_block": Named("cooperative_groups::thread_block"), "grid_group": Named("cooperative_groups::grid_group"),
           "coalesced_group": Named("cooperative_groups::coalesced_group"), "cluster_group": Named("cooperative_groups::cluster_group")}


class Library:
    """Looks names up for a `Reading`."""

    def __init__(self, r: Reading) -> None:
        self.r = r

    # ------------------------------------------------------------------------------------------------------------------- values
    def value(self, name: str, node: Node) -> Value:
        """A plain name. Raises NotUnderstood for one that nothing declares."""
        if name in DIMS:
            return Dims(name)
        known = cuda_calls.value(name)
        if known is not None:
            return Scalar(known)
        if cuda_calls.known(name) or name in FUNCTIONS:
            return Builtin(name)
        kind = named_type(name)
        if kind is not None:
            return TypeName(kind)
        if name in ("NULL", "nullptr"):
            return Null()
        raise NotUnderstood(f"'{name}', which is not declared{self.r.missing_note()}", node)

    def qualified_value(self, node: Node, scope: Scope) -> Value:
        """`std::name`, `cg::name<..>`, `std::numeric_limits<T>::max`."""
        parts = parts_of(node)
        last = parts[-1]
        name = last.child_by_field_name("name") if last.type in ("template_function", "template_type") else last
        listed = last.child_by_field_name("arguments") if last.type in ("template_function", "template_type") else None
        args = self.r.types.arguments(listed, scope) if listed is not None else None
        shown = text(name or last)
        owner = next((p for p in parts[:-1] if p.type == "template_type"), None)
        if owner is not None:
            return self._static_member(owner, shown, scope, node)
        first = text(parts[0])
        if not self.is_library(first, scope) and first != "":
            kind = scope.find(first)
            if isinstance(kind, TypeName) and isinstance(kind.type, Prim):
                raise NotUnderstood(f"a member of {kind.type}", node)
            if first in _TORCH and args is not None and (known := self.type(shown, args)) is not None:
                return TypeName(known)
            raise NotUnderstood(f"'{text(node)}', which is not declared{self.r.missing_note()}", node)
        trait = self._trait(shown, args, node)
        if trait is not None:
            return trait
        if shown in FUNCTIONS:
            return Builtin(shown, args)
        if shown in FUNCTORS:
            return Builtin(shown, args)
        known = self.type(shown, args or ())
        if known is not None:
            return TypeName(known)
        return self.value(shown, node) if args is None else Builtin(shown, args)

    def is_library(self, name: str, scope: Scope) -> bool:
        """Whether a namespace belongs to a library, perhaps under another name."""
        if name in LIBRARIES:
            return True
        found = scope.find(name)
        return isinstance(found, list) and any(isinstance(d, str) and d.split("::")[0] in LIBRARIES for d in found)

    def _static_member(self, owner: Node, member: str, scope: Scope, node: Node) -> Value:
        name, listed = owner.child_by_field_name("name"), owner.child_by_field_name("arguments")
        assert name is not None and listed is not None
        args = self.r.types.arguments(listed, scope)
        if text(name) == "numeric_limits" and args and isinstance(args[0], TypeName):
            if member in ("is_specialized", "is_iec559", "is_integer", "is_signed") and isinstance(kind := args[0].type, Prim):
                floats = kind.dtype in (F32, F64)
                known = {"is_specialized": True, "is_iec559": floats, "is_integer": not kind.dtype.is_float, "is_signed": floats or kind.dtype.kind == "int"}
                return Scalar(build.const(known[member], BOOL))
            return Builtin(f"numeric_limits.{member}", args)
        if member in ("value",):
            made = self._trait(f"{text(name)}_v", args, node)
            if made is not None:
                return made
        if text(name) == "integral_constant" and member == "value" and len(args) > 1:
            return args[1]
        raise NotUnderstood(f"'{text(node)}'", node)

    def _trait(self, name: str, args: tuple[Value, ...] | None, node: Node) -> Value | None:
        if not args:
            return None
        types = [a.type for a in args if isinstance(a, TypeName)]

        def truth(b: bool) -> Value:
            return Scalar(build.const(b, BOOL))

        match name:
            case "is_same_v" if len(types) == 2:
                return truth(types[0] == types[1])
            case "is_same_v" | "always_false_v" | "dependent_false_v":
                return truth(False)
            case _ if not types:
                return None
            case "is_floating_point_v":
                return truth(isinstance(types[0], Prim) and types[0].dtype in (F32, F64))
            case "is_integral_v":
                return truth(isinstance(types[0], Prim) and (types[0].dtype.is_integer or types[0].dtype.is_bool))
            case "is_arithmetic_v":
                return truth(isinstance(types[0], Prim) and (types[0].dtype in (F32, F64) or not types[0].dtype.is_float))
            case "is_signed_v":
                return truth(isinstance(types[0], Prim) and (types[0].dtype.kind == "int" or types[0].dtype in (F32, F64)))
            case "is_unsigned_v":
                return truth(isinstance(types[0], Prim) and (types[0].dtype.kind == "uint" or types[0].dtype.is_bool))
            case "is_pointer_v":
                return truth(isinstance(types[0], Ptr))
            case "is_void_v":
                return truth(str(types[0]) == "void")
            case "is_class_v":
                return truth(isinstance(types[0], (Rec, Vec)))
            case "extent_v":
                return Scalar(build.const(types[0].n if isinstance(types[0], Arr) else 0))
        return None

    # -------------------------------------------------------------------------------------------------------------------- types
    def type(self, name: str, args: tuple[Value, ...]) -> CType | None:
        """A type of the library by its plain name and arguments."""
        types = [a.type for a in args if isinstance(a, TypeName)]
        if name in _GROUPS:
            return _GROUPS[name]
        match name:
            case "thread_block_tile" if args:
                return Named("cooperative_groups::thread_block_tile", args)
            case "conditional_t" | "conditional" if len(types) == 2:
                return types[0] if constant(args[0]) else types[1]
            case "enable_if_t" | "enable_if":
                if args and constant(args[0]) == 0:
                    raise NotUnderstood("a condition of a template does not hold")
                return types[0] if types else named_type("void")
            case "remove_cv_t" | "remove_const_t" | "remove_reference_t" | "decay_t" | "remove_cvref_t" | "type_identity_t" | "remove_volatile_t":
                return types[0] if types else None
            case "opmath_type" | "acc_type" if types and isinstance(types[0], Prim) and (len(args) < 2 or constant(args[1]) != 0):
                narrow = types[0].dtype.is_float and types[0].dtype.bits < 32
                return Prim(F32) if narrow else Prim(I64) if name == "acc_type" and types[0].dtype.is_integer else types[0]
            case "remove_pointer_t" if types:
                return types[0].to if isinstance(types[0], Ptr) else types[0]
            case "add_pointer_t" if types:
                return Ptr(types[0])
            case "add_const_t" if types:
                return types[0]
            case "make_unsigned_t" | "make_signed_t" if types and isinstance(types[0], Prim):
                return Prim(DTYPES[f"{'u' if 'unsigned' in name else 'i'}{types[0].dtype.bits}"])
            case "array" if len(args) == 2 and types and (count := constant(args[1])) is not None:
                return Arr(types[0], count)
            case "initializer_list":
                return Named(name, args)
            case "bool_constant" | "integral_constant" | "true_type" | "false_type":
                return Named(name, args)
            case "nullptr_t" | "cudaStream_t" | "cudaEvent_t" | "string" | "CUtensorMap":
                return Named(name)
            case "bfloat16_t":
                return None
        return None

    def qualified_type(self, node: Node, scope: Scope) -> CType:
        """`std::name<..>` or `typename X<T>::type` as a type."""
        parts = parts_of(node)
        last = parts[-1]
        name = last.child_by_field_name("name") if last.type == "template_type" else last
        listed = last.child_by_field_name("arguments") if last.type == "template_type" else None
        args = self.r.types.arguments(listed, scope) if listed is not None else ()
        owner = next((p for p in parts[:-1] if p.type == "template_type"), None)
        if owner is not None and text(last) in ("type", "value_type"):
            base, own = owner.child_by_field_name("name"), owner.child_by_field_name("arguments")
            assert base is not None and own is not None
            found = self.type(f"{text(base)}_t", self.r.types.arguments(own, scope)) or self.type(text(base), self.r.types.arguments(own, scope))
            if found is not None:
                return found
        if text(parts[0]) in _TORCH and text(last) in _OF_TORCH:
            return named_type(_OF_TORCH[text(last)]) or Named(text(last))
        known = self.type(text(name or last), args) or (named_type(text(last)) if self.is_library(text(parts[0]), scope) else None)
        if known is None:
            raise NotUnderstood(f"the type {text(node)}, which is not declared{self.r.missing_note()}", node)
        return known


_TORCH = ("at", "c10", "torch")
_OF_TORCH = {"Half": "half", "BFloat16": "nv_bfloat16", "Float8_e4m3fn": "__nv_fp8_e4m3", "Float8_e5m2": "__nv_fp8_e5m2"}
"""CUDA's types by the names that torch gives them."""


def parts_of(node: Node) -> list[Node]:
    """The pieces of a qualified name."""
    out: list[Node] = []
    at: Node | None = node
    while at is not None and at.type == "qualified_identifier":
        left = at.child_by_field_name("scope")
        if left is not None:
            out += parts_of(left) if left.type == "qualified_identifier" else [
                left.named_children[0] if left.type == "dependent_type" else left]
        at = at.child_by_field_name("name")
        while at is not None and at.type in ("dependent_name", "dependent_type"):
            at = at.named_children[0]
    if at is not None:
        out.append(at)
    return out
