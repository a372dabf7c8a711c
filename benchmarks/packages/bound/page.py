"""The page of kernels that were launched as their host code says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from benchmarks.packages.bound.prepared import Row

SLACK = 1.05


def page(rows: Sequence[Row], device: str) -> str:
    """The tables in Markdown."""
    right = sorted((r for r in rows if r["state"] == "equal"), key=lambda r: r["case"])
    timed = [(r, r["measured"]["seconds"]) for r in right if "seconds" in r["measured"]]
    within = sum(b <= SLACK * a for _, (a, b) in timed)
    lines = ["# Kernels that KIR wrote, launched as host code says, on a GPU", "",
             f"Made by `python -m benchmarks.packages.bound`{f' on {device}' if device else ''}: kernels that the page of packages does not hold. No case was "
             "written for them: the launch is what KIR reads of the host code (docs/using/your-own-kernel.md), the tensors are filled by chance, and the "
             "package's own kernel is the oracle: for a kernel that is *unfit*, it does not compile or run with what was found of the launch.", "",
             "| package | kernels that were begun | launched both ways | equal | leave memory as it was | the original disagrees with itself | differ |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for package in sorted({r["case"].partition(":")[0] for r in rows}):
        states = Counter(r["state"] for r in rows if r["case"].startswith(f"{package}:"))
        counts = [states[x] for x in ("equal", "idle", "unsteady", "differs")]
        lines.append(f"| {package} | {states.total()} | {sum(counts)} | {' | '.join(map(str, counts))} |")
    lines += ["", f"{len(right)} kernels are right, {sum(r['measured']['equal'] for r in right)} of them bit for bit. {len(timed)} were timed; {within} "
              f"({100 * within / max(1, len(timed)):.0f} %) take at most {SLACK} of the original's time.", "",
              *_again(rows), "| kernel | hash | bit for bit | original, us | written, us | ratio |", "| --- | --- | --- | ---: | ---: | ---: |"]
    for r in right:
        times = r["measured"].get("seconds")
        shown = f"{times[0] * 1e6:.2f} | {times[1] * 1e6:.2f} | {times[1] / times[0]:.3f}" if times else " | | "
        lines.append(f"| `{r['case']}` | {r['hash']} | {'yes' if r['measured']['equal'] else 'no'} | {shown} |")
    reasons = Counter((r["state"], _alike(r["reason"])) for r in rows if r["state"] not in ("equal", "idle", "unsteady"))
    lines += ["", "## The others", "", "| state | reason | kernels |", "| --- | --- | ---: |"]
    lines += [f"| {state} | {reason.replace('|', chr(92) + '|')} | {count} |" for (state, reason), count in reasons.most_common(60)]
    return "\n".join(lines) + "\n"


def _again(rows: Sequence[Row]) -> list[str]:
    """What came of those that were drawn from the rows and run once more, by the code that they name."""
    drawn = [r for r in rows if r.get("again")]
    if not drawn:
        return []
    right = [r for r in drawn if r["state"] == "equal"]
    commits = ", ".join(sorted({f"`{r['again']}`" for r in drawn}))
    within = [b <= SLACK * a for a, b in (r["measured"]["seconds"] for r in right if "seconds" in r["measured"])]
    return [f"{len(drawn)} that had been right were drawn by chance and run again by the code of {commits}: "
            f"{len(right)} are right, and {sum(within)} of {len(within)} timed take at most {SLACK} of the original's time.", ""]


def _alike(reason: str) -> str:
    return re.sub(r"'[^']*'", "'..'", reason.partition("\n")[0])[:120]
