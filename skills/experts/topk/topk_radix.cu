// Top-K of each row by radix select: one CTA a row finds the K-th largest key, 8 bits a pass, from a histogram in shared memory and its
// suffix sums; then everything above it is taken, and as many equal ones as are still missing.
constexpr int kThreads = 256;

__device__ __forceinline__ unsigned key_of(float x) {
  const unsigned bits = __float_as_uint(x);
  return bits >= 0x80000000u ? ~bits : bits | 0x80000000u;
}

__global__ void __launch_bounds__(kThreads)
topk_radix(const float* __restrict__ X, float* __restrict__ V, int* __restrict__ I, int N, int K) {
  __shared__ int counts[kThreads];
  __shared__ int sums[kThreads];
  __shared__ int taken[2];  // above the K-th key, equal to it
  __shared__ int digit, missing;
  const int t = threadIdx.x;
  const float* x = X + blockIdx.x * N;
  float* values = V + blockIdx.x * K;
  int* places = I + blockIdx.x * K;
  if (t < 2) taken[t] = 0;

  unsigned prefix = 0, mask = 0;
  int remaining = K;
  for (int level = 0; level < 4; ++level) {
    const unsigned shift = 24 - 8 * level;
    counts[t] = 0;
    __syncthreads();
    for (int j = t; j < N; j += kThreads) {
      const unsigned key = key_of(x[j]);
      if ((key & mask) == prefix) atomicAdd(&counts[key >> shift & 255u], 1);
    }
    __syncthreads();
    sums[t] = counts[t];
    __syncthreads();
    for (int offset = 1; offset < kThreads; offset <<= 1) {
      int right = 0;
      if (t + offset < kThreads) right = sums[t + offset];
      __syncthreads();
      sums[t] += right;
      __syncthreads();
    }
    const int more = sums[t] - counts[t];
    if (more < remaining && sums[t] >= remaining) {
      digit = t;
      missing = remaining - more;
    }
    __syncthreads();
    prefix |= static_cast<unsigned>(digit) << shift;
    mask |= 255u << shift;
    remaining = missing;
  }

  for (int j = t; j < N; j += kThreads) {
    const float v = x[j];
    const unsigned key = key_of(v);
    if (key > prefix) {
      const int slot = atomicAdd(&taken[0], 1);
      values[slot] = v;
      places[slot] = j;
    } else if (key == prefix) {
      const int turn = atomicAdd(&taken[1], 1);
      if (turn < remaining) {
        values[K - remaining + turn] = v;
        places[K - remaining + turn] = j;
      }
    }
  }
}
