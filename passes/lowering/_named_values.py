"""Values of a thread that its code computes by name: written out, and named again.

A name is recorded as text: the value, after the variable of the loop in whose body it is computed and a colon (`i_3: t // 4 + i_3 * 16`);
without one it is computed where the thread begins. `kept_0`, `kept_1`, .. in it are the names before it. Sums are looked for inside
larger sums.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.printer import expr_text, name_text
from kir.ir.types import DType, Type
from kir.ir.visit import blocks_of, names_read, substitute, transform, walk
from kir.rewrite.match import fresh_var, matched_as
from kir.rewrite.match.materialize import is_pure

N = TypeVar("N", bound=n.Node)
KEPT = "kept_"
"""What the names of earlier values begin with, in the text of a later one."""


@dataclass(frozen=True)
class Named:
    """A value of that name, computed in the body of the loop over `scope` ("" for the thread's own block)."""

    scope: str
    name: str
    value: n.Expr


class Unnamed(Exception):
    """A value that no thread computes."""


def without_names(block: n.Block, t: n.Var) -> tuple[n.Block, tuple[Named, ...]]:
    """A thread's block with its lets of scalar arithmetic written out, and what they were. Lets that all threads compute alike stay, but
    for slots of a ring, whose arithmetic says which are apart."""
    values: dict[str, n.Expr] = {}
    named: list[Named] = []

    def below(block: n.Block, scope: str) -> n.Block:
        out: list[n.Stmt] = []
        for s in block:
            match s:
                case n.Let() if len(s.names) == 1 and _is_arithmetic(s.value):
                    value = divided(substitute(s.value, values))
                    if t.name not in names_read(value) and not (scope and _is_slot(s.value)):
                        out.append(divided(substitute(s, values)))
                    else:
                        values[s.names[0]] = value
                        named.append(Named(scope, s.names[0], s.value))
                case n.For():
                    head = divided(substitute(replace(s, body=()), values))
                    out.append(replace(head, body=below(s.body, s.var.name)))
                case n.If():
                    head = divided(substitute(replace(s, then=(), orelse=()), values))
                    out.append(replace(head, then=below(s.then, scope), orelse=below(s.orelse, scope)))
                case _:
                    out.append(divided(substitute(s, values)) if names_read(s) & set(values) else s)
        return tuple(out)
    made = below(block, "")
    return made, tuple(named)


def divided(item: N) -> N:
    """`item` with divisions carried out that leave no rest in any term, and divisions of divisions as one: a name hid that before it was
    written out."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Binary) and new.op == "floordiv" and isinstance(new.type, DType):
            by, terms = build.int_value(new.b), build.polynomial(new.a)
            inner = build.int_value(new.a.b) if isinstance(new.a, n.Binary) and new.a.op == "floordiv" else None
            if by is not None and by > 0 and inner is not None and inner > 0 and isinstance(new.a, n.Binary):
                return build.floordiv(new.a.a, by * inner)
            if by is not None and by > 1 and terms and all(c % by == 0 for c in terms.values()):
                return build.from_polynomial({m: c // by for m, c in terms.items()}, new.type)
        return new
    made: N = transform(item, leave)
    return made


def _is_slot(e: n.Expr) -> bool:
    return isinstance(e, n.Binary) and e.op == "mod" and build.int_value(e.b) is not None


def _is_arithmetic(e: n.Expr) -> bool:
    return isinstance(e.type, DType) and (e.type.is_integer or e.type.is_bool) and is_pure(e) and not any(
        isinstance(x, n.Load) for x in walk(e))


def texts(named: tuple[Named, ...], names: Mapping[str, str]) -> tuple[str, ...]:
    """Named values as texts, with variables called otherwise."""
    known = {**names, **{x.name: f"{KEPT}{k}" for k, x in enumerate(named)}}
    out = []
    for x in named:
        renamed = substitute(x.value, {v.name: n.Var(known.get(v.name, v.name), v.of) for v in walk(x.value) if isinstance(v, n.Var)})
        out.append(f"{names.get(x.scope, x.scope)}: {expr_text(renamed)}" if x.scope else expr_text(renamed))
    return tuple(out)


def with_names(kernel: n.Kernel, named: tuple[str, ...], taken: set[str]) -> tuple[n.Kernel, tuple[str, ...]]:
    """The kernel of one loop over threads, with values computed by name as the texts say, and the texts: where the loop over that variable computes no such
    value (loops are numbered as they stand, and statements may stand in another order), it is computed in the innermost one that does, which the texts
    that come back name. Raises Unnamed."""
    loop = matched_as(kernel.body[-1], n.For)
    known: dict[str, Type] = {x.name: x.of for s in kernel.body for x in walk(s) if isinstance(x, n.Var) and isinstance(x.of, DType)}
    expanded: dict[str, n.Expr] = {}
    values: list[tuple[str, n.Var, n.Expr]] = []
    spoken: dict[str, n.Expr] = {}
    for k, text in enumerate(named):
        scope, value = _parsed(text, known)
        known[f"{KEPT}{k}"] = value.type
        name = fresh_var("kept", taken, value.type)
        expanded[f"{KEPT}{k}"] = divided(substitute(value, expanded))
        values.append((scope, name, substitute(value, spoken)))
        spoken[f"{KEPT}{k}"] = name
    body, as_told = loop.body, True
    own = {name.name for _, name, _ in values}
    for k, (scope, name, value) in reversed(list(enumerate(values))):
        meant = expanded[f"{KEPT}{k}"]
        for there in (scope, *(_loops(body, names_read(value) - {scope}) if scope else ())):
            moved = {scope: n.Var(there, value.type)}
            made, found = _introduced(body, there, (n.Let((name.name,), substitute(value, moved)), substitute(meant, moved), name), own)
            if found:
                break
        else:
            raise Unnamed(expr_text(value))
        body, as_told = made, as_told and there == scope
    return replace(kernel, body=(*kernel.body[:-1], replace(loop, body=body))), named if as_told else texts(without_names(body, loop.var)[1], {})


def _loops(block: n.Block, known: Collection[str]) -> tuple[str, ...]:
    """The variables of the loops in a block where names are known that are bound outside of them, the innermost first."""
    found = [(-at, x) for x, at, own in _nested(block, 0) if not own & set(known)]
    return tuple(x for _, x in sorted(found, key=lambda one: one[0]))


def _nested(block: n.Block, depth: int) -> Iterator[tuple[str, int, set[str]]]:
    """Each loop in a block by its variable, in reading order, with how deep it stands and what its body binds."""
    for s in block:
        if isinstance(s, n.For):
            yield s.var.name, depth, {s.var.name, *bound_names(s.body)}
        for inner in blocks_of(s):
            yield from _nested(inner, depth + 1)


def _parsed(text: str, known: Mapping[str, Type]) -> tuple[str, n.Expr]:
    """The scope and value of a text. Raises KirError for one that is no expression, Unnamed for a name that the kernel has not."""
    from kir.ir.parser import parse_program

    scope, colon, value = text.partition(": ")
    if not colon:
        scope, value = "", text
    head = "\n".join(f"  scalar {name_text(k)}: {v}" for k, v in sorted(known.items()))
    program = parse_program(f"kir 1\nprogram named\n{head}\nkernel named grid (named_axis: 1) threads 1\n  let named_value = {value}\n")
    let = matched_as(program.kernels[0].body[0], n.Let)
    return scope, let.value


Introduced = tuple[n.Let, n.Expr, n.Var]
"""A let, the value that its name stands for, and the name."""


def _introduced(block: n.Block, scope: str, item: Introduced, own: set[str]) -> tuple[n.Block, bool]:
    """The block with a value computed at the start of the body of the loop over `scope`, and whether anything there says it; lets of
    `own` names are left as they are."""
    let, value, name = item
    if not scope:
        front = max((i + 1 for i, s in enumerate(block) if isinstance(s, n.Let) and names_read(let.value) & set(s.names)), default=0)
        made = tuple(told(s, value, name, own) for s in block[front:])
        used = made != block[front:] or any(name.name in names_read(s) for s in made)
        return (*block[:front], let, *made), used
    out: list[n.Stmt] = []
    done = False
    for s in block:
        if isinstance(s, n.For) and not done and (s.var.name == scope or scope in set(bound_names(s.body))):
            body, done = _introduced(s.body, "" if s.var.name == scope else scope, item, own)
            s = replace(s, body=body)
        elif isinstance(s, n.If) and not done and scope in set(bound_names((s,))):
            then, done = _introduced(s.then, scope, item, own)
            orelse, other = (s.orelse, True) if done else _introduced(s.orelse, scope, item, own)
            s, done = replace(s, then=then, orelse=orelse), done or other
        out.append(s)
    return tuple(out), done


def told(s: n.Stmt, value: n.Expr, name: n.Var, own: set[str]) -> n.Stmt:
    """A statement that uses the name wherever it says the value, alone or as a part of a sum."""
    made = matched_as(transform(s, _telling(value, name), lambda x: not (isinstance(x, n.Let) and set(x.names) & own)), n.Stmt)
    return made


def _telling(value: n.Expr, name: n.Var) -> Callable[[n.Node, n.Node], n.Node]:
    whole = build.polynomial(value) if isinstance(value.type, DType) and value.type.is_integer else {}
    constant = whole.get((), 0)

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if new == value:
            return name
        if len(whole) > 1 and isinstance(new, n.Binary) and new.op in ("add", "sub") and new.type == value.type:
            have = build.polynomial(new)
            if all(have.get(m) == c for m, c in whole.items() if m) and (not constant or have.get((), 0) == constant):
                return build.add(build.sub(new, value), name)
        return new
    return leave
