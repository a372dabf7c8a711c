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

from kir.hardware.confine.sandbox import Level, Limits, confine

SECONDS = 20
"""How long the probe may take."""


def command_line(command: Sequence[str | Path], limits: Limits) -> list[str]:
    """`command` behind a launcher that confines itself first. The launcher is one file of the standard library's modules, started
    without site packages; it adds some 20 ms."""
    script = Path(__file__).with_name("sandbox.py")
    return [sys.executable, "-I", "-S", str(script), json.dumps(limits.to_json()), "--", *(str(word) for word in command)]


@cache
def probed() -> Level:
    """What a confined process of this machine cannot do: the level, each part tried and seen to refuse."""
    script = Path(__file__).with_name("sandbox.py")
    try:
        done = subprocess.run([sys.executable, "-I", "-S", str(script), "--probe"], capture_output=True, text=True, timeout=SECONDS, check=False)
        return Level.from_json(json.loads(done.stdout))
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        return Level()


__all__ = ["Level", "Limits", "command_line", "confine", "probed"]
