"""What a kernel claims to do, judged from the IR: values alone do not show an algorithm that is named and absent.

    refusals(program, load_problem("gemm"), {})

A problem states claims (`kir.problem.schema.Claims`); that its inputs arrive at its outputs, and that no untested way leaves work out, is derived.

Order: flow, tiles, compensation, arithmetic, ways, drawn, not_finite, elsewhere, untested_barriers, searched, reals, outcomes.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain

from kir.base.diagnostic import Diagnostic, KirError
from kir.gate.cases import Case, naive_of, tensor_names
from kir.gate.claims.arithmetic import last, sums, unkept
from kir.gate.claims.drawn import never_drawn
from kir.gate.claims.elsewhere import elsewhere
from kir.gate.claims.flow import Flow, Key, is_tensor
from kir.gate.claims.not_finite import dropped_beside, dropped_of
from kir.gate.claims.outcomes import JUDGED, unseen
from kir.gate.claims.searched import beside_problem, beside_program, beside_sizes, beside_ways, listed, own_of_problem, ranges_of, special_cases
from kir.gate.claims.untested_barriers import untested_barriers
from kir.gate.claims.ways import LeftOut, right_on, untaken
from kir.interp.state.coverage import Place
from kir.ir import nodes as n
from kir.ir.visit import once
from kir.problem import Problem


def refusals(program: n.Program, problem: Problem, given: Mapping[str, str], cases: Sequence[Case] = (),
             reached: Mapping[Place, int] | None = None) -> tuple[Diagnostic, ...]:
    """What a program does not do that its problem says: KIR-G130 an input that does not arrive at an output, KIR-G131 to KIR-G133 arithmetic, and, where
    it was run (`reached` by `cases`), KIR-G134 a way that no case takes and that leaves work out, KIR-G143 an input that tests hold at one value and that is
    not taken in as the problem has it, KIR-G149 NaN and infinities that are asked for and dropped, KIR-G146 an outcome that data decide and no case brings
    about. Of text that is not understood nothing is said."""
    names = tensor_names(program, problem, given)
    found = broken(program, problem, names)
    if found or reached is None:
        return tuple(found)
    flow = _flow(program)
    if flow.opaque:
        return ()
    before, loops = _done(program, problem, names), _reach(program, problem)

    def lost(other: n.Program) -> list[str]:
        after = _done(other, problem, names)
        words = [f"{_words(sorted(before[out] - after.get(out, frozenset())))} does not arrive at {out}" for out in before
                 if before[out] - after.get(out, frozenset())]
        words += [f"the loop {var} does not go as far as {_words(sorted(sizes - still))}" for key, still in _reach(other, problem).items()
                  for var, sizes in ((key[1], loops.get(key, frozenset())),) if sizes - still]
        return words or [d.message for d in broken(other, problem, names, derived=False)]
    mine, never = {theirs: own for own, theirs in names.items()}, partial(never_drawn, program, problem, names)
    if left_out := tuple(untaken(program, flow, cases, reached, lost, lambda: chain(special_cases(problem, cases), listed(program, problem, cases)),
                                 never=never)):
        return left_out
    if found := list(elsewhere(program, problem, names, cases, lambda out: last(flow, flow.live(mine[out]), mine[out]) if out in mine else "")):
        return tuple(found)
    if found := list(dropped_of(program, flow, problem, cases)):
        return tuple(found)
    judges = [(own, _flow(own), tensor_names(own, problem, {})) for own in naive_of(problem)]
    return tuple(unseen(program, flow, names, judges, cases, reached, lambda: beside_problem(program, problem, cases), ranges_of(problem),
                        lambda: own_of_problem(problem, cases), lambda: listed(program, problem, cases), never))


def unshown(program: n.Program, against: n.Program, cases: Sequence[Case], reached: Mapping[Place, int], whole: bool = True) -> tuple[Diagnostic, ...]:
    """Of a program that is right by what another one makes of the cases: ways that sizes decide, that no case takes, and that leave out what arrives at the
    outputs elsewhere (KIR-G134; where the cases are not the `whole` of them, what was left out for its time may take the way: some of it is run then, and a way
    that is right by force at the sizes of the cases is none), NaN and infinities that are asked for and dropped (KIR-G149), and outcomes that data decide and
    that no case brought about (KIR-G146)."""
    flow = _flow(program)
    same = {p.name: p.name for p in program.params}
    if flow.opaque:
        return ()
    sizes = frozenset(p.name for p in program.params if not is_tensor(p))
    before, loops = _arrivals(program), _reach_of(program, sizes)

    def lost(other: n.Program) -> list[str]:
        after, still = _arrivals(other), _reach_of(other, sizes)
        return [*(f"{_words(sorted(before[out] - after[out]))} does not arrive at {out}" for out in before if before[out] - after[out]),
                *(f"the loop {key[1]} does not go as far as {_words(sorted(loops.get(key, frozenset()) - own))}" for key, own in still.items()
                  if loops.get(key, frozenset()) - own)]
    of_sizes = list({tuple(sorted(c.sizes.items())): c for c in reversed(cases)}.values())
    missing = None if whole else LeftOut(lambda ways: beside_ways(program, against, ways, cases), lambda other: right_on(other, of_sizes[:JUDGED], clean=True))
    found = tuple(untaken(program, flow, of_sizes, reached, lost, None, len(of_sizes), missing)) or tuple(dropped_beside(program, flow, against, cases))
    return found or tuple(unseen(
        program, flow, same, [(against, _flow(against), same)], cases, reached,
        lambda: chain(beside_sizes(program, against), beside_program(program, against, cases))))


def apart(program: n.Program, reached: Mapping[Place, int]) -> tuple[Diagnostic, ...]:
    """Barriers that no checked test shows to be met by all threads (KIR-G117), whatever the program is compared with; `reached` is what those reached."""
    flow = _flow(program)
    return () if flow.opaque else tuple(untested_barriers(program, flow, reached))


def broken(program: n.Program, problem: Problem, names: Mapping[str, str], derived: bool = True) -> list[Diagnostic]:
    """Claims that a program does not keep, on whatever way; `derived` with the inputs that must arrive."""
    flow = _flow(program)
    if flow.opaque:
        return []
    mine = {theirs: own for own, theirs in names.items()}
    outputs = [t.name for t in problem.spec.tensors if t.role != "in" and t.name in mine]
    found: list[Diagnostic] = []
    needed, have = (_needed(problem), _arriving(program, problem, names)) if derived else ({}, {})
    for out in outputs:
        live = flow.live(mine[out])
        missing = sorted(needed.get(out, frozenset()) - have.get(out, frozenset()) - _scalars_unknown(program, problem))
        if missing:
            found.append(Diagnostic("KIR-G130", f"{_words(missing)} does not arrive at {out}: the problem's answer depends on it", subject=out,
                                    anchor=last(flow, live, mine[out]), needs="the step that takes it in"))
        found += unkept(flow, live, problem.spec.claims, mine, mine[out])
    return found


def _words(names: Sequence[str]) -> str:
    return " and ".join(names)


def _flow(program: n.Program) -> Flow:
    return once(program, "_claims_flow", lambda: Flow(program))


def _arrivals(program: n.Program) -> dict[str, frozenset[str]]:
    """By output, the tensors that arrive there."""
    flow, tensors = _flow(program), {p.name for p in program.params if is_tensor(p)}
    return {p.name: frozenset(flow.inputs(p.name)) & tensors for p in program.params if is_tensor(p) and p.role != "in"}


def _arriving(program: n.Program, problem: Problem, names: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """By output, the problem's tensors, scalars and sizes that arrive there."""
    flow = _flow(program)
    known = {t.name for t in problem.spec.tensors} | {name for s in problem.shapes[:1] for name in s.sizes} | set(problem.spec.scalars)
    return {names[p.name]: frozenset(names.get(x, x) for x in flow.inputs(p.name)) & known
            for p in program.params if is_tensor(p) and p.role != "in" and p.name in names}


def _done(program: n.Program, problem: Problem, names: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """By output, what arrives there, and the tensors of which a sum does."""
    flow, arriving = _flow(program), _arriving(program, problem, names)
    tensors = {t.name for t in problem.spec.tensors}
    for own, out in names.items():
        if out in arriving:
            where = [d for found in flow.live(own).values() for d in found]
            of = {names.get(x, x) for each in sums(flow, where) for use in each.where.uses for x in flow.sources(use, each.where.kernel)}
            arriving[out] |= {f"a sum over {x}" for x in of & tensors}
    return arriving


def _reach(program: n.Program, problem: Problem) -> dict[Key, frozenset[str]]:
    """By loop, the sizes of the problem on which its bounds depend."""
    return _reach_of(program, frozenset(name for s in problem.shapes[:1] for name in s.sizes))


def _reach_of(program: n.Program, sizes: frozenset[str]) -> dict[Key, frozenset[str]]:
    """By loop and bound, the first or the last (in its key's first name), those of the sizes on which that depends."""
    flow = _flow(program)
    return {(f"{key[0]} {bound}", key[1]): flow.sources(e, d.kernel) & sizes
            for key, found in flow.definitions.items() for d in found if isinstance(d.stmt, n.For) for bound, e in enumerate(d.uses[:2])}


def _needed(problem: Problem) -> dict[str, frozenset[str]]:
    """By output, the tensors and scalars that arrive there in the problem's own program; nothing where it has none."""
    try:
        naive = problem.naive
    except (KirError, FileNotFoundError):
        return {}
    wanted = {t.name for t in problem.spec.tensors} | set(problem.spec.scalars)
    optional = {t.name for t in problem.spec.tensors if t.optional}
    return {out: found & wanted for out, found in _arriving(naive, problem, tensor_names(naive, problem, {})).items() if out not in optional}


def _scalars_unknown(program: n.Program, problem: Problem) -> set[str]:
    """Scalars of the problem that the program does not take: it was made for their values."""
    return set(problem.spec.scalars) - {p.name for p in program.params}


__all__ = ["apart", "broken", "refusals", "unshown"]
