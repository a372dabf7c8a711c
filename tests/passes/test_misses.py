"""Places that look like a site of a pass and are none, and what is said of them."""
from __future__ import annotations

import pytest

from kir.ir.parser import parse_program
from kir.rewrite import passes
from kir.rewrite.driver import misses, sites

SCAN = """kir 1
program p
  in X: f32[64, 32]
  out Y: f32[64, 32]
kernel main grid (c: 1) threads 32
  fragment h: f32[32] = 0.0
  for i in 0..64
    let x = X[i, 0 +: 32]
    h = {update}
    Y[i, 0 +: 32] = {read}
"""


@pytest.mark.parametrize(("update", "read"), [("h + x", "h"), ("h * 0.5 + x", "x"), ("x + exp(x) * h", "x")])
def test_a_scan_is_no_contraction(update: str, read: str) -> None:
    """What an iteration reads of earlier ones cannot be folded a panel at a time (fla's `chunk_hgrn_fwd_kernel_h`)."""
    program = parse_program(SCAN.format(update=update, read=read), "p.kir")
    item = next(p for p in passes() if p.name == "stage-panels").with_options({})
    assert sites(item, program) == ()
    assert "an iteration reads what earlier ones made of 'h'" in [said for _, said in misses(item, program)]
