"""The shipped lineages: each is replayed to the letter on a machine without a GPU, and the crossing table is what they give."""
from __future__ import annotations

import pytest

from benchmarks import crossing
from kir.lineage.engine import PassEngine
from kir.lineage.folder import Folder
from kir.lineage.replay import replay

SHIPPED = {folder.root.name: folder for folder in crossing.lineages()}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_lineage_replays_to_the_letter(name: str) -> None:
    folder: Folder = SHIPPED[name]
    record = folder.read()
    done = replay(record, folder, PassEngine.of(record.header))
    assert done.ok and all(each.exact for each in done.transitions), [str(d) for d in done.diagnostics]
    assert record.outcome.ended == "naive" and record.accepted


def test_the_crossing_table_has_a_row_for_each_lineage_and_surface() -> None:
    rows = [line for line in crossing.PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][2:]
    records = [folder.read().header for folder in crossing.lineages()]
    wanted = [(header.expert, kernel.surface) for header in records for kernel in crossing.naive_kernels(header.problem)]
    assert [(row.split("`")[1], row.split("|")[3].strip()) for row in rows] == wanted


@pytest.mark.zoo
def test_a_row_of_the_table_is_what_the_lineage_gives() -> None:
    folder = SHIPPED["gemm_tilelang"]
    for kernel in crossing.naive_kernels("gemm"):
        assert crossing.row(folder, kernel) in crossing.PAGE.read_text(encoding="utf-8")
