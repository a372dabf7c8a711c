// cuda::pipeline, cuda::memcpy_async and cooperative_groups::memcpy_async as KIR reads them (libcu++'s reference; CUDA programming guide, "Asynchronous Data
// Copies"). What a thread waits for is all that it has begun to copy and, where a CTA shares the pipeline, what all of its threads have: never less than what is
// asked for. A pipeline whose threads have roles of their own is not read. A file that names one of them is read with this one.
namespace cuda {

enum thread_scope { thread_scope_system, thread_scope_device, thread_scope_block, thread_scope_thread };

template <int N> struct aligned_size_t {
  size_t value;
  __device__ aligned_size_t(size_t given) : value(given) {}
  __device__ operator size_t() const { return value; }
};

template <thread_scope S, int N> struct pipeline_shared_state { int unused; };

template <thread_scope S> struct pipeline {
  __device__ void producer_acquire() {}
  __device__ void producer_commit() { __pipeline_commit(); }
  __device__ void consumer_wait() {
    __pipeline_wait_prior(0);
    if constexpr (S == thread_scope_block) __syncthreads();
  }
  __device__ void consumer_release() {
    if constexpr (S == thread_scope_block) __syncthreads();
  }
};

__device__ inline pipeline<thread_scope_thread> make_pipeline() { return pipeline<thread_scope_thread>(); }
template <typename G, thread_scope S, int N> __device__ pipeline<S> make_pipeline(const G& group, pipeline_shared_state<S, N>* state) { return pipeline<S>(); }

template <int N, thread_scope S> __device__ void pipeline_consumer_wait_prior(pipeline<S>& from) {
  __pipeline_wait_prior(N);
  if constexpr (S == thread_scope_block) __syncthreads();
}

template <typename T> __device__ void kir_begin_copy(T* to, const T* from) {
  if constexpr (sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16) __pipeline_memcpy_async(to, from, sizeof(T));
  else *to = *from;
}

template <typename T, typename Size, thread_scope S> __device__ void memcpy_async(T* to, const T* from, Size bytes, pipeline<S>& by) {
  const int count = static_cast<size_t>(bytes) / sizeof(T);
  for (int i = 0; i < count; ++i) kir_begin_copy(to + i, from + i);
}
template <typename G, typename T, typename Size, thread_scope S>
__device__ void memcpy_async(const G& group, T* to, const T* from, Size bytes, pipeline<S>& by) {
  const int count = static_cast<size_t>(bytes) / sizeof(T);
  for (int i = group.thread_rank(); i < count; i += group.size()) kir_begin_copy(to + i, from + i);
}

}  // namespace cuda

namespace cooperative_groups {

template <typename G, typename T, typename Size> __device__ void memcpy_async(const G& group, T* to, const T* from, Size bytes) {
  const int count = static_cast<size_t>(bytes) / sizeof(T);
  for (int i = group.thread_rank(); i < count; i += group.size()) cuda::kir_begin_copy(to + i, from + i);
  __pipeline_commit();
}
template <typename G> __device__ void wait(const G& group) {
  __pipeline_wait_prior(0);
  group.sync();
}
template <int N, typename G> __device__ void wait_prior(const G& group) {
  __pipeline_wait_prior(N);
  group.sync();
}

}  // namespace cooperative_groups
