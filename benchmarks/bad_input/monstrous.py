"""Monstrous texts: what no person writes, given to every reader: nesting without end, names of a megabyte, numbers of 100,000 digits, bytes that are no text,
macros that grow exponentially, thousands of includes or decorators.

`python -m benchmarks.bad_input.monstrous [--reader NAME ..] [--only TEXT] [--jobs N] [--log FILE] [--write]` gives each to `kir` in a process of its own. What
comes out is a program or a refusal with an id. A fault is an internal error (KIR-C003), a traceback, a process that ends by a signal, more than `SECONDS` of
processor time or more than `MEGABYTES`; the exit code is 1 then.
"""
from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.bad_input.monsters import FRAMES, ROOT, Monster, monsters, put
from benchmarks.fuzz.state import today
from kir.base.store import write_atomic
from kir.faces.cli._main import run

LOG, PAGE = ROOT / "benchmarks" / "results" / "fuzz" / "monsters.json", ROOT / "docs" / "tables" / "fuzz-monsters.md"
SECONDS, MEGABYTES, ROOM, FRESH = 5, 2048, 8_000, 256
"""Processor time and memory that one text may take; address space, in megabytes, of its process; and what a process holds at most that has read nothing:
one that is forked from a larger one (a long run of tests) is not charged with the rest."""
FILES = {"cuda": "k.cu", "triton": "k.py", "tilelang": "k.py", "ptx": "k.ptx", "kir": "k.kir", "binding": "k.toml", "problem": "problem.toml",
         "card": "fold-scale.store.md"}


def words(reader: str, folder: Path) -> list[str]:
    """The command that reads it."""
    file = folder / FILES[reader]
    if reader == "binding":
        (folder / "k.cu").write_text(put(FRAMES["cuda"]))
        return ["parse", f"{folder / 'k.cu'}::k", "--bind", str(file), "--normal"]
    if reader == "problem":
        for beside in (ROOT / "skills" / "problems" / "softmax").iterdir():
            if beside.name != "problem.toml" and beside.is_file():
                shutil.copyfile(beside, folder / beside.name)
        return ["run", str(folder / "naive.kir"), "--problem", str(folder)]
    if reader == "card":
        return ["skills", "show", str(file)]
    return ["parse", str(file)]


def _megabytes() -> int:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def _said(reader: str, folder: Path) -> None:
    """What `kir` says, into a file: in a process of its own."""
    resource.setrlimit(resource.RLIMIT_CPU, (6 * SECONDS, 6 * SECONDS + 1))
    signal.alarm(20 * SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (ROOM << 20, ROOM << 20))
    before, out = time.process_time(), io.StringIO()
    given = max(0, _megabytes() - FRESH)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = run([*words(reader, folder), "--debug"])
    shown = out.getvalue()
    took = time.process_time() - before
    memory = _megabytes() - given
    frames = re.findall(r'File "([^"]+)", line (\d+)', shown)
    where = "/".join(Path(frames[-1][0]).parts[-2:]) + f":{frames[-1][1]}" if frames else "?"
    wrong = ""
    if inner := re.search(r"KIR-C003[^\n]*", shown):
        wrong = f"{inner[0][:160]} ({where})"
    elif code not in (0, 1, 2) or (code and not re.search(r"KIR-[A-Z]\d+", shown)):
        wrong = f"exit code {code}: {shown[-200:]!r}"
    elif took > SECONDS:
        wrong = f"{took:.1f} s"
    elif memory > MEGABYTES:
        wrong = f"{memory} MB"
    ids = re.findall(r"error\[(KIR-[A-Z]\d+)\]", shown)
    (folder / "said").write_text(f"{wrong}\n{took:.2f} s, {memory} MB, exit code {code}, {ids[0] if ids else 'read'}", errors="replace")


def fault(each: Monster) -> tuple[str, str]:
    """What is wrong with what `kir` makes of it ("" where nothing is), and what it was."""
    with tempfile.TemporaryDirectory() as at:
        folder = Path(at)
        (folder / FILES[each.reader]).write_bytes(each.made())
        if not (child := os.fork()):
            try:
                _said(each.reader, folder)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        if not (folder / "said").is_file():
            return f"the process ended with {os.waitstatus_to_exitcode(status)}", ""
        wrong, _, shown = (folder / "said").read_text().partition("\n")
        return wrong, shown


def page(kept: dict[str, dict[str, Any]]) -> str:
    """docs/tables/fuzz-monsters.md."""
    texts, faults = (sum(len(x[k]) if k == "faults" else x[k] for x in kept.values()) for k in ("texts", "faults"))
    lines = ["# Monstrous texts", "", "Made by `python -m benchmarks.bad_input.monstrous`, then `--write`: what no person writes, for each reader. A fault is",
             f"an internal error, a process that dies, more than {SECONDS} s of processor time or more than {MEGABYTES // 1024} GB.", "",
             f"{texts:,} texts of {len(list(monsters())):,}, {faults} faults; what is open of the others is named in [fuzz](fuzz.md).", "",
             "| reader | texts | read | refused | slowest (s) | most memory (MB) | faults | day |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |"]
    lines += [f"| {name} | {x['texts']} | {x['read']} | {sum(x['refused'].values())} | {x['slowest']:.1f} | {x['most']} | {len(x['faults'])} | {x['day']} |"
              for name, x in sorted(kept.items())]
    if faults:
        lines += ["", "| reader | text | what is wrong |", "| --- | --- | --- |"]
        lines += [f"| {name} | {what.replace('|', '/')} | {wrong.replace('|', '/')} |"
                  for name, x in sorted(kept.items()) for what, wrong in x["faults"].items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--reader", nargs="*", default=list(FILES), choices=list(FILES))
    arguments.add_argument("--only", default="", help="those with this text in their name")
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("--log", type=Path, default=LOG, help="where what came of each reader's texts is kept")
    arguments.add_argument("--write", action="store_true", help="write docs/tables/fuzz-monsters.md of the log, and no more")
    arguments.add_argument("--all", action="store_true", help="print what came of each")
    chosen = arguments.parse_args()
    if chosen.write:
        PAGE.write_text(page(json.loads(chosen.log.read_text())))
        return 0
    every = [m for m in monsters() if m.reader in chosen.reader and chosen.only in m.name]
    with tempfile.TemporaryDirectory() as at:  # loads what is loaded when it is needed
        for reader in chosen.reader:
            frame = FRAMES[reader]
            (Path(at) / FILES[reader]).write_text(put(frame) if reader not in ("problem", "card") else frame)
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                run(words(reader, Path(at)))
    came: dict[str, dict[str, Any]] = {}
    bad = 0
    with ThreadPoolExecutor(chosen.jobs) as pool:
        for each, (wrong, shown) in zip(every, pool.map(fault, every), strict=True):
            bad += bool(wrong)
            own = came.setdefault(each.reader, {"day": today(), "texts": 0, "read": 0, "refused": {}, "slowest": 0.0, "most": 0, "faults": {}})
            own["texts"] += 1
            if wrong:
                own["faults"][each.name] = wrong.replace(f"{Path(__file__).parents[2]}/", "")[:160]
            else:
                seconds, memory, _, what = (shown.split(", ") + [""] * 4)[:4]
                own["slowest"], own["most"] = max(own["slowest"], float(seconds.split()[0])), max(own["most"], int(memory.split()[0]))
                if what == "read":
                    own["read"] += 1
                else:
                    own["refused"][what] = own["refused"].get(what, 0) + 1
            if wrong or chosen.all:
                print(f"{each.reader}: {each.name}: {wrong or shown}", flush=True)
            if not chosen.only:
                held = json.loads(chosen.log.read_text()) if chosen.log.is_file() else {}
                chosen.log.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(chosen.log, json.dumps({**held, **came}, indent=1, sort_keys=True) + "\n")
    print(f"{len(every)} texts, {bad} faults")
    return int(bad > 0)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
