// Emitted CUDA C++ as a host program, for tests without a device: each CUDA thread is a std::thread, the barrier of a CTA a
// std::barrier, and lanes of a warp meet in arrays that both sides of a warp barrier see. What wraps PTX in device.cuh is defined
// here by what PTX ISA says of it (ldmatrix and mma.m16n8k16: section 9.7.14).
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static

using __half = _Float16;
struct dim { int x = 0, y = 0, z = 0; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
inline thread_local dim threadIdx, blockIdx;
using std::max;
using std::min;

struct Team {
  explicit Team(int n) : cta(n) {
    for (int w = 0; w < (n + 31) / 32; ++w) warps.push_back(std::make_unique<std::barrier<>>(std::min(32, n - 32 * w)));
    slots.resize(n);
  }
  std::barrier<> cta;
  std::vector<std::unique_ptr<std::barrier<>>> warps;
  struct Slot { alignas(16) unsigned char bytes[64]; const void* row; };
  std::vector<Slot> slots;
};
inline Team* team = nullptr;
inline std::mutex atomics;

inline void __syncthreads() { team->cta.arrive_and_wait(); }
inline void __syncwarp() { team->warps[threadIdx.x / 32]->arrive_and_wait(); }
inline float __half2float(__half x) { return static_cast<float>(x); }
inline int __float2int_rd(float x) { return static_cast<int>(std::floor(x)); }
inline long long __mul64hi(long long a, long long b) { return static_cast<long long>(static_cast<__int128>(a) * b >> 64); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(x); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned long long __brevll(unsigned long long x) {
  unsigned long long made = 0;
  for (int k = 0; k < 64; ++k) made |= (x >> k & 1) << (63 - k);
  return made;
}
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline __half __float2half_rn(float x) { return static_cast<__half>(x); }

template <typename T> T exchanged(T value, int from) {
  const int base = threadIdx.x / 32 * 32;
  std::memcpy(team->slots[threadIdx.x].bytes, &value, sizeof(T));
  __syncwarp();
  T out;
  std::memcpy(&out, team->slots[base + from].bytes, sizeof(T));
  __syncwarp();
  return out;
}
template <typename T> T __shfl_xor_sync(unsigned, T v, int m) { return exchanged(v, (threadIdx.x % 32) ^ m); }
template <typename T> T __shfl_up_sync(unsigned, T v, int d) { const int l = threadIdx.x % 32; return exchanged(v, l < d ? l : l - d); }
template <typename T> T __shfl_down_sync(unsigned, T v, int d) { const int l = threadIdx.x % 32; return exchanged(v, l + d > 31 ? l : l + d); }
template <typename T> T __shfl_sync(unsigned, T v, int lane) { return exchanged(v, lane % 32); }

template <typename T> T updated(T* at, T value) {
  const T old = *at;
  *at = value;
  return old;
}
template <typename T> T atomicAdd(T* at, T v) { std::lock_guard<std::mutex> held(atomics); return updated(at, static_cast<T>(*at + v)); }
template <typename T> T atomicMax(T* at, T v) { std::lock_guard<std::mutex> held(atomics); return updated(at, std::max(*at, v)); }

template <int Bytes> void copy_async(void* to, const void* from, bool inside) {
  if (inside) std::memcpy(to, from, Bytes); else std::memset(to, 0, Bytes);
}
inline void copy_async_commit() {}
template <int Pending> void copy_async_wait() {}

template <int Num, bool Trans> void load_matrix(unsigned* out, const void* row) {
  const int lane = threadIdx.x % 32, base = threadIdx.x / 32 * 32;
  team->slots[threadIdx.x].row = row;
  __syncwarp();
  __half* got = reinterpret_cast<__half*>(out);
  for (int m = 0; m < Num; ++m) {
    for (int i = 0; i < 2; ++i) {
      const int r = Trans ? lane % 4 * 2 + i : lane / 4, c = Trans ? lane / 4 : lane % 4 * 2 + i;
      got[m * 2 + i] = static_cast<const __half*>(team->slots[base + m * 8 + r].row)[c];
    }
  }
  __syncwarp();
}
inline void load_matrix_2(unsigned* out, const void* row) { load_matrix<2, false>(out, row); }
inline void load_matrix_4(unsigned* out, const void* row) { load_matrix<4, false>(out, row); }
inline void load_matrix_2_trans(unsigned* out, const void* row) { load_matrix<2, true>(out, row); }
inline void load_matrix_4_trans(unsigned* out, const void* row) { load_matrix<4, true>(out, row); }

// One product of m16n8k<K>: lanes hold operands of type T as section 9.7.14 of the PTX ISA says, P neighbors to a register.
template <int K, typename T, typename C> void product(C* d, const unsigned* a, const unsigned* b, const C* c) {
  const int lane = threadIdx.x % 32, base = threadIdx.x / 32 * 32, P = 4 / sizeof(T);
  std::memcpy(team->slots[threadIdx.x].bytes, a, 16);
  std::memcpy(team->slots[threadIdx.x].bytes + 16, b, 8);
  __syncwarp();
  auto left = [&](int row, int k) {
    const int owner = row % 8 * 4 + k % (4 * P) / P, i = k % P + row / 8 * P + k / (4 * P) * 2 * P;
    return reinterpret_cast<const T*>(team->slots[base + owner].bytes)[i];
  };
  auto right = [&](int k, int column) {
    const int owner = column * 4 + k % (4 * P) / P, i = k % P + k / (4 * P) * P;
    return reinterpret_cast<const T*>(team->slots[base + owner].bytes + 16)[i];
  };
  using Sum = std::conditional_t<std::is_integral_v<T>, int, float>;
  C out[4];
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    Sum sum = static_cast<Sum>(c[i]);
    for (int k = 0; k < K; ++k) sum += static_cast<Sum>(left(row, k)) * static_cast<Sum>(right(k, column));
    out[i] = static_cast<C>(sum);
  }
  __syncwarp();
  std::memcpy(d, out, sizeof(out));
}
inline void mma_m16n8k16_f16(float* d, const unsigned* a, const unsigned* b, const float* c) { product<16, __half>(d, a, b, c); }
inline void mma_m16n8k16_f16_f16(unsigned* d, const unsigned* a, const unsigned* b, const unsigned* c) {
  product<16, __half>(reinterpret_cast<__half*>(d), a, b, reinterpret_cast<const __half*>(c));
}
inline void mma_m16n8k8_tf32(float* d, const unsigned* a, const unsigned* b, const float* c) { product<8, float>(d, a, b, c); }
inline void mma_m16n8k32_i8(int* d, const unsigned* a, const unsigned* b, const int* c) { product<32, signed char>(d, a, b, c); }
inline void mma_m16n8k32_u8(int* d, const unsigned* a, const unsigned* b, const int* c) { product<32, unsigned char>(d, a, b, c); }

template <typename Kernel> void launch(int threads, int gx, int gy, int gz, Kernel kernel) {
  for (int z = 0; z < gz; ++z) for (int y = 0; y < gy; ++y) for (int x = 0; x < gx; ++x) {
    Team here(threads);
    team = &here;
    std::vector<std::thread> running;
    for (int t = 0; t < threads; ++t) running.emplace_back([=] {
      threadIdx = {t, 0, 0};
      blockIdx = {x, y, z};
      kernel();
    });
    for (auto& each : running) each.join();
  }
}
