"""Coverage-guided fuzzing of all readers by atheris, where that is installed (`pip install atheris`): the frontends of CUDA, Triton, TileLang and PTX, and
what reads a program's text, a problem's file and a card.

    python -m benchmarks.fuzz.sources [--surface NAME ..] [--minutes M] [--jobs N] [--state FOLDER] [--log FILE] [--taken] [--mended] [--write]

Texts begin from the shipped kernels and from what backends write of random programs; what finds new ways through a frontend is kept in the state's folder,
and gone on from. `--jobs` processes, forked when everything is instrumented and dealt out to the surfaces, each begin from a part of what is kept, most
from short texts alone, which are read faster, and begin anew every `ROUND` seconds, so that each has what the others found. A text comes out as
a program or as a located refusal: any other exception, more than `SECONDS` of processor time, or more than `MEGABYTES` is a fault, with its text in the
folder. A line of the log says how many texts a run gave, and how many of them were programs; `--write` writes docs/tables/fuzz-sources.md of the whole log.
Exit code 1 where there are faults.
"""
from __future__ import annotations

import argparse
import gc
import inspect
import json
import multiprocessing
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib import import_module
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from shutil import copyfile, rmtree
from types import FrameType
from typing import Any

from platformdirs import user_state_path

from benchmarks.bad_input.mutilated import SURFACES as LANGUAGES
from benchmarks.bad_input.mutilated import mutilated, sources
from benchmarks.fuzz.checking import MEMORY, TooLong, limited
from benchmarks.fuzz.making import Made
from kir.analysis import normalize
from kir.base.diagnostic import KirError
from kir.base.store import write_atomic
from kir.ir.parser import parse_program
from kir.ir.rules.verify import verify
from kir.learning.cards.card import parse_card
from kir.problem import load_problem
from kir.surface import backend, frontend

ROOT = Path(__file__).parents[2]
LOG, PAGE = ROOT / "benchmarks" / "results" / "fuzz" / "sources.jsonl", ROOT / "docs" / "tables" / "fuzz-sources.md"
SURFACES = (*LANGUAGES, "ptx", "kir", "problem", "card")
SECONDS, MEGABYTES = 5.0, 2048
LENGTHS = (6_000, 900, 900, 400, 400, 400, 400, 400)
"""Processor time and memory of one text; and how many bytes one may have, by the number of the process: short ones are read faster."""
PART, COLLECTED, MOST, BARE = 600, 200, 12_000, 1_200
"""Texts of what is kept that a process begins from; after how many texts garbage is collected; how many of a surface are kept; and how many of those have
no kernel: the shortest."""
ROUND, SHORTEST, BYTES = 150.0, 20.0, 4
"""Wall seconds after which a process begins anew; under which none does; and one of how many texts is changed by bytes."""
STUCK = 120
"""Wall seconds of one text from which on libFuzzer ends the process: what no signal of Python ends."""
RAN, NOTED, OWN, SAID = "ran", 1.0, "own", "said"
"""Where each process of a run says how many texts it has read, seconds between two times, where each has the texts that it begins from and finds, and its
words."""
WRITTEN, LOADED = 40, 20
"""Random programs of which what a backend writes is among the first texts; and texts that are read before processes are forked."""
ENDING = {"cuda": ".cu", "ptx": ".ptx", "kir": ".kir", "problem": ".toml", "card": ".md"}
KERNEL = {"cuda": b"__global__", "triton": b"def ", "tilelang": b"def ", "ptx": b".entry", "kir": b"kernel ", "problem": b"name", "card": b"## Record"}
"""What a text with a kernel, or with what else is read, has."""
ROOM = {"ptx": 6_000, "card": 9_000, "problem": 3_000}
"""How many bytes a text may have at least of what is never short."""
SHIPPED = {"ptx": "[bt]*/**/*.ptx", "kir": "skills/problems/*/naive.kir", "problem": "skills/problems/*/problem.toml", "card": "skills/cards/*.md"}
"""Where the first texts of what is no language are."""
FOLLOWED = {"kir": ("kir.ir.parser", "kir.ir.terms", "kir.ir.grammar.syntax"), "card": ("kir.learning.cards.card",),
            "problem": ("kir.problem.load", "kir.problem.schema", "kir.problem.problem")}
"""Modules that are loaded by then, and followed by atheris all the same."""
HEADS = {"triton": "import triton\nimport triton.language as tl\n", "tilelang": "import tilelang\nimport tilelang.language as T\n"}
"""What a file of a surface begins with, so that the surface is not what is guessed."""


class Watch:
    """Raises TooLong in a block that takes too long, in processor time: one timer for all of them, which costs none of them anything."""

    def __init__(self) -> None:
        self.ticks, self.on = 0, False
        signal.signal(signal.SIGPROF, self._tick)
        signal.setitimer(signal.ITIMER_PROF, 1.0, 1.0)

    def _tick(self, number: int, frame: FrameType | None) -> None:
        self.ticks += 1
        if self.on and self.ticks > SECONDS:
            raise TooLong

    def __enter__(self) -> None:
        self.ticks, self.on = 0, True

    def __exit__(self, *how: object) -> None:
        self.on = False


def read(surface: str, text: str, folder: Path, count: Counter[str] | None = None, watch: Watch | None = None) -> str:
    """Reads the first kernel of a text as a file: "" for a program or a refusal, else the kind of fault. `count` gets how many are programs."""
    file = folder / f"k{ENDING.get(surface, '.py')}"
    file.write_text(HEADS.get(surface, "") + text, encoding="utf-8")
    try:
        with watch or limited(SECONDS):
            read_whole(surface, file, text, count if count is not None else Counter())
    except KirError:
        return ""
    except TooLong:
        return "too long"
    except Exception as crash:  # what is looked for
        where = traceback.extract_tb(crash.__traceback__)[-1]
        return f"{type(crash).__name__} at {Path(where.filename).name}:{where.name}"
    return ""


def read_whole(surface: str, file: Path, text: str, count: Counter[str]) -> None:
    """Reads a file as what it is; `count` gets how many are programs (problems, cards)."""
    if surface == "kir":
        verify(parse_program(text, file.name))
    elif surface == "problem":
        load_problem(file).shapes  # noqa: B018  # worked out from the texts of its file
    elif surface == "card":
        parse_card(text, file.name)
    else:
        reader = frontend(surface)
        for kernel in reader.kernels(file)[:1]:
            instantiate = getattr(reader, "instantiate", None)
            reader.parse(file, kernel.name) if instantiate is None else instantiate(file, kernel.name, None)
            count["programs"] += 1
        return
    count["programs"] += 1


def followed(atheris: Any, name: str) -> None:
    """Has atheris follow the functions of a module that is loaded already."""
    module = import_module(name)
    for _, each in inspect.getmembers(module):
        own = [each] if inspect.isfunction(each) else [f for _, f in inspect.getmembers(each, inspect.isfunction)] if inspect.isclass(each) else []
        for f in own:
            if f.__module__ == name:
                atheris.instrument_func(f)


def instrumented(surfaces: Sequence[str], state: Path) -> Any:
    """atheris, with the frontends of some surfaces followed by it, and the first texts in the state's folder, which is bounded: long for a process, so done
    once for all."""
    atheris: Any = import_module("atheris")  # optional: not among what is installed
    beside = [multiprocessing.get_context("fork").Process(target=_ready, args=(surface, state)) for surface in surfaces]
    for process in beside:
        process.start()
    with atheris.instrument_imports(include=["kir.frontends", "kir.surface"]):
        for surface in surfaces:
            if surface in (*LANGUAGES, "ptx"):
                import_module(f"kir.frontends.{surface}.frontend")
        for name in (x for surface in surfaces for x in FOLLOWED.get(surface, ())):
            followed(atheris, name)
        for process in beside:
            process.join()
        for surface in surfaces:
            with tempfile.TemporaryDirectory() as folder:  # so that what is loaded when it is needed is loaded by now
                for text in sorted((state / surface).iterdir(), key=lambda x: x.stat().st_size)[:LOADED]:
                    read(surface, text.read_text(errors="ignore"), Path(folder))
    return atheris


def _ready(surface: str, state: Path) -> None:
    begun(surface, state)
    bounded(state, surface)


def child(atheris: Any, surface: str, state: Path, seconds: int, own: Path, longest: int) -> None:
    """Fuzzes in this process, which libFuzzer ends."""
    said = os.open(state / SAID / own.name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    folder, seen, texts, begun_at, noted_at = Path(tempfile.mkdtemp(dir=MEMORY)), set[str](), 0, time.monotonic(), 0.0
    count, watch = Counter[str](), Watch()
    _alone(folder)
    gc.freeze()  # what is loaded by now is not looked through again
    gc.disable()

    def one(data: bytes) -> None:
        nonlocal texts, noted_at
        if (now := time.monotonic()) - noted_at > NOTED:
            noted_at = now
            line = {"surface": surface, "texts": texts, "programs": count["programs"], "seconds": now - begun_at}
            write_atomic(state / RAN / f"{own.name}-{os.getpid()}-{begun_at:.0f}.json", json.dumps(line).encode())
        texts += 1
        if texts % COLLECTED == 0:
            gc.collect()
        text = data.decode("utf-8", errors="ignore")
        if (kind := read(surface, text, folder, count, watch)) and kind not in seen:
            seen.add(kind)
            name = re.sub(r"\W+", "-", kind)
            (state / "faults" / f"{surface}-{name}{ENDING.get(surface, '.py')}").write_text(HEADS.get(surface, "") + text)
            print(f"FAULT {kind}", flush=True)

    def changed(data: bytes, most: int, seed: int) -> bytes:
        """All but one of `BYTES` texts are changed by tokens: what bytes alone make of a text is mostly no program."""
        text = data.decode("utf-8", errors="ignore")
        if seed % BYTES and text.strip():
            return mutilated(text, random.Random(seed)).encode()[:most]
        made: bytes = atheris.Mutate(data, most)
        return made
    atheris.Setup([sys.argv[0], str(own), f"-max_total_time={seconds}", f"-rss_limit_mb={MEGABYTES}", f"-max_len={longest}", f"-timeout={STUCK}",
                   f"-artifact_prefix={state}/", "-reload=0", f"-seed={random.SystemRandom().getrandbits(31)}"], one,
                  custom_mutator=changed)
    atheris.Fuzz()


def _alone(folder: Path) -> None:
    """What a text finds around its file is asked for once: nothing else comes to be in the folder."""
    files: Any = import_module("kir.frontends.cuda.source.source")
    build, root = files.build_of(folder / "k.cu"), files.root_of(folder / "k.cu")
    files.build_of, files.root_of = (lambda source: build), (lambda source: root)
    paths: Any = os.path
    real = cache(paths.realpath)
    paths.realpath = lambda path, *, strict=False: real(os.fspath(path), strict=strict)


def begun(surface: str, state: Path) -> None:
    """The first texts: shipped ones, and random programs, of a language what its backend writes of them, which is short and of many forms."""
    (state / surface).mkdir(parents=True, exist_ok=True)
    texts = [file.read_bytes() for file in sorted(ROOT.glob(SHIPPED[surface]))] if surface in SHIPPED else [x.file.read_bytes() for x in sources(surface)]
    if surface == "kir":
        texts += [Made(seed).text.encode() for seed in range(WRITTEN)]
    for seed in range(WRITTEN if surface in LANGUAGES else 0):
        by, p = backend(surface), normalize(parse_program(Made(seed).text, "p.kir"))
        if not list(by.accepts(p)):
            texts.append(by.emit(p).text.encode())
    for text in texts:
        (state / surface / sha256(text).hexdigest()[:16]).write_bytes(text)


def part(surface: str, state: Path, k: int) -> tuple[Path, int]:
    """The folder of a process, the `k`-th, with what it begins from, and how long its texts may be."""
    every, own = sorted((state / surface).iterdir()), state / OWN / f"{surface}-{k}"
    longest = max(LENGTHS[k // len(LANGUAGES) % len(LENGTHS)], ROOM.get(surface, 0))
    gathered(surface, state, own)
    own.mkdir(parents=True)
    fitting = [x for x in every if x.stat().st_size <= longest]
    for text in random.sample(fitting, min(PART, len(fitting))):
        copyfile(text, own / text.name)
    return own, longest


def gathered(surface: str, state: Path, own: Path) -> None:
    """What a process found that is new goes to what is kept."""
    for text in own.iterdir() if own.is_dir() else ():
        text.replace(state / surface / text.name)
    rmtree(own, ignore_errors=True)


def bounded(state: Path, surface: str) -> None:
    """Of what is kept, kernels of all lengths, and of the rest the shortest: those alone would soon be all that is kept."""
    rest, kernels = list[Path](), list[Path]()
    for text in sorted((state / surface).iterdir(), key=lambda x: (x.stat().st_size, x.name)):
        (kernels if KERNEL[surface] in text.read_bytes() else rest).append(text)
    random.shuffle(kernels)
    for text in (*rest[BARE:], *kernels[MOST - BARE:]):
        text.unlink()


def running(surfaces: Sequence[str], state: Path, minutes: float, jobs: int) -> set[tuple[str, str]]:
    """Processes for so many minutes, with what is made ready for them; the faults that they said, by surface."""
    end, found = time.monotonic() + 60 * minutes, set[tuple[str, str]]()
    for folder in (RAN, OWN, SAID, "faults"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    atheris = instrumented(sorted(set(surfaces)), state)
    gc.collect()
    gc.freeze()
    fork, at_work = multiprocessing.get_context("fork"), dict[int, BaseProcess]()
    while at_work or end - time.monotonic() > SHORTEST:
        for k in range(jobs):
            if k not in at_work and (left := end - time.monotonic()) > SHORTEST:
                surface = surfaces[k % len(surfaces)]
                own, longest = part(surface, state, k)
                spread = ROUND * random.uniform(0.7, 1.3)  # so that they do not all begin anew at once
                at_work[k] = fork.Process(target=child, args=(atheris, surface, state, max(1, round(min(left, spread))), own, longest), daemon=True)
                at_work[k].start()
        wait([process.sentinel for process in at_work.values()], 1.0)
        for k, process in list(at_work.items()):
            if not process.is_alive() or time.monotonic() > end + 2 * STUCK:
                process.kill()
                own = state / OWN / f"{surfaces[k % len(surfaces)]}-{k}"
                found |= {(surfaces[k % len(surfaces)], fault) for fault in faults_said((state / SAID / own.name).read_text(errors="replace"))}
                gathered(surfaces[k % len(surfaces)], state, own)
                del at_work[k]
    return found


def page(lines: Sequence[dict[str, Any]]) -> str:
    """docs/tables/fuzz-sources.md: texts, seconds and faults by surface."""
    out = ["# Random sources", "", "Made by `python -m benchmarks.fuzz.sources --write`: texts that atheris makes from the shipped ones, given to a "
           f"reader. A fault is an exception that is no refusal, more than {SECONDS:.0f} s of processor time, or more than {MEGABYTES / 1024:.0f} GB.", "",
           f"{sum(r['texts'] for r in lines):,} texts in {sum(r['seconds'] for r in lines) / 3600:.1f} hours of processes. Of "
           f"{sum(r['texts'] for r in lines if 'programs' in r):,} it was counted how many were programs: {sum(r.get('programs', 0) for r in lines):,}.", "",
           "| surface | texts | minutes | ways kept | faults | found and mended |", "| --- | ---: | ---: | ---: | --- | --- |"]
    for surface in SURFACES:
        own = [r for r in lines if r["surface"] == surface]
        faults, mended = Counter(f for r in own for f in r["faults"]), Counter(f for r in own for f in r.get("mended", []))
        out.append(f"| {surface} | {sum(r['texts'] for r in own):,} | {sum(r['seconds'] for r in own) / 60:.1f} | "
                   f"{max((r['kept'] for r in own), default=0):,} | "
                   f"{'; '.join(faults) or ('none' if any(r['texts'] for r in own) else 'not run')} | {'; '.join(mended) or 'none'} |")
    return "\n".join(out) + "\n"


def counted(state: Path, surface: str) -> Counter[str]:
    """Texts, programs and seconds of the processes of a surface that are not in the log yet: those of a run that was ended before it wrote its line are in the
    next."""
    out = Counter[str]()
    for file in (state / RAN).glob(f"{surface}-*.json"):
        line = json.loads(file.read_text())
        out.update({word: round(line[word]) for word in ("texts", "programs", "seconds")})
        file.unlink()
    return out


def kept(state: Path, surface: str) -> int:
    """Texts of a surface that found new ways."""
    return len(list((state / surface).iterdir()))


def noted(log: Path, line: dict[str, Any]) -> None:
    """A line more of the log."""
    print(line, flush=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        file.write(json.dumps(line) + "\n")


def faults_said(said: str) -> set[str]:
    """The faults that a process names, and those that end it: no memory, or a crash of what is no Python."""
    found = set(re.findall(r"^FAULT (.*)$", said, re.MULTILINE))
    found |= {f"libFuzzer: {word}" for word in re.findall(r"ERROR: libFuzzer: (.*?)(?: after \d+ seconds| \(.*)?$", said, re.MULTILINE)}
    return found | ({"out of memory"} if "out-of-memory" in said else set())


def main() -> int:
    """Run each surface for its share of the minutes, in a process of its own."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--surface", nargs="+", choices=SURFACES, default=list(SURFACES), help="one may be named twice: it gets twice the processes")
    arguments.add_argument("--minutes", type=float, default=3.0)
    arguments.add_argument("--jobs", type=int, default=1, help="processes at once, which share what they keep")
    arguments.add_argument("--state", type=Path, default=user_state_path("kir") / "fuzz-sources")
    arguments.add_argument("--log", type=Path, default=LOG)
    arguments.add_argument("--write", action="store_true", help="write docs/tables/fuzz-sources.md")
    arguments.add_argument("--taken", action="store_true", help="into the log what a run in the state's folder did that was ended before it wrote its lines")
    arguments.add_argument("--mended", action="store_true", help="what was found by now is mended")
    chosen = arguments.parse_args()
    failed, found = False, set[tuple[str, str]]()
    if chosen.minutes and not chosen.taken:
        found = running(chosen.surface, chosen.state, chosen.minutes, max(chosen.jobs, len(chosen.surface)))
    for surface in dict.fromkeys(chosen.surface) if chosen.minutes or chosen.taken else ():
        for own in (chosen.state / OWN).glob(f"{surface}-*"):
            gathered(surface, chosen.state, own)
        bounded(chosen.state, surface)
        faults = sorted({x.stem.removeprefix(f"{surface}-") for x in (chosen.state / "faults").glob(f"{surface}-*")} if chosen.taken else
                        {fault for of, fault in found if of == surface})
        if count := counted(chosen.state, surface):
            noted(chosen.log, {"surface": surface, **count, "kept": kept(chosen.state, surface), "faults": faults})
        failed |= bool(faults) or not count
    if chosen.mended:
        lines = [{**x, "faults": [], "mended": [*x.get("mended", []), *x["faults"]]} for x in map(json.loads, chosen.log.read_text().splitlines())]
        write_atomic(chosen.log, "".join(json.dumps(x) + "\n" for x in lines).encode())
    if chosen.write:
        PAGE.write_text(page([json.loads(x) for x in chosen.log.read_text().splitlines()] if chosen.log.is_file() else []))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
