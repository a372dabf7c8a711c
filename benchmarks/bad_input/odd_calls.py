"""Odd calls: every word of a surface with operands of the wrong number, kind and size, given to `kir parse`.

`python -m benchmarks.bad_input.odd_calls [--count N] [--surface NAME ..]` makes N calls of each word. What comes out is a program, perhaps with a statement
that stays opaque, or a located refusal; an internal error (KIR-C003), a traceback, or more than `SECONDS` is a fault, and the exit code is 1.
"""
from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from benchmarks.bad_input.mutilated import MEGABYTES, SECONDS, SURFACES, Source, fault
from benchmarks.bad_input.running import faults

TRITON = """import triton
import triton.language as tl

@triton.jit
def plus(a, b):
    return a + b

@triton.jit
def k(X, Y, N, B: tl.constexpr):
    o = tl.arange(0, 64)
    v = tl.load(X + o)
    m = tl.load(X + o[:, None] * N + o[None, :])
    f = v.to(tl.float32)
    w = CALL
    tl.store(Y + o, w)
"""
TILELANG = """import tilelang
import tilelang.language as T

@tilelang.jit
def f(N, B: int = 64, dtype="float32"):
    @T.prim_func
    def k(X: T.Tensor((N, 64), dtype), Y: T.Tensor((N, 64), dtype)):
        with T.Kernel(N, threads=64) as i:
            s = T.alloc_shared((64, 64), dtype)
            v = T.alloc_fragment((64,), dtype)
            a = T.alloc_local((4,), "float32")
            bar = T.alloc_barrier(1)
            T.copy(X[i, 0], v)
            CALL
            a[0] = CALL
            T.copy(v, Y[i, 0])
    return k
"""
CUDA = """#include <cuda_fp16.h>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__device__ float plus(float a, float b) { return a + b; }
__global__ void k(const float* X, float* Y, int N) {
  __shared__ float s[64];
  int t = threadIdx.x;
  float v = X[t];
  float4 q = *(const float4*)(X + 4 * t);
  __half h = __float2half(v);
  auto g = cg::tiled_partition<16>(cg::this_thread_block());
  CALL;
  auto w = CALL;
  Y[t] = w;
}
"""
OPERANDS = {
    "triton": ("v", "m", "f", "o", "X", "X + o", "N", "B", "0", "-1", "3", "64", "99999999999999999999", "1.5", "True", "None", "'a'", "''",
               "tl.float32", "tl.int1",
               "(2, 0)", "[1, 64]", "[0]", "()", "plus", "v > 0", "axis=0", "axis=7", "axis=None", "mask=v", "other=v", "dtype=v",
               "nosuch=1", "tl"),
    "tilelang": ("v", "s", "a", "X", "Y", "bar", "i", "N", "B", "v[0]", "s[i, 0]", "s[0, 0:4]", "X[i, 0:64]", "0", "-1", "3", "64",
             "99999999999999999999", "1.5",
                 "True", "None", "'a'", "''", "'float32'", "T.float32", "(64,)", "[1, 64]", "()", "lambda x: x", "lambda x, y: x + y", "dim=0", "dim=9",
                 "nosuch=1", "T", "i < 3"),
    "cuda": ("t", "v", "X", "Y", "s", "&s[0]", "&s[t]", "q", "h", "&q", "N", "0", "-1", "3", "64", "99999999999999999999", "1.5f", "true",
             "nullptr", "\"a\"", "0xffffffff", "0xffffu",
             "g", "plus", "(const float4*)X", "make_float2(v, v)", "{1, 2}", "t < 3", "[](float a) { return a; }"),
}


def words(surface: str) -> tuple[str, ...]:
    """What may be called, in the words of the surface."""
    match surface:
        case "triton":
            names = import_module("kir.frontends.triton.calls.handlers").HANDLERS
            return tuple(sorted({*(f"tl.{x}" for x in names), *(f"v.{x}" for x in names), "range", "min", "max", "abs", "len", "float", "int", "str", "print"}))
        case "tilelang":
            names = import_module("kir.frontends.tilelang.intrinsics.intrinsics").WORDS
            return tuple(sorted({*(f"T.{x}" for x in names), "range", "min", "max", "abs", "len", "float", "int", "str"}))
        case _:
            handlers = import_module("kir.frontends.cuda.intrinsics.cuda_calls")._handlers()
            groups = import_module("kir.frontends.cuda.intrinsics.cooperative_groups").FUNCTIONS
            methods = ("sync", "shfl", "shfl_xor", "any", "ballot", "thread_rank", "size", "nosuch")
            return tuple(sorted({*handlers, *(f"cg::{x}" for x in groups), *(f"g.{x}" for x in methods), "make_float4", "float4", "__half2", "dim3"}))


def attempts(surface: str, count: int) -> Iterator[tuple[str, str]]:
    """Calls and the texts that hold them, the same at each call."""
    text = {"triton": TRITON, "tilelang": TILELANG, "cuda": CUDA}[surface]
    for word in words(surface):
        for k in range(count):
            chosen = random.Random(f"{word} {k}")
            given: Sequence[str] = [chosen.choice(OPERANDS[surface]) for _ in range(k % 5)]
            call = f"{word}({', '.join(sorted(given, key=lambda x: '=' in x and ' ' not in x))})"
            yield call, text.replace("CALL", call)


def main() -> int:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--count", type=int, default=10)
    arguments.add_argument("--surface", nargs="*", default=SURFACES)
    given = arguments.parse_args()
    bad = 0
    for surface in given.surface:
        source = Source(surface, Path("odd.cu" if surface == "cuda" else "odd.py"), "k", None)

        def shown(attempt: tuple[str, str], wrong: str, surface: str = surface) -> None:
            print(f"{surface} {attempt[0]}: {wrong}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            def judged(attempt: tuple[str, str], source: Source = source, at: Path = Path(folder)) -> str:
                return fault(source, attempt[1], at)
            total, found = faults(attempts(surface, given.count), judged, shown, SECONDS, MEGABYTES)
        bad += sum(found.values())
        print(f"{surface}: {total} calls of {len(words(surface))} words, {sum(found.values())} faults, {len(found)} kinds", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
