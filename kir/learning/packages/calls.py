"""The recorded calls of a package, and what making each of them as fast as the device allows would save."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, usage
from kir.gate.cost import program_cost
from kir.hardware.target import Target
from kir.ir.binding import Binding
from kir.learning.corpus.rank import launches_in, recorded
from kir.learning.corpus.roundtrip.find import place as corpus_of
from kir.surface.reading import Expert, load_expert, located


@dataclass(frozen=True)
class Call:
    """One way in which a kernel was launched: `place` is FILE::KERNEL, `file` where that lies, `launches` how often it was seen."""

    place: str
    binding: Path
    launches: int

    @cached_property
    def file(self) -> Path:
        return located(self.place)[0]

    @property
    def kernel(self) -> str:
        return self.place.rpartition("::")[2]

    def read(self) -> Expert:
        """The kernel as it was launched. Raises KirError for one that is not read."""
        return load_expert(self.place, self.binding)

    def bound(self) -> Binding:
        """Its binding."""
        return Binding.read(self.binding)


@dataclass(frozen=True)
class Ranked:
    """A call with what is modelled: `seconds` of all its launches, and `least` of what the device allows."""

    call: Call
    seconds: float
    least: float

    @property
    def expert(self) -> Expert:
        """The kernel as it was launched."""
        return read(self.call)

    @property
    def saving(self) -> float:
        """Seconds that would be saved if every launch were as fast as the device allows."""
        return max(0.0, self.seconds - self.least)


def calls_of(source: Path, package: str = "") -> list[Call]:
    """The recorded calls in a folder that `kir capture` wrote, or a file of JSON lines; those of a package, where one is named. Raises UsageError
    KIR-C118 where there are none, KIR-C110 for no such package, KIR-U031 where none is of the package."""
    home = corpus_of(package).folder if package else None
    found = [Call(place, path, launches_in(path)) for place, path in recorded(source)]
    kept = [c for c in found if home is None or _inside(c, package, home)]
    if not kept:
        raise usage("KIR-U031", f"none of the {len(found)} recorded calls in {source} is of a kernel of '{package}'",
                    attempt=f"kir capture --package {package} -o {source} -- python app.py")
    return kept


def _inside(call: Call, package: str, home: Path) -> bool:
    return call.place.startswith(f"{package}:") or Path(call.place.partition("::")[0]).resolve().is_relative_to(home)


def read(call: Call) -> Expert:
    """The kernel as it was launched; a process that has ranked a call need not read it again to search. Raises KirError for one that is not read."""
    return _read(call, tuple(p.stat().st_mtime_ns for p in (call.file, call.binding) if p.is_file()))


@lru_cache(maxsize=256)
def _read(call: Call, as_of: tuple[int, ...]) -> Expert:
    return call.read()


def modelled(call: Call, target: Target) -> tuple[float, float] | str:
    """Seconds of a call's launches and the least that the device allows; or why it is left out: it cannot be read or modelled, or is in another language than
    Triton."""
    try:
        expert = read(call)
        if expert.surface != "triton":
            return f"it is written in {expert.surface}: launches of Triton are looked at one by one"
        now, least = _modelled(expert, target)
        return now * call.launches, least * call.launches
    except KirError as bad:
        return f"{bad.diagnostics[0].id} {bad.diagnostics[0].message}"
    except (ZeroDivisionError, ValueError, OverflowError):
        return "nothing is modelled"


def ranked(calls: Sequence[Call], said: Iterable[tuple[float, float] | str]) -> tuple[list[Ranked], list[tuple[str, str]]]:
    """Calls by what would be saved, most first, from what `modelled` says of each; and those that are left out, with the reason."""
    out: list[Ranked] = []
    skipped: list[tuple[str, str]] = []
    for call, told in zip(calls, said, strict=True):
        if isinstance(told, str):
            skipped.append((call.place, told))
        else:
            out.append(Ranked(call, *told))
    return sorted(out, key=lambda r: -r.saving), skipped


def _modelled(expert: Expert, target: Target) -> tuple[float, float]:
    """Seconds of one launch by the cost model, and the least that moving its tensors once and its products allow."""
    costs = program_cost(expert.program, {}, target, None, expert.surface)
    moved = sum(c.compulsory for c in costs) / target.device.bandwidth
    launch = sum(c.parts.get("launch", 0.0) for c in costs)
    return sum(c.seconds for c in costs), launch + max(moved, sum(c.parts.get("tensor", 0.0) for c in costs))

