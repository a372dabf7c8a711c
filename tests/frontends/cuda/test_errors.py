"""Bad input is refused where it stands, and what is not understood stays as text with its reason."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.base.diagnostic import Diagnostic, KirError
from kir.ir.binding import Binding
from kir.ir.rules.verify import verify
from kir.surface import frontend
from tests.frontends.cuda.reading import read
from tests.frontends.reading import opaque_statements

KERNEL = "__global__ void k(float* x) { x[threadIdx.x] = 1.f; }\n"
DOUBLED = "".join(f"#define {a} {f'{b} ' * 8}\n" for a, b in zip("ABCDEFG", "BCDEFGH", strict=True)) + "#define H 1 + 1 + 1 + 1 +\n"


def refused(tmp_path: Path, source: str, kernel: str = "k", binding: str = "") -> Diagnostic:
    """The diagnostic of a source that is not read."""
    file = tmp_path / "bad.cu"
    file.write_text(source)
    with pytest.raises(KirError) as caught:
        frontend("cuda").instantiate(file, kernel, Binding.parse(binding) if binding else None)  # type: ignore[attr-defined]
    found = caught.value.diagnostics[0]
    assert found.origin is None or found.origin.file in (str(file), "<binding>")
    return found


@pytest.mark.parametrize(("source", "id", "line"), [
    ("__global__ void k(float* x) { x[0] = = 1.f; }", "KIR-F210", 1),
    ("__global__ void k(float* x) {\n  if (x[0] > 0 { x[0] = 1.f; }\n}", "KIR-F210", 2),
    ("#if 1\n" + KERNEL, "KIR-F203", 1),
    ("#endif\n" + KERNEL, "KIR-F203", 1),
    ("#if FOO(\n#endif\n" + KERNEL, "KIR-F203", 1),
    ("#if ~" + "(" * 99 + "\n#endif\n" + KERNEL, "KIR-F203", 1),
    (DOUBLED + "#if A\n#endif\n" + KERNEL, "KIR-F204", 9),
    ("#if __CUDA_ARCH__ < 900\n#error needs Hopper\n#endif\n" + KERNEL, "KIR-F205", 2),
    (DOUBLED + "__global__ void k(float* x) { x[0] = A 0; }", "KIR-F204", 9),
    ("__device__ int f(int n) { return f(n + 1); }\n__global__ void k(int* x) { x[0] = f(0); }", "KIR-F207", 1),
    ("template <int N> __device__ int f() { return f<N + 1>() + 1; }\n__global__ void k(int* x) { x[0] = f<0>(); }", "KIR-F207", 1),
    ('__global__ void k(int* x) { asm volatile("add.s32 %0, %1;" : "=r"(x[0]) : "r"(x[1])); }', "KIR-F302", 1),
    ('__global__ void k(int* x) { asm volatile("frobnicate.s32 %0, %1;" : "=r"(x[0]) : "r"(x[1])); }', "KIR-F301", 1),
])
def test_bad_sources_are_refused_at_their_place(tmp_path: Path, source: str, id: str, line: int) -> None:
    found = refused(tmp_path, source)
    assert found.id == id
    assert found.origin is not None and found.origin.line == line


def test_a_kernel_that_is_not_there_is_refused_with_the_nearest(tmp_path: Path) -> None:
    found = refused(tmp_path, KERNEL.replace(" k(", " softmax("), "softmaxx")
    assert (found.id, found.attempt) == ("KIR-F208", "did you mean 'softmax'?")
    assert refused(tmp_path, "__device__ int f() { return 1; }").id == "KIR-F208"


TEMPLATE = "template <typename T, int N> __global__ void k(T* x) { x[threadIdx.x] = T(N); }\n"


@pytest.mark.parametrize(("kernel", "binding"), [
    ("k<half, 8, 9>", ""), ("k<8, half>", ""), ("k<nothing, 8>", ""), ("k<half>", ""), ("k", "[metas]\nT = 'f16'\n"), ("k", "[metas]\nT = 3\nN = 4\n"),
])
def test_an_instantiation_that_does_not_exist_is_refused(tmp_path: Path, kernel: str, binding: str) -> None:
    found = refused(tmp_path, TEMPLATE, kernel, binding)
    assert found.id == "KIR-F209"
    assert "T, N" in found.needs


def test_a_plain_kernel_takes_no_template_arguments(tmp_path: Path) -> None:
    assert refused(tmp_path, KERNEL, "k<half>").id == "KIR-F209"


def test_an_unknown_target_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, KERNEL, "k", "[options]\ntarget = 'sm_12345'\n").id == "KIR-F206"


def test_the_target_decides_conditionals(tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text("#if __CUDA_ARCH__ >= 900\n#define V 2.f\n#else\n#define V 1.f\n#endif\n__global__ void k(float* x) { x[0] = V; }")
    for target, value in (("sm_80", "1.0"), ("sm_90a", "2.0")):
        made = frontend("cuda").instantiate(file, "k", Binding.parse(f"[options]\ntarget = '{target}'\n"))  # type: ignore[attr-defined]
        assert value in repr(made)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KirError, match="KIR-F201"):
        frontend("cuda").kernels(tmp_path / "nowhere.cu")


@pytest.mark.parametrize(("statement", "reason"), [
    ("x[0] = strange(x[1]);", "'strange', which is not declared"),
    ("float z = tex2D(x, 0, 0);", "'tex2D', which is not declared"),
    ("goto end; end: x[0] = 1.f;", "a jump to a label"),
    ("x[0] = cooperative_groups::coalesced_threads().ballot(1);", "the method 'ballot' of a group of active lanes"),
    ("for (float v = 0.f; v < 1.f; v += strange()) x[0] = v;", "'strange', which is not declared"),
    ("x[0] = clock64();", "a reading of the clock"),
    ("static float counter; x[0] = counter;", "which lives longer than the kernel"),
    ("float* p = x; if (x[0] > 0.f) p = y; p[0] = 1.f;", "points into one of several arrays"),
    ("cooperative_groups::this_grid().sync();", "a barrier of the whole grid"),
])
def test_what_is_not_understood_stays_with_its_reason(tmp_path: Path, statement: str, reason: str) -> None:
    file = tmp_path / "k.cu"
    file.write_text(f"__global__ void k(float* x, float* y) {{\n  x[1] = 2.f;\n  {statement}\n  y[0] = 3.f;\n}}")
    program = read(file, "k")
    assert verify(program) == ()
    kept = opaque_statements(program)
    assert kept and any(reason in s.reason for s in kept), [s.reason for s in kept]
    assert all(s.origin is not None and s.origin.line == 3 and s.reads == ("*",) and s.writes == ("*",) for s in kept)


def test_a_use_of_a_macro_carries_its_place(tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text("#define BAD(a) strange(a, a)\n\n__global__ void k(float* x) {\n  x[0] = BAD(x[1]);\n}")
    (kept,) = opaque_statements(read(file, "k"))
    assert kept.origin is not None and kept.origin.line == 4
    assert kept.text == "x[0] = BAD(x[1]);"
