"""Verdicts as JSON lines: one a line, added to a file and never changed."""
from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kir.gate.verdict import Verdict


def line(verdict: Verdict) -> str:
    """The record with the hash of the program, versions, the device, clocks and raw samples, on one line."""
    return json.dumps(verdict.record, sort_keys=True, allow_nan=False) + "\n"


def append(file: Path, verdict: Verdict) -> None:
    """Add a verdict in one write, so that two processes never mix their lines."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(handle, line(verdict).encode())
    finally:
        os.close(handle)


def read(file: Path) -> Iterator[dict[str, Any]]:
    """The records of a file, oldest first; a line that a killed process left half-written is left out."""
    for row in file.read_text().splitlines():
        try:
            yield json.loads(row)
        except ValueError:
            continue
