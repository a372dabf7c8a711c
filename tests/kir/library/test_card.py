"""Cards: reading and writing are inverses, and a wrong card is one located error."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kir.learning.cards.lift import cards_of
from kir.learning.cards.shelf import Library, Shelf

from kir.base.diagnostic import KirError, UsageError
from kir.learning.cards.card import Anchor, Card, Carrier, Effect, Entry, Evidence, Precondition, Risk, Scope, card_text, parse_card
from kir.lineage.records.folder import Folder
from tests.kir.lineage.toy import ToyEngine, ToyJudge, finished, walked

words = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=30)
numbers = st.floats(allow_nan=False, allow_infinity=False)
names = st.from_regex(r"[a-z0-9][a-z0-9_.-]{0,20}", fullmatch=True)
tables = st.dictionaries(words, words, max_size=3)

cards = st.builds(
    Card,
    name=names,
    status=st.sampled_from(["hypothesis", "admitted", "deprecated", "retired"]),
    intent=words,
    anchor=st.builds(Anchor, place=words, pattern=words),
    carrier=st.builds(Carrier, kind=st.sampled_from(["pass", "template"]), text=words),
    preconditions=st.lists(
        st.builds(
            Precondition,
            id=words,
            kind=st.sampled_from(["validity", "profit"]),
            category=words,
            sentence=words,
            verdict=st.sampled_from(["proved", "unknown"]),
            detail=words,
        ),
        max_size=3,
    ).map(tuple),
    effect=st.builds(Effect, modelled=st.dictionaries(words, numbers, max_size=2), predicted=st.dictionaries(words, numbers, max_size=2)),
    evidence=st.builds(
        Evidence,
        lineage=words,
        transition=st.integers(0, 99),
        before=words,
        after=words,
        gate=st.just("cpu"),
        realized=st.booleans(),
        differences=tables,
    ),
    risk=st.builds(Risk, numerics=words, hazards=st.lists(words, max_size=3).map(tuple), residue_bytes=st.integers(0, 99)),
    scope=st.builds(Scope, case=words, surface=words, platforms=st.just(("sm_80",)), prior=st.lists(words, max_size=2).map(tuple)),
    log=st.lists(st.builds(Entry, what=words, outcome=words, tools=tables), max_size=2).map(tuple),
    prose=words,
)


@given(cards)
def test_a_card_reads_back(card: Card) -> None:
    text = card_text(card)
    assert parse_card(text, "x.md") == card
    assert card_text(parse_card(text, "x.md")) == text


@pytest.fixture
def lifted(tmp_path: Path) -> tuple[Card, ...]:
    return cards_of(finished(tmp_path, walked(tmp_path, ToyEngine(), ToyJudge(ignored="b"))), Folder(tmp_path))


def test_each_transition_gives_a_card(lifted: tuple[Card, ...]) -> None:
    assert [card.name for card in lifted] == ["toy-01-set-c", "toy-02-set-b", "toy-03-set-a"]
    assert [card.scope.prior for card in lifted] == [(), ("set c",), ("set c", "set b")]
    assert [card.evidence.realized for card in lifted] == [True, False, True]
    last = lifted[-1]
    assert last.carrier.text == "set-a{value=1}@main"
    assert last.effect.modelled == {"sm_80": 2.0}
    assert "+kernel main grid (i: 4) threads 1 {a=1, b=2, c=3}" in last.prose
    assert "KIR-P990" in last.prose and "The kernel is there." in last.prose
    assert "no claim of profit" in lifted[1].prose


@pytest.mark.parametrize(
    ("old", "new", "message", "line"),
    [
        ('intent = "set a"', 'intnt = "set a"', "there is no field 'intnt'; did you mean 'intent'?", "intnt"),
        ("[anchor]\n", '[anchor]\npatern = "x"\n', "there is no field 'anchor.patern'; did you mean 'pattern'?", 'patern = "x"'),
        ("status = ", "color = 1\nstatus = ", "there is no field 'color'", "color = 1"),
        ('id = "KIR-P990"', "id = 7", "the field 'preconditions.0.id' is wrong", "id = 7"),
        ('numerics = "bitwise"', "numerics = ", "this is not TOML", "numerics = "),
        ("+++\n", "", "a card opens with TOML", "+++"),
    ],
)
def test_a_wrong_card_is_one_located_error(lifted: tuple[Card, ...], old: str, new: str, message: str, line: str | None) -> None:
    text = card_text(lifted[-1])
    assert old in text
    broken = text.replace(old, new, 1)
    with pytest.raises(KirError) as caught:
        parse_card(broken, "card.md")
    assert len(caught.value.diagnostics) == 1
    found = caught.value.diagnostics[0]
    assert found.id == "KIR-S020" and message in found.message and found.origin is not None and found.origin.file == "card.md"
    if line is not None and line != "+++":
        assert broken.split("\n")[found.origin.line - 1].startswith(line)


def test_the_users_shelf_hides_the_shipped_one(lifted: tuple[Card, ...], tmp_path: Path) -> None:
    own, shipped = Shelf(tmp_path / "own"), Shelf(tmp_path / "shipped")
    shipped.put(lifted[0])
    shipped.put(lifted[1])
    own.put(lifted[0].model_copy(update={"status": "admitted"}))
    (tmp_path / "own" / "broken.md").write_text("no card\n")
    both = Library((own, shipped))
    cards, faults = both.cards()
    assert [(each.card.name, each.card.status) for each in cards] == [("toy-01-set-c", "admitted"), ("toy-02-set-b", "hypothesis")]
    assert [each.id for each in faults] == ["KIR-S020"]
    assert both.card("toy-02-set-b").card == lifted[1]
    with pytest.raises(UsageError, match="did you mean 'toy-01-set-c'"):
        both.card("toy-01-set-")
    with pytest.raises(KirError, match="not written to"):
        Shelf(tmp_path, writable=False).put(lifted[0])
