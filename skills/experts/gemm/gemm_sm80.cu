// GEMM for sm_80: C[M, N] = A[M, K] B[K, N], row-major f16, accumulated in f32. N and K are multiples of 8.
// 128 x 128 x 32 tiles a CTA of 2 x 4 warps; a ring of three stages filled by 16-byte cp.async; ldmatrix and mma.sync m16n8k16; swizzled
// shared memory (16-byte chunks xored with the row, so that eight rows read together lie in different banks); the result is staged in
// shared memory for 16-byte stores.
#include <cuda_fp16.h>

namespace {

constexpr int kThreads = 256;
constexpr int kChunk = 8;  // halves in 16 bytes

__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void copy_async(void* to, const void* from, bool inside) {
  const int bytes = inside ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
}

__device__ __forceinline__ void load_matrix_4(unsigned* out, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared_address(row))
               : "memory");
}

__device__ __forceinline__ void load_matrix_2_trans(unsigned* out, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(out[0]), "=r"(out[1])
               : "r"(shared_address(row))
               : "memory");
}

__device__ __forceinline__ void multiply(float* c, const unsigned* a, const unsigned* b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace

template <int BM, int BN, int BK, int STAGES>
__global__ void __launch_bounds__(kThreads) gemm_sm80(const half* A, const half* B, half* C, int M, int N, int K) {
  constexpr int WM = BM / 2, WN = BN / 4;          // the part of a warp
  constexpr int MT = WM / 16, NT = WN / 8;         // its products
  constexpr int A_ROW = BK / kChunk, B_ROW = BN / kChunk;
  extern __shared__ __align__(128) unsigned char pool[];
  using TilesA = half[STAGES][BM][BK];
  using TilesB = half[STAGES][BK][BN];
  using TileC = half[BM][BN];
  TilesA& As = *reinterpret_cast<TilesA*>(pool);
  TilesB& Bs = *reinterpret_cast<TilesB*>(pool + sizeof(TilesA));
  TileC& Cs = *reinterpret_cast<TileC*>(pool + sizeof(TilesA) + sizeof(TilesB));

  const int t = threadIdx.x, lane = t % 32;
  const int warp_m = t / 128 * WM, warp_n = t / 32 % 4 * WN;
  const int bm = blockIdx.y * BM, bn = blockIdx.x * BN;

  auto load_stage = [&](int stage, int k) {
#pragma unroll
    for (int i = 0; i < BM * BK / (kThreads * kChunk); ++i) {
      const int row = i * (kThreads / A_ROW) + t / A_ROW, chunk = t % A_ROW;
      const bool inside = bm + row < M && k * BK + chunk * kChunk < K;
      const half* from = A + static_cast<size_t>(bm + row) * K + k * BK + chunk * kChunk;
      copy_async(&As[stage][row][(chunk ^ (row / 2 % 4)) * kChunk], from, inside);
    }
#pragma unroll
    for (int i = 0; i < BK * BN / (kThreads * kChunk); ++i) {
      const int row = i * (kThreads / B_ROW) + t / B_ROW, chunk = t % B_ROW;
      const bool inside = k * BK + row < K && bn + chunk * kChunk < N;
      const half* from = B + static_cast<size_t>(k * BK + row) * N + bn + chunk * kChunk;
      copy_async(&Bs[stage][row][(chunk ^ (row % 8)) * kChunk], from, inside);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };

  float acc[MT][NT][4] = {};
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) load_stage(s, s);

  const int steps = (K + BK - 1) / BK;
  for (int k = 0; k < steps; ++k) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncthreads();
    load_stage((k + STAGES - 1) % STAGES, k + STAGES - 1);
    const int stage = k % STAGES;
#pragma unroll
    for (int kk = 0; kk < BK / 16; ++kk) {
      unsigned a[MT][4], b[NT][2];
#pragma unroll
      for (int mi = 0; mi < MT; ++mi) {
        const int row = warp_m + mi * 16 + lane % 16, chunk = kk * 2 + lane / 16;
        load_matrix_4(a[mi], &As[stage][row][(chunk ^ (row / 2 % 4)) * kChunk]);
      }
#pragma unroll
      for (int ni = 0; ni < NT; ++ni) {
        const int row = kk * 16 + lane % 16, chunk = warp_n / kChunk + ni;
        load_matrix_2_trans(b[ni], &Bs[stage][row][(chunk ^ (row % 8)) * kChunk]);
      }
#pragma unroll
      for (int mi = 0; mi < MT; ++mi) {
#pragma unroll
        for (int ni = 0; ni < NT; ++ni) multiply(acc[mi][ni], a[mi], b[ni]);
      }
    }
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");

#pragma unroll
  for (int mi = 0; mi < MT; ++mi) {
#pragma unroll
    for (int ni = 0; ni < NT; ++ni) {
      const int row = warp_m + mi * 16 + lane / 4, chunk = warp_n / kChunk + ni, pair = lane % 4 * 2;
      half2* upper = reinterpret_cast<half2*>(&Cs[row][(chunk ^ (row % 8)) * kChunk + pair]);
      half2* lower = reinterpret_cast<half2*>(&Cs[row + 8][(chunk ^ ((row + 8) % 8)) * kChunk + pair]);
      *upper = __floats2half2_rn(acc[mi][ni][0], acc[mi][ni][1]);
      *lower = __floats2half2_rn(acc[mi][ni][2], acc[mi][ni][3]);
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < BM * BN / (kThreads * kChunk); ++i) {
    const int row = i * (kThreads / B_ROW) + t / B_ROW, chunk = t % B_ROW;
    if (bm + row < M && bn + chunk * kChunk < N) {
      *reinterpret_cast<uint4*>(&C[static_cast<size_t>(bm + row) * N + bn + chunk * kChunk]) =
          *reinterpret_cast<const uint4*>(&Cs[row][(chunk ^ (row % 8)) * kChunk]);
    }
  }
}

template __global__ void gemm_sm80<128, 128, 32, 3>(const half*, const half*, half*, int, int, int);
