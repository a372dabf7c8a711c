"""What must be whole numbers, since a kernel takes it for places or for bits: a dtype that nothing says is no floating-point one then."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import DType
from kir.ir.visit import walk

_COMPARED = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


def compared(program: n.Program) -> dict[str, int]:
    """The number with which each compile-time value of a generic program is compared that stands nowhere else in it: only whether it is that counts."""
    numbers: dict[str, list[int]] = defaultdict(list)
    times = Counter(x.name for k in program.kernels for x in walk(k) if isinstance(x, n.Var))
    for x in (x for k in program.kernels for x in walk(k) if isinstance(x, n.Binary) and x.op in ("eq", "ne")):
        for a, b in ((x.a, x.b), (x.b, x.a)):
            if isinstance(a, n.Var) and (value := int_value(b)) is not None:
                numbers[a.name].append(value)
    return {m.name: found[0] for m in program.metas if (found := numbers[m.name]) and len(found) == times[m.name] and len({*found}) == 1 and found[0] > 0}


def whole_numbers(program: n.Program) -> dict[str, str]:
    """The tensors and scalars of a generic program that are whole numbers, each with a dtype: `i64` (as wide as torch makes them) where their values are
    parts of an index, ends of loops, seeds of random numbers, divided without a rest, or compared for equality with a whole number or with a place of
    the grid or of a tile; `i32` where they are only shifted, as packed bits are; and those whose bits are taken for another
    dtype of eight, with that."""
    held: dict[str, list[n.Expr]] = defaultdict(list)
    for k in program.kernels:
        for s in walk(k):
            match s:
                case n.Let(names=(name,), value=value):
                    held[name].append(value)
                case n.Alloc(buffer=declared, init=n.Expr() as value):
                    held[declared.name].append(value)
                case n.Store(at=at, value=value) if at.buffer.space != "global":
                    held[at.buffer.name].append(value)
                case _:
                    pass
    scalars = {p.name for p in program.params if isinstance(p.of, DType)}
    counted = {p.name for p in program.params if isinstance(p.of, DType) and not p.of.is_symbolic}
    out, packed, bytes_ = set[str](), set[str](), dict[str, str]()
    for k in program.kernels:
        axes = {a.name for a in k.grid} | {x.var.name for x in walk(k) if isinstance(x, n.For)}
        for x in walk(k):
            match x:
                case n.Region(index=index):
                    for i in index:
                        out.update(_sources(i.lo if isinstance(i, n.Span) else i, held, scalars))
                case n.Call(fn="philox", args=args):
                    for a in args:
                        out.update(_sources(a, held, scalars) if isinstance(a, n.Expr) else ())
                case n.For(lo=lo, hi=hi):
                    out.update((*_sources(lo, held, scalars - counted), *_sources(hi, held, scalars - counted)))
                case n.Binary(op="eq" | "ne", a=n.Cast(x=a), b=n.Cast(x=b)) if _is_whole(a) or _is_whole(b):
                    out.update((*_sources(a, held, scalars), *_sources(b, held, scalars)))
                case n.Binary(op="lt" | "le" | "gt" | "ge", a=n.Cast(x=a), b=n.Cast(x=b)) if _is_place(a, held, axes) or _is_place(b, held, axes):
                    out.update((*_sources(a, held, scalars - counted), *_sources(b, held, scalars - counted)))
                case n.Binary(op="tdiv" | "floordiv" | "ceildiv", a=a, b=b):
                    out.update((*_sources(a, held, scalars - counted), *_sources(b, held, scalars - counted)))
                case n.Cast(rounding="bits", x=a, dtype=DType(bits=8) as narrow):
                    bytes_ |= dict.fromkeys(_sources(a, held, scalars), narrow.name)
                case n.Binary(op="shr" | "shl", a=a):
                    packed.update(_sources(a, held, scalars))
                case _:
                    pass
    return {**dict.fromkeys(packed, "i32"), **dict.fromkeys(out, "i64"), **bytes_}


def deciding(program: n.Program) -> set[str]:
    """The tensors of a program whose values decide where and whether something is read or written: parts of an index, ends of loops, conditions, masks."""
    held: dict[str, list[n.Expr]] = defaultdict(list)
    views: dict[str, str] = {}
    for k in program.kernels:
        for s in walk(k):
            match s:
                case n.Let(names=names, value=value):
                    for name in names:
                        held[name].append(value)
                case n.Alloc(buffer=declared, init=n.Expr() as value):
                    held[declared.name].append(value)
                case n.Store(at=at, value=value) if at.buffer.space != "global":
                    held[at.buffer.name].append(value)
                case n.Copy(src=src, dst=dst) if dst.buffer.space != "global":
                    held[dst.buffer.name].append(src)
                case n.View():
                    views[s.buffer.name] = s.at.buffer.name
                case _:
                    pass
    left: list[n.Node] = []
    for k in program.kernels:
        for x in walk(k):
            match x:
                case n.Region(index=index):
                    left += [i.lo if isinstance(i, n.Span) else i for i in index]
                case n.For(lo=lo, hi=hi):
                    left += [lo, hi]
                case n.While(cond=cond) | n.If(cond=cond):
                    left.append(cond)
                case n.Load(mask=n.Expr() as mask) | n.Store(mask=n.Expr() as mask) | n.Copy(mask=n.Expr() as mask):
                    left.append(mask)
                case n.Call(fn=fn, args=args) if fn.startswith("atomic_"):
                    left += [a for a in args[2:] if isinstance(a, n.Expr)]
                case _:
                    pass
    seen, out = set[str](), set[str]()
    while left:
        for y in walk(left.pop()):
            if isinstance(y, n.Load) and y.at.buffer.space == "global":
                out.add(views.get(y.at.buffer.name, y.at.buffer.name))
            name = y.name if isinstance(y, n.Var) else y.at.buffer.name if isinstance(y, n.Load) else y.buffer.name if isinstance(y, n.Region) else ""
            if name in held and name not in seen:
                seen.add(name)
                left += held[name]
    return out


def in_rows(program: n.Program) -> set[str]:
    """The tensors of a generic program of which some access is moved by parameters, as its strides are, and by the places of a tile that nothing multiplies:
    elements lie side by side along an axis whose stride nobody names."""
    scalars = {p.name for p in program.params if isinstance(p.of, DType) and p.of.is_integer}
    out = set[str]()
    for k in program.kernels:
        held = {x.names[0]: x.value for x in walk(k) if isinstance(x, n.Let) and len(x.names) == 1}
        for x in walk(k):
            if isinstance(x, n.Region) and len(x.index) == 1 and x.buffer.space == "global" and isinstance(x.index[0], n.Expr):
                terms = [*_terms(x.index[0], held)]
                moved = any({y.name for y in walk(t) if isinstance(y, n.Var)} & scalars for t in terms)
                if moved and any(isinstance(t, n.Call) and t.fn == "iota" for t in terms):
                    out.add(x.buffer.name)
    return out


def _terms(e: n.Expr, held: Mapping[str, n.Expr]) -> Iterator[n.Expr]:
    """What a sum adds, named values and their shapes seen through."""
    match e:
        case n.Cast(x=x):
            yield from _terms(x, held)
        case n.Binary(op="add", a=a, b=b):
            yield from (*_terms(a, held), *_terms(b, held))
        case n.Call(fn="expand" | "broadcast" | "reshape", args=(n.Expr() as x, *_)):
            yield from _terms(x, held)
        case n.Var(name=name) if name in held:
            yield from _terms(held[name], held)
        case _:
            yield e


def choosers(program: n.Program) -> set[str]:
    """The integer parameters of a generic program that only choose: each time one is mentioned, it is compared with a number. They count nothing, so that
    nothing says that they are one at least."""
    names = {p.name for p in program.params if isinstance(p.of, DType) and p.of.is_integer}
    told, chosen = defaultdict[str, int](int), defaultdict[str, int](int)
    for k in program.kernels:
        for x in walk(k):
            match x:
                case n.Var(name=name) if name in names:
                    told[name] += 1
                case n.Binary(op=op, a=a, b=b) if op in _COMPARED:
                    for one, other in ((a, b), (b, a)):
                        if (named := _plain(one)) in names and isinstance(_bare(other), n.Const):
                            chosen[named] += 1
                case _:
                    pass
    return {name for name in names if 0 < told[name] == chosen[name]}


def _bare(e: n.Expr) -> n.Expr:
    return _bare(e.x) if isinstance(e, n.Cast) else e


def _plain(e: n.Expr) -> str:
    """The name of a value, perhaps converted, or of which some bits are taken; "" for another one."""
    match _bare(e):
        case n.Var(name=name):
            return name
        case n.Binary(op="and", a=a, b=n.Const()):
            return _plain(a)
        case _:
            return ""


def _is_whole(e: n.Expr) -> bool:
    dtype = getattr(e.type, "dtype", e.type)
    return isinstance(dtype, DType) and not dtype.is_symbolic and dtype.is_integer


def _is_place(e: n.Expr, held: Mapping[str, Sequence[n.Expr]], axes: set[str], deep: int = 8) -> bool:
    """Whether a whole number is a place of the grid or of a tile, perhaps with others added and multiplied."""
    match e:
        case n.Var(name=name) if name in axes:
            return True
        case n.Call(fn="iota"):
            return True
        case n.Var(name=name) if deep and len(held.get(name, ())) == 1:
            return _is_place(held[name][0], held, axes, deep - 1)
        case n.Cast(x=x):
            return _is_place(x, held, axes, deep)
        case n.Binary(op=op, a=a, b=b) if op not in _COMPARED:
            return _is_place(a, held, axes, deep) or _is_place(b, held, axes, deep)
        case n.Call(fn="broadcast" | "expand" | "reshape", args=(n.Expr() as x, *_)):
            return _is_place(x, held, axes, deep)
        case _:
            return False


def _sources(e: n.Node, held: Mapping[str, Sequence[n.Expr]], scalars: set[str], seen: frozenset[str] = frozenset()) -> Iterator[str]:
    """The tensors that a value is loaded from, and the scalars in it, also through registers; not what it is chosen by."""
    match e:
        case n.Var(name=name) | n.Load(at=n.Region(buffer=n.Buffer(name=name))) | n.Region(buffer=n.Buffer(name=name)) if name in held:
            for value in held[name] if name not in seen else ():
                yield from _sources(value, held, scalars, seen | {name})
        case n.Var(name=name) if name in scalars:
            yield name
        case n.Load(at=n.Region(buffer=buffer)) | n.Region(buffer=buffer) if buffer.space == "global":
            yield buffer.name
        case n.Cast(x=n.Binary() as x, dtype=DType(bits=32)) if getattr(getattr(x.type, "dtype", x.type), "is_symbolic", False):
            yield from _sources(x, held, set(), seen)  # who rounds what he has computed with a number has it in floating point
        case n.Cast(x=x) | n.Unary(x=x):
            yield from _sources(x, held, scalars, seen)
        case n.Binary(op=op, a=a, b=b) if op not in _COMPARED:
            yield from _sources(a, held, scalars, seen)
            yield from _sources(b, held, scalars, seen)
        case n.Call(fn="broadcast" | "expand" | "expand_dims" | "reshape" | "trans" | "join" | "cat", args=args):
            for each in args:
                yield from _sources(each, held, scalars, seen)
        case _:
            return
