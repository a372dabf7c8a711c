"""Packages that nobody here had looked at, as first seen and after mending: ``python -m benchmarks.packages.unseen ..``.

``count NAME VERSION FOLDER --surface S --stage first|after`` runs `kir corpus` on a source distribution (fetched by ``pip download --no-deps
--no-binary :all: NAME==VERSION`` and unpacked) or on an installed package, and keeps the row of that stage in ``benchmarks/data/unseen/NAME-S.json``.
With ``--state FOLDER`` each file, or part of one (``--parts``), is kept as it ends, and a run that was cut short goes on where it was.
``page`` writes docs/tables/packages-unseen.md from all rows. A row as first seen is never written over unless ``--again`` is said: run it at the commit
that it names to see it again.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kir.learning.corpus import counted, files_of, mentions, of_surface, place, run

ROOT = Path(__file__).parents[2]
ROWS = ROOT / "benchmarks" / "data" / "unseen"
PAGE = ROOT / "docs" / "tables" / "packages-unseen.md"
_LAYERED = re.compile(r"#\s*include\s*[<\"](?:[\w/]*/)?(?:cute|cutlass\w*)/|\b(?:cute|cutlass)::")
STAGES = {"first": "as first seen", "after": "after"}
GUESSED = ("under what host code says alone", "with a block or bytes of shared memory that are guessed", "with types or values of a launch that are",
           "with template arguments that nothing names")
"""How much is guessed of the specializations of a kernel."""
REASONS = 12
"""Reasons that are shown of a row."""
SLOW = 10.0
"""Seconds beyond which a kernel is slow."""
ELSEWHERE = ("amd", "rocm", "gfx", "ascend", "camb", "mlu", "npu", "musa")
"""What a part of a file's path begins with where its kernels are for other vendors' devices, in words of theirs."""
REASONS_WHY = {
    "instructions, registers, jumps and fences of PTX in inline assembly": r"inline asm|PTX|CUDA source",
    "the address of a tensor as a number": r"an address as an integer",
    "words that the language has not, or that are not read": r"there is no meaning for|is not read yet|is no parameter that is read|as a dtype",
    "host code that asks the machine, makes objects or is not there": r"\bhost\b|no source|is not defined|a call of \w+\.|more than its body|attribute",
    "sizes, ranks and kinds that only a launch says": r"binding|literal|tuple|a shape with|broadcast|permutation|kinds|rank|is a pointer or|run-time value",
}
"""Why a kernel is not read back equal, by what its reasons say: the first that applies."""
Row = dict[str, Any]


def row(name: str, version: str, folder: str, surface: str, stage: str, without: Sequence[str] = (), seconds: float = 60.0,
        jobs: int = 1, commit: str = "", plain: bool = False, state: Path | None = None, parts: int = 1) -> Row:
    """What `kir corpus` says of one package today, of its files without CUTLASS and CuTe alone under `plain`. Raises UsageError KIR-C110 for a folder that
    is not there."""
    where, commit = place(folder), commit or _commit()
    files = [path for path, _ in files_of(where, (), tuple(without)) if mentions(surface, path)]
    files = [path for path in files if not plain or _LAYERED.search(path.read_text(encoding="utf-8", errors="replace")) is None]
    count = counted(name, (of_surface(r, surface) for r in run(files, jobs, state, seconds, parts=parts)))
    records = [r for r in count.records if r.get("kernel")]
    states: dict[tuple[str, str], set[str]] = {}
    guessed: dict[tuple[str, str], int] = {}
    for r in records:
        function = str(r["file"]), str(r.get("function", r["kernel"]))
        states.setdefault(function, set()).add(r["state"])
        guessed[function] = max(guessed.get(function, 0), _guessed(r.get("guessed", ())))
    whole = [k for k, found in states.items() if found <= {"clean", "equal"}]
    reasons = count.opaque + count.unequal + Counter(f"{r.get('id', '')} {r.get('message', '')}".strip()[:120] for r in count.failed)
    return {
        "package": name, "version": version, "surface": surface, "stage": stage, "without": list(without), "commit": commit, "files": len(files),
        **({"plain": True} if plain else {}), "functions": len(states), "whole": len(whole),
        "guessed": [sum(guessed[k] == n for k in whole) for n in range(len(GUESSED))],
        "found": count.found, "kernels": len({(r["file"], r["kernel"]) for r in records}), "clean": count.clean, "equal": count.equal,
        "internal": sum(r["state"] == "crashed" for r in count.failed),
        "slow": sum(r.get("processor_seconds", 0.0) > SLOW for r in records),
        "reasons": reasons.most_common(), "elsewhere": _elsewhere(records, where.folder), "left": _left(records, where.folder),
    }


def _guessed(what: Sequence[str]) -> int:
    """How much of a specialization is guessed: the last of `GUESSED` that applies."""
    return 3 if "template arguments" in what else 2 if {*what} - {"threads", "bytes of shared memory"} else 1 if what else 0


def _is_elsewhere(r: Row, where: Path) -> bool:
    """Whether a record is of a file for other vendors' devices."""
    return any(word.startswith(ELSEWHERE) for word in re.split(r"[/_.]", r["file"].removeprefix(str(where))))


def _left(records: Iterable[Row], where: Path) -> Row:
    """Why the kernels that are not read back equal are not, those for other vendors' devices left out, by count."""
    out: Counter[str] = Counter()
    for r in records:
        if r["state"] == "equal" or _is_elsewhere(r, where):
            continue
        said = "; ".join([*(o["reason"] for o in r.get("opaque", ())), str(r.get("message", ""))])
        way = next((name for name, words in REASONS_WHY.items() if re.search(words, said)), "others")
        out["written, and read back otherwise or refused" if r["state"] == "clean" else way] += 1
    return dict(out)


def _elsewhere(records: Iterable[Row], where: Path) -> Row:
    """What was counted of files for other vendors' devices."""
    those = [r for r in records if _is_elsewhere(r, where)]
    equal = sum(r["state"] == "equal" for r in those)
    return {"found": len(those), "clean": sum(r["state"] == "clean" for r in those) + equal, "equal": equal}


def _commit() -> str:
    made = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return made.stdout.strip()


def page(rows: Iterable[Row]) -> str:
    """The page, from rows of any surfaces."""
    held = sorted(rows, key=lambda r: (r["surface"], r["package"], list(STAGES).index(r["stage"])))
    lines = [
        "# Packages as first seen", "",
        "Packages that no part of KIR was built with: what `kir corpus` made of their kernels before anything was mended for them, and what it makes",
        "of them after.",
        "A kernel of CUDA is counted once for each specialization that the package's own host code names (a launch or an explicit instantiation); as first",
        "seen it was counted once, a template without arguments as opaque. Internal errors are kernels on which KIR itself failed; slow are "
        "those that took more",
        f"than {SLOW:g} seconds of wall time, from `4bff7ea1` on of processor time; what was counted at `8ad6f0b0` or "
        "later was counted beside other work. A kernel of TileLang that "
        "conditions of its factory make several is counted once for each of them. "
        "A helper of Triton that is opaque alone is read as one of its calls gives it, or under the first launch of a kernel that calls it.", "",
        "Generated by `python -m benchmarks.packages.unseen page` from `benchmarks/data/unseen/`, whose rows `python -m "
        "benchmarks.packages.unseen count` measures.", "",
        *_totals(held), "",
        "| surface | package | when | counted | no opaque node | equal when read back | internal errors | slow | at |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for r in held:
        of = max(1, r["found"])
        lines.append(f"| {r['surface']} | {r['package']} {r['version']} | {STAGES[r['stage']]} | {r['found']} | {r['clean']} ({100 * r['clean'] / of:.0f} %) | "
                     f"{r['equal']} ({100 * r['equal'] / of:.0f} %) | {r['internal']} | {r['slow']} | `{r['commit']}` |")
    lines += _ways(held)
    for surface in dict.fromkeys(r["surface"] for r in held):
        lines += ["", f"## What stops most today, all packages of {surface} together", "", "| reason | kernels | packages |", "| --- | ---: | ---: |"]
        latest = {r["package"]: r for r in held if r["surface"] == surface}.values()
        reasons: Counter[str] = Counter()
        for r in latest:
            reasons.update(dict(r["reasons"]))
        lines += [f"| {_cell(reason)} | {number} | {sum(reason in dict(r['reasons']) for r in latest)} |" for reason, number in reasons.most_common(REASONS)]
    for r in held:
        lines += ["", f"## {r['package']} {r['version']}, {r['surface']}, {STAGES[r['stage']]}", ""]
        if "functions" in r:
            where = " in files without CUTLASS and CuTe" if r.get("plain") else ""
            how = [f"{number} {said}" for said, number in zip(GUESSED, r.get("guessed", ()), strict=False) if number]
            lines += [f"{r['functions']} kernels{where}, of which {r['whole']} have no opaque node under any of the arguments counted"
                      f"{' (' + ', '.join(how) + ')' if how else ''}.", ""]
        if r["without"]:
            lines += [f"Without {', '.join(f'`{w}`' for w in r['without'])}.", ""]
        lines += ["| reason | kernels |", "| --- | ---: |"]
        lines += [f"| {_cell(reason)} | {number} |" for reason, number in r["reasons"][:REASONS]]
        rest = r["reasons"][REASONS:]
        if rest:
            lines.append(f"| {len(rest)} more reasons | {sum(number for _, number in rest)} |")
    return "\n".join(lines) + "\n"


def _totals(rows: Sequence[Row]) -> list[str]:
    """All packages of a surface together: as first seen, and by the last row of each."""
    lines = ["| surface | packages | when | counted | no opaque node | equal when read back | internal errors | slow | of them for other vendors' devices | "
             "the others: no opaque node | equal |", "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for surface in dict.fromkeys(r["surface"] for r in rows):
        own = [r for r in rows if r["surface"] == surface]
        for when, those in (("as first seen", [r for r in own if r["stage"] == "first"]), ("today", list({r["package"]: r for r in own}.values()))):
            found, clean, equal, internal, slow = (sum(r[word] for r in those) for word in ("found", "clean", "equal", "internal", "slow"))
            apart = {word: sum(r.get("elsewhere", {}).get(word, 0) for r in those) for word in ("found", "clean", "equal")}
            rest = max(1, found - apart["found"])
            beside = [str(apart["found"]), _share(clean - apart["clean"], rest), _share(equal - apart["equal"], rest)] if apart["found"] else ["", "", ""]
            lines.append("| " + " | ".join([surface, str(len(those)), when, str(found), _share(clean, found), _share(equal, found), str(internal), str(slow),
                                            *beside]) + " |")
    return lines


def _ways(rows: Sequence[Row]) -> list[str]:
    """Why the kernels that are left are not read back equal, of surfaces most of whose packages say it."""
    lines = []
    for surface in dict.fromkeys(r["surface"] for r in rows):
        latest = list({r["package"]: r for r in rows if r["surface"] == surface}.values())
        said = [r for r in latest if "left" in r]
        if 2 * len(said) < len(latest):
            continue
        left: Counter[str] = Counter()
        for r in said:
            left.update(r["left"])
            left["for other vendors' devices, in words of theirs"] += r["elsewhere"]["found"] - r["elsewhere"]["equal"]
        lines += ["", f"## Why kernels of {surface} are not read back equal", "", f"Of {len(said)} of the {len(latest)} packages.", ""]
        lines += ["| | kernels | packages |", "| --- | ---: | ---: |"]
        lines += [f"| {way} | {number} | {sum(way in r['left'] for r in said) or sum(r['elsewhere']['found'] > r['elsewhere']['equal'] for r in said)} |"
                  for way, number in left.most_common() if number]
    return lines


def _cell(reason: str) -> str:
    return reason.replace("|", chr(92) + "|")


def _share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.1f} %)"


def stored() -> list[Row]:
    """All rows that are kept."""
    return [r for path in sorted(ROWS.glob("*.json")) for r in json.loads(path.read_text(encoding="utf-8"))]


def keep(made: Row, again: bool = False) -> Path:
    """Keep a row beside those of other stages of its package. Raises SystemExit for a row as first seen that is there already."""
    path = ROWS / f"{made['package']}-{made['surface']}.json"
    held = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    if made["stage"] == "first" and not again and any(r["stage"] == "first" for r in held):
        raise SystemExit(f"{path.name} holds this package as first seen")
    rows = sorted([*(r for r in held if r["stage"] != made["stage"]), made], key=lambda r: list(STAGES).index(r["stage"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n", encoding="utf-8")
    return path


def main(words: Sequence[str]) -> int:
    """Count a package, or write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packages.unseen")
    sub = parser.add_subparsers(dest="what", required=True)
    one = sub.add_parser("count")
    for word in ("name", "version", "folder"):
        one.add_argument(word)
    one.add_argument("--surface", required=True)
    one.add_argument("--stage", required=True, choices=STAGES)
    one.add_argument("--without", action="append", default=[])
    one.add_argument("--seconds", type=float, default=60.0)
    one.add_argument("--jobs", type=int, default=1, help="files at once")
    one.add_argument("--state", type=Path, help="a folder of results that hold while KIR and the files they need are the same")
    one.add_argument("--parts", type=int, default=1, help="parts of a long file at once, each with kernels of its own")
    one.add_argument("--again", action="store_true")
    one.add_argument("--plain", action="store_true", help="leave out files that include CUTLASS or CuTe")
    one.add_argument("--commit", default="", help="the commit of this tree, where it is no checkout")
    sub.add_parser("page")
    given = parser.parse_args(words)
    if given.what == "page":
        PAGE.write_text(page(stored()), encoding="utf-8")
        return 0
    made = row(given.name, given.version, given.folder, given.surface, given.stage, given.without, given.seconds, given.jobs, given.commit, given.plain,
               given.state, given.parts)
    print(keep(made, given.again))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
