"""Case files of passes: what a pass does, what it refuses, and what catches it when it is forced.

A TOML file holds tables `[[case]]` (`name`, `before`, `pipeline`, `after`, `sizes` at which both are interpreted and compared) and
`[[error]]` (`name`, `before`, `pipeline`, `id`; `verdict` and `witness`, text that the refusal shows; and for a validity precondition
`caught_by` with `sizes`). `caught_by` is one of

- `verifier`: the forced result is no well-formed program;
- `target`: the target (`target`, sm_80 if there is no such field, for which the case is run then) cannot run it;
- `checker`: the interpreter's checking mode finds an error in it;
- `values`: it computes something else.
"""
from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kir.analysis.target.legalize import legalize
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error
from kir.hardware.target import target
from kir.ir.canonical import alpha_equal
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rules.verify import verify
from kir.rewrite.meaning import difference, interpreted
from kir.rewrite.pipelines.pipeline import Trace, run
from kir.rewrite.pipelines.text import Pipeline
from kir.rewrite.registry import pass_class
from kir.rewrite.verdict import ANYWHERE, Context

CATCHERS = ("verifier", "target", "checker", "values")


@dataclass(frozen=True)
class Case:
    """One table of a case file. `after` is None in an error."""

    name: str
    before: Program
    pipeline: Pipeline
    after: Program | None = None
    id: str = ""
    verdict: str = ""
    witness: str = ""
    caught_by: str = ""
    sizes: tuple[tuple[str, int], ...] = ()
    target: str = ""

    @property
    def context(self) -> Context:
        """The hardware that the case is about, if it names any."""
        return Context(target(self.target)) if self.target else ANYWHERE

    def run(self) -> None:
        """Run it. Raises KirError KIR-R012 when it comes out otherwise."""
        if self.after is not None:
            self._runs(self.after)
        else:
            self._refused()
            if self.caught_by:
                found = self.catch()
                if self.caught_by not in found:
                    raise self._wrong(f"forced, it is caught by {', '.join(found) or 'nothing'}, not by {self.caught_by}")

    def _wrong(self, message: str, *notes: str) -> KirError:
        return error("KIR-R012", message, subject=f"case '{self.name}'", notes=notes)

    def _runs(self, after: Program) -> None:
        trace = run(self.before, self.pipeline, self.context)
        if not alpha_equal(trace.program, after):
            raise self._wrong("the pipeline gives another program than the case shows", program_text(trace.program))
        if self.sizes:
            numerics = {s.record.numerics for s in trace.steps} - {"bitwise"}
            sizes = dict(self.sizes)
            bad = difference(interpreted(self.before, sizes), interpreted(trace.program, sizes), next(iter(numerics), "bitwise"))
            if bad:
                raise self._wrong(f"both sides differ at {sizes}: {bad}")

    def _refused(self) -> None:
        try:
            run(self.before, self.pipeline, self.context)
        except KirError as bad:
            found = [d for d in bad.diagnostics if d.id == self.id]
            if not found:
                raise self._wrong(f"it is refused by {', '.join(d.id for d in bad.diagnostics)}, not by {self.id}", str(bad)) from bad
            shown = found[0].render()
            for text in (self.verdict, self.witness):
                if text not in shown:
                    raise self._wrong(f"its refusal does not show {text!r}", shown) from bad
            return
        raise self._wrong(f"it is not refused by {self.id}")

    def catch(self) -> tuple[str, ...]:
        """What catches the forced application, of `CATCHERS`."""
        trace = Trace(self.before)
        for step in self.pipeline.steps:
            trace = trace.then(replace(step, force=True), self.context)
        if any(d.severity == "error" for d in verify(trace.program)):
            return ("verifier",)
        if legalize(trace.program, target(self.target or "sm_80").architecture):
            return ("target",)
        found, sizes = [], dict(self.sizes)
        try:
            checked = interpreted(trace.program, sizes, checked=True)
        except KirError:
            return ("checker",)
        if checked.errors:
            found.append("checker")
        numerics = {s.record.numerics for s in trace.steps} - {"bitwise"}
        if difference(interpreted(self.before, sizes), checked, next(iter(numerics), "bitwise")):
            found.append("values")
        return tuple(found)


def read_cases(path: Path) -> tuple[Case, ...]:
    """The cases of a file. Raises KirError KIR-R013 for a table with unknown or missing fields."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    if set(data) - {"case", "error"}:
        raise error("KIR-R013", f"{path.name}: a case file has tables [[case]] and [[error]], not {sorted(set(data) - {'case', 'error'})}")
    return tuple([_case(path, t, {"after"}) for t in data.get("case", ())] + [_case(path, t, {"id"}) for t in data.get("error", ())])


def _case(path: Path, table: Mapping[str, Any], extra: set[str]) -> Case:
    needed = {"name", "before", "pipeline"} | extra
    allowed = needed | {"target"} | ({"sizes"} if "after" in extra else {"sizes", "verdict", "witness", "caught_by"})
    if set(table) - allowed or needed - set(table) or table.get("caught_by", "values") not in CATCHERS:
        wrong = sorted(set(table) - allowed | needed - set(table)) or ["caught_by"]
        raise error("KIR-R013", f"{path.name}, '{table.get('name', '?')}': {wrong[0]} is missing, unknown or has a wrong value",
                    needs=f"{', '.join(sorted(needed))}; allowed too: {', '.join(sorted(allowed - needed))}")
    name = str(table["name"])
    return Case(name, parse_program(table["before"], f"{path.name}:{name}"), Pipeline.parse(table["pipeline"]),
                parse_program(table["after"], f"{path.name}:{name}") if "after" in table else None, str(table.get("id", "")),
                str(table.get("verdict", "")), str(table.get("witness", "")), str(table.get("caught_by", "")),
                tuple(table.get("sizes", {}).items()), str(table.get("target", "")))


def uncovered(name: str, cases: tuple[Case, ...]) -> tuple[str, ...]:
    """Validity ids of a pass that no must-fail section covers."""
    return tuple(p.id for p in pass_class(name).preconditions
                 if p.kind == "validity" and not any(c.id == p.id and c.caught_by for c in cases))
