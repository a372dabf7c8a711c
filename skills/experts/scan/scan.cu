// Inclusive prefix sums of rows: one CTA a row, in pieces of 256. Within a piece each warp scans by shuffles, the sums of the warps are
// scanned by the first warp, and a carry goes from piece to piece.
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

__device__ __forceinline__ float warp_scan(float v, int lane) {
#pragma unroll
  for (int offset = 1; offset < 32; offset <<= 1) {
    const float other = __shfl_up_sync(0xffffffffu, v, offset);
    if (lane >= offset) v += other;
  }
  return v;
}

__global__ void __launch_bounds__(kThreads) scan(const float* __restrict__ X, float* __restrict__ Y, int N) {
  __shared__ float sums[kWarps];
  const int t = threadIdx.x, lane = t % 32, warp = t / 32;
  const float* x = X + blockIdx.x * N;
  float* y = Y + blockIdx.x * N;
  float carry = 0.f;
  for (int start = 0; start < N; start += kThreads) {
    const int j = start + t;
    float v = j < N ? x[j] : 0.f;
    v = warp_scan(v, lane);
    if (lane == 31) sums[warp] = v;
    __syncthreads();
    if (warp == 0) {
      float s = lane < kWarps ? sums[lane] : 0.f;
      s = warp_scan(s, lane);
      if (lane < kWarps) sums[lane] = s;
    }
    __syncthreads();
    const float before = warp > 0 ? sums[warp - 1] : 0.f;
    if (j < N) y[j] = carry + before + v;
    carry += sums[kWarps - 1];
    __syncthreads();
  }
}
