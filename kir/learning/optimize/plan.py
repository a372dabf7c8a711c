"""What a search is given and what it tries: the setting, plans and their sources."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Literal, Protocol, runtime_checkable

from kir.base.dataclass import dataclass
from kir.base.diagnostic import did_you_mean, error, usage
from kir.hardware.target import Target
from kir.ir.nodes import Program
from kir.learning.tune.space import Value
from kir.problem import Problem, Shape
from kir.rewrite import Context, Step


@dataclass(frozen=True)
class Setting:
    """What one search is for: `problem` judges, at `shape` (its sizes name what is timed) on `target`, written as `surface`. Where a device measures, and
    what says what is right would take too long at `shape`, the best is judged as a whole at `judged`, and at `shape` timed alone."""

    problem: Problem
    shape: Shape
    target: Target
    surface: str
    judged: Shape | None = None

    @property
    def context(self) -> Context:
        """What preconditions may look at."""
        return Context(self.target)

    @property
    def given(self) -> dict[str, Value]:
        """What holes of stored pipelines may name: the dtype (of a problem that has none of its own, that of its first tensor), SMs, bytes of shared memory
        a CTA, columns of tensor memory, and the sizes."""
        dtype = self.problem.dtype or next((self.problem.tensor_dtype(t) for t in self.problem.spec.tensors), "")
        chip = self.target.architecture
        return {"dtype": dtype, "sms": self.target.device.sm_count, "shared": chip.shared_per_cta, "tensor_columns": chip.tensor_columns, **self.shape.sizes}


OTHERS = "KIR-F011"
"""How it is said that a plan's facts are of sizes that the kernel has not: it took no time, and counts as none."""
PARTS = ("candidates", "seconds", "usd", "plans")
"""Of a budget."""
INTERRUPTED = "interrupted"
"""Why a search ended that the user stopped."""


@dataclass(frozen=True)
class Budget:
    """Where a search ends: `candidates` gated, `seconds` of wall time, `usd` for models (this search asks none), `plans` built."""

    candidates: int = 20
    seconds: float = 180.0
    usd: float = 0.0
    plans: int = 1000

    @property
    def all_gated(self) -> str:
        """Why a search ends that has no candidates left."""
        return f"the budget is {self.candidates} candidate{'s' * (self.candidates != 1)}"

    @classmethod
    def parse(cls, text: str) -> Budget:
        """From `candidates=20,seconds=180,usd=0`. Raises KirError KIR-U024 for another word, no number, or a budget of nothing."""
        given: dict[str, float] = {}
        for part in filter(None, (p.strip() for p in text.split(","))):
            name, _, value = part.partition("=")
            if name not in PARTS or name in given or not value.replace(".", "", name in ("seconds", "usd")).isdecimal():
                raise usage("KIR-U024", f"'{part}' is no part of a budget", needs="candidates=20,seconds=180,usd=0, each once or not at all",
                            attempt=did_you_mean(name, PARTS) if name not in PARTS else "")
            given[name] = float(value)
        out = cls(int(given.get("candidates", 20)), given.get("seconds", 180.0), given.get("usd", 0.0), int(given.get("plans", cls.plans)))
        if not (out.candidates and out.seconds and out.plans):
            raise error("KIR-U024", f"'{text}' is a budget of nothing", needs="at least candidates=1 and some seconds")
        return out


FOREIGN, FEW = 0.75, 7
"""A plan is for another kind of kernel where more than this part of its steps are left out, if they are more than a few: it is given up with the step
that shows it."""


@dataclass(frozen=True)
class Plan:
    """Steps to try on a program, in order; `source` says where they come from and `reason` why they may help. With `everywhere` a step is taken at
    each place where it applies. `point` are the parameters that filled its holes; `family` names plans that differ in nothing else. `facts` are
    expressions over the sizes that the steps take for granted, `align` bytes that tensors are aligned to."""

    source: str
    steps: tuple[Step, ...]
    reason: str = ""
    everywhere: bool = False
    point: Mapping[str, Value] = field(default_factory=dict)
    family: str = ""
    surface: str = ""
    facts: tuple[str, ...] = ()
    align: int = 0
    home: Program | None = None
    """The program in whose words the steps are written, where it is another than the one they are tried on."""
    promises: Literal["own", "home"] = "own"
    """In whose words `facts` are written."""
    parts: tuple[tuple[str, Plan], ...] = ()
    """For a program of several kernels: a plan for each of some, by name."""

    @property
    def most_left(self) -> int:
        """How many of its steps may be left out."""
        return max(FEW, int(FOREIGN * len(self.steps)))

    @property
    def key(self) -> str:
        """A name that tells plans of one search apart."""
        return f"{self.source} {self.surface} {' '.join(f'{k}={v}' for k, v in self.point.items())}{' everywhere' if self.everywhere else ''}".strip()


class PlanSource(Protocol):
    """Where plans come from. The same program and setting give the same plans in the same order."""

    @property
    def name(self) -> str:
        """What the log calls it."""
        ...

    def plans(self, program: Program, setting: Setting) -> Iterable[Plan]:
        """Plans worth trying on a program, the most promising first. May be lazy."""
        ...


@runtime_checkable
class Streams(Protocol):
    """A source that knows the families of its plans without making them."""

    def streams(self, program: Program, setting: Setting) -> Iterable[tuple[str, str, Iterator[Plan]]]:
        """The plans of each family, lazily: its name, the operator that it was learned on ("": not known), and the plans."""
        ...


def streams_of(source: PlanSource, program: Program, setting: Setting) -> Iterator[tuple[str, str, Iterator[Plan]]]:
    """The plans of a source by family, in its order; one that does not know its families is asked for all of its plans at once."""
    if isinstance(source, Streams):
        yield from source.streams(program, setting)
        return
    by_family: dict[str, list[Plan]] = {}
    for plan in source.plans(program, setting):
        by_family.setdefault(plan.family or plan.source, []).append(plan)
    yield from ((family, "", iter(plans)) for family, plans in by_family.items())
