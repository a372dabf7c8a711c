"""Looking cards up: by words, and for a program on a target and a surface."""
from __future__ import annotations

from collections.abc import Sequence

from kir.base.dataclass import dataclass
from kir.hardware.target import Target
from kir.ir.nodes import Program
from kir.learning.cards.card import Card
from kir.learning.cards.use import Application, NearMiss, looked
from kir.rewrite import Context


@dataclass(frozen=True)
class Hit:
    """A card found for a program: how well it fits (higher is better), why, and where it applies."""

    card: Card
    score: float
    reasons: tuple[str, ...]
    applications: tuple[Application, ...] = ()
    near: tuple[NearMiss, ...] = ()


def search(cards: Sequence[Card], program: Program, target: Target | None = None, surface: str = "") -> tuple[Hit, ...]:
    """The cards that apply to a program, best first; then those that nearly do."""
    out = []
    for card in cards:
        found = list(looked(card, program, Context(target)))
        uses = tuple(each for each in found if isinstance(each, Application))
        near = tuple(each for each in found if isinstance(each, NearMiss))
        score = (1.0 if uses else 0.0) + (0.1 if surface in card.scope.surfaces else 0.0)
        out.append(Hit(card, score, (), uses, near))
    return tuple(sorted(out, key=lambda hit: (-hit.score, hit.card.name)))
