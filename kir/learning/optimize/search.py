"""The search: from each start, plans are built, ranked by forecast, gated best-first under a budget; the best at any time is kept.

First every family of plans is built once on every start. Then, in turns: the candidate that seems fastest is gated, and the neighborhood of the best is
built further: other parameters of its plan, and single passes on top of it. What a forecast was wrong by on the members of a family corrects the others.
"""
from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from functools import partial
from typing import Any

from kir.analysis import normalize
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.base.working import doing, ending, late
from kir.ir.build import int_value
from kir.ir.canonical import content_hash
from kir.ir.nodes import Program
from kir.learning.forecast import Analytic, Forecast, Forecaster, Pair
from kir.learning.forecast.choosing import Counted, Spent
from kir.learning.optimize.candidates import Candidate, Found, seeming
from kir.learning.optimize.events import LogEnds, Recorder
from kir.learning.optimize.judge import LAST, RECORDED, SURELY, UNPRICED, WORTH, CpuJudge, Judge, at_best, least, modelled, not_right, nvccs_own, refusal
from kir.learning.optimize.lift import FAULTS, Lifted, Prefixes, said_of
from kir.learning.optimize.plan import INTERRUPTED, OTHERS, Budget, Plan, PlanSource, Setting, streams_of
from kir.learning.optimize.policy import NO_POLICY, Known, Policy, estimated, features_of, untried
from kir.learning.optimize.schedules.usual import sources as usual_sources
from kir.learning.optimize.several import alone, narrowed, taken, together
from kir.learning.optimize.sources import IDLE, multiplies
from kir.learning.optimize.starts import Start, kept, left_to_nvcc, starts, told
from kir.learning.tune.search import Measured
from kir.rewrite.pipelines.pipeline import pass_of

SURFACES = ("cuda", "triton", "tilelang")
"""Surfaces that a search without one of its own writes."""
ROUND, BATCH = 8, 4
"""Plans of the best family that are built between two gated candidates; candidates that are prepared (compiled) together where times are measured."""
EARLY, EARLY_GATED, ENOUGH = 12, 2, 40
"""Plans of the first round after which a candidate may be gated already; candidates that are before every family has been built once; and candidates of
which none is built then but of families for this operator or form: the others wait until nothing else is left."""
FAILURES, HOPELESS, LATE = 2, 2.5, 6
"""Plans of a family in a row that come to nothing before it is given up on a start; how many times slower than the best what is not gated seems; the part
of the seconds after which a candidate is gated all the same, where building takes long."""
UNSEEN, OWN = 0.6, 4
"""What the estimate of a family of which nothing was gated is multiplied with, so that each gets its turn; and how often, if learned on the operator."""
GAIN, AGAIN = 0.995, 3
"""Where times are modelled, a candidate is gated when its forecast is below this part of the best. Where the time of now differs from that of before, so
many candidates are right once more, of which the best is taken."""
KERNELS = "kernels"
"""The family of plans that make each kernel of a program fast by itself."""
EACH, EACH_KEPT, GROWN = 40, 6, 32
"""Plans that are built for one of several kernels; of these, so many are tried in company; those that are built around what seems fastest, ungated."""
HOMES, FORMED = ("pipeline", "lineage"), ("tiles", "scan", "counters", "items", "warps")
"""Sources whose plans were learned on one program each, which they name; how families begin whose plans are made for the form that a kernel has."""
BELIEVED = 0.9
"""A modelled time below so much of what moving the tensors once takes is not believed: the model has not counted something."""
SAME, DEAR, SHORTENED = 1e-3, 0.02, " shortened"
"""Modelled times whose logarithms differ by less are the same, or no reason against a step that is not priced; a plan without steps that bring nothing."""
MEANT = 0.9
"""The part of a plan's steps that is taken where it is what was meant."""
WIDTH, CARDS = 2, 0.5
"""Gated states that single passes are tried on; what is thought of cards on a kernel with threads, where a family for the operator has 1."""


class _Over(Exception):
    """The budget is used up."""


class _BuiltOut(Exception):
    """No more plans may be built; what was built may still be gated."""


@dataclass
class Search:
    """One search. Build it, then call :meth:`run` once."""

    program: Program
    setting: Setting
    judge: Judge
    sources: Sequence[PlanSource] = field(default_factory=usual_sources)
    forecaster: Forecaster = field(default_factory=Analytic)
    policy: Policy = NO_POLICY
    budget: Budget = field(default_factory=Budget)
    recorder: Recorder = field(default_factory=Recorder)
    given_surface: str = ""
    measure_baseline: bool = True
    as_given: Judge | None = None
    """Who says whether the kernel as given is right, and its time; by default the CPU's gate, uncompiled, which says nothing of the time."""
    from_starts: Sequence[Start] | None = None
    varied: Iterable[tuple[Start, Plan]] = ()  # the kernel with other values of its own parameters
    launched: Program | None = None
    """The kernel as given as its own file has it compiled, where that is another text: what is timed where times are measured."""
    within: Callable[[], None] | None = None
    """Raises when a search that this one is a part of has used up its budget."""
    stoppable: bool = False
    """Whether an interruption (Ctrl-C) ends the search with the best so far, judged once more; a second one ends that, too. The log goes on from there."""

    def __post_init__(self) -> None:
        if not isinstance(self.forecaster, Counted):
            self.forecaster = Counted(self.forecaster)

    def run(self) -> Found:
        """Search until the budget is used up or nothing is left to try. Raises KirError KIR-U025 where the kernel as given is not right by the problem,
        and what the recorder raises."""
        begun = time.monotonic()
        self._begin()
        self.recorder.add("begin", **self._subject())
        self.baseline = self._baseline()
        ended = "nothing is left to try"
        try:
            try:
                self._search()
            except _BuiltOut as out:
                ended = str(out)
                while batch := self._next():
                    for c in batch:
                        self._gate(c)
        except _Over as over:
            ended = str(over)
        except LogEnds:
            ended = "the log ends"
        except KeyboardInterrupt:
            if not self.stoppable:
                raise
            ended = INTERRUPTED
        best = self._for_all_sizes(best) if (best := self._right_again()) is not None else None
        spent = self.forecaster.spent if isinstance(self.forecaster, Counted) else Spent()
        if ended != INTERRUPTED:
            self.recorder.add("end", best=best.key if best else "", reason=ended, built=self.count, gated=len(self.gated), forecasts=spent.forecasts,
                              budget=asdict(self.budget))
        next_best, slight = (min(self._seeming(), key=seeming, default=None), self._best()) if best is None else (None, None)
        shown = best or slight
        return Found(self.setting, self.baseline, best, self.gated, self.count, self.pruned, ended, self.recorder.events, spent, self.judge.measures, next_best,
                     slight if slight is not None and not self.judge.measures and slight.time < GAIN * self.baseline.time else None,
                     (time.monotonic() - begun, self.recorder.judged),
                     self.policy.trust(self.setting.target.name, shown.plan.family, shown.surface) if shown is not None and not self.judge.measures else None)

    def _seeming(self) -> list[Candidate]:  # not judged, and faster than the kernel as given
        return [c for c in self.known.values() if c.measured is None and c.seconds < GAIN * self.baseline.seconds]

    def _begin(self) -> None:
        self.known: dict[tuple[str, str], Candidate] = {}
        self.gated, self.pruned = list[Candidate](), dict[str, int]()
        self.prefixes: Prefixes = {}
        self.streams: dict[tuple[str, str, str], tuple[Start, Iterator[Plan]]] = {}
        self.failures: dict[tuple[str, str, str], int] = {}
        self.multiplying: dict[int, tuple[Program, bool]] = {}
        self.foreign, self.kin, self.cards, self.count, self.gating = set[tuple[str, str, str]](), set[str](), set[str](), 0, 0.0

    def _right_again(self) -> Candidate | None:
        """The best that is faster than the kernel as given and right on inputs that it has not seen: of many one may have been right by luck, and the one
        whose time was the shortest of many was lucky with that: where times are measured, it has the time of now."""
        right: dict[str, Candidate] = {}
        while (best := self._best()) is not None and best.key not in right and self._gains(best):
            begun = self.recorder.clock
            try:
                said = Measured.from_json(self.recorder.again(best.key, partial(self._word, self.judge.again, best)))
            except LogEnds:
                return best
            self.gating = max(self.gating, self.recorder.clock - begun)
            if not said.accepted:
                best.measured = replace(said, reason=f"on other inputs: {said.reason}")
                continue
            right[best.key] = best
            best.measured = said if self.judge.measures else best.measured
            if len(right) == AGAIN:
                best = min(right.values(), key=self._time)
                break
        return best if best is not None and self._gains(best) else None

    def _for_all_sizes(self, best: Candidate) -> Candidate:
        """The best without what its plans promised of the sizes and no step needed: the same kernel for more of them, judged once more at those."""
        begun, plans = best, [best.plan]
        while begun.parent:
            plans.insert(0, (begun := self.known[begun.parent, best.surface]).plan)
        made = replace(best, program=narrowed(begun.start.program, plans, best.program, self._taken))
        made.key = self._key(made.program, best.surface)
        over = self.recorder.clock + self.gating > self.budget.seconds or self.recorder.knows_again(best.key)  # of a log that ends with the best as it was
        if made.program == best.program or (over and not self.recorder.knows_again(made.key)) or refusal(made.program, self.setting, best.surface):
            return best
        with contextlib.suppress(LogEnds):
            said = Measured.from_json(self.recorder.again(made.key, partial(self._word, self.judge.again, made)))
            made.measured = said if self.judge.measures else best.measured
            if said.accepted and self._gains(made):
                self.gated[self.gated.index(best)] = made
                return made
        return best

    def _gains(self, best: Candidate) -> bool:
        """Whether the best is faster than the kernel as given, by a time of the same kind where there is one."""
        seconds = best.measured.seconds if best.measured is not None else math.inf
        if not self.judge.measures:
            doubt = self._doubt(best)
            return not nvccs_own(best.steps, best.surface) and seconds * doubt < (WORTH if self.as_given is None else RECORDED) * self.baseline.time
        known, most = self.baseline.measured, 1.0 if self.as_given is not None else SURELY  # one that could not be timed has its modelled time
        return seconds < most * known.seconds if known is not None else not self.measure_baseline or seconds < WORTH * self.baseline.seconds

    def _doubt(self, best: Candidate) -> float:
        """How many times as long as others, over what was modelled, kernels of such a family took on a device; 1 of one that is not known to take longer."""
        device = self.setting.target.name
        own, every = self.policy.trust(device, best.plan.family, best.surface), self.policy.trust(device, "", "")
        return max(1.0, own.middle / every.middle) if own is not None and every is not None else 1.0

    def proposals(self, count: int) -> list[Candidate]:
        """What the search would gate first, without gating anything: the best of each family by forecast in turn, then their neighbors."""
        self._begin()
        forecast = self._forecast(self.program, self.program, self.given_surface or self.setting.surface or "cuda")
        given, plan = Start("as it is", self.program), Plan("the kernel as given", ())
        seconds = self._seconds(self.program, self.given_surface or self.setting.surface or "cuda", forecast)
        self.baseline = Candidate("", self.program, "", given, plan, (), (), seconds, forecast, {})
        with contextlib.suppress(_BuiltOut):
            self._first()
        self.budget = replace(self.budget, plans=max(self.budget.plans, self.count + GROWN))
        with contextlib.suppress(_BuiltOut):
            best = sorted(self.known.values(), key=seeming)
            for key in dict.fromkeys((c.start.name, c.plan.family, c.surface) for c in best if c.seconds < HOPELESS * best[0].seconds or self.meant(c)):
                self._grow(key, ROUND)
        families: dict[tuple[str, str], list[Candidate]] = {}
        for c in sorted(self.known.values(), key=seeming):
            families.setdefault((c.plan.family, c.surface), []).append(c)
        least = min((c.seconds for c in self.known.values()), default=math.inf)
        rows = itertools.zip_longest(*families.values())
        return [c for row in rows for c in row if c is not None and (c.seconds < HOPELESS * least or self.meant(c))][:count]

    def meant(self, c: Candidate) -> bool:
        """Whether it is a plan learned on the same operator, taken nearly whole, of a family of which nothing was gated on its surface: a forecast alone
        does not make it hopeless, for what is wrong with the forecasts of a family is found out by gating one, unless the policy knows it."""
        return (c.plan.family in self.kin and c.share >= MEANT and self._off(c.plan.family, c.surface) is None
                and not any((g.plan.family, g.surface) == (c.plan.family, c.surface) for g in self.gated))

    def _off(self, family: str, surface: str) -> float | None:
        return self.policy.known_off(self.setting.target.name, self.setting.problem.spec.operator, family, surface)

    def _subject(self) -> dict[str, Any]:
        s = self.setting
        return {"program": content_hash(self.program), "problem": s.problem.name, "sizes": dict(s.shape.sizes), "target": s.target.name,
                "surface": s.surface, "judge": self.judge.name, "forecaster": self.forecaster.name, "sources": [x.name for x in self.sources]}

    def _baseline(self) -> Candidate:
        """The kernel as given: right by the problem, and timed where times are measured."""
        plan, surface = Plan("the kernel as given", ()), self.given_surface or self.setting.surface or "cuda"
        key = self._key(self.program, surface)
        forecast = self._forecast(self.program, self.program, surface)
        seconds = self._seconds(self.program, surface, forecast)
        base = Candidate(key, self.program, surface, Start("as it is", self.program), plan, (), (), seconds, forecast, {})
        said: Mapping[str, Any] = {"accepted": False}
        if self.as_given is None and not self.judge.measures:  # a modelled time is beside others that were modelled by the same judge alone
            said = self.recorder.gated(key, partial(self._word, self.judge.judge, base))
        if not said["accepted"]:
            gate = self.as_given or CpuJudge(self.setting, compiles=False)
            said = self.recorder.gated(f"{key} as given", partial(self._word, gate.judge, base))
        if not said["accepted"]:
            raise not_right(self.program, self.setting, said["reason"])
        if self.as_given is not None or not self.judge.measures:
            base.measured = Measured.from_json(said)
        elif self.measure_baseline:
            own = left_to_nvcc(self.launched or self.program) if self.given_surface == "cuda" else self.program
            name = f"{key} launched" if self.launched else key
            timed = Measured.from_json(self.recorder.gated(name, partial(self._word, self.judge.judge, replace(base, program=own))))
            base.measured = timed if timed.accepted else None
        if self.as_given is None and not self.judge.measures and self.given_surface == "cuda" and (said_so := base.measured) is not None:
            base.measured = Measured.from_json(self.recorder.gated(f"{key} by nvcc", lambda: at_best(self.program, self.setting, said_so).to_json()))
        return base

    # -------------------------------------------------------------------------------------------------------------------- the course
    def _first(self, early: bool = False) -> None:
        """Every family of plans once on every start. With `early`, the most promising candidate is gated after every few of them: a search that ends soon has
        something then."""
        begun = list(self.from_starts or kept(self.recorder.following("start")) or starts(
            self.program, self.setting, self.budget.seconds / LATE, self.given_surface))
        for start in begun:
            self.recorder.add("start", **told(start))
        for start in begun:
            self._open(start)
        order, self.since = {key: number for number, key in enumerate(self.streams)}, self.recorder.clock
        for start, plan in self.varied if early else ():
            late = self.recorder.clock > self.since + self.budget.seconds / LATE
            if not str(stored.get("plan")).startswith(plan.source) if (stored := self.recorder.next_stored()) else late:
                break
            self._build(start, plan, plan.surface)
        self.since = self.recorder.clock
        for key in sorted(self.streams.keys() - self.foreign, key=lambda key: (-self._prior(key), order[key])):
            if early and self.recorder.due(lambda: self.recorder.clock > self.since + self.budget.seconds / LATE):
                self._gate_first()
            if len(self.known) >= ENOUGH and not self._near(key[1]):
                continue
            before = self.count // EARLY
            self._grow(key, 1)
            if early and self.count // EARLY > before and len(self.gated) < EARLY_GATED:
                self._gate_first()

    def _gate_first(self) -> None:
        list(map(self._gate, [c for c in self._next()[:1] if c.seconds < self.baseline.seconds or not self.judge.measures]))
        self.since = self.recorder.clock

    def _search(self) -> None:
        self._first(early=True)
        grown = set[str]()
        while True:
            batch = self._next()
            if batch:
                if len(batch) > 1:
                    with self.recorder.judging():
                        self.judge.prepare([(c.program, c.surface) for c in batch])
                for c in batch:
                    self._gate(c)
            best = self._best()
            built = 0
            if best is not None:
                built += self._grow((best.start.name, best.plan.family, best.surface), ROUND)
                built += self._on_top(grown) + self._shortened(grown)
            elif not batch:
                built = sum(self._grow(key, 1) for key in list(self.streams))
            if not batch and not built and not any(self._grow(key, 1) for key in list(self.streams)):
                return

    def _open(self, start: Start) -> None:
        """A stream of plans for each family of plans on a start, in the order of the sources. What was learned on matrix products waits, where the start has
        none, until nothing else is left."""
        surfaces, products = (self.setting.surface,) if self.setting.surface else SURFACES, multiplies(start.program)
        if len(start.program.kernels) > 1:
            for surface in surfaces:
                self.streams[start.name, KERNELS, surface] = (start, self._kernel_by_kernel(start, surface))
                self.kin.add(KERNELS)
        for source in self.sources:
            if source.name == "pass":
                continue
            for surface in surfaces:
                for family, operator, plans in self._families(source, start, surface):
                    key = start.name, family, surface
                    if operator == IDLE and not self.judge.measures:
                        continue
                    waits = False
                    if source.name in HOMES and not products and (first := next(plans := self._foreseen(start, key, plans), None)) is not None:
                        plans, home = itertools.chain([first], plans), first.home
                        waits = home is not None and self.multiplying.setdefault(id(home), (home, multiplies(home)))[1]
                    self.foreign |= {key} if waits else set()
                    self.cards |= {family} if source.name == "card" else set()
                    self.streams.setdefault(key, (start, plans))
                    if operator == self.setting.problem.spec.operator:
                        self.kin.add(family)

    def _families(self, source: PlanSource, start: Start, surface: str) -> Iterator[tuple[str, str, Iterator[Plan]]]:
        """The families of a source on a start, until it fails: see `_foreseen`."""
        try:
            yield from streams_of(source, start.program, replace(self.setting, surface=surface))
        except (KirError, *FAULTS) as bad:
            self._prune(start, Plan(source.name, ()), surface, f"its source fails: {said_of(bad)}")

    def _kernel_by_kernel(self, start: Start, surface: str) -> Iterator[Plan]:
        """Plans for all kernels of a program: what is best for each alone, then what is next best for one. A kernel of one thread is left as it is only where
        nothing else is known of it: forecasts of such a loop are too short."""
        ranked: dict[str, list[tuple[float, Plan | None]]] = {}
        for k in start.program.kernels:
            one = alone(start.program, k.name)
            inner = Search(one, replace(self.setting, surface=surface), self.judge, [s for s in self.sources if s.name != "pass"], self.forecaster,
                           self.policy, replace(self.budget, seconds=math.inf, plans=EACH), given_surface=surface, from_starts=[Start(k.name, one)],
                           within=self._check)
            found = sorted(inner.proposals(EACH_KEPT), key=seeming)
            idle = found and int_value(k.threads) == 1
            ranked[k.name] = [*((c.seconds, c.plan) for c in found), *(() if idle else ((inner.baseline.seconds, None),))]
        for chosen in together(ranked):
            parts = tuple((name, plan) for name, plan in chosen.items() if plan is not None)
            yield Plan("each kernel", (), "each kernel by what makes it fast", point={name: plan.key for name, plan in parts}, family=KERNELS, surface=surface,
                       parts=parts)

    def _prior(self, key: tuple[str, str, str]) -> float:
        """What is thought of a family on a start before a plan of it is built: the policy's word, and more for what has this operator or form, and for cards
        on a kernel that somebody gave threads to: they are what such kernels lack."""
        (start, family, surface), operator = key, self.setting.problem.spec.operator
        has_threads = family in self.cards and any(int_value(k.threads) != 1 for k in self.streams[key][0].program.kernels)
        return self.policy.score(features_of(operator, start, "", family, surface, 1.0)) + self._near(family) + CARDS * has_threads

    def _near(self, family: str) -> bool:
        return family in self.kin or family.startswith(FORMED)

    def _grow(self, key: tuple[str, str, str], count: int) -> int:
        """Build some more plans of a stream; how many there were."""
        if key not in self.streams:
            return 0
        start, plans = self.streams[key]
        done = 0
        for done, plan in enumerate(self._foreseen(start, key, plans), 1):
            made = self._build(start, plan, key[2])
            self.failures[key] = 0 if made is not None else self.failures.get(key, 0) + 1
            if self.failures[key] >= FAILURES:
                del self.streams[key]
                break
            if done >= count:
                break
        return done

    def _foreseen(self, start: Start, key: tuple[str, str, str], plans: Iterator[Plan]) -> Iterator[Plan]:
        """Plans until their source fails on a form that its author did not foresee, which is told as that of a pass is: the others go on."""
        try:
            while (plan := next(plans, None)) is not None:  # not delegated: who ends early leaves the others
                yield plan
        except (KirError, *FAULTS) as bad:
            self._prune(start, Plan(key[1], ()), key[2], f"its source fails: {said_of(bad)}")

    def _on_top(self, grown: set[str]) -> int:
        """Single passes on the best gated states, each state once."""
        built, passes = 0, [s for s in self.sources if s.name == "pass"]
        for state in sorted((c for c in self.gated if c.measured is not None and c.measured.accepted), key=self._time)[:WIDTH]:
            if state.key in grown or not passes:
                continue
            grown.add(state.key)
            start = Start(f"on top of {state.key[:12]}", state.program)
            setting = replace(self.setting, surface=state.surface)
            for plan in (p for source in passes for p in source.plans(state.program, setting)):
                made = self._build(start, plan, state.surface, state)
                built += made is not None
        return built

    def _shortened(self, grown: set[str]) -> int:
        """Where times are modelled: the best without those steps of its plan that bring nothing, each state once. What the model prices little of (banks,
        caches) stays unless it costs something."""
        best = self._best()
        if self.judge.measures or best is None or best.plan.parts or best.parent or len(best.steps) < 2 or f"{best.key} shortened" in grown:
            return 0
        grown.add(f"{best.key} shortened")
        out, now = {x.step for x in best.left}, best.seconds
        kept = [s for s in best.plan.steps if str(s) not in out]
        for step in reversed(kept):
            self._check()
            fewer = [s for s in kept if s is not step]
            key, done, forecast, _ = self._formed(best.start, replace(best.plan, steps=tuple(fewer)), best.surface)
            if done is not None and forecast is not None and not done.left:
                seconds = self._seconds(done.program, best.surface, forecast)
                if math.log(seconds / now) < (-DEAR if pass_of(step).intent in UNPRICED else SAME):
                    kept, now = fewer, min(now, seconds)
            elif key == best.key:
                kept = fewer
        plan = replace(best.plan, source=best.plan.source + SHORTENED, steps=tuple(kept))
        return len(kept) < len(best.plan.steps) - len(best.left) and self._build(best.start, plan, best.surface) is not None

    # ------------------------------------------------------------------------------------------------------------------ one candidate
    def _build(self, start: Start, plan: Plan, surface: str, parent: Candidate | None = None) -> Candidate | None:
        """The candidate of a plan, or None for one that is pruned: no step of it applies, what it gives is known, cannot run, or cannot be said."""
        self._check()
        if self.count >= self.budget.plans:
            raise _BuiltOut(f"{self.budget.plans} plans were built")
        self.count += 1
        key, done, forecast, why = self._formed(start, plan, surface)
        if done is None or forecast is None:
            self.count -= why.startswith(OTHERS)
            self._prune(start, plan, surface, why, key)
            return None
        features = features_of(self.setting.problem.spec.operator, start.name, plan.source.split(" ")[0], plan.family, surface, done.share)
        off = parent.off if parent else math.exp(self._off(plan.family, surface) or 0.0) if self.judge.measures else 1.0
        made = Candidate(key, done.program, surface, start, plan, (*(parent.steps if parent else ()), *done.steps),
                         (*(parent.left if parent else ()), *done.left), off * self._seconds(done.program, surface, forecast), forecast, features,
                         self.count, parent=parent.key if parent else "", off=off)
        if parent is not None and made.seconds >= GAIN * parent.seconds:
            self._prune(start, plan, surface, "it does not seem to help", key)
            return None
        self.known[key, surface] = made
        self.recorder.add("plan", candidate=key, surface=surface, start=start.name, plan=plan.key, taken=len(done.steps), left=len(done.left),
                          forecast=float(f"{made.seconds:.6g}"), speedup=float(f"{forecast.median:.4g}"), fails=float(f"{forecast.fails:.4g}"),
                          unproved=list(done.unproved), features=features)
        return made

    def _formed(self, start: Start, plan: Plan, surface: str) -> tuple[str, Lifted | None, Forecast | None, str]:
        """What a plan makes of a start, under its key, and its forecast; or why it comes to nothing."""
        try:
            done = self._taken(start.program, plan)
        except (KirError, *FAULTS) as bad:
            return "", None, None, said_of(bad)
        if not done.steps and plan.steps:
            return "", None, None, "none of its steps applies"
        if not plan.parts and len(done.left) > plan.most_left:
            return "", None, None, "most of its steps do not apply"
        key = self._key(done.program, surface)
        if (key, surface) in self.known:
            return key, None, None, "the same program as another plan's"
        if why := refusal(done.program, self.setting, surface):
            return key, None, None, why
        try:
            forecast = self._forecast(self.program, done.program, surface)
            if not self.judge.measures and self._seconds(done.program, surface, forecast) < BELIEVED * least(self.program, self.setting, self.baseline.surface):
                return key, None, None, "the cost model does not see all that it moves"
            return key, done, forecast, ""
        except (KirError, *FAULTS) as bad:
            return key, None, None, f"no forecast: {said_of(bad)}"

    def _taken(self, program: Program, plan: Plan) -> Lifted:
        return taken(program, plan, self.setting.context, self.prefixes)

    def _prune(self, start: Start, plan: Plan, surface: str, why: str, key: str = "") -> None:
        self.pruned[why] = self.pruned.get(why, 0) + 1
        if plan.source.startswith("pass ") and why in ("it does not seem to help", "the same program as another plan's"):
            return
        self.recorder.add("pruned", start=start.name, plan=plan.key, surface=surface, why=why, **({"candidate": key} if key else {}))

    def _gate(self, c: Candidate) -> None:
        self._check()
        if len(self.gated) >= self.budget.candidates:
            raise _Over(self.budget.all_gated)
        begun, before = self.recorder.clock, self._best()
        doing(f"gating a candidate for {self.setting.problem.name}", len(self.gated), self.budget.candidates)
        if self.judge.measures:  # what a search without a device would have said of it
            with contextlib.suppress(KirError, *FAULTS):
                seconds = sum(x.seconds for x in modelled(c.program, self.setting, c.surface))
                self.recorder.add("modelled", candidate=c.key, family=c.plan.family, surface=c.surface, seconds=float(f"{seconds:.4g}"))
        with ending(time.monotonic() + max(0.0, self.budget.seconds - self.recorder.clock)):
            c.measured = Measured.from_json(self.recorder.gated(c.key, partial(self._word, self.judge.judge, c)))
        self.gated.append(c)
        self.gating = max(self.gating, self.recorder.clock - begun)
        if (best := self._best()) is not None and best is not before:
            self.recorder.add("best", candidate=best.key, seconds=best.measured.seconds if best.measured else None)

    def _word(self, of: Callable[[Program, str], Measured], c: Candidate) -> dict[str, Any]:
        """A judge's word, as JSON. What a judge cannot say (a device that is gone, a worker that was killed) is raised: the log has what came before."""
        try:
            said = of(c.program, c.surface).to_json()
            if late() and not said["accepted"]:  # what the gate broke off is no word on the candidate
                raise _Over(f"{self.budget.seconds:g} s are over")
            return said
        except (KirError, *FAULTS) as bad:  # a fault of the gate's own is no word on other candidates
            if isinstance(bad, KirError) and any(d.id.startswith(("KIR-G00", "KIR-G9")) for d in bad.diagnostics):
                raise
            return Measured(math.inf, accepted=False, reason=said_of(bad)).to_json()

    # --------------------------------------------------------------------------------------------------------------------- estimates
    def _next(self) -> list[Candidate]:
        """The candidates to gate next: those that seem fastest by the forecast, corrected by what was gated."""
        rest, left = [c for c in self.known.values() if c.measured is None], self.budget.candidates - len(self.gated)
        if not left:
            raise _Over(self.budget.all_gated)
        best, given = self._best(), self.baseline.measured
        if best is not None and best.measured is not None:
            limit = HOPELESS * min(best.measured.seconds, given.seconds if given else math.inf) if self.judge.measures else GAIN * best.measured.seconds
            rest = [c for c in rest if self._estimate(c) < limit or c.plan.source.endswith(SHORTENED) or (self.judge.measures and self.meant(c))]
        else:
            rest = self._seeming() if not self.judge.measures else [c for c in rest if c.seconds < HOPELESS * self.baseline.seconds or self.meant(c)]
        seen, measured = {c.plan.family for c in self.gated}, [*self._measured()] if self.judge.measures else []
        fresh = {c.plan.family for c in rest} - seen if self.judge.measures else set[str]()
        order = sorted(rest, key=lambda c: (self._estimate(c) * (UNSEEN ** (OWN if self.meant(c) else 1) if c.plan.family in fresh else 1.0)
                                            * untried(c.plan.family, c.surface, c.plan.point, measured)
                                            * math.exp(-0.3 * self.policy.score(c.features)), c.number))
        batch = list[Candidate]()
        for c in order:
            if not (self.judge.measures and any(x.plan.family == c.plan.family for x in batch) and c.plan.family not in seen):
                batch.append(c)
        return batch[:min(left, BATCH if self.judge.measures else getattr(self.judge, "parallel", 1))]

    def _estimate(self, c: Candidate) -> float:
        """Forecast seconds, times what forecasts of those most like it were wrong by."""
        return estimated(c.seconds, c.plan.family, c.surface, c.plan.point, self._measured())

    def _measured(self) -> Iterator[Known]:
        return (Known(x.plan.family, x.surface, x.plan.point, math.log(x.measured.seconds / x.seconds)) for x in self.gated
                if x.measured is not None and x.measured.accepted)

    def _forecast(self, before: Program, after: Program, surface: str) -> Forecast:
        return self.forecaster(Pair(before, after, self.setting.shape.sizes, self.setting.target, surface=surface))

    def _seconds(self, program: Program, surface: str, forecast: Forecast) -> float:
        """What a program is ranked by: the forecast where times are measured, else what the judge's model will say, as far as that is known uncompiled."""
        return forecast.seconds[1] if self.judge.measures else sum(c.seconds for c in modelled(program, self.setting, surface))

    def _best(self) -> Candidate | None:
        every = [c for c in self.gated if c.measured is not None and c.measured.accepted]
        right = [c for c in every if not nvccs_own(c.steps, c.surface)] or every
        if self.judge.measures or not right:
            return min(every, key=self._time, default=None)
        return min(right, key=lambda c: (round(math.log(self._time(c)) / SAME), len(c.steps), self._time(c)))  # of two that are alike the shorter story

    def _time(self, c: Candidate) -> float:
        return c.measured.seconds if c.measured is not None else math.inf

    def _check(self) -> None:
        (self.within or (lambda: None))()
        if self.recorder.replaying:
            return
        if why := self.recorder.ended(asdict(self.budget)):
            raise _Over(why)
        if isinstance(self.forecaster, Counted) and self.forecaster.spent.dollars > self.budget.usd:
            raise _Over(f"{self.budget.usd:g} dollars were spent")
        if self.recorder.clock > self.budget.seconds:
            raise _Over(f"{self.budget.seconds:g} s are over")
        if self.gated and self.recorder.clock + max(2 * self.gating, LAST * self.budget.seconds * self.judge.measures) > self.budget.seconds:
            raise _Over(f"too little of {self.budget.seconds:g} s is left for another candidate")

    def _key(self, program: Program, surface: str) -> str:
        return content_hash(normalize(program))[:32] + f" {surface}"


__all__ = ["Budget", "Candidate", "Found", "Search"]
