"""`kir corpus`: what is found, that one bad file stops nothing, and that what is unchanged is not read again."""
from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kir.base.diagnostic import KirError
from kir.faces.cli._main import run as run_cli
from kir.learning.corpus import counted, files_of, place
from kir.learning.corpus.roundtrip.one import examine
from kir.learning.corpus.roundtrip.run import run

HEAD = "import triton\nimport triton.language as tl\n\n"
GOOD = HEAD + '''
from helpers import twice

@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(y_ptr + offs, twice(x), mask=offs < n)
'''
HELPERS = HEAD + '''
@triton.jit
def twice(x):
    return x + x
'''
OPAQUE = HEAD + '''
@triton.jit
def odd(x_ptr, n):
    v = tl.no_such_function(tl.load(x_ptr))
    tl.store(x_ptr, v)
'''
RECURSIVE = HEAD + '''
@triton.jit
def again(x):
    return again(x)

@triton.jit
def calls(x_ptr):
    tl.store(x_ptr, again(tl.load(x_ptr)))
'''
STAR = "from nowhere import *\n" + HEAD + '''
@triton.jit
def starred(x_ptr):
    tl.store(x_ptr, mystery(tl.load(x_ptr)))
'''
OTHERS = "import cutlass.cute as cute\n\n@cute.jit\ndef not_triton(x):\n    return x\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "corpus"
    made.mkdir()
    for name, text in (("good", GOOD), ("helpers", HELPERS), ("opaque", OPAQUE), ("recursive", RECURSIVE), ("star", STAR), ("others", OTHERS),
                       ("broken", "import triton\n@triton.jit\ndef f(:\n"), ("plain", "x = 1\n")):
        (made / f"{name}.py").write_text(text)
    (made / "latin.py").write_bytes("# café\nimport triton\n@triton.jit\ndef f(x): pass\n".encode("latin-1"))
    (made / "generated.py").write_text("import triton\n@triton.jit\ndef g(x):\n" + "    x = x + 1\n" * 90_000)
    return made


def records(results: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {f"{Path(r['file']).stem}:{r['kernel']}": r for result in results for r in result["records"]}


def test_every_kernel_gets_a_record_whatever_its_file_is_like(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{Path(__file__).parents[4]}")
    cache = tmp_path / "cache"
    files = [path for path, _ in files_of(place(str(folder)))]
    results = list(run(files, 1, cache))
    found = records(results)
    assert {k: r["state"] for k, r in found.items()} == {
        "good:kernel": "equal", "helpers:twice": "equal", "opaque:odd": "parsed", "recursive:again": "parsed", "recursive:calls": "parsed",
        "star:starred": "parsed", "broken:": "unreadable", "latin:": "unreadable", "generated:": "unreadable"}
    assert found["opaque:odd"]["opaque"][0] == {"reason": "there is no meaning for triton.language.no_such_function", "line": 7}
    assert "calls itself" in found["recursive:calls"]["opaque"][0]["reason"]
    assert found["broken:"]["id"] == "KIR-F002" and found["latin:"]["id"] == "KIR-F001" and found["generated:"]["id"] == "KIR-C114"
    assert found["helpers:twice"]["role"] == "helper" and found["good:kernel"]["role"] == "kernel"
    count = counted("corpus", results)
    assert (count.found, count.kernels, count.clean, count.equal, len(count.failed)) == (6, 4, 2, 2, 3)
    assert count.different == 0 and count.files >= 4

    # Nothing changed: nothing is read. A helper changed: its file and the one that calls it are.
    assert not any(result["fresh"] for result in run(files, 1, cache))
    (folder / "helpers.py").write_text(HELPERS.replace("x + x", "x * 2"))
    again = list(run(files, 1, cache))
    assert {Path(result["file"]).stem for result in again if result["fresh"]} == {"helpers", "good"}
    assert records(again)["good:kernel"]["hash"] != found["good:kernel"]["hash"]


@pytest.mark.parametrize("launched", [True, False])
def test_a_kernel_whose_extents_only_a_launch_decides_is_read_under_it(tmp_path: Path, launched: bool) -> None:
    """Without a launch in the package a statement of it is kept as text, and nothing is wrong with the rest."""
    launch = "\n\ndef run(x, y, n):\n    halves[(n,)](x, y, D=8, LOG=3)\n" if launched else ""
    (tmp_path / "k.py").write_text(HEAD + """
@triton.jit
def halves(x_ptr, y_ptr, D: tl.constexpr, LOG: tl.constexpr):
    at = tl.program_id(0) * D + tl.arange(0, D)
    x = tl.load(x_ptr + at)
    for i in tl.static_range(LOG):
        x = tl.reshape(x, (D >> (i + 1), 2, 1 << i))
        a, b = tl.split(tl.permute(x, (0, 2, 1)))
        x = tl.reshape(tl.permute(tl.join(a + b, a - b), (0, 2, 1)), (D,))
    tl.store(y_ptr + at, x)
""" + launch)
    (result,) = run([tmp_path / "k.py"], 1, None)
    (record,) = result["records"]
    assert record["state"] == ("equal" if launched else "parsed"), record
    assert launched or record["opaque"][0]["reason"] == "'x' is a tile whose extents change from round to round"


def test_a_run_that_was_killed_goes_on_where_it_was(folder: Path, tmp_path: Path) -> None:
    files = [path for path, _ in files_of(place(str(folder)))]
    done = list(run(files[:3], 1, tmp_path / "cache"))
    assert all(result["fresh"] for result in done)
    rest = list(run(files, 1, tmp_path / "cache"))
    assert [result["fresh"] for result in rest] == [False] * 3 + [True] * (len(files) - 3)


def test_a_kernel_that_takes_too_long_is_reported_and_the_others_are_read(folder: Path) -> None:
    results = list(run([folder / "good.py", folder / "helpers.py"], 1, None, seconds=0.0))
    assert {r["id"] for result in results for r in result["records"]} == {"KIR-C115"}


def test_the_command_counts_and_is_strict_when_told(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["corpus", str(folder), "--cache", str(tmp_path / "cache"), "-j", "1", "--apart", "o*.py"]
    assert run_cli([*arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    inside, apart = data["packages"]
    assert data["schema"] == "kir.corpus/1" and inside["found"] == 5 and apart["found"] == 1
    assert apart["opaque_reasons"][0]["kernels"] == 1
    assert run_cli([*arguments, "--strict"]) == 1
    assert "kernels found" in capsys.readouterr().out
    assert run_cli([*arguments, "--markdown"]) == 0
    assert "| re-emitted and equal when read back |" in capsys.readouterr().out


def test_every_opaque_reason_says_what_it_would_need() -> None:
    from kir.learning.corpus.roundtrip.count import Count
    from kir.learning.corpus.roundtrip.table import page
    from kir.learning.corpus.roundtrip.unsupported_features import need

    count = Count("made", opaque=Counter({"'k' calls itself": 2, "there is no meaning for triton.language.new": 1}))
    count.example |= {reason: f"a/b.py::{i}" for i, reason in enumerate(count.opaque)}
    assert "| made | 'k' calls itself | 2 | `a/b.py::0` | recursion unrolled under a binding |" in page([count])
    assert need("something that nobody has seen") == ""
    written = (Path(__file__).parents[4] / "docs" / "tables" / "packages.md").read_text(encoding="utf-8")
    reasons = [line.split(" | ")[1] for line in written.partition("## What is opaque")[2].partition("\n## ")[0].splitlines() if line.startswith("| f")]
    assert reasons and [reason for reason in reasons if not need(reason)] == []


def test_a_corpus_that_is_not_there_is_refused() -> None:
    with pytest.raises(KirError, match="KIR-C110"):
        place("no_such_package_at_all")


PACKAGES = [("liger_kernel", 0.9), ("fla", 0.8), ("flag_gems", 0.85)]


@pytest.mark.zoo
@pytest.mark.parametrize(("package", "share"), PACKAGES)
def test_kernels_of_packages_come_back_equal(package: str, share: float) -> None:
    files = [p for p, _ in files_of(place(package)) if "backend" not in str(p.relative_to(place(package).folder)) and b"@triton.jit" in p.read_bytes()]
    count = counted(package, run(files[::25], 1))
    assert count.failed == [] and count.different == 0
    assert count.equal >= share * count.found > 0, count.to_json()


EMPTY = """template <int E>
__global__ void k(float* x) {
  float q[E / 4][4];
  for (int c = 0; c < 4; ++c) q[0][c] = x[threadIdx.x];
  float s = 0.0f;
  for (int c = 0; c < 4; ++c) s += q[0][c];
  x[threadIdx.x] = s;
}
void run(float* x) { k<1><<<1, 32>>>(x); k<8><<<1, 32>>>(x); }
"""


def test_arguments_that_leave_an_array_without_elements_are_refused(tmp_path: Path) -> None:
    """And are no fault of what reads: a guess of arguments may be one that the host never makes."""
    (file := tmp_path / "k.cu").write_text(EMPTY)
    small, large = examine(file, frozenset(), lambda name: None)
    assert (small["kernel"], small["state"], small["id"]) == ("k<E = 1>[32]", "refused", "KIR-F013") and large["state"] == "equal"
