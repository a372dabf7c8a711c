// linear_gelu_kernel, written by KIR. A comment `@label` names the statement of the program that the lines below it are written for.
#include <cassert>
#include <cmath>
#include <cstring>

template <typename T>
__device__ __forceinline__ T ceil_div(T a, T b) {
  T q = a / b;
  return q + static_cast<T>((a % b != 0) && ((a < 0) == (b < 0)));
}

extern "C" __global__ void __launch_bounds__(256)
linear_gelu_kernel(
    const int M,
    const int K,
    const int N,
    const float* __restrict__ x,
    const float* __restrict__ w,
    const float* __restrict__ b,
    float* __restrict__ y) {
  const int block_x = blockIdx.x;
  const int block_y = blockIdx.y;
  const float* const w_flat = reinterpret_cast<const float*>(&w[0]);
  __shared__ __align__(16) float xs[256];
  __shared__ __align__(16) float ws[256];
  {
    const int t = threadIdx.x;
    const int row = block_y * 16 + t / 16;
    const int col = block_x * 16 + t % 16;
    float acc = 0.0f;
    #pragma unroll 1
    for (int k0 = 0; k0 < ceil_div(K, 16); ++k0) {
      const int kx = k0 * 16 + t % 16;
      xs[(t / 16) * 16 + t % 16] = row < M && kx < K ? x[static_cast<long long>(row) * K + kx] : 0.0f;
      const int wn = block_x * 16 + t / 16;
      ws[(t / 16) * 16 + t % 16] = wn < N && kx < K ? w_flat[K * wn + kx] : 0.0f;
      __syncthreads();
      #pragma unroll
      for (int k = 0; k < 16; ++k) {
        acc = acc + xs[(t / 16) * 16 + k] * ws[(t % 16) * 16 + k];
      }
      __syncthreads();
    }
    if (row < M && col < N) {
      const float v = acc + b[col];
      y[static_cast<long long>(row) * N + col] = 0.5f * v * (1.0f + erff(v * 0.7071067690849304f));
    }
  }
}
