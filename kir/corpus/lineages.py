"""Lineages of many kernels: each recorded binding walked back in a process of its own, and why the others stopped, counted."""
from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kir.corpus.count import general
from kir.corpus.rank import recorded

TARGET = "sm_90a"
"""What every state is compiled for."""


def walk_all(bindings: Path, output: Path, seconds: float, jobs: int, advance: Callable[[str], None] = lambda text: None) -> list[dict[str, Any]]:
    """One row a binding: `kernel`, `binding`, `ended` (`naive`, or what ended the walk), `reason`, `steps`, `intents`. A walk that was
    begun in the output folder goes on where it was. Raises UsageError KIR-C118 when nothing is recorded."""
    def one(job: tuple[str, Path]) -> dict[str, Any]:
        place, binding = job
        row = _walk(place, binding, output / binding.stem, seconds)
        advance(binding.stem)
        return row
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        return list(pool.map(one, recorded(bindings)))


def _walk(place: str, binding: Path, folder: Path, seconds: float) -> dict[str, Any]:
    script = "import sys; from kir.cli import main; main(sys.argv[1:])"
    words = [sys.executable, "-c", script, "lineage", place, "--bind", str(binding), "-o", str(folder), "--seconds", str(seconds),
             "--workers", "1", "--target", TARGET, "--json"]
    row: dict[str, Any] = {"kernel": place, "binding": binding.name, "ended": "failed", "reason": "", "steps": 0, "intents": []}
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10 * seconds + 300)
        said = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return row | {"reason": "it took ten times as long as it was given"}
    except ValueError:
        return row | {"reason": "the walk ended without a word"}
    if said.get("schema") == "kir.error/1":
        first = said["diagnostics"][0]
        return row | {"reason": f"{first['id']} {first['message']}"}
    left = said["violations"][0] if said["violations"] else ""
    stopped = left.get("message", "") if isinstance(left, dict) else str(left)
    return row | {"ended": said["ended"], "reason": "" if said["ended"] == "naive" else f"{said['reason']}{f'; {stopped}' if stopped else ''}",
                  "steps": said["steps"], "intents": said["intents"]}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many ended naive, in how many files (families), and the reasons of the others by how often they stopped one."""
    naive = [r for r in rows if r["ended"] == "naive"]
    reasons = Counter(general(r["reason"]) for r in rows if r["ended"] != "naive")
    return {"walked": len(rows), "naive": len(naive), "families": len({r["kernel"].partition("::")[0] for r in naive}),
            "stopped": [{"reason": k, "kernels": v} for k, v in reasons.most_common()]}
