"""Expressions as text: what is remembered is what a parser gives."""
from __future__ import annotations

from dataclasses import replace

import pytest

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.paths import paths
from kir.ir.printer import expr_text
from kir.ir.types import F16, I32
from kir.ir.visit import walk
from kir.rewrite import view
from kir.rewrite.view import expression_at, text_of
from kir.surface.reading import load_expert


@pytest.mark.parametrize("expert", ["gemm/gemm_sm90.kir", "gemm/gemm_sm80_lanes.kir", "rmsnorm/rmsnorm.kir"])
def test_a_remembered_expression_is_the_one_that_its_text_means(expert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = load_expert(f"skills/experts/{expert}").program
    for path, s in paths(program):
        for e in [x for x in walk(s) if isinstance(x, n.Expr) and not isinstance(x, n.Region)][:6]:
            parsed = expression_at(program, path, expr_text(e))
            text_of(e)
            assert expression_at(program, path, expr_text(e)) == parsed
            monkeypatch.setattr(view, "_known", {})


def test_what_a_text_alone_does_not_tell_is_not_remembered() -> None:
    """A step is replayed from its text, in another process: what that could not read is no expression here either."""
    program = load_expert("skills/experts/rmsnorm/rmsnorm.kir").program
    path = next(path for path, _ in paths(program))
    text = text_of(n.Call("own", (build.const(1),), of=I32))
    assert text == "own(1)" and expression_at(program, path, text) is None


def test_a_text_over_names_that_mean_something_else_is_read_anew() -> None:
    program = load_expert("skills/experts/rmsnorm/rmsnorm.kir").program
    size = next(p for p in program.params if not isinstance(p.of, n.Buffer) and p.of == I32)
    path = next(path for path, _ in paths(program))
    text = text_of(n.Var(size.name, F16))
    assert expression_at(program, path, text) == n.Var(size.name, I32)
    gone = replace(program, params=tuple(p for p in program.params if p is not size), kernels=tuple(replace(k, body=()) for k in program.kernels))
    assert expression_at(gone, (gone.kernels[0].name, 0), text) is None
