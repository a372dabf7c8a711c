// cuRAND's counter-based generator as KIR reads it: Philox4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011; cuRAND's device API).
// A file that names it is read with this one. Of XORWOW (Marsaglia, Xorshift RNGs, 2003) the steps are read; where a stream begins is worked out by tables of
// cuRAND's own, which are not.
struct curandStatePhilox4_32_10 {
  uint4 ctr;
  uint4 output;
  uint2 key;
  unsigned STATE;
  unsigned rest[5];
};
typedef struct curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;

struct curandStateXORWOW {
  unsigned d;
  unsigned v[5];
  unsigned rest[6];
};
typedef struct curandStateXORWOW curandStateXORWOW_t;
typedef struct curandStateXORWOW curandState_t;
typedef struct curandStateXORWOW curandState;

__device__ inline uint4 kir_philox(uint4 c, uint2 k) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned high0 = __umulhi(0xD2511F53u, c.x), low0 = 0xD2511F53u * c.x;
    const unsigned high1 = __umulhi(0xCD9E8D57u, c.z), low1 = 0xCD9E8D57u * c.z;
    c = make_uint4(high1 ^ c.y ^ (k.x + 0x9E3779B9u * round), low1, high0 ^ c.w ^ (k.y + 0xBB67AE85u * round), low0);
  }
  return c;
}

__device__ inline uint4 kir_philox_ahead(uint4 c, unsigned long long by) {
  const unsigned low = static_cast<unsigned>(by);
  c.x = c.x + low;
  const unsigned high = static_cast<unsigned>(by >> 32) + (c.x < low ? 1u : 0u);
  c.y = c.y + high;
  const unsigned over = c.y < high ? 1u : 0u;
  c.z = c.z + over;
  c.w = c.w + (over != 0u && c.z == 0u ? 1u : 0u);
  return c;
}

__device__ inline void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset, curandStatePhilox4_32_10* state) {
  state->key = make_uint2(static_cast<unsigned>(seed), static_cast<unsigned>(seed >> 32));
  const uint4 begun = make_uint4(0u, 0u, static_cast<unsigned>(subsequence), static_cast<unsigned>(subsequence >> 32));
  state->STATE = static_cast<unsigned>(offset & 3ull);
  state->ctr = kir_philox_ahead(begun, offset >> 2);
  state->output = kir_philox(state->ctr, state->key);
}

__device__ inline unsigned curand(curandStateXORWOW* state) {
  const unsigned t = state->v[0] ^ (state->v[0] >> 2);
  state->v[0] = state->v[1];
  state->v[1] = state->v[2];
  state->v[2] = state->v[3];
  state->v[3] = state->v[4];
  const unsigned last = state->v[4];
  state->v[4] = (last ^ (last << 4)) ^ (t ^ (t << 1));
  state->d = state->d + 362437u;
  return state->v[4] + state->d;
}

__device__ inline unsigned curand(curandStatePhilox4_32_10* state) {
  const unsigned at = state->STATE;
  const uint4 held = state->output;
  if (at == 3u) {
    state->ctr = kir_philox_ahead(state->ctr, 1ull);
    state->output = kir_philox(state->ctr, state->key);
  }
  state->STATE = at == 3u ? 0u : at + 1u;
  return at == 0u ? held.x : (at == 1u ? held.y : (at == 2u ? held.z : held.w));
}

__device__ inline uint4 curand4(curandStatePhilox4_32_10* state) {
  const uint4 a = state->output;
  state->ctr = kir_philox_ahead(state->ctr, 1ull);
  state->output = kir_philox(state->ctr, state->key);
  const uint4 b = state->output;
  const unsigned at = state->STATE;
  if (at == 0u) return a;
  if (at == 1u) return make_uint4(a.y, a.z, a.w, b.x);
  return at == 2u ? make_uint4(a.z, a.w, b.x, b.y) : make_uint4(a.w, b.x, b.y, b.z);
}

__device__ inline float kir_uniform(unsigned x) { return x * 2.3283064e-10f + (2.3283064e-10f / 2.0f); }

__device__ inline float2 kir_normal(unsigned x, unsigned y) {
  const float u = kir_uniform(x);
  const float v = y * (2.3283064e-10f * 6.2831855f) + (2.3283064e-10f * 6.2831855f / 2.0f);
  const float length = sqrtf(-2.0f * logf(u));
  return make_float2(__sinf(v) * length, __cosf(v) * length);
}

__device__ inline float curand_uniform(curandStateXORWOW* state) { return kir_uniform(curand(state)); }

__device__ inline float curand_uniform(curandStatePhilox4_32_10* state) { return kir_uniform(curand(state)); }

__device__ inline float4 curand_uniform4(curandStatePhilox4_32_10* state) {
  const uint4 x = curand4(state);
  return make_float4(kir_uniform(x.x), kir_uniform(x.y), kir_uniform(x.z), kir_uniform(x.w));
}

__device__ inline float4 curand_normal4(curandStatePhilox4_32_10* state) {
  const uint4 x = curand4(state);
  const float2 a = kir_normal(x.x, x.y), b = kir_normal(x.z, x.w);
  return make_float4(a.x, a.y, b.x, b.y);
}
