"""The conformance suite of passes: what a plugin's own tests run to show that its pass keeps the rules.

    from kir.rewrite.conformance.suite import conform
    def test_conforms() -> None:
        assert conform("my-pass", Path(__file__).parent / "cases" / "my_pass.toml") == ()
"""
from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from kir.analysis import normalize
from kir.base.diagnostic import Diagnostic, KirError
from kir.ir.canonical import alpha_equal
from kir.ir.nodes import Program
from kir.ir.printer import program_text
from kir.rewrite.base import Pass, Rewritten
from kir.rewrite.conformance.box import Box, box_of
from kir.rewrite.conformance.case import Case, read_cases, uncovered
from kir.rewrite.driver import apply, forward_site, sites, undone
from kir.rewrite.pipelines.text import Direction, Pipeline, Step
from kir.rewrite.registry import failed, pass_class
from kir.rewrite.residue import residue

DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")
NUMERICS = ("bitwise", "reassociated(", "rounding-moved(", "approximate(")


def conform(name: str, cases: Path | None = None) -> tuple[Diagnostic, ...]:
    """Everything that is wrong with a registered pass, each as a diagnostic; () when it conforms. Without a case file only its box is
    run, and the lack of one is a finding when the pass has validity preconditions."""
    cls = pass_class(name)
    found: list[Diagnostic] = []
    held: tuple[Case, ...] = ()
    box: Box | None = None
    found += _declarations(cls)
    try:
        box = box_of(sys.modules[cls.__module__].__doc__ or "", name)
        held = read_cases(cases) if cases is not None else ()
    except KirError as bad:
        found += bad.diagnostics
    found += [Diagnostic("KIR-R014", f"no must-fail section covers {id_}", subject=name, needs="an [[error]] table with caught_by")
              for id_ in uncovered(name, held)]
    for check in [box.run] if box else []:
        found += _complaints(cls, check)
    for case in held:
        found += _complaints(cls, case.run)
    programs = ([box.before, box.after] if box else []) + [c.before for c in held] + [c.after for c in held if c.after]
    for p in programs:
        try:
            found += _laws(cls, normalize(p))
        except Exception as fault:
            said = failed(cls, "on this program", fault)
            found.append(replace(said, severity="error", notes=(program_text(p).rstrip(),)))
    return tuple(found)


def _complaints(cls: type[Pass], check: Callable[[], None]) -> tuple[Diagnostic, ...]:
    try:
        check()
    except KirError as bad:
        return bad.diagnostics
    except Exception as fault:
        return (replace(failed(cls, "in its box or a case", fault), severity="error"),)
    return ()


def _declarations(cls: type[Pass]) -> Iterator[Diagnostic]:
    def wrong(message: str) -> Diagnostic:
        return Diagnostic("KIR-R014", message, subject=cls.name)
    if not cls.intent or not cls.claim.endswith("."):
        yield wrong("it declares an intent, and a claim that is a sentence")
    if not any(cls.numerics == x or (x.endswith("(") and cls.numerics.startswith(x)) for x in NUMERICS):
        yield wrong(f"its numerics '{cls.numerics}' are none of {', '.join(NUMERICS)}")
    ids = [p.id for p in cls.preconditions]
    if len(set(ids)) != len(ids):
        yield wrong("two of its preconditions have one id")
    item = cls.with_options({})
    for direction in DIRECTIONS:
        pipeline = Pipeline((Step.of(item, "main/k_loop", direction), Step.of(item, force=True)))
        if Pipeline.parse(str(pipeline)) != pipeline or Pipeline.from_json(json.loads(json.dumps(pipeline.to_json()))) != pipeline:
            yield wrong("its parameters do not survive as text and JSON")
        if cls.with_options(pipeline.steps[0].options) != item:
            yield wrong("its options do not give the pass back")


def _laws(cls: type[Pass], p: Program) -> Iterator[Diagnostic]:
    """The lens laws at every site of a program."""
    item = cls.with_options({})
    for site in sites(item, p, "backward"):
        q, w = site.params.backward(p, site)
        there = forward_site(q, w.params, w.path)
        if there.params.forward(q, there, w.residue) != p:
            yield _broken(cls, f"forward does not restore what {site.params} undid", p)
        if residue(there.params.forward(q, there), p) is None:
            yield _broken(cls, f"the parameters of {site.params} alone do not suffice", p)
    for site in sites(item, p):
        try:
            done = apply(p, site.params, site)
            back, _ = done.back or undone(p, Rewritten(done.program, done.witness.path), site.params)
        except KirError as bad:
            if any(d.id[4] != "P" and d.id != "KIR-R006" for d in bad.diagnostics):
                yield from bad.diagnostics
            continue
        if not alpha_equal(back, p):
            yield _broken(cls, f"backward does not undo {site.params}", p)


def _broken(cls: type[Pass], message: str, p: Program) -> Diagnostic:
    return Diagnostic("KIR-R014", message, subject=cls.name, notes=(program_text(p),))
