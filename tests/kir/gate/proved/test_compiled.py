"""What a compiler made of a kernel, read back: what has its barriers and masks holds, what lost one is refused, and what is not read is said."""
from __future__ import annotations

import re
from typing import Any

import pytest

from kir.gate.proved.compiled import Validated, judged, validated
from kir.gate.verdict import CompileRecord
from kir.hardware.target import target
from kir.ir.parser import parse_program
from kir.surface import Translated
from tests.command_line import called

TURNED = """kir 1
program turned
  size N: i32
  fact N >= 1
  in A: f32[N]
  out B: f32[N]
kernel main grid (b: ceildiv(N, 64)) threads 64
  shared s: f32[64]
  for t in 0..64 parallel thread
    s[t] = load(A[b * 64 + t] else 0.0 clip)
    barrier()
    B[b * 64 + t] = s[63 - t] clip
"""
TEXT = """#include <tl_templates/cuda/reduce.h>
extern "C" __global__ void __launch_bounds__(64, 1) turned_kernel(const float* __restrict__ A, float* __restrict__ B, int N) {
  extern __shared__ __align__(1024) float s[];
  s[((int)threadIdx.x)] = (((int)blockIdx.x) * 64 + ((int)threadIdx.x)) < N ? A[(((int)blockIdx.x) * 64 + ((int)threadIdx.x))] : 0x0p+0f/*0*/;
  __syncthreads();
  if ((((int)blockIdx.x) * 64 + ((int)threadIdx.x)) < N) {
    B[(((int)blockIdx.x) * 64 + ((int)threadIdx.x))] = s[(63 - ((int)threadIdx.x))];
  }
}
"""
MASK = "(((int)blockIdx.x) * 64 + ((int)threadIdx.x)) < N"


def of(text: str) -> Validated:
    """A compiler's text against the kernel."""
    return judged(parse_program(TURNED, "turned.kir"), Translated("main", "turned_kernel", text, 64, 256))


def test_a_text_with_all_of_the_kernel_holds_for_all_sizes() -> None:
    done = of(TEXT)
    assert done.status == "holds" and done.checked is not None and done.checked.verdict == "proved" and len(done.sizes) > 1 and not done.diagnostics()
    assert "every hazard decided for all sizes, and the same values at N=" in done.line and done.to_json()["status"] == "holds"


@pytest.mark.parametrize(("gone", "instead", "kind", "said"), [
    ("  __syncthreads();\n", "", "race", "races"),
    (f"if ({MASK})", "if (true)", "bounds", "outside"),
    (f"{MASK} ? ", "true ? ", "bounds", "outside"),
    ("  __syncthreads();\n", f"  if ({MASK}) __syncthreads();\n", "barrier", ""),
    (" : 0x0p+0f/*0*/", " : 1.0f", "", "B["),
    ("(63 - ((int)threadIdx.x))", "(62 - ((int)threadIdx.x) & 63)", "", "B["),
])
def test_what_lost_a_barrier_or_a_mask_or_computes_something_else_is_refused(gone: str, instead: str, kind: str, said: str) -> None:
    assert gone in TEXT
    done = of(TEXT.replace(gone, instead))
    assert done.status == "refuted" and said in done.why and {d.id for d in done.diagnostics()} == {"KIR-G139"}
    assert not kind or kind in {f.kind for f in done.findings}


def test_a_parameter_may_be_spelled_otherwise() -> None:
    text = re.sub(r"\bN\b", "N_", re.sub(r"\bA\b", "A_", TEXT))
    made = Translated("main", "turned_kernel", text, 64, 256, renamed=(("N_", "N"), ("A_", "A")))
    assert judged(parse_program(TURNED, "turned.kir"), made).status == "holds"


def test_what_is_not_read_is_said_and_never_holds() -> None:
    program = parse_program(TURNED, "turned.kir")
    done = of(TEXT.replace("  __syncthreads();\n", "  tl::gemm_ss<64, 64>(s, s, s);\n"))
    assert done.status == "unread" and "stays text" in done.why and [d.id for d in done.diagnostics()] == ["KIR-G140"]
    assert "Triton" in validated(program, "triton", target("sm_90a")).why
    two = parse_program(TURNED + "kernel more grid (b: N) threads 1\n  B[b] = 1.0\nplan\n  launch main\n  launch more\n", "two.kir")
    assert "2 kernels" in validated(two, "tilelang", target("sm_90a")).why


def test_the_gate_says_it_and_refuses_what_it_did_not_validate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    file = tmp_path / "turned.kir"
    file.write_text(TURNED)
    monkeypatch.setattr("kir.gate.cpu._compile", lambda *given: (CompileRecord("kir", True), None, 0.0))  # compilers are not what is tested
    for answer, code in ((Validated("holds"), 0), (Validated("refuted", "read of 's' races with a write"), 1), (Validated("unread", "no text"), 1)):
        monkeypatch.setattr("kir.gate.proved.compiled.validated", lambda *given, answer=answer: answer)
        ended, out, said = called(capsys, "gate", str(file), "--against", str(file), "--target", "sm_90a", "--validate")
        assert ended == code and answer.line.split(":")[0] in " ".join(out.split()) and ("KIR-G1" in said) == (code == 1)
