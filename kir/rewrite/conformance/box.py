"""The before/after box of a pass: a pipeline and what it changes, in its module's docstring, parsed and run as a test.

Both programs stand in one fence marked `diff`, each line behind a space (both have it), `-` (before) or `+` (after); or in two fences marked `kir`.
"""
from __future__ import annotations

import re

from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.ir.canonical import alpha_equal
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.rewrite.pipelines.pipeline import run

_FENCE = re.compile(r"```kir\n(.*?)```", re.DOTALL)
_CHANGE = re.compile(r"```diff\n(.*?)```", re.DOTALL)
_PIPELINE = re.compile(r"^pipeline: `(.*)`$", re.MULTILINE)


@dataclass(frozen=True)
class Box:
    """An executable example."""

    before: Program
    pipeline: str
    after: Program

    def run(self) -> None:
        """Run it. Raises KirError KIR-R010 when the pipeline gives another program than the box shows."""
        made = run(self.before, self.pipeline).program
        if not alpha_equal(made, self.after):
            raise error("KIR-R010", f"the box of `{self.pipeline}` shows another program than it gives", notes=(program_text(made),))


def box_of(docstring: str, name: str) -> Box:
    """The box of a docstring. Raises KirError KIR-R010 when there is none."""
    programs, pipeline = _FENCE.findall(docstring), _PIPELINE.search(docstring)
    if change := _CHANGE.search(docstring):
        lines = change.group(1).splitlines(keepends=True)
        programs += ("".join(x[1:] for x in lines if x[0] in kept) for kept in (" -", " +"))
    if len(programs) != 2 or pipeline is None:
        raise error("KIR-R010", f"'{name}' has no before/after box", needs="a ```diff fence, or two ```kir fences, and a line: pipeline: `..`")
    before, after = (parse_program(text, f"{name}:{which}") for text, which in zip(programs, ("before", "after"), strict=True))
    return Box(before, pipeline.group(1), after)
