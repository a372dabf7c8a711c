"""Whole packages: a run from recorded calls to patches and an overlay, resumed; what takes a recorded launch and no other; CTAs in place of a grid."""
from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kir.base.diagnostic import KirError
from kir.faces.cli.rewriting._optimizing import Where, search_run
from kir.gate.cases import FRESH
from kir.gate.gpu.statistics import Estimate
from kir.hardware.target import target
from kir.ir.build import int_value
from kir.ir.parser import parse_program
from kir.learning.corpus.measured import copied, difference
from kir.learning.optimize.inputs import captured, shape_for, with_sizes
from kir.learning.optimize.lift import lifted
from kir.learning.optimize.plan import Setting
from kir.learning.optimize.policy import NO_POLICY
from kir.learning.optimize.pool.engines import Processes
from kir.learning.optimize.search import Budget
from kir.learning.optimize.sources import ThreadsSource
from kir.learning.packages.calls import Call, calls_of
from kir.learning.packages.overlay import series
from kir.learning.packages.run import Asked, Outcome, optimized
from kir.learning.packages.sample import CallJudge, CallTask, cases, judged_call, sampled
from kir.learning.packages.trial import WITHIN, DeviceJudge, DeviceTask, Trials, added_to, apart, tried_on_device, widened
from kir.learning.packages.twin import twin
from kir.rewrite import Context

H200 = target("h200")
SOURCE = '''import triton
import triton.language as tl


@triton.jit
def row_sum(X, Y, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        total += tl.load(X + row * n_cols + start + cols, mask=start + cols < n_cols, other=0.0)
    tl.store(Y + row, tl.sum(total, axis=0))


@triton.jit
def nothing(Y):
    tl.store(Y + tl.program_id(0), 0.0)
'''
BINDING = '''# {file}::row_sum
# 40 launches
recorded = true
kernel = "row_sum"
grid = [96]
[metas]
BLOCK = 128
[dtypes]
n_cols = "i32"
[scalars]
n_cols = {columns}
[options]
num_warps = 4
[tensors.X]
shape = [96, {columns}]
dtype = "f32"
[tensors.Y]
shape = [96]
dtype = "f32"
'''


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package `sums` with a kernel, and one recorded call of it."""
    home, bindings = tmp_path / "site" / "sums", tmp_path / "bindings"
    home.mkdir(parents=True)
    bindings.mkdir()
    (home / "__init__.py").write_text("")
    (home / "rows.py").write_text(SOURCE)
    (bindings / "row_sum-1.toml").write_text(BINDING.format(file=home / "rows.py", columns=1000))
    return tmp_path


def asked(package: Path, **changes: Any) -> Asked:
    return replace(Asked(package / "bindings", str(package / "site" / "sums"), H200, package / "out", Budget(2, 100.0), compiles=False), **changes)


def dead(_: object) -> Any:
    raise AssertionError("nothing is judged again")


def test_a_run_ends_in_patches_that_apply_and_an_overlay_that_swaps_and_goes_on_where_it_ended(package: Path) -> None:
    found = optimized(asked(package))
    (row,) = found.rows
    assert row["speedup"] > 1.1 and row["launches"] == 40 and row["saved"] > 0
    patch = package / "out" / "0001-row_sum.patch"
    assert "times as fast" in patch.read_text(), "the evidence stands above the patch"
    subprocess.run(["git", "apply", "--unsafe-paths", "-p1", str(patch)], cwd=package / "site", check=True)
    patched = {p.name: p.read_text() for p in (package / "site" / "sums").glob("*.py")}
    assert len(patched) == 3 and SOURCE.partition("@triton.jit\n")[2] in patched["rows.py"], "the package's own kernel is there, word for word"
    overlay = package / "out" / "overlay"
    assert {p.name: p.read_text() for p in (overlay / "files" / "sums").glob("*.py")} == {k: v for k, v in patched.items() if k != "__init__.py"}
    (package / "site" / "sums" / "rows.py").write_text(SOURCE)
    again = optimized(asked(package, judge_of=dead))
    assert again.to_json() == found.to_json()
    _imports(package, overlay)
    (package / "bindings" / "row_sum-1.toml").write_text(BINDING.format(file=package / "site" / "sums" / "rows.py", columns=999))
    with pytest.raises(KirError, match="KIR-U032"):
        optimized(asked(package))


def _imports(package: Path, overlay: Path) -> None:
    """A process with the overlay loads the edited file; once the package's own file is another, it is left as it is, with a warning."""
    said = "import sys, types; sys.modules['triton'] = t = types.ModuleType('triton'); t.jit = lambda f: f; l = types.ModuleType('triton.language'); "
    said += "l.constexpr = int; sys.modules['triton.language'] = t.language = l; import sums.rows; print(sums.rows.__file__)"

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", said], env={"PYTHONPATH": f"{overlay}:{package / 'site'}"}, capture_output=True, text=True, check=True)
    assert run().stdout.strip() == str(overlay / "files" / "sums" / "rows.py")
    (package / "site" / "sums" / "rows.py").write_text(SOURCE + "\n")
    other = run()
    assert other.stdout.strip() == str(package / "site" / "sums" / "rows.py") and "not the file that was optimized" in other.stderr
    (package / "site" / "sums" / "rows.py").write_text(SOURCE)


def test_a_run_that_is_broken_off_keeps_what_it_found_and_resumes_within_its_budget(package: Path) -> None:
    (package / "bindings" / "row_sum-2.toml").write_text(BINDING.format(file=package / "site" / "sums" / "rows.py", columns=500))

    def gone(text: str) -> None:
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        optimized(asked(package, budget=Budget(3, 100.0)), gone)
    assert (package / "out" / "0001-row_sum.patch").is_file() and json.loads((package / "out" / "report.json").read_text())["ended"] == "it was stopped"
    found: Outcome = optimized(asked(package, budget=Budget(3, 100.0)))
    assert len(found.rows) == 2 and sum(len(r["tried"]) for r in found.rows) <= 3
    assert optimized(asked(package, budget=Budget(1, 100.0))).ended == "the budget is used up"


def test_calls_that_come_to_a_run_are_searched_beside_what_was_found(package: Path) -> None:
    first = optimized(asked(package, budget=Budget(2, 100.0)))
    (package / "bindings" / "another-1.toml").write_text(BINDING.format(file=package / "site" / "sums" / "rows.py", columns=500))
    both = optimized(asked(package, budget=Budget(4, 100.0)))
    assert {r["binding"] for r in both.rows} == {"row_sum-1", "another-1"} and first.rows[0] in both.rows


def test_a_kernel_is_tried_with_other_numbers_of_threads_and_one_whose_statements_count_them_is_not(package: Path) -> None:
    program, setting = call_of(package).read().program, Setting(cast(Any, None), cast(Any, None), H200, "triton")
    plans = [*ThreadsSource().plans(program, setting)]
    assert [p.point["threads"] for p in plans] == [64, 256, 32, 512, 1024]
    for plan in plans:
        found = lifted(program, plan, setting.context)
        assert not found.left and int_value(found.program.kernels[0].threads) == plan.point["threads"]
    counts = parse_program("kir 1\nprogram own\n  out Y: f32[128]\nkernel main grid (i: 1) threads 128\n  for t in 0..128 parallel thread\n    Y[t] = 1.0\n")
    assert all(lifted(counts, plan, setting.context).left for plan in ThreadsSource().plans(counts, setting))


class Losing(Processes):
    """Does tasks here, after it has lost so many workers over each."""

    def __init__(self, losses: int) -> None:
        super().__init__(2)
        self.losses, self.begun = losses, list[str]()

    def begin(self, work: Callable[[Any], dict[str, Any]], task: Any) -> Future[dict[str, Any]]:
        self.begun.append(task.key)
        done: Future[dict[str, Any]] = Future()
        if self.begun.count(task.key) <= self.losses:
            done.set_exception(BrokenProcessPool())
        else:
            done.set_result(work(pickle.loads(pickle.dumps(task))))
        return done


@pytest.mark.parametrize("losses", [1, 2])
def test_searches_run_side_by_side_and_one_whose_worker_is_lost_is_begun_once_more(package: Path, losses: int) -> None:
    (package / "bindings" / "row_sum-2.toml").write_text(BINDING.format(file=package / "site" / "sums" / "rows.py", columns=500))
    engine = Losing(losses)
    found = optimized(asked(package, budget=Budget(4, 100.0), engine=engine))
    searches = [key for key in engine.begun if key.startswith("search ")]
    assert len(searches) == 4 and len(engine.begun) == 8 and len(found.rows) == 2 and found.ended == "every call was searched"
    assert [r["binding"] for r in found.rows] == ["row_sum-1", "row_sum-2"] and sum(len(r["tried"]) for r in found.rows) <= 4
    assert {r["remark"] for r in found.rows} == ({""} if losses == 1 else {"it ends the process that searches it"})
    assert all(bool(r["program"]) == (losses == 1) for r in found.rows)
    if losses == 1:
        assert optimized(asked(package, budget=Budget(4, 100.0), judge_of=dead)).to_json() == found.to_json(), "and one after another it is the same run"


def call_of(package: Path) -> Call:
    (call,) = calls_of(package / "bindings", str(package / "site" / "sums"))
    return call


class Tensor:
    """As much of a tensor as a launch looks at."""

    def __init__(self, *shape: int, at: int = 0, dtype: str = "torch.float32", strides: tuple[int, ...] | None = None) -> None:
        self.shape, self.at, self.dtype = shape, at, dtype
        self.strides = strides or (*shape[1:], 1)

    def stride(self) -> tuple[int, ...]:
        return self.strides

    def data_ptr(self) -> int:
        return self.at

    def untyped_storage(self) -> Tensor:
        return self


X, Y = Tensor(96, 1000), Tensor(96, at=1 << 20)


def launched(package: Path) -> Callable[..., str]:
    """Launches a decorated kernel, and says which of the two ran."""
    call = call_of(package)
    scope: dict[str, Any] = {"__name__": "found"}
    text = twin(call, call.read().program, "").text
    exec(compile(text[text.index("_NAMES ="):], "found", "exec"), scope)
    went: list[str] = []
    scope["_launch"] = lambda given: went.append("found")
    params = [SimpleNamespace(name=x, has_default=False) for x in ("X", "Y", "n_cols", "BLOCK")]
    kernel = scope["recorded"](SimpleNamespace(run=lambda *a, grid, warmup, **k: went.append("own"), params=params))

    def run(x: Any = X, y: Any = Y, columns: Any = 1000, grid: Any = (96,), warmup: bool = False, **more: Any) -> str:
        kernel.run(x, y, columns, grid=grid, warmup=warmup, **{"BLOCK": 128, "num_warps": 4, **more})
        return went.pop()
    return run


def test_what_was_found_takes_the_recorded_launch_and_no_other(package: Path) -> None:
    """No output loses what the input had: every launch that differs in anything the search took for granted goes to the package's own kernel."""
    run = launched(package)
    assert run() == "found" and run(grid=lambda given: (96, 1)) == "found" and run(x=Tensor(96, 1000, at=64)) == "found"
    others: list[dict[str, Any]] = [
        {"columns": 999}, {"columns": True}, {"BLOCK": 256}, {"num_warps": 8}, {"grid": (95,)}, {"grid": (96, 2)}, {"warmup": True},
        {"x": Tensor(96, 1001)}, {"x": Tensor(96, 1000, strides=(1024, 1))}, {"x": Tensor(96, 1000, at=4)}, {"x": Tensor(96, 1000, dtype="torch.float16")},
        {"x": None}, {"y": Tensor(96)}]
    assert [run(**each) for each in others] == ["own"] * len(others)


def test_two_kernels_of_one_file_are_two_patches_that_apply_in_turn(package: Path) -> None:
    call = call_of(package)
    other = replace(call, place=call.place.replace("row_sum", "nothing"), binding=package / "nothing.toml")
    other.binding.write_text(f'# {other.place}\nrecorded = true\nkernel = "nothing"\ngrid = [4]\n[tensors.Y]\nshape = [4]\ndtype = "f32"\n')
    for number, patch in enumerate(series([twin(c, c.read().program, "") for c in (call, other)])):
        (package / f"{number}.patch").write_text(patch.text)
        subprocess.run(["git", "apply", "--unsafe-paths", "-p1", str(package / f"{number}.patch")], cwd=package / "site", check=True)
    text = (package / "site" / "sums" / "rows.py").read_text()
    assert text.count("\n@_kir_") == 2 and "\n".join(x for x in text.splitlines() if "_kir_" not in x).split() == SOURCE.split()


def test_a_kernel_that_no_decorator_makes_one_is_refused(package: Path) -> None:
    call = call_of(package)
    program = call.read().program
    call.file.write_text(SOURCE.replace("@triton.jit\ndef row_sum", "row_sum = triton.jit(row_sum)\n\n\ndef row_sum"))
    with pytest.raises(KirError, match="KIR-U033"):
        twin(call, program, "")


def test_recorded_calls_of_another_package_are_an_error(package: Path) -> None:
    (package / "site" / "other").mkdir()
    with pytest.raises(KirError, match="KIR-U031"):
        calls_of(package / "bindings", str(package / "site" / "other"))


ROWS = """kir 1
program rows
  in X: f32[5000, 64]
  out Y: f32[5000, 64]
kernel main grid (row: 5000) threads 64
  let v = X[row, 0 +: 64]
  Y[row, 0 +: 64] = {value}
"""


def test_ctas_in_place_of_a_grid_judge_a_program() -> None:
    """The first two and the last of an axis: a program that is wrong in the last alone is refused, so is one that is wrong everywhere."""
    given = parse_program(ROWS.format(value="v * 2.0"), "rows.kir")
    judge = CallJudge(given, H200, compiles=False)
    assert judge.ctas == 3 and judge.judge(given, "kir").accepted
    for value in ("v * 2.5", "select(row == 4999, v, v * 2.0)", "select(row == 1, v, v * 2.0)"):
        wrong = parse_program(ROWS.format(value=value), "wrong.kir")
        assert not judge.judge(wrong, "kir").accepted, value
    seen, fresh = ({float(x) for c in cases(given, f) for x in c.arrays["X"][:2].flat} for f in (0, FRESH))
    lucky = parse_program(ROWS.format(value=f"select(v == {next(v for v in sorted(fresh - seen) if v > 0.1)!r}, 0.0, v * 2.0)"), "lucky.kir")
    assert judge.judge(lucky, "kir").accepted and not judge.again(lucky, "kir").accepted and judge.again(given, "kir").accepted
    text = ROWS.format(value="v + v")
    assert judged_call(CallTask(text, "kir", ROWS.format(value="v * 2.0"), "h200", False, ""))["accepted"]


def test_a_recorded_call_by_itself_that_is_too_large_is_judged_as_a_packages_are(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By some of its CTAs, and not refused."""
    monkeypatch.setattr("kir.learning.optimize.inputs.SECONDS", -1.0)
    one = captured(call_of(package).binding, "")
    assert one.call and with_sizes(one) is one
    setting, where = Setting(one.problem, shape_for(one, ""), H200, one.surface), Where("cpu", 1, "", False, None)
    found = search_run(one, setting, Budget(candidates=1, seconds=500, plans=2), NO_POLICY, None, where)
    assert found.baseline.measured is not None and found.baseline.measured.accepted and found.built


TILED = """kir 1
program rows
  in X: f32[5000, 64]
  out Y: f32[5000, 64]
kernel main grid (p: {ctas}) threads 64
{body}
"""
FOURS = "  let row = p * 4\n  Y[row +: 4, 0 +: 64] = {value}"
STAYING = "  for row in p..5000 step 132\n    Y[row, 0 +: 64] = {value}"


@pytest.mark.parametrize(("ctas", "body", "why"), [
    (1250, FOURS.format(value="X[row +: 4, 0 +: 64] * 2.0"), ""),
    (132, STAYING.format(value="X[row, 0 +: 64] * 2.0"), ""),
    (1250, FOURS.format(value="select(row == 4, X[row +: 4, 0 +: 64], X[row +: 4, 0 +: 64] * 2.0)"), "Y[4, "),
    (132, STAYING.format(value="select(row >= 4800, X[row, 0 +: 64], X[row, 0 +: 64] * 2.0)"), "Y[4"),
    (1250, "  view global Z: f32[1250, 256] at Y[0, 0]\n  view global W: f32[1250, 256] at X[0, 0]\n  Z[p, 0 +: 256] = W[p, 0 +: 256] * 2.0", ""),
    (1249, FOURS.format(value="X[row +: 4, 0 +: 64] * 2.0"), "leave some of it out"),
    (132, "  for row in p..4999 step 132\n    Y[row, 0 +: 64] = X[row, 0 +: 64] * 2.0", "leave some of it out"),
    (2, "  for row in p..5000 step 2\n    Y[row, 0 +: 64] = X[row, 0 +: 64] * 2.0", "too many"),
])
def test_a_program_with_another_grid_is_judged_by_what_its_own_ctas_write(ctas: int, body: str, why: str) -> None:
    """Four rows a CTA, CTAs that stay: right ones are taken; what is wrong in a row that only they take, or leaves the last rows out, is refused."""
    said = CallJudge(parse_program(ROWS.format(value="v * 2.0"), "rows.kir"), H200, compiles=False).judge(
        parse_program(TILED.format(ctas=ctas, body=body), "tiled.kir"), "kir")
    assert said.accepted == (not why) and why in said.reason, said.reason


WAITS = """kir 1
program waits
  inout F: i32[64]
  out Y: i32[64]
kernel main grid (i: 64) threads 1
  register seen: i32 = 0
  while {read} == 0
    seen = seen + 1
  Y[i] = 1
"""


def test_ctas_that_wait_for_one_another_are_not_run_without_the_others() -> None:
    assert len(sampled(parse_program(WAITS.format(read="seen"), "counts.kir")).kernels) == 1
    with pytest.raises(ValueError, match="wait for one another"):
        sampled(parse_program(WAITS.format(read="F[0]"), "waits.kir"))


@pytest.mark.parametrize(("ratio", "seconds"), [((1.25, 1.2, 1.3), 8e-6), ((1.01, 0.99, 1.03), 1e-5), ((0.8, 0.7, 0.9), 1.25e-5)])
def test_a_candidate_is_as_much_faster_as_it_was_in_turns_and_not_at_all_where_that_is_not_sure(
        ratio: tuple[float, float, float], seconds: float, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own time says less: another process had other clocks."""
    call = call_of(package)
    given = call.read().program
    other = lifted(given, next(iter(ThreadsSource().plans(given, Setting(cast(Any, None), cast(Any, None), H200, "triton")))), Context(H200)).program
    times, seeds = Estimate(*ratio, 15).to_json(), list[bool]()

    def asked_of(row: Mapping[str, Any]) -> dict[str, Any]:
        seeds.append(row["again"])
        return {"right": True, "difference": 0.0, "seconds": 1e-5 if row["same"] else 7e-6, "low": 0.0, "high": 0.0, "ratio": times}

    monkeypatch.setattr("kir.learning.packages.trial._asked", asked_of)
    judge = DeviceJudge(call, given)
    assert judge.judge(given, "triton").seconds == 1e-5
    assert judge.judge(other, "triton").seconds == judge.again(other, "triton").seconds == pytest.approx(seconds)
    assert seeds == [False, False, True], "on tensors that it has not seen"


def test_a_device_that_is_gone_is_an_error_and_no_refusal_of_the_candidate(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kir.learning.packages.trial._asked", lambda row: {"gone": True, "failed": "torch finds none"})
    call = call_of(package)
    with pytest.raises(KirError, match="KIR-G004"):
        tried_on_device(DeviceTask.of(call, call.read().program, call.read().program))


@pytest.mark.parametrize(("missing", "right"), [(False, True), (True, False)])
def test_sums_that_round_in_the_order_of_their_additions_are_compared_where_the_order_says_nothing(missing: bool, right: bool) -> None:
    """64 CTAs add to a row of bf16: two runs of the same kernel are further apart than any candidate may be; one that leaves an addition out is found."""
    torch = pytest.importorskip("torch")
    draw = torch.Generator().manual_seed(0)
    parts = torch.randn((64, 256), generator=draw)
    orders = (torch.randperm(64, generator=draw) for _ in range(100))

    def adds(leaving: int) -> Callable[[dict[str, Any]], None]:
        def run(at: dict[str, Any]) -> None:
            for k in (k for k in next(orders).tolist() if k >= leaving):
                at["W"] += parts[k].to(torch.bfloat16)
        return run

    arguments = {"W": torch.zeros(256, dtype=torch.bfloat16), "X": torch.ones(4)}
    one, other = (copied(arguments) for _ in range(2))
    adds(0)(one)
    adds(0)(other)
    seen = difference(one, other)
    assert seen["difference"] / seen["scale"] > WITHIN
    share = apart(arguments, widened(arguments, ["W"]), adds(0), adds(int(missing)), ["W"])
    assert (share <= WITHIN) is right


def test_what_is_added_to_atomically_in_few_bits_is_known() -> None:
    text = "kir 1\nprogram p\n  in X: f32[8]\n  inout W: bf16[1]\n  inout V: f32[1]\nkernel main grid (i: 8) threads 1\n" \
           "  atomic_add(&W[0], cast(X[i], bf16))\n  atomic_add(&V[0], X[i])\n"
    assert added_to(parse_program(text, "p")) == ("W",)


def test_a_process_answers_one_candidate_after_another_until_one_goes_wrong() -> None:
    told, made = [{"right": True}, {"right": True}, {"right": False, "difference": 1.0}, {"right": True}], list[SimpleNamespace]()

    def child() -> SimpleNamespace:
        made.append(SimpleNamespace(ended=False, ask=lambda row, seconds: (told.pop(0), []), close=lambda: setattr(made[-1], "ended", True)))
        return made[-1]
    trials = Trials(cast(Any, SimpleNamespace(child=child)))
    said = [trials.ask({}) for _ in range(3)]
    assert [s["right"] for s in said] == [True, True, False] and len(made) == 1 and made[0].ended
    assert trials.ask({})["right"] and len(made) == 2 and not made[1].ended
