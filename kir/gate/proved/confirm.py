"""Counterexamples run before they are believed, and a few sizes run for what is not decided."""
from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from kir.analysis.access import offset_tables
from kir.analysis.proof.decide import Contradiction, KernelProof, Obligation, decided
from kir.analysis.proof.sites import KINDS, Kind
from kir.base.diagnostic import KirError, Origin, error
from kir.gate.inputs.places import places
from kir.gate.inputs.sets import size_sets
from kir.gate.proved.drawn import random_inputs
from kir.gate.proved.in_turn import BETWEEN, crossings
from kir.gate.proved.verdict import Finding, Proved, Status
from kir.gate.proved.whole import with_whole_barriers, with_widths
from kir.interp import run
from kir.interp.numerics.number import Array
from kir.interp.state.result import Finding as Seen
from kir.interp.state.result import Result
from kir.ir import nodes as n
from kir.ir.anchors import anchors
from kir.ir.build import const
from kir.ir.printer import expr_text
from kir.ir.rules.generic import is_generic
from kir.ir.types import DType
from kir.ir.visit import substitute, with_own_statements
from kir.problem.draws import generator

MOST_RUNS = 6
"""Sizes at which one program is run."""
MOST_STEPS = 6_000
"""Statements of one run."""
MOST_SECONDS = 30.0
"""Processor time of one program's runs after which no other one begins; the answer says so. Counterexamples are run first."""
MOST_ELEMENTS = 1 << 21
"""Elements that the tensors of one run have together."""
MOST_MAYBE = 2
"""Sizes that are run first of what may be a counterexample, depending on what memory holds."""
BASES = (3, 20)
"""Where sizes begin that are tried for what is not decided."""
ALIKE = (np.nan, -np.inf)
"""Numbers that all floats are at once in further runs, where an index depends on what memory holds: there the place of the largest may be anywhere."""
CONTENTS = "it depends on the contents"
"""How an obligation says why it is open that what memory holds decides."""
LEFT_OUT = "store of other elements"
"""How a run reports an element of an output that is not written: some kernels mean to, and what is missing is for an oracle to say."""
END = "read by the caller"
"""How a run says that an element of an output is undefined when the program ends."""
OUTSIDE = "outside of the memory, as its place is worked out"
"""How a counterexample to a bound is shown whose tensors are too large to be run."""
OF_RUN: Mapping[str, Kind] = {
    "bounds": "bounds", "race": "race", "divergence": "barrier", "deadlock": "barrier", "barrier": "barrier", "poison": "undefined",
    "alignment": "alignment", "async": "wait", "proxy": "wait", "stale": "race", "early load": "race", "mbarrier": "ring", "box": "ring", "lanes": "barrier",
    "timing": "wait", "cluster": "ring"}
"""What a run's findings are, as kinds of obligations."""
Sizes = Mapping[str, int]


def proved(program: n.Program, runs: int = MOST_RUNS, unsaid: Iterable[str] = (), surface: str = "", written: n.Program | None = None) -> Proved:
    """Every obligation of a program decided, with at most so many runs of the interpreter; nothing says the facts `unsaid`. `surface` is what it was read
    from: threads of a Triton program are in order where it says so alone; `written` is what it was before its normal form: the widths in which indices are
    computed are those of the source.

    Raises KirError KIR-Y001 for facts that exclude one another, and KIR-I003 for a generic program."""
    if is_generic(program):
        raise error("KIR-I003", f"program '{program.name}' is generic", needs="a binding")
    program = with_own_statements(program)
    try:
        proofs = with_whole_barriers(program, decided(program))
        if written is not None:
            written = with_own_statements(written)
            proofs = with_widths(proofs, written)
    except Contradiction:
        facts = tuple(expr_text(f) for f in program.facts)
        raise error("KIR-Y001", f"the facts of '{program.name}' hold for no sizes at all: everything would be proved", witness=facts,
                    needs="facts that some sizes meet") from None
    contents = {o.given for p in proofs for o in p.obligations if o.given}
    ran, not_run, apart = _ran(program, proofs, runs)
    contents |= {f"the numbers in '{name}' are all different" for name in apart}
    if ran and any(o.status != "proved" and o.kind != "overflow" for p in proofs for o in p.obligations):
        taken = {o.parts for p in proofs for o in p.obligations}
        contents |= {f"the numbers in '{name}' rise" for name in sorted(offset_tables(program) - taken)}
    done = _joined(program, proofs, ran, not_run, written)
    crossed = tuple(Finding(x.kernel, "race", "undecided", f"read of '{x.tensor}' by other threads than wrote it", x.load, x.store, BETWEEN)
                    for x in (crossings(program) if surface == "triton" else ()))
    return replace(done, findings=(*done.findings, *crossed), unsaid=tuple(sorted({*unsaid, *contents})))


def _given(program: n.Program, values: Sizes) -> dict[str, int]:
    """Values of a model for what a caller gives."""
    free = {p.name for p in program.params if isinstance(p.of, DType) and p.of.is_integer and p.value is None}
    return {k: v for k, v in values.items() if k in free}


def _different(sizes: Iterable[Sizes]) -> list[Sizes]:
    return list({tuple(sorted(each.items())): each for each in sizes}.values())


def fits(program: n.Program, sizes: Sizes) -> bool:
    """Whether tensors of these sizes, which the facts allow, are small enough to be run."""
    known = {p.name: const(sizes[p.name], p.of) for p in program.params if p.name in sizes and isinstance(p.of, DType)}
    total = 0
    for p in program.params:
        if isinstance(p.of, n.Buffer):
            elements = 1
            for d in p.of.shape:
                found = substitute(d, known)
                if not isinstance(found, n.Const):
                    return False
                elements *= max(int(found.value), 0)
            total += elements
    holds = all(isinstance(f := substitute(fact, known), n.Const) and bool(f.value) for fact in program.facts)
    return holds and total <= MOST_ELEMENTS


def _ran(program: n.Program, proofs: Iterable[KernelProof], runs: int) -> tuple[list[tuple[Sizes, tuple[Seen, ...]]], str, frozenset[str]]:
    """What runs at the values of counterexamples, and at a few sizes of our own, found; why some could not be run; and the tensors whose numbers say where
    to store and must be different for that."""
    open_ones, parts = [o for p in proofs for o in p.obligations if o.status != "proved"], {o.parts for p in proofs for o in p.obligations if o.parts}
    base = size_sets(program, BASES)
    found, maybe = ([{**(base[0] if base else {}), **given} for o in open_ones if o.kind != "overflow" and (o.status == "refuted") is sure
                     and (given := _given(program, o.values))] for sure in (True, False))
    tries: list[tuple[Sizes, float | None]] = [(sizes, None) for sizes in (*found, *_different(maybe)[:MOST_MAYBE])]
    tries += [(sizes, None) for sizes in (base if any(o.kind != "overflow" for o in open_ones) else base[-1:])]
    if runs and any(o.kind == "bounds" and o.why.startswith(CONTENTS) for o in open_ones):
        tries, runs = [*tries[:runs], *((sizes, of) for sizes in base for of in ALIKE)], runs + len(ALIKE) * len(base)
    done: list[tuple[Sizes, tuple[Seen, ...]]] = []
    not_run, apart, before = "", frozenset[str](), list[tuple[Sizes, float | None]]()
    tables_alone = {frozenset((o.anchor, o.other or o.anchor)) for o in open_ones if o.kind == "race" and _of_tables(program, o.why)}
    begun = time.process_time()
    for sizes, of in tries:
        if len(done) >= runs:
            break
        if before and time.process_time() - begun > MOST_SECONDS:
            not_run = f"its runs took {MOST_SECONDS:.0f} seconds of processor time, and other sizes were left out"
            break
        if any(sizes == each and str(of) == str(value) for each, value in before) or not fits(program, sizes):
            continue
        before.append((sizes, of))
        try:
            arrays, scalars = random_inputs(program, sizes, 0)
            arrays |= {name: np.sort(arrays[name]) for name in parts if name in arrays}
            if of is not None:  # what no order and no maximum tells apart
                arrays |= {name: np.full_like(a, of) for name, a in arrays.items() if a.dtype.kind not in "biu"}
            ran = run(program, arrays, scalars, mode="check", most_steps=MOST_STEPS)
            errors = _wrong(ran)
            if errors and all(_stores_meet(program, f) for f in errors) and (tables := _apart(program, arrays, sizes)):
                again = _wrong(run(program, {**arrays, **tables}, scalars, mode="check", most_steps=MOST_STEPS))
                errors, apart = (again, apart | tables.keys()) if not again else (errors, apart)
            errors = tuple(f for f in errors if not (_stores_meet(program, f) and frozenset(a.anchor for a in f.accesses) in tables_alone))
        except KirError as bad:
            if bad.diagnostics[0].id == "KIR-I010":
                done.append((sizes, (Seen("KIR-I010", "bounds", "error", bad.diagnostics[0].message),)))
            else:
                not_run = bad.diagnostics[0].message
            continue
        except (MemoryError, TypeError, KeyError) as bad:
            not_run = f"{type(bad).__name__}: {bad}"
            continue
        done.append((sizes, errors))
    return done, not_run, apart


def _wrong(ran: Result) -> tuple[Seen, ...]:
    return tuple(f for f in ran.findings if f.severity == "error" and not any(a.verb == LEFT_OUT for a in f.accesses))


def _stores_meet(program: n.Program, f: Seen) -> bool:
    """Whether stores of two CTAs, or threads, to one place of an output meet that nothing reads."""
    outs = {p.name for p in program.params if p.role == "out"}
    return f.kind == "race" and f.buffer in outs and all(a.verb == "write" for a in f.accesses)


def _of_tables(program: n.Program, why: str) -> bool:
    """Whether it is open because of what several inputs of whole numbers hold together, which are given for no two stores to meet, or not: no run with others
    says. Of one such table it is known which numbers keep stores apart: all different ones, or ones that rise."""
    tables = {p.name for p in program.params if isinstance(p.of, n.Buffer) and p.role == "in" and p.of.dtype.is_integer}
    named = set(re.findall(r"'([^']+)'", why)) if why.startswith(CONTENTS) else set()
    return len(named) > 1 and named <= tables


def _apart(program: n.Program, arrays: Mapping[str, Array], sizes: Sizes) -> dict[str, Array]:
    """Those inputs by whose numbers a program stores, each once, and which meet else; drawn so at these sizes."""
    known = {p.name: const(sizes[p.name], p.of) for p in program.params if p.name in sizes and isinstance(p.of, DType)}
    out: dict[str, Array] = {}
    for p in program.params:
        found = places(program).get(p.name)
        if isinstance(p.of, n.Buffer) and found is not None and found.apart:
            drawn = found.drawn(arrays[p.name].shape, known, p.of.dtype, generator("apart", p.name), 1)
            if drawn is None:
                return {}
            out[p.name] = drawn
    return out


def _joined(program: n.Program, proofs: Iterable[KernelProof], ran: list[tuple[Sizes, tuple[Seen, ...]]], not_run: str,
            written: n.Program | None = None) -> Proved:
    """Obligations with what the runs found of them."""
    places: dict[str, Origin | None] = {a: s.origin for of in (written, program) if of is not None for a, _, s in anchors(of)}
    seen = [(sizes, f) for sizes, found in ran for f in found]
    kernels: dict[str, Mapping[Kind, tuple[int, int]]] = {}
    findings: dict[tuple[str, ...], Finding] = {}
    used: set[int] = set()
    for p in proofs:
        of = {kind: [o for o in p.obligations if o.kind == kind] for kind in KINDS}
        kernels[p.kernel] = {k: (len(o), sum(x.status == "proved" for x in o)) for k, o in of.items() if o}
        for o in p.obligations:
            if o.status == "proved":
                continue
            made = _finding(program, p.kernel, o, seen, used, places)
            key = (made.kernel, made.kind, made.status, made.what, made.anchor, made.other)
            findings[key] = replace(made, count=findings[key].count + 1) if key in findings else made
    told = {(x.kernel, x.kind, _numberless(x.shown)) for x in findings.values() if x.status == "refuted"}
    for k, (sizes, f) in enumerate(seen):
        kind = OF_RUN.get(f.kind)
        if k in used or kind is None or (_at_end(f) and _follows(seen, sizes)):
            continue
        anchor = f.accesses[0].anchor if f.accesses else f.kernel
        said = f.kernel, kind, _numberless(f.message)
        if said not in told:  # at the next size it is the same mistake
            told.add(said)
            findings[(*said, anchor, "run")] = Finding(f.kernel, kind, "refuted", "shown by a run", anchor, sizes=sizes, shown=f.message,
                                                       origin=places.get(anchor))
    order: dict[Status, int] = {"refuted": 0, "undecided": 1, "proved": 2}
    return Proved(program.name, kernels, tuple(sorted(findings.values(), key=lambda f: (order[f.status], KINDS.index(f.kind)))),
                  tuple(dict(s) for s, _ in ran), not_run)


def _numberless(message: str) -> str:
    """What a message says at any size."""
    return re.sub(r"\d+", "#", message)


def _follows(seen: list[tuple[Sizes, Seen]], sizes: Sizes) -> bool:
    """Whether a run came upon a mistake for which it left out what a statement does: what is not written then is no second one."""
    return any(at is sizes and not _at_end(f) and OF_RUN.get(f.kind) is not None for at, f in seen)


def _at_end(f: Seen) -> bool:
    return any(a.verb == END for a in f.accesses)


def _finding(program: n.Program, kernel: str, o: Obligation, seen: list[tuple[Sizes, Seen]], used: set[int], places: Mapping[str, Origin | None]) -> Finding:
    made = Finding(kernel, o.kind, "undecided", o.what, o.anchor, o.other, o.why, origin=places.get(o.anchor))
    if o.kind == "overflow" and o.status == "refuted":
        return replace(made, status="refuted", sizes=dict(o.values), shown="worked out, not run")
    for k, (sizes, f) in enumerate(seen):
        at = {a.anchor for a in f.accesses}
        if OF_RUN.get(f.kind) == o.kind and f.kernel in ("", kernel) and (not at or o.anchor in at or o.other in at):
            used.add(k)
            return replace(made, status="refuted", sizes=sizes, shown=f.message)
    if o.exact and (given := _given(program, o.values)) and not fits(program, given):
        return replace(made, status="refuted", sizes=given, shown=OUTSIDE)
    if o.status == "refuted":
        values = ", ".join(f"{k} = {v}" for k, v in o.values.items() if "." not in k)
        return replace(made, why=f"a counterexample{f' ({values})' if values else ''} that no run showed" + (f"; {o.why}" if o.why else ""))
    return made
