"""Lineages of many kernels: each recorded binding walked back in a process of its own, and why the others stopped, counted.

What came of a kernel is kept in its folder as `result.json`, with a key over all that went in; a second run takes a result whose key is
the same. A lineage that ended naive holds by itself: it is kept for as long as its kernel and binding are the same, and `kir replay`
shows that it still is one.
"""
from __future__ import annotations

import atexit
import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cache
from math import prod
from pathlib import Path
from random import Random
from typing import Any

import kir
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.hardware.device.client import ChildGone, Server
from kir.ir.binding import Binding
from kir.ir.canonical import content_hash
from kir.learning.corpus.family import family_of
from kir.learning.corpus.rank import recorded
from kir.learning.corpus.roundtrip.count import general
from kir.lineage.records.folder import Folder
from kir.surface.reading import load_expert, located

TARGET = "sm_90a"
"""What every state is compiled for."""
LOOK = 150
"""Programs that a plan goes through at most."""
SLACK = 3
"""How many times its seconds a kernel may take before it is given up: reading and planning are not counted among them."""
READINGS = (("KIR-I010", "flat"), ("is a view of", "flat"), (") // ", "flat"), ("KIR-I012", "zero elsewhere"), ("KIR-I012", "kept"))
"""How a recorded launch is read after an expert did not pass the gate, by what the checker said (places outside a shape, undefined
outputs), and after a walk that was left with a flat view of a tensor, or with its rows
and columns worked out from flat places."""
SEED = 26
"""What a sample of the recorded kernels is drawn with."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """A kernel to walk: FILE::KERNEL, its binding (None: the place says all), and more words of `kir lineage`."""

    place: str
    binding: Path | None
    name: str
    more: tuple[str, ...] = ("--target", TARGET)


def walk_all(bindings: Path, output: Path, seconds: float, jobs: int, advance: Callable[[str], None] = lambda text: None,
             fresh: bool = False, sample: frozenset[str] | None = None) -> list[Row]:
    """One row a binding: `kernel`, `binding`, `family`, `ended` (`naive`, or what ended the walk), `reason`, `steps`, `realized`,
    `intents`, `seconds`. Short kernels are walked first. A walk that was begun in the output folder goes on
    where it was. Of a `sample` (paths of bindings) the others are not walked: what is known of them is taken. Raises UsageError KIR-C118 when nothing
    is recorded."""
    def one(job: tuple[str, Path]) -> Row:
        place, binding = job
        given = seconds if sample is None or str(binding) in sample else 0.0
        row = _row(place, binding, walked_result(Job(place, binding, binding.stem), output / binding.stem, given, fresh and given > 0.0))
        advance(f"{binding.stem}: {row['ended']}")
        return row
    jobs_of = recorded(bindings)
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        rows = list(pool.map(one, in_turn(jobs_of)))
    order = {str(path): i for i, (_, path) in enumerate(jobs_of)}
    return sorted(rows, key=lambda r: order[r["path"]])


def shipped(folder: Path) -> list[Row]:
    """A row for each finished lineage of a folder of lineages (`DIR/NAME/lineage.json`), in the form of `walk_all`."""
    rows = []
    for file in sorted(folder.glob("*/lineage.json")) if folder.is_dir() else []:
        record = Folder(file.parent).read()
        done, place = record.outcome, record.header.source
        intents = sorted({step.intent for step in record.accepted if step.realization and step.realization.realized})
        rows.append({"kernel": place, "binding": file.parent.name, "path": str(file), "family": family_of(place if "/" in place else f"{file.parent.name}::"),
                     "ended": done.ended, "reason": "" if done.ended == "naive" else done.reason, "steps": len(record.accepted),
                     "realized": done.realized, "intents": intents, "seconds": 0.0, "read_as": f"shipped: {file.parent.name}",
                     "expert": record.start.content[:16], "naive": record.states[-1].content[:16]})
    return rows


def drawn(bindings: Iterable[Path], number: int) -> frozenset[str]:
    """The paths of so many of all recorded kernels, drawn at random, the same each time; all of them where they are fewer."""
    every = sorted((place, path.name, str(path)) for each in bindings for place, path in recorded(each))
    return frozenset(path for _, _, path in Random(SEED).sample(every, min(number, len(every))))


def in_turn(found: list[tuple[str, Path]]) -> list[tuple[str, Path]]:
    """Short kernels first: what can be walked is soon known."""
    return sorted(found, key=lambda job: (_lines(job[0]), job[0], str(job[1])))


def _lines(place: str) -> int:
    """How many lines a kernel has in its source, to the next thing that stands at the left margin; 0 where there is none."""
    try:
        text = located(place)[0].read_text(encoding="utf-8").splitlines()
    except (KirError, OSError, UnicodeDecodeError):
        return 0
    head = re.compile(rf"\s*(def|.*\b)\s*{re.escape(place.rpartition('::')[2])}\s*\(")
    first = next((i for i, line in enumerate(text) if head.match(line)), 0)
    return next((i for i, line in enumerate(text[first + 1:], 1) if line[:1].strip() and not line.startswith((")", "}", "#"))), len(text) - first)


def walked_result(job: Job, folder: Path, seconds: float, fresh: bool) -> Row:
    """What `kir lineage --json` says of a kernel (`said`), in how many seconds, and the key of what went in; what is known of it is taken."""
    kept = folder / "result.json"
    key, code = _key(job), _code()
    try:
        known: Row = json.loads(kept.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}
    naive = known.get("said", {}).get("ended") == "naive"
    if not fresh and known.get("key") == key and (naive or (known.get("code") == code and known.get("given", 0.0) >= seconds)):
        return known
    if not seconds:
        return known if known.get("key") == key else {"seconds": 0.0, "said": {"ended": "left", "reason": "not walked"}}
    begun = time.perf_counter()
    anew = fresh or (bool(known) and (known.get("key"), known.get("code")) != (key, code))
    said, read_as = _walked(job, folder, seconds, anew), ""
    while job.binding is not None and said["ended"] in ("failed", "stuck") and (other := _reading_after(said, read_as)):
        read_as = f"{read_as}, {other}".strip(", ")
        said = _walked(replace(job, binding=reading(job.binding, read_as, folder)), folder, seconds, True)
    row: Row = {"key": key, "code": code, "given": seconds, "seconds": round(time.perf_counter() - begun, 1), "read_as": read_as, "said": said}
    write_atomic(kept, json.dumps(row, indent=1) + "\n")
    return row


def _reading_after(said: Row, read_as: str) -> str:
    """How a launch is read next, after what was said of a walk; "" where there is no other way."""
    return next((word for mark, word in READINGS if mark in _told(said) and word not in read_as), "")


@cache
def _server() -> Server:
    """The process whose children walk; it ends with this one."""
    made = Server("kir.faces.cli._walker:serve", ["kir.faces.cli._walker"])
    atexit.register(made.close)
    return made


def reading(binding: Path, how: str, folder: Path) -> Path:
    """A recorded launch read otherwise: `flat`, tensors without gaps as the memory that they are; `zero elsewhere`, masked loads as compiled
    code carries them out; `kept`, outputs hold something before."""
    b = Binding.read(binding)
    if "zero" in how:
        b = replace(b, elsewhere="zero")
    tensors = dict(b.tensors)
    for name, t in tensors.items():
        extents = [d for d in t.shape if isinstance(d, int)]
        if "flat" in how and t.strides is None and len(extents) == len(t.shape):
            tensors[name] = replace(t, shape=[prod(extents)])
        if "kept" in how:
            tensors[name] = replace(tensors[name], role=t.role or "inout")
    path = folder / f"{binding.stem}.toml"
    write_atomic(path, replace(b, tensors=tensors).text())
    return path


def experts_now(rows: Iterable[tuple[str, str]], bindings: list[Path], output: Path,
                advance: Callable[[str], None] = lambda text: None) -> dict[tuple[str, str], tuple[str, ...]]:
    """The hashes of the experts that kernels, each read in some way (both as a page of lineages names them), are under the recorded bindings
    today: none of a kernel that is no longer recorded or not read, several of one that is recorded under several."""
    known: dict[str, list[Path]] = {}
    done: dict[tuple[str, str], list[str]] = {}
    for each in bindings:
        for row in (finished := shipped(each)):
            done.setdefault((row["kernel"], row["read_as"]), []).append(row["expert"])
        for place, binding in () if finished else recorded(each):
            known.setdefault(place, []).append(binding)
    for place, how in rows:
        for binding in known.get(place, ()):
            with suppress(KirError):
                read = reading(binding, how, output / binding.stem) if how else binding
                done.setdefault((place, how), []).append(content_hash(load_expert(place, read).program)[:16])
        advance(place)
    return {key: tuple(found) for key, found in done.items()}


def _walked(job: Job, folder: Path, seconds: float, fresh: bool) -> Row:
    words = ["lineage", job.place, *(["--bind", str(job.binding)] if job.binding is not None else []), "-o", str(folder), "--seconds", str(seconds),
             "--workers", "1", *job.more, "--search-limit", str(LOOK), "--json", *(["--restart"] if fresh else [])]
    try:
        with _server().child() as child:
            said: Row = json.loads(str(child.ask({"words": words}, seconds=SLACK * seconds)[0]["out"]))
    except ChildGone as gone:
        late = f"it took {SLACK} times the seconds that it was given"
        return {"ended": "failed", "reason": late if gone.how == "timeout" else f"the walk ended without a word: {gone.said}"}
    except ValueError:
        return {"ended": "failed", "reason": "the walk ended without a word"}
    if said.get("schema") == "kir.error/1":
        first = said["diagnostics"][0]
        return {"ended": "failed", "reason": f"{first['id']} {first['message']}"}
    return {name: said[name] for name in ("ended", "reason", "steps", "realized", "intents", "expert_hash", "naive_hash", "seal") if name in said} | {
        "violations": said.get("violations", [])[:1]}


def _told(said: Row) -> str:
    """All that was said of why a walk ended."""
    return " ".join([said["reason"], *(v.get("message", "") for v in said.get("violations", []) if isinstance(v, dict))])


def _row(place: str, binding: Path, result: Row) -> Row:
    said = result["said"]
    stopped = _told(said).removeprefix(said["reason"]).strip()
    reason = "" if said["ended"] == "naive" else f"{said['reason']}{f'; {stopped}' if stopped else ''}"
    return {"kernel": place, "binding": binding.name, "path": str(binding), "family": family_of(place), "ended": said["ended"], "reason": reason,
            "steps": said.get("steps", 0), "realized": said.get("realized", 0), "intents": said.get("intents", []),
            "seconds": result["seconds"], "read_as": result.get("read_as", ""),
            "expert": said.get("expert_hash", "")[:16], "naive": said.get("naive_hash", "")[:16]}


def summary(rows: list[Row]) -> Row:
    """How many ended naive, of how many families and files, and the reasons of the others by how often they stopped one."""
    walked = [r for r in rows if r["ended"] != "left"]
    naive = [r for r in walked if r["ended"] == "naive"]
    reasons = Counter(stop_of(r["reason"]) for r in walked if r["ended"] != "naive")
    families = Counter(r["family"] for r in naive)
    return {"walked": len(walked), "left": len(rows) - len(walked), "naive": len(naive), "families": len(families),
            "files": len({r["kernel"].partition("::")[0] for r in naive}), "by_family": dict(families.most_common()),
            "stopped": [{"reason": k, "kernels": v} for k, v in reasons.most_common()]}


def stop_of(reason: str) -> str:
    """A reason without the names, places and numbers of one kernel."""
    reason = re.sub(r"^(KIR-S015) \S+ does not pass the gate: ", "not accepted itself: ", reason)
    reason = re.sub(r"/\S*?/(kir|site-packages)/", "", reason).removeprefix("no registered pass that decreases the measure can be undone; ")
    return re.sub(r"\b[\w.]+\[[^\]]*\]", "..", re.sub(r"\b\d+(\.\d+)?\b", "N", general(reason)))


def _key(job: Job) -> str:
    """A digest of the kernel's file, its binding, and what else is asked."""
    said = "" if job.more == Job.more else " ".join(job.more)
    digest = hashlib.sha256(f"{job.place}\n{TARGET}{said}\n".encode() + (job.binding.read_bytes() if job.binding is not None else b""))
    try:
        digest.update(located(job.place)[0].read_bytes())
    except (KirError, OSError):
        digest.update(b"absent")
    return digest.hexdigest()[:24]


@cache
def _code() -> str:
    """A digest of KIR itself: another KIR may bring a kernel further that stopped."""
    home = Path(kir.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(p for folder in (home, home / "passes", home / "frontends", home / "backends") for p in folder.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:24]
