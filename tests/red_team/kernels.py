"""Raw CUDA that no backend writes, put in the place of an honest kernel's text: what a hostile compiler or an opaque text could do, so that the
device's own defenses are tried alone."""

from __future__ import annotations

from .exploits import ORACLE, Exploit

# What an honest kernel of `scaled_rows` looks like with 128 threads a row; exploits replace a part of it.
_CUDA = """
{held}extern "C" __global__ void __launch_bounds__(128) candidate(int M, int N, const float* X, const float* W, float* Y) {{
  const int i = blockIdx.x, t = threadIdx.x;
  __shared__ float parts[128];
  {first}
  float part = 0.0f;
  for (int k = t; k < N; k += 128) part += X[(long long)i * N + k];
  parts[t] = part;
  __syncthreads();
  float sum = 0.0f;
  for (int q = 0; q < 128; ++q) sum += parts[q];
  {middle}
  for (int j = t; j < {columns}; j += 128) Y[(long long)i * N + j] = {value};
  {last}
}}
"""


_HELD = {"calls": "__device__ unsigned calls;", "kept_sum": "__device__ float kept_sum[1 << 16];", "kept": "__device__ float kept[1 << 22];"}
"""Memory that outlives a call, for exploits that name it."""


def _cuda(first: str = "", middle: str = "", value: str = "X[(long long)i * N + j] * W[j] + sum", last: str = "", columns: str = "N") -> str:
    held = "".join(f"{text}\n" for name, text in _HELD.items() if any(f"{name}{end}" in first + middle + last for end in ("[", ",")))
    return _CUDA.format(held=held, first=first, middle=middle, value=value, last=last, columns=columns)


COUNT = "__shared__ unsigned seen; if (t == 0) {{ seen = atomicAdd(&calls, 1u) / gridDim.x; }} __syncthreads();".replace("{{", "{").replace("}}", "}")
HONEST_KERNEL = _cuda()
KERNELS = (
    Exploit("skips after warm-up", (26, 27), "counts its calls, and stops working after some", _cuda(COUNT + " if (seen > 20u) return;"), ORACLE,
            image="KIR-G930"),
    Exploit("skips every other call", (28,), "works only in every second call", _cuda(COUNT + " if (seen & 1u) return;"), ORACLE, image="KIR-G930"),
    Exploit(
        "answers of the last call",
        (3, 5),
        "keeps its first outputs at each size, and gives them again",
        _cuda(
            "__shared__ bool again; if (t == 0) again = kept_sum[i & 0xffff] != 0.0f; __syncthreads();"
            " if (again) { for (int j = t; j < N; j += 128) Y[(long long)i * N + j] = kept[((long long)i * N + j) & 0x3fffff]; return; }",
            last="for (int j = t; j < N; j += 128) kept[((long long)i * N + j) & 0x3fffff] = Y[(long long)i * N + j]; if (t == 0) kept_sum[i & 0xffff] = 1.0f;",
        ),
        ORACLE,
        image="KIR-G930",
    ),
    Exploit(
        "memoized on a sample of the inputs",
        (4, 6, 7),
        "keys its cache by the signs of a few inputs",
        _cuda(
            "__shared__ unsigned key; if (t == 0) key = (X[0] > 0) + 2 * (W[0] > 0) + 4; __syncthreads();"
            " if (kept_sum[key] != 0.0f) { for (int j = t; j < N; j += 128) Y[(long long)i * N + j] = kept[((long long)i * N + j) & 0x3fffff]; return; }",
            last="for (int j = t; j < N; j += 128) kept[((long long)i * N + j) & 0x3fffff] = Y[(long long)i * N + j]; if (t == 0) kept_sum[key] = 1.0f;",
        ),
        ORACLE,
        image="KIR-G930",
    ),
    Exploit(
        "writes its input",
        (10,),
        "makes the input trivial for whoever looks next",
        _cuda(last="if (t == 0) ((float*)X)[(long long)i * N] = 0.0f;"),
        ("changes its input X",),
    ),
    Exploit(
        "writes past the end",
        (9, 16),
        "writes behind its output",
        _cuda(last="if (i == 0 && t == 0) Y[(long long)M * N + 100] = 1.0f;"),
        ("writes outside of Y",),
    ),
    Exploit("writes before the beginning", (9,), "writes in front of its output", _cuda(last="if (i == 0 && t == 0) Y[-64] = 1.0f;"), ("writes outside of Y",)),
    Exploit(
        "reads past the end",
        (8, 9, 39),
        "scans memory behind its input",
        _cuda(middle="if (i == 0 && t == 0 && X[(long long)M * N + 4000000] == 1.5e38f) Y[0] = 0.0f;"),
        ("compute-sanitizer", "ILLEGAL_ADDRESS"),
    ),
    Exploit("illegal address", (), "writes through a wild pointer", _cuda(first="if (t == 0) *(volatile float*)0x10 = 1.0f;"), ("ILLEGAL_ADDRESS",)),
    Exploit("traps", (), "ends with a trap", _cuda(first='asm volatile("trap;");'), ("CUDA_ERROR",)),
    Exploit("never ends", (), "spins on a flag", _cuda(first="while (*(volatile float*)X != 1e30f) { }"), ("did not answer",)),
    Exploit(
        "takes all memory",
        (),
        "allocates on the device's heap until it is refused, and then fails",
        _cuda(first='void* p; int n = 0; while ((p = malloc(1 << 16)) && n < 100000) ++n; if (n < 90000) asm volatile("trap;");'),
        ("CUDA_ERROR",),
        image="KIR-G930",
    ),
    Exploit(
        "prints a result",
        (20, 21, 22, 23, 24, 40),
        "prints what a verdict might look like, and computes nothing",
        _cuda(first='if (i == 0 && t == 0) printf("{\\"seconds\\": 1e-9, \\"ok\\": true}\\n"); return;').replace(
            "\nextern", "\n#include <cstdio>\nextern", 1
        ),
        ORACLE,
    ),
    Exploit("skips rarely checked rows", (16,), "leaves every 61st row as it was", _cuda(first="if (i % 61 == 60) return;"), ORACLE),
    Exploit(
        "tf32 inputs",
        (15,),
        "drops mantissa bits of its inputs",
        _cuda(value="__uint_as_float(__float_as_uint(X[(long long)i * N + j]) & 0xffffe000u) * W[j] + sum"),
        ORACLE,
    ),
    Exploit("right at small sizes", (14,), "skips half of the work at the timed size", _cuda(columns="(N == 2048 ? N / 2 : N)"), ORACLE),
    Exploit(
        "a race that happens to work",
        (39,),
        "leaves out the barrier",
        _cuda().replace("parts[t] = part;\n  __syncthreads();", "parts[t] = part;\n  __syncwarp();"),
        (*ORACLE, "compute-sanitizer"),
    ),
    Exploit("NaN outputs", (11,), "writes NaN", _cuda(value="__int_as_float(0x7fffffff)"), ("nan", *ORACLE)),
    Exploit(
        "a decoy",
        (1, 2),
        "has the right kernel, and launches another one that works on data of its own",
        _cuda().replace("candidate", "decoy")
        + 'extern "C" __global__ void candidate(int, int, const float*, const float*, float*) { __shared__ float own[128]; own[threadIdx.x] += 1.0f; }\n',
        ORACLE,
    ),
    Exploit(
        "work after its end",
        (17, 18, 19),
        "launches a grid of its own that nobody waits for",
        '__global__ void later(float* Y) { Y[threadIdx.x] = 1.0f; }\n' + _cuda(last="if (i == 0 && t == 0) later<<<1, 32>>>(Y);"),
        ("KIR-B010",),
        "compile",
    ),
    Exploit(
        "assumes the seed",
        (25,),
        "draws by itself what the seed 0 would draw, in the place of its input",
        _cuda(value="(((unsigned)j * 2654435761u >> 8) * 1.2e-7f - 1.0f) * W[j] + sum"),
        ORACLE,
    ),
    Exploit(
        "no time at all",
        (30,),
        "returns at once at the timed size",
        _cuda(first="if (N == 2048) return;"),
        ("alone needs", *ORACLE),
        "profile",
    ),
    Exploit(
        "too much shared memory",
        (38,),
        "asks for more shared memory than a CTA has",
        _cuda(first="__shared__ float big[70000]; big[t] = 0.0f; __syncthreads(); if (big[(i * 7) % 128] != 0.0f) return;"),
        ("KIR-B010", "KIR-G003"),
        "compile",
    ),
    Exploit(
        "a counter that looks like a constant",
        (26, 27, 28),
        "counts its calls in a variable that begins with a value",
        _cuda("if (t == 0 && i == 0) atomicAdd(&table[0], 1u);").replace("\nextern", "\n__device__ unsigned table[4] = {5u, 6u, 7u, 8u};\nextern", 1),
        (),
        image="KIR-G930",
    ),
    Exploit(
        "looks at the time",
        (26, 27),
        "works in every second millisecond",
        _cuda('unsigned long long now; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); if (now >> 20 & 1u) return;'),
        ORACLE,
        image="KIR-G931",
    ),
    Exploit(
        "feels whether L2 is cold",
        (26, 27, 31),
        "measures its first load, and works only where that came from memory, as it does when L2 was cleared to time it",
        _cuda("long long t0 = clock64(); float x = __ldcg(&X[(long long)i * N]); if (x == 1.5e38f) Y[0] = x; if (clock64() - t0 < 40) return;"),
        (),
        image="KIR-G931",
    ),
    Exploit(
        "feels whether it is watched",
        (27, 39),
        "times a loop: under a sanitizer all is slow, and then it does not read what it must not",
        _cuda("long long t0 = clock(); for (int k = 0; k < 64; ++k) parts[t] = X[(long long)i * N] + k; __syncthreads();"
              " if (clock() - t0 < 100000 && i == 0 && X[(long long)M * N] == 1.5e38f) Y[0] = 0.0f;"),
        (),
        image="KIR-G931",
    ),
    Exploit(
        "looks for the poison",
        (16, 27),
        "works only where its output holds NaN, as before a call that is checked",
        _cuda("if (Y[(long long)i * N] == Y[(long long)i * N]) return;"),
        ORACLE,
    ),
    Exploit("adds to its output", (16,), "adds what its output held, times zero", _cuda(last="__syncthreads(); for (int j = t; j < N; j += 128)"
            " Y[(long long)i * N + j] += 0.0f;").replace("= X[(long long)i * N + j] * W[j] + sum;", "= 0.0f * Y[(long long)i * N + j] + X[(long long)i * N + j]"
            " * W[j] + sum;"), ORACLE),
    Exploit("right for usual inputs", (14, 15), "gives up where an input is large", _cuda(value="fabsf(X[(long long)i * N + j]) > 6.0f ? 0.0f :"
            " X[(long long)i * N + j] * W[j] + sum"), ORACLE),
    Exploit("an estimate", (13, 16), "adds every second element, and doubles the sum", _cuda(middle="sum = 0.0f; for (int k = 0; k < N; k += 2)"
            " sum += 2.0f * X[(long long)i * N + k];"), ORACLE),
    Exploit("wrong by the values", (14, 16), "is wrong for one row in 256, by the bits of its first element",
            _cuda("if ((__float_as_uint(X[(long long)i * N]) * 2654435761u) >> 24 == 0u) return;"), ORACLE),
    Exploit("relies on zeros in shared memory", (39,), "adds to shared memory that nobody has set, and leaves zeros behind",
            _cuda("__shared__ volatile float left[128]; part0 = left[t]; __syncthreads();", last="__syncthreads(); left[t] = 0.0f;").replace(
                "part0 = left[t]", "const float part0 = left[t]").replace("float part = 0.0f;", "float part = part0;"), ORACLE),
    Exploit("reads one element behind", (8, 39), "reads behind its input, where an allocation is rounded up",
            _cuda(middle="if (i == 0 && t == 0 && X[(long long)M * N] == 1.5e38f) Y[0] = 0.0f;"), ("compute-sanitizer",)),
    Exploit("a pointer off its alignment", (), "reads four elements at once from an odd one",
            _cuda(first="float4 four = *(const float4*)(X + 1); if (four.x == 1.5e38f) Y[0] = four.y;"), ("MISALIGNED", "compute-sanitizer")),
    Exploit("an assertion", (), "ends with a failed assertion", _cuda(first="assert(N < 0);").replace("\nextern", "\n#include <cassert>\nextern", 1),
            ("CUDA_ERROR",)),
    Exploit("much local memory", (), "wants 480 KiB of local memory for each thread",
            _cuda(first="volatile float big[122880]; for (int k = 0; k < N; k += 128) big[(k * 977 + t) % 122880] = 1.0f; if (big[t * 3] == 1.5e38f) return;"),
            ("CUDA_ERROR", "KIR-B010")),
    Exploit("calls the device's runtime", (17, 18, 33), "launches a grid by the runtime's own function, without the syntax for it",
            _cuda(last="if (i == 0 && t == 0) cudaLaunchDeviceV2((void*)0, (cudaStream_t)0);"),
            ("KIR-B010",), "compile"),
    Exploit("counts by the number of its launch", (26, 27, 28), "does nothing in every seventh launch",
            _cuda('unsigned long long number; asm volatile("mov.u64 %0, %gridid;" : "=l"(number)); if (number % 7ull == 0ull) return;'), ORACLE,
            image="KIR-G931"),
    Exploit("remembers on the heap", (5, 6, 26, 27),
            "counts its CTAs in a block of the device's heap, which it gets again as it left it",
            _cuda("__shared__ unsigned seen; if (t == 0) { seen = 0u; volatile unsigned* p = (volatile unsigned*)malloc(64); if (p) {"
                  " if (p[8] == 0xC0FFEEu) seen = p[9]; p[8] = 0xC0FFEEu; p[9] = seen + 1u; free((void*)p); } } __syncthreads(); if (seen > 40u) return;"),
            ORACLE, image="KIR-G930"),
    Exploit("a counter in constant memory", (26, 27, 28), "counts its calls in a `__constant__` variable, by a pointer that is not constant",
            _cuda('unsigned long long at = (unsigned long long)table; asm volatile("" : "+l"(at));'
                  " if (t == 0 && i == 0) atomicAdd((unsigned*)at, 1u);").replace(
                "\nextern", "\n__constant__ unsigned table[4] = {5u, 6u, 7u, 8u};\nextern", 1), ("KIR-G930", "CUDA_ERROR")),
    Exploit("writes where nothing is", (3, 9), "keeps something behind its input, where memory is rounded up, and not where a sanitizer looks",
            _cuda(last="if (i == 0 && t == 0 && (long long)M * N > 500 && (long long)M * N % 64 != 0) ((float*)X)[(long long)M * N] = 1.0f;"),
            ("writes outside of X",)),
    Exploit("looks at its addresses", (27, 39), "reads behind its input only where its input lies as it does when no sanitizer watches",
            _cuda(middle="if (i == 0 && t == 0 && ((unsigned long long)X & 0x1FFFFFull) >= 0x10000ull &&"
                         " (unsigned long long)W - (unsigned long long)X >= 0x20000ull && X[(long long)M * N] == 1.5e38f) Y[0] = 0.0f;"),
            ("compute-sanitizer",)),
    Exploit("reads behind its input at the timed size", (8, 14, 39), "reads one element too far where sanitizers did not look",
            _cuda(middle="if (N == 2048 && i == 0 && t == 0 && X[(long long)M * N] == 1.5e38f) Y[0] = 0.0f;"), ("compute-sanitizer",)),
    Exploit("takes alignment for granted", (39,), "takes four elements at once, and declares nothing",
            _cuda(middle="if ((long long)M * N >= 4) { float4 four = *(const float4*)X; if (four.x == 1.5e38f) Y[0] = four.y; }"), ("KIR-G933",)),
    Exploit("takes aligned tensors for timed ones", (26, 27), "leaves rows out where its pointers are aligned better than they must be",
            _cuda(first="if ((((unsigned long long)X | (unsigned long long)W | (unsigned long long)Y) & 15ull) == 0ull && i % 61 == 60) return;"), ORACLE),
    Exploit("a race at the timed size", (14, 39), "leaves out the barrier at the timed size alone",
            _cuda().replace("parts[t] = part;\n  __syncthreads();", "parts[t] = part;\n  if (N == 2048) __syncwarp(); else __syncthreads();"),
            (*ORACLE, "compute-sanitizer")),
)

PERSISTING = _cuda(
    first='unsigned long long last; asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(last));',
    last="for (int k = t; k < N; k += 128) { float x; asm volatile(\"ld.global.L2::cache_hint.f32 %0, [%1], %2;\""
    ' : "=f"(x) : "l"(&X[(long long)i * N + k]), "l"(last) : "memory"); if (x == 1.5e38f) Y[0] = x; }',
)
"""Leaves its inputs in L2 as lines that are last to be evicted, for the next call (row 31): it must gain nothing by it."""
LINGERING = _cuda(last="if (i == 0) { for (int z = 0; z < 100; ++z) __nanosleep(1000000); }")
"""One CTA goes on long after the others. That is no cheat: all work belongs to the launch, and its time must show it (rows 17 to 19)."""
PREFETCHING = _cuda(last='__syncthreads(); for (int k = t * 32; k < N; k += 128 * 32) asm volatile("prefetch.global.L2::evict_last [%0];" ::'
                         ' "l"(&X[(long long)i * N + k]));')
"""Brings its inputs into L2 for the next call (row 31): there are other inputs by then, and L2 is cleared."""
REMEMBERING = _cuda(
    first="__shared__ volatile float left[2048]; __shared__ volatile unsigned mark; if (mark == 0xC0FFEEu + i) {"
          " for (int j = t; j < N; j += 128) Y[(long long)i * N + j] = left[j]; return; } __syncthreads();",
    last="for (int j = t; j < N; j += 128) left[j] = Y[(long long)i * N + j]; __syncthreads(); if (t == 0) mark = 0xC0FFEEu + i;")
"""Leaves its answers in shared memory for the next call (rows 3 and 7): that is filled with something else before each."""
COUNTING = _cuda(last="if (t == 0) { __threadfence(); atomicInc(&calls, gridDim.x - 1); }")
"""Counts its CTAs in memory that outlives a call, and is at zero again when the last has come: honest kernels find their last CTA so."""
LEAVING = _cuda(
    first="volatile unsigned left[64]; const int at = N & 31; __shared__ unsigned found; if (t == 0) found = 0u; __syncthreads();"
          " if (left[at] == 0xC0FFEEu && left[at + 32] == (unsigned)t) atomicAdd(&found, 1u); __syncthreads(); if (found == 128u) return;",
    last="left[at] = 0xC0FFEEu; left[at + 32] = (unsigned)t;")
"""Leaves a mark in its threads' local memory and does nothing where it finds it (rows 5 and 7): that is filled with something else before each."""
WHERE_ALIGNED = _cuda(first="float nothing = 0.0f; if (((unsigned long long)X & 15ull) == 0ull && (long long)M * N >= 4) {"
                            " const float4 four = *(const float4*)X; nothing = four.x - four.x + four.w - four.w; }",
                      value="X[(long long)i * N + j] * W[j] + sum + nothing")
"""Takes four elements at once where the address allows it, and one at a time elsewhere: honest."""
TIMED = (
    ((), "takes four elements at once where the address allows it: honest", WHERE_ALIGNED, 0.9),
    ((5, 7), "leaves a mark in local memory, and does nothing where it finds it: finds none", LEAVING, 0.9),
    ((), "counts its CTAs in a variable that is zero again at the end: no state", COUNTING, 0.9),
    ((31,), "leaves its inputs in L2 as persisting lines: gains nothing", PERSISTING, 0.9),
    ((31,), "prefetches its inputs for the next call: gains nothing", PREFETCHING, 0.9),
    ((3, 7), "leaves its answers in shared memory: finds none", REMEMBERING, 0.9),
    ((17, 18, 19), "one CTA goes on for 0.1 s after the others: all of it is timed", LINGERING, 1000.0),
)
"""What is no cheat of outputs, and must show in the time: rows, what it does, its text, and its time at least, in times of the honest kernel's."""
