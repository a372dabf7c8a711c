"""When two generic programs are one: up to local names, names of dtype terms, the order of metas, and values that are named once.

A frontend names values as the source does, a backend names what its surface must name; a value that is named and used once is the same
program with or without its name. Nothing else is forgiven.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256

from kir.analysis.branch_definitions import both_arms
from kir.base.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, canonical, rename
from kir.ir.printer import expr_text
from kir.ir.types import BOOL, DTYPES, I32, I64, TileType, dtype_of, shape_of
from kir.ir.visit import blocks_of, once, statements, substitute, transform, walk
from kir.learning.corpus.roundtrip.same_values import with_blocks, worked_out_once
from kir.learning.corpus.roundtrip.settled_terms import Terms


def same_program(a: n.Program, b: n.Program) -> bool:
    """Whether two generic programs are the same, in the sense above, or the second has zeros where the first leaves poison, and keeps to the edges of tensors
    where the first leaves them."""
    return any(_same(a, b, by_content, sharing) for sharing in (False, True) for by_content in (True, False))


def _same(a: n.Program, b: n.Program, by_content: bool, sharing: bool) -> bool:
    other, filled = settled(b, by_content, sharing), both_arms(a)
    ways = [filled] if filled is a else [filled, a]  # what was written has the zeros most often
    return any(settled(each, by_content, sharing) == other for each in ways) or (
        sharing and any(settled(_clipped(each), by_content, sharing) == other for each in ways))


def _clipped(p: n.Program) -> n.Program:
    """The program with each element of a tensor that is read or written under no condition of its own kept to the edges of the tensor: it does the same where
    the program is right, and leaves alone what lies outside."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, (n.Load, n.Store)) and not new.clip and new.mask is None and not new.cache and new.at.buffer.space == "global" and new.at.index and (
                not isinstance(new.at.type, TileType)):
            d = new.at.buffer.dtype
            zero = build.cast(build.const(0), d) if d.is_symbolic else build.const(0 if d.is_integer else False if d.is_bool else 0.0, d)
            return replace(new, clip=True) if isinstance(new, n.Store) else replace(new, clip=True, other=zero)
        return new
    made: n.Program = transform(p, leave)
    return made


def settled(p: n.Program, by_content: bool = True, sharing: bool = False) -> n.Program:
    """The form that equal programs share: whatever has no order of its own is ordered by what it stands for, or else by what it is called. Under `sharing`
    what two names stand for has one; a value that only one of the programs names at all is then told apart from one that both work out twice."""
    return once(p, f"_settled_{by_content}_{sharing}", lambda: _settled(p, by_content, sharing))


def _settled(p: n.Program, by_content: bool, sharing: bool) -> n.Program:
    terms = Terms({m.name: m.default for m in p.metas if m.kind == "dtype" and isinstance(m.default, str) and "(" in m.default})
    metas = tuple(sorted((_told(m) for m in p.metas if m.name not in terms.derived), key=lambda m: m.name))
    made: n.Program = terms.program(replace(p, metas=metas))
    made = canonical(made) if by_content else made  # axes of the grid and parameters of functions by their place
    names = frozenset(m.name for m in p.metas)
    apart = sharing and not any(k == "alias" for q in made.params for k, _ in q.attrs)  # two tensors are never one memory
    kernels = tuple(replace(k, body=_ordered(worked_out_once(_one_name(k.body), _pure, _writes) if apart else k.body, names, by_content)) for k in made.kernels)
    functions = tuple(replace(f, body=_ordered(f.body, names, by_content)) for f in made.functions)
    read = {x.at.buffer.name for k in kernels for x in walk(k) if isinstance(x, n.Load)}
    read |= {x.buffer.name for k in kernels for c in walk(k) if isinstance(c, n.Call) for x in c.args if isinstance(x, n.Region)}
    # What is read for nothing is not read.
    params = tuple(replace(q, role="out") if q.role == "inout" and q.name not in read else q for q in made.params)
    return canonical(_functions_by_use(replace(made, params=params, kernels=kernels, functions=functions)))


def _told(m: n.Meta) -> n.Meta:
    """A meta with the kind that its default tells, where it says none."""
    return replace(m, kind="dtype" if m.default in DTYPES else "str") if m.kind == "any" and isinstance(m.default, str) else m


def _widened(body: n.Block, metas: frozenset[str]) -> n.Block:
    """The block with 64-bit values of metas worked out in 64 bits: metas are Python's integers, which have no width of their own."""
    def static(e: n.Expr) -> bool:
        return all(x.name in metas if isinstance(x, n.Var) else isinstance(x, (n.Const, n.Binary, n.Unary, n.Cast)) for x in walk(e))

    def wide(e: n.Expr) -> n.Expr:
        if isinstance(e, n.Binary) and e.op in _RING and e.type == I32:
            return _RING[e.op](wide(e.a), wide(e.b))
        return build.cast(e, I64)

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Cast) and new.dtype == I64 and new.rounding == "rn" and new.x.type == I32 and static(new.x):
            return wide(new.x)
        if isinstance(new, n.Region):
            if len(new.index) == 1 and isinstance(lone := new.index[0], n.Cast) and lone.rounding == "rn" and dtype_of(lone.type) == I64:
                new = replace(new, index=(lone.x,)) if isinstance(lone.x, n.Expr) and dtype_of(lone.x.type) == I32 else new  # an address has no width
            return replace(new, index=tuple(wide(i) if isinstance(i, n.Binary) and i.op in _RING and i.type == I32 and static(i) else i for i in new.index))
        if isinstance(new, n.Binary) and new is not old and new.op in _RING and new.type == I64:
            return _RING[new.op](new.a, new.b)
        return new
    return tuple(transform(s, leave) for s in body)


_RING = {"add": build.add, "sub": build.sub, "mul": build.mul}


def _functions_by_use(p: n.Program) -> n.Program:
    """Device functions named by their order, whatever they were called."""
    names = {f.name: f"function_{i}" for i, f in enumerate(p.functions)}

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Call) and (new.fn in names or any(k == "combine" and v in names for k, v in new.attrs)):
            attrs = tuple((k, names.get(str(v), v) if k == "combine" else v) for k, v in new.attrs)
            return replace(new, fn=names.get(new.fn, new.fn), attrs=attrs)
        return replace(new, name=names[new.name]) if isinstance(new, n.Function) else new
    made: n.Program = transform(p, leave)
    return made


def _folded(body: n.Block) -> n.Block:
    """The body with each pure value that is named and used once in place of its name, and unused ones gone."""
    while True:
        uses: Counter[str] = Counter()
        for s in body:
            uses.update(_used(s))
        made = _fold_block(body, uses)
        if made == body:
            return body
        body = made


def _fold_block(body: n.Block, uses: Counter[str]) -> n.Block:
    out: list[n.Stmt] = []
    rest = list(body)
    while rest:
        s = rest.pop(0)
        if isinstance(s, n.Let) and len(s.names) == 1 and _pure(s.value):
            (name,) = s.names
            if not uses.get(name):
                continue
            at = next((i for i, t in enumerate(rest) if name in _used(t)), None)
            if uses[name] == 1 and at is not None and _may_move(s.value, rest[:at], rest[at], name):
                rest[at] = substitute(rest[at], {name: s.value})
                continue
        out.append(_inner(s, uses))
    return tuple(out)


def _ordered(body: n.Block, metas: frozenset[str], by_content: bool) -> n.Block:
    """The body with choices settled where their branch is known, values folded, and what has no order of its own in a fixed one."""
    folded = _widened(_folded(_truths(_started(_handed_on(_decided(_spans(_unnamed(_one_name(body), metas)), ()))))), metas)
    nameless = _contents(folded)
    if by_content:
        names = _told_apart(nameless, bound_names(folded))
        folded, nameless = tuple(rename(s, names) for s in folded), {names.get(x, x): told for x, told in nameless.items()}
    return _sunk(_stores_sorted(folded, nameless))


def _one_name(block: n.Block) -> n.Block:
    """The block without second names of values."""
    names: dict[str, n.Expr] = {}
    for s in (x for b in block for x in statements((b,))):
        if isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value, n.Var):
            names[s.names[0]] = names.get(s.value.name, s.value)

    def without(b: n.Block) -> n.Block:
        return tuple(with_blocks(s, without) for s in b if not (isinstance(s, n.Let) and s.names[0] in names))
    return tuple(substitute(s, names) for s in without(block)) if names else block


def _spans(block: n.Block) -> n.Block:
    """The block with a vectorized loop that puts one value into a run of elements, and does nothing else, as that store."""
    out: list[n.Stmt] = []
    for s in (with_blocks(s, _spans) for s in block):
        match s:
            case n.For(kind="vectorize", step=n.Const(value=1), attrs=(), body=(n.Store(mask=None) as inner,)) if s.var in inner.at.index and not any(
                    x == s.var for i in (inner.value, *inner.at.index) if i != s.var for x in walk(i)) and sum(i == s.var for i in inner.at.index) == 1:
                run = n.Span(s.lo, build.sub(s.hi, s.lo))
                out.append(replace(inner, at=replace(inner.at, index=tuple(run if i == s.var else i for i in inner.at.index))))
            case _:
                out.append(s)
    return tuple(out)


def _truths(block: n.Block) -> n.Block:
    """The block with each condition that is kept as 1 or 0 in a register of its own, which nothing else changes, where it is asked again."""
    out: list[n.Stmt] = [with_blocks(s, _truths) for s in block]
    for i in range(len(out) - 1, -1, -1):
        s = out[i]
        if not isinstance(s, n.Alloc) or s.buffer.space != "register" or s.buffer.shape or not isinstance(c := s.init, n.Select) or not _pure(c.cond):
            continue
        if (c.a, c.b) != (build.const(1), build.const(0)) or any(isinstance(x, n.Load) for x in walk(c.cond)):
            continue
        asked, uses = build.compare("eq", n.Load(n.Region(s.buffer)), 1), [x for t in out[i + 1:] for x in walk(t)]
        if sum(isinstance(x, n.Buffer) and x.name == s.buffer.name for x in uses) == sum(x == asked for x in uses):
            out[i:] = [transform(t, lambda _, x, asked=asked, cond=c.cond: cond if x == asked else x) for t in out[i + 1:]]  # type: ignore[misc]  # of this turn
    return tuple(out)


def _unnamed(block: n.Block, static: frozenset[str]) -> n.Block:
    """The block with each value that is known when it is compiled (of metas and the counters of static loops) in place of its name: Triton gives such a
    value no variable."""
    out: list[n.Stmt] = []
    rest = list(block)
    while rest:
        s = rest.pop(0)
        if isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value, n.Binary) and all(
                x.name in static if isinstance(x, n.Var) else isinstance(x, (n.Const, n.Binary)) for x in walk(s.value)):
            rest = [substitute(t, {s.names[0]: s.value}) for t in rest]
            continue
        inner = static | {s.var.name} if isinstance(s, n.For) and s.kind == "static" else static
        out.append(with_blocks(s, lambda b, known=inner: _unnamed(b, known)))  # type: ignore[misc]  # of this turn
    return tuple(out)


def _told_apart(contents: dict[str, str], bound: Iterable[str]) -> dict[str, str]:
    """For each local name one that is made of what it stands for, so that sums have the same order whatever their terms are called; of names for the
    same, the second has a number."""
    seen: Counter[str] = Counter()
    names: dict[str, str] = {}
    for name in dict.fromkeys(bound):
        names[name] = f"%{contents[name]}_{seen[contents[name]]}"
        seen[contents[name]] += 1
    return names


def _started(block: n.Block) -> n.Block:
    """The block with a declaration that is given a value before anything else mentions it, from its first value alone, declared with
    that value there."""
    out: list[n.Stmt] = [with_blocks(s, _started) for s in block]
    for i in range(len(out) - 1, -1, -1):
        s = out[i]
        if not isinstance(s, n.Alloc) or s.buffer.space == "global":
            continue
        name = s.buffer.name
        at = next((j for j in range(i + 1, len(out)) if name in _places(out[j])), None)
        user = out[at] if at is not None else None
        if at is None or not isinstance(user, n.Store) or user.at != n.Region(s.buffer) or user.mask is not None or not _pure(user.value):
            continue
        value = _with_first(user.value, s)
        if value is not None and (s.init is None or (_pure(s.init) and _may_move(s.init, out[i + 1:at], user, ""))):
            out[at] = replace(s, init=value)
            del out[i]
    return tuple(out)


def _handed_on(block: n.Block) -> n.Block:
    """The block with a declaration that is filled and then only copied as a whole to one of its kind, unmentioned in between, filled there at once."""
    out: list[n.Stmt] = [with_blocks(s, _handed_on) for s in block]
    for i in range(len(out) - 1, -1, -1):
        s = out[i]
        if not isinstance(s, n.Alloc) or s.buffer.space == "global":
            continue
        at = max((j for j in range(i + 1, len(out)) if s.buffer.name in _places(out[j])), default=i)
        last = out[at]
        if not isinstance(last, n.Store) or last.value != n.Load(n.Region(s.buffer)) or last.at != n.Region(last.at.buffer) or last.mask is not None:
            continue
        to = last.at.buffer
        if replace(to, name=s.buffer.name) != s.buffer or any(to.name in _places(t) for t in out[i:at]):
            continue
        begun = [n.Store(n.Region(to), s.init)] if s.init is not None else []
        out[i:at + 1] = [*begun, *(rename(t, {s.buffer.name: to.name}) if s.buffer.name in _places(t) else t for t in out[i + 1:at])]
    return tuple(out)


def _with_first(value: n.Expr, s: n.Alloc) -> n.Expr | None:
    """A value in terms of what a declaration starts with; None where it needs more of the buffer, or there is nothing to start with."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        return s.init if isinstance(new, n.Load) and new == n.Load(n.Region(s.buffer)) and s.init is not None else new
    made: n.Expr = transform(value, leave)
    return None if any(isinstance(x, n.Buffer) and x.name == s.buffer.name for x in walk(made)) else made


def _contents(body: n.Block) -> dict[str, str]:
    """For each local name a digest of what it stands for, which depends on no name."""
    out = dict.fromkeys(bound_names(body), "_")

    def digest(*parts: object) -> str:
        return f"_{sha256(' '.join(map(str, parts)).encode()).hexdigest()[:12]}"

    def shown(e: n.Expr | None) -> str:
        return "" if e is None else expr_text(rename(e, out))
    for s in statements(body):
        match s:
            case n.Let():
                out |= {x: digest("let", i, shown(s.value)) for i, x in enumerate(s.names)}
            case n.Alloc():
                out[s.buffer.name] = digest("alloc", s.buffer.dtype, shown(s.init))
            case n.Store() if s.at.buffer.space != "global":
                out[s.at.buffer.name] = digest(out.get(s.at.buffer.name), shown(s.value))
            case n.For():
                out[s.var.name] = digest("for", shown(s.lo), shown(s.hi))
            case _:
                pass
    return out


def _decided(block: n.Block, known: tuple[tuple[n.Expr, bool], ...]) -> n.Block:
    """The block with each choice by a condition that its static branch decides replaced by what it comes to."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Select):
            outcome = _known(new.cond, known) if known else None
            if outcome is not None or new.a == new.b:
                return new.b if outcome is False else new.a
            if known:
                new = replace(new, cond=_rest(new.cond, known))
            if dtype_of(new.type).is_bool and (said := _as_logic(new)) is not None:
                return said
            if isinstance(new.a, n.Load) and new.a.mask == new.cond and isinstance(new.b, n.Const) and new.a.other == new.b:
                return new.a  # where it does not hold both are the same number
        if isinstance(new, n.Call) and new.fn == "broadcast" and isinstance(new.args[0], n.Expr) and shape_of(new.type) == shape_of(
                new.args[0].type):
            return new.args[0]
        if isinstance(new, n.Call) and new.fn == "broadcast" and isinstance(new.args[0], n.Expr):
            return replace(new, args=(_without_leading(new.args[0])[0], *new.args[1:]))
        if isinstance(new, n.Cast) and new.rounding == "rn" and isinstance(new.x, n.Const) and new.x.value != new.x.value and new.dtype.is_float and (
                not new.dtype.is_symbolic):  # one NaN of each dtype
            return n.Const(new.x.value, new.dtype)
        if isinstance(new, n.Cast) and new.rounding == "rn" and new.dtype.is_symbolic and isinstance(x := new.x, n.Const) and x.dtype.is_integer and (
                not x.dtype.is_bool and I32.wrap(int(x.value)) == x.value):  # a number that is converted has no width
            return replace(new, x=n.Const(x.value, I32))
        if isinstance(new, n.Cast) and new.dtype.is_symbolic and isinstance(new.x, n.Const) and repr(new.x.value) == "0.0":  # zero is zero in all dtypes
            return replace(new, x=n.Const(0, I32))
        if isinstance(new, n.Region):  # a place that is a number has no width
            new = replace(new, index=tuple(n.Const(i.value, I32) if isinstance(i, n.Const) and i.dtype == I64 and I32.wrap(int(i.value)) == i.value else i
                                           for i in new.index))
            bare = replace(new, index=tuple(_unspread(i) for i in new.index))
            return bare if shape_of(bare.type) == shape_of(new.type) else new
        if isinstance(new, n.Binary) and new.op in ("and", "or") and new.type == BOOL and build.invert(new.a) == new.b:
            return n.Const(new.op == "or", BOOL)
        if isinstance(new, n.Binary) and new.op in ("and", "or") and new.type == BOOL and any(
                isinstance(x, n.Const) and x.value is (new.op == "and") for x in (new.a, new.b)):
            return new.b if isinstance(new.a, n.Const) else new.a
        if isinstance(new, n.Binary):
            return replace(new, a=_stretching(new.a, new.b), b=_stretching(new.b, new.a))
        if isinstance(new, n.Select):
            return replace(new, cond=_stretching(new.cond, new.a, new.b), a=_stretching(new.a, new.b, new.cond),
                           b=_stretching(new.b, new.a, new.cond))
        return new
    out: list[n.Stmt] = []
    for s in block:
        if isinstance(s, n.If) and s.static and (outcome := _known(s.cond, known)) is not None:
            out += _decided(s.then if outcome else s.orelse, known)
        elif isinstance(s, n.If) and s.static:
            arms = []
            cond = _rest(s.cond, known)
            for body, outcome in ((s.then, True), (s.orelse, False)):
                arms.append(_decided(body, (*known, *_facts(cond, outcome))))
            out.append(replace(s, cond=cond, then=arms[0], orelse=arms[1]))
        elif blocks_of(s):
            inner: list[n.Block] = []
            head = transform(with_blocks(s, lambda b, inner=inner: inner.append(_decided(b, known)) or ()), leave)  # type: ignore[misc]  # of this turn
            out.append(with_blocks(head, lambda b, inner=inner: inner.pop(0)))  # type: ignore[misc]  # of this turn
        else:
            out.append(transform(s, leave))
    return tuple(out)


def _as_logic(e: n.Select) -> n.Expr | None:
    """A choice between a condition and True or False as a conjunction or disjunction; None where an arm reads memory, which only its choice makes safe."""
    if any(isinstance(x, n.Load) and (x.at.index or x.at.buffer.space == "global") for arm in (e.a, e.b) for x in walk(arm)):
        return None
    match e:
        case n.Select(b=n.Const(value=False)):
            return build.logical_and(e.cond, e.a)
        case n.Select(a=n.Const(value=True)):
            return build.logical_or(e.cond, e.b)
        case _:
            return None


def _rest(cond: n.Expr, known: tuple[tuple[n.Expr, bool], ...]) -> n.Expr:
    """What is left to ask of a static condition where some are known."""
    if isinstance(cond, n.Binary) and cond.op in ("and", "or"):
        idle = cond.op == "and"
        kept = [_rest(x, known) for x in (cond.a, cond.b) if _known(x, known) is not idle]
        return kept[0] if len(kept) == 1 else replace(cond, a=kept[0], b=kept[1])
    return cond


def _known(cond: n.Expr, known: tuple[tuple[n.Expr, bool], ...]) -> bool | None:
    """How a static condition comes out where some are known."""
    said = next((o for e, o in known if e == cond), None)
    match cond:
        case _ if said is not None:
            return said
        case n.Unary(op="not"):
            inner = _known(cond.x, known)
            return None if inner is None else not inner
        case n.Binary(op="and" | "or"):
            both, strong = (_known(cond.a, known), _known(cond.b, known)), cond.op == "or"
            return strong if strong in both else None if None in both else not strong
    return None


def _facts(cond: n.Expr, outcome: bool) -> tuple[tuple[n.Expr, bool], ...]:
    """What is known in the arm of a static condition."""
    match cond:
        case n.Unary(op="not"):
            return _facts(cond.x, not outcome)
        case n.Binary(op="and" | "or") if outcome == (cond.op == "and"):
            return (*_facts(cond.a, outcome), *_facts(cond.b, outcome))
    return ((cond, outcome),)


def _unspread(i: n.Expr | n.Span) -> n.Expr | n.Span:
    """An index without the broadcast that indices beside it give it."""
    return i.args[0] if isinstance(i, n.Call) and i.fn == "broadcast" and isinstance(i.args[0], n.Expr) else i


def _stretching(e: n.Expr, *beside: n.Expr) -> n.Expr:
    """An operand without the leading axes that broadcasting gives it."""
    while isinstance(e, n.Call) and e.fn == "expand" and dict(e.attrs)["axis"] == 0 and isinstance(e.args[0], n.Expr) and any(
            len(shape_of(b.type)) >= len(shape_of(e.type)) and not (isinstance(b, n.Call) and b.fn == "expand" and dict(b.attrs)["axis"] == 0)
            for b in beside):
        e = e.args[0]
    return e


def _without_leading(e: n.Expr) -> tuple[n.Expr, int]:
    """A tile without the axes of one element before all others, which a broadcast to more axes gives it anyway, and how many they are."""
    if isinstance(e, n.Call) and e.fn == "expand" and isinstance(e.args[0], n.Expr):
        inner, leading = _without_leading(e.args[0])
        if int(dict(e.attrs)["axis"]) <= leading:
            return inner, leading + 1
    return e, 0


def _stores_sorted(block: n.Block, nameless: dict[str, str]) -> n.Block:
    """The block with what it gives to several private buffers one after another in an order that no name decides."""
    out: list[n.Stmt] = []
    group: list[n.Store] = []

    def close() -> None:
        ordered: list[n.Store] = sorted(group, key=lambda g: expr_text(rename(g.value, nameless)))
        out.extend(ordered)
        group.clear()
    for s in block:
        if isinstance(s, n.Store) and s.at.buffer.space != "global" and not s.at.index and s.mask is None:
            names = {g.at.buffer.name for g in group}
            read = {x.name for x in walk(s.value) if isinstance(x, n.Buffer)}
            others = {x.name for g in group for x in walk(g.value) if isinstance(x, n.Buffer)}
            if s.at.buffer.name in names | others or read & names:
                close()
            group.append(s)
            continue
        close()
        out.append(with_blocks(s, lambda b: _stores_sorted(b, nameless)))
    close()
    return tuple(out)


def _sunk(block: n.Block) -> n.Block:
    """The block with each pure value and declaration just before its first use, in the order in which that mentions them."""
    out: list[n.Stmt] = [with_blocks(s, _sunk) for s in block]
    for i in range(len(out) - 1, -1, -1):
        s = out[i]
        names = _binds(s)
        if not names:
            continue
        at = next((j for j in range(i + 1, len(out)) if _mention(out[j], names) is not None), None)
        value = s.value if isinstance(s, n.Let) else s.init if isinstance(s, n.Alloc) else None
        if at is None or (value is not None and not _may_move(value, out[i + 1:at], out[at], "")):
            continue
        user = out[at]
        del out[i]
        at -= 1
        while at > i and _binds(out[at - 1]) and (there := _mention(user, _binds(out[at - 1]))) is not None and there > (
                _mention(user, names) or 0) and _mention(out[at - 1], names) is None:
            at -= 1
        out.insert(at, s)
    return tuple(out)


def _binds(s: n.Stmt) -> frozenset[str]:
    """The names of a pure value or of a declaration; none for any other statement."""
    match s:
        case n.Let() if _pure(s.value):
            return frozenset(s.names)
        case n.Alloc() if s.init is None or _pure(s.init):
            return frozenset({s.buffer.name})
        case _:
            return frozenset()


def _mention(s: n.Stmt, names: frozenset[str]) -> int | None:
    """How far into a statement one of the names is mentioned first."""
    places = _places(s)
    return min((places[x] for x in names if x in places), default=None)


def _inner(s: n.Stmt, uses: Counter[str]) -> n.Stmt:
    return with_blocks(s, lambda block: _fold_block(block, uses))


def _used(s: n.Stmt) -> Counter[str]:
    """How often a statement, with what is in it, uses each value."""
    return once(s, "_equal_used", lambda: Counter(x.name for x in walk(s) if isinstance(x, n.Var)))


def _places(s: n.Stmt) -> dict[str, int]:
    """How far into a statement each name is mentioned first."""
    def found() -> dict[str, int]:
        out: dict[str, int] = {}
        inner = blocks_of(s)
        for i, x in enumerate(walk(with_blocks(s, lambda block: ()) if inner else s)):
            if isinstance(x, (n.Var, n.Buffer)):
                out.setdefault(x.name, i)
        passed = max(out.values(), default=0)
        for within in (_places(t) for block in inner for t in block):
            for name, i in within.items():
                out.setdefault(name, passed + 1 + i)
            passed += 1 + max(within.values(), default=0)
        return out
    return once(s, "_equal_places", found)


def _pure(e: n.Expr) -> bool:
    rows = table()
    return once(e, "_equal_pure", lambda: all(not isinstance(x, n.Call) or (x.of is None and rows[x.fn].is_pure) for x in walk(e)))


def _may_move(e: n.Expr, between: list[n.Stmt], into: n.Stmt, name: str) -> bool:
    """Whether a value may be worked out where it is used: what it reads is not written before, and it is not moved into a loop or branch."""
    read = {x.buffer.name for x in walk(e) if isinstance(x, n.Region)}
    if read and any(name in _used(t) for b in blocks_of(into) for t in b):
        return False
    return not read or not any(_writes(t, read) for t in between)


def _writes(s: n.Stmt, names: set[str]) -> bool:
    for x in walk(s):
        match x:
            case n.Store() if x.at.buffer.name in names:
                return True
            case n.Copy() if x.dst.buffer.name in names:
                return True
            case n.Mma() if x.acc.buffer.name in names:
                return True
            case n.Call() if not table()[x.fn].is_pure if x.of is None else True:
                return True
            case n.Opaque() | n.Hole():
                return True
            case n.Alloc() if x.buffer.name in names:
                return True
            case _:
                pass
    return False
