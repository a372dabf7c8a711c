"""What a pass is: a frozen dataclass whose fields are its parameters, with a pattern and a rewrite for each direction.

A subclass declares its class variables and four methods: `match` and `optimize` (forward), `match_inverse` and `deoptimize` (backward).
Everything else (finding sites, names and statement order lost on the way, checks, records) is done once, in `kir.rewrite.driver`.
`docs/writing-a-pass.md` shows how.
"""
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, field, fields, replace
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Self, get_args, get_origin, get_type_hints

from kir.dataclass import dataclass
from kir.diagnostic import Origin, UsageError, did_you_mean, usage
from kir.ir import nodes as n
from kir.rewrite.edit import Path, Place, places
from kir.rewrite.precondition import Context, Precondition
from kir.rewrite.residue import NOTHING, Residue

Option = int | float | bool | str | tuple[int, ...] | tuple[str, ...]
_NONE: Mapping[str, Any] = MappingProxyType({})
_NO_HINTS: Mapping[Path, tuple[Path, ...]] = MappingProxyType({})
_MOST = 2 ** 31 - 1
"""The largest whole number that a parameter takes: extents and counts are i32 in the IR."""


@dataclass(frozen=True)
class Site:
    """A place where a pass applies: `path` in the program, `params` the pass with every parameter decided, `captures` what the
    pattern bound there (free for the pass to choose; not part of equality)."""

    path: Path
    params: Pass
    captures: Mapping[str, Any] = field(default_factory=lambda: _NONE, compare=False, repr=False)
    taken: tuple[n.Program, n.Program, Witness] | None = field(default=None, compare=False, repr=False)
    """For a backward site that has been tried: the program it is a site of, the simpler one, and the witness."""


@dataclass(frozen=True)
class Miss:
    """A near miss: the pattern began to match at a place, and why it does not."""

    reason: str


Found = Site | tuple[Site, ...] | Miss | None
"""What a pattern says of a place: a site, several (one for each choice of parameters), a near miss, or nothing."""


@dataclass(frozen=True)
class Rewritten:
    """The result of one direction: the new program, and the path in it where the *other* direction applies. `hints` say where
    statements went that matching old with new would not find: several paths for one that was copied, none for one that is gone."""

    program: n.Program
    path: Path
    hints: Mapping[Path, tuple[Path, ...]] = field(default_factory=lambda: _NO_HINTS, compare=False)


@dataclass(frozen=True)
class Witness:
    """What `backward` returns beside the simpler program: where and with which parameters `forward` restores the original."""

    params: Pass
    path: Path
    residue: Residue = NOTHING
    guard: n.Expr | None = None
    """The condition under which the launch plan took the original, if it was guarded."""
    there: tuple[Site, Rewritten] | None = field(default=None, compare=False, repr=False)
    """The site of `forward` in the simpler program, and how that was reached, where they were found on the way."""


@dataclass(frozen=True)
class Effect:
    """The predicted change (after minus before, of the forward direction): bytes of global traffic, flops, registers per thread,
    bytes of shared memory, CTAs per SM. None: not predicted."""

    global_bytes: int | None = None
    flops: int | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    occupancy: int | None = None

    def to_json(self) -> dict[str, int]:
        """What is predicted."""
        return {f.name: v for f in fields(self) if (v := getattr(self, f.name)) is not None}


@dataclass(frozen=True)
class Pass:
    """Base of every pass. Its name is its module's (`stage_shared.py` is `stage-shared`)."""

    name: ClassVar[str] = ""
    intent: ClassVar[str] = ""
    """The abstract optimization, as in the catalogue."""
    catalogue: ClassVar[tuple[int, ...]] = ()
    """Row numbers of the catalogue that it covers."""
    claim: ClassVar[str] = ""
    """One sentence: what it does and why that helps."""
    numerics: ClassVar[str] = "bitwise"
    """`bitwise`, `reassociated(axis)`, `rounding-moved(point)` or `approximate(ulp)`."""
    requires: ClassVar[tuple[str, ...]] = ()
    provides: ClassVar[tuple[str, ...]] = ()
    conflicts: ClassVar[tuple[str, ...]] = ()
    """State features (`mma`, `pipelined`), derived from the IR, that must hold, come to hold, or must not hold before forward."""
    preconditions: ClassVar[tuple[Precondition, ...]] = ()
    least: ClassVar[Mapping[str, int]] = _NONE
    """The smallest value of a whole-number parameter, where that is not 0 (or its default, if that is below 0)."""
    tried: ClassVar[bool] = False
    """Whether a forward site is tried before it is offered: what the pass makes may have another form than its pattern can tell, which
    `backward` does not find again."""
    walked: ClassVar[bool] = True
    """Whether a walk to naive takes it back; False where that leads to a form that only a surface asks for."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in cls.__dict__:
            cls.name = cls.__module__.rpartition(".")[2].replace("_", "-")

    # ------------------------------------------------------------------------------------------- what a pass implements
    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """Whether `forward` with these parameters applies at `node`. Parameters left at an open default may be decided here: then
        there is a site for each choice, its `params` the pass with every parameter decided."""
        raise TypeError(f"{self.name} has no match")

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """Whether `backward` applies at `node`; the site's `params` are those found there. It may be optimistic: the framework
        keeps only sites whose `deoptimize` is restored by `optimize`."""
        raise TypeError(f"{self.name} has no match_inverse")

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The rewrite; called on `site.params`."""
        raise TypeError(f"{self.name} has no optimize")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The inverse rewrite; called on `site.params`. Names and statement order need not be kept for `optimize`."""
        raise TypeError(f"{self.name} has no deoptimize")

    def effect(self, program: n.Program, site: Site) -> Effect:
        """The predicted change of the forward direction at `site`, before it is run; by default none is claimed."""
        return Effect()

    # ------------------------------------------------------------------------------------ what a pass may widen, if it must
    def sites(self, program: n.Program) -> Iterator[Site]:
        """Candidates of the forward direction, in reading order."""
        for path, node in places(program):
            yield from found_sites(self.match(program, path, node))

    def inverse_sites(self, program: n.Program) -> Iterator[Site]:
        """Candidates of the backward direction, in reading order."""
        for path, node in places(program):
            yield from found_sites(self.match_inverse(program, path, node))

    # ------------------------------------------------------------------------------------------------- given to every pass
    def forward(self, program: n.Program, site: Site, residue: Residue | None = None) -> n.Program:
        """`optimize` at a site, and the residue put back: the exact inverse of `backward`."""
        from kir.rewrite.driver import run_forward
        return run_forward(program, site, residue or Residue()).program

    def backward(self, program: n.Program, site: Site) -> tuple[n.Program, Witness]:
        """`deoptimize` at a site, with the witness that `forward` needs. Raises KirError KIR-R006 when no witness restores it."""
        from kir.rewrite.driver import run_backward
        return run_backward(program, site)

    def options(self) -> dict[str, Option]:
        """The parameters that differ from their defaults."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.default is MISSING or getattr(self, f.name) != f.default}

    def __str__(self) -> str:
        from kir.rewrite.text import options_text
        return self.name + options_text(self.options())

    @classmethod
    def with_options(cls, options: Mapping[str, Any], places: Mapping[str, Origin] = _NONE) -> Self:
        """An instance from parsed options, which stand at `places`. Raises UsageError KIR-R002 for an unknown parameter, KIR-R003 for
        a wrong type, or a whole number that it cannot take."""
        hints = parameter_types(cls) if options else _NONE
        values = {}
        for key, value in options.items():
            if key not in hints:
                hint = did_you_mean(key, hints)
                raise usage("KIR-R002", f"'{cls.name}' has no parameter '{key}'{f'; {hint}' if hint else ''}", origin=places.get(key),
                            needs=f"one of {', '.join(hints)}" if hints else "no parameter")
            try:
                values[key] = _converted(cls.name, key, value, hints[key])
                if hints[key] is int:
                    _bounded(cls, key, value)
            except UsageError as bad:
                raise UsageError(*(replace(d, origin=places.get(key)) for d in bad.diagnostics)) from None
        missing = [f.name for f in fields(cls) if f.default is MISSING and f.name not in values]
        if missing:
            raise usage("KIR-R003", f"'{cls.name}' needs a value for '{missing[0]}'", attempt=f"{cls.name}{{{missing[0]}=..}}")
        return cls(**values)


def _bounded(cls: type[Pass], key: str, value: int) -> None:
    """Refuse a whole number that a parameter cannot take."""
    default = next(f.default for f in fields(cls) if f.name == key)
    least = cls.least.get(key, min(0, default) if isinstance(default, int) else 0)
    if not least <= value <= _MOST:
        raise usage("KIR-R003", f"'{cls.name}': {key}={value} is {'too small' if value < least else 'too large'}",
                    needs=f"a whole number from {least} on" if value < least else f"a whole number up to {_MOST}")


def found_sites(found: Found) -> tuple[Site, ...]:
    """The sites of a match."""
    return found if isinstance(found, tuple) else (found,) if isinstance(found, Site) else ()


def parameter_types(cls: type[Pass]) -> Mapping[str, Any]:
    """The declared type of each parameter."""
    known: Mapping[str, Any] = _parameter_types(cls)  # type: ignore[arg-type]  # mypy takes a class for unhashable
    return known


@cache
def _parameter_types(cls: type[Pass]) -> Mapping[str, Any]:
    hints = get_type_hints(cls)
    return {f.name: hints[f.name] for f in fields(cls)}


def _converted(pass_name: str, key: str, value: Any, hint: Any) -> Any:
    if get_origin(hint) is tuple and isinstance(value, (list, tuple)):
        return tuple(_converted(pass_name, key, v, get_args(hint)[0]) for v in value)
    choices = get_args(hint) if str(get_origin(hint)) == "typing.Literal" else ()
    if choices:
        if value not in choices:
            raise usage("KIR-R003", f"'{pass_name}': {key}={value} is none of {', '.join(map(str, choices))}")
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    shown = getattr(hint, "__name__", str(hint))
    raise usage("KIR-R003", f"'{pass_name}': {key}={value} is no {re.sub('[^a-z, .]', '', shown) or shown}")


__all__ = ["Context", "Effect", "Found", "Miss", "Option", "Pass", "Path", "Place", "Precondition", "Residue", "Rewritten", "Site",
           "Witness"]
