"""Checking an answer: read, held to the contract's types and effects, kept within its budget, and run against its oracle.

Each stage refuses with located diagnostics, which is what a repair turn is given. Nothing outside the interpreter runs.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from kir.analysis.target.footprint import footprint
from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError, Origin, error
from kir.gate.cases import ProblemCase
from kir.gate.cost import profile
from kir.hardware.target import target
from kir.interp import run
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.printer import expr_text, type_text
from kir.ir.types import I32, DType, TileType
from kir.ir.visit import walk
from kir.lineage.carrier.answer import Answer, read
from kir.lineage.carrier.contract import Contract
from kir.lineage.carrier.operands import dimensions, facts, in_dtype, size_vars
from kir.problem import Problem, Shape
from kir.problem.draws import generator
from kir.problem.schema import evaluate

Stage = Literal["read", "contract", "budget", "oracle", "accepted"]
MOST_NODES = 40_000
"""Nodes of the largest answer."""
MOST_VALUE = 1 << 22
"""Elements of the largest value or array of an answer, at the shapes it is checked on."""
MOST_STEPS = 2_000_000
"""Statements that the interpreter runs for one answer, over all cases."""
CASE_STEPS = 200_000
"""Statements of one run: an answer that loops for ever ends here."""
CHECKED_STEPS = 20_000
"""Statements (as counted in the fast run of its shape's first case) up to which a case is run in checking mode; the smallest always is."""


@dataclass(frozen=True)
class Checked:
    """The verdict on an answer. `stage` is the one that refused, or `accepted`; `diagnostics` say why, located in the answer; `runs` and
    `hazard_runs` count interpreted cases, fast and checking; `worst` is the largest error as a part of its bound; `dtypes` are those of the
    contract in which an accepted one was run, its own first."""

    contract: str
    answer: Answer
    stage: Stage
    diagnostics: tuple[Diagnostic, ...] = ()
    program: n.Program | None = None
    dtype: str = ""
    runs: int = 0
    hazard_runs: int = 0
    worst: float = 0.0
    dtypes: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        return self.stage == "accepted"

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"contract": self.contract, "answer": self.answer.hash, "surface": self.answer.surface, "accepted": self.accepted,
                "stage": self.stage, "program": content_hash(self.program) if self.program is not None else "", "runs": self.runs,
                "hazard_runs": self.hazard_runs, "worst": self.worst if math.isfinite(self.worst) else "inf",
                "diagnostics": [d.to_json() for d in self.diagnostics]}

    def program_or_raise(self) -> n.Program:
        """The program of an accepted answer. Raises KirError with the diagnostics of a refused one."""
        if self.program is None or not self.accepted:
            raise KirError(*self.diagnostics)
        return self.program


def check(contract: Contract, answer: Answer) -> Checked:
    """The verdict on an answer; a refusal is a verdict, not an error. Deterministic: the same answer, the same verdict, everywhere."""
    try:
        program = read(contract, answer)
    except KirError as refused:
        return Checked(contract.id, answer, "read", _in(answer, refused.diagnostics))
    return check_program(contract, program, answer)


def check_program(contract: Contract, program: n.Program, answer: Answer, budget: bool = True) -> Checked:
    """The verdict on a program that is already read; `answer` is where it came from."""
    stage: Stage = "contract"
    dtype = ""
    try:
        dtype = conforms(contract, program, answer)
        if budget:
            stage = "budget"
            affordable(contract, program, answer)
        stage = "oracle"
        return _against_oracle(contract, program, answer, dtype)
    except KirError as refused:
        return Checked(contract.id, answer, stage, _in(answer, refused.diagnostics), program, dtype)
    except (RecursionError, MemoryError) as bad:
        found = Diagnostic("KIR-H126", f"the answer is too deep or too large to be checked ({type(bad).__name__})", _start(answer))
        return Checked(contract.id, answer, stage, (found,), program, dtype)


def _start(answer: Answer) -> Origin:
    return Origin(answer.file, 1, 1, 1, 1)


def _in(answer: Answer, found: tuple[Diagnostic, ...]) -> tuple[Diagnostic, ...]:
    return tuple(d if d.origin is not None else replace(d, origin=_start(answer)) for d in found)


# ------------------------------------------------------------------------------------------------------------ types and effects

def conforms(contract: Contract, program: n.Program, answer: Answer | None = None) -> str:
    """The contract's dtype `T` for which this program has its signature, touches what it may and is built as its level allows.

    Raises KirError with everything that is wrong: KIR-H120 (signature), KIR-H122 (asks for more than the contract grants),
    KIR-H123 (holes, opaque text), KIR-H124 (structure), KIR-H126 (size)."""
    start = _start(answer or Answer(""))
    if (count := sum(1 for _ in walk(program))) > MOST_NODES:
        raise error("KIR-H126", f"the answer has {count} nodes; at most {MOST_NODES} are checked", origin=start)
    dtype = _dtype(contract, program)
    found = [*_complete(program), *_signature(contract, program, dtype), *_facts(contract, program), *_structure(contract, program)]
    if found:
        raise KirError(*(d if d.origin is not None else replace(d, origin=start) for d in found))
    return dtype


def _dtype(contract: Contract, program: n.Program) -> str:
    """The dtype that `T` stands for, by the first operand of that dtype."""
    has = {p.name: p.of.dtype.name for p in program.params if isinstance(p.of, n.Buffer)}
    for t in contract.spec.tensors:
        if t.dtype == "T" and has.get(t.name) in contract.spec.dtypes:
            return has[t.name]
    return contract.spec.dtypes[0] if contract.spec.dtypes else ""


def _signature(contract: Contract, program: n.Program, dtype: str) -> Iterator[Diagnostic]:
    wanted = {t.name: t for t in contract.spec.tensors}
    shapes = dimensions(contract)
    given = {p.name: p for p in program.params}
    for m in program.metas:
        yield Diagnostic("KIR-H120", f"the answer is generic in '{m.name}'", needs="a specialized program")
    for p in program.params:
        if p.name not in wanted and p.name not in contract.sizes:
            yield Diagnostic("KIR-H120", f"'{p.name}' is no operand of {contract.id}", anchor=p.name,
                             needs=f"only {', '.join((*contract.sizes, *wanted))}")
    for name in contract.sizes:
        if name in given and (given[name].role != "size" or given[name].of != I32 or given[name].value is not None):
            yield Diagnostic("KIR-H120", f"'{name}' is a size of the contract", anchor=name, needs=f"size {name}: i32")
    for name, t in wanted.items():
        says = f"{t.role} {name}: {dtype if t.dtype == 'T' else t.dtype}[{', '.join(t.shape)}]"
        if name not in given or not isinstance(given[name].of, n.Buffer):
            yield Diagnostic("KIR-H120", f"the operand '{name}' is missing", anchor=name, needs=says)
            continue
        p = given[name]
        assert isinstance(p.of, n.Buffer)
        if p.role != t.role or p.of.dtype.name != (dtype if t.dtype == "T" else t.dtype) or p.of.shape != shapes[name]:
            yield Diagnostic("KIR-H120", f"'{name}' is declared as {p.role} {type_text(TileType(p.of.dtype, p.of.shape))}", anchor=name, needs=says)
        elif p.of.strides is not None or p.of.layout is not None or p.of.align or dict(p.attrs).keys() - {"restrict"}:
            yield Diagnostic("KIR-H122", f"'{name}' is declared with strides, a layout, an alignment or attributes, which the contract does not grant",
                             anchor=name, needs=says)


def _facts(contract: Contract, program: n.Program) -> Iterator[Diagnostic]:
    granted = facts(contract, size_vars(contract))
    for f in program.facts:
        if f not in granted:
            yield Diagnostic("KIR-H122", f"the answer holds only where {expr_text(f)}, which the contract does not grant",
                             needs=f"facts among: {'; '.join(contract.spec.facts) or 'none'}")


def _complete(program: n.Program) -> Iterator[Diagnostic]:
    for part in (*program.kernels, *program.functions):
        for s in walk(part):
            if isinstance(s, n.Hole):
                yield Diagnostic("KIR-H123", f"the answer leaves a hole of its own, '{s.name}'", s.origin)
            elif isinstance(s, n.Opaque):
                yield Diagnostic("KIR-H123", f"the answer holds {s.surface} text that is not understood: {s.reason}", s.origin)


def _structure(contract: Contract, program: n.Program) -> Iterator[Diagnostic]:
    level, most = contract.spec.level, contract.spec.threads
    if not program.kernels:
        yield Diagnostic("KIR-H124", "the answer has no kernel")
    for k in program.kernels:
        threads = build.int_value(k.threads)
        if threads is None or threads > most or (level == "cta" and threads != most):
            yield Diagnostic("KIR-H124", f"kernel '{k.name}' has {expr_text(k.threads)} threads", k.origin, k.name,
                             needs=f"{'threads' if level == 'cta' else 'at most'} {most}")
        if any(isinstance(s, n.Jump) and s.kind == "return" for s in walk(k)) and level == "cta":
            yield Diagnostic("KIR-H124", "the answer returns, which would leave the kernel around the hole", k.origin, k.name)
    if level == "program":
        return
    if len(program.kernels) != 1 or program.workspaces or program.tensor_maps or program.plan:
        yield Diagnostic("KIR-H124", "a hole in a CTA is filled by one kernel, without workspaces, tensor maps or a plan")
    elif program.kernels[0].grid or program.kernels[0].cluster or program.kernels[0].attrs:
        yield Diagnostic("KIR-H124", "a hole in a CTA is filled by a kernel without grid, cluster and attributes", program.kernels[0].origin,
                         needs=f"kernel {program.kernels[0].name} grid () threads {most}")


# -------------------------------------------------------------------------------------------------------------------- budget

def affordable(contract: Contract, program: n.Program, answer: Answer) -> None:
    """Raises KirError KIR-H125 for more registers, shared memory or modelled time than the contract allows, KIR-H126 for values too large
    to be checked. Registers are a lower bound here; the gate holds the compiled number to the same limit."""
    limits, found = contract.spec.budget, []
    for k in program.kernels:
        need = footprint(program, k)
        if need.shared_bytes is None or need.registers is None:
            found.append(Diagnostic("KIR-H125", f"how much memory '{k.name}' takes depends on the sizes", k.origin, k.name,
                                    needs="arrays of constant extent in shared memory, fragments and registers"))
            continue
        if need.shared_bytes > limits.shared_bytes:
            found.append(Diagnostic("KIR-H125", f"'{k.name}' takes {need.shared_bytes} bytes of shared memory", k.origin, k.name,
                                    needs=f"at most {limits.shared_bytes}"))
        if need.registers > limits.registers:
            found.append(Diagnostic("KIR-H125", f"'{k.name}' takes at least {need.registers} registers a thread", k.origin, k.name,
                                    needs=f"at most {limits.registers}"))
    if found:
        raise KirError(*found)
    sizes = next(s.sizes for s in contract.spec.shapes if s.name == limits.at)
    seconds = sum(row.seconds for row in profile(program, [(limits.at, sizes)], target(limits.target), None))
    if seconds > limits.seconds:
        raise error("KIR-H125", f"it takes a modelled {seconds * 1e6:.1f} us at shape '{limits.at}' on {limits.target}", origin=_start(answer),
                    needs=f"at most {limits.seconds * 1e6:.1f} us")


def _sane(program: n.Program, sizes: Mapping[str, int]) -> None:
    """Raises KirError KIR-H126 when a value, an array or a grid is too large to be interpreted at these sizes."""
    from kir.ir.visit import substitute
    values = {name: n.Const(v, I32) for name, v in sizes.items()}

    def extent(dims: tuple[int | n.Expr, ...]) -> int:
        known = [d if isinstance(d, int) else build.int_value(substitute(d, values)) for d in dims]
        return math.prod(d for d in known if d is not None)
    for k in program.kernels:
        if (ctas := extent(tuple(a.extent for a in k.grid))) > 1 << 16:
            raise error("KIR-H126", f"'{k.name}' launches {ctas} CTAs at {dict(sizes)}", origin=k.origin, anchor=k.name, needs=f"at most {1 << 16}")
    for part in (*program.kernels, *program.functions, *program.workspaces):
        for x in walk(part):
            t = x.type if isinstance(x, n.Expr) else None
            size = extent(t.shape) if isinstance(t, TileType) else extent(x.shape) if isinstance(x, n.Buffer) else 0
            if size > MOST_VALUE:
                raise error("KIR-H126", f"a value or array of {size} elements is too large to be checked", needs=f"at most {MOST_VALUE}")


# -------------------------------------------------------------------------------------------------------------------- oracle

def cases(contract: Contract, problem: Problem) -> Iterator[ProblemCase]:
    """Every shape that is not timed under every distribution, and a second seed of the normal one; the smallest first."""
    names = {t.name: t.name for t in contract.spec.tensors}
    shapes = sorted((s for s in contract.spec.shapes if "timed" not in s.tags), key=lambda s: math.prod(s.sizes.values()))
    for s in shapes:
        for distribution in problem.distributions:
            yield _case(problem, s, distribution, 0, names)
    for s in shapes:
        yield _case(problem, s, "normal", 1, names)


def held_out(contract: Contract, problem: Problem, program: n.Program) -> Iterator[ProblemCase]:
    """Two shapes that no contract lists, one somewhat smaller and one somewhat larger than the smallest with a tail, drawn from the hash of
    the program: an answer that knows the listed sizes by heart does not know these. None where the contract's facts allow none."""
    names = {t.name: t.name for t in contract.spec.tensors}
    uneven = [s for s in contract.spec.shapes if {"tail", "odd"} & set(s.tags) and "timed" not in s.tags]
    base = min(uneven, key=lambda s: math.prod(s.sizes.values())).sizes
    draw = generator(contract.hash, content_hash(program))
    listed = [dict(s.sizes) for s in contract.spec.shapes]
    for name, low, high in (("held-out-1", 0.5, 1.0), ("held-out-2", 1.0, 1.5)):
        for _ in range(64):
            sizes = {k: max(1, round(v * float(draw.uniform(low, high)))) for k, v in base.items()}
            allowed = all(evaluate(f, sizes) for f in contract.spec.facts) and sizes not in listed
            if allowed and all(evaluate(d, sizes) >= 1 for t in contract.spec.tensors for d in t.shape):
                yield _case(problem, Shape(name=name, tags=("odd",), sizes=sizes), problem.distributions[-1], 0, names)
                break


def _case(problem: Problem, s: Shape, distribution: str, seed: int, names: Mapping[str, str]) -> ProblemCase:
    return ProblemCase(problem, s, distribution, seed, problem.inputs(s, seed, distribution), names)


def _writer(program: n.Program, operand: str) -> Origin | None:
    """Where an operand is written first."""
    found = (x for k in program.kernels for x in walk(k) if isinstance(x, (n.Store, n.Copy)))
    return next((x.origin for x in found if (x.at if isinstance(x, n.Store) else x.dst).buffer.name == operand), None)


def _against_oracle(contract: Contract, program: n.Program, answer: Answer, dtype: str) -> Checked:
    problem = contract.problem(dtype)
    wanted = {p.name for p in program.params if isinstance(p.of, DType)}
    left, fast, checked, worst = MOST_STEPS, 0, 0, 0.0
    small: set[str] = set()
    for case in (*cases(contract, problem), *held_out(contract, problem, program)):
        _sane(program, case.sizes)
        scalars = {k: v for k, v in case.scalars.items() if k in wanted}
        where = f"at shape '{case.shape}' ({', '.join(f'{k} = {v}' for k, v in case.sizes.items())}), inputs '{case.distribution}'"
        checks = case.seed == 0 and case.shape in small  # how long it takes is known: the fast run, which gives the same, is left out
        with np.errstate(all="ignore"):
            if not checks:
                result = run(program, case.arrays, scalars, most_steps=min(left, CASE_STEPS))
                left -= result.counters.steps
                if result.counters.steps <= CHECKED_STEPS:
                    small.add(case.shape)
                checks = case.seed == 0 and (checked == 0 or case.shape in small)
            if checks:
                result, checked = run(program, case.arrays, scalars, mode="check", most_steps=min(left, CASE_STEPS)), checked + 1
                left -= result.counters.steps
        fast += 1
        if result.errors:
            shown = tuple(replace(f.diagnostic(), notes=(where,)) for f in result.errors[:4])
            raise KirError(Diagnostic("KIR-H131", f"the answer is not safe {where}", _start(answer)), *shown)
        outcome = case.compare(result.outputs)
        if not outcome.ok:
            place = _writer(program, outcome.where.partition("[")[0]) or _start(answer)
            raise error("KIR-H130", f"the answer is wrong {where}", origin=place, witness=(outcome.reason,),
                        needs=contract.spec.title, verdict=f"refuted by the oracle of {contract.id}")
        worst = max(worst, outcome.worst)
    others = contract.spec.dtypes[1:] if dtype and dtype == contract.spec.dtypes[0] else ()
    fast += sum(_carried_over(contract, program, answer, other) for other in others)
    return Checked(contract.id, answer, "accepted", (), program, dtype, fast, checked, worst, (dtype, *others) if dtype else ())


def _carried_over(contract: Contract, program: n.Program, answer: Answer, dtype: str) -> int:
    """Runs an answer that is written for the contract's first dtype with another storage, as `fill` may put it into a program: every
    distribution at the smallest uneven shape. Their number."""
    problem, made = contract.problem(dtype), in_dtype(contract, program, dtype)
    wanted = {p.name for p in made.params if isinstance(p.of, DType)}
    uneven = [c for c in cases(contract, problem) if {"tail", "odd"} & set(c.at.tags) and c.seed == 0]
    tried = [c for c in uneven if c.shape == uneven[0].shape]
    for case in tried:
        with np.errstate(all="ignore"):
            result = run(made, case.arrays, {k: v for k, v in case.scalars.items() if k in wanted}, most_steps=CASE_STEPS)
        outcome = case.compare(result.outputs)
        if not outcome.ok:
            raise error("KIR-H130", f"carried over to {dtype}, the answer is wrong at shape '{case.shape}', inputs '{case.distribution}'",
                        origin=_start(answer), witness=(outcome.reason,), needs=contract.spec.title,
                        verdict=f"refuted by the oracle of {contract.id}")
    return len(tried)
