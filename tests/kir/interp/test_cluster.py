"""Clusters: shared memory of peers, arrivals on their mbarriers, copies to all of them, and what goes wrong without cluster barriers."""
from __future__ import annotations

import numpy as np
import pytest

from kir.base.diagnostic import KirError
from kir.interp import Result, run
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rules.verify import check as verified

EXCHANGE = """kir 1
program p
  in X: f32[8, 32]
  out Y: f32[8, 32]
kernel main grid (x: 4, y: 2) threads 32 cluster (2, 2)
  shared mine: f32[32]
  view cluster all: f32[4, 32] at mine
  let rank = x % 2 + y % 2 * 2
  for t in 0..32 parallel thread
    mine[t] = X[y * 4 + x, t]
    {start}
    Y[y * 4 + x, t] = all[3 - rank, t]
    {stop}
"""
MULTICAST = """kir 1
program p
  in X: f16[64, 64]
  out Y: f16[4, 32, 64]
  map X_map of X box [16, 64] {{swizzle=128}}
kernel main grid (pid: 4) threads 128 cluster (2)
  let rank = pid % 2
  shared S: f16[2, 16, 64] layout swizzle(3, 4, 3) align 1024
  shared full: mbarrier[1]
  shared empty: mbarrier[1]
  view cluster others: mbarrier[2, 1] at empty
  mbar_init(&full[0], 1)
  mbar_init(&empty[0], {arrivals})
  fence_mbar_init()
  {start}
  for i in 0..2
    {wait}
    mbar_arrive_expect(&full[0], {bytes})
    copy load(X[pid // 2 * 32 + rank * 16 +: 16, 0 +: 64]) -> S[rank, 0 +: 16, 0 +: 64] via tma signal full[0] {{descriptor=X_map, multicast={mask}}}
    mbar_wait(&full[0], i % 2)
    for t in 0..128 parallel thread
      if t < 64
        Y[pid, 0 +: 16, t] = S[0, 0 +: 16, t]
        Y[pid, 16 +: 16, t] = S[1, 0 +: 16, t]
    for r in 0..2
      mbar_arrive(&others[r, 0])
  {stop}
"""
SYNC = "cluster_arrive()\n{pad}cluster_wait()"
RIGHT = {"arrivals": "2", "bytes": "4096", "mask": "3", "wait": "mbar_wait(&empty[0], (i + 1) % 2)"}


def sync(pad: int) -> str:
    return SYNC.format(pad=" " * pad)


def exchange(start: str, stop: str) -> Result:
    program = parse_program(EXCHANGE.format(start=start, stop=stop))
    verified(program)
    assert parse_program(program_text(program)) == program
    return run(program, {"X": np.arange(256, dtype=np.float32).reshape(8, 32)}, {}, mode="check")


def multicast(**changes: str) -> Result:
    words = {**RIGHT, "start": sync(2), "stop": sync(2), **changes}
    program = parse_program(MULTICAST.format(**words))
    verified(program)
    return run(program, {"X": np.arange(4096).reshape(64, 64).astype(np.float16)}, {}, mode="check")


def errors(found: Result) -> set[str]:
    return {f.id for f in found.findings if f.severity == "error"}


def test_a_cta_reads_the_shared_memory_of_its_peers() -> None:
    found = exchange(sync(4), sync(4))
    assert errors(found) == set()
    x = np.arange(256, dtype=np.float32).reshape(8, 32)
    for cta in range(8):
        column, row = cta % 4, cta // 4
        rank = column % 2 + row % 2 * 2
        other = column - column % 2 + (3 - rank) % 2, row - row % 2 + (3 - rank) // 2
        assert (found.outputs["Y"][row * 4 + column] == x[other[1] * 4 + other[0]]).all()


def test_without_a_barrier_at_the_start_a_peer_may_not_be_there() -> None:
    assert errors(exchange("let no = 0", sync(4))) & {"KIR-I014", "KIR-I030"}


def test_without_a_barrier_at_the_end_a_peer_may_be_gone() -> None:
    found = exchange(sync(4), "let no = 0")
    assert "KIR-I030" in errors(found) and any("may end before" in f.message or "has ended" in f.message for f in found.findings)


def test_a_cta_that_does_not_exist_is_named() -> None:
    program = parse_program(EXCHANGE.format(start=sync(4), stop=sync(4)).replace("3 - rank", "4 + rank"))
    found = run(program, {"X": np.zeros((8, 32), np.float32)}, {}, mode="check")
    assert any(f.id == "KIR-I030" and "no CTA" in f.message for f in found.findings)


def test_a_multicast_copy_reaches_every_cta_and_its_barrier() -> None:
    found = multicast()
    assert [f.message for f in found.findings if f.severity == "error"] == []
    x = np.arange(4096).reshape(64, 64).astype(np.float16)
    for cta in range(4):
        assert (found.outputs["Y"][cta] == x[cta // 2 * 32: cta // 2 * 32 + 32]).all()


@pytest.mark.parametrize(("changes", "ids"), [
    ({"start": "let no = 0"}, {"KIR-I014", "KIR-I030", "KIR-I021"}),
    ({"stop": "let no = 0"}, {"KIR-I030"}),
    ({"mask": "1"}, {"KIR-I020"}),
    ({"mask": "7"}, {"KIR-I030"}),
    ({"bytes": "2048"}, {"KIR-I021", "KIR-I014", "KIR-I020", "KIR-I012", "KIR-I024"}),
    ({"arrivals": "1"}, {"KIR-I021", "KIR-I014"}),
    ({"wait": "let no = 0"}, {"KIR-I014", "KIR-I021"}),
])
def test_a_mistake_in_a_multicast_ring_is_found(changes: dict[str, str], ids: set[str]) -> None:
    assert errors(multicast(**changes)) & ids


def test_a_cluster_that_does_not_divide_the_grid_is_refused() -> None:
    text = EXCHANGE.format(start=sync(4), stop=sync(4)).replace("x: 4", "x: 3")
    with pytest.raises(KirError) as bad:
        run(parse_program(text), {"X": np.zeros((8, 32), np.float32)}, {})
    assert bad.value.diagnostics[0].id == "KIR-I029" and "CTA 2" in bad.value.diagnostics[0].witness[0]
