"""The generated part of the data's page."""
from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from kir.base.store import write_atomic
from kir.learning.forecast.data import MANIFEST, ROWS, Data

BEGIN, END = "<!-- generated: python -m benchmarks.forecast card -->", "<!-- end -->"


def write(data: Data, folder: Path) -> None:
    """Put the generated part between its marks in `README.md`, which keeps the rest of its text."""
    path = folder / "README.md"
    text = path.read_text(encoding="utf-8") if path.is_file() else f"# Measured effects\n\n{BEGIN}\n{END}\n"
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    write_atomic(path, f"{head}{BEGIN}\n{generated(data, folder)}\n{END}{tail}")


def generated(data: Data, folder: Path) -> str:
    """Counts and files."""
    surfaces = Counter(data.programs[p.after].surface for p in data.pairs)
    sources, faults = Counter(p.source for p in data.pairs), Counter(p.fault for p in data.pairs if p.fault)
    devices = sorted({p.device for p in data.pairs})
    out = [f"{len(data.pairs)} pairs, {len(data.measured)} measurements of single programs, {len(data.programs)} programs. "
           f"Pairs by surface: {_counts(surfaces)}; by source: {_counts(sources)}; failures: {_counts(faults) or 'none'}.", "",
           f"| family | programs | {' | '.join(devices)} | failures |",
           "| --- | ---: | " + "---: | " * len(devices) + "---: |"]
    programs = Counter(r.family for r in data.programs.values())
    for family in sorted({p.family for p in data.pairs}):
        held = [p for p in data.pairs if p.family == family]
        on = Counter(p.device for p in held)
        out.append(f"| {family} | {programs[family]} | {' | '.join(str(on[d]) for d in devices)} | {sum(bool(p.fault) for p in held)} |")
    files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
    out += ["", "| file | table | rows | KB | SHA-256 | made by | on | when |", "| --- | --- | ---: | ---: | --- | --- | --- | --- |"]
    out += [f"| {name} | {a['table']} | {a['rows']} | {a['bytes'] / 1024:.0f} | `{a['sha256'][:16]}` | `{a['command']}` | {a['device']} | {a['when']} |"
            for name, a in files.items()]
    out += ["", "Columns:", ""]
    out += [f"- `{table}`: " + " ".join((row.__doc__ or "").split()) for table, row in ROWS.items()]
    return "\n".join(out)


def _counts(found: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(found.items()))
