"""What an executor asks of pycuda and of libcuda, on stand-ins that keep memory in this process: which launch goes where, and with what."""
from __future__ import annotations

import ctypes
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kir.base.diagnostic import KirError
from kir.gate.gpu.machine import require_device
from kir.hardware import machine
from kir.hardware.confine import Limits
from kir.hardware.device import driver, executor
from kir.hardware.device.driver import CudaError, Driver, pycuda
from kir.hardware.device.libcuda import Map


class Error(Exception):
    """pycuda's."""


class Cuda(ModuleType):
    """`pycuda.driver`, as far as it is called: memory is bytearrays by address, a launch writes ones to its first pointer."""

    def __init__(self) -> None:
        super().__init__("pycuda.driver")
        self.memory: dict[int, bytearray] = {}
        self.launched: list[tuple[Any, ...]] = []
        self.Error = Error
        names = SimpleNamespace
        self.device_attribute = names(**dict.fromkeys(driver.DEVICE.values(), 90))
        self.function_attribute = names(**{v: v for v in (*driver.FUNCTION.values(), "MAX_DYNAMIC_SHARED_SIZE_BYTES")})
        self.limit = names(PRINTF_FIFO_SIZE=1, MALLOC_HEAP_SIZE=2)
        self.Context = names(synchronize=lambda: None, set_limit=lambda which, size: None)
        self.Stream = lambda flags: names(handle=77, synchronize=lambda: None)
        self.Event = lambda: names(record=lambda s: None, synchronize=lambda: None, time_since=lambda e: 2.5)
        self.Device = lambda number: names(name=lambda: "fake", total_memory=lambda: 1 << 30, get_attribute=lambda a: a,
                                           retain_primary_context=lambda: names(push=lambda: None))
        self.init, self.get_driver_version, self.mem_get_info = (lambda: None), (lambda: 13000), (lambda: (1 << 29, 1 << 30))
        self.memset_d8_async = lambda p, v, n, s: self._set(p, bytes([v]) * n)
        self.memset_d16_async = lambda p, v, n, s: self._set(p, v.to_bytes(2, "little") * n)
        self.memset_d32_async = lambda p, v, n, s: self._set(p, v.to_bytes(4, "little") * n)
        self.memcpy_htod_async = lambda p, data, s: self._set(p, bytes(data))
        self.memcpy_dtod_async = lambda a, b, n, s: None

    def mem_alloc(self, size: int) -> Any:
        if size > 1 << 28:
            raise Error("cuMemAlloc failed: out of memory")
        at = 4096 + sum(-(-len(x) // 256) * 256 for x in self.memory.values())
        self.memory[at] = bytearray(size)

        class Allocation(int):
            def free(self) -> None:
                """Given back."""
        return Allocation(at)

    def _set(self, pointer: int, data: bytes) -> None:
        base = max(x for x in self.memory if x <= pointer)
        self.memory[base][pointer - base: pointer - base + len(data)] = data

    def memcpy_dtoh_async(self, out: bytearray, pointer: int, stream: Any) -> None:
        base = max(x for x in self.memory if x <= pointer)
        out[:] = self.memory[base][pointer - base: pointer - base + len(out)]

    def module_from_buffer(self, image: bytes) -> Any:
        def get_function(name: str) -> Any:
            found = SimpleNamespace(name=name, set_attribute=lambda a, v: self.launched.append((name, a, v)), get_attribute=lambda a: 32)
            found.prepare = lambda formats: setattr(found, "formats", formats)

            def call(grid: Any, block: Any, stream: Any, *values: Any, shared_size: int) -> None:
                self.launched.append((name, grid, block, "".join(found.formats), values, shared_size))
                if name == "k":
                    self._set(values[0], b"\1" * 16)
            found.prepared_async_call = call
            return found
        return SimpleNamespace(get_function=get_function)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    made, package = Cuda(), ModuleType("pycuda")
    package.driver = made  # type: ignore[attr-defined]  # a stand-in
    monkeypatch.setitem(sys.modules, "pycuda", package)
    monkeypatch.setitem(sys.modules, "pycuda.driver", made)

    class More:
        def __init__(self, stream: int = 0) -> None:
            self.stream = stream
        def named(self, said: str) -> CudaError:
            return CudaError(said.partition(" ")[0], 2, "CUDA_ERROR_OUT_OF_MEMORY")
        def function(self, image: bytes, name: str, dynamic_shared: int, cluster: Any) -> str:
            return f"{name} {dynamic_shared} {cluster}"
        def launch(self, function: str, grid: Any, threads: int, shared: int, values: Any, **how: Any) -> None:
            made.launched.append(("more", function, tuple(grid), threads, shared, how))
        def fill_apart(self, pointer: int, pitch: int, value: int, count: int) -> None:
            for k in range(count):
                made._set(pointer + k * pitch, value.to_bytes(4, "little"))
        def forget_persisting(self) -> None:
            made.launched.append(("persisting",))
    monkeypatch.setattr(driver, "Libcuda", More)
    return made


def opened(**image: Any) -> executor.State:
    row = {"function": "k", "dynamic_shared": 0, **image}
    return executor.opened({"confine": False, "limits": Limits().to_json(), "images": [row]}, [bytearray(b"harness"), bytearray(b"cubin")])[0]


def call(state: executor.State, **launch: Any) -> tuple[dict[str, Any], list[bytearray]]:
    buffers = [{"name": "Y", "bytes": 16, "elements": 4, "dtype": "f32", "fill": {"byte": 255}, "intact": False}]
    arguments = [["buffer", "Y"], ["scalar", "i32", 7], ["scalar", "bool", 1], ["scalar", "f16", 1.0]]
    launches = [{"image": 0, "grid": [2, 3], "threads": 64, "arguments": arguments, **launch}]
    return executor.called(state, {"buffers": buffers, "launches": launches, "memsets": [], "return": ["Y"], "salt": 5}, [])


def test_a_plain_kernel_is_launched_by_pycuda(cuda: Cuda) -> None:
    answer, back = call(opened(dynamic_shared=60000))
    assert back == [bytearray(b"\1" * 16)] and answer["seconds"] == 2.5e-3 and answer["changed"] == []
    (mine,) = [x for x in cuda.launched if x[0] == "k" and len(x) == 6]
    assert mine[1:4] == ((2, 3, 1), (64, 1, 1), "LiBH") and mine[4][1:] == (7, True, 0x3C00) and mine[5] == 60000
    assert ("k", "MAX_DYNAMIC_SHARED_SIZE_BYTES", 60000) in cuda.launched and ("persisting",) in cuda.launched


@pytest.mark.parametrize("value", [np.uint8(7), np.float16(1.5), np.float32(-0.0), np.float64(0.1), np.int64(-3)])
def test_an_initial_value_of_any_width_fills_memory(cuda: Cuda, value: Any) -> None:
    state = opened()
    executor._fit(state, [{"name": "Y", "bytes": 64, "shift": 0}])
    state.driver.fill(state.buffers["Y"].data, value.tobytes(), 5)
    assert (np.frombuffer(state.driver.download(state.buffers["Y"].data, 5 * value.nbytes), value.dtype) == value).all()


def test_data_lie_as_far_from_their_alignment_as_is_asked_between_guards_that_leave_no_byte_out(cuda: Cuda) -> None:
    state = opened()
    for shift in (0, 4, 252):
        executor._fit(state, [{"name": "Y", "bytes": 100, "shift": shift}])
        held = state.buffers["Y"]
        front, back = held.guards
        assert held.data % executor.MOST_SHIFT == shift and front == (held.base, executor.GUARD + shift)
        assert front[0] + front[1] == held.data and back[0] == held.data + 100
        assert back[0] + back[1] == held.base + executor.guarded(100, executor.GUARD) and back[1] >= executor.GUARD
    state.guard = 0
    executor._fit(state, [{"name": "Z", "bytes": 100, "shift": 4}])
    assert state.buffers["Z"].data % 256 == 0 and state.buffers["Z"].guards == (), "a sanitizer sees where the data end by itself"


def test_local_memory_is_filled_for_a_kernel_that_has_some(cuda: Cuda) -> None:
    call(opened())
    assert "kir_leave_512" in [x[0] for x in cuda.launched], "there is little memory here"
    cuda.launched.clear()
    state = opened()
    state.local = 0
    call(state)
    assert not [x for x in cuda.launched if str(x[0]).startswith("kir_leave")]
    state.local, state.room = 100_000, 40_000
    call(state)
    (left,) = [x for x in cuda.launched if str(x[0]).startswith("kir_leave")]
    assert left[0] == "kir_leave_32768", "as much as the largest of ours has"


@pytest.mark.parametrize(("image", "launch", "how"), [
    ({"cluster": [2, 1, 1]}, {}, {"cluster": (2, 1, 1), "dependent": False, "cooperative": False}),
    ({"cooperative": True}, {}, {"cluster": (), "dependent": False, "cooperative": True}),
    ({}, {"dependent": True}, {"cluster": (), "dependent": True, "cooperative": False})])
def test_what_pycuda_lacks_goes_through_libcuda(cuda: Cuda, image: dict[str, Any], launch: dict[str, Any], how: dict[str, Any]) -> None:
    call(opened(**image), **launch)
    (mine,) = [x for x in cuda.launched if x[0] == "more"]
    assert mine[2:5] == ((2, 3), 64, 0) and mine[5] == how


def test_a_tensor_map_is_an_argument_that_pycuda_cannot_pass(cuda: Cuda) -> None:
    kernel = Driver().kernel(b"cubin", "k")
    assert kernel.needs_more([ctypes.c_int(1), Map()], False, False) and not kernel.needs_more([ctypes.c_int(1)], False, False)


def test_errors_of_pycuda_have_the_drivers_names(cuda: Cuda) -> None:
    with pytest.raises(CudaError, match="CUDA_ERROR_OUT_OF_MEMORY") as refused:
        Driver().allocate(1 << 30)
    assert refused.value.call == "cuMemAlloc"


def test_without_pycuda_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", None)
    with pytest.raises(OSError, match="pip install"):
        pycuda()
    monkeypatch.setattr(machine, "gpus", lambda: [object()])
    monkeypatch.setattr(machine, "package_version", lambda name: None)
    with pytest.raises(KirError, match="KIR-G920"):
        require_device()


@pytest.mark.parametrize(("arguments", "said"), [
    ([["buffer", "Y", 16]], "'Y' begins at byte 8 past a multiple of 16, and the kernel takes it 16 bytes at a time"),
    ([["map", {"of": "Y", "dtype": "f32", "extents": [4], "strides": [], "box": [4], "swizzle": 0}]], "'Y' begins at byte 8 past a multiple of 16")])
def test_a_pointer_that_is_not_as_aligned_as_its_kernel_relies_on_is_refused(cuda: Cuda, arguments: list[Any], said: str) -> None:
    state = opened()
    call(state)
    state.buffers["Y"].base += 8 - state.buffers["Y"].data % 16
    with pytest.raises(ValueError, match=said):
        executor._values(state, {"image": 0, "arguments": arguments})
