"""Results of tuning, kept per subject and device in readable files: the user's own first, then those that come with KIR."""
from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path

import platformdirs

from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.base.store import write_atomic
from kir.learning.tune.space import Value


@dataclass(frozen=True)
class Tuned:
    """The best point found for one problem (with its dtype) at one set of sizes on one device. `kind` is `measured`, or `modelled` where
    no device was there: a ranking, no measurement. `candidates` were measured (or modelled)."""

    problem: str
    sizes: Mapping[str, int]
    device: str
    kind: str
    parameters: Mapping[str, Value]
    seconds: float
    program: str
    candidates: int = 0
    against: str = ""
    times_faster: float = 0.0


def own_folder() -> Path:
    """Where a user's results are kept."""
    return Path(platformdirs.user_data_dir("kir")) / "tuned"


def shipped_folder() -> Path:
    """Where the results that come with KIR are kept."""
    return Path(str(resources.files("kir.skills"))) / "tuned"


def file_of(folder: Path, subject: str, device: str) -> Path:
    """The file of a subject on a device."""
    word = "-".join(device.lower().split())
    return folder / f"{subject}.{word}.toml"


def stored(subject: str, device: str, folders: Sequence[Path] | None = None) -> Iterator[Tuned]:
    """Results of a subject on a device, the user's own first. Raises KirError KIR-U004 for a file that cannot be read."""
    for folder in folders if folders is not None else (own_folder(), shipped_folder()):
        file = file_of(folder, subject, device)
        if file.is_file():
            yield from _read(file)


def found(subject: str, device: str, problem: str, sizes: Mapping[str, int], folders: Sequence[Path] | None = None) -> Tuned:
    """The result for one problem at exactly these sizes; a measured one is preferred to a modelled one.

    Raises KirError KIR-U005, which names the sizes that there are results for."""
    every = list(stored(subject, device, folders))
    right = [t for t in every if t.problem == problem and dict(t.sizes) == dict(sizes)]
    if right:
        return min(right, key=lambda t: t.kind != "measured")
    others = tuple(f"{t.problem} at {_sizes(t.sizes)} ({t.kind})" for t in every[:8])
    raise error("KIR-U005", f"'{subject}' has not been tuned for {problem} at {_sizes(sizes)} on {device}", witness=others,
                attempt=f"kir tune {subject} --problem {problem} --shape {_sizes(sizes)}")


def save(subject: str, results: Sequence[Tuned], folder: Path | None = None) -> list[Path]:
    """Add results, each in the place of an older one for the same problem, sizes and kind. Returns the files written."""
    home = folder or own_folder()
    files = []
    for device in dict.fromkeys(t.device for t in results):
        file = file_of(home, subject, device)
        new = [t for t in results if t.device == device]
        kept = [t for t in (_read(file) if file.is_file() else ()) if not any(_same(t, x) for x in new)]
        order = sorted([*kept, *new], key=lambda t: (t.problem, t.kind, sorted(t.sizes.items())))
        head = f"# What `kir tune` found for {subject} on {device}. One table a problem and shape; seconds are medians.\n"
        write_atomic(file, head + "".join(map(_text, order)))
        files.append(file)
    return files


def _same(a: Tuned, b: Tuned) -> bool:
    return (a.problem, dict(a.sizes), a.kind) == (b.problem, dict(b.sizes), b.kind)


def _sizes(sizes: Mapping[str, int]) -> str:
    return ",".join(f"{k}={v}" for k, v in sizes.items())


def _text(t: Tuned) -> str:
    def table(values: Mapping[str, Value]) -> str:
        return "{ " + ", ".join(f"{k} = {json.dumps(v)}" for k, v in values.items()) + " }"

    rows = [f"problem = {json.dumps(t.problem)}", f"sizes = {table(t.sizes)}", f"device = {json.dumps(t.device)}", f"kind = {json.dumps(t.kind)}",
            f"parameters = {table(t.parameters)}", f"seconds = {t.seconds!r}", f"program = {json.dumps(t.program)}", f"candidates = {t.candidates}"]
    if t.against:
        rows += [f"against = {json.dumps(t.against)}", f"times_faster = {t.times_faster!r}"]
    return "\n[[result]]\n" + "\n".join(rows) + "\n"


def _read(file: Path) -> list[Tuned]:
    try:
        rows = tomllib.loads(file.read_text(encoding="utf-8")).get("result", [])
        return [Tuned(**row) for row in rows]
    except (OSError, tomllib.TOMLDecodeError, TypeError) as bad:
        raise error("KIR-U004", f"{file} holds no results of tuning: {bad}", attempt=f"remove {file}") from bad
