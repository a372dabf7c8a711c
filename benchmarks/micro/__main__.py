"""``python -m benchmarks.micro --out FILE`` measures this machine's GPU with micro-benchmarks (under a minute, compiling included)."""
from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.micro.run import measured
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic


def main(words: list[str]) -> int:
    """The command; 1 where a kernel was refused or there is no device, 2 for wrong words."""
    if len(words) != 2 or words[0] != "--out":
        print(__doc__, file=sys.stderr)
        return 2
    try:
        found = measured()
    except (KirError, OSError) as refused:
        print(refused, file=sys.stderr)
        return 1
    rows = ",\n".join(json.dumps(row) for row in found.pop("rows"))
    write_atomic(Path(words[1]), json.dumps(found)[:-1] + f',\n"rows": [\n{rows}\n]}}\n')
    print(f"{rows.count(chr(10)) + 1} answers of {found['device']['name']} in {found['seconds']}; refused: {found['refused']}")
    return 1 if found["refused"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
