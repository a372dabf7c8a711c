"""What a library is without one card: of the steps of experts that the card makes, those that no other card makes.

Asked at the card's own uses, one by one: the program before the step is given to the card, to each other card that has a step of the same pass, and to the
pass with its own defaults. A step that only this card makes is lost without it. As in a trial, the first few programs that a card makes are compared.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.ir.nodes import Program
from kir.learning.cards.card import Card
from kir.learning.cards.use import Application, applicable
from kir.learning.corpus.lineages import TARGET
from kir.learning.evidence.walked import Transition, Walked
from kir.learning.induce.settled import settled_hash
from kir.learning.induce.trials import TRIES, told
from kir.learning.induce.uses import SHORT
from kir.rewrite import Context, Pipeline, Step, pass_class, run, sites


@dataclass(frozen=True)
class Ablated:
    """A card's uses: how many there are, how many it makes itself, and of these how many other cards make (by card), how many the pass makes by its own
    defaults, and which neither: kernel, number of the step from the naive end, pass."""

    card: str
    uses: int
    made: int
    others: Mapping[str, int]
    shared: int
    plain: int
    lost: tuple[tuple[str, int, str], ...]

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels that lose a step."""
        return tuple(dict.fromkeys(kernel for kernel, _, _ in self.lost))


def ablated(card: Card, cards: Sequence[Card], walks: Iterable[Walked]) -> Ablated:
    """What is lost without a card, where some other `cards` are there; by its uses in walks."""
    others, shared, plain, made, asked = Counter[str](), 0, 0, 0, 0
    lost = list[tuple[str, int, str]]()
    for walk, transition in uses_of(card, walks):
        asked += 1
        before, after = walk.program(transition.before_text), walk.program(transition.after_text)
        context = Context(target(walk.targets[-1] if walk.targets else TARGET))
        if not makes(applicable(card, before, context), before, after, transition, context, TRIES):
            continue
        made += 1
        also = [each.name for each in cards if each.name != card.name and transition.name in each.passes
                and makes(applicable(each, before, context), before, after, transition, context, TRIES)]
        others.update(also)
        by_itself = is_plain(transition, before)
        shared += bool(also)
        plain += by_itself and not also
        if not also and not by_itself:
            lost.append((walk.kernel, transition.number, transition.name))
    return Ablated(card.name, asked, made, dict(others.most_common()), shared, plain, tuple(lost))


def uses_of(card: Card, walks: Iterable[Walked]) -> Iterator[tuple[Walked, Transition]]:
    """A card's uses that some walks hold, in their order."""
    wanted = {(use.kernel, use.transition, use.before) for use in card.evidence.uses}
    yield from ((walk, t) for walk in walks for t in walk.transitions if (walk.kernel, t.number, t.before[:SHORT]) in wanted)


def makes(found: Iterable[Application], before: Program, after: Program, transition: Transition, context: Context,
          most: int | None = None) -> bool:
    """Whether one of a card's applications takes the expert's step, or, of the first `most` (None: all), gives its program (but for where values are named)."""
    wanted, others = told(Step.from_json(transition.step)), list[Application]()
    for each in found:
        if any(told(step) == wanted for step in each.steps):
            return True
        others.append(each)
    for each in others[:most]:
        with suppress(KirError):
            if transition.name in each.card.passes and settled_hash(run(before, Pipeline(each.steps), context=context).program) == settled_hash(after):
                return True
    return False


def is_plain(transition: Transition, before: Program) -> bool:
    """Whether a step is among what its pass offers at that place by its own defaults."""
    step = Step.from_json(transition.step)
    offered = {f"{site.params}@{step.at}" for site in sites(pass_class(step.name).with_options({}), before) if site.path == step.path}
    return told(step) in offered
