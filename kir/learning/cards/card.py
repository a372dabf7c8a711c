"""A skill card: what many transitions of one kind teach, as a Markdown file that people read and machines parse back.

The file is prose, then a heading `## Record` and one fenced block of JSON with the nine fields: intent, anchor, carrier, preconditions,
effect, evidence, risk, scope, log. Reading and writing are exact inverses.
"""
from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from kir.base.diagnostic import KirError, Origin, error
from kir.lineage.records.record import schema_fault
from kir.rewrite.options import current_name

SCHEMA: Literal["kir.card/3"] = "kir.card/3"
OLDER = "kir.card/2"
"""A schema that is read, too: it has all fields but `ways`."""
OPEN, CLOSE = "\n## Record\n\n```json\n", "\n```\n"

FAMILY = "family"
"""The category of a condition of profit: of which families a kernel is where the skill pays."""
Life = Literal["hypothesis", "admitted", "deprecated", "retired", "negative"]
"""A card starts as a hypothesis; held-out trials admit it; outcomes deprecate or retire it. A negative one is known not to help."""
Basis = Literal["forecast", "measured"]
Value = bool | int | float | str | tuple[int, ...] | tuple[str, ...]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", max_length=64)]


class Part(BaseModel):
    """Base of every part of a card: immutable, and a field that is not declared is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Anchor(Part):
    """Where the first step acts: the kind of statement, and its form, generalized over all places where it was seen (`?1` stands for what
    differed)."""

    node: str
    pattern: str
    places: int = Field(ge=0)


class Parameter(Part):
    """A parameter of a step. `found`: the place decides it. `drawn`: the text of an expression of the statement there, of one of the kinds in
    `values`. `fixed`: it was the same everywhere, or it makes the skill what it is.
    `chosen`: one of `values`, what was used by most kernels first; whole numbers lie between `low` and `high`."""

    name: str
    role: Literal["found", "drawn", "fixed", "chosen"]
    values: tuple[Value, ...] = ()
    kernels: tuple[int, ...] = ()
    low: int | None = None
    high: int | None = None


class Move(Part):
    """One step of a carrier: a pass and what is known of its parameters; and of parameters that are chosen, in their order, which values were used together
    (`ways`), those of most kernels first."""

    step: str
    parameters: tuple[Parameter, ...] = ()
    ways: tuple[tuple[Value, ...], ...] = ()

    @field_validator("parameters")
    @classmethod
    def _called_as_today(cls, read: tuple[Parameter, ...], info: ValidationInfo) -> tuple[Parameter, ...]:
        """Cards from before a parameter was renamed are read."""
        of = str(info.data.get("step", ""))
        return tuple(p.model_copy(update={"name": name}) if (name := current_name(of, p.name)) != p.name else p for p in read)


class Relation(Part):
    """An equality or divisibility of parameters and facts of the kernel that held in every use, or an equality that held in so many `of` the kernels that
    have its facts (0: in all), and how likely it would have held there had each kernel's parameters been drawn from the others' (`chance`)."""

    text: str
    kernels: int = Field(ge=0)
    of: int = Field(default=0, ge=0)
    chance: float = Field(ge=0, le=1)


class Carrier(Part):
    """What makes the skill actionable: one step, or several that come together."""

    kind: Literal["pass", "composite"]
    steps: tuple[Move, ...]
    relations: tuple[Relation, ...] = ()


class Precondition(Part):
    """A condition of the step: its id ("" for one that was learned), its sentence, in how many uses it was proved, checked at launch,
    assumed or left open, how often it was what refused a try, and one such refusal."""

    id: str = ""
    kind: Literal["validity", "profit"]
    category: str
    sentence: str
    proved: int = 0
    guarded: int = 0
    assumed: int = 0
    open: int = 0
    refused: int = 0
    example: str = ""


class Spread(Part):
    """A speedup (above 1 is faster) over several uses: the median, the lower and upper quartile, and how many there were."""

    median: float
    low: float
    high: float
    uses: int


class Effect(Part):
    """What the step brings: speedup by target, forecast by the cost model or measured; how many uses changed the compiled code."""

    forecast: dict[str, Spread] = {}
    measured: dict[str, Spread] = {}
    predicted: dict[str, Spread] = {}
    realized: int = 0
    compared: int = 0


class Use(Part):
    """A transition that the card was lifted from: the kernel, the lineage's seal, the number from the naive end, and the content hashes of
    the two programs."""

    kernel: str
    package: str
    family: str
    surface: str
    lineage: str
    transition: int
    before: str
    after: str


class Evidence(Part):
    """What the card rests on: all uses, and how many tries were turned down."""

    kernels: int
    uses: tuple[Use, ...]
    rejected: int = 0


class Counterexample(Part):
    """A program (by content hash) and a step that went wrong there, and what said so."""

    program: str
    step: str
    says: str


class Risk(Part):
    """What may go wrong: how rounding changes, what each validity condition guards against, and what was seen to go wrong."""

    numerics: str
    hazards: tuple[str, ...] = ()
    counterexamples: tuple[Counterexample, ...] = ()


class Scope(Part):
    """Where the skill is verified: families of kernels, packages, surfaces, platforms; state features that were there (`requires`) or not
    (`conflicts`) before it in every use; and steps that had always been done before."""

    families: tuple[str, ...]
    packages: tuple[str, ...]
    surfaces: tuple[str, ...]
    platforms: tuple[str, ...]
    requires: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    prior: tuple[str, ...] = ()


class Entry(Part):
    """A line of the log. A trial names the kernel it was held on, how it ended with the skill and without it in the same number of tries, and
    the speedup with its interval."""

    what: Literal["lifted", "trial", "probe", "use", "merged", "state"]
    outcome: str
    kernel: str = ""
    skill: bool | None = None
    without: bool | None = None
    speedup: tuple[float, float, float] | None = None
    basis: Basis | None = None


class Card(Part):
    """One skill. `name` is the file's stem; `prose` is the Markdown before the record, kept as it is."""

    schema_: Literal["kir.card/3", "kir.card/2"] = Field(default=SCHEMA, alias="schema")
    name: Name
    state: Life = "hypothesis"
    why: str = ""
    title: str
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

    @property
    def passes(self) -> tuple[str, ...]:
        """The passes of its steps, in order."""
        return tuple(each.step for each in self.carrier.steps)


def card_text(card: Card) -> str:
    """The file's text."""
    value = {"schema": card.schema_, **card.model_dump(mode="json", by_alias=True, exclude_defaults=True)}
    uses, value["evidence"]["uses"] = value["evidence"]["uses"], []
    listed = ",\n".join("   " + json.dumps(use, ensure_ascii=False) for use in uses)  # a line each: a skill may have a thousand
    record = json.dumps(value, indent=1, ensure_ascii=False).replace('"uses": []', f'"uses": [\n{listed}\n  ]' if uses else '"uses": []', 1)
    return f"{card.prose}{OPEN}{record}{CLOSE}"


def digest(card: Card) -> str:
    """SHA-256 of the file's text."""
    return hashlib.sha256(card_text(card).encode()).hexdigest()


def parse_card(text: str, file: str) -> Card:
    """The card in `text`. Raises KirError KIR-S020, at its line of `file`, for a record that does not parse and for a field that is unknown,
    missing or of the wrong type."""
    text = text.replace("\r\n", "\n")
    start = text.rfind(OPEN)
    if start < 0 or not text.endswith(CLOSE):
        raise error("KIR-S020", "a card ends with a heading `## Record` and a fenced block of JSON", origin=Origin(file, 1, 1, 1, 4))
    begin = start + len(OPEN)
    record = text[begin:-len(CLOSE)]
    if _SCHEMA.match(record):
        with suppress(ValidationError):
            return Card.model_validate_json(record).model_copy(update={"prose": text[:start]})
    raise _fault(text, begin, file)


_SCHEMA = re.compile(rf'\{{\s*"schema": "({re.escape(SCHEMA)}|{re.escape(OLDER)})"')


def _fault(text: str, begin: int, file: str) -> KirError:
    """What is wrong with a record that begins at a place of its file's text."""
    record = re.sub(r"[^\n]", " ", text[:begin]) + text[begin:-len(CLOSE)]  # so that places count from the file's first line
    try:
        value = json.loads(record)
    except json.JSONDecodeError as fault:
        return error("KIR-S020", f"this is not JSON: {fault.msg}", origin=Origin(file, fault.lineno, fault.colno, fault.lineno, fault.colno + 1))
    except (ValueError, RecursionError) as fault:  # a number of 5,000 digits, a thousand lists in one another
        line = text[:begin].count("\n") + 1
        return error("KIR-S020", f"its record is not read: {str(fault).partition(';')[0]}", origin=Origin(file, line, 1, line, 2))
    if isinstance(value, dict) and value.get("schema") in (SCHEMA, OLDER):
        try:
            Card.model_validate_json(json.dumps(value))
        except ValidationError as fault:
            return schema_fault("KIR-S020", fault, record, file, Card)
    said = f"its schema is {value.get('schema')!r}" if isinstance(value, dict) and "schema" in value else "it names no schema"
    line = text[:begin].count("\n") + 1
    return error("KIR-S020", f"this is no card that this KIR reads: {said}", origin=Origin(file, line, 1, line, 2), needs=f"schema {SCHEMA}, named first")


def read_card(path: Path) -> Card:
    """The card in a file; raises what `parse_card` raises, and KIR-S020 for a file that cannot be read or whose card has another name."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise error("KIR-S020", f"{path} cannot be read: {fault}") from fault
    card = parse_card(text, str(path))
    if card.name != path.stem:
        raise error("KIR-S024", f"{path} holds a card called '{card.name}'", needs=f"the name '{path.stem}', or the file {card.name}.md",
                    witness=(f"{path.with_name(card.name + '.md')} {'is there too' if path.with_name(card.name + '.md').exists() else 'is free'}",))
    return card
