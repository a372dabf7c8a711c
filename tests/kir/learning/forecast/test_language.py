"""A language model as a forecaster, behind the loopback server of the carriers' tests."""
from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.ir.printer import program_text
from kir.learning.forecast import Pair
from kir.learning.forecast.choosing import Counted
from kir.learning.forecast.data import Data, PairRow, ProgramRow
from kir.learning.forecast.language import Language, question, read
from kir.learning.forecast.trees import Array
from kir.lineage.carrier.providers.budget import Limits, Meter
from kir.lineage.carrier.providers.chat import Chat
from kir.lineage.carrier.providers.journal import Journal
from tests.kir.learning.forecast.made import copying
from tests.kir.lineage.carrier.asking import settings_for
from tests.kir.lineage.carrier.server import Says, loopback

PAIR = Pair(copying(32), copying(256), {"N": 1 << 20}, target("h200"), "more-threads{}@main")
BINS = [0.0, 0.0, 0.05, 0.1, 0.2, 0.4, 0.2, 0.05]
GOOD = "More warps hide more latency.\n" + json.dumps({"bins": BINS, "fails": 0.02})


def language(url: str, protocol: str = "openai", journal: Journal | None = None, limits: Limits | None = None,
             monkeypatch: pytest.MonkeyPatch | None = None) -> Language:
    settings = settings_for(url, protocol, key="KIR_TEST_KEY")
    return Language(Chat.of(settings, protocol, journal), Meter("forecasts", limits or Limits()))


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIR_TEST_KEY", "k")
    pytest.importorskip("openai")


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
def test_an_answer_is_a_distribution_and_is_charged(protocol: str) -> None:
    with loopback([Says(GOOD)]) as server:
        ask = Counted(language(server.url, protocol))
        found = ask(PAIR)
    assert found.bins == pytest.approx(tuple(BINS)) and found.fails == 0.02 and 1.41 < found.median < 2.0
    assert ask.spent.forecasts == 1 and ask.spent.dollars > 0
    asked = json.dumps(server.requests[0]["body"])
    assert "more-threads{}@main" in asked and "BEFORE" in asked and "threads 256" in asked and "h200" in asked and "N = 1048576" in asked


def test_an_answer_that_cannot_be_read_is_asked_for_again_once() -> None:
    with loopback([Says("twice as fast, surely"), Says(GOOD)]) as server:
        assert language(server.url)(PAIR).fails == 0.02
        assert "cannot be read" in json.dumps(server.requests[1]["body"])
    with loopback([Says("twice as fast, surely")]) as server, pytest.raises(KirError, match="KIR-E008"):
        language(server.url)(PAIR)


def test_an_equal_question_is_answered_from_the_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "forecasts")
    with loopback([Says(GOOD)]) as server:
        first = language(server.url, journal=journal)(PAIR)
        ask = language(server.url, journal=journal)
        assert ask(PAIR).bins == first.bins and len(server.requests) == 1 and ask.dollars == 0.0


def test_the_budget_ends() -> None:
    with loopback([Says(GOOD)]) as server, pytest.raises(KirError, match="KIR-H201"):
        language(server.url, limits=Limits(tokens=10))(PAIR)
    assert not server.requests


@pytest.mark.parametrize(("text", "why"), [
    ("", "no JSON object"), ("{", "no JSON object"), ('{"bins": [1], "fails": 0}', "8 probabilities"),
    (json.dumps({"bins": [0.5] * 8, "fails": 0}), "add up to 4"),
    (json.dumps({"bins": BINS, "fails": 2}), "no probability"), (json.dumps({"bins": [*BINS[:-1], "x"], "fails": 0}), "8 probabilities"),
    (json.dumps({"bins": [*BINS[:-1], float("nan")], "fails": 0}), "8 probabilities"), ("[" * 100_000, "no JSON object"),
])
def test_an_answer_that_is_no_forecast(text: str, why: str) -> None:
    with pytest.raises(KirError, match="KIR-E008") as bad:
        read(text, "a model")
    assert why in bad.value.diagnostics[0].message


def test_the_last_object_counts() -> None:
    first = json.dumps({"bins": [1, 0, 0, 0, 0, 0, 0, 0], "fails": 1})
    assert read(f"```json\n{first}\n``` No: {GOOD}", "m").fails == 0.02


def test_long_programs_are_cut_and_sizes_must_be_some() -> None:
    assert len(question(PAIR)) < 10_000
    with loopback([Says(GOOD)]) as server, pytest.raises(KirError, match="KIR-E007"):
        language(server.url)(Pair(PAIR.before, PAIR.after, {}, PAIR.target))


def test_settings_without_a_model(tmp_path: Path) -> None:
    file = tmp_path / "carriers.toml"
    file.write_text('provider = "recorded"\n')
    with pytest.raises(KirError, match="KIR-E010"):
        Language.of_settings(file)


def test_a_language_model_has_rows_of_its_own_in_the_table() -> None:
    from benchmarks.forecast import answers, measures

    programs = {f"{family}{threads}": copying(threads) for family in "ab" for threads in (32, 256)}
    data = Data({name: ProgramRow(name, program_text(p), "cuda", name[0]) for name, p in programs.items()}, {}, [], [], [])
    pairs = [PairRow("h200", "g", "s", {"N": size}, f"{family}32", f"{family}256", "", "walk", family, speedup=1.5)
             for family in "ab" for size in (1 << 20, 1 << 21, 0)]
    with loopback([Says(GOOD), Says("nothing"), Says("nothing again"), Says(GOOD)]) as server:
        found, why = answers.spoken(language(server.url), data, pairs, 4)
    asked: Array = np.isfinite(found.logs[:, 0])
    assert not why and 1 <= asked.sum() <= 3 and found.fails is not None and (np.isfinite(found.fails) == asked).all()
    measured, fault = np.full(6, np.log(1.5)), np.zeros(6, bool)
    figures = measures.figures(found, measured, fault)
    assert figures.pairs == asked.sum() and figures.sign == (1.0, asked.sum())
    assert measures.figures(answers.alone(replace(found, logs=np.zeros_like(found.logs)), asked), measured, fault).pairs == asked.sum()
    with loopback([Says(GOOD)]) as server:
        _, why = answers.spoken(language(server.url, limits=Limits(tokens=10)), data, pairs[:2], 2)
    assert why.startswith("KIR-H201")
