"""Places of syntax nodes: those that libcst's own provider works out."""

from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest
from libcst.metadata import MetadataWrapper, PositionProvider

from kir.frontends._python.positions import Positions
from kir.frontends._python.project import parse_module

MODULE = '''# a file
"""Its words."""
import os; import sys

# above
@first
# between

@second(1,
        2)
def f(a, b=(1),
      *c):  # here
    """What it does."""
    if a: return b
    for x in (c,
              a):
        y = x; z = """
two lines"""  # there

    # trailing
    return y


if sys:
    class C:
        async def g(self): pass
else: t = 1
'''


@pytest.mark.parametrize("text", [MODULE, MODULE.replace("\n", "\r\n"), MODULE.rstrip("\n"), "\n\n" + MODULE, "match = 1\nx = 1;\n", "x = 1"])
@pytest.mark.parametrize("backward", [False, True])
def test_the_places_are_those_of_libcst(text: str, backward: bool) -> None:
    tree = cst.parse_module(text)
    found = Positions(text, tree)
    wanted = MetadataWrapper(tree, unsafe_skip_copy=True).resolve(PositionProvider)
    ends = {id(x) for x in (*tree.header, *tree.footer)}
    # Statements in either order: what is asked for first is written first.
    for node, r in sorted(wanted.items(), key=lambda each: each[1].start.line, reverse=backward):
        if any(_inside(node, s) for s in tree.body):
            assert found.of(node) == (r.start.line, r.start.column, r.end.line, r.end.column), node
            assert id(node) not in ends


def _inside(node: cst.CSTNode, s: cst.CSTNode) -> bool:
    return node is s or any(_inside(node, c) for c in s.children)


def test_a_text_that_only_libcst_reads_is_written_as_a_whole() -> None:
    text = "\ufeffx = 1\n\ndef f():\n    return 2\n"
    tree = cst.parse_module(text)
    f = tree.body[1]
    assert Positions(text, tree).line(f) == 3
    assert Positions(text, tree).of(cst.Pass()) is None


def test_functions_say_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text(MODULE)
    module = parse_module(file)
    assert {f.name.value: module.line(f) for f in module.functions} == {"f": 11, "g": 26}
    outer = module.functions[0]
    origin = module.origin(outer.body.body[1])
    assert origin is not None and (origin.line, origin.column) == (14, 5)
