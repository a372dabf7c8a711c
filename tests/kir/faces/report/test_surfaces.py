"""Lineages side by side: where they meet, rows and columns, and the page in a real browser."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kir.faces.cli._main import run
from kir.faces.report.page import page
from kir.faces.report.roofline import roofline
from kir.faces.report.shown import shown
from kir.faces.report.surfaces import intent_rows, surfaces
from kir.ir.parser import parse_program
from kir.lineage.convergence import common_form, form_hashes
from kir.lineage.records.folder import Folder
from kir.lineage.records.record import Lineage
from tests.conftest import browser
from tests.kir.faces.report.test_page import Outline, plain_diff
from tests.kir.lineage.toy import ToyEngine, ToyJudge, finished, walked

SUM = """kir 1
program total
  size N: i32
  in X: f16[N]
  out Y: f16[N]
kernel main grid (i: N) threads 1
  Y[i] = X[i] + 1.0:f16
"""


@pytest.fixture
def two(tmp_path: Path) -> list[tuple[Lineage, Folder]]:
    """Two walks over one toy program: the second cannot take `a` back, and ends elsewhere."""
    out = []
    for name, rule in (("first", lambda there: True), ("second", lambda there: "a" in there)):
        folder = tmp_path / name
        out.append((finished(folder, walked(folder, ToyEngine(), ToyJudge(rule))), Folder(folder)))
    return out


def test_names_order_and_promises_do_not_keep_programs_apart() -> None:
    other = SUM.replace("total", "mine").replace("main", "k").replace("X", "A").replace("Y", "B").replace("N", "n")
    other = other.replace("  in A: f16[n]\n  out B: f16[n]\n", "  out B: f16[n] align 16 {restrict=true}\n  in A: f16[n]\n  fact n % 8 == 0\n")
    first, second = parse_program(SUM), parse_program(other)
    assert common_form(first) == common_form(second)
    one, two = form_hashes([first, parse_program(SUM.replace("1.0", "2.0"))])
    assert one != two
    assert common_form(common_form(first)) == common_form(first)


def test_rows_hold_every_step_once(two: list[tuple[Lineage, Folder]]) -> None:
    steps = [shown(lineage, folder, plain_diff) for lineage, folder in two]
    rows = intent_rows(steps)
    assert len({row.intent for row in rows}) == len(rows)
    for at, own in enumerate(steps):
        held = [each for row in rows for each in row.cells[at].steps]
        assert sorted(each.number for each in held) == [each.number for each in own]


def test_the_page_is_whole_and_fetches_nothing(two: list[tuple[Lineage, Folder]]) -> None:
    html = surfaces(two, plain_diff)
    outline = Outline()
    outline.feed(html)
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))
    assert all(link.startswith("#") and link[1:] in outline.ids for link in outline.links)
    assert not re.search(r"https?://|@import|url\(", html)
    for lineage, _ in two:
        assert all(step.forward in html for step in lineage.accepted) and lineage.seal in html


def test_the_command_writes_it_and_says_where_they_meet(two: list[tuple[Lineage, Folder]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["report", str(tmp_path / "first"), str(tmp_path / "second"), "-o", str(tmp_path / "page.html"), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert code == 0 and [row["ended"] for row in told["lineages"]] == [lineage.outcome.ended for lineage, _ in two]
    assert told["one"] == (len({row["meets"] for row in told["lineages"]}) == 1)
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_lineages_of_different_problems_lie_beside_each_other(two: list[tuple[Lineage, Folder]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (lineage, _), _ = two
    other = lineage.model_copy(update={"header": lineage.header.model_copy(update={"problem": "softmax"})})
    Folder(tmp_path / "first").finish(_sealed(other))
    page = tmp_path / "page.html"
    assert run(["report", *(str(tmp_path / x) for x in ("first", "second", "first")), "-o", str(page), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    problem = two[1][0].header.problem
    assert told["problems"] == ["softmax", problem] and [Path(row["lineage"]).parent.name for row in told["lineages"]] == ["first", "first", "second"]
    html = page.read_text(encoding="utf-8")
    assert re.findall(r"<h2>([\w-]+)</h2>\n<p>\d+ of \d+ intents occur in every column", html) == ["softmax", problem]
    assert re.findall(r'<section id="(p\d)" data-stop>', html) == re.findall(r'<tr><th scope="row"><a href="#(p\d)">', html) == ["p1", "p2"]
    assert html.count('<figure id="s') == 3 and (" of one problem meet in" in html) == told["one"]
    outline = Outline()
    html = surfaces([(other, two[0][1]), two[1]], plain_diff, {"first": ["faster than cuDNN"]})
    outline.feed(html)
    assert html.count("faster than cuDNN") == 2 and "faster than cuDNN" not in surfaces(two, plain_diff)
    assert outline.open == [] and len(outline.ids) == len(set(outline.ids)) and all(link[1:] in outline.ids for link in outline.links)


def _sealed(lineage: Lineage) -> Lineage:
    from kir.lineage.records.record import chained
    return chained(lineage.header, lineage.start, lineage.start_gate, lineage.start_emitted, lineage.steps, lineage.outcome)


def test_states_stand_under_the_roof(two: list[tuple[Lineage, Folder]]) -> None:
    lineage, _ = two[0]
    assert roofline(lineage) == ()
    def row(seconds: float, dram: float) -> dict[str, object]:
        parts = {"tensor": 1e-4, "scalar": 0.0, "special": 0.0, "dram": dram}
        return {"profile": [{"target": "sm_80", "shape": "s", "seconds": seconds, "bound_by": "dram", "kind": "modelled", "parts": parts}]}
    count = len(lineage.accepted)
    steps = tuple(s.model_copy(update={"gate": row(2e-3 * (k + 1), 1e-3 * (k + 1))}) for k, s in enumerate(lineage.accepted))
    (roof,) = roofline(lineage.model_copy(update={"start_gate": row(2e-4, 5e-5), "steps": steps}))
    assert [p.name for p in roof.points] == [f"K{k}" for k in range(count + 1)]
    assert [p.y for p in roof.points] == sorted((p.y for p in roof.points), reverse=True), "faster states stand higher"
    assert roof.points[-1].title.startswith(f"K{count}: 0.5 of the peak, at 2 times")


def dumped(html: str, tmp_path: Path, *extra: str) -> subprocess.CompletedProcess[str]:
    """What Chromium makes of a page at 1,200 pixels, without a network."""
    file = tmp_path / "looked-at.html"
    file.write_text(html, encoding="utf-8")
    quiet = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update")
    command = [browser() or "", "--headless", *quiet, "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1200,1000",
               "--virtual-time-budget=2000"]
    return subprocess.run([*command, *extra, f"file://{file}"], capture_output=True, text=True, timeout=120, check=True)


PROBE = """<script>addEventListener("load", () => {
  const press = (key) => dispatchEvent(new KeyboardEvent("keydown", {key}));
  const root = document.documentElement;
  const told = {wide: root.scrollWidth, high: root.scrollHeight, loads: performance.getEntriesByType("resource").length};
  press("j"); press("j"); told.second = document.querySelector("nav a[aria-current]").getAttribute("href");
  press("l"); press("l"); told.cell = document.activeElement.id;
  press("o"); told.open = document.querySelectorAll("details[open]").length; press("k");
  told.back = document.querySelector("nav a[aria-current]").getAttribute("href");
  document.title = JSON.stringify(told);
});</script>"""


@pytest.mark.browser
def test_a_browser_shows_it_at_1200_pixels_and_follows_the_keys(two: list[tuple[Lineage, Folder]], tmp_path: Path) -> None:
    html = surfaces(two, plain_diff)
    shown_page = dumped(html.replace("</body>", PROBE + "</body>"), tmp_path, "--dump-dom").stdout
    title = re.search(r"<title>(\{.*?\})</title>", shown_page)
    assert title is not None
    told = json.loads(title[1])
    assert told["wide"] <= 1200 and told["high"] > 1000 and told["loads"] == 0
    assert (told["second"], told["cell"], told["back"]) == ("#i2", "i2c2", "#i1")
    assert told["open"] >= 1


@pytest.mark.browser
@pytest.mark.explore
def test_nothing_is_wider_than_a_window_of_400_pixels(two: list[tuple[Lineage, Folder]], tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    long = "a_kernel_of_one_long_name_" * 4
    named = [(lineage.model_copy(update={"header": lineage.header.model_copy(update={"expert": long, "source": f"package:{long}.py::{long}"})}), folder)
             for lineage, folder in two]
    pages = {"one": page(*named[0], plain_diff), "two": surfaces(named, plain_diff)}
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        narrow = chromium.new_page(viewport={"width": 400, "height": 900})
        for name, html in pages.items():
            (tmp_path / f"{name}.html").write_text(html, encoding="utf-8")
            narrow.goto(f"file://{tmp_path}/{name}.html")
            assert narrow.evaluate("document.documentElement.scrollWidth") <= 400, name
            letters = "Math.min(...[...document.querySelectorAll('figure:not(.roofs) svg text')].map((t) => t.getBoundingClientRect().height), 99)"
            assert narrow.evaluate(letters) >= 8, name
        chromium.close()


@pytest.mark.browser
def test_a_browser_prints_both_pages(two: list[tuple[Lineage, Folder]], tmp_path: Path) -> None:
    lineage, folder = two[0]
    for name, html in (("one", page(lineage, folder, plain_diff)), ("two", surfaces(two, plain_diff))):
        out = tmp_path / f"{name}.pdf"
        dumped(html, tmp_path, f"--print-to-pdf={out}")
        assert out.read_bytes().startswith(b"%PDF") and out.stat().st_size > 10_000




def test_the_picture_of_one_lineage_is_a_file_of_its_own(two: list[tuple[Lineage, Folder]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(tmp_path / "first"), "-o", str(tmp_path / "chain.svg")]) == 0
    drawn = ElementTree.parse(tmp_path / "chain.svg").getroot()
    circles = [e for e in drawn.iter("{http://www.w3.org/2000/svg}circle") if e.get("class") == "state"]
    assert len(circles) == len(two[0][0].states)
    assert run(["report", str(tmp_path / "first"), str(tmp_path / "second"), "-o", str(tmp_path / "chain.svg")]) == 2
    assert "KIR-S031" in capsys.readouterr().err
