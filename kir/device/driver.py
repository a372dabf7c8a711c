"""The CUDA driver, by ctypes: memory, modules, launches with attributes, events, graphs, tensor maps. One device, one stream.

Every call is checked. Names and numbers are those of `cuda.h` (CUDA 13.0).
"""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

COOPERATIVE, CLUSTER, DEPENDENT, SPREAD = 2, 4, 6, 5
"""Launch attributes: cooperative grid, cluster dimension, programmatic dependent launch, cluster scheduling policy."""
FUNCTION = {"threads": 0, "static_shared": 1, "local_bytes": 3, "registers": 4, "max_dynamic_shared": 8}
DEVICE = {"sms": 16, "l2_bytes": 38, "major": 75, "minor": 76, "shared_per_cta": 97, "clock_khz": 13, "memory_clock_khz": 36}
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


class Driver:
    """libcuda with the primary context of one device current. Raises OSError where there is no driver, CudaError for what it refuses."""

    def __init__(self, device: int = 0) -> None:
        self.lib = ctypes.CDLL("libcuda.so.1")
        self("cuInit", c_uint(0))
        handle = c_int()
        self("cuDeviceGet", byref(handle), c_int(device))
        self.device = handle.value
        context = c_void_p()
        self("cuDevicePrimaryCtxRetain", byref(context), handle)
        self("cuCtxSetCurrent", context)
        stream = c_void_p()
        self("cuStreamCreate", byref(stream), c_uint(1))
        self.stream = stream

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver. Raises CudaError."""
        code = int(getattr(self.lib, name)(*arguments))
        if code != 0:
            text = c_char_p()
            self.lib.cuGetErrorName(c_int(code), byref(text))
            raise CudaError(name, code, (text.value or b"unknown").decode())

    # ------------------------------------------------------------------------------------------------------------- the device
    def attribute(self, name: str) -> int:
        """One of `DEVICE`."""
        value = c_int()
        self("cuDeviceGetAttribute", byref(value), c_int(DEVICE[name]), c_int(self.device))
        return value.value

    def about(self) -> dict[str, Any]:
        """Name, capability, memory, driver version and limits."""
        text, version, memory = ctypes.create_string_buffer(256), c_int(), c_size_t()
        self("cuDeviceGetName", text, c_int(256), c_int(self.device))
        self("cuDriverGetVersion", byref(version))
        self("cuDeviceTotalMem_v2", byref(memory), c_int(self.device))
        return {"name": text.value.decode(), "memory": memory.value, "cuda": version.value, **{k: self.attribute(k) for k in DEVICE}}

    def free_bytes(self) -> int:
        """Device memory that is free."""
        free, total = c_size_t(), c_size_t()
        self("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value

    def synchronize(self) -> None:
        """Wait for all streams of the context."""
        self("cuCtxSynchronize")

    def limit(self, which: int, value: int) -> None:
        """`cuCtxSetLimit`: 1 is the printf buffer, 2 the heap of device code, both in bytes."""
        self("cuCtxSetLimit", c_int(which), c_size_t(value))

    def forget_persisting(self) -> None:
        """Lines of L2 that were marked persisting become ordinary."""
        self("cuCtxResetPersistingL2Cache")

    # ----------------------------------------------------------------------------------------------------------------- memory
    def allocate(self, size: int) -> int:
        """Device memory, aligned to 256 bytes at least."""
        pointer = c_uint64()
        self("cuMemAlloc_v2", byref(pointer), c_size_t(max(size, 16)))
        return pointer.value

    def free(self, pointer: int) -> None:
        """Give memory back."""
        self("cuMemFree_v2", c_uint64(pointer))

    def upload(self, pointer: int, data: bytes | bytearray) -> None:
        """Host to device, complete on return."""
        held = (ctypes.c_char * len(data)).from_buffer_copy(data)
        self("cuMemcpyHtoDAsync_v2", c_uint64(pointer), held, c_size_t(len(data)), self.stream)
        self("cuStreamSynchronize", self.stream)

    def download(self, pointer: int, size: int) -> bytearray:
        """Device to host, after all earlier work of the stream."""
        out = bytearray(size)
        if size:
            held = (ctypes.c_char * size).from_buffer(out)
            self("cuMemcpyDtoHAsync_v2", held, c_uint64(pointer), c_size_t(size), self.stream)
            self("cuStreamSynchronize", self.stream)
        return out

    def copy(self, to: int, source: int, size: int) -> None:
        """Device to device, on the stream."""
        self("cuMemcpyDtoDAsync_v2", c_uint64(to), c_uint64(source), c_size_t(size), self.stream)

    def fill_bytes(self, pointer: int, value: int, size: int) -> None:
        """`size` bytes of one value, on the stream."""
        self("cuMemsetD8Async", c_uint64(pointer), ctypes.c_ubyte(value), c_size_t(size), self.stream)

    def fill_pattern(self, pointer: int, pattern: bytes, count: int) -> None:
        """`count` elements of 1, 2 or 4 bytes, on the stream."""
        kinds: dict[int, tuple[str, Any]] = {1: ("cuMemsetD8Async", ctypes.c_ubyte), 2: ("cuMemsetD16Async", ctypes.c_ushort),
                                             4: ("cuMemsetD32Async", c_uint)}
        name, kind = kinds[len(pattern)]
        self(name, c_uint64(pointer), kind(int.from_bytes(pattern, "little")), c_size_t(count), self.stream)

    # ---------------------------------------------------------------------------------------------------------------- modules
    def module(self, image: bytes) -> c_void_p:
        """A module of a cubin, or of PTX that ends in a zero byte."""
        out = c_void_p()
        self("cuModuleLoadData", byref(out), image)
        return out

    def function(self, module: c_void_p, name: str) -> c_void_p:
        """A kernel by its name."""
        out = c_void_p()
        self("cuModuleGetFunction", byref(out), module, name.encode())
        return out

    def about_function(self, function: c_void_p) -> dict[str, int]:
        """What `FUNCTION` names."""
        out = {}
        for name, number in FUNCTION.items():
            value = c_int()
            self("cuFuncGetAttribute", byref(value), c_int(number), function)
            out[name] = value.value
        return out

    def allow(self, function: c_void_p, dynamic_shared: int, cluster: Sequence[int] = ()) -> None:
        """Let a kernel have more shared memory than 48 KB, or a cluster of more than 8 CTAs."""
        if dynamic_shared > 48 * 1024:
            self("cuFuncSetAttribute", function, c_int(8), c_int(dynamic_shared))
        size = 1
        for extent in cluster:
            size *= extent
        if size > 8:
            self("cuFuncSetAttribute", function, c_int(14), c_int(1))

    def launch(self, function: c_void_p, grid: Sequence[int], threads: int, shared: int, values: Sequence[Any], *,
               cluster: Sequence[int] = (), dependent: bool = False, cooperative: bool = False) -> None:
        """`cuLaunchKernelEx` on the stream; `values` are ctypes values in the kernel's order. `dependent` allows it to begin before the
        kernel ahead of it has ended."""
        attributes = (_Attribute * 4)()
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

    # ------------------------------------------------------------------------------------------------------- events and graphs
    def event(self) -> c_void_p:
        """An event that keeps the time."""
        out = c_void_p()
        self("cuEventCreate", byref(out), c_uint(0))
        return out

    def record(self, event: c_void_p) -> None:
        """Record an event on the stream."""
        self("cuEventRecord", event, self.stream)

    def elapsed(self, start: c_void_p, stop: c_void_p) -> float:
        """Seconds between two events, waiting for the second."""
        self("cuEventSynchronize", stop)
        out = c_float()
        self("cuEventElapsedTime", byref(out), start, stop)
        return out.value / 1e3

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
