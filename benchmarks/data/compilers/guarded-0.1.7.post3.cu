#include <tl_templates/cuda/gemm.h>
#include <tl_templates/cuda/copy.h>
#include <tl_templates/cuda/reduce.h>
#include <tl_templates/cuda/ldsm.h>
#include <tl_templates/cuda/threadblock_swizzle.h>
#include <tl_templates/cuda/debug.h>
#ifdef ENABLE_BF16
#include <tl_templates/cuda/cuda_bf16_fallbacks.cuh>
#endif

extern "C" __global__ void main_kernel(const float* __restrict__ A, float* __restrict__ B);
extern "C" __global__ void __launch_bounds__(64, 1) main_kernel(const float* __restrict__ A, float* __restrict__ B) {
  extern __shared__ __align__(1024) float s[];
  if (((int)threadIdx.x) < 48) {
    s[((int)threadIdx.x)] = A[((int)threadIdx.x)];
    B[((int)threadIdx.x)] = s[(47 - ((int)threadIdx.x))];
  }
}
