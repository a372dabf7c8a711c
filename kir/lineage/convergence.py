"""Where lineages meet: whether two naive programs are one program.

Two surfaces name and order their parameters each in their own way, and what a caller promises (`K % 16 == 0`, alignment, restrict) says when
a program may be called, not what it computes; nor does it matter which axis of the grid comes first. What is left without these is the form
in which naive programs are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kir.analysis.normal.normal_form import is_pure, normalize
from kir.ir import nodes as n
from kir.ir.canonical import canonical, content_hash, outer_names, rename
from kir.ir.nodes import Program
from kir.ir.types import TileType
from kir.ir.visit import buffers_named, substitute, transform, walk

ROLES = ("size", "scalar", "in", "inout", "out")


def common_form(program: Program) -> Program:
    """The program in normal form without what a surface or a caller adds: names, labels, facts, alignment and `restrict`. Parameters and axes of
    the grid stand by (role and) first use. Two programs that compute one thing in the same steps have one such form."""
    bare, order = _bare(normalize(_without_steps(normalize(program))))
    names = _numbered(bare, order)
    params = {p.name: p for p in bare.params}
    listed = tuple(replace(params[name], name=names[name]) for name in order)
    return rename(replace(bare, name="program", params=listed, facts=()), names)


def _without_steps(program: Program) -> Program:
    """The program without pure lets, and without private scalars that are set once: names for steps of one computation. One stays whose memory is
    written before its last reader."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        for name, kind in (("body", None), ("then", None), ("orelse", None)):
            block = getattr(new, name, kind)
            if isinstance(block, tuple) and block and all(isinstance(s, n.Stmt) for s in block):
                new = replace(new, **{name: _folded(_named_once(block))})  # type: ignore[type-var]  # every node is a dataclass
        return new

    made: Program = transform(program, leave)
    return made


def _named_once(block: n.Block) -> n.Block:
    """The block with private scalars that are declared empty and set by one of its own statements as values with a name."""
    out = list(block)
    for s in block:
        if not (isinstance(s, n.Alloc) and s.buffer.space == "register" and not s.buffer.shape and s.init is None):
            continue
        place, name = n.Region(s.buffer), s.buffer.name
        using = [k for k, x in enumerate(out) if x is not s and name in buffers_named(x)]
        first = out[using[0]] if using else None
        places = [x for k in using for x in walk(out[k]) if isinstance(x, n.Region) and x.buffer.name == name]
        reads = [x for k in using[1:] for x in walk(out[k]) if isinstance(x, n.Load) and x.at == place]
        if not (isinstance(first, n.Store) and first.at == place and first.mask is None and len(places) == len(reads) + 1):
            continue
        var = n.Var(name, s.buffer.dtype)

        def leave(old: n.Node, new: n.Node, place: n.Region = place, var: n.Var = var) -> n.Node:
            return var if isinstance(new, n.Load) and new.at == place else new
        for k in using[1:]:
            out[k] = transform(out[k], leave)
        out[using[0]] = n.Let((name,), first.value, label=first.label)
        out = [x for x in out if x is not s]
    return tuple(out)


def _folded(block: n.Block) -> n.Block:
    out: list[n.Stmt] = []
    left = list(block)
    while left:
        s = left.pop(0)
        if isinstance(s, n.Let) and len(s.names) == 1 and is_pure(s.value) and not isinstance(s.value.type, TileType) and _lasts(s, left):
            left = [substitute(t, {s.names[0]: s.value}) for t in left]
        else:
            out.append(s)
    return tuple(out)


def _lasts(let: n.Let, rest: Sequence[n.Stmt]) -> bool:
    """Whether what a let reads stays as it is until the last statement that reads its name has been executed (which may write it at its end)."""
    readers = [k for k, s in enumerate(rest) if any(isinstance(x, n.Var) and x.name == let.names[0] for x in walk(s))]
    between = rest[:readers[-1] + (not isinstance(rest[readers[-1]], n.Store))] if readers else ()
    touched = {x.buffer.name for s in between for y in walk(s) for x in _written(y)}
    opaque = any(isinstance(y, (n.Opaque, n.Hole)) for s in between for y in walk(s))
    return not opaque and not touched & {x.at.buffer.name for x in walk(let.value) if isinstance(x, n.Load)}


def _written(x: n.Node) -> tuple[n.Region, ...]:
    match x:
        case n.Store():
            return (x.at,)
        case n.Copy():
            return (x.dst,)
        case n.Mma():
            return (x.acc,)
        case n.Call():
            return tuple(a for a in x.args if isinstance(a, n.Region))
        case _:
            return ()


def common_names(program: Program) -> dict[str, str]:
    """What `common_form` calls each parameter, workspace and tensor map of a program in normal form."""
    return _numbered(*_bare(normalize(_without_steps(program))))


def _bare(normal: Program) -> tuple[Program, tuple[str, ...]]:
    """The program without labels, names of its own and promises; and its parameters in order."""
    plain = canonical(replace(normal, kernels=tuple(replace(k, grid=_by_use(k)) for k in normal.kernels)))
    kernels = {k.name: f"kernel{i}" for i, k in enumerate(plain.kernels)}

    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Buffer(space="global"):
                return replace(new, align=0)
            case n.Param():
                return replace(new, attrs=tuple((k, v) for k, v in new.attrs if k != "restrict"))
            case n.Kernel():
                return replace(new, name=kernels[new.name])
            case n.Launch():
                return replace(new, kernel=kernels[new.kernel])
            case _:
                return new

    bare: Program = transform(plain, leave)
    used = _uses(bare)
    params = sorted(bare.params, key=lambda p: (ROLES.index(p.role), used.index(p.name) if p.name in used else len(used)))
    return bare, tuple(p.name for p in params)


def _numbered(bare: Program, order: Sequence[str]) -> dict[str, str]:
    names = {name: f"p{i}" for i, name in enumerate(order)}
    return names | {old: f"q{i}" for i, old in enumerate(x for x in _uses(bare) if x not in names)}


def form_hashes(programs: Sequence[Program]) -> tuple[str, ...]:
    """For each program the content hash of its common form: equal hashes are one program."""
    return tuple(content_hash(common_form(p)) for p in programs)


def _by_use(kernel: n.Kernel) -> tuple[n.Axis, ...]:
    """The axes of a kernel's grid in the order in which its body uses them."""
    names = list(dict.fromkeys(x.name for s in kernel.body for x in walk(s) if isinstance(x, n.Var)))
    return tuple(sorted(kernel.grid, key=lambda axis: names.index(axis.name) if axis.name in names else len(names)))


def _uses(program: Program) -> list[str]:
    """The names that a program declares for its kernels, in the order in which these use them."""
    outer = outer_names(program)
    found = (x.name for k in program.kernels for x in walk(k) if isinstance(x, (n.Var, n.Buffer)) and x.name in outer)
    return list(dict.fromkeys(found))
