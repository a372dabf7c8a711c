"""Tuning: spaces, pruning, the search under a fake device, resuming, what is kept and applied."""
from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from kir.base.diagnostic import KirError
from kir.base.store import Log
from kir.faces.cli._main import run as kir
from kir.gate.gpu import Options
from kir.gate.gpu.oracle import Shared
from kir.gate.verdict import CompileRecord, DeviceRecord, ProfileRecord, Verdict
from kir.hardware.target import target
from kir.ir.canonical import content_hash
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.learning.forecast import Analytic, Forecast, Pair
from kir.learning.forecast.choosing import Counted, Spent
from kir.learning.tune import Candidate, Measured, Tuned, load_space, ranked, save, search, tuned_program
from kir.learning.tune.device import DeviceMeasurer, told, with_shape
from kir.learning.tune.results import file_of, found, stored
from kir.learning.tune.search import left_after
from kir.problem import Problem, load_problem
from kir.problem.answers import Answers
from kir.problem.problem import shape_of

SPACE = """
kind = "program"
surface = "cuda"
given = ["dtype", "sms"]
[parameters]
rows = [1, 2, 4, 8]
wide = [1, 2]
[derived]
threads = "32 * rows * wide"
[[require]]
that = "rows * wide <= 8"
why = "more than 256 threads"
"""
SUBJECT = """kir 1
program scaled
  size M: i32
  size N: i32
  size K: i32
  in A: ${dtype}[M, K]
  in B: ${dtype}[K, N]
  out C: ${dtype}[M, N]
kernel main grid (i: ceildiv(M, ${rows}), j: ceildiv(N, ${wide})) threads ${threads}
  C[i * ${rows} +: ${rows}, j * ${wide} +: ${wide}] = 0.0:${dtype} clip
"""
H200 = target("h200")


def subject(folder: Path, toml: str = SPACE, text: str = SUBJECT) -> Path:
    (folder / "zeros.toml").write_text(toml)
    (folder / "zeros.kir.in").write_text(text)
    return folder / "zeros.kir.in"


@dataclass
class Fake:
    """A device on which a point takes what `seconds` says; those of `wrong` are refused. `dies` after so many measurements."""

    seconds: dict[str, float]
    wrong: frozenset[str] = frozenset()
    dies: int = 99
    device: str = "fake"
    asked: list[str] = field(default_factory=list)
    prepared: int = 0

    def prepare(self, candidates: Sequence[Candidate]) -> None:
        self.prepared += len(candidates)

    def measure(self, candidate: Candidate) -> Measured:
        if len(self.asked) == self.dies:
            raise KeyboardInterrupt
        name = json.dumps(dict(candidate.point))
        self.asked.append(name)
        return Measured(math.inf, accepted=False, reason="wrong") if name in self.wrong else Measured(self.seconds[name], 0.0, 1.0)


def candidates(count: int = 40) -> list[Candidate]:
    program = parse_program(SUBJECT.replace("${dtype}", "f16").replace("${rows}", "1").replace("${wide}", "1").replace("${threads}", "32"))
    return [Candidate({"a": i % 8, "b": i // 8}, replace(program, name=f"p{i}"), 1.0 + i / 1000) for i in range(count)]


def truth(of: Sequence[Candidate]) -> dict[str, float]:
    """A landscape that the model (nearly flat) does not know: a = 5 is good, b = 3 is better."""
    return {json.dumps(dict(c.point)): 1.0 + abs(int(c.point["a"]) - 5) + 0.5 * abs(int(c.point["b"]) - 3) for c in of}


def test_points_are_pruned_by_the_space_the_target_and_sameness(tmp_path: Path) -> None:
    space = load_space(subject(tmp_path))
    problem = load_problem("gemm:bf16")
    left, pruned = ranked(space, problem, problem.shape("cube"), H200)
    assert space.size == 8 and len(left) == 7 and dict(pruned.reasons) == {"more than 256 threads": 1}
    assert all(c.program.params[3].of.dtype.name == "bf16" for c in left)  # type: ignore[union-attr]  # a tensor
    assert [c.seconds for c in left] == sorted(c.seconds for c in left)
    wide = subject(tmp_path, SPACE.replace('"32 * rows * wide"', '"512 * rows * wide"'))
    assert any(why.startswith("KIR-V021") for why in ranked(load_space(wide), problem, problem.shape("cube"), H200)[1].reasons)
    deep = subject(tmp_path, SPACE, SUBJECT + "  shared S: f16[${60000 * wide}] = 0.0:f16\n")
    assert any(why.startswith("KIR-V031") for why in ranked(load_space(deep), problem, problem.shape("cube"), H200)[1].reasons)
    plain = SUBJECT.replace("${threads}", "64").replace("${wide}", "2").replace("kernel", "# ${threads}\nkernel")
    same = subject(tmp_path, SPACE.replace("rows = [1, 2, 4, 8]", "rows = [4]"), plain)
    only, why = ranked(load_space(same), problem, problem.shape("cube"), H200)
    assert len(only) == 1 and dict(why.reasons) == {"the same program as another point": 1}


@pytest.mark.parametrize(("toml", "text", "id_", "said"), [
    (SPACE.replace("[derived]", "[derivd]"), SUBJECT, "KIR-U003", "derivd"),
    (SPACE.replace("wide = [1, 2]", "wide = []"), SUBJECT, "KIR-U003", "no value"),
    (SPACE.replace("wide = [1, 2]", "wide = [1]\nidle = [1, 2]"), SUBJECT, "KIR-U003", "'idle' fills no hole"),
    (SPACE, SUBJECT.replace("${threads}", "${thread}"), "KIR-U002", "thread"),
    (SPACE.replace("32 * rows", "32 * row"), SUBJECT, "KIR-U002", "row"),
    ("kind = ", SUBJECT, "KIR-U003", "no TOML"),
])
def test_a_wrong_space_is_refused_with_what_is_wrong(tmp_path: Path, toml: str, text: str, id_: str, said: str) -> None:
    problem = load_problem("gemm")
    with pytest.raises(KirError) as bad:
        ranked(load_space(subject(tmp_path, toml, text)), problem, problem.shape("cube"), H200)
    assert bad.value.diagnostics[0].id == id_ and said in bad.value.diagnostics[0].message


def test_the_search_learns_where_the_model_is_wrong() -> None:
    every = candidates()
    fake = Fake(truth(every))
    outcome = search(every, fake, 14)
    assert len(fake.asked) == 14 and outcome.best is not None
    assert outcome.best[1].seconds <= 1.5, "14 of 40 measurements find the best point or the one beside it"


def test_the_search_looks_at_what_is_unlike_the_fastest_by_the_model() -> None:
    """Of tiles that the model has twice as slow, and that are the faster ones, nothing that is like the others tells."""
    every = [replace(c, point={"wide": c.point["b"] == 4, **c.point}, seconds=c.seconds * (2.0 if c.point["b"] == 4 else 1.0)) for c in candidates()]
    seconds = {json.dumps(dict(c.point)): 1.0 if c.point["wide"] else 3.0 for c in every}
    four, one = search(every, Fake(seconds), 8, batch=4).best, search(every, Fake(seconds), 8).best
    assert four is not None and one is not None and (four[1].seconds, one[1].seconds) == (1.0, 3.0)
    slow = [replace(c, seconds=c.seconds * (2.0 if c.point["wide"] else 1.0)) for c in every]
    assert not any(c.point["wide"] for c, _ in search(slow, Fake(seconds), 8, batch=4).taken), "what is estimated to be four times as slow is left"


def test_a_refused_candidate_is_never_the_best_and_ends_nothing() -> None:
    every = candidates(8)
    fake = Fake(truth(every), wrong=frozenset({json.dumps({"a": 5, "b": 0})}))
    outcome = search(every, fake, 99)
    assert len(outcome.taken) == 8 and outcome.best is not None and outcome.best[0].point["a"] in (4, 6)


def test_a_killed_search_goes_on_from_its_log(tmp_path: Path) -> None:
    every = candidates()
    log = Log(tmp_path / "log.jsonl")
    whole = search(every, Fake(truth(every)), 9, batch=3)
    first = Fake(truth(every), dies=5)
    with pytest.raises(KeyboardInterrupt):
        search(every, first, 9, log, {"problem": "p"}, batch=3)
    second = Fake(truth(every))
    outcome = search(every, second, 9, log, {"problem": "p"}, batch=3)
    assert outcome.resumed == 5 and len(second.asked) == 4
    assert [c.point for c, _ in outcome.taken] == [c.point for c, _ in whole.taken]
    other = search(every, Fake(truth(every)), 3, log, {"problem": "q"})
    assert other.resumed == 0, "measurements of another problem are not taken over"
    elsewhere = search(every, Fake(truth(every), device="other"), 3, log, {"problem": "p"})
    assert elsewhere.resumed == 0, "nor those of another device"


def test_results_are_kept_by_device_and_shape_and_applied(tmp_path: Path) -> None:
    space = load_space(subject(tmp_path))
    problem = load_problem("gemm")
    cube, square = problem.shape("cube"), problem.shape("square")
    row = Tuned("gemm", dict(cube.sizes), "h200", "modelled", {"rows": 4, "wide": 2}, 1e-5, "0" * 64, 7)
    save(space.name, [row, replace(row, device="a100-sxm-80gb")], tmp_path)
    save(space.name, [replace(row, kind="measured", parameters={"rows": 2, "wide": 1}, against="torch.matmul", times_faster=1.01)], tmp_path)
    assert [t.kind for t in stored(space.name, "h200", [tmp_path])] == ["measured", "modelled"]
    assert found(space.name, "h200", "gemm", cube.sizes, [tmp_path]).kind == "measured"
    program = tuned_program(space, problem, cube, H200, [tmp_path])
    assert content_hash(program) in {c.key for c in ranked(space, problem, cube, H200)[0] if dict(c.point) == {"rows": 2, "wide": 1}}
    with pytest.raises(KirError) as bad:
        tuned_program(space, problem, square, H200, [tmp_path])
    assert bad.value.diagnostics[0].id == "KIR-U005" and "M=1024" in bad.value.diagnostics[0].witness[0]
    file_of(tmp_path, space.name, "h200").write_text("[[result]]\nproblem = 1\n")
    with pytest.raises(KirError, match="KIR-U004"):
        tuned_program(space, problem, cube, H200, [tmp_path])


def verdict(candidate: Candidate, shape: str, seconds: float, accepted: bool = True) -> Verdict:
    """What a gate on a device would say, with a reference that takes as long."""
    row = ProfileRecord("h200", shape, seconds, "", {}, "measured", (0.9 * seconds, 1.1 * seconds), 9)
    panel = ({"shape": shape, "reference": "torch.matmul", "median": seconds, "interval": [0, 1], "samples": 9, "times_faster": 1.0},)
    return Verdict(accepted, "profile" if accepted else "correctness", "as asked", candidate.key, "gemm", CompileRecord("cuda", True),
                   profile=(row,) if accepted else (), device=DeviceRecord(panel=panel, seconds={"correctness": 2.0}))


def test_the_command_gates_the_winner_in_full_and_goes_on_to_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                      capsys: pytest.CaptureFixture[str]) -> None:
    gated: list[Candidate] = []

    class Device(DeviceMeasurer):
        @property
        def device(self) -> str:
            return "h200"

        def prepare(self, candidates: Sequence[Candidate]) -> None:
            pass

        def measure(self, candidate: Candidate) -> Measured:
            return told(verdict(candidate, self.shape.name, 1e-5 / int(candidate.point["rows"]), candidate.point["wide"] == 1), self.shape)

        def gated(self, candidate: Candidate) -> Verdict:
            gated.append(candidate)
            return verdict(candidate, self.shape.name, 1e-5, len(gated) > 1)

    monkeypatch.setattr("kir.learning.tune.device.DeviceMeasurer", Device)
    monkeypatch.setattr("kir.gate.gpu.machine.require_device", lambda: None)
    monkeypatch.setattr("kir.gate.gpu.Gpu.open", lambda folder=None: contextlib.nullcontext())
    words = ["tune", str(subject(tmp_path)), "--problem", "gemm", "--shape", "cube", "--on", "gpu", "--log", str(tmp_path / "log"), "--into",
             str(tmp_path / "own"), "--emit", str(tmp_path / "best.kir"), "--json"]
    assert kir(words) == 0
    told_ = json.loads(capsys.readouterr().out)["shapes"][0]
    assert [c.point["rows"] for c in gated] == [8, 4] and told_["best"]["parameters"] == {"rows": 4, "wide": 1}
    assert told_["best"]["kind"] == "measured" and told_["best"]["times_faster"] == 1.0 and len(told_["measured"]) == 7
    assert parse_program((tmp_path / "best.kir").read_text()) == gated[1].program
    assert [t.kind for t in stored("zeros", "h200", [tmp_path / "own"])] == ["measured"]
    assert kir([*words, "--budget", "3"]) == 0
    assert json.loads(capsys.readouterr().out)["shapes"][0]["resumed"] == 3


def test_a_winner_is_gated_once_at_the_shape_that_the_oracle_can_compute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[tuple[str, ...], bool, bool, bool, bool]] = []

    def gate(gpu: object, program: Program, problem: Problem, surface: str, *, options: Options) -> Verdict:
        asked.append((options.shapes, options.interpret, options.sanitize, options.replay, options.shared is not None))
        return verdict(one, options.shapes[0], 1e-5)

    monkeypatch.setattr("kir.gate.gpu.gate_gpu", gate)
    problem = load_problem("gemm")
    judged, large = problem.shape("cube"), [shape_of(problem, f"M={m},N=4096,K=4096") for m in (4096, 8192)]
    one = Candidate({}, problem.naive, 1e-5)
    verdicts: dict[str, Verdict] = {}
    shared = Shared(1, Answers(tmp_path))
    for shape in large:
        device = DeviceMeasurer(None, with_shape(problem, shape), shape, "cuda", judged=judged, verdicts=verdicts, shared=shared)  # type: ignore[arg-type]  # no device is asked
        assert device.measure(one).accepted and told(device.gated(one), judged).accepted
        assert set(device.spent) == {"correctness", "winner"} and device.spent["correctness"] == 2.0, "what the winner's gate took is told apart"
    timed, whole = (False, False, False, True), (True, True, True, False)
    assert asked == [((large[0].name,), *timed), (("cube",), *whole), ((large[1].name,), *timed)]


def test_the_command_ranks_on_the_cpu_and_opt_applies_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    file = str(subject(tmp_path))
    assert kir(["tune", file, "--problem", "gemm", "--shape", "M=256,N=256,K=64", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["on"] == "cpu" and told["shapes"][0]["best"]["kind"] == "modelled" and told["shapes"][0]["measured"] == []
    assert kir(["opt", file, "--tuned", "gemm", "--shape", "M=256,N=256,K=64"]) == 0
    out = capsys.readouterr().out
    best = told["shapes"][0]["best"]["parameters"]
    assert f"threads {32 * best['rows'] * best['wide']}" in out
    assert kir(["opt", file, "--tuned", "gemm", "--shape", "cube"]) == 1
    assert "KIR-U005" in capsys.readouterr().err
    assert kir(["opt", file, "--tuned", "gemm"]) == 2
    assert kir(["tune", file, "--problem", "gemm", "--shape", "M=256"]) == 2
    assert kir(["tune", file, "--shape", "cube"]) == 2  # of a program it is not known what it computes
    assert kir(["tune", str(tmp_path / "zero"), "--problem", "gemm"]) == 2


def test_a_tuned_pipeline_is_applied_to_the_naive_program_at_the_dtype(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                      capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (tmp_path / "rows.toml").write_text('kind = "pipeline"\nfacts = ["M % 2 == 0"]\nalign = 16\n[parameters]\nrows = [64, 32]\n')
    (tmp_path / "rows.pipeline.in").write_text("tile{axis=1 extent=${rows}}@main")
    naive = str(load_problem("gemm").folder / "naive.kir")
    subject_ = str(tmp_path / "rows.toml")
    assert kir(["tune", subject_, "--problem", "gemm:bf16", "--shape", "cube"]) == 0
    capsys.readouterr()
    assert kir(["opt", naive, "-p", subject_, "--tuned", "gemm:bf16", "--shape", "cube"]) == 0
    text = capsys.readouterr().out
    assert "in A: bf16[M, K] align 16" in text and "fact M % 2 == 0" in text and "ceildiv(N, " in text
    made, sized = tmp_path / "made.kir", "know-sizes{sizes=[K] values=[${K}]}@main"
    assert kir(["tune", subject_, "--problem", "gemm:bf16", "--shape", "cube", "--then", sized, "--emit", str(made), "--into", str(tmp_path / "none")]) == 0
    assert "when K == 1024" in made.read_text() and not (tmp_path / "none").exists()
    assert kir(["tune", str(subject(tmp_path)), "--problem", "gemm", "--shape", "cube", "--then", sized]) == 2  # a program takes no steps


class _Backwards:
    """A forecaster that holds the opposite of the cost model."""

    name = "backwards"

    def __call__(self, pair: Pair) -> Forecast:
        found = Analytic()(pair)
        return Forecast(found.levels, tuple(-x for x in reversed(found.logs)), seconds=found.seconds)


def test_a_forecaster_orders_the_candidates_and_is_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space, problem = load_space(subject(tmp_path)), load_problem("gemm")
    shape, ask = problem.shape("cube"), Counted(_Backwards())
    plain, _ = ranked(space, problem, shape, H200)
    other, _ = ranked(space, problem, shape, H200, ask=ask)
    assert {c.key for c in plain} == {c.key for c in other} and all(c.forecast is not None for c in other)
    seconds = {c.key: c.seconds for c in plain}
    turned = [seconds[c.key] for c in other]
    assert turned == sorted(turned, reverse=True) and ask.spent.forecasts >= len(plain)
    monkeypatch.setattr("kir.learning.tune.rank.MOST_FORECAST", 3)
    few, _ = ranked(space, problem, shape, H200, ask=ask)
    assert [c.forecast is None for c in few] == [False] * 3 + [True] * (len(plain) - 3), "the others stand behind, in their order"
    assert [c.key for c in few[3:]] == [c.key for c in plain[3:]] and {c.key for c in few[:3]} == {c.key for c in plain[:3]}
    assert left_after(12, Spent(forecasts=9, seconds=0.5)) == 12
    assert left_after(12, Spent(seconds=7.0)) == 9 and left_after(12, Spent(seconds=1e3)) == 1 and left_after(0, Spent()) == 0
