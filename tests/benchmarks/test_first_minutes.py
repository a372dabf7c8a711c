"""The page of first minutes says what a run printed; the page of lineages that were read what their records say."""
from __future__ import annotations

import json

from benchmarks.users import looked_at
from benchmarks.users.first_minutes import Minute, page, recorded, told


def test_a_row_is_what_the_run_said() -> None:
    notice = {"id": "KIR-S060", "severity": "warning", "message": "read as launched", "notes": ["assumed, as nothing says it: x is f32", "line 3 too"]}
    walked = told("Triton", "a.py::k", 12.4, 9.6, json.dumps({"steps": 5, "ended": "naive", "diagnostics": [notice]}), "")
    asked = told("CUDA", "b.cu::k", 1.0, 1.0, "",
                 "error[KIR-S061] /opt/lib/site-packages/b.cu:3 launches k, and leaves open: grid, metas.N\n   = needs: an answer")
    text = page([walked, asked], 60)
    assert "| Triton | `a.py::k` | 20 | 12 (10) | 5 | naive | 1 |  |  |" in text and "1 of 2 kernels gave a walk" in text
    assert "| CUDA | `b.cu::k` | 43 | 1 (1) |  | KIR-S061] b.cu:3 launches k, and leaves open: grid, metas.N | 0 | grid, metas.N |  |" in text
    compared = page([asked], 60, {"b.cu::k": walked, "a.py::k": walked}, "0123abc")
    assert "| 12 (10) s, 5 steps, naive |" in compared and "Before: commit 0123abc." in compared


def test_the_runs_that_are_kept_are_of_kernels_of_the_list() -> None:
    for each in recorded():
        rows = [Minute(**row) for row in each["rows"]]
        assert len({row.kernel for row in rows}) == len(rows) == 10 and each["commit"]


def test_the_page_of_lineages_that_were_read_is_that_of_the_rows() -> None:
    rows, on = looked_at.kept()
    assert looked_at.PAGE.read_text(encoding="utf-8") == looked_at.page(rows, on)
    assert [r.kernel for r in rows] == list(looked_at.KERNELS) and all(looked_at.KERNELS.values())
    assert all(r.ended == "naive" and len(r.plain.splitlines()) <= len(r.naive.splitlines()) and r.steps for r in rows)
    assert {r.surface for r in rows} == {"triton", "tilelang", "cuda"}
