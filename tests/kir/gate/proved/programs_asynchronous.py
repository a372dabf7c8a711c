"""Small programs with what is asynchronous, each right, and wrong in one way: groups of copies, rings of mbarriers, products in flight, roles."""
from __future__ import annotations

from kir.ir import nodes as n
from kir.ir.parser import parse_program

HEAD = "kir 1\nprogram p\n"

RIGHT = {
    "a box for the whole CTA": """  size N: i32
  in X: f32[N, 64]
  out Y: f32[N, 64]
  map X_map of X box [1, 64]
kernel main grid (b: N) threads 32
  shared s: f32[1, 64] align 128
  shared full: mbarrier[1]
  mbar_init(&full[0], 1)
  fence_mbar_init()
  barrier()
  mbar_arrive_expect(&full[0], 256)
  copy load(X[b +: 1, 0 +: 64] else 0.0 clip) -> s via tma signal full[0] {descriptor=X_map}
  mbar_wait(&full[0], 0)
  Y[b, 0 +: 64] = s[0, 0 +: 64]
""",
    "groups": """  size N: i32
  size K: i32
  in X: f32[N, K, 64]
  out Y: f32[N, 64]
kernel main grid (b: N) threads 64
  shared s: f32[4, 64]
  fragment sum: f32[64] = 0.0
  @fill for p in 0..3 unroll {factor=3}
    copy load(X[b, p, 0 +: 64] else 0.0 clip) -> s[p, 0 +: 64] via cp_async grouped {vector=4}
    async_commit()
  @k for k in 0..K
    async_wait(2)
    copy load(X[b, k + 3, 0 +: 64] else 0.0 clip) -> s[(k + 3) % 4, 0 +: 64] via cp_async grouped {vector=4}
    async_commit()
    sum = sum + s[k % 4, 0 +: 64]
  async_wait(0)
  Y[b, 0 +: 64] = sum
""",
    "turns": """  size N: i32
  size K: i32
  fact K >= 1
  in X: f32[N, K, 128]
  out Y: f32[N, 128]
kernel main grid (b: N) threads 256
  @g for wg in 0..2 parallel warpgroup
    fragment sum: f32[64] = 0.0
    if wg == 0
      named_barrier_arrive(1, 256)
    @k for k in 0..K
      named_barrier_sync(wg + 1, 256)
      sum = sum + X[b, k, wg * 64 +: 64]
      named_barrier_arrive((wg + 1) % 2 + 1, 256)
    named_barrier_sync(wg + 1, 256)
    if wg != 1
      named_barrier_arrive(wg + 2, 256)
    Y[b, wg * 64 +: 64] = sum
""",
    "empty groups at the end": """  size N: i32
  size K: i32
  fact K >= 1
  in X: f32[N, K, 128]
  out Y: f32[N, 128]
kernel main grid (b: N) threads 32
  shared s: f32[2, 128]
  @t for t in 0..32 parallel thread
    register sum: f32[4] = 0.0
    copy X[b, 0, t * 4 +: 4] -> s[0, t * 4 +: 4] via cp_async grouped
    async_commit()
    @k for k in 0..K
      if k + 1 < K
        copy X[b, k + 1, t * 4 +: 4] -> s[(k + 1) % 2, t * 4 +: 4] via cp_async grouped
      async_commit()
      async_wait(1)
      let v = s[k % 2, t * 4 +: 4]
      sum = sum + v
    Y[b, t * 4 +: 4] = sum
""",
    "groups that begin under a condition": """  size N: i32
  size K: i32
  in X: f32[N, K, 64]
  out Y: f32[N, 64]
kernel main grid (b: N) threads 64
  shared s: f32[4, 64]
  @t for t in 0..64 parallel thread
    register sum: f32 = 0.0
    for p in 0..3 unroll {factor=3}
      if p < K
        copy X[b, p, t +: 1] -> s[p, t +: 1] via cp_async grouped
      async_commit()
    @k for k in 0..K
      async_wait(2)
      barrier()
      sum = sum + s[k % 4, 63 - t]
      if k + 3 < K
        copy X[b, k + 3, t +: 1] -> s[(k + 3) % 4, t +: 1] via cp_async grouped
      async_commit()
    Y[b, t] = sum
""",
    "groups of threads": """  size N: i32
  size K: i32
  in X: f32[N, K, 128]
  out Y: f32[N, 128]
kernel main grid (b: N) threads 32
  shared s: f32[2, 128]
  @t for t in 0..32 parallel thread
    register sum: f32[4] = 0.0
    copy load(X[b, 0, t * 4 +: 4] else 0.0 clip) -> s[0, t * 4 +: 4] via cp_async grouped
    async_commit()
    @k for k in 0..K
      async_wait(0)
      barrier()
      copy load(X[b, k + 1, t * 4 +: 4] else 0.0 clip) -> s[(k + 1) % 2, t * 4 +: 4] via cp_async grouped
      async_commit()
      sum = sum + s[k % 2, 124 - t * 4 +: 4]
    async_wait(0)
    Y[b, t * 4 +: 4] = sum
""",
    "ring": """  size N: i32
  size K: i32
  in X: f32[N, K, 64]
  out Y: f32[N, 64]
kernel main grid (b: N) threads 96
  shared s: f32[3, 64]
  shared full: mbarrier[3]
  shared empty: mbarrier[3]
  @init for i in 0..3 unroll {factor=3}
    mbar_init(&full[i], 1)
    mbar_init(&empty[i], 2)
  fence_mbar_init()
  roles
    role producer warps 0..1
      @k for k in 0..K
        mbar_wait(&empty[k % 3], (k // 3 + 1) % 2)
        mbar_arrive_expect(&full[k % 3], 256)
        copy X[b, k, 0 +: 64] -> s[k % 3, 0 +: 64] via bulk signal full[k % 3]
    role consumer warps 1..3
      @c for w in 0..2 parallel warp
        fragment sum: f32[32] = 0.0
        @k for k1 in 0..K
          mbar_wait(&full[k1 % 3], k1 // 3 % 2)
          sum = sum + s[k1 % 3, 32 - w * 32 +: 32]
          mbar_arrive(&empty[k1 % 3])
        Y[b, w * 32 +: 32] = sum
""",
    "the next round first": """  size N: i32
  size K: i32
  in X: f32[N, K, 64]
  out Y: f32[N, K, 64]
  map Y_map of Y box [1, 1, 64]
kernel main grid (b: N) threads 64
  shared s: f32[3, 64]
  shared o: f32[64] align 128
  shared full: mbarrier[3]
  shared empty: mbarrier[3]
  @init for i in 0..3 unroll {factor=3}
    mbar_init(&full[i], 1)
    mbar_init(&empty[i], 1)
  fence_mbar_init()
  roles
    role producer warps 0..1
      @k for k in 0..K + 1
        mbar_wait(&empty[k % 3], (k // 3 + 1) % 2)
        mbar_arrive_expect(&full[k % 3], 256)
        copy load(X[b, k, 0 +: 64] else 0.0 clip) -> s[k % 3, 0 +: 64] via bulk signal full[k % 3]
    role consumer warps 1..2
      mbar_wait(&full[0], 0)
      @k for k1 in 0..K
        mbar_wait(&full[(k1 + 1) % 3], (k1 + 1) // 3 % 2)
        bulk_wait(0, read=true)
        o = s[k1 % 3, 0 +: 64] + s[(k1 + 1) % 3, 0 +: 64]
        mbar_arrive(&empty[k1 % 3])
        fence_async()
        copy o -> Y[b, k1, 0 +: 64] via tma grouped {descriptor=Y_map}
        bulk_commit()
      bulk_wait(0)
""",
    "products": """  size M: i32
  size K: i32
  in A: f16[M, K]
  in B: f16[K, 16]
  out C: f16[M, 16]
  fact K % 16 == 0
  fact K >= 1
  map A_map of A box [64, 16] {swizzle=32}
  map C_map of C box [64, 16] {swizzle=32}
kernel main grid (b: ceildiv(M, 64)) threads 256
  let steps = K // 16
  shared As: f16[2, 64, 16] layout swizzle(1, 4, 3) align 1024
  shared Bs: f16[16, 16] align 1024
  shared Cs: f16[64, 16] layout swizzle(1, 4, 3) align 1024
  shared full: mbarrier[2]
  shared empty: mbarrier[2]
  @init for t in 0..256 parallel thread
    if t < 16
      Bs[t, 0 +: 16] = 0.5:f16
    fence_async()
    if t == 0
      for i in 0..2 unroll {factor=2}
        mbar_init(&full[i], 1)
        mbar_init(&empty[i], 1)
      fence_mbar_init()
  roles
    role producer warps 0..4
      for t1 in 0..128 parallel thread
        if t1 == 0
          @k for k in 0..steps
            let it = k
            mbar_wait(&empty[it % 2], (it // 2 + 1) % 2)
            mbar_arrive_expect(&full[it % 2], 2048)
            copy load(A[b * 64 +: 64, k * 16 +: 16] else 0.0:f16 clip) -> As[it % 2, 0 +: 64, 0 +: 16] via tma signal full[it % 2] {descriptor=A_map}
    role consumer warps 4..8
      for t2 in 0..128 parallel thread
        register acc: f32[8] = 0.0
        @k for k2 in 0..steps
          let it2 = k2
          mbar_wait(&full[it2 % 2], it2 // 2 % 2)
          wgmma_fence()
          wgmma(&acc, &As[it2 % 2, 0 +: 64, 0 +: 16], &Bs, shape=m64n16k16)
          wgmma_commit()
          wgmma_wait(1)
          if k2 > 0 & t2 == 0
            mbar_arrive(&empty[(it2 + 1) % 2])
        wgmma_wait(0)
        if t2 == 0
          mbar_arrive(&empty[(steps + 1) % 2])
        @n for j in 0..2 unroll {factor=2}
          barrier()
          Cs[t2 // 32 * 16 + t2 % 32 // 4, j * 8 + t2 % 4 * 2 +: 2] = cast(acc[j * 4 +: 2], f16)
          Cs[t2 // 32 * 16 + t2 % 32 // 4 + 8, j * 8 + t2 % 4 * 2 +: 2] = cast(acc[j * 4 + 2 +: 2], f16)
        fence_async()
        barrier()
        if t2 == 0
          copy Cs[0 +: 64, 0 +: 16] -> C[b * 64 +: 64, 0 +: 16] via tma clip grouped {descriptor=C_map}
          bulk_commit()
        if t2 == 0
          bulk_wait(0)
""",
    "ring of tiles": """  size M: i32
  size K: i32
  in A: f16[M, K]
  in B: f16[K, 16]
  out C: f16[M, 16]
  fact K % 16 == 0
  fact K >= 1
  map A_map of A box [64, 16] {swizzle=32}
  map C_map of C box [64, 16] {swizzle=32}
kernel main grid (b: min(ceildiv(M, 64), 2)) threads 256
  let steps = K // 16
  let tiles = ceildiv(ceildiv(M, 64) - b, min(ceildiv(M, 64), 2))
  shared As: f16[2, 64, 16] layout swizzle(1, 4, 3) align 1024
  shared Bs: f16[16, 16] align 1024
  shared Cs: f16[64, 16] layout swizzle(1, 4, 3) align 1024
  shared full: mbarrier[2]
  shared empty: mbarrier[2]
  @init for t in 0..256 parallel thread
    if t < 16
      Bs[t, 0 +: 16] = 0.5:f16
    fence_async()
    if t == 0
      for i in 0..2 unroll {factor=2}
        mbar_init(&full[i], 1)
        mbar_init(&empty[i], 1)
      fence_mbar_init()
  roles
    role producer warps 0..4
      for t1 in 0..128 parallel thread
        if t1 == 0
          @tile for i1 in 0..tiles
            let m = i1 * min(ceildiv(M, 64), 2) + b
            @k for k in 0..steps
              let it = i1 * steps + k
              mbar_wait(&empty[it % 2], (it // 2 + 1) % 2)
              mbar_arrive_expect(&full[it % 2], 2048)
              copy load(A[m * 64 +: 64, k * 16 +: 16] else 0.0:f16 clip) -> As[it % 2, 0 +: 64, 0 +: 16] via tma signal full[it % 2] {descriptor=A_map}
    role consumer warps 4..8
      for t2 in 0..128 parallel thread
        @tile for i2 in 0..tiles
          register acc: f32[8] = 0.0
          @k for k2 in 0..steps
            let it2 = i2 * steps + k2
            mbar_wait(&full[it2 % 2], it2 // 2 % 2)
            wgmma_fence()
            wgmma(&acc, &As[it2 % 2, 0 +: 64, 0 +: 16], &Bs, shape=m64n16k16)
            wgmma_commit()
            wgmma_wait(1)
            if k2 > 0 & t2 == 0
              mbar_arrive(&empty[(it2 + 1) % 2])
          wgmma_wait(0)
          if t2 == 0
            mbar_arrive(&empty[(i2 * steps + steps + 1) % 2])
            bulk_wait(0, read=true)
          barrier()
          @n for j in 0..2 unroll {factor=2}
            Cs[t2 // 32 * 16 + t2 % 32 // 4, j * 8 + t2 % 4 * 2 +: 2] = cast(acc[j * 4 +: 2], f16)
            Cs[t2 // 32 * 16 + t2 % 32 // 4 + 8, j * 8 + t2 % 4 * 2 +: 2] = cast(acc[j * 4 + 2 +: 2], f16)
          fence_async()
          barrier()
          if t2 == 0
            copy Cs[0 +: 64, 0 +: 16] -> C[(i2 * min(ceildiv(M, 64), 2) + b) * 64 +: 64, 0 +: 16] via tma clip grouped {descriptor=C_map}
            bulk_commit()
        if t2 == 0
          bulk_wait(0)
""",
}
"""Programs in which all is proved but, of some, that indices fit 32 bits."""

WRONG = {
    "a wait for one group less": ("groups", "async_wait(2)", "async_wait(3)", "race"),
    "no wait for groups": ("groups", "    async_wait(2)\n", "", "race"),
    "groups: a slot too few": ("groups", "shared s: f32[4, 64]", "shared s: f32[3, 64]", "bounds"),
    "groups: a slot early": ("groups", "s[(k + 3) % 4", "s[(k + 2) % 4", "race"),
    "groups: never closed": ("groups", "    async_commit()\n    sum", "    sum", "race"),
    "groups: in flight at the end": ("groups", "  async_wait(0)\n", "", "wait"),
    "empty groups: none closed in the last trip": ("empty groups at the end", "via cp_async grouped\n      async_commit()",
                                                   "via cp_async grouped\n        async_commit()", "race"),
    "empty groups: no wait in the last trip": ("empty groups at the end", "      async_wait(1)\n", "      if k + 1 < K\n        async_wait(1)\n", "race"),
    "empty groups: another thread's elements": ("empty groups at the end", "s[k % 2, t * 4 +: 4]", "s[k % 2, 124 - t * 4 +: 4]", "race"),
    "conditional groups: none closed without a copy": ("groups that begin under a condition", "      async_commit()\n    Y",
                                                          "        async_commit()\n    Y", "race"),
    "conditional groups: four ahead": ("groups that begin under a condition", "(k + 3) % 4", "(k + 4) % 4", "race"),
    "turns: nobody begins": ("turns", "    if wg == 0\n      named_barrier_arrive(1, 256)\n", "", "barrier"),
    "turns: too many are counted": ("turns", "sync(wg + 1, 256)\n      sum", "sync(wg + 1, 384)\n      sum", "barrier"),
    "turns: nobody ends": ("turns", "    if wg != 1\n      named_barrier_arrive(wg + 2, 256)\n", "", "barrier"),
    "turns: a trip less": ("turns", "for k in 0..K", "for k in 0..K - wg", "barrier"),
    "no barrier after the wait": ("groups of threads", "      barrier()\n", "", "race"),
    "the barrier before the wait": ("groups of threads", "      async_wait(0)\n      barrier()\n", "      barrier()\n      async_wait(0)\n", "race"),
    "the copy before the barrier": ("groups of threads", "s[(k + 1) % 2, t", "s[k % 2, t", "race"),
    "no wait for what is full": ("ring", "          mbar_wait(&full[k1 % 3], k1 // 3 % 2)\n", "", "race"),
    "no wait for what is empty": ("ring", "        mbar_wait(&empty[k % 3], (k // 3 + 1) % 2)\n", "", "race"),
    "the other phase of full": ("ring", "k1 // 3 % 2", "(k1 // 3 + 1) % 2", "barrier"),
    "the other phase of empty": ("ring", "(k // 3 + 1) % 2", "k // 3 % 2", "barrier"),
    "a phase that never turns": ("ring", "k1 // 3 % 2", "0", "barrier"),
    "the next slot is read": ("ring", "s[k1 % 3, 32", "s[(k1 + 1) % 3, 32", "race"),
    "the next slot is written": ("ring", "-> s[k % 3", "-> s[(k + 1) % 3", "race"),
    "the next slot is freed": ("ring", "mbar_arrive(&empty[k1 % 3])", "mbar_arrive(&empty[(k1 + 1) % 3])", "ring"),
    "nobody frees": ("ring", "          mbar_arrive(&empty[k1 % 3])\n", "", "barrier"),
    "freed before it is read": ("ring", "          sum = sum + s[k1 % 3, 32 - w * 32 +: 32]\n          mbar_arrive(&empty[k1 % 3])\n",
                                "          mbar_arrive(&empty[k1 % 3])\n          sum = sum + s[k1 % 3, 32 - w * 32 +: 32]\n", "race"),
    "too few are expected": ("ring", "mbar_init(&empty[i], 2)", "mbar_init(&empty[i], 1)", "barrier"),
    "too many are expected": ("ring", "mbar_init(&empty[i], 2)", "mbar_init(&empty[i], 3)", "barrier"),
    "too few bytes": ("ring", "mbar_arrive_expect(&full[k % 3], 256)", "mbar_arrive_expect(&full[k % 3], 128)", "barrier"),
    "too many bytes": ("ring", "mbar_arrive_expect(&full[k % 3], 256)", "mbar_arrive_expect(&full[k % 3], 512)", "barrier"),
    "no fence after the mbarriers are made": ("ring", "  fence_mbar_init()\n", "", "wait"),
    "an mbarrier of the whole CTA that is not fenced": ("a box for the whole CTA", "  fence_mbar_init()\n", "", "wait"),
    "a slot that is never made": ("ring", "for i in 0..3 unroll {factor=3}", "for i in 0..2 unroll {factor=2}", "ring"),
    "the round after the next": ("the next round first", "+ s[(k1 + 1) % 3", "+ s[(k1 + 2) % 3", "race"),
    "the next round unwaited for": ("the next round first", "        mbar_wait(&full[(k1 + 1) % 3], (k1 + 1) // 3 % 2)\n", "", "race"),
    "the next round freed": ("the next round first", "mbar_arrive(&empty[k1 % 3])", "mbar_arrive(&empty[(k1 + 1) % 3])", "barrier"),
    "results not fenced": ("the next round first", "        fence_async()\n", "", "wait"),
    "results over what is read": ("the next round first", "        bulk_wait(0, read=true)\n", "", "race"),
    "one trip less is brought": ("ring", "@k for k in 0..K", "@k for k in 0..K - 1", "barrier"),
    "freed while a product reads it": ("products", "wgmma_wait(1)", "wgmma_wait(2)", "race"),
    "freed a trip early": ("products", "if k2 > 0 & t2 == 0\n            mbar_arrive(&empty[(it2 + 1) % 2])",
                           "if t2 == 0\n            mbar_arrive(&empty[it2 % 2])", "race"),
    "sums read in flight": ("products", "        wgmma_wait(0)\n", "", "wait"),
    "products never fenced": ("products", "          wgmma_fence()\n", "", "wait"),
    "staged without a fence": ("products", "        fence_async()\n        barrier()\n", "        barrier()\n", "wait"),
    "staged without a barrier": ("products", "        fence_async()\n        barrier()\n", "        fence_async()\n", "race"),
    "staged, and fenced behind the barrier": ("products", "        fence_async()\n        barrier()\n", "        barrier()\n        fence_async()\n", "wait"),
    "staged over what is read": ("ring of tiles", "            bulk_wait(0, read=true)\n", "", "race"),
    "mbarriers made by two": ("products", "    if t == 0\n      for i", "    if t < 2\n      for i", "race"),
    "a box of another size": ("products", "map A_map of A box [64, 16]", "map A_map of A box [32, 16]", "ring"),
}
"""What is changed of a right program, and a kind of hazard that a run shows then."""
UNSEEN = frozenset({"the next slot is freed", "staged, and fenced behind the barrier"})
"""Wrong in an order of threads that a run does not try."""


def right(name: str) -> n.Program:
    """A right program."""
    return parse_program(HEAD + RIGHT[name])


def wrong(name: str) -> tuple[n.Program, str]:
    """A wrong program, and its hazard."""
    base, old, new, kind = WRONG[name]
    assert old in RIGHT[base]
    return parse_program(HEAD + RIGHT[base].replace(old, new, 1)), kind
