"""One call of a package's function, and what it must compute."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

Checked: TypeAlias = "Iterable[tuple[str, Any, Any]]"
"""What a case yields: a name, what the package computed, what it should have."""


@dataclass(frozen=True)
class At:
    """Where a case runs: a torch device, and whether its sizes are those of real use (a GPU) or as small as they can be (the CPU)."""

    device: str
    seed: int = 0

    def n(self, tiny: int, real: int) -> int:
        """A size."""
        return real if self.device == "cuda" else tiny

    def randn(self, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
        """Normal values."""
        return (torch.randn(*shape, device=self.device) * scale).to(dtype)

    def rand(self, *shape: int, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        """Uniform values."""
        return torch.rand(*shape, device=self.device) * (high - low) + low

    def ints(self, high: int, *shape: int, low: int = 0, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """Uniform integers below `high`."""
        return torch.randint(low, high, shape, device=self.device, dtype=dtype)


@dataclass(frozen=True)
class Case:
    """A named call; `run` yields what is to be compared. `within` is the largest error, as a share of the largest value."""

    name: str
    run: Callable[[At], Checked]
    within: float = 2e-3


class Cases:
    """The cases of one package, by name, in order."""

    def __init__(self) -> None:
        self.cases: list[Case] = []

    def __call__(self, name: str, within: float = 2e-3) -> Callable[[Callable[[At], Checked]], Callable[[At], Checked]]:
        """A decorator."""

        def add(run: Callable[[At], Checked]) -> Callable[[At], Checked]:
            self.cases.append(Case(name, run, within))
            return run

        return add

    def add(self, name: str, run: Callable[[At], Checked], within: float = 2e-3) -> None:
        """One more."""
        self.cases.append(Case(name, run, within))


def compare(got: Any, want: Any) -> float:
    """The largest difference as a share of the largest value that is wanted; infinite for other shapes, and for NaN or infinity in one only."""
    if isinstance(want, (tuple, list)):
        if len(got) < len(want):
            return math.inf
        return max((compare(g, w) for g, w in zip(got, want)), default=0.0)
    if not isinstance(want, torch.Tensor):
        return 0.0 if want is None or got == want else math.inf
    if not isinstance(got, torch.Tensor) or tuple(got.shape) != tuple(want.shape):
        return math.inf
    if not want.numel():
        return 0.0
    wide = torch.complex128 if want.is_complex() or got.is_complex() else torch.float64
    a, b = got.detach().to(wide), want.detach().to(wide)
    if wide is torch.complex128:
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    odd = ~(a.isfinite() & b.isfinite())
    if bool(odd.any()) and not torch.equal(a[odd].nan_to_num(7.0, 8.0, 9.0), b[odd].nan_to_num(7.0, 8.0, 9.0)):
        return math.inf
    a, b = a[~odd], b[~odd]
    if not a.numel():
        return 0.0
    return float((a - b).abs().max() / b.abs().max().clamp_min(1e-3))


def with_gradients(fn: Callable[..., Any], oracle: Callable[..., Any], *inputs: Any, exact: Sequence[int] = ()) -> Iterator[tuple[str, Any, Any]]:
    """Both functions on copies of the inputs: what they return, and the gradients of all floating inputs under the same random ones of the
    results."""
    ours, theirs = _leaves(inputs), _leaves(inputs)
    got, want = _results(fn(*ours)), _results(oracle(*theirs))
    for i, w in enumerate(want):
        yield f"result {i}", got[i], w.to(got[i].dtype) if isinstance(w, torch.Tensor) else w
    pairs = [(g, w) for g, w in zip(got, want) if isinstance(w, torch.Tensor) and w.requires_grad and g.requires_grad]
    if not pairs:
        return
    ups = [torch.randn_like(w) for _, w in pairs]
    wanted = [x for x in theirs if isinstance(x, torch.Tensor) and x.requires_grad]
    refs = torch.autograd.grad([w for _, w in pairs], wanted, ups, allow_unused=True)
    made = torch.autograd.grad(
        [g for g, _ in pairs],
        [x for x in ours if isinstance(x, torch.Tensor) and x.requires_grad],
        [u.to(g.dtype) for u, (g, _) in zip(ups, pairs)],
        allow_unused=True,
    )
    for i, (g, w) in enumerate(zip(made, refs, strict=True)):
        if w is not None and i not in exact:
            yield f"gradient {i}", g, w


def _leaves(inputs: Sequence[Any]) -> list[Any]:
    return [x.detach().clone().requires_grad_(x.is_floating_point()) if isinstance(x, torch.Tensor) else x for x in inputs]


def _results(value: Any) -> list[Any]:
    return [x for x in (value if isinstance(value, (tuple, list)) else [value]) if x is not None]
