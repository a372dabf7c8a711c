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
  __shared__ __align__(16) float ws[256];
  {
    const int t = threadIdx.x;
    float acc = 0.0f;
    #pragma unroll 1
    for (int k0 = 0; k0 < ceil_div(K, 16); ++k0) {
      const int wn = block_x * 16 + t / 16;
      ws[(t / 16) * 16 + t % 16] = wn < N && k0 * 16 + t % 16 < K ? w_flat[K * wn + k0 * 16 + t % 16] : 0.0f;
      __syncthreads();
      #pragma unroll 1
      for (int k = 0; k < 16; ++k) {
        acc = acc + (block_y * 16 + t / 16 < M && k + k0 * 16 < K ? x[static_cast<long long>((block_y * 16 + t / 16)) * K + k + k0 * 16] : 0.0f) * ws[(t % 16) * 16 + k];
      }
      __syncthreads();
    }
    if (block_y * 16 + t / 16 < M && block_x * 16 + t % 16 < N) {
      y[static_cast<long long>((block_y * 16 + t / 16)) * N + block_x * 16 + t % 16] = 0.5f * (acc + b[block_x * 16 + t % 16]) * (1.0f + erff((acc + b[block_x * 16 + t % 16]) * 0.7071067690849304f));
    }
  }
}
