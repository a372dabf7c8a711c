// GEMM as the problem states it: a thread block for each element of C, one thread walking along K.
#include <cuda_fp16.h>

// C[M, N] = A[M, K] B[K, N], row-major, accumulated in f32.
extern "C" __global__ void gemm_naive(const __half* A, const __half* B, __half* C, int M, int N, int K) {
  const int i = blockIdx.x;
  const int j = blockIdx.y;
  float acc = 0.0f;
  for (int k = 0; k < K; ++k) {
    acc += __half2float(A[i * K + k]) * __half2float(B[k * N + j]);
  }
  C[i * N + j] = __float2half_rn(acc);
}
