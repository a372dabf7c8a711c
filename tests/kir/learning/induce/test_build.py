"""A library is made card by card: what was tried is kept, and holds while code and evidence are the same."""
from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import pytest

from kir.learning.evidence.walked import Walked
from kir.learning.evidence.walks import finished
from kir.learning.induce import build as build_
from kir.learning.induce.build import build
from kir.learning.induce.hypotheses import Hypothesis

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
    monkeypatch.setattr(build_, "_finished", lambda each, walks: (again.append(each.card.name), whole(each, walks))[1])
    assert build(some, kept=tmp_path) == fresh and len(again) == len(fresh) - 2, "the two that were tried are not tried again"
    assert build(some, kept=tmp_path) == fresh and len(again) == len(fresh) - 2
    monkeypatch.setattr(build_, "_code", lambda: "another")
    assert build(some, kept=tmp_path) == fresh and len(again) == 2 * len(fresh) - 2, "by other code all are tried again"
