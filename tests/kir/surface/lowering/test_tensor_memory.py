"""Products into tensor memory: lowered for threads, written for sm_100a, read back, and refused where they cannot be. No GPU here runs them."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kir.analysis.target.legalize import legalize
from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.interp import run
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rules.verify import check
from kir.surface import backend
from kir.surface.lowering import lowered
from tests.round_trips import CUDA

TILES = """kir 1
program p
  in A: f16[128, 64]
  in B: f16[48, 64]
  out C: f32[128, 48]
  out D: f32[128, 16]
kernel main grid (b: 1) threads 128
  shared As: f16[128, 32] layout swizzle(2, 4, 3) align 512
  shared Bs: f16[48, 32] layout swizzle(2, 4, 3) align 512
  for round in 0..2
    fragment acc: f32[128, 48] = 0.0
    fragment half: f32[128, 16] = 0.0
    for k in 0..2
      copy A[0 +: 128, k * 32 +: 32] -> As
      copy B[0 +: 48, k * 32 +: 32] -> Bs
      mma acc += As * trans(Bs, 1, 0) via tcgen05
      mma half += As * trans(Bs[0 +: 16, 0 +: 32], 1, 0) via tcgen05
    C = acc * cast(round + 1, f32)
    D = half
"""
"""Two accumulators, begun anew in each round."""


def test_threads_do_what_tiles_say_and_are_read_back_from_what_is_written(tmp_path: Path) -> None:
    program = parse_program(TILES, "p.kir")
    assert legalize(program, target("sm_100a").architecture) == ()
    threads = lowered(program)
    check(threads)
    assert parse_program(program_text(threads)) == threads and lowered(threads) is threads
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((128, 64)).astype(np.float16), rng.standard_normal((48, 64)).astype(np.float16)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    back = CUDA.read_back(program, tmp_path)
    for each in (program, threads, back):
        found = run(each, {"A": a, "B": b}, mode="check")
        assert [f.message for f in found.findings] == []
        assert np.allclose(found.outputs["C"], 2 * exact, atol=1e-4) and np.allclose(found.outputs["D"], exact[:, :16], atol=1e-4)
    text = program_text(back)
    assert text.count("tcgen05_mma(") == 2 and text.count(", 64)") == 2 and "tcgen05_alloc(" in text
    without = program_text(threads).replace("        tcgen05_wait_ld()\n", "", 1)
    assert "KIR-I016" in {f.id for f in run(parse_program(without), {"A": a, "B": b}, mode="check").errors}


@pytest.mark.nvcc
def test_it_is_compiled_to_products_of_tensor_memory() -> None:
    made = backend("cuda")
    artifact = made.compile(made.emit(parse_program(TILES, "p.kir")), target("sm_100a"))
    assert artifact.spills == 0
    if artifact.mix:
        assert artifact.mix["UTCHMMA"] > 0 and artifact.mix["LDTM"] > 0 and artifact.mix["UTCBAR"] > 0


@pytest.mark.parametrize(("old", "new", "chip", "words"), [
    ("via tcgen05\n      mma half", "via tcgen05\n      mma half", "sm_90a", "sm_90a has no tcgen05"),
    ("threads 128", "threads 256", "sm_100a", "256 threads"),
    ("    C = acc", "    acc = acc + 1.0\n    C = acc", "sm_100a", "written by other than products"),
    ("fragment half: f32[128, 16] = 0.0", "fragment half: f32[128, 16] = 2.0", "sm_100a", "starts at zero"),
    ("As * trans(Bs, 1, 0) via tcgen05", "As * trans(Bs, 1, 0)", "sm_100a", "")])
def test_what_tensor_memory_does_not_hold_is_refused(old: str, new: str, chip: str, words: str) -> None:
    assert old in TILES
    program = parse_program(TILES.replace(old, new), "p.kir")
    assert words in (found[0].message if (found := legalize(program, target(chip).architecture)) else "")
    if chip == "sm_100a" and words:
        with pytest.raises(KirError) as bad:
            lowered(program)
        assert bad.value.diagnostics[0].id == "KIR-B030"


def test_accumulators_of_more_columns_than_there_are_are_refused() -> None:
    head = TILES.replace("48", "256").split("    fragment acc")[0]
    several = "".join(f"    fragment acc{i}: f32[128, 256] = 0.0\n" for i in range(3))
    products = "".join(f"      mma acc{i} += As * trans(Bs, 1, 0) via tcgen05\n" for i in range(3))
    text = f"{head}{several}    for k in 0..2\n      copy A[0 +: 128, k * 32 +: 32] -> As\n      copy B[0 +: 256, k * 32 +: 32] -> Bs\n{products}    C = acc2\n"
    found = legalize(parse_program(text, "p.kir"), target("sm_100a").architecture)
    assert [d.message for d in found] == ["the kernel holds 1024 columns in tensor memory; a CTA of sm_100a has 512"]
