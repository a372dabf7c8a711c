"""Every bad answer and every bad server ends in one verdict, at a cost that is counted, and in nothing being run."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.lineage.carrier import checking
from tests.kir.lineage.carrier.asking import Asked
from tests.kir.lineage.carrier.hostile import ANSWERS, SERVERS, Case, asked, table

pytestmark = pytest.mark.llm
PAGE = Path(__file__).parents[4] / "docs" / "tables" / "hostile-answers.md"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "CASE_STEPS", 2_000)


def holds(case: Case, a: Asked) -> None:
    if case.kind == "accepted":
        assert a.outcome.program is not None, a.outcome.stopped
    elif case.kind == "answer":
        found = a.outcome.attempts[0].verdict.diagnostics
        assert found[0].id == case.id, [str(d) for d in found]
        assert all(d.origin is not None for d in found)
        assert a.stopped[0] == "KIR-H403"
    else:
        assert a.stopped == [case.id] and not a.outcome.attempts, a.stopped
    assert len(a.server.requests) == case.requests
    spent, entries = a.meter.spent, a.meter.entries
    assert spent.attempts == len(entries) == case.requests
    assert a.meter.reserved.dollars == 0
    worst = entries[0].worst.dollars
    match case.cost:
        case "nothing":
            assert spent.dollars == 0
        case "worst":
            assert spent.dollars == worst * case.requests and entries[0].note
        case "claimed":
            assert spent.dollars > worst and entries[0].note
        case "tokens":
            assert 0 < spent.dollars < worst and not entries[-1].note
        case _:
            assert worst < spent.dollars < 2 * worst


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
@pytest.mark.parametrize("case", SERVERS, ids=lambda c: c.said)
def test_a_server_that_goes_wrong(case: Case, protocol: str) -> None:
    holds(case, asked(case, protocol))


@pytest.mark.parametrize("case", ANSWERS, ids=lambda c: c.said)
def test_a_hostile_answer(case: Case) -> None:
    holds(case, asked(case, "openai"))


def test_the_table_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == "\n".join(table()) + "\n", "python -m tests.kir.lineage.carrier.hostile > docs/tables/hostile-answers.md"
