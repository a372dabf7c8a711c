"""The page of a kernel: its data, and every button of it in a browser."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kir.base.diagnostic import KirError
from kir.faces.api.kernels import sites
from kir.faces.explore import ranking
from kir.faces.explore.layouts import layouts
from kir.faces.explore.session import Session
from kir.faces.explore.sides import code_side, ir_side
from kir.faces.explore.timeline import timelines
from kir.gate.cost import program_cost, timeline
from kir.gate.counts.schedule import Span
from kir.hardware.target import target
from kir.ir.layouts.layout_tables import fragment
from kir.ir.nodes import Layout
from kir.ir.parser import parse_program
from kir.ir.types import DTYPES
from kir.rewrite import Pipeline
from tests.command_line import called
from tests.conftest import browser
from tests.users.own_kernels import laid


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    return laid(tmp_path, "softmax with a scale (Triton)")


def ranked(session: Session) -> list[dict[str, Any]]:
    """The sites, with all forecasts."""
    while (found := session.sites())["left"]:
        pass
    places: list[dict[str, Any]] = found["places"]
    return places


def test_sites_are_looked_for_while_somebody_asks(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of a thousand lines has thousands: the first are shown at once, and nothing is looked for when the page is gone."""
    monkeypatch.setattr(ranking, "A_WHILE", 0.0)
    session = Session(str(kernel))
    first = session.sites()
    assert len(first["places"]) == 1 and first["finding"] and first["left"] == 2
    monkeypatch.setattr(ranking, "A_WHILE", 60.0)
    found = session.sites()
    assert not found["finding"] and found["left"] == 0
    assert sorted(p["step"] for p in found["places"]) == sorted(s.step for s in sites(kernel))


def test_lines_of_all_sides_belong_together(kernel: Path) -> None:
    state = Session(str(kernel)).state()
    row = next(r for r in state["ir"] if "exp(" in r["text"])
    assert state["source"]["lines"][row["source"] - 1].strip() == "e = tl.exp(x)"
    assert [r["text"].strip() for r in state["code"]["triton"]["lines"] if r["path"] == row["path"]] == ["e = tl.exp(x_1)"]
    assert set(state["code"]) >= {"cuda", "triton", "tilelang"} and state["steps"] == 0 and state["diff"] == "" and state["slide"] is None
    assert "launches it" in state["under"], "the page says which launch is taken for granted"


@pytest.mark.nvcc
@pytest.mark.sass
def test_machine_instructions_belong_to_the_statements_that_they_were_compiled_from() -> None:
    session = Session("skills/problems/transpose/naive.kir")
    state, found = session.state(), session.machine("cuda")
    store = next(r["path"] for r in state["code"]["cuda"]["lines"] if "Y[" in r["text"] and "=" in r["text"])
    assert store and {r["path"] for r in found["lines"] if "STG" in r["text"]} == {store} and found["refused"] == []
    with pytest.raises(KirError):
        session.machine("fortran")


def test_steps_are_applied_undone_and_done_again_and_the_pipeline_runs_elsewhere(kernel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = Session(str(kernel))
    before = session.state()
    places = ranked(session)
    gains = [p["forecast"]["median"] for p in places if "median" in p.get("forecast", {})]
    assert gains and [bool(p["refused"]) for p in places] == sorted(bool(p["refused"]) for p in places)
    assert all("sentence" in v and "verdict" in v for p in places for v in p["verdicts"])
    step = next(str(p["step"]) for p in places if not p["refused"])
    after = session.apply(step)
    assert after["hash"] != before["hash"] and after["steps"] == 1 and "<" in after["diff"] and Pipeline.parse(after["pipeline"])
    code, out, _ = called(capsys, "opt", str(kernel), "-p", after["pipeline"])
    assert code == 0 and out.strip() == "\n".join(r["text"] for r in after["ir"])
    with pytest.raises(KirError):
        session.apply("unroll@nowhere")
    assert session.state() == after and session.undo()["hash"] == before["hash"]
    back = session.state()
    assert (back["steps"], back["redo"]) == (0, 1) and session.redo() == after
    assert session.undo()["redo"] == 1 and session.hazards()["ok"]


def test_figures_are_for_the_sizes_that_are_set(kernel: Path) -> None:
    session = Session(str(kernel), at="m=512,n=781")
    small = session.pictures()
    assert "at m=512,n=781 on h200" in small["figures"] and "<svg" in small["timeline"] and "modelled" in small["roofline"]
    session.set("m=8192,n=781", "a100")
    assert "on a100" in session.pictures()["figures"]
    for wrong, said in (("m=1", "no size for 'n'"), ("m=0,n=4", "'m' is 0"), ("much", "gives no sizes"), ("m=99999999999,n=4", "'m' is 99999999999"),
                        ("m=4,n=5,q=1", "no size 'q'"), ("m=4,n=5000", "not for m=4,n=5000")):
        with pytest.raises(KirError, match=said):
            session.set(wrong, "h200")
    assert session.state()["sizes"] == "m=8192,n=781"


def test_a_lineage_opens_as_slides_and_each_keeps_what_was_done_from_it() -> None:
    session = Session("softmax_cuda")
    last = session.state()["slide"]["last"]
    expert = session.state()
    assert last > 3 and expert["slide"]["place"] == last and expert["slide"]["conditions"] is not None and "<" in expert["diff"]
    assert "naive" in session.pictures()["roofline"]
    naive = session.go(0)
    assert "step" not in naive["slide"] and naive["hash"] != expert["hash"]
    done = session.apply(next(str(p["step"]) for p in session.sites()["places"] if not p["refused"]))
    assert session.go(last)["hash"] == expert["hash"] and session.go(0) == done and session.go(99)["slide"]["place"] == last


def test_the_timeline_is_that_of_the_modelled_cycles() -> None:
    program = parse_program(Path("skills/experts/gemm/gemm_sm90.kir").read_text(encoding="utf-8"), "gemm")
    sizes, device = {"M": 2048, "N": 2048, "K": 2048}, target("h200")
    spans = timeline(program, program.kernels[0], sizes, device)
    cost = program_cost(program, sizes, device)[0]
    assert cost.work is not None and max(s.end for s in spans if s.lane != "rounds") <= cost.work.cycles * 1.001
    drawn = {t.name: {lane.name for lane in t.lanes} for t in timelines(spans)}
    assert any("copy in flight" in lanes for lanes in drawn.values()) and any("tensor" in lanes for lanes in drawn.values())
    one = timelines([Span("alu", "a", 0, 10), Span("rounds", "9 more of k", 10, 100), Span("alu", "b", 100, 110)])[0]
    assert [(b.begin, b.end) for b in one.lanes[0].bars] == [(0, 10), (10, 20)]
    assert list(one.folds) == [(10, "9 more of k, 90 cycles")] and one.drawn == 20


LAID = """kir 1
program laid
  in X: f32[32, 32]
  out Y: f32[32, 32]
kernel main grid (b: 1) threads 32
  shared plain: f32[32, 32]
  shared padded: f32[32, 32] layout strides(33, 1)
  shared as_read: f32[32, 32] strides [33, 1]
  for t in 0..32 parallel thread
    for i in 0..32
      plain[i, t] = X[i, t]
      padded[i, t] = X[i, t]
      as_read[i, t] = X[i, t]
    barrier()
    for i in 0..32
      Y[t, i] = plain[t, i] + padded[t, i]
"""


def test_layouts_show_banks_and_who_holds_what() -> None:
    plain, padded, as_read = layouts(parse_program(LAID, "laid"))
    assert [c.text for c in plain.cells[1][:3]] == ["0", "1", "2"] and "32 lanes down a column: 32 passes, 31 more than without conflicts" in plain.notes
    assert [c.text for c in padded.cells[1][:3]] == ["1", "2", "3"] and "32 lanes down a column: 1 pass, no conflict" in padded.notes
    assert (as_read.cells, as_read.notes) == (padded.cells, padded.notes)
    grids = layouts(parse_program(Path("skills/experts/gemm/gemm_sm90.kir").read_text(encoding="utf-8"), "gemm"))
    acc = next(g for g in grids if g.title.startswith("wgmma"))
    thread, slot = fragment(Layout("wgmma_acc", (256,)), (64, 256), DTYPES["f32"]).owner()
    assert [[c.text for c in row] for row in acc.cells] == [[f"{thread[r, c]}.{slot[r, c]}" for c in range(len(acc.cells[0]))] for r in range(len(acc.cells))]


@contextmanager
def served(file: str, *more: str) -> Iterator[str]:
    """The address of a page that is served."""
    process = subprocess.Popen([sys.executable, "-c", "from kir.faces.cli import main; main()", "explore", file, "--no-browser", *more],
                               stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(Path.cwd())})
    try:
        assert process.stderr is not None
        yield process.stderr.readline().partition(" ")[0]
    finally:
        process.terminate()
        process.wait(20)


def pressed(page: Any, where: str, key: str = "Enter") -> None:
    page.focus(where)
    page.keyboard.press(key)


def settled(page: Any) -> None:
    """Wait until nothing is worked on: all forecasts are there, and so is what the compiler says."""
    page.wait_for_function("/^\\(\\d+ of \\d+\\)$/.test(document.getElementById('count').textContent)"
                           "&& !document.getElementById('sassof').textContent.startsWith('compiling')", timeout=120_000)


def every_button(page: Any, width: int) -> None:
    """Use the page of a kernel with the keyboard alone."""
    assert page.query_selector(".site button wbr"), "a long place breaks between its parts"
    page.focus("#ir")
    for _ in range(len(page.query_selector_all("#ir div"))):
        page.keyboard.press("ArrowDown")
        if "let v = " in (page.text_content("#ir .at") or ""):
            break
    assert "float v = " in page.text_content("#source .on") and page.locator("#code .on").count() >= 1
    pressed(page, "#tabs [data-tab=tilelang]")
    assert "T.prim_func" in (page.text_content("#code") or "")
    pressed(page, "#tabs [data-tab=cuda]")
    for view, sign in {"roofline": "svg", "timeline": "rect.lane", "layouts": "p", "diff": "p"}.items():
        pressed(page, f"#views [data-tab={view}]")
        page.wait_for_selector(f"#view {sign}")
    page.keyboard.press("/")
    page.keyboard.type("no such pass")
    assert page.locator(".site").count() == 0 and "has “no such pass” in it" in (page.text_content("#sites") or "")
    page.fill("#filter", "")
    step = page.text_content(".site:not(.no) button >> nth=0")
    focused = "step => [...document.querySelectorAll('.site:not(.no) button')].find(b => b.textContent === step).focus()"
    page.evaluate(focused, step)  # sites that are found meanwhile come before it
    page.keyboard.press("Enter")
    page.wait_for_function("!document.getElementById('undo').disabled", timeout=60_000)
    assert page.text_content("#pipeline") == step and (page.text_content("#view") or "").strip()
    pressed(page, "#copy")
    page.wait_for_function("document.getElementById('said').className == 'good'")
    pressed(page, "#ir", "u")
    page.wait_for_function("document.getElementById('undo').disabled", timeout=60_000)
    pressed(page, "#ir", "r")
    page.wait_for_function("document.getElementById('redo').disabled && !document.getElementById('undo').disabled", timeout=60_000)
    pressed(page, "#undo")
    page.wait_for_function("document.getElementById('undo').disabled", timeout=60_000)
    page.fill("#sizes", "nothing")
    pressed(page, "#sizes")
    page.wait_for_function("document.getElementById('said').textContent.includes('gives no sizes')")
    page.fill("#sizes", f"rows={width},cols=781")
    pressed(page, "#sizes")
    page.wait_for_function(f"document.getElementById('figures').textContent.includes('rows={width},cols=781')", timeout=60_000)
    pressed(page, "#check")
    page.wait_for_function("document.getElementById('said').textContent.includes('no hazards')", timeout=60_000)
    settled(page)


def looked_at(file: str, use: Callable[[Any, int], None]) -> None:
    """Use a page at both widths; nothing is wider than the window, and no script fails."""
    from playwright.sync_api import sync_playwright

    with served(file) as address, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        for width in (400, 1600):
            page = chromium.new_page(viewport={"width": width, "height": 900})
            faults: list[str] = []
            page.on("pageerror", lambda fault, held=faults: held.append(str(fault)))
            page.route("**/machine?surface=tilelang", lambda route: route.fulfill(json={"lines": [], "refused": ["no TileLang"], "surface": "tilelang"}))
            page.goto(address)
            page.wait_for_selector(".site")
            use(page, width)
            assert page.evaluate("document.documentElement.scrollWidth") <= width and faults == []
            page.close()
        chromium.close()


@pytest.mark.browser
@pytest.mark.explore
def test_every_button_works_with_the_keyboard_alone(tmp_path: Path) -> None:
    looked_at(str(laid(tmp_path, "bias and GELU as a torch extension (CUDA)")), every_button)


@pytest.mark.browser
@pytest.mark.explore
def test_hovering_over_a_side_marks_the_others_and_slides_follow_one_another() -> None:
    def use(page: Any, width: int) -> None:
        if width == 400:
            pressed(page, "#ir", ",")
            page.wait_for_function("!document.getElementById('next').disabled", timeout=60_000)
            return
        page.hover("#code div:has-text('fmaxf') >> nth=0")
        assert page.locator("#ir .on").count() >= 1 and page.locator("#code .at").count() == 1
        page.select_option("#slide", "0")
        page.wait_for_function("document.getElementById('previous').disabled", timeout=60_000)
        pressed(page, "#next")
        page.wait_for_function("document.getElementById('where').textContent.startsWith('state 1 of')", timeout=60_000)
        assert page.locator("#story .pipeline").count() == 1
    looked_at("softmax_cuda", use)


@pytest.mark.explore
def test_only_the_page_itself_changes_the_session() -> None:
    with served("skills/problems/transpose/naive.kir") as address:
        with urllib.request.urlopen(f"{address}state") as answer:
            assert json.load(answer)["steps"] == 0
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(f"{address}apply", data=b'{"step": "x"}', method="POST"))
        assert refused.value.code == 403


def test_a_kernel_of_a_thousand_lines_is_shown() -> None:
    body = "\n".join(f"    Y[{4 * i} + t] = X[(t + {i}) % 4096] * {i}.0" for i in range(1000))
    text = (f"kir 1\nprogram long\n  in X: f32[4096]\n  out Y: f32[4096]\nkernel main grid (b: 1) threads 32\n  for t in 0..32 parallel thread\n{body}\n")
    program = parse_program(text, "long")
    assert len(ir_side(program, Path("long.kir"))) > 1000 and len({r["path"] for r in code_side(program, "cuda")["lines"]} - {""}) > 1000
