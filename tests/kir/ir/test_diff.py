"""The structural diff: nothing for equal programs, moves as moves, and three renderings of one set of rows."""
from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import HealthCheck, given, settings

from kir.ir import nodes as n
from kir.ir.anchors import at, insert, paths, replace_at, resolve
from kir.ir.changes.diff import Diff, diff, render_html, render_terminal, to_json
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from tests.strategies import programs

SLOW = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
TEXT = """kir 1
program p
  size K: i32
  in A: f32[64, K]
  out C: f32[64]
kernel main grid () threads 64
  shared As: f32[64, 32]
  fragment acc: f32[64] = 0.0
  @k_loop for k in 0..K // 32
    @load copy A[0 +: 64, k * 32 +: 32] -> As
    @sum acc = acc + reduce(As, axis=1, op=sum)
    if k > 2
      barrier()
  @store C = acc
"""


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def changes(d: Diff) -> list[tuple[str, str]]:
    return [(row.kind, row.anchor_after or row.anchor_before) for row in d.rows if row.kind != "same"]


@SLOW
@given(programs(1), programs(1))
def test_every_line_of_both_programs_has_its_row(p: n.Program, q: n.Program) -> None:
    d = diff(p, q)
    before = sorted(row.before for row in d.rows if row.kind in ("same", "changed", "moved", "moved+changed", "deleted"))
    after = sorted(row.after for row in d.rows if row.kind in ("same", "changed", "moved", "moved+changed", "added"))
    skipped = ("pass", "roles")
    def lines(x: n.Program) -> list[str]:
        return sorted(s for s in (line.strip() for line in program_text(x).splitlines()[1:]) if s not in skipped)
    assert [x for x in before if x not in skipped] == lines(p)
    assert [x for x in after if x not in skipped] == lines(q)
    assert d.equal == (p == q)
    json.dumps(to_json(d))
    tags = _Tags()
    tags.feed(render_html(d))
    assert tags.open == []


def test_a_moved_statement_is_not_deleted_and_added() -> None:
    p = parse_program(TEXT)
    load = resolve(p, "main/k_loop/load")
    q = insert(replace_at(p, load, ()), ("main", 2), (at(p, load),))
    d = diff(p, q)
    assert changes(d) == [("moved", "main/load"), ("left", "main/load")]
    text = render_terminal(d)
    assert "moved from main/k_loop/load" in text and "moved to main/load" in text
    assert "\n-" not in text and "\n+" not in text


def test_exchanged_neighbors_are_one_move() -> None:
    p = parse_program(TEXT)
    body = p.kernels[0].body
    q = replace_at(replace_at(p, ("main", 0), (body[1],)), ("main", 1), (body[0],))
    kinds = [kind for kind, _ in changes(diff(p, q))]
    assert kinds in (["moved", "left"], ["left", "moved"])


def test_a_changed_loop_keeps_what_is_in_it() -> None:
    p = parse_program(TEXT)
    q = parse_program(TEXT.replace("0..K // 32", "0..K // 32 pipelined {stages=3}").replace("-> As",
                                                                                            "-> As via cp_async").replace("if k > 2",
                                                                                                                          "if k > 3"))
    d = diff(p, q)
    assert changes(d) == [("changed", "main/k_loop"), ("changed", "main/k_loop/load"), ("changed", "main/k_loop/if")]
    assert d.counts["changed"] == 3 and d.counts["added"] == d.counts["deleted"] == 0


def test_header_kernel_and_else_lines_take_part() -> None:
    p = parse_program(TEXT)
    q = parse_program(TEXT.replace("  size K: i32\n", "  size K: i32\n  fact K % 32 == 0\n").replace("threads 64", "threads 128")
                      .replace("      barrier()\n", "      barrier()\n    else\n      fence()\n"))
    rows = [(row.kind, row.after) for row in diff(p, q).rows if row.kind != "same"]
    assert rows == [("added", "fact K % 32 == 0"), ("changed", "kernel main grid () threads 128"), ("added", "else"), ("added", "fence()")]


def test_labels_are_shown_though_they_are_not_compared() -> None:
    p, q = parse_program(TEXT), parse_program(TEXT.replace("@sum", "@total"))
    d = diff(p, q)
    assert p == q and d.equal and not d.is_empty
    assert changes(d) == [("changed", "main/k_loop/total")]


def test_the_html_is_escaped_and_needs_nothing_else() -> None:
    p = parse_program(TEXT)
    q = parse_program(TEXT.replace("if k > 2", "if k < 2"))
    text = render_html(diff(p, q))
    assert "if k <mark>&lt;</mark> 2" in text and "if k <mark>&gt;</mark> 2" in text, "what differs is marked, and escaped"
    assert "if k < 2" not in text and "if k &lt; 2" in re.sub("</?mark>", "", text)
    assert "http" not in text and "<script" not in text


def test_colors_only_when_asked_for() -> None:
    p = parse_program(TEXT)
    q = replace_at(p, ("main", 3), ())
    assert "\x1b[" not in render_terminal(diff(p, q))
    assert "\x1b[" in render_terminal(diff(p, q), color=True)


def test_a_notebook_shows_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A console in a notebook shows what it prints by itself, captured or not."""
    shown: list[str] = []
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda segments, text: shown.append(text))
    p = parse_program(TEXT)
    assert "- " in render_terminal(diff(p, replace_at(p, ("main", 3), ()))) and not shown


def test_far_rows_are_folded() -> None:
    many = TEXT.replace("  @store C = acc\n", "".join(f"  let x{i} = {i}\n" for i in range(40)) + "  @store C = acc\n")
    p = parse_program(many)
    d = diff(p, replace_at(p, resolve(p, "main/store"), ()))
    text = render_terminal(d)
    assert len(text.splitlines()) < 10 and "unchanged" in text
    assert len(list(paths(p))) > 40
