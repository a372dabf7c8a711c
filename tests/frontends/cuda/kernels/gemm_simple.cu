// A GEMM as it is often written: one stage, padded rows, wide loads with zeros outside, a barrier at the end of the loop, results stored from
// registers. Row-major f16, accumulated in f32; N and K are multiples of 8.
#include <cuda_fp16.h>
__device__ __forceinline__ unsigned smem(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }
__global__ void __launch_bounds__(128) gemm_simple(const half* __restrict__ A, const half* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
  __shared__ __align__(16) half As[64][32 + 8];
  __shared__ __align__(16) half Bs[32][64 + 8];
  const int tid = threadIdx.x;
  const int warp = tid / 32, lane = tid % 32;
  const int wm = warp / 2 * 32, wn = warp % 2 * 32;
  const int m0 = blockIdx.y * 64, n0 = blockIdx.x * 64;
  float acc[2][4][4];
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int v = 0; v < 4; ++v) acc[i][j][v] = 0.f;
  for (int k0 = 0; k0 < K; k0 += 32) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int r = i * 32 + tid / 4, c = tid % 4 * 8;
      uint4 v = make_uint4(0, 0, 0, 0);
      if (m0 + r < M && k0 + c < K) v = *reinterpret_cast<const uint4*>(&A[(m0 + r) * K + k0 + c]);
      *reinterpret_cast<uint4*>(&As[r][c]) = v;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int r = i * 16 + tid / 8, c = tid % 8 * 8;
      uint4 v = make_uint4(0, 0, 0, 0);
      if (k0 + r < K && n0 + c < N) v = *reinterpret_cast<const uint4*>(&B[(k0 + r) * N + n0 + c]);
      *reinterpret_cast<uint4*>(&Bs[r][c]) = v;
    }
    __syncthreads();
#pragma unroll
    for (int kk = 0; kk < 32; kk += 16) {
      unsigned a[2][4], b[4][2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
          : "=r"(a[i][0]), "=r"(a[i][1]), "=r"(a[i][2]), "=r"(a[i][3]) : "r"(smem(&As[wm + i * 16 + lane % 16][kk + lane / 16 * 8])));
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
          : "=r"(b[j][0]), "=r"(b[j][1]) : "r"(smem(&Bs[kk + lane % 16][wn + j * 8])));
      }
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(acc[i][j][0]), "+f"(acc[i][j][1]), "+f"(acc[i][j][2]), "+f"(acc[i][j][3])
            : "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]), "r"(b[j][0]), "r"(b[j][1]));
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int r = m0 + wm + i * 16 + lane / 4, c = n0 + wn + j * 8 + lane % 4 * 2;
      if (r < M && c < N) *reinterpret_cast<float2*>(&C[r * N + c]) = make_float2(acc[i][j][0], acc[i][j][1]);
      if (r + 8 < M && c < N) *reinterpret_cast<float2*>(&C[(r + 8) * N + c]) = make_float2(acc[i][j][2], acc[i][j][3]);
    }
}
