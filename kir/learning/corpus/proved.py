"""Every kernel of a package checked for every size: each in a process of its own, kept as soon as it is there, ranked by how bad it is."""
from __future__ import annotations

import json
import math
import multiprocessing
import resource
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import kir.skills
from kir.analysis.proof.sites import KINDS
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.gate.proved import proved
from kir.gate.proved.unsaid import as_one
from kir.gate.proved.verdict import WORDS
from kir.ir.parser import parse_program
from kir.learning.corpus.rank import recorded
from kir.learning.corpus.roundtrip.find import files_of, place
from kir.learning.corpus.roundtrip.one import digest, kernels_in
from kir.learning.corpus.roundtrip.run import tool_digest
from kir.surface.reading import load_expert, located, read_text

BYTES = 3 << 30
"""Memory that one kernel may take."""
MOST_WAITING = 20
"""How many times as long, by the clock, is waited for one: on a machine that is busy, or for a process that sleeps."""
RANK = ("refuted", "undecided", "proved", "refused")
Row = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """A kernel to check: ``FILE::KERNEL``, or a file of IR; its binding, None for the one that its launch gives; how reports name it."""

    text: str
    binding: Path | None = None
    name: str = ""


def kernels_of(package: str) -> Iterator[Job]:
    """The kernels of a package, or of a folder: those of recorded bindings that KIR ships under these, then all others in the order of their files.
    Raises UsageError KIR-C110 for what is neither."""
    where = place(package)
    known: set[str] = set()
    lines = Path(next(iter(kir.skills.__path__))) / "packages" / f"{package}.jsonl"
    for text, binding in recorded(lines) if lines.is_file() else ():
        known.add(text)
        yield Job(text, binding, text)
    for path, _ in files_of(where):
        try:
            found = [ref.name for _, ref, role in kernels_in(path) if role == "kernel"]
        except (KirError, RecursionError):
            continue
        inside = path.relative_to(where.folder).as_posix() if where.folder.is_dir() else path.name
        for kernel in dict.fromkeys(found):
            if (name := f"{package}:{inside}::{kernel}") not in known:
                yield Job(f"{path}::{kernel}", None, name)


def proved_all(jobs: Iterable[Job], folder: Path, seconds: float = 60.0, runs: int = 6, advance: Callable[[str], None] = lambda text: None) -> list[Row]:
    """A row for each kernel, the worst first. What `folder` holds of the same source, binding and KIR is taken as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "kernels.jsonl"
    known = {(r["kernel"], r["source"], r["tool"]): r for r in _lines(kept)}
    tool, rows = tool_digest(), []
    with kept.open("a", encoding="utf-8") as to:
        for job in jobs:
            key = (job.name or job.text, _source(job), tool)
            row = known.get(key)
            if row is None:
                row = {"kernel": key[0], "source": key[1], "tool": tool, **apart(job, seconds, runs)}
                to.write(json.dumps(row) + "\n")
                to.flush()
            rows.append(row)
            advance(key[0])
    return sorted(rows, key=lambda r: (RANK.index(r["verdict"]), -len(r.get("findings", ())), r["kernel"]))


def _source(job: Job) -> str:
    """What a kernel was read from."""
    try:
        file = located(job.text)[0]
    except KirError:
        return ""
    return digest(file) + (digest(job.binding) if job.binding is not None else "")


def _lines(kept: Path) -> Iterator[Row]:
    """The rows of a file; one that was cut short is left out."""
    if kept.exists():
        for line in kept.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue


def apart(job: Job, seconds: float, runs: int) -> Row:
    """The verdict on a kernel, from a process that may take so much processor time, which no other process changes, and memory."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(job, seconds, runs, there), daemon=True)
    before = _of_children()
    child.start()
    there.close()
    late: Row = {"verdict": "undecided", "why": f"it took more than {seconds:g} seconds"}
    try:
        row: Row = here.recv() if here.poll(seconds * MOST_WAITING) else late
    except EOFError:
        row = {"verdict": "undecided", "why": "the process that checked it ended"}
    if child.is_alive():
        child.kill()
    child.join()
    return (late if child.exitcode == -signal.SIGXCPU else row) | {"seconds": round(_of_children() - before, 1)}


def _of_children() -> float:
    """Processor seconds of processes that have ended and been waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _child(job: Job, seconds: float, runs: int, to: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    most = max(1, math.ceil(seconds))
    resource.setrlimit(resource.RLIMIT_CPU, (most, most + 5))
    to.send(one(job, runs))


def one(job: Job, runs: int = 6) -> Row:
    """The verdict on a kernel, as a row; `refused` where it cannot be read, or its launch is not found."""
    try:
        if job.text.endswith(".kir"):
            return proved(parse_program(read_text(Path(job.text)), job.text), runs).to_json()
        expert = load_expert(job.text, job.binding)
        return proved(as_one(expert.program, expert.joined), runs, expert.unsaid, expert.surface, expert.written).to_json()
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
    return "\n".join([f"# Checked for every size: {title}", "", f"Made by `{command}`.", "", *table(rows)]) + "\n"


def table(rows: Sequence[Row]) -> list[str]:
    """The lines of `page` below its title."""
    total, read = summary(rows), [r for r in rows if "kinds" in r]
    decided = total["proved"] + total["refuted"]
    checked = decided + total["undecided"]
    lines = ["| kernels | read | proved | refuted by a run | not decided | decided |",
             "| --- | --- | --- | --- | --- | --- |",
             f"| {len(rows)} | {checked} | {total['proved']} | {total['refuted']} | {total['undecided']} | "
             f"{100 * decided // max(1, checked)} % of those read |",
             "", "| obligation | proved in | refuted in | not decided in |", "| --- | --- | --- | --- |"]
    for kind in KINDS:
        count = Counter(r["kinds"][kind] for r in read)
        lines.append(f"| {WORDS[kind]} | {count['proved']} | {count['refuted']} | {count['undecided']} |")
    lines += ["", "| kernel | verdict | why | s |", "| --- | --- | --- | --- |"]
    for r in rows:
        if r["verdict"] != "refused":
            why = reason(r) if r["verdict"] != "proved" else _where(r)
            lines.append(f"| {r['kernel']} | {r['verdict']} | {_cell(why)} | {r['seconds']} |")
    refused = Counter(r.get("id", "") for r in rows if r["verdict"] == "refused")
    if refused:
        lines += ["", "Not read: " + "; ".join(f"{count} for {id_}" for id_, count in refused.most_common()) + "."]
    return lines


def _where(row: Row) -> str:
    """At which sizes a kernel is proved, where it is not at all of them."""
    at = [f"{fact}, which nothing says" for fact in row.get("unsaid", ())] + (["indices fit 32 bits"] if row["kinds"]["overflow"] != "proved" else [])
    return f"where {', and where '.join(at)}" if at else ""


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())[:300]
