"""The table of packages: rows named by their package, counted, and nothing of the machine that they were measured on."""
from __future__ import annotations

from benchmarks.optimize.packaged import _row, page

ROW = {"kernel": "/here/site-packages/liger_kernel/ops/softmax.py::k", "binding": "liger_kernel-k-1", "launches": 2, "speedup": 1.25, "took": 3.0, "remark": "",
       "tried": [1, 2], "baseline": {"seconds": 5e-6}, "best": {"seconds": 4e-6, "plan": "threads k triton threads=512"}}


def test_rows_are_named_by_their_package_and_counted() -> None:
    other = {**ROW, "speedup": 1.0, "best": None, "baseline": None, "remark": "KIR-B005: no"}
    rows = [_row(r) for r in (ROW, other, {**ROW, "speedup": 1.05})]
    assert rows[0]["kernel"] == "liger_kernel:ops/softmax.py::k" and rows[1]["seconds"] is None
    told = "\n".join(page(rows, {"command": "c", "device": "d", "when": "w", "calls": 3, "skipped": 0}))
    assert "1 are at least 1.1 times as fast, 2 faster at all" in told and "KIR-B005: no" in told and "/here" not in told
