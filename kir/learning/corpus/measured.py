"""On a GPU: one launch carried out by two functions on copies of its arguments; what they leave compared, and both timed."""
from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from kir.hardware.device.turns import Turns

MICROSECONDS = 1000.0
"""How long a timed batch of launches should take."""
ROUNDS = 15
"""How often a batch of each is timed, in turns."""
SHORT, MANY_ROUNDS = 20e-6, 41
"""Launches below so many seconds are timed in more rounds: a batch of them is as short as what else goes on."""
NEAR, REPEATS = 1.05, 2
"""Where one takes so much longer than the other, in either direction, both are timed again, so many times; all rounds count."""
AT_ONCE = 1 << 24
"""Values that are compared at once, in float64: others may need memory too."""
Run = Callable[[dict[str, Any]], Any]


def compare(arguments: Mapping[str, Any], first: Run, second: Run) -> dict[str, Any]:
    """What `difference` says of both, what was compiled (`code`), and `seconds` of a launch of each, launches alone; or `failed` and why."""
    import torch

    with Turns.of().beside():
        one, other = copied(arguments), copied(arguments)
        made = first(one), second(other)
        out = difference(one, other)
    out["code"] = _code(*made)
    try:
        with Turns.of().alone():
            out["seconds"], out["rounds"] = timed(arguments, one, first, second)
    except RuntimeError as bad:
        torch.cuda.synchronize()
        out["failed"] = str(bad).partition("\n")[0][:200]
    return out


def _code(one: Any, other: Any) -> dict[str, Any]:
    """Whether both compiled kernels hold the same instructions, and registers, spilled registers and shared bytes of each; nothing where
    the launcher does not say."""
    texts = [getattr(k, "asm", {}).get("ptx") for k in (one, other)]
    if None in texts:
        return {}
    names = [str(k.metadata.name) for k in (one, other)]
    same = instructions(str(texts[0]), names[0]) == instructions(str(texts[1]), names[1])
    figures = {word: [int(getattr(k, word, 0) or 0) for k in (one, other)] for word in ("n_regs", "n_spills")}
    return {"same": same, **figures, "shared": [int(k.metadata.shared) for k in (one, other)]}


def instructions(ptx: str, name: str) -> list[str]:
    """The lines of PTX that decide what runs: without the kernel's name, comments, and what a debugger reads."""
    body = ptx.partition(".section")[0].replace(name, "kernel")
    lines = (line.partition("//")[0].strip() for line in body.splitlines())
    return [line for line in lines if line and not line.startswith((".loc", ".file")) and not _LABEL.fullmatch(line)]


_LABEL = re.compile(r"\$L__tmp\d+:")


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
        for some, theirs in zip(a.reshape(-1).split(AT_ONCE), b.reshape(-1).split(AT_ONCE), strict=True):
            a64, b64 = some.to(torch.float64), theirs.to(torch.float64)
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


def timed(arguments: Mapping[str, Any], values: dict[str, Any], first: Run, second: Run) -> tuple[list[float], int]:
    """Seconds of a launch of each, the medians of `samples`, and how many rounds were timed."""
    times = samples(arguments, values, first, second)
    return [statistics.median(t) for t in times], len(times[0])


def samples(arguments: Mapping[str, Any], values: dict[str, Any], first: Run, second: Run) -> tuple[list[float], list[float]]:
    """Seconds of a launch of each: rounds of a captured batch, the two in turns. Both work on the same memory, which is set to the arguments
    before each batch; where they are apart after the first rounds, more follow."""
    import torch

    def graph(run: Run, launches: int) -> Any:
        made = torch.cuda.CUDAGraph()
        with torch.cuda.graph(made):
            for _ in range(launches):
                run(values)
        return made

    def restore() -> None:
        for name, v in arguments.items():
            if isinstance(v, torch.Tensor) and v.numel():
                values[name].untyped_storage().copy_(v.untyped_storage())

    def once(g: Any) -> float:
        restore()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        g.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3
    trial = graph(first, 5)
    once(trial)
    about = max(once(trial) / 5, 1e-7)
    launches = int(min(500, max(5, MICROSECONDS * 1e-6 / about)))
    graphs = graph(first, launches), graph(second, launches)
    for g in graphs:
        once(g)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(1 + REPEATS):
        for k in range(MANY_ROUNDS if about < SHORT else ROUNDS):
            for i in (k % 2, 1 - k % 2):  # neither is always first
                times[i].append(once(graphs[i]) / launches)
        a, b = (statistics.median(t) for t in times)
        if max(a, b) <= NEAR * min(a, b):
            break
    return times
