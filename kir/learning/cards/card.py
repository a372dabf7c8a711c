"""A skill card: what one transition teaches, as a Markdown file that people read and machines parse back.

The file opens with TOML between two lines of ``+++`` (the nine fields: intent, anchor, carrier, preconditions, effect,
evidence, risk, scope, log), and goes on with prose. Reading and writing are exact inverses.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kir.base.diagnostic import KirError, Origin, did_you_mean, error

SCHEMA: Literal["kir.card/1"] = "kir.card/1"
FENCE = "+++\n"

Life = Literal["hypothesis", "admitted", "deprecated", "retired"]
"""A card starts as a hypothesis; held-out round trips admit it; outcomes deprecate or retire it."""

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]


class Part(BaseModel):
    """Base of every part of a card: immutable, and a field that is not declared is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Anchor(Part):
    """Where the step acts: the place in the kernel it was seen in, and the pass whose pattern finds such places elsewhere."""

    place: str
    pattern: str


class Carrier(Part):
    """What makes the skill actionable: a pass with its parameters as pipeline text, or an IR template with typed holes."""

    kind: Literal["pass", "template"]
    text: str


class Precondition(Part):
    """A condition of the forward step: its id, its sentence, and how it was settled here."""

    id: str
    kind: Literal["validity", "profit"]
    category: str
    sentence: str
    verdict: Literal["proved", "guarded", "assumed", "refuted", "unknown"]
    detail: str = ""


class Effect(Part):
    """What the step changes: modelled speedup by target (above 1 is faster), measured speedup where a GPU ran it, and the pass's
    own prediction of what changes in bytes, flops, registers and the like."""

    modelled: dict[str, float] = {}
    measured: dict[str, float] = {}
    predicted: dict[str, float] = {}


class Evidence(Part):
    """What the card rests on: the lineage (its seal), the two programs by content hash, and whether the compiled code differs."""

    lineage: str
    transition: int
    before: str
    after: str
    gate: Literal["cpu", "gpu"]
    realized: bool
    differences: dict[str, str] = {}


class Risk(Part):
    """What may go wrong: how rounding changes, and what each validity condition guards against."""

    numerics: str
    hazards: tuple[str, ...] = ()
    residue_bytes: int = 0


class Scope(Part):
    """Where the step is verified: case, surface, platforms, and what had been done before it (the state it acts on)."""

    case: str
    surface: str
    platforms: tuple[str, ...]
    prior: tuple[str, ...] = ()


class Entry(Part):
    """A line of the verification log: what was done, with which tools, and its outcome."""

    what: str
    outcome: str
    tools: dict[str, str] = {}


class Card(Part):
    """One skill. ``name`` is the file's stem; ``prose`` is the Markdown after the front matter, kept as it is."""

    schema_: Literal["kir.card/1"] = Field(default=SCHEMA, alias="schema")
    name: Name
    status: Life = "hypothesis"
    intent: str
    anchor: Anchor
    carrier: Carrier
    preconditions: tuple[Precondition, ...] = ()
    effect: Effect
    evidence: Evidence
    risk: Risk
    scope: Scope
    log: tuple[Entry, ...] = ()
    prose: str = Field(default="", exclude=True)

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def card_text(card: Card) -> str:
    """The file's text."""
    return f"{FENCE}{tomli_w.dumps(card.model_dump(mode='json', by_alias=True))}{FENCE}{card.prose}"


def parse_card(text: str, file: str) -> Card:
    """The card in ``text``.

    Raises :class:`KirError` (KIR-S020), at its line of ``file``, for TOML that does not parse and for a field that is unknown,
    missing or of the wrong type.
    """
    text = text.replace("\r\n", "\n")
    if not text.startswith(FENCE) or (stop := text.find("\n" + FENCE, len(FENCE) - 1)) < 0:
        raise error("KIR-S020", "a card opens with TOML between two lines of +++", origin=Origin(file, 1, 1, 1, 4))
    front = text[len(FENCE) : stop + 1]
    try:
        value = tomllib.loads(front)
    except tomllib.TOMLDecodeError as fault:
        found = re.search(r"at line (\d+), column (\d+)", str(fault))
        line, column = (int(found[1]) + 1, int(found[2])) if found else (2, 1)
        message = f"this is not TOML: {str(fault).partition(' (at')[0][:1].lower()}{str(fault).partition(' (at')[0][1:]}"
        raise error("KIR-S020", message, origin=Origin(file, line, column, line, column + 1)) from fault
    try:
        return Card.model_validate({**value, "prose": text[stop + 1 + len(FENCE) :]} if "prose" not in value else value)
    except ValidationError as fault:
        raise _fault(fault, front, file) from fault


def read_card(path: Path) -> Card:
    """The card in a file; raises what :func:`parse_card` raises, and KIR-S020 for a file that cannot be read."""
    try:
        return parse_card(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as fault:
        raise error("KIR-S020", f"{path} cannot be read: {fault}") from fault


def _fault(fault: ValidationError, front: str, file: str) -> KirError:
    first = min(fault.errors(), key=lambda each: each["type"] != "extra_forbidden")
    path = list(first["loc"])
    name = ".".join(map(str, path))
    if first["type"] == "extra_forbidden":
        hint = did_you_mean(str(path[-1]), _fields(path[:-1]))
        message = f"there is no field '{name}'{f'; {hint}' if hint else ''}"
    elif first["type"] == "missing":
        message = f"the field '{name}' is missing"
    else:
        message = f"the field '{name}' is wrong: {first['msg'][:1].lower()}{first['msg'][1:]}"
    line, column, width = _place(front, path)
    return error("KIR-S020", message, origin=Origin(file, line + 1, column, line + 1, column + width))


def _fields(path: Sequence[str | int]) -> tuple[str, ...]:
    parts: dict[str, type[Part]] = {
        "anchor": Anchor,
        "carrier": Carrier,
        "preconditions": Precondition,
        "effect": Effect,
        "evidence": Evidence,
        "risk": Risk,
        "scope": Scope,
        "log": Entry,
    }
    model = parts.get(str(path[0]), Card) if path else Card
    return tuple(each.alias or name for name, each in model.model_fields.items() if name != "prose")


def _place(front: str, path: Sequence[str | int]) -> tuple[int, int, int]:
    """Line of the front matter (from 1), column and width of the key that a path of keys and indices leads to.

    The nearest enclosing table is given when the key itself is not there.
    """
    keys = [key for key in path if isinstance(key, str)]
    wanted = next((key for key in path if isinstance(key, int)), 0)
    best, table, count = (1, 1, 1), "", -1
    for number, row in enumerate(front.split("\n"), start=1):
        if header := re.match(r"\s*\[\[?([^\]]+)\]\]?", row):
            count = count + 1 if header[1].strip() == table else 0
            table = header[1].strip()
            if keys and table in (keys[0], ".".join(keys)) and count == (wanted if "[[" in row else 0):
                best = (number, 1, len(row.rstrip()))
        elif pair := re.match(r'\s*("?)([\w.-]+)\1\s*=', row):
            inside = [*table.split("."), pair[2]] if table else [pair[2]]
            if inside == keys and (count in (wanted, -1) or len(keys) == 1):
                return number, pair.start(2) + 1, len(pair[2])
    return best
