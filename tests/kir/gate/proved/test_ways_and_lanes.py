"""Ways past a barrier by a jump, lanes of a warp that do not all come, atomics of one CTA's scope, and guards of an index: right beside wrong."""
from __future__ import annotations

from pathlib import Path

import pytest

import kir
from kir.gate.proved import proved
from kir.ir.parser import parse_program

HEAD = """kir 1
program p
  size M: i32
  fact M >= 1
  size T: i32
  fact T >= 1
  in X: i32[M, T, 64]
  inout Z: i32[64]
  out Y: i32[M, T, 64]
kernel main grid (m: M) threads 64
  shared s: i32[64]
  for t in 0..64 parallel thread
"""
RIGHT = {
    "a jump behind the barrier": """    for k in 0..T
      s[t] = X[m, k, t]
      barrier()
      Y[m, k, t] = s[63 - t]
      barrier()
      if k == 300
        break
    s[t] = 0
""",
    "a trip cut short behind its barriers": """    for k in 0..T
      s[t] = X[m, k, t]
      if k == 300
        barrier()
        Y[m, k, t] = s[63 - t]
        barrier()
        continue
      barrier()
      Y[m, k, t] = s[t]
""",
    "a condition read once more": """    s[0] = 0
    barrier()
    while s[0] < 300
      barrier()
      if t == 0
        s[0] = s[0] + 1
      barrier()
    barrier()
    if t == 0
      s[0] = 9
""",
    "lanes leave behind the last barrier": """    s[t] = X[m, 0, t]
    barrier()
    if t >= T
      return
    Y[m, 0, t] = s[63 - t]
""",
    "a search within a trip": """    for k in 0..T
      register a: i32 = 0
      for q in 0..64
        if X[m, k, q] > t
          break
        a = a + 1
      s[t] = a
      barrier()
      Y[m, k, t] = s[63 - t]
      barrier()
""",
    "warps that leave": """    for r in 0..ceildiv(T, 2)
      let row = r * 2 + t // 32
      if row >= T
        continue
      register a: i32 = X[m, row, t % 32]
      for j in 0..5 unroll
        let o = shfl_xor(a, 16 >> j)
        a = a + o
      Y[m, row, t % 32] = a
""",
    "half of a warp, named": """    if t % 32 < 16
      let o = shfl_xor(X[m, 0, t], 8, mask=65535)
      Y[m, 0, t] = o
""",
    "lanes exchange through memory": """    for k in 0..T
      s[t] = X[m, k, t]
      warp_sync()
      Y[m, k, t] = s[t ^ 1]
      warp_sync()
""",
    "tiles of a warp": """    s[t] = X[m, 0, t]
    warp_sync(group=16)
    Y[m, 0, t] = s[t // 16 * 16 + 15 - t % 16]
""",
    "halves of a warp added": """    s[t] = X[m, 0, t]
    warp_sync()
    for j in 0..5 unroll
      if t % 32 < 16 >> j
        s[t] = s[t] + s[t + (16 >> j)]
      warp_sync()
    if t % 32 == 0
      Y[m, 0, t] = s[t]
""",
    "a number counted in a register": """    register q: i32 = 0
    while q < T
      s[t] = X[m, q, t]
      barrier()
      Y[m, q, t] = s[63 - t]
      barrier()
      q = q + 1
""",
    "sums of all CTAs": """    atomic_add(&Z[t], X[m, 0, t])
""",
    "sums of a CTA, in its memory": """    s[t] = 0
    barrier()
    atomic_add(&s[t // 2], X[m, 0, t], scope=cta)
    barrier()
    atomic_add(&Z[t], s[t])
""",
    "an index with a guard": """    let v = X[m, 0, t]
    if cast(v, u32) < 64:u32
      atomic_add(&Z[v], 1)
""",
}
WRONG = {
    "left before the barrier": ("a jump behind the barrier", "      barrier()\n      if k == 300\n        break\n",
                                "      if k == 300\n        break\n      barrier()\n", "race"),
    "left in a branch": ("a jump behind the barrier", "      Y[m, k, t] = s[63 - t]\n      barrier()\n      if k == 300\n        break\n",
                         "      if k == 300\n        Y[m, k, t] = s[63 - t]\n        break\n      barrier()\n", "race"),
    "cut short before its last barrier": ("a trip cut short behind its barriers", "        barrier()\n        continue", "        continue", "race"),
    "written after the condition is read": ("a condition read once more", "    barrier()\n    if t == 0\n      s[0] = 9",
                                            "    if t == 0\n      s[0] = 9", "race"),
    "lanes leave before the barrier": ("lanes leave behind the last barrier", "    barrier()\n    if t >= T\n      return\n",
                                       "    if X[m, 0, t] > 0\n      return\n    barrier()\n", "race"),
    "lanes leave a loop with a barrier": ("a search within a trip", "          break\n", "          return\n", "undefined"),
    "lanes of a warp leave": ("warps that leave", "      if row >= T\n", "      if row >= T | t % 32 > T\n", "barrier"),
    "lanes leave a loop early": ("warps that leave", "        a = a + o\n", "        a = a + o\n        if a > 300\n          break\n", "barrier"),
    "half of a warp, all named": ("half of a warp, named", ", mask=65535", "", "barrier"),
    "a lane that is not named": ("half of a warp, named", "t % 32 < 16", "t % 32 < 17", "barrier"),
    "read from a lane that is not named": ("half of a warp, named", "shfl_xor(X[m, 0, t], 8,", "shfl_down(X[m, 0, t], 8,", "undefined"),
    "lanes exchange: not before the next trip": ("lanes exchange through memory", "s[t ^ 1]\n      warp_sync()\n", "s[t ^ 1]\n", "race"),
    "lanes exchange: not after they write": ("lanes exchange through memory", "k, t]\n      warp_sync()\n", "k, t]\n", "race"),
    "lanes exchange: with another warp": ("lanes exchange through memory", "t ^ 1", "t ^ 32", "race"),
    "lanes exchange: in some trips": ("lanes exchange through memory", "s[t ^ 1]\n", "s[t ^ 1]\n      if k % 2 == 0\n  ", "race"),
    "lanes exchange: by some lanes": ("lanes exchange through memory", "for k in 0..T", "for k in t % 2..T step 2", "barrier"),
    "tiles of a warp: over the edge": ("tiles of a warp", "t // 16 * 16 + 15 - t % 16", "t // 32 * 32 + 31 - t % 32", "race"),
    "tiles of a warp: half as wide": ("tiles of a warp", "group=16", "group=8", "race"),
    "halves added: the last two at once": ("halves of a warp added", "      warp_sync()\n    if", "      if j < 3\n        warp_sync()\n    if", "race"),
    "a number counted from the thread's": ("a number counted in a register", "i32 = 0\n", "i32 = t // 32\n", "barrier"),
    "a number counted by half the trips": ("a number counted in a register", "      q = q + 1\n", "      if q < 3 | m > 0\n        q = q + 1\n", "bounds"),
    "a number counted down": ("a number counted in a register", "q = q + 1", "q = q - 1", "bounds"),
    "sums of all CTAs, of one CTA's scope": ("sums of all CTAs", "t])", "t], scope=cta)", "race"),
    "one of two sums of a CTA's scope": ("sums of a CTA, in its memory", "&Z[t], s[t])",
                                         "&Z[t], s[t])\n    if m == 300\n      atomic_add(&Z[t], 1, scope=cta)", "race"),
    "a guard one too wide": ("an index with a guard", "< 64:u32", "<= 64:u32", "bounds"),
    "a guard of one side": ("an index with a guard", "cast(v, u32) < 64:u32", "v < 64", "bounds"),
}
ONLY_OPEN = frozenset({"a number counted by half the trips", "a number counted down", "lanes leave a loop with a barrier",
                       "lanes leave a loop early", "a guard one too wide", "a guard of one side"})
"""Depends on data that no run has, or is no hazard of a run, which does not wait for lanes that have left the kernel: not decided, and never proved."""


TILES = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void turned(const float* __restrict__ x, float* __restrict__ y, int n) {
  __shared__ float s[64];
  auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
  s[t] = i < n ? x[i] : 0.f;
  tile.sync();
  float v = s[t / 16 * 16 + 15 - t % 16];
  if (i < n) y[i] = v + tile.shfl_xor(v, 8);
}
void run(const float* x, float* y, int n) { turned<<<(n + 63) / 64, 64>>>(x, y, n); }
"""


@pytest.mark.parametrize(("old", "new", "verdict"), [("", "", "refuted"), ("y[i] = v + tile.shfl_xor(v, 8)", "y[i] = v", "proved"),
                                                     ("if (i < n) y[i] = v + tile.shfl_xor(v, 8)", "v += tile.shfl_xor(v, 8); if (i < n) y[i] = v", "proved"),
                                                     ("t / 16 * 16 + 15 - t % 16", "t / 32 * 32 + 31 - t % 32", "refuted")])
def test_a_tile_of_a_cooperative_group_orders_its_own_lanes_alone(tmp_path: Path, old: str, new: str, verdict: str) -> None:
    file = tmp_path / "turned.cu"
    file.write_text(TILES.replace(old, new) if old else TILES)
    assert kir.prove(str(file), 2).verdict == verdict


@pytest.mark.parametrize("name", RIGHT)
def test_what_all_come_to_is_proved(name: str) -> None:
    done = proved(parse_program(HEAD + RIGHT[name]), 1)
    assert done.verdict == "proved", done.findings


@pytest.mark.parametrize("name", WRONG)
def test_what_some_pass_by_is_never_proved(name: str) -> None:
    base, old, new, kind = WRONG[name]
    assert old in RIGHT[base]
    program = parse_program(HEAD + RIGHT[base].replace(old, new, 1))
    done = proved(program, 0 if name in ONLY_OPEN else 3)
    assert any(f.kind == kind and f.what != "shown by a run" for f in done.findings), "a run shows it, and all is proved"
    assert done.status(kind) == ("undecided" if name in ONLY_OPEN else "refuted")  # type: ignore[arg-type]  # one of the kinds
