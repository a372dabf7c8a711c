"""The whole kernel IR: one immutable tree, structurally equal, on one page.

A program is sizes, tensors, kernels and a launch plan. A kernel body is executed once by its *team*, the CTA. `for x in 0..n
parallel(level)` splits a team into sub-teams (CTA -> warpgroup -> warp -> thread), and each statement is executed once by every
instance of the team that encloses it. So a statement outside any parallel loop means "once per CTA" (the tile dialect: whole tiles,
uniform scalars), and one inside `parallel(thread)` "once per thread" (the thread dialect: scalars, lanes, explicit barriers).
Values are immutable `Let`s; everything mutable is a `Buffer`. Names are unique within a kernel.

`origin` and `label` take no part in equality. Build expressions with `kir.ir.build`, which keeps integers in normal form.
"""
from __future__ import annotations

from dataclasses import field
from typing import Any, Literal

from kir.base.diagnostic import Origin
from kir.ir.base import Attr, Attrs, Node, attrs, derived, node
from kir.ir.signatures import elementwise, result_type
from kir.ir.types import BOOL, F32, I32, DType, Expr, PointerType, Space, StructType, TileType, Type, dtype_of, rounded, with_dtype


def _note() -> Any:
    return field(default=None, compare=False, repr=False)


# ---------------------------------------------------------------------------------------------------------------- expressions

@node
class Const(Expr):
    """A literal; two are equal only when their bits are (-0.0 is not 0.0, NaN is NaN)."""

    value: int | float | bool
    dtype: DType

    @property
    def type(self) -> Type:
        return self.dtype

    @property
    def dimension(self) -> int | Expr:
        return int(self.value)

    @derived
    def _bits(self) -> str:
        """The value as its dtype holds it."""
        return repr(rounded(self.value, self.dtype) if self.dtype.is_float else self.value)

    def __hash__(self) -> int:
        kept = self.__dict__
        found: int | None = kept.get("_hash")
        if found is None:
            found = kept["_hash"] = hash((self._bits, self.dtype))
        return found

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Const) and (self._bits, self.dtype) == (other._bits, other.dtype))


@node
class Var(Expr):
    """A let, loop variable, grid axis, size, scalar parameter or meta, with its type."""

    name: str
    of: Type

    @property
    def type(self) -> Type:
        return self.of


@node
class Unary(Expr):
    """`neg`, `not` (logical on bool, bitwise on integers)."""

    op: str
    x: Expr

    @property
    def type(self) -> Type:
        return self.x.type


COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})


@node
class Binary(Expr):
    """Elementwise over equal dtypes, broadcasting as NumPy does. Integers wrap. `floordiv`, `mod` round down (`ceildiv` up);
    `tdiv`, `trem` truncate as C does; `div` is for floats; `min`, `max` return the other operand for one NaN;
    `and`, `or`, `xor` are logical on bool, bitwise on integers; `shr` is arithmetic on signed integers."""

    op: str
    a: Expr
    b: Expr

    @derived
    def type(self) -> Type:
        ta, tb = self.a.type, self.b.type
        if isinstance(ta, DType) and isinstance(tb, DType):
            return BOOL if self.op in COMPARISONS else ta
        return elementwise(BOOL if self.op in COMPARISONS else dtype_of(ta), ta, tb)


@node
class Select(Expr):
    """`a` where `cond` holds, else `b`; broadcasting."""

    cond: Expr
    a: Expr
    b: Expr

    @derived
    def type(self) -> Type:
        return elementwise(dtype_of(self.a.type), self.cond.type, self.a.type, self.b.type)


@node
class Cast(Expr):
    """Conversion to `dtype`. `rounding`: `rn` (default), `rz`, `ru`, `rd`, `bits` (reinterpret, equal widths), `sat`. To fp8, `rn` saturates
    at the largest finite number, as all hardware does (PTX ISA, cvt: to .e4m3x2 and .e5m2x2 only with .satfinite)."""

    x: Expr
    dtype: DType
    rounding: str = "rn"

    @derived
    def type(self) -> Type:
        return with_dtype(self.x.type, self.dtype)


@node
class Call(Expr):
    """A row of the instruction table, or a device function (then `of` is its result). Regions are operands by reference."""

    fn: str
    args: tuple[Expr | Region, ...]
    attrs: Attrs = ()
    of: Type | None = None

    @derived
    def type(self) -> Type:
        if self.of is not None:
            return self.of
        return result_type(self.fn, self.args, dict(self.attrs))


@node
class Load(Expr):
    """Reads a region. Where `mask` is false, or outside the buffer under `clip`, the value is `other` (None: undefined).
    `cache` is a policy such as `cg`, `cs`, `nc`, `evict_first`."""

    at: Region
    mask: Expr | None = None
    other: Expr | None = None
    clip: bool = False
    cache: str = ""

    @property
    def type(self) -> Type:
        return self.at.type


@node
class Address(Expr):
    """The address of an element of a buffer."""

    at: Region

    @property
    def type(self) -> Type:
        return PointerType(self.at.buffer.dtype, self.at.buffer.space)


# -------------------------------------------------------------------------------------------------------- memory and places

@node
class Layout(Node):
    """A term of the layout algebra (`kir.ir.layouts.layout`): `strides(..)`, `swizzle(bits, base, shift)` on byte offsets, `compose(..)`,
    a named fragment layout such as `mma_c(..)`, or `auto`."""

    name: str
    args: tuple[int | str | Layout | tuple[int, ...], ...] = ()


@node
class Buffer(Node):
    """Memory of `shape` elements. Spaces: `fragment` is spread over the registers of the team that declares it, `register` is
    private to one thread (or a uniform scalar of a team, with shape ()), `shared` belongs to the CTA, `cluster` to its peers.
    Row-major unless `layout` says otherwise; `strides` are in elements and may be symbolic; `align` is in bytes, 0 for natural."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    space: Space
    layout: Layout | None = None
    strides: tuple[Expr, ...] | None = None
    align: int = 0


@node
class Span(Node):
    """A range of indices `lo, lo + step, ..`, `extent` of them."""

    lo: Expr
    extent: int | Expr
    step: int | Expr = 1


@node
class Region(Node):
    """A place: an index per dimension. A scalar index drops the dimension, a `Span` keeps it; integer tiles gather (they broadcast
    together, and then no span may stand beside them). No index at all names the whole buffer."""

    buffer: Buffer
    index: tuple[Expr | Span, ...] = ()

    @derived
    def type(self) -> Type:
        dtype = self.buffer.dtype
        if not self.index:
            shape = tuple(d.dimension for d in self.buffer.shape)
            return TileType(dtype, shape) if shape else dtype
        spans = tuple(i.extent for i in self.index if isinstance(i, Span))
        if spans:
            return TileType(dtype, spans)
        return elementwise(dtype, *(i.type for i in self.index if isinstance(i, Expr)))


# ----------------------------------------------------------------------------------------------------------------- statements

class Stmt(Node):
    """Executed once by each instance of the enclosing team."""

    label: str | None
    origin: Origin | None


Block = tuple[Stmt, ...]


@node
class Let(Stmt):
    """An immutable scalar or tile (a thread's tile is its vector); several names when the value is a tuple."""

    names: tuple[str, ...]
    value: Expr
    label: str | None = _note()
    origin: Origin | None = _note()


@node
class Alloc(Stmt):
    """Declares a buffer that lives until the end of the enclosing block; `init` fills it, otherwise it holds poison."""

    buffer: Buffer
    init: Expr | None = None
    label: str | None = _note()
    origin: Origin | None = _note()


@node
class View(Stmt):
    """Another name for memory. With `axes`, element (axes) of the view is `at` (affine, im2col, indirect; reads outside the
    buffer give `fill`). Without, the bytes that start at `at` are reinterpreted as `buffer`."""

    buffer: Buffer
    at: Region
    axes: tuple[str, ...] = ()
    fill: Expr | None = None
    label: str | None = _note()
    origin: Origin | None = _note()


@node
class Store(Stmt):
    """Writes a region; elements with a false `mask`, or outside the buffer under `clip`, are left alone."""

    at: Region
    value: Expr
    mask: Expr | None = None
    clip: bool = False
    cache: str = ""
    label: str | None = _note()
    origin: Origin | None = _note()


@node
class Copy(Stmt):
    """Moves a region to a region of the same shape and dtype. `via`: `plain`, `vector(n)` (`vector` where the binding decides n), `cp_async`, `bulk`, `tma`, or
    `ldmatrix`, `stmatrix` between shared memory and a fragment. Synchronous, unless `signal` names an mbarrier that it completes on or
    `grouped` leaves it to a commit group."""

    src: Load
    dst: Region
    via: str = "plain"
    mask: Expr | None = None
    clip: bool = False
    signal: Region | None = None
    grouped: bool = False
    attrs: Attrs = ()
    label: str | None = _note()
    origin: Origin | None = _note()


@node
class Mma(Stmt):
    """`acc += a * b` over tiles [m, n] += [m, k] * [k, n] (leading batch dimensions allowed). `via`: `auto`, `fma`, `mma_sync`,
    `wgmma`, `tcgen05`; `precision`: `ieee`, `tf32`, `tf32x3`, `bf16x3`. `pending` leaves completion to a wait (wgmma)."""

    acc: Region
    a: Expr
    b: Expr
    via: str = "auto"
    precision: str = "ieee"
    pending: bool = False
    attrs: Attrs = ()
    label: str | None = _note()
    origin: Origin | None = _note()


@node
class Eval(Stmt):
    """A call made for its effect."""

    call: Call
    label: str | None = _note()
    origin: Origin | None = _note()


@node
class For(Stmt):
    """`var` takes lo, lo + step, .. below hi. `kind`: `serial`, `unroll` (attr `factor`), `vectorize`, `pipelined` (attr `stages`),
    `static` (unrolled by specialize), or a team split: `warpgroup`, `warp`, `thread`."""

    var: Var
    lo: Expr
    hi: Expr
    step: Expr
    body: Block
    kind: str = "serial"
    attrs: Attrs = ()
    label: str | None = _note()
    origin: Origin | None = _note()


@node
class If(Stmt):
    """`static` branches are decided by specialize."""

    cond: Expr
    then: Block
    orelse: Block = ()
    static: bool = False
    label: str | None = _note()
    origin: Origin | None = _note()


@node
class While(Stmt):
    """Repeats `body` as long as `cond` holds, tested before each round."""

    cond: Expr
    body: Block
    label: str | None = _note()
    origin: Origin | None = _note()


@node
class Jump(Stmt):
    """`break`, `continue`, or `return` (with the values of a device function, or of a generic program that was read from one)."""

    kind: Literal["break", "continue", "return"]
    values: tuple[Expr, ...] = ()
    label: str | None = _note()
    origin: Origin | None = _note()


@node
class Role(Node):
    """A sub-team of warps `lo` up to `hi`, with `registers` a thread (0: as launched)."""

    name: str
    lo: int
    hi: int
    body: Block
    registers: int = 0


@node
class Roles(Stmt):
    """Sub-teams that run side by side, each its own code."""

    roles: tuple[Role, ...]
    label: str | None = _note()
    origin: Origin | None = _note()


@node
class Opaque(Stmt):
    """Source text that is not understood, kept verbatim. Unknown reads, writes or effects are `*`."""

    surface: str
    text: str
    reason: str
    reads: tuple[str, ...] = ("*",)
    writes: tuple[str, ...] = ("*",)
    label: str | None = _note()
    origin: Origin | None = _note()


@node
class Hole(Stmt):
    """A place that a carrier fills: it may read and write only what it names; `contract` is the id of its contract."""

    name: str
    contract: str
    reads: tuple[Region, ...] = ()
    writes: tuple[Region, ...] = ()
    attrs: Attrs = ()
    label: str | None = _note()
    origin: Origin | None = _note()


# ------------------------------------------------------------------------------------------------------------------- programs

@node
class Meta(Node):
    """A compile-time parameter of a generic program; `kind` is `int`, `bool`, `float`, `str`, `dtype`, `fn` or `any` (the binding decides:
    as a value it has the symbolic dtype of its own name). The default of a dtype may be a dtype term over other metas."""

    name: str
    kind: str
    default: int | float | bool | str | None = None


def meta_type(m: Meta) -> DType:
    """The dtype that a meta has in expressions."""
    return {"bool": BOOL, "float": F32, "any": DType(m.name, "symbolic", 0)}.get(m.kind, I32)


@node
class Param(Node):
    """A run-time parameter, in ABI order. `role`: `size` (an integer of the problem), `scalar`, or a tensor `in`, `out`, `inout`.
    A tensor's `of` is its buffer; `value` is what a derived scalar (a stride, say) equals. attrs: `restrict`, `alias`; `addressed`
    for all memory as bytes, at whose start address 0 is: what a kernel reaches through addresses made of integers; of a scalar `address`,
    the tensor whose first element is at the address that it is."""

    name: str
    role: Literal["size", "scalar", "in", "out", "inout"]
    of: DType | Buffer
    value: Expr | None = None
    attrs: Attrs = ()


@node
class Workspace(Node):
    """Global memory that the launch plan provides, with its initial value (None: poison)."""

    buffer: Buffer
    init: Expr | None = None


@node
class TensorMap(Node):
    """A TMA descriptor over `of`: box, element strides, swizzle in bytes (0, 32, 64, 128), out-of-bounds fill. `merge` = n makes one
    dimension of the first n (which must be dense), `merge_last` = n of the last n. `mode` = im2col has a box of pixels and channels, corners
    and steps. A copy names its descriptor in the attr `descriptor`."""

    name: str
    of: str
    box: tuple[int, ...]
    attrs: Attrs = ()


@node
class Function(Node):
    """A device function, or the combine region of a reduce, scan or sort; `body` ends in a `return`."""

    name: str
    params: tuple[Var | Buffer, ...]
    results: tuple[Type, ...]
    body: Block
    origin: Origin | None = _note()


@node
class Axis(Node):
    """A grid axis: `name` runs over `extent` CTAs (x, y, z in order)."""

    name: str
    extent: Expr


@node
class Kernel(Node):
    """`threads` per CTA; `cluster` in CTAs per axis. attrs: `num_ctas`, `maxnreg`, `min_ctas`, .."""

    name: str
    grid: tuple[Axis, ...]
    threads: Expr
    body: Block
    cluster: tuple[int, ...] = ()
    attrs: Attrs = ()
    label: str | None = _note()
    origin: Origin | None = _note()


@node
class Launch(Node):
    """Runs a kernel; attrs: `pdl` (programmatic dependent launch)."""

    kernel: str
    attrs: Attrs = ()


@node
class Dispatch(Node):
    """Takes the first arm whose guard holds: where a *guarded* precondition lands."""

    arms: tuple[tuple[Expr, tuple[Launch | Dispatch, ...]], ...]
    orelse: tuple[Launch | Dispatch, ...] = ()


@node
class Program(Node):
    """`facts` are boolean expressions over the sizes that hold for every call. An empty `plan` launches every kernel in order."""

    name: str
    metas: tuple[Meta, ...] = ()
    params: tuple[Param, ...] = ()
    facts: tuple[Expr, ...] = ()
    structs: tuple[StructType, ...] = ()
    workspaces: tuple[Workspace, ...] = ()
    tensor_maps: tuple[TensorMap, ...] = ()
    functions: tuple[Function, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    plan: tuple[Launch | Dispatch, ...] = ()


__all__ = [
    "COMPARISONS",
    "Address",
    "Alloc",
    "Attr",
    "Attrs",
    "Axis",
    "Binary",
    "Block",
    "Buffer",
    "Call",
    "Cast",
    "Const",
    "Copy",
    "Dispatch",
    "Eval",
    "Expr",
    "For",
    "Function",
    "Hole",
    "If",
    "Jump",
    "Kernel",
    "Launch",
    "Layout",
    "Let",
    "Load",
    "Meta",
    "Mma",
    "Node",
    "Opaque",
    "Param",
    "Program",
    "Region",
    "Role",
    "Roles",
    "Select",
    "Span",
    "Stmt",
    "Store",
    "TensorMap",
    "Unary",
    "Var",
    "View",
    "While",
    "Workspace",
    "attrs",
    "meta_type",
    "node",
]
