"""Law 1: printing and parsing are exact inverses, and printing is byte-stable; bad texts give located errors."""
from __future__ import annotations

import math
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.grammar.syntax import quick_tree, syntax_tree
from kir.ir.parser import _Reader, parse_program
from kir.ir.printer import program_text
from kir.ir.rules.verify import verify
from kir.ir.types import F16, F32, I32
from kir.ir.visit import statements
from tests.strategies import literals, programs

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "skills").rglob("*.kir"))


@SLOW
@given(programs(1))
def test_labels_survive_the_text_though_they_are_not_compared(p: n.Program) -> None:
    from kir.ir.paths import paths
    again = parse_program(program_text(p))
    assert [s.label for _, s in paths(again)] == [s.label for _, s in paths(p)]


@pytest.mark.parametrize("file", SHIPPED, ids=lambda f: f.name)
def test_shipped_programs_are_accepted_and_written_as_they_are_printed_or_parse_to_the_same(file: Path) -> None:
    p = parse_program(file.read_text(), str(file))
    assert [d.render() for d in verify(p, specialized=True)] == []
    assert parse_program(program_text(p)) == p


def _whole(text: str) -> n.Program | None:
    """The program of a text that is parsed whole; None for one that is refused."""
    try:
        return _Reader("<text>").file(syntax_tree(text, "<text>"))
    except KirError:
        return None


def _places(p: n.Program) -> list[object]:
    blocks: list[n.Function | n.Kernel] = [*p.functions, *p.kernels]
    return [*((k.name, k.origin) for k in blocks), *((s.label, s.origin) for k in blocks for s in statements(k.body))]


@settings(SLOW, max_examples=25)
@given(programs(), st.data())
def test_a_text_put_together_from_its_lines_is_the_text_with_its_places(p: n.Program, data: st.DataObject) -> None:
    rows = program_text(p).split("\n")
    for at in data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=4)):
        rows[at] += data.draw(st.sampled_from(("  # a word", "# x = 1", "  ", "\n# kernel", "\n      # for", "\n")))
    text = "\n".join(rows)
    assert quick_tree(text) is not None
    again, whole = parse_program(text), _whole(text)
    assert whole is not None and again == whole == p and _places(again) == _places(whole)


def test_a_number_sign_in_quotes_is_no_comment() -> None:
    empty = parse_program("kir 1\nprogram p\nkernel main grid () threads 1\n  pass\n")
    opaque = n.Opaque(surface="triton", text='"a" # b', reason="#", reads=("*",), writes=())
    p = replace(empty, kernels=(replace(empty.kernels[0], body=(opaque,)),))
    text = program_text(p)
    assert quick_tree(text) is not None and parse_program(text) == p
    commented = text.replace("program p", "program p  # of one statement")
    assert quick_tree(commented) is not None and parse_program(commented) == p


@pytest.mark.parametrize("file", SHIPPED[::24], ids=lambda f: f.name)
def test_a_shipped_text_put_together_from_its_lines_has_its_places(file: Path) -> None:
    text = program_text(parse_program(file.read_text()))
    whole = _whole(text)
    assert quick_tree(text) is not None and whole is not None and _places(parse_program(text)) == _places(whole)


@settings(SLOW, max_examples=40)
@given(programs(), st.data())
def test_a_text_with_a_line_moved_or_broken_is_refused_as_the_whole_is(p: n.Program, data: st.DataObject) -> None:
    rows = program_text(p).split("\n")
    at = data.draw(st.integers(0, len(rows) - 1))
    edit = data.draw(st.sampled_from((lambda r: f"  {r}", lambda r: f" {r}", lambda r: r[2:], lambda r: r.replace(" ", "", 1), lambda r: "",
                                      lambda r: f"{r} pass",
                                      lambda r: f"{r}\n{r}", lambda r: "  else", lambda r: r[:len(r) // 2])))
    text = "\n".join((*rows[:at], edit(rows[at]), *rows[at + 1:]))
    try:
        again: n.Program | None = parse_program(text)
    except KirError:
        again = None
    assert again == _whole(text)


@given(st.sampled_from((F16, F32)).flatmap(literals))
def test_every_float_literal_keeps_its_bits(c: n.Const) -> None:
    read = parse_program(program_text(_program_of(c))).kernels[0].body[0]
    assert isinstance(read, n.Let) and isinstance(read.value, n.Const)
    a, b = float(read.value.value), float(c.value)
    assert (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


def _program_of(e: n.Expr) -> n.Program:
    return n.Program("p", kernels=(n.Kernel("main", (), build.const(1), (n.Let(("x",), e),)),))


@pytest.mark.parametrize("name", ["in", "for", "inf", "nan", "true", "clip", "kir", "reads", "nothing", "strides"])
def test_a_name_that_is_a_word_of_the_grammar_is_escaped(name: str) -> None:
    p = n.Program("p", kernels=(n.Kernel(name, (), build.const(1), (n.Let((name,), build.const(1)), n.Let(("y",), n.Var(name, I32)))),))
    text = program_text(p)
    assert f"%{name}" in text
    assert parse_program(text) == p


def test_a_hole_with_reads_and_writes_parses_back() -> None:
    text = ("kir 1\nprogram p\n  inout A: f32[8]\nkernel main grid () threads 1\n"
            '  hole sort contract "c1" reads A[0 +: 4], A[7] writes A {budget=3}\n')
    p = parse_program(text)
    hole = p.kernels[0].body[0]
    assert isinstance(hole, n.Hole) and len(hole.reads) == 2 and len(hole.writes) == 1
    assert program_text(p) == text


def test_hashes_do_not_travel_in_a_pickle() -> None:
    p = _program_of(build.add(build.var("a"), 1))
    hash(p)
    assert "_hash" not in pickle.loads(pickle.dumps(p)).__dict__
    assert pickle.loads(pickle.dumps(p)) == p


HEAD = "kir 1\nprogram p\n  size M: i32\n  in A: f32[M]\n  out C: f32[M]\nkernel main grid (i: M) threads 1\n"
BAD = [
    (HEAD + "  C[i] = A[i] +\n", "KIR-T001", 7),
    (HEAD + "  C[i] = B[i]\n", "KIR-T002", 7),
    (HEAD + "  let x = j + 1\n", "KIR-T002", 7),
    (HEAD + "  let x = 1:i33\n", "KIR-T002", 7),
    (HEAD + "  register x: f33\n", "KIR-T002", 7),
    (HEAD + "  let i = 1\n", "KIR-T003", 7),
    (HEAD + "  let x = 1\n  let x = 2\n", "KIR-T003", 8),
    (HEAD, "KIR-T001", 6),
    (HEAD.replace("kir 1", "kir 99") + "  let x = 1\n", "KIR-T004", 1),
    (HEAD + "  C[i] = A[i] + 1\n", "KIR-V002", 7),
    (HEAD + "  let x = 2147483649\n", "KIR-V003", 7),
    (HEAD + "  let x = 256:u8\n", "KIR-V003", 7),
    (HEAD + "  let x = iota(4) + iota(8)\n", "KIR-V003", 7),
    (HEAD + "  let x = barrier() + 1\n", "KIR-V003", 7),
    (HEAD + "  let x = expp(A[i])\n", "KIR-V001", 7),
    (HEAD + "  let x = exp()\n", "KIR-V003", 7),
    (HEAD + "  let x, y = A[i]\n", "KIR-V003", 7),
    (HEAD + "  let x = 1\n  let y = x[0]\n", "KIR-V003", 8),
    ("", "KIR-T001", 1),
    ("program p\n", "KIR-T001", 1),
    (HEAD + "    let x = 1\n   let y = 2\n", "KIR-T001", 8),
    (HEAD + "  let x = \"\n", "KIR-T001", 7),
    (HEAD + "  let x = exp(A[i], order=1.5:f16)\n", "KIR-T001", 7),
    (HEAD + "  let x = exp(A[i], order=\"\\x\")\n", "KIR-T001", 7),
    (HEAD + "  let x = 1.5:i32\n", "KIR-V003", 7),
    (HEAD + "  let x = 1:mbarrier\n", "KIR-V003", 7),
    (HEAD + "  shared x: f32[8] align 16:i64\n", "KIR-T001", 7),
    (HEAD.replace("in A: f32[M]", "in A: f32[L]") + "  C[i] = A[i]\n", "KIR-T002", 4),
    (HEAD.replace("size M: i32", "size M: i32 = 1.0 + 1"), "KIR-T001", 6),
    (HEAD.replace("size M: i32", "size M: i32 = 1.0 + 1") + "  C[i] = A[i]\n", "KIR-V002", 3),
    (HEAD + "  let x = reduce(iota(4), axis=3, op=sum)\n", "KIR-V003", 7),
]


@pytest.mark.parametrize(("text", "id", "line"), BAD)
def test_bad_text_gives_one_located_error(text: str, id: str, line: int) -> None:
    with pytest.raises(KirError) as raised:
        parse_program(text, "bad.kir")
    (d,) = raised.value.diagnostics
    assert d.id == id
    assert d.origin is not None and d.origin.file == "bad.kir" and d.origin.line == line


@pytest.mark.parametrize(("line", "message", "attempt", "row"), [
    ("  C[i] += A[i]", "unexpected '+='", "x = x + y", 7),
    ("  if A[i] > 0.0 && A[i] < 1.0", "unexpected '&'", "x & y (parentheses around comparisons)", 7),
    ("  C[i] = A[i] > 0.0 ? A[i] : 0.0", "unexpected '?'", "select(condition, x, y)", 7),
    ("  // a comment", "unexpected '//'", "# before a comment", 7),
    ("  shred x: f32[8]", "unexpected 'x:'", "did you mean 'shared'?", 7),
    ("  @loop foreach k in 0..4", "unexpected 'k'", "did you mean 'for'?", 7),
    ("  let x = A[i]\n    C[i] = x", "indented more than the line above", "", 8),
    ("  let x = max(A[i])", "'max' takes 2 values, not 1", "kir explain max", 7),
    ("  let x = select(A[i] > 0.0, A[i])", "'select' takes 3 values, not 2", "kir explain select", 7),
])
def test_what_other_languages_write_is_answered_with_what_the_ir_says(line: str, message: str, attempt: str, row: int) -> None:
    with pytest.raises(KirError) as raised:
        parse_program(HEAD + line + "\n", "bad.kir")
    (d,) = raised.value.diagnostics
    assert message in d.message and d.attempt == attempt and d.origin is not None and d.origin.line == row


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(max_size=60), st.text(alphabet="kir 1programelt\n ()[]{}:=+-*/%&@.\"'0123456789abc", max_size=80)))
def test_no_text_at_all_breaks_the_parser(text: str) -> None:
    for whole in (text, HEAD + "  " + text):
        try:
            parse_program(whole)
        except KirError as bad:
            assert bad.diagnostics[0].origin is not None
