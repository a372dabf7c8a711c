"""Confining a process: no network, read-only files, limits, fewer system calls; as much of it as the kernel grants, and what that is.

    granted = confine(Limits(writable=("/tmp/job",), seconds=60))       # the calling process, from here on and for good
    run(command_line(["nvcc", ...], Limits(...)))                       # another program
    probed().text                                                       # what this machine grants, found by trying it
"""
from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from kir.hardware.confine.limits import Level, Limits
from kir.hardware.confine.sandbox import confined, words

SECONDS = 20
"""How long the probe may take."""


def command_line(command: Sequence[str | Path], limits: Limits) -> list[str]:
    """`command` behind a launcher that confines itself first: Python without site packages, and one file; it adds some 20 ms."""
    return [*_python("import sandbox; sandbox.launch(sys.argv[1:])"), *words(limits), "--", *(str(word) for word in command)]


def _python(statement: str) -> list[str]:
    """A statement over the modules of this folder and the words that follow. They are imported, so that what has been compiled of them is used."""
    return [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({str(Path(__file__).parent)!r}); {statement}"]


def confine(limits: Limits) -> Level:
    """Confine the calling process, which must have one thread, for good. What the kernel does not grant is left out of the level."""
    return Level(*confined(limits))


@cache
def probed() -> Level:
    """What a confined process of this machine cannot do: the level, each part tried and seen to refuse."""
    try:
        tell = _python("import probe, sandbox; probe.tell(*sandbox.confined(sandbox.Told(sys.argv[1:])))")
        done = subprocess.run([*tell, *words(Limits())], capture_output=True, text=True, timeout=SECONDS, check=False)
        return Level.from_json(json.loads(done.stdout))
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        return Level()


__all__ = ["Level", "Limits", "command_line", "confine", "probed"]
