"""Who answers: the shipped model, the analytic one where there is none, what is charged, and when a forecast defers."""
from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.learning.forecast import Analytic, Forecast, Pair
from kir.learning.forecast.choosing import Counted, forecaster, in_order
from kir.learning.forecast.language import Language
from kir.learning.forecast.learned import Learned
from kir.learning.forecast.model import Model
from kir.learning.forecast.shown import MOST, in_words, lines
from kir.lineage.carrier.providers.person import Editor
from tests.kir.learning.forecast.made import copying

H200 = target("h200")
PAIR = Pair(copying(32), copying(256), {"N": 1 << 24}, H200)


def test_the_shipped_model_answers() -> None:
    ask = forecaster()
    assert ask.name == "learned" and not ask.note
    found = ask(PAIR)
    low, high = found.interval(0.8)
    assert low < found.median < high and sum(found.bins) == pytest.approx(1.0) and 0 <= found.fails <= 1
    assert found.reasons and all(in_words(r.resource) != r.resource and in_words(r.resource) in "\n".join(lines(found)) for r in found.reasons[:MOST])
    assert (ask.spent.forecasts, ask.spent.dollars) == (1, 0.0) and ask.spent.seconds > 0


@pytest.mark.parametrize(("waits", "charged"), [(False, 0.5), (True, 60.0)])
def test_a_forecast_costs_the_time_of_its_processor_unless_another_machine_makes_it(monkeypatch: pytest.MonkeyPatch, waits: bool, charged: float) -> None:
    """Others on a loaded machine take nothing of a search's budget."""
    class Slow(Analytic):
        def __call__(self, pair: Pair) -> Forecast:
            passed["wall"] += 60.0
            passed["own"] += 0.5
            return super().__call__(pair)

    passed = {"wall": 0.0, "own": 0.0}
    monkeypatch.setattr("kir.learning.forecast.choosing.time", SimpleNamespace(perf_counter=lambda: passed["wall"], thread_time=lambda: passed["own"]))
    slow = Slow()
    slow.waits = waits  # type: ignore[attr-defined]  # what a forecaster says of itself where it is another machine's
    ask = Counted(slow)
    ask(PAIR)
    assert ask.spent.seconds == charged


def test_a_language_model_waits() -> None:
    assert Language(Editor("nobody")).waits


def test_it_knows_what_it_was_trained_on_and_how() -> None:
    about = Learned().model.about
    assert len(about["data"]) == 64 and about["command"].startswith("python -m benchmarks.forecast train") and about["families"] and "seed" in about


def test_the_same_pair_has_the_same_forecast_and_a_program_is_as_fast_as_itself() -> None:
    ask = Learned()
    assert ask(PAIR) == ask(PAIR) == Learned()(PAIR)
    assert Learned()(replace(PAIR, after=PAIR.before)).median == pytest.approx(1.0, abs=0.1)


def test_without_a_model_the_analytic_one_answers_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("kir.learning.forecast.learned.shipped", lambda: tmp_path / "none.model")
    ask = forecaster()
    assert ask.name == "analytic" and "the analytic model answers" in ask.note and "none.model" in ask.note
    with pytest.raises(KirError, match="KIR-E005"):
        forecaster("learned")


def test_a_name_that_is_none() -> None:
    with pytest.raises(KirError, match="KIR-C005") as bad:
        forecaster("lerned")
    assert "learned" in bad.value.diagnostics[0].message


def test_what_was_never_seen_is_deferred_and_wide() -> None:
    model = Learned().model
    never = replace(model, far=0.0)
    found = Learned(model=never)(PAIR)
    assert "nothing like it was measured" in found.defer
    vague = replace(model, quantiles=tuple(tuple(9.0 * q for q in row) for row in model.quantiles), far=1e9, start=0.0)
    assert "too little is known" in Learned(model=vague)(PAIR).defer


@pytest.mark.parametrize("model", ["analytic", "learned"])
def test_sizes_that_a_programs_facts_exclude_are_a_wide_forecast_that_defers(model: str) -> None:
    held = parse_program(program_text(copying(128)).replace("\nkernel ", "\n  fact N % 128 == 0\nkernel ", 1), "p.kir")
    good, bad = (forecaster(model)(Pair(held, copying(256), {"N": n}, H200)) for n in (1 << 20, (1 << 20) + 5))
    assert "the fact N % 128 == 0 of" in bad.defer and bad.pays == "unsure" and "the fact" not in good.defer
    assert math.log(bad.interval(0.8)[1] / bad.interval(0.8)[0]) > 1.5 * math.log(good.interval(0.8)[1] / good.interval(0.8)[0])


def test_a_shape_of_zero_is_no_forecast() -> None:
    for name in ("analytic", "learned"):
        with pytest.raises(KirError, match="KIR-E007"):
            forecaster(name)(replace(PAIR, sizes={"N": 0}))


def test_programs_of_other_sizes_are_no_pair() -> None:
    from kir.ir.parser import parse_program

    other = parse_program("kir 1\nprogram other\n  size M: i32\n  out Y: f32[M]\nkernel main grid (b: M) threads 1\n  Y[b] = 0.0\n", "other")
    with pytest.raises(KirError, match="KIR-E009"):
        forecaster("analytic")(replace(PAIR, after=other, sizes={"N": 4, "M": 4}))


class _Fewer:
    """A forecaster to whom fewer threads are worse, and 512 likely fail."""

    name = "fewer"

    def __call__(self, pair: Pair) -> Forecast:
        def threads(side: int) -> int:
            value = (pair.before, pair.after)[side].kernels[0].threads
            return int(str(getattr(value, "value", value)))
        ratio = threads(1) / threads(0)
        from math import log
        return Forecast((0.1, 0.5, 0.9), (log(ratio) - 0.1, log(ratio), log(ratio) + 0.1), 0.99 if threads(1) == 512 else 0.0)


def test_candidates_are_put_in_order_and_every_question_is_charged() -> None:
    programs = [copying(threads) for threads in (64, 512, 32, 256, 128)]
    ask = Counted(_Fewer())
    found = in_order(programs, {"N": 4096}, H200, ask)
    order = sorted(range(5), key=lambda i: -found[i][0])
    assert [(64, 512, 32, 256, 128)[i] for i in order] == [256, 128, 512, 64, 32]
    assert ask.spent.forecasts == 15 and in_order([], {}, H200, ask) == []


def test_the_models_file_is_small_and_reads_alone() -> None:
    from kir.learning.forecast.learned import shipped

    assert shipped().stat().st_size < 2_000_000
    assert Model.read(shipped()).about["devices"]
