"""The report: one file, nothing fetched, everything the lineage knows in it, and all text escaped."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kir.faces.report.chart import chart, seconds
from kir.faces.report.page import page
from kir.faces.report.terminal import Stepped, _brief, realized_text, table
from kir.faces.report.verdict import verdict_rows
from kir.ir.nodes import Program
from kir.lineage.records.folder import Folder, opened
from kir.lineage.records.record import Lineage, Realization
from kir.lineage.replay import replay
from kir.lineage.walk import Judgement
from tests.kir.lineage.toy import ToyEngine, ToyJudge, finished, walked


def plain_diff(before: Program, after: Program) -> str:
    return f"<pre>{len(before.kernels[0].attrs)} to {len(after.kernels[0].attrs)}</pre>"


@pytest.fixture
def lineage(tmp_path: Path) -> Lineage:
    def rule(there: list[str]) -> bool:
        return "a" in there or "b" not in there

    return finished(tmp_path, walked(tmp_path, ToyEngine(), ToyJudge(rule, ignored="c")))


class Outline(HTMLParser):
    """Checks nesting and collects ids, links and text."""

    void = frozenset({"meta", "circle", "line", "polyline", "br", "i"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if identifier := named.get("id"):
            self.ids.append(identifier)
        for key in ("href", "src"):
            if value := named.get(key):
                self.links.append(value)
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in self.void

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.void:
            assert self.open.pop() == tag


def test_the_page_is_whole_and_fetches_nothing(lineage: Lineage, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    html = page(lineage, folder, plain_diff, replay(lineage, folder, ToyEngine()))
    outline = Outline()
    outline.feed(html)
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))
    assert all(link.startswith("#") and link[1:] in outline.ids for link in outline.links)
    assert not re.search(r"https?://|@import|url\(", html)
    for step in lineage.accepted:
        assert step.forward in html and step.intent in html
    for step in lineage.rejected:
        assert step.reason in html
    assert lineage.seal in html and "the expert's hash is restored" in html.replace("&#39;", "'")
    assert "not realized: the compiler gives the same code" in html
    assert "Read from the naive program forward" in html and "<dt>Naive to expert, " in html
    unfinished = lineage.model_copy(update={"outcome": lineage.outcome.model_copy(update={"ended": "budget"})})
    html = page(unfinished, folder, plain_diff, replay(lineage, folder, ToyEngine()))
    assert "Read from K0, the program in which the walk ended, forward" in html and "<dt>K0 to expert, " in html
    assert "aive to expert" not in html and "the naive program" not in html, "what is no naive program is not called so"


def test_emitted_code_of_two_languages_is_not_compared_line_by_line(lineage: Lineage, tmp_path: Path) -> None:
    texts = iter(["@triton.jit\ndef kernel(): pass\n", "__global__ void kernel() {}\n"] * len(lineage.steps))
    steps = tuple(step.model_copy(update={"emitted": next(texts)}) for step in lineage.steps)
    html = page(lineage.model_copy(update={"steps": steps}), Folder(tmp_path), plain_diff)
    assert " before and " in html and "has no words for a program leaves it to another" in html
    assert "leaves it to another" not in page(lineage, Folder(tmp_path), plain_diff)


def test_text_from_outside_is_escaped(lineage: Lineage, tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    header = lineage.header.model_copy(update={"expert": evil, "source": evil, "tools": {evil: evil}})
    steps = tuple(step.model_copy(update={"forward": evil, "intent": evil, "reason": evil, "emitted": evil}) for step in lineage.steps)
    html = page(lineage.model_copy(update={"header": header, "steps": steps}), Folder(tmp_path), plain_diff)
    assert evil not in html


def test_the_picture_has_every_state_and_step(lineage: Lineage) -> None:
    picture = chart(lineage)
    assert [name for _, name in picture.states] == ["K0", "K1", "K2", "K3"]
    assert [edge.intent for edge in picture.edges] == [step.intent for _, step in lineage.transitions()]
    (curve,) = picture.curves
    assert curve.name == "sm_80, modelled" and curve.dashed and len(curve.dots) == 4
    assert [dot.y for dot in curve.dots] == sorted(dot.y for dot in curve.dots), "faster states stand lower"
    for name in ("fmha_sm90", "gemm_sm90"):  # 44 and 27 steps: words under the picture do not lie on one another
        long = chart(opened(Path(name)).read())
        apart = (long.states[1][0] - long.states[0][0]) / long.scale * math.sin(math.radians(long.turn))
        assert apart >= 12.4 and (long.turn > 38) is (name == "fmha_sm90")


def test_a_lineage_without_times_shows_sizes(lineage: Lineage) -> None:
    bare = lineage.model_copy(
        update={
            "start": lineage.start.model_copy(update={"modelled": {}}),
            "steps": tuple(step.model_copy(update={"after": step.after.model_copy(update={"modelled": {}})}) for step in lineage.steps if step.after),
        }
    )
    assert [curve.name for curve in chart(bare).curves] == ["IR nodes"]


@pytest.mark.parametrize(("value", "text"), [(1.5, "1.5 s"), (0.0123, "12.3 ms"), (4.2e-5, "42 µs"), (3e-9, "3 ns")])
def test_durations_are_readable(value: float, text: str) -> None:
    assert seconds(value) == text


def test_a_verdict_is_told_in_a_few_rows() -> None:
    run = {"shape": "tail", "sizes": {"M": 5}, "distribution": "normal", "ok": True, "where": "Y[0]", "mode": "fast", "worst": 0.5}
    kernel = {"kernel": "main", "registers": 40, "spills": 8, "shared_bytes": 1024, "mix": {"FFMA": 9, "BAR": 1}, "options": {"num_warps": 4}}
    record = {
        "compile": {"artifacts": [{"target": "sm_80", "absent": "", "kernels": [kernel]}], "absent": [], "refusals": []},
        "correctness": {"reference": "softmax", "runs": [run, {**run, "mode": "check", "worst": 0.75}, {**run, "shape": "M=7"}], "findings": [], "weak": []},
        "profile": [{"target": "sm_80", "shape": "long", "seconds": 2e-5, "bound_by": "dram"}],
    }
    rows = dict(verdict_rows(record))
    assert "40 registers" in rows["compiled, sm_80"] and "8 bytes spilled" in rows["compiled, sm_80"] and "FFMA 9" in rows["compiled, sm_80"]
    assert rows["correct"].startswith("3 of 3 runs against softmax") and rows["correct"].endswith("shapes tail (M=5); M=7") and "0.75" in rows["largest error"]
    assert rows["modelled, sm_80"] == "20 µs at long, bound by dram"
    assert verdict_rows({}) == ()


class Uncompiled(ToyJudge):
    """A machine without the surface's compiler."""

    def realized(self, before: Judgement, after: Judgement) -> Realization:
        return Realization(realized=False, reason="not compiled: the compiler is not here")


def test_what_was_not_compiled_is_not_said_to_be_unrealized(tmp_path: Path) -> None:
    made = finished(tmp_path / "out", walked(tmp_path / "out", ToyEngine(), Uncompiled(lambda there: True)))
    html = page(made, Folder(tmp_path / "out"), plain_diff)
    assert "not compiled: the compiler is not here" in html and ">not compiled</span>" in html and "not realized" not in html
    assert realized_text(made) == f"{len(made.accepted)} steps, not compiled"
    shown = table(made)
    assert shown.caption == "not compiled: the compiler is not here" and "0 of" not in str(shown.title)


def test_long_parameters_are_shortened_and_no_line_of_a_step_is_wider_than_its_column() -> None:
    items = ", ".join(f'"i_{k}: t % {k}"' for k in range(20))
    step = Stepped(_brief(f'lower-mma{{named=[{items}] align=1024 value="{"x" * 60}"}}@main/k_loop', True))
    assert step.lines(200) == ['lower-mma{named=["i_0: t % 0", "i_1: t % 1", .. 18 more] align=1024 value="xxxxxxxxxxxxxxxxxxx.."}@k_loop']
    for width in (16, 24, 40):
        assert max(map(len, step.lines(width))) <= width
