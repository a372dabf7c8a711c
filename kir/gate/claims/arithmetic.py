"""Which arithmetic a program does on the way to its outputs: dtypes of products and of running sums, and steps that a problem names."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic
from kir.gate.claims.compensation import compensations
from kir.gate.claims.flow import Definition, Flow, Key
from kir.ir import nodes as n
from kir.ir.types import DTYPES, DType, dtype_of
from kir.problem.schema import Claims, Products, Step

MANTISSA = {"f8e5m2": 2, "f8e4m3": 3, "bf16": 7, "f16": 10, "tf32": 10, "f32": 23, "f64": 52}
"""Bits behind the point of each float: what a sum in it keeps."""
_SUMS = frozenset({"sum", "add"})
Live = Mapping[Key, Sequence[Definition]]


@dataclass(frozen=True)
class Product:
    """A multiplication of `a` and `b` at a definition; `dtypes` in which the two are multiplied."""

    where: Definition
    a: n.Node
    b: n.Node
    dtypes: tuple[str, str]


@dataclass(frozen=True)
class Sum:
    """A running sum in `dtype` at a definition."""

    where: Definition
    dtype: str


def unkept(flow: Flow, live: Live, claims: Claims, tensors: Mapping[str, str], output: str) -> Iterator[Diagnostic]:
    """What of a problem's claims the program does not keep on the way to `output`; `tensors` gives the program's name of each tensor of the problem.
    KIR-G131 products, KIR-G132 running sums, KIR-G133 named steps."""
    where = [d for found in live.values() for d in found]
    if claims.products:
        made = list(products(flow, where))
        for wanted in claims.products:
            yield from _products(flow, made, wanted, tensors, output, live)
    if claims.accumulator:
        for each in sums(flow, where):
            if MANTISSA.get(each.dtype, 99) < MANTISSA[claims.accumulator]:
                yield Diagnostic("KIR-G132", f"the problem says that sums are kept in {claims.accumulator}; this one is kept in {each.dtype}",
                                 anchor=flow.anchor(each.where), subject=output, origin=getattr(each.where.stmt, "origin", None))
    for step in claims.steps:
        yield from _step(flow, where, step, tensors, output)


# ---------------------------------------------------------------------------------------------------------------------- products

def products(flow: Flow, where: Sequence[Definition]) -> Iterator[Product]:
    """Every multiplication of floats at these definitions, with the dtypes of its operands before they were widened."""
    for d in where:
        if isinstance(d.stmt, n.Mma):
            tf32 = d.stmt.precision == "tf32"
            given, other = ("tf32" if tf32 and _dtype(e) == "f32" else _dtype(e) for e in (d.stmt.a, d.stmt.b))
            yield Product(d, d.stmt.a, d.stmt.b, (given, other))
            continue
        for e in (part for use in d.uses for part in flow.parts(use, d.kernel)):
            match e:
                case n.Call(fn="wgmma", args=(_, a, b, *_)) | n.Call(fn="mma_sync", args=(a, b, *_)):
                    yield Product(d, a, b, (_dtype(a), _dtype(b)))
                case n.Call(fn="fma" | "fma_rounded", args=(a, b, *_)) | n.Binary(op="mul", a=a, b=b) if dtype_of(a.type).is_float:
                    yield Product(d, a, b, (narrowest(flow, a, d.kernel), narrowest(flow, b, d.kernel)))
                case _:
                    pass


def _dtype(e: n.Node) -> str:
    return e.buffer.dtype.name if isinstance(e, n.Region) else dtype_of(e.type).name if isinstance(e, n.Expr) else ""


def narrowest(flow: Flow, e: n.Node, kernel: str) -> str:
    """The dtype that an operand had before it was widened: a cast of a narrower float is exact, so the product is one of the narrower."""
    seen = set[Key]()
    while True:
        match e:
            case n.Cast(rounding="rn") if _widens(dtype_of(e.x.type), e.dtype):
                e = e.x
                continue
            case n.Var() | n.Load():
                key = flow.key(e.name if isinstance(e, n.Var) else e.at.buffer.name, kernel)
                found = flow.definitions.get(key, [])
                if key not in seen and key[0] and len(found) == 1 and isinstance(found[0].stmt, (n.Let, n.Store, n.Alloc, n.Copy)):
                    seen.add(key)
                    e = found[0].uses[0]
                    continue
            case n.Call(fn="expand" | "broadcast" | "trans" | "reshape", args=(n.Expr() as inner, *_)):
                e = inner
                continue
            case _:
                pass
        return _dtype(e)


def _widens(old: DType, new: DType) -> bool:
    return old.is_float and new.is_float and MANTISSA.get(old.name, 99) <= MANTISSA.get(new.name, -1) and old.bits < new.bits


def _products(flow: Flow, made: Sequence[Product], wanted: Products, tensors: Mapping[str, str], output: str, live: Live) -> Iterator[Diagnostic]:
    """The products of the two tensors are in the dtype that is claimed, and there is one."""
    a, b = (tensors.get(name, name) for name in wanted.of)
    found = False
    for p in made:
        one, other = flow.sources(p.a, p.where.kernel), flow.sources(p.b, p.where.kernel)
        if b in one and a in other and a not in one:
            one, other = other, one
        if a not in one or b not in other or (a != b and (b in one or a in other)):
            continue
        found = True
        if any(dtype != wanted.dtype for dtype in p.dtypes):
            said = p.dtypes[0] if p.dtypes[0] == p.dtypes[1] else f"{p.dtypes[0]} and {p.dtypes[1]}"
            yield Diagnostic("KIR-G131", f"the problem says that {wanted.of[0]} and {wanted.of[1]} are multiplied in {wanted.dtype}; here it is in {said}",
                             anchor=flow.anchor(p.where), subject=output, origin=getattr(p.where.stmt, "origin", None))
    if not found:
        yield Diagnostic("KIR-G131", f"the problem says that {wanted.of[0]} and {wanted.of[1]} are multiplied in {wanted.dtype}; no product of the two "
                         f"arrives at {output}", anchor=last(flow, live, output), subject=output)


def last(flow: Flow, live: Live, output: str) -> str:
    """Where an output is written last."""
    found = live.get(flow.key(output, ""), ())
    return flow.anchor(found[-1]) if found else ""


# -------------------------------------------------------------------------------------------------------------------------- sums

def sums(flow: Flow, where: Sequence[Definition]) -> Iterator[Sum]:
    """Every running sum of floats at these definitions, in the lowest precision that it passes through."""
    direct = {id(d): found for d in where if (found := _carried(flow, d, frozenset()))}
    running = frozenset(d.key for d in where if id(d) in direct)
    kept = running | {flow.key(d.stmt.acc.buffer.name, d.kernel) for d in where if isinstance(d.stmt, n.Mma)}
    for d in where:
        if isinstance(d.stmt, n.Mma):
            yield Sum(d, d.stmt.acc.buffer.dtype.name)
            continue
        for e in (part for use in d.uses for part in flow.parts(use, d.kernel) if isinstance(part, n.Call)):
            options = dict(e.attrs)
            if e.fn in ("reduce", "scan", "warp_reduce") and options.get("op", "sum") in _SUMS and dtype_of(e.args[0].type).is_float:
                yield Sum(d, dtype_of(e.args[0].type).name)
            elif e.fn in ("wgmma", "mma_sync") and e.args:
                yield Sum(d, _dtype(e.args[0 if e.fn == "wgmma" else 2]))
            elif e.fn == "atomic_add" and isinstance(e.args[0], n.Region) and e.args[0].buffer.dtype.is_float:
                yield Sum(d, e.args[0].buffer.dtype.name)
        if found := direct.get(id(d)) or _carried(flow, d, running - {d.key}, rounds=d.key in kept):
            yield Sum(d, found)


def _carried(flow: Flow, d: Definition, stop: frozenset[Key], rounds: bool = False) -> str:
    """The lowest precision on the way on which a stored value adds to what the same place held, or, of a place that holds a running sum (`rounds`), is
    made of it; none where it is not. Names in `stop` are not followed."""
    if not isinstance(d.stmt, (n.Store, n.Let)) or not d.uses or (isinstance(d.stmt, n.Let) and len(d.stmt.names) > 1):
        return ""
    if isinstance(d.stmt, n.Let):
        return ""
    dtype = d.stmt.at.buffer.dtype
    if not dtype.is_float:
        return ""
    follows = _Additive(flow, d, stop)
    return follows.lowest(d.uses[0], dtype.name, rounds, 0)


class _Additive:
    """Follows a value back through sums, differences, factors, casts and choices to the place that it is stored to."""

    DEEP = 60

    def __init__(self, flow: Flow, target: Definition, stop: frozenset[Key]) -> None:
        self.flow, self.target, self.stop, self.seen = flow, target, stop, set[tuple[Key, bool]]()

    def lowest(self, e: n.Node, least: str, added: bool, depth: int) -> str:
        """The lowest precision on the way to the target, `least` so far; empty where no way with a sum leads there."""
        if depth > self.DEEP or not isinstance(e, n.Expr):
            return ""
        own = dtype_of(e.type)
        if own.is_float and MANTISSA.get(own.name, 99) < MANTISSA.get(least, 99):
            least = own.name
        inner: list[tuple[n.Node, bool]] = []
        match e:
            case n.Binary(op="add" | "sub"):
                inner = [(e.a, True), (e.b, True)]
            case n.Binary(op="mul" | "div"):
                inner = [(e.a, added), (e.b, added)] if e.op == "mul" else [(e.a, added)]
            case n.Call(fn="fma" | "fma_rounded", args=(a, b, c, *_)):
                inner = [(c, True), (a, True), (b, True)]
            case n.Cast() | n.Unary():
                inner = [(e.x, added)]
            case n.Select():
                inner = [(e.a, added), (e.b, added)]
            case n.Call(fn="expand" | "broadcast" | "reshape" | "pick" | "vec", args=args):
                inner = [(a, added) for a in args[:1]]
            case n.Var():
                return self._through(self.flow.key(e.name, self.target.kernel), least, added, depth)
            case n.Load():
                return self._through(self.flow.key(e.at.buffer.name, self.target.kernel), least, added, depth)
            case _:
                pass
        return min((found for x, sum_ in inner if (found := self.lowest(x, least, sum_, depth + 1))), key=lambda t: MANTISSA.get(t, 99), default="")

    def _through(self, key: Key, least: str, added: bool, depth: int) -> str:
        if key == self.target.key:
            return least if added else ""
        if key in self.stop or (key, added) in self.seen:
            return ""
        self.seen.add((key, added))
        found = [d for d in self.flow.definitions.get(key, []) if isinstance(d.stmt, (n.Let, n.Store, n.Copy)) and d.uses]
        return min((low for d in found if (low := self.lowest(d.uses[0], least, added, depth + 1))), key=lambda t: MANTISSA.get(t, 99), default="")


# ------------------------------------------------------------------------------------------------------------------------- steps

def _step(flow: Flow, where: Sequence[Definition], step: Step, tensors: Mapping[str, str], output: str) -> Iterator[Diagnostic]:
    """A step that the problem names is done on the way to the output."""
    of = tensors.get(step.of, step.of)
    parts = [(d, part) for d in where for use in d.uses for part in flow.parts(use, d.kernel)]

    def comes(e: n.Node, d: Definition) -> bool:
        return not of or of in flow.sources(e, d.kernel)

    if step.kind == "order":
        for d, e in parts:
            if isinstance(e, n.Region) and isinstance(d.stmt, (n.Eval, n.Let)) and _adds_anyhow(d.stmt, e):
                yield Diagnostic("KIR-G133", "the problem says that sums are added in a fixed order; this one adds as CTAs or threads come",
                                 anchor=flow.anchor(d), subject=output, origin=getattr(d.stmt, "origin", None))
                return
        return
    if step.kind == "compensation":
        kept = compensations(flow, where)
        done = any(comes(e, d) for d, e in kept)
        what = "compensated: no rounding error is worked out that arrives there"
    elif step.kind == "round":
        done = any(isinstance(e, n.Cast) and e.dtype == DTYPES[step.to] and _narrows(e) and comes(e, d) for d, e in parts)
        what = f"rounded to {step.to} on the way: no cast to it arrives there"
    else:
        done = any(isinstance(e, n.Call) and e.fn in step.any_of and comes(e, d) for d, e in parts)
        what = f"made with {' or '.join(step.any_of)}: none arrives there"
    if not done:
        yield Diagnostic("KIR-G133", f"the problem says that {output}{f', from {step.of},' if step.of else ''} is {what}",
                         anchor=last(flow, {flow.key(output, ''): flow.definitions.get(flow.key(output, ''), [])}, output), subject=output)


def _adds_anyhow(s: n.Eval | n.Let, place: n.Region) -> bool:
    call = s.call if isinstance(s, n.Eval) else s.value
    return isinstance(call, n.Call) and call.fn == "atomic_add" and call.args[0] is place and place.buffer.dtype.is_float


def _narrows(e: n.Cast) -> bool:
    return MANTISSA.get(e.dtype.name, 99) < MANTISSA.get(dtype_of(e.x.type).name, -1)


__all__ = ["Product", "Sum", "products", "sums", "unkept"]
