"""What `kir learn` walks: recorded launches of packages, folders of bindings or of lineages, walked kernels, the shipped experts; side by
side, taken up where it stopped, and kept as it goes."""
from __future__ import annotations

import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import resources
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, usage
from kir.base.store import content_hash
from kir.learning.corpus.family import family_of
from kir.learning.corpus.lineages import Job, Row, in_turn, walked_result
from kir.learning.corpus.rank import recorded
from kir.learning.evidence.archive import SUFFIX, read_archive, write_archive
from kir.learning.evidence.forwards import PIPELINES, stored
from kir.learning.evidence.walked import SHIPPED, Walked, package_of, walked
from kir.learning.tune.space import Space
from kir.lineage.records.folder import NAME, Folder
from kir.surface.reading import manifest

EXPERTS = "experts"
"""The word for all shipped experts."""
SOURCES = ("*.cu", "*.py")
KEPT_EVERY = 20.0
"""Seconds between two writings of what is walked."""


@dataclass(frozen=True)
class Asked:
    """What is to be learned from: kernels to walk, lineages that are finished, and kernels that were walked elsewhere."""

    jobs: tuple[Job, ...] = ()
    lineages: tuple[Path, ...] = ()
    known: tuple[Walked, ...] = ()
    pipelines: tuple[Space, ...] = ()


def asked(what: Sequence[str]) -> Asked:
    """What words name: a package with recorded launches, a list of them (JSON lines), a folder of bindings, of lineages, or of walked kernels,
    one lineage, `experts`, or `pipelines`. Raises UsageError KIR-C118, KIR-S050 for what is none of these."""
    jobs, lineages, known, pipelines = list[Job](), list[Path](), list[Walked](), tuple[Space, ...]()
    for word in what:
        path = Path(word)
        listed = Path(str(resources.files("kir.skills") / "packages" / f"{word.replace('-', '_')}.jsonl"))
        if word == EXPERTS:
            jobs += experts()
        elif word == PIPELINES:
            pipelines = stored()
        elif path.is_dir() and any(path.glob(f"*{SUFFIX}")):
            known += read_archive(path)
        elif (path / NAME).is_file() or path.name == NAME:
            lineages.append(path if path.is_dir() else path.parent)
        elif path.is_dir() and (found := sorted(path.glob(f"*/{NAME}"))):
            lineages += [each.parent for each in found]
        elif path.exists():
            jobs += _recorded(path)
        elif listed.is_file():
            jobs += _recorded(listed)
        else:
            raise usage("KIR-S050", f"there is nothing to learn from called '{word}'", needs="a package with recorded launches, a list of them, a folder of "
                        "bindings, of lineages or of walked kernels, or one of the words 'experts' and 'pipelines'",
                        attempt="kir capture -o bindings -- python app.py")
    return Asked(tuple(jobs), tuple(lineages), tuple(known), pipelines)


def _recorded(path: Path) -> list[Job]:
    return [Job(place, binding, f"{path.stem}-{binding.stem}") for place, binding in in_turn(recorded(path))]


def experts() -> Iterator[Job]:
    """Every expert that ships: IR text of the table `experts.toml`, and each kernel of a source that has shipped bindings, once each."""
    home = Path(str(resources.files("kir.skills") / "experts"))
    table = tomllib.loads((home / "experts.toml").read_text(encoding="utf-8"))
    for name, row in sorted(table.items()):
        yield Job(f"{SHIPPED}skills/experts/{row['file']}", None, f"experts-{name}", ("--problem", row["problem"], "--target", row["target"]))
    bindings = home.parent / "bindings"
    told = {file.stem: tomllib.loads(file.read_text(encoding="utf-8")) for file in sorted(bindings.glob("*.toml"))}
    kernels = {each["kernel"] for each in told.values()}
    for file in sorted(p for pattern in SOURCES for p in home.rglob(pattern)):
        text = file.read_text(encoding="utf-8")
        for kernel in sorted(k for k in kernels if f" {k}(" in text):
            place = f"{SHIPPED}skills/experts/{file.relative_to(home)}::{kernel}"
            with suppress(KirError):  # a name that stands in the text, and is no kernel there
                for binding in manifest(place):
                    problem = told[binding.stem].get("problem", "")
                    yield Job(place, binding, f"experts-{binding.stem}", ("--problem", problem) if problem else ())


def walk(jobs: Sequence[Job], output: Path, evidence: Path, *, seconds: float, workers: int, within: float = 0.0, fresh: bool = False,
         known: Iterable[Walked] = (), advance: Callable[[str], None] = lambda text: None) -> tuple[Walked, ...]:
    """Walk kernels back, each in a process of its own and for so many `seconds` at most; none is begun after `within` seconds (0: no limit). What
    is known of a kernel, in `output` or among the `known`, is taken and not walked again, unless `fresh`; kernels of which nothing is known come first.
    The folder `evidence` holds all that is walked, beside the `known`, from time to time and at the end; a killed run loses nothing that was walked."""
    begun, lock, found = time.monotonic(), threading.Lock(), {each.key: each for each in known}
    walked_before = {each.kernel for each in found.values() if each.ended != "left"}
    kept = [begun]

    def one(job: Job) -> None:
        before = None if fresh else found.get(key_of(job))
        if before is not None and before.ended not in ("left", "failed"):
            return advance(f"{job.name}: {before.ended}, known")
        late = bool(within) and time.monotonic() - begun > within
        folder = output / folder_name(job)
        row = walked_result(job, folder, 0.0 if late else seconds, fresh and not late)
        made = of_result(job, folder, row)
        with lock:
            if made.ended != "left" or made.key not in found:
                found[made.key] = made
            if time.monotonic() - kept[0] > KEPT_EVERY:
                write_archive(evidence, found.values())
                kept[0] = time.monotonic()
        advance(f"{job.name}: {made.ended}")
    with ThreadPoolExecutor(max(1, workers)) as pool:
        list(pool.map(one, sorted(jobs, key=lambda job: job.place.removeprefix(SHIPPED) in walked_before)))
    write_archive(evidence, found.values())
    return tuple(found[key] for key in sorted(found))


def folder_name(job: Job) -> str:
    """A folder for a job's walk, different for two launches of a kernel."""
    return f"{job.name[:80]}-{content_hash(job.place)[:8]}"


def key_of(job: Job) -> str:
    """What a job's walk is told apart by, before it is walked (`Walked.key`)."""
    place, binding = job.place.removeprefix(SHIPPED), _binding_text(job)
    return Walked(kernel=place, binding=binding, package=package_of(place), family="", ended="left").key


def _binding_text(job: Job) -> str:
    return job.binding.read_text(encoding="utf-8") if job.binding is not None and job.binding.is_file() else ""


def of_result(job: Job, folder: Path, row: Row) -> Walked:
    """What came of a walk: its lineage in the compact form, or why there is none."""
    said, place = row["said"], job.place.removeprefix(SHIPPED)
    if (folder / NAME).is_file() and said["ended"] not in ("failed", "left"):
        try:
            return walked(Folder(folder).read(), Folder(folder), row.get("read_as", ""))
        except KirError as fault:
            said = {"ended": "failed", "reason": f"{fault.diagnostics[0].id} {fault.diagnostics[0].message}"}
    return Walked(kernel=place, binding=_binding_text(job), package=package_of(place), family=family_of(place if "::" in place else f"{place}::"),
                  ended=said["ended"], reason=str(said.get("reason", ""))[:300])


def finished(folders: Iterable[Path]) -> Iterator[Walked]:
    """Finished lineages in the compact form. Raises KirError KIR-S010, KIR-S011, KIR-S001 for one that is changed or whose programs are gone."""
    for folder in folders:
        yield walked(Folder(folder).read(), Folder(folder))
