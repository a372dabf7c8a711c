// RMSNorm: one CTA a row, eight halves a load, warp shuffles, then a sum over the warps in shared memory. The row length is a multiple of 8.
#include <cuda_fp16.h>

constexpr int kThreads = 128;
constexpr int kVec = 8;

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_xor_sync(0xffffffffu, v, offset);
  return v;
}

__global__ void __launch_bounds__(kThreads)
rmsnorm(const half* __restrict__ X, const half* __restrict__ W, half* __restrict__ Y, int N, float eps) {
  __shared__ float totals[kThreads / 32];
  const half* x = X + blockIdx.x * N;
  half* y = Y + blockIdx.x * N;
  const int t = threadIdx.x;

  float total = 0.f;
  for (int j = t * kVec; j < N; j += kThreads * kVec) {
    const uint4 packed = *reinterpret_cast<const uint4*>(x + j);
    const half* v = reinterpret_cast<const half*>(&packed);
    float f[kVec];
#pragma unroll
    for (int e = 0; e < kVec; ++e) f[e] = __half2float(v[e]);
    float squares = f[0] * f[0];
#pragma unroll
    for (int e = 1; e < kVec; ++e) squares += f[e] * f[e];
    total += squares;
  }
  total = warp_sum(total);
  if (t % 32 == 0) totals[t / 32] = total;
  __syncthreads();
  float sum = 0.f;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) sum += totals[w];
  const float r = rsqrtf(sum / static_cast<float>(N) + eps);

  for (int j = t * kVec; j < N; j += kThreads * kVec) {
    const uint4 packed = *reinterpret_cast<const uint4*>(x + j);
    const uint4 weights = *reinterpret_cast<const uint4*>(W + j);
    const half* v = reinterpret_cast<const half*>(&packed);
    const half* w = reinterpret_cast<const half*>(&weights);
    uint4 out;
    half* o = reinterpret_cast<half*>(&out);
#pragma unroll
    for (int e = 0; e < kVec; ++e) o[e] = __float2half(__half2float(v[e]) * r * __half2float(w[e]));
    *reinterpret_cast<uint4*>(y + j) = out;
  }
}
