"""The search: deterministic, stopped by its budget, resumed and replayed from its log; and what it refuses."""
from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error
from kir.base.working import late
from kir.gate import cases, claims
from kir.gate.gpu.relative import program_problem
from kir.hardware.target import target
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.learning.forecast import Forecast, Pair
from kir.learning.optimize.events import Recorder
from kir.learning.optimize.judge import CpuJudge, Judge, nvccs_own
from kir.learning.optimize.plan import Plan, Setting
from kir.learning.optimize.policy import NO_POLICY, Policy, apart, load, quartiles, save, trained
from kir.learning.optimize.report import data, lines, spent
from kir.learning.optimize.search import Budget, Candidate, Found, Search
from kir.learning.optimize.sources import CardSource, LineageSource, PassSource, stored_lineages
from kir.learning.optimize.starts import Start, starts
from kir.learning.tune.search import Measured
from kir.problem import Shape, load_problem
from kir.rewrite import Step

PROBLEM = load_problem("softmax")
SOURCES = (LineageSource(only=("rmsnorm_tilelang", "softmax_tilelang")),
           PassSource(table={"multi-threaded-block": {"threads": (128,)}, "cache-converted-value": {}, "retain-tile": {}}))
SETTING = Setting(PROBLEM, PROBLEM.shape("long"), target("h200"), "cuda")


@dataclass
class Stopwatch:
    """Times by the number of nodes of a program's text; refuses what `refuses`, and breaks after `lasts` candidates. Judged once more, programs of `lucky`
    are wrong, and the shortest one takes `slower` times as long."""

    refuses: str = ""
    lasts: int = 10**6
    name: str = "stopwatch"
    measures: bool = True
    asked: list[str] = field(default_factory=list)
    lucky: tuple[str, ...] = ()
    slower: float = 1.0
    fails: str = ""

    def prepare(self, programs: Sequence[tuple[Program, str]]) -> None:
        """Nothing."""

    def judge(self, program: Program, surface: str) -> Measured:
        if len(self.asked) >= self.lasts:
            raise error("KIR-G004", "the device is gone")
        text = program_text(program)
        self.asked.append(text)
        if self.refuses and self.refuses in text:
            return Measured(math.inf, accepted=False, reason="refused here")
        return next(Measured(len(text) * 1e-9) for _ in range(not self.fails or self.fails not in text))

    def again(self, program: Program, surface: str) -> Measured:
        return Measured(math.inf, accepted=False, reason="it was luck") if any(x in program_text(program) for x in self.lucky) else \
            Measured(len(program_text(program)) * 1e-9 * (self.slower if program_text(program) == min(self.asked, key=len, default="") else 1.0))


def searched(judge: Judge, log: Path | None = None, budget: str = "candidates=4,seconds=500", only: bool = False, policy: Policy = NO_POLICY,
             stoppable: bool = False) -> Found:
    return Search(PROBLEM.naive, SETTING, judge, SOURCES, policy=policy, budget=Budget.parse(budget),
                  recorder=Recorder.over(log, only), given_surface="cuda", measure_baseline=False, stoppable=stoppable).run()


def without_clocks(log: Path) -> list[dict[str, object]]:
    return [{k: v for k, v in json.loads(line).items() if k != "clock"} for line in log.read_text().splitlines()]


def test_the_same_search_writes_the_same_log_and_replays_to_the_same_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (searched(Stopwatch(), tmp_path / name) for name in ("a", "b"))
    monkeypatch.setattr("kir.learning.optimize.search.starts", None)  # how far a walk comes depends on the clock: the log says
    assert without_clocks(tmp_path / "a") == without_clocks(tmp_path / "b")
    assert first.best is not None and second.best is not None and first.best.key == second.best.key
    again = searched(Stopwatch(lasts=0), tmp_path / "a", only=True)
    assert again.best is not None and again.best.key == first.best.key
    assert [c.key for c in again.tried] == [c.key for c in first.tried]
    assert without_clocks(tmp_path / "a") == without_clocks(tmp_path / "b"), "a replay writes nothing"


def test_a_finished_search_ends_as_it_ended_and_what_is_replayed_takes_nothing_of_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that had no time left, replayed in much longer than was left of its budget: the same end, nothing written. With more seconds it goes on."""
    now = [time.monotonic()]
    for module in ("kir.base.working", "kir.learning.optimize.events", "kir.learning.optimize.search"):
        monkeypatch.setattr(f"{module}.time", SimpleNamespace(monotonic=lambda: now[0]))

    class Slow(Stopwatch):
        def judge(self, program: Program, surface: str) -> Measured:
            now[0] += 40.0
            return super().judge(program, surface)

    log, budget = tmp_path / "log", "candidates=9,seconds=180"
    first = searched(Slow(), log, budget)
    text = log.read_bytes()
    assert first.ended == "too little of 180 s is left for another candidate" and len(first.tried) < 9
    added = Recorder.add
    monkeypatch.setattr(Recorder, "add", lambda self, event, **fields: (now.__setitem__(0, now[0] + 1.0), added(self, event, **fields))[1])
    again = searched(Stopwatch(lasts=0), log, budget)
    report = data(first)
    report["best"] |= {"back": ["~tile{extent=2}@main"], "begins": {"step": "1 steps back", "seconds": 1e-3}}
    told = [*lines(report)]
    assert told[told.index("  walked back by ~tile") + 1] == "     1.000 ms  1 steps back", "where the steps begin"
    assert again.ended == first.ended and [*lines(data(again))] == [*lines(data(first))] and log.read_bytes() == text
    assert spent(data(first)).startswith("0% of 120 s went into the search itself") and not spent(data(again))
    more = searched(Stopwatch(), log, "candidates=9,seconds=360")
    assert len(more.tried) > len(first.tried), "what it took to come there again is not counted"


def test_a_device_that_is_gone_keeps_the_best_so_far_and_the_search_resumes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(KirError, match="the device is gone"):
        searched(Stopwatch(lasts=2), log)
    held = without_clocks(log)
    assert [r["event"] for r in held].count("gate") == 3  # the kernel as given, and two candidates
    assert any(r["event"] == "best" for r in held)
    fresh = Stopwatch()
    done = searched(fresh, log)
    assert len(done.tried) == 4 and len(fresh.asked) == 2, "what was gated before is taken from the log"
    whole = tmp_path / "whole"
    searched(Stopwatch(), whole)
    assert without_clocks(log) == without_clocks(whole)


def test_an_interruption_keeps_the_best_so_far_and_the_same_search_goes_on_from_there(tmp_path: Path) -> None:
    """Where the search is one that a user watches. What it is a part of is interrupted with it."""
    class Stopped(Stopwatch):
        def judge(self, program: Program, surface: str) -> Measured:
            if len(self.asked) == 2:
                raise KeyboardInterrupt
            return super().judge(program, surface)

    log = tmp_path / "log"
    with pytest.raises(KeyboardInterrupt):
        searched(Stopped(), log)
    found = searched(Stopped(asked=["", ""]), log, stoppable=True)
    assert found.ended == "interrupted" and found.best is not None and len(found.tried) == 2
    assert "end" not in [row["event"] for row in without_clocks(log)]
    assert searched(Stopwatch(), log).tried[-1].key == searched(Stopwatch()).tried[-1].key, "as if it had never been"


def test_a_log_that_was_cut_short_goes_on_where_it_ends(tmp_path: Path) -> None:
    log = tmp_path / "log"
    searched(Stopwatch(), log)
    whole = without_clocks(log)
    text = log.read_bytes()
    log.write_bytes(text[:int(len(text) * 0.6)])
    searched(Stopwatch(), log)
    assert without_clocks(log) == whole


def test_the_budget_stops_hard_and_keeps_the_best(tmp_path: Path) -> None:
    judge = Stopwatch()
    done = searched(judge, budget="candidates=1")
    assert len(done.tried) == 1 == len(judge.asked) and done.best is done.tried[0] and done.ended == "the budget is 1 candidate"
    few = searched(Stopwatch(), budget="plans=3")
    assert few.built == 3 and few.ended == "3 plans were built" and few.best is not None, "what was built is gated all the same"


def test_a_gate_that_outlasts_the_budget_is_broken_off_and_says_nothing_of_its_candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [time.monotonic()]
    for module in ("kir.base.working", "kir.learning.optimize.events", "kir.learning.optimize.search"):
        monkeypatch.setattr(f"{module}.time", SimpleNamespace(monotonic=lambda: now[0]))

    class Endless(Stopwatch):
        def judge(self, program: Program, surface: str) -> Measured:
            now[0] += 1000.0 * (len(self.asked) == 2)
            return Measured(math.inf, accepted=False, reason="not all cases were run") if late() else super().judge(program, surface)

    done = searched(Endless(), tmp_path / "log.jsonl", budget="candidates=9,seconds=180")
    assert done.ended == "180 s are over" and [c.measured is not None and c.measured.accepted for c in done.tried] == [True, True]
    assert "not all cases" not in (tmp_path / "log.jsonl").read_text(), "it is gated again where the search goes on"
    assert done.unjudged is None, "something was found"
    now[0] = time.monotonic()

    class Never(Stopwatch):
        def judge(self, program: Program, surface: str) -> Measured:
            now[0] += 1000.0
            return Measured(math.inf, accepted=False, reason="not all cases were run")
    none = searched(Never(), budget="candidates=9,seconds=180")
    assert none.best is None and none.unjudged is not None and f"not judged any more: {none.unjudged.plan.key} from " in "\n".join(lines(data(none)))


@dataclass
class Failing:
    """A source that does not foresee a form, after one plan."""

    name: str = "failing"

    def plans(self, program: Program, setting: Setting) -> Iterator[Plan]:
        yield Plan("failing", (Step("tile", {"extent": 4}, "main"),))
        yield Plan("failing", (next(Step(x.name) for x in program.params if x.name == "nothing"),))


def test_what_the_gate_refuses_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = searched(Stopwatch(refuses="reduce("))
    assert any(c.measured is not None and not c.measured.accepted for c in done.tried)
    assert done.best is None or "reduce(" not in str(done.best.program)
    log = tmp_path / "fails.jsonl"
    monkeypatch.setitem(globals(), "SOURCES", (Failing(), *SOURCES))
    failed = searched(Stopwatch(fails="reduce("), log)
    assert "its source fails: StopIteration (test_search.py:" in log.read_text(), "where it was raised, and the others go on"
    assert any(c.measured is not None and c.measured.reason.startswith("StopIteration (test_search.py:") for c in failed.tried), "and the search goes on"


def test_what_nvcc_decides_for_itself_is_no_gain() -> None:
    told, more = Step("unroll", {"factor": 0, "form": "hint"}), Step("tile", {"extent": 4})
    assert nvccs_own((told, told), "cuda") and not nvccs_own((told, more), "cuda") and not nvccs_own((told,), "tilelang") and not nvccs_own((), "cuda")


def test_the_best_counts_once_it_is_right_on_inputs_that_it_has_not_seen(tmp_path: Path) -> None:
    """As it was found, then without what was promised of sizes and no step needs; one that is wrong at the other sizes keeps its promises."""
    first = searched(Stopwatch(), tmp_path / "log")
    again = [e["candidate"] for e in first.events if e["event"] == "again"]
    assert first.best is not None and len(again) == 2 and again[1] == first.best.key
    bound = searched(Stopwatch(lucky=(program_text(first.best.program),)))
    assert bound.best is not None and bound.best.key == again[0] and len(bound.best.program.facts) > len(first.best.program.facts)
    lucky = searched(Stopwatch(lucky=(program_text(bound.best.program),)))
    assert lucky.best is not None and lucky.best.key not in again and lucky.best.seconds >= first.best.seconds
    told = next(c.measured for c in lucky.tried if c.key == again[0])
    assert told is not None and not told.accepted and told.reason == "on other inputs: it was luck"
    assert searched(Stopwatch(lucky=("program",))).best is None, "none is right once more"
    slower = searched(Stopwatch(slower=50.0))
    assert slower.best is not None and slower.best.key not in again, "its time of now is what counts"
    known = searched(Stopwatch(lasts=0, lucky=("program",)), tmp_path / "log")
    assert known.best is not None and known.best.key == first.best.key, "the log has the word on it"


COPY = "kir 1\nprogram copy\n  size N: i32\n  in X: f32[N]\n  out Y: f32[N]\nkernel main grid (i: N) threads 1\n  Y[i] = {value}\n"


def test_a_program_that_is_wrong_at_a_value_that_was_not_drawn_is_refused_once_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the program not asked what it does with an outcome that no test brings about (KIR-G146), which refuses it at once."""
    given = parse_program(COPY.format(value="X[i]"), "copy")

    def drawn(fresh: int) -> set[float]:
        return {float(v) for c in cases.relative_tests(given, given, fresh=fresh).cases for x in [c.arrays["X"]] for v in x - x[0]}

    value = next(v for v in sorted(drawn(cases.FRESH) - drawn(0)) if 0.5 < v < 2)
    wrong = parse_program(COPY.format(value=f"select(X[i] - X[0] == {value!r}, 0.0, X[i])"), "wrong")  # of two elements: no draw is made for it
    problem = program_problem(given, given)
    setting = Setting(problem, Shape(name="timed", tags=("timed",), sizes={"N": 1 << 22}), target("h200"), "cuda")
    judge = CpuJudge(setting, compiles=False)
    assert "KIR-G146" in judge.judge(wrong, "cuda").reason
    monkeypatch.setattr(claims, "unseen", lambda *_, **__: iter(()))
    judge = CpuJudge(setting, compiles=False)
    assert judge.judge(wrong, "cuda").accepted, "none of its inputs is that value"
    assert not judge.again(wrong, "cuda").accepted and judge.again(given, "cuda").accepted


class Twice:
    """Every plan of a source under a second family too."""

    name = "twice"

    def plans(self, program: Program, setting: Setting) -> Iterator[Plan]:
        for plan in itertools.islice(SOURCES[0].plans(program, setting), 2):
            yield plan
            yield replace(plan, family=f"{plan.family} again", source="again")


def test_states_that_are_equal_up_to_normal_form_are_counted_once() -> None:
    done = Search(PROBLEM.naive, SETTING, Stopwatch(), (Twice(),), budget=Budget.parse("candidates=12,seconds=500"), given_surface="cuda",
                  measure_baseline=False, from_starts=starts(PROBLEM.naive, SETTING)).run()
    keys = [c.key for c in done.tried]
    assert len(keys) == len(set(keys)) == 2
    assert done.pruned["the same program as another plan's"] == 2


def test_cards_are_one_more_source(monkeypatch: pytest.MonkeyPatch) -> None:
    import kir.learning.optimize.sources as sources

    step = Step("multi-threaded-block", {"threads": 128}, "main")
    other = Step("multi-threaded-block", {"threads": 64}, "main")

    def card(name: str, **best: float) -> SimpleNamespace:
        return SimpleNamespace(name=name, effect=SimpleNamespace(forecast={k: SimpleNamespace(high=x) for k, x in best.items()}, measured={}))

    monkeypatch.setattr(sources, "applications", lambda card, program, context: (
        SimpleNamespace(steps=(step if card.name == "threads-for-a-row" else other,), reason="a row has many elements"),))
    cards = CardSource((card("wins-nothing", sm_90a=1.0), card("threads-for-a-row"))),  # type: ignore[arg-type]  # their names and effects
    done = Search(PROBLEM.naive, SETTING, Stopwatch(), cards, budget=Budget.parse("candidates=2,seconds=500"),
                  given_surface="cuda", measure_baseline=False, from_starts=[Start("as it is", PROBLEM.naive)]).run()
    assert {c.plan.source for c in done.tried} >= {"card threads-for-a-row"} and done.tried[0].plan.reason == "a row has many elements"
    modelled = Search(PROBLEM.naive, SETTING, Stopwatch(measures=False), cards, budget=Budget.parse("candidates=2,seconds=500"),
                      given_surface="cuda", from_starts=[Start("as it is", PROBLEM.naive)]).run()
    told = [row["plan"].split(" ")[1] for row in modelled.events if row["event"] in ("plan", "pruned")]
    assert set(told) == {"threads-for-a-row"}, "what no use is forecast to win by is not built where forecasts are all there is"
    assert done.spent.forecasts >= 2, "forecasts are charged"


def test_no_kernel_of_the_rival_is_among_what_the_skills_were_learned_from() -> None:
    assert not [name for name, lineage, _ in stored_lineages() if "flag_gems" in f"{lineage.header.source} {lineage.header.expert}"]


def test_a_naive_softmax_becomes_one_that_reads_each_row_once() -> None:
    done = Search(PROBLEM.naive, SETTING, CpuJudge(SETTING, compiles=False), SOURCES[:1], budget=Budget(candidates=2, seconds=500)).run()
    assert done.best is not None and done.best.measured is not None and done.best.measured.accepted
    assert done.best.seconds < done.baseline.seconds
    report = data(done)
    assert report["best"]["steps"] and report["limit"]["bound_by"]
    assert any("times as fast" in line for line in lines(report))
    assert any("reassociated(" in line for line in lines(report)), "a step that changes the order of a sum says so"
    many = {**report, "best": {**report["best"], "losses": [*(f"left out step {k}: no" for k in range(6)), "called only where N % 2 == 0"]}}
    assert [line for line in lines(many) if "left out" in line or "only" in line][-2:] == [
        "  left out 2 further of its steps, which the report as JSON tells", "  called only where N % 2 == 0"]
    unfit = {**report, "best": {**report["best"], "losses": ["left out step 1: KIR-R004: it does not apply", "left out step 2: KIR-P010: it hangs over"]}}
    assert [line for line in lines(unfit) if "left out" in line] == [
        "  left out step 2: KIR-P010: it hangs over", "  left out 1 further of its steps that do not fit this kernel, which the report as JSON tells"]


def test_nothing_faster_is_said_with_the_limit() -> None:
    done = Search(PROBLEM.naive, SETTING, CpuJudge(SETTING, compiles=False), (), budget=Budget(candidates=1, seconds=500), from_starts=[]).run()
    told = "\n".join(lines(data(done)))
    assert done.best is None and done.speedup == 1.0
    assert "nothing is faster" in told and "bound by" in told


@pytest.mark.parametrize(("given", "faster"), [(1e-9, False), (1.0, True)])
def test_what_is_measured_slower_than_the_kernel_as_given_is_not_the_best(given: float, faster: bool) -> None:
    class After(Stopwatch):
        def judge(self, program: Program, surface: str) -> Measured:
            said = super().judge(program, surface)
            return said if len(self.asked) > 1 else Measured(given)
    done = Search(PROBLEM.naive, SETTING, After(), SOURCES[:1], budget=Budget(candidates=2, plans=6, seconds=500), given_surface="cuda",
                  from_starts=[Start("as it is", PROBLEM.naive)]).run()
    assert len(done.tried) == 2 and (done.best is not None) is faster and (done.speedup > 1.0) is faster


def test_a_kernel_that_does_not_solve_the_problem_is_refused() -> None:
    wrong = parse_program((PROBLEM.folder / "naive.kir").read_text().replace("/ total", "* total"))
    with pytest.raises(KirError) as refused:
        Search(wrong, SETTING, CpuJudge(SETTING, compiles=False), (), from_starts=[]).run()
    assert [d.id for d in refused.value.diagnostics] == ["KIR-U025"]


@pytest.mark.parametrize("text", ["candidates=0", "seconds=0", "minutes=3", "candidates=many", "candidates", "candidates=1.5", "seconds=9,seconds=9"])
def test_a_budget_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(KirError) as refused:
        Budget.parse(text)
    assert refused.value.diagnostics[0].id == "KIR-U024"


def test_a_log_of_another_search_or_form_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "log"
    searched(Stopwatch(), log, budget="candidates=1")
    rows = log.read_text().splitlines()
    first = json.loads(rows[0])
    log.write_text("\n".join([json.dumps({**first, "program": "0" * 64}), *rows[1:]]) + "\n")
    with pytest.raises(KirError) as other:
        searched(Stopwatch(), log, budget="candidates=1")
    assert other.value.diagnostics[0].id == "KIR-U022"
    log.write_text(json.dumps({**first, "schema": "kir.optimize/0"}) + "\n")
    with pytest.raises(KirError) as older:
        searched(Stopwatch(), log)
    assert older.value.diagnostics[0].id == "KIR-U021"


def test_a_policy_learns_what_won_and_is_asked_first(tmp_path: Path) -> None:
    done = searched(Stopwatch(), budget="candidates=6,seconds=500")
    policy = trained([done.events])
    assert policy.searches == 1 and done.best is not None
    worst = max((c for c in done.tried if c.measured is not None and c.measured.accepted), key=lambda c: c.measured.seconds if c.measured else 0.0)
    assert policy.score(done.best.features) >= policy.score(worst.features)
    policy = replace(policy, off={"h200": {"softmax_triton triton": -0.5, "operator=row statistic triton": 0.25}}, known={"h200": KNOWN})
    save(policy, tmp_path / "policy.json")
    assert load(tmp_path / "policy.json") == policy
    known = [policy.known_off(device, "row statistic", family, surface) for device, family, surface in
             (("h200", "softmax_triton", "triton"), ("h200", "another", "triton"), ("h200", "another", "cuda"), ("h100", "softmax_triton", "triton"))]
    assert known == [-0.5, 0.25, None, None], "what forecasts of a family were wrong by elsewhere, else what those of the operator were, on that device"
    second = searched(Stopwatch(), budget="candidates=6,seconds=500", policy=policy)
    assert second.best is not None and second.best.measured is not None and done.best.measured is not None
    assert second.best.measured.seconds <= done.best.measured.seconds


KNOWN = {"all": (40, -0.2, 0.0, 0.4), "wordy cuda": (4, 0.5, 0.7, 0.8), "few cuda": (2, 0.0, 3.0, 3.0)}


def test_a_modelled_time_is_told_with_what_such_times_were_worth_on_a_device() -> None:
    """Twice as long as modelled, where others took as long: 1.5 times as fast by the model is no gain then."""
    policy = Policy({}, known={"h200": KNOWN})
    own, other, few = (policy.trust("h200", family, "cuda") for family in ("wordy", "unheard", "few"))
    assert own is not None and (own.count, own.whose, round(own.middle, 2)) == (4, "wordy", 2.01) and other is not None and few == other and other.whose == ""
    assert policy.trust("h100", "wordy", "cuda") is None
    search = Search(PROBLEM.naive, SETTING, CpuJudge(SETTING), (), policy=policy, given_surface="cuda")
    base = Candidate("", PROBLEM.naive, "cuda", Start("as it is", PROBLEM.naive), Plan("as given", ()), (), (), 1e-3, Forecast((0.5,), (0.0,)), {})
    search.baseline = replace(base, measured=Measured(1e-3))
    found = {(family, ms): search._gains(replace(base, plan=Plan(family, (), family=family), measured=Measured(ms * 1e-3)))
             for family in ("wordy", "unheard") for ms in (0.35, 0.6)}
    assert found == {("wordy", 0.35): True, ("wordy", 0.6): False, ("unheard", 0.35): True, ("unheard", 0.6): True}
    told = {"event": "modelled", "candidate": "a", "family": "tiles", "surface": "cuda", "seconds": 1e-6}
    gates = [{"event": "gate", "candidate": "a", "accepted": True, "seconds": 2e-6}, {"event": "gate", "candidate": "a", "accepted": False, "seconds": None}]
    assert [*apart([[told, *gates], gates])] == [("tiles", "cuda", math.log(2))]
    assert quartiles([("tiles", "cuda", 0.0), ("tiles", "cuda", 1.0)])["tiles cuda"] == (2, 0.25, 0.5, 0.75)
    said = "\n".join(lines({**data(Found(SETTING, search.baseline, None)), "trust": {"measured": 4, "quartiles": [1.6, 2.0, 2.2], "plans": "wordy"}}))
    assert "of 4 kernels by plans of wordy that were measured on h200, half took 1.6 to 2.2 times as long as modelled" in said


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "kir.policy/0"}', '{"schema": "kir.policy/1"}'])
def test_a_policy_of_another_version_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "policy.json"
    file.write_text(text)
    with pytest.raises(KirError) as refused:
        load(file)
    assert refused.value.diagnostics[0].id == "KIR-U023"


def test_what_is_judged_once_more_is_compiled_where_it_was_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that promises no more of its sizes than it needs is another text than the one that was compiled."""
    asked = list[str]()

    def verdict(_: CpuJudge, program: Program, surface: str, fresh: int = 0) -> Any:
        asked.append(surface)
        return SimpleNamespace(accepted=True, artifacts=(), reason="")
    monkeypatch.setattr(CpuJudge, "verdict", verdict)
    judge, naive = CpuJudge(SETTING), PROBLEM.naive
    even = parse_program(program_text(naive).replace("kernel ", "  fact N % 2 == 0\nkernel ", 1), "even.kir")
    assert judge.judge(even, "cuda").accepted and judge.again(even, "cuda").accepted and judge.again(naive, "cuda").accepted
    assert asked == ["cuda", "kir", "cuda"]


@dataclass
class Learned:
    """A family that was learned on the operator of this name, one that was not, and one that seems ten times as fast as both."""

    operator: str
    name: str = "learned"

    def streams(self, program: Program, setting: Setting) -> Iterator[tuple[str, str, Iterator[Plan]]]:
        for family, operator, threads in (("fast", "", 256), ("kin", self.operator, 128), ("other", "", 64)):
            steps = (Step("multi-threaded-block", {"threads": threads}, program.kernels[0].name),)
            yield family, operator, iter([Plan(family, steps, family=family, surface="cuda")])

    def plans(self, program: Program, setting: Setting) -> Iterator[Plan]:
        return (plan for _, _, plans in self.streams(program, setting) for plan in plans)


@pytest.mark.parametrize(("seconds", "gains"), [(0.7e-3, True), (0.9e-3, False), (1.5e-3, False)])
def test_what_is_measured_is_beside_a_modelled_time_where_the_kernel_as_given_could_not_be_timed(seconds: float, gains: bool) -> None:
    search = Search(PROBLEM.naive, SETTING, Stopwatch(), (), given_surface="cuda")
    search.baseline = Candidate("", PROBLEM.naive, "cuda", Start("as it is", PROBLEM.naive), Plan("as given", ()), (), (), 1e-3, Forecast((0.5,), (0.0,)), {})
    assert search._gains(replace(search.baseline, measured=Measured(seconds))) == gains


class Thinking:
    """A forecaster that thinks much of 256 threads."""

    name = "thinking"

    def __call__(self, pair: Pair) -> Forecast:
        return Forecast((0.5,), (0.0,), model="thinking", seconds=(1e-4, 1e-6 if "threads 256" in program_text(pair.after) else 1e-5))


def test_what_was_learned_on_the_same_operator_is_gated_once_however_slow_it_seems() -> None:
    """The forecasts of a family may be wrong by the same factor for all of it: one that is gated shows it. Others that seem as slow are hopeless."""
    def gated(operator: str) -> list[str]:
        search = Search(PROBLEM.naive, SETTING, Stopwatch(), (Learned(operator),), Thinking(), budget=Budget(seconds=1e4), given_surface="cuda",
                        measure_baseline=False, from_starts=[Start("the naive program", PROBLEM.naive)])
        named = [c.plan.family for c in search.proposals(9)]
        assert named == [c.plan.family for c in search.run().tried][:len(named)]
        return named

    assert gated("matrix product") == ["fast"] and gated(PROBLEM.spec.operator) == ["fast", "kin"]


class Wordy:
    """One plan, with a step that brings nothing in the middle of it."""

    name = "wordy"

    def plans(self, program: Program, setting: Setting) -> Iterator[Plan]:
        steps = (Step("surface-option", {"option": "tl_disable_warp_specialized", "value": "true"}, "main"),
                 Step("multi-threaded-block", {"threads": 128}, "main"), Step("tile", {"extent": 512}, "main"))
        yield Plan("wordy", steps, family="wordy", surface="cuda")


def test_steps_that_bring_nothing_are_left_out_of_what_is_given() -> None:
    """Of two programs of one modelled time the one with the shorter story is the best."""
    text = "kir 1\nprogram twice\n  size N: i32\n  in X: f32[N]\n  out Y: f32[N]\nkernel main grid (i: N) threads 1\n  register s: f32 = 0.0\n" \
           "  for j in 0..2\n    s = s + X[i]\n  Y[i] = s\n"
    program = parse_program(text, "twice")
    problem = program_problem(program, program)
    setting = Setting(problem, Shape(name="timed", tags=("timed",), sizes={"N": 1 << 22}), target("h200"), "cuda")
    found = Search(program, setting, CpuJudge(setting, compiles=False), (Wordy(),), budget=Budget(seconds=1e4), from_starts=[Start("as it is", program)]).run()
    assert found.best is not None and found.baseline.measured is not None and found.best.measured is not None
    assert found.baseline.measured.seconds > 10 * found.best.measured.seconds
    assert [s.name for s in found.best.steps] == ["multi-threaded-block", "tile"] and found.best.plan.source == "wordy shortened"
