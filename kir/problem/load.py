"""Problems found by name or by path: a folder with `problem.toml`, `reference.py` and `naive.kir`, or a file in the form of KernelBench."""
from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kir.base.diagnostic import Origin, did_you_mean, error, usage
from kir.base.toml_text import loads
from kir.problem.problem import Problem
from kir.problem.schema import ProblemFile


def _shipped() -> Path:
    return Path(str(resources.files("kir.skills"))) / "problems"


@cache
def problem_names() -> tuple[str, ...]:
    """Names of the problems that come with KIR."""
    return tuple(sorted(p.parent.name for p in _shipped().glob("*/problem.toml")))


def load_problem(name_or_path: str | Path) -> Problem:
    """A shipped problem by name, or any by the path of its folder or `problem.toml`; `name:dtype` picks another `T`. The path of a `.py` file
    is one in the form of KernelBench (`kir.problem.model`, which refuses with KIR-G910 to KIR-G919).

    Raises UsageError KIR-G901 (no such problem, with near names), KirError KIR-G905 (the file is wrong, located) and KIR-G906 (no such
    dtype)."""
    text, dtype = str(name_or_path), ""
    if text.endswith(".py"):
        from kir.problem.model import load_model, require_plain  # with what it needs to run a file, a tenth of the start-up time
        return load_model(require_plain(text))
    if ":" in text and not Path(text).exists():
        text, _, dtype = text.rpartition(":")
    if text in problem_names():
        return _shipped_problem(text, dtype)
    path = Path(text)
    file = path / "problem.toml" if path.is_dir() else path
    if not file.is_file():
        raise usage("KIR-G901", f"there is no problem '{text}'", attempt=did_you_mean(text, problem_names()),
                    needs=f"a folder with a problem.toml, or one of {', '.join(problem_names())}")
    return _of_file(file, dtype)


@cache
def _shipped_problem(name: str, dtype: str) -> Problem:
    """One that comes with KIR, read once a process: it keeps its naive program, and what its oracle said."""
    return _of_file(_shipped() / name / "problem.toml", dtype)


def _of_file(file: Path, dtype: str) -> Problem:
    raw = _read(file)
    home = file.parent
    read = {home}
    while base := raw.pop("extends", None):
        other = file.parent.parent / str(base)
        if other in read:
            raise error("KIR-G905", f"{file}: it extends '{base}', which extends it", origin=_origin(file, ("extends",)), needs="a problem that is whole")
        read.add(other)
        home = home if (home / "reference.py").is_file() else other
        raw = {**_read(other / "problem.toml"), **raw}
    try:
        spec = ProblemFile.model_validate(raw)
    except ValidationError as bad:
        first = bad.errors()[0]
        where = ".".join(str(p) for p in first["loc"])
        said = f"'{where}' is missing" if first["type"] == "missing" else f"{where + ': ' if where else ''}{first['msg'].removeprefix('Value error, ')}"
        raise error("KIR-G905", f"{file}: {said}", origin=_origin(file, first["loc"]), needs=NEEDED.get(where, "")) from None
    if dtype and dtype not in spec.dtypes:
        raise usage("KIR-G906", f"problem '{spec.name}' is not defined for dtype '{dtype}'", attempt=did_you_mean(dtype, spec.dtypes),
                    needs=f"one of {', '.join(spec.dtypes) or 'none: its dtypes are fixed'}")
    return Problem(spec, dtype or (spec.dtypes[0] if spec.dtypes else ""), file.parent, home)


NEEDED = {
    "shapes": 'shapes = [ { name = "one", tags = ["one"], sizes = { M = 1, N = 1 } }, .. ]: an uneven one (tag "tail") and a timed one among them',
}
"""What a field is for that a problem's file lacks."""


def _read(file: Path) -> dict[str, Any]:
    try:
        return loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as bad:  # no TOML, no UTF-8, a number of 5,000 digits
        raise error("KIR-G905", f"{file}: {'it is nested too deeply' if isinstance(bad, RecursionError) else bad}") from bad


def _origin(file: Path, loc: tuple[int | str, ...]) -> Origin | None:
    text = file.read_text(encoding="utf-8")
    for name in reversed([p for p in loc if isinstance(p, str)]):
        at = text.find(name)
        if at >= 0:
            return Origin.of(str(file), text, at, at + len(name))
    return None
