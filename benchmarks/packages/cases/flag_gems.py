"""FlagGems' operators: PyTorch's own samples of each operator, run under a mode that hands every call that FlagGems covers to FlagGems too.

The oracle is PyTorch's kernel on the same arguments. What an operator leaves to chance has none and is not compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from benchmarks.packages.case import At, Case, Checked

SAMPLES = 6
"""Samples of an operator that are looked at."""
CALLS = {"cpu": 1, "cuda": 2}
"""Calls of one overload that are compared."""
LARGEST = 4096
"""Elements of the largest tensor of a sample that the CPU is given."""
BY_CHANCE = ("rand", "normal", "bernoulli", "dropout", "exponential", "multinomial", "uniform", "empty", "random", "log_normal", "cauchy", "geometric")


@cache
def table() -> dict[str, Callable[..., Any]]:
    """FlagGems' functions by the overload of ATen that they stand for."""
    import flag_gems

    out: dict[str, Callable[..., Any]] = {}
    for name, fn, *conditions in flag_gems._FULL_CONFIG:
        if all(c() for c in conditions if callable(c)) and not any(w in name for w in BY_CHANCE):
            out[name if "." in name else f"{name}.default"] = fn
    return out


class Both(TorchDispatchMode):
    """Every call of an overload that is wanted runs twice: PyTorch's result goes on, FlagGems' is kept beside it."""

    def __init__(self, wanted: str, most: int, largest: int) -> None:
        super().__init__()
        self.wanted, self.most, self.largest = wanted, most, largest
        self.found: list[tuple[Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        given = kwargs or {}
        name = func._schema.name.removeprefix("aten::") + "." + (func._schema.overload_name or "default")
        if name != self.wanted or len(self.found) >= self.most or not self._worth(args, given):
            return func(*args, **given)
        ours, our_given = tree_map(_copied, args), tree_map(_copied, given)
        want = func(*args, **given)
        got = table()[name](*ours, **our_given)
        self.found.append((tree_map(_copied, got), tree_map(_copied, want)))
        return want

    def _worth(self, args: Any, given: Any) -> bool:
        tensors = [x for x in tree_flatten((args, given))[0] if isinstance(x, torch.Tensor)]
        return bool(tensors) and all(0 < t.numel() <= self.largest for t in tensors) and max(t.numel() for t in tensors) > 1


def _copied(x: Any) -> Any:
    if not isinstance(x, torch.Tensor):
        return x
    made = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
    return made.copy_(x.detach())


def _samples(op: Any, at: At, dtype: torch.dtype) -> Iterator[Any]:
    with_gradient = op.supports_autograd and dtype.is_floating_point
    yield from itertools.islice(op.sample_inputs(at.device, dtype, requires_grad=with_gradient), SAMPLES)


def _calls(op: Any, sample: Any) -> Iterator[Callable[[], Any]]:
    def one() -> Any:
        return op(sample.input, *sample.args, **sample.kwargs)

    yield one

    def backward() -> None:
        results = [x for x in tree_flatten(one())[0] if isinstance(x, torch.Tensor) and x.requires_grad]
        if results:
            torch.autograd.backward(results, [torch.randn_like(x) for x in results])

    yield backward
    inplace = op.get_inplace()
    if inplace is not None and isinstance(sample.input, torch.Tensor):
        yield lambda: inplace(sample.input.detach().clone(), *sample.args, **sample.kwargs)
    if op.supports_out:

        def into() -> None:
            with torch.no_grad():
                want = one()
                op(sample.input, *sample.args, out=tree_map(lambda x: torch.empty_like(x) if isinstance(x, torch.Tensor) else x, want), **sample.kwargs)

        yield into


def _run(overload: str, ops: list[Any]) -> Callable[[At], Checked]:
    def run(at: At) -> Checked:
        both = Both(overload, CALLS[at.device], LARGEST if at.device == "cpu" else 1 << 30)
        problem: Exception | None = None
        for op in ops:
            for dtype in [d for d in (torch.float32, torch.int64, torch.bool, torch.int32) if d in op.dtypes][:2]:
                for sample in _samples(op, at, dtype):
                    for call in _calls(op, sample):
                        if len(both.found) >= both.most:
                            break
                        try:
                            with both:
                                call()
                        except Exception as bad:  # a sample that an operator or FlagGems refuses; another may do
                            problem = bad
        if not both.found and problem is not None:
            raise problem
        for i, (got, want) in enumerate(both.found):
            yield f"call {i}", got, want

    return run


def cases(device: str) -> list[Case]:
    """One case an overload for which PyTorch has samples under a like name; and those that are written out."""
    from torch.testing._internal.common_methods_invocations import op_db

    from benchmarks.packages.cases import gems_more

    by_name: dict[str, list[Any]] = {}
    for op in op_db:
        for word in {op.name.rpartition(".")[2], op.aten_name, *(a.name.rpartition(".")[2] for a in op.aliases)}:
            by_name.setdefault(_stem(word), []).append(op)
    out = []
    for overload in table():
        ops = by_name.get(_stem(overload.partition(".")[0]), [])
        if ops:
            out.append(Case(overload, _run(overload, ops[:3])))
    return out + gems_more.case.cases


def _stem(name: str) -> str:
    """A name without what marks a variant."""
    for word in ("_backward_data", "_backward_input", "_backward", "_copy"):
        name = name.removesuffix(word)
    return name.removeprefix("native_").removeprefix("_").removesuffix("_")
