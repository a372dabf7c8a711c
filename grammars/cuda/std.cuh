// What the C++ library, and CUDA's own part of it, declare and kernels use as it is, in KIR's words (ISO C++ 17, 20.4.2, 20.6, 23.3.7 and D.8; libcu++,
// fast_mod_div). A file that names one of them is read with this one.
namespace std {

template <typename Argument, typename Result> struct unary_function {
  using argument_type = Argument;
  using result_type = Result;
};

template <typename First, typename Second, typename Result> struct binary_function {
  using first_argument_type = First;
  using second_argument_type = Second;
  using result_type = Result;
};

template <typename First, typename Second> struct pair {
  First first;
  Second second;
};

template <typename First, typename Second> __host__ __device__ inline pair<First, Second> make_pair(First a, Second b) { return {a, b}; }

template <typename T> struct reverse_iterator {
  T* first;
  int left;
  __host__ __device__ T& operator*() const { return first[left - 1]; }
  __host__ __device__ reverse_iterator& operator++() { --left; return *this; }
  __host__ __device__ bool operator!=(const reverse_iterator& other) const { return left != other.left; }
};

template <typename T, decltype(sizeof(0)) N> struct array {
  T held[N];
  __host__ __device__ T& operator[](int i) { return held[i]; }
  __host__ __device__ const T& operator[](int i) const { return held[i]; }
  __host__ __device__ T& at(int i) { return held[i]; }
  __host__ __device__ const T& at(int i) const { return held[i]; }
  __host__ __device__ T* data() { return held; }
  __host__ __device__ reverse_iterator<const T> rbegin() const { return {held, int(N)}; }
  __host__ __device__ reverse_iterator<const T> rend() const { return {held, 0}; }
  __host__ __device__ constexpr int size() const { return N; }
};

struct nullopt_t {};
constexpr nullopt_t nullopt{};

template <typename T> struct optional {
  bool there;
  T held;
  __host__ __device__ optional() : there(false) {}
  __host__ __device__ optional(nullopt_t) : there(false) {}
  __host__ __device__ optional(T x) : there(true), held(x) {}
  __host__ __device__ bool has_value() const { return there; }
  __host__ __device__ explicit operator bool() const { return there; }
  __host__ __device__ T value() const { return held; }
  __host__ __device__ T value_or(T other) const { return there ? held : other; }
  __host__ __device__ T operator*() const { return held; }
};

}  // namespace std

namespace cuda {

// A divisor with what a fast division by it needs; what it computes is the division.
template <typename T, bool NEVER_ONE = false> class fast_mod_div {
 public:
  __host__ __device__ explicit fast_mod_div(T by) : divisor(by) {}
  __host__ __device__ operator T() const { return divisor; }
  template <typename X> __host__ __device__ friend X operator/(X x, fast_mod_div by) { return x / by.divisor; }
  template <typename X> __host__ __device__ friend X operator%(X x, fast_mod_div by) { return x % by.divisor; }

  T divisor;
  unsigned multiplier;
  unsigned add;
  int shift;
};

}  // namespace cuda
