"""`kir capture` and `kir corpus --swap` on a machine without a GPU: launches are recorded, counted, and carried out by the interpreter."""
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kir.faces.cli._main import run
from kir.faces.cli.reading.corpus import command as swapped
from kir.ir.binding import Binding
from kir.learning.corpus.hook import Hook, _for
from kir.learning.corpus.launch import Unbound, binding_of, launch_of
from kir.surface.reading import load_expert

pytestmark = pytest.mark.triton
APP = '''
import sys
import torch, triton
import triton.language as tl
from kernels import added, opaque, tuned

x, y = torch.randn(100), torch.randn(200)[::2]
out = torch.zeros(100, dtype=torch.bfloat16)
for _ in range(2):
    added[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, y, None, out, 100, y.stride(0), 2.0, BLOCK=64, DTYPE=tl.float32)
assert torch.equal(out, (x + 2.0 * y).to(torch.bfloat16)), "the interpreter is right"
scaled = torch.zeros(100)
tuned[(2,)](x, scaled, 100)
assert torch.equal(scaled, x * 3.0)
opaque[(1,)](x)
sys.exit(int(sys.argv[1]))
'''
KERNELS = '''
import triton
import triton.language as tl

@triton.jit
def added(x_ptr, y_ptr, bias_ptr, out_ptr, n, stride, scale, BLOCK: tl.constexpr, DTYPE: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(DTYPE)
    y = tl.load(y_ptr + at * stride, mask=at < n)
    if bias_ptr is not None:
        y += tl.load(bias_ptr + at, mask=at < n)
    tl.store(out_ptr + at, x + scale * y, mask=at < n)

@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.heuristics({"FACTOR": lambda args: 3.0})
@triton.jit
def tuned(x_ptr, out_ptr, n, BLOCK: tl.constexpr, FACTOR: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * FACTOR, mask=at < n)

@triton.jit
def opaque(x_ptr):
    tl.store(x_ptr, tl.no_such_function(x_ptr))
'''


@pytest.fixture
def app(tmp_path: Path) -> list[str]:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "kernels.py").write_text(KERNELS)
    return [sys.executable, str(tmp_path / "app.py")]


def test_launches_are_recorded_as_bindings(app: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "bindings"
    assert run(["capture", "-o", str(folder), "--json", "--", *app, "0"]) == 0
    data = json.loads(capsys.readouterr().out)
    rows = {r["kernel"]: r for r in data["kernels"]}
    assert rows["added"]["launches"] == 2 and rows["added"]["bindings"] == 1 and rows["added"]["how"] == "interpreted"
    assert rows["opaque"]["how"] == "not run" and "no_such_function" in rows["opaque"]["reason"]
    made = Binding.read(folder / "added-1.toml")
    assert made.grid == [2] and made.absent == ["bias_ptr"] and made.metas == {"BLOCK": 64, "DTYPE": "f32"}
    assert made.scalars == {"n": 100, "stride": 2, "scale": 2.0} and made.tensors["out_ptr"].dtype == "bf16"
    assert made.tensors["y_ptr"].strides == [2] and made.tensors["x_ptr"].strides is None
    assert Binding.read(folder / "tuned-1.toml").metas == {"BLOCK": 64, "FACTOR": 3.0}
    # What was recorded specializes the kernel.
    program = load_expert(f"{tmp_path / 'kernels.py'}::added", folder / "added-1.toml").program
    assert not program.metas and program.kernels[0].grid[0].extent.value == 2  # type: ignore[attr-defined]  # a constant


def test_swapped_kernels_are_counted_with_their_hash(app: list[str], tmp_path: Path) -> None:
    done = swapped([*app, "3"], swap=[str(tmp_path / "kernels.py")], output=tmp_path / "swapped")
    rows = {r["kernel"]: r for r in done.json["kernels"]}
    assert (done.json["swapped"], done.json["left"]) == (2, 1)
    assert rows["added"]["how"] == "interpreted" and len(rows["added"]["hash"]) == 16 and rows["added"]["launches"] == 2
    assert done.code == 1 and "2 kernels ran as KIR wrote them, 1 did not; the command ended with 3" in str(done.text)


def test_a_command_that_launches_nothing_does_not_pass_for_one_that_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS)
    arguments = ["corpus", "--swap", str(tmp_path / "kernels.py"), "-o", str(tmp_path / "swapped"), "--"]
    assert run([*arguments, sys.executable, "-S", "-c", "pass"]) == 1
    assert "was launched: is it Triton's" in capsys.readouterr().out
    assert run([*arguments, str(tmp_path / "nothing")]) == 2
    assert f"kir corpus --swap {tmp_path / 'kernels.py'} -- python app.py" in capsys.readouterr().err


class Tuner:
    """Chooses by launching each configuration, as Triton's own does."""

    def __init__(self, launch: Any) -> None:
        self.launch = launch

    def _bench(self, block: int) -> None:
        self.launch(block)

    def run(self, *blocks: int) -> None:
        for block in blocks:
            self._bench(block)
        self.launch(blocks[-1])


@pytest.mark.parametrize(("mode", "noted"), [("record", [128]), ("swap", [64, 128, 128])])
def test_what_a_tuner_launches_to_choose_is_not_recorded(mode: str, noted: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook, tuner, seen = Hook(mode, str(tmp_path)), type("Own", (Tuner,), {"run": Tuner.run, "_bench": Tuner._bench}), list[int]()
    launcher = type("Launcher", (), {"fn": binding_of, "run": lambda fn, *a, **k: None})
    monkeypatch.setattr(hook, "has_device", lambda: True)
    monkeypatch.setattr(hook, "launch", lambda fn, args, kwargs, grid, original: seen.append(args[0]))
    hook.patch_launcher(launcher)
    hook.patch_autotuner(tuner)
    tuner(lambda block: launcher().run(block, grid=(1,), warmup=False)).run(64, 128)
    assert seen == noted


def test_a_command_that_takes_too_long_is_ended_and_what_it_launched_by_then_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    note = {"file": "/k.py", "kernel": "added", "part": "", "how": "original", "reason": "", "hash": "", "binding": "grid = [1]\n", "launches": 2}
    code = "import os, json, time; to = json.loads(os.environ['KIR_LAUNCHES'])['folder']; os.makedirs(to, exist_ok=True); open(to + '/launches-1.jsonl', "
    code += f"'w').write({json.dumps(note)!r} + chr(10)); time.sleep(600)"
    assert run(["capture", "--seconds", "2", "-o", str(tmp_path / "kept"), "--", sys.executable, "-S", "-c", code]) == 0
    assert "was ended after 2 s" in capsys.readouterr().out and "# 2 launches" in (tmp_path / "kept" / "added-1.toml").read_text()


def test_a_command_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["capture", "-o", str(tmp_path / "b"), "--", str(tmp_path / "nothing")]) == 2
    assert "KIR-C117" in capsys.readouterr().err


class Parameter:
    def __init__(self, name: str, is_constexpr: bool = False, default: Any = None) -> None:
        self.name, self.is_constexpr, self.default, self.has_default = name, is_constexpr, default, default is not None


class Function:
    """What a launch needs of a JITFunction."""

    def __init__(self, *params: Parameter) -> None:
        self.params = params
        self.fn = binding_of
        self.ran: list[dict[str, Any]] = []

    def run(self, **kwargs: Any) -> str:
        self.ran.append(kwargs)
        return "ran"


def test_on_a_gpu_the_kernel_written_again_takes_the_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kir.learning.corpus import patched_kernels

    original = Function(Parameter("n"), Parameter("B", True, 8))
    made = Function(Parameter("n"), Parameter("B", True))
    hook = Hook("swap", str(tmp_path))
    hook._device = True
    monkeypatch.setattr(patched_kernels, "read_again", lambda file, kernel, text=None: patched_kernels.Again(None, "text", "abc"))
    monkeypatch.setattr(patched_kernels, "function_of", lambda file, kernel, folder, text=None: made)
    assert hook.launch(original, (5,), {"num_warps": 2}, (1,), lambda: "original")._made == "ran"
    assert made.ran == [{"grid": (1,), "warmup": False, "n": 5, "B": 8, "num_warps": 2}]
    assert [(x["how"], x["hash"], x["launches"]) for x in hook.counts.values()] == [("swapped", "abc", 1)]
    monkeypatch.setattr(patched_kernels, "read_again", lambda file, kernel, text=None: patched_kernels.Again(None, reason="it is opaque"))
    assert hook.launch(original, (5,), {}, (1,), lambda: "original")._made == "original"
    assert _for(made, {"n": 1, "x": 2}, original) == {"B": 8, "n": 1, "x": 2}


def test_what_a_launch_returns_launches_once_more_with_the_original_s_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kir.learning.corpus import measured, patched_kernels

    original = Function(Parameter("n"), Parameter("B", True, 8))
    made = Function(Parameter("B", True), Parameter("n"))
    hook = Hook("swap", str(tmp_path), measure=True)
    hook._device = True
    compared: list[dict[str, Any]] = []

    def compare(values: dict[str, Any], first: Any, second: Any) -> dict[str, Any]:
        compared.append(dict(values))
        return {"equal": True}
    monkeypatch.setattr(patched_kernels, "read_again", lambda file, kernel, text=None: patched_kernels.Again(None, "text", "abc"))
    monkeypatch.setattr(patched_kernels, "function_of", lambda file, kernel, folder, text=None: made)
    monkeypatch.setattr(measured, "compare", compare)
    launched = hook.launch(original, (5,), {"num_warps": 2}, (1,), lambda: "original")
    hook.part = "again"
    launched[(3,)](6, 4)
    assert made.ran[1] == {"grid": (3,), "warmup": False, "n": 6, "B": 4, "num_warps": 2}
    assert compared == [{"n": 5, "B": 8, "num_warps": 2}, {"n": 6, "B": 4, "num_warps": 2}], "each binding once"
    hook.launch(original, (5,), {}, (1,), lambda: "original")
    assert len(compared) == 2
    notes = [json.loads(line) for line in next(tmp_path.glob("launches-*.jsonl")).read_text().splitlines()]
    assert [x["part"] for x in notes] == ["", "again", "again"] and notes[0]["measured"] == {"equal": True}


def test_what_stands_for_a_tensor_is_measured_on_a_copy_of_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from kir.learning.corpus import measured, patched_kernels

    class Window:
        def __init__(self, base: torch.Tensor, step: int) -> None:
            self._base, self.dtype, self.shape, self.step = base, base.dtype, (2,), step

        def stride(self) -> tuple[int]:
            return (self.step,)

        def data_ptr(self) -> int:
            return int(self._base.data_ptr()) + 8

    seen: list[dict[str, Any]] = []
    hook = Hook("swap", str(tmp_path), measure=True)
    hook._device = True
    made = Function(Parameter("x"))
    monkeypatch.setattr(patched_kernels, "read_again", lambda file, kernel, text=None: patched_kernels.Again(None, "text", "abc"))
    monkeypatch.setattr(patched_kernels, "function_of", lambda file, kernel, folder, text=None: made)

    def compare(values: dict[str, Any], first: Any, second: Any) -> dict[str, Any]:
        seen.append(values)
        return {"equal": True}
    monkeypatch.setattr(measured, "compare", compare)
    base = torch.arange(8.0)
    hook.launch(Function(Parameter("x")), (Window(base, 2),), {}, (1,), lambda: "original")
    assert isinstance(seen[0]["x"], torch.Tensor) and seen[0]["x"].tolist() == [2.0, 4.0]
    hook.part = "backwards"
    hook.launch(Function(Parameter("x")), (Window(base, -1),), {}, (1,), lambda: "original")
    assert len(seen) == 1 and len(made.ran) == 2 and all(x["how"] == "swapped" for x in hook.counts.values())


def test_tuners_made_from_triton_s_own_take_the_first_configuration_that_fits(tmp_path: Path) -> None:
    class OutOfResources(Exception):
        pass

    class Config:
        pre_hook = None

        def __init__(self, size: int) -> None:
            self.size = size

        def all_kwargs(self) -> dict[str, int]:
            return {"B": self.size}

    class Inner:
        def run(self, *args: Any, **kwargs: Any) -> int:
            if kwargs["B"] > 64:
                raise OutOfResources
            return int(kwargs["B"])

    class Tuner:
        arg_names = ("x",)
        configs: ClassVar = [Config(128), Config(64), Config(32)]
        fn = Inner()

        def prune_configs(self, kwargs: dict[str, Any]) -> list[Config]:
            return self.configs

        def run(self, *args: Any, **kwargs: Any) -> str:
            return "tuned"
    hook = Hook("swap", str(tmp_path), tune=False)
    hook._device = True
    hook.patch_autotuner(Tuner)

    class Other(Tuner):
        def run(self, *args: Any, **kwargs: Any) -> str:
            return "tuned otherwise"
    assert Tuner().run(1) == Other().run(1) == 64  # type: ignore[comparison-overlap]  # patched
    hook.tune = True
    assert (Tuner().run(1), Other().run(1)) == ("tuned", "tuned otherwise")


def test_parts_of_a_command_and_stand_ins_for_tensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Launches are told apart by part; what only stands for a tensor is the memory that it names; tensors in one memory stay so."""
    app = tmp_path / "app.py"
    app.write_text("""
import torch
from kernels import added
from kir.learning.corpus.hook import section

class Window:
    def __init__(self, base, offset):
        self._base, self.dtype, self.shape = base, base.dtype, (4,)
        self.offset = offset
    def stride(self):
        return (2,)
    def data_ptr(self):
        return self._base.data_ptr() + 4 * self.offset

both = torch.arange(16.0)
section("first")
import triton.language as tl
added[(1,)](both[:4], Window(both, 9), None, both[4:8], 4, 2, 1.0, BLOCK=4, DTYPE=tl.float32)
assert both.tolist() == [0, 1, 2, 3, 9, 12, 15, 18, 8, 9, 10, 11, 12, 13, 14, 15]
section("second")
added[(1,)](both[:4], Window(both, 8), None, both[4:8], 4, 2, 1.0, BLOCK=4, DTYPE=tl.float32)
assert both[4:8].tolist() == [8, 11, 14, 17]
""")
    (tmp_path / "kernels.py").write_text(KERNELS)
    assert run(["corpus", "--swap", str(tmp_path / "kernels.py"), "-o", str(tmp_path / "o"), "--json", "--", sys.executable, str(app)]) == 0
    assert json.loads(capsys.readouterr().out)["kernels"][0]["launches"] == 2
    notes = [json.loads(line) for line in next((tmp_path / "o").glob("launches-*.jsonl")).read_text().splitlines()]
    assert [x["part"] for x in notes] == ["first", "second"]


def test_arguments_that_no_binding_holds_are_named() -> None:
    with pytest.raises(Unbound, match="'n' is a list"):
        launch_of(Function(Parameter("n")), ([1],), {}, (1,))
    with pytest.raises(Unbound, match="no argument for 'n'"):
        launch_of(Function(Parameter("n")), (), {}, (1,))
    with pytest.raises(Unbound, match="the constexpr 'B' is a tuple"):
        launch_of(Function(Parameter("B", True)), ((1, 2),), {}, (1,))


def test_a_kernel_written_again_is_a_function_of_triton(tmp_path: Path) -> None:
    from kir.learning.corpus.patched_kernels import function_of, read_again

    (tmp_path / "kernels.py").write_text(KERNELS)
    made = function_of(str(tmp_path / "kernels.py"), "added", str(tmp_path / "again"))
    assert type(made).__name__ == "JITFunction"
    assert [p.name for p in made.params if p.is_constexpr] == ["BLOCK", "DTYPE"]
    assert "does not understand" in read_again(str(tmp_path / "kernels.py"), "opaque").reason


def test_copies_of_arguments_share_memory_as_they_do_and_are_compared_by_bits() -> None:
    import torch

    from kir.learning.corpus.measured import copied, difference

    whole = torch.arange(8.0)
    given = {"a": whole[:4], "b": whole[2:6:2], "n": 3}
    one, other = copied(given), copied(given)
    one["a"][2] = 7.0
    assert one["b"][0] == 7.0 and whole[2] == 2.0 and one["b"].stride() == (2,) and one["n"] == 3
    assert difference(given, other) == {"equal": True, "difference": 0.0, "scale": 0.0}
    assert difference(one, other) == {"equal": False, "difference": 5.0, "scale": 7.0}
    other["a"][0] = float("nan")
    assert difference(one, other)["difference"] == float("inf")


def test_a_kernel_made_at_run_time_gets_the_names_that_only_its_module_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib
    import importlib.util

    from kir.learning.corpus.patched_kernels import completed, read_again

    (tmp_path / "library_of_parts.py").write_text("import triton\nimport triton.language as tl\n@triton.jit\ndef tripled(x):\n    return x * 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    parts = importlib.import_module("library_of_parts")
    made = tmp_path / "made.py"
    made.write_text("import triton\nimport triton.language as tl\n@triton.jit\ndef kernel(x):\n    tl.store(x, tripled(tl.load(x)))\n")
    spec = importlib.util.spec_from_file_location("made_at_run_time", made)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert completed(module.kernel.fn) is None, "it lacks nothing that anyone has"
    module.tripled = parts.tripled  # type: ignore[attr-defined]  # as a generator of kernels does
    completed.cache_clear()
    text = completed(module.kernel.fn)
    assert text is not None and text.startswith("from library_of_parts import tripled; import triton")
    assert read_again(str(made), "kernel").reason.startswith("KIR-B002") and not read_again(str(made), "kernel", text).reason
