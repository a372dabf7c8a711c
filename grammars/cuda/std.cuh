// What the C++ library declares and kernels use as it is, in KIR's words (ISO C++ 17, 20.4.2 and D.8). A file that names one of them is read with this one.
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

}  // namespace std
