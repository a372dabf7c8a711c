"""What a written CUDA text needs of the architecture that a file is compiled for. The file may be compiled for an older one, or for several: there the kernel
has no body, and host code launches what it had."""
from __future__ import annotations

import re

NEEDS = (
    ("sm_90a", "defined(__CUDA_ARCH_FEAT_SM90_ALL)", re.compile(r"\bwgmma\.|\bsetmaxnreg\.")),
    ("sm_90", "__CUDA_ARCH__ >= 900", re.compile(
        r"\bcp\.async\.bulk|\bmbarrier\.|\bgriddepcontrol|\bbarrier\.cluster|\bmapa\b|\bstmatrix|\belect\.sync|__cluster_dims__")),
    ("sm_80", "__CUDA_ARCH__ >= 800", re.compile(r"\bcp\.async\b|\bmma\.sync|\bldmatrix|\bredux\.|\bcreatepolicy|__reduce_\w+_sync")))
"""Architectures, what the preprocessor says of them, and the instructions of PTX that need them (PTX ISA, "Target ISA Notes")."""
_KERNEL = re.compile(r"^(static __global__ [^;{}]*?\) \{\n)(.*?)^(\}\n)", re.MULTILINE | re.DOTALL)


def needed(text: str) -> tuple[str, str]:
    """The architecture that a text needs, and what the preprocessor says of it; "" and "" where any will do."""
    return next(((name, said) for name, said, words in NEEDS if words.search(text)), ("", ""))


def guarded(body: str, said: str, name: str) -> str:
    """The functions of a written text with kernels that have no body on other architectures, and a function that says whether the current device has one."""
    kernels = _KERNEL.sub(lambda m: f"{m[1]}#if {said}\n{m[2]}#endif\n{m[3]}", f"{body}\n")
    return f"""{kernels.rstrip()}

// Whether this file was compiled for the current device with what the kernel needs ({name}).
static __global__ void is_there() {{
#if {said}
  __shared__ volatile int mark[32];
  mark[threadIdx.x % 32] = 0;
#endif
}}

static inline bool is_built() {{
  cudaFuncAttributes found = {{}};
  const bool built = cudaFuncGetAttributes(&found, is_there) == cudaSuccess && found.sharedSizeBytes > 0;
  if (!built) cudaGetLastError();  // it says so of a device that the file is not compiled for
  return built;
}}"""


__all__ = ["guarded", "needed"]
