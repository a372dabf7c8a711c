// Device functions of emitted CUDA. Each begins with a line `//@ name` and wraps at most one PTX instruction or intrinsic; the emitter
// copies those that a program uses, with those that they name after `needs`.

//@ bit_cast
template <typename To, typename From>
__device__ __forceinline__ To bit_cast(From x) {
  static_assert(sizeof(To) == sizeof(From), "equal widths");
  To out;
  memcpy(&out, &x, sizeof(To));
  return out;
}

//@ packed
// The bits of neighboring elements as one value.
template <typename To, typename From>
__device__ __forceinline__ To packed(const From* elements) {
  To out;
  memcpy(&out, elements, sizeof(To));
  return out;
}

//@ part
// Element i of a value that holds several.
template <typename To, typename From>
__device__ __forceinline__ To part(From x, int i) {
  To out;
  memcpy(&out, reinterpret_cast<const char*>(&x) + i * sizeof(To), sizeof(To));
  return out;
}

//@ philox4x32
// Word `lane` of Philox 4x32 (Salmon et al., SC 2011): counter-based random bits.
template <int lane, int rounds>
__device__ __forceinline__ unsigned philox4x32(unsigned long long seed, unsigned c0, unsigned c1, unsigned c2, unsigned c3) {
  unsigned k0 = static_cast<unsigned>(seed), k1 = static_cast<unsigned>(seed >> 32);
#pragma unroll
  for (int i = 0; i < rounds; ++i) {
    const unsigned high = __umulhi(0xD2511F53u, c0), low = 0xD2511F53u * c0, up = __umulhi(0xCD9E8D57u, c2), down = 0xCD9E8D57u * c2;
    c0 = up ^ c1 ^ k0;
    c1 = down;
    c2 = high ^ c3 ^ k1;
    c3 = low;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return lane == 0 ? c0 : lane == 1 ? c1 : lane == 2 ? c2 : c3;
}

//@ floor_div
template <typename T>
__device__ __forceinline__ T floor_div(T a, T b) {
  T q = a / b;
  return q - static_cast<T>((a % b != 0) && ((a < 0) != (b < 0)));
}

//@ floor_mod
template <typename T>
__device__ __forceinline__ T floor_mod(T a, T b) {
  T r = a % b;
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}

//@ ceil_div
template <typename T>
__device__ __forceinline__ T ceil_div(T a, T b) {
  T q = a / b;
  return q + static_cast<T>((a % b != 0) && ((a < 0) == (b < 0)));
}

//@ swizzled
// Byte offset with bits [base + shift, base + shift + bits) xored into [base, base + bits).
template <int Bits, int Base, int Shift>
__device__ __forceinline__ unsigned swizzled(unsigned offset) {
  return offset ^ (((offset >> (Base + Shift)) & ((1u << Bits) - 1u)) << Base);
}

//@ shared_address
__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

//@ min_nan
__device__ __forceinline__ float min_nan(float a, float b) {
  float out;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
  return out;
}

//@ max_nan
__device__ __forceinline__ float max_nan(float a, float b) {
  float out;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
  return out;
}

//@ exp2_approx
__device__ __forceinline__ float exp2_approx(float x) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}

//@ tanh_approx
__device__ __forceinline__ float tanh_approx(float x) {
  float out;
  asm("tanh.approx.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}

//@ rcp_approx
__device__ __forceinline__ float rcp_approx(float x) {
  float out;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}

//@ copy_async needs shared_address
// Copies Bytes bytes, or fills them with zeros when `inside` is false.
template <int Bytes>
__device__ __forceinline__ void copy_async(void* to, const void* from, bool inside) {
  const int size = inside ? Bytes : 0;
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(size) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)), "l"(from), "n"(Bytes), "r"(size) : "memory");
  }
}

//@ copy_async_commit
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

//@ copy_async_wait
template <int Pending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

//@ load_matrix_1 needs shared_address
__device__ __forceinline__ void load_matrix_1(unsigned* out, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(out[0]) : "r"(shared_address(row)) : "memory");
}

//@ load_matrix_2 needs shared_address
__device__ __forceinline__ void load_matrix_2(unsigned* out, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(out[0]), "=r"(out[1]) : "r"(shared_address(row)) : "memory");
}

//@ load_matrix_4 needs shared_address
__device__ __forceinline__ void load_matrix_4(unsigned* out, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(shared_address(row)) : "memory");
}

//@ load_matrix_1_trans needs shared_address
__device__ __forceinline__ void load_matrix_1_trans(unsigned* out, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(out[0]) : "r"(shared_address(row)) : "memory");
}

//@ load_matrix_2_trans needs shared_address
__device__ __forceinline__ void load_matrix_2_trans(unsigned* out, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(out[0]), "=r"(out[1]) : "r"(shared_address(row)) : "memory");
}

//@ load_matrix_4_trans needs shared_address
__device__ __forceinline__ void load_matrix_4_trans(unsigned* out, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(shared_address(row)) : "memory");
}

//@ mma_m16n8k16_f16
__device__ __forceinline__ void mma_m16n8k16_f16(float* d, const unsigned* a, const unsigned* b, const float* c) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

//@ mma_m16n8k16_bf16
__device__ __forceinline__ void mma_m16n8k16_bf16(float* d, const unsigned* a, const unsigned* b, const float* c) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

//@ mma_m16n8k16_f16_f16
__device__ __forceinline__ void mma_m16n8k16_f16_f16(unsigned* d, const unsigned* a, const unsigned* b, const unsigned* c) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%8, %9};"
               : "=r"(d[0]), "=r"(d[1])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]));
}

//@ mma_m16n8k8_tf32
__device__ __forceinline__ void mma_m16n8k8_tf32(float* d, const unsigned* a, const unsigned* b, const float* c) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

//@ mma_m16n8k32_i8
__device__ __forceinline__ void mma_m16n8k32_i8(int* d, const unsigned* a, const unsigned* b, const int* c) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}

//@ mma_m16n8k32_u8
__device__ __forceinline__ void mma_m16n8k32_u8(int* d, const unsigned* a, const unsigned* b, const int* c) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}

//@ round_to_tf32
// The 10 mantissa bits of tf32, to nearest even; infinities and NaN unchanged.
__device__ __forceinline__ float round_to_tf32(float x) {
  unsigned bits;
  memcpy(&bits, &x, 4);
  if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0xfffu + (bits >> 13 & 1u)) & 0xffffe000u;
  memcpy(&x, &bits, 4);
  return x;
}

//@ atomic_max
// CUDA has this for integers alone: tries until nobody was faster.
__device__ __forceinline__ float atomic_max(float* at, float value) {
  int old = *reinterpret_cast<volatile int*>(at), assumed;
  do {
    assumed = old;
    old = atomicCAS(reinterpret_cast<int*>(at), assumed, __float_as_int(fmaxf(value, __int_as_float(assumed))));
  } while (assumed != old);
  return __int_as_float(old);
}

//@ atomic_min
// CUDA has this for integers alone: tries until nobody was faster.
__device__ __forceinline__ float atomic_min(float* at, float value) {
  int old = *reinterpret_cast<volatile int*>(at), assumed;
  do {
    assumed = old;
    old = atomicCAS(reinterpret_cast<int*>(at), assumed, __float_as_int(fminf(value, __int_as_float(assumed))));
  } while (assumed != old);
  return __int_as_float(old);
}

//@ named_barrier_sync
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

//@ named_barrier_arrive
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
  asm volatile("barrier.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

//@ mbar_init needs shared_address
__device__ __forceinline__ void mbar_init(unsigned long long* bar, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(arrivals) : "memory");
}

//@ mbar_expect needs shared_address
__device__ __forceinline__ void mbar_expect(unsigned long long* bar, unsigned bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(bytes) : "memory");
}

//@ mbar_arrive needs shared_address
__device__ __forceinline__ void mbar_arrive(unsigned long long* bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory");
}

//@ mbar_arrive_expect needs shared_address
__device__ __forceinline__ void mbar_arrive_expect(unsigned long long* bar, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)), "r"(bytes) : "memory");
}

//@ mbar_try_wait needs shared_address
// Whether the phase of that parity has completed; from sm_90 on waits for it for a while.
__device__ __forceinline__ bool mbar_try_wait(unsigned long long* bar, unsigned parity) {
  unsigned done;
#if __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done) : "r"(shared_address(bar)), "r"(parity) : "memory");
#else
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done) : "r"(shared_address(bar)), "r"(parity) : "memory");
#endif
  return done != 0;
}

//@ fence_async
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

//@ fence_mbar_init
__device__ __forceinline__ void fence_mbar_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

//@ wgmma_fence
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

//@ wgmma_commit
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

//@ wgmma_wait
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

//@ matrix_descriptor needs shared_address
// Bytes between panels and between groups of eight rows, and the code of the swizzle (PTX ISA, "Matrix Descriptor Format"). The place is so many units of
// 16 bytes into an array: a sum, so that what does not change is added once for all of them.
template <unsigned Panel, unsigned Group, unsigned Swizzle>
__device__ __forceinline__ unsigned long long matrix_descriptor(const void* array, unsigned units = 0) {
  const unsigned low = ((shared_address(array) & 0x3ffffu) >> 4) + (Panel >> 4 << 16) + units;
  return low | static_cast<unsigned long long>(Group >> 4) << 32 | static_cast<unsigned long long>(Swizzle) << 62;
}

//@ tensor_descriptor needs shared_address matrix_descriptor
// As above, of the version that products of tensor memory read (PTX ISA, "Shared memory descriptor": bits 46 to 48 are 1).
template <unsigned Panel, unsigned Group, unsigned Swizzle>
__device__ __forceinline__ unsigned long long tensor_descriptor(const void* array, unsigned units = 0) {
  return matrix_descriptor<Panel, Group, Swizzle>(array, units) | 1ull << 46;
}

//@ tcgen05_alloc needs shared_address
template <int Columns>
__device__ __forceinline__ void tcgen05_alloc(unsigned* at) {
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared_address(at)), "n"(Columns) : "memory");
}

//@ tcgen05_dealloc
template <int Columns>
__device__ __forceinline__ void tcgen05_dealloc(unsigned at) {
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(at), "n"(Columns) : "memory");
}

//@ tcgen05_relinquish
__device__ __forceinline__ void tcgen05_relinquish() { asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory"); }

//@ tcgen05_commit needs shared_address
__device__ __forceinline__ void tcgen05_commit(unsigned long long* bar) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(shared_address(bar)) : "memory");
}

//@ tcgen05_wait_ld
__device__ __forceinline__ void tcgen05_wait_ld() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }

//@ tcgen05_fence_before
__device__ __forceinline__ void tcgen05_fence_before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }

//@ tcgen05_fence_after
__device__ __forceinline__ void tcgen05_fence_after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

//@ bulk_commit
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

//@ bulk_wait
template <int Pending>
__device__ __forceinline__ void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(Pending) : "memory");
}

//@ bulk_wait_read
template <int Pending>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

//@ set_registers_down
template <int Registers>
__device__ __forceinline__ void set_registers_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

//@ set_registers_up
template <int Registers>
__device__ __forceinline__ void set_registers_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

//@ cluster_arrive
// Not the aligned form: a warp whose first thread has run code of its own may not have come together yet.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive;" ::: "memory"); }

//@ cluster_wait
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait;" ::: "memory"); }

//@ peer_address needs shared_address
// The address in the cluster's shared memory of what lies at `p` in the CTA of a rank.
__device__ __forceinline__ unsigned peer_address(const void* p, unsigned rank) {
  unsigned out;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(out) : "r"(shared_address(p)), "r"(rank));
  return out;
}

//@ peer_pointer
// The same as a pointer that is read and written through.
template <typename T>
__device__ __forceinline__ T* peer_pointer(T* p, unsigned rank) {
  T* out;
  asm("mapa.u64 %0, %1, %2;" : "=l"(out) : "l"(p), "r"(rank));
  return out;
}

//@ mbar_arrive_peer
// Arrives on an mbarrier of any CTA of the cluster.
__device__ __forceinline__ void mbar_arrive_peer(unsigned bar) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory");
}

//@ grid_dependency_wait
// Until the kernels before this one in the stream have written their results (nothing, where launches do not overlap).
__device__ __forceinline__ void grid_dependency_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

//@ grid_dependency_launch
// The kernel after this one may start; what it waits for is the end of this one all the same.
__device__ __forceinline__ void grid_dependency_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

//@ prefetch_descriptor
__device__ __forceinline__ void prefetch_descriptor(const CUtensorMap* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

//@ prefetch_l1
__device__ __forceinline__ void prefetch_l1(const void* p) { asm volatile("prefetch.global.L1 [%0];" ::"l"(p)); }

//@ prefetch_l2
__device__ __forceinline__ void prefetch_l2(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
