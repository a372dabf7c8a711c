// Row softmax: one CTA a row. Each thread takes every 128th element; maxima and sums meet in a ladder of shuffles within a warp, then in
// shared memory across the four warps.
#include <cuda_fp16.h>

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;

__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, offset));
  return v;
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_xor_sync(0xffffffffu, v, offset);
  return v;
}

__global__ void __launch_bounds__(kThreads) softmax(const half* __restrict__ X, half* __restrict__ Y, int N) {
  __shared__ float tops[kWarps];
  __shared__ float totals[kWarps];
  const half* x = X + blockIdx.x * N;
  half* y = Y + blockIdx.x * N;
  const int t = threadIdx.x;

  float top = -INFINITY;
  for (int j = t; j < N; j += kThreads) top = fmaxf(top, __half2float(x[j]));
  top = warp_max(top);
  if (t % 32 == 0) tops[t / 32] = top;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kWarps; ++w) top = fmaxf(top, tops[w]);

  float total = 0.f;
  for (int j = t; j < N; j += kThreads) total += expf(__half2float(x[j]) - top);
  total = warp_sum(total);
  if (t % 32 == 0) totals[t / 32] = total;
  __syncthreads();
  float sum = 0.f;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += totals[w];

  for (int j = t; j < N; j += kThreads) y[j] = __float2half(expf(__half2float(x[j]) - top) / sum);
}
