"""The parameters of a function as a caller gives them: what no caller says by its form, its reading does."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.types import BOOL, F32, I32, I64, variable

from ..state.state import State
from ..values.emitter import whole
from ..values.operators import pointer_shape
from ..values.values import BlockPointer, Choice, Descriptor, Items, Jit, NotUnderstood, Pointer, Run, Shape, Static, TypeOf, Unknown, Value, describe, is_known


@dataclass
class Taken:
    """Parameters that are being made. `values` are what a function's own names stand for while it is read."""

    r: State
    metas: list[n.Meta] = field(default_factory=list)
    params: list[n.Param] = field(default_factory=list)
    extents: list[n.Param] = field(default_factory=list)
    dims: dict[n.Expr, n.Var] = field(default_factory=dict)
    """What the extents that a caller names are here, which tiles may share."""
    exact: bool = False
    """Whether tiles have the extents that are known of what is given."""

    def all(self, given: Mapping[str, Value]) -> dict[str, Value]:
        """What each parameter stands for. Raises NotUnderstood for what no parameter holds."""
        self.dims |= {v.expr: n.Var(name, I32) for name, v in given.items() if isinstance(v, Static) and v.expr.type == I32 and isinstance(v.expr, n.Var)}
        return {name: self.value(name, v) for name, v in given.items()}

    def value(self, name: str, v: Value) -> Value:
        """What a parameter stands for that is given a value like `v`: run-time values under names of their own, what is known when the caller is compiled
        as it is. Raises NotUnderstood for what no parameter holds."""
        match v:
            case Run() if v.shape:
                return Run(whole(self._tile(name, v.shape)))
            case Run():
                dtype = v.dtype if v.dtype in (I32, I64) or v.dtype.is_bool else variable(name)
                self.params.append(n.Param(name, "scalar", dtype))
                return Run(n.Var(name, dtype))
            case Pointer():
                shape, base = pointer_shape(v), self._buffer(name)
                return Pointer(base, (whole(self._tile(self.r.out.own(f"{name}.at"), shape)),)) if shape else Pointer(base)
            case BlockPointer():
                base = self._buffer(name)
                parts = [tuple(n.Var(self.r.out.own(f"{name}.{part}_{k}"), I64) for k in range(len(v.block))) for part in ("shape", "stride", "offset")]
                self.params.extend(n.Param(x.name, "scalar", I64) for part in parts for x in part)
                return BlockPointer(Pointer(base), parts[0], parts[1], parts[2], self._metas(f"{name}.block", len(v.block)))
            case Descriptor() if not v.strides:
                extents = tuple(n.Var(self.r.out.own(f"{name}.shape_{k}"), I32) for k in range(len(v.block)))
                block = tuple(n.Var(self.r.out.own(f"{name}.block_{k}"), I32) for k in range(len(v.block)))
                buffer = n.Buffer(name, variable(name), extents, "global")
                said = {f"block_{k}": x.name for k, x in enumerate(block) if x.name != f"{name}_block_{k}"}
                self.params.append(n.Param(name, "in", buffer, attrs=n.attrs(**said)))
                self.extents.extend(n.Param(x.name, "size", I32, attrs=n.attrs(implicit=True)) for x in extents)
                self.metas.extend(n.Meta(x.name, "int") for x in block)
                return Descriptor(Pointer(buffer), extents, (), block)
            case TypeOf() if not v.pointer and v.dtype.is_symbolic:
                self.metas.append(n.Meta(name, "dtype"))
                return TypeOf(variable(name))
            case Static():
                kind = "bool" if v.expr.type == BOOL else "float" if v.expr.type == F32 else "int"
                self._meta(n.Meta(name, kind))
                return Static(n.Var(name, n.meta_type(n.Meta(name, kind))))
            case Items():
                return Items(tuple(self.value(self.r.out.own(f"{name}.{k}"), x) for k, x in enumerate(v.items)))
            case Choice():  # the other arm is for other settings of what is under the same name
                return self.value(name, v.b if v.a is None else v.a)
            case Jit() | TypeOf():
                return v
            case _ if is_known(v):
                return v
            case Unknown():
                raise NotUnderstood(v.reason)
            case _:
                raise NotUnderstood(f"{describe(v)} that a caller gives")

    def _buffer(self, name: str) -> n.Buffer:
        extent = n.Var(self.r.out.own(f"{name}.extent"), I64)
        buffer = n.Buffer(name, variable(name), (extent,), "global")
        self.params.append(n.Param(name, "in", buffer))
        self.extents.append(n.Param(extent.name, "size", I64, attrs=n.attrs(implicit=True)))
        return buffer

    def _metas(self, stem: str, count: int) -> tuple[n.Var, ...]:
        made = tuple(n.Var(self.r.out.own(f"{stem}_{k}"), I32) for k in range(count))
        self.metas.extend(n.Meta(x.name, "int") for x in made)
        return made

    def _tile(self, name: str, shape: Shape) -> n.Buffer:
        extents: list[n.Expr] = []
        for k, d in enumerate(shape):
            number = d if isinstance(d, int) else int_value(d)
            if number is not None and (self.exact or (number == 1 and len(shape) > 1)):  # others may be spread along it
                extents.append(const(number))
                continue
            here = self.dims.get(d) if isinstance(d, n.Expr) else None
            if here is None or here in extents:
                here = n.Var(self.r.out.own(f"{name}.shape_{k}"), I32)
                if isinstance(d, n.Expr):
                    self.dims.setdefault(d, here)
            self._meta(n.Meta(here.name, "int"))
            extents.append(here)
        buffer = n.Buffer(name, variable(name), tuple(extents), "fragment")
        self.params.append(n.Param(name, "in", buffer))
        return buffer

    def _meta(self, m: n.Meta) -> None:
        if m.name not in {x.name for x in self.metas}:
            self.metas.append(m)


def kind_of(v: Value) -> object:
    """What two values that a parameter is given have in common where one reading serves both."""
    match v:
        case Run():
            return "number", len(v.shape)
        case Pointer():
            return "pointer", len(pointer_shape(v))
        case BlockPointer() | Descriptor():
            return type(v), len(v.block)
        case Choice():
            return kind_of(v.b if v.a is None else v.a)
        case Items():
            return tuple(map(kind_of, v.items))
        case Static():
            return "constexpr", v.expr.type
        case TypeOf() if v.dtype.is_symbolic:
            return "dtype"
    return v if is_known(v) or isinstance(v, (Jit, TypeOf)) else type(v)
