"""``python -m benchmarks.optimize PART``: ``heldout --on gpu --seconds N``, ``kernelbench`` (``--on cpu``: modelled; ``--from FOLDER``: its own files),
``join --from FOLDER`` (held-out rows that were measured elsewhere), ``recovery`` (``--from FOLDER`` takes rows that were made elsewhere, ``--arms WORD``
runs some arms), ``transfer``,
``turns``, ``thousand`` (a pool, simulated),
``packages`` (recorded calls; ``--keep FOLDER`` for patches and overlay), ``offs`` (into the policy what forecasts were wrong by on the device; ``--from
FOLDER``: how far apart they were alone, with what logs of ``kir optimize --on gpu`` say), or ``ahead``, which prints what would be measured.

``--only WORD,WORD`` takes what has a word in its name, ``--out FOLDER`` writes elsewhere than into benchmarks/results, ``--surface triton`` writes models on
that surface alone, or recovers on it alone. Rows are kept as they come: a run that was cut short goes on where it was, and a row that has been measured gets
further candidates. ``ahead --ahead FOLDER`` writes the proposals to a folder, ``compile --ahead FOLDER --workers N --seconds S`` compiles them, and ``heldout
--ahead FOLDER`` takes both from there. ``models --ahead FOLDER`` does the searches of ``kernelbench``, which takes them from there too; ``kernelbench
--seconds 0`` writes its page anew.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(words: list[str]) -> int:
    """The part that is named; 2 for words that are none."""
    given = {"--on": "gpu", "--seconds": "480", "--only": "", "--from": "", "--surface": "", "--keep": "", "--workers": "0", "--ahead": "",
             "--arms": ""}
    given |= {"--out": str(Path(__file__).parents[1] / "results")}
    part, rest = (words[0], words[1:]) if words else ("", [])
    while len(rest) > 1 and rest[0] in given:
        given[rest[0]] = rest[1]
        rest = rest[2:]
    if part not in ("heldout", "join", "kernelbench", "recovery", "transfer", "turns", "thousand", "packages", "ahead", "compile", "models", "offs") or rest:
        print(__doc__, file=sys.stderr)
        return 2
    out = Path(given["--out"])
    seconds, workers = float(given["--seconds"]), int(given["--workers"])
    if part == "join":
        from benchmarks.optimize.heldout import joined

        return joined(Path(given["--from"]), out)
    if part == "kernelbench":
        from benchmarks.optimize.kernelbench import kernelbench

        return kernelbench(out, given["--on"], given["--from"], given["--only"], seconds, workers, given["--surface"], given["--ahead"])
    if part == "models":
        from benchmarks.optimize.kernelbench import search_ahead

        return search_ahead(Path(given["--ahead"]), given["--from"], given["--only"], seconds, workers, given["--surface"])
    if part == "packages":
        from benchmarks.optimize.packaged import packages

        return packages(out, given["--only"], seconds, workers, given["--keep"])
    if part == "recovery":
        from benchmarks.optimize.recovery import recovery

        return recovery(out, given["--only"], seconds, workers or 1, given["--from"], given["--arms"], given["--surface"])
    if part == "transfer":
        from benchmarks.optimize.transfer import transfer

        return transfer(out, given["--only"], seconds, workers or 1)
    if part == "turns":
        from benchmarks.optimize.turns import turns

        return turns(out, seconds, workers or 1)
    if part == "offs":
        from benchmarks.optimize.offs import offs

        logs = sorted(Path(given["--from"]).glob("*.jsonl")) if given["--from"] else ()
        return offs(Path(given["--out"]) if "--out" in words else Path(__file__).parents[2] / "skills", logs)
    if part == "thousand":
        from benchmarks.optimize.pool import thousand

        return thousand(out)
    if part in ("ahead", "compile"):
        from benchmarks.optimize.ahead import compile_kept, keep, proposals
        from benchmarks.optimize.instances import INSTANCES

        folder, wanted = Path(given["--ahead"]), [i for i, one in enumerate(INSTANCES) if any(word in one.name for word in given["--only"].split(","))]
        if part == "compile":
            print(compile_kept(folder, wanted, "h200", workers or 1, seconds), "compiled")
        elif given["--ahead"]:
            keep(folder, wanted, "h200")
        else:
            for i in wanted:
                print(INSTANCES[i].name)
                for p in proposals(i, "h200"):
                    print(f"  {p.forecast * 1e6:10.1f} us  {p.surface:9} {p.taken:3} taken {p.left:3} left  {p.plan}")
        return 0
    from benchmarks.optimize.heldout import heldout

    return heldout(out, seconds, given["--only"], workers, Path(given["--ahead"]) if given["--ahead"] else None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
