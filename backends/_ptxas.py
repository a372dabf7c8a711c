"""What ptxas prints with `-v`."""
from __future__ import annotations

import re

_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_COMPILING = re.compile(r"Compiling entry function '(\w+)' for")


def spilled(log: str) -> dict[str, int]:
    """Bytes of spill stores and loads by function."""
    out: dict[str, int] = {}
    current = ""
    for line in log.splitlines():
        if head := _COMPILING.search(line):
            current = head[1]
        elif (row := _SPILLS.search(line)) and current:
            out[current] = int(row[2]) + int(row[3])
    return out
