"""What a text may rely on of its pointers is said to whoever launches it."""
from __future__ import annotations

import pytest

from kir.ir.parser import parse_program
from kir.surface import backend

TEXT = """kir 1
program p
  in X: f32[1024]{declared}
  out Y: f32[1024]
kernel main grid (b: 8) threads 32
  shared S: f32[128] align 16
  for t in 0..32 parallel thread
    {body}
"""


@pytest.mark.parametrize(("declared", "body", "most"), [
    ("", "Y[b * 128 + t] = X[b * 128 + t]", 1),
    (" align 16", "Y[b * 128 + t] = X[b * 128 + t]", 16),
    (" align 8", "Y[b * 128 + t] = X[b * 128 + t]", 8),
    (" align 128", "Y[b * 128 + t] = X[b * 128 + t]", 16),
    ("", "copy X[b * 128 + t * 4 +: 4] -> S[t * 4 +: 4] via cp_async grouped", 16),
    ("", "copy X[b * 128 + t * 4 +: 4] -> Y[b * 128 + t * 4 +: 4] via vector(4)", 16),
])
def test_the_alignment_of_a_pointer_is_what_is_declared_or_what_wide_accesses_need(declared: str, body: str, most: int) -> None:
    (entry,) = backend("cuda").emit(parse_program(TEXT.format(declared=declared, body=body), "p.kir")).entries
    assert {a.source: a.divisor for a in entry.arguments}["X"] == most
