"""`kir capture` and `kir corpus --swap` on a machine without a GPU: launches are recorded, counted, and carried out by the interpreter."""
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kir.cli._main import run
from kir.corpus.hook import Hook, _for
from kir.corpus.launch import Unbound, binding_of, launch_of
from kir.ir.binding import Binding
from kir.lineage.source import load_expert

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


def test_swapped_kernels_are_counted_with_their_hash(app: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["corpus", "--swap", str(tmp_path / "kernels.py"), "-o", str(tmp_path / "swapped")]
    assert run([*arguments, "--json", "--", *app, "0"]) == 0
    data = json.loads(capsys.readouterr().out)
    rows = {r["kernel"]: r for r in data["kernels"]}
    assert (data["swapped"], data["left"]) == (2, 1)
    assert rows["added"]["how"] == "interpreted" and len(rows["added"]["hash"]) == 16 and rows["added"]["launches"] == 2
    assert run([*arguments, "--", *app, "3"]) == 1
    assert "2 kernels ran as KIR wrote them, 1 did not; the command ended with 3" in capsys.readouterr().out


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
    from kir.corpus import swapped

    original = Function(Parameter("n"), Parameter("B", True, 8))
    made = Function(Parameter("n"), Parameter("B", True))
    hook = Hook("swap", str(tmp_path))
    hook._device = True
    monkeypatch.setattr(swapped, "read_again", lambda file, kernel: swapped.Again(None, "text", "abc"))
    monkeypatch.setattr(swapped, "function_of", lambda file, kernel, folder: made)
    assert hook.launch(original, (5,), {"num_warps": 2}, (1,), lambda: "original") == "ran"
    assert made.ran == [{"grid": (1,), "warmup": False, "n": 5, "B": 8, "num_warps": 2}]
    assert [(x["how"], x["hash"], x["launches"]) for x in hook.counts.values()] == [("swapped", "abc", 1)]
    monkeypatch.setattr(swapped, "read_again", lambda file, kernel: swapped.Again(None, reason="it is opaque"))
    assert hook.launch(original, (5,), {}, (1,), lambda: "original") == "original"
    assert _for(made, {"n": 1, "x": 2}, original) == {"B": 8, "n": 1, "x": 2}


def test_arguments_that_no_binding_holds_are_named() -> None:
    with pytest.raises(Unbound, match="'n' is a list"):
        launch_of(Function(Parameter("n")), ([1],), {}, (1,))
    with pytest.raises(Unbound, match="no argument for 'n'"):
        launch_of(Function(Parameter("n")), (), {}, (1,))
    with pytest.raises(Unbound, match="the constexpr 'B' is a tuple"):
        launch_of(Function(Parameter("B", True)), ((1, 2),), {}, (1,))


def test_a_kernel_written_again_is_a_function_of_triton(tmp_path: Path) -> None:
    from kir.corpus.swapped import function_of, read_again

    (tmp_path / "kernels.py").write_text(KERNELS)
    made = function_of(str(tmp_path / "kernels.py"), "added", str(tmp_path / "again"))
    assert type(made).__name__ == "JITFunction"
    assert [p.name for p in made.params if p.is_constexpr] == ["BLOCK", "DTYPE"]
    assert "does not understand" in read_again(str(tmp_path / "kernels.py"), "opaque").reason
