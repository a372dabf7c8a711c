"""Places at which passes made wrong programs of kernels as people write them (`python -m benchmarks.checks.kernels_passed`), and what is said of them now."""
from __future__ import annotations

import pytest

from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.rewrite import passes
from kir.rewrite.driver import misses, run_backward, sites
from kir.rewrite.meaning import interpreted

PIPE = """kir 1
program pipe
  size K: i32
  fact K >= 1
  in X: f32[4, K, 128] align 16
  out Y: f32[4, 128] align 16
kernel main grid (b: 4) threads 32
  shared s: f32[2, 128]
  for t in 0..32 parallel thread
    register acc: f32[4] = 0.0
    copy X[b, 0, t * 4 +: 4] -> s[0, t * 4 +: 4] via cp_async grouped
    async_commit()
    for k in 0..K
      if k + 1 < K
        copy X[b, k + 1, t * 4 +: 4] -> s[(k + 1) % 2, t * 4 +: 4] via cp_async grouped
      async_commit()
      async_wait(1)
      barrier()
      acc = acc + s[k % 2, 124 - t * 4 +: 4]
      barrier()
    Y[b, t * 4 +: 4] = acc
"""


def test_copies_past_the_end_are_waited_for() -> None:
    """The last group was in flight when the threads ended: the branch had kept it empty. Without it each iteration waits for its own copies too."""
    item = next(p for p in passes() if p.name == "guard-prefetch").with_options({})
    program = parse_program(PIPE)
    (site,) = sites(item, program, "backward")
    before = run_backward(program, site)[0]
    assert "async_wait(0)" in program_text(before) and "if k + 1" not in program_text(before)
    assert [f for f in interpreted(before, {"K": 5}, checked=True).findings if f.severity == "error"] == []
    for waited in (PIPE.replace("    Y[b", "    async_wait(0)\n    Y[b"), PIPE.replace("async_wait(1)", "async_wait(0)")):
        (plain,) = sites(item, parse_program(waited), "backward")
        assert str(site.params) == "guard-prefetch{overlaps=true}" and str(plain.params) == "guard-prefetch"


@pytest.mark.parametrize(("old", "new"), [
    ("      async_wait(1)\n", "      async_wait(2)\n"), ("    async_commit()\n    for", "    for"),
    ("      async_wait(1)\n", "      async_wait(1)\n      async_commit()\n"),
    ("      async_commit()\n      async_wait(1)\n", "      async_wait(1)\n      async_commit()\n"),
    ("      async_wait(1)\n", "      async_wait(1)\n      copy X[b, k, t * 4 +: 4] -> s[2, t * 4 +: 4] via cp_async grouped\n")])
def test_a_wait_takes_its_own_group_only_where_that_is_all_it_holds(old: str, new: str) -> None:
    item = next(p for p in passes() if p.name == "guard-prefetch")
    text = PIPE.replace("s: f32[2,", "s: f32[3,")
    assert old in text
    program = parse_program(text.replace(old, new, 1))
    assert sites(item.with_options({}), program, "backward") == ()
    assert any("would be in flight when the threads end" in said for _, said in misses(item.with_options({}), program, "backward"))


def test_a_swizzle_needs_memory_that_is_aligned_to_its_atoms() -> None:
    program = parse_program(PIPE)
    item = next(p for p in passes() if p.name == "swizzle-shared")
    assert any("aligned to as many at least" in said for _, said in misses(item.with_options({"align": 1}), program))
    assert sites(item.with_options({"align": 16}), program)


FLIGHT = """kir 1
program product
  in A: f16[64, 16]
  in B: f16[16, 16]
  out C: f32[64, 16]
kernel main grid (b: 1) threads 128
  shared As: f16[64, 16]
  shared Bs: f16[16, 16]
  fragment acc: f32[64, 16] = 0.0
  copy A -> As
  copy B -> Bs
  fence_async()
  wgmma_fence()
  mma acc += As * Bs via wgmma{pending}
  wgmma_commit()
  wgmma_wait(0)
  C = acc
"""


def test_a_product_in_flight_reads_no_registers_that_are_written_behind_its_fence() -> None:
    item = next(p for p in passes() if p.name == "stage-fragment")
    flying, done = (parse_program(FLIGHT.replace("{pending}", word)) for word in (" pending", ""))
    assert not [s for s in sites(item.with_options({}), flying) if s.path[1] == 7] and sites(item.with_options({}), done)
    assert any("only behind a wgmma_fence" in said for _, said in misses(item.with_options({"value": "As"}), flying))
