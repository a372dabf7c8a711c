"""Clocks and temperature of a device, read (never set) through NVML."""
from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_uint, c_ulonglong, c_void_p
from functools import cache

SM, MEMORY = 1, 2


def clocks(device: int = 0) -> dict[str, int]:
    """MHz of the SMs and of memory, their highest, degrees Celsius, and NVML's throttle reasons as a bit set; empty without NVML. `device`
    is CUDA's number, which CUDA_VISIBLE_DEVICES changes; NVML's never does."""
    try:
        lib = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return {}
    handle, bus = c_void_p(), _bus(device)
    if lib.nvmlInit_v2() != 0:
        return {}
    found = bus is not None and lib.nvmlDeviceGetHandleByPciBusId_v2(bus, byref(handle)) == 0
    if not found and ("CUDA_VISIBLE_DEVICES" in os.environ or lib.nvmlDeviceGetHandleByIndex_v2(c_uint(device), byref(handle)) != 0):
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


@cache
def _bus(device: int) -> bytes | None:
    """Where on the PCI bus a device of CUDA's is; None without a driver."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    handle, text = ctypes.c_int(), ctypes.create_string_buffer(32)
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGet(byref(handle), device) != 0 or cuda.cuDeviceGetPCIBusId(text, 32, handle) != 0:
        return None
    return text.value
