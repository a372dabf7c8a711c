"""A model as a provider: metered, tried again with growing pauses, kept on disk, and never trusted with its own token counts."""
from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import field

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error, usage
from kir.lineage.carrier.providers.budget import Clock, Meter, Spent
from kir.lineage.carrier.providers.journal import Journal, key_of
from kir.lineage.carrier.providers.prices import Pricer, pricer
from kir.lineage.carrier.providers.provider import Reply, Request
from kir.lineage.carrier.providers.settings import DEFAULT_RETRY, NO_BUDGETS, Budgets, Endpoint, Retry, Settings
from kir.lineage.carrier.providers.stream import Counted, Failure
from kir.lineage.carrier.providers.transport import Transport, transport

OVERHEAD = 512
"""Tokens that a chat format may add to a prompt: a token is at least one byte, so the bytes of the prompt and these bound its tokens."""
GRACE = 0.5
"""Seconds after a call's end at which it is left to itself: a server that sends its headers byte by byte never comes to a deadline."""
BYTES_A_TOKEN = 32
"""No tokenizer averages more bytes a token over a text; a server that counts fewer tokens miscounts."""
IDS = {"key": "KIR-H303", "model": "KIR-H304", "request": "KIR-H305", "limit": "KIR-H306", "server": "KIR-H306", "network": "KIR-H306",
       "cut": "KIR-H307", "silent": "KIR-H307", "late": "KIR-H307", "long": "KIR-H308", "form": "KIR-H309"}
NEEDS = {"key": "a valid key in the environment variable that the settings name", "model": "a model that this server has; see the settings"}


@dataclass
class Chat:
    """A model behind a protocol. `clock`, `sleep` and `draw` (a random number from 0 to 1) may be replaced by a test."""

    name: str
    endpoint: Endpoint
    send: Transport
    price: Pricer
    retry: Retry = DEFAULT_RETRY
    budgets: Budgets = NO_BUDGETS
    journal: Journal | None = None
    clock: Clock = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    draw: Callable[[], float] = field(default_factory=lambda: random.Random().random)

    @classmethod
    def of(cls, settings: Settings, protocol: str, journal: Journal | None = None) -> Chat:
        """The provider of the settings. Raises KirError: KIR-H402 (no model named), KIR-H302 (no key), KIR-H202 (no price), KIR-H301 (the
        client is not installed)."""
        endpoint = settings.endpoint(protocol)
        key = ""
        if endpoint.key:
            key = os.environ.get(endpoint.key, "").strip()
            if not key:
                raise usage("KIR-H302", f"the environment variable {endpoint.key} holds no key",
                            needs=f'{endpoint.key}, or key = "" for a server without keys')
        elif not endpoint.endpoint:
            raise usage("KIR-H302", f"the settings name no environment variable with a key for '{protocol}'", needs="key = \"NAME\" in the settings")
        return cls(protocol, endpoint, transport(protocol, endpoint, key), pricer(endpoint, protocol), settings.retry, settings.budget, journal)

    @property
    def who(self) -> str:
        """Provider and model, as a record names them."""
        return f"{self.name}: {self.endpoint.model}"

    def worst(self, request: Request) -> Spent:
        """The most that one call can cost."""
        input = _bytes(request) + OVERHEAD
        return Spent(self.price(input, self.endpoint.max_tokens), input, self.endpoint.max_tokens, 1)

    def propose(self, request: Request, meter: Meter) -> Reply:
        """A reply of the model. Raises KirError: KIR-H201 (budget), KIR-H303 to KIR-H309 (what the server did)."""
        settings = self.endpoint.model_dump(mode="json", exclude={"key", "price", "time"})
        key = key_of(request, {"protocol": self.name, **settings})
        if self.journal is not None and (kept := self.journal.kept(key)) is not None:
            return Reply(kept.text, kept.who, cached=True)
        worst = self.worst(request)
        failed: Failure | None = None
        for attempt in range(self.retry.tries):
            if failed is not None:
                self._pause(failed, attempt, meter)
            what = f"{self.endpoint.model}, turn {request.turn + 1}" + (f", try {attempt + 1}" if attempt else "")
            call = meter.child(meter.name, self.budgets.call)
            reservation = call.reserve(what, worst)
            if self.journal is not None:
                self.journal.asked(key, what, worst)
            try:
                counted = self._send(request, call)
            except Failure as bad:
                failed = bad
                actual, note = (worst, f"{bad.message}: its worst case") if bad.begun else (Spent(attempts=1), bad.message)
                reservation.settle(actual, note)
                if self.journal is not None:
                    self.journal.settled(key, what, actual, note)
                if not bad.passing:
                    break
                continue
            actual, note = self._cost(request, counted, worst)
            reservation.settle(actual, note)
            if self.journal is not None:
                self.journal.keep(key, counted.text, self.who, actual)
                self.journal.settled(key, what, actual, note)
            cut = counted.finish in ("length", "max_tokens")
            notes = tuple(x for x in (note, f"the reply ended at max_tokens = {self.endpoint.max_tokens}" if cut else "") if x)
            return Reply(counted.text, self.who, actual, notes=notes)
        assert failed is not None
        raise self._refusal(failed, meter)

    def _send(self, request: Request, call: Meter) -> Counted:
        left = call.seconds_left()
        seconds = self.endpoint.time.total if left is None else min(left, self.endpoint.time.total)
        end = self.clock() + seconds
        sent: Future[Counted] = Future()

        def send() -> None:
            try:
                sent.set_result(self.send(request, lambda: self.clock() >= end, max(seconds, 1e-3)))
            except BaseException as bad:
                sent.set_exception(bad)
        threading.Thread(target=send, name=f"kir-{self.name}", daemon=True).start()
        try:
            return sent.result(timeout=seconds + GRACE)
        except TimeoutError:
            raise Failure("late", "the server kept the connection open past the end of the call") from None

    def _cost(self, request: Request, counted: Counted, worst: Spent) -> tuple[Spent, str]:
        """What a reply cost. Counts that are missing or cannot be true are replaced by the worst case (or by themselves, if larger)."""
        least_in, least_out = -(-_bytes(request) // BYTES_A_TOKEN), -(-len(counted.text.encode("utf-8", "replace")) // BYTES_A_TOKEN)
        input, likely = _believed(counted.input, least_in, worst.input)
        output, also = _believed(counted.output, least_out, worst.output)
        said = f"{'no' if counted.input is None else counted.input} + {'no' if counted.output is None else counted.output}"
        note = "" if likely and also else f"the server counts {said} tokens, which cannot be: the larger of that and the worst case is taken"
        return Spent(self.price(input, output), input, output, 1), note

    def _pause(self, failed: Failure, attempt: int, meter: Meter) -> None:
        """Wait before another try. Raises KirError when the server, or the budget, leaves no time for it."""
        longest = min(self.retry.most, self.retry.first * 2.0 ** (attempt - 1))
        pause = longest * (0.5 + 0.5 * self.draw())
        if failed.retry_after is not None:
            if failed.retry_after > self.retry.most:
                raise self._refusal(failed, meter, f"; it asks to wait {failed.retry_after:g} s, and the settings wait at most {self.retry.most:g}")
            pause = max(pause, failed.retry_after)
        left = meter.seconds_left()
        if left is not None and pause >= left:
            raise self._refusal(failed, meter, f"; the next try would come after {pause:.1f} s, and the budget leaves {max(left, 0.0):.1f} s")
        self.sleep(pause)

    def _refusal(self, failed: Failure, meter: Meter, more: str = "") -> KirError:
        return error(IDS[failed.kind], f"{self.who}: {failed.message}{more}", witness=tuple(meter.root.lines()), needs=NEEDS.get(failed.kind, ""))


def _bytes(request: Request) -> int:
    return len(request.system.encode("utf-8", "replace")) + sum(len(m.text.encode("utf-8", "replace")) for m in request.messages)


def _believed(count: int | None, least: int, most: int) -> tuple[int, bool]:
    """A count that lies within its bounds as it is, else the most that it can be (or itself, if larger); and which of the two it was."""
    if count is not None and least <= count <= most:
        return count, True
    return max(most, count or 0), False
