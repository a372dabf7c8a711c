"""The one protocol of whoever fills holes: it is asked with a request, and replies with text. What it says is only ever parsed."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Literal, Protocol, runtime_checkable

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error
from kir.lineage.carrier.answer import Answer
from kir.lineage.carrier.contract import Contract
from kir.lineage.carrier.providers.budget import NO_COST, Meter, Spent
from kir.lineage.carrier.records import recorded


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True)
class Request:
    """What is asked: the contract, what stands before the conversation, the conversation (the last message is the user's), the hash of the
    templates that it was made with, and which turn this is (0: the first)."""

    contract: Contract
    system: str
    messages: tuple[Message, ...]
    templates: str
    turn: int = 0


@dataclass(frozen=True)
class Reply:
    """What came back. `answer` is set by a provider that knows it; of other replies it is taken from `text`. `who` is a person, or provider
    and model; `cached` says that nothing was spent."""

    text: str
    who: str
    spent: Spent = NO_COST
    answer: Answer | None = None
    cached: bool = False
    notes: tuple[str, ...] = ()


@runtime_checkable
class CarrierProvider(Protocol):
    """Whoever fills holes."""

    name: str

    def propose(self, request: Request, meter: Meter) -> Reply:
        """A reply to a request. What it costs is reserved on the meter before and settled after. Raises KirError when there is none."""
        ...


@dataclass
class RecordedProvider:
    """The recorded answers of a contract, one a turn, in order of name; those for another version of it are passed over, and said so."""

    name: str = "recorded"
    only: str = ""
    _left: dict[str, Iterator[tuple[Answer, str]]] = field(default_factory=dict)

    def propose(self, request: Request, meter: Meter) -> Reply:
        """The next recorded answer. Raises KirError KIR-H142 when there is none left, KIR-H141 when all are for other versions."""
        contract = request.contract
        if contract.id not in self._left:
            self._left[contract.id] = self._answers(contract)
        found = next(self._left[contract.id], None)
        if found is None:
            raise error("KIR-H142", f"no further answer to {contract.id} is recorded", attempt="kir carrier fill with a person or a model")
        answer, who = found
        return Reply(answer.text, who, answer=answer)

    def _answers(self, contract: Contract) -> Iterator[tuple[Answer, str]]:
        stale: KirError | None = None
        given = False
        for r in recorded(contract):
            if self.only and r.name != self.only and not (len(self.only) >= 8 and r.record.answer.startswith(self.only)):
                continue
            try:
                r.must_fit(contract)
            except KirError as other:
                stale = other
                continue
            given = True
            yield r.answer, r.record.who
        if stale is not None and not given:
            raise stale
