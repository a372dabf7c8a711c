"""Two measurements of the same kernels, in processes and at times of their own: the part `again` makes one, and

    python -m benchmarks.gpu_parts.again FIRST.jsonl SECOND.jsonl OUT

writes the table that compares two of them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.gpu_parts.session import Row, Session
from kir.base.store import write_atomic
from kir.gate.gpu import Options, gate_gpu

KERNELS = ("narrowed naive", "gemm gemm_sm80_lanes.kir", "gemm triton.py::gemm_persistent", "rmsnorm rmsnorm.cu::rmsnorm")
LONG, WITHIN_LONG, WITHIN_SHORT = 50e-6, 0.02, 0.05
"""Seconds from which a kernel is long, and how far apart its medians may be; and those of shorter ones."""
HEAD = ("kernel", "shape", "first (us)", "95 %", "later (us)", "95 %", "apart", "asked for", "met")


def again(s: Session) -> None:
    """One measurement: `gpu-again-TIME.jsonl`; with an earlier one in the folder also the table of both."""
    from tests.red_team.honest import HONEST

    own = s.out / f"gpu-again-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}.jsonl"
    lines = []
    for each in [h for h in HONEST if h.name in KERNELS]:
        program, problem, surface = each.loaded()
        verdict = gate_gpu(s.gpu, program, problem, surface, options=Options(panel=False, interpret=False, sanitize=False))
        for r in verdict.profile:
            if r.kind == "measured" and r.interval:
                row = {"at": time.time(), "kernel": each.name, "shape": r.shape, "median": r.seconds, "interval": list(r.interval), "clocks": s.gpu.clocks(),
                       "device": s.gpu.about["name"]}
                lines.append(json.dumps(row))
                print(lines[-1], flush=True)
        write_atomic(own, "\n".join([*lines, ""]))
    earlier = [f for f in sorted(s.out.glob("gpu-again-*.jsonl")) if f != own]
    if earlier:
        written(earlier[0], own, s.out)


def compared(first: Path, second: Path) -> Iterator[Row]:
    """A row for each kernel and shape that both have."""
    def rows(path: Path) -> dict[tuple[str, str], dict[str, object]]:
        return {(r["kernel"], r["shape"]): r for line in path.read_text().splitlines() for r in [json.loads(line)]}
    before, after = rows(first), rows(second)
    for key in [k for k in before if k in after]:
        a, b = before[key], after[key]
        x, y = float(str(a["median"])), float(str(b["median"]))
        apart, allowed = abs(x / y - 1), WITHIN_LONG if min(x, y) > LONG else WITHIN_SHORT
        yield (*key, *_shown(a), *_shown(b), f"{apart:.2%}", f"{allowed:.0%}", "yes" if apart <= allowed else "NO")


def _shown(row: dict[str, object]) -> tuple[str, str]:
    low, high = (float(x) * 1e6 for x in row["interval"])  # type: ignore[attr-defined]  # a list of two numbers
    at = time.strftime("%H:%M:%S", time.gmtime(float(str(row["at"]))))
    return f"{float(str(row['median'])) * 1e6:.2f} at {at}", f"{low:.2f} .. {high:.2f}"


def written(first: Path, second: Path, out: Path) -> None:
    """`gpu-again.md` in the folder `out`."""
    some = json.loads(second.read_text().splitlines()[0])
    lines = ["# The same kernels again", "",
             f"Made by `python -m benchmarks.gpu_parts.again {first.name} {second.name} ..` from two runs of `python -m benchmarks.gpu again` on "
             f"{some['device']}, each in processes and on a lease of its own; clocks of the second: {some['clocks']}.", "",
             "| " + " | ".join(HEAD) + " |", "| " + " | ".join("---" for _ in HEAD) + " |"]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in compared(first, second)]
    write_atomic(out / "gpu-again.md", "\n".join([*lines, ""]))


def main(words: Sequence[str]) -> int:
    """The command; 2 for wrong words."""
    if len(words) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    written(Path(words[0]), Path(words[1]), Path(words[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
