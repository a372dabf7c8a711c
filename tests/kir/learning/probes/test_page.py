"""The page of probes counts a forced site once, under its strongest claim, and names what is right though it is called refuted."""
from __future__ import annotations

from collections import Counter

from benchmarks.checks.probes_page import EXPLAINED, page, unexplained
from kir.learning.probes.record import Probe, Refusal
from kir.learning.probes.sampling import Tally


def refused(step: str, outcome: str, *refusals: tuple[str, str]) -> Probe:
    return Probe.model_validate({"program": "kir 1", "hash": "0", "step": step, "problem": "gemm", "target": "sm_80", "status": "refused", "outcome": outcome,
                                 "refusals": tuple(Refusal.model_validate({"id": i, "standing": s, "reason": "why"}) for i, s in refusals)})


def test_counts_and_explanations() -> None:
    explained = next(iter(EXPLAINED))
    rows = [("a", refused("unroll{factor=3}@main/k", "wrong", ("KIR-P520", "by size"))),
            ("a", refused("fuse-loops@main/k", "right", ("KIR-P841", "refuted"))),
            ("b", refused("alias-shared-lifetimes{buffer=A}@main/B", "right", (explained, "refuted"))),
            ("b", refused("mask-tail@main/k", "right", ("KIR-P540", "by size"), ("KIR-P541", "unknown")))]
    assert [p.step for _, p in unexplained(rows)] == ["fuse-loops@main/k"]
    tally = Tally(matched=Counter(tile=3), offered=Counter(tile=2), applied=Counter(tile=2), near=Counter(tile=1), reasons={("tile", "why"): 1})
    text = page(tally, rows, [("tile", "a", [refused("tile@main", "right")])], 2, "the command")
    assert "2 were offered, and 2 of these applied (100.0 %)" in text and "2 were called refuted, of which 2 were right at all tried sizes (100.0 %)" in text
    assert "| mask-tail | KIR-P540 | shape | 0 | 0 | 0 | 0 | 0 | 1 | 0 | 0 | 0 |" in text and "**not explained**" in text and EXPLAINED[explained] in text
    assert "Written by `the command`" in text and "| tile | 3 | 0 | 1 | 2 | 2 |" in text
