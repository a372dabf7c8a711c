"""A whole fill by a model: the transcript with two repairs, the budget, resumption, and what is kept."""
from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kir.base.diagnostic import KirError
from kir.interp import run as interpret
from kir.ir.parser import parse_program
from kir.lineage.carrier import Answer, Checked, Contract, check, holes, must_be_filled
from kir.lineage.carrier.providers.budget import Limits, Meter, Spent
from kir.lineage.carrier.providers.chat import Chat
from kir.lineage.carrier.providers.journal import Journal
from kir.lineage.carrier.sessions.parallel import Job, run_many
from kir.lineage.carrier.sessions.prompt import EXAMPLE, templates_hash
from tests.kir.lineage.carrier.asking import HOST, RIGHT, SERIAL, TOY, WRONG, ask, settings_for
from tests.kir.lineage.carrier.server import Says, loopback

pytestmark = pytest.mark.llm
OUTSIDE = f"Let me think.\n\n```kir\n{SERIAL.replace('X[i]', 'X[i + 1]')}```"


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
def test_the_transcript_of_a_fill_with_two_repairs(protocol: str) -> None:
    a = ask([Says("It is a prefix sum."), Says(OUTSIDE), Says(RIGHT)], protocol, turns=3)
    assert a.stages == ["read", "oracle", "accepted"]
    assert a.outcome.program is not None
    must_be_filled(a.outcome.program)
    first, second, third = (r["body"]["messages"] for r in a.server.requests)
    system = first[0]["content"] if protocol == "openai" else a.server.requests[0]["body"]["system"]
    talk = [m["content"] for m in third if m["role"] != "system"]
    assert "size N: i32" in system and "\"kir\" INT" in system
    for field in ("intent", "anchor", "carrier", "preconditions", "effect", "evidence", "risk", "scope", "log"):
        assert f"**{field}**" in talk[0]
    assert "def oracle" in talk[0] and "hole sums contract" in talk[0] and "shared memory of a CTA" in talk[0]
    assert talk[1] == "It is a prefix sum." and "KIR-T001" in talk[2] and "3 more tries are left" in talk[2]
    assert talk[3] == OUTSIDE and "KIR-H131" in talk[4] and "KIR-I010" in talk[4] and "2 more tries are left" in talk[4]
    assert "| X[i + 1]" not in talk[4] and "total = total + X[i + 1]" in talk[4], "the finding shows the line of the answer"
    assert [len(m) for m in (first, second, third)] == ([2, 4, 6] if protocol == "openai" else [1, 3, 5])
    assert [e.what for e in a.meter.entries] == ["m, turn 1", "m, turn 2", "m, turn 3"]
    assert a.outcome.templates == templates_hash() and a.outcome.attempts[2].who == f"{protocol}: m"
    record = json.loads(json.dumps(a.outcome.to_json()))
    assert record["filled"] and [t["verdict"]["stage"] for t in record["attempts"]] == a.stages


def test_turns_end_and_the_best_answer_is_kept() -> None:
    a = ask([Says("no"), Says(WRONG), Says(OUTSIDE.replace("kir\nkir 1", "kir\nkir 7"))], turns=2)
    assert a.outcome.program is None and a.stages == ["read", "oracle", "read"]
    assert a.stopped[:2] == ["KIR-H403", "KIR-H130"]
    assert a.outcome.best is not None and a.outcome.best.turn == 1


@pytest.mark.parametrize(("kind", "said"), [("attempts", "attempt 2 of 1"), ("dollars", "may cost"), ("tokens", "tokens")])
def test_the_budget_stops_before_the_call_that_might_exceed_it(kind: str, said: str) -> None:
    worst = ask([Says(WRONG)]).meter.entries[0].worst
    limits = {"attempts": Limits(attempts=1), "dollars": Limits(dollars=worst.dollars), "tokens": Limits(tokens=worst.tokens)}[kind]
    a = ask([Says(WRONG), Says(RIGHT)], turns=3, limits=limits)
    assert len(a.server.requests) == 1 and a.stages == ["oracle"]
    assert a.stopped[0] == "KIR-H201" and said in a.outcome.stopped[0].message
    assert a.outcome.best is not None and "KIR-H130" in a.stopped, "the best so far, and why it was refused"
    assert "m, turn 1" in a.outcome.stopped[0].witness[0] and "in all" in a.outcome.stopped[0].witness[-1]


def test_pauses_double_within_their_jitter_and_respect_the_deadline() -> None:
    a = ask([Says("x", status=500)], limits=Limits(seconds=1e6))
    assert a.time.slept == [0.5, 1.0], "half of 1 and of 2 seconds: the draw is 0"
    a = ask([Says("x", status=429, headers=(("Retry-After", "5"),)), Says(RIGHT)])
    assert a.time.slept == [5.0]
    a = ask([Says("x", status=500)], limits=Limits(seconds=0.4))
    assert a.stopped == ["KIR-H306"] and not a.time.slept and "the budget leaves" in a.outcome.stopped[0].message


def test_a_killed_run_goes_on_without_paying_twice(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "r")
    paid = ask([Says(WRONG)], journal=journal)
    assert paid.stages == ["oracle"]
    journal.asked("0" * 64, "m, turn 2", Spent(Decimal("0.5"), 7, 9, 1))
    again = ask([Says(RIGHT)], turns=1, journal=journal, earlier=True, port=paid.port)
    assert again.stages == ["oracle", "accepted"] and again.outcome.attempts[0].cached
    assert len(again.server.requests) == 1, "the first question was answered before the kill"
    first, lost, new = again.meter.entries
    assert first.actual == paid.meter.spent and "resumed" in first.note
    assert lost.actual.dollars == Decimal("0.5") and "killed" in lost.note
    assert again.meter.spent == first.actual + lost.actual + new.actual
    once_more = Meter("run")
    journal.charge_earlier(once_more)
    assert once_more.spent == again.meter.spent, "what was lost is charged once"
    journal.done()
    fresh = Meter("run")
    journal.charge_earlier(fresh)
    assert fresh.spent == Spent()


def test_replies_are_kept_by_prompt_model_and_settings(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "r")
    first = ask([Says(RIGHT)], journal=journal)
    again = ask([Says(RIGHT)], journal=journal, port=first.port)
    assert not again.server.requests and again.outcome.attempts[0].cached and again.meter.spent == Spent()
    assert len(ask([Says(RIGHT)], journal=journal, port=first.port, model="n").server.requests) == 1, "another model is another question"
    assert ask([Says(RIGHT)], journal=journal, endpoint="http://127.0.0.1:9/v1").stopped == ["KIR-H306"], "nothing was kept for this endpoint"
    assert len(list((tmp_path / "replies").rglob("*.json"))) == 2


def test_a_refusal_from_a_broken_cache_is_located(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "r")
    journal.keep("ab" * 32, "text", "who", Spent())
    path, = (tmp_path / "replies").rglob("*.json")
    path.write_text("{")
    with pytest.raises(KirError, match="KIR-S006"):
        journal.kept("ab" * 32)
    assert Journal(tmp_path, "r", reuse=False).kept("ab" * 32) is None


def test_no_key_no_price_no_client_settings_are_errors_before_any_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KIR_TEST_KEY", raising=False)
    with pytest.raises(KirError, match="KIR-H302"):
        Chat.of(settings_for("http://127.0.0.1:9", "openai", key="KIR_TEST_KEY"), "openai")
    with pytest.raises(KirError, match="KIR-H302"):
        Chat.of(settings_for("http://127.0.0.1:9", "anthropic", endpoint=""), "anthropic")
    with pytest.raises(KirError, match="KIR-H202"):
        Chat.of(settings_for("http://127.0.0.1:9", "openai", price=None), "openai")
    with pytest.raises(KirError, match="KIR-H402"):
        Chat.of(settings_for("http://127.0.0.1:9", "openai"), "anthropic")
    monkeypatch.setenv("KIR_TEST_KEY", "sk-secret")
    known = Chat.of(settings_for("", "anthropic", endpoint="", price=None, model="claude-3-5-haiku-latest", key="KIR_TEST_KEY"), "anthropic")
    assert known.price(1_000_000, 0) > 0


@pytest.mark.parametrize("missing", ["openai", "anthropic", "genai_prices"])
def test_a_client_that_is_not_installed_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    more: dict[str, Any] = {"price": None} if missing == "genai_prices" else {}
    protocol = "openai" if missing == "genai_prices" else missing
    with pytest.raises(KirError, match="KIR-H301") as refused:
        Chat.of(settings_for("http://127.0.0.1:9", protocol, **more), protocol)
    assert "kernel-lineage[llm]" in str(refused.value)


def test_the_key_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIR_TEST_KEY", "sk-secret")
    a = ask([Says("the key sk-secret is wrong", status=401)], key="KIR_TEST_KEY")
    assert {k.lower(): v for k, v in a.server.requests[0]["headers"].items()}["authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in str(a.outcome.stopped) and "***" in a.outcome.stopped[0].message


def test_meters_share_one_budget_and_a_call_has_its_own() -> None:
    run = Meter("run", Limits(dollars=Decimal(1)))
    one, two = run.child("one", Limits(attempts=1)), run.child("two", Limits())
    held = one.reserve("a", Spent(Decimal("0.7"), 1, 1, 1))
    with pytest.raises(KirError, match="budget of the run"):
        two.reserve("b", Spent(Decimal("0.7"), 1, 1, 1))
    held.settle(Spent(Decimal("0.1"), 1, 1, 1))
    two.reserve("b", Spent(Decimal("0.7"), 1, 1, 1)).settle(Spent(Decimal("0.2"), 1, 1, 1))
    with pytest.raises(KirError, match="budget of the one"):
        one.reserve("c", Spent(attempts=1))
    assert run.spent.dollars == Decimal("0.3") and list(run.lines())[-1] == "in all: $0.3, 2 + 2 tokens, 2 attempts"


def test_the_example_of_every_prompt_is_right() -> None:
    program = parse_program(EXAMPLE)
    for size in (1, 63, 64, 200):
        x = np.random.default_rng(size).standard_normal(size).astype(np.float32)
        result = interpret(program, {"X": x}, {"N": size}, mode="check")
        assert not result.errors and result.outputs["M"][0] == x.max()


def test_fills_run_side_by_side_and_equal_answers_are_checked_once() -> None:
    program = parse_program(HOST)
    (path, _), = holes(program)
    judged: list[str] = []

    def judge(contract: Contract, answer: Answer) -> Checked:
        judged.append(answer.hash)
        return check(contract, answer)
    with loopback(lambda number, body: Says(WRONG if len(body["messages"]) == 2 else RIGHT)) as server:
        meter = Meter("run", Limits(attempts=15))
        chat = Chat.of(settings_for(server.url, "openai"), "openai")
        outcomes = run_many([Job(TOY, program, path)] * 8, chat, meter, turns=1, workers=8, judge=judge)
    assert [len(o.attempts) for o in outcomes].count(2) == 7, "the budget ends one of them"
    assert sum(o.program is not None for o in outcomes) == 7 and meter.spent.attempts == 15
    assert [d.id for o in outcomes for d in o.stopped] == ["KIR-H201", "KIR-H130"]
    assert len(judged) == len(set(judged)) == 2
