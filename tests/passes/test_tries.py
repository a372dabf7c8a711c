"""Loops of tries that stand for an atomic, and such that do not."""
from __future__ import annotations

import pytest

from kir.base.diagnostic import KirError
from kir.ir.parser import parse_program
from kir.rewrite import passes
from kir.rewrite.driver import sites
from kir.surface import backend

TRIES = """kir 1
program p
  in X: f32[64]
  inout Y: f32[1]
kernel main grid (b: 2) threads 32
  view global words: i32[1:i64] at Y
  for t in 0..32 parallel thread
    register old: i32 = cast(load(Y[0] cache volatile), i32, bits)
    while true
      let assumed = old
      let found = atomic_cas(&words[0], assumed, cast({new}, i32, bits))
      old = found
      if assumed == old
        break{after}
"""
MOST = "max(X[b * 32 + t], cast(assumed, f32, bits))"


@pytest.mark.parametrize(("new", "after", "found"), [
    (MOST, "", 1), ("max(cast(assumed, f32), cast(assumed, f32, bits))", "", 0), ("X[b * 32 + t] * cast(assumed, f32, bits)", "", 0),
    (MOST, "\n    X[b * 32 + t] = cast(old, f32, bits)", 0)])
def test_tries_stand_for_an_atomic_of_one_value(new: str, after: str, found: int) -> None:
    """What is put in place is a function of the old value and one that does not depend on it, and nobody asks for the old value afterwards."""
    program = parse_program(TRIES.format(new=new, after=after).replace("in X", "inout X" if after else "in X"), "p.kir")
    item = next(p for p in passes() if p.name == "swap-loop").with_options({})
    assert len(sites(item, program, "backward")) == found


def test_a_maximum_of_floats_is_written_as_tries() -> None:
    """CUDA has it for integers alone; an operation on other floats is refused by name."""
    program = parse_program(WRITTEN.format(dtype="f32"), "p.kir")
    text = backend("cuda").emit(program).text
    assert "atomic_max(&" in text and "atomicCAS(" in text
    with pytest.raises(KirError) as refused:
        backend("cuda").emit(parse_program(WRITTEN.format(dtype="f16"), "p.kir"))
    assert refused.value.diagnostics[0].id == "KIR-B008"


WRITTEN = """kir 1
program p
  in X: {dtype}[64]
  inout Y: {dtype}[1]
kernel main grid (b: 2) threads 32
  for t in 0..32 parallel thread
    atomic_max(&Y[0], X[b * 32 + t])
"""
