"""Programs beside a program: the same computation with other facts on its sizes, another dtype, alignment, stride or target, or after another step."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.hardware.target import ARCHITECTURES, Target, target
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.rules.verify import verify
from kir.ir.types import DTYPES, DType
from kir.ir.visit import substitute_buffers
from kir.learning.probes.draws import seeded
from kir.learning.probes.sampling import one_step
from kir.problem import Problem, load_problem
from kir.problem.problem import with_storage
from kir.rewrite.driver import apply
from kir.rewrite.verdict import Context

PRIOR = 3
"""Steps drawn at random that a program is taken through first, each on its own."""
MULTIPLE, FEW, PADDING = 64, 24, 8


@dataclass(frozen=True)
class Setting:
    """A program with the problem that it solves and the hardware that it is for; `varied` says what is other than at first."""

    program: n.Program
    problem: Problem
    target: Target
    varied: tuple[str, ...] = ()


@dataclass(frozen=True)
class Variation:
    """One change of a setting, along an `axis` (`shape`, `dtype`, `alignment`, `stride`, `target`, `state`), in words; `of` gives None where it cannot be."""

    axis: str
    text: str
    of: Callable[[Setting], Setting | None]


def settings(program: n.Program, problem: Problem, aimed: Target, pairs: int, seed: int = 0, most: int | None = None) -> Iterator[Setting]:
    """The setting itself, every variation alone (or `most` of them, drawn at random), and so many pairs of variations along different axes."""
    first = Setting(program, problem, aimed)
    yield first
    known: set[str] = set()
    single = list[Variation]()
    every = list(variations(first))
    for v in every if most is None else seeded("single", program.name, seed).sample(every, min(most, len(every))):
        made = varied(first, v)
        if made is not None and v.text not in known:
            known.add(v.text)
            single.append(v)
            yield made
    both = [(a, b) for a, b in combinations(single, 2) if a.axis != b.axis]
    for a, b in seeded("pairs", program.name, seed).sample(both, min(pairs, len(both))):
        half = varied(first, a)
        made = varied(half, b) if half is not None else None
        if made is not None:
            yield made


def varied(setting: Setting, v: Variation) -> Setting | None:
    """A setting after one change; None where the change is none, or gives no well-formed program."""
    try:
        made = v.of(setting)
    except KirError:
        return None
    if made is None or (made.program, made.target.name) == (setting.program, setting.target.name) or any(
            d.severity == "error" for d in verify(made.program)):
        return None
    return replace(made, varied=(*setting.varied, f"{v.axis}: {v.text}"))


def variations(first: Setting) -> Iterator[Variation]:
    """Every single change of a setting."""
    sizes = [n.Var(p.name, p.of) for p in first.program.params if p.role == "size" and p.value is None and isinstance(p.of, DType)]
    for v in sizes:
        of = v.of if isinstance(v.of, DType) else DTYPES["i32"]
        whole = build.compare("eq", build.mod(v, build.const(MULTIPLE, of)), build.const(0, of))
        yield Variation("shape", f"{v.name} is a multiple of {MULTIPLE}", _with_fact(whole))
        yield Variation("shape", f"{v.name} is at most {FEW}", _with_fact(build.compare("le", v, build.const(FEW, of))))
        yield Variation("shape", f"{v.name} is at least 1", _with_fact(build.compare("ge", v, build.const(1, of))))
    yield Variation("shape", "no fact about its sizes", lambda s: replace(s, program=replace(s.program, facts=())))
    for dtype in first.problem.spec.dtypes:
        if dtype != first.problem.dtype:
            yield Variation("dtype", dtype, _with_dtype(dtype))
    for align in (0, 16, 128):
        yield Variation("alignment", f"tensors begin at multiples of {align} bytes" if align else "tensors begin anywhere", _with_alignment(align))
    for p in first.program.params:
        if isinstance(p.of, n.Buffer) and len(p.of.shape) > 1:
            yield Variation("stride", f"rows of {p.name} lie {PADDING} elements further apart", _with_padding(p.name))
    for name in ARCHITECTURES:
        if ARCHITECTURES[name] is not first.target.architecture:
            yield Variation("target", name, _with_target(name))
    for k in range(PRIOR):
        yield from _after_step(first, k)


def _with_fact(fact: n.Expr) -> Callable[[Setting], Setting | None]:
    return lambda s: None if fact in s.program.facts else replace(s, program=replace(s.program, facts=(*s.program.facts, fact)))


def _with_dtype(dtype: str) -> Callable[[Setting], Setting | None]:
    def of(s: Setting) -> Setting | None:
        made = with_storage(s.program, DTYPES[s.problem.dtype], DTYPES[dtype])
        return replace(s, program=made, problem=load_problem(f"{s.problem.spec.name}:{dtype}"))
    return of


def _tensors(program: n.Program, change: Callable[[n.Buffer], n.Buffer]) -> n.Program:
    """The program with its tensors changed, wherever they stand."""
    known = {p.name: made for p in program.params if isinstance(p.of, n.Buffer) and (made := change(p.of)) != p.of}
    return substitute_buffers(program, known) if known else program


def _with_alignment(align: int) -> Callable[[Setting], Setting | None]:
    return lambda s: replace(s, program=_tensors(s.program, lambda b: replace(b, align=align)))


def _with_padding(name: str) -> Callable[[Setting], Setting | None]:
    def padded(b: n.Buffer) -> n.Buffer:
        if b.name != name or b.strides is not None or b.layout is not None:
            return b
        strides: list[n.Expr] = [build.const(1, DTYPES["i32"])]
        step: n.Expr = build.add(b.shape[-1], PADDING)
        for d in reversed(b.shape[:-1]):
            strides.insert(0, step)
            step = build.mul(step, d)
        return replace(b, strides=tuple(strides))
    return lambda s: replace(s, program=_tensors(s.program, padded))


def _with_target(name: str) -> Callable[[Setting], Setting | None]:
    return lambda s: replace(s, target=target(name))


def _after_step(first: Setting, k: int) -> Iterator[Variation]:
    """A step drawn at random for the first setting, taken where it applies."""
    site = one_step(first.program, Context(first.target), seeded("prior", first.program.name, k))
    if site is not None:
        yield Variation("state", f"after {site.params}", lambda s: replace(
            s, program=apply(s.program, site.params, next(x for x in site.params.sites(s.program) if x.params == site.params and x.path == site.path),
                             context=Context(s.target)).program))
