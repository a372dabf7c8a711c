"""Values of a thread that its code computes by name: written out, and named again.

A name is recorded as text: the value, after the variable of the loop in whose body it is computed and a colon (`i_3: t // 4 + i_3 * 16`);
without one it is computed where the thread begins. Sums are looked for inside larger sums.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.parser import parse_program
from kir.ir.printer import expr_text, name_text
from kir.ir.types import DType
from kir.ir.visit import names_read, substitute, transform, walk
from kir.rewrite.edit import fresh

from ._materialize import is_pure

Named = tuple[tuple[str, n.Expr], ...]
"""The loop variable in whose body a value is computed ("" for the thread's own block), and the value."""


class Unnamed(Exception):
    """A value that no thread computes."""


def without_names(block: n.Block, t: n.Var) -> tuple[n.Block, Named]:
    """A thread's block with its lets of scalar arithmetic written out, and what they were; a let of the block itself that all threads
    compute alike stays."""
    values: dict[str, n.Expr] = {}
    named: list[tuple[str, n.Expr]] = []

    def below(block: n.Block, scope: str) -> n.Block:
        out: list[n.Stmt] = []
        for s in block:
            match s:
                case n.Let() if len(s.names) == 1 and _is_arithmetic(s.value):
                    value = substitute(s.value, values)
                    if not scope and t.name not in names_read(value):
                        out.append(replace(s, value=value))
                    else:
                        values[s.names[0]] = value
                        named.append((scope, value))
                case n.For():
                    head = substitute(replace(s, body=()), values)
                    out.append(replace(head, body=below(s.body, s.var.name)))
                case n.If():
                    head = substitute(replace(s, then=(), orelse=()), values)
                    out.append(replace(head, then=below(s.then, scope), orelse=below(s.orelse, scope)))
                case _:
                    out.append(substitute(s, values))
        return tuple(out)
    made = below(block, "")
    return made, tuple(named)


def _is_arithmetic(e: n.Expr) -> bool:
    return isinstance(e.type, DType) and (e.type.is_integer or e.type.is_bool) and is_pure(e) and not any(
        isinstance(x, n.Load) for x in walk(e))


def texts(named: Named, names: Mapping[str, str]) -> tuple[str, ...]:
    """Named values as texts, with variables called otherwise."""
    out = []
    for scope, value in named:
        renamed = substitute(value, {x.name: n.Var(names.get(x.name, x.name), x.of) for x in walk(value) if isinstance(x, n.Var)})
        out.append(f"{names.get(scope, scope)}: {expr_text(renamed)}" if scope else expr_text(renamed))
    return tuple(out)


def with_names(kernel: n.Kernel, named: tuple[str, ...], taken: set[str]) -> n.Kernel:
    """The kernel of one loop over threads, with values computed by name as the texts say. Raises Unnamed."""
    loop = kernel.body[-1]
    assert isinstance(loop, n.For)
    known = {x.name: x.of for s in kernel.body for x in walk(s) if isinstance(x, n.Var) and isinstance(x.of, DType)}
    values = [_parsed(text, known) for text in named]
    body = loop.body
    for scope, value in reversed(values):
        name = n.Var(fresh("kept", taken), value.type)
        body, found = _introduced(body, scope, value, name)
        if not found:
            raise Unnamed(expr_text(value))
    return replace(kernel, body=(*kernel.body[:-1], replace(loop, body=body)))


def _parsed(text: str, known: Mapping[str, object]) -> tuple[str, n.Expr]:
    """The scope and value of a text. Raises KirError for one that is no expression, Unnamed for a name that the kernel has not."""
    scope, colon, value = text.partition(": ")
    if not colon:
        scope, value = "", text
    head = "\n".join(f"  scalar {name_text(k)}: {v}" for k, v in sorted(known.items()))
    program = parse_program(f"kir 1\nprogram named\n{head}\nkernel named grid (named_axis: 1) threads 1\n  let named_value = {value}\n")
    let = program.kernels[0].body[0]
    assert isinstance(let, n.Let)
    return scope, let.value


def _introduced(block: n.Block, scope: str, value: n.Expr, name: n.Var) -> tuple[n.Block, bool]:
    """The block with a value computed at the start of the body of the loop over `scope`."""
    if not scope:
        front = _front(block, value)
        made = tuple(told(s, value, name) for s in block[front:])
        return (*block[:front], n.Let((name.name,), value), *made), made != block[front:]
    out: list[n.Stmt] = []
    done = False
    for s in block:
        if isinstance(s, n.For) and not done and (s.var.name == scope or scope in set(bound_names(s.body))):
            body, done = _introduced(s.body, "" if s.var.name == scope else scope, value, name)
            s = replace(s, body=body)
        elif isinstance(s, n.If) and not done and scope in set(bound_names((s,))):
            then, done = _introduced(s.then, scope, value, name)
            orelse, other = (s.orelse, True) if done else _introduced(s.orelse, scope, value, name)
            s, done = replace(s, then=then, orelse=orelse), done or other
        out.append(s)
    return tuple(out), done


def _front(block: n.Block, value: n.Expr) -> int:
    """After the lets of the block that the value reads."""
    names = names_read(value)
    return max((i + 1 for i, s in enumerate(block) if isinstance(s, n.Let) and names & set(s.names)), default=0)


def told(s: n.Stmt, value: n.Expr, name: n.Var) -> n.Stmt:
    """A statement that uses the name wherever it says the value, alone or as a part of a sum."""
    made = transform(s, _telling(value, name))
    assert isinstance(made, n.Stmt)
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
