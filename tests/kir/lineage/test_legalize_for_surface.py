"""Programs brought into a surface's words: what is undone, in which steps, and that nothing else is."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.surfaces import emitting
from kir.analysis import normalize
from kir.base.diagnostic import Diagnostic, KirError
from kir.faces.cli._main import run as kir
from kir.ir import nodes as n
from kir.ir.measures.measure import measure
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.lineage import legalize_for_surface
from kir.lineage.legalize_for_surface import brought
from kir.rewrite import Pass, Site, Trace, apply
from kir.rewrite.driver import Applied
from kir.rewrite.pipelines.text import Direction
from kir.surface import backend
from kir.surface.reading import load_expert

STAGED = """kir 1
program gemm
  size M: i32
  size N: i32
  size K: i32
  in A: f16[M, K]
  in B: f16[K, N]
  out C: f32[M, N]
  fact M <= 1048576
  fact N <= 1048576
  fact K <= 1048576
kernel main grid (m: ceildiv(M, 64), n: ceildiv(N, 64)) threads 128
  shared As: f16[64, 32]
  fragment acc: f32[64, 64] = 0.0
  @k_loop for k in 0..ceildiv(K, 32)
    @load_A copy load(A[m * 64 +: 64, k * 32 +: 32] else 0.0:f16 clip) -> As
    @dot mma acc += As * load(B[k * 32 +: 32, n * 64 +: 64] else 0.0:f16 clip)
  @store_C C[m * 64 +: 64, n * 64 +: 64] = acc clip
"""


def test_what_a_surface_decides_itself_is_undone_and_nothing_else() -> None:
    p, triton = normalize(parse_program(STAGED, "p.kir")), backend("triton")
    assert triton.accepts(p)
    done, notes = brought(Trace(p), triton)
    assert [s.record.step.name for s in done.steps] == ["stage-shared"] and not triton.accepts(done.program)
    assert [d.id for d in notes] == ["KIR-B307"] and "stage-shared" in notes[0].message and notes[0].severity == "warning"


def test_what_no_pass_takes_back_is_refused_with_the_first_reasons() -> None:
    text = """kir 1
program p
  size N: i32
  in X: f32[N, 64]
  out Y: f32[N, 64]
kernel main grid (row: N) threads 128
  let s = sort(X[row, 0 +: 64], axis=0)
  Y[row, 0 +: 64] = s
"""
    with pytest.raises(KirError) as refused:
        brought(Trace(normalize(parse_program(text, "p.kir"))), backend("tilelang"))
    first, *_, last = refused.value.diagnostics
    assert first.id == "KIR-B306" and last.id == "KIR-B308"
    assert "1 at first, 1 at least" in last.message and first.message in last.witness[0] and "--emit cuda" in last.attempt


def test_the_search_ends_where_steps_help_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of which much can be undone, one thing not: what is left is said, after a bounded number of steps."""
    rows = "".join(f"  fragment f{i}: f32[64] = X[row, 0 +: 64] * {i}.5\n  Y[row, {64 * i} +: 64] = f{i}\n" for i in range(16))
    text = f"""kir 1
program p
  size N: i32
  in X: f32[N, 64]
  out Y: f32[N, 1984]
kernel main grid (row: N) threads 128
  shared part: f32[64]
  part[0 +: 32] = X[row, 0 +: 32]
  part[32 +: 32] = X[row, 32 +: 32]
{rows}  Y[row, 1920 +: 64] = part
"""
    taken: list[str] = []

    def counted(program: n.Program, item: Pass, site: Site, direction: Direction) -> Applied:
        taken.append(item.name)
        return apply(program, item, site, direction)
    monkeypatch.setattr(legalize_for_surface, "apply", counted)
    with pytest.raises(KirError) as refused:
        brought(Trace(normalize(parse_program(text, "p.kir"))), backend("triton"))
    assert "'part'" in refused.value.diagnostics[-1].witness[0]
    assert 5 < len(taken) <= legalize_for_surface.MOST_LEVEL + 10


def _long(count: int) -> n.Program:
    """A kernel with as many places where something can be undone, and a vote that no pass undoes."""
    lines = "".join(f"    let a{i} = X[row, {i} * 64 + t] * 2.0\n    Y[row, {i} * 64 + t] = a{i} + exp(a{i})\n" for i in range(count))
    text = f"""kir 1
program p
  size N: i32
  in X: f32[N, {64 * count}]
  out Y: f32[N, {64 * count}]
kernel main grid (row: N) threads 64
  shared part: f32[64]
  for t in 0..64 parallel thread
    part[t] = X[row, t]
    barrier()
    let votes = ballot(part[(t * 7 + 5) % 64] > 0.0)
    Y[row, t] = cast(votes, f32)
{lines}"""
    return normalize(parse_program(text, "p.kir"))


def test_a_long_program_is_refused_after_few_looks_unless_more_are_asked_for() -> None:
    """How far the search goes follows from the size of the program, not from the time that it takes."""
    triton, short, long = backend("triton"), _long(1), _long(120)
    ended: dict[str, Diagnostic] = {}
    for name, program, steps in (("short", short, None), ("long", long, None), ("asked", short, 2)):
        with pytest.raises(KirError) as refused:
            brought(Trace(program), triton, steps)
        ended[name] = refused.value.diagnostics[-1]
    assert "--max-undo" in ended["long"].attempt and "of this size" in ended["long"].message
    for name in ("short", "asked"):
        assert "--max-undo" not in ended[name].attempt and "of this size" not in ended[name].message
    looks = [measure(program).statements * measure(program).nodes for program in (short, long)]
    assert looks[0] * legalize_for_surface.MOST_LEVEL < legalize_for_surface.MOST_WORK < 2 * looks[1]


def test_where_far_more_is_refused_than_steps_can_be_paid_for_one_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    skills = Path(__file__).parents[3] / "skills"
    gemm = load_expert(str(skills / "experts/gemm/tilelang.py::gemm_pipelined"), skills / "bindings/tilelang_gemm.toml").program
    done, notes = brought(Trace(normalize(gemm)), backend("triton"))
    assert len(notes) > 1 and not backend("triton").accepts(done.program)
    monkeypatch.setattr(legalize_for_surface, "MOST_REFUSED", 0)
    with pytest.raises(KirError) as refused:
        brought(Trace(normalize(gemm)), backend("triton"))
    assert "--max-undo" in refused.value.diagnostics[-1].attempt
    assert not backend("triton").accepts(brought(Trace(normalize(gemm)), backend("triton"), 10)[0].program)


def test_passes_that_make_tiles_of_threads_say_what_hinders_them() -> None:
    text = """kir 1
program p
  size N: i32
  in X: f32[N, 64]
  out Y: f32[N, 64]
kernel main grid (row: N) threads 64
  for t in 0..64 parallel thread
    let v = X[row, t]
    let w = ballot(v > 0.0)
    Y[row, t] = v + cast(w, f32)
"""
    with pytest.raises(KirError) as refused:
        brought(Trace(normalize(parse_program(text, "p.kir"))), backend("triton"))
    said = refused.value.diagnostics[-1].witness
    assert any("is no ~lower-tiles: " in line for line in said)
    assert any("is no ~element-per-thread: 'ballot' has no form for all threads at once" in line for line in said)


def test_how_many_steps_are_undone_is_an_option_of_emitting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.kir").write_text(STAGED)
    assert kir(["opt", str(tmp_path / "p.kir"), "--emit", "triton", "--max-undo", "1"]) == 0
    assert kir(["opt", str(tmp_path / "p.kir"), "--emit", "triton", "--max-undo", "0"]) == 1
    assert "KIR-B308" in capsys.readouterr().err
    assert kir(["opt", str(tmp_path / "p.kir"), "--max-undo", "1"]) == 2
    assert "--max-undo needs --emit" in capsys.readouterr().err


def test_the_command_writes_it_and_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.kir").write_text(STAGED)
    assert kir(["opt", str(tmp_path / "p.kir"), "--emit", "triton", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert "tl.dot" in value["text"] and value["pipeline"].startswith("~stage-shared")
    assert kir(["opt", str(tmp_path / "p.kir"), "-p", value["pipeline"], "--emit", "triton", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == value["text"], "the pipeline that is printed gives the same without being asked"


@pytest.mark.parametrize("name", ["TileLang"])
@pytest.mark.parametrize("problem", ["gemm", "softmax", "rmsnorm"])
def test_the_table_of_experts_and_surfaces_is_what_the_backends_say(problem: str, name: str) -> None:
    rows = [each for each in emitting.EXPERTS if each[:2] == (problem, name)]
    page = emitting.PAGE.read_text(encoding="utf-8")
    assert rows and all(emitting.row(*each) in page for each in rows)
    listed = [line for line in page.splitlines() if line.startswith("| ") and "---" not in line][1:]
    assert len(listed) == len(emitting.EXPERTS)


LOOKED = """
import sys, time
from kir.base import fork_map
from kir.lineage import candidates
from kir.base.diagnostic import KirError
from kir.ir.parser import parse_program
from kir.lineage.legalize_for_surface import brought
from kir.rewrite import Trace
from kir.surface import backend
text = sys.stdin.read()
def looked(two):
    whole, here = [], []
    def halved(items, work):
        def counted(item):
            time.sleep(0 if here else 0.3)
            here.append(item)
            return work(item)
        whole.extend(items)
        return fork_map.halved(items, counted)
    fork_map.may_be_copied, candidates.halved = (lambda: two), halved
    try:
        done, notes = brought(Trace(parse_program(text)), backend("{surface}"))
        print([s.record.step.name for s in done.steps], [d.message for d in notes])
    except KirError as refused:
        print(refused)
    print(0 < len(here) < len(whole) if two else 0 < len(here) == len(whole), file=sys.stderr)
looked(False)
print("---")
looked(True)
"""


@pytest.mark.parametrize(("text", "surface"), [
    (STAGED, "triton"), (program_text(_long(3)), "triton"), (Path("skills/experts/gemm/gemm_sm80_lanes.kir").read_text(), "tilelang")],
    ids=["staged", "refused", "lanes"])
def test_two_processes_find_what_one_does(text: str, surface: str) -> None:
    """Also that the copy's part comes back: if it did not, all would be done again here, and nothing but the time would tell."""
    done = subprocess.run([sys.executable, "-c", LOOKED.format(surface=surface)], input=text, capture_output=True, text=True, check=True)
    one, two = done.stdout.split("---\n")
    assert one == two and done.stderr.splitlines()[-2:] == ["True", "True"]
