"""The part `gemm`: GEMM on each surface, tuned, beside cuBLAS."""
from __future__ import annotations

import functools

from benchmarks.gpu_gemm import HEAD, rows
from benchmarks.gpu_parts.session import Session


def gemm(s: Session) -> None:
    """GEMM on each surface, tuned, beside cuBLAS."""
    found = rows(s.gpu, s.out, s.only, functools.partial(s.record, "gemm"))
    s.table("gemm", "GEMM against cuBLAS", HEAD, found, "Tuned by `kir.learning.tune`; both sides timed in one run of the gate.")
