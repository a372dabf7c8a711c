"""Passes by family on the command line."""
from __future__ import annotations

import json

import pytest

from kir.base.registry import registry
from tests.command_line import called


def test_a_family_is_listed_with_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "passes", "--family", "layout")
    assert code == 0 and out.startswith("layout: ") and "pad-shared" in out and "\n  unroll " not in out
    told = json.loads(called(capsys, "passes", "--family", "layout", "--json")[1])
    assert {row["family"] for row in told["passes"]} == {"layout"}


def test_every_shipped_pass_has_a_family_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    shipped = {e.name: e.family for e in registry("kir.passes") if e.source.package == "kir.passes"}
    assert all(shipped.values())
    out = called(capsys, "passes")[1]
    assert all(f"{family}: " in out for family in shipped.values())


def test_a_family_that_is_not_there_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = called(capsys, "passes", "--family", "layuot")
    assert code == 2 and "KIR-X007" in err and "did you mean 'layout'?" in err
