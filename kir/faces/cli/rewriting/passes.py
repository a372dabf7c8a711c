"""list the passes: intent, parameters, preconditions

Read from the text of the modules, so that nothing is imported; `kir plugins` says what is broken. `kir passes NAME` shows one at length. --check NAME runs the
conformance suite on one pass: its declarations, its box, its cases, and the law that its two directions are inverse.
"""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kir.base.diagnostic import did_you_mean, usage
from kir.faces.cli._options import belong
from kir.faces.cli._result import Result
from kir.rewrite.catalog import described, families, purpose, summary, table


def command(
    name: Annotated[str, typer.Argument(help="one pass: all that it says of itself, with the program before and after it")] = "",
    family: Annotated[str, typer.Option(metavar="NAME", help="the passes of one family alone")] = "",
    markdown: Annotated[bool, typer.Option(help="the table of docs/tables/passes.md")] = False,
    check: Annotated[str, typer.Option(metavar="NAME", help="hold this pass to the conformance suite")] = "",
    cases: Annotated[Path | None, typer.Option(metavar="FILE", help="with --check: the pass's case file")] = None,
) -> Result:
    """List the registered passes with their parameters, preconditions and catalogue rows."""
    if check:
        return _checked(check, cases)
    if name:
        return _described(name)
    belong("passes", "--check NAME", {"--cases": cases})
    from kir.base.fork_map import halved
    from kir.base.registry import registry

    entries = tuple(registry("kir.passes"))
    if family and not any(e.family == family for e in entries):
        known = sorted({e.family for e in entries if e.family})
        hint = did_you_mean(family, known)
        raise usage("KIR-X007", f"there is no family of passes '{family}'{f'; {hint}' if hint else ''}", needs=", ".join(known), attempt="kir passes")
    rows = tuple(halved(tuple(e for e in entries if family in ("", e.family)), summary))
    if markdown:
        return Result({"passes": [asdict(r) for r in rows]}, table(rows))
    width = max((len(r.name) for r in rows), default=0)
    lines = []
    for name, members in families(rows).items():
        lines += ["", f"{name}: {purpose(name)}".removesuffix(": ") if name else "of no family:"]
        for r in members:
            lines.append(f"  {r.name:<{width}}  {r.claim}")
            if r.parameters:
                lines.append(f"  {'':<{width}}    {', '.join(r.parameters)}")
            if r.preconditions:
                lines.append(f"  {'':<{width}}    needs {' '.join(r.preconditions)}")
    return Result({"passes": [asdict(r) for r in rows]}, "\n".join(lines).lstrip("\n"))


def _described(name: str) -> Result:
    """One pass at length."""
    from kir.base.registry import registry

    page = described(registry("kir.passes").entry(name))
    r = page.summary
    rows = f"; row{'s' if len(r.catalogue) > 1 else ''} {', '.join(map(str, r.catalogue))} of the catalogue" if r.catalogue else ""
    lines = [f"{r.name}  ({r.intent}{rows})", r.claim, "", "parameters:" if r.parameters else "no parameters"]
    lines += [f"  {each}" for each in r.parameters]
    lines += [f"  {line}" for line in textwrap.wrap(page.parameters, 110)]
    lines += ["", "preconditions of the forward direction:" if page.conditions else "no preconditions"]
    lines += [f"  {c.id}  {c.sentence}  ({c.kind}, {c.category})" for c in page.conditions]
    lines += ["", page.about, "", f"file: {page.file}"]
    json = {**asdict(r), "about": page.about, "conditions": [asdict(c) for c in page.conditions], "file": str(page.file)}
    return Result({"passes": [json]}, "\n".join(lines))


def _checked(name: str, cases: Path | None) -> Result:
    """What the conformance suite says of one pass."""
    from kir.rewrite.conformance.suite import conform
    from kir.surface.reading import read_text

    if cases is not None:
        read_text(cases)
    found = conform(name, cases)
    said = f"{name} conforms" if not found else f"{name} does not conform: {len(found)} finding{'' if len(found) == 1 else 's'}"
    return Result({"pass": name, "conforms": not found}, said, code=1 if found else 0, diagnostics=found)
