"""A CUDA device: context, memory, modules, launches and events by pycuda, and what that lacks by `kir.hardware.device.libcuda`. One stream.

pycuda is imported when a device is first opened: a machine without a GPU needs none.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

from kir.base.dataclass import dataclass
from kir.hardware.device.libcuda import CudaError, Libcuda, Map

FUNCTION = {"threads": "MAX_THREADS_PER_BLOCK", "static_shared": "SHARED_SIZE_BYTES", "local_bytes": "LOCAL_SIZE_BYTES", "registers": "NUM_REGS"}
DEVICE = {"sms": "MULTIPROCESSOR_COUNT", "l2_bytes": "L2_CACHE_SIZE", "major": "COMPUTE_CAPABILITY_MAJOR", "minor": "COMPUTE_CAPABILITY_MINOR",
          "shared_per_cta": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", "clock_khz": "CLOCK_RATE", "memory_clock_khz": "MEMORY_CLOCK_RATE"}
"""pycuda's names of attributes by ours."""
NON_BLOCKING = 1
MISSING = "pycuda is not installed: pip install 'kernel-lineage[gpu]' (it is built from source: a C++ compiler and the CUDA toolkit are needed)"


def pycuda() -> Any:
    """The module `pycuda.driver`. Raises OSError, which says what to do, where it is not installed."""
    try:
        import pycuda.driver as found
    except ImportError as absent:
        raise OSError(f"{MISSING} [{absent}]") from absent
    return found


class Driver:
    """One device with its primary context current. Raises OSError without pycuda or a driver, CudaError for what the driver refuses."""

    def __init__(self, device: int = 0) -> None:
        self.cuda = pycuda()
        self.more = Libcuda()
        with self._named():
            self.cuda.init()
            self.device = self.cuda.Device(device)
            self.context = self.device.retain_primary_context()
            self.context.push()
            self.stream = self.cuda.Stream(NON_BLOCKING)
        self.more = Libcuda(int(self.stream.handle))
        self._allocated: dict[int, Any] = {}

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """pycuda's errors as ours."""
        try:
            yield
        except self.cuda.Error as fault:
            raise self.more.named(str(fault)) from None

    # ------------------------------------------------------------------------------------------------------------- the device
    def attribute(self, name: str) -> int:
        """One of `DEVICE`."""
        with self._named():
            return int(self.device.get_attribute(getattr(self.cuda.device_attribute, DEVICE[name])))

    def about(self) -> dict[str, Any]:
        """Name, capability, memory, driver version and limits."""
        with self._named():
            named = {"name": str(self.device.name()), "memory": int(self.device.total_memory()), "cuda": int(self.cuda.get_driver_version())}
        return {**named, **{k: self.attribute(k) for k in DEVICE}}

    def free_bytes(self) -> int:
        """Device memory that is free."""
        with self._named():
            return int(self.cuda.mem_get_info()[0])

    def synchronize(self) -> None:
        """Wait for all streams of the context."""
        with self._named():
            self.cuda.Context.synchronize()

    def limit(self, printing: int, heap: int) -> None:
        """Bytes of the printf buffer and of the heap of device code."""
        with self._named():
            self.cuda.Context.set_limit(self.cuda.limit.PRINTF_FIFO_SIZE, printing)
            self.cuda.Context.set_limit(self.cuda.limit.MALLOC_HEAP_SIZE, heap)

    # ----------------------------------------------------------------------------------------------------------------- memory
    def allocate(self, size: int) -> int:
        """Device memory, aligned to 256 bytes at least."""
        with self._named():
            made = self.cuda.mem_alloc(max(size, 16))
        self._allocated[int(made)] = made
        return int(made)

    def free(self, pointer: int) -> None:
        """Give memory back."""
        with self._named():
            self._allocated.pop(pointer).free()

    def upload(self, pointer: int, data: bytes | bytearray) -> None:
        """Host to device, complete on return."""
        if data:
            with self._named():
                self.cuda.memcpy_htod_async(pointer, data, self.stream)
                self.stream.synchronize()

    def download(self, pointer: int, size: int) -> bytearray:
        """Device to host, after all earlier work of the stream."""
        out = bytearray(size)
        if size:
            with self._named():
                self.cuda.memcpy_dtoh_async(out, pointer, self.stream)
                self.stream.synchronize()
        return out

    def copy(self, to: int, source: int, size: int) -> None:
        """Device to device, on the stream."""
        with self._named():
            self.cuda.memcpy_dtod_async(to, source, size, self.stream)

    def fill(self, pointer: int, pattern: bytes, count: int) -> None:
        """`count` elements of 1, 2, 4 or 8 bytes, on the stream."""
        if len(pattern) == 8 and count:
            for k in (0, 4):
                self.more.fill_apart(pointer + k, 8, int.from_bytes(pattern[k:k + 4], "little"), count)
            return
        kinds = {1: self.cuda.memset_d8_async, 2: self.cuda.memset_d16_async, 4: self.cuda.memset_d32_async}
        if count:
            with self._named():
                kinds[len(pattern)](pointer, int.from_bytes(pattern, "little"), count, self.stream)

    # ------------------------------------------------------------------------------------------------- kernels and their launches
    def kernels(self, image: bytes, names: Sequence[str]) -> dict[str, Kernel]:
        """Kernels of one cubin by name, launched plainly."""
        with self._named():
            module = self.cuda.module_from_buffer(image)
            return {name: Kernel(self, name, image, plain=(module, module.get_function(name))) for name in names}

    def kernel(self, image: bytes, name: str, dynamic_shared: int = 0, cluster: Sequence[int] = (), module: Any = None) -> Kernel:
        """A kernel of a cubin (of `module`, where it is loaded), allowed the shared memory and the cluster that it will be launched with."""
        with self._named():
            module = module or self.cuda.module_from_buffer(image)
            function = module.get_function(name)
            if dynamic_shared:  # what is allowed without counts static shared memory too
                function.set_attribute(self.cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, dynamic_shared)
        return Kernel(self, name, image, dynamic_shared, tuple(cluster), (module, function))

    def launch(self, kernel: Kernel, grid: Sequence[int], threads: int, values: Sequence[Any], *, dependent: bool = False,
               cooperative: bool = False) -> None:
        """Launch on the stream; `values` are ctypes values in the kernel's order. What needs attributes, or tensor maps as arguments, goes
        through `cuLaunchKernelEx`, the rest through pycuda."""
        if kernel.needs_more(values, dependent, cooperative):
            self.more.launch(kernel.more, grid, threads, kernel.dynamic_shared, values, cluster=kernel.cluster, dependent=dependent,
                             cooperative=cooperative)
            return
        _, function = kernel.plain
        x, y, z = (*grid, 1, 1, 1)[:3]
        with self._named():
            function.prepare([v._type_.replace("?", "B") for v in values])  # formats of `struct`, aligned as a kernel's parameters are
            function.prepared_async_call((x, y, z), (threads, 1, 1), self.stream, *(v.value for v in values), shared_size=kernel.dynamic_shared)

    # -------------------------------------------------------------------------------------------------------------------- events
    def event(self) -> Any:
        """An event that keeps the time."""
        with self._named():
            return self.cuda.Event()

    def record(self, event: Any) -> None:
        """Record an event on the stream."""
        with self._named():
            event.record(self.stream)

    def elapsed(self, start: Any, stop: Any) -> float:
        """Seconds between two events, waiting for the second."""
        with self._named():
            stop.synchronize()
            return float(stop.time_since(start)) / 1e3


@dataclass
class Kernel:
    """A kernel as pycuda has it (`plain`: its module, which must live, and its function), and in libcuda where a launch needs that."""

    driver: Driver
    name: str
    image: bytes
    dynamic_shared: int = 0
    cluster: tuple[int, ...] = ()
    plain: tuple[Any, Any] = field(default=(None, None), repr=False)

    @cached_property
    def more(self) -> Any:
        """The same kernel for `cuLaunchKernelEx`: pycuda does not give its handle away."""
        return self.driver.more.function(self.image, self.name, self.dynamic_shared, self.cluster)

    def needs_more(self, values: Sequence[Any], dependent: bool, cooperative: bool) -> bool:
        """Whether pycuda cannot make a launch."""
        return dependent or cooperative or any(extent != 1 for extent in self.cluster) or any(isinstance(v, Map) for v in values)

    def allow(self, dynamic_shared: int) -> None:
        """Have it launched with so much dynamic shared memory from now on."""
        with self.driver._named():
            self.plain[1].set_attribute(self.driver.cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, dynamic_shared)
        self.dynamic_shared = dynamic_shared

    def variables(self, name: str) -> tuple[int, int]:
        """Where a variable of its module is, in pycuda's copy of the module and in libcuda's."""
        with self.driver._named():
            plain = int(self.plain[0].get_global(name)[0])
        return plain, self.driver.more.variable(self.more, name)

    def about(self) -> dict[str, int]:
        """What `FUNCTION` names, as the driver says."""
        attributes = self.driver.cuda.function_attribute
        with self.driver._named():
            return {ours: int(self.plain[1].get_attribute(getattr(attributes, theirs))) for ours, theirs in FUNCTION.items()}


__all__ = ["CudaError", "Driver", "Kernel", "Map", "pycuda"]
