"""kir carrier, and what kir opt says of holes."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kir.faces.cli._main import run
from kir.learning.cards.card import Anchor, Card, Carrier, Effect, Evidence, Move, Risk, Scope, Spread, Use
from kir.learning.cards.library import CardStore
from tests.kir.lineage.carrier.asking import HERE, HOST, RIGHT, SERIAL, WRONG
from tests.kir.lineage.carrier.server import Says, loopback

ROOT = Path(__file__).parents[2]
SELECT = """kir 1
program topk
  size R: i32
  size N: i32
  size K: i32
  in X: f32[R, N]
  out V: f32[R, K]
  out I: i32[R, K]
  fact K >= 1
  fact K <= N
kernel main grid (row: R) threads 1
  hole select contract "radix-select/1" reads X[row, 0 +: N] writes V[row, 0 +: K], I[row, 0 +: K]
"""
TOY = ["--contract-folder", str(HERE / "toy")]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DATA", "CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    (tmp_path / "rows.kir").write_text(HOST)
    (tmp_path / "serial.kir").write_text(SERIAL)
    return tmp_path


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    code = run([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def first(said: Any) -> str:
    return str(said["diagnostics"][0]["id"])


def test_a_program_with_a_hole_prints_and_is_not_emitted(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = ask(capsys, "opt", str(work / "rows.kir"))
    assert (code, first(said)) == (0, "KIR-H104") and "hole sums" in said["text"]
    code, said = ask(capsys, "opt", str(work / "rows.kir"), "--emit", "cuda")
    assert (code, first(said)) == (1, "KIR-H104")
    (work / "known.kir").write_text(SELECT)
    code, said = ask(capsys, "opt", str(work / "known.kir"))
    assert code == 0 and [d["id"] for d in said["diagnostics"]] == ["KIR-H104"], "a registered contract, and the hole fits it"
    (work / "misfit.kir").write_text(SELECT.replace("V[row, 0 +: K]", "V[row, 0 +: K + -1]"))
    code, said = ask(capsys, "opt", str(work / "misfit.kir"))
    assert (code, first(said)) == (1, "KIR-H105")


def test_an_answer_is_checked_recorded_listed_and_filled_in(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = ask(capsys, "carrier", "fill", str(work / "rows.kir"), *TOY)
    assert (code, first(said)) == (1, "KIR-H142")
    code, said = ask(capsys, "carrier", "check", str(work / "serial.kir"), *TOY, "--record")
    assert (code, first(said)) == (2, "KIR-H404"), "a record says who"
    code, said = ask(capsys, "carrier", "check", str(work / "serial.kir"), *TOY, "--record", "--who", "A. Person", "--target", "sm_90a")
    assert code == 0 and said["accepted"] and said["gate"]["accepted"] and Path(said["record"]).is_file()
    code, said = ask(capsys, "carrier", "list", *TOY)
    row = next(r for r in said["carriers"] if r["contract"] == "toy-prefix/1")
    assert (row["answers"][0]["name"], row["answers"][0]["fits"], row["answers"][0]["who"]) == ("serial", True, "A. Person")
    code, said = ask(capsys, "carrier", "show", "toy-prefix", *TOY)
    assert code == 0 and said["hash"] == row["hash"] and said["answers"][0]["gate"]["accepted"]
    code, said = ask(capsys, "carrier", "fill", str(work / "rows.kir"), *TOY, "-o", str(work / "out.kir"))
    assert code == 0 and said["filled"] and "hole" not in (work / "out.kir").read_text()
    code, said = ask(capsys, "carrier", "fill", str(work / "out.kir"), *TOY)
    assert (code, first(said)) == (2, "KIR-H405")
    (work / "data" / "kir" / "carriers" / "toy" / "serial.kir").write_text(SERIAL + "# changed\n")
    code, said = ask(capsys, "carrier", "check", str(work / "data/kir/carriers/toy/serial.toml"), *TOY, "--record", "--target", "sm_90a")
    assert code == 0 and said["accepted"], "checking a changed record mends it"


def test_refusals_are_diagnostics_and_never_tracebacks(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "wrong.kir").write_text(SERIAL.replace("f32 = 0.0", "f32 = 0.5"))
    for words, code, id in (
            (["check", str(work / "wrong.kir")], 1, "KIR-H130"), (["check", str(work / "absent.kir")], 2, "KIR-S018"),
            (["check", str(work / "rows.txt")], 2, "KIR-H404"), (["show", "toy-prefx"], 2, "KIR-H103"),
            (["check", str(work / "serial.kir"), "--contract", "other"], 2, "KIR-H103"),
            (["fill", str(work / "rows.kir"), "--provider", "openia"], 2, "KIR-H402"),
            (["fill", str(work / "rows.kir"), "--provider", "openai"], 2, "KIR-H402"),
            (["fill", str(work / "rows.kir"), "--hole", "main/nothing"], 1, "KIR-A002"),
            (["fill", str(work / "rows.kir"), "--exchange", str(work / "x")], 1, "KIR-H311")):
        got, said = ask(capsys, "carrier", words[0], *words[1:], *TOY)
        assert (got, first(said)) == (code, id), said
    for id in ("KIR-H104", "KIR-H201"):
        assert run(["explain", id]) == 0


@pytest.mark.llm
def test_a_model_fills_a_hole_from_the_command_line(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with loopback([Says("Hm."), Says(WRONG), Says(RIGHT)]) as server:
        (work / "carriers.toml").write_text(f"""provider = "openai"
turns = 2
[openai]
model = "m"
endpoint = "{server.url}/v1"
price = {{ input = 1, output = 10 }}
[budget.run]
dollars = 1
""")
        words = ["carrier", "fill", str(work / "rows.kir"), *TOY, "--settings", str(work / "carriers.toml"), "--target", "sm_90a"]
        code, said = ask(capsys, *words, "--record", "by-model")
        assert code == 0 and said["accepted"] and len(said["holes"][0]["attempts"]) == 3
        assert said["budget"]["spent"]["attempts"] == 3 and said["answers"][0]["accepted"]
        record = (work / "data" / "kir" / "carriers" / "toy" / "by-model.toml").read_text()
        assert 'who = "openai: m"' in record and f'prompt = "{said["holes"][0]["templates"]}"' in record
        code, again = ask(capsys, *words)
        assert code == 0 and len(server.requests) == 3 and again["budget"]["spent"]["attempts"] == 0, "every reply was kept"
        code, said = ask(capsys, *words, "--turns", "0", "--restart")
        assert code == 0 and len(server.requests) == 4
        server.script = lambda number, body: Says(WRONG)
        code, said = ask(capsys, *words, "--turns", "0", "--restart")
        assert code == 1 and Path(said["best"]).read_text() == WRONG and first(said) == "KIR-H403"
    assert run(["carrier", "fill", str(work / "rows.kir"), *TOY]) == 0
    assert "by recorded: filled" in capsys.readouterr().out


@pytest.mark.llm
def test_a_run_that_is_killed_while_a_model_answers_goes_on_without_paying_twice(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked_twice = threading.Event()

    def script(number: int, body: dict[str, Any]) -> Says:
        if number == 1:
            asked_twice.set()
        return Says(WRONG) if len(body["messages"]) == 2 else Says(RIGHT, stall=600 if number == 1 else 0)
    with loopback(script) as server:
        (work / "carriers.toml").write_text(f"""provider = "openai"
[openai]
model = "m"
endpoint = "{server.url}/v1"
price = {{ input = 1, output = 10 }}
""")
        words = ["carrier", "fill", str(work / "rows.kir"), *TOY, "--settings", str(work / "carriers.toml"), "--target", "sm_90a"]
        code = f"import sys; from kir.faces.cli import main; main({words!r})"
        killed = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  env={**os.environ, "PYTHONPATH": str(ROOT)})
        assert asked_twice.wait(120)
        killed.kill()
        killed.wait()
        done, said = ask(capsys, *words)
        assert done == 0 and len(server.requests) == 3, "the first question is not asked again"
        first_turn, lost, second = said["budget"]["entries"]
        assert "resumed" in first_turn["note"] and "killed" in lost["note"] and lost["actual"] == lost["worst"] and not second["note"]
        assert [a["cached"] for a in said["holes"][0]["attempts"]] == [True, False]


def test_the_question_shows_the_card_of_the_library(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spread = Spread(median=7.5, low=7.0, high=8.0, uses=2)
    card = Card(name="select", title="radix select", state="admitted", intent="radix select", anchor=Anchor(node="for", pattern="radix-select", places=1),
                carrier=Carrier(kind="pass", steps=(Move(step="radix-select"),)), effect=Effect(forecast={"sm_90a": spread}),
                evidence=Evidence(kernels=1, uses=(Use(kernel="k", package="p", family="f", surface="cuda", lineage="seal-1234", transition=1,
                                                       before="a", after="b"),)),
                risk=Risk(numerics="bitwise"), scope=Scope(families=("topk",), packages=("p",), surfaces=("cuda",), platforms=("sm_90a",)))
    CardStore(work / "data" / "kir" / "cards").put(card)
    (work / "known.kir").write_text(SELECT)
    code, said = ask(capsys, "carrier", "fill", str(work / "known.kir"), "--exchange", str(work / "x"))
    assert (code, first(said)) == (1, "KIR-H311")
    question = (work / "x" / "request.md").read_text()
    assert "seal-1234" in question and "7.5" in question and "**scope**" in question
    assert "the K largest of N keys" in question and "hole select contract" in question
