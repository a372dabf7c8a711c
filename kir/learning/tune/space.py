"""A subject with holes, and the space of what may fill them.

A subject is a text with holes `${..}`: a program (`NAME.kir.in`) or a pipeline (`NAME.pipeline.in`); the third kind, a kernel of a source
file, has the metas and launch options of its binding for holes. `NAME.toml` beside it declares the space:

    kind = "program"                     # program, pipeline, source
    surface = "cuda"
    home = "gemm"                        # pipeline: the problem whose naive program it is written for
    facts = ["K % 8 == 0"]               # pipeline: what holds of the sizes, and the bytes tensors are aligned to; the naive program says neither
    align = 16
    otherwise = "mma"                    # a pipeline over the naive program, for sizes at which the facts of a candidate do not hold
    given = ["dtype", "sms"]             # what a problem and a target bring along; sizes of the problem may be named too
    [parameters]                         # what is searched, in the order of points
    rows = [64, 128]
    [derived]                            # expressions over what stands before: + - * // %, comparisons, min, max, ceildiv
    threads = "128 + 2 * rows"
    [[require]]
    that = "threads <= 1024"
    why = "a CTA has at most 1024 threads"

A hole holds a name or such an expression.
"""
from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Origin, did_you_mean, error, usage
from kir.base.toml_text import loads
from kir.problem.schema import evaluate

Value = int | bool | str
Point = Mapping[str, Value]
Kind = Literal["program", "pipeline", "source"]
HOLE = re.compile(r"\$\{([^{}]*)\}")


class _Require(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    that: str
    why: str


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Kind
    surface: str = "kir"
    kernel: str = ""
    bind: str = ""
    source: str = ""
    given: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    align: int = 0
    otherwise: str = ""
    home: str = ""
    parameters: dict[str, tuple[Value, ...]]
    derived: dict[str, str] = {}
    require: tuple[_Require, ...] = ()


@dataclass(frozen=True)
class Space:
    """A subject and what may fill its holes. `text` is "" for a kernel of a source file, which `source`, `kernel` and `bind` name, each
    relative to the space's folder unless it names a package."""

    name: str
    file: Path
    kind: Kind
    surface: str
    text: str
    given: tuple[str, ...]
    parameters: Mapping[str, tuple[Value, ...]]
    derived: Mapping[str, str]
    require: tuple[tuple[str, str], ...]
    source: str = ""
    kernel: str = ""
    bind: str = ""
    facts: tuple[str, ...] = ()
    align: int = 0
    otherwise: str = ""
    home: str = ""

    @property
    def size(self) -> int:
        """How many points there are before any is pruned."""
        out = 1
        for values in self.parameters.values():
            out *= len(values)
        return out

    def points(self) -> Iterator[dict[str, Value]]:
        """Every choice of the parameters, the last one varying fastest."""
        for values in itertools.product(*self.parameters.values()):
            yield dict(zip(self.parameters, values, strict=True))

    def values(self, point: Point, given: Mapping[str, Value]) -> dict[str, Value]:
        """The point with what is given and what is derived. Raises KirError KIR-U002 for an expression that cannot be evaluated."""
        out: dict[str, Value] = {**given, **point}
        for name, text in self.derived.items():
            out[name] = self._evaluated(text, out, f"derived.{name}")
        return out

    def refusal(self, values: Point) -> str:
        """Why the space itself rules a point out ("" when it does not)."""
        for that, why in self.require:
            if not self._evaluated(that, values, "require"):
                return why
        return ""

    def filled(self, values: Point) -> str:
        """The subject's text with its holes filled. Raises KirError KIR-U002 for a hole that nothing fills."""
        def fill(found: re.Match[str]) -> str:
            name = found[1].strip()
            return text_of(values[name]) if name in values else text_of(self._evaluated(name, values, "a hole"))
        return HOLE.sub(fill, self.text)

    def _evaluated(self, text: str, values: Point, where: str) -> int:
        numbers = {k: v for k, v in values.items() if not isinstance(v, str)}
        try:
            return evaluate(text, numbers)
        except (ValueError, SyntaxError, ZeroDivisionError) as bad:
            said = str(bad) if isinstance(bad, ValueError) and not isinstance(bad, SyntaxError) else f"{type(bad).__name__} in '{text}'"
            raise error("KIR-U002", f"{where}: {said}", origin=Origin(str(self.file), 1, 1, 1, 1), subject=self.name,
                        needs="a parameter, a derived name or what is given") from bad


def text_of(value: Value) -> str:
    """A value as a hole is filled with it."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def load_space(file: Path) -> Space:
    """The space of a subject: the file with holes, or the TOML beside it.

    Raises UsageError KIR-U001 when either is missing, KirError KIR-U003 for a space that is not of the form."""
    toml = file if file.suffix == ".toml" else _beside(file)
    if not toml.is_file():
        near = did_you_mean(toml.name, [p.name for p in toml.parent.glob("*.toml")]) if toml.parent.is_dir() else ""
        raise usage("KIR-U001", f"there is no space {toml}{f'; {near}' if near else ''}", needs="NAME.kir.in or NAME.pipeline.in with NAME.toml beside it",
                    attempt=f"kir optimize {file}, which searches for a faster one of a kernel without holes" if file.suffix in (".py", ".cu", ".kir") else "")
    try:
        held = _File.model_validate(loads(toml.read_text(encoding="utf-8")))
    except tomllib.TOMLDecodeError as bad:
        raise error("KIR-U003", f"{toml} is no TOML: {bad}") from bad
    except ValidationError as bad:
        first = bad.errors()[0]
        raise error("KIR-U003", f"{toml}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if empty := [name for name, values in held.parameters.items() if not values]:
        raise error("KIR-U003", f"{toml}: parameter '{empty[0]}' has no value to take")
    text = ""
    if held.kind != "source":
        suffix = ".kir.in" if held.kind == "program" else ".pipeline.in"
        subject = toml.with_name(toml.stem + suffix)
        if not subject.is_file():
            raise usage("KIR-U001", f"there is no subject {subject}", needs=f"the {held.kind} that {toml.name} tunes")
        text = subject.read_text(encoding="utf-8")
    space = Space(toml.stem, toml, held.kind, held.surface, text, held.given, held.parameters, held.derived,
                  tuple((r.that, r.why) for r in held.require), held.source, held.kernel, held.bind, held.facts, held.align, held.otherwise, held.home)
    _all_used(space)
    return space


def _beside(file: Path) -> Path:
    """The space of a text with holes, or of one whose holes are filled: `gemm_sm90.pipeline` is of the space of `gemm_sm90.pipeline.in`."""
    name = file.name
    for suffix in (".kir.in", ".pipeline.in", ".in", ".pipeline"):
        name = name.removesuffix(suffix)
    return file.with_name(f"{name}.toml")


def _all_used(space: Space) -> None:
    """A parameter that nothing depends on would be searched for nothing. Raises KirError KIR-U003."""
    if space.kind == "source":
        return
    read = " ".join([*HOLE.findall(space.text), *space.derived.values()])
    words = set(re.findall(r"[A-Za-z_]\w*", read))
    if idle := [name for name in space.parameters if name not in words]:
        raise error("KIR-U003", f"{space.file}: parameter '{idle[0]}' fills no hole of the {space.kind}", subject=space.name)


def shipped_spaces() -> tuple[Space, ...]:
    """The spaces that come with KIR, by name."""
    return tuple(load_space(p) for p in sorted(_shipped().glob("*.toml")))


def space_names() -> tuple[str, ...]:
    """The names of the spaces that come with KIR."""
    return tuple(sorted(p.stem for p in _shipped().glob("*.toml")))


def _shipped() -> Path:
    return Path(str(resources.files("kir.skills"))) / "pipelines"


def find_space(name: str) -> Space:
    """The space of a file, or of a subject that comes with KIR by its bare name. Raises UsageError KIR-U001 with near names."""
    path = Path(name)
    if path.exists() or "/" in name or name.endswith((".in", ".toml")):
        return load_space(path)
    names = space_names()
    if name not in names:
        raise usage("KIR-U001", f"there is no subject '{name}' to tune", attempt=did_you_mean(name, names), needs=f"a file, or one of {', '.join(names)}")
    return load_space(_shipped() / f"{name}.toml")
