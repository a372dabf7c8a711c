// Numbers as types whose objects kernels hand to functions (ISO C++ 17, 23.15.3), in KIR's words. A file that makes such an object is read with this one.
namespace std {

template <typename T, T V> struct integral_constant {
  using value_type = T;
  static constexpr T value = V;
  __host__ __device__ constexpr operator T() const { return V; }
  __host__ __device__ constexpr T operator()() const { return V; }
};

template <bool B> using bool_constant = integral_constant<bool, B>;
using true_type = integral_constant<bool, true>;
using false_type = integral_constant<bool, false>;

}  // namespace std
