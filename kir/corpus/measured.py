"""On a GPU: one launch carried out by two functions on copies of its arguments; what they leave compared, and both timed."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

ROUNDS = 15
"""How often each is timed, in turns."""
MICROSECONDS = 1000.0
"""How long a timed batch of launches should take."""
Run = Callable[[dict[str, Any]], Any]


def compare(arguments: Mapping[str, Any], first: Run, second: Run) -> dict[str, Any]:
    """What `difference` says of both, and `seconds` of a launch of each, launches alone; or `failed` and why."""
    import torch

    one, other = copied(arguments), copied(arguments)
    first(one)
    second(other)
    out = difference(one, other)
    try:
        out["seconds"] = timed(arguments, one, other, first, second)
    except RuntimeError as bad:
        torch.cuda.synchronize()
        out["failed"] = str(bad).partition("\n")[0][:200]
    return out


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """`equal` (bit for bit), `difference` (the largest absolute one, over all tensors; infinite where only one is), `scale` (the largest
    value where they differ)."""
    import torch

    equal, worst, scale = True, 0.0, 0.0
    for name, x in one.items():
        if not isinstance(x, torch.Tensor) or not x.numel():
            continue
        a, b = x.detach(), other[name].detach()
        if torch.equal(a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8)):
            continue
        equal = False
        a64, b64 = a.to(torch.float64), b.to(torch.float64)
        gap = (a64 - b64).abs()
        same = (a64 == b64) | (a64.isnan() & b64.isnan())
        gap = torch.where(same, torch.zeros_like(gap), gap.nan_to_num(float("inf"), float("inf"), float("inf")))
        worst = max(worst, float(gap.max()))
        scale = max(scale, float(a64.nan_to_num(0.0, 0.0, 0.0).abs().max()))
    return {"equal": equal, "difference": worst, "scale": scale}


def copied(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with every tensor's memory copied; tensors that share memory still do."""
    import torch

    memory: dict[int, Any] = {}

    def copy(t: torch.Tensor) -> torch.Tensor:
        storage = t.untyped_storage()
        if storage.data_ptr() not in memory:
            memory[storage.data_ptr()] = storage.clone()
        made = torch.empty(0, dtype=t.dtype, device=t.device)
        made.set_(memory[storage.data_ptr()], t.storage_offset(), t.size(), t.stride())
        return made
    return {k: copy(v) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}


def timed(arguments: Mapping[str, Any], one: dict[str, Any], other: dict[str, Any], first: Run, second: Run) -> list[float]:
    """Seconds of a launch of each: the median of `samples`."""
    import statistics

    return [statistics.median(t) for t in samples(arguments, one, other, first, second)]


def samples(arguments: Mapping[str, Any], one: dict[str, Any], other: dict[str, Any], first: Run, second: Run) -> tuple[list[float], list[float]]:
    """Seconds of a launch of each: rounds of a captured batch, in turns, on memory set to the arguments before each."""
    import torch

    def graph(run: Run, values: dict[str, Any], launches: int) -> Any:
        made = torch.cuda.CUDAGraph()
        with torch.cuda.graph(made):
            for _ in range(launches):
                run(values)
        return made

    def restore(values: dict[str, Any]) -> None:
        for name, v in arguments.items():
            if isinstance(v, torch.Tensor) and v.numel():
                values[name].untyped_storage().copy_(v.untyped_storage())

    def once(g: Any, values: dict[str, Any]) -> float:
        restore(values)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        g.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3
    trial = graph(first, one, 5)
    once(trial, one)
    launches = int(min(500, max(5, MICROSECONDS * 1e-6 / max(once(trial, one) / 5, 1e-7))))
    graphs = [(graph(first, one, launches), one), (graph(second, other, launches), other)]
    for g, values in graphs:
        once(g, values)
    times: tuple[list[float], list[float]] = ([], [])
    for k in range(ROUNDS):
        for i in (k % 2, 1 - k % 2):  # neither is always first
            times[i].append(once(*graphs[i]) / launches)
    return times
