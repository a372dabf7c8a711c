// Conversions between bytes and numbers of eight bits (CUDA Math API, FP8 conversions), in KIR's words. A file that names one of them is read with this one.
// What saturates is the only form that the IR has: a number that is too large becomes the largest.
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

__device__ inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(const float x, const __nv_saturation_t saturate, const __nv_fp8_interpretation_t kind) {
  if (kind == __NV_E4M3) {
    __nv_fp8_e4m3 made = static_cast<__nv_fp8_e4m3>(x);
    return reinterpret_cast<__nv_fp8_storage_t&>(made);
  }
  __nv_fp8_e5m2 made = static_cast<__nv_fp8_e5m2>(x);
  return reinterpret_cast<__nv_fp8_storage_t&>(made);
}

template <typename Raw>
__device__ inline __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(const Raw x, const __nv_saturation_t saturate, const __nv_fp8_interpretation_t kind) {
  const __half number = x;
  return __nv_cvt_float_to_fp8(__half2float(number), saturate, kind);
}

template <typename Raw>
__device__ inline __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(const Raw x, const __nv_saturation_t saturate, const __nv_fp8_interpretation_t kind) {
  const __nv_bfloat16 number = x;
  return __nv_cvt_float_to_fp8(__bfloat162float(number), saturate, kind);
}

__device__ inline __half_raw __nv_cvt_fp8_to_halfraw(const __nv_fp8_storage_t x, const __nv_fp8_interpretation_t kind) {
  __nv_fp8_storage_t bits = x;
  if (kind == __NV_E4M3) return __float2half(static_cast<float>(reinterpret_cast<__nv_fp8_e4m3&>(bits)));
  return __float2half(static_cast<float>(reinterpret_cast<__nv_fp8_e5m2&>(bits)));
}

__device__ inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(const float2 x, const __nv_saturation_t saturate, const __nv_fp8_interpretation_t kind) {
  return static_cast<unsigned>(__nv_cvt_float_to_fp8(x.x, saturate, kind)) | static_cast<unsigned>(__nv_cvt_float_to_fp8(x.y, saturate, kind)) << 8;
}

template <typename Raw>
__device__ inline __nv_fp8x2_storage_t __nv_cvt_halfraw2_to_fp8x2(const Raw x, const __nv_saturation_t saturate, const __nv_fp8_interpretation_t kind) {
  const __half2 numbers = x;
  return __nv_cvt_float2_to_fp8x2(__half22float2(numbers), saturate, kind);
}

template <typename Raw>
__device__ inline __nv_fp8x2_storage_t __nv_cvt_bfloat16raw2_to_fp8x2(const Raw x, const __nv_saturation_t saturate, const __nv_fp8_interpretation_t kind) {
  const __nv_bfloat162 numbers = x;
  return __nv_cvt_float2_to_fp8x2(__bfloat1622float2(numbers), saturate, kind);
}

__device__ inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(const __nv_fp8x2_storage_t x, const __nv_fp8_interpretation_t kind) {
  __half2_raw made;
  made.x = __nv_cvt_fp8_to_halfraw(x & 255, kind).x;
  made.y = __nv_cvt_fp8_to_halfraw(x >> 8, kind).x;
  return made;
}
