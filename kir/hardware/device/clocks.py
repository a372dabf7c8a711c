"""Clocks, temperature and load of a device, read (never set) through NVML."""
from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_uint, c_ulonglong, c_void_p
from functools import cache

SM, MEMORY = 1, 2


def clocks(device: int = 0) -> dict[str, int]:
    """MHz of the SMs and of memory, their highest, degrees Celsius, and NVML's throttle reasons as a bit set; empty without NVML. `device`
    is CUDA's number, which CUDA_VISIBLE_DEVICES changes; NVML's never does."""
    lib, handle = _opened(device)
    if lib is None:
        return {}
    out: dict[str, int] = {}
    value, reasons = c_uint(), c_ulonglong()
    for name, call, kind in (("sm_mhz", "nvmlDeviceGetClockInfo", SM), ("memory_mhz", "nvmlDeviceGetClockInfo", MEMORY),
                             ("sm_mhz_most", "nvmlDeviceGetMaxClockInfo", SM), ("celsius", "nvmlDeviceGetTemperature", 0)):
        if getattr(lib, call)(handle, c_uint(kind), byref(value)) == 0:
            out[name] = value.value
    if lib.nvmlDeviceGetCurrentClocksThrottleReasons(handle, byref(reasons)) == 0:
        out["throttled_by"] = reasons.value
    return out


def load(device: int = 0) -> dict[str, int]:
    """`busy`: the percent of the driver's last sampling period (a second at most) in which a kernel ran, whoever's, and `memory` in bytes that is
    taken; empty without NVML. `device` is CUDA's number."""
    lib, handle = _opened(device)
    if lib is None:
        return {}
    rates, memory = (c_uint * 2)(), (c_ulonglong * 3)()
    out: dict[str, int] = {}
    if lib.nvmlDeviceGetUtilizationRates(handle, byref(rates)) == 0:
        out["busy"] = int(rates[0])
    if lib.nvmlDeviceGetMemoryInfo(handle, byref(memory)) == 0:
        out["memory"] = int(memory[2])
    return out


def _opened(device: int) -> tuple[ctypes.CDLL | None, c_void_p]:
    """NVML and its handle of a device of CUDA's; None without one."""
    handle, place = c_void_p(), bus(device)
    try:
        lib = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None, handle
    if lib.nvmlInit_v2() != 0:
        return None, handle
    found = place is not None and lib.nvmlDeviceGetHandleByPciBusId_v2(place, byref(handle)) == 0
    if not found and ("CUDA_VISIBLE_DEVICES" in os.environ or lib.nvmlDeviceGetHandleByIndex_v2(c_uint(device), byref(handle)) != 0):
        return None, handle
    return lib, handle


@cache
def bus(device: int) -> bytes | None:
    """Where on the PCI bus a device of CUDA's is; None without a driver."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    handle, text = ctypes.c_int(), ctypes.create_string_buffer(32)
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGet(byref(handle), device) != 0 or cuda.cuDeviceGetPCIBusId(text, 32, handle) != 0:
        return None
    return text.value
