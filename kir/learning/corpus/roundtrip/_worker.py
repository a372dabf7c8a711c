"""A process that examines files: one JSON line in (a file, which part of it, and kernels to leave out), JSON lines out, flushed one by one."""
from __future__ import annotations

import gc
import json
import resource
import sys
from pathlib import Path

from kir.learning.corpus.roundtrip.one import examine, sources, untouched


def say(**fields: object) -> None:
    """One line to the parent."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def main(megabytes: int) -> None:
    """Serve until the parent closes the pipe."""
    gc.set_threshold(100_000, 20, 20)  # as the command has it: trees are large and hold no cycles
    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
    for line in sys.stdin:
        job = json.loads(line)
        path = Path(job["file"])
        for record in examine(path, frozenset(job["skip"]), lambda name: say(started=name), tuple(job["part"])):
            say(record=record)
        try:
            same = untouched(path) if job["part"][0] == 0 else None
        except Exception:  # what is wrong with the file is in its records
            same = None
        say(done=True, untouched=same, sources=sources(path))


if __name__ == "__main__":
    main(int(sys.argv[1]))
