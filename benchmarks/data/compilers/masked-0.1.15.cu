#if defined(_MSC_VER) && !defined(__clang__) && _MSC_VER < 1940
#define _tl_orig_alignas alignas
#define alignas(N) _tl_orig_alignas((N) <= 64 ? (N) : 64)
#include <cuda.h>
#undef alignas
#define alignas _tl_orig_alignas
#endif
#include <tl_templates/cuda/reduce.h>
#include <tl_templates/cuda/scan.h>
#include <tl_templates/cuda/ldsm.h>
#include <tl_templates/cuda/threadblock_swizzle.h>
#include <tl_templates/cuda/debug.h>
#ifdef ENABLE_BF16
#include <tl_templates/cuda/cuda_bf16_fallbacks.cuh>
#endif

extern "C" __global__ void main_kernel(const float* __restrict__ A, float* __restrict__ B, const int* __restrict__ M);
extern "C" __global__ void __launch_bounds__(128, 1) main_kernel(const float* __restrict__ A, float* __restrict__ B, const int* __restrict__ M) {
  extern __shared__ __align__(1024) float s[];
  s[((int)threadIdx.x)] = A[((int)threadIdx.x)];
  __syncthreads();
  if (M[((int)threadIdx.x)] != 0) {
    for (int i = 0; i < 4; ++i) {
      s[((int)threadIdx.x)] = (A[((int)threadIdx.x)] + ((float)i));
      B[((int)threadIdx.x)] = s[(127 - ((int)threadIdx.x))];
    }
  }
}
