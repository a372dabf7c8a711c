"""Branches on the number of a thread in which warps do work of their own, as roles; warpgroups within them.

`enum class Role { producer, consumer }` with `role == Role::producer`, or branches that begin with setmaxnreg: each covers whole warps. What all
threads compute alike before goes to the CTA; what they do before ends in a barrier, which the end of their loop is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace

from kir.base.dataclass import dataclass
from kir.base.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, DType
from kir.ir.visit import names_read, substitute, transform, walk

from ..statements.role_marks import MARK, asked, unmarked
from ..values.emitter import has_effect
from .thread_values import Values, of_each, over_threads, same

WARP, WARPGROUP = 32, 128
ROLE_BARRIERS, GROUP_BARRIERS = 12, 8
GROUP = "%group"
"""The number of a warpgroup while it is looked whether there is one: no name of a program begins so."""
"""Numbers of the named barriers at which the threads of a role, and of a warpgroup of a role, meet in what KIR writes."""
_CLUSTER = ("cluster_arrive", "cluster_wait")


@dataclass(frozen=True)
class Arm:
    """A branch that threads `first` up to `end` take."""

    name: str
    first: int
    end: int
    body: n.Block
    registers: int


def with_roles(body: n.Block, fresh: Callable[[str], str]) -> n.Block:
    """The body of a kernel, its one loop over threads taken apart around roles; as it is where it has none."""
    loop = body[-1] if body else None
    if not (isinstance(loop, n.For) and loop.kind == "thread") or build.int_value(loop.hi) is None:
        return unmarked(body)
    threads = tuple(range(build.int_value(loop.hi) or 0))
    for k, s in enumerate(loop.body):
        if isinstance(s, n.If):
            arms = _arms(s, loop.body[:k], loop.var.name, threads)
            made = _Roles(loop, loop.body[:k], loop.body[k + 1 :], arms, fresh).made() if arms else None
            if made is not None:
                return unmarked(_placed([*body[:-1], *made]))
    return unmarked(body)


def _arms(s: n.If, before: n.Block, thread: str, threads: Values) -> list[Arm]:
    """The branches of a chain; none where they are no roles."""
    known: dict[str, Values] = {thread: threads}
    for x in before:
        if isinstance(x, n.Let) and len(x.names) == 1 and (value := over_threads(x.value, known)) is not None:
            known[x.names[0]] = value
    out: list[Arm] = []
    left = set(range(len(threads)))
    rest: n.Block = (s,)
    while rest:
        test = rest[0]
        if len(rest) == 1 and isinstance(test, n.If) and (found := over_threads(test.cond, known)) is not None:
            taken = {k for k, holds in enumerate(of_each(found, len(threads))) if holds} & left
            block, rest, mark = test.then, test.orelse, test.label or ""
        else:
            taken, block, rest, mark = left, rest, (), ""
        left = left - taken
        here = sorted(taken)
        if not here or here[0] % WARP or (here[-1] + 1) % WARP or here[-1] - here[0] + 1 != len(here):
            return []
        asks = asked(block)
        if asks is None and not mark.startswith(MARK):
            return []
        name = mark.removeprefix(MARK).removesuffix("_") or ("producer" if asks is not None and not asks[1] else "consumer")
        while any(a.name == name for a in out):
            name += "_"
        out.append(Arm(name, here[0], here[-1] + 1, block[1:] if asks else block, asks[0] if asks else 0))
    return out


@dataclass
class _Roles:
    """A loop over threads around roles: what comes before and after them, and the roles."""

    loop: n.For
    before: n.Block
    after: n.Block
    arms: list[Arm]
    fresh: Callable[[str], str]
    own: dict[str, n.Expr] = field(default_factory=dict)
    """What differs from thread to thread and roles use, by name."""

    def made(self) -> list[n.Stmt] | None:
        """The statements of the CTA; None where the loop cannot be taken apart."""
        alike, first = self._alike()
        wanted = {x.name for a in self.arms for s in a.body for x in walk(s) if isinstance(x, n.Var)}
        wanted |= {x.name for s in self.after for x in walk(s) if isinstance(x, n.Var)}
        for x in reversed(alike):
            wanted |= {y.name for y in walk(x.value) if isinstance(y, n.Var)} if x.names[0] in wanted else set()
        shared = [x for x in alike if x.names[0] in wanted]
        first = [x for x in first if x not in shared]
        for s in first:
            if isinstance(s, n.Let) and len(s.names) == 1 and not has_effect(s.value) and not any(isinstance(y, n.Load) for y in walk(s.value)):
                self.own[s.names[0]] = substitute(s.value, self.own)
        bound = {s.buffer.name for s in first if isinstance(s, n.Alloc)} | {y for s in first if isinstance(s, n.Let) for y in s.names} - set(self.own)
        inside = [s for a in self.arms for s in a.body] + list(self.after)
        if any(isinstance(x, (n.Var, n.Buffer)) and x.name in bound for s in inside for x in walk(s)):
            return None
        while first and isinstance(last := first[-1], n.Let) and set(last.names) <= set(self.own):
            first = first[:-1]
        head, tail = _uniform_end(first)
        if any(not isinstance(s, n.Let) or has_effect(s.value) for s in head):
            if not _is_barrier(head[-1]):
                return None
            head = head[:-1]
        elif not tail:
            head = []
        out: list[n.Stmt] = [*shared, *([replace(self.loop, body=tuple(head))] if head else []), *tail]
        roles = [self._role(a, k) for k, a in enumerate(self.arms)]
        out.append(n.Roles(tuple(roles)))
        if self.after:
            if not _is_barrier(self.after[0]):
                return None
            if len(self.after) > 1:
                out.append(self._again(self.after[1:]))
        return out

    def _again(self, rest: n.Block) -> n.For:
        """The statements after the roles, for all threads again."""
        var = n.Var(self.fresh(self.loop.var.name), I32)
        return replace(self.loop, var=var, body=tuple(substitute(s, {**self.own, self.loop.var.name: var}) for s in rest))

    def _alike(self) -> tuple[list[n.Let], list[n.Stmt]]:
        """Values that are the same for all threads, and what else comes before the roles (those values too)."""
        names = {self.loop.var.name}
        out: list[n.Let] = []
        for s in self.before:
            if isinstance(s, n.Let) and not any(isinstance(x, n.Var) and x.name in names for x in walk(s.value)) and not has_effect(s.value) and (
                    not any(isinstance(x, (n.Load, n.Region)) for x in walk(s.value))) and isinstance(s.value.type, DType):
                out.append(s)
            elif isinstance(s, n.Let):
                names |= set(s.names)
        return out, list(self.before)

    def _role(self, a: Arm, k: int) -> n.Role:
        """A branch as the code of its warps, their threads counted from 0."""
        size = a.end - a.first
        body = tuple(substitute(s, self.own) for s in a.body)
        known = {self.loop.var.name: tuple(range(a.first, a.end))}
        split = size > WARPGROUP and size % WARPGROUP == 0 and _grouped(body, self.loop.var.name, known, a.first)
        inner, tail = _uniform_end(list(body))
        if tail and inner and _meets(inner[-1], known, (ROLE_BARRIERS + k,), size):
            inner = inner[:-1]
        else:
            inner, tail = [*inner, *tail], []
        inner = _met(inner, known, GROUP_BARRIERS, WARPGROUP, a.first) if split else _met(inner, known, ROLE_BARRIERS + k, size, None)
        t = n.Var(self.fresh(self.loop.var.name), I32)
        zero, one = build.const(0), build.const(1)
        if not split:
            number = build.add(t, a.first)
            made: n.Stmt = n.For(t, zero, build.const(size), one, tuple(substitute(s, {self.loop.var.name: number}) for s in inner), "thread")
        else:
            group = n.Var(self.fresh("group"), I32)
            parts = tuple(_in_group(s, self.loop.var.name, known, a.first, group, t) for s in inner)
            threads = n.For(t, zero, build.const(WARPGROUP), one, parts, "thread")
            made = n.For(group, zero, build.const(size // WARPGROUP), one, (threads,), "warpgroup")
        return n.Role(a.name, a.first // WARP, a.end // WARP, (made, *tail), a.registers)


def _is_barrier(s: n.Stmt) -> bool:
    return isinstance(s, n.Eval) and s.call.fn == "barrier"


def _uniform_end(block: list[n.Stmt]) -> tuple[list[n.Stmt], list[n.Stmt]]:
    """A block without the steps of a cluster's barrier that it ends in, and those, which belong to the whole team."""
    at = len(block)
    while at and isinstance(s := block[at - 1], n.Eval) and s.call.fn in _CLUSTER:
        at -= 1
    return block[:at], block[at:]


def _meets(s: n.Stmt, known: dict[str, Values], number: Values, size: int) -> bool:
    """Whether a statement is a named barrier of that number and so many threads."""
    if not (isinstance(s, n.Eval) and s.call.fn == "named_barrier_sync"):
        return False
    values = [over_threads(x, known) for x in s.call.args if isinstance(x, n.Expr)]
    match values:
        case [tuple() as which, tuple() as threads]:
            return same(which, number) and same(threads, (size,))
        case _:
            return False


def _met(body: list[n.Stmt], known: dict[str, Values], number: int, size: int, first: int | None) -> list[n.Stmt]:
    """A block with the named barriers at which a team meets (a warpgroup, counted from `first`) as barriers of the team."""
    (threads,) = known.values()
    wanted = (number,) if first is None else tuple(number + (t - first) // WARPGROUP for t in threads)
    inner = dict(known)

    def block(body: n.Block) -> n.Block:
        return tuple(one(x) for x in body)

    def one(x: n.Stmt) -> n.Stmt:
        if _meets(x, inner, wanted, size):
            return n.Eval(build.call("barrier"), x.label, x.origin)
        match x:
            case n.Let(names=(name,)) if (value := over_threads(x.value, inner)) is not None:
                inner[name] = value
                return x
            case n.For() | n.While():
                return replace(x, body=block(x.body))
            case n.If():
                return replace(x, then=block(x.then), orelse=block(x.orelse))
            case _:
                return x

    return list(block(tuple(body)))


def _grouped(body: n.Block, thread: str, known: dict[str, Values], first: int) -> bool:
    """Whether the threads of a role work by warpgroups: what they run needs one, or names its threads by group and place alone."""
    rows = table()
    if any(isinstance(x, n.Call) and x.of is None and x.fn in rows and rows[x.fn].level == "warpgroup" for s in body for x in walk(s)):
        return True
    probe = [_in_group(s, thread, known, first, n.Var(GROUP, I32), n.Var("%place", I32), strict=True) for s in body]
    uses = [x for s in probe for x in walk(s) if isinstance(x, n.Var) and x.name in (thread, GROUP)]
    return bool(uses) and all(x.name == GROUP for x in uses)


def _in_group(s: n.Stmt, thread: str, known: dict[str, Values], first: int, group: n.Var, place: n.Var, strict: bool = False) -> n.Stmt:
    """A statement with a thread's number as its warpgroup and its place there; `strict` leaves what is neither."""
    (threads,) = known.values()
    groups, places = tuple((t - first) // WARPGROUP for t in threads), tuple((t - first) % WARPGROUP for t in threads)

    def found(e: n.Expr) -> n.Var | None:
        if isinstance(e, n.Var) or thread not in names_read(e) or e.type != I32:
            return None
        value = over_threads(e, known)
        return None if value is None else group if value == groups else place if value == places else None

    def leave(old: n.Node, new: n.Node) -> n.Node:
        return found(old) or new if isinstance(old, n.Expr) else new

    made: n.Stmt = transform(s, leave, lambda e: not isinstance(e, n.Buffer))
    return made if strict else substitute(made, {thread: build.add(build.add(build.mul(group, WARPGROUP), place), first)})


def _placed(body: list[n.Stmt]) -> n.Block:
    """Declarations and values of the CTA in the order of the source, each view right after what it shows; those of the cluster come last."""
    count = next((k for k, s in enumerate(body) if not isinstance(s, (n.Alloc, n.View, n.Let))), len(body))
    head = sorted(body[:count], key=lambda s: (s.origin.line, s.origin.column) if s.origin is not None else (0, 0))
    views = [s for s in head if isinstance(s, n.View)]
    out: list[n.Stmt] = [s for s in views if s.buffer.space == "global"]
    for s in head:
        if not isinstance(s, n.View):
            out.append(s)
            out += [v for v in views if isinstance(s, n.Alloc) and v.at.buffer.name == s.buffer.name and v.buffer.space != "cluster"]
    return (*out, *(v for v in views if v.buffer.space == "cluster"), *body[count:])
