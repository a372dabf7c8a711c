"""Sentences of a card's prose."""
from __future__ import annotations

import math
from dataclasses import replace

import pytest

from kir.learning.cards.card import Effect, Entry, Relation, Spread
from kir.learning.forecast.distribution import Forecast, Reason
from kir.learning.induce import mechanism
from kir.learning.induce.excerpt import MOST_GONE, MOST_LINES, difference
from kir.learning.induce.hypotheses import Hypothesis
from kir.learning.induce.mechanism import _told, duration, moved
from kir.learning.induce.prose import _beside, _chance, _left_as_they_are, _place, _short, _spread, _telling, _title
from kir.learning.induce.trials import LED
from tests.kir.learning.cards.test_card import a_card


def test_chances_are_said_as_people_say_them_and_what_follows_from_another_relation_is_left_out() -> None:
    assert [_chance(each) for each in (0.038, 0.00038, 2e-16)] == ["4 %", "1 in 3,000", "less than 1 in a million"]
    texts = ("threads % 128 == 0", "threads * itemsize % 128 == 0", "threads * itemsize % 256 == 0", "k * itemsize % 64 == 0", "k % 64 == 0")
    some = [Relation(text=text, kernels=5, of=7 if text == texts[-1] else 0, chance=0.01) for text in texts]
    assert _telling(some) == [some[0], *some[2:]], "what most kernels keep says nothing of what all keep"


def test_a_place_is_called_what_people_call_it_and_a_form_that_says_nothing_is_left_out() -> None:
    assert _place("for", "for 0..5: ?1") == "It acts at a loop of the form `for 0..5: ?1`, where `?1` stands for what differed from kernel to kernel."
    assert _place("let", "let .. = ?1") == _place("let", "let(..)") == "It acts at a named value." and _place("for", "for 0..?1: ..") == "It acts at a loop."
    assert _place("store", "global[..] = ?1") == "It acts at a store to global memory."
    assert _place("for", f"for 0..5: copy A -> B; {'x = y; ' * 30}") == f"It acts at a loop of the form `for 0..5: copy A -> B; {'x = y; ' * 12}..`."


def test_what_a_step_moves_is_told_by_resource_with_what_takes_longest_before_and_after() -> None:
    reasons = (Reason("shared", 1.85e-3, 1.34e-3), Reason("launch", 3e-6, 2.9e-6), Reason("not hidden", 1e-3, 0.5e-3), Reason("tensor", 1.4e-3, 1.4e-3))
    seen = Forecast((0.5,), (0.3,), 0.0, reasons, seconds=(2e-3, 1.5e-3))
    said, = _told("k", "sm_90a", {"M": 4096, "N": 64}, seen)
    assert said == ("For example `k` on sm_90a, at M = 4,096 and N = 64: 2 ms before it and 1.5 ms after it, as the cost model has it. What changes: shared "
                    "memory, from 1.85 ms to 1.34 ms. What takes longest is the tensor cores; before it was shared memory.")
    assert list(_told("k", "sm_90a", {}, Forecast((0.5,), (0.0,), 0.0, reasons[1:2], seconds=(2e-3, 2e-3)))) == [], "nothing moves by 2 %"


def test_an_example_that_was_recorded_otherwise_is_quoted_last_and_says_so(found: dict[str, Hypothesis], monkeypatch: pytest.MonkeyPatch) -> None:
    each = found["multi-threaded-block.kernel"]
    card = each.card.model_copy(update={"effect": Effect(forecast={"sm_90a": Spread(median=1.0, low=1.0, high=1.0, uses=4)})})
    reasons = (Reason("issue", 2e-3, 1e-3),)
    monkeypatch.setattr(mechanism, "Analytic", lambda: lambda pair: Forecast((0.5,), (math.log(1.5),), 0.0, reasons, seconds=(3e-3, 2e-3)))

    def said(*ratios: float) -> str:
        uses = [replace(use, transition=use.transition.model_copy(update={"speedups": {"sm_90a": ratio}}))
                for use, ratio in zip(each.uses, ratios, strict=True)]
        return " ".join(moved(card, uses))
    assert f"`{each.uses[0].kernel}`" in (near := said(1.45, 2.5, 2.6, 2.7)) and "recorded" not in near, "one that is as it was recorded comes first"
    assert said(2.5, 2.5, 2.5, 2.5).endswith("What was recorded of it, and counts above, is 2.5 times as fast, by the cost model of then.")
    assert not said(1.0, 1.0, 1.0, 1.0), "nor one that was recorded to gain nothing"


@pytest.mark.parametrize(("seconds", "text"), [(21.4, "21.4 s"), (2.5e-4, "250 us"), (3.04e-9, "3.04 ns")])
def test_times_are_in_the_unit_that_suits_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_effects_within_half_a_percent_are_as_good_as_none_and_kernels_of_packages_go_by_their_own_name() -> None:
    said = [_spread(Spread(low=x, median=x, high=x, uses=2)) for x in (1.0, 0.998, 0.9, 1.3)]
    assert said == [f"{x} (2 uses)" for x in ("as fast as before", "about as fast as before, 0.998 times", "slower, 0.9 times as fast", "1.3 times as fast")]
    assert _short("fla:ops/x.py::k") == "`k` of fla" and _short("gemm.kir") == "`gemm.kir`"


def test_a_step_that_makes_way_says_what_comes_of_it_where_a_plan_led_to_it() -> None:
    led = tuple(Entry(what="trial", kernel="k", outcome=f"{LED} `p`, what came after it follows", skill=True, speedup=(x, x, x)) for x in (1.5, 3.0))
    card = a_card(effect=Effect(forecast={"sm_90a": Spread(median=1.0, low=1.0, high=1.0, uses=9)}), log=led)
    said = " ".join(" ".join(_beside(card, ())).split())
    assert said == ("By itself it is not forecast to gain anything. What it makes way for pays: where a plan led another kernel to it, the steps after it are "
                    "forecast to make that kernel 1.5 to 3 times as fast as they do without it (2 kernels).")
    assert _title("linear grid, then raster l2, then tma-load, at a copy") == "Linear grid, then raster L2, then TMA-load, at a copy"
    assert "makes way" not in " ".join(_beside(card.model_copy(update={"log": ()}), ()))


def test_a_step_that_gains_in_a_few_uses_is_not_said_to_gain_in_none(found: dict[str, Hypothesis]) -> None:
    each = found["multi-threaded-block.kernel"]
    even = each.card.model_copy(update={"effect": Effect(forecast={"sm_90a": Spread(median=1.0, low=1.0, high=1.0, uses=4)}), "log": ()})
    for ratios, said in (((1.0, 1.0, 1.0, 1.5), "By itself it is mostly not forecast to gain anything."),
                         ((1.0, 1.0, 1.0, 0.9), "By itself it is not forecast to gain anything.")):
        uses = [replace(use, transition=use.transition.model_copy(update={"speedups": {"sm_90a": ratio}}))
                for use, ratio in zip(each.uses, ratios, strict=True)]
        assert " ".join(" ".join(_beside(even, uses)).split()).startswith(said)


def test_a_step_that_brings_nothing_says_what_it_brings_with_the_next_ones_and_what_no_kernel_chose(found: dict[str, Hypothesis]) -> None:
    each = found["partition-rows.for"]
    even = each.card.model_copy(update={"effect": Effect(forecast={"sm_90a": Spread(median=1.0, low=1.0, high=1.0, uses=4)}), "log": ()})

    def said(ratio: float) -> str:
        uses = []
        for use in each.uses:
            rows = tuple(t.model_copy(update={"speedups": {"sm_90a": 1.0 if t.name == "partition-rows" else ratio}}) for t in use.walked.transitions)
            own = next(t for t in rows if t.number == use.transition.number)
            uses.append(replace(use, transition=own, walked=use.walked.model_copy(update={"transitions": rows})))
        return " ".join(" ".join(_beside(even, uses)).split())
    assert "Together with the 3 steps after it in the lineages it is forecast to make the kernels" in said(2.0) and "Together" not in said(1.0)
    named = dict(_left_as_they_are(each.card, each.uses))
    assert all(len({str(getattr(use.item, name)) for use in each.uses}) == 1 for name in named)
    known = {p.name for move in each.card.carrier.steps for p in move.parameters}
    assert not known & named.keys()


def test_an_excerpt_shows_what_is_new_first_and_no_temporary_that_only_got_another_number() -> None:
    rows = [f"row {k};" for k in range(90)]
    before = ["float v_1_ = 0;", *rows[:40], *(f"x_{k} = x_{k};" for k in range(20)), *rows[40:], "float v_2_ = v_1_;"]
    after = ["float v_7_ = 0;", *rows[:40], *(f"x_{k} = -x_{k};" for k in range(20)), *rows[40:60], "wgmma_fence();", *rows[60:], "float v_8_ = v_7_;"]
    said = difference("\n".join(before), "\n".join(after)).splitlines()
    assert "+wgmma_fence();" in said and not any("v_" in row for row in said), "a new word before many old ones"
    assert said[0] == "..." and said.count("...") >= 2 and len(said) <= MOST_LINES + 4 and "-x_0 = x_0;" in said, "and of the others what there is room for"
    long = difference("\n".join(rows), "\n".join(["a b c", *rows[80:]])).splitlines()
    assert "+a b c" in long and sum(row.startswith("-") for row in long) == MOST_GONE, "of what goes the first lines, for what comes"
    assert difference("a\nb", "a\nb") == ""


def test_an_excerpt_of_code_shows_what_is_new_and_no_counter_that_only_got_another_number() -> None:
    before = "\n".join(["a;", "for (int i_1 = 0;;) x[i_1];", *(f"old_{k}();" for k in range(30)), "end;"])
    after = "\n".join(["a;", "for (int i_3 = 0;;) x[i_3];", *(f"a = a + {k};" for k in range(30)), "mbar_arrive_expect();", "cp_async_bulk();", "end;"])
    said = difference(before, after, emitted=True)
    assert "-for" not in said and "+for" not in said and "+cp_async_bulk();" in said and "+mbar_arrive_expect();" in said
    assert len(said.splitlines()) <= MOST_LINES + 2
    assert "-x[i_1];" in difference("x[i_1];", "x[i_3];") and not difference("x[i_1];", "x[i_3];", emitted=True), "as the IR has it, every name counts"
