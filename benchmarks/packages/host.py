"""On a machine without a GPU: what packages ask CUDA for, answered as an H200 would, so that their host code runs on CPU tensors."""

from __future__ import annotations

import contextlib
import os
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

H200 = SimpleNamespace(
    name="NVIDIA H200",
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=139 << 30,
    warp_size=32,
    shared_memory_per_multiprocessor=233472,
    shared_memory_per_block_optin=232448,
    L2_cache_size=50 << 20,
    max_threads_per_multi_processor=2048,
    regs_per_multiprocessor=65536,
)


class OnCpu(TorchFunctionMode):  # type: ignore[misc]  # torch is read as untyped
    """Tensors that are asked for on CUDA are made on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        given = dict(kwargs or {})
        if "device" in given and given["device"] is not None and str(given["device"]).startswith("cuda"):
            given["device"] = "cpu"
        if getattr(func, "__name__", "") in ("to", "cuda") and any(str(a).startswith("cuda") for a in args[1:] if isinstance(a, (str, torch.device))):
            args = (args[0], *("cpu" if isinstance(a, (str, torch.device)) else a for a in args[1:]))
        return func(*args, **given)


def stand_in() -> None:
    """Patch `torch.cuda` in this process. FlagGems is told its vendor, which it would ask the machine for."""
    os.environ.setdefault("GEMS_VENDOR", "nvidia")
    cuda: Any = torch.cuda
    cuda.device_count = lambda: 1
    cuda.current_device = lambda: 0
    cuda.get_device_name = lambda *a: H200.name
    cuda.get_device_capability = lambda *a: (9, 0)
    cuda.get_device_properties = lambda *a: H200
    cuda.device = lambda *a: contextlib.nullcontext()
    cuda.synchronize = lambda *a: None
    cuda.empty_cache = lambda: None
    cuda.current_stream = lambda *a: SimpleNamespace(cuda_stream=0)
