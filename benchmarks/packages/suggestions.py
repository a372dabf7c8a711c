"""``python -m benchmarks.packages.suggestions --out DIR``: are the top suggestions of `kir sites --package` right, and do they pay?

Takes the ranking (`--ranking FILE`, the output of `kir sites .. --package --json`; without it the recorded bindings are ranked first), the
best suggestion of each of the `--top` kernels that come first, and tries each in a process of its own: the pass is applied with all its
preconditions, the kernel is written, compared with the package's own on the same random arguments, and both are timed in turns. Processes
prepare side by side and are timed one after another.

Writes ``gpu-suggestions.md`` with the hit rate, and one line of JSON a suggestion beside it. A suggestion is a *hit* when its kernel is right
and the whole interval of the measured ratio lies above 1.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from math import log2
from pathlib import Path
from typing import Any

from benchmarks.packages.__main__ import device_name
from kir.base.store import write_atomic
from kir.hardware.target import target
from kir.learning.corpus.rank import ranked, recorded

ROOT = Path(__file__).parents[2]
BINDINGS = ROOT / "benchmarks" / "results" / "gpu-packages.jsonl"
"""Where launches at the sizes of real use are recorded."""
TARGET = "sm_90a"
Row = dict[str, Any]


def chosen(suggestions: Sequence[Mapping[str, Any]], bindings: Path, top: int) -> list[Row]:
    """The best suggestion of each of the first `top` kernels, of those that may be applied and that the model says gain: `kernel`, `step`,
    `gain` (modelled, as a ratio), and the binding's `text`."""
    texts = {(place, path.name): path.read_text(encoding="utf-8") for place, path in recorded(bindings)}
    out: dict[str, Row] = {}
    for s in suggestions:
        place = str(s["kernel"])
        if s["refused"] or s["undecided"] or s["log2_gain"] <= 0 or place in out or (place, s["binding"]) not in texts:
            continue
        out[place] = {"kernel": place, "step": s["step"], "gain": 2 ** s["log2_gain"], "target": TARGET, "text": texts[place, s["binding"]]}
    return sorted(out.values(), key=lambda r: -r["gain"])[:top]


class Trial:
    """The process of one suggestion."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.begun = time.monotonic()
        paths = os.pathsep.join([str(ROOT), *([os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else [])])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.packages.suggestion"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self._write(json.dumps(row))

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def _write(self, line: str) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it is gone: its last line, or that there is none, says so

    def answer(self, seconds: float) -> Row:
        """Its next line, `failed` when there is none in time."""
        until = time.monotonic() + seconds
        while True:
            try:
                line = self.lines.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                self.end()
                return {"failed": f"it took longer than {seconds:.0f} s"}
            if not line:
                return {"failed": f"its process died ({self.process.wait()})"}
            try:
                said = json.loads(line)
            except ValueError:
                continue  # what the package prints
            if isinstance(said, dict):
                return said

    def outcome(self, seconds: float) -> Row:
        """Let a prepared suggestion be timed, and what came of it."""
        self._write("go")
        return self.answer(seconds)

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def trials(rows: Sequence[Row], jobs: int, seconds: float) -> Iterator[Row]:
    """What came of each, in order. Up to `jobs` are prepared side by side; then those are timed one after another."""
    for first in range(0, len(rows), jobs):
        group = [Trial(row) for row in rows[first : first + jobs]]
        ready = [each.answer(seconds) for each in group]
        for trial, said in zip(group, ready, strict=True):
            result = trial.outcome(seconds) if said.get("ready") else said
            trial.end()
            yield {**{k: v for k, v in trial.row.items() if k != "text"}, **result}


def is_hit(row: Row) -> bool:
    """Right, and faster with its whole interval."""
    return bool(row.get("right")) and "ratio" in row and row["ratio"]["interval"][0] > 1


def page(rows: Sequence[Row], device: str, command: str, ranked_of: str) -> str:
    """The table in Markdown."""
    timed = [r for r in rows if "ratio" in r]
    hits = [r for r in timed if is_hit(r)]
    signed = [r for r in timed if (r["ratio"]["median"] > 1) == (r["gain"] > 1)]
    share = f"{100 * len(hits) / len(rows):.0f} %" if rows else "none"
    lines = [
        "# Suggestions, tried",
        "",
        f"Made by `{command}`{f' on {device}' if device else ''}. {ranked_of}",
        "",
        f"{len(rows)} suggestions were tried; {sum(bool(r.get('right')) for r in rows)} kernels are right, {len(timed)} were timed. "
        f"**Hit rate: {len(hits)} of {len(rows)} ({share})** are right and faster with their whole interval; "
        f"{len(signed)} of the {len(timed)} timed are on the side of 1 that the model says.",
        "",
        "| kernel | pass | modelled gain | measured, times faster | original, us | with the pass, us | right |",
        "| --- | --- | ---: | --- | ---: | ---: | --- |",
    ]
    for r in rows:
        kernel, step = r["kernel"], str(r["step"]).replace("|", "\\|")
        if "ratio" in r:
            low, high = r["ratio"]["interval"]
            shown = f"{r['ratio']['median']:.3f} ({low:.3f} to {high:.3f}) | {r['seconds'][0] * 1e6:.2f} | {r['seconds'][1] * 1e6:.2f}"
        else:
            shown = "not timed | | "
        wrong = str(r.get("failed") or f"no: off by {r.get('difference', 0.0):.1e}").replace("|", "\\|")
        right = "bit for bit" if r.get("equal") else "yes" if r.get("right") else wrong
        lines.append(f"| `{kernel}` | `{step}` | {r['gain']:.3f} | {shown} | {right} |")
    off = [abs(log2(r["ratio"]["median"]) - log2(r["gain"])) for r in timed]
    if off:
        lines += ["", f"Between the modelled and the measured logarithm (base 2) of the gain lie {sorted(off)[len(off) // 2]:.2f} in the median."]
    return "\n".join(lines) + "\n"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bindings", type=Path, default=BINDINGS, help="recorded launches (JSON lines, or a folder)")
    parser.add_argument("--ranking", type=Path, default=None, help="what `kir sites BINDINGS --package --json` printed")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results", help="the folder of the table")
    parser.add_argument("--top", type=int, default=16, help="how many are tried")
    parser.add_argument("--jobs", type=int, default=0, help="how many are prepared side by side (0: one a core, at most 16)")
    parser.add_argument("--seconds", type=float, default=90.0, help="how long preparing one, and timing it, may take")
    given = parser.parse_args()
    jobs = given.jobs or min(16, os.cpu_count() or 1)
    if given.ranking is not None:
        data = json.loads(given.ranking.read_text(encoding="utf-8"))
        suggestions, kernels = data["suggestions"], data.get("kernels", 0)
    else:
        found = ranked(given.bindings, target(TARGET), jobs=jobs, seconds=20.0)
        suggestions, kernels = [s.to_json() for s in found.suggestions], found.kernels
    allowed = sum(1 for s in suggestions if not s["refused"] and not s["undecided"] and s["log2_gain"] > 0)
    rows = list(trials(chosen(suggestions, given.bindings, given.top), jobs, given.seconds))
    of = f"Ranked: {len(suggestions)} sites in {kernels} recorded kernels, of which {allowed} may be applied and gain by the model; the best of each kernel."
    text = page(rows, device_name(), f"python -m benchmarks.packages.suggestions --top {given.top}", of)
    given.out.mkdir(parents=True, exist_ok=True)
    write_atomic(given.out / "gpu-suggestions.md", text)
    write_atomic(given.out / "gpu-suggestions.jsonl", "".join(json.dumps(r) + "\n" for r in rows))
    print(text)


if __name__ == "__main__":
    main()
