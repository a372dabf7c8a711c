"""``python -m benchmarks.shapings --count 2000 --seed 1``: does every shaping of one memory read to a program that computes the same?

Random kernels of families in all three surfaces, and kernels of installed packages, address their tensors flat. Each is read twice: with every
memory declared as one axis, and with a random factorization. The two programs are run on the same numbers at several sizes and compared bit
for bit; at the first, checking must find the same in both. Writes `benchmarks/results/shapings.md`.
"""
from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path

from benchmarks.shapings.draw import Outcome, outcomes

ROOT = Path(__file__).parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--family", default="", help="only families with this in their name")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", action="store_true", help="print sources and bindings of what differs")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "shapings.md")
    given = parser.parse_args()
    began = time.monotonic()
    found: list[Outcome] = []
    for outcome in outcomes(given.seed, given.count, given.workers, given.family):
        found.append(outcome)
        if outcome.said:
            print(outcome.line(), flush=True)
            if given.show:
                print(outcome.source, outcome.binding, sep="\n", flush=True)
    text = page(found, given.seed)
    print(text)
    print(f"{time.monotonic() - began:.0f} s")
    if not given.family:
        given.out.write_text(text, encoding="utf-8")
    return 1 if any(o.said and not o.refused for o in found) else 0


def page(found: list[Outcome], seed: int) -> str:
    """The table of a run."""
    kinds = sorted({(o.surface, o.family) for o in found})
    all_, kept = Counter((o.surface, o.family) for o in found), Counter((o.surface, o.family) for o in found if o.flat)
    wrong, refused = (Counter((o.surface, o.family) for o in found if o.said and o.refused is r) for r in (False, True))
    shown = [f"| {s} | {f} | {all_[s, f]} | {all_[s, f] - kept[s, f]} | {refused[s, f]} | {wrong[s, f]} |" for s, f in kinds]
    differing = sum(wrong.values())
    return "\n".join([
        "# One memory, shaped in many ways", "",
        f"Written by `python -m benchmarks.shapings --count {len(found)} --seed {seed}`. A kernel that addresses its tensors flat is read with each memory",
        "declared as one axis, and with a random factorization: axes put together, split, in another order, of extent 1. Both programs are run on the",
        "same numbers at several sizes and compared bit for bit, and checked at one. *Raised*: shapings under which no access stayed flat. *Refused*:",
        "the kernel is refused, with every shape alike.", "",
        f"{len(found)} shapings, {differing} differences.", "",
        "| surface | family | shapings | raised | refused | differ |", "| --- | --- | --- | --- | --- | --- |", *shown,
        f"| all | | {len(found)} | {len(found) - sum(kept.values())} | {sum(refused.values())} | {differing} |", ""])


if __name__ == "__main__":
    sys.exit(main())
