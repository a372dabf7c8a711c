"""Where an access lies: one that its mask holds back may have any address, one that it lets through must have a defined one in memory that is there."""
from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from kir.base.diagnostic import KirError
from kir.interp import run
from kir.ir.parser import parse_program

HEAD = """kir 1
program p
  size N: i32
  in X: i32[N]
  inout H: i32[64]
  out Y: i32[128]
kernel main grid (b: 1) threads 128
  let place = iota(128)
  let inside = place < N
  let x = load(X[place] where inside)
"""
ACCESSES = {
    "an atomic update": "  atomic_add(&H[x], broadcast(1, 128), {mask})\n  Y = broadcast(0, 128)\n",
    "a load": "  let h = load(H[x] where {mask} else 0)\n  Y = h\n",
    "a store": "  H[x] = broadcast(1, 128) where {mask}\n  Y = broadcast(0, 128)\n"}


def found(access: str, mask: str) -> list[str]:
    arrays = {"X": np.arange(100, dtype=np.int32) % 50 + np.arange(100, dtype=np.int32) // 50 * 14, "H": np.zeros(64, np.int32)}
    if access == "a store":
        arrays["X"] = np.arange(100, dtype=np.int32) % 64
    return [f.message for f in run(parse_program(HEAD + ACCESSES[access].format(mask=mask)), arrays, mode="check").errors if "undefined" in f.message]


@pytest.mark.parametrize("access", ACCESSES)
def test_what_is_held_back_needs_no_address(access: str) -> None:
    assert found(access, "inside") == []


@pytest.mark.parametrize("access", ACCESSES)
def test_what_is_let_through_needs_one(access: str) -> None:
    assert found(access, "place < N + 1") == ["an undefined value reaches an address"]


@pytest.mark.parametrize("mode", ["fast", "check"])
def test_a_view_past_the_end_of_its_memory_is_refused(mode: Literal["fast", "check"]) -> None:
    text = """kir 1
program p
  out Y: f32[16]
kernel main grid (b: 1) threads 32
  shared few: f32[8]
  view shared many: f32[16] at few[0]
  many = broadcast(1.0, 16)
  Y = many
"""
    with pytest.raises(KirError) as refused:
        run(parse_program(text), {}, mode=mode)
    assert refused.value.diagnostics[0].id == "KIR-I010" and "'many' needs 64 bytes at 0 of 32" in str(refused.value)
