"""Kernels as packages of the hub: what is in them, that they run, and what is refused."""
from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kir
from kir.base.diagnostic import KirError
from kir.faces.hub.package import VARIANT
from kir.faces.hub.wrapper import wrapper
from kir.ir.parser import parse_program
from kir.lineage.records.folder import Folder
from kir.surface import backend
from tests.command_line import called

RUN = """
import importlib.util, sys, torch
spec = importlib.util.spec_from_file_location(sys.argv[2], sys.argv[1], submodule_search_locations=[sys.argv[1].rpartition("/")[0]])
module = importlib.util.module_from_spec(spec)
sys.modules[sys.argv[2]] = module
spec.loader.exec_module(module)
kernel = getattr(module, module.__all__[0])
x = torch.randn(3, 37).half()
torch.testing.assert_close(kernel(x), torch.softmax(x.float(), -1).half(), atol=2e-3, rtol=2e-3)
for wrong in (x.float(), x.t(), torch.zeros(1, 9000).half()):
    try:
        kernel(wrong)
    except ValueError:
        continue
    raise SystemExit("taken: " + str(wrong.shape))
print("right")
"""


@pytest.mark.triton
@pytest.mark.torch
def test_a_package_runs_as_the_hub_loads_it_and_holds_its_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "export", "softmax_triton", "-o", str(tmp_path / "out"), "--name", "My Softmax", "--license", "bsd-2-clause", "--json")
    answer = json.loads(out)
    at = tmp_path / "out" / "build" / VARIANT
    assert code == 0 and answer["name"] == "My Softmax" and {str(p) for p in (tmp_path / "out").rglob("*") if p.is_file()} == set(answer["files"])
    metadata = json.loads((at / "metadata.json").read_text(encoding="utf-8"))
    assert metadata["name"] == "my-softmax" and metadata["id"].startswith("_my_softmax_") and metadata["license"] == "bsd-2-clause"
    imported = {x.names[0].name if isinstance(x, ast.Import) else x.module or "." for file in at.glob("*.py")
                for x in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(x, ast.Import | ast.ImportFrom)}
    assert imported <= {"torch", "triton", "triton.language", "."}
    inside = Folder(at / "record" / "lineage")
    assert inside.program(inside.read().start) == kir.read(at / "record" / "program.kir").program and "profile" in (at / "record" / "gate.json").read_text()
    ran = subprocess.run([sys.executable, "-c", RUN, str(at / "__init__.py"), metadata["id"]], capture_output=True, text=True, timeout=300,
                         env={**os.environ, "TRITON_INTERPRET": "1"})
    assert ran.stdout == "right\n", ran.stderr


def test_what_has_no_such_form_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = called(capsys, "export", "softmax_cuda", "-o", str(tmp_path / "out"))
    assert code == 1 and "KIR-C011" in err and not (tmp_path / "out").exists()
    shared = ("export", "skills/experts/softmax/softmax.cu", "--bind", "skills/bindings/cuda_softmax.toml", "--problem", "softmax", "-o", str(tmp_path / "x"))
    code, _, err = called(capsys, *shared)
    assert code == 1 and "a package of the hub holds Triton code" in err and "the gate refuses it" not in err and not (tmp_path / "x").exists()
    code, _, err = called(capsys, "export", "skills/problems/softmax/naive.kir")
    assert code == 2 and "KIR-G001" in err
    strange = "kir 1\nprogram p\n  size torch: i32\n  in X: f32[torch]\n  out Y: f32[torch]\nkernel main grid (i: torch) threads 1\n  Y[i] = X[i]\n"
    program = parse_program(strange, "p")
    with pytest.raises(KirError, match="KIR-C011"):
        wrapper(program, backend("triton").emit(program))
