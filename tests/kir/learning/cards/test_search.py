"""What is found for a kernel can be carried out there, says what it brought, and is not offered again where it is done."""
from __future__ import annotations

import pytest

from kir.base.diagnostic import KirError
from kir.ir.parser import parse_program
from kir.learning.cards.card import Card, Carrier, Effect, Move, Parameter, Spread
from kir.learning.cards.search import search
from kir.learning.cards.use import materialized
from tests.kir.learning.cards.test_card import a_card

ROWS = """kir 1
program rows
  in X: f32[M, 256]
  out Y: f32[M, 256]
  size M: i32
kernel main grid (row: M) threads 1
  for j in 0..256
    let x = X[row, j]
    Y[row, j] = x / sqrt(X[row, 0])
  Y[row, 0] = X[row, 0]
"""


def drawn(node: str) -> Card:
    move = Move(step="retain-tile", parameters=(Parameter(name="value", role="drawn", values=("load",)),))
    return a_card("retain-tile.let", anchor=a_card().anchor.model_copy(update={"node": node}), carrier=Carrier(kind="pass", steps=(move,)))


def test_what_has_a_name_is_not_named_again() -> None:
    done = materialized(drawn("let"), parse_program(ROWS))
    assert [step.options["value"] for step in done.steps] == ["X[row, 0]"], "`x` is a name already"
    assert [step.at for step in materialized(drawn("for"), parse_program(ROWS)).steps] == ["main/j"], "once before the loop, for all behind it"


def test_a_hit_says_what_its_uses_brought() -> None:
    spread = Spread(median=1.5, low=1.2, high=2.0, uses=3)
    card = a_card(effect=Effect(forecast={"sm_90a": spread, "sm_80": spread}, compared=3))
    program = parse_program(ROWS)
    (hit,) = [each for each in search([card], program) if each.applications]
    assert "effect: forecast 1.5 times as fast (half of them 1.2 to 2) in 3 uses on sm_90a; none of them changed the compiled code" in hit.reasons
    seen = card.model_copy(update={"effect": Effect(forecast={"sm_90a": spread}, measured={"h200": Spread(median=1.0, low=1.0, high=1.0, uses=1)})})
    assert "effect: measured as fast as before in 1 use on h200" in search([seen], program)[0].reasons


def test_what_a_check_refuses_is_a_near_miss_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from kir.base.diagnostic import error

    def refuses(*about: object, **more: object) -> None:
        raise error("KIR-R006", "the inverse is not exact here")
    monkeypatch.setattr("kir.learning.cards.use.run", refuses)
    (hit,) = search([a_card()], parse_program(ROWS))
    assert not hit.applications and hit.near[0].anchor == "main/j" and hit.near[0].conditions == ("KIR-R006: the inverse is not exact here",)
    with pytest.raises(KirError) as caught:
        materialized(a_card(), parse_program(ROWS))
    assert "main/j: KIR-R006: the inverse is not exact here" in caught.value.diagnostics[0].witness


def test_a_skill_of_which_nothing_has_a_place_is_no_near_miss() -> None:
    several = a_card("wgmma_tma-load.mma", carrier=Carrier(kind="composite", steps=(Move(step="wgmma"), Move(step="tma-load"))))
    assert search([several], parse_program(ROWS)) == ()
