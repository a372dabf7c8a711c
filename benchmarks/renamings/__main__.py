"""``python -m benchmarks.renamings --count 10000 --seed 1``: identifiers of real kernels renamed to words that KIR uses, at random.

Each try renames several identifiers of one kernel at once (at most ``--most``), reads it, compares it with the original, and writes it by its own
surface, and kernels with a binding by every surface, and reads that back. A difference is traced to single renamings. Counts go to
``benchmarks/results/renamings.md`` by corpus and surface, with each difference. A run that is stopped goes on where it was (``--folder``); ``--part 0/2``
does each second try, so that two processes share the work; ``--page`` only writes the page of what is in the folder.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.renamings.corpora import Kernel, generic, packages, shipped
from benchmarks.renamings.law import SURFACES, Subject, Tally
from benchmarks.renamings.python_source import Name
from kir.base.diagnostic import KirError

PAGE = Path(__file__).parents[1] / "results" / "renamings.md"
TRIES = 6
"""Tries with a kernel once its original is read."""
SLOWEST = 6.0
"""Seconds of computing for one reading of a kernel: those that take longer are left out."""
SHIPPED = 0.25
"""The part of the renamings that the kernels which KIR ships shall have at least, each surface alike."""
HEAD = """# The renaming law

Identifiers of real kernels are renamed at random to words that KIR uses: its own variables (`t`, `block_x`, `pid_0`, ..), temporaries of passes,
keywords of the IR's text, instructions, dtypes, words of the other surfaces, and names like those that KIR makes of the source's own (`x_1`,
`x_extent`). A renaming that would make another source (a keyword of its language, a name that the file has) is not drawn. The renamed source must read
to the same program, the names of its parameters mapped back: equal alpha-normal forms, or equal in the sense of `kir corpus`
(`kir/learning/corpus/roundtrip/equal.py`). Its own surface, or (of kernels with a binding) any surface, drawn for each try, must write it as it
writes the original, and what is written must be read back.

Several identifiers of a kernel, {most} at most, are renamed at once; each counts as one renaming. At least a quarter of them is of kernels that KIR
ships, all three surfaces alike. A difference is traced to the single renaming that
makes it.
"""


def main() -> None:
    """Run the law, or write its page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=10_000, help="renamings")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=64, help="identifiers of a kernel that are renamed at once")
    parser.add_argument("--part", default="0/1", help="which of how many processes this is")
    parser.add_argument("--seconds", type=float, default=7200.0)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "kir-renamings")
    parser.add_argument("--page", action="store_true", help="only write the page of what is in the folder")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    if not args.page:
        run(args)
    rows = [json.loads(line) for file in sorted(args.folder.glob("part-*.jsonl")) for line in file.read_text(encoding="utf-8").splitlines()]
    text = page(rows, args)
    PAGE.write_text(text, encoding="utf-8")
    print(text)


def run(args: Any) -> None:
    """Tries until this part has its share of renamings, each a line of JSON in the folder."""
    part, parts = (int(x) for x in args.part.split("/"))
    file = args.folder / f"part-{args.seed}-{part}.jsonl"
    if file.exists():
        again(file)
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    done = sum(row["renamings"] for row in rows)
    share = Counter({surface: sum(row["renamings"] for row in rows if (row["corpus"], row["surface"]) == ("shipped", surface)) for surface in SURFACES})
    began = time.monotonic()
    by_corpus: dict[str, list[Kernel | tuple[str, Path]]] = {}
    for k in (*shipped(), *packages()):
        by_corpus.setdefault(k.corpus if isinstance(k, Kernel) else k[0], []).append(k)
    tries = max((row["try"] for row in rows), default=0)
    with tempfile.TemporaryDirectory() as folder, file.open("a", encoding="utf-8") as out:
        while done < args.count // parts and time.monotonic() - began < args.seconds:
            chance = random.Random(f"{args.seed} {part} {tries}")
            tries += 1
            if share.total() < SHIPPED * done:
                least = min(SURFACES, key=lambda surface: share[surface])
                drawn: Kernel | tuple[str, Path] = chance.choice([k for k in by_corpus["shipped"] if isinstance(k, Kernel) and k.surface == least])
            else:
                drawn = chance.choice(by_corpus[chance.choice(sorted(by_corpus))])
            found = [drawn] if isinstance(drawn, Kernel) else list(generic(*drawn))
            if not found:
                continue
            row = one(chance.choice(found), chance, args.most, Path(folder))
            row["try"] = tries
            done += row["renamings"]
            share[row["surface"]] += row["renamings"] if row["corpus"] == "shipped" else 0
            out.write(json.dumps(row) + "\n")
            out.flush()


def again(file: Path) -> None:
    """Tries of an earlier run that differed, once more, without words that are not drawn any more: a difference that was mended since is none."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        if row["differences"]:
            kernel = next(k for each in (*shipped(), *packages()) for k in ([each] if isinstance(each, Kernel) else generic(*each) if each[0] == row["corpus"]
                                                                             else ()) if k.place == row["place"])
            with tempfile.TemporaryDirectory() as folder:
                subject, kept = Subject(kernel, Path(folder)), []
                for d in row["differences"]:
                    names = {x: new for x in subject.candidates() if (new := d["names"].get(x.text)) and subject.source.allows(x, new)}
                    kept += [{**d, "all": found}] if (found := subject.tried(names, SURFACES, Tally())) else []
            row["mended"] = row.get("mended", 0) + len(row["differences"]) - len(kept)
            row["differences"] = kept
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def one(kernel: Kernel, chance: random.Random, most: int, folder: Path) -> dict[str, Any]:
    """Some tries with one kernel: their counts and differences."""
    row: dict[str, Any] = {"corpus": kernel.corpus, "surface": kernel.surface, "place": kernel.place, "renamings": 0, "readings": 0, "written": 0,
                           "settled": 0, "left_out": "", "differences": []}
    subject, tally, began = Subject(kernel, folder), Tally(), time.process_time()
    try:
        subject.original  # noqa: B018  # read now, so that what cannot be read is left out
    except (KirError, RecursionError) as bad:
        return {**row, "left_out": f"cannot be read: {bad.diagnostics[0].id}" if isinstance(bad, KirError) else "cannot be read"}
    if time.process_time() - began > SLOWEST:
        return {**row, "left_out": f"takes more than {SLOWEST:g} seconds"}
    for _ in range(TRIES):
        names = subject.draw(chance, most)
        if not names:
            return {**row, "left_out": "has no identifier that may be renamed"}
        surfaces = (chance.choice((kernel.surface, *SURFACES)),)
        row["renamings"] += len(names)
        if found := subject.tried(names, surfaces, tally):
            few = narrowed(subject, names, surfaces)
            single = {f"{x.text} -> {new}": found for x, new in few.items()} if len(few) == 1 else {}
            row["differences"].append({"all": found, "names": {x.text: new for x, new in names.items()}, "single": single})
    return {**row, "readings": tally.readings, "written": tally.written, "settled": tally.settled}


def narrowed(subject: Subject, names: dict[Name, str], surfaces: tuple[str, ...]) -> dict[Name, str]:
    """The smallest part of some renamings, halved again and again, that differs."""
    few = names
    while len(few) > 1:
        pairs = list(few.items())
        halves = [dict(pairs[:len(pairs) // 2]), dict(pairs[len(pairs) // 2:])]
        half = next((h for h in halves if subject.tried(h, surfaces, Tally())), None)
        if half is None:
            break
        few = half
    return few


def page(rows: list[dict[str, Any]], args: Any) -> str:
    """The page of a run."""
    total: Counter[tuple[str, str, str]] = Counter()
    for r in rows:
        key = (r["corpus"], r["surface"])
        for what in ("renamings", "readings", "written", "settled"):
            total[*key, what] += r[what]
        total[*key, "kernels"] += not r["left_out"]
        total[*key, "left out"] += bool(r["left_out"])
        total[*key, "differences"] += len(r["differences"])
    columns = ("kernels", "left out", "renamings", "readings", "written", "settled", "differences")
    lines = [HEAD.format(most=args.most),
             "| corpus | surface | tries | left out | renamings | readings | written and read back | equal as `kir corpus` has it | differences |",
             "| --- | --- | " + " | ".join(["---:"] * len(columns)) + " |"]
    for corpus, surface in sorted({(r["corpus"], r["surface"]) for r in rows}):
        lines.append(f"| {corpus} | {surface} | " + " | ".join(str(total[corpus, surface, c]) for c in columns) + " |")
    lines.append("| all | | " + " | ".join(str(sum(n for (_, _, what), n in total.items() if what == c)) for c in columns) + " |")
    why = Counter(r["left_out"] for r in rows if r["left_out"])
    if why:
        lines += ["", "Left out: " + "; ".join(f"{n} times a kernel that {reason}" for reason, n in why.most_common()) + "."]
    lines += ["", f"Written by `python -m benchmarks.renamings --count {args.count} --seed {args.seed}`."]
    if (so_far := sum(r["renamings"] for r in rows)) < args.count:
        lines[-1] += f" The run was stopped at {so_far} renamings of {args.count}; the command goes on where it was."
    if mended := sum(r.get("mended", 0) for r in rows):
        lines[-1] += (f" {mended} of its tries differed when they were first made, and no more when they were made again after the cause was mended, "
                      "or the word was left out.")
    lines += ["", "Differences:", ""]
    found = [(r["place"], d) for r in rows for d in r["differences"]]
    for place, d in found:
        lines.append(f"- {place}: " + ("; ".join(f"`{x}`: {why}" for x, why in d["single"].items()) or f"{d['names']}: {d['all']}")[:400])
    lines += [] if found else ["none."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
