// What CUB's collectives of a block and a warp compute, as KIR reads them (CUB's reference: BlockReduce, BlockScan, BlockLoad,
// BlockStore, BlockAdjacentDifference, BlockDiscontinuity, BlockRadixSort, WarpReduce, WarpScan).
// Which algorithm is named, and in which order a sum is made, is left open there. A file that names `cub::` is read with this one.
namespace cub {

enum BlockReduceAlgorithm { BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS };
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };
enum BlockLoadAlgorithm { BLOCK_LOAD_DIRECT, BLOCK_LOAD_STRIPED, BLOCK_LOAD_VECTORIZE, BLOCK_LOAD_TRANSPOSE, BLOCK_LOAD_WARP_TRANSPOSE };
enum BlockStoreAlgorithm { BLOCK_STORE_DIRECT, BLOCK_STORE_STRIPED, BLOCK_STORE_VECTORIZE, BLOCK_STORE_TRANSPOSE, BLOCK_STORE_WARP_TRANSPOSE };

struct Sum {
  template <typename T> __device__ T operator()(const T& a, const T& b) const { return a + b; }
};
struct Max {
  __device__ float operator()(const float& a, const float& b) const { return fmaxf(a, b); }
  template <typename T> __device__ T operator()(const T& a, const T& b) const { return a > b ? a : b; }
};
struct Min {
  __device__ float operator()(const float& a, const float& b) const { return fminf(a, b); }
  template <typename T> __device__ T operator()(const T& a, const T& b) const { return a < b ? a : b; }
};

__device__ inline int kir_thread() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }

template <typename T, int WIDTH = 32> class WarpReduce {
 public:
  struct TempStorage { int unused; };
  __device__ WarpReduce(TempStorage& given) {}
  template <typename Op> __device__ T Reduce(T x, Op op, int valid) {
    const int lane = kir_thread() % WIDTH;
#pragma unroll
    for (int step = WIDTH / 2; step > 0; step >>= 1) {
      T other = __shfl_down_sync(0xffffffffu, x, step, WIDTH);
      if (lane + step < valid) x = op(x, other);
    }
    return x;
  }
  template <typename Op> __device__ T Reduce(T x, Op op) {
#pragma unroll
    for (int step = WIDTH / 2; step > 0; step >>= 1) x = op(x, __shfl_down_sync(0xffffffffu, x, step, WIDTH));
    return x;
  }
  __device__ T Sum(T x) {
#pragma unroll
    for (int step = WIDTH / 2; step > 0; step >>= 1) x = x + __shfl_down_sync(0xffffffffu, x, step, WIDTH);
    return x;
  }
  __device__ T Sum(T x, int valid) { return Reduce(x, cub::Sum(), valid); }
};

template <typename T, int WIDTH = 32> class WarpScan {
 public:
  struct TempStorage { int unused; };
  __device__ WarpScan(TempStorage& given) {}
  template <typename Op> __device__ void InclusiveScan(T x, T& out, Op op) {
    const int lane = kir_thread() % WIDTH;
    T made = x;
#pragma unroll
    for (int step = 1; step < WIDTH; step <<= 1) {
      T before = __shfl_up_sync(0xffffffffu, made, step, WIDTH);
      if (lane >= step) made = op(before, made);
    }
    out = made;
  }
  __device__ void InclusiveSum(T x, T& out) { InclusiveScan(x, out, cub::Sum()); }
  __device__ void ExclusiveSum(T x, T& out) {
    T made;
    InclusiveScan(x, made, cub::Sum());
    out = made - x;
  }
};

template <typename T, int X, BlockReduceAlgorithm HOW = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1, int Z = 1> class BlockReduce {
 public:
  struct TempStorage { T values[X * Y * Z]; };
  TempStorage& storage;
  __device__ BlockReduce(TempStorage& given) : storage(given) {}
  template <typename Op> __device__ T Reduce(T x, Op op, int valid) {
    if (__builtin_constant_p(valid) && valid >= X * Y * Z && (X * Y * Z & (X * Y * Z - 1)) == 0) return Reduce(x, op);
    const int at = kir_thread();
    storage.values[at] = x;
    __syncthreads();
    for (int step = 512; step > 0; step >>= 1) {
      if (at < step && at + step < valid) storage.values[at] = op(storage.values[at], storage.values[at + step]);
      __syncthreads();
    }
    return storage.values[0];
  }
  template <typename Op> __device__ T Reduce(T x, Op op) {
    if constexpr ((X * Y * Z & (X * Y * Z - 1)) != 0) {
      return Reduce(x, op, X * Y * Z);
    } else {
      const int at = kir_thread();
      storage.values[at] = x;
      __syncthreads();
      for (int step = X * Y * Z / 2; step > 0; step >>= 1) {
        if (at < step) storage.values[at] = op(storage.values[at], storage.values[at + step]);
        __syncthreads();
      }
      return storage.values[0];
    }
  }
  template <int N, typename Op> __device__ T Reduce(T (&items)[N], Op op) {
    T x = items[0];
#pragma unroll
    for (int i = 1; i < N; ++i) x = op(x, items[i]);
    return Reduce(x, op);
  }
  __device__ T Sum(T x) { return Reduce(x, cub::Sum()); }
  __device__ T Sum(T x, int valid) { return Reduce(x, cub::Sum(), valid); }
  template <int N> __device__ T Sum(T (&items)[N]) { return Reduce(items, cub::Sum()); }
};

template <typename T, int X, BlockScanAlgorithm HOW = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1> class BlockScan {
 public:
  struct TempStorage { T values[X * Y * Z]; };
  TempStorage& storage;
  __device__ BlockScan(TempStorage& given) : storage(given) {}
  template <typename Op> __device__ void InclusiveScan(T x, T& out, Op op) {
    const int at = kir_thread();
    T made = x;
    storage.values[at] = made;
    __syncthreads();
    for (int step = 1; step < X * Y * Z; step <<= 1) {
      if (at >= step) made = op(storage.values[at - step], made);
      __syncthreads();
      storage.values[at] = made;
      __syncthreads();
    }
    out = made;
  }
  template <typename Op> __device__ void InclusiveScan(T x, T& out, Op op, T& all) {
    InclusiveScan(x, out, op);
    all = storage.values[X * Y * Z - 1];
  }
  __device__ void InclusiveSum(T x, T& out) { InclusiveScan(x, out, cub::Sum()); }
  __device__ void InclusiveSum(T x, T& out, T& all) { InclusiveScan(x, out, cub::Sum(), all); }
  __device__ void ExclusiveSum(T x, T& out) {
    T made;
    InclusiveScan(x, made, cub::Sum());
    out = kir_thread() > 0 ? storage.values[kir_thread() - 1] : T(0);
  }
  __device__ void ExclusiveSum(T x, T& out, T& all) {
    ExclusiveSum(x, out);
    all = storage.values[X * Y * Z - 1];
  }
  template <typename Op> __device__ void ExclusiveScan(T x, T& out, T first, Op op) {
    T made;
    InclusiveScan(x, made, op);
    out = kir_thread() > 0 ? op(first, storage.values[kir_thread() - 1]) : first;
  }
  template <typename Op> __device__ void ExclusiveScan(T x, T& out, T first, Op op, T& all) {
    ExclusiveScan(x, out, first, op);
    all = storage.values[X * Y * Z - 1];
  }
  template <int N, typename Op> __device__ void InclusiveScan(T (&items)[N], T (&out)[N], Op op) {
    T own = items[0], made;
#pragma unroll
    for (int i = 1; i < N; ++i) own = op(own, items[i]);
    InclusiveScan(own, made, op);
    T run = items[0];
    if (kir_thread() > 0) run = op(storage.values[kir_thread() - 1], run);
    out[0] = run;
#pragma unroll
    for (int i = 1; i < N; ++i) {
      run = op(run, items[i]);
      out[i] = run;
    }
  }
  template <int N, typename Op, typename Prefix> __device__ void InclusiveScan(T (&items)[N], T (&out)[N], Op op, Prefix& prefix) {
    const int at = kir_thread();
    T own = items[0], made;
#pragma unroll
    for (int i = 1; i < N; ++i) own = op(own, items[i]);
    InclusiveScan(own, made, op);
    const T all = storage.values[X * Y * Z - 1];
    T before = items[0];
    if (at > 0) before = storage.values[at - 1];
    __syncthreads();
    if (at < 32) {
      const T first = prefix(all);
      if (at == 0) storage.values[0] = first;
    }
    __syncthreads();
    T run = storage.values[0];
    if (at > 0) run = op(run, before);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      run = op(run, items[i]);
      out[i] = run;
    }
  }
  template <int N> __device__ void InclusiveSum(T (&items)[N], T (&out)[N]) {
    T own = items[0], before;
#pragma unroll
    for (int i = 1; i < N; ++i) own = own + items[i];
    ExclusiveSum(own, before);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      before = before + items[i];
      out[i] = before;
    }
  }
  template <int N> __device__ void ExclusiveSum(T (&items)[N], T (&out)[N]) {
    T own = items[0], before;
#pragma unroll
    for (int i = 1; i < N; ++i) own = own + items[i];
    ExclusiveSum(own, before);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const T held = items[i];
      out[i] = before;
      before = before + held;
    }
  }
};

template <typename T, int X, int Y = 1, int Z = 1> class BlockAdjacentDifference {
 public:
  struct TempStorage { T lasts[X * Y * Z]; T firsts[X * Y * Z]; };
  TempStorage& storage;
  __device__ BlockAdjacentDifference(TempStorage& given) : storage(given) {}
  template <int N, typename O, typename Op> __device__ void SubtractLeft(T (&items)[N], O (&out)[N], Op op) {
    const int at = kir_thread();
    storage.lasts[at] = items[N - 1];
    __syncthreads();
#pragma unroll
    for (int i = N - 1; i > 0; --i) out[i] = op(items[i], items[i - 1]);
    if (at == 0) out[0] = items[0];
    else out[0] = op(items[0], storage.lasts[at - 1]);
  }
  template <int N, typename O, typename Op> __device__ void SubtractLeft(T (&items)[N], O (&out)[N], Op op, T before) {
    const int at = kir_thread();
    storage.lasts[at] = items[N - 1];
    __syncthreads();
#pragma unroll
    for (int i = N - 1; i > 0; --i) out[i] = op(items[i], items[i - 1]);
    if (at == 0) out[0] = op(items[0], before);
    else out[0] = op(items[0], storage.lasts[at - 1]);
  }
  template <int N, typename O, typename Op> __device__ void SubtractRight(T (&items)[N], O (&out)[N], Op op) {
    const int at = kir_thread();
    storage.firsts[at] = items[0];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N - 1; ++i) out[i] = op(items[i], items[i + 1]);
    if (at == X * Y * Z - 1) out[N - 1] = items[N - 1];
    else out[N - 1] = op(items[N - 1], storage.firsts[at + 1]);
  }
  template <int N, typename F, typename Op> __device__ void FlagHeads(F (&flags)[N], T (&items)[N], Op op, T before) {
    const int at = kir_thread();
    storage.lasts[at] = items[N - 1];
    __syncthreads();
#pragma unroll
    for (int i = N - 1; i > 0; --i) flags[i] = op(items[i - 1], items[i]);
    if (at == 0) flags[0] = op(before, items[0]);
    else flags[0] = op(storage.lasts[at - 1], items[0]);
  }
};

template <typename T, int X, int Y = 1, int Z = 1> class BlockDiscontinuity {
 public:
  struct TempStorage { T lasts[X * Y * Z]; T firsts[X * Y * Z]; };
  TempStorage& storage;
  __device__ BlockDiscontinuity(TempStorage& given) : storage(given) {}
  template <int N, typename F, typename Op> __device__ void FlagHeads(F (&flags)[N], T (&items)[N], Op op) {
    const int at = kir_thread();
    storage.lasts[at] = items[N - 1];
    __syncthreads();
#pragma unroll
    for (int i = N - 1; i > 0; --i) flags[i] = op(items[i - 1], items[i]);
    if (at == 0) flags[0] = 1;
    else flags[0] = op(storage.lasts[at - 1], items[0]);
  }
  template <int N, typename F, typename Op> __device__ void FlagTails(F (&flags)[N], T (&items)[N], Op op) {
    const int at = kir_thread();
    storage.firsts[at] = items[0];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N - 1; ++i) flags[i] = op(items[i], items[i + 1]);
    if (at == X * Y * Z - 1) flags[N - 1] = 1;
    else flags[N - 1] = op(items[N - 1], storage.firsts[at + 1]);
  }
};

template <typename T, int X, int N, BlockLoadAlgorithm HOW = BLOCK_LOAD_DIRECT, int Y = 1, int Z = 1> class BlockLoad {
 public:
  struct TempStorage { int unused; };
  __device__ BlockLoad(TempStorage& given) {}
  __device__ void Load(const T* from, T (&items)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) items[i] = from[HOW == BLOCK_LOAD_STRIPED ? kir_thread() + i * X * Y * Z : kir_thread() * N + i];
  }
  __device__ void Load(const T* from, T (&items)[N], int valid) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int at = HOW == BLOCK_LOAD_STRIPED ? kir_thread() + i * X * Y * Z : kir_thread() * N + i;
      if (at < valid) items[i] = from[at];
    }
  }
  template <typename D> __device__ void Load(const T* from, T (&items)[N], int valid, D otherwise) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int at = HOW == BLOCK_LOAD_STRIPED ? kir_thread() + i * X * Y * Z : kir_thread() * N + i;
      items[i] = at < valid ? from[at] : static_cast<T>(otherwise);
    }
  }
};

template <typename T, int X, int N, BlockStoreAlgorithm HOW = BLOCK_STORE_DIRECT, int Y = 1, int Z = 1> class BlockStore {
 public:
  struct TempStorage { int unused; };
  __device__ BlockStore(TempStorage& given) {}
  __device__ void Store(T* to, T (&items)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) to[HOW == BLOCK_STORE_STRIPED ? kir_thread() + i * X * Y * Z : kir_thread() * N + i] = items[i];
  }
  __device__ void Store(T* to, T (&items)[N], int valid) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int at = HOW == BLOCK_STORE_STRIPED ? kir_thread() + i * X * Y * Z : kir_thread() * N + i;
      if (at < valid) to[at] = items[i];
    }
  }
};

// The bits of numbers as unsigned ones of the same order, and back: floats by their sign, signed numbers with their highest bit turned, unsigned ones as they are.
template <typename U> struct KirFloatBits {
  typedef U UnsignedBits;
  static __device__ U TwiddleIn(U bits) { return bits >> (8 * sizeof(U) - 1) ? U(~bits) : U(bits ^ (U(1) << (8 * sizeof(U) - 1))); }
  static __device__ U TwiddleOut(U bits) { return bits >> (8 * sizeof(U) - 1) ? U(bits ^ (U(1) << (8 * sizeof(U) - 1))) : U(~bits); }
};
template <typename U> struct KirSignedBits {
  typedef U UnsignedBits;
  static __device__ U TwiddleIn(U bits) { return U(bits ^ (U(1) << (8 * sizeof(U) - 1))); }
  static __device__ U TwiddleOut(U bits) { return U(bits ^ (U(1) << (8 * sizeof(U) - 1))); }
};
template <typename U> struct KirPlainBits {
  typedef U UnsignedBits;
  static __device__ U TwiddleIn(U bits) { return bits; }
  static __device__ U TwiddleOut(U bits) { return bits; }
};
template <typename T> struct Traits;
template <> struct Traits<float> : KirFloatBits<unsigned int> {};
template <> struct Traits<double> : KirFloatBits<unsigned long long> {};
template <> struct Traits<__half> : KirFloatBits<unsigned short> {};
template <> struct Traits<__nv_bfloat16> : KirFloatBits<unsigned short> {};
template <> struct Traits<int> : KirSignedBits<unsigned int> {};
template <> struct Traits<long long> : KirSignedBits<unsigned long long> {};
template <> struct Traits<unsigned int> : KirPlainBits<unsigned int> {};
template <> struct Traits<unsigned long long> : KirPlainBits<unsigned long long> {};

// What a radix sort compares of a key: bits of the order of numbers, both zeros alike.
__device__ inline unsigned kir_sort_bits(unsigned x) { return x; }
__device__ inline unsigned kir_sort_bits(int x) { return unsigned(x) ^ 0x80000000u; }
__device__ inline unsigned long long kir_sort_bits(unsigned long long x) { return x; }
__device__ inline unsigned long long kir_sort_bits(long long x) { return (unsigned long long)(x) ^ 0x8000000000000000ull; }
__device__ inline unsigned kir_sort_bits(float x) { return Traits<float>::TwiddleIn(__float_as_uint(x == 0.0f ? 0.0f : x)); }
__device__ inline unsigned kir_sort_bits(__half x) {
  const unsigned short bits = __half2float(x) == 0.0f ? 0 : __half_as_ushort(x);
  return Traits<__half>::TwiddleIn(bits);
}
__device__ inline unsigned kir_sort_bits(__nv_bfloat16 x) {
  const unsigned short bits = __bfloat162float(x) == 0.0f ? 0 : __bfloat16_as_ushort(x);
  return Traits<__nv_bfloat16>::TwiddleIn(bits);
}

struct NullType {};

// How many of M keys come before one of them.
template <typename K, int M> __device__ inline int kir_place(K* keys, int at, bool down, int begin, int end) {
  const int above = 8 * sizeof(kir_sort_bits(keys[at])) - end;
  const auto own = kir_sort_bits(keys[at]) << above >> above >> begin;
  int before = 0;
  for (int k = 0; k < M; ++k) {
    const auto other = kir_sort_bits(keys[k]) << above >> above >> begin;
    before += (down ? other > own : other < own) || (other == own && k < at);
  }
  return before;
}

// A stable sort of what the block holds, each thread N in a row: the place of a key is the number of those that come before it.
template <typename K, int X, int N, typename V = NullType, int RADIX = 4, bool KEPT = true, BlockScanAlgorithm HOW = BLOCK_SCAN_WARP_SCANS> class BlockRadixSort {
 public:
  struct TempStorage { K keys[X * N]; V values[X * N]; };
  TempStorage& storage;
  __device__ BlockRadixSort(TempStorage& given) : storage(given) {}
  __device__ void Sort(K (&keys)[N], V (&values)[N], int begin = 0, int end = sizeof(K) * 8) { Placed(keys, values, false, begin, end); }
  __device__ void SortDescending(K (&keys)[N], V (&values)[N], int begin = 0, int end = sizeof(K) * 8) { Placed(keys, values, true, begin, end); }
  __device__ void Placed(K (&keys)[N], V (&values)[N], bool down, int begin, int end) {
    const int first = kir_thread() * N;
#pragma unroll
    for (int i = 0; i < N; ++i) storage.keys[first + i] = keys[i];
    __syncthreads();
    int places[N];
#pragma unroll
    for (int i = 0; i < N; ++i) places[i] = kir_place<K, X * N>(storage.keys, first + i, down, begin, end);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; ++i) {
      storage.keys[places[i]] = keys[i];
      storage.values[places[i]] = values[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; ++i) {
      keys[i] = storage.keys[first + i];
      values[i] = storage.values[first + i];
    }
  }
};
template <typename K, int X, int N, int RADIX, bool KEPT, BlockScanAlgorithm HOW> class BlockRadixSort<K, X, N, NullType, RADIX, KEPT, HOW> {
 public:
  struct TempStorage { K keys[X * N]; };
  TempStorage& storage;
  __device__ BlockRadixSort(TempStorage& given) : storage(given) {}
  __device__ void Sort(K (&keys)[N], int begin = 0, int end = sizeof(K) * 8) { Placed(keys, false, begin, end); }
  __device__ void SortDescending(K (&keys)[N], int begin = 0, int end = sizeof(K) * 8) { Placed(keys, true, begin, end); }
  __device__ void Placed(K (&keys)[N], bool down, int begin, int end) {
    const int first = kir_thread() * N;
#pragma unroll
    for (int i = 0; i < N; ++i) storage.keys[first + i] = keys[i];
    __syncthreads();
    int places[N];
#pragma unroll
    for (int i = 0; i < N; ++i) places[i] = kir_place<K, X * N>(storage.keys, first + i, down, begin, end);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; ++i) storage.keys[places[i]] = keys[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; ++i) keys[i] = storage.keys[first + i];
  }
};

}  // namespace cub

namespace cuda {

template <typename T = void> struct maximum {
  template <typename U> __device__ U operator()(const U& a, const U& b) const { return a > b ? a : b; }
};
template <typename T = void> struct minimum {
  template <typename U> __device__ U operator()(const U& a, const U& b) const { return a < b ? a : b; }
};

}  // namespace cuda
