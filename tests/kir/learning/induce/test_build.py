"""A library is made card by card: what was tried is kept, and holds while code and evidence are the same."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from kir.base.diagnostic import UsageError
from kir.base.store import EvidenceTable
from kir.learning.cards.card import Effect, Entry, Spread
from kir.learning.cards.search import RANK, WEIGHTS, Rank, rank_of
from kir.learning.evidence.ledger import ledger, of_search, record, tallies
from kir.learning.evidence.walked import Walked
from kir.learning.evidence.walks import finished
from kir.learning.induce import build as build_
from kir.learning.induce.build import build, write_cards
from kir.learning.induce.hypotheses import Hypothesis, hypotheses
from kir.learning.induce.rank import SELDOM, _in_the_mean
from kir.learning.induce.uses import Use, uses
from tests.kir.learning.cards.test_card import a_card
from tests.kir.learning.induce.conftest import NAMES

ROW = Path(str(resources.files("kir.skills") / "lineages" / "softmax_tilelang"))


def test_a_killed_run_goes_on_with_the_cards_that_were_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some, tried = tuple(finished([ROW])), list[str]()
    whole = build_._finished
    monkeypatch.setattr(build_, "tried", lambda *about: ())
    monkeypatch.setattr(build_, "transferred", lambda card, walks, forecaster: ())

    def killed(each: Hypothesis, walks: Sequence[Walked]) -> object:
        if len(tried) == 2:
            raise KeyboardInterrupt
        tried.append(each.card.name)
        return whole(each, walks)
    monkeypatch.setattr(build_, "_finished", killed)
    with pytest.raises(KeyboardInterrupt):
        build(some, kept=tmp_path)
    monkeypatch.setattr(build_, "_finished", whole)
    fresh = build(some)
    again = list[str]()

    def counted(each: Hypothesis, walks: Sequence[Walked]) -> object:
        again.append(each.card.name)
        return whole(each, walks)
    monkeypatch.setattr(build_, "_finished", counted)
    assert build(some, kept=tmp_path) == fresh and len(again) == len(fresh) - 2, "the two that were tried are not tried again"
    assert build(some, kept=tmp_path) == fresh and len(again) == len(fresh) - 2
    by = build_.code
    monkeypatch.setattr(build_, "code", lambda without=build_.NO_CODE: by(without) if without == build_.NO_TRIAL else "told otherwise")
    monkeypatch.setattr(build_, "told", lambda card, group: f"# {card.name} told otherwise\n")
    other = build(some, kept=tmp_path)
    assert len(again) == len(fresh) - 2 and [card.log for card in other] == [card.log for card in fresh], "cards that are told otherwise are not tried again"
    assert all(card.prose == f"# {card.name} told otherwise\n" for card in other)
    monkeypatch.setattr(build_, "code", lambda without=(): "another")
    assert build(some, kept=tmp_path) == other and len(again) == 2 * len(fresh) - 2, "by other code all are tried again"

    def raises(lift: object, group: Sequence[Use], composite: bool) -> tuple[Entry, ...]:
        if group == first.uses:
            raise RecursionError
        return ()
    first = hypotheses(some, uses(some))[0]
    monkeypatch.setattr(build_, "tried", raises)
    said = {card.name: card for card in build(some)}
    assert "raised RecursionError" in said[first.card.name].why and said[first.card.name].state == "hypothesis"
    assert [card.why for card in said.values() if "raised" in card.why] == [said[first.card.name].why], "the others are made"


def test_what_tells_a_card_is_no_part_of_what_a_trial_depends_on() -> None:
    home = Path(build_.__file__).parents[2]
    assert all((home / name).exists() for name in build_.NO_TRIAL)
    assert build_.code() == build_.code() != build_.code(build_.NO_TRIAL)


def test_some_cards_are_made_as_the_whole_library_has_them_and_the_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = tuple(finished([ROW]))
    monkeypatch.setattr(build_, "tried", lambda *about: ())
    monkeypatch.setattr(build_, "transferred", lambda card, walks, forecaster: ())
    whole = build(some)
    write_cards(tmp_path, whole)
    before = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    (one,) = build(some, only=(whole[0].name,))
    assert one == whole[0]
    (path,) = write_cards(tmp_path, (one,), whole=False)
    (tmp_path / RANK).write_text(json.dumps({"least": 1.5, "weights": dict(WEIGHTS), "states": {"gone.for": [1.0, {}]}}))
    write_cards(tmp_path, (one.model_copy(update={"state": "admitted"}),), whole=False)
    assert rank_of(tmp_path) == Rank(WEIGHTS, {one.name: (SELDOM, {})}, 1.5), "the order stays, and has the admitted cards"
    write_cards(tmp_path, whole)
    with pytest.raises(UsageError) as caught:
        build(some, only=("no.such",))
    assert caught.value.diagnostics[0].id == "KIR-S050"
    assert path.name == f"{one.name}.md" and {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == before


def test_the_command_makes_the_same_files_in_one_process_and_in_several_whatever_order_sets_have(tmp_path: Path) -> None:
    """With every trial: workers, the seed of hashes and the order of what is named change nothing but the time."""
    made, cards = [], ("reuse-operand.store",)  # tried on kernels that use it, and on others
    for workers, order in ((1, NAMES), (2, NAMES[::-1])):
        out = tmp_path / str(workers)
        words = ["learn", *(str(ROW.parent / name) for name in order), "-o", str(out), "--workers", str(workers), *(f"--only={name}" for name in cards)]
        subprocess.run([sys.executable, "-c", "from kir.faces.cli import main; main()", *words], env={**os.environ, "PYTHONHASHSEED": str(workers)},
                       check=True, capture_output=True)
        made.append({path.relative_to(out): path.read_bytes() for part in ("cards", "evidence") for path in sorted((out / part).iterdir())})
    assert made[0] == made[1] and {Path("cards") / f"{name}.md" for name in cards} <= set(made[0])
    assert all(b'"what": "trial"' in made[0][Path("cards") / f"{name}.md"] for name in cards)


def test_a_skill_that_hardly_any_state_shows_is_told_as_skills_are_in_the_mean() -> None:
    always, never, half = (np.array(row) for row in ([True] * 4, [False] * 4, [True, True, False, False]))
    assert _in_the_mean([(always, always), (always, never)]) == 0.0 and _in_the_mean([]) == SELDOM
    assert _in_the_mean([(always, half)]) == 0.0 < _in_the_mean([(always, always), (always, half), (never, never)]), "what never applies counts for nothing"


def test_what_a_search_shows_of_cards_is_recorded_once(tmp_path: Path) -> None:
    def plan(card: str, key: str, speedup: float, start: str = "as it is") -> dict[str, object]:
        return {"event": "plan", "plan": f"card {card} cuda place=0", "start": start, "candidate": key, "speedup": speedup}
    rows: list[dict[str, object]] = [
        {"event": "begin", "problem": "rmsnorm"}, plan("gains", "a", 1.5), plan("gains", "a2", 9.0), plan("refused", "b", 2.0), plan("way", "c", 1.0),
        plan("idle", "d", 1.0), {"event": "plan", "plan": "pass tile", "start": "", "candidate": "e", "speedup": 3.0},
        {"event": "gate", "candidate": "b", "accepted": False}, plan("strange", "f", 2.0)]
    assert of_search(rows) == {"gains": ("helped", 1.5), "refused": ("failed", 0.0), "way": ("neutral", 1.0), "idle": ("neutral", 1.0),
                               "strange": ("helped", 2.0)}
    log, cards = tmp_path / "search.jsonl", [a_card(name) for name in ("gains", "refused", "way", "idle")]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    cards[2] = cards[2].model_copy(update={"effect": Effect(forecast={"sm_90a": Spread(median=1.0, low=0.9, high=1.4, uses=3)})})
    with EvidenceTable(ledger(tmp_path)) as table:
        assert record(table, log, cards) == 3 and record(table, log, cards) == 0, "a step that only makes way for others is not judged by itself"
        assert tallies(table) == {"gains": {"helped": 1}, "refused": {"failed": 1}, "idle": {"neutral": 1}}
        log.write_text("{}\n")
        with pytest.raises(UsageError, match="is no log of a search"):
            record(table, log, cards)
