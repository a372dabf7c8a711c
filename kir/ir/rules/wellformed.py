"""Well-formed expressions and regions: what holds whichever statement they stand in.

Types agree, regions have the rank of their buffer and stay inside it where that is decided statically, and every node equals what its
constructor would build (normal form). `kir.ir.rules.verify` adds scopes, teams and statements.
"""
from __future__ import annotations

from collections.abc import Iterator

from kir.base.diagnostic import Diagnostic, KirError
from kir.base.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import dim_text, expr_text, type_text
from kir.ir.types import BOOL, DTYPES, DType, TileType, Type, broadcast_shapes, dtype_of, shape_of
from kir.ir.visit import rebuild

BINARY_OPS = frozenset({"add", "sub", "mul", "div", "floordiv", "ceildiv", "mod", "tdiv", "trem", "min", "max", "and", "or", "xor", "shl",
                        "shr"}) | n.COMPARISONS
ROUNDINGS = frozenset({"rn", "rz", "ru", "rd", "bits", "sat"})
_INTEGER_ONLY = frozenset({"floordiv", "ceildiv", "mod", "tdiv", "trem", "shl", "shr", "and", "or", "xor"})
_BITWISE = frozenset({"and", "or", "xor"})
_NO_NUMBER = frozenset({"mbarrier", "tensormap"})


def parts(e: n.Expr | n.Region | n.Span) -> tuple[n.Expr | n.Region | n.Span, ...]:
    """The operands directly below an expression or region (buffers, which are declared elsewhere, left out); worked out once for each node."""
    found: tuple[n.Expr | n.Region | n.Span, ...] | None = e.__dict__.get("_parts")
    if found is None:
        found = e.__dict__["_parts"] = _parts(e)
    return found


def _parts(e: n.Expr | n.Region | n.Span) -> tuple[n.Expr | n.Region | n.Span, ...]:
    match e:
        case n.Binary():
            return e.a, e.b
        case n.Region():
            return e.index
        case n.Span():
            return e.lo, *(x for x in (e.extent, e.step) if isinstance(x, n.Expr))
        case n.Unary() | n.Cast():
            return (e.x,)
        case n.Select():
            return e.cond, e.a, e.b
        case n.Call():
            return e.args
        case n.Load():
            return e.at, *(x for x in (e.mask, e.other) if x is not None)
        case n.Address():
            return (e.at,)
        case _:
            return ()


def same_dims(a: tuple[int | n.Expr, ...], b: tuple[int | n.Expr, ...]) -> bool:
    """Whether two shapes agree as far as that is decided: known extents must be equal, a symbolic one may equal any."""
    return len(a) == len(b) and all(x == y or not (isinstance(x, int) and isinstance(y, int)) for x, y in zip(a, b, strict=True))


def fits(value: Type, into: Type) -> bool:
    """Whether a value may be stored to a place of type `into`: one dtype, and a shape that broadcasts to the place's."""
    if not isinstance(value, (DType, TileType)) or not isinstance(into, (DType, TileType)):
        return value == into
    if dtype_of(value) != dtype_of(into):
        return False
    have, want = shape_of(value), shape_of(into)
    lead = len(have) - len(want)
    if lead > 0:
        if any(d != 1 for d in have[:lead]):
            return False
        have = have[lead:]
    pairs = zip(have, want[len(want) - len(have):], strict=True)
    return all(x == y or x == 1 or not (isinstance(x, int) and isinstance(y, int)) for x, y in pairs)


class Expressions:
    """Checks of expressions; each distinct node is checked once, however often it occurs."""

    def __init__(self, functions: dict[str, n.Function], pure_functions: frozenset[str]) -> None:
        self.functions = functions
        self.pure_functions = pure_functions
        self._sound: set[n.Node] = set()

    def check(self, e: n.Expr | n.Region | n.Span, root: bool = False) -> Iterator[Diagnostic]:
        """What is wrong with `e`, operands first; `root` allows it to be a call with effects."""
        if isinstance(e, n.Call) and not root and self.has_effect(e):
            yield Diagnostic("KIR-V014", f"'{e.fn}' has an effect and stands inside an expression: when it happens is not defined",
                             attempt="give it a let of its own")
        if not self.functions and "_sound" in e.__dict__:
            return  # found in another program: what an expression is depends on nothing but device functions
        if e in self._sound:
            return
        wrong = False
        for part in parts(e):
            for d in self.check(part):
                wrong = True
                yield d
        if wrong:
            return
        for d in self._node(e):
            wrong = True
            yield d
        if not wrong:
            self._sound.add(e)
            if not self.functions:
                e.__dict__["_sound"] = True

    def has_effect(self, call: n.Call) -> bool:
        """Whether a call does more than give a value."""
        if call.fn in self.functions:
            return call.fn not in self.pure_functions
        row = table().get(call.fn)
        return row is not None and not row.is_pure

    def _node(self, e: n.Expr | n.Region | n.Span) -> Iterator[Diagnostic]:
        try:
            yield from self._own(e)
            made = rebuild(e, {"": None}) if not isinstance(e, (n.Const, n.Var, n.Call, n.Address)) else self._called(e)
        except KirError as bad:
            yield from bad.diagnostics
            return
        if made != e and not isinstance(e, n.Span):
            text = expr_text(made) if isinstance(made, n.Expr) else "the whole buffer, without an index"
            yield Diagnostic("KIR-V020", f"{_text(e)} is not in normal form", needs=f"{text}, as kir.ir.build makes it")

    def _called(self, e: n.Node) -> n.Node:
        if isinstance(e, n.Call) and e.fn not in self.functions:
            return build.call_with(e.fn, e.args, e.attrs, None)
        return e

    def _own(self, e: n.Expr | n.Region | n.Span) -> Iterator[Diagnostic]:
        match e:
            case n.Const():
                yield from _const(e)
            case n.Unary():
                if e.op not in ("neg", "not"):
                    yield _unknown("unary operation", e.op)
            case n.Binary():
                dtype = dtype_of(e.a.type)
                if e.op not in BINARY_OPS:
                    yield _unknown("operation", e.op)
                elif dtype.is_float and e.op in _INTEGER_ONLY:
                    yield Diagnostic("KIR-V002", f"'{e.op}' of {dtype}: it is for integers", needs="'div' for floats")
                elif dtype.is_integer and e.op == "div":
                    yield Diagnostic("KIR-V002", f"'div' of {dtype}: it is for floats", needs="'floordiv' or 'tdiv' for integers")
            case n.Cast():
                if e.rounding not in ROUNDINGS:
                    yield _unknown("rounding", e.rounding)
                own = dtype_of(e.x.type)
                if e.rounding == "bits" and own.bits != e.dtype.bits and not (own.is_symbolic or e.dtype.is_symbolic):
                    yield Diagnostic("KIR-V002", f"bits of {own} as {e.dtype}: the widths differ")
            case n.Call():
                yield from self._call(e)
            case n.Load():
                yield from _load(e)
            case n.Address():
                if isinstance(e.at.type, TileType):
                    yield Diagnostic("KIR-V003", f"addr({_text(e.at)}) is the address of several elements",
                                     needs="an index for each dimension")
            case n.Region():
                yield from _region(e)
            case n.Span():
                yield from _span(e)
            case _:
                pass

    def _call(self, e: n.Call) -> Iterator[Diagnostic]:
        function = self.functions.get(e.fn)
        if function is None:
            combine = dict(e.attrs).get("combine")
            if combine is not None and combine not in self.functions:
                yield Diagnostic("KIR-V005", f"'{e.fn}' combines with '{combine}', which is no device function here")
            op = dict(e.attrs).get("op")
            if op in _BITWISE and e.args and isinstance(e.args[0], n.Expr) and dtype_of(e.args[0].type).is_float:
                yield Diagnostic("KIR-V002", f"'{e.fn}' by '{op}' of {dtype_of(e.args[0].type)}: it is for integers", needs="sum, prod, min or max")
            return
        if len(e.args) != len(function.params):
            yield Diagnostic("KIR-V003", f"'{e.fn}' takes {len(function.params)} operands, not {len(e.args)}")
            return
        for i, (a, q) in enumerate(zip(e.args, function.params, strict=True)):
            if isinstance(q, n.Buffer):
                if not isinstance(a, n.Region) or a.buffer.dtype != q.dtype:
                    yield Diagnostic("KIR-V003", f"operand {i} of '{e.fn}' is a place of dtype {q.dtype}")
            elif isinstance(a, n.Region) or dtype_of(a.type) != dtype_of(q.of) or not same_dims(shape_of(a.type), shape_of(q.of)):
                got = "a place" if isinstance(a, n.Region) else type_text(a.type)
                yield Diagnostic("KIR-V003", f"operand {i} of '{e.fn}' is of type {type_text(q.of)}, not {got}")


def _text(e: n.Node) -> str:
    from kir.ir.printer import region_text
    if isinstance(e, n.Region):
        return region_text(e)
    if isinstance(e, n.Expr):
        return expr_text(e)
    return f"{expr_text(e.lo)} +: {dim_text(e.extent)}" if isinstance(e, n.Span) else type(e).__name__


def _unknown(what: str, name: str) -> Diagnostic:
    return Diagnostic("KIR-V024", f"there is no {what} '{name}'")


def _const(e: n.Const) -> Iterator[Diagnostic]:
    if e.dtype.is_symbolic or e.dtype.name in _NO_NUMBER or e.dtype.name not in DTYPES:
        if not (e.dtype.is_symbolic and isinstance(e.value, float)):
            yield Diagnostic("KIR-V003", f"a literal of dtype {e.dtype}", needs="a literal of a known dtype, cast")
    elif repr(build.const(e.value, e.dtype).value) != repr(e.value):
        yield Diagnostic("KIR-V020", f"the literal {e.value!r} of dtype {e.dtype} is not in normal form",
                         needs=f"{build.const(e.value, e.dtype).value!r}")


def _load(e: n.Load) -> Iterator[Diagnostic]:
    if e.at.buffer.dtype.name in _NO_NUMBER:
        yield Diagnostic("KIR-V003", f"'{e.at.buffer.name}' holds no numbers ({e.at.buffer.dtype}): it is no value",
                         needs="&name as an operand")
    if e.mask is not None and not is_mask(e.mask.type, e.at.type):
        yield Diagnostic("KIR-V003", f"the mask of {_text(e.at)} is {type_text(e.mask.type)}",
                         needs=f"a mask that broadcasts to {type_text(_as(e.at.type, BOOL))}")
    if e.other is not None and not fits(e.other.type, e.at.type):
        yield Diagnostic("KIR-V003", f"the other value of {_text(e.at)} is {type_text(e.other.type)}",
                         needs=f"a value that broadcasts to {type_text(e.at.type)}")


def is_mask(mask: Type, of: Type) -> bool:
    """Whether a mask of bools (or of a dtype that may be bool) broadcasts to the shape of a place."""
    return isinstance(mask, (DType, TileType)) and dtype_of(mask).may_decide and fits(mask, _as(of, dtype_of(mask)))


def _as(t: Type, dtype: DType) -> Type:
    return TileType(dtype, t.shape) if isinstance(t, TileType) else dtype


def _span(e: n.Span) -> Iterator[Diagnostic]:
    for name, x in (("start", e.lo), ("extent", e.extent), ("step", e.step)):
        if isinstance(x, n.Expr) and not (isinstance(x.type, DType) and x.type.may_index):
            yield Diagnostic("KIR-V007", f"the {name} of the range {_text(e)} is {type_text(x.type)}", needs="an integer")
        if isinstance(x, n.Const) and name != "start":
            yield Diagnostic("KIR-V020", f"the {name} of the range {_text(e)} is a literal node", needs="a plain number")
    if e.step == 0 or (isinstance(e.extent, int) and e.extent < 0):
        yield Diagnostic("KIR-V007", f"the range {_text(e)} has step {dim_text(e.step)}",
                         needs="an extent of 0 or more and a step that is not 0")


def _region(e: n.Region) -> Iterator[Diagnostic]:
    rank = len(e.buffer.shape)
    if not e.index:
        return
    if len(e.index) != rank:
        yield Diagnostic("KIR-V007", f"{_text(e)} has {len(e.index)} indices, and '{e.buffer.name}' has {rank} dimensions",
                         needs="an index for each dimension, or none at all")
        return
    spans = any(isinstance(i, n.Span) for i in e.index)
    shape: tuple[int | n.Expr, ...] | None = ()
    for i in e.index:
        if isinstance(i, n.Span):
            continue
        if not isinstance(i.type, (DType, TileType)) or not dtype_of(i.type).may_index:
            yield Diagnostic("KIR-V007", f"the index {_text(i)} of '{e.buffer.name}' is {type_text(i.type)}", needs="an integer")
            continue
        if isinstance(i.type, TileType):
            if spans:
                yield Diagnostic("KIR-V007", f"{_text(e)} has a tile of indices beside a range",
                                 needs="ranges alone, or tiles that broadcast together")
                return
            shape = broadcast_shapes(shape, i.type.shape) if shape is not None else None
    if shape is None:
        yield Diagnostic("KIR-V007", f"the index tiles of {_text(e)} do not broadcast together")


def out_of_bounds(e: n.Region) -> Diagnostic | None:
    """A literal index, or a literal range, that leaves its dimension of known extent."""
    for i, d in zip(e.index, e.buffer.shape, strict=False):
        extent = build.int_value(d)
        first = build.int_value(i.lo) if isinstance(i, n.Span) else build.int_value(i)
        if first is None:
            continue
        last = first
        if isinstance(i, n.Span) and isinstance(i.extent, int) and isinstance(i.step, int):
            if i.extent == 0:
                continue
            last = first + (i.extent - 1) * i.step
        low, high = min(first, last), max(first, last)
        if low < 0 or (extent is not None and high >= extent):
            size = dim_text(d) if extent is None else str(extent)
            return Diagnostic("KIR-V008", f"{_text(e)} leaves '{e.buffer.name}': {_text(i)} in a dimension of {size}",
                              witness=(f"index {high if low >= 0 else low}",), needs="indices inside the buffer, or `clip`")
    return None
