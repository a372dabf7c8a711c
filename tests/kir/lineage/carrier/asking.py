"""A hole, its contract, and a model behind the loopback server: what the tests of providers share."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kir.ir.parser import parse_program
from kir.lineage.carrier import Contract, holes
from kir.lineage.carrier.providers.budget import Limits, Meter
from kir.lineage.carrier.providers.chat import Chat
from kir.lineage.carrier.providers.journal import Journal
from kir.lineage.carrier.providers.settings import Settings
from kir.lineage.carrier.sessions.session import Outcome, run
from tests.kir.lineage.carrier.server import Loopback, Says, loopback

HERE = Path(__file__).parent
TOY = Contract(HERE / "toy")
SERIAL = (HERE / "toy" / "serial.kir").read_text()
HOST = """kir 1
program rows
  size R: i32
  size N: i32
  in A: f32[R, N]
  out B: f32[R, N]
  out T: f32[R]
kernel main grid (row: R) threads 32
  let i = row + 1
  @sums hole sums contract "toy-prefix/1" reads A[row, 0 +: N] writes B[row, 0 +: N], T[row +: 1]
"""
RIGHT = f"```kir\n{SERIAL}```"
WRONG = f"```kir\n{SERIAL.replace('f32 = 0.0', 'f32 = 0.5')}```"


@dataclass
class FakeTime:
    """A clock that only sleeping moves."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@dataclass
class Asked:
    """How a fill against the loopback server went."""

    outcome: Outcome
    meter: Meter
    server: Loopback
    time: FakeTime

    @property
    def port(self) -> int:
        return int(self.server.url.rpartition(":")[2])

    @property
    def stages(self) -> list[str]:
        return [a.verdict.stage for a in self.outcome.attempts]

    @property
    def stopped(self) -> list[str]:
        return [d.id for d in self.outcome.stopped]


def settings_for(url: str, protocol: str, **more: Any) -> Settings:
    """Settings that name the loopback server, with deadlines that only a server which means to will miss; `more` are fields of the endpoint."""
    endpoint = {"model": "m", "endpoint": url + ("/v1" if protocol == "openai" else ""), "max_tokens": 1000,
                "price": {"input": 1, "output": 10}, "time": {"connect": 30, "silence": 30, "total": 60}, **more}
    return Settings.model_validate({protocol: endpoint, "retry": {"tries": 3, "first": 1, "most": 8}})


def ask(script: Callable[[int, dict[str, Any]], Says] | list[Says], protocol: str = "openai", *, limits: Limits | None = None, turns: int = 0,
        journal: Journal | None = None, earlier: bool = False, port: int = 0, **more: Any) -> Asked:
    """Fill the toy hole from a server that follows a script."""
    with loopback(script, port) as server:
        chat = Chat.of(settings_for(server.url, protocol, **more), protocol, journal)
        fake = FakeTime()
        chat.sleep, chat.draw = fake.sleep, lambda: 0.0
        meter = Meter("run", limits or Limits())
        if earlier and journal is not None:
            journal.charge_earlier(meter)
        program = parse_program(HOST)
        (path, _), = holes(program)
        outcome = run(TOY, program, path, chat, meter.child("toy", Limits()), turns=turns)
        return Asked(outcome, meter, server, fake)


@contextmanager
def serving(script: list[Says]) -> Iterator[Loopback]:
    """A running server, for the command line."""
    with loopback(script) as server:
        yield server
