"""Cards: reading and writing are inverses, and a wrong card is one located error."""
from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kir.base.diagnostic import KirError, UsageError
from kir.ir.parser import parse_program
from kir.learning.cards.card import (
    Anchor,
    Card,
    Carrier,
    Counterexample,
    Effect,
    Entry,
    Evidence,
    Move,
    Parameter,
    Precondition,
    Relation,
    Risk,
    Scope,
    Spread,
    Use,
    card_text,
    parse_card,
)
from kir.learning.cards.export import MOST_DESCRIPTION, MOST_NAME, description, export_skills, library_json, skill_name
from kir.learning.cards.library import CardStore, Library
from kir.learning.cards.search import Query

words = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=30)
counts = st.integers(0, 99)
names = st.from_regex(r"[a-z0-9][a-z0-9_.-]{0,20}", fullmatch=True)
spreads = st.builds(Spread, median=st.floats(0.1, 10), low=st.floats(0.1, 10), high=st.floats(0.1, 10), uses=counts)
values = st.one_of(st.booleans(), st.integers(-5, 5), words, st.lists(st.integers(0, 5), min_size=1, max_size=3).map(tuple))
parameters = st.builds(Parameter, name=words, role=st.sampled_from(["found", "fixed", "chosen"]), values=st.lists(values, max_size=3).map(tuple))
texts = st.lists(words, max_size=2).map(tuple)
cards = st.builds(
    Card, name=names, state=st.sampled_from(["hypothesis", "admitted", "deprecated", "retired", "negative"]), why=words, title=words, intent=words,
    anchor=st.builds(Anchor, node=words, pattern=words, places=counts),
    carrier=st.builds(Carrier, kind=st.sampled_from(["pass", "composite"]), relations=st.lists(st.builds(
        Relation, text=words, kernels=counts, chance=st.floats(0, 1)), max_size=2).map(tuple),
        steps=st.lists(st.builds(Move, step=words, parameters=st.lists(parameters, max_size=2).map(tuple)), min_size=1, max_size=2).map(tuple)),
    preconditions=st.lists(st.builds(Precondition, id=words, kind=st.sampled_from(["validity", "profit"]), category=words, sentence=words, proved=counts,
                                     refused=counts), max_size=2).map(tuple),
    effect=st.builds(Effect, forecast=st.dictionaries(words, spreads, max_size=2), realized=counts, compared=counts),
    evidence=st.builds(Evidence, kernels=counts, uses=st.lists(st.builds(
        Use, kernel=words, package=words, family=words, surface=words, lineage=words, transition=counts, before=words, after=words), max_size=2).map(tuple)),
    risk=st.builds(Risk, numerics=words, hazards=texts, counterexamples=st.lists(st.builds(Counterexample, program=words, step=words, says=words),
                                                                                max_size=1).map(tuple)),
    scope=st.builds(Scope, families=texts, packages=texts, surfaces=texts, platforms=texts, prior=texts),
    log=st.lists(st.builds(Entry, what=st.sampled_from(["lifted", "trial"]), outcome=words, skill=st.none() | st.booleans()), max_size=2).map(tuple),
    prose=words)


def a_card(name: str = "unroll.for", **more: object) -> Card:
    base = Card(name=name, title="unroll at a loop", intent="unroll", anchor=Anchor(node="for", pattern="for 0..?1: ..", places=3),
                carrier=Carrier(kind="pass", steps=(Move(step="unroll", parameters=(
                    Parameter(name="factor", role="chosen", values=(2,), kernels=(3,), low=2, high=2),)),)),
                preconditions=(Precondition(id="KIR-P520", kind="validity", category="shape", sentence="the factor divides the range", proved=3),),
                effect=Effect(forecast={"sm_90a": Spread(median=1.2, low=1.1, high=1.3, uses=3)}),
                evidence=Evidence(kernels=3, uses=()), risk=Risk(numerics="bitwise"),
                scope=Scope(families=("softmax",), packages=("experts",), surfaces=("cuda",), platforms=("sm_90a",)), prose="# Unroll\n\nA loop, unrolled.\n")
    return base.model_copy(update=more)


@given(cards)
def test_a_card_reads_back(card: Card) -> None:
    text = card_text(card)
    assert parse_card(text, "x.md") == card
    assert card_text(parse_card(text, "x.md")) == text


def test_a_card_of_before_a_parameter_was_renamed_is_read() -> None:
    card = a_card(carrier=Carrier(kind="pass", steps=(Move(step="partition-reduction", parameters=(
        Parameter(name="distribution", role="fixed", values=("every",)),)), Move(step="unroll", parameters=(Parameter(name="dealt", role="found"),)))))
    text = card_text(card)
    assert parse_card(text.replace('"distribution"', '"dealt"'), "x.md") == card and '"dealt"' in text


@pytest.mark.parametrize(("old", "new", "message", "line"), [
    ('"intent": "unroll"', '"intnt": "unroll"', "there is no field 'intnt'; did you mean 'intent'?", '"intnt"'),
    ('"node": "for"', '"node": "for", "patern": 1', "there is no field 'anchor.patern'; did you mean 'pattern'?", "1"),
    ('"places": 3', '"places": -3', "the field 'anchor.places' is wrong", '"places"'),
    ('"state": "admitted"', '"state": "perfect"', "the field 'state' is wrong", '"state"'),
    ('"numerics": "bitwise"', '"numerics": ', "this is not JSON", None),
    ('"schema": "kir.card/3"', '"schema": "kir.card/1"', "this is no card that this KIR reads: its schema is 'kir.card/1'", None),
    ("## Record", "## Recrod", "a card ends with a heading", None),
    ("\n```\n", "\n", "a card ends with a heading", None),
])
def test_a_wrong_card_is_one_located_error(old: str, new: str, message: str, line: str | None) -> None:
    text = card_text(a_card(state="admitted"))
    assert old in text
    place = text.rindex(old)
    broken = text[:place] + new + text[place + len(old):]
    with pytest.raises(KirError) as caught:
        parse_card(broken, "card.md")
    (found,) = caught.value.diagnostics
    assert found.id == "KIR-S020" and message in found.message and found.origin is not None and found.origin.file == "card.md"
    if line is not None:
        assert line in broken.split("\n")[found.origin.line - 1]


def test_the_users_library_hides_the_shipped_one(tmp_path: Path) -> None:
    own, shipped = CardStore(tmp_path / "own"), CardStore(tmp_path / "shipped")
    shipped.put(a_card())
    shipped.put(a_card("tile.kernel"))
    own.put(a_card(state="admitted"))
    (tmp_path / "own" / "broken.md").write_text("no card\n")
    both = Library((own, shipped))
    assert [(each.name, each.state) for each in both.cards] == [("tile.kernel", "hypothesis"), ("unroll.for", "admitted")]
    assert [each.name for each in both.admitted] == ["unroll.for"] and [each.id for each in both.faults] == ["KIR-S020"]
    assert not both.without(["unroll.for"]).admitted and both.admitted
    with pytest.raises(UsageError, match=r"did you mean 'unroll\.for'"):
        both.card("unrol.for")
    with pytest.raises(UsageError) as named:
        both.card("unroll")
    assert "unroll.for" in str(named.value)
    with pytest.raises(KirError, match="not written to"):
        CardStore(tmp_path, writable=False).put(a_card())


def test_two_cards_of_one_name_are_one_error_and_the_first_stays_readable(tmp_path: Path) -> None:
    store = CardStore(tmp_path)
    store.put(a_card())
    (tmp_path / "zcopy.md").write_text(card_text(a_card()))
    found = Library((store,))
    assert [each.name for each in found.cards] == ["unroll.for"]
    (fault,) = found.faults
    assert fault.id == "KIR-S024" and "unroll.for.md is there too" in " ".join(fault.witness)


@given(cards)
def test_exported_skills_keep_to_the_open_format(card: Card) -> None:
    assert len(skill_name(card)) <= MOST_NAME and len(description(card)) <= MOST_DESCRIPTION


def test_cards_are_exported_as_folders_and_as_one_object(tmp_path: Path) -> None:
    (path,) = export_skills([a_card()], tmp_path)
    assert path == tmp_path / "unroll-for" / "SKILL.md"
    front = path.read_text().split("---")[1]
    assert "name: unroll-for\n" in front and 'description: "A loop, unrolled. Use it on GPU kernels' in front
    told = a_card(prose="# Unroll\n\n*Admitted: 3 of 3 trials\nsucceeded.*\n\nUnrolls `a` loop. Fewer tests.\n\nIt acts at a loop of the form `for`.\n")
    assert description(told).startswith("Unrolls a loop. Fewer tests. Use it on GPU kernels (cuda) at a loop, where ")
    assert description(told).endswith(". Admitted: 3 of 3 trials succeeded.")
    (only,) = library_json([a_card()])["cards"]
    assert only["name"] == "unroll.for" and len(only["digest"]) == 64 and only["prose"].startswith("# Unroll")


def test_a_query_says_what_a_program_computes_more_than_once() -> None:
    twice = ("kir 1\nprogram twice\n  size N: i32\n  in X: f32[N]\n  out Y: f32[N]\nkernel main grid (i: N) threads 1\n"
             "  let e = exp(X[i])\n  Y[i] = e * exp(X[i])\n")
    assert {"call in let", "call in store", "load in store"} <= Query.of(parse_program(twice)).again
    once = Query.of(parse_program(twice.replace("e * exp(X[i])", "e * 2.0")))
    assert not once.again and not any(each.startswith("again") for each in once.state)
