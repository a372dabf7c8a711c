"""Steps learned on one kernel taken on another: at the place that is meant, else at the one most like it, with every precondition judged anew.

A step names its place by an anchor and by texts over the other kernel's names (`value`, `when`, `sizes`). Where these are not found, the pass is
asked for its places with those texts left open, and the one whose anchor and texts come nearest is taken. What does not apply is left out, and told.

A refusal says what it needs; where a pass brings just that, it is taken before the step, as a person would (`REPAIRS`).
"""
from __future__ import annotations

import contextlib
import difflib
import math
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from types import MappingProxyType

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.printer import expr_text, program_text
from kir.ir.visit import statements, walk
from kir.learning.optimize.plan import Plan
from kir.learning.optimize.words import in_factors_of
from kir.rewrite import Context, Pass, Site, Step, apply, pass_class
from kir.rewrite.anchor import anchor_text
from kir.rewrite.driver import Applied, forward_site
from kir.rewrite.edit import enclosing, node_at, places
from kir.rewrite.options import Option
from kir.rewrite.pipelines.pipeline import find_site, meant, pass_of

NEAREST = 6
"""Places that are tried for a step, the nearest first."""
MOST_PLACES = 24
"""Places that a step is taken at where it is taken everywhere."""
INSTEAD = {"partition-rows": ("partition-block",)}
"""What takes the place of a pass where that does not apply: a loop of several statements in the place of one."""
ONCE = ("unroll",)
"""Passes that apply again where they were applied: everywhere means once at a place."""
OF_ONE_STATEMENT = ("tree-reduction",)
"""Passes that look for a loop of one statement; where one is not found, what loops name is written out first."""
KEPT = 1 << 14
"""What first steps of plans came to: as many are known at once."""
LEAST_LIKE = 0.25
"""Texts and anchors less alike than this mean another thing."""
FAULTS = (LookupError, ValueError, ArithmeticError, StopIteration, RuntimeError, AttributeError, TypeError, AssertionError)
"""What a pass may raise on a form that its author did not foresee: the step is left out, as one that refuses. (A StopIteration that leaves a generator is a
RuntimeError: so was every one of a pass that was asked for its places.)"""


@dataclass(frozen=True)
class Left:
    """A step that was not taken, and why."""

    step: str
    reason: str

    @property
    def pass_name(self) -> str:
        return re.split(r"[{@ ]", self.step.removeprefix("~"), maxsplit=1)[0]


@dataclass(frozen=True)
class Lifted:
    """What a plan gave: the program, the steps as taken (they replay exactly on the program that it began with), and those left out."""

    program: n.Program
    steps: tuple[Step, ...]
    left: tuple[Left, ...]
    unproved: tuple[str, ...] = ()
    """Ids of preconditions that were not proved but guarded or assumed."""

    @property
    def share(self) -> float:
        """The part of the steps that was taken."""
        total = len(self.steps) + len(self.left)
        return len(self.steps) / total if total else 0.0


def lifted(program: n.Program, plan: Plan, context: Context, known: Prefixes | None = None, most_left: int | None = None, why: bool | None = None) -> Lifted:
    """Take a plan's steps on a program. `known` carries what first steps came to from one plan to the next of the same beginning, as many as `KEPT`. With
    `most_left` it stops after the step with which more are left out, and says neither why steps are nor how the others were taken unless `why` asks."""
    why = most_left is None if why is None else why
    now, taken, left = program, list[Step](), list[Left]()
    unproved = list[str]()
    key: tuple[str, ...] = (program_text(program), f"{plan.everywhere} {context.target.name if context.target is not None else ''}", str(why))
    for step in in_factors_of(plan.steps, plan.home, program) if plan.home is not None else plan.steps:
        asked = (*key, str(step))
        found = known.get(asked) if known is not None else None
        if found is None:
            found = _taken(now, step, context, plan.everywhere, why)
            if known is not None:
                while len(known) >= KEPT:
                    del known[next(iter(known))]
                known[asked] = found
        now, more, out, open_ = found
        if not out:
            key = asked  # a step that is left out changes nothing
        taken += more
        left += out
        unproved += open_
        if most_left is not None and len(left) > most_left:
            break
    return Lifted(now, tuple(taken), tuple(left), tuple(dict.fromkeys(unproved)))


Prefixes = dict[tuple[str, ...], tuple[n.Program, tuple[Step, ...], tuple[Left, ...], tuple[str, ...]]]


def _taken(program: n.Program, step: Step, context: Context, everywhere: bool, why: bool) \
        -> tuple[n.Program, tuple[Step, ...], tuple[Left, ...], tuple[str, ...]]:
    done = taken_everywhere(program, step, context) if everywhere else taken(program, step, context, why=why)
    if isinstance(done, Left):
        return program, (), (done,), ()
    if not why:
        return done[-1].program, (), (), ()
    unproved = (id_ for each in done for id_, v in each.record.verdicts if v.kind != "proved" and v)
    return done[-1].program, tuple(each.record.step for each in done), (), tuple(dict.fromkeys(unproved))


def taken_everywhere(program: n.Program, step: Step, context: Context) -> tuple[Applied, ...] | Left:
    """One step at each place where it applies, one after the other; one whose options name things of a kernel is taken once."""
    done = taken(program, step, context)
    if isinstance(done, Left) or any(map(names_things, step.options.values())):
        return done
    applied = list(done)
    seen = {content_hash(x) for x in (program, *(each.program for each in applied))}
    while len(applied) < MOST_PLACES:
        more = taken(applied[-1].program, replace(step, at="", path=None, hash=""), context, exact=False)
        if isinstance(more, Left) or content_hash(more[-1].program) in seen:
            break
        seen.add(content_hash(more[-1].program))
        if more[-1].record.step.at in {k.name for k in program.kernels} & {each.record.step.at for each in applied}:
            break  # a kernel is not tiled twice
        if step.name in ONCE and more[-1].record.step.at in {each.record.step.at for each in applied}:
            break
        applied += more
    return tuple(applied)


def taken(program: n.Program, step: Step, context: Context, exact: bool = True, why: bool = True) -> tuple[Applied, ...] | Left:
    """One step on a program, at the place it means or the one most like it, with what had to be done first; or, if `why` is asked, why there is none."""
    said = ""
    if exact:
        try:
            item, _, found = meant(program, step)
            if len(found) == 1:
                return (apply(program, item, found[0], step.direction, assume=step.assume, guard=step.guard, context=context),)
            if why:
                find_site(program, step)
        except KirError as bad:
            said = _said(bad)
        except FAULTS as fault:
            said = f"the pass fails here: {said_of(fault)}"
    if step.direction == "backward":
        return Left(str(step), said)
    for first, now in ((), program), *_written_out(program, step, context):
        for like in (step, *_instead(step)):
            for site in _nearest(now, like):
                try:
                    return (*first, *_at(now, site, like, context))
                except KirError as bad:
                    said = _said(bad)
                except FAULTS as fault:
                    said = f"the pass fails here: {said_of(fault)}"
    return Left(str(step), said or "no place is like the one it means")


def _instead(step: Step) -> Iterator[Step]:
    """The same step by a pass that does as much with what this one does not take, with the parameters that both have."""
    for name in INSTEAD.get(step.name, ()):
        names = {f.name for f in fields(pass_class(name))}
        yield replace(step, name=name, options=MappingProxyType({k: v for k, v in step.options.items() if k in names}))


def _written_out(program: n.Program, step: Step, context: Context) -> Iterator[tuple[tuple[Applied, ...], n.Program]]:
    """The program with what loops only name written out where it is used, and how: a loop of one statement is what some passes look for."""
    if pass_of(step).name not in OF_ONE_STATEMENT:
        return
    applied, now = list[Applied](), program
    for _ in range(MOST_PLACES):
        done = next(_inlined(now, context), None)
        if done is None:
            break
        applied.append(done)
        now = done.program
    if applied:
        yield tuple(applied), now


def _inlined(program: n.Program, context: Context) -> Iterator[Applied]:
    for path, s in places(program):
        if isinstance(s, n.Let) and len(path) > 2 and any(isinstance(x, n.For) for _, x in enclosing(program, path)):
            back = Step("reuse-operand", at=anchor_text(program, path), direction="backward")
            with contextlib.suppress(KirError, *FAULTS):
                item, site = find_site(program, back)
                yield apply(program, item, site, "backward", context=context)


def _at(program: n.Program, site: Site, step: Step, context: Context) -> tuple[Applied, ...]:
    """A step at a place, after what makes it legal where it is refused and something is known to. Raises KirError."""
    assume, guard = (ids & {p.id for p in site.params.preconditions} for ids in (step.assume, step.guard))
    try:
        return (apply(program, site.params, site, assume=assume, guard=guard, context=context),)
    except KirError as bad:
        repair = next((REPAIRS[d.id] for d in bad.diagnostics if d.id in REPAIRS), None)
        if repair is None:
            raise
        first = list[Applied]()
        for each in repair(program, site):
            now = first[-1].program if first else program
            item, where = find_site(now, each)
            first.append(apply(now, item, where, context=context))
        if not first:
            raise
        there = forward_site(first[-1].program, site.params, site.path)
        return (*first, apply(first[-1].program, there.params, there, assume=assume, guard=guard, context=context))


def _said(bad: KirError) -> str:
    first = next((d for d in bad.diagnostics if d.id.startswith("KIR-P")), bad.diagnostics[0])
    return f"{first.id}: {first.message}" + (f" ({first.witness[0]})" if first.witness else "")


def _nearest(program: n.Program, step: Step) -> list[Site]:
    """Places of a step's pass with its numbers, most alike first: those whose anchor and texts are most like the step's."""
    texts = {k: v for k, v in step.options.items() if names_things(v)}
    numbers = {k: v for k, v in step.options.items() if k not in texts}
    waiting = list[tuple[float, int, Site]]()
    for number, site in enumerate(_open_sites(program, pass_of(step), numbers, texts)):
        off = [k for k, v in numbers.items() if getattr(site.params, k) != v]
        if any(not isinstance(numbers[k], str) for k in off):
            continue
        likes = [alike(str(texts[k]), str(getattr(site.params, k))) for k in texts]
        if likes and min(likes) < LEAST_LIKE:
            continue
        waiting.append((len(off) - (1 + 2 * sum(likes)), number, site))  # as near as it is where its anchor is the same
    found = list[tuple[float, int, Site]]()
    for best, number, site in sorted(waiting, key=lambda x: x[:2]):
        if len(found) >= NEAREST and found[NEAREST - 1][0] < best:
            break
        where = alike(step.at, anchor_text(program, site.path)) if step.at else 1.0
        found = sorted((*found, (best + 1 - where, number, site)), key=lambda x: x[:2])
    return [site for _, _, site in found[:NEAREST]]


def _open_sites(program: n.Program, cls: type[Pass], numbers: Mapping[str, Option], texts: Mapping[str, Option]) -> Iterator[Site]:
    names = {f.name for f in fields(cls)}
    bare = {k: v for k, v in numbers.items() if not isinstance(v, str)}
    for given in dict.fromkeys(tuple(x.items()) for x in ({**numbers, **texts}, numbers, bare)):
        try:
            yield from cls.with_options({k: v for k, v in given if k in names}).sites(program)
        except (KirError, *FAULTS):
            continue


def names_things(value: Option) -> bool:
    """Whether an option's value is text over names of a kernel: an expression, a buffer, several of these; not a word that chooses."""
    if isinstance(value, tuple):
        return any(isinstance(x, str) for x in value)
    return isinstance(value, str) and not re.fullmatch(r"[a-z0-9_]+", value)


@lru_cache(maxsize=1 << 16)
def alike(a: str, b: str) -> float:
    """How like two texts are, 0 to 1."""
    return difflib.SequenceMatcher(None, a, b, autojunk=False).ratio()


def said_of(bad: BaseException) -> str:
    """A refusal, or another fault of a pass or a gate with its place, in a line."""
    if isinstance(bad, KirError):
        return f"{bad.diagnostics[0].id}: {bad.diagnostics[0].message}"
    if isinstance(bad, RuntimeError) and isinstance(bad.__cause__, StopIteration):  # where it was raised, not where a generator ended with it
        bad = bad.__cause__
    where = re.findall(r'File "(?:[^"]*/)?([^"/]+)", line (\d+)', str(bad.__cause__ or "") or "".join(traceback.format_tb(bad.__traceback__)))
    return f"{type(bad).__name__}{' ({}:{})'.format(*where[-1]) if where else ''}"


Repair = Callable[[n.Program, Site], Iterator[Step]]


def guarded_folds(program: n.Program, site: Site) -> Iterator[Step]:
    """What a loop folds into a register, put under the condition that the loop has not ended, with what changes nothing otherwise: a loop that then
    runs on past its end folds nothing in there."""
    loop = node_at(program, site.path)
    if not isinstance(loop, n.For):
        return
    inside = {id(s) for s in statements(loop.body)}
    ended = build.compare("lt", loop.var, loop.hi)
    when = expr_text(ended)
    for path, s in places(program):
        if not (isinstance(s, n.Store) and id(s) in inside and isinstance(s.value, n.Binary) and s.at.buffer.space == "register"):
            continue
        held = n.Load(s.at)
        value = s.value.b if s.value.a == held else s.value.a if s.value.b == held else None
        if value is None or any(isinstance(x, n.Select) and x.cond == ended for x in walk(value)):
            continue
        neutral = {"add": 0.0, "max": -math.inf, "min": math.inf}.get(s.value.op)
        if neutral is None:
            continue
        dtype = s.at.buffer.dtype
        if not dtype.is_float and neutral:
            continue
        other = expr_text(build.const(neutral if dtype.is_float else int(neutral), dtype))
        yield Step("guard-value", {"value": expr_text(value), "when": when, "other": other}, anchor_text(program, path))


REPAIRS: Mapping[str, Repair] = {"KIR-P541": guarded_folds}
"""By the id of a precondition: what may be done first."""

__all__: Sequence[str] = ("Left", "Lifted", "Prefixes", "alike", "lifted", "names_things", "taken", "taken_everywhere")
