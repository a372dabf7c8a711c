"""Kernels, right as they are written, of which a release of TileLang makes CUDA text that lacks a barrier, or has one that not all threads reach. What each
release made of them lies beside this file; `python -m benchmarks.checks.compilers_faults --make` writes it with the release that is installed."""
from typing import Any

import tilelang.language as T


def guarded() -> Any:
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((64,), "float32")
            tx = T.get_thread_binding()
            if tx < 48:
                s[tx] = A[tx]
                B[tx] = s[47 - tx]
    return main


def strided() -> Any:
    @T.prim_func
    def main(A: T.Tensor((128,), "float32"), B: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((128,), "float32")
            tx = T.get_thread_binding()
            s[tx] = A[tx]
            if tx % 4 == 0:
                for i in T.serial(4):
                    s[tx] = A[tx] + T.cast(i, "float32")
                    B[tx] = s[124 - tx]
    return main


def masked() -> Any:
    @T.prim_func
    def main(A: T.Tensor((128,), "float32"), M: T.Tensor((128,), "int32"), B: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((128,), "float32")
            tx = T.get_thread_binding()
            s[tx] = A[tx]
            if M[tx] != 0:
                for i in T.serial(4):
                    s[tx] = A[tx] + T.cast(i, "float32")
                    B[tx] = s[127 - tx]
    return main


def otherwise() -> Any:
    @T.prim_func
    def main(B: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((128,), "float32")
            tx = T.get_thread_binding()
            if tx == 0 or tx >= 33:
                B[tx] = 0.0
            else:
                s[tx] = T.cast(tx, "float32")
                B[tx] = s[33 - tx]
    return main


def updated() -> Any:
    @T.prim_func
    def main(B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((64,), "int32")
            tx = T.get_thread_binding()
            s[tx ^ 1] = 0
            T.atomic_add(s[tx], 1)
            B[tx] = s[tx ^ 1]
    return main


def seldom_rounds() -> Any:
    """A loop of one round for half of the threads, and of none for the others."""
    @T.prim_func
    def seldom(A: T.Tensor((128,), "float32"), B: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            for i in T.serial((191 - tx) // 128):
                B[tx] = A[tx] + T.cast(i, "float32")
    return seldom


KERNELS = (seldom_rounds, guarded, strided, masked, otherwise, updated)
