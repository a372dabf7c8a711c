"""Cards for others: agent skills (a folder with `SKILL.md` each, by the open format), and one JSON object."""
from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kir.base.store import write_atomic
from kir.learning.cards.card import SCHEMA, Card, digest

MOST_NAME = 64
MOST_DESCRIPTION = 1024
"""What the format allows (agentskills.io)."""
ACTS = "It acts at "
"""How the paragraph of a card begins that says where it acts; what stands before it says what it does."""


def skill_name(card: Card) -> str:
    """A name of lower-case letters, digits and single hyphens, of at most 64 characters."""
    return re.sub(r"[^a-z0-9]+", "-", card.name.lower()).strip("-")[:MOST_NAME].rstrip("-")


def description(card: Card) -> str:
    """What the skill does and when to use it, in at most 1,024 characters: what the card says of it up to where it acts, then there, under which conditions,
    and how it came out."""
    paragraphs = [" ".join(each.split()).replace("`", "") for each in card.prose.split("\n\n")[1:]]
    acts = next((k for k, each in enumerate(paragraphs) if each.startswith(ACTS)), 1)
    place = re.split(r" of the form |\.", "".join(paragraphs[acts:acts + 1]))[0].removeprefix(ACTS) if len(paragraphs) > 1 else ""
    does = [each for each in paragraphs[:acts] if not each.startswith("*")] or [f"{card.title}."]
    came = [each.strip("*") for each in paragraphs[:acts] if each.startswith("*")] or [f"State: {card.state}."]
    asked = [p.sentence for p in card.preconditions if p.kind == "validity"]
    said = f"{' '.join(does)} Use it on GPU kernels ({', '.join(card.scope.surfaces)}) at {place or card.anchor.node}"
    said += f", where {'; '.join(asked)}." if asked else "."
    said += f" {' '.join(came)}"
    return said if len(said) <= MOST_DESCRIPTION else said[:MOST_DESCRIPTION - 1].rsplit(" ", 1)[0] + "…"


def skill_text(card: Card) -> str:
    """The text of a `SKILL.md`."""
    front = f"---\nname: {skill_name(card)}\ndescription: {json.dumps(description(card), ensure_ascii=False)}\n---\n"
    return f"{front}\n{card.prose}\n## To apply it\n\n```sh\nkir skills apply {card.name} KERNEL\n```\n"


def export_skills(cards: Sequence[Card], folder: Path) -> tuple[Path, ...]:
    """Write a folder a card, with its `SKILL.md`."""
    out = []
    for card in cards:
        path = folder / skill_name(card) / "SKILL.md"
        write_atomic(path, skill_text(card))
        out.append(path)
    return tuple(out)


def library_json(cards: Sequence[Card]) -> dict[str, Any]:
    """All cards in one JSON object, each with its prose and the hash of its file."""
    return {"schema": f"{SCHEMA}+library", "cards": [{**card.model_dump(mode="json", by_alias=True), "prose": card.prose, "digest": digest(card)}
                                                     for card in cards]}
