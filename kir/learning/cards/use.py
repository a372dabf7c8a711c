"""Materialize a card: every place of a program where it holds, as pipeline steps with parameters chosen for that program.

Nothing is taken on the card's word: each step is a site of its pass, and its validity conditions are judged on the program at hand.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import lru_cache, partial
from itertools import islice, product

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error
from kir.base.registry import registry
from kir.ir.canonical import content_hash
from kir.ir.measures.features import features, kinds
from kir.ir.nodes import Binary, Call, Expr, For, If, Kernel, Let, Load, Program, Roles, Stmt, While
from kir.ir.printer import expr_text
from kir.ir.types import DType, TileType, dtype_of
from kir.ir.visit import children, once, walk
from kir.learning.cards.card import Card, Move, Parameter, Relation
from kir.learning.cards.facts import expressions, facts_at, holds, kind, solved
from kir.rewrite import Context, Pass, Pipeline, Site, Step, judge, pass_class, run, sites
from kir.rewrite.anchor import anchor_text
from kir.rewrite.base import found_sites, parameter_types
from kir.rewrite.driver import apply
from kir.rewrite.edit import Path, block_at, node_at, places
from kir.rewrite.verdict import ANYWHERE, Verdict

MOST_CHOICES = 16
"""Combinations of parameters that are tried at each place, what most kernels used first."""
NOWHERE = "there is no place for"
NAMING = "named"
"""The parameter that says whether what a step makes keeps a name; its values make no different programs."""
MOST_BEGUN = 8
"""Places at which a card of several steps begins."""
MOST_REPEATED = 4
"""How often a step of a card of several is taken again before the next one."""
MOST_WAYS = 4
"""Places and parameters of the step at the end of a card of several."""
MOST_REFUSED = 6
"""Applications of a card that are carried out to see whether a check refuses them all."""
MOST_APPLIED = 64
"""Applications of one card to one program."""
KEPT, FEW_KEPT = 1 << 9, 1 << 3
"""Answers about programs that are kept from one card to the next: sites of passes, and what expressions cost."""


@dataclass(frozen=True)
class Application:
    """A card at a place of a program: the steps that carry it out, in order, and why these; `varied` where a parameter is not as all kernels had it, though
    the card has other places."""

    card: Card
    steps: tuple[Step, ...]
    reason: str
    varied: bool = False


@dataclass(frozen=True)
class NearMiss:
    """A place where a card's step would apply, and the validity conditions that do not hold there, each as `ID: why`; or a state feature
    that is lacking or in the way, where there is no place."""

    card: Card
    anchor: str
    conditions: tuple[str, ...]

    @property
    def is_near(self) -> bool:
        """Whether the card's first step has a place, or its program would have one but for a feature: else nothing there is like what it acts on."""
        return self.conditions != (f"{NOWHERE} {self.card.passes[0]}",)


def applications(card: Card, program: Program, context: Context = ANYWHERE) -> tuple[Application, ...]:
    """Every application of a card in a program, in reading order; at one place, the parameters that most kernels used first. A composite of
    which a part is there already applies the rest. A card whose pass is not registered here has none."""
    return tuple(applicable(card, program, context))


def applicable(card: Card, program: Program, context: Context = ANYWHERE) -> Iterator[Application]:
    """The same, each as it is found."""
    return (each for each in looked(card, program, context) if isinstance(each, Application))


def looked(card: Card, program: Program, context: Context = ANYWHERE) -> Iterator[Application | NearMiss]:
    """The applications of a card, and the near misses between them, as they are found."""
    gone = [f"needs the pass '{name}', which is not installed" for name in card.passes if name not in registry("kir.passes")]
    if gone:
        yield NearMiss(card, "", tuple(gone))
        return
    found = state_of(program)
    lacking = [f"lacks {each}" for each in card.scope.requires if each not in found]
    blocking = [f"has {each}" for each in card.scope.conflicts if each in found]
    if lacking or blocking:
        yield NearMiss(card, "", (*lacking, *blocking))
        return
    if len(card.carrier.steps) > 1:
        yield from _composite(card, program, context)
        return
    for move in card.carrier.steps:
        for site, refusals, varied in _sites(card, move, program, context):
            at = anchor_text(program, site.path)
            if refusals:
                yield NearMiss(card, at, refusals)
            else:
                step = Step.of(site.params, at, path=site.path, hash=content_hash(program))
                of = f"{len(card.evidence.uses)} uses in {card.evidence.kernels} kernels{', none with this parameter' if varied else ''}"
                yield Application(card, (step,), f"{of}; {site.params} at {at}", varied)


def state_of(program: Program) -> frozenset[str]:
    """The state features of a program, worked out once for all cards that are looked for in it."""
    return once(program, "_state_of", lambda: frozenset(kinds(features(program))))


def judged(card: Card, program: Program, context: Context = ANYWHERE) -> Iterator[tuple[Site, tuple[tuple[str, Verdict], ...]]]:
    """The places of a card of one step with parameters in its ranges, each with the verdicts on its validity conditions that do not hold there."""
    for site, *_ in _sites(card, card.carrier.steps[0], program, context):
        yield site, tuple(_failing(program, site, context))


def _composite(card: Card, program: Program, context: Context) -> Iterator[Application | NearMiss]:
    """The first step at each of its places, the others at the first of theirs after it; those that find no place and whose traces are there already are
    left out."""
    first, *others = card.carrier.steps
    missed: list[NearMiss] = []
    begun = 0
    for step, after in _made_by(card, first, program, context, missed, vary=True):
        begun += 1
        known = set[tuple[str, ...]]()
        for everywhere in (True, False):
            for rest, there in _rests(card, others, after, context, missed, first, everywhere):
                if (key := tuple(map(_told, rest))) not in known:
                    known.add(key)
                    yield Application(card, (step, *rest), _why(card, there))
        if begun == MOST_BEGUN:
            return
    left = next(_rests(card, others, program, context, missed), None) if not begun and _is_there(first, program) else None
    if left is not None and left[0]:
        yield Application(card, left[0], _why(card, (first.step, *left[1])))
    elif missed:
        yield missed[0]
    elif not begun:
        yield NearMiss(card, "", (f"{NOWHERE} {first.step}",))


def _made_by(card: Card, move: Move, program: Program, context: Context, missed: list[NearMiss], vary: bool = False) -> Iterator[tuple[Step, Program]]:
    """A step at each place where every check lets it, and what it makes, last (`vary`) with what no kernel varied varied; the places where a condition fails
    are added to the missed."""
    for site, refusals, varied in _sites(card, move, program, context):
        if varied and not vary:
            return
        at = anchor_text(program, site.path)
        if refusals:
            missed.append(NearMiss(card, at, refusals))
            continue
        with suppress(KirError):
            made = apply(program, site.params, site, context=context)
            yield Step.of(site.params, at, path=site.path, hash=content_hash(program)), made.program


def _rests(card: Card, moves: Sequence[Move], program: Program, context: Context, missed: list[NearMiss], last: Move | None = None,
           everywhere: bool = False) -> Iterator[tuple[tuple[Step, ...], tuple[str, ...]]]:
    """The steps of what follows the `last` one, and those that are there already; nothing where one finds no place. Each is taken at its first place, or,
    `everywhere`, at a few (both operands of a product are brought); what comes in the way of the next one may be that the last is wanted at more places
    than one, so that it is taken again until the next one finds its place. The step at the end is offered in a few ways."""
    done, there = list[Step](), list[str]()
    for move in moves:
        more, now = _again(card, last, program, context) if everywhere and last is not None else ([], program)
        found = next(_made_by(card, move, now, context, missed), None)
        if found is None and _is_there(move, program):
            there.append(move.step)
            continue
        while found is None and last is not None and len(more) < MOST_REPEATED:
            again = next(_made_by(card, last, now, context, missed), None)
            if again is None:
                break
            more.append(again[0])
            now = again[1]
            found = next(_made_by(card, move, now, context, missed), None)
        if found is None:
            missed.append(NearMiss(card, "", (f"{NOWHERE} {move.step}",)))
            return
        if move is moves[-1]:
            yield from (((*done, *more, step), tuple(there)) for step, _ in islice(_made_by(card, move, now, context, []), MOST_WAYS))
            return
        done += (*more, found[0])
        program, last = found[1], move
    yield tuple(done), tuple(there)


def _again(card: Card, move: Move, program: Program, context: Context) -> tuple[list[Step], Program]:
    """A step at the places that are left to it, a few at most."""
    done = list[Step]()
    while len(done) < MOST_REPEATED and (found := next(_made_by(card, move, program, context, []), None)) is not None:
        done.append(found[0])
        program = found[1]
    return done, program


def _why(card: Card, there: Sequence[str]) -> str:
    told = f"; {', '.join(there)} is there already" if there else ""
    return f"{len(card.evidence.uses)} uses in {card.evidence.kernels} kernels{told}"


def _is_there(move: Move, program: Program) -> bool:
    """Whether a step could be undone in a program: its work is there."""
    try:
        cls = pass_class(move.step)
    except KirError:
        return False
    return any(_fits(move, site.params) for site in cls.with_options({}).inverse_sites(program))


def _sites(card: Card, move: Move, program: Program, context: Context) -> Iterator[tuple[Site, tuple[str, ...], bool]]:
    """The sites of a step with parameters in the card's ranges, each with the validity conditions that do not hold there; those at which the
    card's relations hold first. Last (and marked so) come those with one parameter varied that no kernel varied, where every check lets them: what all
    had the same others may need otherwise."""
    try:
        cls = pass_class(move.step)
    except KirError:
        return
    own = card.carrier.relations if move is card.carrier.steps[0] else ()
    seen: set[tuple[object, str]] = set()
    later: list[Site] = []
    for item, path in _asked(cls, move, card, program):
        for site in _matched(item, path, program):
            key = (site.path, str(site.params))
            if key in seen or not _fits(move, site.params, own, item):
                continue
            seen.add(key)
            if own and not _related(own, site, program):
                later.append(site)
            else:
                yield site, _refusals(program, site, context), False
    for site in later:
        yield site, _refusals(program, site, context), False
    for site in dict.fromkeys(_varied(cls, move, card, program, everywhere=not seen)):
        if not seen:
            yield site, _refusals(program, site, context), False
        elif (site.path, str(site.params)) not in seen and not _refusals(program, site, context) and _carried_out(program, site, context):
            yield site, (), True


class _Itself:
    """A program that is told apart from one that is equal to it: labels and origins may differ, which anchors name."""

    def __init__(self, program: Program) -> None:
        self.program = program


def _matched(item: Pass, path: Path | None, program: Program) -> tuple[Site, ...]:
    """The sites of a pass, everywhere or at a place; none in a program of a form that it cannot take. Cards of one pass ask for the same."""
    return _sites_of(item, path, once(program, "_itself", lambda: _Itself(program)))


@lru_cache(maxsize=KEPT)
def _sites_of(item: Pass, path: Path | None, of: _Itself) -> tuple[Site, ...]:
    program = of.program
    with suppress(KirError):
        return sites(item, program) if path is None else tuple(found_sites(item.match(program, path, node_at(program, path))))
    return ()


def _varied(cls: type[Pass], move: Move, card: Card, program: Program, everywhere: bool) -> Iterator[Site]:
    """The sites of a step with one parameter varied that was the same in every use: a switch (a truth value) turned; where the step has other sites, also a
    power of two doubled or halved, all else as most kernels had it. What tells cards of one pass apart is never varied where the step has other sites."""
    known = {each.name: each for each in move.parameters}
    own = [name for name, of in parameter_types(cls).items() if of in (bool, int) and name != NAMING and (name not in known or len(known[name].values) == 1)]
    for name in own if everywhere else [name for name in own if name not in known or known[name].role == "chosen"]:
        rest = move.model_copy(update={"parameters": tuple(each for each in move.parameters if each.name != name), "ways": ()})
        for item in islice(_choices(cls, move, card, program), None if everywhere else 1):
            for value in _otherwise(getattr(item, name), everywhere):
                with suppress(KirError):
                    for site in _matched(cls.with_options({**item.options(), name: value}), None, program):
                        if _fits(rest, site.params):
                            yield site


def _otherwise(value: object, switches: bool) -> tuple[bool | int, ...]:
    """What a parameter may be instead: a truth value the other one, a power of two twice and half of it."""
    if isinstance(value, bool):
        return (not value,)
    if switches or not isinstance(value, int) or value < 2 or value & (value - 1):
        return ()
    return (2 * value, value // 2)


def _carried_out(program: Program, site: Site, context: Context) -> bool:
    """Whether every check lets a step: what no kernel used may have no exact inverse."""
    with suppress(KirError):
        apply(program, site.params, site, context=context)
        return True
    return False


def _refusals(program: Program, site: Site, context: Context) -> tuple[str, ...]:
    try:
        return tuple(f"{id_}: {v.reason}" for id_, v in _failing(program, site, context))
    except KirError as bad:  # a value that another machine knew, as the answer that somebody wrote there
        return (f"{bad.diagnostics[0].id}: {bad.diagnostics[0].message}",)


def _failing(program: Program, site: Site, context: Context) -> Iterator[tuple[str, Verdict]]:
    by_id = {p.id: p for p in site.params.preconditions}
    yield from ((id_, v) for id_, v in judge(program, site, context) if not v and by_id[id_].kind == "validity")


def _related(own: Sequence[Relation], site: Site, program: Program) -> bool:
    """Whether no relation is broken at a site."""
    numbers = {f.name: v for f in fields(site.params) if isinstance(v := getattr(site.params, f.name), int) and not isinstance(v, bool)}
    values = {**facts_at(program, site.path), **numbers}
    return all(holds(each.text, values) is not False for each in own)


def _asked(cls: type[Pass], move: Move, card: Card, program: Program) -> Iterator[tuple[Pass, Path | None]]:
    """The passes to match: at every place, or where a parameter is drawn from a statement, at that one. What the pattern offers by itself first."""
    drawn = next((each for each in move.parameters if each.role == "drawn"), None)
    places_of = list(_worth(card, drawn, program)) if drawn is not None else []
    for item in _choices(cls, move, card, program):
        if drawn is None:
            yield item, None
        for path, text in places_of:
            with suppress(KirError):
                yield cls.with_options({**item.options(), drawn.name: text}), path  # type: ignore[union-attr]  # there are places only where it is drawn


def _worth(card: Card, drawn: Parameter, program: Program) -> Iterator[tuple[Path, str]]:
    """The places of a card's kind and the texts that may be drawn there: by turns what is computed most often and costs most, and what costs most by itself
    (an expert also names the whole of what a statement stores); each text once, where a statement itself has it, else in reading order, then at its others.
    What stands only once from a place on, and has a name, is not drawn: it would get another name."""
    counts, costs = _costs_of(once(program, "_itself", lambda: _Itself(program)))
    at: dict[str, list[tuple[bool, Path]]] = {}
    for path, node in places(program):
        if kind(node) == card.anchor.node:
            own = set() if isinstance(node, (For, If, Kernel, Roles, While)) else {expr_text(x) for x in walk(node) if isinstance(x, Expr)}
            for head, text in expressions(program, path):
                if head in drawn.values and not _has_a_name(program, path, text):
                    at.setdefault(text, []).append((text not in own, path))
    saved = sorted(at, key=lambda text: -costs.get(text, 0.0) * max(0.1, counts[text] - 1.0))
    whole = sorted(at, key=lambda text: -costs.get(text, 0.0))
    order = list(dict.fromkeys(text for both in zip(saved, whole, strict=True) for text in both))
    ranked = {text: [path for _, path in sorted(at[text], key=lambda row: row[0])] for text in order}
    yield from ((ranked[text][0], text) for text in order)
    yield from ((path, text) for text in order for path in ranked[text][1:])


@lru_cache(maxsize=FEW_KEPT)
def _costs_of(of: _Itself) -> tuple[Counter[str], dict[str, float]]:
    """How often a program has each expression, and what that costs, by text."""
    costs: dict[str, float] = {}
    counts: Counter[str] = Counter()
    for e in (x for k in of.program.kernels for x in walk(k) if isinstance(x, Expr)):
        text = expr_text(e)
        counts[text] += 1
        if text not in costs:
            costs[text] = _cost(e)
    return counts, costs


def _has_a_name(program: Program, path: Path, text: str) -> bool:
    """Whether of an expression's text, from a place on in its block, nothing is left but the value of a let."""
    last = path[-1]
    rest = block_at(program, path)[last:] if isinstance(last, int) else ()
    named = any(isinstance(s, Let) and expr_text(s.value) == text for s in rest)
    return named and sum(once(s, "_texts_of", partial(_texts_of, s))[text] for s in rest) == 1


def _texts_of(s: Stmt) -> Counter[str]:
    return Counter(expr_text(x) for x in walk(s) if isinstance(x, Expr))


def _cost(e: Expr) -> float:
    """Roughly what an expression costs: an operation 1, a load or a division 4, a function 8; of indices, a quarter."""
    weight = 1.0 if isinstance(e.type, (DType, TileType)) and dtype_of(e.type).is_float else 0.25
    match e:
        case Call():
            own = 8.0
        case Load():
            own = 4.0
        case Binary():
            own = 4.0 if e.op in ("div", "mod", "floordiv") else 1.0
        case _:
            own = 0.5
    return weight * own + sum(_cost(x) for x in children(e) if isinstance(x, Expr))


def _choices(cls: type[Pass], move: Move, card: Card, program: Program) -> Iterator[Pass]:
    """The pass with each combination of the values that the card names: with what its relations give at some place of the program first, then as kernels had
    them together, then combinations of what comes first before others."""
    fixed = {each.name: each.values[0] for each in move.parameters if each.role == "fixed"}
    chosen = [each for each in move.parameters if each.role == "chosen"]
    given = [tuple(dict.fromkeys(_given(each, card, program))) for each in chosen]
    rows = [tuple(dict.fromkeys((*own, *each.values))) for own, each in zip(given, chosen, strict=True)]
    rows = [row[:1] if each.name == NAMING else row for each, row in zip(chosen, rows, strict=True)]
    order = sorted(product(*(range(len(row)) for row in rows)), key=sum)[:2 * MOST_CHOICES]
    near = (tuple(row[k] for row, k in zip(rows, each, strict=True)) for each in order)
    ways = [tuple(row[0] if each.name == NAMING else value for each, row, value in zip(chosen, rows, way, strict=True)) for way in move.ways]
    solved_ones = [tuple(own[0] if own else value for own, value in zip(given, way, strict=True)) for way in ways] if any(given) else []
    for values in islice(dict.fromkeys((*solved_ones, *ways, *near)), MOST_CHOICES):
        with suppress(KirError):
            yield cls.with_options({**fixed, **dict(zip((each.name for each in chosen), values, strict=True))})


def _given(parameter: Parameter, card: Card, program: Program) -> Iterator[int]:
    """The values of a parameter that the card's equalities give at the places of its kind; one that does not hold in all kernels gives none that lies outside
    what was seen."""
    own = [each for each in card.carrier.relations if each.text.split()[0] == parameter.name]
    for path, node in places(program) if own else ():
        if kind(node) == card.anchor.node:
            facts = facts_at(program, path)
            for each in own:
                value = solved(each.text, parameter.name, facts)
                if value is not None and (not each.of or _allowed(parameter, value)):
                    yield value


def _fits(move: Move, params: Pass, own: Sequence[Relation] = (), asked: Pass | None = None) -> bool:
    """Whether parameters that a place decided are those of the card; one that a relation of the card gives may lie outside what was seen, and one that
    was `asked` for and that the place left empty has no use there (the order of three axes, where there are two)."""
    given = {each.text.split()[0] for each in own if " == " in each.text and " % " not in each.text and not each.of}
    return all(each.name in given or _allowed(each, getattr(params, each.name, None)) or (asked is not None and _left_out(each, params, asked))
               for each in move.parameters if each.role in ("fixed", "chosen"))


def _left_out(parameter: Parameter, params: Pass, asked: Pass) -> bool:
    value = getattr(params, parameter.name, None)
    return isinstance(value, tuple) and not value and _allowed(parameter, getattr(asked, parameter.name, None))


def is_of(card: Card, step: Step) -> bool:
    """Whether a step is one of a card's, with parameters in its ranges."""
    return any(move.step == step.name and _fits(move, pass_class(step.name).with_options(step.options)) for move in card.carrier.steps)


def _allowed(parameter: Parameter, value: object) -> bool:
    if isinstance(value, int) and not isinstance(value, bool) and parameter.low is not None and parameter.high is not None:
        return parameter.low <= value <= parameter.high
    return value in parameter.values


@dataclass(frozen=True)
class Materialized:
    """A program that a card was carried out on, and the steps that did it."""

    program: Program
    steps: tuple[Step, ...]


def materialized(card: Card, program: Program, context: Context = ANYWHERE, at: str = "") -> Materialized:
    """A card carried out at every place where it holds, or at one: after each application it is looked for anew, and a place is not taken twice.

    Raises KirError KIR-S025 where it holds nowhere, with the conditions that fail."""
    done: list[Step] = []
    current, taken, refused = program, set[str](), list[NearMiss]()
    while len(done) < MOST_APPLIED:
        uses = (each for each in applicable(card, current, context)
                if (not at or each.steps[0].at == at) and _told(each.steps[0]) not in taken and not (done and each.varied))
        made = next(_made(uses, current, context, [] if done else refused), None)
        if made is None:
            break
        taken |= {_told(step) for step in made.steps}
        done += made.steps
        current = made.program
        if at or len(card.carrier.steps) > 1:
            break
    if not done:
        near = [*refused, *(each for each in looked(card, program, context) if isinstance(each, NearMiss))]
        raise error("KIR-S025", f"'{card.name}' holds nowhere in this program", subject=", ".join(card.passes),
                    witness=tuple(f"{each.anchor or 'the program'}: {'; '.join(each.conditions)}" for each in near[:6]),
                    attempt=f"kir skills why {card.name} KERNEL")
    return Materialized(current, tuple(done))


def carried_out(hit: Sequence[Application], program: Program, context: Context) -> tuple[tuple[Application, ...], tuple[NearMiss, ...]]:
    """Applications from the first one on that passes every check of the framework, and those before it, with what refused them; none, where the first few
    are refused."""
    refused: list[NearMiss] = []
    found = next(_made(hit[:MOST_REFUSED], program, context, refused), None)
    return tuple(hit[len(refused):]) if found is not None else (), tuple(refused)


def _made(uses: Iterable[Application], program: Program, context: Context, refused: list[NearMiss]) -> Iterator[Materialized]:
    """What the applications of a card make of a program; those that a check of the framework refuses are added to the refused."""
    for each in uses:
        try:
            yield Materialized(run(program, Pipeline(each.steps), context=context).program, each.steps)
        except KirError as bad:
            first = bad.diagnostics[0]
            refused.append(NearMiss(each.card, each.steps[0].at, (f"{first.id}: {first.message}",)))


def _told(step: Step) -> str:
    """A step without the hash of its program."""
    return f"{step.name}{sorted(step.options.items())}@{step.at}"
