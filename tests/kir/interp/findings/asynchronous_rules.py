"""Each rule of the asynchronous instructions, as a right program and what breaks it.

`RULES` maps a right program to the ways of breaking it: what is wrong, the text that is replaced and by what, and the id that the interpreter reports.
`kir check` proves none of those, and of the right ones at least what `DECIDED` names. Sources: PTX ISA, sections on cp.async, cp.async.bulk and tensor
copies, mbarrier, fence.proxy.async, bar, barrier.cluster, wgmma, ldmatrix, stmatrix, setmaxnreg and griddepcontrol.
"""
from __future__ import annotations

HEAD = "kir 1\nprogram p\n  in X: f32[64]\n  out Y: f32[64]\n"
KERNEL = "kernel main grid (b: 1) threads {threads}\n"


def made(body: str, threads: int = 64, more: str = "") -> str:
    """A program of one kernel; `more` declares further parameters."""
    return HEAD + more + KERNEL.format(threads=threads) + "".join(f"  {line}\n" for line in body.strip("\n").split("\n"))


LOAD = made("""
shared s: f32[64] align 128
shared bar: mbarrier
mbar_init(&bar, 1)
fence_mbar_init()
s = 0.0
fence_async()
mbar_arrive_expect(&bar, 256)
copy X -> s via tma signal bar
mbar_wait(&bar, 0)
Y = s""")

ROUNDS = made("""
shared s: f32[64] align 128
shared bar: mbarrier
mbar_init(&bar, 1)
fence_mbar_init()
for i in 0..2
  mbar_arrive_expect(&bar, 256)
  copy X -> s via tma signal bar
  mbar_wait(&bar, i % 2)
  Y = s""")

RING = made("""
shared s: f32[2, 32] align 128
shared full: mbarrier[2]
shared free: mbarrier[2]
for i in 0..2
  mbar_init(&full[i], 1)
  mbar_init(&free[i], 1)
fence_mbar_init()
roles
  role producer warps 0..1
    for i in 0..6
      mbar_wait(&free[i % 2], (i // 2 + 1) % 2)
      mbar_arrive_expect(&full[i % 2], 128)
      copy A[i, 0 +: 32] -> s[i % 2, 0 +: 32] via tma signal full[i % 2]
  role consumer warps 1..2
    for i in 0..6
      mbar_wait(&full[i % 2], i // 2 % 2)
      B[i, 0 +: 32] = s[i % 2, 0 +: 32]
      mbar_arrive(&free[i % 2])
Y = X""", more="  in A: f32[6, 32]\n  out B: f32[6, 32]\n")

BULK = made("""
shared s: f32[64] align 128
shared bar: mbarrier
s = X
mbar_init(&bar, 1)
fence_async()
mbar_arrive_expect(&bar, 64)
copy X[0 +: 16] -> s[0 +: 16] via bulk signal bar
mbar_wait(&bar, 0)
Y = s""")

STORES = made("""
shared s: f32[64] align 128
shared r: f32[64] align 128
for t in 0..64 parallel thread
  for i in 0..2
    s[t] = X[t] + cast(i, f32)
    r[t] = X[t]
    fence_async()
    barrier()
    if t == 0
      copy s -> Z[i, 0 +: 64] via tma grouped
      copy r -> V[i, 0 +: 64] via tma grouped
      bulk_commit()
      bulk_wait(0, read=true)
    barrier()
  if t == 0
    bulk_wait(0)
    W[0] = V[0, 0]
  Y[t] = X[t]""", more="  out Z: f32[2, 64]\n  out V: f32[2, 64]\n  out W: f32[1]\n")

GLOBAL = made("""
shared s: f32[64] align 128
shared bar: mbarrier
mbar_init(&bar, 1)
fence_mbar_init()
Z = X
fence_async()
mbar_arrive_expect(&bar, 256)
copy Z -> s via tma signal bar
mbar_wait(&bar, 0)
Y = s""", more="  inout Z: f32[64]\n")

GROUPS = made("""
shared s: f32[64] align 128
for t in 0..16 parallel thread
  copy X[t*4 +: 4] -> s[t*4 +: 4] via cp_async grouped
  async_commit()
  async_wait(0)
  copy X[60 - t*4 +: 4] -> s[t*4 +: 4] via cp_async grouped
  async_commit()
  async_wait(0)
  fence_async()
  barrier()
  Y[t*4 +: 4] = s[60 - t*4 +: 4]
  if t == 0
    copy s -> Z via tma grouped
    bulk_commit()
    bulk_wait(0)""", more="  out Z: f32[64]\n")

REUSED = made("""
shared s: f32[64]
for t in 0..64 parallel thread
  for i in 0..3
    s[t] = X[t] + cast(i, f32)
    barrier()
    Z[i, t] = s[63 - t]
    barrier()
  Y[t] = X[t]""", more="  out Z: f32[3, 64]\n")

NAMED = made("""
shared s: f32[64]
roles
  role first warps 0..1
    s = X
    named_barrier_arrive(1, 64)
  role second warps 1..2
    named_barrier_sync(1, 64)
    Y = s""")

ZERO = made("""
for t in 0..64 parallel thread
  Y[t] = X[t]
  barrier()
  if t < 32
    named_barrier_sync(1, 32)""")

REGISTERS = made("""
Y = X
for t in 0..128 parallel thread
  set_registers(40)""", threads=128)

CLUSTER = HEAD + """kernel main grid (b: 2) threads 32 cluster (2)
  cluster box: f32[2, 32]
  for t in 0..32 parallel thread
    box[b, t] = X[b*32 + t]
    cluster_arrive()
    cluster_wait()
    Y[b*32 + t] = box[1 - b, t]
    cluster_arrive()
    cluster_wait()
"""

CHAIN = """kir 1
program p
  in X: f32[64]
  out Y: f32[64]
  workspace W: f32[64]
  workspace V: f32[64]
  inout U: f32[64]
kernel first grid (b: 1) threads 1
  W = X
  V = U
kernel second grid (b: 1) threads 1
  grid_dependency_wait()
  U = X + 1.0
kernel third grid (b: 1) threads 1
  grid_dependency_wait()
  Y = W
plan
  launch first
  launch second {pdl=true}
  launch third {pdl=true}
"""

PRODUCT = """kir 1
program p
  in X: f16[64, 64]
  in W: f16[64, 64]
  out Y: f32[64, 64]
kernel main grid (b: 1) threads 128
  shared Xs: f16[64, 64] layout swizzle(3, 4, 3) align 1024
  shared Ws: f16[64, 64] layout swizzle(3, 4, 3) align 1024
  Xs = X
  Ws = W
  fragment acc: f32[64, 64] = 0.0
  fence_async()
  barrier()
  wgmma_fence()
  mma acc += Xs * Ws via wgmma pending
  wgmma_commit()
  wgmma_wait(0)
  acc = acc * 0.5
  Ws = X
  fence_async()
  wgmma_fence()
  mma acc += Xs * Ws via wgmma pending
  mma acc += Xs * Ws via wgmma pending
  wgmma_commit()
  wgmma_wait(0)
  Y = acc
"""

VALUE = """kir 1
program p
  in X: f16[64, 64]
  in W: f16[64, 64]
  out Y: f32[64, 64]
kernel main grid (b: 1) threads 128
  shared Ws: f16[64, 64] layout swizzle(3, 4, 3) align 1024
  Ws = W
  fragment acc: f32[64, 64] = 0.0
  fragment p: f32[64, 64] = cast(X, f32)
  fence_async()
  barrier()
  wgmma_fence()
  let left = load(X)
  mma acc += left * Ws via wgmma pending
  mma acc += cast(p, f16) * Ws via wgmma pending
  p = 0.0
  wgmma_commit()
  wgmma_wait(0)
  Y = acc
"""
"""A left operand that is a value has registers of its own, which whoever lowers the product writes and fences; what it was made of is free at once."""

LANES = """kir 1
program p
  in X: f16[64, 16]
  in W: f16[16, 64]
  out Y: f32[128, 32]
kernel main grid (b: 1) threads 128
  shared Xs: f16[64, 16] layout swizzle(1, 4, 3) align 1024
  shared Ws: f16[16, 64] layout swizzle(3, 4, 3) align 1024
  Xs = X
  Ws = W
  fence_async()
  for t in 0..128 parallel thread
    register acc: f32[32] = 0.0
    barrier()
    wgmma_fence()
    wgmma(&acc, &Xs, &Ws, shape=m64n64k16)
    wgmma_commit()
    wgmma_wait(0)
    Y[t, 0 +: 32] = acc
"""

APART = LANES.replace("  Ws = W\n", "  Ws = W\n  shared bar: mbarrier\n  mbar_init(&bar, 128)\n  fence_mbar_init()\n").replace(
    "    barrier()\n", "    mbar_arrive(&bar)\n    mbar_wait(&bar, 0)\n")
"""The same with warps that wait for one another, and so run on their own."""

MATRIX = """kir 1
program p
  in X: f16[8, 24]
  out Y: f16[32, 2]
kernel main grid (b: 1) threads 32
  shared Xs: f16[8, 24]
  Xs = X
  for t in 0..32 parallel thread
    Y[t, 0 +: 2] = X[0, 0 +: 2]
    let v = ldmatrix(&Xs[t % 8, 0], num=1)
    Y[t, 0 +: 2] = v
    barrier()
    stmatrix(&Xs[t % 8, 8], v)
"""

TENSOR = """kir 1
program p
  in A: f16[128, 16]
  in B: f16[16, 32]
  out Y: f32[2, 128, 32]
kernel main grid (b: 1) threads 128
  shared As: f16[128, 16] layout swizzle(1, 4, 3) align 256
  shared Bs: f16[16, 32] layout swizzle(2, 4, 3) align 512
  shared bar: mbarrier
  shared at: u32
  mbar_init(&bar, 1)
  fence_mbar_init()
  As = A
  Bs = B
  fence_async()
  for t in 0..128 parallel thread
    register r: f32[32]
    if t < 32
      tcgen05_alloc(&at, 32)
      tcgen05_relinquish()
    barrier()
    let d = at
    for i in 0..2
      if t == 0
        tcgen05_fence_after()
        tcgen05_mma(d, &As, &Bs, 0, shape=m128n32k16)
        tcgen05_mma(d, &As, &Bs, 1, shape=m128n32k16)
        tcgen05_commit(&bar)
      mbar_wait(&bar, i)
      tcgen05_fence_after()
      tcgen05_ld(&r[0 +: 32], d + cast(t // 32 * 32 << 16, u32))
      tcgen05_wait_ld()
      Y[i, t, 0 +: 32] = r
      tcgen05_fence_before()
      barrier()
    if t < 32
      tcgen05_dealloc(d, 32)
"""

ONE_WARP = "    if t < 32\n  "
Broken = tuple[str, str, str, str]
"""What is wrong, the text that is replaced, by what, and the id that is reported."""

RULES: dict[str, tuple[str, tuple[Broken, ...]]] = {
    "a copy that an mbarrier counts": (LOAD, (
        ("no bytes are expected", "mbar_arrive_expect(&bar, 256)", "mbar_arrive(&bar)", "KIR-I014"),
        ("too few bytes are expected", "256)", "128)", "KIR-I020"),
        ("too many bytes are expected", "256)", "512)", "KIR-I020"),
        ("nobody waits", "  mbar_wait(&bar, 0)\n", "", "KIR-I014"),
        ("the other phase is waited for", "mbar_wait(&bar, 0)", "mbar_wait(&bar, 1)", "KIR-I020"),
        ("the mbarrier is not fenced for the async proxy", "  fence_mbar_init()\n  s = 0.0\n  fence_async()\n", "  s = X\n", "KIR-I015"),
        ("generic writes are written over without a proxy fence", "  fence_async()\n", "", "KIR-I015"),
        ("the mbarrier is initialized twice", "fence_mbar_init()", "mbar_init(&bar, 1)\n  fence_mbar_init()", "KIR-I021"),
        ("the mbarrier is initialized again after its use", "  Y = s\n", "  Y = s\n  mbar_init(&bar, 1)\n  fence_mbar_init()\n", "KIR-I021"),
        ("the box begins at no multiple of 128 bytes", "copy X -> s", "copy X[0 +: 32] -> s[8 +: 32]", "KIR-I011"))),
    "an mbarrier of several rounds": (ROUNDS, (
        ("the parity is not flipped", "i % 2)", "0)", "KIR-I020"),
        ("it is initialized in each round", "    mbar_arrive", "    mbar_init(&bar, 1)\n    fence_mbar_init()\n    mbar_arrive", "KIR-I021"))),
    "a ring": (RING, (
        ("the producer waits for the wrong phase", "(i // 2 + 1) % 2)", "i // 2 % 2)", "KIR-I020"),
        ("the consumer waits for the wrong phase", "], i // 2 % 2)", "], (i // 2 + 1) % 2)", "KIR-I020"),
        ("a stage is filled before it is free", "        mbar_wait(&free[i % 2], (i // 2 + 1) % 2)\n", "", "KIR-I014"),
        ("a stage is given back before it is read", "        B[i, 0 +: 32] = s[i % 2, 0 +: 32]\n        mbar_arrive(&free[i % 2])",
         "        mbar_arrive(&free[i % 2])\n        B[i, 0 +: 32] = s[i % 2, 0 +: 32]", "KIR-I014"),
        ("a stage is never given back", "        mbar_arrive(&free[i % 2])\n", "", "KIR-I020"),
        ("more arrivals are expected than come", "mbar_init(&free[i], 1)", "mbar_init(&free[i], 2)", "KIR-I020"),
        ("bytes are counted on another slot", "signal full[i % 2]", "signal full[(i + 1) % 2]", "KIR-I014"))),
    "a bulk copy": (BULK, (
        ("it moves no multiple of 16 bytes",
         "expect(&bar, 64)\n  copy X[0 +: 16] -> s[0 +: 16]", "expect(&bar, 24)\n  copy X[0 +: 6] -> s[0 +: 6]", "KIR-I011"),
        ("its source begins at no multiple of 16 bytes", "X[0 +: 16]", "X[2 +: 16]", "KIR-I011"),
        ("its target begins at no multiple of 16 bytes", "s[0 +: 16]", "s[2 +: 16]", "KIR-I011"))),
    "stores by TMA": (STORES, (
        ("generic writes are read without a proxy fence", "      fence_async()\n", "", "KIR-I015"),
        ("other threads' writes are not waited for", "      fence_async()\n      barrier()\n", "      fence_async()\n", "KIR-I014"),
        ("the source is written over before it has been read", "        bulk_wait(0, read=true)\n", "", "KIR-I014"),
        ("a wait that leaves one group pending", "bulk_wait(0, read=true)", "bulk_wait(1, read=true)", "KIR-I014"),
        ("others write the source before the issuer has waited",
         "      barrier()\n    if t == 0\n      bulk_wait(0)", "    if t == 0\n      bulk_wait(0)", "KIR-I014"),
        ("a wait for the reads, where the target is read", "      bulk_wait(0)\n", "      bulk_wait(0, read=true)\n", "KIR-I014"),
        ("the group is never committed", "        bulk_commit()\n", "", "KIR-I017"),
        ("two stores of one group to one place", "copy r -> V[i, 0 +: 64]", "copy r -> Z[i, 0 +: 64]", "KIR-I014"))),
    "global memory that is written and then read by TMA": (GLOBAL, (
        ("without a proxy fence", "  fence_async()\n", "", "KIR-I015"),)),
    "groups of cp.async": (GROUPS, (
        ("two copies of one group to one place", "  async_commit()\n    async_wait(0)\n    copy X[60", "  copy X[60", "KIR-I014"),
        ("two groups to one place", "    async_wait(0)\n    copy X[60", "    copy X[60", "KIR-I014"),
        ("the wait leaves one group pending", "    async_wait(0)\n    fence_async", "    async_wait(1)\n    fence_async", "KIR-I014"),
        ("the second group is not committed", "    async_commit()\n    async_wait(0)\n    fence_async", "    async_wait(0)\n    fence_async", "KIR-I017"),
        ("no barrier", "    barrier()\n", "", "KIR-I014"),
        ("what has come is read by TMA without a proxy fence", "    fence_async()\n", "", "KIR-I015"),
        ("the target is written over before the wait", "    async_wait(0)\n    copy X[60",
         "    s[t*4 +: 4] = broadcast(9.0, 4)\n    async_wait(0)\n    copy X[60", "KIR-I014"),
        ("8 bytes from a multiple of 4", "copy X[60 - t*4 +: 4] -> s[t*4 +: 4]", "copy X[61 - t*4 +: 2] -> s[t*4 +: 2]", "KIR-I011"))),
    "shared memory that every trip writes": (REUSED, (
        ("the barrier before the next trip is dropped", "      barrier()\n    Y", "    Y", "KIR-I014"),
        ("the barrier after the writes is dropped", "      barrier()\n      Z", "      Z", "KIR-I014"))),
    "a named barrier": (NAMED, (
        ("there are 16", "(1,", "(16,", "KIR-I022"),
        ("it counts whole warps", "64)", "48)", "KIR-I022"),
        ("more are expected than come", "64)", "96)", "KIR-I020"),
        ("nobody waits", "named_barrier_sync", "named_barrier_arrive", "KIR-I014"))),
    "a named barrier beside barrier()": (ZERO, (
        ("number 0 is the one of barrier()", "named_barrier_sync(1,", "named_barrier_sync(0,", "KIR-I022"),)),
    "registers of a warpgroup": (REGISTERS, (
        ("too few", "(40)", "(16)", "KIR-I071"),
        ("too many", "(40)", "(264)", "KIR-I071"),
        ("no multiple of 8", "(40)", "(42)", "KIR-I071"),
        ("one warp alone", "    set_registers", f"{ONE_WARP}    set_registers", "KIR-I023"))),
    "a cluster": (CLUSTER, (
        ("a wait without an arrival", "    cluster_arrive()\n    cluster_wait()\n    Y", "    cluster_wait()\n    Y", "KIR-I022"),
        ("two arrivals before a wait",
         "    cluster_arrive()\n    cluster_wait()\n    Y", "    cluster_arrive()\n    cluster_arrive()\n    cluster_wait()\n    Y", "KIR-I022"),
        ("two waits after an arrival", "    cluster_wait()\n    Y", "    cluster_wait()\n    cluster_wait()\n    Y", "KIR-I022"),
        ("nobody waits before the peer's memory is read", "    cluster_wait()\n    Y", "    Y", "KIR-I014"))),
    "dependent launches": (CHAIN, (
        ("what an earlier launch still reads is written", "  grid_dependency_wait()\n  U", "  U", "KIR-I014"),
        ("what an earlier launch writes is read", "  grid_dependency_wait()\n  Y", "  Y", "KIR-I014"),
        ("the launch between does not wait", "  grid_dependency_wait()\n  U = X + 1.0", "  let unused = 0", "KIR-I014"))),
    "products in flight": (PRODUCT, (
        ("operands in shared memory are not fenced for the async proxy", "  fence_async()\n  barrier()\n", "  barrier()\n", "KIR-I015"),
        ("an operand that was written again is not fenced", "  Ws = X\n  fence_async()\n", "  Ws = X\n", "KIR-I015"),
        ("the accumulator was set, and is not fenced", "  barrier()\n  wgmma_fence()\n", "  barrier()\n", "KIR-I016"),
        ("the accumulator was changed, and is not fenced", "  fence_async()\n  wgmma_fence()\n", "  fence_async()\n", "KIR-I016"),
        ("the group is not committed", "  wgmma_commit()\n  wgmma_wait(0)\n  Y", "  wgmma_wait(0)\n  Y", "KIR-I017"),
        ("nobody waits", "  wgmma_wait(0)\n  Y", "  Y", "KIR-I016"),
        ("the wait leaves one group pending", "  wgmma_wait(0)\n  Y", "  wgmma_wait(1)\n  Y", "KIR-I016"),
        ("an operand is written over before the wait",
         "  wgmma_wait(0)\n  acc = acc * 0.5\n  Ws = X\n", "  Ws = X\n  wgmma_wait(0)\n  acc = acc * 0.5\n", "KIR-I014"))),
    "a left operand that is a value": (VALUE, (
        ("the accumulator was changed, and is not fenced", "  let left", "  acc = acc * 0.5\n  let left", "KIR-I016"),)),
    "products by lanes": (LANES, (
        ("the accumulator is not fenced", "    wgmma_fence()\n", "", "KIR-I016"),
        ("one warp fences", "    wgmma_fence", f"{ONE_WARP}    wgmma_fence", "KIR-I023"),
        ("one warp multiplies", "    wgmma(", f"{ONE_WARP}    wgmma(", "KIR-I023"),
        ("half of each warp multiplies", "    wgmma(", "    if t % 32 < 16\n      wgmma(", "KIR-I023"),
        ("one warp commits", "    wgmma_commit", f"{ONE_WARP}    wgmma_commit", "KIR-I023"),
        ("one warp waits", "    wgmma_wait", f"{ONE_WARP}    wgmma_wait", "KIR-I023"))),
    "products by lanes of warps apart": (APART, (
        ("one warp fences", "    wgmma_fence", f"{ONE_WARP}    wgmma_fence", "KIR-I023"),
        ("one warp multiplies", "    wgmma(", f"{ONE_WARP}    wgmma(", "KIR-I023"),
        ("one warp commits", "    wgmma_commit", f"{ONE_WARP}    wgmma_commit", "KIR-I023"),
        ("one warp fences twice", "    wgmma_fence()", "    wgmma_fence()\n    if t < 32\n      wgmma_fence()", "KIR-I023"))),
    "matrices of a warp": (MATRIX, (
        ("a row to be read begins at no multiple of 16 bytes", "t % 8, 0], num", "t % 8, 4], num", "KIR-I011"),
        ("a row to be written begins at no multiple of 16 bytes", "t % 8, 8], v", "t % 8, 4], v", "KIR-I011"),
        ("rows are 40 bytes apart", "Xs: f16[8, 24]\n  Xs = X", "Xs: f16[8, 20]\n  Xs = X[0 +: 8, 0 +: 20]", "KIR-I011"),
        ("some lanes alone read", "    let v = ldmatrix(&Xs[t % 8, 0], num=1)\n    Y[t, 0 +: 2] = v\n    barrier()\n    stmatrix(&Xs[t % 8, 8], v)",
         "    if t < 16\n      let v = ldmatrix(&Xs[t % 8, 0], num=1)\n      Y[t, 0 +: 2] = v", "KIR-I023"),
        ("two rows are written to one place", "t % 8, 8], v", "t % 4, 8], v", "KIR-I014"))),
    "products into tensor memory": (TENSOR, (
        ("nothing is allocated", "      tcgen05_alloc(&at, 32)\n", "      at = 0\n", "KIR-I072"),
        ("no power of two is allocated", "alloc(&at, 32)", "alloc(&at, 48)", "KIR-I072"),
        ("more is allocated than there is", "alloc(&at, 32)", "alloc(&at, 1024)", "KIR-I072"),
        ("more is allocated than is left", "      tcgen05_relinquish()\n", "      tcgen05_alloc(&at, 512)\n", "KIR-I072"),
        ("it is allocated after that was given up", "      tcgen05_alloc(&at, 32)\n      tcgen05_relinquish()\n",
         "      tcgen05_relinquish()\n      tcgen05_alloc(&at, 32)\n", "KIR-I072"),
        ("nobody gives it back", "    if t < 32\n      tcgen05_dealloc(d, 32)\n", "", "KIR-I072"),
        ("it is given back twice", "      tcgen05_dealloc(d, 32)\n", "      tcgen05_dealloc(d, 32)\n      tcgen05_dealloc(d, 32)\n", "KIR-I072"),
        ("it is used after it was given back", "      mbar_wait(", "      if t < 32\n        tcgen05_dealloc(d, 32)\n      mbar_wait(", "KIR-I072"),
        ("the tile reaches past its columns", "tcgen05_mma(d, &As, &Bs, 1", "tcgen05_mma(d + 8:u32, &As, &Bs, 1", "KIR-I072"),
        ("the tile reaches past the lanes", "tcgen05_mma(d, &As, &Bs, 1", "tcgen05_mma(d + 2097152:u32, &As, &Bs, 1", "KIR-I072"),
        ("a load reaches past the columns", "tcgen05_ld(&r[0 +: 32], d", "tcgen05_ld(&r[0 +: 32], d + 16:u32", "KIR-I072"),
        ("a warp loads another's lanes", "cast(t // 32 * 32 << 16, u32)", "0:u32", "KIR-I072"),
        ("a warp names two addresses", "cast(t // 32 * 32 << 16, u32)", "cast(t // 16 * 16 << 16, u32)", "KIR-I072"),
        ("the address is not waited for", "    barrier()\n    let d", "    let d", "KIR-I014"),
        ("nobody commits", "        tcgen05_commit(&bar)\n", "", "KIR-I020"),
        ("nobody waits for the commit", "      mbar_wait(&bar, i)\n", "", "KIR-I014"),
        ("a product follows what is still being loaded", "      barrier()\n    if", "    if", "KIR-I020"),
        ("no fence behind the wait", "      mbar_wait(&bar, i)\n      tcgen05_fence_after()\n", "      mbar_wait(&bar, i)\n", "KIR-I073"),
        ("no fence before the barrier", "      tcgen05_fence_before()\n", "", "KIR-I073"),
        ("no fence behind the barrier", "        tcgen05_fence_after()\n", "", "KIR-I073"),
        ("a load is not waited for", "      tcgen05_wait_ld()\n", "", "KIR-I016"),
        ("it adds to what nobody wrote", "&Bs, 0, shape", "&Bs, 1, shape", "KIR-I012"),
        ("every thread asks for the product", "      if t == 0\n        tcgen05_fence", "      if t < 2\n        tcgen05_fence", "KIR-I014"),
        ("half a warp loads", "      tcgen05_ld(", "      if t % 32 < 16\n        tcgen05_ld(", "KIR-I023"),
        ("generic writes are not fenced", "  fence_async()\n", "", "KIR-I015"),
        ("the mbarrier is not fenced", "  fence_mbar_init()\n  As = A\n  Bs = B\n  fence_async()\n", "  As = A\n  Bs = B\n", "KIR-I015"))),
}

DECIDED = frozenset({"a copy that an mbarrier counts", "an mbarrier of several rounds", "a bulk copy", "groups of cp.async",
                     "shared memory that every trip writes", "registers of a warpgroup", "products in flight", "a left operand that is a value",
                     "products by lanes", "products by lanes of warps apart"})
"""Right programs of which `kir check` leaves nothing open."""
