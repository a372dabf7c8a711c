"""A cumulative sum as chunked kernels of linear attention have it ends naive: turned in padded memory, scanned along its rows, and turned back."""
from __future__ import annotations

from kir.ir.measures.naive import is_naive
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.rewrite import run

CHUNKS = """kir 1
program chunks
  size T: i32
  in g: f32[T, 4]
  out s: f32[T, 4]
  fact T >= 1
kernel main grid (c: ceildiv(T, 16)) threads 128
  fragment held: f32[16, 4]
  shared turned: f32[16, 5]
  copy load(g[c * 16 +: 16, 0 +: 4] else 0.0 clip) -> held
  turned[0 +: 16, 0 +: 4] = held
  let rows = trans(turned[0 +: 16, 0 +: 4], 1, 0)
  let sums = scan(rows, axis=1, op=sum)
  turned[0 +: 16, 0 +: 4] = trans(sums, 1, 0)
  copy turned[0 +: 16, 0 +: 4] -> held
  s[c * 16 +: 16, 0 +: 4] = held clip
"""
BACK = ("pad-shared", "reuse-array@main/held", "reuse-array@main/turned", "hold-tile@main/copy(dst=held)", "hold-tile@main/store(dst=turned)",
        "hold-tile@main/copy(dst=held_1)", "hold-tile@main/store(dst=turned_1)", "retain-tile@main/rows", "tile-scan@main/sums", "partition-block@main/sums",
        "multi-threaded-block")


def test_a_cumulative_sum_through_padded_memory_ends_naive_and_comes_back() -> None:
    program = parse_program(CHUNKS)
    back = run(program, "; ".join(f"~{each}" for each in BACK))
    assert is_naive(back.program) == () and "scan" not in program_text(back.program)
    forward = run(back.program, "; ".join(str(step.back) for step in reversed(back.steps)))
    assert program_text(forward.program) == program_text(program)
