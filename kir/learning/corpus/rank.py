"""Where passes would pay: every forward site of every recorded kernel, with its verdicts and what a forecaster says of it."""
from __future__ import annotations

import contextlib
import hashlib
import json
import multiprocessing
import re
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import field, replace
from math import log2
from pathlib import Path
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error, usage
from kir.base.store import write_atomic
from kir.hardware.target import Target
from kir.hardware.target import target as target_of
from kir.ir import nodes as n
from kir.learning.forecast.choosing import Counted, Spent, forecaster
from kir.learning.forecast.distribution import Pair
from kir.rewrite import Context, Site, judge, passes, sites
from kir.rewrite.anchor import anchor_text
from kir.rewrite.driver import apply, rejection_reason, run_forward
from kir.rewrite.residue import Residue
from kir.surface import backend
from kir.surface.reading import Expert, load_expert

MARK = "# "
"""How a recorded binding's first line starts, which names the kernel as FILE::KERNEL."""


SECONDS = 60.0
"""How long one kernel may be looked at."""


@dataclass(frozen=True)
class Suggestion:
    """A forward site: `gain` is log2 of the forecast speedup's median, `low` and `high` the ends of its 80 % interval, `fails` how likely the step fails;
    `seconds` modelled ones after it; `refused` are the ids of validity preconditions that do not
    hold, `open_` those that could not be decided. A kernel's suggestions are carried out with every check, best first, down to the first
    whose result the kernel's own surface can say: `refused` are also the ids of what is said of those before."""

    kernel: str
    binding: str
    step: str
    gain: float
    seconds: float
    refused: tuple[str, ...] = ()
    open_: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    fails: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"kernel": self.kernel, "binding": self.binding, "step": self.step, "log2_gain": round(self.gain, 4),
                "log2_interval": [round(self.low, 4), round(self.high, 4)], "fails": round(self.fails, 4), "modelled_seconds": self.seconds,
                "refused": list(self.refused), "undecided": list(self.open_)}


@dataclass
class Ranking:
    """Suggestions, best first: those that may be applied, by modelled gain; then those that a precondition stops. `skipped` are kernels
    that could not be read, and steps that could not be looked at, and why."""

    suggestions: list[Suggestion] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    kernels: int = 0
    spent: Spent = field(default_factory=Spent)


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


def launches_in(binding: Path) -> int:
    """How often a recorded binding was seen, by its second line; 1 where that does not say."""
    second = [*binding.read_text(encoding="utf-8").split("\n", 2), ""][1]
    found = re.fullmatch(r"# (\d+) launches", second)
    return int(found[1]) if found else 1


def _unpacked(lines: Path) -> Path:
    """A folder with the bindings of a file of JSON lines, one file each, under the user's cache; the same content has the same folder."""
    import platformdirs

    text = lines.read_text(encoding="utf-8")
    folder = Path(platformdirs.user_cache_dir("kir")) / "bindings" / hashlib.sha256(f"launched often {text}".encode()).hexdigest()[:16]
    try:
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        files = {f"{row['kernel'].rpartition('::')[2].strip('_')}-{i}.toml": f"{_first(row)}{launched(row['binding'])}"
                 for i, row in enumerate(rows, 1) if row["binding"] and not row.get("generated")}
    except (ValueError, KeyError, TypeError, AttributeError) as bad:
        raise usage("KIR-C118", f"{lines} holds no recorded bindings, one a line as JSON", needs="folders of lineages, or what `kir capture` recorded",
                    attempt="kir lineage FILE, or kir capture -o bindings -- python app.py") from bad
    for name, content in files.items():
        if not (folder / name).exists():
            write_atomic(folder / name, content)
    return folder


def _first(row: dict[str, Any]) -> str:
    return f"{MARK}{_place(row)}\n{MARK}{row.get('launches', 1)} launches\n"


def launched(binding: str) -> str:
    """The text of a launch's binding, which says that it is one; those that were recorded before bindings said so do not."""
    said = any(line.partition("=")[0].strip() == "recorded" for line in binding.splitlines())
    return binding if said else f"recorded = true\n{binding}"


def _place(row: dict[str, Any]) -> str:
    """The kernel of a row: FILE::KERNEL, or apart as `package`, `file` and `kernel`."""
    kernel = str(row["kernel"])
    return kernel if "::" in kernel else f"{row['package']}:{row['file']}::{kernel}"


def ranked(folder: Path, target: Target, advance: Callable[[str], None] = lambda text: None, jobs: int = 1, seconds: float = SECONDS,
           only: frozenset[str] = frozenset(), model: str = "") -> Ranking:
    """Every forward site of every kernel with a binding in the folder, on a modelled device; `only` are the passes to look for (none: all), `model` the
    forecaster that is asked.
    With several `jobs`, each kernel is looked at by one of as many processes."""
    found = recorded(folder)
    asked = [(place, binding, target.name, seconds, only, model) for place, binding in found]
    out = Ranking(kernels=len(found))
    with contextlib.ExitStack() as held:
        answers: Iterable[Ranking]
        if jobs > 1:
            pool = held.enter_context(ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")))
            answers = _in_order(pool, asked)
        else:
            answers = map(_of_kernel, asked)
        for (place, *_), each in zip(asked, answers, strict=True):
            out.suggestions += each.suggestions
            out.skipped += each.skipped
            out.spent.forecasts += each.spent.forecasts
            out.spent.seconds += each.spent.seconds
            advance(place)
    out.suggestions.sort(key=lambda s: (bool(s.refused), bool(s.open_), -s.gain, s.kernel, s.step))
    return out


_Asked = tuple[str, Path, str, float, frozenset[str], str]


def _in_order(pool: ProcessPoolExecutor, asked: list[_Asked]) -> Iterator[Ranking]:
    """The answers in order; a kernel that took its process down is skipped, and so is what was running beside it."""
    waiting = [pool.submit(_of_kernel, each) for each in asked]
    for each, answer in zip(asked, waiting, strict=True):
        try:
            yield answer.result()
        except BrokenProcessPool:
            yield Ranking(skipped=[(each[0], "its process died, or one beside it: run it alone (-j 1)")])


def _of_kernel(asked: _Asked) -> Ranking:
    """The suggestions for one kernel, and what was left out of them, with the reason."""
    place, binding, name, seconds, only, model = asked
    out = Ranking()

    def late(number: int, frame: object) -> None:
        raise error("KIR-C120", f"it takes more than {seconds:g} s to look at", attempt="--seconds")
    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        _look(out, load_expert(place, binding), place, binding, target_of(name), only, forecaster(model))
    except KirError as bad:
        out.skipped.append((place, f"{bad.diagnostics[0].id} {bad.diagnostics[0].message}"))
    except Exception as fault:  # one bad kernel never stops the run
        out.skipped.append((place, f"KIR-C003 {type(fault).__name__}: {fault}"[:300]))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return out


def _look(out: Ranking, expert: Expert, place: str, binding: Path, target: Target, only: frozenset[str], ask: Counted) -> None:
    program = expert.program
    out.spent = ask.spent
    context = Context(target=target)
    open_: list[tuple[Suggestion, Site]] = []
    for cls in passes():
        if only and cls.name not in only:
            continue
        try:
            found = sites(cls.with_options({}), program, "forward")
        except KirError as bad:
            out.skipped.append((place, f"{cls.name}: {bad.diagnostics[0].id} {bad.diagnostics[0].message}"))
            continue
        for site in found:
            step = f"{site.params}@{anchor_text(program, site.path)}"
            try:
                after = run_forward(program, site, Residue()).program
                seen = ask(Pair(program, after, {}, target, step, expert.surface))
                verdicts = dict(judge(program, site, context))
            except KirError as bad:
                if bad.diagnostics[0].id == "KIR-C120":
                    raise
                out.skipped.append((place, f"{step}: {bad.diagnostics[0].id} {bad.diagnostics[0].message}"))
                continue
            except (ZeroDivisionError, ValueError):
                out.skipped.append((place, f"{step}: nothing is modelled"))
                continue
            valid = [(p.id, verdicts[p.id]) for p in site.params.preconditions if p.kind == "validity"]
            refused = tuple(id_ for id_, v in valid if v.kind == "refuted")
            undecided = tuple(id_ for id_, v in valid if v.kind == "unknown")
            if not refused and not undecided and rejection_reason(program, site):
                continue
            low, high = seen.interval(0.8)
            told = Suggestion(place, binding.name, step, log2(seen.median), float(f"{seen.seconds[1]:.4g}"), refused, undecided, log2(low), log2(high),
                              seen.fails)
            if refused or undecided or told.gain <= 0:
                out.suggestions.append(told)
            else:
                open_.append((told, site))
    open_.sort(key=lambda each: (-each[0].gain, each[0].step))
    taken = False
    for made, site in open_:
        said = () if taken else _refusals(program, site, expert.surface, context)
        taken = taken or not said
        out.suggestions.append(replace(made, refused=said))


def _refusals(program: n.Program, site: Site, surface: str, context: Context) -> tuple[str, ...]:
    """The ids of what a step itself (with all its checks) and the surface that a kernel is written in have against it."""
    try:
        after = apply(program, site.params, site, context=context).program
        return tuple(dict.fromkeys(d.id for d in backend(surface).accepts(after))) if surface != "kir" else ()
    except KirError as bad:
        if bad.diagnostics[0].id == "KIR-C120":
            raise
        return tuple(dict.fromkeys(d.id for d in bad.diagnostics))
