"""What pycuda lacks of the CUDA driver, in libcuda by ctypes: launches with attributes, graphs, tensor maps, persisting lines of L2.

Every call is checked. Names and numbers are those of `cuda.h` (CUDA 13.0). The context is pycuda's: the one current on this thread.
"""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

COOPERATIVE, CLUSTER, DEPENDENT = 2, 4, 6
"""Launch attributes: cooperative grid, cluster dimension, programmatic dependent launch."""
DYNAMIC_SHARED, ANY_CLUSTER = 8, 14
"""Function attributes: bytes of dynamic shared memory, clusters of more than 8 CTAs."""
MOST_CODES = 1000
TENSOR_DTYPES = {"u8": 0, "u16": 1, "u32": 2, "i32": 3, "u64": 4, "i64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9,
                 "i8": 0, "f8e4m3": 0, "f8e5m2": 0, "bool": 0, "i16": 1}
"""`CUtensorMapDataType` by dtype of the IR; 8-bit floats are moved as bytes."""
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
"""`CUtensorMapSwizzle` by bytes."""


class CudaError(Exception):
    """A call that the driver refused, with its number and name (`CUDA_ERROR_ILLEGAL_ADDRESS`)."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call}: {name} ({code})")
        self.call, self.code, self.name = call, code, name


class _Attribute(ctypes.Structure):
    _fields_ = (("id", c_int), ("pad", c_int), ("value", c_uint * 16))


class _Config(ctypes.Structure):
    _fields_ = (("grid", c_uint * 3), ("block", c_uint * 3), ("shared", c_uint), ("stream", c_void_p),
                ("attributes", POINTER(_Attribute)), ("count", c_uint))


class Libcuda:
    """libcuda over the context that is current, and a stream. Raises OSError where there is no driver, CudaError for what it refuses."""

    def __init__(self, stream: int = 0) -> None:
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.stream = c_void_p(stream)
        self.modules: dict[int, c_void_p] = {}

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver. Raises CudaError."""
        code = int(getattr(self.lib, name)(*arguments))
        if code != 0:
            raise CudaError(name, code, self._text("cuGetErrorName", code) or "unknown")

    def _text(self, function: str, code: int) -> str:
        text = c_char_p()
        return (text.value or b"").decode() if getattr(self.lib, function)(c_int(code), byref(text)) == 0 else ""

    def named(self, said: str) -> CudaError:
        """The error that a sentence of pycuda's (`cuCtxSynchronize failed: an illegal memory access was encountered`) speaks of."""
        call, _, words = said.splitlines()[0].partition(" failed: ") if said else ("", "", "")
        words = words.partition(" - ")[0].strip()
        code = next((c for c in range(1, MOST_CODES) if words and self._text("cuGetErrorString", c) == words), 0)
        return CudaError(call or "the driver", code, self._text("cuGetErrorName", code) if code else said or "unknown")

    def forget_persisting(self) -> None:
        """Lines of L2 that were marked persisting become ordinary."""
        self("cuCtxResetPersistingL2Cache")

    # --------------------------------------------------------------------------------------------------------------- launches
    def function(self, image: bytes, name: str, dynamic_shared: int, cluster: Sequence[int]) -> c_void_p:
        """A kernel of a cubin, allowed the shared memory and cluster that it will be launched with."""
        module, out = c_void_p(), c_void_p()
        self("cuModuleLoadData", byref(module), image)
        self("cuModuleGetFunction", byref(out), module, name.encode())
        self.modules[int(out.value or 0)] = module
        if dynamic_shared:  # the 48 KiB that are allowed without count static shared memory too
            self("cuFuncSetAttribute", out, c_int(DYNAMIC_SHARED), c_int(dynamic_shared))
        size = 1
        for extent in cluster:
            size *= extent
        if size > 8:
            self("cuFuncSetAttribute", out, c_int(ANY_CLUSTER), c_int(1))
        return out

    def unload(self) -> None:
        """Give back the modules of all functions."""
        for module in self.modules.values():
            self("cuModuleUnload", module)
        self.modules.clear()

    def variable(self, function: c_void_p, name: str) -> int:
        """Where a variable of a kernel's module is."""
        pointer, size = c_uint64(), c_uint64()
        self("cuModuleGetGlobal_v2", byref(pointer), byref(size), self.modules[int(function.value or 0)], name.encode())
        return int(pointer.value)

    def launch(self, function: c_void_p, grid: Sequence[int], threads: int, shared: int, values: Sequence[Any], *,
               cluster: Sequence[int] = (), dependent: bool = False, cooperative: bool = False) -> None:
        """`cuLaunchKernelEx` on the stream; `values` are ctypes values in the kernel's order. `dependent` allows it to begin before the
        kernel ahead of it has ended."""
        attributes = (_Attribute * 3)()
        count = 0
        if dependent:
            attributes[count].id, attributes[count].value[0] = DEPENDENT, 1
            count += 1
        if cooperative:
            attributes[count].id, attributes[count].value[0] = COOPERATIVE, 1
            count += 1
        if any(extent != 1 for extent in cluster):
            attributes[count].id = CLUSTER
            for i, extent in enumerate((*cluster, 1, 1)[:3]):
                attributes[count].value[i] = extent
            count += 1
        x, y, z = (*grid, 1, 1, 1)[:3]
        config = _Config((c_uint * 3)(x, y, z), (c_uint * 3)(threads, 1, 1), shared, self.stream, attributes, count)
        pointers = (c_void_p * max(len(values), 1))(*(ctypes.cast(byref(v), c_void_p) for v in values))
        self("cuLaunchKernelEx", byref(config), function, pointers, None)

    def fill_apart(self, pointer: int, pitch: int, value: int, count: int) -> None:
        """`count` words of 4 bytes, `pitch` bytes apart, on the stream."""
        self("cuMemsetD2D32Async", c_uint64(pointer), c_size_t(pitch), c_uint(value), c_size_t(1), c_size_t(count), self.stream)

    # ----------------------------------------------------------------------------------------------------------------- graphs
    def begin_graph(self) -> None:
        """What follows on the stream is captured, not run."""
        self("cuStreamBeginCapture_v2", self.stream, c_int(0))

    def end_graph(self) -> c_void_p:
        """The captured work, ready to be launched."""
        graph, ready = c_void_p(), c_void_p()
        self("cuStreamEndCapture", self.stream, byref(graph))
        self("cuGraphInstantiateWithFlags", byref(ready), graph, c_uint64(0))
        self("cuGraphDestroy", graph)
        return ready

    def launch_graph(self, graph: c_void_p) -> None:
        """Run a graph on the stream."""
        self("cuGraphLaunch", graph, self.stream)

    def drop_graph(self, graph: c_void_p) -> None:
        """Give a graph back."""
        self("cuGraphExecDestroy", graph)

    # ------------------------------------------------------------------------------------------------------------ tensor maps
    def tensor_map(self, dtype: str, address: int, extents: Sequence[int], strides: Sequence[int], box: Sequence[int], *, swizzle: int = 0,
                   steps: Sequence[int] = (), interleave: int = 0, promotion: int = 2, nan_fill: bool = False) -> bytes:
        """`cuTensorMapEncodeTiled`: 128 bytes. Extents, box and steps in elements, innermost first; strides in bytes, of all axes but
        the innermost; `swizzle` in bytes."""
        rank = len(extents)
        out = _aligned()
        self("cuTensorMapEncodeTiled", out[1], c_int(TENSOR_DTYPES[dtype]), c_uint(rank), c_void_p(address), (c_uint64 * rank)(*extents),
             (c_uint64 * max(rank - 1, 1))(*strides), (c_uint * rank)(*box), (c_uint * rank)(*(steps or [1] * rank)), c_int(interleave),
             c_int(SWIZZLES[swizzle]), c_int(promotion), c_int(int(nan_fill)))
        return ctypes.string_at(out[1], 128)

    def tensor_map_im2col(self, dtype: str, address: int, extents: Sequence[int], strides: Sequence[int], lower: Sequence[int],
                          upper: Sequence[int], channels: int, pixels: int, *, swizzle: int = 0, steps: Sequence[int] = ()) -> bytes:
        """`cuTensorMapEncodeIm2col`: 128 bytes. `lower` and `upper` are the corners of the pixel box, innermost first, without channels
        and batch."""
        rank = len(extents)
        out = _aligned()
        self("cuTensorMapEncodeIm2col", out[1], c_int(TENSOR_DTYPES[dtype]), c_uint(rank), c_void_p(address), (c_uint64 * rank)(*extents),
             (c_uint64 * max(rank - 1, 1))(*strides), (c_int * len(lower))(*lower), (c_int * len(upper))(*upper), c_uint(channels),
             c_uint(pixels), (c_uint * rank)(*(steps or [1] * rank)), c_int(0), c_int(SWIZZLES[swizzle]), c_int(2), c_int(0))
        return ctypes.string_at(out[1], 128)


def _aligned() -> tuple[Any, c_void_p]:
    """128 bytes at a multiple of 128, with what keeps them alive."""
    held = ctypes.create_string_buffer(256)
    address = -(-ctypes.addressof(held) // 128) * 128
    return held, c_void_p(address)


class Map(ctypes.Structure):
    """A tensor map as a kernel's argument: 128 bytes, passed by value."""

    _fields_ = (("bytes", ctypes.c_ubyte * 128),)
