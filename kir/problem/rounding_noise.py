"""How far honest rounding may move the outputs of a torch model: its own operators in float64, each disturbed as one rounding would.

Every operator's result gets relative noise of a unit roundoff of the model's dtype. A sum of n products gets what adding them in float32 one
after another costs: each partial sum s_k is rounded once, and s_k is near k/n of the result plus sqrt(k) times a product's spread, so that
the errors' squares add up to u^2 (n R^2 / 9 + n Q / 6), with R the result and Q the sum of squared products. What the model does to these
disturbances is what the bound needs, and no rule for each operator (stochastic arithmetic: Parker, Monte Carlo Arithmetic, 1997). Other
operators that reduce get their operands disturbed too, by a roundoff for the root of what they reduce over.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

UNITS = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
EXACT = ("aten.relu", "aten.neg", "aten.abs", "aten.max", "aten.min", "aten.maximum", "aten.minimum", "aten.where", "aten.clone", "aten.copy",
         "aten.cat", "aten.stack", "aten.gather", "aten.index", "aten.masked_fill", "aten.tril", "aten.triu", "aten.constant_pad", "aten.full",
         "aten.zeros", "aten.ones", "aten.empty", "aten.arange", "aten.fill", "aten.flip", "aten.roll", "aten.sort", "aten.topk", "aten.embedding",
         "aten.max_pool", "aten.hardtanh", "aten.clamp", "aten.threshold", "aten.repeat", "aten._to_copy", "aten.lift_fresh", "aten.select",
         "aten.scalar_tensor")
"""Operators that round nothing: their names begin so. What copies between dtypes is rounded where it is declared."""
PLAIN = ("aten.add", "aten.sub", "aten.mul", "aten.div", "aten.sqrt", "aten.rsub", "aten.reciprocal")
"""Rounded once. Any other elementwise operator gets four roundoffs, and two on its operands: fast math of an exponential errs by its exponent."""
FLOAT32 = 2.0**-24


class Known:
    """Contractions of tensors that all runs are given, with the spread of their sums: neither has noise in it, so that one run's are the next one's."""

    def __init__(self, held: Iterable[Any]) -> None:
        self._storages = {x.untyped_storage().data_ptr() for x in held}
        self._found: dict[tuple[Any, ...], tuple[Any, Any]] = {}

    def of(self, name: str, args: tuple[Any, ...], given: Mapping[str, Any], make: Callable[[], tuple[Any, Any]]) -> tuple[Any, Any]:
        """What `make` gives of these arguments, made once as long as nobody writes to them; each time where one of them is no tensor that was held."""
        tensors = [x for x in args if isinstance(x, torch.Tensor)]
        if given or not all(x.untyped_storage().data_ptr() in self._storages for x in tensors):
            return make()
        key = (name, *((x.data_ptr(), x.dtype, tuple(x.shape), x.stride(), x._version) if isinstance(x, torch.Tensor) else repr(x) for x in args))
        if key not in self._found:
            self._found[key] = make()
        return self._found[key]


def noisy(model: Any, inputs: list[Any], dtype: Any, seed: int, known: Known | None = None) -> Any:
    """The model's output in float64, with rounding noise of `dtype`. The model and its inputs are in float64 already; `known` is what runs of them share."""
    with torch.no_grad(), Noise(UNITS[dtype], seed, known):
        return model(*inputs)


class Noise(TorchDispatchMode):  # type: ignore[misc]  # torch leaves the class untyped
    """Disturbs the result of each operator that is called below it."""

    def __init__(self, unit: float, seed: int, known: Known | None = None) -> None:
        super().__init__()
        self.unit, self.random, self.known = unit, torch.Generator().manual_seed(seed), known or Known(())

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch's hook: wrapping the method below imports its compiler, which takes seconds and wants to write files."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        given, name = kwargs or {}, str(func)
        if name.startswith(EXACT) or "view" in name or func.is_view:
            return func(*args, **given)
        length = _length(name, args)
        if name.startswith(CONTRACTIONS) and length:
            def made() -> tuple[Any, Any]:
                out = func(*args, **given)
                spread = self._products(func, name, args, given)
                return out, torch.sqrt((FLOAT32 * FLOAT32) * (out * out * length / 9 + spread * length / 6) + (self.unit * out) ** 2)
            out, sigma = self.known.of(name, args, given, made)
            return out + sigma * self._normal(out)
        if length > 1 or not name.startswith(PLAIN):
            inner = 2 * self.unit if length <= 1 else max(self.unit, FLOAT32 * math.sqrt(length))
            mutable = func._schema.is_mutable
            moved = args if mutable else tuple(self._moved(x, inner) for x in args)
            out = func(*moved, **given)
            return self._each(out, 4 * self.unit + (FLOAT32 * math.sqrt(length) if length > 1 else 0.0), mutable)
        return self._each(func(*args, **given), self.unit, func._schema.is_mutable)

    def _normal(self, like: Any) -> Any:
        return torch.randn(like.shape, generator=self.random, dtype=torch.float64)

    def _moved(self, x: Any, scale: float) -> Any:
        return x * (1 + scale * self._normal(x)) if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    def _each(self, out: Any, scale: float, in_place: bool) -> Any:
        if isinstance(out, (tuple, list)):
            return type(out)(self._each(x, scale, in_place) for x in out)
        if in_place and isinstance(out, torch.Tensor) and out.is_floating_point():
            return out.mul_(1 + scale * self._normal(out))
        return self._moved(out, scale)

    def _products(self, func: Any, name: str, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """The sum of the squares of what is added, by the same operator on squares."""
        first = 1 if name.startswith(("aten.addmm", "aten.baddbmm", "aten.addmv")) else 0
        squares = [x * x if isinstance(x, torch.Tensor) and x.is_floating_point() and first <= i < first + 2 else x for i, x in enumerate(args)]
        if first:
            squares[0] = torch.zeros_like(squares[0])
        if name.startswith("aten.convolution"):
            squares[2] = None
        return func(*squares, **given).abs()


CONTRACTIONS = ("aten.mm", "aten.bmm", "aten.addmm", "aten.baddbmm", "aten.mv", "aten.addmv", "aten.dot", "aten.convolution", "aten.sum", "aten.cumsum")
"""Sums of products, or of their one operand."""


def _length(name: str, args: tuple[Any, ...]) -> int:
    """How many terms one element of the result is summed from; 1 for what is elementwise, or not known to sum."""
    tensors: list[Any] = [x for x in args if isinstance(x, torch.Tensor)]
    if not tensors:
        return 1
    rule = next((rule for word, rule in _TERMS.items() if word in name), None)
    try:
        return max(1, int(rule(tensors, args))) if rule is not None else 1
    except (IndexError, TypeError):
        return int(tensors[0].numel())


def _convolved(tensors: list[Any], args: tuple[Any, ...]) -> int:
    weight, transposed = tensors[1], bool(args[6])
    return int(math.prod(weight.shape[2:])) * int(weight.shape[0] // int(args[8]) if transposed else weight.shape[1])


def _reduced(tensors: list[Any], args: tuple[Any, ...]) -> int:
    """Over the axes that the second argument names, or all."""
    a, dims = tensors[0], args[1] if len(args) > 1 else None
    if isinstance(dims, int) and a.dim():
        return int(a.shape[dims])
    if not isinstance(dims, (list, tuple)) or not dims:
        return int(a.numel())
    return int(math.prod(a.shape[d] for d in dims))


def _channelwise(tensors: list[Any], args: tuple[Any, ...]) -> int:
    return int(tensors[0].numel()) // int(tensors[0].shape[1])


_TERMS: dict[str, Callable[[list[Any], tuple[Any, ...]], int]] = {
    "addmm": lambda t, _: t[1].shape[-1], "baddbmm": lambda t, _: t[1].shape[-1], "addmv": lambda t, _: t[1].shape[-1],
    "aten.mm": lambda t, _: t[0].shape[-1], "aten.bmm": lambda t, _: t[0].shape[-1], "aten.mv": lambda t, _: t[0].shape[-1],
    "aten.dot": lambda t, _: t[0].numel(), "convolution": _convolved, "layer_norm": lambda t, a: math.prod(a[1]), "rms_norm": lambda t, a: math.prod(a[1]),
    "group_norm": lambda t, a: int(a[4]) * int(a[5]) // int(a[6]), "batch_norm": _channelwise, "instance_norm": _channelwise,
    "logsumexp": _reduced, "softmax": _reduced, "linalg_vector_norm": lambda t, a: _reduced(t, (a[0], *a[2:])), "aten.norm": lambda t, a: t[0].numel(),
    "adaptive_avg_pool": lambda t, _: math.prod(t[0].shape[2:]), "avg_pool": lambda t, a: math.prod(a[1]),
    "scaled_dot_product": lambda t, _: int(t[1].shape[-2]), "cdist": lambda t, _: int(t[0].shape[-1]), "loss": lambda t, _: t[0].numel(),
    "cumprod": _reduced, "cumsum": _reduced, "aten.sum": _reduced, "aten.mean": _reduced, "aten.var": _reduced, "aten.std": _reduced, "aten.prod": _reduced,
}
"""By a part of an operator's name; the first that fits."""
