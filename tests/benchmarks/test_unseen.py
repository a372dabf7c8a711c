"""The page of packages as first seen: why kernels are not read back equal, by count."""
from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.packages import unseen


def test_why_is_said_of_each_kernel_once() -> None:
    here, elsewhere = "/there/p/a.py", "/there/p/amd/b.py"
    records: list[dict[str, Any]] = [
        {"file": here, "state": "equal"}, {"file": here, "state": "clean", "message": "a line | another"}, {"file": elsewhere, "state": "equal"},
        {"file": here, "state": "parsed", "opaque": [{"reason": "it uses 'x', which is not understood"}, {"reason": "inline asm: a jump other"}]},
        {"file": here, "state": "parsed", "opaque": [{"reason": "an address as an integer"}]}, {"file": here, "state": "refused", "message": "odd"},
        {"file": elsewhere, "state": "parsed", "opaque": [{"reason": "inline asm"}]}]
    left = unseen._left(records, Path("/there/p"))
    assert sum(left.values()) == 4 and left["written, and read back otherwise or refused"] == left["the address of a tensor as a number"] == left["others"] == 1
    row = {"surface": "triton", "package": "p", "left": left, "elsewhere": unseen._elsewhere(records, Path("/there/p"))}
    told = "\n".join(unseen._ways([row]))
    assert "| for other vendors' devices, in words of theirs | 1 | 1 |" in told and "| others | 1 | 1 |" in told
    assert unseen._ways([row, *({"surface": "triton", "package": name} for name in "qr")]) == []  # most packages do not say it
