"""The table of the docs is the registry's."""
from __future__ import annotations

from pathlib import Path

from kir.rewrite.catalog import summaries, table


def test_the_table_of_passes_is_current() -> None:
    page = Path(__file__).parents[2] / "docs" / "tables" / "passes.md"
    assert page.read_text(encoding="utf-8") == table(summaries()), "run: kir passes --markdown > docs/tables/passes.md"
