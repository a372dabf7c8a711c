"""Small programs, each right, and wrong in one way."""
from __future__ import annotations

from kir.ir import nodes as n
from kir.ir.parser import parse_program

HEAD = "kir 1\nprogram p\n"

RIGHT = {
    "masked tile": """  size N: i32
  in X: f32[N]
  out Y: f32[N]
kernel main grid (b: ceildiv(N, 64)) threads 64
  let i = iota(64) + b * 64
  let x = load(X[i] where i < N else 0.0)
  Y[i] = x + 1.0 where i < N
""",
    "reversed in shared memory": """  size N: i32
  in X: f32[N, 64]
  out Y: f32[N, 64]
kernel main grid (b: N) threads 64
  shared s: f32[64]
  @t for t in 0..64 parallel thread
    s[t] = X[b, t]
    barrier()
    Y[b, t] = s[63 - t]
""",
    "two buffers by turns": """  size N: i32
  size K: i32
  in X: f32[N, 64]
  out Y: f32[N, 64]
kernel main grid (b: N) threads 64
  shared s: f32[2, 64]
  @t for t in 0..64 parallel thread
    register p: i32 = 0
    s[0, t] = X[b, t]
    s[1, t] = 0.0
    barrier()
    for k in 0..K
      s[1 - p, t] = s[p, 63 - t] + 1.0
      p = 1 - p
      barrier()
    Y[b, t] = s[p, t]
""",
    "two buffers by their lowest bit": """  size N: i32
  size K: i32
  in X: f32[N, 64]
  out Y: f32[N, 64]
kernel main grid (b: N) threads 64
  shared s: f32[2, 64]
  @t for t in 0..64 parallel thread
    register p: i32 = 0
    s[0, t] = X[b, t]
    s[1, t] = 0.0
    barrier()
    for k in 0..K
      s[p ^ 1, t] = s[p, 63 - t] + 1.0
      p = p ^ 1
      barrier()
    Y[b, t] = s[p, t]
""",
    "two buffers by a remainder": """  size N: i32
  size K: i32
  in X: f32[N, 64]
  out Y: f32[N, 64]
kernel main grid (b: N) threads 64
  shared s: f32[2, 64]
  @t for t in 0..64 parallel thread
    register p: i32 = 0
    s[0, t] = X[b, t]
    s[1, t] = 0.0
    barrier()
    for k in 0..K
      s[(p + 1) % 2, t] = s[p, 63 - t] + 1.0
      p = (p + 1) % 2
      barrier()
    Y[b, t] = s[p, t]
""",
    "ping-pong": """  size N: i32
  size K: i32
  in X: f32[N, K, 64]
  out Y: f32[N, 64]
kernel main grid (b: N) threads 64
  shared s: f32[64]
  @t for t in 0..64 parallel thread
    register sum: f32 = 0.0
    @k for k in 0..K
      s[t] = X[b, k, t]
      barrier()
      sum = sum + s[63 - t]
      barrier()
    Y[b, t] = sum
""",
    "vectors": """  size M: i32
  size N: i32
  in X: f32[M, N] align 16
  out Y: f32[M, N] align 16
  fact N % 4 == 0
kernel main grid (b: M) threads 32
  @t for t in 0..32 parallel thread
    for j in t..N // 4 step 32
      copy X[b, j * 4 +: 4] -> Y[b, j * 4 +: 4] via vector(4)
""",
    "leaders of warps": """  size N: i32
  in X: f32[N, 256]
  out Y: f32[N]
kernel main grid (b: N) threads 256
  shared s: f32[32]
  @t for t in 0..256 parallel thread
    let lane = t % 32
    let w = t // 32
    register part: f32 = X[b, t]
    if lane == 0
      s[w] = part
    barrier()
    if w == 0
      part = load(s[lane] where lane < 8 else 0.0)
      let last = shfl_xor(part, 7)
      let none = shfl_xor(part, 8)
      if lane == 0
        Y[b] = part + last + none
""",
    "leader": """  size N: i32
  in X: f32[N]
  out Y: f32[N]
kernel main grid (b: N) threads 32
  @t for t in 0..32 parallel thread
    if t == 0
      Y[b] = X[b] + cast(t, f32)
""",
    "uniform branch": """  size N: i32
  in X: f32[N, 32]
  out Y: f32[N, 32]
kernel main grid (b: N) threads 32
  shared s: f32[32]
  @t for t in 0..32 parallel thread
    s[t] = 0.0
    if b % 2 == 0
      barrier()
    s[t] = X[b, t]
    barrier()
    Y[b, t] = s[31 - t]
""",
    "flat": """  size M: i32
  size N: i32
  in X: f32[M, N]
  out Y: f32[M * N]
  fact M <= 30000
  fact N <= 30000
kernel main grid (b: M) threads 32
  @t for t in 0..32 parallel thread
    for j in t..N step 32
      Y[b * N + j] = X[b, j]
""",
    "tiles in turn": """  size M: i32
  size N: i32
  in X: f32[M * 2, N * 4]
  out Y: f32[M * 2, N * 4]
  fact M >= 1
  fact M <= 1000
  fact N >= 1
  fact N <= 1000
kernel main grid (b: min(M * N, 3)) threads 8
  let many = min(M * N, 3)
  @i for i in 0..ceildiv(M * N - b, many)
    let tile = i * many + b
    let panel = tile // (N * 2)
    let height = min(M - panel * 2, 2)
    let m = panel * 2 + tile % (N * 2) % height
    let c = tile % (N * 2) // height
    @t for t in 0..8 parallel thread
      Y[m * 2 + t // 4, c * 4 + t % 4] = X[m * 2 + t // 4, c * 4 + t % 4] + cast(b, f32)
""",
    "sums of warps": """  size N: i32
  in X: f32[N, 128]
  out Y: f32[N, 128]
kernel main grid (b: N) threads 128
  shared s: f32[4]
  @t for t in 0..128 parallel thread
    register part: f32 = X[b, t]
    for k in 0..5 unroll
      let other = shfl_xor(part, 16 >> k)
      part = part + other
    s[t // 32] = part
    barrier()
    if t // 32 == 0
      part = load(s[t % 32] where t % 32 < 4 else 0.0)
      for k1 in 0..5 unroll
        let other1 = shfl_xor(part, 16 >> k1)
        part = part + other1
      s[0] = part
    barrier()
    register at: i32[2]
    for k2 in 0..2 unroll
      at[k2] = (t + 64 * k2) % 128
    Y[b, at[1]] = s[0]
""",
    "two launches": """  size M: i32
  size N: i32
  fact M <= 1000
  fact N <= 1000
  in X: f32[M, N]
  out Y: f32[M * N]
  workspace S: f32[M, ceildiv(N, 64) * 64]
  workspace T: f32[M * N]
  workspace V: f32[N * M]
kernel first grid (c: ceildiv(N, 64), b: M) threads 64
  @store_S S[b, c * 64 +: 64] = load(X[b, c * 64 +: 64] else 0.0 clip)
  @t for t in 0..64 parallel thread
    if c * 64 + t < N
      T[b * N + c * 64 + t] = X[b, c * 64 + t]
    if c == 0
      for j0 in t..N step 64
        V[j0 * M + b] = X[b, j0]
kernel second grid (b: M) threads 32
  @t for t1 in 0..32 parallel thread
    for j in t1..N step 32
      Y[b * N + j] = S[b, j] + T[b * N + j] + V[j * M + b]
plan
  launch first
  launch second
""",
    "threads that have left": """  size N: i32
  in X: f32[N]
  out Y: f32[N]
kernel main grid (b: ceildiv(N, 64)) threads 64
  shared s: f32[64]
  @t for t in 0..64 parallel thread
    s[t] = 0.0
    barrier()
    if b * 64 + t >= N
      return
    s[t] = X[b * 64 + t]
    barrier()
    Y[b * 64 + t] = s[t] + s[t // 2]
""",
}
"""Programs all of which is proved."""

WRONG = {
    "one buffer where there are two": ("two buffers by turns", "s[1 - p, t]", "s[p, t]", "race"),
    "no barrier between two turns": ("two buffers by their lowest bit", "      barrier()\n", "", "race"),
    "a turn too far": ("two buffers by turns", "p = 1 - p", "p = 2 - p", "bounds"),
    "three turns of two buffers": ("two buffers by a remainder", "p = (p + 1) % 2", "p = (p + 1) % 3", "bounds"),
    "never turned": ("two buffers by their lowest bit", "p = p ^ 1", "p = p ^ 2", "bounds"),
    "no mask on the store": ("masked tile", " + 1.0 where i < N", " + 1.0", "bounds"),
    "no mask on the load": ("masked tile", "where i < N else 0.0", "where i <= N else 0.0", "bounds"),
    "undefined beyond the mask": ("masked tile", "where i < N else 0.0)", "where i < N - 1)", "undefined"),
    "two elements in one place": ("masked tile", "Y[i] =", "Y[i // 2] =", "race"),
    "a barrier dropped": ("reversed in shared memory", "    barrier()\n", "", "race"),
    "not all written": ("reversed in shared memory", "    s[t] =", "    if t < 60\n      s[t] =", "undefined"),
    "a row too far": ("reversed in shared memory", "Y[b, t]", "Y[b + 1, t]", "bounds"),
    "a shared index too far": ("reversed in shared memory", "s[63 - t]", "s[64 - t]", "bounds"),
    "the second barrier dropped": ("ping-pong", "      barrier()\n    Y", "    Y", "race"),
    "the first barrier dropped": ("ping-pong", "      barrier()\n      sum", "      sum", "race"),
    "no promise of whole vectors": ("vectors", "  fact N % 4 == 0\n", "", "alignment"),
    "a warp more than there are": ("leaders of warps", "where lane < 8", "where lane < 9", "undefined"),
    "a leader that says nothing": ("leaders of warps", "if lane == 0\n      s", "if lane == 0 & w < 7\n      s", "undefined"),
    "leaders in one place": ("leaders of warps", "s[w] =", "s[w // 2] =", "race"),
    "every thread a leader": ("leader", "if t == 0", "if t < 2", "race"),
    "a branch that divides": ("uniform branch", "if b % 2 == 0", "if t % 2 == 0", "barrier"),
    "an index beyond 32 bits": ("flat", "  fact M <= 30000\n", "", "overflow"),
    "sums of warps: a mask less": ("sums of warps", "for k in 0..5 unroll", "for k in 0..4 unroll", "race"),
    "sums of warps: differences": ("sums of warps", "part = part + other\n", "part = part - other\n", "race"),
    "sums of warps: one mask twice": ("sums of warps", "shfl_xor(part, 16 >> k)", "shfl_xor(part, 16 >> k // 2 * 2)", "race"),
    "sums of warps: written before they are summed": ("sums of warps", "      for k1", "      s[0] = part\n      for k1", "race"),
    "sums of warps: read after the exchange": ("sums of warps", "      s[0] = part\n", "      let late = s[0]\n      s[0] = part + late\n", "race"),
    "sums of warps: by half a warp": ("sums of warps", "if t // 32 == 0", "if t < 16", "barrier"),
    "sums of warps: places beyond the row": ("sums of warps", "(t + 64 * k2) % 128", "t + 64 * k2", "bounds"),
    "tiles in turn: a step too short": ("tiles in turn", "let tile = i * many + b", "let tile = i * (many - 1) + b", "race"),
    "tiles in turn: columns overlap": ("tiles in turn", "Y[m * 2 + t // 4, c * 4", "Y[m * 2 + t // 4, c * 3", "race"),
    "two launches: a column less": ("two launches", "c * 64 + t < N\n", "c * 64 + t < N - 1\n", "undefined"),
    "two launches: half the tiles": ("two launches", "S[b, c * 64 +: 64] =", "S[b, c // 2 * 64 +: 64] =", "undefined"),
    "two launches: a row less": ("two launches", "grid (c: ceildiv(N, 64), b: M)", "grid (c: ceildiv(N, 64), b: M - 1)", "undefined"),
    "threads that have left have read": ("threads that have left", "    if b * 64", "    let x = s[63 - t]\n    if b * 64", "race"),
    "threads that have left have written": ("threads that have left", "    if b * 64", "    s[63 - t] = 1.0\n    if b * 64", "race"),
    "rows overlap": ("flat", "Y[b * N + j]", "Y[b + j]", "race"),
}
"""What is changed of a right program, and the kind of hazard that comes of it."""


def right(name: str) -> n.Program:
    """A right program."""
    return parse_program(HEAD + RIGHT[name])


def wrong(name: str) -> tuple[n.Program, str]:
    """A wrong program, and its hazard."""
    base, old, new, kind = WRONG[name]
    assert old in RIGHT[base]
    return parse_program(HEAD + RIGHT[base].replace(old, new, 1)), kind
