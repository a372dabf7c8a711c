"""What ptxas prints with `-v`: the one account of a kernel's resources that comes with every toolkit."""
from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace

from kir.base.dataclass import dataclass

_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_COMPILING = re.compile(r"Compiling entry function '(\w+)' for")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class Used:
    """Resources of one entry: registers a thread, bytes of static shared memory a CTA (without what the architecture keeps for itself),
    bytes of spill stores and loads a thread."""

    registers: int = 0
    shared: int = 0
    spills: int = 0


def used(log: str) -> defaultdict[str, Used]:
    """Resources by function; nothing for a function that the log does not name."""
    out: defaultdict[str, Used] = defaultdict(Used)
    current = ""
    for line in log.splitlines():
        if head := _COMPILING.search(line):
            current = head[1]
        elif not current:
            continue
        elif row := _SPILLS.search(line):
            out[current] = replace(out[current], spills=int(row[2]) + int(row[3]))
        elif row := _REGISTERS.search(line):
            shared = _SHARED.search(line)
            out[current] = replace(out[current], registers=int(row[1]), shared=int(shared[1]) if shared else 0)
    return out
