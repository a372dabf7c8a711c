"""Compiled loops of this process, each by its signature; and whether there is an LLVM to compile them."""
from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.interp.calls.elementwise import apply
from kir.interp.native.emitted import Emitted, Outside
from kir.interp.native.emitter import Emitter
from kir.interp.native.signature import Signature
from kir.interp.numerics import number
from kir.interp.numerics.number import Array
from kir.ir import nodes as n
from kir.ir.types import DType, dtype_of

MOST = 4096
"""Compiled loops that are kept."""
_LOCK = threading.Lock()


@cache
def available() -> bool:
    """Whether llvmlite is installed. It is not imported before there is something to compile."""
    return find_spec("llvmlite") is not None


def converts_half() -> bool:
    """Whether this processor converts f16 by itself; otherwise nothing is compiled."""
    return _machine()[1]


@dataclass(eq=False)
class Compiled:
    """A loop's function, what its caller provides, and all that must live as long as it."""

    call: Callable[[int], int]
    of: Emitted
    failed: list[KirError]
    kept: tuple[Any, ...]


@lru_cache(maxsize=MOST)
def compiled(of: Signature, hot: bool = False) -> Compiled:
    """The code of a loop, made now if it is not there. That of a `hot` one takes several times as long to make, and runs several times as fast."""
    from llvmlite import binding as llvm
    with _LOCK:
        machine, half = _machine()
        callbacks: list[Any] = []
        failed: list[KirError] = []

        def callback(what: Outside) -> int:
            made = _CALLBACK(_outside(what, failed))
            callbacks.append(made)
            return ctypes.cast(made, ctypes.c_void_p).value or 0
        emitted = Emitter(of, half, callback).emitted()
        module = llvm.parse_assembly(emitted.text)
        if hot:
            options = llvm.create_pipeline_tuning_options(speed_level=1)
            options.loop_unrolling = options.loop_vectorization = options.slp_vectorization = False  # they compile twice as long, and run no faster
            builder = llvm.create_pass_builder(machine, options)
            builder.getModulePassManager().run(module, builder)
        engine = llvm.create_mcjit_compiler(module, llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=1 if hot else 0))
        engine.finalize_object()
        call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(engine.get_function_address("loop"))
    return Compiled(call, emitted, failed, (engine, callbacks))


@cache
def _machine() -> tuple[Any, bool]:
    """LLVM's machine for this processor, and whether it converts f16 by itself."""
    from llvmlite import binding as llvm
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    made = llvm.Target.from_default_triple().create_target_machine(cpu=llvm.get_host_cpu_name(), features=features.flatten(), opt=2)
    return made, bool(features.get("f16c")) or "arm" in llvm.get_default_triple() or "aarch64" in llvm.get_default_triple()


_CALLBACK = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 8)


def _outside(what: Outside, failed: list[KirError]) -> Callable[..., None]:
    """A function that lets NumPy work out an operation for all lanes."""
    def done(*words: int) -> None:
        x = [_array(words[2 * i], words[2 * i + 1], dtype) for i, dtype in enumerate(what.operands)]
        try:
            _array(words[6], words[7], what.result)[...] = _worked_out(what.node, x)
        except KirError as fault:
            failed.append(fault)
    return done


def _array(address: int, count: int, dtype: DType) -> Array:
    kind = number.storage(dtype)
    raw = (ctypes.c_uint8 * (count * kind.itemsize)).from_address(address)
    out: Array = np.frombuffer(memoryview(raw), np.uint8).view(kind)
    return out


def _worked_out(e: n.Expr, x: list[Array]) -> Array:
    match e:
        case n.Binary():
            return number.binary(e.op, dtype_of(e.a.type), x[0], x[1])
        case n.Unary():
            return number.unary(e.op, dtype_of(e.x.type), x[0])
        case n.Cast():
            return number.cast(x[0], dtype_of(e.x.type), e.dtype, e.rounding)
        case n.Call():
            return np.asarray(apply(e.fn, dtype_of(e.args[0].type), tuple(x), dict(e.attrs)))
        case _:
            raise AssertionError(e)
