// What TileLang's compiler calls in the CUDA text that it writes (tl_templates/cuda/{common,atomic,reduce}.h of TileLang), in words that KIR has: so that what
// became of a kernel is read, and checked. A file that includes `tl_templates/` or names `tl::` is read with this one.
#define TL_DEVICE __device__ inline
#define uchar unsigned char
typedef half half_t;
typedef __nv_bfloat16 bfloat16_t;
typedef __nv_fp8_e4m3 fp8_e4_t;
typedef __nv_fp8_e5m2 fp8_e5_t;

__device__ const double CUDART_INF = __longlong_as_double(0x7ff0000000000000LL);
namespace cutlass {
typedef half half_t;
typedef __nv_bfloat16 bfloat16_t;
}  // namespace cutlass

TL_DEVICE unsigned __pack_half2(const half x, const half y) {
  return (unsigned)__half_as_ushort(y) << 16 | (unsigned)__half_as_ushort(x);
}
TL_DEVICE unsigned __pack_half2(const __nv_bfloat16 x, const __nv_bfloat16 y) {
  return (unsigned)__bfloat16_as_ushort(y) << 16 | (unsigned)__bfloat16_as_ushort(x);
}
TL_DEVICE unsigned __pack_nv_bfloat162(const __nv_bfloat16 x, const __nv_bfloat16 y) {
  return (unsigned)__bfloat16_as_ushort(y) << 16 | (unsigned)__bfloat16_as_ushort(x);
}

template <typename T, typename V> TL_DEVICE void AtomicAdd(T* address, V value, int order = 0) { atomicAdd(address, static_cast<T>(value)); }
template <typename T, typename V> TL_DEVICE T AtomicAddRet(T* address, V value, int order = 0) { return atomicAdd(address, static_cast<T>(value)); }
template <typename T, typename V> TL_DEVICE void AtomicMax(T* address, V value, int order = 0) { atomicMax(address, static_cast<T>(value)); }
template <typename T, typename V> TL_DEVICE void AtomicMin(T* address, V value, int order = 0) { atomicMin(address, static_cast<T>(value)); }

namespace tl {

template <int id, int threads> TL_DEVICE void __sync_thread_partial() { asm volatile("bar.sync %0, %1;" : : "r"(id), "r"(threads) : "memory"); }

template <typename T> TL_DEVICE T from_uint1(uint1 v) { return *reinterpret_cast<T*>(&v); }
template <typename T> TL_DEVICE uint1 to_uint1(T v) { return *reinterpret_cast<uint1*>(&v); }
template <typename T> TL_DEVICE T add2(T a, T b) { return __hadd2(a, b); }
template <typename T> TL_DEVICE T sub2(T a, T b) { return __hsub2(a, b); }
template <typename T> TL_DEVICE T mul2(T a, T b) { return __hmul2(a, b); }
template <typename T> TL_DEVICE T fma2(T a, T b, T c) { return __hfma2(a, b, c); }
template <typename T> TL_DEVICE T max2(T a, T b) { return __hmax2(a, b); }
template <typename T> TL_DEVICE T min2(T a, T b) { return __hmin2(a, b); }

struct SumOp {
  template <typename T> TL_DEVICE T operator()(T const& x, T const& y) { return x + y; }
};
struct MaxOp {
  TL_DEVICE float operator()(float const& x, float const& y) { return fmaxf(x, y); }
  template <typename T> TL_DEVICE T operator()(T const& x, T const& y) { return x > y ? x : y; }
};
struct MinOp {
  TL_DEVICE float operator()(float const& x, float const& y) { return fminf(x, y); }
  template <typename T> TL_DEVICE T operator()(T const& x, T const& y) { return x < y ? x : y; }
};

struct SyncThreadsBarrier {
  template <int id> static TL_DEVICE void sync() { __syncthreads(); }
};
template <int threads> struct NamedBarrier {
  template <int id> static TL_DEVICE void sync() { asm volatile("bar.sync %0, %1;" : : "r"(id), "r"(threads) : "memory"); }
};

// One value of each of `threads` threads, `scale` apart: a butterfly, through memory down to a warp, and by shuffles inside of one.
template <class Op, int threads, int scale, int first = 0, class Barrier = SyncThreadsBarrier> struct AllReduce {
  template <typename T> static TL_DEVICE T run(T x, T* room = nullptr) {
    if constexpr (threads == scale) {
      return x;
    } else {
      constexpr int offset = threads / 2;
      if constexpr (offset >= 32) {
        Barrier::template sync<1>();
        room[threadIdx.x - first] = x;
        Barrier::template sync<2>();
        x = Op()(x, room[(threadIdx.x - first) ^ offset]);
      } else {
        x = Op()(x, __shfl_xor_sync(0xffffffffu, x, offset));
      }
      return AllReduce<Op, threads / 2, scale, first, Barrier>::run(x, room);
    }
  }
};

}  // namespace tl
