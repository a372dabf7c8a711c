// What PyTorch hands to kernels, as KIR reads it (the PyTorch C++ API: packed tensor accessors, at::cuda::detail::TensorInfo, IndexToOffset). A file that names
// one of them is read with this one.
namespace at {

template <typename T> struct DefaultPtrTraits { typedef T* PtrType; };
template <typename T> struct RestrictPtrTraits { typedef T* PtrType; };

template <typename T, int N, typename I> struct KirPart {
  T* first;
  I sizes_[N];
  I strides_[N];
  __device__ KirPart<T, N - 1, I> operator[](I i) const {
    KirPart<T, N - 1, I> made;
    made.first = first + strides_[0] * i;
    for (int k = 1; k < N; ++k) {
      made.sizes_[k - 1] = sizes_[k];
      made.strides_[k - 1] = strides_[k];
    }
    return made;
  }
  __device__ I size(int k) const { return sizes_[k]; }
  __device__ I stride(int k) const { return strides_[k]; }
  __device__ T* data() const { return first; }
};

template <typename T, typename I> struct KirPart<T, 1, I> {
  T* first;
  I sizes_[1];
  I strides_[1];
  __device__ T& operator[](I i) const { return first[strides_[0] * i]; }
  __device__ I size(int k) const { return sizes_[0]; }
  __device__ I stride(int k) const { return strides_[0]; }
  __device__ T* data() const { return first; }
};

template <typename T, int N, template <typename U> class Traits = DefaultPtrTraits, typename I = long long> using GenericPackedTensorAccessor = KirPart<T, N, I>;
template <typename T, int N, template <typename U> class Traits = DefaultPtrTraits, typename I = long long> using PackedTensorAccessor = KirPart<T, N, I>;
template <typename T, int N, template <typename U> class Traits = DefaultPtrTraits> using PackedTensorAccessor32 = KirPart<T, N, int>;
template <typename T, int N, template <typename U> class Traits = DefaultPtrTraits> using PackedTensorAccessor64 = KirPart<T, N, long long>;

namespace cuda {
namespace detail {

template <typename T, typename I> struct TensorInfo {
  T* data;
  I sizes[25];
  I strides[25];
  int dims;
  __device__ bool isContiguous() const { return dims == 1 && strides[0] == 1; }
};

template <typename T, typename I, int DIMS> struct IndexToOffset {
  static __device__ I get(I place, const TensorInfo<T, I>& info) {
    I at = 0;
    for (int k = (DIMS < 0 ? info.dims : DIMS) - 1; k > 0; --k) {
      at += place % info.sizes[k] * info.strides[k];
      place /= info.sizes[k];
    }
    return at + place * info.strides[0];
  }
};

}
}
}
namespace torch {
using at::DefaultPtrTraits;
using at::RestrictPtrTraits;
using at::GenericPackedTensorAccessor;
using at::PackedTensorAccessor;
using at::PackedTensorAccessor32;
using at::PackedTensorAccessor64;
}
