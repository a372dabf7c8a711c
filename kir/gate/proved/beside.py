"""What is decided for every size, as a part of a verdict: a hazard at sizes that the problem has refuses."""
from __future__ import annotations

from collections.abc import Iterable

from kir.analysis.proof.sites import KINDS
from kir.base.diagnostic import Diagnostic, KirError
from kir.gate.proved.confirm import proved
from kir.gate.proved.verdict import WORDS, Finding
from kir.gate.shapes import Space
from kir.gate.verdict import HazardRecord
from kir.ir import nodes as n

RUNS = 2
"""Sizes that are run for what is not proved: those that the tests of a verdict have are run anyway."""


def decided_beside(program: n.Program, space: Space, unsaid: Iterable[str] = ()) -> tuple[HazardRecord, tuple[Diagnostic, ...]]:
    """What is known of a program's hazards at every size, and what refuses it: KIR-G148 for one that a run showed, or that was worked out, at sizes that
    `space` allows. Sizes at which an index does not fit its 32 bits are for `kir.gate.widths`."""
    try:
        done = proved(program, RUNS, unsaid)
    except KirError as not_followed:
        return HazardRecord("undecided", why=(not_followed.diagnostics[0].message,)), ()
    found = [f for f in done.findings if f.kind != "overflow"]
    refuted = [f for f in found if f.status == "refuted"]
    record = HazardRecord(done.verdict, {WORDS[k]: done.status(k) for k in KINDS if any(k in row for row in done.kernels.values())},
                          tuple(f"{f.what} at {f.anchor}: {f.shown or f.why}" for f in found), done.unsaid)
    return record, tuple(_refusal(f) for f in refuted if _allowed(space, f))


def _allowed(space: Space, f: Finding) -> bool:
    at = {name: f.sizes[name] for name in space.names if name in f.sizes}
    return len(at) == len(space.names) and bool(not at or space.allowed([at])[0])


def _refusal(f: Finding) -> Diagnostic:
    at = ", ".join(f"{k} = {v}" for k, v in f.sizes.items())
    return Diagnostic("KIR-G148", f"{f.what}: {f.shown}{f' at {at}' if at else ''}", f.origin, f.anchor, f.kernel, tuple(x for x in (at, f.other) if x),
                      needs="kir check says more of it")


__all__ = ["decided_beside"]
