"""Where passes would pay: every forward site of every recorded kernel, with its verdicts and what the cost model says of it."""
from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import log2
from pathlib import Path
from typing import Any

from kir.diagnostic import KirError, usage
from kir.gate.cost import program_cost
from kir.ir import nodes as n
from kir.lineage.source import load_expert
from kir.rewrite import judge, passes, sites
from kir.rewrite.anchor import anchor_text
from kir.rewrite.driver import run_forward
from kir.rewrite.residue import Residue
from kir.store import write_atomic
from kir.target import Target

MARK = "# "
"""How a recorded binding's first line starts, which names the kernel as FILE::KERNEL."""


@dataclass(frozen=True)
class Suggestion:
    """A forward site: `gain` is log2 of modelled time before over after; `refused` are the ids of validity preconditions that do not
    hold, `open_` those that could not be decided."""

    kernel: str
    binding: str
    step: str
    gain: float
    seconds: float
    refused: tuple[str, ...] = ()
    open_: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"kernel": self.kernel, "binding": self.binding, "step": self.step, "log2_gain": round(self.gain, 4),
                "modelled_seconds": self.seconds, "refused": list(self.refused), "undecided": list(self.open_)}


@dataclass
class Ranking:
    """Suggestions, best first: those that may be applied, by modelled gain; then those that a precondition stops. `skipped` are kernels
    that could not be read, and why."""

    suggestions: list[Suggestion] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)


def recorded(folder: Path) -> list[tuple[str, Path]]:
    """The bindings of a folder that name their kernel, as (FILE::KERNEL, binding); so those of a file of JSON lines with `kernel` and
    `binding`, which are written out first. Raises UsageError KIR-C118 when there are none."""
    if folder.is_file():
        folder = _unpacked(folder)
    out = []
    for path in sorted(folder.glob("*.toml")) if folder.is_dir() else []:
        first = path.read_text(encoding="utf-8").partition("\n")[0]
        if first.startswith(MARK) and "::" in first:
            out.append((first.removeprefix(MARK).strip(), path))
    if not out:
        raise usage("KIR-C118", f"{folder} holds no recorded bindings", attempt="kir capture -o bindings -- python app.py")
    return out


def _unpacked(lines: Path) -> Path:
    """A folder with the bindings of a file of JSON lines, one file each, under the user's cache; the same content has the same folder."""
    import platformdirs

    text = lines.read_text(encoding="utf-8")
    folder = Path(platformdirs.user_cache_dir("kir")) / "bindings" / hashlib.sha256(text.encode()).hexdigest()[:16]
    try:
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        files = {f"{row['kernel'].rpartition('::')[2].strip('_')}-{i}.toml": f"{MARK}{row['kernel']}\n{row['binding']}" for i, row in enumerate(rows, 1)}
    except (ValueError, KeyError, TypeError, AttributeError) as bad:
        raise usage("KIR-C118", f"{lines} holds no recorded bindings: {bad}", attempt="kir capture -o bindings -- python app.py") from bad
    for name, content in files.items():
        if not (folder / name).exists():
            write_atomic(folder / name, content)
    return folder


def ranked(folder: Path, target: Target, advance: Callable[[str], None] = lambda text: None) -> Ranking:
    """Every forward site of every kernel with a binding in the folder, on a modelled device."""
    out = Ranking()
    for place, binding in recorded(folder):
        try:
            program = load_expert(place, binding).program
            out.suggestions += _suggestions(program, place, binding, target)
        except KirError as bad:
            out.skipped.append((place, f"{bad.diagnostics[0].id} {bad.diagnostics[0].message}"))
        advance(place)
    out.suggestions.sort(key=lambda s: (bool(s.refused), bool(s.open_), -s.gain, s.kernel, s.step))
    return out


def _suggestions(program: n.Program, place: str, binding: Path, target: Target) -> Iterator[Suggestion]:
    before = sum(c.seconds for c in program_cost(program, {}, target))
    for cls in passes():
        try:
            found = sites(cls.with_options({}), program, "forward")
        except KirError:
            continue  # its patterns do not fit this program; kir sites says why
        for site in found:
            try:
                after = sum(c.seconds for c in program_cost(run_forward(program, site, Residue()).program, {}, target))
                verdicts = dict(judge(program, site))
            except KirError:
                continue
            valid = [(p.id, verdicts[p.id]) for p in site.params.preconditions if p.kind == "validity"]
            refused = tuple(id_ for id_, v in valid if v.kind == "refuted")
            undecided = tuple(id_ for id_, v in valid if v.kind == "unknown")
            step = f"{site.params}@{anchor_text(program, site.path)}"
            yield Suggestion(place, binding.name, step, log2(before / after), float(f"{after:.4g}"), refused, undecided)
