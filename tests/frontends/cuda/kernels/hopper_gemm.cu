// A GEMM for sm_90a as people write it by hand: C = A B^T, one tile of 128 x 128 a CTA, operands by TMA through a ring, products by wgmma.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cstdint>

constexpr int BM = 128, BN = 128, BK = 64, STAGES = 3;

__device__ static inline uint64_t encoded(uint64_t x) { return (x & 0x3FFFF) >> 0x4; }

__device__ uint64_t make_descriptor(const __nv_bfloat16* p) {
  uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(p));
  uint64_t desc = 0x0000000000000000;
  desc |= encoded(at);
  desc |= encoded((uint64_t)16) << 16;
  desc |= encoded((uint64_t)1024) << 32;
  desc |= 1llu << 62;
  return desc;
}

template <int ScaleD, int ScaleA, int ScaleB, int TransA, int TransB>
__device__ inline void product(float (&d)[2][8], const __nv_bfloat16* a, const __nv_bfloat16* b) {
  uint64_t left = make_descriptor(a), right = make_descriptor(b);
  asm volatile(
      "{\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, %18, %19, %20, %21, %22;\n"
      "}\n"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[0][4]), "+f"(d[0][5]), "+f"(d[0][6]), "+f"(d[0][7]),
        "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[1][4]), "+f"(d[1][5]), "+f"(d[1][6]), "+f"(d[1][7])
      : "l"(left), "l"(right), "n"(ScaleD), "n"(ScaleA), "n"(ScaleB), "n"(TransA), "n"(TransB));
}

__device__ static __forceinline__ void init_barrier(uint64_t* bar, int count) {
  uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(bar));
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(at), "r"(count));
}

__device__ static __forceinline__ void expect_bytes(uint64_t* bar, uint32_t bytes) {
  uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(bar));
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;\n" ::"r"(at), "r"(bytes));
}

__device__ static __forceinline__ void wait(uint64_t* bar, int parity) {
  uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(bar));
  asm volatile(
      "{\n"
      ".reg .pred P1;\n"
      "LAB_WAIT:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n"
      "@P1 bra DONE;\n"
      "bra LAB_WAIT;\n"
      "DONE:\n"
      "}\n" ::"r"(at), "r"(parity));
}

__device__ static __forceinline__ void arrive(uint64_t* bar) {
  uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(bar));
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];\n" ::"r"(at) : "memory");
}

__device__ static inline void load(__nv_bfloat16* to, void const* const map, uint64_t* bar, int column, int row) {
  uint64_t address = reinterpret_cast<uint64_t>(map);
  uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(bar)), into = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
               ::"r"(into), "l"(address), "r"(at), "r"(column), "r"(row) : "memory");
}

template <uint32_t R>
__device__ void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" : : "n"(R)); }
template <uint32_t R>
__device__ void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" : : "n"(R)); }

__global__ void __launch_bounds__(384) gemm_nt(int M, int N, int K, __nv_bfloat16* C, const __grid_constant__ CUtensorMap map_a,
                                               const __grid_constant__ CUtensorMap map_b) {
  __shared__ alignas(1024) __nv_bfloat16 sA[STAGES][BM * BK];
  __shared__ alignas(1024) __nv_bfloat16 sB[STAGES][BN / 4 * BK];
  __shared__ uint64_t full[STAGES], empty[STAGES];
  const int column = blockIdx.x, row = blockIdx.y;
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) {
      init_barrier(&full[i], 1);
      init_barrier(&empty[i], 2);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  int group = threadIdx.x / 128, lane = threadIdx.x % 128;
  if (group == 0) {
    fewer_registers<40>();
    if (lane == 0) {
      for (int k = 0; k < K / BK; ++k) {
        wait(&empty[k % STAGES], (k / STAGES + 1) & 1);
        expect_bytes(&full[k % STAGES], (BM + BN / 4) * BK * sizeof(__nv_bfloat16));
        load(&sA[k % STAGES][0], &map_a, &full[k % STAGES], k * BK, row * BM);
        load(&sB[k % STAGES][0], &map_b, &full[k % STAGES], k * BK, column * (BN / 4));
      }
    }
  } else {
    more_registers<232>();
    int part = group - 1;
    float d[2][8];
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 8; ++j) d[i][j] = 0.f;
    for (int k = 0; k < K / BK; ++k) {
      wait(&full[k % STAGES], (k / STAGES) & 1);
      asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
      __nv_bfloat16* a = &sA[k % STAGES][part * 64 * BK];
      __nv_bfloat16* b = &sB[k % STAGES][0];
      product<1, 1, 1, 0, 0>(d, &a[0], &b[0]);
      product<1, 1, 1, 0, 0>(d, &a[16], &b[16]);
      product<1, 1, 1, 0, 0>(d, &a[32], &b[32]);
      product<1, 1, 1, 0, 0>(d, &a[48], &b[48]);
      asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(0) : "memory");
      if (lane == 0) arrive(&empty[k % STAGES]);
    }
    int warp = lane / 32, thread = lane % 32;
    for (int w = 0; w < 2; ++w)
      for (int j = 0; j < 8; j += 4) {
        int r = row * BM + part * 64 + warp * 16 + thread / 4, c = column * (BN / 4) + 16 * w + 2 * j + 2 * (thread % 4);
        C[r * N + c] = __float2bfloat16(d[w][j]);
        C[r * N + c + 1] = __float2bfloat16(d[w][j + 1]);
        C[(r + 8) * N + c] = __float2bfloat16(d[w][j + 2]);
        C[(r + 8) * N + c + 1] = __float2bfloat16(d[w][j + 3]);
      }
  }
}
