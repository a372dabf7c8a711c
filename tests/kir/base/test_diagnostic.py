"""Diagnostics: their text, their JSON form, near names, and the tables that explain them."""

from __future__ import annotations

import pickle
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kir.base.diagnostic import Diagnostic, KirError, Origin, UsageError, did_you_mean, error, explanation, explanations, usage

SOURCE = "float acc = 0;\nfor (int k = 0; k < 32; ++k)\n\tacc += As[ty][k] * Bs[k][tx];\n"


def test_render_shows_the_line_with_its_span_underlined() -> None:
    start = SOURCE.index("As[ty][k]")
    found = Diagnostic(
        "KIR-P017",
        "writes to shared memory are not ordered before this read",
        origin=Origin.of("gemm.cu", SOURCE, start, start + 9),
        anchor="main/k_loop/body.3",
        subject="stage-shared{buffer=A}",
        witness=("thread (3,7) reads As[3][0] before thread (3,0) writes it, at k = 0",),
        needs="a barrier between body.1 and body.3",
        attempt="insert-barrier{at=main/k_loop/body.3@before}",
        verdict="refuted in 12 ms",
        label="read by thread (3,7)",
    )
    lines = found.render(SOURCE).splitlines()
    assert lines[0] == "error[KIR-P017] stage-shared{buffer=A}: writes to shared memory are not ordered before this read"
    assert lines[1].startswith("  --> gemm.cu:3:9 ") and lines[1].endswith("(main/k_loop/body.3)")
    assert lines[2:5] == [
        "   |",
        " 3 |     acc += As[ty][k] * Bs[k][tx];",
        "   |            ^^^^^^^^^ read by thread (3,7)",
    ]
    assert lines[5:8] == [
        "   = witness: thread (3,7) reads As[3][0] before thread (3,0) writes it, at k = 0",
        "   = needs:   a barrier between body.1 and body.3",
        "   = try:     insert-barrier{at=main/k_loop/body.3@before}",
    ]
    assert lines[8].startswith("   = verdict: refuted in 12 ms") and lines[8].endswith("more: kir explain KIR-P017")


def test_render_reads_the_file_itself_and_copes_without_it(tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text("int 変数 = x;\n", encoding="utf-8")
    found = Diagnostic("KIR-F001", "unknown name", origin=Origin(str(file), 1, 10, 1, 11))
    lines = found.render().splitlines()
    assert lines[3] == " 1 | int 変数 = x;"
    assert lines[4] == "   |            ^", "each of the two wide characters takes two columns"
    file.unlink()
    assert "|" not in found.render()
    assert "|" not in Diagnostic("KIR-F001", "m", origin=Origin("k", 9, 1, 9, 2)).render("one line only")


def test_a_span_of_several_lines_is_underlined_to_the_end_of_its_first() -> None:
    text = Diagnostic("KIR-F001", "m", origin=Origin("k", 1, 5, 2, 3)).render("for {\n  }\n")
    assert text.splitlines()[4] == "   |     ^..."


def test_color_only_adds_escapes() -> None:
    found = Diagnostic("KIR-F001", "m", origin=Origin("k", 1, 1, 1, 2), needs="n", severity="warning")
    colored = found.render("x", color=True)
    assert "\x1b[" in colored and "\x1b[" not in found.render("x")
    plain = colored
    while (start := plain.find("\x1b[")) >= 0:
        plain = plain[:start] + plain[plain.index("m", start) + 1 :]
    assert plain == found.render("x")


words = st.text(string.printable, max_size=12)
origins = st.builds(Origin, words, *[st.integers(1, 9)] * 4)


@given(
    st.builds(
        Diagnostic,
        id=st.sampled_from(["KIR-T001", "KIR-P999"]),
        message=words,
        origin=st.none() | origins,
        **dict.fromkeys(("anchor", "subject", "needs", "attempt", "verdict", "label"), words),
        witness=st.tuples(words),
        notes=st.tuples(words, words),
        severity=st.sampled_from(["error", "warning", "note"]),
    )
)
def test_json_reads_back_and_any_text_renders(found: Diagnostic) -> None:
    assert Diagnostic.from_json(found.to_json()) == found
    assert found.id in found.render("some\nsource\n")


def test_json_with_an_unknown_field_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="no field 'mesage'; did you mean 'message'"):
        Diagnostic.from_json({"id": "KIR-T001", "mesage": "m"})


@pytest.mark.parametrize("id_", ["KIR-Q001", "KIR-T01", "T001", "KIR-T0011", "kir-T001"])
def test_an_id_of_another_form_is_refused(id_: str) -> None:
    with pytest.raises(ValueError, match="is not a diagnostic id"):
        Diagnostic(id_, "m")


def test_errors_carry_their_diagnostics_through_pickling() -> None:
    fault = pickle.loads(pickle.dumps(usage("KIR-C001", "no", needs="yes")))
    assert isinstance(fault, UsageError) and fault.diagnostics == (Diagnostic("KIR-C001", "no", needs="yes"),)
    assert type(error("KIR-C001", "no")) is KirError
    with pytest.raises(ValueError, match="at least one"):
        KirError()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("vectorize_globl", "did you mean 'vectorize-global'?"),
        ("STAGE-SHARED", "did you mean 'stage-shared'?"),
        ("pad", "did you mean 'pad-shared'?"),
        ("qqq", ""),
        ("", ""),
    ],
)
def test_near_names(name: str, hint: str) -> None:
    assert did_you_mean(name, ["vectorize-global", "stage-shared", "pad-shared", "mma"]) == hint


def test_several_near_names_are_listed_nearest_first() -> None:
    assert did_you_mean("stage-share", ["stage-shared", "stage-sharp"]) in (
        "did you mean 'stage-shared' or 'stage-sharp'?",
        "did you mean 'stage-sharp' or 'stage-shared'?",
    )


def test_every_row_says_something() -> None:
    for row in explanations().values():
        assert row.title and row.explain and row.mend
        assert not row.title.endswith("."), row.id
    assert explanation("KIR-X003") is not None
    assert explanation("KIR-T999") is None
