// What the executor runs besides the candidate: drawing inputs, poisoning outputs, sums over memory, clearing L2, a delay.
// Random numbers are those of Philox4x32-10 (Salmon et al., SC 2011) of a key and the element's index.
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

__device__ __forceinline__ uint4 philox(uint64_t key, uint64_t index, uint32_t stream) {
    uint4 c = make_uint4((uint32_t)index, (uint32_t)(index >> 32), stream, 0u);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    #pragma unroll
    for (int round = 0; round < 10; ++round) {
        const uint32_t h0 = __umulhi(0xD2511F53u, c.x), l0 = 0xD2511F53u * c.x;
        const uint32_t h1 = __umulhi(0xCD9E8D57u, c.z), l1 = 0xCD9E8D57u * c.z;
        c = make_uint4(h1 ^ c.y ^ k0, l1, h0 ^ c.w ^ k1, l0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

__device__ __forceinline__ float unit(uint32_t bits) { return (bits >> 8) * 0x1p-24f; }
__device__ __forceinline__ float normal(uint4 r) { return sqrtf(-2.0f * logf(1.0f - unit(r.x))) * cospif(2.0f * unit(r.y)); }

__device__ void put(void* p, int dtype, uint64_t i, float v) {
    switch (dtype) {
        case 0: ((__half*)p)[i] = __float2half_rn(v); break;
        case 1: ((__nv_bfloat16*)p)[i] = __float2bfloat16_rn(v); break;
        case 2: ((float*)p)[i] = v; break;
        case 3: ((double*)p)[i] = (double)v; break;
        case 4: ((__nv_fp8_e4m3*)p)[i] = __nv_fp8_e4m3(v); break;
        case 5: ((__nv_fp8_e5m2*)p)[i] = __nv_fp8_e5m2(v); break;
        case 6: case 7: ((int8_t*)p)[i] = (int8_t)(int)v; break;
        case 8: case 9: ((int16_t*)p)[i] = (int16_t)(int)v; break;
        case 10: case 11: ((int32_t*)p)[i] = (int32_t)v; break;
        case 12: case 13: ((int64_t*)p)[i] = (int64_t)v; break;
        default: ((uint8_t*)p)[i] = v != 0.0f; break;
    }
}

__device__ float get(const void* p, int dtype, uint64_t i) {
    switch (dtype) {
        case 0: return __half2float(((const __half*)p)[i]);
        case 1: return __bfloat162float(((const __nv_bfloat16*)p)[i]);
        case 2: return ((const float*)p)[i];
        default: return (float)((const double*)p)[i];
    }
}

// kinds: 0 normal(mean a, scale b) 1 uniform(a, b) 2 log_uniform(a, b) 3 alternating(scale b) 4 sparse(one in a, scale b) 5 integers [a, b)
// 6 constant a
extern "C" __global__ void kir_draw(void* p, uint64_t n, int dtype, int kind, float a, float b, uint64_t inner, uint64_t key) {
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += (uint64_t)gridDim.x * blockDim.x) {
        const uint4 r = philox(key, i, 0u);
        float v = a;
        if (kind == 0) v = a + b * normal(r);
        if (kind == 1) v = a + (b - a) * unit(r.x);
        if (kind == 2) v = exp2f(a + (b - a) * unit(r.x)) * ((r.y & 1u) ? 1.0f : -1.0f);
        if (kind == 3) v = b * (((i / inner + i % inner) & 1u) ? -1.0f : 1.0f) * (1.0f + 0x1p-6f * normal(r));
        if (kind == 4) v = r.z % (uint32_t)a == 0u ? b * normal(r) : 0.0f;
        if (kind == 5) v = a + (float)(r.x % (uint32_t)(b - a));
        put(p, dtype, i, v);
    }
}

// Rows of length `inner` scaled to length 1: one warp a row.
extern "C" __global__ void kir_unit_rows(void* p, uint64_t rows, int dtype, uint64_t inner) {
    for (uint64_t row = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) / 32; row < rows; row += (uint64_t)gridDim.x * blockDim.x / 32) {
        float sum = 0.0f;
        for (uint64_t j = threadIdx.x % 32; j < inner; j += 32) { const float x = get(p, dtype, row * inner + j); sum += x * x; }
        for (int lane = 16; lane; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
        const float scale = 1.0f / fmaxf(sqrtf(sum), 1e-6f);
        for (uint64_t j = threadIdx.x % 32; j < inner; j += 32) put(p, dtype, row * inner + j, get(p, dtype, row * inner + j) * scale);
    }
}

__device__ __forceinline__ uint64_t mixed(uint64_t x) {
    x ^= x >> 30; x *= 0xBF58476D1CE4E5B9ull; x ^= x >> 27; x *= 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

// A sum over the bytes that depends on every one and its place; `salt` is secret. Adds to *out. Where p is no multiple of 8, byte by byte.
extern "C" __global__ void kir_sum(const uint8_t* p, uint64_t bytes, uint64_t salt, unsigned long long* out) {
    uint64_t total = 0;
    const uint64_t words = (uint64_t)p % 8 ? 0 : bytes / 8, first = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x, step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = first; i < words; i += step) total += mixed(((const uint64_t*)p)[i] ^ mixed(i + salt));
    for (uint64_t i = first; i < bytes - words * 8; i += step) total += mixed(p[words * 8 + i] ^ mixed(~i + salt));
    for (int lane = 16; lane; lane /= 2) total += __shfl_xor_sync(0xffffffffu, total, lane);
    if (threadIdx.x % 32 == 0) atomicAdd(out, (unsigned long long)total);
}

// Reads and writes a buffer larger than L2, so that nothing else stays there.
extern "C" __global__ void kir_clear(uint4* p, uint64_t n, uint32_t value) {
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += (uint64_t)gridDim.x * blockDim.x) {
        uint4 v = p[i];
        v.x += value; v.y ^= v.x; v.z += v.y; v.w ^= v.z;
        p[i] = v;
    }
}

// Fills shared memory, so that nothing that an earlier launch left there is found, and nothing is found to be zero.
extern "C" __global__ void __launch_bounds__(1024) kir_spoil(uint32_t words, uint32_t salt) {
    extern __shared__ volatile uint32_t everything[];
    for (uint32_t i = threadIdx.x; i < words; i += blockDim.x) everything[i] = 0x7FC00001u ^ (i * 2654435761u + salt) >> 12;
}

// Fills local memory, all that a thread of it has: how that of a kernel with less lies in the same memory is not ours to know. Stays long enough
// for all threads that an SM holds to be there at once.
template <int BYTES> __device__ __forceinline__ void leave(uint32_t salt) {
    volatile uint32_t mine[BYTES / 4];
    for (uint32_t i = 0; i < BYTES / 4; ++i) mine[i] = 0x7FC00001u ^ ((i * 2654435761u + salt) >> 12);
    __nanosleep(2000);
    if (mine[salt % (BYTES / 4)] == 1u) mine[0] = 0u;
}
extern "C" __global__ void __launch_bounds__(256, 8) kir_leave_512(uint32_t salt) { leave<512>(salt); }
extern "C" __global__ void __launch_bounds__(256, 8) kir_leave_4096(uint32_t salt) { leave<4096>(salt); }
extern "C" __global__ void __launch_bounds__(256, 8) kir_leave_32768(uint32_t salt) { leave<32768>(salt); }

// Keeps the stream busy while the host enqueues what is timed.
extern "C" __global__ void kir_delay(uint64_t nanoseconds) {
    uint64_t start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - start < nanoseconds);
}

extern "C" __global__ void kir_nothing() {}
