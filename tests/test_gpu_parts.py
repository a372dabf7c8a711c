"""What the GPU measurements do without a GPU: parts dealt in shares and put together again, two runs compared."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu_parts.again import compared, written
from benchmarks.gpu_parts.dealing import shares, together
from benchmarks.gpu_parts.joined import joined
from benchmarks.gpu_parts.suite import summed
from kir.hardware import machine


def test_a_word_names_a_part_and_its_shares() -> None:
    assert [shares(word) for word in ("honest", "honest/3", "honest:zoo/2", "honest/0")] == [
        ("honest", 1), ("honest", 3), ("honest:zoo", 2), ("honest/0", 1)]


def test_shares_are_put_together_in_the_order_of_the_whole_part(tmp_path: Path) -> None:
    for i, rows in enumerate(([0, 3, 6], [1, 4], [2, 5])):
        (tmp_path / f"gpu-honest-share-{i}.md").write_text("# Honest\n\nMade by ..\n\n| n |\n| --- |\n" + "".join(f"| {n} |\n" for n in rows))
        (tmp_path / f"gpu-honest-share-{i}.jsonl").write_text(f'{{"share": {i}}}\n')
    together("honest", 3, tmp_path)
    assert (tmp_path / "gpu-honest.md").read_text().split("| --- |\n")[1] == "".join(f"| {n} |\n" for n in range(7))
    assert (tmp_path / "gpu-honest.jsonl").read_text().count("share") == 3 and not list(tmp_path.glob("*share-*"))


def test_tests_on_a_device_are_summed_file_by_file_and_what_did_not_pass_is_named() -> None:
    said = """tests/a/test_x.py::test_one[gemm naive] PASSED                [ 10%]
tests/a/test_x.py::test_one[softmax: two words] FAILED            [ 20%]
tests/b/test_y.py::test_two PASSED                                [ 30%]
FAILED tests/a/test_x.py::test_one[softmax: two words] - AssertionError: no
"""
    assert summed(said) == [("tests/a/test_x.py", 2, 1, "test_one[softmax: two words]: failed"), ("tests/b/test_y.py", 1, 1, "")]


def test_tables_of_several_calls_are_one_and_later_rows_take_the_place_of_earlier_ones() -> None:
    def table(made: str, *rows: str) -> str:
        return "\n".join(["# T", "", made, "", "| k | v |", "| --- | --- |", *rows, ""])
    one = joined(1, [table("Made by a.", "| x | 1 |", "| y | 2 |"), table("Made by b.", "| y | 3 |", "| z | 4 |")])
    assert one.splitlines()[-3:] == ["| x | 1 |", "| y | 3 |", "| z | 4 |"] and one.index("Made by b.") < one.index("Made by a.")
    assert joined(1, [one, table("Made by c.", "| z | 5 |")]).splitlines()[-1] == "| z | 5 |"
    with pytest.raises(ValueError, match="different parts"):
        joined(1, [one, one.replace("| k |", "| q |")])


def test_two_runs_are_held_against_the_bound_of_their_length(tmp_path: Path) -> None:
    def run(name: str, *medians: float) -> Path:
        rows = [{"at": 0.0, "kernel": "k", "shape": str(i), "median": m, "interval": [m, m], "clocks": {}, "device": "D"} for i, m in enumerate(medians)]
        (tmp_path / name).write_text("\n".join(map(json.dumps, rows)))
        return tmp_path / name
    first, second = run("a.jsonl", 100e-6, 100e-6, 10e-6, 10e-6), run("b.jsonl", 101e-6, 103e-6, 10.4e-6, 10.6e-6)
    assert [row[-1] for row in compared(first, second)] == ["yes", "NO", "yes", "NO"]
    written(first, second, tmp_path)
    assert "a.jsonl b.jsonl" in (tmp_path / "gpu-again.md").read_text()


@pytest.mark.skipif(bool(machine.gpus()), reason="this machine has a device")
def test_without_a_device_it_is_said_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks.gpu", "--out", str(tmp_path), "panel"], capture_output=True, text=True, check=False,
                          cwd=Path(__file__).parents[1])
    assert done.returncode == 1 and "KIR-G004" in done.stderr.splitlines()[0] and "Traceback" not in done.stderr
