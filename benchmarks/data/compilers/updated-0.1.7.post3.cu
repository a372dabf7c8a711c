#include <tl_templates/cuda/gemm.h>
#include <tl_templates/cuda/copy.h>
#include <tl_templates/cuda/reduce.h>
#include <tl_templates/cuda/ldsm.h>
#include <tl_templates/cuda/threadblock_swizzle.h>
#include <tl_templates/cuda/debug.h>
#ifdef ENABLE_BF16
#include <tl_templates/cuda/cuda_bf16_fallbacks.cuh>
#endif

extern "C" __global__ void main_kernel(int* __restrict__ B);
extern "C" __global__ void __launch_bounds__(64, 1) main_kernel(int* __restrict__ B) {
  extern __shared__ __align__(1024) int s[];
  s[(((int)threadIdx.x) ^ 1)] = 0;
  __syncthreads();
  AtomicAdd((&(s[((int)threadIdx.x)])), 1);
  B[((int)threadIdx.x)] = s[(((int)threadIdx.x) ^ 1)];
}
