"""The normal form that a lineage starts from: simplified under the program's facts, dead lets and empty loops gone, decided branches taken.

`normalize` preserves meaning and is idempotent. Passes do not run it after each step: what they write is compared in the form that the
constructors of `kir.ir.build` keep, which does not depend on where an expression stands.
"""
from __future__ import annotations

from dataclasses import replace

from kir.analysis.clipping import hangs_over, ranges_of
from kir.analysis.facts import Facts
from kir.analysis.normal.pools import separated
from kir.analysis.normal.recombine import recombined
from kir.analysis.normal.spelling import spell
from kir.analysis.order import after, is_positive
from kir.analysis.simplify import is_true, opposite, simplified, simplify
from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, DType, TileType, shape_of
from kir.ir.visit import names_read, statements, substitute, transform, walk

DIVISIONS = frozenset({"floordiv", "mod", "tdiv", "trem", "ceildiv"})
_ATOMICS = frozenset(f"atomic_{op}" for op in ("add", "max", "min", "and", "or", "xor", "exch", "cas"))
ROUNDS = 8
"""Most rounds of simplification; each removes at least one node, and in practice the second changes nothing."""


def normalize(program: n.Program) -> n.Program:
    """The program in normal form."""
    if "_normal" in program.__dict__:
        return program
    for _ in range(ROUNDS):
        spelled = separated(spell(program))
        made = replace(spelled, kernels=tuple(_kernel(spelled, without_copies(k)) for k in spelled.kernels))
        if made == program:
            break
        program = made
    program.__dict__["_normal"] = True  # worked out once
    return program


def normalized_again(before: n.Program, after: n.Program) -> n.Program:
    """The normal form of what was made of a program in normal form; where nothing was, that program."""
    return before if after == before else normalize(after)


def _kernel(program: n.Program, k: n.Kernel) -> n.Kernel:
    header = Facts.from_program(program)
    grid = tuple(replace(a, extent=simplify(a.extent, header)) for a in k.grid)
    k = replace(k, grid=grid, threads=simplify(k.threads, header))
    k = replace(k, body=without_dead_lets(_block(k.body, Facts.at(replace(program, kernels=(k,)), (k.name,)))))
    return _unclipped(k, program.facts)


def _unclipped(k: n.Kernel, facts: tuple[n.Expr, ...]) -> n.Kernel:
    """The kernel without `clip` on single elements that lie inside their tensor: each index a CTA's place or a loop's count within the extent;
    and without `clip` on loads of a CTA's own memory that lie inside it."""
    if not any(isinstance(x, (n.Load, n.Store)) and x.clip for x in walk(k)):
        return k
    ranges = ranges_of(k)

    def own(r: n.Region) -> bool:
        return r.buffer.space != "global" and not any(isinstance(i, n.Expr) and not isinstance(i.type, DType) for i in r.index) \
            and not hangs_over(r, ranges, facts)

    def one(r: n.Region) -> bool:
        return r.buffer.space == "global" and bool(r.index) and all(isinstance(i, n.Expr) and isinstance(i.type, DType) for i in r.index) \
            and not hangs_over(r, ranges, facts)

    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Load() if new.clip and new.mask is None and (one(new.at) or own(new.at)):
                return replace(new, clip=False, other=None)
            case n.Store() if new.clip and new.mask is None and one(new.at):
                return replace(new, clip=False)
            case _:
                return new
    made: n.Kernel = transform(k, leave)
    return made


def without_copies(k: n.Kernel) -> n.Kernel:
    """The kernel with lets that only give a literal or another value a second name replaced by it."""
    copies: dict[str, n.Expr] = {}
    for s in statements(k.body):
        if isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value, (n.Var, n.Const)):
            copies[s.names[0]] = copies.get(s.value.name, s.value) if isinstance(s.value, n.Var) else s.value
    made: n.Kernel = substitute(k, copies)
    return made


def _block(block: n.Block, known: Facts) -> n.Block:
    out: list[n.Stmt] = []
    for s in block:
        made: n.Block = (s,)
        if known.token is None or s.__dict__.get("_settled") is not known.token:
            made = tuple(x for x in _stmt(s, known) if not _says_nothing(x))
            if len(made) == 1 and made[0] is s:
                s.__dict__["_settled"] = known.token  # in normal form already, and looked at again only where something else is known
        out.extend(made)
        for x in made:
            known = after(known, x)
    return tuple(out)


def _says_nothing(s: n.Stmt) -> bool:
    """Whether a statement assumes what is known to hold, or writes no element."""
    if isinstance(s, (n.Store, n.Copy)):
        return 0 in shape_of((s.at if isinstance(s, n.Store) else s.dst).type)
    return isinstance(s, n.Eval) and s.call.fn == "assume" and is_true(next(iter(s.call.args)))  # type: ignore[arg-type]  # it has one operand


def _stmt(s: n.Stmt, known: Facts) -> n.Block:
    match s:
        case n.For():
            lo, hi, step = (recombined(simplify(e, known), known) for e in (s.lo, s.hi, s.step))
            hi = _rounded_up(hi, known)
            never = isinstance(lo, n.Const) and isinstance(hi, n.Const) and hi.value <= lo.value and is_positive(step, known)  # else it may count down
            if never and s.kind not in ("warpgroup", "warp", "thread"):
                return ()
            if _runs_once(s, lo, hi, step, known):
                made = n.If(build.compare("lt", lo, hi), tuple(substitute(x, {s.var.name: lo}) for x in s.body), (), label=s.label, origin=s.origin)
                return _stmt(made, known)
            body = _block(_without_continue(s.body), known.ranging(s.var, lo, hi, step))
            return (s if (lo, hi, step, body) == (s.lo, s.hi, s.step, s.body) else replace(s, lo=lo, hi=hi, step=step, body=body),)
        case n.If():
            cond = recombined(simplify(s.cond, known), known)
            if is_true(cond) and not _binds(s.then):
                return _block(s.then, known)
            if cond == build.const(False, BOOL) and not _binds(s.orelse):
                return _block(s.orelse, known)
            then, orelse = _block(s.then, known.knowing(cond)), _block(s.orelse, known.knowing(build.invert(cond)))
            if (one := _one_store(cond, then, orelse)) is not None:
                return (replace(one, label=s.label, origin=s.origin),)
            return (s if (cond, then, orelse) == (s.cond, s.then, s.orelse) else replace(s, cond=cond, then=then, orelse=orelse),)
        case n.While():
            body = _block(_without_continue(s.body), known)
            return (s if body == s.body else replace(s, body=body),)
        case n.Roles():
            bodies = tuple(_block(r.body, known) for r in s.roles)
            same = all(body == r.body for body, r in zip(bodies, s.roles, strict=True))
            return (s if same else replace(s, roles=tuple(replace(r, body=body) for body, r in zip(bodies, s.roles, strict=True))),)
        case n.Opaque():
            return (s,)
        case n.Let():
            return (_named_once(recombined(simplified(s, known), known), known),)
        case _:
            return (recombined(simplified(s, known), known),)


def _runs_once(s: n.For, lo: n.Expr, hi: n.Expr, step: n.Expr, known: Facts) -> bool:
    """Whether a loop has one iteration or none: a grid-stride loop over as many places as the whole grid has threads (bounds of loops do not wrap)."""
    if isinstance(step, n.Const) or s.kind != "serial" or s.attrs or any(isinstance(x, n.Jump) for x in walk(s)):
        return False
    terms = [(atoms[0], c) for atoms, c in build.polynomial(step).items() if len(atoms) == 1]
    least = known.domain(lo).lo
    if len(terms) != 1 or len(build.polynomial(step)) != 1 or least is None or least < 0:
        return False
    ctas, threads = _bare(terms[0][0]), terms[0][1]
    each = build.int_value(ctas.b) if isinstance(ctas, n.Binary) and ctas.op == "ceildiv" else None
    return isinstance(ctas, n.Binary) and each is not None and 0 < each <= threads and build.polynomial(_bare(ctas.a)) == build.polynomial(_bare(hi))


def _one_store(cond: n.Expr, then: n.Block, orelse: n.Block) -> n.Store | None:
    """The store of what is read where a condition holds, and of a number where it does not, of two to one place of shared memory."""
    if not (len(then) == len(orelse) == 1 and isinstance(a := then[0], n.Store) and isinstance(b := orelse[0], n.Store) and a.at == b.at and a.at.index):
        return None
    if a.at.buffer.space != "shared" or any(x.mask is not None or x.clip or x.cache for x in (a, b)) or isinstance(cond.type, TileType):
        return None
    read, number, there = (a.value, b.value, cond) if isinstance(b.value, n.Const) else (b.value, a.value, opposite(cond) or build.invert(cond))
    if not (isinstance(read, n.Load) and isinstance(number, n.Const) and read.mask is None and not read.clip and read.at.buffer.space == "global"
            and isinstance(read.type, DType)):
        return None
    return replace(a, value=build.load(read.at, there, number, False, read.cache))


def _without_continue(body: n.Block) -> n.Block:
    """The body of a loop in which what follows a `continue` in a branch of its own stands in the other branch."""
    again = n.Jump("continue")
    for k, s in enumerate(body):
        if s == again:
            return body[:k]
        if isinstance(s, n.If) and s.then and s.then[-1] == again and not s.orelse and not s.static:
            rest = _without_continue(body[k + 1:])
            if len(s.then) > 1:
                made = replace(s, then=s.then[:-1], orelse=rest)
            elif rest:
                made = replace(s, cond=opposite(s.cond) or build.invert(s.cond), then=rest)
            else:
                return body[:k]
            return (*body[:k], made)
    return body


def _bare(e: n.Expr) -> n.Expr:
    """An expression without conversions to an integer dtype of as many bits or more around it."""
    while isinstance(e, n.Cast) and e.rounding == "rn" and isinstance(e.x.type, DType) and e.x.type.is_integer and e.dtype.is_integer and (
            e.dtype.bits >= e.x.type.bits):
        e = e.x
    return e


def _named_once(s: n.Let, known: Facts) -> n.Let:
    """A let of a quotient or remainder; where it has a name already, as when two functions each ask for the lane, a let of that."""
    e = s.value
    if len(s.names) != 1 or not isinstance(e, n.Binary) or e.op not in DIVISIONS or not isinstance(e.type, DType):
        return s
    first = next((name for name, value in known.lets.items() if value == e and name != s.names[0]), None)
    return s if first is None else replace(s, value=n.Var(first, e.type))


def _rounded_up(e: n.Expr, known: Facts) -> n.Expr:
    """A bound of a loop, `(x + c - 1) / c` of an x that is not negative as the quotient rounded up that it is (loop bounds do not wrap)."""
    c = build.int_value(e.b) if isinstance(e, n.Binary) and e.op == "tdiv" else None
    if not isinstance(e, n.Binary) or c is None or c < 2:
        return e
    x = build.sub(e.a, c - 1)
    low = known.domain(x).lo
    return build.ceildiv(x, e.b) if low is not None and low >= 0 and build.polynomial(e.a).get((), 0) >= c - 1 else e


def _binds(block: n.Block) -> bool:
    """Whether a branch declares memory, whose life the branch bounds."""
    return any(isinstance(s, (n.Alloc, n.View)) for s in block)


def is_pure(e: n.Node) -> bool:
    """Whether evaluating it has no effect (calls of device functions count as having one)."""
    return all(x.of is None and instruction(x.fn).is_pure and not instruction(x.fn).is_convergent for x in walk(e) if isinstance(x, n.Call))


def without_dead_lets(block: n.Block) -> n.Block:
    """The block without pure lets whose names nothing reads, in one sweep from the end; an atomic operation whose old values nothing reads is
    made for its effect alone."""
    if any(isinstance(x, n.Opaque) for s in block for x in walk(s)):
        return block
    return _swept(block, set())[0]


def _swept(block: n.Block, live: set[str]) -> tuple[n.Block, set[str]]:
    out: list[n.Stmt] = []
    live = set(live)
    for s in reversed(block):
        if isinstance(s, n.Let) and not (set(s.names) & live) and is_pure(s.value):
            continue
        if isinstance(s, n.Let) and isinstance(s.value, n.Call) and not (set(s.names) & live) and s.value.fn in _ATOMICS:
            s = n.Eval(s.value, s.label, s.origin)
        match s:
            case n.For():
                body, inner = _swept(s.body, live)
                s = s if body == s.body else replace(s, body=body)
                live |= inner | names_read(s.lo) | names_read(s.hi) | names_read(s.step)
            case n.If():
                then, first = _swept(s.then, live)
                orelse, second = _swept(s.orelse, live)
                s = s if (then, orelse) == (s.then, s.orelse) else replace(s, then=then, orelse=orelse)
                live |= first | second | names_read(s.cond)
            case n.While():
                body, inner = _swept(s.body, live)
                s = s if body == s.body else replace(s, body=body)
                live |= inner | names_read(s.cond)
            case n.Roles():
                roles = []
                for r in s.roles:
                    body, inner = _swept(r.body, live)
                    roles.append(r if body == r.body else replace(r, body=body))
                    live |= inner
                s = s if tuple(roles) == s.roles else replace(s, roles=tuple(roles))
            case _:
                live |= names_read(s)
        out.append(s)
    return tuple(reversed(out)), live
