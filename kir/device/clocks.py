"""Clocks and temperature of a device, read (never set) through NVML."""
from __future__ import annotations

import ctypes
from ctypes import byref, c_uint, c_ulonglong, c_void_p

SM, MEMORY = 1, 2


def clocks(device: int = 0) -> dict[str, int]:
    """MHz of the SMs and of memory, their highest, degrees Celsius, and NVML's throttle reasons as a bit set; empty without NVML."""
    try:
        lib = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return {}
    handle = c_void_p()
    if lib.nvmlInit_v2() != 0 or lib.nvmlDeviceGetHandleByIndex_v2(c_uint(device), byref(handle)) != 0:
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
