"""The host around a kernel: what changes in place, classes, modules of a project. What KIR cannot follow is never a wrong value."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from kir.analysis.normal.normal_form import normalize
from kir.backends.tilelang.form.form import form
from kir.base.diagnostic import KirError
from kir.frontends.tilelang.frontend import TileLangFrontend
from kir.interp import run
from kir.ir.binding import Binding
from kir.ir.bindings.specialize import specialize
from kir.ir.printer import program_text
from kir.surface.reading import kernel_of, launched, load_expert
from tests.frontends.reading import opaque
from tests.frontends.tilelang.numpy_kernels import loaded
from tests.frontends.tilelang.reading import written
from tests.round_trips import TILELANG

KERNEL = """
def make(n, flag: bool = True, k: int = 3):
{host}
    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 32), threads=32) as bx:
            for i in T.Parallel(32):
                B[bx * 32 + i] = A[bx * 32 + i] + {value}
    return kernel
"""


def source(host: str, value: str, before: str = "") -> str:
    return before + KERNEL.format(host="\n".join(f"    {line}" for line in host.strip().splitlines()), value=value)


def added(folder: Path, text: str, metas: dict[str, int | bool] | None = None) -> float:
    """What a kernel adds to its input."""
    file, binding = written(folder, text), folder / "binding.toml"
    binding.write_text(Binding(kernel="kernel", sizes=["n"], facts=["n >= 1"], metas=dict(metas or {})).text())
    program = load_expert(f"{file}::kernel", binding).program
    assert opaque(program) == []
    return float(run(program, {"A": np.zeros(40, np.float32)}).outputs["B"][39])


def left_open(folder: Path, text: str) -> list[str]:
    return opaque(TileLangFrontend().parse(written(folder, text), "kernel"))


@pytest.mark.parametrize(
    ("host", "value", "sum_"),
    [
        ("d = [1, 2]\nd[0] = 9\nd[-1] += 1", "d[0] * 10 + d[1]", 93),
        ("p = []\nfor i in range(k):\n    p.append(i + 1)\nq = p\nq.extend([10])\nq += [20]", "sum(p) * 100 + len(p)", 3605),
        ("d = {'a': 1}\nd['b'] = 2\nd.update(c=5)\nd['a'] = d.pop('b') + 1", "d['a'] * 10 + d['c'] + len(d)", 37),
        ("d = {x: x * x for x in range(4) if x != 2}\nt = d.setdefault(7, 70)", "d[3] + d[7] + len(d)", 83),
        ("strides = [1] * k\nfor i in range(k - 2, -1, -1):\n    strides[i] = strides[i + 1] * 4", "strides[0] * 10 + strides[2]", 161),
        ("rows = [[0] for _ in range(2)]\nrows[0].append(5)\nsame = [rows[0]] * 2\nsame[1].append(6)", "len(rows[0]) * 10 + len(rows[1])", 31),
        ("def grow(x):\n    x.append(4)\n    return len(x)\np = [1]\nm = grow(p)", "m * 10 + p[1]", 24),
        ("p = [3, 1, 2]\np.sort()\np.insert(0, 9)\nlast = p.pop()\np.remove(1)\np.reverse()", "p[0] * 100 + p[1] * 10 + last", 293),
        ("p = [1]\nif flag:\n    p.append(7)", "len(p) * 10 + p[-1]", 27),
        ("picked = next(x for x in range(9) if x * x > 10)\ns = [5, 6, 7, 8][slice(1, 3)]", "picked * 100 + s[0] * 10 + (k - 1).bit_length()", 462),
    ],
)
def test_lists_and_dicts_change_in_place(tmp_path: Path, host: str, value: str, sum_: int) -> None:
    assert added(tmp_path, source(host, value)) == sum_


OBJECTS = """
from typing import NamedTuple

class Base:
    scale = 3
    def __init__(self, rows, cols=4):
        self.rows, self.cols = rows, cols
        self.steps = max(1, (cols - 1).bit_length())

class Tiling(Base):
    def __init__(self, rows):
        super().__init__(rows, cols=8)
        self.extra = [self.cols]
        self.extra += [self.steps]
    @property
    def total(self):
        return sum(self.extra) + self.scale
    @staticmethod
    def twice(x):
        return 2 * x

class Pair(NamedTuple):
    a: int
    b: int = 2
"""


def test_objects_run_their_init_and_inherit(tmp_path: Path) -> None:
    host = "t = Tiling(5)\na, b = Pair(1)\nalias = t.extra\nalias.append(100)\nt.rows = 6"
    assert added(tmp_path, source(host, "t.total * 1000 + t.twice(t.rows) * 10 + a + b + Pair(4)[0]", OBJECTS)) == 114127


@pytest.mark.parametrize(
    ("host", "value", "before", "reason"),
    [
        ("p = [1]\nif flag:\n    p.append(4)\nunread(p)", "len(p)", "from elsewhere import unread\n", "what 'unread(p)' does to it"),
        ("c = 0\ndef up():\n    nonlocal c\n    c += 1\nup()", "c", "", "'c', which a function inside binds"),
        ("pass", "len(X)", "X = []\nX.append(3)\n", "'X', which statements of its module change"),
        ("p = [1]\nunread(p)", "p[0]", "from elsewhere import unread\n", "what 'unread(p)' does to it"),
        ("p = [1, 2]\np[flag] = 5", "p[0]", "", "an assignment to an element of a list"),
        ("def f(x):\n    return x @ x\nv = f(3)", "v", "", "the operator MatrixMultiply"),
    ],
)
def test_what_cannot_be_followed_is_never_a_value(tmp_path: Path, host: str, value: str, before: str, reason: str) -> None:
    assert any(reason in x for x in left_open(tmp_path, source(host, value, before)))


@pytest.mark.parametrize(
    ("host", "value", "held", "lacks"),
    [
        ("p = [1]\nif flag:\n    p.append(4)", "len(p)", 2, 1),
        ("d = {'a': 1}\nif flag:\n    d['b'] = 7\nm = sum(d.values())", "m", 8, 1),
        ("p = [1]\nif flag:\n    p.append(4)\nelse:\n    p.clear()\nif k > 2:\n    p.append(5)", "sum(p) * 10 + len(p)", 103, 51),
    ],
)
def test_what_the_ways_of_a_branch_change_unlike_is_what_either_made_it(tmp_path: Path, host: str, value: str, held: int, lacks: int) -> None:
    text = source(host, value)
    assert left_open(tmp_path, text) == []
    assert [added(tmp_path, text, {"flag": x}) for x in (True, False)] == [held, lacks]


def test_what_both_ways_change_alike_is_a_choice(tmp_path: Path) -> None:
    host = "d = {'a': 1}\nif flag:\n    d['a'] = 10"
    assert left_open(tmp_path, source(host, "d['a']")) == []
    assert [added(tmp_path, source(host, "d['a']"), {"flag": x}) for x in (True, False)] == [10, 1]


def test_a_file_finds_the_modules_of_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "repo" / "ops" / "kernels"
    inner.mkdir(parents=True)
    (inner.parent / "common.py").write_text("WIDTH = 4\n")
    (inner.parent / "other.py").write_text("DEPTH = 20\n")
    (tmp_path / "repo" / "shared").mkdir()
    (tmp_path / "repo" / "shared" / "numbers.py").write_text("BIAS = 100\n")
    (tmp_path / "repo" / "pyproject.toml").write_text("")
    file = inner / "add.py"
    head = "import tilelang\nimport tilelang.language as T\nfrom ops.common import WIDTH\nfrom ..other import DEPTH\nfrom shared.numbers import BIAS\n"
    file.write_text(head + source("pass", "WIDTH + DEPTH + BIAS"))
    binding = tmp_path / "binding.toml"
    binding.write_text(Binding(kernel="kernel", sizes=["n"], facts=["n >= 1"]).text())
    for regular in (False, True):  # folders with and without __init__.py, whatever folder a command is run in
        if regular:
            for folder in (inner, inner.parent):
                (folder / "__init__.py").write_text("")
            file.write_text(file.read_text().replace(" + BIAS", ""))
        for here in (tmp_path, inner):
            monkeypatch.chdir(here)
            monkeypatch.syspath_prepend(os.getcwd())
            program = load_expert(f"{file}::kernel", binding).program
            assert opaque(program) == []
            assert run(program, {"A": np.zeros(40, np.float32)}).outputs["B"][0] == (24 if regular else 124)


BRANCHES = """
def clipped(n):
    @T.macro
    def put(B, at, v):
        with T.If(v > 0), T.Then():
            B[at] = v
    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 32), threads=32) as bx:
            for i in T.Parallel(32):
                with T.If(T.any(i < 4, i > 6)):
                    with T.Then():
                        B[bx * 32 + i] = 0.0
                    with T.Else():
                        B[bx * 32 + i] = T.meta_var(A[bx * 32 + i] * 2.0)
            put(B, 0, A[1])
    return kernel
"""


def test_branches_as_macros_write_them(tmp_path: Path) -> None:
    file, binding = written(tmp_path, BRANCHES), tmp_path / "binding.toml"
    binding.write_text(Binding(kernel="kernel", sizes=["n"], facts=["n >= 2"]).text())
    program = load_expert(f"{file}::kernel", binding).program
    assert opaque(program) == []
    a = np.arange(32, dtype=np.float32)
    b = run(program, {"A": a}).outputs["B"]
    assert list(b[:8]) == [1, 0, 0, 0, 8, 10, 12, 0]


VOTES = """
def votes(n: int = 32):
    @T.prim_func
    def kernel(X: T.Tensor((n,), "int32"), A: T.Tensor((n,), "int32"), B: T.Tensor((n,), "uint32"), C: T.Tensor((n,), "int32"),
               D: T.Tensor((n,), "uint64"), F: T.Tensor((n,), "uint32")):
        with T.Kernel(1, threads=32) as bx:
            tx = T.get_thread_binding()
            x = X[tx]
            if T.any_sync(x > 90, 0xFFFFFFFF):
                A[tx] = 1 + T.all_sync(x >= 0)
            else:
                A[tx] = 5
            B[tx] = T.cast(T.ballot(x > 50), "uint32")
            C[tx] = T.shfl_xor(x, 1, width=8) + T.shfl_down(x, 3, 8) + T.shfl_sync(x, 2, width=4)
            D[tx] = T.ballot_sync(x > 50) << 3
            F[tx] = T.match_any_sync(x % 3, 0xFFFFFFFF)
    return kernel
"""


def test_votes_and_shuffles_take_their_arguments_in_tilelangs_order(tmp_path: Path) -> None:
    program = loaded(tmp_path, VOTES, Binding())
    x, lane = np.random.default_rng(0).integers(0, 100, 32).astype(np.int32), np.arange(32)
    out = run(program, {"X": x}, mode="check").outputs
    votes = sum(int(v > 50) << i for i, v in enumerate(x))
    down = np.where(lane % 8 + 3 < 8, x[np.minimum(lane + 3, 31)], x)
    np.testing.assert_array_equal(out["A"], 2 if (x > 90).any() else 5)
    np.testing.assert_array_equal(out["B"], votes)
    np.testing.assert_array_equal(out["C"], x[lane ^ 1] + down + x[lane // 4 * 4 + 2])
    np.testing.assert_array_equal(out["D"], np.uint64(votes * 8))
    np.testing.assert_array_equal(out["F"], [sum(1 << j for j in range(32) if x[j] % 3 == x[i] % 3) for i in range(32)])
    TILELANG.is_read_back(form(normalize(program)), tmp_path, 1)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("T.any_sync(X[tx] > 1, 0xFF)", "a warp function of some lanes alone"),
        ("T.shfl_xor(X[tx], 1, width=12)", "a shuffle among 12 lanes"),
        ("T.shfl_xor(X[tx], 1, mask=15)", "a warp function of some lanes alone"),
    ],
)
def test_lanes_that_are_not_all_are_refused(tmp_path: Path, call: str, reason: str) -> None:
    text = VOTES[:VOTES.index("            if T.any")] + f"            A[tx] = {call}\n    return kernel\n"
    assert any(reason in x for x in left_open(tmp_path, text))


def test_a_tile_of_an_extent_that_only_the_running_kernel_knows_is_refused(tmp_path: Path) -> None:
    text = source("pass", "1.0").replace("            for i in", '            s = T.alloc_shared((bx + 1,), "float32")\n            for i in', 1)
    assert any("memory of the extent 'bx + 1', which is only known when the kernel runs" in x for x in left_open(tmp_path, text))


LATE = """
import importlib
import threading
_lock = threading.Lock()

class _Attribute:
    def __getattr__(self, name):
        return _Attribute()

def load():
    global tilelang, T
    if isinstance(T, _Attribute):
        with _lock:
            found = importlib.import_module("tilelang.language")
            tilelang = importlib.import_module("tilelang")
            T = found

tilelang = _Attribute()
T = _Attribute()
"""
TRIED = """
try:
    import tilelang
    from tilelang import language as T
except ImportError:
    tilelang = T = None
"""


@pytest.mark.parametrize("head", [LATE, TRIED])
def test_a_language_that_is_imported_late_or_tried(tmp_path: Path, head: str) -> None:
    file, binding = tmp_path / "source.py", tmp_path / "binding.toml"
    file.write_text(head + source("pass", "2.0"))
    binding.write_text(Binding(kernel="kernel", sizes=["n"], facts=["n >= 1"]).text())
    program = load_expert(f"{file}::kernel", binding).program
    assert opaque(program) == []
    assert float(run(program, {"A": np.zeros(40, np.float32)}).outputs["B"][39]) == 2.0


def test_how_a_kernel_is_compiled_may_stay_unknown(tmp_path: Path) -> None:
    before = 'configs = {"tl.disable_tma_lower": True}\nif hasattr(tilelang, "other"):\n    configs["tl.other"] = True\n\n@tilelang.jit(pass_configs=configs)'
    assert added(tmp_path, source("pass", "4.0", before)) == 4.0


def test_a_factory_names_the_kernel_that_it_alone_makes(tmp_path: Path) -> None:
    inner = """
    @T.prim_func
    def main(X: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 32), threads=32) as b:
            for i in T.Parallel(32):
                X[b * 32 + i] = NUMBER
"""
    bodies = {"ones": inner.replace("NUMBER", "1"), "twos": inner.replace("NUMBER", "2"), "both": inner.replace("NUMBER", "3") * 2}
    file = written(tmp_path, "".join(f"def {name}(n):{body}    return main\n" for name, body in bodies.items()))
    reader = TileLangFrontend()
    assert [(ref.name, ref.makers) for ref in reader.kernels(file)] == [("main", ("ones",)), ("main__2", ("twos",)), ("main__3", ()), ("main__4", ())]
    assert kernel_of(file, "twos")[1].name == "main__2" and "2.0" in program_text(reader.parse(file, "twos"))
    with pytest.raises(KirError, match="there is no kernel 'both'"):
        kernel_of(file, "both")


def test_what_a_call_leaves_out_is_none_and_a_list_that_it_gives_is_its_elements(tmp_path: Path) -> None:
    text = source("if scale is None:\n    scale = 0.5\ntotal = sum(parts)", "scale * 10 + total * 100 + len(parts)")
    text = text.replace("k: int = 3", "parts=(), scale=None") + "\n\ndef run():\n    return make(40, parts=(3, 5))\n"
    file = written(tmp_path, text)
    binding, said = launched(str(file))
    assert binding is not None and (binding.absent, binding.metas) == (["scale"], {"parts_0": 3, "parts_1": 5}), said
    made = specialize(TileLangFrontend().instantiate(file, "kernel", binding), binding)
    assert float(run(made, {"A": np.zeros(40, np.float32)}).outputs["B"][39]) == 807


def test_a_whole_number_that_only_the_call_of_the_kernel_gives_is_a_size(tmp_path: Path) -> None:
    file = written(tmp_path, """
def make(n):
    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), most: T.int32, scale: T.float32, B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(most, 32), threads=32) as bx:
            for i in T.Parallel(32):
                if bx * 32 + i < n:
                    B[bx * 32 + i] = A[bx * 32 + i] * scale
    return kernel

make(100)
""")
    binding, told = launched(f"{file}::kernel")
    assert binding is not None and binding.scalars == {"most": "most"} and "most >= 1" in binding.facts and "most is any number" in str(told)
