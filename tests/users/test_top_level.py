"""What `import kir` offers."""
from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import kir
from benchmarks.users.notebook import FILE, again
from kir.faces.api.kernels import Sites
from kir.rewrite import Pipeline
from tests.users.own_kernels import laid

NAIVE = "skills/problems/gemm/naive.kir"


def test_a_kernel_is_read_run_and_checked(tmp_path: Path) -> None:
    kernel = kir.read(str(laid(tmp_path, "softmax with a scale (Triton)")))
    assert kernel.surface == "triton" and kernel.name == "softmax_scale_kernel" and 'sizes = ["m", "n"]' in kernel.binding
    ran = kir.check(kernel, sizes={"m": 2, "n": 9})
    assert ran.ok and ran.findings == () and ran.result.outputs["y_ptr"].shape == (2, 9)
    assert kir.run(NAIVE, "gemm").verdict is not None and kir.run(NAIVE, "gemm").ok


def test_steps_are_applied_and_undone_and_seen() -> None:
    kernel = kir.read(NAIVE)
    found = kir.sites(kernel, only=["tile"])
    assert found and all(s.pass_name == "tile" and s.direction == "forward" for s in found)
    later = kir.apply(kernel, "tile{axis=1 extent=64}; tile{axis=0 extent=64}")
    assert kir.apply(kernel, later.pipeline).hash == later.hash and str(Pipeline.parse(later.pipeline)) == later.pipeline and len(later.trace.steps) == 2
    assert kir.undo(later).hash != later.hash and kir.undo(later, 2).hash == kernel.hash
    with pytest.raises(kir.KirError):
        kir.undo(kernel)
    assert "j_tile" in str(kir.diff(kernel, later))


def test_what_a_change_will_bring_is_forecast() -> None:
    naive = kir.read("skills/problems/softmax/naive.kir")
    faster = kir.apply(naive, "multi-threaded-block")
    found = kir.forecast(naive, faster, {"M": 4096, "N": 4096}, model="analytic")
    low, high = found.interval(0.8)
    assert 0 < low < found.median < high and found.reasons and found.model == "analytic"
    with pytest.raises(kir.KirError):
        kir.forecast(naive, faster, {"M": 0, "N": 4096}, model="analytic")


def test_refusals_are_errors_with_data() -> None:
    with pytest.raises(kir.KirError) as refused:
        kir.apply(NAIVE, "unroll@main/k_loop")
    assert refused.value.diagnostics[0].id == "KIR-P520"
    with pytest.raises(kir.KirError):
        kir.judge(NAIVE)
    with pytest.raises(kir.KirError):
        kir.sites(NAIVE, direction="sideways")
    with pytest.raises(kir.KirError):
        kir.explain("KIR-Z999")
    assert "binding" in kir.explain("S050")


def test_a_kernel_is_judged_written_and_kept(tmp_path: Path) -> None:
    softmax = kir.read("skills/experts/softmax/softmax.cu", "skills/bindings/cuda_softmax.toml")
    assert kir.judge(softmax, problem="softmax", targets=()).accepted
    assert "__global__" in kir.emit(softmax) and kir.emit(softmax, "kir") == softmax.text
    kept = kir.save(softmax, tmp_path / "k.kir")
    assert kir.read(kept).hash == softmax.hash == kir.read(softmax.text).hash == kir.read(softmax.program).hash


def test_a_kernel_is_walked(tmp_path: Path) -> None:
    walked = kir.walk(laid(tmp_path, "addition (TileLang)"), tmp_path / "out", surface="cuda", targets=["sm_90a"])
    assert walked.exact and walked.report.is_file() and walked.steps and walked.lineage.outcome.ended == "naive"
    assert "srcdoc" in walked._repr_mimebundle_()["text/html"] and repr(walked) == f"{tmp_path / 'out'}: {len(walked.steps)} steps, ended naive"


def test_a_faster_kernel_is_found() -> None:
    naive = kir.read("skills/problems/transpose/naive.kir")
    found = kir.optimize(naive, "transpose", surface="cuda", candidates=1, seconds=2, compiles=False)
    assert found.speedup >= 1 and (found.kernel is None) == (not found.steps) == (not found.text)
    assert found.kernel is None or ("__global__" in found.text and found.speedup > 1 and kir.judge(found.kernel, "transpose", targets=()).accepted)
    assert repr(found) == str(found) and "transpose at " in found._repr_mimebundle_()["text/html"]
    with pytest.raises(kir.KirError, match="KIR-U026"):
        kir.optimize()


def test_things_show_themselves_in_notebooks() -> None:
    kernel = kir.read(NAIVE)
    for shown in (kernel, kir.diff(kernel, kir.apply(kernel, "tile{axis=1 extent=64}"))):
        made = shown._repr_mimebundle_()
        assert set(made) == {"text/plain", "text/html"} and "<" in made["text/html"] and made["text/plain"] == repr(shown)
    ran = kir.check(kernel, problem="gemm", shape="odd")
    assert repr(ran).startswith("no hazards, right at ") and repr(kir.sites(kernel)[0]) == str(kir.sites(kernel)[0])


def test_the_stub_names_what_is_offered() -> None:
    stub = ast.parse(Path(kir.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    assert {a.asname for s in stub.body if isinstance(s, ast.ImportFrom) for a in s.names} == set(vars(kir)["_OFFERED"])


def test_importing_kir_loads_nothing_and_packages_keep_their_names() -> None:
    script = ("import sys, kir; assert not [m for m in sys.modules if m.startswith('kir.')], sys.modules; assert 'walk' in dir(kir);"
              "import kir.lineage, kir.gate, types; assert isinstance(kir.lineage, types.ModuleType) and isinstance(kir.gate, types.ModuleType);"
              "assert callable(kir.read)")
    subprocess.run([sys.executable, "-c", script], check=True)
    with pytest.raises(AttributeError):
        _ = kir.no_such_thing  # type: ignore[attr-defined]  # that is the test


def test_the_example_notebook_shows_what_its_cells_give_now() -> None:
    stored = FILE.read_text(encoding="utf-8")
    assert again(stored) == stored
    kinds = [kind for cell in json.loads(stored)["cells"] for out in cell.get("outputs", ()) for kind in out.get("data", ())]
    assert kinds.count("text/html") == kinds.count("text/plain") == 6


def test_what_is_shown_in_notebooks_is_escaped() -> None:
    site = kir.Site("tile{value=\"a<b\"}@main", "tile", "forward", "main", {}, ("KIR-P1<",))
    shown = Sites([site])._repr_mimebundle_()
    assert "<b" not in shown["text/html"].replace("<b>", "") and "a&lt;b" in shown["text/html"] and shown["text/plain"] == str(site)
