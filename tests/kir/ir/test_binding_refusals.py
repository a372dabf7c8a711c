"""Every value of a binding is used, and fits its type and use, or it is refused at its own line of the file."""
from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from benchmarks.bad_input.bindings import allowed, instances, program_of, run
from kir.base.diagnostic import Diagnostic, KirError
from kir.faces.cli._main import run as command
from kir.ir.binding import Binding, fact_expressions
from kir.ir.bindings.binding_facts import check_facts
from kir.ir.bindings.binding_values import check_values
from kir.ir.grammar.toml_places import places
from kir.ir.nodes import Var
from kir.ir.types import I32

TRITON = '''
import triton
import triton.language as tl


@triton.jit
def copied(X, Y, N, scale, stride, BLOCK: tl.constexpr, T: tl.constexpr, MODE: tl.constexpr, CAP: tl.constexpr, idle: tl.constexpr):
    tl.static_assert(CAP >= 0)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < N).to(T)
    if MODE == "scaled":
        x = x * scale
    tl.store(Y + i * stride, x, mask=i < N)
'''
BOUND = '''kernel = "copied"
sizes = ["N"]
facts = ["N >= 1", "N <= 4096", "N % 8 == 0"]
grid = ["ceildiv(N, BLOCK)"]

[metas]
BLOCK = 64
T = "f32"
MODE = "scaled"
CAP = 4

[dtypes]
scale = "f32"

[scalars]
stride = 1

[tensors.X]
shape = ["N"]
dtype = "f16"

[tensors.Y]
shape = ["N"]
dtype = "f32"
role = "out"

[options]
num_warps = 4
'''


def refused(folder: Path, source: str, text: str, kernel: str = "copied", suffix: str = "py") -> Diagnostic:
    """What is said of a binding, which must be one thing."""
    (folder / f"source.{suffix}").write_text(source)
    (folder / "k.toml").write_text(text)
    with pytest.raises(KirError) as caught:
        program_of(f"{folder / f'source.{suffix}'}::{kernel}", folder / "k.toml")
    return caught.value.diagnostics[0]


@pytest.mark.parametrize(("facts", "said"), [
    (["M >= N", "M < N"], "'M < N' contradicts 'M >= N'"), (["M < N", "N <= M"], "'N <= M' contradicts"), (["M == N + 1", "M >= N + 2"], "contradicts"),
    (["M * N > 7", "M * N <= 7"], "contradicts"), (["M == N + 1", "M == N"], "contradicts"), (["M <= N", "M >= N"], ""), (["M < N", "N < M + 2"], "")])
def test_facts_of_two_sizes_that_cannot_both_hold(facts: list[str], said: str) -> None:
    with pytest.raises(KirError, match=said) if said else nullcontext():
        check_facts(Binding(sizes=["M", "N"], facts=facts), fact_expressions(facts, {k: Var(k, I32) for k in ("M", "N")}))


@pytest.mark.parametrize(("old", "new", "words"), [
    ("BLOCK = 64", 'BLOCK = "abc"', "'BLOCK' = \"abc\": the kernel takes a whole number"),
    ("BLOCK = 64", "BLOCK = 3.5", "'BLOCK' = 3.5: the kernel takes a whole number"),
    ("BLOCK = 64", "BLOCK = true", "'BLOCK' = true: the kernel takes a whole number"),
    ("BLOCK = 64", "BLOCK = 48", "BLOCK = 48 makes a range of 48 elements"),
    ("BLOCK = 64", "BLOCK = -64", "BLOCK = -64 "),
    ("BLOCK = 64", "BLOCK = 0", "BLOCK = 0 "),
    ("BLOCK = 64", "BLOCK = 2097152", "a range of 2097152 elements"),
    ("BLOCK = 64", "BLOCK = 1099511627776", "stands in an expression of the binding"),
    ("BLOCK = 64", "BLOCK = nan", "is not a number"),
    ("BLOCK = 64", "BLOCK = 64\nBLOK = 3", "has no parameter 'BLOK'"),
    ("BLOCK = 64", "BLOCK = 64\nidle = 3", "never reads its parameter 'idle'"),
    ('T = "f32"', 'T = "float17"', "there is no such dtype"),
    ('T = "f32"', "T = 3", "takes the name of a dtype"),
    ('MODE = "scaled"', "MODE = 3", "takes a text"),
    ("CAP = 4", 'N = 4\nCAP = 4', "'N' stands under sizes and under metas"),
    ('kernel = "copied"', 'kernel = "copyed"', "did you mean 'copied'?"),
    ('sizes = ["N"]', 'sizes = ["N", "M"]', "nothing is over the size 'M'"),
    ('sizes = ["N"]', 'sizes = ["N", "N"]', "stands twice"),
    ('"N <= 4096"', '"N <= 0"', "the fact 'N <= 0' contradicts 'N >= 1'"),
    ('"N % 8 == 0"', '"N % 8 == 9"', "the fact 'N % 8 == 9' contradicts"),
    ('"N <= 4096"', '"4 <= 4096"', "says nothing of any size"),
    ('"N <= 4096"', '"M <= 4096"', "'M' is not defined"),
    ('"N <= 4096"', '"N <= 4294967296"', "beyond what i32 holds"),
    ('"N <= 4096"', '"N + 1"', "is no condition"),
    ('grid = ["ceildiv(N, BLOCK)"]', "grid = 7", "field 'grid'"),
    ('grid = ["ceildiv(N, BLOCK)"]', 'grid = ["ceildiv(N, BLOCK)", 2]', "the grid has 2 axes"),
    ('grid = ["ceildiv(N, BLOCK)"]', 'grid = ["ceildiv(N, "]', "grid 'grid[0]'"),
    ('grid = ["ceildiv(N, BLOCK)"]', 'grid = ["1, y: 2"]', "more than one expression"),
    ('grid = ["ceildiv(N, BLOCK)"]', "grid = [0]", "axis 0 of the grid has 0 CTAs"),
    ('grid = ["ceildiv(N, BLOCK)"]', 'grid = ["N - 8192"]', "this extent is never more than -4096"),
    ('grid = ["ceildiv(N, BLOCK)"]', 'grid = ["1e400"]', "this extent is at least any number"),
    ('scale = "f32"', 'scale = "float17"', "there is no dtype 'float17'"),
    ('scale = "f32"', 'scle = "f32"', "did you mean 'scale'?"),
    ("stride = 1", 'stride = "Q"', "'Q' is not defined"),
    ("stride = 1", "stride = 1\nX = 3", "'X' stands under scalars and under tensors"),
    ("stride = 1", "stride = 1\nidle = 3", "'idle' of 'copied' is not a run-time number"),
    ('dtype = "f16"', 'dtype = "float17"', "there is no dtype 'float17'"),
    ('dtype = "f16"', 'dtype = "f16"\nrole = "out"', "the kernel never writes it"),
    ('dtype = "f16"', 'dtype = "f16"\nalign = 3', "aligned to 3 bytes"),
    ('dtype = "f16"', 'dtype = "f16"\nstrides = [1, 2]', "1 axes and 2 strides"),
    ('dtype = "f16"', 'dtype = "f16"\nname = "Y"', "called 'Y', as is the tensor 'X'"),
    ('role = "out"', 'role = "in"', "has the role in, and the kernel writes it"),
    ('role = "out"', 'role = "outt"', "did you mean 'out' or"),
    ("num_warps = 4", "num_warps = 3", "num_warps = 3"),
    ("num_warps = 4", "num_warp = 4", "did you mean 'num_warps' or"),
    ("num_warps = 4", "num_warps = 4\nnum_ctas = 2", "over the CTAs of a cluster"),
    ("num_warps = 4", 'num_warps = 4\ntarget = "sm_90a"', "depends on the target"),
])
def test_a_wrong_value_is_refused_at_its_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    text = BOUND.replace(old, new, 1)
    found = refused(tmp_path, TRITON, text)
    assert words in str(found), str(found)
    changed = next(i for i, (a, b) in enumerate(zip([*BOUND.splitlines(), ""], text.splitlines(), strict=False), 1) if a != b)
    line = text.splitlines().index(SECOND[new]) + 1 if new in SECOND else changed
    assert found.origin is not None and (Path(found.origin.file).name, found.origin.line) == ("k.toml", line)


SECOND = {"stride = 1\nX = 3": "[tensors.X]", 'dtype = "f16"\nname = "Y"': "[tensors.Y]"}
"""Where a name of two sections is refused: where it stands the second time."""


def test_what_a_kernel_only_asserts_is_used_and_a_launch_may_hold_more(tmp_path: Path) -> None:
    """`CAP` stands in a static_assert alone; a recorded launch has a value for `idle` too, and comes to the same program."""
    (tmp_path / "source.py").write_text(TRITON)
    place = f"{tmp_path / 'source.py'}::copied"
    (tmp_path / "k.toml").write_text(BOUND)
    wanted = program_of(place, tmp_path / "k.toml")
    (tmp_path / "k.toml").write_text("recorded = true\n" + BOUND.replace("CAP = 4", "CAP = 4\nidle = 3").replace('(N, BLOCK)"]', '(N, BLOCK)", 1]'))
    assert program_of(place, tmp_path / "k.toml") == wanted
    (tmp_path / "k.toml").write_text("recorded = true\n" + BOUND.replace("BLOCK = 64", 'BLOCK = "abc"'))
    with pytest.raises(KirError, match="takes a whole number"):
        program_of(place, tmp_path / "k.toml")


TEMPLATE = """
template <typename T, int V>
__global__ void copied(const T* x, T* y, float* z, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { y[i] = x[i]; z[i] += V; }
}
"""
TEMPLATED = '''kernel = "copied"
sizes = ["n"]
facts = ["n >= 1"]
grid = ["ceildiv(n, 128)"]

[metas]
threads_x = 128
T = "f16"
V = 2

[tensors.x]
shape = ["n"]
dtype = "f16"

[tensors.y]
shape = ["n"]
dtype = "f16"

[tensors.z]
shape = ["n"]
dtype = "f32"
'''


@pytest.mark.parametrize(("old", "new", "words"), [
    ("threads_x = 128", 'threads_x = "abc"', "no number of threads"), ("threads_x = 128", "threads_x = 2048", "no number of threads"),
    ("threads_x = 128", "threads_x = 3.5", "no number of threads"), ("V = 2", "V = 3.5", "3.5 is a fraction"),
    ("V = 2", "W = 2", "has no parameter 'W'"), ('T = "f16"', "T = 3", "a type is asked for"), ('T = "f16"', 'T = "f32"', "is f32 in the source, and f16"),
])
def test_a_template_is_given_what_it_takes(tmp_path: Path, old: str, new: str, words: str) -> None:
    found = refused(tmp_path, TEMPLATE, TEMPLATED.replace(old, new), suffix="cu")
    assert words in str(found)
    wanted = 'dtype = "f16"' if "source" in words else new  # T agrees with nothing that the tensors say: the first of them is named
    assert found.origin is not None and found.origin.line == TEMPLATED.replace(old, new).splitlines().index(wanted) + 1


def test_the_skeleton_of_a_template_says_what_it_writes(tmp_path: Path) -> None:
    from kir.surface import frontend

    (tmp_path / "source.cu").write_text(TEMPLATE)
    made = frontend("cuda").skeleton(tmp_path / "source.cu", "copied")  # type: ignore[attr-defined]  # what `kir bind` asks of a frontend
    assert {name: t.role for name, t in made.tensors.items()} == {"x": "in", "y": "out", "z": "inout"}


TILED = '''
import tilelang
import tilelang.language as T


def copied(N, block=64, dtype="float16", idle=3):
    M = T.dynamic("M")

    @T.prim_func
    def kernel(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(M, threads=128) as bx:
            for j in T.Parallel(N):
                Y[bx, j] = X[bx, j] * block
    return kernel
'''
TILES = '''kernel = "kernel"
sizes = ["M"]
facts = ["M >= 1"]

[metas]
N = 256
block = 64
dtype = "f16"
'''


@pytest.mark.parametrize(("old", "new", "words"), [
    ("N = 256", "N = 256\nM = 128", "'M' stands under sizes and under metas"), ('sizes = ["M"]', "sizes = []\nabsent = [\"M\"]", "'M'"),
    ("N = 256", 'N = "abc"', "takes a whole number"), ("N = 256", "N = 2.5", "takes a whole number"), ("N = 256", "N = -256", "-256"),
    ("block = 64", "block = 64\nidle = 4", "never mentions its parameter 'idle'"), ("block = 64", "blok = 64", "has no parameter 'blok'"),
    ('dtype = "f16"', 'dtype = "float17"', "there is no such dtype"), ('dtype = "f16"', 'dtype = "f16"\n[options]\nnum_warps = 8', "how many threads"),
])
def test_a_factory_is_given_what_it_takes(tmp_path: Path, old: str, new: str, words: str) -> None:
    text = TILES.replace(old, new)
    found = refused(tmp_path, TILED, text, "kernel")
    assert words in str(found), str(found)
    assert found.origin is not None and found.origin.file.endswith("k.toml") and found.origin.line >= TILES.splitlines().index(old) + 1


def test_a_meta_that_is_an_extent_of_the_caller_is_no_meta(tmp_path: Path) -> None:
    found = refused(tmp_path, TILED, TILES.replace('sizes = ["M"]', "sizes = []").replace('facts = ["M >= 1"]', "facts = []") + "M = 128\n", "kernel")
    assert "'M' of 'kernel' is not a compile-time value" in found.message and found.origin is not None and found.origin.line == 9


def test_a_program_that_the_verifier_refuses_is_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A flat write to a tensor with the role in is one, through the view of it: `kir run --check` says what `kir parse` says."""
    (tmp_path / "source.py").write_text(TRITON.replace("Y + i * stride", "Y + i"))
    (tmp_path / "k.toml").write_text(BOUND.replace("stride = 1\n", "").replace("[scalars]\n", "").replace(
        'shape = ["N"]\ndtype = "f32"\nrole = "out"', 'shape = ["N // 8", 8]\ndtype = "f32"\nrole = "in"'))
    line = (tmp_path / "k.toml").read_text().splitlines().index('role = "in"') + 1
    words = [f"{tmp_path / 'source.py'}::copied", "--bind", str(tmp_path / "k.toml")]
    for asked in (["run", *words, "--check"], ["parse", *words], ["sites", *words], ["opt", *words, "--pipeline", ""]):
        code, err = command(asked), capsys.readouterr().err
        assert code == 1 and "role in" in err and f"k.toml:{line}:8" in err, asked


def test_places_of_a_toml_text() -> None:
    text = 'a = "x#]"  # [no] = 3\n[t."q.r"]\nb = [ 1, [2,\n 3] ]\nc = { d = \'e\', f = 1.5 }\n[[u]]\nv = 1\n[[u]]\nw.x = """\ny""" \n'
    found = places(text)
    said = {steps: text[slice(*span.value)] for steps, span in found.items()}
    assert said["a",] == '"x#]"' and said["t", "q.r", "b", 1, 1] == "3" and said["t", "q.r", "c", "f"] == "1.5"
    assert said["u", 0, "v"] == "1" and said["u", 1, "w", "x"] == '"""\ny"""'
    assert Binding.parse("[metas]\nB = 1\n[[configs]]\nB = 2\n").configured(0).at("metas", "B") == Binding.parse(
        "[metas]\nB = 1\n[[configs]]\nB = 2\n").at("configs", 0, "B")


SAMPLE = 100
"""Corruptions here; `python -m benchmarks.bad_input.bindings` tries thousands, of the kernels of packages too."""


def test_corrupted_bindings_are_refused_at_their_line_or_make_another_program(tmp_path: Path) -> None:
    found = [x for x in instances(tmp_path) if not any(word in x.name for word in ("flash", "gemm", "fmha", "tile_kernels", "topk"))]
    assert len(found) >= 20
    wrong = [(i.name, c.rule, c.steps, ended, words) for i, c, ended, words in run(found, SAMPLE, 3, tmp_path) if not allowed(c, ended)]
    assert not wrong, wrong


SAME_WORD = 'kernel = "k"\nsizes = ["num_stages"]\ngrid = ["num_stages"]\n\n[options]\nnum_stages = 3\n'


def test_a_size_may_be_called_as_an_option_that_no_heuristic_reads() -> None:
    """An option of the launch is a word of the launch: expressions mean the size. A heuristic reads options, so that there it is two things."""
    assert Binding.parse(SAME_WORD).options == {"num_stages": 3}
    with pytest.raises(KirError, match="'num_stages' is a size and an option of the launch"):
        check_values(Binding.parse(SAME_WORD + '\n[heuristics]\nEVEN = "num_stages % 2 == 0"\n'))
