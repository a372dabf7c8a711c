"""Masks of warp operations: every lane that is named and has not left the kernel takes part, or it is a finding at the operation itself.

CUDA C++ Programming Guide (warp vote, match, reduce and shuffle functions, `__syncwarp`): "all non-exited threads named in mask must execute the same
intrinsic with the same mask, or the result is undefined".
"""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kir.faces.cli._main import run as command
from kir.interp import Finding, run
from kir.ir.parser import parse_program

OPERATIONS = {
    "shfl_xor": "let other = shfl_xor(X[t], 1)", "shfl_up": "let other = shfl_up(X[t], 1)", "shfl_down": "let other = shfl_down(X[t], 1)",
    "shfl_idx": "let other = shfl_idx(X[t], 0)", "ballot": "let other = ballot(X[t] > 1.0)", "vote_any": "let other = vote_any(X[t] > 1.0)",
    "vote_all": "let other = vote_all(X[t] > 1.0)", "match_any": "let other = match_any(t)", "warp_reduce": "let other = warp_reduce(t, op=max)",
    "warp_sync": "warp_sync()"}
PLACES = {
    "half of the lanes": ["if t % 32 < 16", "  OP"],
    "the other half": ["if t % 32 < 16", "  Y[t] = 0.0", "else", "  OP"],
    "a tail": ["if t < 50", "  OP"],
    "one lane": ["if t % 32 == 0", "  OP"],
    "a loop with other trips": ["for i in 0..1 + t % 2", "  OP"],
    "a loop that some leave": ["for i in 0..3", "  if i == 1 & t % 32 > 5", "    break", "  OP"],
    "a turn that some skip": ["for i in 0..3", "  if i == 1 & t % 32 > 5", "    continue", "  OP"],
    "a loop while": ["register n: i32 = t % 3", "while n > 0", "  OP", "  n = n - 1"],
    "a branch in a branch": ["if t < 32", "  if t % 32 < 20", "    OP"],
    "twice on one side": ["if t % 32 < 16", "  warp_sync()", "  OP", "else", "  warp_sync()"]}
RIGHT = {
    "all lanes": ["OP"],
    "whole warps": ["if t < 32", "  OP"],
    "a last warp of few lanes": ["OP"],
    "lanes that have left": ["if t % 32 >= 20", "  return", "OP"],
    "a loop with as many trips": ["for i in 0..1 + t // 32", "  OP"],
    "after a branch": ["if t % 32 < 16", "  Y[t] = 0.0", "OP"],
    "both sides": ["if t % 32 < 16", "  OP", "else", "  OP"],
    "three sides": ["if t % 32 < 4", "  OP", "else", "  if t % 32 < 9", "    OP", "  else", "    OP"],
    "both sides in loops": ["if t % 32 < 16", "  for i in 0..3", "    OP", "else", "  register n: i32 = 3", "  while n > 0", "    OP", "    n = n - 1"]}


def written(lines: list[str], operation: str, threads: int = 64) -> str:
    """A program with an operation in place of each OP, its names told apart."""
    body = []
    for k, line in enumerate(lines):
        body.append(line.replace("OP", operation.replace("other", f"other_{k}")))
    text = "".join(f"    {line}\n" for line in [*body, "Y[t] = X[t]"])
    return f"kir 1\nprogram p\n  in X: f32[64]\n  inout Y: f32[64]\nkernel main grid (b: 1) threads {threads}\n  for t in 0..{threads} parallel thread\n{text}"


def errors(text: str) -> list[Finding]:
    arrays = {"X": np.arange(64, dtype=np.float32), "Y": np.zeros(64, np.float32)}
    return [f for f in run(parse_program(text, "p.kir"), arrays, mode="check").findings if f.severity == "error"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_lane_that_is_named_and_stays_away_is_found_at_the_operation(operation: str, place: str) -> None:
    text = written(PLACES[place], OPERATIONS[operation])
    found = [f for f in errors(text) if f.id == "KIR-I019"]
    assert found, place
    line = 7 + next(k for k, x in enumerate(PLACES[place]) if "OP" in x)
    assert {f.accesses[0].origin.line for f in found if f.accesses[0].origin is not None} == {line}


@pytest.mark.parametrize("place", RIGHT)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_where_all_named_lanes_come_nothing_is_found(operation: str, place: str) -> None:
    threads = 40 if place == "a last warp of few lanes" else 64
    assert [(f.id, f.message) for f in errors(written(RIGHT[place], OPERATIONS[operation], threads))] == []


def test_a_mask_names_just_the_lanes_that_come() -> None:
    half = ["if t % 32 < 16", "  OP"]
    for operation in ("shfl_xor(X[t], 1, mask=65535)", "ballot(X[t] > 1.0, mask=65535)", "warp_reduce(t, op=max, mask=65535)"):
        assert not errors(written(half, f"let other = {operation}"))
        found = errors(written(half, f"let other = {operation}".replace("65535", "131071")))
        assert [f.id for f in found] == ["KIR-I019"] and "lane 16 is named" in found[0].message
    other = ["if t % 32 < 16", "  let a = shfl_xor(X[t], 1, mask=65535)", "else", "  let c = shfl_xor(X[t], 1, mask=4294901760)"]
    assert not errors(written(other, ""))


def test_other_operations_or_masks_on_both_sides_do_not_meet() -> None:
    for second in ("shfl_up(X[t], 1)", "shfl_xor(X[t], 1, mask=4294967294)", "shfl_xor(t, 1)"):
        found = errors(written(["if t % 32 < 16", "  let a = shfl_xor(X[t], 1)", "else", f"  let c = {second}"], ""))
        assert {f.id for f in found} >= {"KIR-I019"}, second


def test_lanes_that_meet_from_two_branches_exchange_their_values() -> None:
    text = written(["register v: f32", "if t % 32 < 16", "  let a = shfl_xor(X[t], 16)", "  v = a", "else",
                    "  let c = shfl_xor(X[t] * 2.0, 16)", "  v = c"], "")
    text = text.replace("    Y[t] = X[t]\n", "    Y[t] = v\n")
    x, t = np.arange(64, dtype=np.float32), np.arange(64)
    for mode in ("check", "fast"):
        out = run(parse_program(text), {"X": x, "Y": np.zeros(64, np.float32)}, mode=mode)
        assert not out.findings
        np.testing.assert_array_equal(out.outputs["Y"], np.where(t % 32 < 16, 2 * x[t ^ 16], x[t ^ 16]))


def test_memory_is_ordered_by_a_warp_sync_that_two_branches_hold() -> None:
    lines = ["if t % 32 < 16", "  s[t] = X[t]", "  warp_sync()", "  Y[t] = s[t ^ 16]", "else", "  s[t] = X[t]", "  warp_sync()", "  Y[t] = s[t ^ 16]"]
    text = written(lines, "").replace("  for t", "  shared s: f32[64]\n  for t").replace("    Y[t] = X[t]\n", "")
    assert not errors(text)
    assert "KIR-I014" in {f.id for f in errors(text.replace("  warp_sync()\n", "  Y[t] = 0.0\n"))}


def test_lanes_wait_in_a_branch_and_synchronize_after_it() -> None:
    text = """kir 1
program p
  in X: f32[64]
  inout Y: f32[64]
kernel main grid (b: 1) threads 64
  shared bar: mbarrier
  mbar_init(&bar, 1)
  fence_mbar_init()
  for t in 0..64 parallel thread
    if t == 33
      mbar_arrive(&bar)
    if t == 0
      mbar_wait(&bar, 0)
    warp_sync()
    Y[t] = X[t]
"""
    assert not errors(text)
    assert {f.id for f in errors(text.replace("    warp_sync()", "    if t % 32 != 7\n      warp_sync()"))} == {"KIR-I019"}


CUDA = """__device__ float pair(float v) {
  float w = v * 2.f;
  w += __shfl_xor_sync(0xffffffffu, v, 1);
  return w;
}
template <int W> __device__ float ladder(float v) {
  for (int o = W / 2; o > 0; o >>= 1)
    v +=
      __shfl_down_sync(0xffffffffu, v, o);
  return v;
}
__global__ void k(const float* X, float* Y) {
  int t = threadIdx.x;
  auto vote = [&](float a) {
    return __any_sync(0xffffffffu, a > 0.f);
  };
  float v = X[t];
BODY
  Y[t] = v;
}
"""
BINDING = """kernel = "k"
grid = [1]
[metas]
threads_x = 64
[tensors.X]
shape = [64]
dtype = "f32"
[tensors.Y]
shape = [64]
dtype = "f32"
"""
BODIES = {
    "a device function": (["  if (t % 32 < 16) {", "    v = pair(v);", "  }"], 3, 19),
    "a device template in a device function's loop": (["  if (t < 20) v = ladder<32>(v);"], 9, 18),
    "a lambda": (["  if (t % 2) v += vote(v);"], 15, 18),
    "a branch without braces": (["  if (t % 2)", "    __syncwarp();"], 19, 0),
    "a value of a choice": (["  v = t < 8", "    ? __shfl_sync(0xffffffffu, v, 0)", "    : 0.f;"], 19, 0),
    "the right side of an and": (["  if (t < 8 &&", "      __all_sync(0xffffffffu, v > 0.f))", "    v = 0.f;"], 19, 0),
    "a reduction": (["  if (t < 40)", "    v += __reduce_add_sync(0xffffffffu, t);"], 19, 0),
    "a match": (["  if (t < 40) {", "    v += __match_any_sync(0xffffffffu, t);", "  }"], 19, 0),
    "a ballot in a loop that lanes leave": ([
        "  for (int i = 0; i < 4; ++i) {", "    if (i > t) break;", "    v += __ballot_sync(0xffffffffu, 1);", "  }"], 20, 0)}


def checked(tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: list[str]) -> tuple[int, str]:
    source, binding = tmp_path / "k.cu", tmp_path / "k.toml"
    source.write_text(CUDA.replace("BODY", "\n".join(lines)))
    binding.write_text(BINDING)
    code = command(["run", str(source), "--bind", str(binding), "--check"])
    return code, capsys.readouterr().err


@pytest.mark.parametrize("name", BODIES)
def test_the_line_is_the_operation_s_own(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    lines, line, called = BODIES[name]
    code, said = checked(tmp_path, capsys, lines)
    first = said[said.index("error[KIR-I019]"):].splitlines()
    assert code == 1 and f"k.cu:{line}:" in first[1], said
    assert (f"called at {tmp_path}/k.cu:{called}" in said) == bool(called), said


@pytest.mark.parametrize("lines", [
    ["  v = pair(v);", "  if (vote(v)) v = ladder<32>(v);"], ["  Y[t] = v;", "  if (t >= 50) return;", "  v = pair(v);"], ["  if (t < 32) v = ladder<32>(v);"],
    ["  if (t % 32 < 16) v += __shfl_xor_sync(0xffffu, v, 1);"], ["  if (t % 2) v = pair(v); else v = pair(v + 1.f);"]])
def test_right_kernels_are_not_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: list[str]) -> None:
    code, said = checked(tmp_path, capsys, lines)
    assert "KIR-I019" not in said and code == 0, said


GROUPS = """#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void k(const float* X, float* Y) {
  int t = threadIdx.x;
  auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  __shared__ float s[64];
  float v = X[t];
  v += tile.shfl_xor(v, 1);
  if (t % 32 < HALF) {
    v += tile.shfl_xor(v, 8);
    s[t] = v;
    tile.sync();
    v = s[t ^ 3];
    v = cg::reduce(tile, v, cg::plus<float>());
  }
  if (t % 32 >= 8) v += __shfl_xor_sync(0xffu << (t & 24), v, 1);
  Y[t] = v;
}
"""


def test_lanes_of_a_tile_need_only_their_own_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, binding, written_back = tmp_path / "k.cu", tmp_path / "k.toml", tmp_path / "back.cu"
    binding.write_text(BINDING)
    source.write_text(GROUPS.replace("HALF", "16"))
    assert command(["run", str(source), "--bind", str(binding), "--check"]) == 0
    capsys.readouterr()
    assert command(["parse", str(source), "--bind", str(binding), "--normal"]) == 0
    text = capsys.readouterr().out
    assert "let other = shfl_xor(v, 1, width=16)" in text, "where nothing is conditional, the whole warp comes"
    assert "warp_sync(group=16)" in text and text.count("group=16") == 3 and text.count("group=8") == 1
    program = tmp_path / "k.kir"
    program.write_text(text)
    assert command(["opt", str(program), "-p", "", "--emit", "cuda"]) == 0
    written_back.write_text(capsys.readouterr().out)
    assert "__syncwarp(0xffffu << (threadIdx.x & 16u));" in written_back.read_text()
    assert command(["parse", str(written_back), "--bind", str(binding), "--normal"]) == 0
    again = capsys.readouterr().out
    assert again[again.index("for t"):] == text[text.index("for t"):]


def test_a_tile_of_which_some_lanes_stay_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, binding = tmp_path / "k.cu", tmp_path / "k.toml"
    binding.write_text(BINDING)
    source.write_text(GROUPS.replace("HALF", "12"))
    assert command(["run", str(source), "--bind", str(binding), "--check"]) == 1
    said = capsys.readouterr().err
    assert [f"k.cu:{line}:" in said for line in (10, 12, 14)] == [True] * 3 and "lane 12 is named in the mask of this warp_sync" in said, said


def test_memory_is_ordered_within_a_group_only() -> None:
    lines = ["s[t] = X[t]", "if t % 32 < 32", "  warp_sync(group=16)", "Y[t] = s[t ^ 5]"]
    text = written(lines, "").replace("  for t", "  shared s: f32[64]\n  for t").replace("    Y[t] = X[t]\n", "")
    assert not errors(text)
    assert {f.id for f in errors(text.replace("t ^ 5", "t ^ 16"))} == {"KIR-I014"}


def test_a_lane_of_another_group_gives_nothing() -> None:
    assert not errors(written(["let a = shfl_xor(X[t], 8, group=16)", "Y[t] = a"], "").replace("    Y[t] = X[t]\n", ""))
    assert {f.id for f in errors(written(["let a = shfl_xor(X[t], 16, group=16)", "Y[t] = a"], "").replace("    Y[t] = X[t]\n", ""))} == {"KIR-I012"}
