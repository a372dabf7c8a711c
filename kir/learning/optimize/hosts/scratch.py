"""A result of several kernels with memory between them, launched where one kernel was: the memory is taken for each launch and given back after it."""
from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from kir.ir import nodes as n
from kir.ir.nodes import Program
from kir.learning.optimize.hosts.read_back import NotSaid
from kir.surface import Emitted

POOL = """// The pool of the current device that this kernel's memory comes from, which keeps what it has between launches.
static cudaError_t scratch_pool(cudaMemPool_t* pool) {
  static std::mutex one;
  static cudaMemPool_t pools[64] = {};
  const std::lock_guard<std::mutex> held(one);
  int device = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess && device >= 64) status = cudaErrorInvalidDevice;
  if (status == cudaSuccess && pools[device] == nullptr) {
    cudaMemPoolProps asked = {};
    asked.allocType = cudaMemAllocationTypePinned;
    asked.location.type = cudaMemLocationTypeDevice;
    asked.location.id = device;
    unsigned long long keep = ~0ull;
    status = cudaMemPoolCreate(&pools[device], &asked);
    if (status == cudaSuccess) status = cudaMemPoolSetAttribute(pools[device], cudaMemPoolAttrReleaseThreshold, &keep);
  }
  if (status == cudaSuccess) *pool = pools[device];
  return status;
}"""
"""Memory that a stream's default pool gives back at each synchronization would be asked of the driver anew at each launch."""
INCLUDES = ("<mutex>",)
"""What that needs."""
_LAUNCHER = r"cudaError_t (launch_\w+)\(([^)]*)\)"


def renamed(program: Program, name: str) -> Program:
    """The program with its first kernel under a name, and the others under theirs behind it. Raises NotSaid for memory that begins with a value."""
    if any(w.init is not None for w in program.workspaces):
        raise NotSaid("the result needs memory that begins with a value")
    names = {k.name: f"{name}_{k.name}" if number else name for number, k in enumerate(program.kernels)}

    def called(plan: Sequence[n.Launch | n.Dispatch]) -> tuple[n.Launch | n.Dispatch, ...]:
        return tuple(replace(step, kernel=names[step.kernel]) if isinstance(step, n.Launch) else
                     replace(step, arms=tuple((guard, called(arm)) for guard, arm in step.arms), orelse=called(step.orelse)) for step in plan)
    return replace(program, name=name, kernels=tuple(replace(k, name=names[k.name]) for k in program.kernels), plan=called(program.plan))


def in_order(program: Program, emitted: Emitted) -> list[str]:
    """The functions of a written text in the order in which they are launched. Raises NotSaid where sizes choose what is."""
    if any(isinstance(step, n.Dispatch) for step in program.plan):
        raise NotSaid("the result's launches are chosen by sizes")
    functions = {e.kernel: e.function for e in emitted.entries}
    steps = [step.kernel for step in program.plan if isinstance(step, n.Launch)] or [k.name for k in program.kernels]
    return [functions[x] for x in steps]


def in_cuda(program: Program, emitted: Emitted, types: dict[str, str], said: Callable[[n.Expr, dict[str, str]], str]) -> str:
    """A function like the written one that launches, which takes the memory from a pool of its own; "" where a program has none. `types` are C++'s names of
    dtypes, `said` what C++ says of a whole number with names for its variables."""
    if not program.workspaces:
        return ""
    m = re.search(_LAUNCHER, emitted.launch)
    params, spaces = [p for p in program.params if p.value is None], [w.buffer for w in program.workspaces]
    declared = [x.strip() for x in m[2].split(",")] if m is not None else []
    if m is None or len(declared) != len(params) + len(spaces) + 1 or any(b.dtype.name not in types for b in spaces):
        raise NotSaid("the function that launches the result takes something else")
    words = [x.rpartition(" ")[2].lstrip("*") for x in declared]
    names = {p.name: word for p, word in zip(params, words, strict=False)}
    own = words[len(params):-1]
    lines = [f"{POOL}\n\n// The same with memory of that pool, given back when the kernels are done; where there is none, nothing is launched.\n"
             f"cudaError_t {m[1]}({', '.join([*declared[:len(params)], declared[-1]])}) {{"]
    for word, b in zip(own, spaces, strict=True):
        count = " * ".join(f"static_cast<size_t>({said(d, names)})" for d in b.shape) or "1"
        lines += [f"  {types[b.dtype.name]}* {word} = nullptr;",
                  f"  const size_t {word}_bytes = {count} * sizeof({types[b.dtype.name]});"]
    lines += ["  cudaMemPool_t pool = nullptr;", "  cudaError_t status = scratch_pool(&pool);"]
    lines += [f"  if (status == cudaSuccess) status = cudaMallocFromPoolAsync(reinterpret_cast<void**>(&{word}), {word}_bytes, pool, {words[-1]});"
              for word in own]
    lines += [f"  if (status == cudaSuccess) status = {m[1]}({', '.join(words)});"]
    lines += [f"  if ({word} != nullptr) cudaFreeAsync({word}, {words[-1]});" for word in own]
    lines += ["  if (status != cudaSuccess) cudaGetLastError();  // who called launches what it had", "  return status;", "}"]
    return "\n".join(lines)


def with_memory(program: Program, emitted: Emitted, types: dict[str, str], said: Callable[[n.Expr, dict[str, str]], str]) -> str:
    """The host code of a written CUDA text, with the function that takes the memory where there is need of some. Raises NotSaid."""
    taking = in_cuda(program, emitted, types, said)
    return "\n".join([*(f"#include {x}" for x in INCLUDES), "", emitted.launch.rstrip(), "", taking, ""]) if taking else emitted.launch


__all__ = ["INCLUDES", "in_cuda", "in_order", "renamed", "with_memory"]
