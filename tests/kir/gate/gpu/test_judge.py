"""The GPU gate's protocol, on an executor that interprets: what is accepted, what is refused, and that a refusal harms nothing else."""
from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kir.base.diagnostic import KirError
from kir.gate import Verdict
from kir.gate.gpu import Gpu, Options, gate_gpu, oracle
from kir.gate.gpu.timing import Timing
from kir.hardware.device.client import Child
from kir.ir.nodes import Program
from kir.learning.optimize.judge import GpuJudge
from kir.learning.optimize.plan import Setting
from kir.problem import Problem, Shape, load_problem
from kir.problem.ordering import split

TOML = """
name = "{name}"
title = "y = 2 x"
operator = "map"
dtypes = ["f32"]
{more}
tensors = [ {{ name = "X", role = "in", dtype = "T", shape = ["N"] }}, {{ name = "Y", role = "out", dtype = "T", shape = ["N"] }} ]
shapes = [ {{ name = "one", tags = ["one"], sizes = {{ N = 1 }} }}, {{ name = "tail", tags = ["tail"], sizes = {{ N = 37 }} }},
           {{ name = "long", tags = ["timed"], sizes = {{ N = 512 }} }} ]
[work_item]
kind = "element"
axes = ["N"]
[distributions]
normal = {{ "*" = {{ kind = "normal" }} }}
wide = {{ "*" = {{ kind = "log_uniform", low = -6, high = 4 }} }}
[[errors]]
eps = "out"
c = 1.01
why = "one rounding"
"""
TEXT = """kir 1
program {name}
  size N: i32
  in X: f32[N]
  out Y: f32[N]
kernel main grid (i: N) threads 1
  Y[i] = {value}
"""
FAST = Options(panel=False, sanitize=False, budget=0.05)


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    return make(tmp_path)


def make(tmp_path: Path, more: str = "") -> Problem:
    folder = tmp_path / "double"
    folder.mkdir(exist_ok=True)
    (folder / "problem.toml").write_text(TOML.format(name="double", more=more))
    (folder / "reference.py").write_text("def oracle(inputs, sizes):\n    return {'Y': 2 * inputs['X']}\n\ndef magnitudes(inputs, sizes):\n    return {}\n")
    return load_problem(folder)


def program(name: str = "double", value: str = "X[i] + X[i]") -> Program:
    from kir.ir.parser import parse_program
    return parse_program(TEXT.format(name=name, value=value), f"{name}.kir")


def gate(gpu: Gpu, p: Program, problem: Problem, options: Options = FAST, against: Program | None = None) -> Verdict:
    return gate_gpu(gpu, p, problem, "text", against, options=options)


def test_an_honest_kernel_is_accepted_with_raw_samples(gpu: Gpu, problem: Problem) -> None:
    verdict = gate(gpu, program(), problem)
    assert verdict.accepted, verdict.reason
    assert verdict.device is not None and verdict.correctness is not None
    (timing,) = verdict.device.timings
    assert timing["shape"] == "long" and timing["samples"] == len(timing["seconds"]) >= 9
    assert timing["replayed"] == timing["identical"] >= 2 and timing["oracle_checks"] >= 2
    assert verdict.measured() == {"NVIDIA H200": pytest.approx(1e-4)}
    on_device = [r for r in verdict.correctness.runs if r.mode == "device"]
    assert {split(r.distribution)[0] for r in on_device} == {"normal", "wide"} and any("ordered by" in r.distribution for r in on_device)
    assert any(r.shape.startswith("held-out") for r in on_device)
    assert "seccomp" in verdict.isolation or "process of its own" in verdict.isolation
    assert json.dumps(verdict.record, allow_nan=False)
    hashes = verdict.record["hashes"]
    assert verdict.emitted is not None and hashes["text"] == hashlib.sha256(verdict.emitted.text.encode()).hexdigest()
    assert list(hashes["cubins"]) == ["sm_90a main"]
    assert verdict.record["device"]["device"]["begun"] and "hashes" not in replace(verdict, device=None).record, "the CPU gate's are the same on another day"


def test_what_only_orders_candidates_makes_no_timed_call_again(gpu: Gpu, problem: Problem) -> None:
    found = gate(gpu, program(), problem, replace(FAST, replay=False))
    assert found.accepted and found.device is not None and found.measured() and not found.device.timings and "replay" not in found.device.seconds


def test_gates_of_one_search_ask_the_oracle_once_and_judge_as_ever(gpu: Gpu, problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of calls at timed shapes the first to be compared have the same seeds for all candidates; what cheats is refused as it is alone, what is wrong by
    its values too, by what another candidate had asked."""
    asked, asking = list[str](), Child.ask

    def noted(self: Child, message: Mapping[str, Any], *rest: Any, **more: Any) -> Any:
        asked.append(message["op"])
        return asking(self, message, *rest, **more)  # type: ignore[arg-type]  # as it came
    monkeypatch.setattr(Child, "ask", noted)
    monkeypatch.setattr(oracle, "SHARED_BYTES", 0)
    with oracle.sharing() as shared:
        options = replace(FAST, shared=shared)
        first = gate(gpu, program("double_first"), problem, options)
        assert first.accepted and first.device is not None and asked.count("expected") == first.device.timings[0]["oracle_checks"] == 2
        again = gate(gpu, program("double_again"), problem, options)
        assert again.accepted and again.device is not None and again.device.timings[0]["oracle_checks"] == 2 and asked.count("expected") == 2
        assert again.correctness is not None and first.correctness is not None
        untimed = [{r.seed for r in v.correctness.runs if r.mode == "device" and r.shape != "long"} for v in (first, again) if v.correctness]
        assert untimed[0].isdisjoint(untimed[1]), "what is judged before anything is timed has seeds of its own"
        for name, value, words in (("lucky", "X[i] + X[i]", "oracle says"), ("memo", "X[i] + X[i]", "oracle says"), ("crash", "X[i] + X[i]", "SIGSEGV")):
            refused = gate(gpu, program(name, value), problem, options)
            assert not refused.accepted and (words in refused.reason or "wrong" in refused.reason), refused.reason
        folder = shared.answers.folder.parent
        assert list(folder.rglob("*.arrays")) and folder.stat().st_mode & 0o77 == 0
        with oracle.sharing() as other:
            assert folder.is_dir() and other.seed(problem.shape("long"), 0) != shared.seed(problem.shape("long"), 0), "it has an owner"
    with oracle.sharing(every=True) as shared:
        for counted in (False, True):
            asked.clear()
            options = replace(FAST, shared=shared, secret=shared.secret, replay=False)
            assert gate(gpu, program("double_first"), problem, options).accepted and "compare" not in asked
            assert ("expected" not in asked) == counted, "of one secret: what was said at untimed shapes is kept too"
    assert not folder.exists()
    (left := Path(tempfile.gettempdir()) / f"{oracle.FOLDER}{os.getpid()}-left").mkdir()
    (left / "owner").touch()
    with oracle.sharing():
        assert not left.exists(), "what a killed search left"


def test_a_host_that_was_kept_from_its_clock_refuses_nobody(gpu: Gpu, problem: Problem) -> None:
    """One call of four seems to outlast its end: it is made again, and what it said is not kept. One that always does is refused (`late`, below)."""
    assert gate(gpu, program("stalled"), problem).accepted


def test_seeds_are_secret_and_differ_from_verdict_to_verdict(gpu: Gpu, problem: Problem) -> None:
    a, b = (gate(gpu, program(), problem).correctness for _ in range(2))
    assert a is not None and b is not None
    assert {r.seed for r in a.runs if r.mode == "device"}.isdisjoint({r.seed for r in b.runs if r.mode == "device"})


@pytest.mark.parametrize(("name", "words"), [
    ("crash", "SIGSEGV"), ("late", "busy for"), ("spoil", "changes its input X"), ("spill", "writes outside of Y"),
    ("lucky", "wrong"), ("memo", "wrong"), ("free", "seems to take"), ("keeps", "KIR-G930: it leaves something in calls of k, which outlives the call"),
    ("hidden", "the host waited 300.0 ms for a call that seems to have taken 0.100 ms")])
def test_a_cheat_or_a_fault_is_a_verdict_and_the_next_candidate_is_judged(gpu: Gpu, problem: Problem, name: str, words: str) -> None:
    verdict = gate(gpu, program(name), problem)
    assert not verdict.accepted
    assert words in verdict.reason or (name in ("lucky", "memo") and "oracle says" in verdict.reason), verdict.reason
    assert gate(gpu, program(), problem).accepted


@pytest.mark.parametrize(("calls", "refused"), [
    ([(0.010, 0.011)] * 4 + [(0.010, 0.040)] * 5, False),  # a host under load: some calls wait to be told that they are done
    ([(0.010, 0.040)] * 9, True),  # what takes the time is in no call that the events see
    ([(0.020, 0.021)] * 4 + [(0.010, 0.040)] * 5, True),  # it is in some of them, and those are slow
    ([(0.010, 0.011)] * 2 + [(0.010, 0.040)] * 7, True)])  # too few to speak for the others
def test_a_call_may_wait_on_a_busy_host_and_time_may_not_be_hidden(calls: list[tuple[float, float]], refused: bool) -> None:
    timing = Timing(Shape(name="any", tags=(), sizes={}), seconds=[seen for seen, _ in calls], walls=[wall for _, wall in calls])
    assert bool(timing.hidden(1)) == refused


def test_tensors_are_aligned_as_declared_and_no_better(gpu: Gpu, problem: Problem) -> None:
    """In some of the calls that are checked, which cannot be foreseen; a kernel that declares what it relies on gets it."""
    for _ in range(3):
        refused = gate(gpu, program("vectors"), problem)
        assert not refused.accepted and refused.stage == "correctness"
        assert "KIR-G933: it relies on more alignment than anything declares (in bytes: 'X' 4, 'Y' 4)" in refused.reason
    from kir.ir.parser import parse_program
    declared = parse_program(TEXT.format(name="vectors", value="X[i] + X[i]").replace("f32[N]", "f32[N] align 16"), "declared.kir")
    assert gate(gpu, declared, problem).accepted


@pytest.mark.parametrize(("most", "timed"), [(1e-3, "long"), (1e-5, "")])
def test_memcheck_sees_a_timed_shape_that_is_quick(gpu: Gpu, problem: Problem, monkeypatch: pytest.MonkeyPatch, most: float, timed: str) -> None:
    from kir.gate.gpu import sanitizer
    from kir.hardware.device.replay import unpack
    seen: dict[str, list[int]] = {}

    class Tools:
        def refill(self) -> None: ...

        settle = close = refill

        def run(self, name: str, job: bytes, seconds: float) -> str:
            opening, *calls = [message for message, _ in unpack(job)]
            seen[name] = [call["buffers"][0]["elements"] for call in calls]
            assert opening["guard"] == 0 and opening["lead"] % 512 == 0
            assert all("shift" not in row for call in calls for row in call["buffers"]), "what lies behind the data is the tool's to see"
            return "ERROR SUMMARY: 0 errors" if name == "memcheck" else "RACECHECK SUMMARY: 0 hazards displayed"
    monkeypatch.setattr(sanitizer, "sanitizer", lambda: Path("compute-sanitizer"))
    monkeypatch.setattr(sanitizer, "QUICK", most)
    gpu.__dict__["sanitizers"] = Tools()
    verdict = gate(gpu, program(f"double_{timed}"), problem, replace(FAST, sanitize=True))
    assert verdict.accepted and verdict.device is not None, verdict.reason
    assert verdict.device.sanitizer == {"tools": ["memcheck", "racecheck"], "errors": [], "shape": "tail", "timed": timed}
    assert seen == {"memcheck": [37, 512] if timed else [37], "racecheck": [37]}


def test_a_hanging_kernel_is_killed(gpu: Gpu, problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    from kir.gate.gpu import candidate
    monkeypatch.setattr(candidate.Running.call, "__defaults__", (False, 1.0, True, None, False))
    verdict = gate(gpu, program("hang"), problem)
    assert not verdict.accepted and "did not answer within 1 s, and was killed" in verdict.reason


def test_a_wrong_program_never_reaches_the_device(gpu: Gpu, problem: Problem) -> None:
    verdict = gate(gpu, program(value="X[i]"), problem)
    assert not verdict.accepted and verdict.stage == "correctness"
    assert verdict.device is not None and verdict.device.timings == ()


def test_hard_coded_sizes_are_found_by_shapes_that_nobody_was_shown(gpu: Gpu, problem: Problem) -> None:
    cheat = program(value="select(N == 1, X[i] + X[i], select(N == 37, X[i] + X[i], select(N == 512, X[i] + X[i], 0.0)))")
    verdict = gate(gpu, cheat, problem, replace(FAST, interpret=False))
    assert not verdict.accepted and "at shape" in verdict.reason and not any(f"'{s.name}'" in verdict.reason for s in problem.shapes)


def test_a_second_gate_of_a_program_compiles_nothing(gpu: Gpu, problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a surface that specializes by what divides a size, as Triton does: drawn sizes differ, the variants that they need do not."""
    from kir.gate import cpu
    from kir.gate.gpu import judge
    from kir.hardware.target import Target
    from kir.surface import Artifact, Emitted

    text, _ = cpu._backend(program(), "text")
    assert text is not None
    compiled: list[str] = []

    class Specializing(type(text)):  # type: ignore[misc]  # the fixture's backend
        def launched_with(self, emitted: Emitted, sizes: Mapping[str, int]) -> Emitted:
            divisor = next((d for d in (16, 8, 4, 2) if sizes["N"] % d == 0), 1)
            entries = tuple(replace(e, arguments=tuple(replace(a, divisor=divisor) for a in e.arguments)) for e in emitted.entries)
            return replace(emitted, entries=entries)

        def compile(self, emitted: Emitted, target: Target) -> Artifact:
            compiled.append(emitted.text)
            made: Artifact = super().compile(emitted, target)
            return made

    by = Specializing()
    monkeypatch.setattr(cpu, "_backend", lambda program, surface: (by, []))
    monkeypatch.setattr(judge, "backend", lambda surface: by)
    mine = program("specialized")
    assert gate(gpu, mine, problem, replace(FAST, interpret=False)).accepted
    first = len(compiled)
    drawn = set()
    for secret in range(4):
        verdict = gate(gpu, mine, problem, replace(FAST, interpret=False, secret=secret))
        assert verdict.accepted and verdict.correctness is not None, verdict.reason
        drawn |= {r.sizes["N"] for r in verdict.correctness.runs if r.shape.startswith("held-out")}
    assert first > 0 and len(compiled) == first, "its variants are those of the first verdict"
    assert len(drawn) > 2, "its sizes are drawn anew"


def test_two_programs_are_timed_in_turns(gpu: Gpu, problem: Problem) -> None:
    verdict = gate(gpu, program(), problem, against=program("again", "2.0 * X[i]"))
    assert verdict.accepted and verdict.device is not None and verdict.device.against is not None
    faster = verdict.device.against["long"]["times_faster"]
    assert faster["median"] == pytest.approx(1.0) and faster["interval"][0] <= 1.0 <= faster["interval"][1]


def test_an_unknown_reference_is_one_clear_error(gpu: Gpu, tmp_path: Path) -> None:
    unknown = make(tmp_path, 'references = ["torch.doubled"]')
    with pytest.raises(KirError, match=r"KIR-G106.*torch\.doubled"):
        gate(gpu, program(), unknown, replace(FAST, panel=True))


def test_a_shape_that_the_problem_has_not_is_one_clear_error(gpu: Gpu, problem: Problem) -> None:
    with pytest.raises(KirError, match=r"KIR-G902.*no shape 'lon'.*"):
        gate(gpu, program(), problem, replace(FAST, shapes=("lon",)))


def test_a_model_of_kernelbench_is_a_problem_for_the_device_too(gpu: Gpu, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from kir.ir.parser import parse_program
    (tmp_path / "twice.py").write_text(MODEL)
    own = parse_program(TEXT.format(name="twice", value="X[i] + X[i]").replace("out Y", "out out").replace("Y[i] =", "out[i] ="), "twice.kir")
    verdict = gate(gpu, own, load_problem(tmp_path / "twice.py"))
    assert verdict.accepted, verdict.reason
    assert verdict.correctness is not None
    on_device = [r for r in verdict.correctness.runs if r.mode == "device"]
    assert any(r.shape.startswith("held-out") for r in on_device) and {r.distribution for r in on_device} >= {"normal", "sparse"}


MODEL = """import torch


class Model(torch.nn.Module):
    def forward(self, X):
        return X + X


N = 96


def get_inputs():
    return [torch.randn(N)]


def get_init_inputs():
    return []
"""


def test_of_two_gates_on_one_device_nothing_overlaps_what_one_of_them_times(gpu: Gpu, problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both gate at once, each with processes of its own; whatever either asks of the device is noted."""
    seen: list[tuple[bool, float, float]] = []
    asked = Child.ask

    def noted(self: Child, message: Mapping[str, Any], *rest: Any, **more: Any) -> Any:
        begun = time.monotonic()
        try:
            return asked(self, message, *rest, **more)  # type: ignore[arg-type]  # as it came
        finally:
            if message["op"] in ("open", "call", "peaks"):
                seen.append((message["op"] == "peaks" or bool(message.get("key")), begun, time.monotonic()))

    monkeypatch.setattr(Child, "ask", noted)
    with Gpu(gpu.folder, task=gpu.task, given=gpu.given) as other, ThreadPoolExecutor(2) as pool:
        said = list(pool.map(lambda g: gate(g, program("double_together"), problem, replace(FAST, replay=False)), (gpu, other)))
    assert all(v.accepted for v in said), [v.reason for v in said]
    timed = [row for row in seen if row[0]]
    assert len(timed) >= 2 * 9
    assert not [(a, b) for a in timed for b in seen if a is not b and a[1] < b[2] and b[1] < a[2]]


def test_a_search_keeps_the_process_of_a_candidate_that_was_right_and_of_no_other(gpu: Gpu, problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that counts is judged in a process which another candidate had, and none that was refused, crashed or served long leaves one behind."""
    used, asking = list[int](), Child.ask

    def noted(self: Child, message: Mapping[str, Any], *rest: Any, **more: Any) -> Any:
        if message["op"] == "load" and "images" in message:
            used.append(self.pid)
        return asking(self, message, *rest, **more)  # type: ignore[arg-type]  # as it came
    monkeypatch.setattr(Child, "ask", noted)
    searching = replace(FAST, replay=False, reuse=True)

    def served(name: str, options: Options = searching, value: str = "X[i] + X[i]") -> tuple[Verdict, int]:
        used.clear()
        return gate(gpu, program(name, value), problem, options), used[0] if used else 0
    first, one = served("double_one")
    second, two = served("double_two")
    assert first.accepted and second.accepted and one == two, "the second had the first one's process"
    assert "for candidates of a search in turn" in second.isolation
    whole, fresh = served("double_three", FAST)
    assert whole.accepted and fresh != one and "one process a verdict" in whole.isolation, "what counts has one of its own"
    for name in ("spoil", "keeps", "lucky"):
        refused, last = served(name)
        _, after = served("double_after")
        assert not refused.accepted and after != last, f"{name}: {refused.reason}"
    wrong, none = served("double_wrong", value="X[i] + 1.0")
    _, after = served("double_last")
    assert not wrong.accepted and not none and after == served("double_again")[1], "one that no candidate has had is kept too"
    monkeypatch.setattr("kir.gate.gpu.machine.USES", 2)
    assert len({served(f"double_{k}")[1] for k in range(4)}) >= 2, "none serves for ever"
    assert len(gpu._kept) <= 1
    gpu.close()
    assert not gpu._kept


def test_a_judge_says_where_a_candidate_s_seconds_went(gpu: Gpu, problem: Problem) -> None:
    shape = problem.tagged("timed")[0]
    judge = GpuJudge(gpu, Setting(problem, shape, gpu.target, "text"), seconds=0.05)
    assert judge.judge(program("double_spent"), "text").accepted
    assert {"cpu gate", "compile", "start", "correctness", "timing", "turn"} <= judge.spent.keys()
    assert 0 <= judge.spent["turn"] <= sum(v for k, v in judge.spent.items() if k != "turn")
    assert judge.again(program("double_spent"), "text").accepted, "by the whole gate, with a secret of its own"
