// Functions that CUDA declares and that KIR reads as what they compute, in words that it has (CUDA C++ Programming Guide, 10.6 and 10.14.1; the C standard for
// frexp). A file that names one of them is read with this one.
__device__ inline unsigned atomicInc(unsigned* address, unsigned last) {
  unsigned seen = atomicOr(address, 0u), expected;
  do {
    expected = seen;
    seen = atomicCAS(address, expected, expected >= last ? 0u : expected + 1u);
  } while (seen != expected);
  return seen;
}

__device__ inline unsigned atomicDec(unsigned* address, unsigned first) {
  unsigned seen = atomicOr(address, 0u), expected;
  do {
    expected = seen;
    seen = atomicCAS(address, expected, (expected == 0u || expected > first) ? first : expected - 1u);
  } while (seen != expected);
  return seen;
}

__device__ inline int __syncthreads_count(int predicate) {
  __shared__ int votes;
  if (threadIdx.x + threadIdx.y + threadIdx.z == 0) votes = 0;
  __syncthreads();
  if (predicate != 0) atomicAdd(&votes, 1);
  __syncthreads();
  const int counted = votes;
  __syncthreads();
  return counted;
}

__device__ inline int __syncthreads_or(int predicate) { return __syncthreads_count(predicate) != 0 ? 1 : 0; }

__device__ inline int __syncthreads_and(int predicate) { return __syncthreads_count(predicate == 0) == 0 ? 1 : 0; }

// The fraction in [0.5, 1) and the power of two: x = fraction * 2^exponent. Subnormal numbers are scaled first.
__device__ inline float frexpf(float x, int* exponent) {
  unsigned bits = __float_as_uint(x);
  int at = static_cast<int>(bits >> 23 & 255u);
  int shift = 0;
  if (at == 0 && (bits & 0x7fffffu) != 0u) {
    bits = __float_as_uint(x * 33554432.0f);
    at = static_cast<int>(bits >> 23 & 255u);
    shift = 25;
  }
  const bool plain = at != 0 && at != 255;
  *exponent = plain ? at - 126 - shift : 0;
  return plain ? __uint_as_float((bits & 0x807fffffu) | 0x3f000000u) : x;
}

__device__ inline float frexp(float x, int* exponent) { return frexpf(x, exponent); }
