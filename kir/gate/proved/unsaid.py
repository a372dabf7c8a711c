"""What is not a kernel's to claim: facts that nothing says, under which alone it stays inside its tensors; and that tensors are apart for which its launch
passes one."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kir.analysis.proof.decide import decided
from kir.base.diagnostic import error, usage
from kir.gate.cases import tensor_names
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const
from kir.ir.printer import expr_text
from kir.ir.visit import transform
from kir.problem import Problem


def require_said(program: n.Program, unsaid: Iterable[str], problem: Problem | None, against: n.Program | None, attempt: str = "") -> None:
    """Raises KirError KIR-G137 where the problem has shapes that only such facts leave out, or the other program does without them: a kernel that lacks a
    mask is right at the sizes at which it needs none. KIR-C002 where the problem is of other tensors."""
    if problem is not None:
        require_tensors(program, problem)
    facts = {_plain(f): f for f in unsaid}
    own = [f for f in program.facts if _plain(expr_text(f)) in facts]
    if against is not None:
        others = {_plain(expr_text(f)) for f in against.facts}
        own = [f for f in own if _plain(expr_text(f)) not in others] if problem is None else own
    witness: tuple[str, ...] = ()
    if problem is not None:
        taken = problem.shapes_for(program)
        left = [s for s in problem.shapes_for(replace(program, facts=tuple(f for f in program.facts if f not in own))) if s not in taken]
        witness = tuple(", ".join(f"{k} = {v}" for k, v in s.sizes.items()) for s in left[:1])
    if own and (witness or problem is None):
        said = " and ".join(expr_text(f) for f in own)
        raise error("KIR-G137", f"'{program.name}' is inside its tensors only where {said}, which nothing says", witness=witness, attempt=attempt,
                    needs=f"a kernel for {'all shapes of the problem' if problem is not None else 'all sizes of the other one'}, or a test in its host code "
                    "or a fact in its binding that leaves these out")


def as_one(program: n.Program, pairs: Iterable[tuple[str, ...]]) -> n.Program:
    """The program with one tensor in the place of two, where a launch passes one for both and they are of one shape and dtype; else, and where it passes
    parts of one, of which one is written, with the one as another name of the other."""
    for a, b, *part in sorted(pairs):
        of = {p.name: p.of for p in program.params if isinstance(p.of, n.Buffer)}
        if a not in of or b not in of or (part and _elements(of[a]) == _plain(part[0])):
            continue
        if part or replace(of[b], name=a) != of[a] or any(b == m.of for m in program.tensor_maps):
            if any(p.role != "in" for p in program.params if p.name in (a, b)):
                named = tuple(replace(p, attrs=(*(x for x in p.attrs if x[0] not in ("alias", "restrict")), ("alias", a))) if p.name == b else p
                              for p in program.params)
                program = replace(program, params=named)
            continue
        one, gone = of[a], b

        def leave(_: n.Node, x: n.Node, one: n.Buffer = one, gone: str = gone) -> n.Node:
            return one if isinstance(x, n.Buffer) and x.name == gone else x
        roles = {p.role for p in program.params if p.name in (a, b)}
        params = tuple(replace(p, role="inout" if len(roles) > 1 else p.role, attrs=()) if p.name == a else p for p in program.params if p.name != b)
        program = replace(program, params=params, kernels=tuple(transform(k, leave) for k in program.kernels))
    return program


def require_tensors(program: n.Program, problem: Problem) -> None:
    """What the program is given to read the problem gives, and of what it writes one tensor at least is what the problem asks for. Raises UsageError KIR-C002
    for another."""
    names, theirs = tensor_names(program, problem, {}), {t.name: t.role for t in problem.spec.tensors}
    reads, writes = (sorted(p.name for p in program.params if isinstance(p.of, n.Buffer) and p.role in roles) for roles in (("in",), ("out", "inout")))
    missing = [name for name in reads if theirs.get(names[name], "out") == "out"]
    if not missing and any(theirs.get(names[name], "in") != "in" for name in writes):
        return
    verb, which, of = ("reads", f"'{missing[0]}'", reads) if missing else ("writes", " and ".join(f"'{name}'" for name in writes) or "nothing", writes)
    raise usage("KIR-C002", f"'{program.name}' {verb} {which}, which problem '{problem.name}' does not {'have' if missing else 'ask for'}",
                witness=(f"tensors of the problem: {', '.join(theirs)}", f"{'read' if missing else 'written'} by the program: {', '.join(of)}"),
                needs="the problem that this kernel computes; or, under [tensors] of its binding, the problem's names")


def require_apart(program: n.Program, pairs: Iterable[tuple[str, ...]]) -> None:
    """Raises KirError KIR-G138 where a launch passes one tensor for two, and it is not proved that no thread touches what another writes of it."""
    one = as_one(program, pairs)
    if one is program:
        return
    found = [o for p in decided(one) for o in p.obligations if o.kind == "race" and o.status != "proved"]
    if found and all(o.status == "proved" for p in decided(program) for o in p.obligations if o.kind == "race"):
        said = " and ".join(f"'{a}' and '{b}'" for a, b, *_ in sorted(pairs))
        how = "may touch what others write of it" if "may be the same memory" in found[0].why else "race on it"
        raise error("KIR-G138", f"'{program.name}' is launched with one tensor for {said}, and threads {how}: {found[0].what}", anchor=found[0].anchor,
                    needs="a tensor of its own for what is written, or an order between those who read and those who write")


def require_own(program: n.Program, unsaid: Iterable[str], joined: Iterable[tuple[str, ...]], problem: Problem | None, attempt: str = "") -> None:
    """What a walk or a search begins with is refused as the gate refuses it: KIR-G137 where a problem is given, KIR-G138. Without a problem a program is
    compared with itself, at sizes for which it says that it is made."""
    if problem is not None:
        require_said(program, unsaid, problem, None, attempt)
    require_apart(program, joined)


def _elements(b: n.Buffer) -> str:
    """How many elements a tensor has, as text."""
    made: n.Expr = b.shape[0] if b.shape else const(1)
    for d in b.shape[1:]:
        made = build.mul(made, d)
    return _plain(expr_text(made)) if b.strides is None else ""


def _plain(text: str) -> str:
    return "".join(text.split())


__all__ = ["as_one", "require_apart", "require_own", "require_said", "require_tensors"]
