"""Coverage-guided fuzzing of the three frontends by atheris, where that is installed (`pip install atheris`).

    python -m benchmarks.fuzz.sources [--surface NAME ..] [--minutes M] [--jobs N] [--state FOLDER] [--log FILE] [--taken] [--mended] [--write]

Texts begin from the shipped kernels; what finds new ways through a frontend is kept in the state's folder, and gone on from. Each of `--jobs` processes begins
from a part of what is kept, all but every fourth from short texts alone, which are read faster. A text comes out as a program or as a located refusal: any
other exception, more than `SECONDS` of processor time, or more than `MEGABYTES` is a fault, with its text in the folder. A line
of the log says how many texts a run gave; `--write` writes docs/tables/fuzz-sources.md of the whole log. Exit code 1 where there are faults.
"""
from __future__ import annotations

import argparse
import gc
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from shutil import copyfile, rmtree
from typing import Any

from platformdirs import user_state_path

from benchmarks.bad_input.mutilated import SURFACES, mutilated, sources
from benchmarks.fuzz.checking import MEMORY, TooLong, limited
from benchmarks.fuzz.making import Made
from kir.analysis import normalize
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.ir.parser import parse_program
from kir.surface import backend

ROOT = Path(__file__).parents[2]
LOG, PAGE = ROOT / "benchmarks" / "results" / "fuzz" / "sources.jsonl", ROOT / "docs" / "tables" / "fuzz-sources.md"
SECONDS, MEGABYTES, LONGEST, SHORT = 5.0, 2048, 6_000, 900
"""Processor time and memory of one text, how many bytes it may have, and how many where a process takes short ones alone."""
PART, COLLECTED = 600, 100
"""Texts of what is kept that a process begins from, where there are several; and after how many texts garbage is collected."""
STUCK = 120
"""Wall seconds of one text from which on libFuzzer ends the process: what no signal of Python ends."""
RAN, NOTED, OWN = "ran", 1.0, "own"
"""Where each process of a run says how many texts it has read, seconds between two times, and where each has the texts that it begins from and finds."""
WRITTEN = 40
"""Random programs of which what a backend writes is among the first texts."""
ENDING = {"cuda": ".cu"}
HEADS = {"cuda": "", "triton": "import triton\nimport triton.language as tl\n", "tilelang": "import tilelang\nimport tilelang.language as T\n"}
"""What a file of a surface begins with, so that the surface is not what is guessed."""


def read(surface: str, text: str, folder: Path) -> str:
    """Reads a text as a file: "" for a program or a refusal, else the kind of fault."""
    from kir.surface.reading import read_generic

    file = folder / f"k{ENDING.get(surface, '.py')}"
    file.write_text(HEADS[surface] + text, encoding="utf-8")
    try:
        with limited(SECONDS):
            read_generic(str(file))
    except KirError:
        return ""
    except TooLong:
        return "too long"
    except Exception as crash:  # what is looked for
        where = traceback.extract_tb(crash.__traceback__)[-1]
        return f"{type(crash).__name__} at {Path(where.filename).name}:{where.name}"
    return ""


def child(surface: str, state: Path, seconds: int, texts_at: Path, longest: int) -> None:
    """Fuzzes in this process, which libFuzzer ends."""
    atheris: Any = import_module("atheris")  # optional: not among what is installed
    with atheris.instrument_imports(include=["kir.frontends", "kir.surface"]):
        import kir.frontends.cuda.frontend
        import kir.frontends.tilelang.frontend
        import kir.frontends.triton.frontend  # noqa: F401  # so that all of them are followed
    folder, seen, texts, begun_at, noted_at = Path(tempfile.mkdtemp(dir=MEMORY)), set[str](), 0, time.monotonic(), 0.0
    gc.freeze()  # what is loaded by now is not looked through again
    gc.disable()

    def one(data: bytes) -> None:
        nonlocal texts, noted_at
        if (now := time.monotonic()) - noted_at > NOTED:
            noted_at = now
            (state / RAN).mkdir(exist_ok=True)
            write_atomic(state / RAN / f"{surface}-{os.getpid()}.json", json.dumps({"surface": surface, "texts": texts, "seconds": now - begun_at}).encode())
        texts += 1
        if texts % COLLECTED == 0:
            gc.collect()
        text = data.decode("utf-8", errors="ignore")
        if (kind := read(surface, text, folder)) and kind not in seen:
            seen.add(kind)
            name = re.sub(r"\W+", "-", kind)
            (state / "faults").mkdir(exist_ok=True)
            (state / "faults" / f"{surface}-{name}{ENDING.get(surface, '.py')}").write_text(HEADS[surface] + text)
            print(f"FAULT {kind}", flush=True)

    def changed(data: bytes, most: int, seed: int) -> bytes:
        """Every other text is changed by tokens: what bytes alone make of a text is mostly no program."""
        text = data.decode("utf-8", errors="ignore")
        if seed % 2 and text.strip():
            return mutilated(text, random.Random(seed)).encode()[:most]
        made: bytes = atheris.Mutate(data, most)
        return made
    atheris.Setup([sys.argv[0], str(texts_at), f"-max_total_time={seconds}", f"-rss_limit_mb={MEGABYTES}", f"-max_len={longest}", f"-timeout={STUCK}",
                   f"-artifact_prefix={state}/", "-reload=0"], one,
                  custom_mutator=changed)
    atheris.Fuzz()


def begun(surface: str, state: Path) -> None:
    """The first texts: shipped kernels, and what the surface's backend writes of random programs, which is short and of many forms."""
    (state / surface).mkdir(parents=True, exist_ok=True)
    texts = [source.file.read_bytes() for source in sources(surface)]
    by = backend(surface)
    for seed in range(WRITTEN):
        p = normalize(parse_program(Made(seed).text, "p.kir"))
        if not list(by.accepts(p)):
            texts.append(by.emit(p).text.encode())
    for text in texts:
        (state / surface / sha256(text).hexdigest()[:16]).write_bytes(text)


def parts(surface: str, state: Path, jobs: int) -> Iterator[tuple[Path, int]]:
    """The folder of each process, with what it begins from, and how long its texts may be."""
    every = sorted((state / surface).iterdir())
    for k in range(jobs):
        longest = SHORT if jobs > 1 and k % 4 else LONGEST
        own = state / OWN / f"{surface}-{k}"
        rmtree(own, ignore_errors=True)
        own.mkdir(parents=True)
        fitting = [x for x in every if jobs == 1 or x.stat().st_size <= longest]
        for text in fitting if jobs == 1 else random.Random(f"{k} {len(every)}").sample(fitting, min(PART, len(fitting))):
            copyfile(text, own / text.name)
        yield own, longest


def gathered(surface: str, state: Path) -> None:
    """What processes found that is new goes to what is kept."""
    for own in (state / OWN).glob(f"{surface}-*"):
        for text in own.iterdir():
            text.replace(state / surface / text.name)
        own.rmdir()


def page(lines: Sequence[dict[str, Any]]) -> str:
    """docs/tables/fuzz-sources.md: texts, seconds and faults by surface."""
    out = ["# Random sources", "", "Made by `python -m benchmarks.fuzz.sources --write`: texts that atheris makes from the shipped kernels, given to a "
           f"frontend. A fault is an exception that is no refusal, more than {SECONDS:.0f} s of processor time, or more than {MEGABYTES / 1024:.0f} GB.", "",
           "| surface | texts | minutes | ways kept | faults | found and mended |", "| --- | ---: | ---: | ---: | --- | --- |"]
    for surface in SURFACES:
        own = [r for r in lines if r["surface"] == surface]
        faults, mended = Counter(f for r in own for f in r["faults"]), Counter(f for r in own for f in r.get("mended", []))
        out.append(f"| {surface} | {sum(r['texts'] for r in own):,} | {sum(r['seconds'] for r in own) / 60:.1f} | "
                   f"{max((r['kept'] for r in own), default=0):,} | "
                   f"{'; '.join(faults) or ('none' if any(r['texts'] for r in own) else 'not run')} | {'; '.join(mended) or 'none'} |")
    return "\n".join(out) + "\n"


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, errors="replace", env=os.environ)


def counted(state: Path, surface: str) -> tuple[int, float]:
    """Texts and seconds of the processes of a surface that are not in the log yet: those of a run that was ended before it wrote its line are in the next."""
    texts, seconds = 0, 0.0
    for file in (state / RAN).glob(f"{surface}-*.json"):
        line = json.loads(file.read_text())
        texts, seconds = texts + line["texts"], seconds + line["seconds"]
        file.unlink()
    return texts, seconds


def kept(state: Path, surface: str) -> int:
    """Texts of a surface that found new ways."""
    return len(list((state / surface).iterdir()))


def noted(log: Path, line: dict[str, Any]) -> None:
    """A line more of the log."""
    print(line, flush=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        file.write(json.dumps(line) + "\n")


def faults_said(done: subprocess.CompletedProcess[str]) -> set[str]:
    """The faults that a process names, and those that end it: no memory, or a crash of what is no Python."""
    said = done.stdout + done.stderr
    found = set(re.findall(r"^FAULT (.*)$", said, re.MULTILINE))
    found |= {f"libFuzzer: {word}" for word in re.findall(r"ERROR: libFuzzer: (.*?)(?: after \d+ seconds| \(.*)?$", said, re.MULTILINE)}
    return found | ({"out of memory"} if "out-of-memory" in said else set())


def main() -> int:
    """Run each surface for its share of the minutes, in a process of its own."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--surface", nargs="+", choices=SURFACES, default=list(SURFACES))
    arguments.add_argument("--minutes", type=float, default=3.0)
    arguments.add_argument("--jobs", type=int, default=1, help="processes of a surface at once, which share what they keep")
    arguments.add_argument("--state", type=Path, default=user_state_path("kir") / "fuzz-sources")
    arguments.add_argument("--log", type=Path, default=LOG)
    arguments.add_argument("--write", action="store_true", help="write docs/tables/fuzz-sources.md")
    arguments.add_argument("--taken", action="store_true", help="into the log what a run in the state's folder did that was ended before it wrote its lines")
    arguments.add_argument("--mended", action="store_true", help="what was found by now is mended")
    arguments.add_argument("--child", choices=SURFACES, help=argparse.SUPPRESS)
    arguments.add_argument("--own", type=Path, help=argparse.SUPPRESS)
    arguments.add_argument("--longest", type=int, help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    each = max(1, round(60 * chosen.minutes / len(chosen.surface)))
    if chosen.child:
        child(chosen.child, chosen.state, each, chosen.own, chosen.longest)
        return 0
    failed = False
    for surface in chosen.surface if chosen.taken else ():
        gathered(surface, chosen.state)
        texts, seconds = counted(chosen.state, surface)
        faults = sorted(x.stem.removeprefix(f"{surface}-") for x in (chosen.state / "faults").glob(f"{surface}-*"))
        if texts:
            noted(chosen.log, {"surface": surface, "texts": texts, "seconds": round(seconds), "kept": kept(chosen.state, surface), "faults": faults})
    for surface in chosen.surface if chosen.minutes and not chosen.taken else ():
        begun(surface, chosen.state)
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.fuzz.sources", "--child", surface, "--surface", surface, "--state", str(chosen.state),
                   "--minutes", str(each / 60)]
        with ThreadPoolExecutor(chosen.jobs) as pool:
            ended = list(pool.map(_run, [[*command, "--own", str(own), "--longest", str(longest)] for own, longest in
                                         parts(surface, chosen.state, chosen.jobs)]))
        gathered(surface, chosen.state)
        faults = sorted({x for done in ended for x in faults_said(done)})
        texts, seconds = counted(chosen.state, surface)
        if not texts:
            print((ended[0].stdout + ended[0].stderr)[-2000:])
        noted(chosen.log, {"surface": surface, "texts": texts, "seconds": round(seconds), "kept": kept(chosen.state, surface), "faults": faults})
        failed |= bool(faults) or not texts
    if chosen.mended:
        lines = [{**x, "faults": [], "mended": [*x.get("mended", []), *x["faults"]]} for x in map(json.loads, chosen.log.read_text().splitlines())]
        write_atomic(chosen.log, "".join(json.dumps(x) + "\n" for x in lines).encode())
    if chosen.write:
        PAGE.write_text(page([json.loads(x) for x in chosen.log.read_text().splitlines()] if chosen.log.is_file() else []))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
