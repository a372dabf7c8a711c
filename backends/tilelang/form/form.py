"""The form of a program that TileLang can say: what needs a buffer there has one. Tile code to tile code of the same meaning; idempotent.

Whole tiles are buffers in TileLang, never values: a tile that has a name becomes a fragment, and so does what a reduction, a scan or a product
takes and what a reduction gives. Products on scalar units are loops of elementwise sums. An access to global memory is checked against the edges
of the tensor, as TileLang checks each; a load that takes something else than zero outside is a choice between the two.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kir.analysis.elements import NotElementwise, element, tile
from kir.analysis.facts import Facts
from kir.analysis.normal.normal_form import normalize
from kir.analysis.tiles import tf32
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value, is_const
from kir.ir.canonical import bound_names, outer_names
from kir.ir.rebuild.promote import promoted
from kir.ir.types import F32, I32, DType, TileType, dtype_of, shape_of
from kir.ir.visit import blocks_of, names_read, statements, substitute, substitute_buffers, transform, walk
from kir.rewrite.match.local_buffers import is_left

from ..spelling.cuda_functions import is_loaded
from ..spelling.layouts import said
from .aliases import read_where_they_lie
from .awaited import awaited
from .chained_products import by_rows
from .gathered import beside_copies
from .origins import sourced
from .own_rows import own_rows
from .reducers import is_named_sum
from .roles import by_threads
from .thread_vectors import ThreadForm, is_idle
from .together import done_together
from .turned import from_copies
from .unit_dimensions import wholes, within

COLLECTIVE = frozenset({"reduce", "scan"})
TEAMS = frozenset({"thread", "warp", "warpgroup"})
TENSOR_CORES = frozenset({"f16", "bf16", "i8", "u8", "f8e4m3", "f8e5m2", "f64"})
"""Operands that T.gemm multiplies as they are; f32 it takes as tf32."""


def prepared(program: n.Program, generic: bool = False, written: bool = True) -> n.Program:
    """The program in TileLang's form; of a generic one, what its own source named stays as it is named. Unless it is `written`, arrays of threads stay as
    they are read: fragments with a row for each."""
    taken = {p.name for p in program.params} | {w.buffer.name for w in program.workspaces} | {m.name for m in program.metas}
    rows = (own_rows(k) if written else k for k in program.kernels)
    made = (_kernel(k, taken | {x.name for x in program.kernels}, generic) for k in rows)
    kernels = tuple(k if generic else awaited(k, Facts.in_kernel(program, k.name)) for k in made)
    return replace(program, tensor_maps=(), kernels=kernels)


def form(program: n.Program) -> n.Program:
    """The program that an emitted text is read back as: TileLang's form, its fragments values again where nothing else writes them."""
    made = prepared(program, written=False)
    outer = frozenset(outer_names(made))
    kernels = tuple(replace(k, body=promoted(_uniform(k.body), outer | {a.name for a in k.grid})) for k in made.kernels)
    return normalize(replace(made, kernels=kernels))


def _uniform(body: n.Block) -> n.Block:
    """Arrays of the team, which `T.alloc_local` makes, as they are read: fragments."""
    arrays = {s.buffer.name: replace(s.buffer, space="fragment") for s in _of_team(body)
              if isinstance(s, n.Alloc) and s.buffer.space == "register" and s.buffer.shape}
    return tuple(substitute_buffers(s, arrays) for s in body)


def distributed_arrays(body: n.Block) -> frozenset[str]:
    """Arrays of the team that tiles are stored to which are worked out for each element: `T.Parallel` writes to fragments alone."""
    return frozenset(s.at.buffer.name for s in _of_team(body) if isinstance(s, n.Store) and s.at.buffer.space == "register"
                     and isinstance(s.at.type, TileType) and (isinstance(s.value.type, TileType) or any(isinstance(x, n.Load) for x in walk(s.value))))


def _of_team(body: n.Block) -> Iterator[n.Stmt]:
    """The statements that the whole team executes."""
    for s in body:
        yield s
        if not (isinstance(s, n.For) and s.kind in TEAMS):
            for inner in blocks_of(s):
                yield from _of_team(inner)


def _kernel(k: n.Kernel, taken: set[str], generic: bool) -> n.Kernel:
    used = taken | {a.name for a in k.grid} | set(bound_names(k.body))
    loose = {x.buffer.name: replace(x.buffer, align=0) for x in statements(k.body)
             if isinstance(x, n.Alloc) and x.buffer.space == "shared" and x.buffer.align and x.buffer.dtype.kind != "token"}
    loose |= {x.buffer.name: replace(x.buffer, layout=None) for x in statements(k.body) if isinstance(x, n.Alloc) and is_left(x.buffer)}
    loose |= {x.buffer.name: replace(x.buffer, layout=layout) for x in statements(k.body)
              if isinstance(x, n.Alloc) and x.buffer.layout is not None and not is_left(x.buffer) and (layout := said(x.buffer)) != x.buffer.layout}
    k = _dropped(_lone(k if generic else wholes(read_where_they_lie(beside_copies(by_threads(k), used)))))
    k = k if generic else replace(k, body=done_together(_begun(_with_their_barriers(k.body)), used))
    made = replace(k, body=_Form(used, generic).block(tuple(substitute_buffers(s, loose) for s in k.body), {}))
    return made if generic else from_copies(by_rows(made))


def _with_their_barriers(block: n.Block) -> n.Block:
    """The block with what makes barriers ready right after their declaration, where nothing but other such statements stands between."""
    out: list[n.Stmt] = []
    for s in block:
        call = s.call if isinstance(s, n.Eval) and s.call.fn == "mbar_init" else None
        if call is None or not isinstance(at := call.args[0], n.Region):
            out.append(within(s, _with_their_barriers) if blocks_of(s) else s)
            continue
        j = len(out)
        while j and (isinstance(out[j - 1], n.Alloc) or _readies(out[j - 1])) and not _of_barrier(out[j - 1], at.buffer.name):
            j -= 1
        out.insert(j if j and _of_barrier(out[j - 1], at.buffer.name) else len(out), s)
    return tuple(out)


def _readies(s: n.Stmt) -> bool:
    return isinstance(s, n.Eval) and s.call.fn == "mbar_init"


def _of_barrier(s: n.Stmt, name: str) -> bool:
    """Whether a statement declares a barrier or makes it ready."""
    return (isinstance(s, n.Alloc) and s.buffer.name == name) or (_readies(s) and any(isinstance(x, n.Buffer) and x.name == name for x in walk(s)))


def _begun(block: n.Block) -> n.Block:
    """The block with numbers that are declared without a value, and given a literal one before anything else, declared with it."""
    out = list(block)
    for k, s in enumerate(block):
        if blocks_of(s):
            out[k] = within(s, _begun)
    k = 0
    while k < len(out):
        s = out[k]
        if isinstance(s, n.Alloc) and s.init is None and s.buffer.space == "register" and not s.buffer.shape:
            first = next((j for j in range(k + 1, len(out)) if any(isinstance(x, n.Buffer) and x.name == s.buffer.name for x in walk(out[j]))), None)
            given = out[first] if first is not None else None
            if isinstance(given, n.Store) and given.at == n.Region(s.buffer) and given.mask is None and isinstance(given.value, n.Const):
                out[k] = replace(s, init=given.value)
                del out[first]  # type: ignore[arg-type]  # it is one
        k += 1
    return tuple(out)


def _lone(k: n.Kernel) -> n.Kernel:
    """The kernel with single elements of shared memory as arrays of one: TileLang's have dimensions."""
    alone = {x.buffer.name for x in statements(k.body)
             if isinstance(x, n.Alloc) and x.buffer.space == "shared" and not x.buffer.shape and x.buffer.dtype.kind != "token"}

    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Buffer() if new.name in alone and not new.shape:
                return replace(new, shape=(build.const(1),))
            case n.Region() if new.buffer.name in alone and not new.index:
                return n.Region(new.buffer, (build.const(0),))
            case _:
                return new
    made: n.Kernel = transform(k, leave) if alone else k
    return made


def _dropped(k: n.Kernel) -> n.Kernel:
    """The kernel with atomic operations whose old value nobody reads as statements: TileLang's on tiles give none."""
    read = {x.name for s in statements(k.body) for x in walk(s) if isinstance(x, n.Var)}

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Let) and isinstance(new.value, n.Call) and new.value.fn.startswith("atomic_") and new.value.of is None and not read & {*new.names}:
            return n.Eval(new.value, label=new.label, origin=new.origin)
        return new
    unread = any(isinstance(s, n.Let) and isinstance(s.value, n.Call) and s.value.fn.startswith("atomic_") for s in statements(k.body))
    made: n.Kernel = transform(k, leave) if unread else k
    return made


Values = dict[str, n.Expr]
"""What stands for a name of a tile: the fragment that holds it."""


def scans_shared(e: n.Expr) -> bool:
    """Whether a value is a scan of shared memory, which TileLang leaves in shared memory too."""
    return isinstance(e, n.Call) and e.fn == "scan" and isinstance(e.args[0], n.Load) and e.args[0].at.buffer.space == "shared"


def scans_in_place(block: n.Block) -> n.Block:
    """The block with scans of shared memory that have a name only to be stored in shared memory next stored at once."""
    out: list[n.Stmt] = []
    for k, s in enumerate(block):
        before = out[-1] if out else None
        if isinstance(s, n.Store) and s.mask is None and s.at.buffer.space == "shared" and isinstance(s.value, n.Var) and isinstance(before, n.Let) \
                and before.names == (s.value.name,) and scans_shared(before.value) \
                and not any(s.value.name in names_read(x) for x in block[k + 1:]):
            out[-1] = replace(s, value=before.value)
        else:
            out.append(s)
    return tuple(out)


class _Form:
    def __init__(self, taken: set[str], generic: bool) -> None:
        self.taken, self.generic = taken, generic

    def fresh(self, base: str) -> str:
        name, i = base, 0
        while name in self.taken:
            i += 1
            name = f"{base}_{i}"
        self.taken.add(name)
        return name

    # ----------------------------------------------------------------------------------------------------------------- blocks
    def block(self, block: n.Block, values: Values) -> n.Block:
        values = dict(values)
        out: list[n.Stmt] = []
        for s in block if self.generic else scans_in_place(block):
            s = _substituted(s, values)
            if isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value.type, TileType) and not self.generic:
                buffer = _fragment(s.names[0], s.value.type)
                if scans_shared(s.value):
                    buffer = replace(buffer, space="shared")
                out += self.statement(n.Alloc(buffer), values)
                out += self.statement(n.Store(n.Region(buffer), s.value, label=s.label, origin=s.origin), values)
                values[s.names[0]] = n.Load(n.Region(buffer))
            else:
                out += self.statement(s, values)
            out = [x if x.origin is not None else sourced(x, s.origin) for x in out] if s.origin is not None else out
        return tuple(out)

    def statement(self, s: n.Stmt, values: Values) -> Sequence[n.Stmt]:
        """What stands for a statement in which no name of a tile is left."""
        match s:
            case n.For() if s.kind == "unroll" and "factor" in dict(s.attrs) and dict(s.attrs)["factor"] == trips(s):
                return self.statement(replace(s, attrs=tuple((k, v) for k, v in s.attrs if k != "factor")), values)
            case n.For() if s.kind == "thread":
                return (replace(s, body=ThreadForm(self.fresh, _scalar, self.generic).block(s.body, {})),)
            case n.For() if s.kind in TEAMS:
                return (s,)
            case n.For():
                return (replace(s, body=self.block(s.body, values)),)
            case n.While():
                return (replace(s, body=self.block(s.body, values)),)
            case n.If():
                before, cond = self.named(s.cond, True)
                return (*before, replace(s, cond=cond, then=self.block(s.then, values), orelse=self.block(s.orelse, values)))
            case n.Roles():
                return (replace(s, roles=tuple(replace(r, body=self.block(r.body, values)) for r in s.roles)),)
            case n.Alloc() if s.init is not None and not isinstance(s.init, n.Const) and s.buffer.shape and not self.generic:
                return (replace(s, init=None), *self.statement(n.Store(n.Region(s.buffer), s.init, label=s.label), values))
            case n.Alloc() if s.init is not None and not isinstance(s.init, n.Const):
                before, value = self.named(s.init, True)
                return (*before, replace(s, init=value))
            case n.Let() if self.generic and is_named_sum(s):
                return (s,)
            case n.Let():
                before, value = self.named(s.value, True)
                return (*before, replace(s, value=value))
            case n.Store():
                return self.store(s if self.generic else replace(s, value=_one_value(s.value), mask=None if s.mask is None else _unstretched(s.mask)))
            case n.Mma():
                return self.product(s)
            case n.Eval() if is_idle(s):
                return ()
            case n.Copy(via="plain", signal=None, grouped=False, attrs=()) if s.src.at.buffer.space == "fragment":
                return self.store(n.Store(s.dst, s.src, s.mask, s.clip, label=s.label, origin=s.origin))
            case n.Copy() if s.mask is not None or s.src.mask is not None or (s.src.other is not None and not _is_zero(s.src.other)):
                return self.store(n.Store(s.dst, s.src, s.mask, s.clip, label=s.label, origin=s.origin)) if s.via == "plain" else (s,)
            case n.Copy():
                return (replace(s, src=_checked(s.src), clip=s.clip or s.dst.buffer.space == "global"),)
            case _:
                return (s,)

    # ----------------------------------------------------------------------------------------------------------------- values
    def named(self, e: n.Expr, scalar: bool) -> tuple[list[n.Stmt], n.Expr]:
        """`e` with reductions and scans taken out into fragments before it; `scalar` says that `e` is no tile itself."""
        before: list[n.Stmt] = []

        def leave(old: n.Node, new: n.Node) -> n.Node:
            if isinstance(new, n.Call) and new.of is None and new.fn in COLLECTIVE:
                made, value = self.collective(new)
                before.extend(made)
                return value
            return _checked(new) if isinstance(new, n.Load) else _plain(new)

        value: n.Expr = transform(e, leave)
        return before, _chosen(value)

    def collective(self, e: n.Call) -> tuple[list[n.Stmt], n.Expr]:
        """The statements that put a collective's result into a fragment, and the fragment's value."""
        made, call = self.operands(e)
        kind = e.type if isinstance(e.type, TileType) else TileType(dtype_of(e.type), (1,))
        buffer = _fragment(self.fresh("part"), kind)
        place = n.Region(buffer) if isinstance(e.type, TileType) else build.region(buffer, 0)
        return [*made, n.Alloc(buffer), n.Store(place, call)], n.Load(place)

    def operands(self, e: n.Call) -> tuple[list[n.Stmt], n.Call]:
        """A collective whose operands are buffers."""
        before: list[n.Stmt] = []
        args: list[n.Expr | n.Region] = []
        for a in e.args:
            if isinstance(a, n.Expr) and isinstance(a.type, TileType) and not _is_buffer(reduced_place(a, e)):
                buffer = _fragment(self.fresh("term"), a.type)
                before += [n.Alloc(buffer), n.Store(n.Region(buffer), a)]
                a = n.Load(n.Region(buffer))
            args.append(a)
        return before, replace(e, args=tuple(args))

    def store(self, s: n.Store) -> Sequence[n.Stmt]:
        """A store: a collective may stand at its root, alone or joined to what the target holds."""
        clip = s.clip or s.at.buffer.space == "global"
        match s.value:
            case n.Call(fn="reduce" | "scan", of=None) as whole if is_only_element(s.at):
                before, call = self.operands(whole)
                return (*before, replace(s, value=call))
            case n.Call(fn="reduce" | "scan", of=None) as whole if s.mask is None and s.at.buffer.space in ("fragment", "shared"):
                before, call = self.rooted(whole)
                return (*before, replace(s, value=call))
            case n.Binary(a=n.Load() as first, b=n.Call(fn="reduce", of=None) as part) as joined if first.at == s.at and s.mask is None and joins(
                    joined.op, part):
                before, call = self.rooted(part)
                return (*before, replace(s, value=replace(joined, b=call)))
            case _:
                before, value = self.named(s.value, False)
                return (*before, replace(s, value=value, clip=clip))

    def rooted(self, e: n.Call) -> tuple[list[n.Stmt], n.Call]:
        """A collective that a store may hold: collectives inside it, and its operands, under names of their own."""
        before: list[n.Stmt] = []
        args: list[n.Expr | n.Region] = []
        for a in e.args:
            if isinstance(a, n.Expr):
                made, a = self.named(a, False)
                before += made
            args.append(a)
        more, call = self.operands(replace(e, args=tuple(args)))
        return [*before, *more], call

    def product(self, s: n.Mma) -> Sequence[n.Stmt]:
        """A product: its operands in shared memory or fragments; on scalar units, a loop over k of elementwise sums. A right operand that has no place gets one
        in shared memory, transposed as it is read: of one in registers TileLang 0.1.15 makes wrong products in a pipelined loop of 256 threads on an H200 (1 to
        2 % of the elements; right without stages, and with 128 threads)."""
        if s.via == "fma":
            return self.sums(s)
        before: list[n.Stmt] = []
        sides = []
        for name, e in (("left", s.a), ("right", s.b)):
            turned = isinstance(e, n.Call) and e.fn == "trans" and isinstance(e.args[0], n.Load)
            inner = e.args[0] if turned and isinstance(e, n.Call) else e
            assert isinstance(inner, n.Expr)
            if _is_place(inner):
                sides.append(e)
                continue
            turned = turned and name == "right"
            made, value = self.named(inner if turned else e, False)
            buffer = _fragment(self.fresh("right_shared" if name == "right" else name), inner.type if turned else e.type)
            buffer = replace(buffer, space="shared") if name == "right" else buffer
            moved = name == "right" and isinstance(value, n.Load) and value.at.buffer.space == "global" and value.mask is None and _has_no_tile(value.at)
            at = n.Region(buffer)
            before += [*made, n.Alloc(buffer), n.Copy(value, at) if moved and isinstance(value, n.Load) else n.Store(at, value)]
            held = n.Load(at)
            sides.append(replace(e, args=(held, *e.args[1:])) if turned and isinstance(e, n.Call) else held)
        return (*before, replace(s, a=sides[0], b=sides[1]))

    def sums(self, s: n.Mma) -> Sequence[n.Stmt]:
        m, k = shape_of(s.a.type)[-2:]
        count = shape_of(s.b.type)[-1]
        if len(shape_of(s.a.type)) != 2:
            return (s,)
        i, j, kk = n.Var("%i", I32), n.Var("%j", I32), n.Var(self.fresh("kk"), I32)
        before, sides = list[n.Stmt](), []
        for e in (s.a, s.b):
            made, value = self.named(e, False)
            before += made
            sides.append(value)
        try:
            left, right = element(sides[0], (i, kk)), element(sides[1], (kk, j))
        except NotElementwise:
            return (s,)
        dtype = s.acc.buffer.dtype
        def widened(e: n.Expr) -> n.Expr:
            return build.cast(e, dtype) if dtype_of(e.type) != dtype else tf32.by_bits(e) if s.precision == "tf32" else e
        part = build.mul(widened(left), widened(right))
        value = build.add(n.Load(s.acc), tile(part, [(i, m), (j, count)], False))
        hi = k if isinstance(k, n.Expr) else build.const(k)
        return (*before, n.For(kk, build.const(0), hi, build.const(1), (n.Store(s.acc, value, label=s.label, origin=s.origin),)))


def _one_value(e: n.Expr) -> n.Expr:
    """A literal in place of a tile of it."""
    x = e.args[0] if isinstance(e, n.Call) and e.fn == "broadcast" and e.of is None else e
    return x if isinstance(x, n.Const) else e


def _unstretched(mask: n.Expr) -> n.Expr:
    """A condition without being stretched to the shape of what it masks, as a loop over the elements gives it."""
    match mask:
        case n.Call(fn="broadcast", of=None, args=(n.Expr() as x, *_)) if isinstance(x.type, TileType) and len(shape_of(x.type)) == len(shape_of(mask.type)):
            return x
        case _:
            return mask


def is_only_element(at: n.Region) -> bool:
    """Whether a region is the element of a fragment that has but one."""
    return at.buffer.space == "fragment" and bool(at.index) and all(is_const(i, 0) for i in at.index if isinstance(i, n.Expr)) and all(
        is_const(d, 1) for d in at.buffer.shape) and not any(isinstance(i, n.Span) for i in at.index)


def trips(s: n.For) -> int | None:
    """How often a loop runs, where that is known."""
    lo, hi, step = int_value(s.lo), int_value(s.hi), int_value(s.step)
    return None if lo is None or hi is None or not step else max(0, -(-(hi - lo) // step))


def _scalar(e: n.Expr) -> n.Expr:
    """A scalar with its loads as TileLang makes them."""
    return _chosen(transform(e, lambda old, new: _checked(new) if isinstance(new, n.Load) else _plain(new)))


def _plain(e: n.Node) -> n.Node:
    """A call that TileLang cannot say, by arithmetic that it has."""
    match e:
        case n.Call(fn="to_tf32", args=(n.Expr() as x,), of=None) if dict(e.attrs).get("rounding", "rn") == "rn" and dtype_of(x.type) == F32:
            return tf32.by_bits(x)
        case _:
            return e


def joins(op: str, e: n.Call) -> bool:
    """Whether `x op reduce(..)` is what a reduction without `clear` writes."""
    return {"sum": "add", "max": "max", "min": "min", "and": "and", "or": "or", "xor": "xor"}.get(str(dict(e.attrs).get("op"))) == op


def _fragment(name: str, t: object) -> n.Buffer:
    assert isinstance(t, TileType)
    return n.Buffer(name, t.dtype, tuple(build.const(d) if isinstance(d, int) else d for d in t.shape), "fragment")


def reduced_place(a: n.Expr, e: n.Call) -> n.Expr:
    """What a reduction reads, without the conversion to the dtype of its result and the absolute value that it makes of it itself."""
    if e.fn == "reduce" and dict(e.attrs).get("op") in ("sum", "max"):
        a = a.args[0] if isinstance(a, n.Call) and a.fn == "abs" and isinstance(a.args[0], n.Expr) else a
    return a.x if e.fn == "reduce" and isinstance(a, n.Cast) and a.rounding == "rn" and isinstance(a.x, n.Load) else a


def _is_buffer(e: n.Expr) -> bool:
    """Whether an expression is the whole of a buffer that a reduction takes."""
    return isinstance(e, n.Load) and e.mask is None and not e.at.index and e.at.buffer.space in ("fragment", "shared")


def _is_place(e: n.Expr) -> bool:
    """Whether an expression is a place that a product takes."""
    return isinstance(e, n.Load) and e.mask is None and e.at.buffer.space in ("fragment", "shared") and _has_no_tile(e.at)


def _has_no_tile(at: n.Region) -> bool:
    """Whether a region is made of dense ranges and of single places."""
    return all((isinstance(i, n.Span) and i.step == 1) or (isinstance(i, n.Expr) and not isinstance(i.type, TileType)) for i in at.index)


def _substituted(s: n.Stmt, values: Values) -> n.Stmt:
    """A statement with fragments in place of the names of tiles; elements that were picked from a tile are read from its fragment."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Call) and new.fn == "pick" and new.of is None and isinstance(x := new.args[0], n.Load) and x in held and x.mask is None:
            return n.Load(n.Region(x.at.buffer, tuple(i for i in new.args[1:] if isinstance(i, n.Expr))))
        return new
    held = set(values.values())
    made: n.Stmt = substitute(s, values)
    return transform(made, leave) if held else made


def _is_zero(e: n.Expr) -> bool:
    """Whether an expression is zero of some dtype."""
    return _is_zero(e.x) if isinstance(e, n.Cast) and e.rounding == "rn" else isinstance(e, n.Const) and repr(e.value) in ("0", "0.0", "False")


def _zero(d: DType) -> n.Expr:
    if d.is_symbolic:
        return build.cast(build.const(0), d)
    return build.const(False if d.is_bool else 0.0 if d.is_float else 0, d)


def _checked(e: n.Load) -> n.Load:
    """A load as TileLang makes it: zero outside of a tensor."""
    if e.at.buffer.space != "global" or is_loaded(e):
        return e
    return replace(e, clip=True, other=_zero(e.at.buffer.dtype) if e.other is None and e.mask is None else e.other)


def _chosen(e: n.Expr) -> n.Expr:
    """Loads under a mask, and loads with another value than zero at the edges, as choices."""

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if not isinstance(new, n.Load) or (new.at.buffer.space != "global" and (new.mask is None or isinstance(new.type, TileType))):
            return new
        if new.at.buffer.space != "global":
            # Zeros are said where the load stands, unless what is around it has the mask already.
            if new.mask is None or new.other is None or _is_zero(new.other):
                return new
            return build.select(new.mask, replace(new, other=None), new.other)
        zero = _zero(new.at.buffer.dtype)
        other = zero if new.other is None else new.other
        if new.mask is None and _is_zero(other):
            return new
        cond = new.mask
        if not _is_zero(other):
            for edge in _edges(new.at):
                cond = edge if cond is None else build.logical_and(cond, edge)
        plain = replace(new, other=zero if not _is_zero(other) else other, clip=True)
        return plain if cond is None else build.select(cond, plain, other)

    made: n.Expr = transform(e, leave)
    return made


def _edges(at: n.Region) -> Iterator[n.Expr]:
    """Conditions that hold inside a buffer, for each dimension that a region might leave."""
    index = at.index or tuple(build.span(0, d) for d in at.buffer.shape)
    spans = [a for a, i in enumerate(index) if isinstance(i, n.Span)]
    for axis, (i, extent) in enumerate(zip(index, at.buffer.shape, strict=True)):
        if isinstance(i, n.Expr):
            place, dtype = i, dtype_of(i.type)
        else:
            count, size, dtype = int_value(i.extent), int_value(extent), dtype_of(i.lo.type)
            if is_const(i.lo, 0) and i.step == 1 and (i.extent == extent or (count is not None and size is not None and count <= size)):
                continue
            steps: n.Expr = build.iota(i.extent)
            if i.step != 1:
                steps = build.mul(steps, i.step)
            place = build.add(build.cast(steps, dtype), i.lo)
            for a in range(spans.index(axis) + 1, len(spans)):
                place = build.expand(place, a - spans.index(axis))
        yield build.compare("lt", place, build.cast(extent, dtype))


__all__ = ["form", "prepared"]
