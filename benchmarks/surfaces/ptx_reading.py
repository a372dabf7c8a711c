"""How much of what compilers write as PTX is read: docs/tables/ptx-reading.md.

`python -m benchmarks.surfaces.ptx_reading compile --at FOLDER [--only WORDS]` writes the PTX that each backend's compiler makes of each of KIR's own programs
(naive programs and experts) for sm_80 and sm_90a; `page --at FOLDER [--jobs N] [--write]` reads all of it
and writes the page. No GPU is needed.
"""
from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.gate.proved.assembly import assembled
from kir.gate.proved.compiled import binding_text
from kir.hardware.target import target
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rules.verify import verify
from kir.ir.visit import walk
from kir.lineage.records.folder import Folder
from kir.surface import Translated, backend
from kir.surface.reading import load_expert, manifest, read_source

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tables" / "ptx-reading.md"
SURFACES, TARGETS = ("cuda", "triton", "tilelang"), ("sm_80", "sm_90a")
TOOLS = {"cuda": "nvcc (CUDA)", "triton": "Triton", "tilelang": "TileLang, nvcc"}
HEAD = """Made by `python -m benchmarks.surfaces.ptx_reading compile --at FOLDER`, then `page --at FOLDER --write`: every program of `skills/problems`,
`skills/experts` and `skills/lineages` (their experts), and every kernel of a package in `tests/zoo.toml`, is compiled to PTX for both targets by each backend
that can say it, with no GPU. A kernel is read where nothing of it stays text and the program is well-formed, under the launch that it was compiled for.
nvcc 13.0, Triton 3.6, TileLang 0.1.15."""


def programs() -> Iterator[tuple[str, str]]:
    """Names of programs, and where they are."""
    for file in sorted((ROOT / "skills" / "problems").glob("*/naive.kir")):
        yield f"naive/{file.parent.name}", str(file)
    for file in sorted((ROOT / "skills" / "experts").glob("*/*.kir")):
        yield f"expert/{file.stem}", str(file)
    for file in sorted((ROOT / "skills" / "experts").glob("*/*.cu")):
        yield f"expert/{file.stem}-cu", str(file)
    for file in sorted((ROOT / "skills" / "experts").glob("*/*.py")):
        yield f"expert/{file.parent.name}-{file.stem}", str(file)
    for folder in sorted((ROOT / "skills" / "lineages").iterdir()):
        yield f"lineage/{folder.name}", str(folder)
    for name, row in tomllib.loads((ROOT / "tests" / "zoo.toml").read_text()).items():
        if not row["file"].startswith("skills/"):
            yield f"zoo/{name}", f"{row['file']}::{row['kernel']}"


def loaded(name: str, place: str) -> n.Program:
    """A program: a source file under its shipped binding, the expert of a lineage, a kernel of a package under the zoo's."""
    if name.startswith("lineage/"):
        folder = Folder(Path(place))
        return folder.program(folder.read().start)
    if name.startswith("zoo/"):
        row = tomllib.loads((ROOT / "tests" / "zoo.toml").read_text())[name.removeprefix("zoo/")]
        return load_expert(place, ROOT / row["binding"]).program
    if place.endswith(".kir"):
        return load_expert(place).program
    found = manifest(place)
    return load_expert(place, found[0] if found else None).program


def compile_all(at: Path, only: str, part: int = 0, parts: int = 1) -> None:
    """Writes PTX and what it is of, one JSON a way to compile a program; one that is there of the same text stays, and none is kept of a compiler that is not
    here, died or took too long."""
    at.mkdir(parents=True, exist_ok=True)
    for number, (name, place) in enumerate(programs()):
        if number % parts != part:
            continue
        if only and not any(word in name for word in only.split(",")):
            continue
        try:
            program = loaded(name, place)
        except KirError as refused:
            print(f"{name}: {refused.diagnostics[0].message}")
            continue
        for surface in SURFACES:
            for to in TARGETS:
                compiled(at / f"{name.replace('/', '_')}.{surface}.{to}.json", name, program, surface, to)


def compiled(file: Path, name: str, program: n.Program, surface: str, to: str) -> None:
    """Compiles a program and writes what came of it, unless the file has it."""
    begun = time.time()
    row: dict[str, Any] = {"name": name, "surface": surface, "target": to, "program": program_text(program), "kernels": [], "why": ""}
    by = backend(surface)
    try:
        emitted = by.emit(program)
        row["text"] = hashlib.sha256((row["program"] + emitted.whole()).encode()).hexdigest()
        if file.exists() and json.loads(file.read_text()).get("text") == row["text"]:
            return
        made = by.compile(emitted, target(to))
        row |= {"kernels": [vars(t) for t in assembled(emitted, made)] if made.compiled else [], "why": made.absent}
        lost = bool(made.absent)
    except KirError as refused:
        row["why"] = f"{refused.diagnostics[0].id}: {refused.diagnostics[0].message}"
        lost = refused.diagnostics[0].id in ("KIR-B011", "KIR-B012")
    if lost:
        file.unlink(missing_ok=True)
    else:
        write_atomic(file, json.dumps(row))
    print(f"{file.stem}: {len(row['kernels'])} kernels, {time.time() - begun:.1f} s {row['why'][:100]}", flush=True)


def kernels(at: Path) -> Iterator[tuple[dict[str, Any], Translated]]:
    """Each kernel that was compiled, with the row that it is of."""
    for file in sorted(at.glob("*.json")):
        row = json.loads(file.read_text())
        for each in row["kernels"]:
            each["renamed"] = tuple(tuple(x) for x in each["renamed"])
            yield row, Translated(**each)


def reason(row: dict[str, Any], made: Translated, folder: Path) -> str:
    """Why a kernel is not read whole, under its launch; "" where it is."""
    file, binding = folder / "kernel.ptx", folder / "kernel.toml"
    file.write_text(made.text)
    whole = parse_program(row["program"], row["name"])
    binding.write_text(binding_text(replace(whole, kernels=tuple(k for k in whole.kernels if k.name == made.kernel)), made))
    try:
        program = read_source(f"{file}::{made.function}", binding).program
        wrong = [f"{d.id}: {d.message}" for d in verify(parse_program(program_text(program), row["name"]), paired=False)]
    except KirError as refused:
        return f"{refused.diagnostics[0].id}: {refused.diagnostics[0].message}"
    return next((x.reason for k in program.kernels for x in walk(k) if isinstance(x, n.Opaque)), wrong[0] if wrong else "")


def measured(at: Path, only: str, jobs: int) -> Iterator[tuple[dict[str, Any], Translated, str]]:
    """Each kernel that was compiled, and why it is not read whole. What this code has read of the same text before is kept beside it, in `read.jsonl`."""
    listed = [(row, made) for row, made in kernels(at) if not only or any(word in row["name"] for word in only.split(","))]
    kept, code = at / "read.jsonl", reader()
    keys = [hashlib.sha256(json.dumps([code, row["program"], vars(made)]).encode()).hexdigest() for row, made in listed]
    known: dict[str, str] = dict(json.loads(line) for line in kept.read_text().splitlines()) if kept.exists() else {}
    left = [k for k, key in enumerate(keys) if key not in known]
    with ProcessPoolExecutor(jobs) as pool, kept.open("a", encoding="utf-8") as file:
        for k, (why, seconds) in zip(left, pool.map(_timed, [listed[k] for k in left]), strict=True):
            row, made = listed[k]
            shown = f"{row['name']} {row['surface']} {row['target']} {made.function[:40]}"
            print(f"{shown}: {len(made.text.splitlines())} lines, {seconds:.1f} s, {why[:150] or 'read'}", flush=True)
            known[keys[k]] = why
            file.write(json.dumps([keys[k], why]) + "\n")
            file.flush()
    for (row, made), key in zip(listed, keys, strict=True):
        yield row, made, known[key]


def reader() -> str:
    """The code that reads, as a hash."""
    made = hashlib.sha256()
    for file in sorted((*(ROOT / "frontends" / "ptx").rglob("*.py"), *(x for room in ("base", "ir", "surface") for x in (ROOT / "kir" / room).rglob("*.py")))):
        made.update(file.read_bytes())
    return made.hexdigest()


def _timed(one: tuple[dict[str, Any], Translated]) -> tuple[str, float]:
    """Why a kernel is not read whole, and how long that took."""
    begun = time.time()
    with tempfile.TemporaryDirectory() as folder:
        return reason(*one, Path(folder)), time.time() - begun


def here(at: Path) -> str:
    """How much of all that can be compiled a folder has."""
    return (f"Of {len(list(programs())) * len(SURFACES) * len(TARGETS)} ways to compile these programs (each by three compilers for two targets) "
            f"{len(list(at.glob('*.json')))} were gone by {date.today().isoformat()}, those that a backend refuses among them.")


def markdown(rows: list[tuple[dict[str, Any], Translated, str]], done: str) -> str:
    """The page; `done` says of how much it is."""
    out = ["# How much PTX is read", "", *HEAD.splitlines(), "", done, "", "| compiler | target | kernels | read | share |", "| --- | --- | --- | --- | --- |"]
    total = sum(not why for _, _, why in rows)
    for surface in SURFACES:
        for to in TARGETS:
            of = [why for row, _, why in rows if (row["surface"], row["target"]) == (surface, to)]
            if of:
                out.append(f"| {TOOLS[surface]} | {to} | {len(of)} | {of.count('')} | {of.count('') / len(of):.1%} |")
    out += [f"| all | | {len(rows)} | {total} | {total / len(rows):.1%} |", "", "Why the others stay text:", ""]
    out += ["| kernels | reason | first |", "| --- | --- | --- |"]
    reasons = Counter(why for _, _, why in rows if why)
    for why, count in reasons.most_common():
        first = next(f"{row['name']} ({row['surface']}, {row['target']})" for row, _, each in rows if each == why)
        out.append(f"| {count} | {why} | {first} |")
    if not reasons:
        out.append("| 0 | | |")
    return "\n".join(out) + "\n"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("compile", "page"))
    parser.add_argument("--at", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--part", default="0/1", help="which part of how many: several may run side by side")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes that read")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if given.what == "compile":
        compile_all(given.at, given.only, *map(int, given.part.split("/")))
        return 0
    page = markdown(list(measured(given.at, given.only, given.jobs)), here(given.at))
    if given.write:
        PAGE.write_text(page, encoding="utf-8")
    else:
        print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
