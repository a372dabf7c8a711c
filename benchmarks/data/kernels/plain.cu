// Small right kernels as people write them, each with its launch: what passes are tried on beside random programs
// (`python -m benchmarks.checks.kernels_passed`).
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

__global__ void transpose(const float* __restrict__ x, float* __restrict__ y, int M, int N) {
  __shared__ float s[32][33];
  int j = blockIdx.x * 32 + threadIdx.x, i0 = blockIdx.y * 32;
  for (int r = threadIdx.y; r < 32; r += 8)
    if (i0 + r < M && j < N) s[r][threadIdx.x] = x[(long)(i0 + r) * N + j];
  __syncthreads();
  int i = i0 + threadIdx.x, j0 = blockIdx.x * 32;
  for (int r = threadIdx.y; r < 32; r += 8)
    if (j0 + r < N && i < M) y[(long)(j0 + r) * M + i] = s[threadIdx.x][r];
}
void run_transpose(const float* x, float* y, int M, int N) { dim3 g((N + 31) / 32, (M + 31) / 32), b(32, 8); transpose<<<g, b>>>(x, y, M, N); }

__global__ void pipe(const float4* __restrict__ x, float4* __restrict__ y, int M, int T) {
  __shared__ float4 s[2][64];
  int t = threadIdx.x; const float4* row = x + (long)blockIdx.x * T * 64;
  float4 acc = make_float4(0.f, 0.f, 0.f, 0.f);
  __pipeline_memcpy_async(&s[0][t], &row[t], 16);
  __pipeline_commit();
  for (int k = 0; k < T; ++k) {
    if (k + 1 < T) __pipeline_memcpy_async(&s[(k + 1) % 2][t], &row[(k + 1) * 64 + t], 16);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    float4 v = s[k % 2][63 - t];
    acc.x += v.x; acc.y += v.y; acc.z += v.z; acc.w += v.w;
    __syncthreads();
  }
  y[(long)blockIdx.x * 64 + t] = acc;
}
void run_pipe(const float4* x, float4* y, int M, int T) { pipe<<<M, 64>>>(x, y, M, T); }

__global__ void tree(const float* __restrict__ x, float* __restrict__ y, int M, int N) {
  __shared__ float s[128];
  int t = threadIdx.x; float v = 0.f;
  for (int j = t; j < N; j += 128) v += x[(long)blockIdx.x * N + j];
  s[t] = v;
  __syncthreads();
  for (int h = 64; h > 0; h >>= 1) {
    if (t < h) s[t] += s[t + h];
    __syncthreads();
  }
  if (t == 0) y[blockIdx.x] = s[0];
}
void run_tree(const float* x, float* y, int M, int N) { tree<<<M, 128>>>(x, y, M, N); }

__global__ void gemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
  __shared__ float As[16][16], Bs[16][16];
  int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
  float acc = 0.f;
  for (int k0 = 0; k0 < K; k0 += 16) {
    As[ty][tx] = row < M && k0 + tx < K ? A[(long)row * K + k0 + tx] : 0.f;
    Bs[ty][tx] = col < N && k0 + ty < K ? B[(long)(k0 + ty) * N + col] : 0.f;
    __syncthreads();
    for (int k = 0; k < 16; ++k) acc += As[ty][k] * Bs[k][tx];
    __syncthreads();
  }
  if (row < M && col < N) C[(long)row * N + col] = acc;
}
void run_gemm(const float* A, const float* B, float* C, int M, int N, int K) { dim3 g((N + 15) / 16, (M + 15) / 16), b(16, 16); gemm<<<g, b>>>(A, B, C, M, N, K); }

__global__ void rowmax(const float* __restrict__ x, float* __restrict__ y, int M, int N) {
  __shared__ float s[4];
  int t = threadIdx.x; float v = -INFINITY;
  for (int j = t; j < N; j += 128) v = fmaxf(v, x[(long)blockIdx.x * N + j]);
  for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, o));
  if (t % 32 == 0) s[t / 32] = v;
  __syncthreads();
  if (t == 0) y[blockIdx.x] = fmaxf(fmaxf(s[0], s[1]), fmaxf(s[2], s[3]));
}
void run_rowmax(const float* x, float* y, int M, int N) { rowmax<<<M, 128>>>(x, y, M, N); }

__global__ void scan(const float* __restrict__ x, float* __restrict__ y, int M, int N) {
  __shared__ float s[2][64];
  int t = threadIdx.x, cur = 0;
  s[0][t] = t < N ? x[(long)blockIdx.x * N + t] : 0.f;
  __syncthreads();
  for (int o = 1; o < 64; o <<= 1) {
    s[1 - cur][t] = t >= o ? s[cur][t] + s[cur][t - o] : s[cur][t];
    cur = 1 - cur;
    __syncthreads();
  }
  if (t < N) y[(long)blockIdx.x * N + t] = s[cur][t];
}
void run_scan(const float* x, float* y, int M, int N) { if (N > 64) return; scan<<<M, 64>>>(x, y, M, N); }

__global__ void warps(const float* __restrict__ x, float* __restrict__ y, int M, int N) {
  __shared__ float s[4][32];
  int lane = threadIdx.x, w = threadIdx.y, row = blockIdx.x * 4 + w;
  float v = 0.f;
  if (row < M) for (int j = lane; j < N; j += 32) v += x[(long)row * N + j];
  s[w][lane] = v;
  __syncthreads();
  if (lane < 4 && w == 0) {
    float u = 0.f;
    for (int k = 0; k < 32; ++k) u += s[lane][k];
    if (blockIdx.x * 4 + lane < M) y[blockIdx.x * 4 + lane] = u;
  }
}
void run_warps(const float* x, float* y, int M, int N) { dim3 b(32, 4); warps<<<(M + 3) / 4, b>>>(x, y, M, N); }

__global__ void shift(const float* x, float* y, int n) {
  int i = blockIdx.x * 128 + threadIdx.x;
  if (i < n) y[i] = (i > 0 ? x[i - 1] : 0.f) + x[i];
}
void run_shift(const float* x, float* y, int n) { shift<<<(n + 127) / 128, 128>>>(x, y, n); }

__global__ void hist(const int* __restrict__ x, int* y, int n) {
  __shared__ int s[64];
  int t = threadIdx.x;
  for (int j = t; j < 64; j += 128) s[j] = 0;
  __syncthreads();
  for (int i = blockIdx.x * 128 + t; i < n; i += gridDim.x * 128) { int v = x[i]; if (v >= 0 && v < 64) atomicAdd(&s[v], 1); }
  __syncthreads();
  if (t < 64) atomicAdd(&y[t], s[t]);
}
void run_hist(const int* x, int* y, int n) { hist<<<8, 128>>>(x, y, n); }

__global__ void early(const float* __restrict__ x, float* __restrict__ y, int n) {
  __shared__ float s[256];
  int t = threadIdx.x, i = blockIdx.x * 256 + t;
  s[t] = i < n ? x[i] : 0.f;
  __syncthreads();
  if (i >= n) return;
  float v = s[t];
  if (t > 0) v += s[t - 1];
  y[i] = v;
}
void run_early(const float* x, float* y, int n) { early<<<(n + 255) / 256, 256>>>(x, y, n); }

__global__ void warpsum(const float* __restrict__ x, float* __restrict__ y, int M, int N) {
  int w = threadIdx.x / 32, lane = threadIdx.x % 32, row = blockIdx.x * 4 + w;
  if (row >= M) return;
  float v = 0.f;
  for (int j = lane; j < N; j += 32) v += x[(long)row * N + j];
  for (int o = 16; o > 0; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);
  if (lane == 0) y[row] = v;
}
void run_warpsum(const float* x, float* y, int M, int N) { warpsum<<<(M + 3) / 4, 128>>>(x, y, M, N); }

__global__ void loopb(const float* __restrict__ x, float* __restrict__ y, int M, int N) {
  __shared__ float s[8][32];
  int c = blockIdx.x * 32 + threadIdx.x, r = threadIdx.y;
  float v = 0.f;
  if (c < N) for (int i = r; i < M; i += 8) v += x[(long)i * N + c];
  s[r][threadIdx.x] = v;
  for (int h = 4; h > 0; h /= 2) {
    __syncthreads();
    if (r < h) s[r][threadIdx.x] += s[r + h][threadIdx.x];
  }
  if (r == 0 && c < N) y[c] = s[0][threadIdx.x];
}
void run_loopb(const float* x, float* y, int M, int N) { dim3 b(32, 8); loopb<<<(N + 31) / 32, b>>>(x, y, M, N); }

__global__ void groups(const float* __restrict__ x, float* __restrict__ y, int n) {
  __shared__ float s[128];
  auto tile = cooperative_groups::tiled_partition<16>(cooperative_groups::this_thread_block());
  int t = threadIdx.x, i = blockIdx.x * 128 + t;
  s[t] = i < n ? x[i] : 0.f;
  tile.sync();
  float v = s[t / 16 * 16 + 15 - t % 16];
  tile.sync();
  for (int o = 8; o > 0; o /= 2) v += tile.shfl_down(v, o);
  if (i < n) y[i] = v;
}
void run_groups(const float* x, float* y, int n) { groups<<<(n + 127) / 128, 128>>>(x, y, n); }

__global__ void shflw(const float* __restrict__ x, float* __restrict__ y, int n) {
  int i = blockIdx.x * 128 + threadIdx.x;
  float v = i < n ? x[i] : 0.f;
  for (int o = 4; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffff, v, o, 8);
  v = __shfl_sync(0xffffffff, v, 0, 8);
  if (i < n) y[i] = v;
}
void run_shflw(const float* x, float* y, int n) { shflw<<<(n + 127) / 128, 128>>>(x, y, n); }

__global__ void parity(const float* __restrict__ x, float* __restrict__ y, int n, int rounds) {
  __shared__ float s[2][128];
  int t = threadIdx.x, i = blockIdx.x * 128 + t;
  s[0][t] = i < n ? x[i] : 0.f;
  __syncthreads();
  int cur = 0;
  for (int k = 0; k < rounds; ++k) {
    s[cur ^ 1][t] = s[cur][127 - t] * 2.f;
    cur ^= 1;
    __syncthreads();
  }
  if (i < n) y[i] = s[cur][t];
}
void run_parity(const float* x, float* y, int n, int rounds) { parity<<<(n + 127) / 128, 128>>>(x, y, n, rounds); }

__global__ void count(const float* __restrict__ x, float* __restrict__ y, int n) {
  int row = blockIdx.x;
  float s = 0.f;
  for (int k = n - 1; k >= 0; --k) s += x[row * n + k];
  y[row] = s;
}
void run_count(const float* x, float* y, int m, int n) { count<<<m, 1>>>(x, y, n); }

__global__ void halo(const float* __restrict__ x, float* __restrict__ y, int n) {
  __shared__ float s[130];
  int t = threadIdx.x, i = blockIdx.x * 128 + t;
  s[t + 1] = i < n ? x[i] : 0.f;
  if (t == 0) s[0] = i > 0 && i - 1 < n ? x[i - 1] : 0.f;
  if (t == 127) s[129] = i + 1 < n ? x[i + 1] : 0.f;
  __syncthreads();
  if (i < n) y[i] = s[t] + s[t + 1] + s[t + 2];
}
void run_halo(const float* x, float* y, int n) { halo<<<(n + 127) / 128, 128>>>(x, y, n); }

__global__ void exchange(const float* __restrict__ x, float* __restrict__ y) {
  __shared__ float s[128];
  int t = threadIdx.x;
  s[t] = x[blockIdx.x * 128 + t];
  __syncwarp();
  float v = s[t ^ 1];
  y[blockIdx.x * 128 + t] = v;
}
void run_exchange(const float* x, float* y, int blocks) { exchange<<<blocks, 128>>>(x, y); }

__device__ __forceinline__ float relu_of(float x) { return x < 0.f ? 0.f : x; }
__global__ void relu(const float* __restrict__ x, float* __restrict__ y, int n) {
  int i = blockIdx.x * 128 + threadIdx.x;
  if (i < n) y[i] = relu_of(x[i]);
}
void run_relu(const float* x, float* y, int n) { relu<<<(n + 127) / 128, 128>>>(x, y, n); }

__global__ void argmax(const float* __restrict__ x, float* __restrict__ y, int* __restrict__ at, int M, int N) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i >= M) return;
  float top = x[(long)i * N]; int best = 0;
  for (int j = 1; j < N; ++j) { float v = x[(long)i * N + j]; if (v > top) { top = v; best = j; } }
  y[i] = top; at[i] = best;
}
void run_argmax(const float* x, float* y, int* at, int M, int N) { argmax<<<(M + 63) / 64, 64>>>(x, y, at, M, N); }

__global__ void l1(const float* __restrict__ x, float* __restrict__ y, int M, int N) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i >= M) return;
  float s = 0.f;
  for (int j = 0; j < N; ++j) s += fabsf(x[(long)i * N + j]);
  y[i] = s / N;
}
void run_l1(const float* x, float* y, int M, int N) { l1<<<(M + 63) / 64, 64>>>(x, y, M, N); }

__global__ void ldg(float* y, const float* __restrict__ x, int M) {
  int t = threadIdx.x; float* r = y + blockIdx.x * 128;
  r[t] = x[blockIdx.x * 128 + t];
  __syncthreads();
  float v = r[127 - t];
  __syncthreads();
  r[t] = v * 2.f;
}
void run_ldg(float* y, const float* x, int M) { ldg<<<M, 128>>>(y, x, M); }

__global__ void shal(const float4* __restrict__ x, float* __restrict__ y, int M) {
  __shared__ float s[32 * 36];
  int t = threadIdx.x;
  float4 v = x[blockIdx.x * 32 + t];
  *reinterpret_cast<float4*>(&s[t * 36]) = v;
  __syncthreads();
  y[blockIdx.x * 32 + t] = s[(31 - t) * 36 + 1];
}
void run_shal(const float4* x, float* y, int M) { shal<<<M, 32>>>(x, y, M); }

__global__ void dynal(const float* __restrict__ x, float* __restrict__ y, int M) {
  extern __shared__ unsigned char raw[];
  float* a = reinterpret_cast<float*>(raw);
  float4* q = reinterpret_cast<float4*>(raw + 64 * 4);
  int t = threadIdx.x;
  a[t] = x[blockIdx.x * 64 + t];
  __syncthreads();
  if (t < 16) q[t] = make_float4(a[4 * t], a[4 * t + 1], a[4 * t + 2], a[4 * t + 3]);
  __syncthreads();
  y[blockIdx.x * 64 + t] = reinterpret_cast<float*>(q)[63 - t];
}
void run_dynal(const float* x, float* y, int M) { dynal<<<M, 64, 512>>>(x, y, M); }

__global__ void local(const float* __restrict__ x, float* __restrict__ y, int M, int N) {
  float r[4] = {0.f, 0.f, 0.f, 0.f};
  for (int j = threadIdx.x; j < N; j += 32) r[j / 32 % 4] += x[(long)blockIdx.x * N + j];
  float v = r[0] + r[1] + r[2] + r[3];
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
  if (threadIdx.x == 0) y[blockIdx.x] = v;
}
void run_local(const float* x, float* y, int M, int N) { local<<<M, 32>>>(x, y, M, N); }

__global__ void bits(const int* __restrict__ x, unsigned* __restrict__ y, int n) {
  __shared__ unsigned s[32];
  int t = threadIdx.x, i = blockIdx.x * 1024 + t;
  unsigned m = __ballot_sync(~0u, i < n && x[i] > 0);
  if ((t & 31) == 0) s[t >> 5] = m;
  __syncthreads();
  if (t < 32) y[blockIdx.x * 32 + t] = s[t];
}
void run_bits(const int* x, unsigned* y, int n) { bits<<<(n + 1023) / 1024, 1024>>>(x, y, n); }

__global__ void cond(const float* __restrict__ x, float* __restrict__ y, const int* __restrict__ len, int M, int N) {
  __shared__ float s[64];
  int b = blockIdx.x, t = threadIdx.x, L = min(len[b], N);
  float acc = 0.f;
  for (int j0 = 0; j0 < L; j0 += 64) {
    s[t] = j0 + t < L ? x[(long)b * N + j0 + t] : 0.f;
    __syncthreads();
    acc += s[63 - t];
    __syncthreads();
  }
  y[b * 64 + t] = acc;
}
void run_cond(const float* x, float* y, const int* len, int M, int N) { cond<<<M, 64>>>(x, y, len, M, N); }

__global__ void unionv(const float* __restrict__ x, float* __restrict__ y, int n) {
  __shared__ union { float f[128]; int i[128]; } u;
  int t = threadIdx.x, g = blockIdx.x * 128 + t;
  u.f[t] = g < n ? x[g] : 0.f;
  __syncthreads();
  float v = u.f[127 - t];
  __syncthreads();
  u.i[t] = t;
  __syncthreads();
  if (g < n) y[g] = v + u.i[127 - t];
}
void run_unionv(const float* x, float* y, int n) { unionv<<<(n + 127) / 128, 128>>>(x, y, n); }
