"""Names that C++ and CUDA keep for themselves."""
from __future__ import annotations

_WORDS = """
alignas alignof and and_eq asm assert auto bitand bitor bool break case catch char class compl const constexpr const_cast continue
decltype default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long
main mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast return
short signed sizeof static static_assert static_cast struct switch template this throw true try typedef typeid typename union
unsigned using virtual void volatile wchar_t while xor xor_eq threadIdx blockIdx blockDim gridDim warpSize min max abs shared_pool
uint2 uint4 NAN INFINITY exp log sin cos tan pow sqrt floor ceil y0 y1 yn j0 j1 jn memcpy
"""
RESERVED = frozenset(_WORDS.split())
"""Words of C++, and names of CUDA and its mathematics, that no parameter or value may have."""
