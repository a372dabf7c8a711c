"""Ways that no draw of a problem can take, whatever its seed: what holds of all the elements of a tensor together."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from kir.analysis.facts import Facts
from kir.analysis.solver import decide
from kir.base.diagnostic import KirError
from kir.gate.claims.tiles import element
from kir.gate.claims.ways import Way
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import TileType, dtype_of
from kir.ir.visit import transform, walk
from kir.problem import Problem


def never_drawn(program: n.Program, problem: Problem, names: Mapping[str, str], way: Way) -> bool:
    """Whether a way goes against what all draws of a problem have: the elements of a partition lie from zero to what is parted, and none before the one ahead
    of it. `names` gives the tensor of a parameter."""
    parted = _parted(program, problem, names)
    if not parted:
        return False
    try:
        known, lets = Facts.at(program, way.path), _read_of(program, way.kernel, parted)
        cond = element(way.cond) if isinstance(way.cond.type, TileType) else way.cond
        claim = cond if way.holds else build.invert(cond)
        while any(isinstance(x, n.Var) and x.name in lets for x in walk(claim)):
            claim = _with(claim, lambda old, new: lets.get(old.name, new) if isinstance(old, n.Var) else new)
        found = list(dict.fromkeys(x for x in walk(claim) if isinstance(x, n.Load) and x.at.buffer.name in parted))
        drawn = {x: build.binary("min", build.binary("max", n.Var(f"drawn.{i}", x.type), build.const(0, dtype_of(x.type))), parted[x.at.buffer.name])
                 for i, x in enumerate(found)}
        for fact in _of_elements(found, parted, known):
            claim = build.logical_and(fact, claim)

        def free(old: n.Node, new: n.Node) -> n.Node:
            if isinstance(old, n.Load):
                return drawn.get(old, new)
            return n.Var(f"free.{old.name}", old.of) if isinstance(old, n.Var) and old not in parted.values() and not old.name.startswith("drawn.") else new
        return bool(found) and decide(build.invert(_with(claim, free)), known).kind == "always"
    except KirError:
        return False


def _with(e: n.Expr, leave: Callable[[n.Node, n.Node], n.Node]) -> n.Expr:
    made = transform(e, leave)
    assert isinstance(made, n.Expr)
    return made


def _read_of(program: n.Program, kernel: str, parted: Mapping[str, n.Expr]) -> dict[str, n.Expr]:
    """What names of a kernel stand for, of those that read such elements."""
    inside = next(body for name, body in [*((k.name, k) for k in program.kernels), *((f.name, f) for f in program.functions)] if name == kernel)
    return {s.names[0]: s.value for s in walk(inside) if isinstance(s, n.Let) and len(s.names) == 1
            and any(isinstance(x, n.Load) and x.at.buffer.name in parted for x in walk(s.value))}


def _parted(program: n.Program, problem: Problem, names: Mapping[str, str]) -> dict[str, n.Expr]:
    """By its parameter, the size that each tensor is a partition of in all that a problem draws."""
    sizes = {p.name: n.Var(p.name, p.of) for p in program.params if p.role == "size" and not isinstance(p.of, n.Buffer)}
    out = dict[str, n.Expr]()
    for t in problem.spec.tensors:
        how = [d.get(t.name) or problem.usual_draw(t) for d in problem.spec.distributions.values()]
        if t.role != "out" and all(d.kind == "partition" for d in how) and len({d.of for d in how}) == 1 and how[0].of in sizes:
            out |= {own: sizes[how[0].of] for own, theirs in names.items() if theirs == t.name}
    return out


def _of_elements(found: list[n.Load], parted: Mapping[str, n.Expr], known: Facts) -> Iterator[n.Expr]:
    for x in found:
        yield build.logical_and(build.compare("ge", x, 0), build.compare("le", x, parted[x.at.buffer.name]))
        for y in found:
            (a,), (b,) = ([i for i in z.at.index if isinstance(i, n.Expr)] for z in (x, y))
            if x is not y and x.at.buffer == y.at.buffer and decide(build.compare("le", a, b), known).kind == "always":
                yield build.compare("le", x, y)
