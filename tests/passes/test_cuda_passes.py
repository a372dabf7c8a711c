"""The page about the passes that CUDA makes visible has a row for each, and each is registered, goes both ways and has its mistakes caught."""
from __future__ import annotations

import pytest

from benchmarks.surfaces.cuda_passes import ASKED, PAGE, directions, forced
from kir.rewrite import passes

ALL = {cls.name: cls for cls in passes()}
NAMES = [(what, name) for what, names in ASKED.items() for name in names]


@pytest.mark.parametrize(("what", "name"), NAMES)
def test_a_pass_goes_both_ways_and_its_mistakes_are_caught(what: str, name: str) -> None:
    ahead, back = directions(name)
    assert ahead >= 1 and back >= 1
    assert forced(ALL[name]) and all(forced(ALL[name]).values())


def test_the_page_has_a_row_for_each() -> None:
    rows = [line.split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][2:]
    assert [(r[0].removeprefix("| "), r[1].strip("`")) for r in rows] == NAMES
    for r in rows:
        assert "NO CASE" not in r[3] and all(i in r[3] for i in forced(ALL[r[1].strip("`")]))
        assert not any("KIR-B010" in cell for cell in r)
