"""A GPU that is not there, for a process of which only the launches are wanted: tensors of device "cuda" are tensors of the CPU, and what compiles
and launches kernels notes them.

Nothing is computed by kernels: what they would have written stays as it was allocated.
"""
from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from kir.ir.binding import Binding, Setting
from kir.learning.corpus.launch import DTYPES, Unbound, passed
from kir.surface import frontend

Note = Callable[[str, str, Binding | None, str], None]
"""Called with the file, the kernel, its binding (None where there is none), and why."""


def pretend(torch: Any) -> None:
    """PyTorch with a GPU that is the CPU: `device="cuda"` is read as `cpu`, and questions about the device have answers."""
    from torch.overrides import TorchFunctionMode

    def here(value: Any) -> Any:
        if isinstance(value, str) and value.partition(":")[0] == "cuda":
            return "cpu"
        return torch.device("cpu") if isinstance(value, torch.device) and value.type == "cuda" else value

    class OnCpu(TorchFunctionMode):  # type: ignore[misc]  # torch is read as untyped
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if getattr(func, "__name__", "") == "cuda" and args:
                return args[0]
            return func(*(here(a) for a in args), **{k: here(v) for k, v in (kwargs or {}).items() if k != "pin_memory"})

    OnCpu().__enter__()
    answers: dict[str, Any] = {
        "is_available": True, "device_count": 1, "current_device": 0, "get_device_name": "none: launches are recorded", "get_device_capability": (9, 0),
        "synchronize": None, "empty_cache": None, "set_device": None, "is_bf16_supported": True, "reset_peak_memory_stats": None, "max_memory_allocated": 0,
        "manual_seed": None, "manual_seed_all": None, "current_stream": SimpleNamespace(cuda_stream=0, synchronize=lambda: None),
        "get_device_properties": SimpleNamespace(name="none", major=9, minor=0, multi_processor_count=132, total_memory=80 << 30, warp_size=32,
                                                 shared_memory_per_block_optin=232448, max_threads_per_multi_processor=2048)}
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *args, answer=answer, **kwargs: answer)
    torch.cuda.device = torch.cuda.device_of = Chosen


class Chosen(contextlib.nullcontext[None]):
    """What stands for the choice of a device."""

    def __init__(self, device: Any) -> None:
        super().__init__()


class Made:
    """What stands for a compiled TileLang kernel: it takes tensors and gives new ones where the kernel gives some."""

    def __init__(self, function: Any, given: Any) -> None:
        buffers = list(function.buffer_map.values())
        indices = [] if given is None else [given] if isinstance(given, int) else list(given)
        self.outputs = [buffers[k] for k in indices]

    def __call__(self, *tensors: Any, **more: Any) -> Any:
        import torch

        made = [torch.empty([int(d) for d in b.shape], dtype=getattr(torch, str(b.dtype))) for b in self.outputs]
        return made[0] if len(made) == 1 else made or None


def patch_tilelang(module: ModuleType, note: Note) -> None:
    """Calls of factories under `tilelang.jit` are noted, and nothing is compiled."""
    cls = vars(module)["JITImpl"]

    def called(factory: Any, *args: Any, **kwargs: Any) -> Any:
        original = factory.func.orig_func
        file = inspect.getsourcefile(original) or ""
        function = factory.get_tir(*args, **kwargs)
        name = str(function.attrs["global_symbol"])
        bound = inspect.signature(original).bind(*args, **kwargs)
        bound.apply_defaults()
        try:
            note(file, name, Binding(kernel=name, recorded=True, metas={k: m for k, v in bound.arguments.items() if (m := _meta(k, v)) is not None},
                                     absent=[k for k, v in bound.arguments.items() if v is None]), "")
        except Unbound as why:
            note(file, name, None, str(why))
        return Made(function, factory.out_idx)
    cls.__call__ = called


def _meta(name: str, v: Any) -> Setting | None:
    """An argument of a factory; tensors of eager ones are no compile-time values."""
    if v is None or hasattr(v, "data_ptr"):
        return None
    if isinstance(v, (bool, int, float)):
        return v
    word = str(v).removeprefix("torch.").removeprefix("T.")
    if isinstance(v, str) or word in DTYPES:
        return DTYPES.get(word, word)
    raise Unbound(f"the argument '{name}' is a {type(v).__name__}")


def patch_extensions(module: ModuleType, note: Note, folder: Path) -> None:
    """Extensions of PyTorch are not compiled: a call of their functions is followed through their C++, and the launches that it makes are noted."""
    def load(name: str, sources: Any, *args: Any, **kwargs: Any) -> Any:
        return _Extension([Path(s) for s in ([sources] if isinstance(sources, str) else sources)], note)

    def load_inline(name: str, cpp_sources: Any = "", cuda_sources: Any = "", *args: Any, **kwargs: Any) -> Any:
        file = folder / f"{name}.cu"
        file.parent.mkdir(parents=True, exist_ok=True)
        parts = [cuda_sources] if isinstance(cuda_sources, str) else list(cuda_sources or ())
        file.write_text("\n".join(["#include <torch/extension.h>", *parts]), encoding="utf-8")
        return _Extension([file], note)
    vars(module).update(load=load, load_inline=load_inline)


class _Extension:
    """The functions of an extension that was not compiled."""

    def __init__(self, sources: list[Path], note: Note) -> None:
        self._sources, self._note = [s for s in sources if s.is_file()], note

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def called(*args: Any) -> Any:
            reader: Any = frontend("cuda")
            seen = [passed(a) for a in args]
            for source in self._sources:
                for kernel, binding in reader.calls(source, name, seen):
                    self._note(str(source), kernel, binding, "" if binding is not None else "its launch is not followed")
            return next((a for a in args if hasattr(a, "data_ptr")), None)
        return called

