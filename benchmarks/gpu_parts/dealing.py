"""Parts dealt to several GPUs: one process a part, one part a GPU at a time, each GPU with cores of its own.

``honest/3`` is three shares of a part, which may run side by side; their tables are put together at the end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from benchmarks.gpu_parts.session import ROOT
from kir.base.store import write_atomic

LEFT_SECONDS = 15.0
"""How long a part may still take once no further row is begun, as a share of the whole time and at least; then it is ended."""


def shares(word: str) -> tuple[str, int]:
    """A part and into how many shares it is dealt."""
    part, _, count = word.rpartition("/")
    return (part, int(count)) if part and count.isdigit() and int(count) > 0 else (word, 1)


def dealt(words: Sequence[str], gpus: int, out: Path, seconds: float) -> int:
    """Run the parts, those named first before the others, on so many GPUs. The highest exit code of them."""
    tasks = [(part, number, count) for word in words for part, count in [shares(word)] for number in range(count)]
    visible = [x for x in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if x] or [str(i) for i in range(gpus)]
    cores, until, codes, lock = sorted(os.sched_getaffinity(0)), time.monotonic() + seconds, [0], threading.Lock()

    def work(gpu: int) -> None:
        while True:
            with lock:
                if not tasks or time.monotonic() > until:
                    return
                part, number, count = tasks.pop(0)
            codes.append(_one(part, number, count, visible[gpu], cores[gpu::gpus], out, until))

    crew = [threading.Thread(target=work, args=(i,)) for i in range(min(gpus, len(visible)))]
    for each in crew:
        each.start()
    for each in crew:
        each.join()
    for part, number, _ in tasks:
        print(f"== {part}, share {number}: not begun, time is over", flush=True)
    for word in dict.fromkeys(words):
        part, count = shares(word)
        if count > 1:
            together(part, count, out)
    return max(codes)


def _one(part: str, number: int, count: int, gpu: str, cores: Sequence[int], out: Path, until: float) -> int:
    """One share of a part in a process of its own; what it says goes to a file, and its last lines to the terminal."""
    name = part.replace(":", "-").replace("/", "-") + (f"-{number}" if count > 1 else "")
    left = until - time.monotonic()
    command = [sys.executable, "-m", "benchmarks.gpu", "--out", str(out), "--seconds", f"{left:.0f}", "--share", f"{number}/{count}", part]
    log, begun = out / f"log-{name}.txt", time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    with log.open("w") as told:
        process = subprocess.Popen(command, cwd=ROOT, stdout=told, stderr=subprocess.STDOUT, start_new_session=True,
                                   env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu, "PYTHONPATH": os.environ.get("PYTHONPATH") or str(ROOT)})
        os.sched_setaffinity(process.pid, cores)
        try:
            code = process.wait(left + max(LEFT_SECONDS, 0.06 * left))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            code = process.wait()
    print(f"== {name} on GPU {gpu}: exit {code} after {time.monotonic() - begun:.0f} s\n" + "\n".join(log.read_text().splitlines()[-6:]), flush=True)
    return abs(code)


def together(part: str, count: int, out: Path) -> None:
    """The shares' tables as one, rows in the order of the whole part; raw records one after another."""
    stem, _, only = part.partition(":")
    name = f"gpu-{stem}{f'-{only}' if only else ''}"
    tables = [f.read_text().splitlines() for i in range(count) if (f := out / f"{name}-share-{i}.md").is_file()]
    if not tables:
        return
    where = [next(i for i, line in enumerate(t) if line.startswith("| ---")) for t in tables]
    rows = [row for some in zip_longest(*(t[at + 1:] for t, at in zip(tables, where, strict=True))) for row in some if row]
    write_atomic(out / f"{name}.md", "\n".join([*tables[0][: where[0] + 1], *rows, ""]))
    records = [f for i in range(count) if (f := out / f"{name}-share-{i}.jsonl").is_file()]
    if records:
        write_atomic(out / f"{name}.jsonl", "".join(f.read_text() for f in records))
    for i in range(count):
        for kind in ("md", "jsonl"):
            (out / f"{name}-share-{i}.{kind}").unlink(missing_ok=True)
