"""The commands lineage, replay, diff and skills: what they write, and how they refuse."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import tomli_w

from kir.faces.cli._main import run
from kir.faces.cli.lineages.lineage import _suggestion, _warmed
from kir.faces.cli.rewriting.skills import _none_pays
from kir.ir.parser import parse_program
from kir.learning.cards.brought import Brought
from kir.lineage.judge import CpuJudge
from kir.lineage.records.folder import _parted
from kir.lineage.run import usual_targets
from kir.problem import load_problem
from tests.kir.lineage.paper_judge import SOFTMAX, PaperJudge


@pytest.fixture
def expert(tmp_path: Path) -> Path:
    path = tmp_path / "softmax.kir"
    path.write_text(SOFTMAX)
    return path


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Callable[[PaperJudge], None]:
    def use(judge: PaperJudge) -> None:
        monkeypatch.setattr(CpuJudge, "of", classmethod(lambda cls, header, expert=None: judge))

    use(PaperJudge())
    return use


def walk(expert: Path, folder: Path, *more: str) -> int:
    return run(["lineage", str(expert), "--problem", "softmax", "-o", str(folder), "--target", "sm_80", *more])


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a walk, to be copied."""
    home = tmp_path_factory.mktemp("walked")
    (home / "softmax.kir").write_text(SOFTMAX)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CpuJudge, "of", classmethod(lambda cls, header, expert=None: PaperJudge()))
        assert walk(home / "softmax.kir", home / "out") == 0
    return home / "out"


@pytest.fixture
def lineage(walked: Path, judged: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    capsys.readouterr()
    return Path(shutil.copytree(walked, tmp_path / "out"))


@pytest.fixture
def of_expert(expert: Path, judged: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The folder of this very expert's walk."""
    folder = tmp_path / "out"
    assert walk(expert, folder) == 0
    capsys.readouterr()
    return folder


def told(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_a_kernel_is_walked_back_to_naive(expert: Path, judged: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "out"
    assert walk(expert, folder, "--json") == 0
    value = told(capsys)
    assert value["schema"] == "kir.lineage/1" and value["ended"] == "naive" and value["replay_exact"]
    assert value["steps"] == len(value["transitions"]) >= 4
    for name in ("lineage.json", "report.html", "states/K00.kir"):
        assert (folder / name).is_file()
    assert "parallel" not in (folder / "states" / "K00.kir").read_text()
    assert walk(expert, folder) == 0  # it is all there: the same again tells people where
    shown = "".join(capsys.readouterr().out.split("\n"))
    assert f"the report: {folder / 'report.html'}" in shown and f"as slides: kir explore {folder}" in shown


def test_replay_restores_the_expert(lineage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", str(lineage)]) == 0
    assert "is restored" in capsys.readouterr().out
    assert run(["replay", str(lineage / "lineage.json"), "--json"]) == 0
    assert told(capsys)["ok"]


def test_a_changed_lineage_fails_at_its_step(lineage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = lineage / "lineage.json"
    text = file.read_text()
    file.write_text(text.replace('"residue_bytes": 0', '"residue_bytes": 1', 1))
    assert run(["replay", str(lineage)]) == 1
    shown = capsys.readouterr().err
    assert "KIR-S011" in shown and re.search(r"lineage\.json:\d+:\d+", shown) and "Traceback" not in shown


def test_a_program_that_was_changed_fails(lineage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (lineage / "store").rglob("*.kir"):
        path.write_text(path.read_text().replace("top", "peak"))
    assert run(["replay", str(lineage)]) == 1
    assert "KIR-S002" in capsys.readouterr().err


@pytest.mark.parametrize("number", [1, 3, 5])
def test_a_killed_run_is_taken_up(expert: Path, judged: Any, tmp_path: Path, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    def kill(call: int) -> None:
        if call == number:
            raise KeyboardInterrupt

    whole, part = tmp_path / "whole", tmp_path / "part"
    assert walk(expert, whole) == 0
    judged(PaperJudge(kill))
    assert walk(expert, part) == 130
    assert not (part / "lineage.json").exists()
    assert run(["replay", str(part)]) == 2
    assert ("was not finished" if number > 1 else "no lineage.json") in capsys.readouterr().err  # before its first verdict, nothing is written
    judged(PaperJudge())
    assert walk(expert, part) == 0
    assert (part / "lineage.json").read_text() == (whole / "lineage.json").read_text()


def test_a_folder_of_an_expert_that_has_changed_since_is_refused(expert: Path, of_expert: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expert.write_text(expert.read_text().replace("top", "peak"))
    assert walk(expert, of_expert) == 1
    shown = capsys.readouterr().err
    assert "KIR-S013" in shown and "--restart" in shown


def test_a_stuck_walk_says_what_would_bring_it_further() -> None:
    assert _suggestion({"scalar"}, "softmax") == "passes that take these nodes back"
    assert _suggestion({"scalar", "state"}, "").startswith("passes that take these nodes back; for private arrays also a problem")
    assert _suggestion({"state"}, "") == "passes that take these arrays back, or a problem whose work item has such arrays as its state (--problem)"


def test_another_walk_does_not_spoil_the_folder(expert: Path, of_expert: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (of_expert / "lineage.json").read_text()
    assert walk(expert, of_expert, "--steps", "2") == 1
    assert "KIR-S013" in capsys.readouterr().err
    assert _parted("a = 1\nb = 2\n", "a = 1\nb = 3\n") == ("b = 2", "b = 3") and _parted("", "x") == ("", "x") and _parted(2, 3) == (2, 3)
    assert (of_expert / "lineage.json").read_text() == before
    assert walk(expert, of_expert, "--steps", "2", "--restart", "--json") == 0
    value = told(capsys)
    assert value["ended"] == "budget" and value["steps"] == 2
    assert [each["id"] for each in value["diagnostics"]][:1] == ["KIR-S019"]
    last = value["diagnostics"][0]
    assert last["needs"].startswith("a larger budget (--steps 4 --restart)") and last["attempt"].endswith("states/K00.kir") and last["witness"]
    assert walk(expert, of_expert.with_name("late"), "--seconds", "0.001", "--json") == 0
    value = told(capsys)
    assert value["ended"] == "budget"
    assert value["diagnostics"][0]["needs"] == "more time than 0.001 s: the same command goes on from here, where passes were not tried yet"


def test_without_a_target_those_count_that_have_the_experts_instructions() -> None:
    of = "kir 1\nprogram p\n  out Y: f32[4]\nkernel main grid (i: 4) threads 32\n  shared kept: f32[4] = 0.0\n  {fence}Y[i] = kept[i]\n"
    assert usual_targets(parse_program(of.format(fence=""), "p.kir")) == ("sm_80", "sm_90a")
    assert usual_targets(parse_program(of.format(fence="fence_async()\n  "), "p.kir")) == ("sm_90a",)
    assert usual_targets(parse_program(of.format(fence=""), "p.kir"), "tilelang") == ("sm_90a",)


def test_an_expert_that_fails_the_gate_is_refused(expert: Path, judged: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judged(PaperJudge(refuse=True))
    assert walk(expert, tmp_path / "out") == 1
    shown = capsys.readouterr().err
    assert "KIR-S015" in shown and "Y[0, 0] is wrong" in shown
    assert not (tmp_path / "out" / "lineage.json").exists()


@pytest.mark.parametrize(
    ("words", "code", "shown"),
    [
        (["lineage", "softmx.kir", "-o", "x", "--problem", "softmax"], 2, "did you mean 'softmax.kir'?"),
        (["lineage", "softmax.kir", "-o", "x", "--problem", "softmux"], 2, "did you mean 'softmax'?"),
        (["lineage", "softmax.kir", "-o", "x", "--target", "sm_8"], 2, "KIR-C005"),
        (["lineage", "softmax.kir", "-o", "x", "--on", "gpu"], 1, "KIR-G004"),
        (["gate", "softmax.kir", "--problem", "softmax", "--on", "gpu"], 1, "KIR-G004"),
        (["gate", "softmax.kir", "--problem", "referring"], 1, "KIR-G106"),
        (["gate", "softmax.kir", "--problem", "shapeless"], 1, "KIR-G905"),
        (["lineage", "broken.kir", "-o", "x"], 1, "broken.kir:3:"),
        (["replay", "nowhere"], 2, "there is no lineage.json"),
        (["diff", "softmax.kir"], 2, "--step N"),
        (["diff", "softmax.kir", "gone.kir"], 2, "there is no file gone.kir"),
        (["diff", "softmax.kir", "softmax.kir", "--algebra", "--set", "N=many"], 2, "not NAME=NUMBER"),
    ],
)
def test_bad_input_is_one_located_error(
    expert: Path, words: list[str], code: int, shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(expert.parent)
    (expert.parent / "broken.kir").write_text("kir 1\nprogram x\nkernel main grid (i: ) threads 1\n  pass\n")
    raw = tomllib.loads((load_problem("softmax").folder / "problem.toml").read_text())
    for name, changed in (("referring", {**raw, "references": ["torch.softmax2"]}), ("shapeless", {k: v for k, v in raw.items() if k != "shapes"})):
        shutil.copytree(load_problem("softmax").folder, expert.parent / name, dirs_exist_ok=True)
        (expert.parent / name / "problem.toml").write_text(tomli_w.dumps(changed))
    assert run(words) == code
    captured = capsys.readouterr()
    assert shown in captured.err and "Traceback" not in captured.err and captured.err.count("error[") == 1
    assert not (expert.parent / "x").exists()


def test_diff_shows_a_step(lineage: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["diff", str(lineage), "--step", "1", "--json"]) == 0
    assert told(capsys)["step"] == 1
    assert run(["diff", str(lineage), "--step", "99"]) == 2
    assert "1 to " in capsys.readouterr().err
    states = lineage / "states"
    html = tmp_path / "d.html"
    assert run(["diff", str(states / "K00.kir"), str(states / "K01.kir"), "--html", str(html)]) == 0
    assert html.read_text().startswith("<!doctype html>")


@pytest.fixture
def learned(lineage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library made of the lineage alone; few of its cards can be tried on enough other kernels, and each is tried on few."""
    monkeypatch.setattr("kir.learning.induce.transfers.MOST_TRANSFERS", 3)
    return library(lineage, tmp_path, capsys)


@pytest.fixture
def drafted(lineage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The same cards, not tried on other kernels, which takes most of the time."""
    return library(lineage, tmp_path, capsys, "--no-trials")


def library(lineage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> Path:
    out = tmp_path / "learned"
    assert run(["learn", str(lineage), "-o", str(out), "--json", *more]) == 0
    assert sum(told(capsys)["states"].values()) == 6
    return out / "cards"


def test_a_lineage_is_learned_from_and_its_cards_are_a_library(learned: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    given = ["--library", str(learned)]
    capsys.readouterr()
    assert run(["skills", "list", *given, "--json"]) == 0
    listed = told(capsys)["cards"]
    cards = [card for card in listed if card["file"].startswith(str(learned))]
    cards.sort(key=lambda card: str(card["state"]), reverse=True)
    assert len(cards) >= 4 and cards[0]["state"] == "hypothesis" and {card["state"] for card in cards} <= {"hypothesis", "admitted"}
    assert run(["skills", "show", cards[0]["name"], *given, "--json"]) == 0
    assert set(told(capsys)) >= {"intent", "anchor", "carrier", "preconditions", "effect", "evidence", "risk", "scope", "log"}
    assert run(["skills", "search", "retain-tile", *given, "--json"]) == 0
    assert [each["intent"] for each in told(capsys)["hits"]][:1] == ["retain-tile"]
    hypotheses = [card for card in cards if card["state"] == "hypothesis"]
    assert hypotheses
    for card in hypotheses:
        assert run(["skills", "why", card["name"], *given]) == 0
        told_why = capsys.readouterr().out
        assert "fewer than 3 kernels of another package or family" in told_why or " held-out trials succeeded" in told_why
    assert run(["skills", "show", "retian", *given]) == 2 and run(["skills", "search", *given]) == 2
    assert run(["skills", "export", "-o", str(tmp_path / "all.json"), "--state", "", *given]) == 0
    assert (tmp_path / "all.json").read_text().count('"digest"') == len(listed)
    capsys.readouterr()
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / f"{cards[0]['name']}.md").write_text((learned / f"{cards[0]['name']}.md").read_text().replace('"intent":', '"intnet":', 1))
    assert run(["skills", "show", cards[0]["name"], "--library", str(broken)]) == 1
    assert "did you mean 'intent'?" in capsys.readouterr().err


def test_a_card_applies_to_the_state_it_came_from_and_says_why_not_elsewhere(lineage: Path, drafted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--library", str(drafted)]
    first, second, last = (str(lineage / "states" / name) for name in ("K00.kir", "K01.kir", sorted(p.name for p in (lineage / "states").glob("K*.kir"))[-1]))
    assert run(["skills", "apply", "multi-threaded-block.kernel", first, *given]) == 0
    assert capsys.readouterr().out == Path(second).read_text()
    assert run(["skills", "why", "multi-threaded-block.kernel", first, *given]) == 0
    assert "applies: multi-threaded-block" in capsys.readouterr().out
    assert run(["skills", "why", "multi-threaded-block.kernel", last, *given]) == 1
    assert run(["skills", "apply", "multi-threaded-block.kernel", last, *given]) == 1
    assert "KIR-S025" in capsys.readouterr().err
    assert run(["skills", "search", "--for", first, "--all", "--target", "sm_90a", "--most", "200", *given, "--json"]) == 0
    hits = told(capsys)["hits"]
    assert "multi-threaded-block.kernel" in [hit["name"] for hit in hits if hit["applications"]]
    assert run(["skills", "search", "--for", first, "--all", "--most", "200", "--without", "multi-threaded-block.kernel", *given, "--json"]) == 0
    assert "multi-threaded-block.kernel" not in [hit["name"] for hit in told(capsys)["hits"]]


def test_what_is_found_for_a_kernel_says_what_it_would_bring_there(lineage: Path, drafted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["threads", "--library", str(drafted), "--all", "--most", "4", "--seconds", "600"]
    first = str(lineage / "states" / "K00.kir")
    assert run(["skills", "search", "--for", first, *given, "--json"]) == 0
    answer = told(capsys)
    ranks = [{"yes": 0, "unsure": 1, "no": 2}[hit["forecast"]["pays"] if hit["forecast"] else "unsure"] for hit in answer["hits"]]
    assert ranks == sorted(ranks) and answer["device"] == "h200" and answer["sizes"], "those that pay come first"
    threads = next(hit for hit in answer["hits"] if hit["steps"] == ["spread-threads"])
    assert threads["forecast"]["speedup"] > 1.2 and threads["best"][0]["pass"] == "spread-threads", "one thread a CTA is slow"
    assert all(hit["forecast"] for hit in answer["hits"] if hit["applications"])
    assert not any(hit["forecast"] or hit["best"] for hit in answer["hits"] if not hit["applications"])
    assert run(["skills", "search", "--for", first, *given]) == 0
    assert "    here: " in (said := capsys.readouterr().out) and "x), by spread-threads" in said.replace(", pays", "")
    assert run(["skills", "search", "--for", first, *given[:-1], "0", "--json"]) == 0
    assert not any(hit["forecast"] for hit in told(capsys)["hits"]), "no seconds for forecasts"
    assert run(["skills", "search", "--for", first, *given, "--at", "N=0"]) == 2 and "kir skills search" in capsys.readouterr().err
    assert run(["skills", "search", "block", "--at", "N=8"]) == 2 and "--at needs --for" in capsys.readouterr().err


def test_a_card_that_may_pay_is_told_from_none_that_does() -> None:
    def seen(name: str, pays: str, median: float) -> Brought:
        return cast(Brought, SimpleNamespace(hit=SimpleNamespace(card=SimpleNamespace(name=name)), forecast=SimpleNamespace(pays=pays, median=median)))
    idle = [seen("unroll.for", "unsure", 1.01), seen("tile.kernel", "no", 1.2)]
    assert _none_pays(idle) == "no card that applies is forecast to pay here by itself; several steps together may: kir optimize"
    assert _none_pays([*idle, seen("pipeline.for", "unsure", 1.42)]) == "no card that applies is sure to pay here; pipeline.for may"


def test_a_card_is_left_out_and_what_only_it_makes_is_lost(drafted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["skills", "ablate", "partition-rows.for", "--library", str(drafted)]
    capsys.readouterr()
    assert run([*asked, "--json"]) == 0
    said = told(capsys)
    assert said["uses"] == said["made"] == said["shared"] + said["plain"] + len(said["lost"]) and said["made"] > 0
    assert run(asked) == 0
    assert f"{said['made']} of its {said['uses']} uses are made by it" in capsys.readouterr().out
    assert run([*asked[:2], "stage-shared.for", "--evidence", str(drafted.parent / "evidence")]) == 1, "a card of other walks"
    assert "is in these walks; --evidence DIR names others" in capsys.readouterr().out
    assert run(["skills", "ablate", "partition-row"]) == 2

    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "experts.jsonl.xz").write_bytes(b"no")
    assert run([*asked, "--evidence", str(tmp_path / "bad")]) == 1
    assert "KIR-S051" in capsys.readouterr().err


def test_a_card_applies_to_kernels_of_other_surfaces(drafted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The pattern decides where; what it makes is written on any surface."""
    given = ["--library", str(drafted)]
    (tmp_path / "k.cu").write_text("__global__ void k(const float* X, float* Y, int N) { Y[blockIdx.x] = X[blockIdx.x] * 2.0f; }")
    (tmp_path / "k.toml").write_text('kernel = "k"\nsizes = ["N"]\nfacts = ["N >= 1", "N <= 65536"]\ngrid = ["N"]\n[metas]\nthreads_x = 1\n'
                                     '[tensors]\nX = { shape = ["N"], dtype = "f32" }\nY = { shape = ["N"], dtype = "f32" }\n')
    kernel = [str(tmp_path / "k.cu"), "--bind", str(tmp_path / "k.toml")]
    capsys.readouterr()
    assert run(["skills", "apply", "multi-threaded-block.kernel", *kernel, *given]) == 0
    assert "kernel k grid (block_x: N) threads 128" in capsys.readouterr().out
    assert run(["skills", "apply", "multi-threaded-block.kernel", *kernel, "--emit", "triton", *given]) == 0
    assert "tl.store(" in capsys.readouterr().out
    (tmp_path / "far.kir").write_text("kir 1\nprogram far\n  size N: i32\n  in X: f32[N]\n  out Y: f32[N]\nkernel main grid (i: ceildiv(N, 32)) threads 1\n"
                                      "  Y[i * 32 +: 32] = X[i * 32 +: 32] clip\n")
    mend = ["skills", "apply", "multi-threaded-block.kernel", str(tmp_path / "far.kir"), "--mend", *given]
    capsys.readouterr()
    assert run([*mend, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["fault"].startswith("KIR-I010") and "end with their buffers" in said["mend"] and len(said["steps"]) == 1 and " threads 128" in said["program"]
    assert [each["id"] for each in said["diagnostics"]] == ["KIR-S028"] and "end with their buffers" in said["diagnostics"][0]["message"]
    (tmp_path / "far.kir").write_text(said["program"])
    assert run(mend) == 1 and "KIR-S026" in capsys.readouterr().err
    assert run(["skills", "show", "multi-threaded-block", *given]) == 2
    said = capsys.readouterr().err
    assert "cards of that intent or pass: " in said and "multi-threaded-block.kernel" in said


def test_outcomes_are_recorded_and_tended(drafted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import shutil

    given = ["--library", str(shutil.copytree(drafted, tmp_path / "cards"))]
    assert run(["skills", "outcome", "multi-threaded-block.kernel", "k.cu", "helped", "--speedup", "1.5", *given]) == 0
    log = tmp_path / "search.jsonl"
    log.write_text('{"event": "begin", "problem": "p"}\n'
                   '{"event": "plan", "plan": "card multi-threaded-block.kernel cuda", "start": "", "candidate": "c", "speedup": 2}\n')
    assert run(["skills", "tend", "--log", str(log), *given]) == 0 and "1 outcome recorded" in capsys.readouterr().out
    assert run(["skills", "tend", *given]) == 0 and run(["skills", "tend", "--undo", *given]) == 0
    assert "nothing" in capsys.readouterr().out


@pytest.fixture
def own(tmp_path: Path) -> Path:
    file = tmp_path / "rows.pipeline"
    file.write_text("tile{extent=8}@main; multi-threaded-block{threads=32}@main;\n")
    return file


def test_a_pipeline_is_walked_back_along_its_steps(own: Path, judged: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "out"
    assert walk(own, folder, "--json") == 0
    value = told(capsys)
    assert (value["ended"], value["steps"], value["replay_exact"]) == ("naive", 2, True)
    assert parse_program((folder / "states" / "K00.kir").read_text()) == load_problem("softmax").naive
    assert json.loads((folder / "lineage.json").read_text())["header"]["source"] == str(own)


def test_a_killed_walk_along_a_pipeline_is_taken_up(own: Path, judged: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def kill(call: int) -> None:
        if call == 3:
            raise KeyboardInterrupt

    whole, part = tmp_path / "whole", tmp_path / "part"
    assert walk(own, whole) == 0
    judged(PaperJudge(kill))
    assert walk(own, part) == 130 and not (part / "lineage.json").exists()
    judged(PaperJudge())
    assert walk(own, part) == 0
    assert (part / "lineage.json").read_text() == (whole / "lineage.json").read_text()


@pytest.mark.parametrize(("words", "code", "said"), [
    (["fmha_sm9"], 2, ["KIR-S018", "neither a file nor a stored pipeline 'fmha_sm9'", "'fmha_sm90'"]),
    (["gemm_sm90_cluster"], 2, ["KIR-S018", "tunes a program"]),
    (["fmha_sm90", "--set", "rowz=3"], 2, ["KIR-U009", "no parameter 'rowz'", "'rows'"]),
    (["fmha_sm90", "--set", "rows=77"], 2, ["KIR-U009", "does not take 77", "one of 192, 128"]),
    (["fmha_sm90", "--set", "rows"], 2, ["KIR-C002", "not NAME=VALUE"]),
    (["fmha_sm90", "--problem", "softmax"], 1, ["KIR-F011", "'L' is not defined here", "--problem fmha, for which fmha_sm90 is written"]),
    (["gemm_sm90", "--problem", "gemm_nt"], 1, ["of the pipeline", "--problem gemm, for which gemm_sm90 is written"]),
    (["fmha_sm90", "--problem", "nothing"], 2, ["KIR-G901", "there is no problem 'nothing'"]),
    (["fmha_sm90", "--bind", "b.toml"], 2, ["KIR-C002", "--bind needs a kernel, and this is a pipeline"]),
    (["gone.pipeline", "--problem", "softmax"], 2, ["KIR-S018", "there is no file gone.pipeline"]),
    (["OWN"], 2, ["KIR-C002", "says no problem"]),
    (["OWN", "--problem", "softmax", "--set", "rows=1"], 2, ["KIR-C002", "has no parameters"]),
])
def test_a_pipeline_that_cannot_be_walked_is_refused(words: list[str], code: int, said: list[str], own: Path, tmp_path: Path,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lineage", *(str(own) if word == "OWN" else word for word in words), "-o", str(tmp_path / "out")]) == code
    shown = capsys.readouterr().err
    assert all(each in shown for each in said) and "Traceback" not in shown, shown
    assert not (tmp_path / "out" / "lineage.json").exists()


@pytest.mark.parametrize(("name", "text", "surface", "loaded"), [
    ("k.py", "import triton\nimport triton.language as tl\n", "", ["triton"]),
    ("k.py", "import tilelang\n", "", ["tilelang"]),
    ("k.py", "import torch\n", "", []),
    ("k.kir", "kir 1\n", "", []),
    ("k.kir", "kir 1\n", "tilelang", ["tilelang"]),
    ("k.py", "import triton\n", "cuda", []),
    ("nowhere.py", None, "", []),
])
def test_a_compiler_that_takes_seconds_is_loaded_while_its_kernel_is_read(
    name: str, text: str | None, surface: str, loaded: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    monkeypatch.setattr("kir.surface.warm", begun.append)
    if text is not None:
        (tmp_path / name).write_text(text)
    _warmed(f"{tmp_path / name}::k", surface)
    _warmed("no_such_package:ops/k.py::k", "")
    assert begun == loaded
