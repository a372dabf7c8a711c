"""The recorded calls of a package, and what making each of them as fast as the device allows would save."""
from __future__ import annotations

from functools import cached_property
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
    expert: Expert
    seconds: float
    least: float

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


def ranked(calls: list[Call], target: Target) -> tuple[list[Ranked], list[tuple[str, str]]]:
    """Calls by what would be saved, most first; and those that cannot be read or modelled, or are in another language than Triton, with the reason."""
    out: list[Ranked] = []
    skipped: list[tuple[str, str]] = []
    for call in calls:
        try:
            expert = call.read()
            if expert.surface != "triton":
                skipped.append((call.place, f"it is written in {expert.surface}: launches of Triton are looked at one by one"))
                continue
            now, least = _modelled(expert, target)
            out.append(Ranked(call, expert, now * call.launches, least * call.launches))
        except KirError as bad:
            skipped.append((call.place, f"{bad.diagnostics[0].id} {bad.diagnostics[0].message}"))
        except (ZeroDivisionError, ValueError, OverflowError):
            skipped.append((call.place, "nothing is modelled"))
    return sorted(out, key=lambda r: -r.saving), skipped


def _modelled(expert: Expert, target: Target) -> tuple[float, float]:
    """Seconds of one launch by the cost model, and the least that moving its tensors once and its products allow."""
    costs = program_cost(expert.program, {}, target, None, expert.surface)
    moved = sum(c.compulsory for c in costs) / target.device.bandwidth
    launch = sum(c.parts.get("launch", 0.0) for c in costs)
    return sum(c.seconds for c in costs), launch + max(moved, sum(c.parts.get("tensor", 0.0) for c in costs))

