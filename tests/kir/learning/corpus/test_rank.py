"""What is made of recorded bindings: sites ranked by modelled gain, and lineages of many kernels."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kir.base.diagnostic import Diagnostic, KirError
from kir.faces.cli._main import run
from kir.hardware import machine
from kir.hardware.target import target
from kir.ir.binding import Binding
from kir.ir.nodes import Program
from kir.learning.corpus.family import family_of
from kir.learning.corpus.rank import ranked, recorded
from kir.learning.forecast import Forecast, Pair
from kir.learning.forecast.choosing import Counted

KERNEL = '''import triton
import triton.language as tl

@triton.jit
def doubled(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2.0, mask=at < n)
'''
BINDING = '''# {file}::doubled
kernel = "doubled"
grid = [8]
[metas]
BLOCK = 128
[scalars]
n = 1000
[tensors.x_ptr]
shape = [1000]
dtype = "f32"
[tensors.y_ptr]
shape = [1000]
dtype = "f32"
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "doubled.py").write_text(KERNEL)
    made = tmp_path / "bindings"
    made.mkdir()
    (made / "doubled-1.toml").write_text(BINDING.format(file=tmp_path / "doubled.py"))
    (made / "gone-1.toml").write_text(BINDING.format(file=tmp_path / "gone.py"))
    (made / "plain.toml").write_text('kernel = "doubled"\n')
    return made


def test_sites_are_ranked_and_what_cannot_be_read_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = ranked(folder, target("sm_90a"))
    assert [place.rpartition("/")[2] for place, _ in found.skipped] == ["gone.py::doubled"]
    allowed = [s for s in found.suggestions if not s.refused and not s.open_]
    assert allowed and [s.gain for s in allowed] == sorted((s.gain for s in allowed), reverse=True)
    assert any(s.step.startswith("cache-policy") for s in allowed)
    assert run(["sites", str(folder), "--package", "--most", "3"]) == 0
    assert "doubled-1.toml" in capsys.readouterr().out


class _Faster:
    """A forecaster to whom every step is worth the same."""

    name = "faster"

    def __call__(self, pair: Pair) -> Forecast:
        return Forecast((0.0, 1.0), (0.6, 0.8), seconds=(2.0, 1.0))


def test_a_suggestion_that_the_kernels_own_surface_cannot_say_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Best first, down to the first that can be said; a step that is refused when it is carried out counts alike."""
    def said() -> dict[str, tuple[str, ...]]:
        monkeypatch.setattr("kir.learning.corpus.rank.forecaster", lambda name: Counted(_Faster()))
        return {s.step: s.refused for s in ranked(folder, target("sm_90a")).suggestions}

    class Surface:
        """One that refuses what it is asked for first."""

        def __init__(self, mute: int) -> None:
            self.mute = mute

        def accepts(self, program: Program) -> tuple[Diagnostic, ...]:
            self.mute -= 1
            return (Diagnostic("KIR-B006", "no word for it"),) if self.mute >= 0 else ()
    speaks, mute = Surface(0), Surface(1)
    monkeypatch.setattr("kir.learning.corpus.rank.backend", lambda surface: speaks)
    before = [step for step, refused in said().items() if not refused]
    monkeypatch.setattr("kir.learning.corpus.rank.backend", lambda surface: mute)
    told = said()
    assert told[before[0]] == ("KIR-B006",) and [told[step] for step in before[1:]] == [()] * (len(before) - 1)

    def broken(*_: object, **__: object) -> None:
        raise KirError(Diagnostic("KIR-V008", "it leaves its buffer"))
    monkeypatch.setattr("kir.learning.corpus.rank.apply", broken)
    told = said()
    assert all(told[step] == ("KIR-V008",) for step in before)


def test_bindings_may_stand_in_one_file_of_json_lines(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lines = tmp_path / "bindings.jsonl"
    place = f"{tmp_path / 'doubled.py'}::doubled"
    lines.write_text(json.dumps({"kernel": place, "binding": BINDING.partition("\n")[2]}) + "\n")
    for _ in range(2):
        ((found, path),) = recorded(lines)
        assert found == place and path.name == "doubled-1.toml" and path.read_text().startswith(f"# {place}\n# 1 launches\nrecorded = true\nkernel")
    for bad in ("{", '{"kernel": 3}', "[]", ""):
        lines.write_text(bad)
        with pytest.raises(KirError) as refused:
            recorded(lines)
        assert refused.value.diagnostics[0].id == "KIR-C118"


@pytest.mark.zoo
def test_shipped_bindings_of_packages_name_their_kernels() -> None:
    shipped = recorded(Path(__file__).parents[4] / "skills" / "bindings")
    assert len(shipped) >= 35
    for place, path in shipped:
        package, _, inside = place.partition("::")[0].partition(":")
        folder, bound = machine.package_folder(package), Binding.read(path)
        assert bound.kernel == place.partition("::")[2], path
        assert folder is not None and bound.kernel.partition("__")[0] in (folder / inside).read_text(encoding="utf-8"), path


def test_a_family_is_what_the_names_say() -> None:
    assert family_of("liger_kernel:ops/fused_add_rms_norm.py::_kernel") == "norm"
    assert family_of("fla:ops/utils/cumsum.py::chunk_local_cumsum_scalar_kernel") == "scan"
    assert family_of("liger_kernel:ops/utils.py::element_mul_kernel") == "pointwise"  # the file says nothing, the kernel does
    assert family_of("skills/experts/gemm/triton.py::persistent") == "matmul"  # nor does the kernel: the folder does
    assert family_of("summary.py::k") == "other"  # words count whole


def test_a_folder_without_recorded_bindings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KirError, match="KIR-C118"):
        ranked(tmp_path, target("sm_90a"))
    assert run(["corpus", "--lineages", str(tmp_path)]) == 2
    assert run(["corpus"]) == 2


def test_lineages_are_counted_with_what_stopped_the_others(
        folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Child:
        def __enter__(self) -> Child:
            return self

        def __exit__(self, *_: object) -> None: ...

        def ask(self, message: dict[str, Any], seconds: float) -> tuple[dict[str, Any], list[bytearray]]:
            words = " ".join(message["words"])
            said: dict[str, Any] = {"schema": "kir.error/1"}
            if "gone.py" in words:
                said |= {"diagnostics": [{"id": "KIR-S018", "message": "there is no file 'gone'"}]}
            elif "out/recorded/doubled-1/doubled-1.toml" not in words:
                said |= {"diagnostics": [{"id": "KIR-S015", "message": "doubled does not pass the gate: KIR-I010: read of x[9] is outside"}]}
            else:
                said = {"schema": "kir.lineage/1", "ended": "naive", "reason": "N holds", "violations": [], "steps": 4, "realized": 2, "intents": ["tile"]}
            return {"out": json.dumps(said)}, []

    class Server:
        def child(self) -> Child:
            return Child()
    folder = folder.rename(folder.with_name("recorded"))
    monkeypatch.setattr("kir.learning.corpus.lineages._server", Server)
    assert run(["corpus", "--lineages", str(folder), "-o", str(tmp_path / "out"), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["walked"], data["naive"], data["families"]) == (2, 1, 1)
    assert data["stopped"] == [{"reason": "KIR-S018 there is no file '..'", "kernels": 1}] and data["by_family"] == {"other": 1}
    (naive,) = [row for row in data["kernels"] if row["ended"] == "naive"]
    assert (naive["read_as"], naive["steps"], naive["realized"]) == ("flat", 4, 2)
    monkeypatch.setattr("kir.learning.corpus.lineages._server", None)  # what ended naive is known, and what is not known is left when no seconds are given
    (folder / "later-1.toml").write_text((folder / "doubled-1.toml").read_text())
    assert run(["corpus", "--lineages", str(folder), "-o", str(tmp_path / "out"), "--seconds", "0", "--markdown"]) == 0
    shown = capsys.readouterr().out
    assert "**1 kernels of 1 families of operators end in N**" in shown and "1 more recorded kernels were not walked" in shown
    (folder / "third-1.toml").write_text((folder / "doubled-1.toml").read_text())
    for count, said in ((2, "Of 2 that were drawn at random from the 4 recorded ones (seed 26)"), (9, "Of 4 that were drawn")):
        assert run(["corpus", "--lineages", str(folder), "--sample", str(count), "-o", str(tmp_path / "out"), "--seconds", "0", "--markdown"]) == 0
        assert said in capsys.readouterr().out
    assert "doubled.py::doubled` | other | flat | 4 | 2 | tile |" in shown and "| KIR-S018 there is no file '..' | 1 |" in shown


def test_a_page_of_lineages_says_which_of_its_experts_are_other_programs_today(
        folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from kir.learning.corpus.lineage_page import page
    from kir.learning.corpus.lineages import experts_now

    place = f"{tmp_path / 'doubled.py'}::doubled"
    (flat,) = experts_now([(place, "flat")], [folder], tmp_path)[place, "flat"]
    row = {"kernel": place, "family": "copy", "ended": "naive", "reason": "", "read_as": "flat", "steps": 3, "realized": 3, "intents": ["tile"],
           "seconds": 1.0, "expert": flat, "naive": "0" * 16}
    file = tmp_path / "page.md"
    file.write_text(page([row], {"families": 1, "left": 0, "by_family": {"copy": 1}, "stopped": []}, "kir corpus"))
    ask = ["corpus", "--lineages", str(folder), "-o", str(tmp_path / "out"), "--check", str(file)]
    assert run(ask) == 0 and "each is the program that it names" in file.read_text()
    (tmp_path / "doubled.py").write_text(KERNEL.replace("2.0", "3.0"))
    assert run(ask) == 1 and f"| `{place}` | {flat[:8]} |" in file.read_text() and file.read_text().count("## Checked") == 1
    (tmp_path / "doubled.py").write_text("")
    assert run(ask) == 1 and f"| `{place}` | {flat[:8]} | not read |" in file.read_text()
    capsys.readouterr()
    for option in (["--check", str(file)], ["--sample", "3"]):
        assert run(["corpus", "triton", *option]) == 2 and "needs --lineages" in capsys.readouterr().err
    (tmp_path / "bare.md").write_text("# nothing\n")
    assert run([*ask[:-1], str(tmp_path / "bare.md")]) == 2
