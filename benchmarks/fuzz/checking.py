"""What is checked of a random program. Each check gives the applications that it made, by kind, and the first fault that it finds."""
from __future__ import annotations

import random
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from benchmarks.fuzz.refuting import FORMS, unsound
from kir.analysis import normalize
from kir.analysis.proof.decide import decided
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.gate.gpu.images.executable import bound
from kir.gate.mutants import mutants
from kir.gate.mutants.make import RULES
from kir.gate.proved.confirm import MOST_STEPS, OF_RUN
from kir.interp import Result, run
from kir.ir import nodes as n
from kir.ir.canonical import alpha_equal, content_hash
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rules.verify import verify
from kir.ir.types import dtype_of
from kir.ir.visit import walk
from kir.problem import numpy_dtype
from kir.rewrite import apply, judge, passes, sites
from kir.rewrite.base import Pass, Site, parameter_types
from kir.rewrite.driver import forward_site, rejection_reason, run_forward
from kir.rewrite.meaning import EPSILON, difference
from kir.rewrite.pipelines.text import Direction
from kir.surface import backend
from tests.kir.interp.findings.mutation import mutants as weakened
from tests.round_trips import ROUND_TRIPS

PASSES = [cls for cls in passes() if getattr(cls, "carrier", None) is None and cls.name not in ("templatize", "autotune")]
"""All but those that leave holes or open parameters, which nothing interprets."""
NUMBERS, DRAWS, STEPS, SECONDS, TEXTS = (1, 2, 3, 4, 8, 16, 32), 4, 12, 20.0, 0.25
"""Numbers that a parameter is drawn from; sites of a pass that are tried; how many steps are gone from a program; how long one check may take; and how often
the text of what a pass made is read again."""
ASKED, LATER = 0.5, 0.5
"""How often the prover is asked of a program; and how often a surface writes a program of the way that passes went, not the first."""
LONG = 200
"""Statements of a run from which on a program is checked, and not gone on with: a run of many is as long as a hundred others."""
_NAMED = {cls.name: cls for cls in PASSES}
HAZARDS = tuple(r for r in RULES if any(word in r.name for word in ("edge", "bound", "condition", "mask", "loop", "shifted", "neighbor")))
WRONG, PROVING, AT_THE_END = 6, 10.0, "when the program ends"
"""Programs made wrong that are tried until a run shows a hazard; how long all questions of one may take; and what is no hazard but a missing result."""
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where what backends write lies for a moment: in memory, where there is such a folder."""
Arrays = Callable[[], dict[str, Any]]
Check = Callable[[n.Program, Arrays, random.Random, Counter[str]], Iterator["Fault"]]


@dataclass(frozen=True)
class Fault:
    """What is wrong: its kind, in words, what was done (a pass and its site, a surface), and the programs before and after."""

    kind: str
    why: str
    done: str
    before: str
    after: str = ""


class TooLong(BaseException):
    """A check did not end. No Exception: nothing that is checked may take it for a fault of its own."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises TooLong in the block once it has taken so long, in processor time. In the main thread only."""
    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLong
    before, begun = signal.signal(signal.SIGPROF, stop), time.process_time()
    around, _ = signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, max(around - (time.process_time() - begun), 0.001) if around else 0)
        signal.signal(signal.SIGPROF, before)


def ran(p: n.Program, arrays: Arrays, **how: Any) -> Result:
    """A run on fresh inputs."""
    with np.errstate(all="ignore"):
        return run(p, {k: v for k, v in arrays().items() if k in {x.name for x in p.params}}, **how)


def checks(p: n.Program, arrays: Arrays, r: random.Random, count: Counter[str]) -> Iterator[Fault]:
    """Every fault of one program; `count` gets the applications by kind."""
    _checked.cache_clear()
    way: list[n.Program] = []
    every: dict[str, Check] = {"text": _text, "interpreters": _interpreters, "normal form": _normal, "passes": partial(_passes, way=way), "surfaces": surfaces,
                               "prover": _prover, "unfinished": _unfinished, "refuting": _refuting}
    for name, check in every.items():
        if name == "prover" and r.random() >= ASKED:
            continue
        at = r.choice(way[1:]) if name == "surfaces" and len(way) > 1 and r.random() < LATER else p
        try:
            with limited(SECONDS * (4 if name in ("passes", "surfaces") else 1)):
                yield from check(at, arrays, r, count)
        except TooLong:
            yield Fault(f"{name}: too long", f"no answer in {SECONDS} s", name, program_text(at))
        except Exception as crash:  # a crash is what is looked for here
            where = traceback.extract_tb(crash.__traceback__)[-1]
            yield Fault(f"{name}: {type(crash).__name__}", f"{str(crash)[:300]} ({Path(where.filename).name}:{where.lineno})", name, program_text(at))


def _text(p: n.Program, arrays: Arrays, r: random.Random, count: Counter[str]) -> Iterator[Fault]:
    count["text and back"] += 1
    if parse_program(program_text(p), "p.kir") != p:
        yield Fault("text: read otherwise", "the program's text is read as another program", "text", program_text(p))


def _interpreters(p: n.Program, arrays: Arrays, r: random.Random, count: Counter[str]) -> Iterator[Fault]:
    from kir.interp.native import loops
    slow, checked = ran(p, arrays, compiles=False), ran(p, arrays, mode="check")
    count["NumPy against checking"] += 1
    if checked.errors:
        yield Fault("generator: hazard", checked.errors[0].diagnostic().message, "interpreters", program_text(p))
        return
    if found := difference(checked, slow):
        yield Fault("interpreters: plain and checking", found, "interpreters", program_text(p))
    if loops.available():
        for again in range(2):  # a loop is compiled once it has run often
            count["NumPy against compiled"] += 1
            if found := difference(slow, ran(p, arrays, compiles=True)):
                yield Fault("interpreters: NumPy and compiled", f"{found} (run {again})", "interpreters", program_text(p))
                return


def _normal(p: n.Program, arrays: Arrays, r: random.Random, count: Counter[str]) -> Iterator[Fault]:
    once = normalize(p)
    count["normal form"] += 1
    if bad := [d for d in verify(once) if d.severity == "error"]:
        yield Fault("normal form: ill formed", bad[0].message, "normalize", program_text(p), program_text(once))
    elif content_hash(normalize(once)) != content_hash(once):
        yield Fault("normal form: not idempotent", "its normal form has another", "normalize", program_text(p), program_text(once))
    elif found := _differs(p, once, arrays):
        yield Fault("normal form: other values", found, "normalize", program_text(p), program_text(once))


def _differs(p: n.Program, q: n.Program, arrays: Arrays, numerics: str = "bitwise") -> str:
    after = _checked(q, arrays)
    if after.errors:
        return after.errors[0].diagnostic().message
    operands = "f32"
    if numerics == "bitwise" and any(isinstance(x, n.Call) and x.fn == "atomic_add" and isinstance(x.args[0], n.Region) and x.args[0].buffer.dtype.is_float
                                     for k in p.kernels for x in walk(k)):
        numerics = "reassociated"  # in which order they add is nowhere said
    if numerics == "rounding-moved(operand)":
        operands = max(("f32", *(dtype_of(x.type).name for k in (*p.kernels, *q.kernels) for x in walk(k) if isinstance(x, n.Cast) and
                                 dtype_of(x.type).name in EPSILON)), key=lambda name: EPSILON[name])
    return difference(_checked(p, arrays), after, numerics, operands)


@lru_cache(maxsize=64)
def _checked(p: n.Program, arrays: Arrays) -> Result:
    """The checked run of a program: many are compared with it, and passes lead to it on several ways."""
    return ran(p, arrays, mode="check")


# --------------------------------------------------------------------------------------------------------------------- passes

def options(cls: type[Pass], r: random.Random) -> dict[str, Any]:
    """Parameters of a pass: most as they are, some drawn."""
    out: dict[str, Any] = {}
    for name, hint in parameter_types(cls).items():
        if r.random() < 0.3 and hint in (int, bool):
            out[name] = r.choice(NUMBERS) if hint is int else r.random() < 0.5
    return out


def _passes(p: n.Program, arrays: Arrays, r: random.Random, count: Counter[str], way: list[n.Program]) -> Iterator[Fault]:
    """Some passes, at parameters and sites that are drawn, in both directions; one result is gone on with. `way` gets the programs that were gone on with."""
    at = normalize(p)
    way.append(at)
    for _ in range(STEPS):
        following: list[n.Program] = []
        for cls in r.sample(PASSES, 20):
            for direction in ("forward", "backward"):
                yield from attempt(at, cls.name, options(cls, r), direction, r.randrange(1 << 30), arrays, count, following)
        if following:
            at = r.choice(following)
            way.append(at)


def attempt(p: n.Program, name: str, given: dict[str, Any], direction: Direction, seed: int, arrays: Arrays, count: Counter[str],
            following: list[n.Program]) -> Iterator[Fault]:
    """One pass in one direction at sites drawn from `seed`: what it makes means the same, and the other direction undoes it."""
    cls, said = _NAMED[name], f"{'~' if direction == 'backward' else ''}{name}{given} seed {seed}"
    try:
        found = sites(cls.with_options(given), p, direction)
    except KirError:
        count["parameters refused"] += 1
        return
    if not found:
        return
    r, before = random.Random(seed), program_text(p)
    for site in r.sample(found, min(DRAWS, len(found))):
        try:
            done = apply(p, site.params, site, direction)
        except KirError as refused:
            if direction == "forward" and _has_reason(p, site):
                count["sites with a reason against them"] += 1
                continue
            count["applications refused"] += 1
            ids = [d.id for d in refused.diagnostics]
            if direction == "forward" or not all(i.startswith("KIR-P") for i in ids):
                yield Fault(f"offered and refused: {name} {ids[0]}", refused.diagnostics[0].message, said, before)
            continue
        count[f"{direction} applications"] += 1
        after = program_text(done.program)
        if r.random() < TEXTS and parse_program(after, "p.kir") != done.program:
            yield Fault(f"text after {name}", "the text is read otherwise", said, before, after)
        if direction == "backward":
            there = forward_site(done.program, done.witness.params, done.witness.path)
            if content_hash(run_forward(done.program, there, done.witness.residue).program) != content_hash(p):
                yield Fault(f"inverse of {name}", "going forward again gives another program", said, before, after)
        if wrong := _differs(p, done.program, arrays, cls.numerics):
            yield Fault(f"values after {'~' if direction == 'backward' else ''}{name}", wrong, said, before, after)
        elif _checked(done.program, arrays).counters.steps <= LONG:
            following.append(done.program)


def _has_reason(p: n.Program, site: Site) -> bool:
    """Whether what is said of a site before it is tried tells that it does not apply."""
    validity = {each.id for each in site.params.preconditions if each.kind == "validity"}
    return any(not v for id_, v in judge(p, site) if id_ in validity) or bool(rejection_reason(p, site))


# --------------------------------------------------------------------------------------------------------------------- prover

def _prover(p: n.Program, arrays: Arrays, r: random.Random, count: Counter[str]) -> Iterator[Fault]:
    """A program made wrong, of which a run shows a hazard, is not all proved."""
    broken = [*((m.name, m.program) for m in mutants(p, HAZARDS) if m.program is not None), *((m.name, m.program) for m in weakened(p))]
    for name, q in r.sample(broken, min(WRONG, len(broken))):
        try:
            errors = ran(q, arrays, mode="check", most_steps=MOST_STEPS).errors
        except KirError:
            continue
        if not any(f.kind in OF_RUN and AT_THE_END not in f.message for f in errors):
            continue
        try:
            with limited(PROVING):
                open_ones = [o for k in decided(q) for o in k.obligations if o.status != "proved" and o.kind != "overflow"]
        except TooLong:
            count["prover: given up"] += 1
            return
        count["prover: wrong programs"] += 1
        if not open_ones:
            kind = f"prover: all proved, and a run shows {errors[0].kind}"
            yield Fault(kind, errors[0].diagnostic().message, name, program_text(p), program_text(q))
        return


# ----------------------------------------------------------------------------------------------------------------- unfinished

def unfinished(p: n.Program, r: random.Random) -> n.Program:
    """The program with text that nobody understands, a place that is to be filled, or a parameter left open."""
    k, metas = p.kernels[-1], (n.Meta("OPEN", *r.choice([("int", None), ("int", 16), ("bool", False), ("dtype", "f16"), ("str", "a")])),)
    extra = r.choice([n.Opaque("cuda", "asm(\"trap;\")", "\"asm\" of its own"), n.Hole("later", "kir.later"), None])
    at = r.randrange(len(k.body) + 1)
    body = k.body if extra is None else (*k.body[:at], extra, *k.body[at:])
    return replace(p, metas=metas if extra is None or r.random() < 0.5 else (), kernels=(*p.kernels[:-1], replace(k, body=body)))


def _unfinished(p: n.Program, arrays: Arrays, r: random.Random, count: Counter[str]) -> Iterator[Fault]:
    """Such a program is read back from its text, has one normal form, is refused by the interpreter, and is not proved where a part of it means nothing."""
    q = unfinished(p, r)
    text = program_text(q)
    count["unfinished programs"] += 1
    if parse_program(text, "p.kir") != q:
        yield Fault("unfinished: read otherwise", "the program's text is read as another program", "text", text)
    once = normalize(q)
    if content_hash(normalize(once)) != content_hash(once):
        yield Fault("unfinished: normal form not idempotent", "its normal form has another", "normalize", text, program_text(once))
    try:
        ran(q, arrays)
        yield Fault("unfinished: run", "the interpreter runs what has no meaning", "interpreters", text)
    except KirError:
        pass
    if not q.metas and all(o.status == "proved" for k in decided(q) for o in k.obligations if o.kind != "overflow"):
        yield Fault("unfinished: proved", "a part of it means nothing", "prover", text)


# ------------------------------------------------------------------------------------------------------------------- refuting

def _refuting(p: n.Program, arrays: Arrays, r: random.Random, count: Counter[str]) -> Iterator[Fault]:
    """Beside the program, one that is mostly wrong, of which nothing is called proved that a run refutes."""
    form, seed = r.choice([*FORMS]), r.randrange(1 << 30)
    text = FORMS[form](seed).text
    for kind, why in unsound(text, seed, count, form):
        yield Fault(f"{form}: {kind} proved", why, f"{form} {seed}", text)


# ------------------------------------------------------------------------------------------------------------------- surfaces

def surfaces(p: n.Program, arrays: Arrays, r: random.Random, count: Counter[str]) -> Iterator[Fault]:
    """What each backend that takes the program writes is read back as the same, or as a program of the same values."""
    if len(p.kernels) > 1:
        count["surfaces: several kernels, left out"] += 1
        return
    for name, way in ROUND_TRIPS.items():
        q = normalize(p)
        try:
            if list(backend(name).accepts(q)):
                count[f"{name}: refused to write"] += 1
                continue
            with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
                again = way.read_back(way.fuzzed(q, r.randrange(1000)), Path(folder))
        except KirError as refused:
            first = refused.diagnostics[0]
            yield Fault(f"{name}: written and not read, {first.id}", first.message, name, program_text(q))
            continue
        count[f"{name}: read back"] += 1
        if any(isinstance(x, n.Opaque) for x in walk(again)) and not any(isinstance(x, n.Opaque) for x in walk(q)):
            count[f"{name}: read back with text that is not understood"] += 1
        elif not alpha_equal(again, q):
            count[f"{name}: read back in another form"] += 1
            sums = any(isinstance(x, n.Mma) or (isinstance(x, n.Call) and x.fn in ("reduce", "scan", "sigmoid")) for x in walk(q))
            if wrong := _differs(q, again, with_workspaces(q, arrays), "reassociated" if sums else "bitwise"):
                yield Fault(f"{name}: other values", wrong, name, program_text(q), program_text(again))


def with_workspaces(p: n.Program, arrays: Arrays) -> Arrays:
    """Inputs with memory for the workspaces of a program, which are tensors of what is read back; what nothing is in is not a number, or 77."""
    if not p.workspaces:
        return arrays
    given = arrays()
    layouts = bound(p, {}, {x.name: given[x.name].shape for x in p.params if x.name in given}).layouts

    def more() -> dict[str, Any]:
        out = arrays()
        for w in p.workspaces:
            layout, start = layouts[w.buffer.name], w.init
            kind = numpy_dtype(layout.dtype)
            out[w.buffer.name] = np.full(layout.shape, start.value if isinstance(start, n.Const) else 77 if kind.kind in "iub" else np.nan, kind)
        return out
    return more


__all__ = ["PASSES", "Fault", "TooLong", "attempt", "checks", "limited", "ran", "surfaces", "unfinished"]
