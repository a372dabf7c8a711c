"""The page of a kernel: its data, and every button of it in a browser."""
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kir.base.diagnostic import KirError
from kir.faces.explore.session import Session
from kir.rewrite import Pipeline
from tests.command_line import called
from tests.conftest import browser
from tests.users.own_kernels import laid


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    return laid(tmp_path, "softmax with a scale (Triton)")


def test_lines_of_all_sides_belong_together(kernel: Path) -> None:
    state = Session(str(kernel)).state()
    row = next(r for r in state["ir"] if "exp(" in r["text"])
    assert state["source"]["lines"][row["source"] - 1].strip() == "e = tl.exp(x)"
    assert [r["text"].strip() for r in state["code"]["triton"]["lines"] if r["path"] == row["path"]] == ["e = tl.exp(x_1)"]
    assert set(state["code"]) >= {"cuda", "triton", "tilelang"} and state["steps"] == 0 and state["diff"] == ""


def test_steps_are_applied_and_undone_and_the_pipeline_runs_elsewhere(kernel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = Session(str(kernel))
    before = session.state()
    places = session.sites()
    assert places and [bool(p["refused"]) for p in places] == sorted(bool(p["refused"]) for p in places)
    step = next(str(p["step"]) for p in places if not p["refused"])
    after = session.apply(step)
    assert after["hash"] != before["hash"] and after["steps"] == 1 and "<" in after["diff"] and Pipeline.parse(after["pipeline"])
    code, out, _ = called(capsys, "opt", str(kernel), "-p", after["pipeline"])
    assert code == 0 and out.strip() == "\n".join(r["text"] for r in after["ir"])
    with pytest.raises(KirError):
        session.apply("unroll@nowhere")
    assert session.state() == after and session.undo()["hash"] == before["hash"] and session.undo()["steps"] == 0
    assert session.hazards()["ok"]


@contextmanager
def served(file: Path) -> Iterator[str]:
    """The address of a page that is served."""
    process = subprocess.Popen([sys.executable, "-c", "from kir.faces.cli import main; main()", "explore", str(file), "--no-browser"],
                               stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(Path.cwd())})
    try:
        assert process.stderr is not None
        yield process.stderr.readline().partition(" ")[0]
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.browser
@pytest.mark.explore
@pytest.mark.parametrize("width", [400, 1600])
def test_every_button_works_with_the_keyboard_alone(kernel: Path, width: int) -> None:
    from playwright.sync_api import sync_playwright

    def counted(page: Any) -> None:
        page.wait_for_function("document.getElementById('count').textContent.startsWith('(')", timeout=120_000)
    with served(kernel) as address, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": width, "height": 900})
        faults: list[str] = []
        page.on("pageerror", lambda fault: faults.append(str(fault)))
        page.goto(address)
        counted(page)
        page.hover("#ir div:has-text('let e = exp')")
        assert page.locator("#source .on").all_text_contents() == ["    e = tl.exp(x)"] and page.locator("#code .on").count() >= 1
        page.hover("#source div:has-text('tl.exp')")
        assert "let e = exp" in page.locator("#ir .on").all_text_contents()[0]
        page.focus("#tabs button:has-text('cuda')")
        page.keyboard.press("Enter")
        assert "__global__" in (page.text_content("#code") or "")
        page.focus("#sites button:not(.no) >> nth=0")
        step = page.text_content("#sites button:not(.no) >> nth=0")
        page.keyboard.press("Enter")
        page.wait_for_function("!document.getElementById('undo').disabled", timeout=60_000)
        counted(page)
        assert page.text_content("#pipeline") == step and (page.text_content("#diff") or "").strip()
        page.focus("#copy")
        page.keyboard.press("Enter")
        page.wait_for_function("document.getElementById('said').className == 'good'")
        page.focus("#undo")
        page.keyboard.press("Enter")
        page.wait_for_function("document.getElementById('undo').disabled", timeout=60_000)
        counted(page)
        page.focus("#check")
        page.keyboard.press("Enter")
        page.wait_for_function("document.getElementById('said').textContent.includes('no hazards')", timeout=60_000)
        assert page.evaluate("document.documentElement.scrollWidth") <= width and faults == []
        chromium.close()


@pytest.mark.explore
def test_only_the_page_itself_changes_the_session(kernel: Path) -> None:
    import json
    import urllib.error
    import urllib.request

    with served(kernel) as address:
        with urllib.request.urlopen(f"{address}state") as answer:
            assert json.load(answer)["steps"] == 0
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(f"{address}apply", data=b'{"step": "x"}', method="POST"))
        assert refused.value.code == 403
