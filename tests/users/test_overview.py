"""`kir explain FILE`: a kernel at a glance."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from kir.base.diagnostic import KirError, error
from kir.faces.api.kernels import Kernel, Walked, read
from kir.faces.cli.setup.schema import schemas
from kir.faces.explore.overview import _walked, overview
from tests.command_line import called

SCALED = """
__global__ void scaled(const float* __restrict__ x, float* __restrict__ y, int n, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = by * x[i];
}
void go(const float* x, float* y, int n) { scaled<<<(n + 255) / 256, 256>>>(x, y, n, 3.f); }
"""
OUTSIDE = """kir 1
program shifted
  size n: i32
  in X: f32[n]
  out Y: f32[n]
  fact n >= 1
kernel main grid (i: n) threads 1
  Y[i + 1] = X[i]
"""


def test_a_kernel_is_told_at_a_glance_and_the_walk_goes_on_in_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, folder = tmp_path / "scaled.cu", tmp_path / "walk"
    file.write_text(SCALED, encoding="utf-8")
    code, out, _ = called(capsys, "explain", str(file), "-o", str(folder), "--seconds", "30", "--at", "n=67108864")
    assert code == 0
    assert "in plain words) kir 1" in (flat := " ".join(out.split())) and "grid (i: n) threads 1 y[i] = by * x[i]" in flat
    for said in ("What scaled computes", "y[", "What was done to it",
                 "What binds it on h200 at n=67108864", "starting CTAs", "What else could be done", "room for up to",
                 "kir optimize", str(folder)):
        assert said in " ".join(out.split()), said
    assert (folder / "lineage.json").exists() and (folder / "report.html").exists()
    code, out, _ = called(capsys, "explain", str(file), "-o", str(folder), "--seconds", "30", "--at", "n=67108864", "--json")
    told = json.loads(out)
    Draft202012Validator(schemas()["explain"]).validate(told)
    assert set(told) <= set(schemas()["explain"]["properties"])
    assert code == 0 and told["naive"] and told["bound_by"] == "ctas" and told["done"] and told["least_seconds"] <= told["seconds"]
    assert all(each["claim"] and each["decided"].keys() == {"proved"} for each in told["done"])
    assert all(each["forecast"]["speedup"] > 1 for each in told["could"])


def test_a_kernel_that_was_edited_is_walked_beside_what_was_found_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, refusal = list[str](), ["KIR-S013"]

    def walk(kernel: Kernel, folder: str, problem: str, *, seconds: float) -> Walked:
        asked.append(folder)
        if folder != "scaled.3.lineage":
            raise error(refusal[0], "the journal of another")
        return Walked({}, Path(folder), True)  # type: ignore[arg-type]  # nothing is asked of the lineage
    monkeypatch.setattr("kir.faces.explore.overview.walk", walk)
    (tmp_path / "scaled.cu").write_text(SCALED, encoding="utf-8")
    kernel = read(tmp_path / "scaled.cu")
    assert _walked(kernel, None, "", 1.0).folder == Path("scaled.3.lineage")
    assert asked == ["scaled.lineage", "scaled.2.lineage", "scaled.3.lineage"]
    with pytest.raises(KirError):
        _walked(kernel, tmp_path / "one", "", 1.0)  # a folder that was named is the only one
    refusal[0] = "KIR-S011"
    with pytest.raises(KirError):
        _walked(kernel, None, "", 1.0)
    assert asked[3:] == [str(tmp_path / "one"), "scaled.lineage"]


def test_a_walk_goes_on_until_it_has_a_first_step_to_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the time may end before anything is decided; not for ever, and not where the walk has ended otherwise."""
    asked, ended, at, work = list[float](), ["budget"], [1], [0.0]

    def walked(kernel: Kernel, folder: Path | None, problem: str, seconds: float) -> Any:
        asked.append(seconds)
        return SimpleNamespace(lineage=SimpleNamespace(accepted=("a step",) if len(asked) == at[0] else (), outcome=SimpleNamespace(ended=ended[0])))
    monkeypatch.setattr("kir.faces.explore.overview._walked", walked)
    monkeypatch.setattr("kir.faces.explore.overview._of_skills", lambda *given: [])
    monkeypatch.setattr("kir.faces.explore.overview._of_passes", lambda *given: ([], 0, False))
    monkeypatch.setattr("kir.faces.explore.overview._worked", lambda: work[0] * len(asked))
    (file := tmp_path / "scaled.cu").write_text(SCALED, encoding="utf-8")
    for at[0], ended[0], work[0], times in ((1, "budget", 0.0, 1), (2, "budget", 0.0, 2), (9, "budget", 200.0, 3), (9, "stuck", 0.0, 1)):
        asked.clear()
        overview(str(file), seconds=600.0)
        assert len(asked) == times and asked[1:] == [600.0] * (times - 1)
    asked.clear()
    monkeypatch.setattr("kir.faces.explore.overview.LONGER", 0.0)  # all that it may take is over
    ended[0], work[0] = "budget", 0.0
    overview(str(file), seconds=600.0)
    assert len(asked) == 1


def test_a_kernel_that_the_gate_refuses_is_still_told_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "outside.kir"
    file.write_text(OUTSIDE, encoding="utf-8")
    code, out, err = called(capsys, "explain", str(file), "-o", str(tmp_path / "walk"), "--seconds", "10")
    assert code == 1 and "What shifted computes (as it stands)" in out and "KIR-I010" in err and "Y[" in err


def test_what_no_kernel_has_is_no_option_of_an_id(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = called(capsys, "explain", "KIR-T001", "--seconds", "3")
    assert code == 2 and "KIR-C002" in err and "--seconds" in err
    code, _, err = called(capsys, "explain", str(tmp_path / "none.cu"))
    assert code == 2 and "none.cu" in err


def test_the_places_that_gain_come_first_and_are_those_of_the_sizes(tmp_path: Path) -> None:
    shutil.copy("skills/problems/gemm/naive.kir", tmp_path / "naive.kir")
    found = overview(str(tmp_path / "naive.kir"), at="M=4096,N=4096,K=4096", seconds=12.0, folder=tmp_path / "walk")
    gains = [each.forecast.median * (1 - each.forecast.fails) for each in found.could]
    assert gains and gains == sorted(gains, reverse=True) and found.naive and not found.done
    assert any(each.skill for each in found.could)
