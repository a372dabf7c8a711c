"""CUDA source of the micro-benchmarks: one kernel a question, all with the parameters `(long long* out, unsigned* buf, long long n, long long p)`.

Every kernel that counts clocks writes those of its CTA to `out[blockIdx.x]`. Instructions are inline PTX whose results feed one another, so that
neither compiler can leave them out.
"""
from __future__ import annotations

CHAINS = 8
"""Independent chains of a thread where throughput is asked for."""
UNROLL = 16
"""Instructions of a chain between two counts of the loop."""

HEAD = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#define PARAMETERS long long* out, unsigned* buf, long long n, long long p
#define FOUR(v) "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
#define KERNEL(name) extern "C" __global__ void name(PARAMETERS)
#define START __syncthreads(); long long begun = clock64();
#define STOP  __syncthreads(); if (threadIdx.x == 0) out[blockIdx.x] = clock64() - begun;

// A chain through all of n slots, p words apart, in the order of a full-period congruence.
KERNEL(chain) {
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x)
    buf[i * p] = (unsigned)(((i * 1664525ll + 1013904223ll) & (n - 1)) * p);
}
KERNEL(empty) {}
KERNEL(waiting) { long long until = clock64() + p; while (clock64() < until) {} }
"""

ARITHMETIC: dict[str, tuple[str, str, str]] = {
    "ffma": ("float", "f", "fma.rn.f32 %0, %0, %1, %1;"),
    "fadd": ("float", "f", "add.rn.f32 %0, %0, %1;"),
    "fmax": ("float", "f", "max.f32 %0, %0, %1;"),
    "dfma": ("double", "d", "fma.rn.f64 %0, %0, %1, %1;"),
    "hfma2": ("unsigned", "r", "fma.rn.f16x2 %0, %0, %1, %1;"),
    "bfma2": ("unsigned", "r", "fma.rn.bf16x2 %0, %0, %1, %1;"),
    "iadd": ("unsigned", "r", "add.u32 %0, %0, %1;"),
    "imad": ("unsigned", "r", "mad.lo.u32 %0, %0, %1, %1;"),
    "imad_wide": ("unsigned long long", "l", "{.reg .u32 a, b; mov.b64 {a, b}, %1; mad.wide.u32 %0, a, b, %0;}"),
    "lop3": ("unsigned", "r", "lop3.b32 %0, %0, %1, 0x55, 0x96;"),
    "shift": ("unsigned", "r", "shf.l.wrap.b32 %0, %0, %1, 7;"),
    "ex2": ("float", "f", "ex2.approx.ftz.f32 %0, %0;"),
    "rsqrt": ("float", "f", "rsqrt.approx.ftz.f32 %0, %0;"),
    "shuffle": ("unsigned", "r", "shfl.sync.bfly.b32 %0, %0, 1, 31, 0xffffffff;"),
    "to_f16": ("unsigned", "r", "{.reg .f16 h; .reg .f32 f; mov.b32 f, %0; cvt.rn.f16.f32 h, f; cvt.f32.f16 f, h; mov.b32 %0, f;}"),
    "to_bf16x2": ("unsigned", "r", "{.reg .f32 f; mov.b32 f, %0; cvt.rn.bf16x2.f32 %0, f, f;}"),
    "to_f32": ("unsigned", "r", "{.reg .f32 f; cvt.rn.f32.u32 f, %0; mov.b32 %0, f;}"),
    "select": ("unsigned", "r", "{.reg .pred q; setp.lt.u32 q, %0, %1; selp.u32 %0, %1, 7, q;}"),
    "divide": ("float", "f", "div.rn.f32 %0, %1, %0;"),
}
"""Instructions by name: the type of a chain's value, its PTX constraint, and the text; %1 is the neighboring chain's value."""
FOLDED = frozenset({"fmax"})
"""What the compiler leaves out where a chain feeds only itself."""


def _arithmetic(name: str, kind: str, letter: str, text: str) -> str:
    def kernel(of: str, chains: int) -> str:
        binary = "%1" in text
        ops = "".join(f'asm volatile("{text}" : "+{letter}"(x[{j}])' + (f' : "{letter}"(x[{(j + 1) % chains}])' if binary else "") + ");\n"
                      for j in range(chains))
        return f"""KERNEL({of}_{name}) {{
  {kind} x[{chains}]; for (int j = 0; j < {chains}; ++j) x[j] = ({kind})(threadIdx.x + j + p);
  START
  for (long long i = 0; i < n; ++i) {{
    _Pragma("unroll") for (int u = 0; u < {UNROLL}; ++u) {{ {ops} }}
  }}
  STOP
  for (int j = 0; j < {chains}; ++j) if (x[j] == ({kind})123457) buf[j] = 1;
}}
"""
    return (kernel("latency", 1) if name not in FOLDED else "") + kernel("rate", CHAINS)


MEMORY = r"""
KERNEL(latency_shared) {
  __shared__ unsigned s[1024];
  unsigned at = (unsigned)__cvta_generic_to_shared(s), x = at;
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) s[i] = at + (unsigned)(((i + 33) & 1023) * 4);
  START
  for (long long i = 0; i < n; ++i) { _Pragma("unroll") for (int u = 0; u < 16; ++u) asm volatile("ld.shared.u32 %0, [%0];" : "+r"(x)); }
  STOP
  if (x == 7) buf[0] = x;
}
#define CHASE(name, op) KERNEL(name) { unsigned x = (unsigned)p; START \
  for (long long i = 0; i < n; ++i) { _Pragma("unroll") for (int u = 0; u < 16; ++u) asm volatile(op " %0, [%1];" : "=r"(x) : "l"(buf + x)); } \
  STOP if (x == 7) out[1] = x; }
CHASE(latency_l1, "ld.global.ca.u32")
CHASE(latency_far, "ld.global.cg.u32")
KERNEL(latency_atomic) {
  unsigned x = 1; START
  for (long long i = 0; i < n; ++i) asm volatile("atom.global.add.u32 %0, [%1], %0;" : "+r"(x) : "l"(buf) : "memory");
  STOP if (x == 7) out[1] = x;
}
KERNEL(latency_atomic_shared) {
  __shared__ unsigned s[32]; s[threadIdx.x & 31] = 0; unsigned x = 1, at = (unsigned)__cvta_generic_to_shared(s); START
  for (long long i = 0; i < n; ++i) asm volatile("atom.shared.add.u32 %0, [%1], %0;" : "+r"(x) : "r"(at) : "memory");
  STOP if (x == 7) out[1] = x;
}
KERNEL(latency_barrier) { START for (long long i = 0; i < n; ++i) asm volatile("bar.sync 0;" ::: "memory"); STOP }
KERNEL(latency_warp_barrier) { START for (long long i = 0; i < n; ++i) __syncwarp(); STOP }

// What is read below adds nothing to the places (all of it is 0), which the compiler cannot know.
// Shared memory: p words lie between the words of neighboring lanes (p ways of conflict for p a power of two).
KERNEL(rate_shared) {
  extern __shared__ unsigned s[];
  for (int i = threadIdx.x; i < 8192; i += blockDim.x) s[i] = 0;
  unsigned at = (unsigned)__cvta_generic_to_shared(s) + 4 * (((threadIdx.x & 31) * (unsigned)p) & 8191), x = 0; START
  for (long long i = 0; i < n; ++i) { at += x & p >> 20; unsigned v[8];
    _Pragma("unroll") for (int u = 0; u < 8; ++u) asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v[u]) : "r"(at + 128 * u));
    _Pragma("unroll") for (int u = 0; u < 8; ++u) x ^= v[u]; }
  STOP if (x == 7) buf[0] = x;
}
KERNEL(rate_shared_128) {
  extern __shared__ unsigned s[];
  for (int i = threadIdx.x; i < 8192; i += blockDim.x) s[i] = 0;
  unsigned at = (unsigned)__cvta_generic_to_shared(s) + ((threadIdx.x & 31) * 16 * (unsigned)p) % 32768, x = 0; START
  for (long long i = 0; i < n; ++i) { at += x & p >> 20; unsigned v[4][4];
    _Pragma("unroll") for (int u = 0; u < 4; ++u) asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : FOUR(v[u]) : "r"(at + 128 * u));
    _Pragma("unroll") for (int u = 0; u < 4; ++u) x ^= v[u][0] ^ v[u][1] ^ v[u][2] ^ v[u][3]; }
  STOP if (x == 7) buf[0] = x;
}
KERNEL(rate_shared_store) {
  extern __shared__ unsigned s[];
  unsigned at = (unsigned)__cvta_generic_to_shared(s) + 4 * (((threadIdx.x & 31) * (unsigned)p) & 8191); START
  for (long long i = 0; i < n; ++i) { _Pragma("unroll") for (int u = 0; u < 8; ++u)
    asm volatile("st.shared.u32 [%0], %1;" :: "r"(at), "r"((unsigned)i) : "memory"); }
  STOP if (s[threadIdx.x] == 7777777) buf[0] = 1;
}
KERNEL(rate_ldmatrix) {
  extern __shared__ unsigned s[];
  for (int i = threadIdx.x; i < 8192; i += blockDim.x) s[i] = 0;
  unsigned at = (unsigned)__cvta_generic_to_shared(s) + ((threadIdx.x & 31) * 16 * (unsigned)p) % 32768, x = 0; START
  for (long long i = 0; i < n; ++i) { at += x & p >> 20; unsigned v[4][4];
    _Pragma("unroll") for (int u = 0; u < 4; ++u) asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : FOUR(v[u]) :
    "r"(at + 128 * u)); _Pragma("unroll") for (int u = 0; u < 4; ++u) x ^= v[u][0] ^ v[u][1] ^ v[u][2] ^ v[u][3]; }
  STOP if (x == 7) buf[0] = x;
}
KERNEL(rate_atomic_shared) {
  __shared__ unsigned s[1024]; s[threadIdx.x & 1023] = 0;
  unsigned at = (unsigned)__cvta_generic_to_shared(s) + 4 * ((threadIdx.x * (unsigned)p) & 1023); START
  for (long long i = 0; i < n; ++i) asm volatile("red.shared.add.u32 [%0], 1;" :: "r"(at) : "memory");
  STOP if (s[threadIdx.x & 1023] == 7) buf[0] = 1;
}
// L1: every warp reads the same words again and again; p words between neighboring lanes.
KERNEL(rate_l1) {
  const unsigned* at = buf + (((threadIdx.x & 31) * p) & 2047); unsigned x = 0; START
  for (long long i = 0; i < n; ++i) { at += x & p >> 20; unsigned v[8];
    _Pragma("unroll") for (int u = 0; u < 8; ++u) asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(v[u]) : "l"(at + 32 * u));
    _Pragma("unroll") for (int u = 0; u < 8; ++u) x ^= v[u]; }
  STOP if (x == 7) buf[0] = x;
}
KERNEL(rate_l1_128) {
  const unsigned* at = buf + (((threadIdx.x & 31) * 4 * p) & 2047); unsigned x = 0; START
  for (long long i = 0; i < n; ++i) { at += x & p >> 20; unsigned v[4][4];
    _Pragma("unroll") for (int u = 0; u < 4; ++u) asm volatile("ld.global.ca.v4.u32 {%0, %1, %2, %3}, [%4];" : FOUR(v[u]) : "l"(at + 32 * u));
    _Pragma("unroll") for (int u = 0; u < 4; ++u) x ^= v[u][0] ^ v[u][1] ^ v[u][2] ^ v[u][3]; }
  STOP if (x == 7) buf[0] = x;
}
// The whole device: n words of 16 bytes, read once by all CTAs together; p of them under way in a thread.
template <int AHEAD> __device__ __forceinline__ void streamed(PARAMETERS) {
  const uint4* from = (const uint4*)buf; unsigned x = 0; long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += AHEAD * step) { uint4 v[AHEAD];
    _Pragma("unroll") for (int u = 0; u < AHEAD; ++u) { long long at = i + u * step; if (at < n) v[u] = __ldcg(from + at); else v[u] = make_uint4(0, 0, 0, 0); }
    _Pragma("unroll") for (int u = 0; u < AHEAD; ++u) x ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w; }
  if (x == 7777777) out[0] = x;
}
KERNEL(stream_1) { streamed<1>(out, buf, n, p); }
KERNEL(stream_2) { streamed<2>(out, buf, n, p); }
KERNEL(stream_4) { streamed<4>(out, buf, n, p); }
KERNEL(stream_8) { streamed<8>(out, buf, n, p); }
// Reads p words of 4 bytes apart: one sector a lane from p = 8 on.
KERNEL(stream_apart) {
  unsigned x = 0; long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += 4 * step) {
    _Pragma("unroll") for (int u = 0; u < 4; ++u) { long long at = i + u * step; if (at < n) x ^= __ldcg(buf + at * p); } }
  if (x == 7777777) out[0] = x;
}
KERNEL(stream_write) {
  uint4* to = (uint4*)buf; long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += step) to[i] = make_uint4(1, 2, 3, (unsigned)p);
}
KERNEL(stream_copy) {
  const uint4* from = (const uint4*)buf; uint4* to = (uint4*)buf + n; long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += 4 * step) { uint4 v[4];
    _Pragma("unroll") for (int u = 0; u < 4; ++u) if (i + u * step < n) v[u] = from[i + u * step];
    _Pragma("unroll") for (int u = 0; u < 4; ++u) if (i + u * step < n) to[i + u * step] = v[u]; }
}
// The same n words of 16 bytes, read p times over by all CTAs: L2 where they fit it.
KERNEL(again) {
  const uint4* from = (const uint4*)buf; unsigned x = 0; long long step = (long long)gridDim.x * blockDim.x;
  for (long long r = 0; r < p; ++r)
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += 4 * step) { uint4 v[4];
      _Pragma("unroll") for (int u = 0; u < 4; ++u) { long long at = i + u * step; if (at < n) v[u] = __ldcg(from + at); else v[u] = make_uint4(0, 0, 0, 0); }
      _Pragma("unroll") for (int u = 0; u < 4; ++u) x ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w; }
  if (x == 7777777) out[0] = x;
}
// Additions to global memory: p words between neighboring threads (0: all to one word).
KERNEL(add_global) {
  unsigned* at = buf + (((blockIdx.x * (long long)blockDim.x + threadIdx.x) * p) & 0xffffff);
  for (long long i = 0; i < n; ++i) asm volatile("red.global.add.u32 [%0], 1;" :: "l"(at) : "memory");
}
// A copy of p bytes into shared memory and a read of it, n times in turn: synchronous, cp.async, one bulk copy.
KERNEL(copy_synchronous) {
  extern __shared__ uint4 t[]; const uint4* from = (const uint4*)buf + blockIdx.x * (p / 16); unsigned x = 0; START
  for (long long i = 0; i < n; ++i) {
    for (int j = threadIdx.x; j < p / 16; j += blockDim.x) t[j] = __ldcg(from + i * gridDim.x * (p / 16) + j);
    __syncthreads(); x ^= t[threadIdx.x % (p / 16)].x; __syncthreads(); }
  STOP if (x == 7) buf[0] = x;
}
KERNEL(copy_async) {
  extern __shared__ uint4 t[]; const uint4* from = (const uint4*)buf + blockIdx.x * (p / 16); unsigned x = 0, at = (unsigned)__cvta_generic_to_shared(t); START
  for (long long i = 0; i < n; ++i) {
    for (int j = threadIdx.x; j < p / 16; j += blockDim.x)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at + 16 * j), "l"(from + i * gridDim.x * (p / 16) + j) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads(); x ^= t[threadIdx.x % (p / 16)].x; __syncthreads(); }
  STOP if (x == 7) buf[0] = x;
}
"""

BULK = r"""
KERNEL(copy_bulk) {
  extern __shared__ uint4 t[]; __shared__ unsigned long long full; const char* from = (const char*)buf + blockIdx.x * p;
  unsigned x = 0, at = (unsigned)__cvta_generic_to_shared(t), bar = (unsigned)__cvta_generic_to_shared(&full);
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.mbarrier_init.release.cluster;" :: "r"(bar) : "memory");
  START
  for (long long i = 0; i < n; ++i) {
    if (threadIdx.x == 0) asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;\n"
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%2], [%3], %1, [%0];"
      :: "r"(bar), "r"((unsigned)p), "r"(at), "l"(from + i * gridDim.x * p) : "memory");
    asm volatile("{.reg .pred q; waiting: mbarrier.try_wait.parity.shared.b64 q, [%0], %1; @!q bra waiting;}" :: "r"(bar), "r"((unsigned)(i & 1)) : "memory");
    x ^= t[threadIdx.x % (p / 16)].x; __syncthreads(); }
  STOP if (x == 7) buf[0] = x;
}
"""

MMA_SYNC: dict[str, tuple[str, str, int, int, int, bool]] = {
    "m16n8k8_f16": ("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", "f", 4, 2, 1, True),
    "m16n8k16_f16": ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "f", 4, 4, 2, True),
    "m16n8k16_bf16": ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "f", 4, 4, 2, True),
    "m16n8k8_tf32": ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "f", 4, 4, 2, True),
    "m16n8k32_i8": ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "r", 4, 4, 2, True),
}
"""mma.sync by name: the opcode, the letter of an accumulator, and registers of accumulator, A and B."""


def _mma(name: str, opcode: str, letter: str, c: int, a: int, b: int) -> str:
    def names(first: int, count: int) -> str:
        return "{" + ", ".join(f"%{first + i}" for i in range(count)) + "}"
    text = f"{opcode} {names(0, c)}, {names(c, a)}, {names(c + a, b)}, {names(0, c)};"
    kind = "float" if letter == "f" else "int"

    def kernel(of: str, chains: int) -> str:
        one = "".join(f'asm volatile("{text}" : ' + ", ".join(f'"+{letter}"(d[{j}][{i}])' for i in range(c)) + " : "
                      + ", ".join(f'"r"(a[{i}])' for i in range(a)) + ", " + ", ".join(f'"r"(b[{i}])' for i in range(b)) + ");\n" for j in range(chains))
        return f"""KERNEL({of}_mma_{name}) {{
  {kind} d[{chains}][{c}] = {{}}; unsigned a[{a}], b[{b}]; for (int i = 0; i < {a}; ++i) a[i] = (unsigned)p; for (int i = 0; i < {b}; ++i) b[i] = (unsigned)p;
  START
  for (long long i = 0; i < n; ++i) {{ _Pragma("unroll") for (int u = 0; u < 4; ++u) {{ {one} }} }}
  STOP
  for (int j = 0; j < {chains}; ++j) if (d[j][0] == ({kind})7) buf[j] = 1;
}}
"""
    return kernel("latency", 1) + kernel("rate", 4)


WGMMA_COLUMNS = (8, 16, 32, 64, 128, 256)


def _wgmma(columns: int, waits: bool) -> str:
    """Products of 64 x 16 by 16 x `columns` (f16, f32 accumulators) of operands in shared memory; with a wait after each, or after four."""
    held = columns // 2
    accumulators = ", ".join(f"%{i}" for i in range(held))
    one = (f'asm volatile("wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.f16.f16 {{{accumulators}}}, %{held}, %{held + 1}, 1, 1, 1, 0, 0;" : '
           + ", ".join(f'"+f"(d[{i}])' for i in range(held)) + ' : "l"(a), "l"(b));')
    wait = 'asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");'
    body = f"{one} {wait}" * 4 if waits else f"{one * 4} {wait}"
    return f"""KERNEL({'latency' if waits else 'rate'}_wgmma_n{columns}) {{
  extern __shared__ __align__(1024) unsigned char operands[]; for (int i = threadIdx.x; i < 12288; i += blockDim.x) ((unsigned*)operands)[i] = 0;
  float d[{held}]; for (int i = 0; i < {held}; ++i) d[i] = 0.0f;
  unsigned long long at = __cvta_generic_to_shared(operands), more = (64ull << 32) | (1ull << 16) | (1ull << 62);
  unsigned long long a = ((at & 0x3ffff) >> 4) | more, b = (((at + 8192) & 0x3ffff) >> 4) | more;
  asm volatile("fence.proxy.async;" ::: "memory");
  START
  for (long long i = 0; i < n; ++i) {{ asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); {body} }}
  STOP
  for (int i = 0; i < {held}; ++i) if (d[i] == 7.0f) buf[i] = 1;
}}
"""


def source(capability: tuple[int, int]) -> str:
    """The text for a device of this compute capability (8.0 and later)."""
    parts = [HEAD, MEMORY, *(_arithmetic(name, *row) for name, row in ARITHMETIC.items())]
    parts += [_mma(name, *row[:5]) for name, row in MMA_SYNC.items()]
    if capability >= (9, 0):
        parts.append(BULK)
    if capability == (9, 0):
        parts += [_wgmma(columns, waits) for columns in WGMMA_COLUMNS for waits in (True, False)]
    return "\n".join(parts)
