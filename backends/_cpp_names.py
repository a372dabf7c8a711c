"""Names that C++ and CUDA keep for themselves."""
from __future__ import annotations

_WORDS = """
alignas alignof and and_eq asm assert auto bitand bitor bool break case catch char class compl const constexpr const_cast continue
decltype default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long
main mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast return
short signed sizeof static static_assert static_cast struct switch template this throw true try typedef typeid typename union
unsigned using virtual void volatile wchar_t while xor xor_eq threadIdx blockIdx blockDim gridDim warpSize min max abs shared_pool
uint2 uint4 NAN INFINITY exp log sin cos tan pow sqrt floor ceil y0 y1 yn j0 j1 jn memcpy
char8_t char16_t char32_t co_await co_return co_yield concept consteval constinit requires thread_local restrict __restrict__ __extension__ __inline__
__thread NULL offsetof
size_t ssize_t ptrdiff_t intptr_t uintptr_t charptr_t nullptr_t max_align_t char64_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t
uint ushort uchar ulong ulonglong byte clock_t cuuint32_t cuuint64_t dim3 CUtensorMap half half2 nv_half nv_half2 nv_bfloat16 nv_bfloat162
__half __half2 __half_raw __half2_raw __nv_bfloat16 __nv_bfloat162 __nv_bfloat16_raw __nv_bfloat162_raw __nv_fp4_e2m1 __nv_fp8_e4m3 __nv_fp8_e5m2
__nv_fp8_storage_t __nv_fp8x2_e4m3 __nv_fp8x2_e5m2 __nv_fp8x2_storage_t __nv_fp8x4_e4m3 __nv_fp8x4_e5m2 __nv_fp8x4_storage_t
"""
_VECTORS = frozenset(f"{sign}{base}{width}" for base, signs in (("char", "u"), ("short", "u"), ("int", "u"), ("long", "u"), ("longlong", "u"),
                                                                ("float", ""), ("double", "")) for sign in ("", signs) for width in (1, 2, 3, 4))
RESERVED = frozenset(_WORDS.split()) | _VECTORS
"""Words of C++, and names of CUDA and its mathematics, that no parameter or value may have."""
