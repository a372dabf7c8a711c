// What <mma.h> declares, as KIR reads it: fragments of 16 x 16 x 16 (and of tf32, 16 x 16 x 8) are the lanes' elements of mma.m16n8k16 and
// mma.m16n8k8 (PTX ISA, 9.7.14.5), two side by side. CUDA leaves open which lane holds what; programs may rely on none of it, so that any one
// arrangement means the same. `x[i]` of fragments of one kind is the same place of the matrix (CUDA C++ Programming Guide, 10.24.1).
namespace nvcuda {
namespace wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision { struct tf32 {}; }

template <typename Use, int m, int n, int k, typename T, typename Layout = void> struct fragment;

template <typename T, typename Layout> struct fragment<matrix_a, 16, 16, 16, T, Layout> { static constexpr int num_elements = 8; T x[8]; };
template <typename T, typename Layout> struct fragment<matrix_b, 16, 16, 16, T, Layout> { static constexpr int num_elements = 8; T x[8]; };
template <typename T> struct fragment<accumulator, 16, 16, 16, T, void> { static constexpr int num_elements = 8; T x[8]; };
template <typename Layout> struct fragment<matrix_a, 16, 16, 8, precision::tf32, Layout> { static constexpr int num_elements = 4; float x[4]; };
template <typename Layout> struct fragment<matrix_b, 16, 16, 8, precision::tf32, Layout> { static constexpr int num_elements = 4; float x[4]; };
template <> struct fragment<accumulator, 16, 16, 8, float, void> { static constexpr int num_elements = 8; float x[8]; };

template <typename Fragment, typename T> __device__ inline void fill_fragment(Fragment& f, T value) {
#pragma unroll
  for (int i = 0; i < f.num_elements; ++i) f.x[i] = value;
}

// Rows of 16-bit elements in shared memory: ldmatrix, of which a lane names a row of eight. Elsewhere each lane loads its own.
template <typename T>
__device__ inline void load_matrix_sync(fragment<matrix_a, 16, 16, 16, T, row_major>& f, const T* p, unsigned ld) {
  const int lane = __lane_id();
  if (__isShared(p)) {
    unsigned* r = reinterpret_cast<unsigned*>(f.x);
    unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(p + lane % 16 * ld + lane / 16 * 8));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) f.x[i] = p[(lane / 4 + i / 2 % 2 * 8) * ld + lane % 4 * 2 + i % 2 + i / 4 * 8];
  }
}

template <typename T>
__device__ inline void load_matrix_sync(fragment<matrix_a, 16, 16, 16, T, col_major>& f, const T* p, unsigned ld) {
  const int lane = __lane_id();
  if (__isShared(p)) {
    unsigned* r = reinterpret_cast<unsigned*>(f.x);
    unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(p + (lane % 8 + lane / 16 * 8) * ld + lane / 8 % 2 * 8));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) f.x[i] = p[(lane % 4 * 2 + i % 2 + i / 4 * 8) * ld + lane / 4 + i / 2 % 2 * 8];
  }
}

template <typename T>
__device__ inline void load_matrix_sync(fragment<matrix_b, 16, 16, 16, T, row_major>& f, const T* p, unsigned ld) {
  const int lane = __lane_id();
  if (__isShared(p)) {
    unsigned* r = reinterpret_cast<unsigned*>(f.x);
    unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(p + lane % 16 * ld + lane / 16 * 8));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) f.x[i] = p[(lane % 4 * 2 + i % 2 + i / 2 % 2 * 8) * ld + lane / 4 + i / 4 * 8];
  }
}

template <typename T>
__device__ inline void load_matrix_sync(fragment<matrix_b, 16, 16, 16, T, col_major>& f, const T* p, unsigned ld) {
  const int lane = __lane_id();
  if (__isShared(p)) {
    unsigned* r = reinterpret_cast<unsigned*>(f.x);
    unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(p + (lane % 8 + lane / 16 * 8) * ld + lane / 8 % 2 * 8));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) f.x[i] = p[(lane / 4 + i / 4 * 8) * ld + lane % 4 * 2 + i % 2 + i / 2 % 2 * 8];
  }
}

// Bytes: mma.m16n8k16 of integers, of which a lane holds four side by side.
__device__ inline void load_matrix_sync(fragment<matrix_a, 16, 16, 16, signed char, row_major>& f, const signed char* p, unsigned ld) {
  const int lane = __lane_id();
#pragma unroll
  for (int i = 0; i < 8; ++i) f.x[i] = p[(lane / 4 + i / 4 * 8) * ld + lane % 4 * 4 + i % 4];
}
__device__ inline void load_matrix_sync(fragment<matrix_a, 16, 16, 16, unsigned char, row_major>& f, const unsigned char* p, unsigned ld) {
  const int lane = __lane_id();
#pragma unroll
  for (int i = 0; i < 8; ++i) f.x[i] = p[(lane / 4 + i / 4 * 8) * ld + lane % 4 * 4 + i % 4];
}
__device__ inline void load_matrix_sync(fragment<matrix_a, 16, 16, 16, signed char, col_major>& f, const signed char* p, unsigned ld) {
  const int lane = __lane_id();
#pragma unroll
  for (int i = 0; i < 8; ++i) f.x[i] = p[(lane % 4 * 4 + i % 4) * ld + lane / 4 + i / 4 * 8];
}
__device__ inline void load_matrix_sync(fragment<matrix_a, 16, 16, 16, unsigned char, col_major>& f, const unsigned char* p, unsigned ld) {
  const int lane = __lane_id();
#pragma unroll
  for (int i = 0; i < 8; ++i) f.x[i] = p[(lane % 4 * 4 + i % 4) * ld + lane / 4 + i / 4 * 8];
}
__device__ inline void load_matrix_sync(fragment<matrix_b, 16, 16, 16, signed char, row_major>& f, const signed char* p, unsigned ld) {
  const int lane = __lane_id();
#pragma unroll
  for (int i = 0; i < 8; ++i) f.x[i] = p[(lane % 4 * 4 + i % 4) * ld + lane / 4 + i / 4 * 8];
}
__device__ inline void load_matrix_sync(fragment<matrix_b, 16, 16, 16, unsigned char, row_major>& f, const unsigned char* p, unsigned ld) {
  const int lane = __lane_id();
#pragma unroll
  for (int i = 0; i < 8; ++i) f.x[i] = p[(lane % 4 * 4 + i % 4) * ld + lane / 4 + i / 4 * 8];
}
__device__ inline void load_matrix_sync(fragment<matrix_b, 16, 16, 16, signed char, col_major>& f, const signed char* p, unsigned ld) {
  const int lane = __lane_id();
#pragma unroll
  for (int i = 0; i < 8; ++i) f.x[i] = p[(lane / 4 + i / 4 * 8) * ld + lane % 4 * 4 + i % 4];
}
__device__ inline void load_matrix_sync(fragment<matrix_b, 16, 16, 16, unsigned char, col_major>& f, const unsigned char* p, unsigned ld) {
  const int lane = __lane_id();
#pragma unroll
  for (int i = 0; i < 8; ++i) f.x[i] = p[(lane / 4 + i / 4 * 8) * ld + lane % 4 * 4 + i % 4];
}

__device__ inline void load_matrix_sync(fragment<matrix_a, 16, 16, 8, precision::tf32, row_major>& f, const float* p, unsigned ld) {
  const int lane = __lane_id();
#pragma unroll
  for (int i = 0; i < 4; ++i) f.x[i] = p[(lane / 4 + i % 2 * 8) * ld + lane % 4 + i / 2 * 4];
}
__device__ inline void load_matrix_sync(fragment<matrix_a, 16, 16, 8, precision::tf32, col_major>& f, const float* p, unsigned ld) {
  const int lane = __lane_id();
#pragma unroll
  for (int i = 0; i < 4; ++i) f.x[i] = p[(lane % 4 + i / 2 * 4) * ld + lane / 4 + i % 2 * 8];
}
__device__ inline void load_matrix_sync(fragment<matrix_b, 16, 16, 8, precision::tf32, row_major>& f, const float* p, unsigned ld) {
  const int lane = __lane_id();
#pragma unroll
  for (int i = 0; i < 4; ++i) f.x[i] = p[(lane % 4 + i % 2 * 4) * ld + lane / 4 + i / 2 * 8];
}
__device__ inline void load_matrix_sync(fragment<matrix_b, 16, 16, 8, precision::tf32, col_major>& f, const float* p, unsigned ld) {
  const int lane = __lane_id();
#pragma unroll
  for (int i = 0; i < 4; ++i) f.x[i] = p[(lane / 4 + i / 2 * 8) * ld + lane % 4 + i % 2 * 4];
}

template <int k, typename T>
__device__ inline void load_matrix_sync(fragment<accumulator, 16, 16, k, T, void>& f, const T* p, unsigned ld, layout_t layout) {
  const int lane = __lane_id();
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int row = lane / 4 + i / 2 % 2 * 8, column = lane % 4 * 2 + i % 2 + i / 4 * 8;
    f.x[i] = layout == mem_row_major ? p[row * ld + column] : p[column * ld + row];
  }
}

template <int k, typename T>
__device__ inline void store_matrix_sync(T* p, const fragment<accumulator, 16, 16, k, T, void>& f, unsigned ld, layout_t layout) {
  const int lane = __lane_id();
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int row = lane / 4 + i / 2 % 2 * 8, column = lane % 4 * 2 + i % 2 + i / 4 * 8;
    if (layout == mem_row_major) p[row * ld + column] = f.x[i];
    else p[column * ld + row] = f.x[i];
  }
}

template <typename A, typename B>
__device__ inline void mma_sync(fragment<accumulator, 16, 16, 16, float, void>& d, const fragment<matrix_a, 16, 16, 16, half, A>& a,
                                const fragment<matrix_b, 16, 16, 16, half, B>& b, const fragment<accumulator, 16, 16, 16, float, void>& c) {
  const unsigned* ra = reinterpret_cast<const unsigned*>(a.x);
  const unsigned* rb = reinterpret_cast<const unsigned*>(b.x);
#pragma unroll
  for (int j = 0; j < 2; ++j)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                 : "=f"(d.x[j * 4]), "=f"(d.x[j * 4 + 1]), "=f"(d.x[j * 4 + 2]), "=f"(d.x[j * 4 + 3])
                 : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[j * 2]), "r"(rb[j * 2 + 1]),
                   "f"(c.x[j * 4]), "f"(c.x[j * 4 + 1]), "f"(c.x[j * 4 + 2]), "f"(c.x[j * 4 + 3]));
}

template <typename A, typename B>
__device__ inline void mma_sync(fragment<accumulator, 16, 16, 16, float, void>& d, const fragment<matrix_a, 16, 16, 16, __nv_bfloat16, A>& a,
                                const fragment<matrix_b, 16, 16, 16, __nv_bfloat16, B>& b, const fragment<accumulator, 16, 16, 16, float, void>& c) {
  const unsigned* ra = reinterpret_cast<const unsigned*>(a.x);
  const unsigned* rb = reinterpret_cast<const unsigned*>(b.x);
#pragma unroll
  for (int j = 0; j < 2; ++j)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                 : "=f"(d.x[j * 4]), "=f"(d.x[j * 4 + 1]), "=f"(d.x[j * 4 + 2]), "=f"(d.x[j * 4 + 3])
                 : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[j * 2]), "r"(rb[j * 2 + 1]),
                   "f"(c.x[j * 4]), "f"(c.x[j * 4 + 1]), "f"(c.x[j * 4 + 2]), "f"(c.x[j * 4 + 3]));
}

template <typename A, typename B>
__device__ inline void mma_sync(fragment<accumulator, 16, 16, 16, half, void>& d, const fragment<matrix_a, 16, 16, 16, half, A>& a,
                                const fragment<matrix_b, 16, 16, 16, half, B>& b, const fragment<accumulator, 16, 16, 16, half, void>& c) {
  const unsigned* ra = reinterpret_cast<const unsigned*>(a.x);
  const unsigned* rb = reinterpret_cast<const unsigned*>(b.x);
  const unsigned* rc = reinterpret_cast<const unsigned*>(c.x);
  unsigned* rd = reinterpret_cast<unsigned*>(d.x);
#pragma unroll
  for (int j = 0; j < 2; ++j)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%8, %9};"
                 : "=r"(rd[j * 2]), "=r"(rd[j * 2 + 1])
                 : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[j * 2]), "r"(rb[j * 2 + 1]), "r"(rc[j * 2]), "r"(rc[j * 2 + 1]));
}

template <typename A, typename B>
__device__ inline void mma_sync(fragment<accumulator, 16, 16, 16, int, void>& d, const fragment<matrix_a, 16, 16, 16, signed char, A>& a,
                                const fragment<matrix_b, 16, 16, 16, signed char, B>& b, const fragment<accumulator, 16, 16, 16, int, void>& c) {
  const unsigned* ra = reinterpret_cast<const unsigned*>(a.x);
  const unsigned* rb = reinterpret_cast<const unsigned*>(b.x);
#pragma unroll
  for (int j = 0; j < 2; ++j)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
                 : "=r"(d.x[j * 4]), "=r"(d.x[j * 4 + 1]), "=r"(d.x[j * 4 + 2]), "=r"(d.x[j * 4 + 3])
                 : "r"(ra[0]), "r"(ra[1]), "r"(rb[j]), "r"(c.x[j * 4]), "r"(c.x[j * 4 + 1]), "r"(c.x[j * 4 + 2]), "r"(c.x[j * 4 + 3]));
}

template <typename A, typename B>
__device__ inline void mma_sync(fragment<accumulator, 16, 16, 16, int, void>& d, const fragment<matrix_a, 16, 16, 16, unsigned char, A>& a,
                                const fragment<matrix_b, 16, 16, 16, unsigned char, B>& b, const fragment<accumulator, 16, 16, 16, int, void>& c) {
  const unsigned* ra = reinterpret_cast<const unsigned*>(a.x);
  const unsigned* rb = reinterpret_cast<const unsigned*>(b.x);
#pragma unroll
  for (int j = 0; j < 2; ++j)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
                 : "=r"(d.x[j * 4]), "=r"(d.x[j * 4 + 1]), "=r"(d.x[j * 4 + 2]), "=r"(d.x[j * 4 + 3])
                 : "r"(ra[0]), "r"(ra[1]), "r"(rb[j]), "r"(c.x[j * 4]), "r"(c.x[j * 4 + 1]), "r"(c.x[j * 4 + 2]), "r"(c.x[j * 4 + 3]));
}

template <typename A, typename B>
__device__ inline void mma_sync(fragment<accumulator, 16, 16, 8, float, void>& d, const fragment<matrix_a, 16, 16, 8, precision::tf32, A>& a,
                                const fragment<matrix_b, 16, 16, 8, precision::tf32, B>& b, const fragment<accumulator, 16, 16, 8, float, void>& c) {
#pragma unroll
  for (int j = 0; j < 2; ++j)
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                 : "=f"(d.x[j * 4]), "=f"(d.x[j * 4 + 1]), "=f"(d.x[j * 4 + 2]), "=f"(d.x[j * 4 + 3])
                 : "r"(__float_as_uint(a.x[0])), "r"(__float_as_uint(a.x[1])), "r"(__float_as_uint(a.x[2])), "r"(__float_as_uint(a.x[3])),
                   "r"(__float_as_uint(b.x[j * 2])), "r"(__float_as_uint(b.x[j * 2 + 1])),
                   "f"(c.x[j * 4]), "f"(c.x[j * 4 + 1]), "f"(c.x[j * 4 + 2]), "f"(c.x[j * 4 + 3]));
}

__device__ inline float __float_to_tf32(float x) {
  unsigned r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return __uint_as_float(r);
}

}  // namespace wmma
}  // namespace nvcuda
