"""How long the command line takes to answer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from benchmarks.measure import Figure, best


def figures() -> Iterator[Figure]:
    """``kir --help`` and ``kir passes`` in a process of their own, interpreter start included."""
    for words in (["--help"], ["passes"], ["passes", "--json"]):
        command = [sys.executable, "-c", "from kir.faces.cli import main; main()", *words]
        seconds, _ = best(partial(subprocess.run, command, check=True, capture_output=True), runs=7)
        yield Figure(f"`kir {' '.join(words)}`", seconds, "s", 0.4, note="whole process")
