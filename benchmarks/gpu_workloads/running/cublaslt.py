"""cuBLASLt through its C interface: a product by each of the first algorithms that its heuristics propose (cuBLAS documentation, "Using the cuBLASLt API")."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

TYPES = {"torch.float16": 2, "torch.bfloat16": 14}
"""cudaDataType_t of the dtypes that a product has here."""
F32, COMPUTE_F32 = 0, 68
TRANSPOSE_A, TRANSPOSE_B, WORKSPACE_BYTES, BATCH, BATCH_STRIDE = 3, 4, 1, 5, 6
"""Attributes of a product's descriptor, of a preference and of a matrix."""
WORKSPACE = 64 << 20
"""Bytes that an algorithm may use beside."""


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (("algorithm", ctypes.c_uint64 * 8), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int), ("waves", ctypes.c_float), ("_", ctypes.c_int * 4))


def algorithms(a: Any, b: Any, c: Any, transposed: bool, most: int = 8) -> list[Callable[[], None]]:
    """Calls that compute C[M, N] = A[M, K] B, with B as [N, K] (`transposed`) or [K, N], or such a product of each matrix of a batch, all contiguous on the
    GPU, by the first algorithms that the heuristics propose, on torch's current stream. Raises OSError where the library cannot be had, or refuses."""
    import torch

    lt, handle = _library(), _handle()
    (m, k), n = a.shape[-2:], c.shape[-1]
    batch = a.shape[0] if a.dim() == 3 else 1
    made = ctypes.c_void_p()
    _done(lt.cublasLtMatmulDescCreate(ctypes.byref(made), COMPUTE_F32, F32))
    product = made.value
    one = ctypes.c_int(1)
    if transposed:
        _done(lt.cublasLtMatmulDescSetAttribute(ctypes.c_void_p(product), TRANSPOSE_A, ctypes.byref(one), ctypes.sizeof(one)))
    dtype = TYPES[str(a.dtype)]
    # column-major, it is C^T = B^T A^T
    left = _layout(lt, dtype, batch, *((k, n) if transposed else (n, k)))
    right, out = _layout(lt, dtype, batch, k, m), _layout(lt, dtype, batch, n, m)
    preference = ctypes.c_void_p()
    _done(lt.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)))
    room = ctypes.c_size_t(WORKSPACE)
    _done(lt.cublasLtMatmulPreferenceSetAttribute(preference, WORKSPACE_BYTES, ctypes.byref(room), ctypes.sizeof(room)))
    found, count = (_Heuristic * most)(), ctypes.c_int()
    description = ctypes.c_void_p(product)
    _done(lt.cublasLtMatmulAlgoGetHeuristic(handle, description, left, right, out, out, preference, most, found, ctypes.byref(count)))
    alpha, beta = ctypes.c_float(1.0), ctypes.c_float(0.0)
    space = _workspace()

    def call(one: _Heuristic) -> Callable[[], None]:
        def run() -> None:
            _done(lt.cublasLtMatmul(
                handle, description, ctypes.byref(alpha), ctypes.c_void_p(b.data_ptr()), left, ctypes.c_void_p(a.data_ptr()), right, ctypes.byref(beta),
                ctypes.c_void_p(c.data_ptr()), out, ctypes.c_void_p(c.data_ptr()), out, ctypes.byref(one.algorithm), ctypes.c_void_p(space.data_ptr()),
                ctypes.c_size_t(WORKSPACE), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)))
        return run

    return [call(found[i]) for i in range(count.value) if found[i].state == 0]


@cache
def _library() -> Any:
    """The library that torch itself has loaded. Raises OSError."""
    import torch

    if torch.version.cuda is None:
        raise OSError("torch is built without CUDA")
    return ctypes.CDLL(f"libcublasLt.so.{torch.version.cuda.split('.')[0]}")


@cache
def _handle() -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    _done(_library().cublasLtCreate(ctypes.byref(handle)))
    return handle


@cache
def _workspace() -> Any:
    import torch

    return torch.empty(WORKSPACE, dtype=torch.uint8, device="cuda")


def _layout(lt: Any, dtype: int, batch: int, rows: int, columns: int) -> ctypes.c_void_p:
    """A column-major matrix without gaps, or so many of them."""
    out = ctypes.c_void_p()
    _done(lt.cublasLtMatrixLayoutCreate(ctypes.byref(out), dtype, ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows)))
    for name, value in ((BATCH, ctypes.c_int32(batch)), (BATCH_STRIDE, ctypes.c_int64(rows * columns))) if batch > 1 else ():
        _done(lt.cublasLtMatrixLayoutSetAttribute(out, name, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))))
    return out


def _done(status: int) -> None:
    if status != 0:
        raise OSError(f"cuBLASLt says {status}")
