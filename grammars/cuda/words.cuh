// Functions that CUDA declares and that KIR reads as what they compute, in words that it has (CUDA C++ Programming Guide, 10.6 and 10.14.1; the C standard for
// frexp and fdim; CUDA Math API Reference for the integer intrinsics). A file that names one of them is read with this one.
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

__device__ inline unsigned __uhadd(unsigned x, unsigned y) { return (x & y) + ((x ^ y) >> 1); }

__device__ inline int __rhadd(int x, int y) { return (x | y) - ((x ^ y) >> 1); }

__device__ inline unsigned __urhadd(unsigned x, unsigned y) { return (x | y) - ((x ^ y) >> 1); }

__device__ inline unsigned __usad(unsigned x, unsigned y, unsigned z) { return (x > y ? x - y : y - x) + z; }

__device__ inline unsigned __sad(int x, int y, unsigned z) {
  return (x > y ? static_cast<unsigned>(x) - static_cast<unsigned>(y) : static_cast<unsigned>(y) - static_cast<unsigned>(x)) + z;
}

// Two words side by side, shifted: the high word of a shift to the left, the low one of a shift to the right. A shift by 32 is taken in two halves.
__device__ inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return high << (shift & 31u) | low >> 1 >> (31u - (shift & 31u));
}

__device__ inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return low >> (shift & 31u) | high << 1 << (31u - (shift & 31u));
}

__device__ inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32u ? low : __funnelshift_l(low, high, shift);
}

__device__ inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32u ? high : __funnelshift_r(low, high, shift);
}

__device__ inline long long llroundf(float x) { return static_cast<long long>(roundf(x)); }

__device__ inline long long llround(double x) { return static_cast<long long>(round(x)); }

__device__ inline long lroundf(float x) { return static_cast<long>(roundf(x)); }

__device__ inline long lround(double x) { return static_cast<long>(round(x)); }

__device__ inline float fdimf(float x, float y) { return x <= y ? 0.0f : x - y; }

__device__ inline double fdim(double x, double y) { return x <= y ? 0.0 : x - y; }

__device__ inline float scalbnf(float x, int exponent) { return ldexpf(x, exponent); }

__device__ inline double scalbn(double x, int exponent) { return ldexp(x, exponent); }
