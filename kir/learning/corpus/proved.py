"""Every kernel of a package checked for every size: each in a process of its own, kept as soon as it is there, ranked by how bad it is."""
from __future__ import annotations

import json
import multiprocessing
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from kir.analysis.proof.sites import KINDS
from kir.base.diagnostic import KirError
from kir.gate.proved import proved
from kir.gate.proved.verdict import WORDS
from kir.learning.corpus.roundtrip.find import files_of, place
from kir.learning.corpus.roundtrip.one import digest, kernels_in
from kir.learning.corpus.roundtrip.run import tool_digest
from kir.surface.reading import load_expert

BYTES = 3 << 30
"""Memory that one kernel may take."""
RANK = ("refuted", "undecided", "proved", "refused")
Row = dict[str, Any]


def kernels_of(package: str) -> Iterator[tuple[Path, str]]:
    """The kernels of a package, or of a folder, in the order of its files. Raises UsageError KIR-C110 for what is neither."""
    for path, _ in files_of(place(package)):
        try:
            found = [ref.name for _, ref, role in kernels_in(path) if role == "kernel"]
        except (KirError, RecursionError):
            continue
        for name in dict.fromkeys(found):
            yield path, name


def proved_all(kernels: Iterable[tuple[Path, str]], folder: Path, seconds: float = 60.0, runs: int = 6,
               advance: Callable[[str], None] = lambda text: None) -> list[Row]:
    """A row for each kernel, the worst first. What `folder` holds of the same source and the same KIR is taken as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "kernels.jsonl"
    known = {(r["file"], r["kernel"], r["source"], r["tool"]): r for r in _lines(kept)}
    tool, rows = tool_digest(), []
    with kept.open("a", encoding="utf-8") as to:
        for path, kernel in kernels:
            key = (str(path), kernel, digest(path), tool)
            row = known.get(key)
            if row is None:
                row = {"file": str(path), "kernel": kernel, "source": key[2], "tool": tool, **apart(f"{path}::{kernel}", seconds, runs)}
                to.write(json.dumps(row) + "\n")
                to.flush()
            rows.append(row)
            advance(kernel)
    return sorted(rows, key=lambda r: (RANK.index(r["verdict"]), -len(r.get("findings", ())), r["file"], r["kernel"]))


def _lines(kept: Path) -> Iterator[Row]:
    """The rows of a file; one that was cut short is left out."""
    if kept.exists():
        for line in kept.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue


def apart(text: str, seconds: float, runs: int) -> Row:
    """The verdict on a kernel, from a process that may take so much time and memory."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(text, runs, there), daemon=True)
    begun = time.perf_counter()
    child.start()
    there.close()
    try:
        row: Row = here.recv() if here.poll(seconds) else {"verdict": "undecided", "why": f"it took more than {seconds:g} seconds"}
    except EOFError:
        row = {"verdict": "undecided", "why": "the process that checked it ended"}
    if child.is_alive():
        child.kill()
    child.join()
    return row | {"seconds": round(time.perf_counter() - begun, 1)}


def _child(text: str, runs: int, to: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    to.send(one(text, runs))


def one(text: str, runs: int = 6) -> Row:
    """The verdict on the kernel of ``FILE::KERNEL``, as a row; `refused` where it cannot be read, or its launch is not found."""
    try:
        return proved(load_expert(text).program, runs).to_json()
    except KirError as bad:
        return {"verdict": "refused", "id": bad.diagnostics[0].id, "why": bad.diagnostics[0].message}
    except RecursionError:
        return {"verdict": "undecided", "why": "it is nested too deeply"}
    except MemoryError:
        return {"verdict": "undecided", "why": "it needs too much memory"}


def summary(rows: Sequence[Row]) -> dict[str, int]:
    """How many kernels came to which verdict."""
    count = Counter(r["verdict"] for r in rows)
    return {name: count[name] for name in RANK}


def reason(row: Row) -> str:
    """Why a kernel is not proved, in a line: its first finding, or what stopped it."""
    first = next((f for f in row.get("findings", ()) if f["status"] == row["verdict"]), None)
    if first is None:
        return str(row.get("why", ""))
    sizes = ", ".join(f"{k}={v}" for k, v in first["sizes"].items())
    told = first["shown"] or first["why"]
    return f"{first['what']} (`{first['anchor']}`): {told}{f' at {sizes}' if sizes else ''}"


def page(rows: Sequence[Row], title: str, command: str) -> str:
    """The rows as Markdown: counts, what is proved of each kind, then every kernel that is not proved with the reason."""
    total, read = summary(rows), [r for r in rows if "kinds" in r]
    decided = total["proved"] + total["refuted"]
    checked = decided + total["undecided"]
    lines = [f"# Checked for every size: {title}", "", f"Made by `{command}`.", "", "| kernels | read | proved | refuted by a run | not decided | decided |",
             "| --- | --- | --- | --- | --- | --- |",
             f"| {len(rows)} | {checked} | {total['proved']} | {total['refuted']} | {total['undecided']} | {100 * decided // max(1, checked)} % of those read |",
             "", "| obligation | proved in | refuted in | not decided in |", "| --- | --- | --- | --- |"]
    for kind in KINDS:
        count = Counter(r["kinds"][kind] for r in read)
        lines.append(f"| {WORDS[kind]} | {count['proved']} | {count['refuted']} | {count['undecided']} |")
    lines += ["", "| kernel | verdict | why | s |", "| --- | --- | --- | --- |"]
    for r in rows:
        if r["verdict"] != "refused":
            why = reason(r) if r["verdict"] != "proved" else "" if r["kinds"]["overflow"] == "proved" else "where indices fit 32 bits"
            lines.append(f"| {Path(r['file']).name}::{r['kernel']} | {r['verdict']} | {_cell(why)} | {r['seconds']} |")
    refused = Counter(r.get("id", "") for r in rows if r["verdict"] == "refused")
    if refused:
        lines += ["", "Not read: " + "; ".join(f"{count} for {id_}" for id_, count in refused.most_common()) + "."]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())[:300]
