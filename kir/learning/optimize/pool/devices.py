"""Which GPUs of this machine a pool uses: those that were named, of one kind, that nobody else is using."""
from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.hardware.device.clocks import load
from kir.hardware.machine import Gpu

BUSY = 10
"""Percent of the driver's sampling period from which on a GPU is someone else's."""
SAMPLES, PAUSE = 3, 0.2
"""How often a GPU's load is asked for before a run, and the seconds between: a kernel of ours that has just ended is still in the first."""


SHARING = 4
"""Candidates that are gated at once for each GPU: as many as a search prepares together. What takes a processor is done side by side, what is timed in
turns."""


SEARCHING = 16
"""Whole searches at once for each GPU: those of a package's calls do not wait for one another."""


def workers_each(gpus: int, sharing: int = SHARING) -> int:
    """Processes for each of so many GPUs: `sharing`, fewer where the cores that this process may use do not suffice."""
    return max(1, min(sharing, (len(os.sched_getaffinity(0)) - 1) // max(1, gpus)))


@dataclass(frozen=True)
class Chosen:
    """Numbers of GPUs, as CUDA counts them, and of each that was left out why."""

    numbers: tuple[int, ...]
    left: Mapping[int, str]


def parsed(words: str) -> tuple[int, ...]:
    """`0,2` as numbers, none for an empty text. Raises KirError KIR-U036 for what is none."""
    try:
        return tuple(dict.fromkeys(int(word) for word in words.split(",") if word.strip()))
    except ValueError:
        raise error("KIR-U036", f"--gpus {words}: this is no list of GPUs", needs="numbers, as in 0,2") from None


def chosen(known: Sequence[Gpu], wanted: Sequence[int] = (), loads: Callable[[int], Mapping[str, int]] = load) -> Chosen:
    """Those of `known` (or of the `wanted` ones) that are of the commonest kind and idle. Raises KirError KIR-U036 for a number that no GPU has, and where
    none is left."""
    there = {gpu.index: gpu for gpu in known}
    if missing := [n for n in wanted if n not in there]:
        raise error("KIR-U036", f"there is no GPU {missing[0]}: this machine has {', '.join(map(str, there)) or 'none'}", needs="numbers of GPUs that it has")
    asked = {n: there[n] for n in (wanted or there)}
    left: dict[int, str] = {}
    seen: dict[int, list[int]] = {n: [] for n in asked}
    for _ in range(SAMPLES):
        time.sleep(PAUSE)
        for n, said in seen.items():
            said.append(int(loads(n).get("busy", 0)))
    left |= {n: f"someone else keeps it busy ({busy} % of the time)" for n, said in seen.items() if (busy := min(said)) >= BUSY}
    kinds = Counter(gpu.name for n, gpu in asked.items() if n not in left)
    if kinds:
        kind = max(kinds, key=lambda name: kinds[name])
        left |= {n: f"it is another kind ({gpu.name}, not {kind}), whose times say nothing of these" for n, gpu in asked.items()
                 if n not in left and gpu.name != kind}
    numbers = tuple(n for n in asked if n not in left)
    if not numbers:
        raise error("KIR-U036", "no GPU is free", needs="; ".join(f"GPU {n}: {why}" for n, why in sorted(left.items())) or "a GPU")
    return Chosen(numbers, left)


__all__ = ["BUSY", "SEARCHING", "SHARING", "Chosen", "chosen", "parsed", "workers_each"]
