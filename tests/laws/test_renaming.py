"""Names of a source and names of KIR's never meet: what is renamed reads to the same program, and is written back right."""
from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.renamings.corpora import Kernel, shipped
from benchmarks.renamings.law import Subject, Tally
from kir.analysis.normal.normal_form import normalize
from kir.analysis.normal.regions import raised
from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.binding import Binding, Tensor
from kir.ir.bindings.specialize import specialize
from kir.ir.canonical import alpha_equal, content_hash, rename
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rebuild.callers import called
from kir.ir.rules.verify import verify
from kir.ir.types import I32
from kir.ir.visit import statements, walk
from kir.surface import backend, frontend
from tests.programs import from_source
from tests.round_trips import CUDA, ROUND_TRIPS

SMALL = ("naive", "rmsnorm.cu", "softmax.cu", "scan.cu", "transpose.cu")
"""Kernels that are read and written within a tenth of a second."""
STORE = """
__global__ void k(int *x, int {t}) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  x[i] = {t};
}}
"""
TRITON = """
import triton
import triton.language as tl

@triton.jit
def k(x, {t}, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, {t})
"""
TILELANG = """
import tilelang
import tilelang.language as T

def factory({t}, N):
    @T.prim_func
    def k(x: T.Tensor((N,), "int32")):
        with T.Kernel(T.ceildiv(N, 64), threads=64) as {axis}:
            for i in T.Parallel(64):
                x[{axis} * 64 + i] = {t}
    return k
"""


def stored(p: n.Program) -> n.Expr:
    """The one value that a program stores."""
    (found,) = [s.value for k in p.kernels for s in statements(k.body) if isinstance(s, n.Store)]
    return found


def bound(name: str, block: str = "threads_x", dtypes: dict[str, str] | None = None) -> Binding:
    return Binding(kernel="k", sizes=["M", "N"], facts=["M >= 1", "N >= 1", "N % 64 == 0"], grid=["N // 64"], metas={block: 64}, scalars={name: "M"},
                   tensors={"x": Tensor(shape=["N"], dtype="i32")})


def read(folder: Path, suffix: str, text: str, binding: Binding) -> n.Program:
    return from_source(folder, f"source.{suffix}", text, "k", binding.text())


@pytest.mark.parametrize("name", ["t", "block_x", "grid_0", "shared_bytes", "x_extent", "threads_y", "k", "x_flat", "mod", "size", "in_", "kernel", "f32", "T"])
def test_a_parameter_of_cuda_keeps_its_value_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    plain = read(tmp_path, "cu", STORE.format(t="plain"), bound("plain"))
    p = read(tmp_path, "cu", STORE.format(t=name), bound(name))
    assert stored(p) == n.Var("M", stored(plain).type) and content_hash(p) == content_hash(plain)
    for surface in ("cuda", "tilelang"):  # Triton has no threads
        assert content_hash(ROUND_TRIPS[surface].read_back(p, tmp_path)) == content_hash(ROUND_TRIPS[surface].read_back(plain, tmp_path)), surface


def test_words_of_kir_give_way_to_a_parameter_in_the_binding_too(tmp_path: Path) -> None:
    p = read(tmp_path, "cu", STORE.format(t="threads_x"), bound("threads_x", "threads_x_1"))
    assert stored(p) == n.Var("M", stored(p).type)
    generic = frontend("cuda").parse(tmp_path / "source.cu", "k")
    assert [m.name for m in generic.metas] == ["threads_x_1", "threads_y", "threads_z"] and not verify(generic)
    skeleton = frontend("cuda").skeleton(tmp_path / "source.cu", "k")  # type: ignore[attr-defined]  # beyond the protocol
    assert "threads_x_1" in skeleton.metas and "threads_x" in skeleton.scalars


@pytest.mark.parametrize("name", ["pid_0", "grid_0", "x_extent", "T", "T_1", "f32", "i32", "true", "size", "kernel", "acc", "x_flat", "join", "é", "_0"])
def test_a_parameter_of_triton_keeps_its_value_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    def binding(called: str) -> Binding:
        return Binding(kernel="k", sizes=["M", "N"], facts=["M >= 1", "N >= 1", "N % 64 == 0"], grid=["N // 64"], metas={"BLOCK": 64}, scalars={called: "M"},
                       tensors={"x": Tensor(shape=["N"], dtype="i32")}, options={"num_warps": 2})
    plain = read(tmp_path, "py", TRITON.format(t="plain"), binding("plain"))
    p = read(tmp_path, "py", TRITON.format(t=name), binding(name))
    assert content_hash(p) == content_hash(plain) and n.Var("M", I32) in list(walk(stored(p)))
    generic = frontend("triton").parse(tmp_path / "source.py", "k")
    assert not verify(generic) and parse_program(program_text(generic)) == generic


@pytest.mark.parametrize("name", ["f32", "bf16", "true", "join"])
def test_a_pointer_called_like_a_dtype_has_its_own(tmp_path: Path, name: str) -> None:
    text = "import triton\nimport triton.language as tl\n@triton.jit\ndef k({0}, y):\n    tl.store(y, tl.load({0}) + tl.load({0} + 1))\n"
    binding = Binding(kernel="k", grid=["1"], tensors={name: Tensor(shape=[2], dtype="f16"), "y": Tensor(shape=[1], dtype="f16")})
    p = read(tmp_path, "py", text.format(name), binding)
    assert [q.of.dtype.name for q in p.params if isinstance(q.of, n.Buffer)] == ["f16", "f16"] and not any(isinstance(x, n.Cast) for x in walk(stored(p)))
    generic = frontend("triton").parse(tmp_path / "source.py", "k")
    (tmp_path / "again.py").write_text(backend("triton").emit(generic).text)
    assert alpha_equal(frontend("triton").parse(tmp_path / "again.py", "k"), generic)


@pytest.mark.parametrize("name", ["ieee", "tf32", "bf16x3", "PRECISION"])
def test_a_meta_called_like_a_precision_decides_it(tmp_path: Path, name: str) -> None:
    text = f"""
import triton
import triton.language as tl

@triton.jit
def k(a, y, {name}: tl.constexpr):
    i = tl.arange(0, 16)
    x = tl.load(a + i[:, None] * 16 + i[None, :])
    tl.store(y + i[:, None] * 16 + i[None, :], tl.dot(x, x, input_precision={name}))
"""
    square = Tensor(shape=[16, 16], dtype="f32")
    p = read(tmp_path, "py", text, Binding(kernel="k", grid=["1"], metas={name: "tf32x3"}, tensors={"a": square, "y": square}))
    assert [x.precision for k in p.kernels for x in walk(k) if isinstance(x, n.Mma)] == ["tf32x3"]
    generic = frontend("triton").parse(tmp_path / "source.py", "k")
    assert not verify(generic) and parse_program(program_text(generic)) == generic
    (tmp_path / "again.py").write_text(backend("triton").emit(generic).text)
    assert alpha_equal(frontend("triton").parse(tmp_path / "again.py", "k"), generic)


@pytest.mark.parametrize(("name", "axis"), [("block_x", "bx"), ("bx", "block_x"), ("tid", "T_"), ("share", "grid_0"), ("f32", "true"), ("i", "j")])
def test_names_of_tilelang_s_host_and_of_kir_never_meet(tmp_path: Path, name: str, axis: str) -> None:
    def binding(called: str) -> Binding:
        return Binding(kernel="k", sizes=["N"], facts=["N >= 1", "N % 64 == 0"], metas={called: 7})
    name = "i_" if name == "i" else name
    plain = read(tmp_path, "py", TILELANG.format(t="plain", axis="b"), binding("plain"))
    p = read(tmp_path, "py", TILELANG.format(t=name, axis=axis), binding(name))
    assert content_hash(p) == content_hash(plain) and stored(p) == stored(plain)


def test_fields_of_settings_are_metas_in_the_order_in_which_they_are_read(tmp_path: Path) -> None:
    text = TILELANG.format(t="{0}, {1}", axis="b").replace("= {0}, {1}", "= {1}.size * 2 + {0}.size")
    for first, second in (("first", "second"), ("z", "a"), ("a", "z")):
        (tmp_path / "source.py").write_text(text.format(first, second))
        values: dict[str, int | float | bool | str] = {f"{first}_size": 3, f"{second}_size": 4}
        made = frontend("tilelang").instantiate(tmp_path / "source.py", "k", Binding(kernel="k", sizes=["N"], metas=values))  # type: ignore[attr-defined]
        assert [m.name for m in made.metas] == [first, second, "N", f"{second}_size", f"{first}_size"]
        assert [m.name for m in made.metas] == [m.name for m in frontend("tilelang").parse(tmp_path / "source.py", "k").metas]


def test_a_struct_s_fields_do_not_meet_a_parameter(tmp_path: Path) -> None:
    text = "struct S { int b; };\n__global__ void k(int *x, S s, int s_b) { x[threadIdx.x] = s.b * 3 + s_b; }"
    (tmp_path / "source.cu").write_text(text)
    p = frontend("cuda").parse(tmp_path / "source.cu", "k")
    assert [q.name for q in p.params if not isinstance(q.of, n.Buffer) and not q.attrs] == ["s_b_1", "s_b"] and not verify(p)
    assert program_text(p).count("s_b_1 * 3") == 1


def test_a_scalar_that_is_called_like_a_word_of_the_launch_may_be_negative(tmp_path: Path) -> None:
    """Triton's division truncates: it rounds down only where nothing is negative, and a number is not that because of its name."""
    text = "import triton\nimport triton.language as tl\n@triton.jit\ndef k(x, {0}):\n    tl.store(x + tl.program_id(0), {0} // 2)\n"
    for name in ("pid_offset", "grid_m", "n"):
        (tmp_path / "source.py").write_text(text.format(name))
        p = frontend("triton").parse(tmp_path / "source.py", "k")
        assert f"tdiv({name}, 2)" in program_text(p)


def test_a_size_of_the_binding_meets_no_name_that_specializing_makes(tmp_path: Path) -> None:
    """A loop that is unrolled has copies of its names, a tensor of several axes a flat view: neither is called like anything else."""
    text = """kir 1
program p
  meta T: int
  out x: i32[x_extent]
  size x_extent: i64 {implicit=true}
  size grid_0: i32 {implicit=true}
kernel p grid (b: grid_0) threads 32
  let v__1 = b * 2
  for i in 0..T static
    let v = i + b
    x[cast(v * v__1, i64)] = v
"""
    binding = Binding(sizes=["x_flat", "grid_0"], facts=["x_flat >= 1"], grid=["grid_0"], metas={"T": 2},
                      tensors={"x": Tensor(shape=["x_flat", 2], dtype="i32")})
    p = specialize(parse_program(text), binding)
    assert not verify(p, specialized=True) and [a.extent for a in p.kernels[0].grid] == [n.Var("grid_0", I32)]
    assert sum(s.names[0].startswith("v") for s in p.kernels[0].body if isinstance(s, n.Let)) == 3


@pytest.mark.parametrize("size", ["x", "k", "p", "in", "ceildiv", "size", "é"])
def test_a_size_may_be_called_like_a_word_of_the_text_that_its_expressions_are_read_in(size: str) -> None:
    text = "kir 1\nprogram p\n  out y: i32[y_extent]\n  size y_extent: i64 {implicit=true}\n  size grid_0: i32 {implicit=true}\n" \
           "kernel k grid (b: grid_0) threads 32\n  y[0:i64] = b\n"
    said = f"%{size}" if size in ("in", "size") else size
    binding = Binding.parse(Binding(sizes=[size], facts=[f"{said} >= 1"], grid=[f"ceildiv({said}, 4) << 1"],
                                    tensors={"y": Tensor(shape=[said], dtype="i32")}).text())
    p = specialize(parse_program(text), binding)
    assert not verify(p, specialized=True) and parse_program(program_text(p)) == p and [q.name for q in p.params] == [size, "y"]


HEADER = "kir 1\nprogram p\n  size N: i32\n  scalar q: i32\n  out x: i32[N]\nkernel p grid (b: 1) threads 32\n"
LOOP = "  for own in 0..4\n    x[own] = own\n"


@pytest.mark.parametrize(("body", "name"), [
    (LOOP, "q"),
    (LOOP, "x"),
    ("  let own = b + 1\n  x[0] = own\n", "N"),
    ("  register own: i32 = 0\n  x[0] = own\n", "b"),
    ("  for i in 0..4\n    x[i] = i\n" + LOOP, "i"),
])
def test_a_name_that_is_taken_over_is_refused_and_never_bound(body: str, name: str) -> None:
    """A definition that would change what a name means is an error of the verifier, and no binding is put into such a program."""
    p = parse_program(HEADER + body)
    assert not verify(p)
    bad = replace(p, kernels=tuple(rename(k, {"own": name}) for k in p.kernels))
    assert "KIR-V004" in [d.id for d in verify(bad)]
    with pytest.raises(KirError) as refused:
        specialize(bad, Binding(sizes=["N"]))
    (found,) = refused.value.diagnostics
    assert found.id == "KIR-V004" and f"'{name}' is defined twice" in found.message


@pytest.mark.parametrize("seed", range(3))
def test_identifiers_renamed_to_words_of_kir_read_to_the_same_program(tmp_path: Path, seed: int) -> None:
    """A sample of the law: `python -m benchmarks.renamings` runs it at full size, over all corpora."""
    chance, tally = random.Random(seed), Tally()
    small = [k for k in shipped() if k.corpus == "shipped" and any(word in k.file.name for word in SMALL)]
    for kernel in chance.sample(small, 4):
        subject = Subject(kernel, tmp_path)
        names = subject.draw(chance, 12)
        tally.renamings += len(names)
        assert not (found := subject.tried(names, ("cuda", "triton", "tilelang"), tally)), (kernel.place, names, found)
    assert tally.renamings > 15 and tally.written > 3


def test_the_law_finds_a_word_that_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were KIR's own words given without looking at the source's, the law would say so."""
    from benchmarks.renamings.python_source import Name
    from kir.frontends.cuda import frontend as cuda
    from kir.frontends.cuda import kernel
    from kir.frontends.cuda.launch import geometry

    (tmp_path / "source.cu").write_text(STORE.format(t="plain"))
    subject, tally = Subject(Kernel("made", "cuda", tmp_path / "source.cu", "k", bound("plain")), tmp_path), Tally()
    names = {Name("plain", "parameter", "k"): "t"}
    assert subject.original and not subject.tried(names, ("cuda",), tally)
    for module in (cuda, kernel):
        monkeypatch.setattr(module, "words_of", lambda fn: geometry.WORDS)
    assert subject.tried(names, ("cuda",), tally)


def test_what_cannot_stay_the_same_source_is_not_drawn() -> None:
    from benchmarks.renamings.cuda_source import CudaSource
    from benchmarks.renamings.python_source import Name, PythonSource

    py = PythonSource(TRITON.format(t="n"), "k")
    assert {(x.text, x.kind) for x in py.names()} == {("x", "parameter"), ("n", "parameter"), ("BLOCK", "parameter"), ("i", "local")}
    n_ = Name("n", "parameter", "k")
    assert [py.allows(n_, x) for x in ("t", "lambda", "tl", "BLOCK", "num_warps", "kernel")] == [True, False, False, False, False, True]
    assert "x, t, BLOCK" in py.renamed({n_: "t"}) and "tl.store(x + i, t)" in py.renamed({n_: "t"})
    cu = CudaSource("#define SQUARE(v) (v * v)\n" + STORE.format(t="n"), "k", alone=True)
    assert {(x.text, x.kind) for x in cu.names()} == {("x", "parameter"), ("n", "parameter"), ("i", "local"), ("SQUARE", "file")}
    assert [cu.allows(n_, x) for x in ("t", "class", "blockIdx", "size_t", "min")] == [True, False, False, False, True]


@pytest.mark.parametrize("name", ["threads_x", "threads_z", "shared_bytes"])
def test_a_value_of_the_source_is_no_number_of_threads_because_of_its_name(tmp_path: Path, name: str) -> None:
    cuda = "template <typename {0}> __global__ void k({0} *x, int n) {{ x[blockIdx.x * blockDim.x + threadIdx.x] = n; }}"
    block = {"plain": "threads_x"}.get(name, "threads_x_1" if name == "threads_x" else "threads_x")
    made = [read(tmp_path, "cu", cuda.format(x), replace(bound("n", b), metas={b: 64, x: "f16"}, options={"target": "sm_80"}, tensors={
        "x": Tensor(shape=["N"], dtype="f16")})) for x, b in (("plain", "threads_x"), (name, block))]
    assert content_hash(made[0]) == content_hash(made[1])
    binding = bound("n", name, {})
    text = TRITON.replace("BLOCK", name).format(t="n")
    assert read(tmp_path, "py", text, replace(binding, metas={name: 2048}, facts=["M >= 1", "N % 2048 == 0"], grid=["N // 2048"]))


@pytest.mark.parametrize(("surface", "size"), [("triton", "sum"), ("triton", "tl"), ("cuda", "int"), ("cuda", "shared_pool")])
def test_a_size_that_a_surface_must_call_something_else_is_one_that_a_kernel_need_not_read(tmp_path: Path, surface: str, size: str) -> None:
    text = "kir 1\nprogram p\n  size {0}: i32\n  size N: i32\n  in x: f32[{0}, N]\n  out y: f32[{0}, N]\n  fact N % 64 == 0\n" \
           "kernel k grid (b: {0}) threads 64\n  for i in 0..N // 64\n    y[b, i * 64 +: 64] = x[b, i * 64 +: 64]\n"
    plain, made = (ROUND_TRIPS[surface].read_back(normalize(parse_program(text.format(name))), tmp_path) for name in ("M", size))
    assert content_hash(made) == content_hash(called(plain, {"M": size})) and not verify(made)


def test_a_word_that_is_a_type_to_cuda_is_no_name_that_it_writes(tmp_path: Path) -> None:
    """Every type that the reader knows, and every word that the grammar takes for one."""
    from kir.backends._cpp_names import RESERVED
    from kir.frontends.cuda.types import c_types

    read_as_types = {x for table in (c_types._INTEGERS, c_types._FLOATS, c_types._NAMED) for x in table if x.isidentifier()}
    assert read_as_types <= RESERVED and {f"{base}{k}" for base in c_types._VECTOR_BASES for k in (1, 2, 3, 4)} <= RESERVED
    text = "kir 1\nprogram p\n  in x: f32[64]\n  out y: f32[64]\nkernel k grid (b: 1) threads 32\n  for {0} in 0..64\n    y[{0}] = x[63 - {0}] * 2.0\n"
    for name in ("ssize_t", "uint8_t", "concept", "restrict"):
        p = normalize(parse_program(text.format(name)))
        other = normalize(parse_program(text.format("j")))
        assert alpha_equal(CUDA.read_back(p, tmp_path), CUDA.read_back(other, tmp_path)), name


def test_what_callers_know_may_change_places() -> None:
    """A cycle of new names: each is given once, in types as elsewhere."""
    p = parse_program("""kir 1
program p
  meta A: int
  meta B: int
  meta C: int
  in x: f32[A, B]
  in z: f32[A, B]
  out y: f32[A, C]
kernel k grid (b: 1) threads 32 {l2_hit_ratio="x=0.5,y=1"}
  let v = load(x[0 +: A, 0 +: B] where expand(iota(A), axis=1) < C else 0.0)
  y[0 +: A, 0] = reduce(select(v > 0.0, v, 0.0), axis=1, op="add") + cast(iota(A) * A, f32)
""")
    turned = called(p, {"A": "B", "B": "C", "C": "A", "x": "z", "z": "x"})
    assert [m.name for m in turned.metas] == ["B", "C", "A"] and not verify(turned)
    assert "in z: f32[B, C]" in program_text(turned) and "let v = load(z" in program_text(turned) and parse_program(program_text(turned)) == turned
    assert dict(turned.kernels[0].attrs) == {"l2_hit_ratio": "z=0.5,y=1"}
    assert called(turned, {"B": "A", "C": "B", "A": "C", "x": "z", "z": "x"}) == p


@pytest.mark.parametrize("shape", ["{q} * 1024 + {r} * 256 + iota(16)", "{q} * 1024 - iota(16) + {r} * 256", "iota(16) * 3 + {q} * 1024 + b * 7 + {r} * 256"])
@pytest.mark.parametrize(("q", "r"), [("a", "z"), ("z", "a"), ("w", "z"), ("c", "j"), ("j", "c")])
def test_what_the_normal_form_puts_together_does_not_depend_on_the_alphabet(shape: str, q: str, r: str) -> None:
    """A sum has its terms in the order of their texts: where `iota(16)` stood between the quotient and the remainder of one number, they stayed two."""
    text = """kir 1
program p
  in x: i32[4, 4096]
  out y: i32[4, 4096]
kernel k grid (b: 4, p: 8) threads 32
  let {q} = p // 4
  let {r} = p % 4
  y[b, p * 256 +: 16] = load(x[b, 0 +: 16] where {shape} < 1120 else {q} + {r})
"""
    made, plain = (raised(parse_program(text.format(q=a, r=c, shape=shape.format(q=a, r=c)))) for a, c in ((q, r), ("d", "e")))
    assert "p * 256" in program_text(made).partition("where")[2] and content_hash(made) == content_hash(plain)


def test_a_helper_s_name_for_a_value_is_its_own(tmp_path: Path) -> None:
    """A function that is called changes a parameter of its own, whatever its caller calls the argument."""
    text = """
import triton
import triton.language as tl

@triton.jit
def grown({0}, n):
    for j in range(n):
        {0} += j
    return {0}

@triton.jit
def k(x, y, n):
    if n > 4:
        v = tl.load(x)
    else:
        v = tl.load(x + 1)
    w = grown(v, n)
    tl.store(y, v + w)
"""
    reader = frontend("triton")
    texts = [content_hash(reader.parse_text(tmp_path / "source.py", text.format(name), "k")) for name in ("v", "u")]  # type: ignore[attr-defined]  # beyond the protocol
    assert texts[0] == texts[1]
    assert backend("triton").emit(reader.parse_text(tmp_path / "source.py", text.format("v"), "k"))  # type: ignore[attr-defined]  # beyond the protocol
