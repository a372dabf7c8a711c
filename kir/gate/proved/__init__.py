"""Hazards for every size: what `kir.analysis.proof` decides, with each counterexample run before it is believed.

    done = proved(program)
    done.ok, done.decided, done.findings

Order: drawn, verdict, whole, widths, in_turn, confirm, beside, unsaid, assembly, compiled, fewer.
"""
from kir.gate.proved.confirm import proved
from kir.gate.proved.verdict import Finding, Proved

__all__ = ["Finding", "Proved", "proved"]
