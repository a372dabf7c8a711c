// Transposition through a tile in shared memory, whose rows are one element longer so that columns fall into different banks. A CTA of
// 256 threads moves 32 x 32 elements, 8 rows at a time.
constexpr int kTile = 32;
constexpr int kRows = 8;

__global__ void __launch_bounds__(kTile* kRows) transpose(const float* __restrict__ X, float* __restrict__ Y, int M, int N) {
  __shared__ float tile[kTile][kTile + 1];
  const int m0 = blockIdx.y * kTile, n0 = blockIdx.x * kTile;
  const int tx = threadIdx.x % kTile, ty = threadIdx.x / kTile;
#pragma unroll
  for (int i = 0; i < kTile; i += kRows) {
    if (m0 + ty + i < M && n0 + tx < N) tile[ty + i][tx] = X[(m0 + ty + i) * N + n0 + tx];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kTile; i += kRows) {
    if (n0 + ty + i < N && m0 + tx < M) Y[(n0 + ty + i) * M + m0 + tx] = tile[tx][ty + i];
  }
}
