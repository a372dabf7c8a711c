"""Generic TileLang written and read back: what only a binding decides stays open, and comes back as the same program."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.base.diagnostic import KirError
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rules.generic import is_generic
from kir.learning.corpus import same_program
from kir.surface import EditableFrontend, backend, frontend
from tests.round_trips import TILELANG

HEAD = """import math
import tilelang
import tilelang.language as T

@tilelang.jit
def factory(n: int, width: int, dtype, index_dtype, flag: bool, threads: int = 128):
"""
KERNELS = {
    "operands of two open dtypes": ("promote", "x[left:left + n, 0:width]", """
    m = T.dynamic("m")
    @T.prim_func
    def kernel(x: T.Tensor((m, width), dtype), at: T.Tensor((m,), index_dtype), y: T.Tensor((m, width), dtype)):
        with T.Kernel(m, threads=threads) as b:
            s = T.alloc_shared((n, width), dtype)
            left = at[b] + b
            T.copy(x[left:left + n, 0:width], s)
            T.copy(s, y[left, 0])
"""),
    "a tile with a name, on both sides of a branch": ("a loop", "holds = left + at[i] < m", """
    m = T.dynamic("m")
    @T.prim_func
    def kernel(x: T.Tensor((m, width), dtype), at: T.Tensor((m,), "int32"), y: T.Tensor((m, width), dtype)):
        with T.Kernel(T.ceildiv(m, n), threads=128) as b:
            s = T.alloc_shared((n, width), dtype)
            left = at[b]
            for i, j in T.Parallel(n, width):
                if at[i] + left < m:
                    s[i, j] = x[left + i, j]
                else:
                    y[b * n + i, j] = 0
            T.copy(s, y[left, 0])
"""),
    "sums over the axes that a place does not have": ("reducers", "T.finalize_reducer(total)", """
    m = T.dynamic("m")
    @T.prim_func
    def kernel(x: T.Tensor((m, width), "float32"), y: T.Tensor((m,), "float32"), z: T.Tensor((m,), "float32")):
        with T.Kernel(T.ceildiv(m, n), threads=128) as b:
            total = T.alloc_reducer((n,), "float32", replication="all")
            least = T.alloc_reducer((1,), "float32", "min", replication="all")
            low = T.alloc_fragment((1,), "float32")
            held = T.alloc_fragment((n + 1,), "float32")
            T.clear(held)
            for i in T.Parallel(n):
                if b * n + i < m and b * n + i != 3:
                    T.atomic_add(z[b * n + i], held[i])
            T.clear(total)
            T.fill(least, T.infinity("float32"))
            for k in T.serial(2):
                for i, j in T.Parallel(n, width):
                    doubled = x[b * n + i, j] * 2.0
                    total[i] += doubled
                    if j < m:
                        least[0] = T.min(least[0], doubled)
            T.finalize_reducer(total)
            T.finalize_reducer(least, low)
            for i in T.Parallel(n):
                y[b * n + i] = total[i]
            z[b] = low[0]
"""),
    "a choice and what the branch declares": ("the factory", "chosen = 64 if flag else 128", """
    m = T.dynamic("m")
    part = 64 if flag else 128
    kind = T.float16 if flag else dtype
    @T.prim_func
    def kernel(x: T.Tensor((m, part), kind), y: T.Tensor((m, part), "float32")):
        with T.Kernel(m, threads=math.gcd(part, n)) as b:
            f = T.alloc_fragment((part,), "float32")
            if flag:
                g = T.alloc_fragment((part,), kind)
                T.copy(x[b, 0], g)
                T.copy(g, f)
                scale = 2.0
            else:
                T.clear(f)
                scale = 1.0
            for i in T.Parallel(part):
                y[b, i] = f[i] * scale
"""),
    "reductions that convert": ("reductions", "T.reduce_absmax(f, top, dim=1)", """
    m = T.dynamic("m")
    @T.prim_func
    def kernel(x: T.Tensor((m, n, width), dtype), y: T.Tensor((m, n), "float32")):
        with T.Kernel(m, threads=128) as b:
            f = T.alloc_fragment((n, width), dtype)
            top = T.alloc_fragment((n,), "float32")
            T.copy(x[b, 0:n, 0:width], f)
            T.reduce_absmax(f, top, dim=1)
            T.copy(top, y[b, 0:n])
"""),
    "threads whose number is open": ("threads", "T.get_thread_binding()", """
    m = T.dynamic("m")
    @T.prim_func
    def kernel(x: T.Tensor((m, width), "float32"), y: T.Tensor((m, width), "float32")):
        with T.Kernel(m, threads=threads) as b:
            t = T.get_thread_binding()
            if t < width:
                y[b, t] = T.copysign(T.fma(x[b, t], 2.0, 1.0), x[b, t])
"""),
}


@pytest.mark.parametrize("what", KERNELS)
def test_a_generic_kernel_comes_back_as_the_same_program(tmp_path: Path, what: str) -> None:
    _, line, text = KERNELS[what]
    (tmp_path / "k.py").write_text(f"{HEAD}{text}    return kernel\n")
    reader = frontend("tilelang")
    assert isinstance(reader, EditableFrontend)
    program = reader.parse(tmp_path / "k.py", "kernel")
    assert is_generic(program) and "opaque" not in program_text(program)
    emitted = backend("tilelang").emit(program)
    assert line in emitted.text, emitted.text
    again = reader.parse_text(tmp_path / "again.py", emitted.text, "kernel")
    assert same_program(program, again), f"{emitted.text}\n{program_text(program)}\n{program_text(again)}"


SUM_READ_TOO_EARLY = """kir 1
program p
  meta n: int
  size m: i32
  in X: f32[m, n]
  out Y: f32[m]
kernel main grid (b: m) threads 128
  fragment total: f32[1] = broadcast(0.0, 1)
  for k in 0..4
    let part = reduce(load(X[b, 0 +: n] else 0.0 clip), axis=0, op=sum)
    total[0] = total[0] + part
    Y[b] = total[0] clip
"""


def test_a_sum_that_is_read_while_it_is_added_to_is_refused() -> None:
    with pytest.raises(KirError) as refused:
        backend("tilelang").emit(parse_program(SUM_READ_TOO_EARLY, "p.kir"))
    (found,) = refused.value.diagnostics
    assert found.id == "KIR-B306" and "'total' is read in the loop that adds to it" in found.message and found.anchor == "main/1"


ROUND = """kir 1
program p
  size N: i32
  in X: f16[N, 512]
  out Y: f16[N, 512]
  fact N <= 65536
kernel main grid (row: ceildiv(N, 8)) threads 128
  fragment F: f16[8, 512] layout spread([64, 2], [1, 0], [8, 1], [8, 4], [1, 0], [1, 2])
  copy load(X[row * 8 +: 8, 0 +: 512] else 0.0:f16 clip) -> F
  copy F -> Y[row * 8 +: 8, 0 +: 512] clip
"""


def test_a_fragment_that_is_dealt_by_digits_is_a_function_of_its_index(tmp_path: Path) -> None:
    from kir.analysis.normal.normal_form import normalize
    from kir.backends.tilelang.form.form import form
    from kir.ir.canonical import alpha_equal

    p = form(normalize(parse_program(ROUND, "p.kir")))
    text = backend("tilelang").emit(p).text
    assert "T.Fragment((8, 512), forward_fn=lambda i, j: (i % 2 * 64 + j // 8, i // 2 * 8 + j % 8))" in text
    assert alpha_equal(TILELANG.read_back(p, tmp_path), p)
    copied = parse_program(ROUND.replace("[64, 2], [1, 0], [8, 1]", "[64, 2], [1, -1], [8, 0]").replace("[8, 4], [1, 0], [1, 2]",
                           "[8, 8], [1, 0], [1, 1]"), "p.kir")
    (found,) = backend("tilelang").accepts(copied)
    assert found.id == "KIR-B302" and found.anchor == "main/0"
