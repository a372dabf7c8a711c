#include <cuda_fp16.h>
#define TILE 32

__global__ void naive_gemm(const float* A, const float* B, float* C, int M, int N, int K) {
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= M || col >= N) return;
  float acc = 0.f;
  for (int k = 0; k < K; ++k) acc += A[row * K + k] * B[k * N + col];
  C[row * N + col] = acc;
}

__global__ void __launch_bounds__(256) transpose(const float* __restrict__ x, float* __restrict__ y, int M, int N) {
  __shared__ float tile[TILE][TILE + 1];
  int bx = blockIdx.x * TILE, by = blockIdx.y * TILE;
  int tx = threadIdx.x % TILE, ty = threadIdx.x / TILE;
  for (int i = ty; i < TILE; i += 8) {
    if (by + i < M && bx + tx < N) tile[i][tx] = x[(by + i) * N + bx + tx];
  }
  __syncthreads();
  for (int i = ty; i < TILE; i += 8) {
    if (bx + i < N && by + tx < M) y[(bx + i) * M + by + tx] = tile[tx][i];
  }
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffff, v, o);
  return v;
}

__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, o));
  return v;
}

__global__ void softmax(const half* __restrict__ X, half* __restrict__ Y, int N) {
  __shared__ float tops[4];
  __shared__ float totals[4];
  const int row = blockIdx.x;
  const half* x = X + row * N;
  half* y = Y + row * N;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float top = -INFINITY;
  for (int j = threadIdx.x; j < N; j += blockDim.x) top = fmaxf(top, __half2float(x[j]));
  top = warp_max(top);
  if (lane == 0) tops[warp] = top;
  __syncthreads();
  for (int w = 0; w < 4; ++w) top = fmaxf(top, tops[w]);
  float total = 0.f;
  for (int j = threadIdx.x; j < N; j += blockDim.x) total += expf(__half2float(x[j]) - top);
  total = warp_sum(total);
  if (lane == 0) totals[warp] = total;
  __syncthreads();
  float sum = 0.f;
  for (int w = 0; w < 4; ++w) sum += totals[w];
  for (int j = threadIdx.x; j < N; j += blockDim.x) y[j] = __float2half(expf(__half2float(x[j]) - top) / sum);
}

template <typename T, int VEC>
__global__ void scale(const T* x, T* y, float a, int n) {
  int i = (blockIdx.x * blockDim.x + threadIdx.x) * VEC;
  if (i >= n) return;
  T v[VEC];
  *reinterpret_cast<float4*>(v) = *reinterpret_cast<const float4*>(x + i);
#pragma unroll
  for (int j = 0; j < VEC; ++j) v[j] = T(float(v[j]) * a);
  *reinterpret_cast<float4*>(&y[i]) = *reinterpret_cast<float4*>(v);
}

__global__ void reduce(const float* x, float* out, int n) {
  extern __shared__ float smem[];
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
  smem[threadIdx.x] = sum;
  __syncthreads();
  for (int s = blockDim.x / 2; s > 0; s >>= 1) {
    if (threadIdx.x < s) smem[threadIdx.x] += smem[threadIdx.x + s];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(out, smem[0]);
}
