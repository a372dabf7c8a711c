"""When two generic programs are one, and when they are not."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.frontends.triton.frontend import TritonFrontend
from kir.ir.canonical import alpha_equal
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.learning.corpus import same_program

HEAD = "import triton\nimport triton.language as tl\n\n@triton.jit\n"
SOURCE = HEAD + '''def kernel(x_ptr, y_ptr, n, MODE: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    if MODE == 0:
        y = x.to(tl.float32)
    else:
        y = x
    z = y * 2.0
    tl.store(y_ptr + offs, z + 1.0, mask=offs < n)
'''


def read(folder: Path, text: str) -> Program:
    file = folder / "source.py"
    file.write_text(text)
    return TritonFrontend().parse(file, "kernel")


SAME = {
    "names": lambda s: s.replace("offs", "where").replace("z", "zed").replace("y = x", "wide = x").replace("= y *", "= wide *"),
    "a value without its name": lambda s: s.replace("    z = y * 2.0\n", "").replace("z + 1.0", "y * 2.0 + 1.0"),
    "a value with a name": lambda s: s.replace("tl.store(y_ptr + offs, z + 1.0", "one = z + 1.0\n    tl.store(y_ptr + offs, one"),
}
OTHER = {
    "a constant": lambda s: s.replace("2.0", "3.0"),
    "an operator": lambda s: s.replace("z + 1.0", "z - 1.0"),
    "a mask": lambda s: s.replace("z + 1.0, mask=offs < n", "z + 1.0"),
    "a dtype in one arm": lambda s: s.replace("tl.float32", "tl.float16"),
    "the arms the other way": lambda s: s.replace("MODE == 0", "MODE != 0"),
    "a conversion more": lambda s: s.replace("z = y * 2.0", "z = (y * 2.0).to(tl.float16)"),
    "the order of parameters": lambda s: s.replace("x_ptr, y_ptr, n", "y_ptr, x_ptr, n"),
    "a default": lambda s: s.replace("BLOCK: tl.constexpr)", "BLOCK: tl.constexpr = 64)"),
    "what is read when": lambda s: s.replace("    z = y * 2.0\n", "    tl.store(x_ptr + offs, y)\n    z = tl.load(x_ptr + offs) * 2.0\n"),
}


ORDERED = """kir 1
program p
  in x: i32[64, 64]
  in y: i32[64, 64]
  out z: i32[64, 64]
kernel k grid ({c}: 64, {d}: 64) threads 32
  let {a} = x[{c}, {d}]
  let {b} = y[{c}, {d}]
  z[{c}, ({c} * 5 + {d}) % 64] = {a} * 3 + {b} * {factor} + {a} * {b}
"""
NAMES = {"a": "m", "b": "n", "c": "e", "d": "f"}


@pytest.mark.parametrize("swapped", ["ab", "cd", "abcd"])
def test_what_values_and_axes_are_called_gives_no_order(swapped: str) -> None:
    """The terms of a sum of integers stand in the order of their texts, in which their names are."""
    names = NAMES | dict(zip(swapped, reversed([NAMES[x] for x in swapped]), strict=True))
    plain, other = (parse_program(ORDERED.format(**each, factor=7)) for each in (NAMES, names))
    assert alpha_equal(plain, other) and same_program(plain, other)
    assert not same_program(plain, parse_program(ORDERED.format(**names, factor=3)))


def test_values_that_do_not_depend_on_one_another_have_no_order() -> None:
    first, second = "  let {a} = x[{c}, {d}]\n", "  let {b} = y[{c}, {d}]\n"
    turned = ORDERED.replace(first + second, second + first)
    assert turned != ORDERED and same_program(*(parse_program(text.format(**NAMES | {"a": a}, factor=7)) for text, a in ((ORDERED, "m"), (turned, "o"))))


@pytest.mark.parametrize("what", SAME)
def test_the_same_program(tmp_path: Path, what: str) -> None:
    changed = SAME[what](SOURCE)
    assert changed != SOURCE and same_program(read(tmp_path, SOURCE), read(tmp_path, changed))


@pytest.mark.parametrize("what", OTHER)
def test_another_program(tmp_path: Path, what: str) -> None:
    changed = OTHER[what](SOURCE)
    assert changed != SOURCE and not same_program(read(tmp_path, SOURCE), read(tmp_path, changed))


def test_a_read_does_not_move_past_a_write(tmp_path: Path) -> None:
    early = HEAD + "def kernel(x_ptr, y_ptr):\n    v = tl.load(x_ptr)\n    tl.store(x_ptr, 1.0)\n    tl.store(y_ptr, v)\n"
    late = HEAD + "def kernel(x_ptr, y_ptr):\n    tl.store(x_ptr, 1.0)\n    v = tl.load(x_ptr)\n    tl.store(y_ptr, v)\n"
    assert not same_program(read(tmp_path, early), read(tmp_path, late))


def test_a_condition_under_one_that_decides_a_part_of_it() -> None:
    text = ("kir 1\nprogram p\n  meta a: bool\n  meta b: bool\n  out z: i32[64]\nkernel k grid (i: 64) threads 32\n"
            "  static if a\n    for j in 0..{n} serial\n      static if {cond}\n        z[i] = 1\n")
    one = parse_program(text.format(cond="b", n=3))
    assert same_program(one, parse_program(text.format(cond="a & b", n="select(a, 3, 5)")))
    assert not same_program(one, parse_program(text.format(cond="a & b", n=5)))
    assert not same_program(one, parse_program(text.format(cond="a | b", n=3)))


FORMS = """kir 1
program p
  meta c: bool
  meta w: int
  in x: f32[64]
  out z: f32[8, 64]
kernel k grid (i: 8) threads 32
  register part: f32[4]
{fill}
  z[i, 0 +: 64] = {value}
  z[i, 0] = part[1]
"""


@pytest.mark.parametrize(("one", "same", "other"), [
    ({"fill": "  part[0 +: w] = 0.0"}, {"fill": "  for j in 0..w vectorize\n    part[j] = 0.0"}, {"fill": "  for j in 0..w vectorize\n    part[0] = 0.0"}),
    ({"value": "x[0 +: 64]"}, {"value": "select(c, x[0 +: 64], x[0 +: 64])"}, {"value": "select(c, x[0 +: 64], 2.0 * x[0 +: 64])"}),
    ({"value": "broadcast(x[cast(i * 7, i64)], 64)"}, {"value": "broadcast(x[i * 7], 64)"}, {"value": "broadcast(x[cast(i, i64) * 7:i64], 64)"}),
    ({"value": "cast(nan, f16)"}, {"value": "nan:f16"}, {"value": "inf:f16"}),
    *[tuple({"value": f"reduce(reduce(broadcast({e}, 2, 2, 64), axis=0, op=max), axis=0, op=max)"} for e in (
        "x[0 +: 64]", "expand(expand(x[0 +: 64], axis=0), axis=1)", "expand(expand(x[0 +: 64] * 2.0, axis=0), axis=0)"))],
], ids=["a run of one value", "a choice of what is alike", "a place has no width", "not a number", "leading axes"])
def test_forms_that_say_the_same(one: dict[str, str], same: dict[str, str], other: dict[str, str]) -> None:
    def made(given: dict[str, str]) -> Program:
        return parse_program(FORMS.format(**{"fill": "  part = 0.0", "value": "x[0 +: 64]"} | given))
    assert same_program(made(one), made(same))
    assert not same_program(made(one), made(other))


EDGES = """kir 1
program p
  in A: f32[n]
  inout B: f32[n]
  size n: i32
kernel main grid (b: 4) threads 32
  for t in 0..32 parallel thread
    B[b * 32 + t]STORED
"""


def test_the_second_may_keep_to_the_edges_of_a_tensor_and_not_the_first() -> None:
    def made(value: str, end: str) -> Program:
        return parse_program(EDGES.replace("STORED", f" = {value}{end}"))

    loose, kept = made("A[b * 32 + t]", ""), made("load(A[b * 32 + t] else 0.0 clip)", " clip")
    assert same_program(loose, kept) and not same_program(kept, loose)
    assert not same_program(loose, made("load(A[b * 32 + t] else 1.0 clip)", " clip"))
    assert not same_program(loose, made("load(A[b * 32 + t + 1] else 0.0 clip)", " clip"))
    assert not same_program(made("load(A[b * 32 + t] cache cg)", ""), made("load(A[b * 32 + t] else 0.0 clip cache cg)", " clip"))
